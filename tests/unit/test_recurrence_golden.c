// SPDX-License-Identifier: MIT
// Recurrences against the blocks of mlx-lm in float32 (tests/golden/recurrent), or against another
// file of its kind that is named as the argument: outputs behind the gated norm, tails, states.

#include "src/recurrent/recurrence.h"
#include "tests/support/check.h"
#include "tests/support/golden_file.h"

#include <kvern/cpu.h>
#include <kvern/recurrent_math.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *path = KVERN_TESTS_DIR "/golden/recurrent/recurrent.bin";

#define CASES 3

typedef struct golden_case {
    kvern_recurrence_shape shape;
    kvern_recurrence_weights weights;
    size_t tokens, channels, values;
    kvern_gated_norm norm;
    float *conv, *conv_bias, *a_log, *dt_bias, *skip, *norm_weight;
    float *x, *a, *b, *z;
    float *out, *tail, *s; // what mlx-lm gives
} golden_case;

static float *take_floats(FILE *file, size_t count)
{
    float *x = calloc(count + 1, sizeof *x);
    assert_non_null(x);
    golden_file_take(file, x, count * sizeof *x);
    return x;
}

static size_t take_size(FILE *file)
{
    return (size_t)golden_file_number(file);
}

static void take_tensors(FILE *file, golden_case *c, bool biased, size_t norm_weights)
{
    const kvern_recurrence_shape *shape = &c->shape;
    const size_t heads = shape->value_heads, a = kvern_recurrence_a_floats(shape);
    c->conv = take_floats(file, shape->taps * c->channels);
    c->conv_bias = biased ? take_floats(file, c->channels) : NULL;
    c->a_log = take_floats(file, heads);
    c->dt_bias = take_floats(file, a);
    c->skip = shape->rule == KVERN_RULE_SSD ? take_floats(file, heads) : NULL;
    c->norm_weight = take_floats(file, norm_weights);
    c->x = take_floats(file, c->tokens * c->channels);
    c->a = take_floats(file, c->tokens * a);
    c->b = take_floats(file, c->tokens * kvern_recurrence_b_floats(shape));
    c->z = take_floats(file, c->tokens * c->values);
    c->out = take_floats(file, c->tokens * c->values);
    c->tail = take_floats(file, (shape->taps - 1) * c->channels);
    c->s = take_floats(file, c->values * shape->k_dim);
}

static golden_case take_case(FILE *file)
{
    golden_case c = {.shape.rule = (kvern_recurrence_rule)golden_file_number(file)};
    c.shape.taps = take_size(file);
    c.shape.key_heads = take_size(file);
    c.shape.value_heads = take_size(file);
    c.shape.k_dim = take_size(file);
    c.shape.v_dim = take_size(file);
    c.tokens = take_size(file);
    const bool biased = golden_file_number(file) != 0;
    const kvern_activation gate = (kvern_activation)golden_file_number(file);
    const uint32_t gate_first = (uint32_t)golden_file_number(file);
    const size_t parts = take_size(file), norm_weights = take_size(file);
    float constants[6];
    golden_file_take(file, constants, sizeof constants);
    c.channels = kvern_recurrence_channels(&c.shape);
    c.values = c.shape.value_heads * c.shape.v_dim;
    take_tensors(file, &c, biased, norm_weights);
    c.weights = (kvern_recurrence_weights){
        c.conv,       c.conv_bias,  c.a_log,      c.dt_bias,    c.skip, constants[0],
        constants[1], constants[2], constants[3], constants[4], 1};
    c.norm = kvern_gated_norm_default(c.values / parts, parts);
    c.norm.activation = gate;
    c.norm.gate_first = gate_first;
    c.norm.eps = constants[5];
    c.norm.weight = c.norm_weight;
    c.norm.weight_per_part = norm_weights == c.values;
    return c;
}

static void free_case(golden_case *c)
{
    float *all[] = {c->conv,        c->conv_bias, c->a_log, c->dt_bias, c->skip,
                    c->norm_weight, c->x,         c->a,     c->b,       c->z,
                    c->out,         c->tail,      c->s};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

// The largest difference, relative to the root mean square of what is wanted.
static double difference(const float *wanted, const float *got, size_t count)
{
    double squares = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        squares += (double)wanted[i] * wanted[i];
        largest = fmax(largest, fabs((double)wanted[i] - got[i]));
        assert_true(isfinite(got[i]));
    }
    assert_true(squares > 0);
    return largest / sqrt(squares / (double)count);
}

// Two computations in float32 with sums of up to 35 tokens and 24 channels: each is within some
// hundred roundings of the true values.
#define LIMIT 5e-5

static void compare(const golden_case *c)
{
    const size_t a = kvern_recurrence_a_floats(&c->shape), b = kvern_recurrence_b_floats(&c->shape);
    const kvern_recurrence_tokens tokens = {
        .count = c->tokens,
        .x = c->x,
        .a = c->a,
        .b = c->b,
        .x_stride = c->channels,
        .a_stride = a,
        .b_stride = b,
        .y = calloc(c->tokens * c->values, sizeof(float)),
        .y_stride = c->values,
    };
    float *state = calloc(kvern_recurrence_state_floats(&c->shape), sizeof(float));
    float *scratch = calloc(kvern_recurrence_scratch_floats(&c->shape), sizeof(float));
    float *s = calloc(c->values * c->shape.k_dim, sizeof(float));
    kvern_recurrence_run(kvern_cpu_features(), &c->shape, &c->weights, NULL, state, &tokens, NULL,
                         0, c->shape.value_heads, scratch);
    kvern_recurrence_move_tail(&c->shape, state, c->tokens, c->x, c->channels);
    kvern_gated_norm norm = c->norm;
    norm.count = c->tokens;
    norm.x = norm.out = tokens.y;
    norm.z = c->z;
    assert_ok(kvern_normalize_gated(kvern_cpu_features(), &norm));
    kvern_recurrence_export_s(&c->shape, state, s);
    check_same_floats(c->tail, state, (c->shape.taps - 1) * c->channels, "tail");
    const double of_out = difference(c->out, tokens.y, c->tokens * c->values);
    const double of_s = difference(c->s, s, c->values * c->shape.k_dim);
    print_message("rule %d: outputs differ by %.2g, S by %.2g\n", (int)c->shape.rule, of_out, of_s);
    assert_true(of_out < LIMIT && of_s < LIMIT);
    free(tokens.y);
    free(state);
    free(scratch);
    free(s);
}

static void recurrences_are_those_of_mlx(void **state)
{
    (void)state;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    for (int i = 0; i < CASES; i++) {
        golden_case c = take_case(file);
        compare(&c);
        free_case(&c);
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

int main(int count, char **arguments)
{
    if (count > 1)
        path = arguments[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(recurrences_are_those_of_mlx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
