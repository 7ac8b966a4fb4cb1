// SPDX-License-Identifier: MIT
// kvern/recurrent_math.h as an engine calls it: what is refused, what defaults are, chunks,
// strides, and the caller's floating-point environment.

#include "tests/support/check.h"
#include "tests/support/float_environment.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"

#include <kvern/cpu.h>
#include <kvern/math.h>
#include <kvern/recurrent_math.h>

#include <math.h>
#include <string.h>

#define TOKENS 13
#define CHANNELS 24
#define TAPS 4
#define STRIDE (CHANNELS + 3)

static float x[TOKENS * STRIDE], y[TOKENS * STRIDE], z[TOKENS * STRIDE];
static float weight[TAPS * CHANNELS], bias[CHANNELS], tail[(TAPS - 1) * CHANNELS];

static void fill(test_random *random, float *to, size_t count, float size)
{
    for (size_t i = 0; i < count; i++)
        to[i] = size * test_random_signed(random);
}

static void fill_inputs(void)
{
    test_random random = test_random_seed(check_seed());
    fill(&random, x, TOKENS * STRIDE, 4);
    fill(&random, z, TOKENS * STRIDE, 4);
    fill(&random, weight, TAPS * CHANNELS, 1);
    fill(&random, bias, CHANNELS, 1);
    memset(tail, 0, sizeof tail);
    memset(y, 0x55, sizeof y);
}

static kvern_convolution convolution(void)
{
    kvern_convolution c = kvern_convolution_default(CHANNELS, TAPS);
    assert_true(c.size == sizeof c && c.x_stride == CHANNELS && c.y_stride == CHANNELS);
    assert_true(c.activation == KVERN_ACTIVATION_SILU && !c.bias && !c.count);
    c.x = x;
    c.y = y;
    c.x_stride = c.y_stride = STRIDE;
    c.weight = weight;
    c.tail = tail;
    c.count = TOKENS;
    return c;
}

static kvern_gated_norm norm(void)
{
    kvern_gated_norm n = kvern_gated_norm_default(CHANNELS / 3, 3);
    assert_true(n.size == sizeof n && n.x_stride == CHANNELS && n.z_stride == CHANNELS);
    assert_true(n.out_stride == CHANNELS && n.eps == 1e-6f && !n.gate_first && !n.weight);
    assert_true(n.activation == KVERN_ACTIVATION_SILU && !n.weight_per_part);
    n.x = x;
    n.z = z;
    n.out = y;
    n.x_stride = n.z_stride = n.out_stride = STRIDE;
    n.weight = bias;
    n.count = TOKENS;
    return n;
}

// ---- What it gives ----

static void a_convolution_is_what_its_formula_says(void **state)
{
    (void)state;
    for (int activation = 0; activation < 3; activation++) {
        fill_inputs();
        kvern_convolution c = convolution();
        c.bias = activation ? bias : NULL;
        c.activation = (kvern_activation)activation;
        assert_ok(kvern_convolve(kvern_cpu_features(), &c));
        for (size_t t = 0; t < TOKENS; t++) {
            for (size_t i = 0; i < CHANNELS; i++) {
                float sum = c.bias ? bias[i] : 0;
                for (size_t j = 0; j < TAPS; j++) {
                    const float input = t + j < TAPS - 1 ? 0 : x[(t + j + 1 - TAPS) * STRIDE + i];
                    sum = fmaf(weight[j * CHANNELS + i], input, sum);
                }
                if (activation == KVERN_ACTIVATION_SILU)
                    kvern_silu_array(0, 1, &sum, &sum);
                if (activation == KVERN_ACTIVATION_SIGMOID)
                    sum = kvern_sigmoid(sum);
                check_same_floats(&sum, &y[t * STRIDE + i], 1, "convolution");
            }
        }
        for (size_t r = 0; r < TAPS - 1; r++)
            check_same_floats(x + (TOKENS - (TAPS - 1) + r) * STRIDE, tail + r * CHANNELS, CHANNELS,
                              "tail");
    }
}

static void chunks_of_a_convolution_give_its_bits(void **state)
{
    (void)state;
    float wanted[TOKENS * STRIDE], wanted_tail[(TAPS - 1) * CHANNELS];
    fill_inputs();
    kvern_convolution c = convolution();
    assert_ok(kvern_convolve(0, &c));
    memcpy(wanted, y, sizeof y);
    memcpy(wanted_tail, tail, sizeof tail);
    for (size_t size = 1; size < TOKENS; size++) {
        fill_inputs();
        for (size_t first = 0; first < TOKENS; first += size) {
            c.count = TOKENS - first < size ? TOKENS - first : size;
            c.x = x + first * STRIDE;
            c.y = y + first * STRIDE;
            assert_ok(kvern_convolve(kvern_cpu_features(), &c));
        }
        check_same_bytes(wanted, y, sizeof y, "chunks"); // what lies between the rows included
        check_same_floats(wanted_tail, tail, (TAPS - 1) * CHANNELS, "tail");
    }
}

static void a_norm_is_what_its_formula_says(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++) {
        float wanted[TOKENS * STRIDE];
        fill_inputs();
        kvern_gated_norm n = norm();
        n.gate_first = form & 1;
        n.weight_per_part = form >> 1 & 1;
        n.activation = form & 4 ? KVERN_ACTIVATION_SIGMOID : KVERN_ACTIVATION_SILU;
        memcpy(wanted, y, sizeof y);
        for (size_t at = 0; at < TOKENS * 3; at++) {
            const size_t part = at % 3, row = at / 3, first = row * STRIDE + part * n.dim;
            float gate[CHANNELS], u[CHANNELS];
            (form & 4 ? kvern_sigmoid_array : kvern_silu_array)(0, n.dim, z + first, gate);
            for (size_t i = 0; i < n.dim; i++)
                u[i] = n.gate_first ? x[first + i] * gate[i] : x[first + i];
            kvern_rms_scale_array(0, n.dim, u, n.eps, 1,
                                  n.weight + (n.weight_per_part ? part * n.dim : 0), u);
            for (size_t i = 0; i < n.dim; i++)
                wanted[first + i] = n.gate_first ? u[i] : u[i] * gate[i];
        }
        assert_ok(kvern_normalize_gated(kvern_cpu_features(), &n));
        check_same_bytes(wanted, y, sizeof y, "norm");
    }
}

static void a_norm_without_a_gate_is_a_norm(void **state)
{
    (void)state;
    float wanted[CHANNELS / 3];
    fill_inputs();
    kvern_gated_norm n = norm();
    n.z = NULL;
    assert_ok(kvern_normalize_gated(kvern_cpu_features(), &n));
    kvern_rms_scale_array(0, n.dim, x + STRIDE + n.dim, 1e-6f, 1, bias, wanted);
    check_same_floats(wanted, y + STRIDE + n.dim, n.dim, "norm");
}

static void gates_are_what_their_formulas_say(void **state)
{
    (void)state;
    float decay[CHANNELS], dt[CHANNELS], decays[CHANNELS];
    fill_inputs();
    kvern_decay_array(kvern_cpu_features(), CHANNELS, x, bias, 0.7f, decay);
    kvern_step_size_array(kvern_cpu_features(), CHANNELS, x, bias, 0.01f, 2, 0.7f, dt, decays);
    for (size_t i = 0; i < CHANNELS; i++) {
        const float size = kvern_softplus(x[i] + bias[i]);
        const float limited = size < 0.01f ? 0.01f : size > 2 ? 2 : size;
        const float wanted[] = {kvern_exp(-(kvern_exp(0.7f) * size)), limited,
                                kvern_exp(-(kvern_exp(0.7f) * limited))};
        const float got[] = {decay[i], dt[i], decays[i]};
        check_same_floats(wanted, got, 3, "gates");
    }
}

// The numbers of mlx-lm's formulas, for one head: a = 0.5, A_log = log(4), dt_bias = -0.25.
static void gates_have_the_known_values(void **state)
{
    (void)state;
    const float a = 0.5f, dt_bias = -0.25f, a_log = 1.3862944f;
    float decay, dt, other;
    kvern_decay_array(0, 1, &a, &dt_bias, a_log, &decay);
    kvern_step_size_array(0, 1, &a, &dt_bias, 0, INFINITY, a_log, &dt, &other);
    // log(1 + exp(0.25)) = 0.825939..., exp(-4 * 0.825939) = 0.036732...
    assert_true(fabs((double)dt - log1p(exp(0.25))) < 2e-7);
    assert_true(fabs((double)decay - exp(-4 * log1p(exp(0.25)))) < 4e-8);
    assert_true(decay == other);
}

static void empty_calls_do_nothing(void **state)
{
    (void)state;
    fill_inputs();
    kvern_convolution c = convolution();
    kvern_gated_norm n = norm();
    float before[(TAPS - 1) * CHANNELS];
    fill(&(test_random){3}, tail, (TAPS - 1) * CHANNELS, 1);
    memcpy(before, tail, sizeof tail);
    c.count = n.count = 0;
    c.x = n.x = NULL;
    c.y = n.out = NULL;
    assert_ok(kvern_convolve(0, &c));
    assert_ok(kvern_normalize_gated(0, &n));
    check_same_bytes(before, tail, sizeof tail, "tail");
    kvern_decay_array(kvern_cpu_features(), 0, NULL, NULL, 0, NULL);
    kvern_step_size_array(kvern_cpu_features(), 0, NULL, NULL, 0, 1, 0, NULL, NULL);
}

// ---- What it refuses ----

#define REFUSED_CONVOLUTION(wanted, change)                                                        \
    do {                                                                                           \
        kvern_convolution c = convolution();                                                       \
        change;                                                                                    \
        assert_status(wanted, kvern_convolve(0, &c));                                              \
    } while (0)

static void wrong_convolutions_are_refused(void **state)
{
    (void)state;
    float before[TOKENS * STRIDE];
    fill_inputs();
    memcpy(before, y, sizeof y);
    assert_status(KVERN_ERR_ARGUMENT, kvern_convolve(0, NULL));
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.size = 8);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.weight = NULL);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.tail = NULL);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.x = NULL);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.y = NULL);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.channels = 0);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.reserved = 1);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.activation = (kvern_activation)3);
    REFUSED_CONVOLUTION(KVERN_ERR_ARGUMENT, c.activation = (kvern_activation)-1);
    REFUSED_CONVOLUTION(KVERN_ERR_RANGE, c.taps = 0);
    REFUSED_CONVOLUTION(KVERN_ERR_RANGE, c.taps = KVERN_MAX_CONV_KERNEL + 1);
    REFUSED_CONVOLUTION(KVERN_ERR_RANGE, c.x_stride = CHANNELS - 1);
    REFUSED_CONVOLUTION(KVERN_ERR_RANGE, c.y_stride = -STRIDE);
    REFUSED_CONVOLUTION(KVERN_ERR_OVERFLOW, c.count = SIZE_MAX / STRIDE);
    REFUSED_CONVOLUTION(KVERN_ERR_OVERFLOW, c.x_stride = INT64_MAX);
    REFUSED_CONVOLUTION(KVERN_ERR_OVERFLOW, c.channels = SIZE_MAX / 8);
    check_same_bytes(before, y, sizeof y, "outputs of refused calls");
    kvern_convolution one_tap = convolution();
    one_tap.taps = 1;
    one_tap.tail = NULL;
    assert_ok(kvern_convolve(0, &one_tap));
}

#define REFUSED_NORM(wanted, change)                                                               \
    do {                                                                                           \
        kvern_gated_norm n = norm();                                                               \
        change;                                                                                    \
        assert_status(wanted, kvern_normalize_gated(0, &n));                                       \
    } while (0)

static void wrong_norms_are_refused(void **state)
{
    (void)state;
    float before[TOKENS * STRIDE];
    fill_inputs();
    memcpy(before, y, sizeof y);
    assert_status(KVERN_ERR_ARGUMENT, kvern_normalize_gated(0, NULL));
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.size = 16);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.dim = 0);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.parts = 0);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.x = NULL);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.out = NULL);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.gate_first = 2);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.weight_per_part = 2);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.eps = -1e-9f);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.eps = NAN);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.eps = INFINITY);
    REFUSED_NORM(KVERN_ERR_ARGUMENT, n.activation = (kvern_activation)7);
    REFUSED_NORM(KVERN_ERR_RANGE, n.x_stride = CHANNELS - 1);
    REFUSED_NORM(KVERN_ERR_RANGE, n.z_stride = 0);
    REFUSED_NORM(KVERN_ERR_RANGE, n.out_stride = -1);
    REFUSED_NORM(KVERN_ERR_OVERFLOW, n.dim = SIZE_MAX / 2);
    REFUSED_NORM(KVERN_ERR_OVERFLOW, n.count = SIZE_MAX / STRIDE);
    check_same_bytes(before, y, sizeof y, "outputs of refused calls");
}

// ---- Programs of other releases, and other environments ----

static void longer_structs_are_accepted_when_their_surplus_is_zero(void **state)
{
    (void)state;
    struct {
        kvern_convolution c;
        uint64_t surplus;
    } longer = {convolution(), 0};
    fill_inputs();
    longer.c.size = sizeof longer;
    assert_ok(kvern_convolve(0, &longer.c));
    longer.surplus = 1;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_convolve(0, &longer.c));
    kvern_convolution_init(&longer.c, sizeof longer, CHANNELS, TAPS);
    assert_true(longer.c.size == sizeof longer && longer.surplus == 0);
    struct {
        kvern_gated_norm n;
        uint64_t surplus;
    } wide = {norm(), 0};
    wide.n.size = sizeof wide;
    assert_ok(kvern_normalize_gated(0, &wide.n));
    wide.surplus = 1;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_normalize_gated(0, &wide.n));
}

// Dims whose product does not fit: the defaults are made, and the call refuses them.
static void defaults_of_impossible_dims_are_refused(void **state)
{
    (void)state;
    kvern_gated_norm n = kvern_gated_norm_default(SIZE_MAX, 2);
    n.count = 1;
    n.x = x;
    n.out = y;
    assert_status(KVERN_ERR_OVERFLOW, kvern_normalize_gated(0, &n));
}

// Inputs small enough that products are subnormal, in environments where they would be lost, or
// rounded elsewhere.
static void compute_all(uint32_t features, float decays[2 * CHANNELS])
{
    kvern_convolution c = convolution();
    kvern_gated_norm n = norm();
    assert_ok(kvern_convolve(features, &c));
    n.x = y;
    n.eps = 0;
    assert_ok(kvern_normalize_gated(features, &n));
    kvern_decay_array(features, CHANNELS, z, bias, -1, decays);
    kvern_step_size_array(features, CHANNELS, z, bias, 0, 9, -1, decays, decays + CHANNELS);
}

static void the_callers_environment_changes_nothing(void **state)
{
    (void)state;
    const kernel_variants variants = kernel_variants_here();
    float wanted[TOKENS * STRIDE], decays[2 * CHANNELS], got[2 * CHANNELS];
    for (int e = FLOAT_DEFAULT; e < FLOAT_ENVIRONMENTS; e++) {
        for (size_t v = 0; v < variants.count; v++) {
            fill_inputs();
            for (size_t i = 0; i < TOKENS * STRIDE; i++)
                x[i] *= 1e-19f; // squares are subnormal, and so are some products
            for (size_t i = 0; i < TAPS * CHANNELS; i += 2)
                weight[i] *= 1e-19f;
            float_environment_set((float_environment)e);
            compute_all(variants.features[v], got);
            const int kept = float_environment_is((float_environment)e);
            float_environment_set(FLOAT_DEFAULT);
            assert_true(kept);
            if (e == FLOAT_DEFAULT && v == 0) {
                memcpy(wanted, y, sizeof y);
                memcpy(decays, got, sizeof got);
            }
            check_same_bytes(wanted, y, sizeof y, "in another environment");
            check_same_bytes(decays, got, sizeof got, "in another environment");
        }
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_is_what_its_formula_says),
        cmocka_unit_test(chunks_of_a_convolution_give_its_bits),
        cmocka_unit_test(a_norm_is_what_its_formula_says),
        cmocka_unit_test(a_norm_without_a_gate_is_a_norm),
        cmocka_unit_test(gates_are_what_their_formulas_say),
        cmocka_unit_test(gates_have_the_known_values),
        cmocka_unit_test(empty_calls_do_nothing),
        cmocka_unit_test(wrong_convolutions_are_refused),
        cmocka_unit_test(wrong_norms_are_refused),
        cmocka_unit_test(longer_structs_are_accepted_when_their_surplus_is_zero),
        cmocka_unit_test(defaults_of_impossible_dims_are_refused),
        cmocka_unit_test(the_callers_environment_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
