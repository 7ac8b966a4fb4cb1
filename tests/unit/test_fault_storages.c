// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios that hold for every storage: dense,
// affine of every number of bits, bf16 first, with a window and without. test_fault_rows.c says
// more about them, and has the same scenarios in detail on dense rows.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/random.h"
#include "tests/support/storages.h"
#include "tests/support/stored.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIM 64
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

// The codecs that the first append of a layer is stored in.
static kvern_codec first_codec(const kvern_layer *layer, const kvern_codec *codec)
{
    return layer->start == KVERN_NO_START ? *codec : kvern_codec_dense(KVERN_BF16);
}

// ---- I: reuse of a prefix ----

// nicedreamzapp/claude-code-local#46: trims that never went past an allocation step.
static void check_I4(kvern_layer layer, const char *name)
{
    static const size_t row = 0;
    static const int64_t stored[] = {300, 200, 65, 64}, shared[] = {280, 180, 64, 1};
    kvern_layer planned = layer;
    planned.start = KVERN_NO_START;
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(layer, 1);
        kvern_cache *fork;
        float out[10 * 2 * DIM];
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, stored[i], 2, NULL);
        const bool converted = kvern_cache_converted(b->cache, 0);
        assert_ok(kvern_cache_fork(b->cache, &row, 1, &fork));
        if (layer.residual && shared[i] < kvern_cache_min_reusable(fork, 0)) {
            kvern_cache_destroy(fork); // what it would read is not precise any more
            bed_destroy(b);
            continue;
        }
        assert_ok(kvern_cache_trim(fork, 0, stored[i] - shared[i]));
        assert_int_equal(kvern_cache_length(fork, 0), shared[i]);
        feed_one(fork, KVERN_PHASE_WINDOW, 1, 10, 2, out);
        expect_serial(converted ? planned : layer, 1, shared[i], 10, 2, out, name);
        assert_int_equal(kvern_cache_length(b->cache, 0), stored[i]);
        kvern_cache_destroy(fork);
        bed_destroy(b);
    }
}

static void fault_I4_trim_past_an_allocation_step(void **state)
{
    (void)state;
    for_every_storage(check_I4, 1, DIM, 400);
}

// ml-explore/mlx-lm#1502: an append brought trimmed tokens back. With the conversion in between.
static void check_I6(kvern_layer layer, const char *name)
{
    if (layer.start > 0)
        layer.start = 8;
    bed *b = bed_create(layer, 1);
    layer.start = KVERN_NO_START; // which it is stored like afterwards
    bed *fresh = bed_create(layer, 1);
    float wanted[3 * 2 * DIM], got[3 * 2 * DIM];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 10, 2, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, 4));
    assert_int_equal(kvern_cache_length(b->cache, 0), 6);
    feed_one(b->cache, KVERN_PHASE_DECODE, 2, 1, 2, NULL);
    assert_int_equal(kvern_cache_length(b->cache, 0), 7);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 3, 3, 2, got);
    assert_int_equal(kvern_cache_length(b->cache, 0), 10);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 1, 6, 2, NULL);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 2, 1, 2, NULL);
    feed_one(fresh->cache, KVERN_PHASE_WINDOW, 3, 3, 2, wanted);
    check_same_bytes(wanted, got, sizeof wanted, name);
    bed_destroy(b);
    bed_destroy(fresh);
}

static void fault_I6_resurrected_tokens(void **state)
{
    (void)state;
    for_every_storage(check_I6, 1, DIM, 9);
}

// ---- N: grouped heads ----

// ml-explore/mlx-lm#1467: a batch's mask met grouped scores; rows equal to KV heads are the trap.
static void check_N1(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[2] = {1, 2};
    static const int64_t first[2] = {12, 3}, second[2] = {1, 3};
    bed *b = bed_create(layer, 2);
    static float out[4 * 10 * DIM];
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, first, 10, NULL);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, second, 10, out);
    expect_serial(layer, 1, 12, 1, 10, out, name);
    expect_serial(layer, 2, 3, 3, 10, out + 10 * DIM, name);
    bed_destroy(b);
}

static void fault_N1_batch_and_groups(void **state)
{
    (void)state;
    for_every_storage(check_N1, 2, DIM, 5);
}

// One position whose value is the number of its KV head: the result of a query head, which is what
// the storage makes of that, says which one it read.
static void check_head_map(kvern_layer layer, size_t query_heads, const char *name)
{
    const size_t keys = layer.kv_heads * layer.k_dim, values = layer.kv_heads * layer.v_dim;
    const size_t group = query_heads / layer.kv_heads, outputs = query_heads * layer.v_dim;
    bed *b = bed_create(layer, 1);
    float *k = new_floats(keys, 1), *v = new_floats(values, 0);
    float *q = new_floats(query_heads * layer.k_dim, 1), *out = new_floats(outputs, NAN);
    for (size_t i = 0; i < values; i++)
        v[i] = (float)(i / layer.v_dim + 1);
    append_values(b->cache, 1, k, v, query_heads, NULL, q, out);
    const kvern_codec codec = first_codec(&layer, &layer.v_codec);
    for (size_t i = 0; i < outputs; i += layer.v_dim) {
        float wanted[2 * DIM];
        assert_true(layer.v_dim <= 2 * DIM);
        stored_values(&codec, false, v + i / layer.v_dim / group * layer.v_dim, layer.v_dim,
                      wanted);
        check_same_floats(wanted, out + i, layer.v_dim, name);
    }
    free(k);
    free(v);
    free(q);
    free(out);
    bed_destroy(b);
}

// PSAL-POSTECH/ONNXim#34: the wrong divisor, silent for 32/8 and out of range for 28/4.
static void check_N3(kvern_layer layer, const char *name)
{
    static const size_t groups[] = {1, 4, 7, 16, 32};
    for (size_t g = 0; g < COUNT(groups); g++)
        check_head_map(layer, groups[g] * layer.kv_heads, name);
    if (layer.kv_heads == 1)
        return;
    bed *b = bed_create(layer, 1);
    kvern_read *read;
    feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, layer.kv_heads);
    assert_ok(feed_append(b->cache, KVERN_PHASE_WINDOW, &f, &read));
    f.queries.query_heads = 2 * layer.kv_heads + 1;
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_attend(read, &f.queries));
    kvern_read_release(read);
    feed_destroy(&f);
    bed_destroy(b);
}

static void fault_N3_head_map(void **state)
{
    (void)state;
    static const size_t kv_heads[] = {1, 3, 4, 8, 12};
    for (size_t h = 0; h < COUNT(kv_heads); h++)
        for_every_storage(check_N3, kv_heads[h], DIM, 5);
    check_head_map(layer_of(3, 8, KVERN_BF16), 96, "bf16, head dim 8");
}

// TheTom/llama-cpp-turboquant#78: the output was shaped by the KV heads.
static void check_N4(kvern_layer layer, const char *name)
{
    layer.v_dim = 2 * DIM;
    check_head_map(layer, 14, name);
}

static void fault_N4_output_heads(void **state)
{
    (void)state;
    for_every_storage(check_N4, 2, DIM, 5);
    kvern_layer narrow = layer_of(2, DIM, KVERN_BF16), wide = layer_of(2, 8, KVERN_BF16);
    narrow.v_dim = 24;
    wide.v_dim = 96;
    check_head_map(narrow, 14, "narrow values");
    check_head_map(wide, 14, "wide values");
}

// ---- O: sinks ----

// What numbers that all are `value` lose when they are stored as values: nothing, unless they are
// rotated first.
static double most_lost(const kvern_layer *layer, float value)
{
    float most = value, least = value; // not fmax: gcc 12 for aarch64 crashes on that loop
    float x[DIM], stored[DIM];
    if (!is_rotated(&layer->v_codec))
        return 0;
    for (int d = 0; d < DIM; d++)
        x[d] = value;
    stored_values(&layer->v_codec, false, x, DIM, stored);
    for (int d = 0; d < DIM; d++) {
        most = stored[d] > most ? stored[d] : most;
        least = stored[d] < least ? stored[d] : least;
    }
    return fmax((double)most - (double)value, (double)value - (double)least);
}

// Scores 0 and values 1: a sink of z leaves n / (n + exp(z)).
static void check_sinks(kvern_layer layer, kvern_executor executor, int64_t stored, int64_t count,
                        const char *name)
{
    static const float sinks[] = {0, 5, -20};
    const size_t tokens = (size_t)(stored + count);
    float *k = new_floats(tokens * DIM, 0), *v = new_floats(tokens * DIM, 1);
    float *q = new_floats((size_t)count * DIM, 1), *out = new_floats((size_t)count * DIM, NAN);
    const double lost = most_lost(&layer, 1);
    for (size_t s = 0; s < COUNT(sinks); s++) {
        bed *b = bed_on(layer, 1, executor);
        kvern_queries options = kvern_queries_default(&layer, 1);
        options.sinks = &sinks[s];
        append_values(b->cache, stored, k, v, 1, NULL, NULL, NULL);
        append_values(b->cache, count, k, v, 1, &options, q, out);
        for (int64_t i = 0; i < count; i++) {
            double n = 0;
            for (int64_t p = 0; p <= stored + i; p++)
                n += layer_sees(&layer, stored + i, p);
            const double wanted = n / (n + exp((double)sinks[s]));
            for (int d = 0; d < DIM; d++) {
                // Weights and sums: far below what a sink more or less would change.
                if (!(fabs((double)out[i * DIM + d] - wanted) <= (1e-4 + lost) * wanted))
                    fail_msg("%s: %g instead of %g", name, (double)out[i * DIM + d], wanted);
            }
        }
        bed_destroy(b);
    }
    free(k);
    free(v);
    free(q);
    free(out);
}

// kekzl/imp#1345: quantized decode left the sink out.
static void check_O4(kvern_layer layer, const char *name)
{
    check_sinks(layer, executor_backwards(1), 0, 1, name);
    check_sinks(layer, executor_backwards(1), 20, 3, name);
    check_sinks(layer, executor_backwards(1), 75, 1, name);
}

static void fault_O4_sink_in_every_path(void **state)
{
    (void)state;
    for_every_storage(check_O4, 1, DIM, 30);
}

// ROCm/rocm-libraries#12229: split reads counted the sink more than once. Spans that a window hides
// in part or as a whole among them.
static void check_O6(kvern_layer layer, const char *name)
{
    if (layer.kind != KVERN_LAYER_FULL)
        layer.slack = 0;
    for (int64_t spans = 1; spans <= 5; spans += 2) {
        check_sinks(layer, executor_backwards(1), 1024 * spans - 1, 2, name);
        check_sinks(layer, executor_shuffled(9), 1024 * spans - 1, 2, name);
    }
}

static void fault_O6_sink_once_per_row(void **state)
{
    (void)state;
    for_every_storage(check_O6, 1, DIM, 1500);
}

// ---- P: empty rows, unwritten memory, masks ----

// ml-explore/mlx#2608: a row without a visible key gave NaN, and spoiled its batch.
static void check_P1(kvern_layer layer, const char *name)
{
    static const uint64_t sequences[3] = {1, 2, 3};
    static const int64_t nine[3] = {0, 9, 0}, three[3] = {3, 3, 0};
    static float out[9 * 2 * DIM];
    bed *b = bed_create(layer, 3);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, nine, 2, out);
    expect_serial(layer, 2, 0, 9, 2, out, name);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, three, 2, out);
    expect_serial(layer, 1, 0, 3, 2, out, name);
    expect_serial(layer, 2, 9, 3, 2, out + 3 * 2 * DIM, name);
    assert_int_equal(kvern_cache_length(b->cache, 2), 0);
    bed_destroy(b);
}

static void fault_P1_empty_row_in_a_batch(void **state)
{
    (void)state;
    for_every_storage(check_P1, 1, DIM, 5);
}

// ggml-org/llama.cpp#3523: additive masks keep the NaN of keys that must not be seen. NaN is
// stored, trimmed away, and its places half filled again.
static void check_P3(kvern_layer layer, const char *name)
{
    bed *b = bed_create(layer, 1);
    float *nan = new_floats(100 * DIM, NAN), out[30 * 2 * DIM];
    const int64_t count = layer.residual ? 20 : 100; // as many as can be trimmed
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 40, 2, NULL);
    append_values(b->cache, count, nan, nan, 1, NULL, NULL, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, count));
    const bool converted = kvern_cache_converted(b->cache, 0);
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 30, 2, out);
    if (converted)
        layer.start = KVERN_NO_START;
    expect_serial(layer, 1, 40, 30, 2, out, name);
    free(nan);
    bed_destroy(b);
}

static void fault_P3_nan_behind_the_end(void **state)
{
    (void)state;
    for_every_storage(check_P3, 1, DIM, 140);
}

// Equal scores of any size give the mean of what is stored: of values that are alike, themselves.
static void check_uniform(kvern_layer layer, float q_value, float k_value, const char *name)
{
    enum { TOKENS = 70 };
    bed *b = bed_create(layer, 1);
    float *k = new_floats(TOKENS * DIM, k_value), *v = new_floats(TOKENS * DIM, 0.75f);
    float *q = new_floats(TOKENS * DIM, q_value), *out = new_floats(TOKENS * DIM, NAN);
    append_values(b->cache, TOKENS, k, v, 1, NULL, q, out);
    // 0.75 n / n is exact but for the division; a vector that is rotated back has more roundings.
    const double lost = most_lost(&layer, 0.75f), rotated = lost > 0 ? 1e-5 : 0;
    for (size_t i = 0; i < TOKENS * DIM; i++) {
        if (!(fabs((double)out[i] - 0.75) <= lost + rotated))
            fail_msg("%s: %g instead of 0.75", name, (double)out[i]);
    }
    free(k);
    free(v);
    free(q);
    free(out);
    bed_destroy(b);
}

static bool is_f16(const kvern_layer *layer)
{
    return layer->k_codec.kind == KVERN_CODEC_F16;
}

// flashinfer-ai/flashinfer#4401: real scores below a finite mask value.
static void check_P4(kvern_layer layer, const char *name)
{
    check_uniform(layer, -1250, 10, name); // -1e5
    if (!is_f16(&layer))
        check_uniform(layer, -1e20f, 0x1p33f, name); // about -7e30
}

static void fault_P4_scores_below_a_sentinel(void **state)
{
    (void)state;
    for_every_storage(check_P4, 1, DIM, 100);
}

// ---- Q: range ----

// AI-Hypercomputer/maxtext#4136: scores in half precision. Two positions, 1000 and 1001.5; a group
// whose numbers are one value or zero is stored exactly by every codec that rotates nothing.
static void check_large(kvern_layer layer, const char *name)
{
    layer.k_dim = layer.v_dim = 256;
    bed *b = bed_create(layer, 1);
    float k[3 * 256] = {0}, v[3 * 256] = {0}, q[3 * 256] = {0}, out[3 * 256];
    for (int p = 0; p < 3; p++) {
        q[p * 256] = 1;
        q[p * 256 + 128] = 1;
        k[p * 256] = p < 2 ? 1000 : 0;
        k[p * 256 + 128] = p == 1 ? 1.5f : 0;
        v[p * 256 + p * 64] = 1;
    }
    kvern_queries options = kvern_queries_default(&layer, 1);
    options.scale = 1;
    append_values(b->cache, 3, k, v, 1, &options, q, out);
    const double share = 1 / (1 + exp(-1.5));
    for (int query = 1; query < 3; query++) {
        const float *o = out + query * 256;
        if (!(fabs((double)o[64] - share) < 1e-6 && fabs((double)o[0] - (1 - share)) < 1e-6))
            fail_msg("%s: %g and %g", name, (double)o[0], (double)o[64]);
    }
    bed_destroy(b);
}

static void check_Q1(kvern_layer layer, const char *name)
{
    if (!is_rotated(&layer.k_codec) && !is_rotated(&layer.v_codec))
        check_large(layer, name);
    if (!is_f16(&layer))
        check_uniform(layer, 1e15f, 0x1p46f, name); // about 6e29
}

static void fault_Q1_large_scores(void **state)
{
    (void)state;
    for_every_storage(check_Q1, 1, DIM, 20);
}

// NVIDIA/TensorRT-LLM#18044: a dot product beyond the range of f16.
static void check_Q3(kvern_layer layer, const char *name)
{
    layer.k_dim = layer.v_dim = DIM;
    check_uniform(layer, 256, 256, name);
    check_uniform(layer, 4096, 4096, name);
}

static void fault_Q3_large_dot_products(void **state)
{
    (void)state;
    for_every_storage(check_Q3, 1, DIM, 100);
}

// ikawrakow/ik_llama.cpp#1196: sums over a long context.
static void check_Q4(kvern_layer layer, const char *name)
{
    enum { CHUNK = 4096, TOKENS = 65536 };
    bed *b = bed_create(layer, 1);
    test_random random = test_random_seed(check_seed());
    float *k = new_floats(CHUNK * DIM, 0), *v = new_floats(CHUNK * DIM, 0);
    float q[DIM] = {0}, out[DIM], *stored = new_floats(CHUNK * DIM, 0);
    double sum[DIM] = {0};
    for (int64_t done = 0; done < TOKENS; done += CHUNK) {
        for (int i = 0; i < CHUNK * DIM; i++)
            v[i] = 60 + test_random_signed(&random);
        const int64_t last = done + CHUNK == TOKENS;
        append_values(b->cache, CHUNK - last, k, v, 1, NULL, NULL, NULL);
        if (last)
            append_values(b->cache, 1, k, v + (CHUNK - 1) * DIM, 1, NULL, q, out);
        assert_ok(kvern_cache_export(b->cache, 0, done, CHUNK, NULL, stored));
        for (int i = 0; i < CHUNK * DIM; i++)
            sum[i % DIM] += (double)stored[i];
    }
    // 1024 sums of a span and 64 merges, each with a relative error of 2^-24 at most.
    for (int d = 0; d < DIM; d++) {
        if (!(fabs((double)out[d] - sum[d] / TOKENS) <= 62 * (1024 + 4 * 64) * 0x1p-24))
            fail_msg("%s: %g instead of %g", name, (double)out[d], sum[d] / TOKENS);
    }
    free(k);
    free(v);
    free(stored);
    bed_destroy(b);
}

static void fault_Q4_long_context(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s += s < 3 ? 1 : 2) // all that are dense
        check_Q4(storage_layer(&storages[s], 1, DIM), storages[s].name);
}

// ---- Adoption ----

// Rows that were filled elsewhere go on as if they had been filled here.
static void adopted_rows_go_on(void **state)
{
    (void)state;
    for (size_t s = 0; s < storage_count; s++) {
        const kvern_layer layer = storage_layer(&storages[s], 2, DIM);
        kvern_layer from = layer;
        if (!layer.residual) { // else rows come from the same
            from.k_codec = first_codec(&layer, &layer.k_codec);
            from.v_codec = first_codec(&layer, &layer.v_codec);
            from.start = KVERN_NO_START;
        }
        const kvern_layer both[2] = {layer, from};
        kvern_context *context;
        kvern_composition *composition;
        kvern_cache *to, *source;
        float out[5 * 2 * DIM], *wanted = new_floats(5 * 2 * DIM, NAN);
        assert_ok(kvern_context_create(NULL, &context));
        assert_ok(kvern_composition_create(context, both, 2, &composition));
        assert_ok(kvern_cache_create(composition, 0, 1, &to));
        assert_ok(kvern_cache_create(composition, 1, 1, &source));
        feed_one(source, KVERN_PHASE_WINDOW, 1, 100, 2, NULL);
        assert_ok(kvern_cache_adopt(to, 0, source, 0));
        assert_true(kvern_cache_converted(to, 0)); // at once: it has reached every start
        assert_int_equal(kvern_cache_length(to, 0), 100);
        feed_one(to, KVERN_PHASE_WINDOW, 1, 5, 2, out);
        expect_serial(layer, 1, 100, 5, 2, out, storages[s].name);
        feed_one(source, KVERN_PHASE_WINDOW, 1, 5, 2, wanted); // and the source is as it was
        expect_serial(from, 1, 100, 5, 2, wanted, storages[s].name);
        free(wanted);
        kvern_cache_destroy(to);
        kvern_cache_destroy(source);
        kvern_composition_release(composition);
        kvern_context_release(context);
    }
}

// Codes from a layer without a start are not what a row here would have below its own start; and a
// row without positions brings nothing.
static void adopted_codes_are_reusable_from_the_start_on(void **state)
{
    (void)state;
    enum { START = 70 };
    static const int64_t lengths[] = {0, START - 1, START, 100};
    kvern_layer layers[2] = {kvern_layer_default(1, DIM), kvern_layer_default(1, DIM)};
    layers[0].k_codec = layers[0].v_codec = kvern_codec_affine(4, 32);
    layers[1].k_codec = layers[1].v_codec = kvern_codec_affine(4, 32);
    layers[0].start = START;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const int64_t length = lengths[i];
        kvern_context *context;
        kvern_composition *composition;
        kvern_cache *to, *source;
        assert_ok(kvern_context_create(NULL, &context));
        assert_ok(kvern_composition_create(context, layers, 2, &composition));
        assert_ok(kvern_cache_create(composition, 0, 1, &to));
        assert_ok(kvern_cache_create(composition, 1, 1, &source));
        feed_one(source, KVERN_PHASE_WINDOW, 1, length, 2, NULL);
        assert_ok(kvern_cache_adopt(to, 0, source, 0));
        assert_int_equal(kvern_cache_converted(to, 0), length > 0);
        assert_int_equal(kvern_cache_min_reusable(to, 0), length < START ? length : START);
        kvern_cache_destroy(to);
        kvern_cache_destroy(source);
        kvern_composition_release(composition);
        kvern_context_release(context);
    }
}

// Parameters that a dense codec does not have change no signature, and no exchange of rows.
static void strange_fields_of_dense_codecs_are_ignored(void **state)
{
    (void)state;
    kvern_layer layers[2] = {kvern_layer_default(1, DIM), kvern_layer_default(1, DIM)};
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *caches[2];
    layers[1].k_codec.bits = 4;
    layers[1].v_codec.scales = KVERN_F16;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, layers, 2, &composition));
    for (size_t l = 0; l < 2; l++)
        assert_ok(kvern_cache_create(composition, l, 1, &caches[l]));
    assert_string_equal(kvern_cache_signature(caches[0]), kvern_cache_signature(caches[1]));
    feed_one(caches[1], KVERN_PHASE_WINDOW, 1, 100, 2, NULL);
    assert_ok(kvern_cache_adopt(caches[0], 0, caches[1], 0));
    for (size_t l = 0; l < 2; l++)
        kvern_cache_destroy(caches[l]);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_I4_trim_past_an_allocation_step),
        cmocka_unit_test(fault_I6_resurrected_tokens),
        cmocka_unit_test(fault_N1_batch_and_groups),
        cmocka_unit_test(fault_N3_head_map),
        cmocka_unit_test(fault_N4_output_heads),
        cmocka_unit_test(fault_O4_sink_in_every_path),
        cmocka_unit_test(fault_O6_sink_once_per_row),
        cmocka_unit_test(fault_P1_empty_row_in_a_batch),
        cmocka_unit_test(fault_P3_nan_behind_the_end),
        cmocka_unit_test(fault_P4_scores_below_a_sentinel),
        cmocka_unit_test(fault_Q1_large_scores),
        cmocka_unit_test(fault_Q3_large_dot_products),
        cmocka_unit_test(fault_Q4_long_context),
        cmocka_unit_test(adopted_rows_go_on),
        cmocka_unit_test(adopted_codes_are_reusable_from_the_start_on),
        cmocka_unit_test(strange_fields_of_dense_codecs_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
