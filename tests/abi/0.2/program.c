// SPDX-License-Identifier: MIT
// A program of the time of version 0.2: it is built with the headers of that release, and run with
// the library of today (tools/check-abi). It uses every struct that may grow, and prints what it
// got. Behind each struct lie bytes that nobody may touch.

#include <kvern/kvern.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADS 2
#define QUERY_HEADS 4
#define DIM 32
#define ROWS 2
#define TOKENS 70

static const uint64_t GUARD[8] = {0x5eed, 1, 2, 3, 4, 5, 6, 7};

// A struct of the program's own size, with a guard behind it.
#define GUARDED(type, name)                                                                        \
    struct {                                                                                       \
        type it;                                                                                   \
        uint64_t guard[8];                                                                         \
    } name;                                                                                        \
    memcpy(name.guard, GUARD, sizeof GUARD)
#define CHECK_GUARD(name) must(memcmp((name).guard, GUARD, sizeof GUARD) == 0, "guard of " #name)

static void must(bool good, const char *what)
{
    if (good)
        return;
    printf("FAILED: %s: %s\n", what, kvern_error_detail());
    exit(1);
}

static void ok(kvern_status status, const char *what)
{
    must(status == KVERN_OK, what);
}

// ---- Inputs and outputs ----

static float values[3 * TOKENS * ROWS * QUERY_HEADS * DIM];
static float out[TOKENS * ROWS * QUERY_HEADS * DIM];

static void fill_values(void)
{
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        x = x * 1664525u + 1013904223u;
        values[i] = (float)(x >> 8) / 8388608.0f - 1.0f;
    }
}

static void print_bytes(const char *what, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * UINT64_C(1099511628211);
    printf("%s %016" PRIx64 "\n", what, hash);
}

// ---- The parts ----

static size_t blocks;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    blocks += user == values;
    const size_t whole = (bytes + alignment - 1) / alignment * alignment;
    return aligned_alloc(alignment, whole);
}

static void give_back(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)bytes;
    (void)alignment;
    blocks -= user == values;
    free(block);
}

static void run(void *user, size_t tasks, void (*task)(void *arg, size_t index), void *arg)
{
    (void)user;
    for (size_t i = tasks; i-- > 0;)
        task(arg, i);
}

static kvern_context *make_context(void)
{
    GUARDED(kvern_context_options, options);
    options.it = kvern_context_options_default();
    options.it.budget_bytes = UINT64_C(1) << 30;
    options.it.allocator.user = values;
    options.it.allocator.allocate = allocate;
    options.it.allocator.release = give_back;
    options.it.executor.run = run;
    options.it.executor.threads = 3;
    kvern_context *context;
    ok(kvern_context_create(&options.it, &context), "kvern_context_create");
    CHECK_GUARD(options);
    must(kvern_context_executor(context).run == run, "kvern_context_executor");
    return context;
}

static void print_memory(const kvern_context *context)
{
    GUARDED(kvern_memory, memory);
    memory.it.size = sizeof memory.it;
    ok(kvern_context_memory(context, &memory.it), "kvern_context_memory");
    CHECK_GUARD(memory);
    must(memory.it.size == sizeof memory.it, "the size of kvern_memory");
    must(memory.it.held_bytes <= memory.it.peak_bytes && memory.it.allocations > 0, "memory");
    printf("budget %" PRIu64 " pages %" PRIu64 "\n", memory.it.budget_bytes, memory.it.page_bytes);
}

static kvern_composition *make_composition(kvern_context *context)
{
    struct four_layers {
        kvern_layer layers[4];
    };
    GUARDED(struct four_layers, plan);
    kvern_layer *layers = plan.it.layers;
    for (size_t i = 0; i < 4; i++)
        layers[i] = kvern_layer_default(HEADS, DIM);
    layers[1] = kvern_layer_window(HEADS, DIM, 40);
    layers[1].keep = 4;
    GUARDED(kvern_storage, storage);
    storage.it = kvern_storage_default();
    ok(kvern_codec_parse("q4", 32, &storage.it.k), "kvern_codec_parse");
    storage.it.v = kvern_codec_affine(8, 32);
    storage.it.precise_last = 1;
    const kvern_layer_storage exception = {
        .layer = 2, .k = kvern_codec_dense(KVERN_F16), .v = kvern_codec_dense(KVERN_F32)};
    storage.it.layers = &exception;
    storage.it.layer_count = 1;
    ok(kvern_storage_apply(&storage.it, layers, 4), "kvern_storage_apply");
    layers[0].start = 66;
    CHECK_GUARD(storage);
    kvern_composition *composition;
    ok(kvern_composition_create(context, layers, 4, &composition), "kvern_composition_create");
    CHECK_GUARD(plan);
    for (size_t i = 0; i < 4; i++) {
        const kvern_layer *layer = kvern_composition_layer(composition, i);
        printf("%zu heads of %zu and %zu, codecs %d and %d, window %" PRId64 "+%" PRId64
               ", start %" PRId64 "\n",
               layer->kv_heads, layer->k_dim, layer->v_dim, (int)layer->k_codec.kind,
               (int)layer->v_codec.kind, layer->window, layer->keep, layer->start);
    }
    return composition;
}

static void attend(kvern_read *read, const kvern_layer *layer, const char *what, size_t tokens)
{
    static const float sinks[QUERY_HEADS] = {0.5f, -1, 0, 2};
    GUARDED(kvern_queries, queries);
    queries.it = kvern_queries_default(layer, QUERY_HEADS);
    queries.it.q = values + TOKENS * ROWS * HEADS * DIM;
    queries.it.out = out;
    queries.it.softcap = 20;
    queries.it.sinks = sinks;
    memset(out, 0, sizeof out);
    ok(kvern_read_attend(read, &queries.it), what);
    CHECK_GUARD(queries);
    print_bytes(what, out, tokens * QUERY_HEADS * DIM * sizeof out[0]);
    kvern_read_release(read);
}

static void use_cache(kvern_composition *composition, size_t layer)
{
    kvern_cache *cache;
    kvern_read *read;
    const kvern_layer *plan = kvern_composition_layer(composition, layer);
    const int64_t counts[ROWS] = {TOKENS, 41}, one[ROWS] = {1, 0};
    ok(kvern_cache_create(composition, layer, ROWS, &cache), "kvern_cache_create");
    GUARDED(kvern_tokens, tokens);
    tokens.it = kvern_tokens_default(plan);
    tokens.it.k = values;
    tokens.it.v = values + TOKENS * ROWS * HEADS * DIM;
    tokens.it.counts = counts;
    ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens.it, &read), "window");
    attend(read, plan, "window", TOKENS + 41);
    tokens.it.counts = one;
    ok(kvern_cache_append(cache, KVERN_PHASE_DECODE, &tokens.it, &read), "decode");
    attend(read, plan, "decode", 1);
    CHECK_GUARD(tokens);
    printf("length %" PRId64 " %" PRId64 "\n", kvern_cache_length(cache, 0),
           kvern_cache_length(cache, 1));
    float k[2 * HEADS * DIM], v[2 * HEADS * DIM];
    ok(kvern_cache_export(cache, 0, TOKENS - 1, 2, k, v), "kvern_cache_export");
    print_bytes("keys", k, sizeof k);
    print_bytes("values", v, sizeof v);
    if (plan->k_codec.kind == KVERN_CODEC_AFFINE) {
        uint32_t words[HEADS * DIM * 4 / 32];
        uint16_t scales[HEADS], biases[HEADS];
        GUARDED(kvern_affine_arrays, codes);
        codes.it = (kvern_affine_arrays){.words = words, .scales = scales, .biases = biases};
        ok(kvern_cache_export_affine(cache, 0, TOKENS, 1, &codes.it, NULL), "affine");
        CHECK_GUARD(codes);
        print_bytes("words", words, sizeof words);
        print_bytes("scales", scales, sizeof scales);
        print_bytes("biases", biases, sizeof biases);
    }
    kvern_cache_destroy(cache);
}

static void step(kvern_state *state, kvern_phase phase, const int64_t *counts, const char *what)
{
    ok(kvern_step_begin(state, phase, counts), "kvern_step_begin");
    for (size_t l = 0; l < 4; l++) {
        const kvern_layer *plan = kvern_cache_layer(kvern_state_cache(state, l));
        kvern_read *read;
        GUARDED(kvern_tokens, tokens);
        tokens.it = kvern_tokens_default(plan);
        tokens.it.k = values + l;
        tokens.it.v = values + TOKENS * ROWS * HEADS * DIM + l;
        ok(kvern_step_append(state, l, &tokens.it, &read), "kvern_step_append");
        CHECK_GUARD(tokens);
        attend(read, plan, what, (size_t)(counts[0] + counts[1]));
    }
    ok(kvern_step_end(state), "kvern_step_end");
}

static void use_state(kvern_composition *composition)
{
    kvern_state *state, *fork;
    const int64_t prompt[ROWS] = {50, 30}, drafts[ROWS] = {3, 2}, keep[ROWS] = {1, 2};
    const size_t swapped[ROWS] = {1, 0};
    ok(kvern_state_create(composition, ROWS, &state), "kvern_state_create");
    step(state, KVERN_PHASE_WINDOW, prompt, "prompt");
    ok(kvern_round_begin(state, drafts), "kvern_round_begin");
    step(state, KVERN_PHASE_KNOWN, drafts, "drafts");
    ok(kvern_round_rollback(state, keep), "kvern_round_rollback");
    ok(kvern_state_fork(state, swapped, ROWS, &fork), "kvern_state_fork");
    ok(kvern_state_trim(fork, 1, 5), "kvern_state_trim");
    const int64_t one[ROWS] = {1, 1};
    step(fork, KVERN_PHASE_DECODE, one, "fork");
    step(state, KVERN_PHASE_DECODE, one, "state");
    printf("lengths %" PRId64 " %" PRId64 "\n", kvern_state_length(fork, 0),
           kvern_state_length(fork, 1));
    kvern_state_destroy(state);
    kvern_state_destroy(fork);
}

static void use_refusals(kvern_context *context)
{
    kvern_composition *composition;
    kvern_layer layer = kvern_layer_default(HEADS, DIM);
    layer.size = 12;
    printf("%s\n", kvern_status_name(kvern_composition_create(context, &layer, 1, &composition)));
    layer = kvern_layer_default(HEADS, DIM);
    layer.k_codec.reserved[1] = 1;
    printf("%s\n", kvern_status_name(kvern_composition_create(context, &layer, 1, &composition)));
}

int main(void)
{
    fill_values();
    kvern_context *context = make_context();
    kvern_composition *composition = make_composition(context);
    for (size_t layer = 0; layer < 4; layer++)
        use_cache(composition, layer);
    use_state(composition);
    use_refusals(context);
    print_memory(context);
    kvern_composition_release(composition);
    kvern_context_release(context);
    must(blocks == 0, "every block has been given back");
    return 0;
}
