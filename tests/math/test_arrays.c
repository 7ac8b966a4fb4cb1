// SPDX-License-Identifier: MIT
// The array functions of kvern/math.h: the same bits for every set of kernels, size, alignment and
// in place, and the same as the functions of one value.

#include "src/math/sigmoid.h"
#include "src/math/softplus.h"
#include "src/math/tanh.h"
#include "tests/math/inputs.h"

#include <kvern/cpu.h>
#include <kvern/math.h>

#include <stddef.h>
#include <stdio.h>

typedef struct {
    const char *name;
    void (*array)(uint32_t features, size_t n, const float *x, float *y);
    float (*plain)(float x);
} float_function;

static const float_function functions[] = {
    {"exp", kvern_exp_array, plain_exp},
    {"tanh", kvern_tanh_array, plain_tanh},
    {"sigmoid", kvern_sigmoid_array, plain_sigmoid},
    {"silu", kvern_silu_array, plain_silu},
    {"gelu", kvern_gelu_array, plain_gelu},
    {"softplus", kvern_softplus_array, plain_softplus},
};

#define FUNCTION_COUNT (sizeof(functions) / sizeof(functions[0]))

// The kernel sets of this machine: plain C first, then one feature at a time, then all together.
static size_t feature_sets(uint32_t sets[4])
{
    uint32_t all = kvern_cpu_features();
    const uint32_t each[] = {KVERN_CPU_AVX2, KVERN_CPU_AVX512, KVERN_CPU_NEON};
    size_t count = 0;
    sets[count++] = 0;
    for (size_t i = 0; i < 3; i++) {
        if (all & each[i]) {
            sets[count++] = each[i];
        }
    }
    return count;
}

#define ROOM 80

static void check_sizes(const float_function *f, uint32_t features)
{
    test_random random = test_random_seed(features + 3);
    for (size_t n = 0; n <= 70; n++) {
        for (size_t offset = 0; offset < 3; offset++) {
            float x[ROOM], y[ROOM], z[ROOM];
            for (size_t i = 0; i < ROOM; i++) {
                x[i] = random_input(&random);
                y[i] = z[i] = i < offset || i >= offset + n ? 77.0f : x[i];
            }
            f->array(features, n, x + offset, y + offset);
            f->array(features, n, z + offset, z + offset); // in place
            for (size_t i = 0; i < ROOM; i++) {
                bool inside = i >= offset && i < offset + n;
                float wanted = inside ? f->plain(x[i]) : 77.0f;
                if (!same_bits_or_nan(y[i], wanted) || !same_bits_or_nan(z[i], wanted)) {
                    fail_msg("%s(%a) gave %a and %a in place, not %a (features %u, n %zu)", f->name,
                             x[i], y[i], z[i], wanted, features, n);
                }
            }
        }
    }
}

static void test_sizes(void **state)
{
    (void)state;
    uint32_t sets[4];
    size_t count = feature_sets(sets);
    for (size_t s = 0; s < count; s++) {
        for (size_t f = 0; f < FUNCTION_COUNT; f++) {
            check_sizes(&functions[f], sets[s]);
        }
        print_message("features %u: %s\n", sets[s], kvern_cpu_name(sets[s]));
    }
    for (size_t f = 0; f < FUNCTION_COUNT; f++) {
        functions[f].array(kvern_cpu_features(), 0, NULL, NULL);
    }
}

#define CHUNK 4096

static void check_chunk(const float_function *f, const uint32_t *sets, size_t count, const float *x,
                        size_t n)
{
    static float wanted[CHUNK], got[CHUNK];
    f->array(0, n, x, wanted);
    for (size_t s = 1; s < count; s++) {
        f->array(sets[s], n, x, got);
        for (size_t i = 0; i < n; i++) {
            if (!same_bits_or_nan(got[i], wanted[i])) {
                fail_msg("%s(%a) gave %a, not %a (%s)", f->name, x[i], got[i], wanted[i],
                         kvern_cpu_name(sets[s]));
            }
        }
    }
}

// A sample of all floats, or all of them (minutes), with every set of kernels.
static void test_all_floats(void **state)
{
    (void)state;
    uint32_t sets[4];
    size_t count = feature_sets(sets);
    uint64_t stride = stride_of_floats(1499);
    static float x[CHUNK];
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32;) {
        size_t n = 0;
        for (; n < CHUNK && bits < UINT64_C(1) << 32; bits += stride) {
            x[n++] = kvern_f32_from_bits((uint32_t)bits);
        }
        for (size_t f = 0; f < FUNCTION_COUNT; f++) {
            check_chunk(&functions[f], sets, count, x, n);
        }
    }
}

static void test_one_value(void **state)
{
    (void)state;
    test_random random = test_random_seed(5);
    for (int round = 0; round < 100000; round++) {
        float x = random_input(&random);
        assert_true(same_bits_or_nan(kvern_exp(x), plain_exp(x)));
        assert_true(same_bits_or_nan(kvern_tanh(x), plain_tanh(x)));
        assert_true(same_bits_or_nan(kvern_sigmoid(x), plain_sigmoid(x)));
        assert_true(same_bits_or_nan(kvern_softplus(x), plain_softplus(x)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_all_floats),
        cmocka_unit_test(test_one_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
