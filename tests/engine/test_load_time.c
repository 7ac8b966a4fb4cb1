// SPDX-License-Identifier: MIT
// Whatever a model file holds, reading it is linear in its size, in time and in memory. Times are
// compared between a file and one eight times as large: eight times as long is linear, sixty-four
// times quadratic.

#include "tests/support/engine_fixture.h"
#include "tests/support/hf_model.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define SMALL 3000
#define FACTOR 8
#define MOST_RATIO 40
#define RUNS 3

// A file of a kind with n things in it, in `data`, and what its facts must be; free().
typedef void *(*make_file)(size_t n, size_t *bytes);

static void *finish(gguf_builder *builder, size_t *bytes)
{
    void *data = gguf_builder_finish(builder, bytes);
    gguf_builder_destroy(builder);
    return data;
}

static gguf_builder *begin(void)
{
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(&model, builder);
    return builder;
}

// Keys that differ at their end only.
static void *many_keys(size_t n, size_t *bytes)
{
    gguf_builder *builder = begin();
    for (size_t i = 0; i < n; i++) {
        char key[160];
        snprintf(key, sizeof key, "general.%0100d.%zu", 0, i);
        gguf_builder_u32(builder, key, 1);
    }
    return finish(builder, bytes);
}

// Tensors that nobody knows, behind those of a model.
static void *many_tensors(size_t n, size_t *bytes)
{
    const float zero = 0;
    gguf_builder *builder = begin();
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.0.attn_q.weight.%zu", i);
        gguf_builder_tensor(builder, name, GGUF_TYPE_F32, 1, (uint64_t[]){1}, &zero, sizeof zero);
    }
    return finish(builder, bytes);
}

// Lists that judge every element.
static void *long_lists(size_t n, size_t *bytes)
{
    gguf_builder *builder = begin();
    int32_t *zeros = calloc(20 * n, sizeof *zeros);
    const char **texts = calloc(20 * n, sizeof *texts);
    assert_non_null(zeros);
    assert_non_null(texts);
    for (size_t i = 0; i < 20 * n; i++) {
        texts[i] = "x";
    }
    gguf_builder_array(builder, "llama.rope.dimension_sections", GGUF_INT32, zeros, 20 * n);
    gguf_builder_strings(builder, "general.tags", texts, 20 * n);
    free(zeros);
    free(texts);
    return finish(builder, bytes);
}

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

// The least time of a few runs.
static double time_gguf(make_file make, size_t n)
{
    size_t bytes;
    void *data = make(n, &bytes);
    double least = 1e9;
    for (int run = 0; run < RUNS; run++) {
        static model_facts facts;
        const double start = seconds();
        model_source *source = engine_fixture_source(data, bytes);
        kvern_status status = model_read_facts(source, &facts, NULL);
        model_source_close(source);
        const double took = seconds() - start;
        assert_true(status == KVERN_OK || status == KVERN_ERR_UNSUPPORTED);
        least = took < least ? took : least;
    }
    free(data);
    return least;
}

static void check_growth(const char *name, double small, double large)
{
    small = small > 0.0005 ? small : 0.0005; // below, the clock decides
    printf("%s: %.4f s, %d times as much in %.4f s\n", name, small, FACTOR, large);
    assert_true(large < MOST_RATIO * small);
}

static void gguf_files_are_read_in_linear_time(void **state)
{
    (void)state;
    const struct {
        const char *name;
        make_file make;
    } kinds[] = {{"keys", many_keys}, {"tensors", many_tensors}, {"lists", long_lists}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_growth(kinds[i].name, time_gguf(kinds[i].make, SMALL),
                     time_gguf(kinds[i].make, FACTOR * SMALL));
    }
}

static double time_directory(size_t n)
{
    safetensors_builder *builder = safetensors_builder_create();
    size_t config_bytes = 64 + 32 * n, at = 0, bytes;
    char *config = malloc(config_bytes);
    assert_non_null(config);
    at += (size_t)snprintf(config, config_bytes, "{\"model_type\": \"llama\"");
    for (size_t i = 0; i < n; i++) {
        char name[64];
        const float zero = 0;
        snprintf(name, sizeof name, "model.layers.0.%zu", i);
        safetensors_builder_add(builder, name, "F32", 1, (uint64_t[]){1}, &zero, sizeof zero);
        at += (size_t)snprintf(config + at, config_bytes - at, ", \"id2label.%zu\": 1", i);
    }
    at += (size_t)snprintf(config + at, config_bytes - at, "}");
    void *data = safetensors_builder_finish(builder, &bytes);
    safetensors_builder_destroy(builder);
    double least = 1e9;
    for (int run = 0; run < RUNS; run++) {
        static model_facts facts;
        model_source *source;
        const double start = seconds();
        assert_int_equal(model_source_of_safetensors(config, at, data, bytes, &source, NULL),
                         KVERN_OK);
        assert_int_equal(model_read_facts(source, &facts, NULL), KVERN_ERR_FORMAT);
        model_source_close(source);
        const double took = seconds() - start;
        least = took < least ? took : least;
    }
    free(config);
    free(data);
    return least;
}

static void directories_are_read_in_linear_time(void **state)
{
    (void)state;
    check_growth("directory", time_directory(SMALL), time_directory(FACTOR * SMALL));
}

// Matrices are packed in tiles of 32 rows. Of a model whose matrices have one or two, that would
// take many times its file.
static void matrices_of_few_rows_are_refused(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_BF16);
    model.layers = 1;
    model.width = 1 << 19;
    model.heads = 1;
    model.kv_heads = 1;
    model.head_dim = 2;
    model.feed_forward = 1;
    model.vocabulary = 1;
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    static model_facts facts;
    engine_error error;
    model_source *source = engine_fixture_source(data, bytes);
    assert_int_equal(model_read_facts(source, &facts, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "have so few rows"));
    model_source_close(source);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_files_are_read_in_linear_time),
        cmocka_unit_test(directories_are_read_in_linear_time),
        cmocka_unit_test(matrices_of_few_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
