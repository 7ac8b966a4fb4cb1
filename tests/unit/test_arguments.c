// SPDX-License-Identifier: MIT
// Every error that a header names, once per function: the status, a sentence about it, and nothing
// changed: no output, no length, no byte.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/ledger.h"

#include <kvern/experimental/padded.h>
#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 2
#define HEADS 4
#define DIM 16

static const uint64_t sequences[ROWS] = {1, 2};
static const int64_t first_counts[ROWS] = {70, 3};

// A cache and a state of two rows, and a read of the cache's append.
typedef struct fixture {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_state *state;
    kvern_read *read;
    feed first, next; // the tokens that are stored, and what could follow them
    uint64_t held_bytes;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    ledger_init(&f->books);
    kvern_context_options options = kvern_context_options_default();
    const kvern_layer layers[2] = {kvern_layer_default(2, DIM), kvern_layer_default(1, 8)};
    options.allocator = ledger_allocator(&f->books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &f->context));
    assert_ok(kvern_composition_create(f->context, layers, 2, &f->composition));
    assert_ok(kvern_cache_create(f->composition, 0, ROWS, &f->cache));
    assert_ok(kvern_state_create(f->composition, ROWS, &f->state));
    f->first = feed_create(f->cache, sequences, first_counts, HEADS);
    assert_ok(feed_append(f->cache, KVERN_PHASE_WINDOW, &f->first, &f->read));
    assert_ok(kvern_read_attend(f->read, &f->first.queries));
    f->next = feed_create(f->cache, sequences, first_counts, HEADS);
    f->held_bytes = f->books.held_bytes;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    feed_destroy(&f->first);
    feed_destroy(&f->next);
    kvern_read_release(f->read);
    kvern_cache_destroy(f->cache);
    kvern_state_destroy(f->state);
    kvern_composition_release(f->composition);
    kvern_context_release(f->context);
    ledger_finish(&f->books);
    free(f);
    return 0;
}

// Fails the test when a refused call left a trace.
static void check_unchanged(const fixture *f)
{
    assert_int_equal(kvern_cache_length(f->cache, 0), 70);
    assert_int_equal(kvern_cache_length(f->cache, 1), 3);
    assert_int_equal(kvern_state_length(f->state, 0), 0);
    assert_int_equal(f->books.held_bytes, f->held_bytes);
}

// A pointer that a failed call must replace by NULL.
#define NOT_NULL ((void *)&first_counts)

// ---- Context ----

static void context_creation(void **state)
{
    (void)state;
    ledger books;
    ledger_init(&books);
    kvern_context *out = NOT_NULL;
    const kvern_context_options good = kvern_context_options_default();
    kvern_context_options bad = good;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&good, NULL));
    bad.size--;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&bad, &out));
    assert_null(out);
    bad = good;
    bad.allocator.allocate = ledger_allocator(&books).allocate;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&bad, &out));
    bad = good;
    bad.allocator.release = ledger_allocator(&books).release;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&bad, &out));
    bad = good;
    bad.threads = 1025;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&bad, &out));
    assert_null(out);
    ledger_finish(&books);
}

static void run_nothing(void *user, size_t tasks, void (*task)(void *, size_t), void *arg)
{
    (void)user, (void)tasks, (void)task, (void)arg;
}

static void context_creation_with_an_executor(void **state)
{
    (void)state;
    kvern_context *out = NOT_NULL;
    kvern_context_options options = kvern_context_options_default();
    options.executor = (kvern_executor){.run = run_nothing, .threads = 0};
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&options, &out));
    assert_null(out);
    options.executor.threads = 1025;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&options, &out));
    options.executor.threads = 1024;
    options.threads = 1; // ignored
    assert_ok(kvern_context_create(&options, &out));
    assert_true(kvern_context_executor(out).run == run_nothing);
    assert_int_equal(kvern_context_executor(out).threads, 1024);
    kvern_context_release(out);
    kvern_context_release(NULL);
}

static void context_memory(void **state)
{
    fixture *f = *state;
    kvern_memory memory = {.size = sizeof memory - 1, .held_bytes = 5};
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_memory(f->context, &memory));
    assert_int_equal(memory.held_bytes, 5);
    memory.size = sizeof memory;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_memory(NULL, &memory));
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_memory(f->context, NULL));
    assert_ok(kvern_context_memory(f->context, &memory));
    assert_int_equal(memory.held_bytes, f->books.held_bytes);
    kvern_memory fresh = kvern_memory_default();
    assert_int_equal(fresh.size, sizeof fresh);
    assert_int_equal(fresh.held_bytes + fresh.allocations, 0);
    assert_ok(kvern_context_memory(f->context, &fresh));
    assert_memory_equal(&fresh, &memory, sizeof fresh);
}

// ---- Composition ----

static void refuse_layers(const fixture *f, kvern_status wanted, const kvern_layer *layers,
                          size_t count, const char *detail)
{
    kvern_composition *out = NOT_NULL;
    assert_status(wanted, kvern_composition_create(f->context, layers, count, &out));
    assert_null(out);
    if (!strstr(kvern_error_detail(), detail))
        fail_msg("\"%s\" does not mention \"%s\"", kvern_error_detail(), detail);
    check_unchanged(f);
}

static void composition_creation(void **state)
{
    fixture *f = *state;
    kvern_layer layers[2] = {kvern_layer_default(1, 8), kvern_layer_default(1, 8)};
    kvern_composition *out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_composition_create(NULL, layers, 2, &out));
    assert_null(out);
    assert_status(KVERN_ERR_ARGUMENT, kvern_composition_create(f->context, layers, 2, NULL));
    refuse_layers(f, KVERN_ERR_ARGUMENT, NULL, 2, "NULL");
    refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 0, "0 layers");
    refuse_layers(f, KVERN_ERR_ARGUMENT, layers, KVERN_MAX_LAYERS + 1, "4097 layers");
    layers[1].size++;
    refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 2, "layer 1: kvern_layer.size");
    kvern_composition_release(NULL);
}

// The detail names the layer and the field; the first layer is right.
static void layers_that_cannot_be(void **state)
{
    fixture *f = *state;
    static const size_t bad_dims[] = {0, 1, 4, 12, 63, 65, 577, 580, 584, SIZE_MAX};
    const kvern_layer good = kvern_layer_default(1, 8);
    kvern_layer layers[2] = {good, good};
    for (size_t i = 0; i < sizeof bad_dims / sizeof bad_dims[0]; i++) {
        layers[1] = good;
        layers[1].k_dim = bad_dims[i];
        refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 2, "layer 1: k_dim");
        layers[1] = good;
        layers[1].v_dim = bad_dims[i];
        refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 2, "layer 1: v_dim");
    }
    layers[1] = good;
    layers[1].kv_heads = 0;
    refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 2, "layer 1: kv_heads is 0");
    layers[1].kv_heads = KVERN_MAX_KV_HEADS + 1;
    refuse_layers(f, KVERN_ERR_ARGUMENT, layers, 2, "layer 1: kv_heads is 4097");
    layers[1] = good;
    layers[1].kind = (kvern_layer_kind)77;
    refuse_layers(f, KVERN_ERR_UNSUPPORTED, layers, 2, "layer 1: kind 77");
    layers[1] = good;
    layers[1].k_codec = kvern_codec_dense((kvern_type)3);
    refuse_layers(f, KVERN_ERR_UNSUPPORTED, layers, 2, "layer 1: k_codec");
    layers[1] = good;
    layers[1].v_codec = kvern_codec_dense((kvern_type)-1);
    refuse_layers(f, KVERN_ERR_UNSUPPORTED, layers, 2, "layer 1: v_codec");
    layers[1] = kvern_layer_default(KVERN_MAX_KV_HEADS, KVERN_MAX_HEAD_DIM);
    layers[1].k_codec = layers[1].v_codec = kvern_codec_dense(KVERN_F32);
    refuse_layers(f, KVERN_ERR_OVERFLOW, layers, 2, "layer 1");
}

#define REFUSED_LAYER(status, plan, change, detail)                                                \
    do {                                                                                           \
        layers[1] = plan;                                                                          \
        layers[1].change;                                                                          \
        refuse_layers(f, status, layers, 2, detail);                                               \
    } while (0)

// What a query sees is said once: by a window, by chunks, or by neither.
static void sights_that_cannot_be(void **state)
{
    fixture *f = *state;
    const kvern_layer full = kvern_layer_default(1, 8), window = kvern_layer_window(1, 8, 4);
    const kvern_layer chunked = kvern_layer_chunked(1, 8, 4);
    const int64_t most = KVERN_MAX_WINDOW;
    kvern_layer layers[2] = {full, full};
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, full, window = 4, "layer 1: window");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, full, slack = 4, "layer 1: window, keep or slack");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, full, chunk = 4, "layer 1: chunk");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, window, chunk = 4, "layer 1: chunk");
    REFUSED_LAYER(KVERN_ERR_RANGE, window, window = 0, "layer 1: window is 0");
    REFUSED_LAYER(KVERN_ERR_RANGE, window, keep = 4, "layer 1: keep is 4");
    REFUSED_LAYER(KVERN_ERR_RANGE, window, slack = -1, "layer 1: slack is -1");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, chunked, window = 4, "layer 1: window or keep");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, chunked, keep = 1, "layer 1: window or keep");
    REFUSED_LAYER(KVERN_ERR_RANGE, chunked, chunk = 0, "layer 1: chunk is 0");
    REFUSED_LAYER(KVERN_ERR_RANGE, chunked, chunk = -5, "layer 1: chunk is -5");
    REFUSED_LAYER(KVERN_ERR_RANGE, chunked, chunk = most + 1, "layer 1: chunk is");
    REFUSED_LAYER(KVERN_ERR_RANGE, chunked, slack = most + 1, "layer 1: slack is");
    REFUSED_LAYER(KVERN_ERR_UNSUPPORTED, kvern_layer_latent(8, 8, 0), chunk = 4,
                  "layer 1: latents with");
    REFUSED_LAYER(KVERN_ERR_ARGUMENT, kvern_layer_lane(8), chunk = 4, "layer 1: kv_heads, window");
}

// A page may have to be converted where it lies. A stream that grew would then need the place of
// the next one, so it is refused even where the page as a whole becomes smaller.
static void starts_with_streams_that_grow(void **state)
{
    fixture *f = *state;
    kvern_layer layers[2] = {kvern_layer_default(1, 8), kvern_layer_default(2, 128)};
    layers[1].start = 100;
    layers[1].k_dim = 24;
    layers[1].k_codec = kvern_codec_dense(KVERN_F32);
    layers[1].v_codec = kvern_codec_affine(2, 64);
    refuse_layers(f, KVERN_ERR_UNSUPPORTED, layers, 2,
                  "layer 1: start with k in f32, which takes more room than bf16");
    layers[1] = kvern_layer_default(2, 128);
    layers[1].start = 0;
    layers[1].v_dim = 24;
    layers[1].k_codec = kvern_codec_affine(2, 64);
    layers[1].v_codec = kvern_codec_dense(KVERN_F32);
    refuse_layers(f, KVERN_ERR_UNSUPPORTED, layers, 2,
                  "layer 1: start with v in f32, which takes more room than bf16");
}

// ---- Cache ----

static void cache_creation(void **state)
{
    fixture *f = *state;
    kvern_cache *out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_create(NULL, 0, 1, &out));
    assert_null(out);
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_create(f->composition, 0, 1, NULL));
    out = NOT_NULL;
    assert_status(KVERN_ERR_RANGE, kvern_cache_create(f->composition, 2, 1, &out));
    assert_null(out);
    out = NOT_NULL;
    assert_status(KVERN_ERR_RANGE, kvern_cache_create(f->composition, 0, KVERN_MAX_ROWS + 1, &out));
    assert_null(out);
    kvern_cache_destroy(NULL);
    check_unchanged(f);
}

static void cache_without_rows(void **state)
{
    fixture *f = *state;
    kvern_cache *cache, *fork;
    assert_ok(kvern_cache_create(f->composition, 0, 0, &cache));
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(cache));
    kvern_read *read;
    assert_ok(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, &read));
    kvern_queries queries = kvern_queries_default(kvern_cache_layer(cache), HEADS);
    assert_ok(kvern_read_attend(read, &queries));
    assert_int_equal(kvern_read_rows(read), 0);
    assert_int_equal(kvern_read_length(read, 0), -1);
    assert_int_equal(kvern_cache_length(cache, 0), -1);
    assert_ok(kvern_cache_fork(f->cache, NULL, 0, &fork));
    assert_int_equal(kvern_cache_rows(fork), 0);
    kvern_read_release(read);
    kvern_cache_destroy(fork);
    kvern_cache_destroy(cache);
}

static void cache_reserve(void **state)
{
    fixture *f = *state;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_reserve(NULL, 0, 1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_reserve(f->cache, ROWS, 1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_reserve(f->cache, 0, -1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_reserve(f->cache, 0, (INT64_C(1) << 40) + 1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_reserve(f->cache, 0, INT64_MAX, 0));
    assert_status(KVERN_ERR_OVERFLOW, kvern_cache_reserve(f->cache, 0, 1, SIZE_MAX - 1));
    check_unchanged(f);
}

// Tries one bad append in every phase that allows its counts.
// A pointer that cannot be followed.
#define NOWHERE ((const int64_t *)sizeof(int64_t))

static void refuse_tokens(const fixture *f, kvern_status wanted, const kvern_tokens *tokens)
{
    kvern_read *read = NOT_NULL;
    assert_status(wanted, kvern_cache_append(f->cache, KVERN_PHASE_WINDOW, tokens, &read));
    assert_null(read);
    read = NOT_NULL;
    assert_status(wanted, kvern_cache_append(f->cache, KVERN_PHASE_KNOWN, tokens, &read));
    assert_null(read);
    assert_status(wanted, kvern_cache_append(f->cache, KVERN_PHASE_WINDOW, tokens, NULL));
    check_unchanged(f);
}

static void append_pointers(void **state)
{
    fixture *f = *state;
    kvern_read *read = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_cache_append(NULL, KVERN_PHASE_WINDOW, &f->next.tokens, &read));
    assert_null(read);
    refuse_tokens(f, KVERN_ERR_ARGUMENT, NULL);
    kvern_tokens tokens = f->next.tokens;
    tokens.size--;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens.counts = NOWHERE; // not followed: with another size, this need not be where counts are
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens = f->next.tokens;
    tokens.counts = NULL;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens = f->next.tokens;
    tokens.k = NULL;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens = f->next.tokens;
    tokens.v = NULL;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens = f->next.tokens;
    tokens.k_type = (kvern_type)3;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
    tokens = f->next.tokens;
    tokens.v_type = (kvern_type)-1;
    refuse_tokens(f, KVERN_ERR_ARGUMENT, &tokens);
}

static void append_counts(void **state)
{
    fixture *f = *state;
    static const int64_t bad[] = {-1, INT64_MIN, INT64_C(1) << 40, INT64_MAX};
    kvern_tokens tokens = f->next.tokens;
    kvern_read *read = NOT_NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t counts[ROWS] = {1, bad[i]};
        tokens.counts = counts;
        refuse_tokens(f, KVERN_ERR_RANGE, &tokens);
    }
    tokens.counts = (int64_t[ROWS]){1, 2};
    assert_status(KVERN_ERR_RANGE,
                  kvern_cache_append(f->cache, KVERN_PHASE_DECODE, &tokens, &read));
    assert_null(read);
    check_unchanged(f);
}

static void append_views(void **state)
{
    fixture *f = *state;
    kvern_tokens tokens = f->next.tokens;
    int64_t *const strides[] = {&tokens.k_token_stride, &tokens.k_head_stride,
                                &tokens.v_token_stride, &tokens.v_head_stride};
    const int64_t **const starts[] = {&tokens.k_start, &tokens.v_start};
    const int64_t negative[ROWS] = {0, -1}, far[ROWS] = {0, INT64_MAX - 1};
    const int64_t wide[ROWS] = {0, INT64_MAX / 64};
    for (size_t i = 0; i < 4; i++) {
        tokens = f->next.tokens;
        *strides[i] = -1;
        refuse_tokens(f, KVERN_ERR_RANGE, &tokens);
        *strides[i] = INT64_MAX;
        refuse_tokens(f, KVERN_ERR_OVERFLOW, &tokens);
        *strides[i] = INT64_MAX / 4; // fits in elements, not in bytes
        refuse_tokens(f, KVERN_ERR_OVERFLOW, &tokens);
    }
    for (size_t i = 0; i < 2; i++) {
        tokens = f->next.tokens;
        *starts[i] = negative;
        refuse_tokens(f, KVERN_ERR_RANGE, &tokens);
        *starts[i] = far;
        refuse_tokens(f, KVERN_ERR_OVERFLOW, &tokens);
        *starts[i] = wide;
        refuse_tokens(f, KVERN_ERR_OVERFLOW, &tokens);
    }
}

// Nothing is looked at where there is nothing to do.
static void append_of_nothing(void **state)
{
    fixture *f = *state;
    const int64_t none[ROWS] = {0};
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(f->cache));
    kvern_read *read;
    tokens.counts = none;
    assert_ok(kvern_cache_append(f->cache, KVERN_PHASE_DECODE, &tokens, &read));
    assert_int_equal(kvern_read_length(read, 0), 70);
    kvern_queries queries = kvern_queries_default(kvern_cache_layer(f->cache), HEADS);
    assert_ok(kvern_read_attend(read, &queries));
    kvern_read_release(read);
}

static void trim_reset_fork(void **state)
{
    fixture *f = *state;
    const size_t bad_row = ROWS;
    size_t rows[1] = {0};
    kvern_cache *out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_trim(NULL, 0, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(f->cache, ROWS, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(f->cache, 0, -1));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(f->cache, 0, 71));
    assert_status(KVERN_ERR_RANGE, kvern_cache_trim(f->cache, 1, INT64_MAX));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_reset(NULL, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_reset(f->cache, ROWS));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_fork(NULL, rows, 1, &out));
    assert_null(out);
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_fork(f->cache, rows, 1, NULL));
    out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_fork(f->cache, NULL, 1, &out));
    assert_null(out);
    out = NOT_NULL;
    assert_status(KVERN_ERR_RANGE, kvern_cache_fork(f->cache, &bad_row, 1, &out));
    assert_null(out);
    check_unchanged(f);
}

static void fork_of_too_many_rows(void **state)
{
    fixture *f = *state;
    kvern_cache *out = NOT_NULL;
    kvern_state *state_out = NOT_NULL;
    size_t *rows = calloc(KVERN_MAX_ROWS + 1, sizeof *rows);
    assert_non_null(rows);
    assert_status(KVERN_ERR_RANGE, kvern_cache_fork(f->cache, rows, KVERN_MAX_ROWS + 1, &out));
    assert_null(out);
    assert_status(KVERN_ERR_RANGE,
                  kvern_state_fork(f->state, rows, KVERN_MAX_ROWS + 1, &state_out));
    assert_null(state_out);
    free(rows);
    check_unchanged(f);
}

static void cache_export(void **state)
{
    fixture *f = *state;
    float k[2 * DIM], v[2 * DIM];
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export(NULL, 0, 0, 1, k, v));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, ROWS, 0, 1, k, v));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, 0, -1, 1, k, v));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, 0, 0, -1, k, v));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, 0, 70, 1, k, v));
    assert_string_equal(kvern_error_detail(), "row 0: 1 positions from 70 on, and it holds 70");
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, 0, INT64_MAX, INT64_MAX, k, v));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export(f->cache, 0, INT64_MAX, 1, k, v));
    assert_ok(kvern_cache_export(f->cache, 0, 70, 0, k, v));
    assert_ok(kvern_cache_export(f->cache, 0, 69, 1, NULL, NULL));
    assert_ok(kvern_cache_export(f->cache, 1, 2, 1, k, NULL));
    assert_ok(kvern_cache_export(f->cache, 1, 2, 1, NULL, v));
}

// The caches of three layers: narrow heads, codes from 100 positions on, and codes from the first.
static void make_targets(kvern_context *context, kvern_cache *out[3])
{
    kvern_layer layers[3];
    kvern_composition *composition;
    layers[0] = kvern_layer_default(1, DIM);
    layers[1] = layers[2] = kvern_layer_default(2, 64);
    for (size_t l = 1; l < 3; l++)
        layers[l].k_codec = layers[l].v_codec = kvern_codec_affine(4, 64);
    layers[1].start = 100;
    assert_ok(kvern_composition_create(context, layers, 3, &composition));
    for (size_t l = 0; l < 3; l++)
        assert_ok(kvern_cache_create(composition, l, 1, &out[l]));
    kvern_composition_release(composition);
}

static void cache_adopt(void **state)
{
    fixture *f = *state;
    kvern_cache *own[3], *foreign[3], *of_state = (kvern_cache *)kvern_state_cache(f->state, 0);
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    make_targets(context, foreign);
    make_targets(f->context, own);
    feed_one(own[1], KVERN_PHASE_WINDOW, 1, 3, 2, NULL);
    const uint64_t held = f->books.held_bytes;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_adopt(NULL, 0, f->cache, 0));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_adopt(f->cache, 0, NULL, 0));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_adopt(foreign[0], 0, f->cache, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_adopt(own[0], 1, f->cache, 0));
    assert_status(KVERN_ERR_RANGE, kvern_cache_adopt(own[0], 0, f->cache, ROWS));
    assert_status(KVERN_ERR_BUSY, kvern_cache_adopt(f->cache, 1, f->cache, 0));
    assert_status(KVERN_ERR_BUSY, kvern_cache_adopt(of_state, 0, f->cache, 0));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_adopt(own[0], 0, f->cache, 0));
    assert_string_equal(kvern_error_detail(), "a row of full:h2:k16=bf16:v16=bf16 cannot become "
                                              "one of full:h1:k16=bf16:v16=bf16");
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_adopt(own[2], 0, own[1], 0));
    assert_non_null(strstr(kvern_error_detail(), "start100 that is not converted cannot become"));
    assert_int_equal(f->books.held_bytes, held);
    assert_int_equal(kvern_cache_length(own[0], 0), 0);
    assert_int_equal(kvern_cache_length(own[2], 0), 0);
    for (size_t l = 0; l < 3; l++) {
        kvern_cache_destroy(own[l]);
        kvern_cache_destroy(foreign[l]);
    }
    kvern_context_release(context);
}

// Whatever is wrong with one layer's planes, its number is in the sentence.
static void padded_planes_of_a_state_name_the_layer(void **state)
{
    (void)state;
    enum { FAULTS = 8 };
    static const int64_t left = 0, far_left = 13, offset = 12, far = 11;
    kvern_layer layers[2] = {kvern_layer_default(1, 8), kvern_layer_default(1, 8)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *to;
    float numbers[12 * 8] = {0};
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &to));
    kvern_padded_planes good = kvern_padded_planes_default();
    good.width = 12;
    good.k = good.v = numbers;
    good.left_padding = (int64_t *)&left;
    good.offsets = (int64_t *)&offset;
    for (int fault = 0; fault < FAULTS; fault++) {
        kvern_padded_planes planes[2] = {good, good}, *bad = &planes[1];
        bad->size -= fault == 0;
        bad->width = fault == 1 ? -1 : good.width;
        bad->k = fault == 2 ? NULL : numbers;
        bad->v_type = fault == 3 ? (kvern_type)9 : KVERN_BF16;
        bad->left_padding = (int64_t *)(fault == 4 ? &far_left : fault == 5 ? NULL : &left);
        bad->offsets = (int64_t *)(fault == 6 ? &far : &offset);
        bad->k_codes.words = fault == 7 ? (uint32_t *)numbers : NULL;
        assert_true(kvern_state_import_padded(to, planes) != KVERN_OK);
        assert_non_null(strstr(kvern_error_detail(), "layer 1"));
    }
    kvern_state_destroy(to);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

// ---- Read ----

static void refuse_queries(const fixture *f, kvern_status wanted, const kvern_queries *queries)
{
    static float out[73 * HEADS * DIM];
    memcpy(out, f->first.out, sizeof out);
    assert_status(wanted, kvern_read_attend(f->read, queries));
    check_same_bytes(out, f->first.out, sizeof out, "the output of a refused attend");
    check_unchanged(f);
}

static void attend_fields(void **state)
{
    fixture *f = *state;
    kvern_queries q = f->first.queries;
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_attend(NULL, &q));
    refuse_queries(f, KVERN_ERR_ARGUMENT, NULL);
    q.size--;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.query_heads = 0;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q.query_heads = 3;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.q_type = (kvern_type)7;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.out_type = (kvern_type)-1;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.q = NULL;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.out = NULL;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.scale = NAN;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.softcap = -1;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q.softcap = NAN;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q.softcap = INFINITY; // would make every score NaN
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    q = f->first.queries;
    q.scale = INFINITY;
    refuse_queries(f, KVERN_ERR_ARGUMENT, &q);
    kvern_read_release(NULL);
}

static void attend_rows(void **state)
{
    fixture *f = *state;
    static const int64_t bad_counts[] = {-1, 4, INT64_MAX, INT64_MIN};
    static const int64_t bad_first[] = {-1, 4, INT64_MAX, INT64_MIN};
    kvern_queries q = f->first.queries;
    for (size_t i = 0; i < 4; i++) {
        const int64_t counts[ROWS] = {1, bad_counts[i]}, first[ROWS] = {0, bad_first[i]};
        q = f->first.queries;
        q.counts = counts;
        refuse_queries(f, KVERN_ERR_RANGE, &q);
        q.counts = (int64_t[ROWS]){1, 0};
        q.first = first;
        refuse_queries(f, KVERN_ERR_RANGE, &q);
    }
    // The last token is there, the one behind it is not.
    q.counts = (int64_t[ROWS]){1, 1};
    q.first = (int64_t[ROWS]){0, 3};
    refuse_queries(f, KVERN_ERR_RANGE, &q);
    q.first = (int64_t[ROWS]){0, 2};
    assert_ok(kvern_read_attend(f->read, &q));
}

// Sums that do not fit: found by the undefined-behaviour sanitizer, also in the message.
static void attend_rows_far_away(void **state)
{
    fixture *f = *state;
    kvern_queries q = f->first.queries;
    q.counts = (int64_t[ROWS]){1, 1};
    q.first = (int64_t[ROWS]){0, INT64_MAX};
    refuse_queries(f, KVERN_ERR_RANGE, &q);
    q.counts = (int64_t[ROWS]){INT64_MAX, INT64_MAX};
    refuse_queries(f, KVERN_ERR_RANGE, &q);
}

static void attend_views(void **state)
{
    fixture *f = *state;
    kvern_queries q = f->first.queries;
    int64_t *const strides[] = {&q.q_token_stride, &q.q_head_stride, &q.out_token_stride,
                                &q.out_head_stride};
    const int64_t **const starts[] = {&q.q_start, &q.out_start};
    const int64_t negative[ROWS] = {0, -1}, far[ROWS] = {0, INT64_MAX - 1};
    for (size_t i = 0; i < 4; i++) {
        q = f->first.queries;
        *strides[i] = -1;
        refuse_queries(f, KVERN_ERR_RANGE, &q);
        *strides[i] = INT64_MAX;
        refuse_queries(f, KVERN_ERR_OVERFLOW, &q);
        *strides[i] = INT64_MAX / 8;
        refuse_queries(f, KVERN_ERR_OVERFLOW, &q);
    }
    for (size_t i = 0; i < 2; i++) {
        q = f->first.queries;
        *starts[i] = negative;
        refuse_queries(f, KVERN_ERR_RANGE, &q);
        *starts[i] = far;
        refuse_queries(f, KVERN_ERR_OVERFLOW, &q);
    }
}

// ---- State ----

static void state_creation(void **state)
{
    fixture *f = *state;
    kvern_state *out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_create(NULL, 1, &out));
    assert_null(out);
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_create(f->composition, 1, NULL));
    out = NOT_NULL;
    assert_status(KVERN_ERR_RANGE, kvern_state_create(f->composition, KVERN_MAX_ROWS + 1, &out));
    assert_null(out);
    kvern_state_destroy(NULL);
    check_unchanged(f);
}

static void state_row_operations(void **state)
{
    fixture *f = *state;
    const size_t bad_row = ROWS, row = 0;
    kvern_state *out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_reserve(NULL, 0, 1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve(f->state, ROWS, 1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve(f->state, 0, -1, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_reserve(f->state, 0, INT64_MAX, 0));
    assert_status(KVERN_ERR_OVERFLOW, kvern_state_reserve(f->state, 0, 1, SIZE_MAX - 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_trim(NULL, 0, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_trim(f->state, ROWS, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_trim(f->state, 0, 1));
    assert_string_equal(kvern_error_detail(), "row 0: trim 1 of 0 positions");
    assert_status(KVERN_ERR_RANGE, kvern_state_trim(f->state, 0, -1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_reset(NULL, 0));
    assert_status(KVERN_ERR_RANGE, kvern_state_reset(f->state, ROWS));
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_fork(NULL, &row, 1, &out));
    assert_null(out);
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_fork(f->state, &row, 1, NULL));
    out = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_state_fork(f->state, NULL, 1, &out));
    assert_null(out);
    out = NOT_NULL;
    assert_status(KVERN_ERR_RANGE, kvern_state_fork(f->state, &bad_row, 1, &out));
    assert_null(out);
    check_unchanged(f);
}

static void step_begin(void **state)
{
    fixture *f = *state;
    const int64_t one[ROWS] = {1, 1}, two[ROWS] = {2, 0}, negative[ROWS] = {1, -1};
    const int64_t many[ROWS] = {(INT64_C(1) << 40) + 1, 0};
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_begin(NULL, KVERN_PHASE_DECODE, one));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_begin(f->state, (kvern_phase)6, one));
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_begin(f->state, KVERN_PHASE_DECODE, NULL));
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(f->state, KVERN_PHASE_DECODE, two));
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(f->state, KVERN_PHASE_WINDOW, negative));
    assert_status(KVERN_ERR_RANGE, kvern_step_begin(f->state, KVERN_PHASE_WINDOW, many));
    assert_int_equal(kvern_step_position(f->state, 0), -1);
    kvern_step_abandon(NULL);
    kvern_step_abandon(f->state);
    check_unchanged(f);
}

static void step_append(void **state)
{
    fixture *f = *state;
    const int64_t one[ROWS] = {1, 1}, none[ROWS] = {0};
    kvern_read *read = NOT_NULL;
    feed next = feed_create(kvern_state_cache(f->state, 0), sequences, one, HEADS);
    assert_status(KVERN_ERR_BUSY, kvern_step_append(f->state, 0, &next.tokens, &read));
    assert_null(read);
    assert_ok(kvern_step_begin(f->state, KVERN_PHASE_WINDOW, one));
    read = NOT_NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_append(NULL, 0, &next.tokens, &read));
    assert_null(read);
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_append(f->state, 0, NULL, &read));
    assert_status(KVERN_ERR_RANGE, kvern_step_append(f->state, 2, &next.tokens, &read));
    kvern_tokens tokens = next.tokens;
    tokens.counts = none;
    assert_status(KVERN_ERR_RANGE, kvern_step_append(f->state, 0, &tokens, &read));
    tokens = next.tokens;
    tokens.size = 0;
    tokens.counts = NOWHERE;
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_append(f->state, 0, &tokens, &read));
    tokens = next.tokens;
    tokens.k = NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_append(f->state, 0, &tokens, &read));
    tokens = next.tokens;
    tokens.v_token_stride = INT64_MAX;
    assert_status(KVERN_ERR_OVERFLOW, kvern_step_append(f->state, 0, &tokens, &read));
    assert_null(read);
    assert_int_equal(kvern_cache_length(kvern_state_cache(f->state, 0), 0), 0);
    assert_ok(kvern_step_append(f->state, 0, &next.tokens, NULL)); // none of these used it up
    kvern_step_abandon(f->state);
    feed_destroy(&next);
}

static void step_end(void **state)
{
    fixture *f = *state;
    const int64_t one[ROWS] = {1, 0};
    assert_status(KVERN_ERR_ARGUMENT, kvern_step_end(NULL));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(f->state));
    assert_ok(kvern_step_begin(f->state, KVERN_PHASE_DECODE, one));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(f->state));
    assert_non_null(strstr(kvern_error_detail(), "layer 0"));
    feed next = feed_create(kvern_state_cache(f->state, 0), sequences, one, HEADS);
    assert_ok(kvern_step_append(f->state, 0, &next.tokens, NULL));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(f->state));
    assert_non_null(strstr(kvern_error_detail(), "layer 1"));
    assert_int_equal(kvern_step_position(f->state, 0), 0);
    kvern_step_abandon(f->state);
    feed_destroy(&next);
}

int main(void)
{
#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_creation),
        cmocka_unit_test(context_creation_with_an_executor),
        FIXTURE_TEST(context_memory),
        FIXTURE_TEST(composition_creation),
        FIXTURE_TEST(layers_that_cannot_be),
        FIXTURE_TEST(sights_that_cannot_be),
        FIXTURE_TEST(starts_with_streams_that_grow),
        FIXTURE_TEST(cache_creation),
        FIXTURE_TEST(cache_without_rows),
        FIXTURE_TEST(cache_reserve),
        FIXTURE_TEST(append_pointers),
        FIXTURE_TEST(append_counts),
        FIXTURE_TEST(append_views),
        FIXTURE_TEST(append_of_nothing),
        FIXTURE_TEST(trim_reset_fork),
        FIXTURE_TEST(fork_of_too_many_rows),
        FIXTURE_TEST(cache_export),
        FIXTURE_TEST(cache_adopt),
        cmocka_unit_test(padded_planes_of_a_state_name_the_layer),
        FIXTURE_TEST(attend_fields),
        FIXTURE_TEST(attend_rows),
        FIXTURE_TEST(attend_rows_far_away),
        FIXTURE_TEST(attend_views),
        FIXTURE_TEST(state_creation),
        FIXTURE_TEST(state_row_operations),
        FIXTURE_TEST(step_begin),
        FIXTURE_TEST(step_append),
        FIXTURE_TEST(step_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
