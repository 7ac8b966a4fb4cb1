// SPDX-License-Identifier: MIT
// Matrix products on several threads: the same bits, and no data race (under ThreadSanitizer).

#include "tests/support/executors.h"
#include "tests/support/linear_case.h"
#include "tests/support/matrices.h"

#include <kvern/cpu.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void compare_executor(const gguf_tensor *tensor, const float *x, size_t tokens,
                             const float *expected, const kvern_executor *executor)
{
    const size_t rows = tensor->shape[1];
    packed p = pack(tensor, LINEAR_INT16, kvern_cpu_features(), executor);
    float *y = floats(tokens * rows);
    multiply(&p.weights, x, tokens, kvern_cpu_features(), executor, y);
    assert_memory_equal(expected, y, tokens * rows * sizeof *y);
    free(y);
    linear_arena_destroy(p.arena);
}

// The library's own threads.
static void compare_pool(const gguf_tensor *tensor, const float *x, size_t tokens,
                         const float *expected, size_t threads)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = threads;
    kvern_context *context;
    assert_int_equal(kvern_context_create(&options, &context), KVERN_OK);
    const kvern_executor executor = kvern_context_executor(context);
    compare_executor(tensor, x, tokens, expected, &executor);
    kvern_context_release(context);
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 7};
    static const size_t shapes[][3] = {{500, 512, 1}, {70, 256, 200}, {32, 1024, 260}, {3, 256, 2}};
    test_random random = test_random_seed(11);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t rows = shapes[s][0], cols = shapes[s][1], tokens = shapes[s][2];
        gguf_tensor tensor = matrix_make(GGUF_TYPE_Q4_K, rows, cols, MATRIX_ORDINARY, &random);
        float *x = random_activations(tokens, cols, &random);
        float *expected = floats(tokens * rows);
        packed p = pack(&tensor, LINEAR_INT16, kvern_cpu_features(), NULL);
        multiply(&p.weights, x, tokens, kvern_cpu_features(), NULL, expected);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            const kvern_executor executors[] = {executor_threads(counts[i]),
                                                executor_backwards(counts[i]),
                                                executor_shuffled(counts[i])};
            for (size_t e = 0; e < 3; e++)
                compare_executor(&tensor, x, tokens, expected, &executors[e]);
            compare_pool(&tensor, x, tokens, expected, counts[i]);
        }
        linear_arena_destroy(p.arena);
        free(x);
        free(expected);
        matrix_free(&tensor);
    }
}

static void jobs_together_equal_jobs_alone(void **state)
{
    (void)state;
    enum { COLS = 256, TOKENS = 19, JOBS = 4 };
    static const uint32_t types[JOBS] = {GGUF_TYPE_Q4_1, GGUF_TYPE_F16, GGUF_TYPE_Q6_K,
                                         GGUF_TYPE_Q8_0};
    static const linear_precision precisions[JOBS] = {LINEAR_INT16, LINEAR_INT16, LINEAR_INT8,
                                                      LINEAR_INT16};
    static const size_t rows[JOBS] = {48, 20, 1, 133};
    test_random random = test_random_seed(12);
    float *x = random_activations(TOKENS, COLS, &random);
    const kvern_executor executor = executor_threads(3);
    prepared in = prepare(x, COLS, TOKENS, 7, kvern_cpu_features());
    packed p[JOBS];
    linear_job jobs[JOBS];
    for (size_t i = 0; i < JOBS; i++) {
        gguf_tensor tensor = matrix_make(types[i], rows[i], COLS, MATRIX_ORDINARY, &random);
        p[i] = pack(&tensor, precisions[i], kvern_cpu_features(), NULL);
        jobs[i] = (linear_job){&p[i].weights, &in.input, floats(TOKENS * 200), 200, false, NULL};
        matrix_free(&tensor);
    }
    assert_int_equal(linear_apply(jobs, JOBS, &executor), KVERN_OK);
    for (size_t i = 0; i < JOBS; i++) {
        float *alone = floats(TOKENS * rows[i]);
        multiply(&p[i].weights, x, TOKENS, kvern_cpu_features(), NULL, alone);
        for (size_t t = 0; t < TOKENS; t++)
            assert_memory_equal(alone + t * rows[i], jobs[i].y + t * 200, rows[i] * sizeof(float));
        free(alone);
        free(jobs[i].y);
        linear_arena_destroy(p[i].arena);
    }
    free(in.memory);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(jobs_together_equal_jobs_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
