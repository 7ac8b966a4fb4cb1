// SPDX-License-Identifier: MIT
// Faults that other systems have shipped, as small scenarios: storage, heads, sinks, range and
// offsets. test_fault_rows.c says more about them.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/feed.h"
#include "tests/support/naive_cache.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// ---- C: storage ----

// Blaizzy/mlx-vlm#2061, vllm-project/vllm#41413: head dims that are no powers of two failed after
// work was done, or gave wrong numbers.
static void fault_C1_head_dims(void **state)
{
    (void)state;
    static const size_t dims[] = {72, 80, 96, 112, 40, 8, 576};
    const int64_t counts[] = {6, 60, 1, 4};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        naive_check_appends(kvern_layer_default(2, dims[i]), counts, 4);
}

// ml-explore/mlx-examples#1075: the buffer of V grew with the width of K.
static void fault_C3_growth_with_unequal_dims(void **state)
{
    (void)state;
    const int64_t counts[] = {255, 1, 1, 63, 1, 200, 1};
    kvern_layer layer = kvern_layer_default(2, 192);
    layer.v_dim = 128;
    naive_check_appends(layer, counts, 7);
    layer.k_dim = 64;
    layer.v_dim = 512;
    naive_check_appends(layer, counts, 7);
}

// Blaizzy/mlx-vlm#967: storing one token at a time lost bits that storing many kept.
static void fault_C4_single_token_storage(void **state)
{
    (void)state;
    for (int type = 0; type < 3; type++) {
        const kvern_layer layer = layer_of(2, 128, (kvern_type)type);
        bed *a = bed_create(layer, 1), *b = bed_create(layer, 1);
        float k[2][17 * 256], v[2][17 * 256];
        feed_one(a->cache, KVERN_PHASE_WINDOW, 1, 17, 2, NULL);
        for (int i = 0; i < 17; i++)
            feed_one(b->cache, KVERN_PHASE_DECODE, 1, 1, 2, NULL);
        assert_ok(kvern_cache_export(a->cache, 0, 0, 17, k[0], v[0]));
        assert_ok(kvern_cache_export(b->cache, 0, 0, 17, k[1], v[1]));
        check_same_bytes(k[0], k[1], sizeof k[0], "keys");
        check_same_bytes(v[0], v[1], sizeof v[0], "values");
        bed_destroy(a);
        bed_destroy(b);
    }
}

// ml-explore/mlx-swift-lm#232: a scratch array of a fixed size was indexed by the head dim.
static void fault_C9_scratch(void **state)
{
    (void)state;
    static const size_t dims[] = {64, 128, 192, 256, 512, 576};
    const int64_t counts[] = {1, 3, 65, 1, 3};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        naive_check_appends(kvern_layer_default(1, dims[i]), counts, 5);
}

// Blaizzy/mlx-vlm#1310: with one row the prompt was dropped.
static void fault_C10_one_row_batch(void **state)
{
    (void)state;
    enum { DIM = 64, TOKENS = 40 };
    bed *b = bed_create(kvern_layer_default(1, DIM), 1);
    float *k = new_floats((TOKENS + 1) * DIM, 0), *v = new_floats((TOKENS + 1) * DIM, 0);
    float q[DIM] = {0}, out[DIM];
    for (int p = 0; p <= TOKENS; p++) {
        k[p * DIM + p] = 1; // keys are different directions
        v[p * DIM + p] = 1; // values say which position they are
    }
    q[3] = 400; // scaled by 1/8: a score of 50 for position 3, 0 for the others
    append_values(b->cache, TOKENS, k, v, 1, NULL, NULL, NULL);
    append_values(b->cache, 1, k + TOKENS * DIM, v + TOKENS * DIM, 1, NULL, q, out);
    for (int d = 0; d < DIM; d++)
        assert_true(d == 3 ? out[d] > 0.999999f : out[d] < 1e-6f);
    free(k);
    free(v);
    bed_destroy(b);
}

// ---- N: grouped heads ----

// Compares rows of a batch with the rows alone.
static void check_batch(size_t kv_heads, size_t query_heads, size_t dim, size_t rows)
{
    const kvern_layer layer = kvern_layer_default(kv_heads, dim);
    bed *b = bed_create(layer, rows);
    uint64_t sequences[8];
    int64_t first[8], second[8], at = 0;
    for (size_t r = 0; r < rows; r++) {
        sequences[r] = r + 1;
        first[r] = (int64_t)(r * 5 % 7);
        second[r] = 1 + (int64_t)(r % 3);
        at += second[r];
    }
    float *out = new_floats((size_t)at * query_heads * dim, NAN);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, first, query_heads, NULL);
    feed_run(b->cache, KVERN_PHASE_WINDOW, sequences, second, query_heads, out);
    at = 0;
    for (size_t r = 0; r < rows; r++) {
        expect_serial(layer, sequences[r], first[r], second[r], query_heads,
                      out + (size_t)at * query_heads * dim, "a row of a batch");
        at += second[r];
    }
    free(out);
    bed_destroy(b);
}

// ml-explore/mlx-lm#1467: a batch's mask met grouped scores; silent when rows equal KV heads.
static void fault_N1_batch_and_groups(void **state)
{
    (void)state;
    check_batch(8, 40, 64, 2);
    check_batch(8, 40, 64, 8);
    check_batch(2, 8, 64, 2);
}

// ---- O: sinks ----

// Scores 0 and values 1: a sink of z leaves n / (n + exp(z)) of them.
static void check_sink(kvern_executor executor, float z, int64_t stored, int64_t count)
{
    enum { DIM = 8 };
    bed *b = bed_on(layer_of(1, DIM, KVERN_F16), 1, executor);
    const size_t tokens = (size_t)(stored + count);
    float *k = new_floats(tokens * DIM, 0), *v = new_floats(tokens * DIM, 1);
    float *q = new_floats((size_t)count * DIM, 1), *out = new_floats((size_t)count * DIM, NAN);
    kvern_queries options = kvern_queries_default(kvern_cache_layer(b->cache), 1);
    options.sinks = &z;
    append_values(b->cache, stored, k, v, 1, NULL, NULL, NULL);
    append_values(b->cache, count, k, v, 1, &options, q, out);
    for (int64_t i = 0; i < count; i++) {
        const double n = (double)(stored + i + 1), wanted = n / (n + exp((double)z));
        for (int d = 0; d < DIM; d++)
            assert_true(fabs((double)out[i * DIM + d] - wanted) <= 1e-4 * wanted);
    }
    free(k);
    free(v);
    free(q);
    free(out);
    bed_destroy(b);
}

// kekzl/imp#1345: one path left the sink out.
static void fault_O4_sink_in_every_path(void **state)
{
    (void)state;
    static const float sinks[] = {0, 5, -20, 0.5f, -INFINITY};
    for (size_t i = 0; i < sizeof sinks / sizeof sinks[0]; i++) {
        check_sink(executor_backwards(1), sinks[i], 0, 1);
        check_sink(executor_backwards(1), sinks[i], 20, 1);
        check_sink(executor_backwards(1), sinks[i], 20, 3);
        check_sink(executor_backwards(1), sinks[i], 63, 3);
    }
}

// ROCm/rocm-libraries#12229: split reads counted the sink more than once, or not at all.
static void fault_O6_sink_once_per_row(void **state)
{
    (void)state;
    for (int64_t spans = 1; spans <= 5; spans++) {
        check_sink(executor_backwards(1), 5, 1024 * spans - 1, 2);
        check_sink(executor_shuffled(9), 5, 1024 * spans - 1, 2);
    }
    // Enough work to be cut: the same bits as uncut.
    const kvern_executor executors[2] = {executor_backwards(1), executor_shuffled(9)};
    static const float sinks[4] = {5, 0, -20, 1};
    float out[2][4 * 64];
    for (int i = 0; i < 2; i++) {
        bed *b = bed_on(kvern_layer_default(1, 64), 1, executors[i]);
        feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 4999, 4, NULL);
        feed f = feed_create(b->cache, &(uint64_t){1}, &(int64_t){1}, 4);
        kvern_read *read;
        assert_ok(feed_append(b->cache, KVERN_PHASE_DECODE, &f, &read));
        f.queries.sinks = sinks;
        f.queries.out = out[i];
        assert_ok(kvern_read_attend(read, &f.queries));
        kvern_read_release(read);
        feed_destroy(&f);
        bed_destroy(b);
    }
    check_same_bytes(out[0], out[1], sizeof out[0], "sinks of a row that is cut");
}

// ---- P: unwritten memory, masks ----

// ggml-org/llama.cpp#3523: additive masks keep the NaN of keys that must not be seen. Here NaN keys
// and values are stored, trimmed away, and their places half filled again.
static void fault_P3_nan_behind_the_end(void **state)
{
    (void)state;
    enum { DIM = 64 };
    const kvern_layer layer = kvern_layer_default(1, DIM);
    bed *b = bed_create(layer, 1);
    float *nan = new_floats(100 * DIM, NAN), out[30 * 4 * DIM];
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 40, 4, NULL);
    append_values(b->cache, 100, nan, nan, 1, NULL, NULL, NULL);
    assert_ok(kvern_cache_trim(b->cache, 0, 100));
    feed_one(b->cache, KVERN_PHASE_WINDOW, 1, 30, 4, out);
    expect_serial(layer, 1, 40, 30, 4, out, "among NaN");
    free(nan);
    bed_destroy(b);
}

// Uniform scores of any size give the mean of the values.
static void check_uniform(size_t dim, float q_value, float k_value, kvern_type type)
{
    enum { TOKENS = 70 };
    bed *b = bed_create(layer_of(1, dim, type), 1);
    float *k = new_floats(TOKENS * dim, k_value), *v = new_floats(TOKENS * dim, 0);
    float *q = new_floats(TOKENS * dim, q_value), *out = new_floats(TOKENS * dim, NAN);
    for (size_t i = 0; i < TOKENS * dim; i++)
        v[i] = (float)(i / dim);
    append_values(b->cache, TOKENS, k, v, 1, NULL, q, out);
    for (size_t i = 0; i < TOKENS * dim; i++) // sums of small whole numbers: exact but the division
        assert_true(out[i] == (float)(i / dim * (i / dim + 1) / 2) / (float)(i / dim + 1));
    free(k);
    free(v);
    free(q);
    free(out);
    bed_destroy(b);
}

// flashinfer-ai/flashinfer#4401: real scores below a finite mask value.
static void fault_P4_scores_below_a_sentinel(void **state)
{
    (void)state;
    check_uniform(16, -2500, 10, KVERN_F32);      // -1e5
    check_uniform(64, -1e20f, 1e10f, KVERN_BF16); // -8e30
    check_uniform(8, 3e38f, -1e-3f, KVERN_F32);
}

// A score of -infinity is a weight of zero, and only that.
static void fault_P4_infinite_scores(void **state)
{
    (void)state;
    enum { DIM = 8 };
    bed *b = bed_create(layer_of(1, DIM, KVERN_F32), 1);
    float k[3 * DIM] = {0}, v[3 * DIM], q[3 * DIM] = {0}, out[3 * DIM];
    for (int i = 0; i < 3 * DIM; i++)
        v[i] = (float)(1 + i / DIM);
    k[0] = k[DIM] = -INFINITY; // positions 0 and 1
    q[0] = q[DIM] = q[2 * DIM] = 1;
    static const float sinks[] = {-INFINITY, 2};
    for (int i = -1; i < 2; i++) { // without a sink, with one of no weight, with one
        kvern_queries options = kvern_queries_default(kvern_cache_layer(b->cache), 1);
        options.sinks = i < 0 ? NULL : &sinks[i];
        append_values(b->cache, 3, k, v, 1, &options, q, out);
        assert_ok(kvern_cache_trim(b->cache, 0, 3));
        for (int d = 0; d < DIM; d++) {
            assert_true(out[d] == 0 && out[DIM + d] == 0); // every visible weight is zero
            assert_true(i == 1 ? out[2 * DIM + d] < 3 : out[2 * DIM + d] == 3);
        }
    }
    bed_destroy(b);
}

// ---- Q: range ----

// AI-Hypercomputer/maxtext#4136: scores in half precision.
static void fault_Q1_large_scores(void **state)
{
    (void)state;
    enum { DIM = 256 };
    for (int type = 0; type < 3; type++) {
        bed *b = bed_create(layer_of(1, DIM, (kvern_type)type), 1);
        float k[4 * DIM] = {0}, v[4 * DIM] = {0}, q[4 * DIM] = {0}, out[4 * DIM];
        for (int p = 0; p < 4; p++) {
            k[p * DIM] = q[p * DIM] = q[p * DIM + 1] = p < 2 ? 1 : 0;
            k[p * DIM] *= 1000; // scores 1000 and 1001.5
            k[p * DIM + 1] = p == 1 ? 1.5f : 0;
            v[p * DIM + p] = 1;
        }
        kvern_queries options = kvern_queries_default(kvern_cache_layer(b->cache), 1);
        options.scale = 1;
        append_values(b->cache, 2, k, v, 1, &options, q, out);
        const double share = 1 / (1 + exp(-1.5));
        assert_true(fabs((double)out[DIM + 1] - share) < 1e-6);
        assert_true(fabs((double)out[DIM] - (1 - share)) < 1e-6);
        bed_destroy(b);
    }
    check_uniform(DIM, 1e15f, 1e14f, KVERN_F32); // about 1e30
    check_uniform(DIM, 1e15f, 1e14f, KVERN_BF16);
}

// NVIDIA/TensorRT-LLM#18044: a dot product beyond the range of f16.
static void fault_Q3_large_dot_products(void **state)
{
    (void)state;
    for (int type = 0; type < 3; type++)
        check_uniform(128, 256, 256, (kvern_type)type);
}

// ---- R: 64-bit offsets ----

// vllm-project/vllm#50427: token times stride in 32 bits. Three tokens, 2^31 elements apart and
// more, in memory of which only their pages exist; likewise queries and results.
static void fault_R1_element_offsets(void **state)
{
    (void)state;
    enum { DIM = 16 };
    const int64_t stride = (INT64_C(1) << 31) + 64;
    const size_t bytes = (size_t)(2 * stride + DIM) * sizeof(float);
    float *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (far == MAP_FAILED) {
        print_message("not run: the machine does not give address space away\n");
        skip();
    }
    bed *b = bed_create(layer_of(1, DIM, KVERN_F32), 1);
    const int64_t counts = 3;
    float near[3 * DIM], wanted[3 * DIM];
    feed_values(1, 0, FEED_K, 3 * DIM, near);
    for (int i = 0; i < 3; i++)
        memcpy(far + i * stride, near + i * DIM, DIM * sizeof(float));
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(b->cache));
    tokens.k = tokens.v = far;
    tokens.k_token_stride = tokens.v_token_stride = stride;
    tokens.counts = &counts;
    kvern_read *read;
    assert_ok(kvern_cache_append(b->cache, KVERN_PHASE_WINDOW, &tokens, &read));
    kvern_queries queries = kvern_queries_default(kvern_cache_layer(b->cache), 1);
    queries.q = near;
    queries.out = wanted;
    assert_ok(kvern_read_attend(read, &queries));
    queries.q = queries.out = far; // each query is read before its result is written
    queries.q_token_stride = queries.out_token_stride = stride;
    assert_ok(kvern_read_attend(read, &queries));
    for (int i = 0; i < 3; i++)
        check_same_bytes(wanted + i * DIM, far + i * stride, DIM * sizeof(float), "far away");
    kvern_read_release(read);
    bed_destroy(b);
    munmap(far, bytes);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_C1_head_dims),
        cmocka_unit_test(fault_C3_growth_with_unequal_dims),
        cmocka_unit_test(fault_C4_single_token_storage),
        cmocka_unit_test(fault_C9_scratch),
        cmocka_unit_test(fault_C10_one_row_batch),
        cmocka_unit_test(fault_N1_batch_and_groups),
        cmocka_unit_test(fault_O4_sink_in_every_path),
        cmocka_unit_test(fault_O6_sink_once_per_row),
        cmocka_unit_test(fault_P3_nan_behind_the_end),
        cmocka_unit_test(fault_P4_scores_below_a_sentinel),
        cmocka_unit_test(fault_P4_infinite_scores),
        cmocka_unit_test(fault_Q1_large_scores),
        cmocka_unit_test(fault_Q3_large_dot_products),
        cmocka_unit_test(fault_R1_element_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
