// SPDX-License-Identifier: MIT
#include "tests/support/linear_case.h"

#include <kvern/cpu.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

const linear_variant linear_variants[LINEAR_VARIANTS] = {
    {"plain", 0},
    {"avx2", KVERN_CPU_AVX2},
    {"avxvnni", KVERN_CPU_AVX2 | KVERN_CPU_AVX_VNNI},
    {"avx512vnni", KVERN_CPU_AVX2 | KVERN_CPU_AVX512 | KVERN_CPU_AVX512_VNNI},
    {"neon", KVERN_CPU_NEON},
};

bool linear_variant_runs(const linear_variant *variant)
{
    return (kvern_cpu_features() & variant->features) == variant->features;
}

packed pack(const weights_tensor *tensor, linear_precision precision, uint32_t features,
            const kvern_executor *executor)
{
    packed out;
    size_t bytes;
    engine_error error;
    linear_source source;
    assert_int_equal(linear_source_of(tensor, 0, &source, &error), KVERN_OK);
    assert_int_equal(linear_packed_bytes(&source, &bytes, &error), KVERN_OK);
    assert_int_equal(linear_arena_create(bytes, &out.arena, &error), KVERN_OK);
    assert_int_equal(
        linear_create(out.arena, &source, precision, features, executor, &out.weights, &error),
        KVERN_OK);
    return out;
}

prepared prepare(const float *x, size_t cols, size_t tokens, uint32_t formats, uint32_t features)
{
    prepared out;
    size_t bytes;
    assert_int_equal(linear_input_bytes(cols, tokens, formats, &bytes), KVERN_OK);
    out.memory = aligned_alloc(64, bytes ? bytes : 64);
    assert_non_null(out.memory);
    linear_input_init(&out.input, out.memory, cols, tokens, formats, features);
    for (size_t t = 0; t < tokens; t++)
        linear_input_row(&out.input, t, x + t * cols);
    return out;
}

void multiply(const linear *weights, const float *x, size_t tokens, uint32_t features,
              const kvern_executor *executor, float *y)
{
    prepared in = prepare(x, weights->cols, tokens, LINEAR_FORMAT_BIT(weights->format), features);
    const linear_job job = {
        .weights = weights, .input = &in.input, .y = y, .y_stride = weights->rows};
    assert_int_equal(linear_apply(&job, 1, executor), KVERN_OK);
    free(in.memory);
}

float *floats(size_t count)
{
    float *out = malloc(count * sizeof *out + 1);
    assert_non_null(out);
    return out;
}

float *random_activations(size_t tokens, size_t cols, test_random *random)
{
    float *x = floats(tokens * cols);
    for (size_t t = 0; t < tokens; t++)
        for (size_t i = 0; i < cols; i++) {
            const size_t block = (i / 32 + t) % 8;
            const int exponent = block == 3 ? -70 : block == 5 ? 30 : 0;
            const float value = ldexpf(test_random_signed(random), exponent);
            x[t * cols + i] = block == 6 ? 0.0f : i % 29 == 4 ? value * 60 : value;
        }
    return x;
}
