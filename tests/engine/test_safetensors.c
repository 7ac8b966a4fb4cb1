// SPDX-License-Identifier: MIT
// Hugging Face directories: the same weights give the same bits as a GGUF file, what a config.json
// asks for is honoured or refused by its name, and files that are not what they seem are refused.

#include "tests/support/engine_fixture.h"
#include "tests/support/hf_model.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TOKENS 30
#define MOST_VOCABULARY 512

// ---- The same bits. ----

static void run(const model *model, kvern_context *context, float *logits)
{
    kvern_composition *plan;
    model_workspace *workspace;
    kvern_state *state;
    engine_error error;
    const size_t vocabulary = model_get_facts(model)->vocabulary;
    int32_t tokens[TOKENS];
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)(i * 37 % vocabulary);
    }
    assert_true(vocabulary <= MOST_VOCABULARY);
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
}

static void run_source(model_source *source, float *logits)
{
    kvern_context *context;
    model *model;
    engine_error error = {KVERN_OK, ""};
    assert_int_equal(kvern_context_create(NULL, &context), KVERN_OK);
    if (model_load(source, NULL, context, NULL, NULL, &model, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    run(model, context, logits);
    model_close(model);
    kvern_context_release(context);
}

static model_source *source_of(const hf_model *hf)
{
    model_source *source;
    engine_error error = {KVERN_OK, ""};
    if (model_source_of_safetensors(hf->config, strlen(hf->config), hf->tensors, hf->tensor_bytes,
                                    &source, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return source;
}

// A tiny GGUF model as the contents of a directory.
static hf_model translate(const void *data, size_t bytes)
{
    model_source *source = engine_fixture_source(data, bytes);
    model_facts facts;
    engine_error error = {KVERN_OK, ""};
    if (model_read_facts(source, &facts, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    hf_model hf = hf_model_of(model_source_gguf(source), &facts);
    model_source_close(source);
    return hf;
}

// Takes the GGUF file over.
static void check_same_bits(void *data, size_t bytes)
{
    static float right[TOKENS * MOST_VOCABULARY], other[TOKENS * MOST_VOCABULARY];
    memset(right, 0, sizeof right);
    memset(other, 0, sizeof other);
    hf_model hf = translate(data, bytes);
    run_source(engine_fixture_source(data, bytes), right);
    run_source(source_of(&hf), other);
    assert_memory_equal(other, right, sizeof right);
    hf_model_free(&hf);
    free(data);
}

static void llama_has_the_bits_of_gguf(void **state)
{
    (void)state;
    static const uint32_t types[] = {GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16};
    size_t bytes;
    for (size_t i = 0; i < 3; i++) {
        tiny_llama model = tiny_llama_default(types[i]);
        void *data = tiny_llama_build(&model, &bytes);
        check_same_bits(data, bytes);
        model.separate_output = true;
        model.biases = true;
        model.rope_linear = 4;
        model.head_dim = 24;
        data = tiny_llama_build(&model, &bytes);
        check_same_bits(data, bytes);
    }
}

static void gemma3_has_the_bits_of_gguf(void **state)
{
    (void)state;
    static const uint32_t types[] = {GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16};
    size_t bytes;
    for (size_t i = 0; i < 3; i++) {
        tiny_gemma3 model = tiny_gemma3_default(types[i]);
        model.rope_linear = i == 1 ? 8 : 0;
        void *data = tiny_gemma3_build(&model, &bytes);
        check_same_bits(data, bytes);
    }
}

// A config.json states how the factors of Llama 3 are made; a GGUF file has them. They are rounded
// once from double in both, here from the C library's functions.
static void add_factors(gguf_builder *builder, double base, size_t dim)
{
    const double factor = 8, low = 1, high = 4, original = 64;
    float factors[32];
    for (size_t i = 0; i < dim / 2; i++) {
        const double wavelength = 2 * M_PI * pow(base, 2.0 * (double)i / (double)dim);
        const double smooth = (original / wavelength - low) / (high - low);
        factors[i] = (float)(wavelength < original / high  ? 1
                             : wavelength > original / low ? factor
                                                           : 1 / ((1 - smooth) / factor + smooth));
    }
    gguf_builder_tensor(builder, "rope_freqs.weight", GGUF_TYPE_F32, 1, (uint64_t[]){dim / 2},
                        factors, dim / 2 * sizeof(float));
}

static double largest_difference(const float *a, const float *b, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = fabs((double)a[i] - (double)b[i]);
        // Not fmax(): gcc 12 stops with an internal error at that for aarch64.
        largest = difference > largest ? difference : largest;
    }
    return largest;
}

static void llama3_scaling_is_that_of_the_tensor(void **state)
{
    (void)state;
    static const char scaling[] =
        "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": "
        "1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}";
    static const char none[] = "\"rope_scaling\": null";
    static float right[TOKENS * MOST_VOCABULARY], other[TOKENS * MOST_VOCABULARY],
        plain[TOKENS * MOST_VOCABULARY];
    size_t bytes;
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    void *data = tiny_llama_build(&model, &bytes);
    hf_model hf = translate(data, bytes);
    run_source(engine_fixture_source(data, bytes), plain);
    free(data);
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(&model, builder);
    add_factors(builder, 10000, model.head_dim);
    data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    run_source(engine_fixture_source(data, bytes), right);
    free(data);

    char *config = malloc(strlen(hf.config) + sizeof scaling);
    assert_non_null(config);
    char *at = strstr(hf.config, none);
    assert_non_null(at);
    sprintf(config, "%.*s%s%s", (int)(at - hf.config), hf.config, scaling, at + strlen(none));
    free(hf.config);
    hf.config = config;
    run_source(source_of(&hf), other);
    hf_model_free(&hf);
    const double off = largest_difference(other, right, TOKENS * 100);
    printf("off by %.2g; without the factors by %.2g\n", off,
           largest_difference(plain, right, TOKENS * 100));
    assert_true(off < 1e-5);
    assert_true(largest_difference(plain, right, TOKENS * 100) > 1e-2);
}

// A file of tensors whose names begin otherwise, with one more tensor in front, which may be NULL.
static void rename_tensors(hf_model *hf, const char *from, const char *to, const char *more)
{
    const unsigned char *file = hf->tensors;
    const size_t length = file[0] | (size_t)file[1] << 8;
    json_t *header = json_loadb((const char *)file + 8, length, 0, NULL), *json, *renamed;
    assert_non_null(header);
    renamed = json_object();
    const char *name;
    json_object_foreach(header, name, json)
    {
        char text[256];
        bool begins = strncmp(name, from, strlen(from)) == 0;
        snprintf(text, sizeof text, "%s%s", begins ? to : "", name + (begins ? strlen(from) : 0));
        json_object_set(renamed, text, json);
    }
    const size_t bytes = hf->tensor_bytes - 8 - length;
    if (more) {
        json_object_set_new(renamed, more,
                            json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "U8", "shape", 3,
                                      "data_offsets", (json_int_t)bytes, (json_int_t)bytes + 3));
    }
    char *text = json_dumps(renamed, JSON_COMPACT);
    unsigned char *out = calloc(1, 8 + strlen(text) + bytes + 3);
    assert_non_null(out);
    out[0] = (unsigned char)strlen(text);
    out[1] = (unsigned char)(strlen(text) >> 8);
    memcpy(out + 8, text, strlen(text));
    memcpy(out + 8 + strlen(text), file + 8 + length, bytes);
    hf->tensor_bytes = 8 + strlen(text) + bytes + (more ? 3 : 0);
    free(hf->tensors);
    hf->tensors = out;
    free(text);
    json_decref(renamed);
    json_decref(header);
}

// What publishers of models of texts and images do around the text model.
static void the_text_part_of_a_model_is_run(void **state)
{
    (void)state;
    static const struct {
        const char *to, *more;
        kvern_status status;
        const char *text;
    } cases[] = {
        {"model.", NULL, KVERN_OK, ""},
        {"language_model.model.", "vision_tower.a", KVERN_OK, ""},
        {"model.language_model.", "model.visual.a", KVERN_OK, ""},
        {"language_model.model.", "strange_tower.a", KVERN_ERR_UNSUPPORTED, "strange_tower.a"},
        {"other.", NULL, KVERN_ERR_FORMAT, "model.embed_tokens.weight"},
    };
    static float right[TOKENS * MOST_VOCABULARY], other[TOKENS * MOST_VOCABULARY];
    size_t bytes;
    tiny_gemma3 gemma = tiny_gemma3_default(GGUF_TYPE_F32);
    void *data = tiny_gemma3_build(&gemma, &bytes);
    run_source(engine_fixture_source(data, bytes), right);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hf_model hf = translate(data, bytes);
        char config[4096];
        rename_tensors(&hf, "model.", cases[i].to, cases[i].more);
        snprintf(config, sizeof config,
                 "{\"model_type\": \"gemma3\", \"text_config\": %s, \"vision_config\": {\"a\": "
                 "{\"b\": 1}}, \"image_token_index\": 3}",
                 hf.config);
        model_source *source;
        model_facts facts;
        engine_error error = {KVERN_OK, ""};
        assert_int_equal(model_source_of_safetensors(config, strlen(config), hf.tensors,
                                                     hf.tensor_bytes, &source, &error),
                         KVERN_OK);
        kvern_status status = model_read_facts(source, &facts, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].text)) {
            fail_msg("%s: \"%s\" (%d)", cases[i].to, error.text, (int)status);
        }
        if (status == KVERN_OK) {
            run_source(source, other);
            assert_memory_equal(other, right, sizeof right);
        } else {
            model_source_close(source);
        }
        hf_model_free(&hf);
    }
    free(data);
}

// ---- Keys. ----

#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

// A llama model with another config: `from` is replaced by `to`.
static void expect_config(bool gemma3, const char *from, const char *to, kvern_status status,
                          const char *text)
{
    size_t bytes;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_F32);
    tiny_gemma3 gemma = tiny_gemma3_default(GGUF_TYPE_F32);
    void *data = gemma3 ? tiny_gemma3_build(&gemma, &bytes) : tiny_llama_build(&llama, &bytes);
    hf_model hf = translate(data, bytes);
    free(data);
    char config[4096];
    const char *at = strstr(hf.config, from);
    assert_non_null(at);
    snprintf(config, sizeof config, "%.*s%s%s", (int)(at - hf.config), hf.config, to,
             at + strlen(from));
    engine_error error = {KVERN_OK, ""};
    model_facts facts;
    model_source *source;
    kvern_status got = model_source_of_safetensors(config, strlen(config), hf.tensors,
                                                   hf.tensor_bytes, &source, &error);
    if (got == KVERN_OK) {
        got = model_read_facts(source, &facts, &error);
        model_source_close(source);
    }
    if (got != status || !strstr(error.text, text)) {
        fail_msg("%s: \"%s\" (%d) where %d and \"%s\" were expected", to, error.text, (int)got,
                 (int)status, text);
    }
    hf_model_free(&hf);
}

static void a_config_is_honoured_or_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        kvern_status status;
        const char *text;
    } cases[] = {
        {"\"llama\"", "\"strange\"", KVERN_ERR_UNSUPPORTED, "\"strange\" is not supported"},
        {"\"silu\"", "\"gelu\"", KVERN_ERR_UNSUPPORTED, "hidden_act"},
        {"\"attention_bias\": false", "\"attention_bias\": true", KVERN_ERR_FORMAT,
         "attention_bias says that there are biases"},
        {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", KVERN_ERR_FORMAT,
         "no tensor lm_head.weight"},
        {"\"hidden_size\": 64", "\"hidden_size\": 96", KVERN_ERR_FORMAT,
         "model.embed_tokens.weight is 64 x 100"},
        {"\"hidden_size\": 64", "\"hidden_size\": 0", KVERN_ERR_FORMAT, "hidden_size must be"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", KVERN_ERR_FORMAT,
         "lacks the tensor model.layers.2.input_layernorm.weight"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", KVERN_ERR_UNSUPPORTED,
         "model.layers.1."},
        {"\"num_hidden_layers\": 2, ", "", KVERN_ERR_FORMAT, "lacks the key num_hidden_layers"},
        {"\"rms_norm_eps\"", "\"layer_norm_eps\"", KVERN_ERR_UNSUPPORTED, "layer_norm_eps"},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}",
         KVERN_ERR_FORMAT, "lacks the key rope_scaling.original_max_position_embeddings"},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}",
         KVERN_ERR_UNSUPPORTED, "\"dynamic\""},
        {"\"rope_scaling\": null",
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4, \"long_factor\": [1]}",
         KVERN_ERR_UNSUPPORTED, "\"linear\""},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}",
         KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"default\"}", KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
         KVERN_ERR_FORMAT, "lacks the key rope_scaling.low_freq_factor"},
        {"\"rope_scaling\": null", "\"rope_scaling\": {\"beta\": 4}", KVERN_ERR_UNSUPPORTED,
         "rope_scaling.beta"},
        {"\"rope_scaling\": null", "\"sliding_window\": 128", KVERN_ERR_UNSUPPORTED,
         "sliding_window"},
        {"\"rope_scaling\": null", "\"sliding_window\": null", KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"mlp_bias\": true", KVERN_ERR_UNSUPPORTED, "mlp_bias"},
        {"\"rope_scaling\": null", "\"partial_rotary_factor\": 0.5", KVERN_ERR_UNSUPPORTED,
         "partial_rotary_factor"},
        {"\"rope_scaling\": null", "\"quantization\": {\"bits\": 4}", KVERN_ERR_UNSUPPORTED,
         "quantization.group_size"},
        {"\"rope_scaling\": null",
         "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}",
         KVERN_ERR_UNSUPPORTED, "quantization_config.quant_method"},
        {"\"rope_scaling\": null", "\"quantization_config\": {\"bits\": 4}", KVERN_ERR_UNSUPPORTED,
         "quantization_config is not what quantization is"},
        {"\"rope_scaling\": null", "\"embedding_multiplier\": 12", KVERN_ERR_UNSUPPORTED,
         "embedding_multiplier"},
        {"\"rope_scaling\": null", "\"layer_types\": [\"full_attention\", \"full_attention\"]",
         KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
         KVERN_ERR_UNSUPPORTED, "layer_types"},
        {"\"rope_scaling\": null", "\"use_cache\": true", KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"use_cache\": true, \"use_cache\": true", KVERN_ERR_FORMAT,
         "config.json"},
        {"\"rope_scaling\": null", "\"a\": {\"b\": 1}, \"a.b\": 2", KVERN_ERR_FORMAT, "twice"},
        {"{", "[", KVERN_ERR_FORMAT, "config.json"},
        {"\"rope_scaling\": null", "\"a\": {\"b\": {\"c\": 1}}", KVERN_ERR_UNSUPPORTED, "a.b.c"},
        {"\"rope_scaling\": null",
         "\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": "
         "1}}}}}}}}}",
         KVERN_ERR_FORMAT, "too long or too deep"},
        {"\"rope_scaling\": null", "\"" HUNDRED HUNDRED HUNDRED "\": 1", KVERN_ERR_FORMAT,
         "too long or too deep"},
        {"\"rope_scaling\": null", "\"text_config\": {\"rope_theta\": 10000.0}", KVERN_OK, ""},
        {"\"rope_scaling\": null", "\"text_config\": {\"rope_theta\": 10001.0}", KVERN_ERR_FORMAT,
         "rope_theta differs from text_config.rope_theta"},
        {"\"rope_scaling\": null", "\"text_config\": {\"torch_dtype\": \"bfloat16\"}", KVERN_OK,
         ""},
        {"\"rope_scaling\": null", "\"text_config\": {\"mlp_bias\": true}", KVERN_ERR_UNSUPPORTED,
         "mlp_bias"},
        {"\"rope_scaling\": null", "\"text_config\": {\"text_config\": {\"mlp_bias\": true}}",
         KVERN_ERR_FORMAT, "text_config differs"},
        {"\"rope_scaling\": null", "\"text_config\": 1", KVERN_ERR_UNSUPPORTED, "text_config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_config(false, cases[i].from, cases[i].to, cases[i].status, cases[i].text);
    }
    expect_config(true, "\"layer_types\": [\"sliding", "\"layer_types\": [\"strange",
                  KVERN_ERR_FORMAT, "layer_types must be");
    expect_config(true, "\"sliding_window\"",
                  "\"use_bidirectional_attention\": true, \"sliding_window\"",
                  KVERN_ERR_UNSUPPORTED, "use_bidirectional_attention");
}

// ---- Files that are not what they seem. ----

// A file with this header, and `data_bytes` bytes behind it.
static kvern_status read_header(const char *header, size_t data_bytes, engine_error *error)
{
    static unsigned char file[4096];
    model_source *source;
    const size_t length = strlen(header);
    memset(file, 0, sizeof file);
    file[0] = (unsigned char)length;
    file[1] = (unsigned char)(length >> 8);
    memcpy(file + 8, header, length);
    static const char config[] = "{\"model_type\": \"llama\"}";
    kvern_status status = model_source_of_safetensors(config, sizeof config - 1, file,
                                                      8 + length + data_bytes, &source, error);
    if (status == KVERN_OK) {
        model_source_close(source);
    }
    return status;
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        kvern_status status;
        const char *text;
    } cases[] = {
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8, KVERN_OK,
         ""},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [0, 4]}}  ", 4, KVERN_OK,
         ""},
        {"{\"__metadata__\": {\"a\": \"b\"}}", 0, KVERN_OK, ""},
        {"[]", 0, KVERN_ERR_FORMAT, "not a JSON object"},
        {"{\"a\"", 0, KVERN_ERR_FORMAT, "memory"},
        {"{\"a\": 1}", 0, KVERN_ERR_FORMAT, "not described by an object"},
        {"{\"a\": {\"dtype\": \"F31\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_FORMAT, "dtype"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [-2], \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_FORMAT, "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [0], \"data_offsets\": [0, 0]}}", 0,
         KVERN_ERR_FORMAT, "shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": 2, \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_FORMAT, "no shape"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [1,1,1,1,2], \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_UNSUPPORTED, "four dimensions"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4294967296, 4294967296], \"data_offsets\": [0, "
         "8]}}",
         8, KVERN_ERR_FORMAT, "overflows"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904], \"data_offsets\": [0, "
         "8]}}",
         8, KVERN_ERR_FORMAT, "does not match its bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 12]}}", 12,
         KVERN_ERR_FORMAT, "does not match its bytes"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 7,
         KVERN_ERR_FORMAT, "not in the file"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 0]}}", 8,
         KVERN_ERR_FORMAT, "not in the file"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0]}}", 8,
         KVERN_ERR_FORMAT, "data_offsets"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}", 12,
         KVERN_ERR_FORMAT, "gap"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 9,
         KVERN_ERR_FORMAT, "gap"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
         "\"b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [4, 12]}}",
         12, KVERN_ERR_FORMAT, "overlap"},
        {"{\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}, "
         "\"a\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [8, 16]}}",
         16, KVERN_ERR_FORMAT, "memory"},
        {"{\"\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_FORMAT, "printable"},
        {"{\"a\\u001b\": {\"dtype\": \"F32\", \"shape\": [2], \"data_offsets\": [0, 8]}}", 8,
         KVERN_ERR_FORMAT, "printable"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        engine_error error = {KVERN_OK, ""};
        kvern_status status = read_header(cases[i].header, cases[i].bytes, &error);
        if (status != cases[i].status || !strstr(error.text, cases[i].text)) {
            fail_msg("%s: \"%s\" (%d)", cases[i].header, error.text, (int)status);
        }
    }
}

static void cut_files_are_refused(void **state)
{
    (void)state;
    size_t bytes;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_BF16);
    void *data = tiny_llama_build(&llama, &bytes);
    hf_model hf = translate(data, bytes);
    free(data);
    for (size_t cut = 0; cut < hf.tensor_bytes; cut += cut < 6000 ? 7 : 997) {
        void *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, hf.tensors, cut);
        model_source *source;
        engine_error error;
        assert_int_equal(
            model_source_of_safetensors(hf.config, strlen(hf.config), copy, cut, &source, &error),
            KVERN_ERR_FORMAT);
        assert_null(source);
        free(copy);
    }
    hf_model_free(&hf);
}

// ---- Directories. ----

static void save(const char *folder, const char *name, const void *data, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static void save_text(const char *folder, const char *name, const char *text)
{
    save(folder, name, text, strlen(text));
}

static void remove_from(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
}

static void expect_directory(const char *folder, kvern_status status, const char *text)
{
    model_source *source;
    engine_error error = {KVERN_OK, ""};
    kvern_status got = model_source_open(folder, &source, &error);
    if (got != status || !strstr(error.text, text)) {
        fail_msg("\"%s\" (%d) where %d and \"%s\" were expected", error.text, (int)got, (int)status,
                 text);
    }
    model_source_close(source);
}

#define FIRST "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"
#define INDEX "model.safetensors.index.json"

static void directories_may_have_one_file_or_several(void **state)
{
    (void)state;
    static float right[TOKENS * MOST_VOCABULARY], other[TOKENS * MOST_VOCABULARY];
    size_t bytes;
    tiny_llama llama = tiny_llama_default(GGUF_TYPE_BF16);
    void *data = tiny_llama_build(&llama, &bytes);
    hf_model hf = translate(data, bytes);
    run_source(engine_fixture_source(data, bytes), right);
    free(data);
    char folder[] = "/tmp/kvern-hf-XXXXXX";
    assert_non_null(mkdtemp(folder));
    expect_directory(folder, KVERN_ERR_IO, "config.json: No such file");
    save_text(folder, "config.json", hf.config);
    expect_directory(folder, KVERN_ERR_IO, "model.safetensors: No such file");
    save(folder, "model.safetensors", hf.tensors, hf.tensor_bytes);
    model_source *source;
    engine_error error;
    assert_int_equal(model_source_open(folder, &source, &error), KVERN_OK);
    run_source(source, other);
    assert_memory_equal(other, right, sizeof right);
    remove_from(folder, "model.safetensors");

    save_text(folder, INDEX, hf.index);
    save(folder, FIRST, hf.shard[0], hf.shard_bytes[0]);
    expect_directory(folder, KVERN_ERR_IO, SECOND ": No such file");
    save(folder, SECOND, hf.shard[1], hf.shard_bytes[1]);
    assert_int_equal(model_source_open(folder, &source, &error), KVERN_OK);
    memset(other, 0, sizeof other);
    run_source(source, other);
    assert_memory_equal(other, right, sizeof right);

    save(folder, SECOND, hf.shard[0], hf.shard_bytes[0]);
    expect_directory(folder, KVERN_ERR_FORMAT, "which is not listed there");
    save(folder, SECOND, hf.shard[1], hf.shard_bytes[1] - 1);
    expect_directory(folder, KVERN_ERR_FORMAT, SECOND);
    save(folder, SECOND, hf.shard[1], hf.shard_bytes[1]);
    char *more = malloc(strlen(hf.index) + 200);
    assert_non_null(more);
    sprintf(more, "%.*s, \"strange.weight\": \"" FIRST "\"}}", (int)strlen(hf.index) - 2, hf.index);
    save_text(folder, INDEX, more);
    expect_directory(folder, KVERN_ERR_FORMAT, FIRST " has no tensor strange.weight");
    sprintf(more, "%.*s, \"strange.weight\": \"model-3.safetensors\"}}", (int)strlen(hf.index) - 2,
            hf.index);
    save_text(folder, INDEX, more);
    expect_directory(folder, KVERN_ERR_IO, "model-3.safetensors: No such file");
    sprintf(more, "%.*s, \"lm_head.weight\": \"" FIRST "\", \"lm_head.weight\": \"" FIRST "\"}}",
            (int)strlen(hf.index) - 2, hf.index);
    save_text(folder, INDEX, more);
    expect_directory(folder, KVERN_ERR_FORMAT, "duplicate");
    free(more);
    save_text(folder, INDEX, "[]");
    expect_directory(folder, KVERN_ERR_FORMAT, "no weight_map");
    save_text(folder, INDEX, "{\"weight_map\": {\"a\": \"../" FIRST "\"}}");
    expect_directory(folder, KVERN_ERR_FORMAT, "not in a file beside it");
    save_text(folder, INDEX, "{\"weight_map\": {\"a\": 1}}");
    expect_directory(folder, KVERN_ERR_FORMAT, "not in a file beside it");
    save_text(folder, INDEX, "{}");
    expect_directory(folder, KVERN_ERR_FORMAT, "no weight_map");
    save_text(folder, INDEX, "{\"weight_map\": {");
    expect_directory(folder, KVERN_ERR_FORMAT, "line 1");
    save_text(folder, "config.json", "");
    expect_directory(folder, KVERN_ERR_FORMAT, "config.json");

    const char *const names[] = {"config.json", INDEX, FIRST, SECOND};
    for (size_t i = 0; i < 4; i++) {
        remove_from(folder, names[i]);
    }
    assert_int_equal(remove(folder), 0);
    hf_model_free(&hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_has_the_bits_of_gguf),
        cmocka_unit_test(gemma3_has_the_bits_of_gguf),
        cmocka_unit_test(llama3_scaling_is_that_of_the_tensor),
        cmocka_unit_test(the_text_part_of_a_model_is_run),
        cmocka_unit_test(a_config_is_honoured_or_refused),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(directories_may_have_one_file_or_several),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
