// SPDX-License-Identifier: MIT
// The error bounds of exp and what is made of it, against MPFR. A sample of all floats; all of them
// with KVERN_TEST_LONG (about an hour).

#include "src/math/sigmoid.h"
#include "src/math/softplus.h"
#include "src/math/tanh.h"
#include "tests/math/mpfr_error.h"

#include <kvern/math.h>

#define SAMPLE 2003 // a prime, so that all bit patterns of the fraction come

static void true_exp(mpfr_t y, const mpfr_t x)
{
    mpfr_exp(y, x, MPFR_RNDN);
}

static void true_tanh(mpfr_t y, const mpfr_t x)
{
    mpfr_tanh(y, x, MPFR_RNDN);
}

static void true_sigmoid(mpfr_t y, const mpfr_t x)
{
    mpfr_neg(y, x, MPFR_RNDN);
    mpfr_exp(y, y, MPFR_RNDN);
    mpfr_add_ui(y, y, 1, MPFR_RNDN);
    mpfr_ui_div(y, 1, y, MPFR_RNDN);
}

static void true_silu(mpfr_t y, const mpfr_t x)
{
    true_sigmoid(y, x);
    mpfr_mul(y, y, x, MPFR_RNDN);
}

// 2 sqrt(2/pi) (x + 0.044715 x^3), with enough bits that sigmoid(z) is still true.
static void true_gelu(mpfr_t y, const mpfr_t x)
{
    static __thread mpfr_t z, scale, cubic;
    static __thread bool ready = false;
    if (!ready) {
        mpfr_inits2(96, z, scale, cubic, (mpfr_ptr)NULL);
        mpfr_const_pi(scale, MPFR_RNDN);
        mpfr_ui_div(scale, 8, scale, MPFR_RNDN);
        mpfr_sqrt(scale, scale, MPFR_RNDN);
        mpfr_set_str(cubic, "0.044715", 10, MPFR_RNDN);
        ready = true;
    }
    mpfr_sqr(z, x, MPFR_RNDN);
    mpfr_mul(z, z, cubic, MPFR_RNDN);
    mpfr_add_ui(z, z, 1, MPFR_RNDN);
    mpfr_mul(z, z, x, MPFR_RNDN);
    mpfr_mul(z, z, scale, MPFR_RNDN);
    true_sigmoid(z, z);
    mpfr_mul(y, z, x, MPFR_RNDN);
}

static void true_softplus(mpfr_t y, const mpfr_t x)
{
    mpfr_exp(y, x, MPFR_RNDN);
    mpfr_log1p(y, y, MPFR_RNDN);
}

static double exp_bound(float x)
{
    (void)x;
    return 1.0;
}

static double tanh_bound(float x)
{
    (void)x;
    return 1.5;
}

static double sigmoid_bound(float x)
{
    return x < 0.0f ? 2.5 : 1.5;
}

static double silu_bound(float x)
{
    return x < 0.0f ? 3.5 : 2.5;
}

static double softplus_bound(float x)
{
    return x < 0.0f ? 3.0 : 2.5;
}

static double gelu_bound(float x)
{
    double z = 1.5957691216057308 * fabs(x) * (1.0 + 0.044715 * x * x);
    return x < 0.0f ? 4.0 + 3.0 * z : 3.0;
}

static void report(const char *name, const error_check *check)
{
    print_message("%s: at most %.4f ulp, at %a\n", name, check->worst, check->worst_at);
}

static void test_exp(void **state)
{
    (void)state;
    error_check check = {kvern_exp, true_exp, exp_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, KVERN_EXP_HIGHEST, stride);
    check_up_to(&check, KVERN_EXP_LOWEST, stride);
    report("exp", &check);
}

static void test_exp_outside(void **state)
{
    (void)state;
    assert_true(same_bits(kvern_exp(0.0f), 1.0f));
    assert_true(same_bits(kvern_exp(-0.0f), 1.0f));
    assert_true(kvern_exp(-87.0f) >= 0x1p-126f);
    assert_true(same_bits(kvern_exp(nextafterf(-87.0f, -100.0f)), 0.0f));
    assert_true(same_bits(kvern_exp(-INFINITY), 0.0f));
    assert_true(isfinite(kvern_exp(KVERN_EXP_HIGHEST)));
    assert_true(same_bits(kvern_exp(nextafterf(KVERN_EXP_HIGHEST, 100.0f)), INFINITY));
    assert_true(same_bits(kvern_exp(INFINITY), INFINITY));
    assert_true(isnan(kvern_exp(NAN)));
    assert_true(isnan(kvern_exp(kvern_f32_from_bits(0xff8001ff))));
}

static void test_tanh(void **state)
{
    (void)state;
    error_check check = {kvern_tanh, true_tanh, tanh_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 12.0f, stride);
    report("tanh", &check);
    // Odd, so the other half needs no MPFR.
    for (uint64_t bits = 0; bits <= 0x7f800000u; bits += stride) {
        float x = kvern_f32_from_bits((uint32_t)bits);
        assert_true(same_bits(kvern_tanh(-x), -kvern_tanh(x)));
        assert_true(x < 9.02f || same_bits(kvern_tanh(x), 1.0f));
    }
    assert_true(same_bits(kvern_tanh(INFINITY), 1.0f));
    assert_true(same_bits(kvern_tanh(-INFINITY), -1.0f));
    assert_true(isnan(kvern_tanh(NAN)));
}

static void test_sigmoid(void **state)
{
    (void)state;
    error_check above = {kvern_sigmoid, true_sigmoid, sigmoid_bound, 0.0, 0.0f};
    error_check below = above;
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&above, 100.0f, stride);
    report("sigmoid, x >= 0", &above);
    check_up_to(&below, -87.0f, stride);
    report("sigmoid, x < 0", &below);
    assert_true(same_bits(kvern_sigmoid(nextafterf(-87.0f, -100.0f)), 0.0f));
    assert_true(same_bits(kvern_sigmoid(-INFINITY), 0.0f));
    assert_true(same_bits(kvern_sigmoid(INFINITY), 1.0f));
    assert_true(same_bits(kvern_sigmoid(-0.0f), 0.5f));
    assert_true(isnan(kvern_sigmoid(NAN)));
}

static float silu(float x)
{
    kvern_silu_array(0, 1, &x, &x);
    return x;
}

static float gelu(float x)
{
    kvern_gelu_array(0, 1, &x, &x);
    return x;
}

static void test_silu(void **state)
{
    (void)state;
    error_check check = {silu, true_silu, silu_bound, 0.0, 0.0f};
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 100.0f, stride);
    check_up_to(&check, -87.0f, stride);
    report("silu", &check);
    assert_true(same_bits(silu(-88.0f), -0.0f));
    assert_true(same_bits(silu(-0x1.fffffep127f), -0.0f));
    assert_true(same_bits(silu(0x1.fffffep127f), 0x1.fffffep127f));
    assert_true(same_bits(silu(INFINITY), INFINITY));
    assert_true(isnan(silu(-INFINITY)));
}

static void test_gelu(void **state)
{
    (void)state;
    error_check check = {gelu, true_gelu, gelu_bound, 0.0, 0.0f};
    error_check near = check;
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&check, 100.0f, stride);
    report("gelu, x >= 0", &check);
    check_up_to(&near, -1.0f, stride);
    report("gelu, -1 <= x < 0", &near);
    check_range(&near, -1.0f, -9.8f, stride == 1 ? 1 : stride / 8);
    report("gelu, -9.8 <= x < 0", &near);
    assert_true(same_bits(gelu(-10.0f), -0.0f));
    assert_true(same_bits(gelu(-0x1.fffffep127f), -0.0f));
    assert_true(same_bits(gelu(0x1.fffffep127f), 0x1.fffffep127f));
    assert_true(same_bits(gelu(INFINITY), INFINITY));
    assert_true(isnan(gelu(-INFINITY)));
}

static void test_softplus(void **state)
{
    (void)state;
    error_check above = {kvern_softplus, true_softplus, softplus_bound, 0.0, 0.0f};
    error_check below = above;
    uint32_t stride = stride_of_floats(SAMPLE);
    check_up_to(&above, 100.0f, stride);
    report("softplus, x >= 0", &above);
    check_up_to(&below, -87.0f, stride);
    report("softplus, x < 0", &below);
    assert_true(same_bits(kvern_softplus(nextafterf(-87.0f, -100.0f)), 0.0f));
    assert_true(same_bits(kvern_softplus(-INFINITY), 0.0f));
    assert_true(same_bits(kvern_softplus(INFINITY), INFINITY));
    assert_true(same_bits(kvern_softplus(0x1.fffffep127f), 0x1.fffffep127f));
    assert_true(same_bits(kvern_softplus(18.0f), 18.0f));
    assert_true(same_bits(kvern_softplus(-0.0f), kvern_softplus(0.0f)));
    assert_true(isnan(kvern_softplus(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),      cmocka_unit_test(test_exp_outside),
        cmocka_unit_test(test_tanh),     cmocka_unit_test(test_sigmoid),
        cmocka_unit_test(test_silu),     cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_softplus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
