// SPDX-License-Identifier: MIT
// The functions that make tables (sin, cos, log1p, pow) against MPFR and against C's special cases.
// A sample of all floats; all of them with KVERN_TEST_LONG (about an hour).

#include "tests/math/mpfr_error.h"

#include <kvern/math.h>

#define SAMPLE 8009

static double table_bound(float x)
{
    (void)x;
    return 0.50001;
}

static void true_sin(mpfr_t y, const mpfr_t x)
{
    mpfr_sin(y, x, MPFR_RNDN);
}

static void true_cos(mpfr_t y, const mpfr_t x)
{
    mpfr_cos(y, x, MPFR_RNDN);
}

static void true_log1p(mpfr_t y, const mpfr_t x)
{
    mpfr_log1p(y, x, MPFR_RNDN);
}

static void test_sin(void **state)
{
    (void)state;
    error_check check = {kvern_sin, true_sin, table_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 0x1.fffffep127f, stride);
    check_up_to(&check, -0x1.fffffep127f, stride == 1 ? 1 : stride * 4);
    check_range(&check, 0x1p24f, 0x1p33f, stride == 1 ? 1 : stride / 8); // both reductions, densely
    print_message("sin: at most %.8f ulp, at %a\n", check.worst, check.worst_at);
    assert_true(same_bits(kvern_sin(-0.0f), -0.0f));
    assert_true(isnan(kvern_sin(INFINITY)) && isnan(kvern_sin(NAN)));
}

static void test_cos(void **state)
{
    (void)state;
    error_check check = {kvern_cos, true_cos, table_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 0x1.fffffep127f, stride);
    check_up_to(&check, -0x1.fffffep127f, stride == 1 ? 1 : stride * 4);
    check_range(&check, 0x1p24f, 0x1p33f, stride == 1 ? 1 : stride / 8);
    print_message("cos: at most %.8f ulp, at %a\n", check.worst, check.worst_at);
    assert_true(same_bits(kvern_cos(0.0f), 1.0f));
    assert_true(isnan(kvern_cos(-INFINITY)) && isnan(kvern_cos(NAN)));
}

// The floats next to multiples of pi/2: where a reduction that is not good enough shows.
static void test_near_multiples(void **state)
{
    (void)state;
    error_check sine = {kvern_sin, true_sin, table_bound, 0.0, 0.0f};
    error_check cosine = {kvern_cos, true_cos, table_bound, 0.0, 0.0f};
    mpfr_t x, y;
    mpfr_init2(x, 24);
    mpfr_init2(y, TRUTH_BITS);
    for (double k = 1; k < 0x1p100; k = k < 2000 ? k + 1 : floor(k * 1.0625)) {
        float near = (float)(k * 1.5707963267948966);
        for (int step = -2; step <= 2; step++) {
            float value = kvern_f32_from_bits(kvern_bits_from_f32(near) + (uint32_t)step);
            check_one(&sine, value, x, y);
            check_one(&cosine, value, x, y);
        }
    }
    // The float that is closest of all to a multiple of pi/2.
    check_one(&cosine, 0x1.6ac5b2p+68f, x, y);
    check_one(&sine, 0x1.6ac5b2p+68f, x, y);
    mpfr_clear(x);
    mpfr_clear(y);
}

static void test_log1p(void **state)
{
    (void)state;
    error_check check = {kvern_log1p, true_log1p, table_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 0x1.fffffep127f, stride);
    check_up_to(&check, -1.0f, stride);
    print_message("log1p: at most %.8f ulp, at %a\n", check.worst, check.worst_at);
    assert_true(same_bits(kvern_log1p(-0.0f), -0.0f));
    assert_true(same_bits(kvern_log1p(-1.0f), -INFINITY));
    assert_true(same_bits(kvern_log1p(INFINITY), INFINITY));
    assert_true(isnan(kvern_log1p(-1.5f)) && isnan(kvern_log1p(-INFINITY)));
    assert_true(isnan(kvern_log1p(NAN)));
}

static void check_pow(float base, float exponent, double *worst)
{
    static mpfr_t x, y, z;
    static bool ready = false;
    if (!ready) {
        mpfr_inits2(TRUTH_BITS, x, y, z, (mpfr_ptr)NULL);
        ready = true;
    }
    mpfr_set_flt(x, base, MPFR_RNDN);
    mpfr_set_flt(y, exponent, MPFR_RNDN);
    mpfr_pow(z, x, y, MPFR_RNDN);
    float got = kvern_pow(base, exponent);
    // Beyond the floats the answer is infinity (half an ulp above the largest float) or zero.
    if (mpfr_number_p(z) && mpfr_cmp_d(z, 0x1.ffffffp127) >= 0) {
        assert_true(same_bits(got, INFINITY));
        return;
    }
    double error = ulp_error(got, z);
    *worst = error > *worst ? error : *worst;
    if (!(error <= 0.50001)) {
        fail_msg("pow(%a, %a) gave %a: %g ulp", base, exponent, got, error);
    }
}

static void test_pow(void **state)
{
    (void)state;
    double worst = 0.0;
    test_random random = test_random_seed(11);
    long rounds = stride_of_floats(SAMPLE) == 1 ? 100000000 : 300000;
    for (long round = 0; round < rounds; round++) {
        float base = kvern_f32_from_bits((uint32_t)test_random_next(&random) & 0x7fffffffu);
        float range = 160.0f / fmaxf(fabsf(log2f(base)), 1e-30f);
        float exponent = test_random_signed(&random) * range;
        if (base > 0.0f && isfinite(base)) {
            check_pow(base, exponent, &worst);
        }
    }
    // Rotary tables: base^(-2 i / d).
    static const float bases[] = {10000.0f, 500000.0f, 1e6f, 1e7f, 150000.0f, 8.0f};
    for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
        for (int d = 32; d <= 256; d *= 2) {
            for (int i = 0; i < d / 2; i++) {
                check_pow(bases[b], -2.0f * (float)i / (float)d, &worst);
            }
        }
    }
    print_message("pow: at most %.8f ulp\n", worst);
}

// Every pair of special values: the C library's answers are exact there, and its pow is C's Annex
// F.
static void test_pow_special(void **state)
{
    (void)state;
    static const float more[] = {2.0f,  3.0f,    -3.0f,       0.5f, -0.5f,
                                 -2.0f, 4097.0f, 16777217.0f, 1e30f};
    float values[SPECIAL_COUNT + 9];
    for (size_t i = 0; i < SPECIAL_COUNT; i++) {
        values[i] = kvern_f32_from_bits(special_bits[i]);
    }
    for (size_t i = 0; i < 9; i++) {
        values[SPECIAL_COUNT + i] = more[i];
    }
    for (size_t i = 0; i < SPECIAL_COUNT + 9; i++) {
        for (size_t j = 0; j < SPECIAL_COUNT + 9; j++) {
            float got = kvern_pow(values[i], values[j]), wanted = powf(values[i], values[j]);
            bool close = fabsf(got - wanted) <= fabsf(wanted) * 0x1p-23f + 0x1p-149f;
            bool same = isfinite(wanted) && wanted != 0.0f
                            ? close && signbit(got) == signbit(wanted)
                            : same_bits_or_nan(got, wanted);
            // A signalling NaN gives NaN here, whatever stands beside it.
            bool signalling = isnan(values[i]) || isnan(values[j]);
            if (!same && !(signalling && isnan(wanted))) {
                fail_msg("pow(%a, %a) gave %a, not %a", values[i], values[j], got, wanted);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sin),
        cmocka_unit_test(test_cos),
        cmocka_unit_test(test_near_multiples),
        cmocka_unit_test(test_log1p),
        cmocka_unit_test(test_pow),
        cmocka_unit_test(test_pow_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
