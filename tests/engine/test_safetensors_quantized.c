// SPDX-License-Identifier: MIT
// Directories whose matrices MLX quantized: the same logits as with the same numbers in floats, and
// what contradicts config.json is refused.

#include "tests/support/engine_fixture.h"
#include "tests/support/hf_model.h"
#include "tests/support/tiny_llama.h"

#include <kvern/math.h>

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 12
#define VOCABULARY 100

// ---- A tiny model, quantized. ----

typedef struct quantizing {
    unsigned bits, group;
    const char *dtype;     // of scales and biases: "F32", "F16", "BF16"
    const char *exception; // a part of the names of matrices with other bits, or NULL
    unsigned other_bits;   // 0: not quantized
    const char *left_out;  // a tensor that is not written, or NULL
    const char *kept;      // a config.json's member in place of "quantization", or NULL
} quantizing;

static unsigned bits_of(const quantizing *how, const char *name)
{
    return how->exception && strstr(name, how->exception) ? how->other_bits : how->bits;
}

// Scales and biases that every dtype has exactly.
static void quantize_group(const float *x, const quantizing *how, unsigned bits, unsigned *codes,
                           float *scale, float *bias)
{
    float low = x[0], high = x[0];
    for (size_t i = 0; i < how->group; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const float most = (float)((1u << bits) - 1);
    *scale = ldexpf(1, (int)ceilf(log2f((high - low) / most + 1e-6f)));
    *bias = *scale * floorf(low / *scale);
    *bias = *bias < -126 * *scale ? -126 * *scale : *bias;
    for (size_t i = 0; i < how->group; i++) {
        const float code = roundf((x[i] - *bias) / *scale);
        codes[i] = (unsigned)(code < 0 ? 0 : code > most ? most : code);
    }
}

static size_t put_number(const char *dtype, unsigned char *to, size_t index, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (strcmp(dtype, "F32") == 0) {
        memcpy(to + 4 * index, &bits, 4);
        return 4;
    }
    uint16_t half = (uint16_t)(bits >> 16);
    if (strcmp(dtype, "F16") == 0) {
        kvern_f32_to_f16_array(0, 1, &value, &half);
    }
    memcpy(to + 2 * index, &half, 2);
    return 2;
}

// Adds a matrix as three tensors to `codes`, and its elements in floats to `plain`.
static void add_quantized(safetensors_builder *codes, safetensors_builder *plain,
                          const quantizing *how, const char *name, size_t rows, size_t cols,
                          const unsigned char *data)
{
    const unsigned bits = bits_of(how, name);
    const size_t groups = rows * cols / how->group, bytes = rows * cols / 8 * bits;
    unsigned char *words = calloc(bytes, 1), *scales = calloc(groups, 4),
                  *biases = calloc(groups, 4);
    float *values = calloc(rows * cols, sizeof *values);
    unsigned group[128];
    size_t size = 0;
    assert_true(words && scales && biases && values);
    memcpy(values, data, rows * cols * sizeof *values); // replaced group by group
    for (size_t g = 0; g < groups; g++) {
        float scale, bias;
        quantize_group(values + g * how->group, how, bits, group, &scale, &bias);
        put_number(how->dtype, scales, g, scale);
        size = put_number(how->dtype, biases, g, bias);
        for (size_t i = 0; i < how->group; i++) {
            const size_t element = g * how->group + i;
            values[element] = scale * (float)group[i] + bias;
            for (unsigned b = 0; b < bits; b++) {
                const size_t bit = element * bits + b;
                words[bit / 8] |= (unsigned char)((group[i] >> b & 1) << (bit % 8));
            }
        }
    }
    char part[192];
    const uint64_t shape[] = {rows, cols * bits / 32}, group_shape[] = {rows, cols / how->group};
    const uint64_t whole[] = {rows, cols};
    const struct {
        const char *end, *dtype;
        const uint64_t *shape;
        const void *data;
        size_t bytes;
    } parts[] = {{"weight", "U32", shape, words, bytes},
                 {"scales", how->dtype, group_shape, scales, groups * size},
                 {"biases", how->dtype, group_shape, biases, groups * size}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(part, sizeof part, "%.*s%s", (int)(strlen(name) - strlen("weight")), name,
                 parts[i].end);
        if (!how->left_out || strcmp(part, how->left_out) != 0) {
            safetensors_builder_add(codes, part, parts[i].dtype, 2, parts[i].shape, parts[i].data,
                                    parts[i].bytes);
        }
    }
    safetensors_builder_add(plain, name, "F32", 2, whole, values, rows * cols * sizeof *values);
    free(words);
    free(scales);
    free(biases);
    free(values);
}

static void add_copy(safetensors_builder *builder, const char *name, const json_t *tensor,
                     const unsigned char *data)
{
    uint64_t shape[4];
    const json_t *json = json_object_get(tensor, "shape");
    const json_t *offsets = json_object_get(tensor, "data_offsets");
    const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    for (size_t i = 0; i < json_array_size(json); i++) {
        shape[i] = (uint64_t)json_integer_value(json_array_get(json, i));
    }
    safetensors_builder_add(builder, name, json_string_value(json_object_get(tensor, "dtype")),
                            json_array_size(json), shape, data + begin,
                            (size_t)json_integer_value(json_array_get(offsets, 1)) - begin);
}

typedef struct twins {
    char *config, *plain_config;
    void *codes, *plain;
    size_t code_bytes, plain_bytes;
} twins;

static char *quantized_config(const char *config, const quantizing *how)
{
    char *out = malloc(strlen(config) + 512);
    assert_non_null(out);
    const int size = sprintf(out, "%.*s", (int)strlen(config) - 1, config);
    if (how->kept) {
        sprintf(out + size, ", %s}", how->kept);
        return out;
    }
    char other[256] = "";
    if (how->exception && how->other_bits) {
        snprintf(other, sizeof other,
                 ", \"model.layers.0.%s\": {\"bits\": %u, \"group_size\": %u}, "
                 "\"model.layers.1.%s\": {\"bits\": %u, \"group_size\": %u}",
                 how->exception, how->other_bits, how->group, how->exception, how->other_bits,
                 how->group);
    } else if (how->exception) {
        snprintf(other, sizeof other,
                 ", \"model.layers.0.%s\": false, \"model.layers.1.%s\": false", how->exception,
                 how->exception);
    }
    sprintf(out + size,
            ", \"quantization\": {\"group_size\": %u, \"bits\": %u%s}, \"quantization_config\": "
            "{\"group_size\": %u, \"bits\": %u%s}}",
            how->group, how->bits, other, how->group, how->bits, other);
    return out;
}

// A tiny llama of width 128, quantized, and the same numbers in floats.
static twins make_twins(const quantizing *how)
{
    size_t bytes;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_F32);
    llama.width = 128;
    llama.feed_forward = 256;
    llama.heads = 4;
    llama.kv_heads = 2;
    llama.head_dim = 32;
    llama.separate_output = true;
    void *data = tiny_llama_build(&llama, &bytes);
    model_source *source = engine_fixture_source(data, bytes);
    model_facts facts;
    assert_int_equal(model_read_facts(source, &facts, NULL), KVERN_OK);
    hf_model hf = hf_model_of(model_source_gguf(source), &facts);
    model_source_close(source);
    free(data);
    const unsigned char *file = hf.tensors;
    const size_t length = file[0] | (size_t)file[1] << 8;
    json_t *header = json_loadb((const char *)file + 8, length, 0, NULL), *tensor;
    safetensors_builder *codes = safetensors_builder_create();
    safetensors_builder *plain = safetensors_builder_create();
    const char *name;
    json_object_foreach(header, name, tensor)
    {
        const json_t *shape = json_object_get(tensor, "shape");
        const json_t *at = json_array_get(json_object_get(tensor, "data_offsets"), 0);
        if (strcmp(name, "__metadata__") == 0) {
            continue;
        }
        if (json_array_size(shape) == 2 && bits_of(how, name) > 0) {
            add_quantized(codes, plain, how, name,
                          (size_t)json_integer_value(json_array_get(shape, 0)),
                          (size_t)json_integer_value(json_array_get(shape, 1)),
                          file + 8 + length + json_integer_value(at));
        } else {
            add_copy(codes, name, tensor, file + 8 + length);
            add_copy(plain, name, tensor, file + 8 + length);
        }
    }
    twins t = {.config = quantized_config(hf.config, how), .plain_config = strdup(hf.config)};
    t.codes = safetensors_builder_finish(codes, &t.code_bytes);
    t.plain = safetensors_builder_finish(plain, &t.plain_bytes);
    safetensors_builder_destroy(codes);
    safetensors_builder_destroy(plain);
    json_decref(header);
    hf_model_free(&hf);
    return t;
}

static void free_twins(twins *t)
{
    free(t->config);
    free(t->plain_config);
    free(t->codes);
    free(t->plain);
}

static void run(const char *config, const void *tensors, size_t bytes, float *logits)
{
    kvern_context *context;
    kvern_composition *plan;
    model_workspace *workspace;
    kvern_state *state;
    model_source *source;
    model *model;
    engine_error error = {KVERN_OK, ""};
    if (model_source_of_safetensors(config, strlen(config), tensors, bytes, &source, &error) !=
        KVERN_OK) {
        fail_msg("%s", error.text);
    }
    model_source_keep_precise(source);
    assert_int_equal(kvern_context_create(NULL, &context), KVERN_OK);
    if (model_load(source, NULL, context, NULL, NULL, &model, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    int32_t tokens[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(i * 37 % VOCABULARY);
    }
    assert_int_equal(model_get_facts(model)->vocabulary, VOCABULARY);
    assert_int_equal(model_composition(model_get_facts(model), context, NULL, &plan, &error),
                     KVERN_OK);
    assert_int_equal(model_workspace_create(model, TOKENS, 1, &workspace, &error), KVERN_OK);
    assert_int_equal(kvern_state_create(plan, 1, &state), KVERN_OK);
    const int64_t count = TOKENS;
    const model_step step = {.phase = KVERN_PHASE_WINDOW,
                             .tokens = tokens,
                             .counts = &count,
                             .logits = logits,
                             .logits_counts = &count};
    assert_int_equal(model_forward(model, workspace, state, &step, &error), KVERN_OK);
    kvern_state_destroy(state);
    kvern_composition_release(plan);
    model_workspace_destroy(workspace);
    model_close(model);
    kvern_context_release(context);
}

// ---- The tests. ----

static double largest(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double off = fabs((double)a[i] - (double)(b ? b[i] : 0));
        most = off > most ? off : most;
    }
    return most;
}

// Activations are rounded to 16 bits (model_source_keep_precise) where weights are quantized.
static void logits_are_those_of_the_same_numbers(void **state)
{
    (void)state;
    static const quantizing cases[] = {
        {.bits = 4, .group = 64, .dtype = "BF16"},
        {.bits = 2, .group = 32, .dtype = "F16"},
        {.bits = 3, .group = 128, .dtype = "F32"},
        {.bits = 5, .group = 64, .dtype = "F16"},
        {.bits = 6, .group = 32, .dtype = "F32"},
        {.bits = 8, .group = 128, .dtype = "F32"},
        {.bits = 4, .group = 64, .dtype = "F32", .exception = "mlp.down_proj", .other_bits = 8},
        {.bits = 4, .group = 32, .dtype = "F16", .exception = "self_attn.q_proj"},
    };
    static float right[TOKENS * VOCABULARY], other[TOKENS * VOCABULARY];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        twins t = make_twins(&cases[i]);
        run(t.plain_config, t.plain, t.plain_bytes, right);
        run(t.config, t.codes, t.code_bytes, other);
        const double off = largest(right, other, TOKENS * VOCABULARY);
        const double size = largest(right, NULL, TOKENS * VOCABULARY);
        printf("%u bits, group %u: off by %.2g of %.2g\n", cases[i].bits, cases[i].group, off,
               size);
        assert_true(off < 1e-3 * size && size > 1);
        free_twins(&t);
    }
}

static void contradictions_are_refused(void **state)
{
    (void)state;
#define KEPT(members)                                                                              \
    .bits = 4, .group = 64, .dtype = "F32", .kept = "\"quantization\": {" members "}"
#define FOUR "\"bits\": 4, \"group_size\": 64"
    static const struct {
        quantizing how;
        kvern_status status;
        const char *text;
    } cases[] = {
        {{KEPT(FOUR)}, KVERN_OK, ""},
        {{KEPT(FOUR ", \"mode\": \"affine\"")}, KVERN_OK, ""},
        {{KEPT(FOUR ", \"model.layers.0.mlp.up_proj\": true")}, KVERN_OK, ""},
        {{KEPT(FOUR ", \"model.layers.0.mlp.up_proj\": {}")}, KVERN_OK, ""}, // 4 bits of 64
        {{KEPT("\"bits\": 4")}, KVERN_ERR_UNSUPPORTED, "quantization.group_size"},
        {{KEPT("\"bits\": 7, \"group_size\": 64")}, KVERN_ERR_UNSUPPORTED, "quantization.bits"},
        {{KEPT("\"bits\": 4, \"group_size\": 16")}, KVERN_ERR_UNSUPPORTED, "group_size"},
        {{KEPT("\"bits\": \"4\", \"group_size\": 64")}, KVERN_ERR_FORMAT, "quantization.bits"},
        {{KEPT("\"bits\": 8, \"group_size\": 64")}, KVERN_ERR_FORMAT, "do not fit"},
        {{KEPT("\"bits\": 4, \"group_size\": 32")}, KVERN_ERR_FORMAT, "do not fit"},
        {{KEPT(FOUR ", \"mode\": \"nvfp4\"")}, KVERN_ERR_UNSUPPORTED, "\"nvfp4\""},
        {{KEPT("\"bits\": 8, \"group_size\": 32, \"mode\": \"mxfp4\"")},
         KVERN_ERR_UNSUPPORTED,
         "mxfp4 has 4 bits"},
        {{KEPT("\"bits\": 4, \"group_size\": 32, \"mode\": \"mxfp4\"")},
         KVERN_ERR_FORMAT,
         "lacks scales of bytes"},
        {{KEPT(FOUR ", \"strange\": 1")}, KVERN_ERR_UNSUPPORTED, "quantization.strange"},
        {{KEPT(FOUR ", \"a\": {\"strange\": 1}")}, KVERN_ERR_UNSUPPORTED, "quantization.a"},
        {{KEPT(FOUR ", \"model.layers.0.mlp.up_proj\": false")},
         KVERN_ERR_FORMAT,
         "model.layers.0.mlp.up_proj.weight has words"},
        {{KEPT(FOUR ", \"model.layers.0.mlp.up_proj\": {\"bits\": 8}")},
         KVERN_ERR_FORMAT,
         "model.layers.0.mlp.up_proj.weight lacks"},
        {{KEPT(FOUR), .left_out = "lm_head.scales"}, KVERN_ERR_FORMAT, "lm_head.weight lacks"},
        {{KEPT(FOUR), .left_out = "lm_head.biases"}, KVERN_ERR_FORMAT, "lm_head.weight lacks"},
        {{KEPT(FOUR), .left_out = "model.layers.1.mlp.up_proj.weight"},
         KVERN_ERR_FORMAT,
         "lacks the tensor model.layers.1.mlp.up_proj"},
        {{.bits = 4, .group = 64, .dtype = "F32", .kept = "\"use_cache\": true"},
         KVERN_ERR_FORMAT,
         "model.embed_tokens.weight is 16 x 100"},
        {{.bits = 4,
          .group = 64,
          .dtype = "F32",
          .kept = "\"quantization\": {" FOUR "}, \"quantization_config\": {\"bits\": 4}"},
         KVERN_ERR_UNSUPPORTED,
         "quantization_config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        twins t = make_twins(&cases[i].how);
        model_source *source;
        model_facts facts;
        engine_error error = {KVERN_OK, ""};
        kvern_status status = model_source_of_safetensors(t.config, strlen(t.config), t.codes,
                                                          t.code_bytes, &source, &error);
        if (status == KVERN_OK) {
            status = model_read_facts(source, &facts, &error);
            model_source_close(source);
        }
        if (status != cases[i].status || !strstr(error.text, cases[i].text)) {
            fail_msg("%s: \"%s\" (%d)", cases[i].how.kept, error.text, (int)status);
        }
        free_twins(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_same_numbers),
        cmocka_unit_test(contradictions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
