// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target of safetensors: the models of make_model_corpus, translated,
// and one whose matrices are quantized.
// `make_safetensors_corpus tests/fuzz/corpus/safetensors`

#include "tests/support/hf_model.h"
#include "tests/support/small_corpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 32
#define VOCABULARY 6

static const char CONFIG[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 32, "
    "\"intermediate_size\": 32, \"max_position_embeddings\": 8, \"num_attention_heads\": 1, "
    "\"head_dim\": 32, \"rms_norm_eps\": 1e-5, \"vocab_size\": 6, \"tie_word_embeddings\": true, "
    "\"quantization\": {\"bits\": 3, \"group_size\": 32, \"model.layers.0.mlp.up_proj\": "
    "{\"bits\": "
    "8, \"group_size\": 32}, \"model.layers.0.mlp.down_proj\": {\"mode\": \"mxfp4\"}}}";

static void add_quantized(safetensors_builder *builder, const char *module, size_t rows,
                          size_t bits, bool mxfp4)
{
    static unsigned char words[WIDTH * WIDTH];
    static uint16_t scales[WIDTH];
    static unsigned char exponents[WIDTH];
    const uint64_t shape[] = {rows, WIDTH * bits / 32}, groups[] = {rows, 1};
    char name[96];
    for (size_t i = 0; i < sizeof words; i++) {
        words[i] = (unsigned char)(i * 37 + rows);
    }
    for (size_t i = 0; i < WIDTH; i++) {
        scales[i] = (uint16_t)(0x3c00 + i); // about one
        exponents[i] = 120;
    }
    snprintf(name, sizeof name, "%s.weight", module);
    safetensors_builder_add(builder, name, "U32", 2, shape, words, rows * WIDTH * bits / 8);
    snprintf(name, sizeof name, "%s.scales", module);
    safetensors_builder_add(builder, name, mxfp4 ? "U8" : "F16", 2, groups,
                            mxfp4 ? (const void *)exponents : scales, rows * (mxfp4 ? 1 : 2));
    if (!mxfp4) {
        snprintf(name, sizeof name, "%s.biases", module);
        safetensors_builder_add(builder, name, "F16", 2, groups, scales, rows * 2);
    }
}

static void save_quantized(const char *folder)
{
    static const char *const norms[] = {"model.norm.weight",
                                        "model.layers.0.input_layernorm.weight",
                                        "model.layers.0.post_attention_layernorm.weight"};
    static const char *const modules[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    static const size_t bits[] = {3, 3, 3, 3, 3, 8, 4};
    static const float ones[WIDTH];
    safetensors_builder *builder = safetensors_builder_create();
    for (size_t i = 0; i < 3; i++) {
        safetensors_builder_add(builder, norms[i], "F32", 1, (uint64_t[]){WIDTH}, ones,
                                sizeof ones);
    }
    add_quantized(builder, "model.embed_tokens", VOCABULARY, 3, false);
    for (size_t i = 0; i < 7; i++) {
        char module[64];
        snprintf(module, sizeof module, "model.layers.0.%s", modules[i]);
        add_quantized(builder, module, WIDTH, bits[i], i == 6);
    }
    size_t bytes, config = strlen(CONFIG);
    unsigned char *tensors = safetensors_builder_finish(builder, &bytes);
    unsigned char *data = malloc(2 + config + bytes);
    char path[4096];
    if (!data) {
        abort();
    }
    data[0] = (unsigned char)config;
    data[1] = (unsigned char)(config >> 8);
    memcpy(data + 2, CONFIG, config);
    memcpy(data + 2 + config, tensors, bytes);
    snprintf(path, sizeof path, "%s/quantized", folder);
    small_corpus_save(path, data, 2 + config + bytes);
    free(tensors);
    safetensors_builder_destroy(builder);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_safetensors_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < SMALL_CORPUS; i++) {
        char path[4096];
        size_t bytes;
        void *data = small_corpus_directory(i, &bytes);
        snprintf(path, sizeof path, "%s/%s", argv[1], small_corpus_name(i));
        small_corpus_save(path, data, bytes);
    }
    save_quantized(argv[1]);
    return 0;
}
