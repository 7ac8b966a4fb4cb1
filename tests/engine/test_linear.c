// SPDX-License-Identifier: MIT
// Matrix products: the vector kernels against plain C by memcmp, plain C against float64, and the
// same bits for every number of tokens. test_linear_threads.c has the threads.

#include "engine/base/instruction_sets.h"
#include "engine/kernels/linear/linear_layout.h"
#include "engine/weights/dequantize.h"
#include "tests/support/executors.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/guarded.h"
#include "tests/support/linear_case.h"
#include "tests/support/matrices.h"

#include <kvern/cpu.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// --- Instruction sets agree ---------------------------------------------------------------------

static void compare_variants(const gguf_tensor *tensor, linear_precision precision, const float *x,
                             size_t tokens)
{
    const size_t rows = tensor->shape[1];
    float *expected = floats(tokens * rows), *got = floats(tokens * rows);
    for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
        if (!linear_variant_runs(&linear_variants[v]))
            continue;
        packed p = pack(tensor, precision, linear_variants[v].features, NULL);
        float *y = v == 0 ? expected : got;
        memset(y, 0xff, tokens * rows * sizeof *y);
        multiply(&p.weights, x, tokens, linear_variants[v].features, NULL, y);
        if (memcmp(expected, y, tokens * rows * sizeof *y) != 0)
            fail_msg("%s differs: %s, %zu rows, %zu cols, %zu tokens, precision %d",
                     linear_variants[v].name, element_type_name(tensor->type), rows,
                     (size_t)tensor->shape[0], tokens, (int)precision);
        linear_arena_destroy(p.arena);
    }
    free(expected);
    free(got);
}

static void compare_shapes(uint32_t type, size_t rows, size_t cols, size_t tokens, matrix_kind kind,
                           test_random *random)
{
    gguf_tensor tensor = matrix_make(type, rows, cols, kind, random);
    float *x = random_activations(tokens, cols, random);
    compare_variants(&tensor, LINEAR_INT8, x, tokens);
    if (matrix_block(type) > 1)
        compare_variants(&tensor, LINEAR_INT16, x, tokens);
    free(x);
    matrix_free(&tensor);
}

static void vector_kernels_equal_plain_for_all_shapes(void **state)
{
    (void)state;
    static const size_t rows[] = {1, 7, 8, 9, 16, 17, 24, 31, 32, 33, 65};
    static const size_t float_cols[] = {1, 31, 32, 33, 70};
    test_random random = test_random_seed(1);
    for (size_t v = 0; v < LINEAR_VARIANTS; v++)
        print_message("kernel %s: %s\n", linear_variants[v].name,
                      linear_variant_runs(&linear_variants[v]) ? "runs" : "-");
    for (size_t i = 0; i < MATRIX_TYPES; i++) {
        const size_t block = matrix_block(matrix_types[i]);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t c = 0; c < 5; c++) {
                const size_t cols =
                    block == 1 ? float_cols[c] : block * (block == 256 ? 1 + c % 2 : 1 + c);
                compare_shapes(matrix_types[i], rows[r], cols, 1 + (r * 5 + c) % 20,
                               MATRIX_ORDINARY, &random);
            }
    }
}

static void vector_kernels_equal_plain_for_all_token_counts(void **state)
{
    (void)state;
    test_random random = test_random_seed(2);
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (size_t tokens = 1; tokens <= 34; tokens += tokens < 20 ? 1 : 7)
            compare_shapes(matrix_types[i], 21, 256, tokens, MATRIX_ORDINARY, &random);
}

static void vector_kernels_equal_plain_for_extreme_weights(void **state)
{
    (void)state;
    test_random random = test_random_seed(3);
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (int kind = 0; kind < MATRIX_KINDS; kind++)
            for (size_t tokens = 1; tokens <= 17; tokens += 8)
                compare_shapes(matrix_types[i], 40, 512, tokens, (matrix_kind)kind, &random);
}

// Every sum of integers as large as it can be, of either sign: nothing may overflow or saturate.
static void vector_kernels_equal_plain_for_extreme_activations(void **state)
{
    (void)state;
    enum { COLS = 256, TOKENS = 6 };
    test_random random = test_random_seed(4);
    float x[TOKENS * COLS];
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < COLS; i++) {
            const float sign = t < 2 ? 1.0f : t == 2 ? -1.0f : i % 2 ? 1.0f : -1.0f;
            // Codes (127, 127), (-127, -127), and in the last tokens (127, -127) beside one of
            // these.
            const float size = t < 4 || i % 32 == 0 ? 32512.0f : 32258.0f;
            x[t * COLS + i] = sign * size;
        }
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (int kind = 0; kind < MATRIX_KINDS; kind++) {
            gguf_tensor tensor = matrix_make(matrix_types[i], 32, COLS, (matrix_kind)kind, &random);
            compare_variants(&tensor, LINEAR_INT8, x, TOKENS);
            compare_variants(&tensor, LINEAR_INT16, x, TOKENS);
            // The most negative code of signed types.
            if (matrix_types[i] == GGUF_TYPE_Q8_0) {
                for (size_t b = 0; b < tensor.bytes; b++)
                    if (b % 34 >= 2)
                        ((unsigned char *)tensor.data)[b] = 0x80;
                compare_variants(&tensor, LINEAR_INT8, x, TOKENS);
                compare_variants(&tensor, LINEAR_INT16, x, TOKENS);
            }
            matrix_free(&tensor);
        }
}

// --- Rounding of activations --------------------------------------------------------------------

static void compare_rounding(const float *x, size_t cols)
{
    for (int format = 0; format < LINEAR_FORMATS; format++) {
        const size_t bytes = linear_units(cols) * linear_record_bytes((linear_format)format);
        unsigned char *plain = malloc(bytes), *vector = malloc(bytes);
        assert_true(plain && vector);
        memset(plain, 1, bytes);
        memset(vector, 1, bytes); // padding stays as it is
        linear_round_plain(x, cols, (linear_format)format, plain,
                           linear_record_bytes((linear_format)format));
#ifdef ENGINE_HAS_AVX2
        if (kvern_cpu_features() & KVERN_CPU_AVX2)
            linear_round_avx2(x, cols, (linear_format)format, vector,
                              linear_record_bytes((linear_format)format));
        else
#endif
            memcpy(vector, plain, bytes);
        assert_memory_equal(plain, vector, bytes);
        free(plain);
        free(vector);
    }
}

static void rounding_is_equal_in_all_instruction_sets(void **state)
{
    (void)state;
    test_random random = test_random_seed(5);
    for (size_t cols = 1; cols <= 96; cols += 5) {
        float *x = random_activations(64, cols, &random);
        for (size_t t = 0; t < 64; t++)
            compare_rounding(x + t * cols, cols);
        free(x);
    }
    // Halves of a code: ties go to even.
    float ties[32];
    for (int i = 0; i < 32; i++)
        ties[i] = i == 0 ? 127.0f : (float)(i - 16) * 0.5f;
    compare_rounding(ties, 32);
}

static void int8_at(const unsigned char *record, int8_t *codes, float *scale, float *scaled_sum)
{
    memcpy(codes, record, 32);
    memcpy(scale, record + 32, 4);
    memcpy(scaled_sum, record + 36, 4);
}

static void rounding_is_to_the_nearest_even_code(void **state)
{
    (void)state;
    static const float values[] = {127,   0.5f,  1.5f,   2.5f,  -0.5f,
                                   -1.5f, -2.5f, 126.5f, 3.25f, -3.75f};
    static const int codes[] = {127, 0, 2, 2, 0, -2, -2, 126, 3, -4};
    float x[32] = {0};
    memcpy(x, values, sizeof values);
    unsigned char record[LINEAR_RECORD_INT8];
    linear_round_plain(x, 32, LINEAR_FORMAT_INT8, record, sizeof record);
    int8_t got[32];
    float scale, scaled_sum;
    int8_at(record, got, &scale, &scaled_sum);
    int sum = 0;
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(got[i], codes[i]);
        sum += codes[i];
    }
    assert_true(scale == 1.0f);
    assert_true(scaled_sum == (float)sum);
}

static void rounding_in_16_bits_keeps_every_code(void **state)
{
    (void)state;
    unsigned char record[LINEAR_RECORD_INT16];
    for (int code = -LINEAR_LARGEST_INT16; code <= LINEAR_LARGEST_INT16; code++) {
        float x[32] = {[3] = (float)code, [17] = (float)LINEAR_LARGEST_INT16};
        linear_round_plain(x, 32, LINEAR_FORMAT_INT16, record, sizeof record);
        const int high = (int8_t)record[3], low = (int8_t)record[32 + 3];
        // -128 is no low byte: such codes are one higher.
        assert_int_equal(256 * high + low, code + ((code + 128) % 256 == 0));
        assert_true(high >= -127 && low >= -127);
    }
}

static void rounding_has_a_smallest_block(void **state)
{
    (void)state;
    static const float peaks[] = {0x1p-80f, 0x1.fffffep-81f, 0x1p-149f, 0.0f, -0.0f};
    for (size_t i = 0; i < 5; i++) {
        float x[32] = {[7] = -peaks[i], [20] = peaks[i] / 2};
        unsigned char record[LINEAR_RECORD_INT8];
        int8_t codes[32];
        float scale, scaled_sum;
        linear_round_plain(x, 32, LINEAR_FORMAT_INT8, record, sizeof record);
        int8_at(record, codes, &scale, &scaled_sum);
        assert_true(scale == (i == 0 ? 0x1p-80f / 127.0f : 0.0f));
        assert_int_equal(codes[7], i == 0 ? -127 : 0);
        assert_int_equal(codes[20], i == 0 ? 64 : 0);
        assert_true(scaled_sum == scale * (float)-63);
        compare_rounding(x, 32);
    }
}

// --- The definition -----------------------------------------------------------------------------

// Worked by hand: two blocks of Q4_1, scale 2 and 0.5, minimum -1 and 3.
static void a_product_worked_by_hand(void **state)
{
    (void)state;
    unsigned char blocks[2][20] = {{0x00, 0x40, 0x00, 0xbc, 0x07, 0xf0}, {0x00, 0x38, 0x00, 0x42}};
    float x[64] = {0};
    x[0] = 127.0f;  // code 127, weight 2 * 7 - 1
    x[1] = -3.0f;   // code -3, weight 2 * 0 - 1
    x[17] = 2.0f;   // code 2, weight 2 * 15 - 1
    x[33] = 254.0f; // scale 2: code 127, weight 3
    x[34] = 3.0f;   // 1.5 of a scale: code 2, that is 4
    gguf_tensor tensor = {.name = {"x", 1},
                          .type = GGUF_TYPE_Q4_1,
                          .known = true,
                          .dims = 1,
                          .shape = {64, 1, 1, 1},
                          .elements = 64,
                          .data = blocks,
                          .bytes = 40};
    packed p = pack(&tensor, LINEAR_INT8, kvern_cpu_features(), NULL);
    float y;
    multiply(&p.weights, x, 1, kvern_cpu_features(), NULL, &y);
    assert_true(y == 127 * 13 - 3 * -1 + 2 * 29 + 254 * 3 + 4 * 3);
    linear_arena_destroy(p.arena);
}

// The exact product of the dequantized weights, and how far rounding may lead from it.
static void exact_product(const float *w, const float *x, size_t cols, int largest_code,
                          double *exact, double *bound)
{
    double sum = 0, magnitude = 0, input_error = 0;
    for (size_t first = 0; first < cols; first += 32) {
        const size_t end = first + 32 < cols ? first + 32 : cols;
        double peak = 0, weights = 0;
        for (size_t i = first; i < end; i++) {
            sum += (double)w[i] * x[i];
            magnitude += fabs((double)w[i] * x[i]);
            weights += fabs((double)w[i]);
            peak = fmax(peak, fabs((double)x[i]));
        }
        if (largest_code) // half a code (or one: see above), the roundings of the scale and of its
                          // reciprocal
            input_error += weights * peak * (0.5 / largest_code + 4 * 0x1p-24);
    }
    *exact = sum;
    *bound = input_error + magnitude * 0x1p-24;
}

// Sums of the size of the terms that a kernel adds: codes and minimum apart, which may cancel.
static double term_magnitude(const gguf_tensor *tensor, size_t row, const float *x)
{
    const size_t cols = tensor->shape[0];
    double largest = 0, sum = 0;
    float *w = floats(cols);
    const size_t row_bytes = tensor->bytes / tensor->shape[1];
    assert_int_equal(engine_dequantize(tensor->type,
                                       (const unsigned char *)tensor->data + row * row_bytes, cols,
                                       w),
                     KVERN_OK);
    for (size_t first = 0; first < cols; first += 256) {
        const size_t end = first + 256 < cols ? first + 256 : cols;
        // Weights of a block lie on both sides of its minimum by at most their range.
        largest = 0;
        for (size_t i = first; i < end; i++)
            largest = fmax(largest, fabs((double)w[i]));
        for (size_t i = first; i < end; i++)
            sum += 3 * largest * fabs((double)x[i]);
    }
    free(w);
    return sum;
}

static void check_against_float64(const gguf_tensor *tensor, linear_precision precision,
                                  const float *x, size_t tokens)
{
    const size_t rows = tensor->shape[1], cols = tensor->shape[0];
    packed p = pack(tensor, precision, 0, NULL);
    float *y = floats(tokens * rows), *w = floats(cols);
    multiply(&p.weights, x, tokens, 0, NULL, y);
    const int largest = p.weights.format == LINEAR_FORMAT_F32 ? 0
                        : precision == LINEAR_INT8            ? 127
                                                              : 32512;
    for (size_t row = 0; row < rows; row++) {
        linear_row(&p.weights, row, w);
        for (size_t t = 0; t < tokens; t++) {
            double exact, bound;
            exact_product(w, x + t * cols, cols, largest, &exact, &bound);
            const double roundings = largest ? (double)(3 * (cols / 16) + 4) : (double)cols;
            bound += roundings * 0x1p-24 * term_magnitude(tensor, row, x + t * cols) + 1e-20;
            const double difference = fabs(y[t * rows + row] - exact);
            if (difference > bound)
                fail_msg("%s: %g is %g from %g, more than %g", element_type_name(tensor->type),
                         (double)y[t * rows + row], difference, exact, bound);
        }
    }
    free(y);
    free(w);
    linear_arena_destroy(p.arena);
}

static void plain_is_near_the_exact_product(void **state)
{
    (void)state;
    test_random random = test_random_seed(6);
    for (size_t i = 0; i < MATRIX_TYPES; i++) {
        gguf_tensor tensor = matrix_make(matrix_types[i], 19, 768, MATRIX_ORDINARY, &random);
        float *x = random_activations(5, 768, &random);
        check_against_float64(&tensor, LINEAR_INT8, x, 5);
        check_against_float64(&tensor, LINEAR_INT16, x, 5);
        free(x);
        matrix_free(&tensor);
    }
}

// The 16-bit rounding is worth its name: the error of a product is some 200 times smaller.
static void precision_16_is_finer_than_8(void **state)
{
    (void)state;
    enum { COLS = 512 };
    test_random random = test_random_seed(7);
    gguf_tensor tensor = matrix_make(GGUF_TYPE_Q8_0, 64, COLS, MATRIX_ORDINARY, &random);
    float x[COLS], w[COLS], y[64];
    for (size_t i = 0; i < COLS; i++)
        x[i] = test_random_signed(&random);
    double errors[2] = {0};
    for (int precision = 0; precision < 2; precision++) {
        packed p = pack(&tensor, (linear_precision)precision, 0, NULL);
        multiply(&p.weights, x, 1, 0, NULL, y);
        for (size_t row = 0; row < 64; row++) {
            double exact, bound;
            linear_row(&p.weights, row, w);
            exact_product(w, x, COLS, 0, &exact, &bound);
            errors[precision] += fabs(y[row] - exact);
        }
        linear_arena_destroy(p.arena);
    }
    assert_true(errors[LINEAR_INT16] > 0);
    assert_true(errors[LINEAR_INT8] > 100 * errors[LINEAR_INT16]);
    matrix_free(&tensor);
}

static void rows_equal_the_dequantized_tensor(void **state)
{
    (void)state;
    test_random random = test_random_seed(8);
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (int kind = 0; kind < MATRIX_KINDS; kind++) {
            const size_t block = matrix_block(matrix_types[i]), rows = 37;
            const size_t cols = block == 1 ? 77 : 3 * block;
            gguf_tensor tensor =
                matrix_make(matrix_types[i], rows, cols, (matrix_kind)kind, &random);
            packed p = pack(&tensor, LINEAR_INT16, kvern_cpu_features(), NULL);
            float *expected = floats(rows * cols), *got = floats(cols);
            assert_int_equal(engine_dequantize(tensor.type, tensor.data, rows * cols, expected),
                             KVERN_OK);
            for (size_t row = 0; row < rows; row++) {
                linear_row(&p.weights, row, got);
                assert_memory_equal(expected + row * cols, got, cols * sizeof *got);
            }
            free(expected);
            free(got);
            linear_arena_destroy(p.arena);
            matrix_free(&tensor);
        }
}

// Every exponent of an MXFP4 block, and every code: 2^(exponent - 127) times 0, 0.5 ... -6.
static void every_mxfp4_value(void **state)
{
    (void)state;
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    unsigned char data[256][17];
    for (unsigned e = 0; e < 256; e++) {
        data[e][0] = (unsigned char)e;
        for (unsigned i = 0; i < 16; i++)
            data[e][1 + i] = (unsigned char)(i | (15 - i) << 4);
    }
    const gguf_tensor tensor = {.name = {"mxfp4", 5},
                                .type = GGUF_TYPE_MXFP4,
                                .known = true,
                                .dims = 2,
                                .shape = {32, 256, 1, 1},
                                .elements = 32 * 256,
                                .data = data,
                                .bytes = sizeof data};
    packed p = pack(&tensor, LINEAR_INT16, 0, NULL);
    for (unsigned e = 0; e < 256; e++) {
        float row[32];
        linear_row(&p.weights, e, row);
        for (unsigned i = 0; i < 32; i++) {
            const unsigned code = i < 16 ? i : 31 - i;
            const float value = (code & 8 ? -1.0f : 1.0f) * values[code & 7];
            const float expected = ldexpf(value, (int)e - 127);
            if (e == 255)
                assert_true(isnan(row[i]));
            else if (!(row[i] == expected))
                fail_msg("exponent %u, code %u: %a, not %a", e, code, row[i], expected);
        }
    }
    // The scales of the vector kernels: one input of 1 meets one code.
    float x[32] = {0};
    for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
        float y[256], expected[256];
        if (!linear_variant_runs(&linear_variants[v]))
            continue;
        x[3] = 32639.0f;
        packed other = pack(&tensor, LINEAR_INT16, linear_variants[v].features, NULL);
        multiply(&p.weights, x, 1, 0, NULL, expected);
        multiply(&other.weights, x, 1, linear_variants[v].features, NULL, y);
        assert_memory_equal(expected, y, 255 * sizeof *y);
        assert_true(isnan(expected[255]) && isnan(y[255]));
        assert_true(expected[127] == 1.5f * 32639.0f && expected[1] != 0);
        linear_arena_destroy(other.arena);
    }
    linear_arena_destroy(p.arena);
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

// A change of the arithmetic on any machine shows here; docs/linear.md then changes too.
static void results_have_the_recorded_digest(void **state)
{
    (void)state;
    enum { ROWS = 20, TOKENS = 5, COLS = 512 };
    test_random random = test_random_seed(9);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    float y[ROWS * TOKENS];
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (int precision = 0; precision < 2; precision++) {
            gguf_tensor tensor = matrix_make(matrix_types[i], ROWS, COLS, MATRIX_ORDINARY, &random);
            float *x = random_activations(TOKENS, COLS, &random);
            packed p = pack(&tensor, (linear_precision)precision, kvern_cpu_features(), NULL);
            multiply(&p.weights, x, TOKENS, kvern_cpu_features(), NULL, y);
            hash = hash_bytes(hash, y, sizeof y);
            linear_arena_destroy(p.arena);
            free(x);
            matrix_free(&tensor);
            if (matrix_types[i] == GGUF_TYPE_Q3_K && precision == 1 &&
                hash != UINT64_C(0xf0ad55e708021e08))
                fail_msg("the digest is 0x%016llx", (unsigned long long)hash);
        }
    if (hash != UINT64_C(0x57d7f56eb431efec)) // with MXFP4, the last one
        fail_msg("the digest is 0x%016llx", (unsigned long long)hash);
}

// --- Same bits ----------------------------------------------------------------------------------

static void one_token_at_a_time_equals_all_at_once(void **state)
{
    (void)state;
    enum { ROWS = 35, COLS = 256, TOKENS = 37 };
    test_random random = test_random_seed(10);
    float all[TOKENS * ROWS], alone[TOKENS * ROWS];
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (int precision = 0; precision < 2; precision++) {
            gguf_tensor tensor = matrix_make(matrix_types[i], ROWS, COLS, MATRIX_ORDINARY, &random);
            float *x = random_activations(TOKENS, COLS, &random);
            packed p = pack(&tensor, (linear_precision)precision, kvern_cpu_features(), NULL);
            multiply(&p.weights, x, TOKENS, kvern_cpu_features(), NULL, all);
            for (size_t t = 0; t < TOKENS; t++)
                multiply(&p.weights, x + t * COLS, 1, kvern_cpu_features(), NULL, alone + t * ROWS);
            assert_memory_equal(all, alone, sizeof all);
            // Any two chunks.
            for (size_t cut = 5; cut < TOKENS; cut += 11) {
                multiply(&p.weights, x, cut, kvern_cpu_features(), NULL, alone);
                multiply(&p.weights, x + cut * COLS, TOKENS - cut, kvern_cpu_features(), NULL,
                         alone + cut * ROWS);
                assert_memory_equal(all, alone, sizeof all);
            }
            linear_arena_destroy(p.arena);
            free(x);
            matrix_free(&tensor);
        }
}

static void add_adds_to_what_is_there(void **state)
{
    (void)state;
    enum { ROWS = 27, COLS = 64, TOKENS = 18 };
    test_random random = test_random_seed(13);
    gguf_tensor tensor = matrix_make(GGUF_TYPE_Q5_0, ROWS, COLS, MATRIX_ORDINARY, &random);
    float *x = random_activations(TOKENS, COLS, &random);
    float product[TOKENS * ROWS], before[TOKENS * ROWS], y[TOKENS * ROWS];
    for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
        if (!linear_variant_runs(&linear_variants[v]))
            continue;
        packed p = pack(&tensor, LINEAR_INT16, linear_variants[v].features, NULL);
        multiply(&p.weights, x, TOKENS, linear_variants[v].features, NULL, product);
        for (size_t i = 0; i < TOKENS * ROWS; i++)
            y[i] = before[i] = test_random_signed(&random);
        prepared in = prepare(x, COLS, TOKENS, LINEAR_FORMAT_BIT(LINEAR_FORMAT_INT16),
                              linear_variants[v].features);
        const linear_job job = {&p.weights, &in.input, y, ROWS, true, NULL};
        assert_int_equal(linear_apply(&job, 1, NULL), KVERN_OK);
        for (size_t i = 0; i < TOKENS * ROWS; i++)
            assert_true(y[i] == before[i] + product[i]);
        float bias[ROWS];
        for (size_t i = 0; i < ROWS; i++)
            bias[i] = test_random_signed(&random);
        const linear_job biased[] = {
            {&p.weights, &in.input, y, ROWS, true, bias},
            {&p.weights, &in.input, before, ROWS, false, bias},
        };
        float sum[TOKENS * ROWS];
        for (size_t i = 0; i < TOKENS * ROWS; i++)
            sum[i] = y[i] + product[i];
        assert_int_equal(linear_apply(biased, 2, NULL), KVERN_OK);
        for (size_t i = 0; i < TOKENS * ROWS; i++) {
            assert_true(y[i] == sum[i] + bias[i % ROWS]);
            assert_true(before[i] == product[i] + bias[i % ROWS]);
        }
        free(in.memory);
        linear_arena_destroy(p.arena);
    }
    free(x);
    matrix_free(&tensor);
}

// --- Values that are not numbers ----------------------------------------------------------------

static void a_value_that_is_not_finite_stays_in_its_token(void **state)
{
    (void)state;
    enum { ROWS = 18, COLS = 256, TOKENS = 3 };
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    test_random random = test_random_seed(14);
    float clean[TOKENS * ROWS], y[TOKENS * ROWS];
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
            if (!linear_variant_runs(&linear_variants[v]))
                continue;
            gguf_tensor tensor = matrix_make(matrix_types[i], ROWS, COLS, MATRIX_ORDINARY, &random);
            float *x = random_activations(TOKENS, COLS, &random);
            packed p = pack(&tensor, LINEAR_INT8, linear_variants[v].features, NULL);
            multiply(&p.weights, x, TOKENS, linear_variants[v].features, NULL, clean);
            x[COLS + 40] = bad[i % 3];
            x[COLS + 41] = -bad[i % 3];
            multiply(&p.weights, x, TOKENS, linear_variants[v].features, NULL, y);
            for (size_t row = 0; row < ROWS; row++) {
                assert_true(!isfinite(y[ROWS + row]));
                assert_true(matrix_block(matrix_types[i]) == 1 || isnan(y[ROWS + row]));
            }
            assert_memory_equal(clean, y, ROWS * sizeof *y);
            assert_memory_equal(clean + 2 * ROWS, y + 2 * ROWS, ROWS * sizeof *y);
            linear_arena_destroy(p.arena);
            free(x);
            matrix_free(&tensor);
        }
}

// --- Bounds -------------------------------------------------------------------------------------

typedef guarded guarded_make(size_t bytes);

static void multiply_guarded(const gguf_tensor *tensor, const linear_variant *variant,
                             size_t tokens, linear_precision precision, guarded_make *make)
{
    const size_t rows = tensor->shape[1], cols = tensor->shape[0];
    guarded source = make(tensor->bytes);
    memcpy(source.data, tensor->data, tensor->bytes);
    gguf_tensor copy = *tensor;
    copy.data = source.data;
    packed p = pack(&copy, precision, variant->features, NULL);
    const size_t tile_bytes = (rows + 31) / 32 * p.weights.tile_bytes;
    guarded tiles = make(tile_bytes);
    memcpy(tiles.data, p.weights.tiles, tile_bytes);
    p.weights.tiles = tiles.data;

    const uint32_t formats = LINEAR_FORMAT_BIT(p.weights.format);
    size_t bytes;
    assert_int_equal(linear_input_bytes(cols, tokens, formats, &bytes), KVERN_OK);
    guarded memory = make(bytes), x = make(cols * sizeof(float));
    guarded y = make(tokens * rows * sizeof(float));
    linear_input input;
    linear_input_init(&input, memory.data, cols, tokens, formats, variant->features);
    for (size_t t = 0; t < tokens; t++)
        linear_input_row(&input, t, (const float *)(const void *)x.data);
    const linear_job job = {&p.weights, &input, (float *)(void *)y.data, rows, false, NULL};
    assert_int_equal(linear_apply(&job, 1, NULL), KVERN_OK);

    guarded_free(&source);
    guarded_free(&tiles);
    guarded_free(&memory);
    guarded_free(&x);
    guarded_free(&y);
    linear_arena_destroy(p.arena);
}

static void nothing_outside_the_buffers_is_touched(void **state)
{
    (void)state;
    static const size_t tokens[] = {1, 3, 16, 21};
    test_random random = test_random_seed(15);
    for (size_t i = 0; i < MATRIX_TYPES; i++)
        for (size_t v = 0; v < LINEAR_VARIANTS; v++) {
            if (!linear_variant_runs(&linear_variants[v]))
                continue;
            const size_t block = matrix_block(matrix_types[i]);
            gguf_tensor tensor = matrix_make(matrix_types[i], 13 + i, block == 1 ? 45 : block,
                                             MATRIX_ORDINARY, &random);
            for (size_t t = 0; t < 4; t++)
                for (int precision = 0; precision < 2; precision++) {
                    multiply_guarded(&tensor, &linear_variants[v], tokens[t],
                                     (linear_precision)precision, guarded_at_end);
                    multiply_guarded(&tensor, &linear_variants[v], tokens[t],
                                     (linear_precision)precision, guarded_at_start);
                }
            matrix_free(&tensor);
        }
}

static void packed_weights_take_the_bytes_of_the_file(void **state)
{
    (void)state;
    test_random random = test_random_seed(16);
    for (size_t i = 0; i < MATRIX_TYPES; i++) {
        gguf_tensor tensor = matrix_make(matrix_types[i], 64, 256, MATRIX_ORDINARY, &random);
        size_t bytes;
        linear_source source;
        assert_int_equal(linear_source_of(&tensor, 0, &source, NULL), KVERN_OK);
        assert_int_equal(linear_packed_bytes(&source, &bytes, NULL), KVERN_OK);
        assert_int_equal(bytes, tensor.bytes);
        matrix_free(&tensor);
    }
}

// Packing gives pages of the file back band by band; the weights must not depend on it. The tensor
// is larger than a band.
static void a_mapped_file_packs_like_memory(void **state)
{
    (void)state;
    enum { ROWS = 9001, COLS = 1024 };
    test_random random = test_random_seed(19);
    gguf_tensor tensor = matrix_make(GGUF_TYPE_Q8_0, ROWS, COLS, MATRIX_ORDINARY, &random);
    char path[] = "/tmp/kvern-linear-XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_tensor(builder, "before", GGUF_TYPE_F32, 1, (uint64_t[]){3}, "123456789012", 12);
    gguf_builder_tensor(builder, "matrix", tensor.type, 2, tensor.shape, tensor.data, tensor.bytes);
    gguf_builder_save(builder, path);
    gguf_builder_destroy(builder);

    gguf_file *file;
    assert_int_equal(gguf_open(path, &file, NULL), KVERN_OK);
    const gguf_tensor *mapped = gguf_find_tensor(file, "matrix");
    packed expected = pack(&tensor, LINEAR_INT16, 0, NULL);
    size_t bytes;
    linear_arena *arena;
    linear weights;
    const struct weights weights_file = gguf_weights(file);
    linear_source source;
    assert_int_equal(linear_source_of(mapped, 0, &source, NULL), KVERN_OK);
    source.file = &weights_file;
    assert_int_equal(linear_packed_bytes(&source, &bytes, NULL), KVERN_OK);
    assert_int_equal(linear_arena_create(bytes, &arena, NULL), KVERN_OK);
    const kvern_executor executor = executor_threads(2);
    assert_int_equal(linear_create(arena, &source, LINEAR_INT16, 0, &executor, &weights, NULL),
                     KVERN_OK);
    gguf_close(file);
    unlink(path);
    assert_memory_equal(expected.weights.tiles, weights.tiles, bytes);
    linear_arena_destroy(arena);
    linear_arena_destroy(expected.arena);
    matrix_free(&tensor);
}

// Rows of heads whose halves lie behind each other, taken in turn.
static void interleaved_rows_are_taken_in_turn(void **state)
{
    (void)state;
    enum { HEADS = 3, DIM = 22, ROWS = HEADS * DIM, COLS = 64 };
    static const uint32_t types[] = {GGUF_TYPE_F32, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0};
    test_random random = test_random_seed(20);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_tensor tensor = matrix_make(types[i], ROWS, COLS, MATRIX_ORDINARY, &random);
        gguf_tensor turned = matrix_make(types[i], ROWS, COLS, MATRIX_ORDINARY, &random);
        const size_t row = tensor.bytes / ROWS;
        for (size_t r = 0; r < ROWS; r++) {
            const size_t head = r / DIM, pair = r % DIM / 2, half = r % 2;
            const size_t from = head * DIM + half * (DIM / 2) + pair;
            memcpy((unsigned char *)(uintptr_t)turned.data + r * row,
                   (const unsigned char *)tensor.data + from * row, row);
        }
        packed expected = pack(&turned, LINEAR_INT16, 0, NULL);
        linear_source source;
        linear_arena *arena;
        linear weights;
        size_t bytes;
        assert_int_equal(linear_source_of(&tensor, 0, &source, NULL), KVERN_OK);
        source.interleave = DIM;
        assert_int_equal(linear_packed_bytes(&source, &bytes, NULL), KVERN_OK);
        assert_int_equal(linear_arena_create(bytes, &arena, NULL), KVERN_OK);
        assert_int_equal(linear_create(arena, &source, LINEAR_INT16, 0, NULL, &weights, NULL),
                         KVERN_OK);
        assert_memory_equal(weights.tiles, expected.weights.tiles, bytes);
        source.interleave = 20; // no divisor of the rows
        assert_int_equal(linear_packed_bytes(&source, &bytes, NULL), KVERN_ERR_FORMAT);
        source.interleave = 11; // no pairs
        assert_int_equal(linear_packed_bytes(&source, &bytes, NULL), KVERN_ERR_FORMAT);
        linear_arena_destroy(arena);
        linear_arena_destroy(expected.arena);
        matrix_free(&turned);
        matrix_free(&tensor);
    }
}

// Three dimensions are a stack of matrices.
static void a_matrix_of_a_stack_is_one_of_its_own(void **state)
{
    (void)state;
    enum { ROWS = 8, COLS = 64, COUNT = 3 };
    test_random random = test_random_seed(21);
    gguf_tensor all = matrix_make(GGUF_TYPE_Q4_0, COUNT * ROWS, COLS, MATRIX_ORDINARY, &random);
    gguf_tensor stack = all;
    stack.dims = 3;
    stack.shape[1] = ROWS;
    stack.shape[2] = COUNT;
    linear_source source;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(linear_source_of(&stack, i, &source, NULL), KVERN_OK);
        assert_int_equal(source.rows, ROWS);
        assert_int_equal(source.cols, COLS);
        assert_int_equal(source.bytes, all.bytes / COUNT);
        assert_ptr_equal(source.data, (const unsigned char *)all.data + i * source.bytes);
    }
    assert_int_equal(linear_source_of(&stack, COUNT, &source, NULL), KVERN_ERR_RANGE);
    matrix_free(&all);
}

// --- Failures -----------------------------------------------------------------------------------

// The two steps from a tensor to the bytes that it takes.
static kvern_status measure(const gguf_tensor *tensor, size_t *bytes, engine_error *error)
{
    linear_source source;
    kvern_status status = linear_source_of(tensor, 0, &source, error);
    return status == KVERN_OK ? linear_packed_bytes(&source, bytes, error) : status;
}

static void bad_tensors_are_refused(void **state)
{
    (void)state;
    unsigned char data[64] = {0};
    const gguf_tensor good = {.name = {"blk.0.x", 7},
                              .type = GGUF_TYPE_Q8_0,
                              .known = true,
                              .dims = 2,
                              .shape = {32, 1, 1, 1},
                              .elements = 32,
                              .data = data,
                              .bytes = 34};
    engine_error error;
    size_t bytes = 77;
    gguf_tensor bad = good;
    bad.known = false;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "blk.0.x"));
    bad = good;
    bad.type = 99;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_UNSUPPORTED);
    bad = good;
    bad.dims = 4;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_UNSUPPORTED);
    bad = good;
    bad.shape[0] = 31;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_FORMAT);
    bad = good;
    bad.shape[1] = 0;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_FORMAT);
    bad = good;
    bad.shape[0] = 0;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_FORMAT);
    bad = good;
    bad.bytes = 33;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_FORMAT);
    bad = good;
    bad.shape[0] = UINT64_MAX - 31;
    bad.shape[1] = UINT64_MAX;
    assert_int_equal(measure(&bad, &bytes, &error), KVERN_ERR_OVERFLOW);
    assert_int_equal(bytes, 77);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    engine_error error;
    linear_arena *arena = (linear_arena *)&error;
    assert_int_equal(linear_arena_create(SIZE_MAX / 2, &arena, &error), KVERN_ERR_MEMORY);
    assert_null(arena);
    assert_int_equal(linear_arena_create(SIZE_MAX - 5, &arena, &error), KVERN_ERR_MEMORY);
    assert_null(arena);

    test_random random = test_random_seed(17);
    gguf_tensor tensor = matrix_make(GGUF_TYPE_Q8_0, 32, 64, MATRIX_ORDINARY, &random);
    linear first = {0}, second = {0};
    assert_int_equal(linear_arena_create(2 * tensor.bytes - 1, &arena, &error), KVERN_OK);
    linear_source source;
    assert_int_equal(linear_source_of(&tensor, 0, &source, &error), KVERN_OK);
    assert_int_equal(linear_create(arena, &source, LINEAR_INT8, 0, NULL, &first, &error), KVERN_OK);
    assert_int_equal(linear_create(arena, &source, LINEAR_INT8, 0, NULL, &second, &error),
                     KVERN_ERR_MEMORY);
    assert_null(second.tiles);
    linear_arena_destroy(arena);
    matrix_free(&tensor);

    assert_int_equal(linear_arena_create(0, &arena, &error), KVERN_OK);
    linear_arena_destroy(arena);
    linear_arena_destroy(NULL);

    size_t bytes = 77;
    assert_int_equal(linear_input_bytes(SIZE_MAX, 2, 7, &bytes), KVERN_ERR_OVERFLOW);
    assert_int_equal(linear_input_bytes(1024, SIZE_MAX / 1000, 7, &bytes), KVERN_ERR_OVERFLOW);
    assert_int_equal(bytes, 77);
}

static void jobs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    test_random random = test_random_seed(18);
    gguf_tensor tensor = matrix_make(GGUF_TYPE_Q4_0, 16, 64, MATRIX_ORDINARY, &random);
    packed p = pack(&tensor, LINEAR_INT8, 0, NULL);
    float x[2 * 96] = {0}, y[32];
    for (size_t i = 0; i < 32; i++)
        y[i] = 5.0f;
    prepared good = prepare(x, 64, 2, LINEAR_FORMAT_BIT(LINEAR_FORMAT_INT8), 0);
    prepared other = prepare(x, 64, 2, LINEAR_FORMAT_BIT(LINEAR_FORMAT_INT16), 0);
    prepared wide = prepare(x, 96, 2, LINEAR_FORMAT_BIT(LINEAR_FORMAT_INT8), 0);
    const linear_job bad[] = {
        {&p.weights, &other.input, y, 16, false, NULL},
        {&p.weights, &wide.input, y, 16, false, NULL},
        {&p.weights, &good.input, y, 15, false, NULL},
    };
    for (size_t i = 0; i < 3; i++) {
        const linear_job jobs[] = {{&p.weights, &good.input, y, 16, false, NULL}, bad[i]};
        assert_int_equal(linear_apply(jobs, 2, NULL), KVERN_ERR_ARGUMENT);
    }
    for (size_t i = 0; i < 32; i++)
        assert_true(y[i] == 5.0f);
    free(good.memory);
    free(other.memory);
    free(wide.memory);
    linear_arena_destroy(p.arena);
    matrix_free(&tensor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_kernels_equal_plain_for_all_shapes),
        cmocka_unit_test(vector_kernels_equal_plain_for_all_token_counts),
        cmocka_unit_test(vector_kernels_equal_plain_for_extreme_weights),
        cmocka_unit_test(vector_kernels_equal_plain_for_extreme_activations),
        cmocka_unit_test(rounding_is_equal_in_all_instruction_sets),
        cmocka_unit_test(rounding_is_to_the_nearest_even_code),
        cmocka_unit_test(rounding_in_16_bits_keeps_every_code),
        cmocka_unit_test(rounding_has_a_smallest_block),
        cmocka_unit_test(a_product_worked_by_hand),
        cmocka_unit_test(plain_is_near_the_exact_product),
        cmocka_unit_test(precision_16_is_finer_than_8),
        cmocka_unit_test(rows_equal_the_dequantized_tensor),
        cmocka_unit_test(every_mxfp4_value),
        cmocka_unit_test(results_have_the_recorded_digest),
        cmocka_unit_test(one_token_at_a_time_equals_all_at_once),
        cmocka_unit_test(add_adds_to_what_is_there),
        cmocka_unit_test(a_value_that_is_not_finite_stays_in_its_token),
        cmocka_unit_test(nothing_outside_the_buffers_is_touched),
        cmocka_unit_test(packed_weights_take_the_bytes_of_the_file),
        cmocka_unit_test(a_mapped_file_packs_like_memory),
        cmocka_unit_test(interleaved_rows_are_taken_in_turn),
        cmocka_unit_test(a_matrix_of_a_stack_is_one_of_its_own),
        cmocka_unit_test(bad_tensors_are_refused),
        cmocka_unit_test(missing_memory_is_reported),
        cmocka_unit_test(jobs_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
