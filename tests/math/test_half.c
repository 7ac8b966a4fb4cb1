// SPDX-License-Identifier: MIT
// Conversions between float and the 16-bit types: every half, and every float where a rounding
// changes. The expected values come from the meaning of the formats, not from the functions under
// test.

#include "tests/math/inputs.h"

#include <kvern/cpu.h>
#include <kvern/math.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    const char *name;
    int fraction_bits;
    uint16_t infinity;
    int smallest; // the exponent of the smallest subnormal
    float (*widen)(uint16_t half);
    uint16_t (*narrow)(float x);
    void (*widen_array)(uint32_t features, size_t n, const uint16_t *x, float *y);
    void (*narrow_array)(uint32_t features, size_t n, const float *x, uint16_t *y);
    bool widening_quiets; // whether a signalling NaN becomes quiet on the way to float
} half_format;

static const half_format formats[] = {
    {"bf16", 7, 0x7f80, -133, kvern_f32_from_bf16, kvern_bf16_from_f32, kvern_bf16_to_f32_array,
     kvern_f32_to_bf16_array, false},
    {"f16", 10, 0x7c00, -24, kvern_f32_from_f16, kvern_f16_from_f32, kvern_f16_to_f32_array,
     kvern_f32_to_f16_array, true},
};

// The value of a finite half that is not negative; for infinity, what would come after the largest.
static double meaning(const half_format *format, uint16_t half)
{
    int exponent = half >> format->fraction_bits;
    int fraction = half & ((1 << format->fraction_bits) - 1);
    if (exponent == 0) {
        return ldexp(fraction, format->smallest);
    }
    return ldexp(fraction + (1 << format->fraction_bits), format->smallest + exponent - 1);
}

static void check_widen(const half_format *format, uint16_t half, float got)
{
    uint16_t magnitude = half & 0x7fff;
    uint32_t bits = kvern_bits_from_f32(got);
    uint32_t sign = (uint32_t)(half >> 15) << 31;
    if (magnitude < format->infinity) {
        assert_true((double)fabsf(got) == meaning(format, magnitude));
        assert_int_equal(bits & 0x80000000u, sign);
    } else if (magnitude == format->infinity) {
        assert_int_equal(bits, sign | 0x7f800000u);
    } else {
        uint32_t fraction = (uint32_t)(half & ((1 << format->fraction_bits) - 1))
                            << (23 - format->fraction_bits);
        uint32_t quiet = format->widening_quiets ? 0x400000u : 0;
        assert_int_equal(bits, sign | 0x7f800000u | fraction | quiet);
    }
}

static void check_narrow(const half_format *format, float x, uint16_t wanted)
{
    uint16_t got = format->narrow(x);
    if (got != wanted) {
        fail_msg("%s of %a is %04x, not %04x", format->name, x, got, wanted);
    }
    got = format->narrow(-x);
    assert_int_equal(got, wanted ^ 0x8000);
}

static void test_widening(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        for (uint32_t half = 0; half < 65536; half++) {
            check_widen(&formats[f], (uint16_t)half, formats[f].widen((uint16_t)half));
        }
    }
}

// Between each half and the next one: below the middle, the middle (to even), above it.
static void test_rounding(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const half_format *format = &formats[f];
        for (uint16_t half = 0; half < format->infinity; half++) {
            double low = meaning(format, half), high = meaning(format, half + 1);
            float middle = (float)((low + high) / 2);
            assert_true((double)middle == (low + high) / 2);
            check_narrow(format, (float)low, half);
            check_narrow(format, nextafterf(middle, 0.0f), half);
            check_narrow(format, middle, half & 1 ? half + 1 : half);
            check_narrow(format, nextafterf(middle, INFINITY), half + 1);
        }
        check_narrow(format, INFINITY, format->infinity);
        check_narrow(format, 0x1.fffffep127f, format->infinity);
        check_narrow(format, 0x1p-149f, 0);
    }
}

static void test_narrowing_nan(void **state)
{
    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const half_format *format = &formats[f];
        for (uint32_t fraction = 1; fraction < 0x800000; fraction += fraction < 4096 ? 1 : 61) {
            uint16_t upper = (uint16_t)(fraction >> (23 - format->fraction_bits));
            uint16_t quiet = (uint16_t)(1 << (format->fraction_bits - 1));
            float x = kvern_f32_from_bits(0x7f800000u | fraction);
            assert_int_equal(format->narrow(x), format->infinity | quiet | upper);
            x = kvern_f32_from_bits(0xff800000u | fraction);
            assert_int_equal(format->narrow(x), 0x8000 | format->infinity | quiet | upper);
        }
    }
}

#define COUNT 65536

static void check_arrays(const half_format *format, uint32_t features)
{
    static uint16_t halves[COUNT + 1], narrowed[COUNT + 1];
    static float floats[COUNT + 1];
    for (size_t i = 0; i < COUNT; i++) {
        halves[i] = (uint16_t)i;
    }
    format->widen_array(features, COUNT, halves, floats);
    for (size_t i = 0; i < COUNT; i++) {
        check_widen(format, (uint16_t)i, floats[i]);
    }
    test_random random = test_random_seed(features + 1);
    for (size_t n = 0; n < 2000; n += n < 40 ? 1 : 997) {
        for (size_t i = 0; i < n; i++) {
            float x = random_input(&random);
            floats[i] = i & 1 ? x : kvern_f32_from_bits(kvern_bits_from_f32(x) & 0xfffff000u);
        }
        narrowed[n] = 0x1234;
        format->narrow_array(features, n, floats, narrowed);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(narrowed[i], format->narrow(floats[i]));
        }
        assert_int_equal(narrowed[n], 0x1234);
        floats[n] = 5.0f;
        format->widen_array(features, n, narrowed, floats);
        for (size_t i = 0; i < n; i++) {
            assert_true(same_bits(floats[i], format->widen(narrowed[i])));
        }
        assert_true(same_bits(floats[n], 5.0f));
    }
}

static void test_arrays(void **state)
{
    (void)state;
    const uint32_t sets[] = {0, KVERN_CPU_AVX2, KVERN_CPU_AVX512, KVERN_CPU_NEON};
    for (size_t s = 0; s < 4; s++) {
        if ((kvern_cpu_features() & sets[s]) == sets[s]) {
            check_arrays(&formats[0], sets[s]);
            check_arrays(&formats[1], sets[s]);
            print_message("%s checked\n", kvern_cpu_name(sets[s]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widening),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_narrowing_nan),
        cmocka_unit_test(test_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
