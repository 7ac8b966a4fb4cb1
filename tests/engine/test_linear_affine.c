// SPDX-License-Identifier: MIT
// Products of affine weights, codes of 2 to 8 bits with a scale and a bias for each group: the
// elements that MLX has, vector kernels against plain C by memcmp, plain C against float64, and
// what is refused.

#include "tests/support/golden_json.h"
#include "tests/support/linear_case.h"

#include <kvern/math.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t types[] = {ELEMENT_AFFINE_2, ELEMENT_AFFINE_3, ELEMENT_AFFINE_4,
                                 ELEMENT_AFFINE_5, ELEMENT_AFFINE_6, ELEMENT_AFFINE_8};
static const uint32_t scale_types[] = {ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16};
static const uint32_t groups[] = {32, 64, 128};

#define TYPES (sizeof types / sizeof *types)

// ---- Matrices. ----

typedef struct affine_matrix {
    weights_tensor tensor;
    unsigned char *codes;
    unsigned char *scales, *biases;
} affine_matrix;

static size_t scale_bytes(uint32_t type)
{
    return type == ELEMENT_F32 ? 4 : 2;
}

static affine_matrix matrix_of(uint32_t type, uint32_t scale_type, uint32_t group, size_t rows,
                               size_t cols)
{
    const size_t bytes = rows * cols / 8 * element_type_affine_bits(type);
    const size_t count = rows * cols / group;
    affine_matrix m = {.codes = malloc(bytes),
                       .scales = malloc(count * scale_bytes(scale_type)),
                       .biases = malloc(count * scale_bytes(scale_type))};
    assert_true(m.codes && m.scales && m.biases);
    m.tensor = (weights_tensor){.name = {"m", 1},
                                .type = type,
                                .known = true,
                                .dims = 2,
                                .shape = {cols, rows, 1, 1},
                                .elements = cols * rows,
                                .data = m.codes,
                                .bytes = bytes + 2 * count * scale_bytes(scale_type),
                                .groups = {m.scales, m.biases, scale_type, group}};
    return m;
}

static void matrix_free(affine_matrix *m)
{
    free(m->codes);
    free(m->scales);
    free(m->biases);
}

static void store_scale(uint32_t type, unsigned char *to, size_t index, float value)
{
    uint16_t half;
    if (type == ELEMENT_F32) {
        memcpy(to + 4 * index, &value, 4);
        return;
    }
    if (type == ELEMENT_F16) {
        kvern_f32_to_f16_array(0, 1, &value, &half);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        half = (uint16_t)(bits >> 16);
    }
    memcpy(to + 2 * index, &half, 2);
}

static float load_scale(uint32_t type, const unsigned char *from, size_t index)
{
    float value;
    uint16_t half;
    if (type == ELEMENT_F32) {
        memcpy(&value, from + 4 * index, 4);
        return value;
    }
    memcpy(&half, from + 2 * index, 2);
    if (type == ELEMENT_F16) {
        kvern_f16_to_f32_array(0, 1, &half, &value);
    } else {
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
    }
    return value;
}

// `extreme`: all codes the largest, scales at the ends of their range.
static affine_matrix random_matrix(uint32_t type, uint32_t scale_type, uint32_t group, size_t rows,
                                   size_t cols, bool extreme, test_random *random)
{
    affine_matrix m = matrix_of(type, scale_type, group, rows, cols);
    const size_t bytes = rows * cols / 8 * element_type_affine_bits(type);
    for (size_t i = 0; i < bytes; i++) {
        m.codes[i] = extreme ? 0xff : (unsigned char)(test_random_next(random) >> 20);
    }
    for (size_t i = 0; i < rows * cols / group; i++) {
        const float size = extreme && i % 3 == 1 ? 60000.0f : extreme && i % 3 == 2 ? 1e-7f : 0.02f;
        store_scale(scale_type, m.scales, i, test_random_signed(random) * size);
        store_scale(scale_type, m.biases, i, test_random_signed(random) * size * 8);
    }
    return m;
}

static unsigned code_at(const affine_matrix *m, size_t element)
{
    const unsigned bits = element_type_affine_bits(m->tensor.type);
    unsigned code = 0;
    for (size_t b = 0; b < bits; b++) {
        const size_t bit = element * bits + b;
        code |= (unsigned)(m->codes[bit / 8] >> (bit % 8) & 1) << b;
    }
    return code;
}

static double value_at(const affine_matrix *m, size_t element)
{
    const size_t group = element / m->tensor.groups.inputs;
    return (double)load_scale(m->tensor.groups.type, m->scales, group) * code_at(m, element) +
           (double)load_scale(m->tensor.groups.type, m->biases, group);
}

// ---- Elements. ----

static float number_at(const json_t *golden, const char *list, size_t index)
{
    return (float)json_number_value(json_array_get(json_object_get(golden, list), index));
}

static void check_golden(const json_t *golden)
{
    const uint32_t bits = (uint32_t)json_integer_value(json_object_get(golden, "bits"));
    const uint32_t group = (uint32_t)json_integer_value(json_object_get(golden, "group"));
    const json_t *words = json_object_get(golden, "words");
    affine_matrix m = matrix_of(1000 + bits, ELEMENT_F32, group, 2, 128);
    float row[128];
    assert_int_equal(json_array_size(words), 2 * 128 * bits / 32);
    for (size_t i = 0; i < json_array_size(words); i++) {
        const uint64_t word = (uint64_t)json_integer_value(json_array_get(words, i));
        for (size_t byte = 0; byte < 4; byte++) {
            m.codes[4 * i + byte] = (unsigned char)(word >> (8 * byte));
        }
    }
    for (size_t i = 0; i < 2 * 128 / group; i++) {
        store_scale(ELEMENT_F32, m.scales, i, number_at(golden, "scales", i));
        store_scale(ELEMENT_F32, m.biases, i, number_at(golden, "biases", i));
    }
    packed p = pack(&m.tensor, LINEAR_INT16, 0, NULL);
    for (size_t r = 0; r < 2; r++) {
        linear_row(&p.weights, r, row);
        for (size_t c = 0; c < 128; c++) {
            const float right = number_at(golden, "values", 128 * r + c);
            if (fabsf(row[c] - right) > 2e-7f) { // one of the two may round once
                fail_msg("%u bits, group %u, row %zu, element %zu: %.9g, not %.9g", bits, group, r,
                         c, (double)row[c], (double)right);
            }
        }
    }
    linear_arena_destroy(p.arena);
    matrix_free(&m);
}

static void elements_are_those_of_mlx(void **state)
{
    (void)state;
    json_t *golden = golden_json_open("affine/weights.json", 18);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        check_golden(json_array_get(golden, i));
    }
    json_decref(golden);
}

// ---- Products. ----

static void compare_variants(const affine_matrix *m, linear_precision precision, const float *x,
                             size_t tokens)
{
    const size_t rows = (size_t)m->tensor.shape[1];
    float *expected = floats(tokens * rows), *got = floats(tokens * rows);
    for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
        if (!linear_variant_runs(&linear_variants[v])) {
            continue;
        }
        packed p = pack(&m->tensor, precision, linear_variants[v].features, NULL);
        float *y = v == 0 ? expected : got;
        memset(y, 0xff, tokens * rows * sizeof *y);
        multiply(&p.weights, x, tokens, linear_variants[v].features, NULL, y);
        if (memcmp(expected, y, tokens * rows * sizeof *y) != 0) {
            fail_msg("%s differs: %s, group %u, %zu rows, %zu cols, %zu tokens, precision %d",
                     linear_variants[v].name, element_type_name(m->tensor.type),
                     m->tensor.groups.inputs, rows, (size_t)m->tensor.shape[0], tokens,
                     (int)precision);
        }
        linear_arena_destroy(p.arena);
    }
    free(expected);
    free(got);
}

static void vector_kernels_equal_plain(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 9, 32, 33, 70};
    test_random random = test_random_seed(11);
    size_t turn = 0;
    for (size_t i = 0; i < TYPES * 9; i++) {
        const uint32_t group = groups[i / TYPES % 3];
        for (size_t r = 0; r < 5; r++, turn++) {
            const size_t cols = group * (1 + turn % 4), tokens = 1 + turn % 19;
            float *x = random_activations(tokens, cols, &random);
            affine_matrix m = random_matrix(types[i % TYPES], scale_types[i / TYPES / 3], group,
                                            rows[r], cols, turn % 4 == 3, &random);
            compare_variants(&m, LINEAR_INT8, x, tokens);
            compare_variants(&m, LINEAR_INT16, x, tokens);
            matrix_free(&m);
            free(x);
        }
    }
}

static void plain_is_near_float64(void **state)
{
    (void)state;
    enum { ROWS = 37, COLS = 256, TOKENS = 3 };
    test_random random = test_random_seed(12);
    for (size_t i = 0; i < TYPES * 9; i++) {
        affine_matrix m = random_matrix(types[i % TYPES], scale_types[i / TYPES / 3],
                                        groups[i / TYPES % 3], ROWS, COLS, false, &random);
        float *x = random_activations(TOKENS, COLS, &random), y[TOKENS * ROWS], row[COLS];
        packed p = pack(&m.tensor, LINEAR_INT16, 0, NULL);
        multiply(&p.weights, x, TOKENS, 0, NULL, y);
        for (size_t r = 0; r < ROWS; r++) {
            linear_row(&p.weights, r, row);
            for (size_t c = 0; c < COLS; c++) {
                const double right = value_at(&m, r * COLS + c);
                assert_true(fabs(row[c] - right) <= 1e-6 * (1 + fabs(right)));
            }
            for (size_t t = 0; t < TOKENS; t++) {
                double right = 0, sizes = 0;
                for (size_t block = 0; block < COLS / 32; block++) {
                    double peak = 0, weights = 0;
                    for (size_t c = 32 * block; c < 32 * block + 32; c++) {
                        const double w = value_at(&m, r * COLS + c), a = x[t * COLS + c];
                        right += w * a;
                        weights += fabs(w) + 8 * 0.02; // a code and its bias may cancel
                        peak = fabs(a) > peak ? fabs(a) : peak;
                    }
                    sizes += peak * weights;
                }
                assert_true(fabs(y[t * ROWS + r] - right) <= sizes * (1.0 / 32639 + 1e-5));
            }
        }
        linear_arena_destroy(p.arena);
        matrix_free(&m);
        free(x);
    }
}

static linear create(linear_arena **arena, const linear_source *source)
{
    linear weights;
    size_t bytes;
    engine_error error;
    assert_int_equal(linear_packed_bytes(source, &bytes, &error), KVERN_OK);
    assert_int_equal(linear_arena_create(bytes, arena, &error), KVERN_OK);
    assert_int_equal(linear_create(*arena, source, LINEAR_INT16, 0, NULL, &weights, &error),
                     KVERN_OK);
    return weights;
}

// One of several matrices that lie behind each other, as experts do.
static void stacks_are_taken_apart(void **state)
{
    (void)state;
    test_random random = test_random_seed(13);
    affine_matrix m = random_matrix(ELEMENT_AFFINE_3, ELEMENT_BF16, 64, 30, 128, false, &random);
    weights_tensor stack = m.tensor;
    stack.dims = 3;
    stack.shape[1] = 10;
    stack.shape[2] = 3;
    packed whole = pack(&m.tensor, LINEAR_INT16, 0, NULL);
    for (size_t i = 0; i < 3; i++) {
        linear_source source;
        linear_arena *arena;
        float one[128], other[128];
        assert_int_equal(linear_source_of(&stack, i, &source, NULL), KVERN_OK);
        linear weights = create(&arena, &source);
        for (size_t r = 0; r < 10; r++) {
            linear_row(&weights, r, one);
            linear_row(&whole.weights, 10 * i + r, other);
            assert_memory_equal(one, other, sizeof one);
        }
        linear_arena_destroy(arena);
    }
    linear_source source;
    assert_int_equal(linear_source_of(&stack, 3, &source, NULL), KVERN_ERR_RANGE);
    linear_arena_destroy(whole.arena);
    matrix_free(&m);
}

// Rows of a fused matrix have their own scales.
static void parts_keep_their_scales(void **state)
{
    (void)state;
    test_random random = test_random_seed(15);
    affine_matrix m = random_matrix(ELEMENT_AFFINE_5, ELEMENT_F16, 32, 50, 96, false, &random);
    packed whole = pack(&m.tensor, LINEAR_INT16, 0, NULL);
    linear_source source;
    linear_arena *arena;
    float one[96], other[96];
    assert_int_equal(linear_source_of(&m.tensor, 0, &source, NULL), KVERN_OK);
    linear_source_narrow(&source, 13, 30);
    linear weights = create(&arena, &source);
    assert_int_equal(weights.rows, 30);
    for (size_t r = 0; r < 30; r++) {
        linear_row(&weights, r, one);
        linear_row(&whole.weights, 13 + r, other);
        assert_memory_equal(one, other, sizeof one);
    }
    linear_arena_destroy(arena);
    linear_arena_destroy(whole.arena);
    matrix_free(&m);
}

// MXFP4 with exponents apart, as MLX has it, is the same matrix as in blocks, as GGUF has it.
static void mxfp4_may_have_its_scales_apart(void **state)
{
    (void)state;
    enum { ROWS = 37, COLS = 96, BLOCKS = ROWS * COLS / 32 };
    static unsigned char blocks[BLOCKS * 17], codes[BLOCKS * 16], exponents[BLOCKS];
    test_random random = test_random_seed(16);
    for (size_t b = 0; b < BLOCKS; b++) {
        exponents[b] = (unsigned char)(120 + test_random_next(&random) % 10);
        blocks[17 * b] = exponents[b];
        for (size_t i = 0; i < 32; i++) {
            const unsigned code = (unsigned)(test_random_next(&random) >> 30 & 15);
            codes[16 * b + i / 2] |= (unsigned char)(code << (i % 2 * 4));
            blocks[17 * b + 1 + i % 16] |= (unsigned char)(code << (i / 16 * 4));
        }
    }
    const weights_tensor whole = {.name = {"m", 1},
                                  .type = ELEMENT_MXFP4,
                                  .known = true,
                                  .dims = 2,
                                  .shape = {COLS, ROWS, 1, 1},
                                  .data = blocks,
                                  .bytes = sizeof blocks};
    weights_tensor apart = whole;
    apart.data = codes;
    apart.groups = (weights_groups){exponents, NULL, ELEMENT_BYTES, 32};
    packed one = pack(&whole, LINEAR_INT16, 0, NULL), two = pack(&apart, LINEAR_INT16, 0, NULL);
    assert_int_equal(one.weights.tile_bytes, two.weights.tile_bytes);
    assert_memory_equal(one.weights.tiles, two.weights.tiles, 2 * one.weights.tile_bytes);
    linear_arena_destroy(one.arena);
    linear_arena_destroy(two.arena);
}

static void bad_groups_are_refused(void **state)
{
    (void)state;
    test_random random = test_random_seed(14);
    affine_matrix m = random_matrix(ELEMENT_AFFINE_4, ELEMENT_F16, 32, 4, 96, false, &random);
    linear_source source;
    size_t bytes;
    engine_error error;
    weights_tensor bad = m.tensor;
    bad.groups.inputs = 64; // 96 is no multiple
    assert_int_equal(linear_source_of(&bad, 0, &source, &error), KVERN_ERR_FORMAT);
    bad.groups.inputs = 0;
    assert_int_equal(linear_source_of(&bad, 0, &source, &error), KVERN_ERR_FORMAT);
    bad.groups.inputs = 48;
    assert_int_equal(linear_source_of(&bad, 0, &source, &error), KVERN_OK);
    assert_int_equal(linear_packed_bytes(&source, &bytes, &error), KVERN_ERR_UNSUPPORTED);
    bad.groups = m.tensor.groups;
    bad.groups.type = ELEMENT_Q4_0;
    assert_int_equal(linear_source_of(&bad, 0, &source, &error), KVERN_OK);
    assert_int_equal(linear_packed_bytes(&source, &bytes, &error), KVERN_ERR_UNSUPPORTED);
    matrix_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_those_of_mlx),
        cmocka_unit_test(vector_kernels_equal_plain),
        cmocka_unit_test(plain_is_near_float64),
        cmocka_unit_test(stacks_are_taken_apart),
        cmocka_unit_test(parts_keep_their_scales),
        cmocka_unit_test(mxfp4_may_have_its_scales_apart),
        cmocka_unit_test(bad_groups_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
