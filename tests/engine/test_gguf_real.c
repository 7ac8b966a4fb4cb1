// SPDX-License-Identifier: MIT
// The GGUF reader on a real model: KVERN_TEST_MODEL names the file, and without it there is nothing
// to test.

#include "engine/weights/dequantize.h"
#include "tests/support/gguf_walk.h"
#include "tests/support/real_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static gguf_file *open_model(void)
{
    gguf_file *file;
    engine_error error = {0};
    if (gguf_open(real_model_path("KVERN_TEST_MODEL"), &file, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return file;
}

static size_t token_count(const gguf_file *file)
{
    return gguf_array_count(gguf_find(file, "tokenizer.ggml.tokens"));
}

static void every_accessor_works(void **state)
{
    (void)state;
    gguf_file *file = open_model();
    gguf_walk(file);
    gguf_close(file);
}

static void it_is_a_language_model(void **state)
{
    (void)state;
    gguf_file *file = open_model();
    gguf_string architecture, token;
    uint64_t layers;
    char key[200];
    assert_true(gguf_get_string(gguf_find(file, "general.architecture"), &architecture));
    snprintf(key, sizeof key, "%.*s.block_count", (int)architecture.size, architecture.data);
    assert_true(gguf_get_u64(gguf_find(file, key), &layers) && layers > 0);
    assert_true(token_count(file) > 0);
    assert_true(
        gguf_array_string(gguf_find(file, "tokenizer.ggml.tokens"), token_count(file) - 1, &token));
    const gguf_tensor *embedding = gguf_find_tensor(file, "token_embd.weight");
    assert_non_null(embedding);
    assert_int_equal(embedding->shape[1], token_count(file));
    gguf_close(file);
}

static void check_finite(const gguf_tensor *tensor)
{
    size_t row = tensor->shape[0];
    size_t rows = tensor->elements / row;
    float *values = malloc(row * sizeof *values);
    assert_non_null(values);
    for (size_t r = 0; r < rows; r++) {
        const char *blocks = (const char *)tensor->data + r * (tensor->bytes / rows);
        assert_int_equal(engine_dequantize(tensor->type, blocks, row, values), KVERN_OK);
        for (size_t i = 0; i < row; i++) {
            if (!isfinite(values[i])) {
                fail_msg("%.*s, row %zu, value %zu: %f", (int)tensor->name.size, tensor->name.data,
                         r, i, (double)values[i]);
            }
        }
    }
    free(values);
}

static void every_weight_is_finite(void **state)
{
    (void)state;
    gguf_file *file = open_model();
    assert_true(gguf_tensor_count(file) > 0);
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        assert_true(tensor->known);
        check_finite(tensor);
        gguf_drop_pages(file, tensor->data, tensor->bytes);
    }
    gguf_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_accessor_works),
        cmocka_unit_test(it_is_a_language_model),
        cmocka_unit_test(every_weight_is_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
