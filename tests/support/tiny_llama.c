// SPDX-License-Identifier: MIT
#include "tests/support/tiny_llama.h"

#include "tests/support/random.h"
#include "tests/support/tiny_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tiny_llama tiny_llama_default(uint32_t type)
{
    size_t block = 1;
    size_t bytes = 0;
    if (!element_type_block(type, &block, &bytes)) {
        abort();
    }
    size_t width = block > 64 ? 256 : 64;
    return (tiny_llama){.type = type,
                        .layers = 2,
                        .width = width,
                        .heads = 4,
                        .kv_heads = 2,
                        .head_dim = width / 4,
                        .feed_forward = width > 64 ? 512 : 96,
                        .vocabulary = 100,
                        .context_length = 512,
                        .end_token = TINY_LLAMA_END,
                        .seed = 1 + type};
}

// The character that stands for a byte in a byte-level vocabulary, as UTF-8: printable Latin-1
// bytes stand for themselves, the others for the code points from 256 on.
static void byte_character(unsigned byte, char text[3])
{
    unsigned code = byte;
    unsigned others = 0;
    for (unsigned b = 0; b <= byte; b++) {
        bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        code = printable ? b : 256 + others;
        others += printable ? 0 : 1;
    }
    if (code < 128) {
        memcpy(text, (char[3]){(char)code, 0, 0}, 3);
    } else {
        memcpy(text, (char[3]){(char)(0xc0 | code >> 6), (char)(0x80 | (code & 63)), 0}, 3);
    }
}

static void add_tokenizer(const tiny_llama *options, gguf_builder *builder)
{
    size_t count = options->vocabulary;
    char(*text)[40] = calloc(count, sizeof *text);
    const char **tokens = calloc(count, sizeof *tokens);
    int32_t *types = calloc(count, sizeof *types);
    if (!text || !tokens || !types || count < 260) {
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        tokens[i] = text[i];
        types[i] = i < 256 ? 1 : 3; // normal, control
        if (i < 256) {
            byte_character((unsigned)i, text[i]);
        } else {
            snprintf(text[i], sizeof text[i], "<|control_%zu|>", i);
        }
    }
    strcpy(text[TINY_LLAMA_START], "<|im_start|>");
    strcpy(text[TINY_LLAMA_END], "<|im_end|>");
    gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, count);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, count);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    gguf_builder_u32(builder, "tokenizer.ggml.eos_token_id", options->end_token);
    free(text);
    free(tokens);
    free(types);
}

// A number that all layers have, or a list when the last one has another.
static void add_size(const tiny_llama *options, gguf_builder *builder, const char *key, size_t all,
                     size_t last)
{
    uint32_t numbers[64];
    if (last == 0) {
        gguf_builder_u32(builder, key, (uint32_t)all);
        return;
    }
    for (size_t i = 0; i < options->layers && i < 64; i++) {
        numbers[i] = (uint32_t)(i + 1 == options->layers ? last : all);
    }
    gguf_builder_array(builder, key, GGUF_UINT32, numbers, options->layers);
}

void tiny_llama_add_metadata(const tiny_llama *options, gguf_builder *builder)
{
    gguf_builder_string(builder, "general.architecture", "llama");
    gguf_builder_string(builder, "general.name", "tiny");
    gguf_builder_u32(builder, "llama.block_count", (uint32_t)options->layers);
    gguf_builder_u32(builder, "llama.context_length", (uint32_t)options->context_length);
    gguf_builder_u32(builder, "llama.embedding_length", (uint32_t)options->width);
    add_size(options, builder, "llama.feed_forward_length", options->feed_forward,
             options->last_feed_forward);
    add_size(options, builder, "llama.attention.head_count", options->heads, options->last_heads);
    add_size(options, builder, "llama.attention.head_count_kv", options->kv_heads,
             options->last_kv_heads);
    gguf_builder_u32(builder, "llama.attention.key_length", (uint32_t)options->head_dim);
    gguf_builder_f32(builder, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_builder_f32(builder, "llama.rope.freq_base", 10000);
    if (options->rope_linear != 0) {
        gguf_builder_string(builder, "llama.rope.scaling.type", "linear");
        gguf_builder_f32(builder, "llama.rope.scaling.factor", options->rope_linear);
    }
    if (options->byte_tokenizer) {
        add_tokenizer(options, builder);
    }
}

static void add_layer(const tiny_llama *options, gguf_builder *builder, test_random *random,
                      size_t layer)
{
    size_t width = options->width;
    bool last = layer + 1 == options->layers;
    size_t heads = last && options->last_heads ? options->last_heads : options->heads;
    size_t kv_heads = last && options->last_kv_heads ? options->last_kv_heads : options->kv_heads;
    size_t inner =
        last && options->last_feed_forward ? options->last_feed_forward : options->feed_forward;
    size_t queries = heads * options->head_dim;
    size_t keys = kv_heads * options->head_dim;
    float size = 1.6f / __builtin_sqrtf((float)width);
    float inner_size = 1.6f / __builtin_sqrtf((float)inner);
    const struct {
        const char *name;
        size_t rows, cols;
        float size;
    } matrices[] = {
        {"attn_q", queries, width, size},       {"attn_k", keys, width, size},
        {"attn_v", keys, width, size},          {"attn_output", width, queries, size},
        {"ffn_gate", inner, width, size},       {"ffn_up", inner, width, size},
        {"ffn_down", width, inner, inner_size},
    };
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.attn_norm.weight", layer);
    tiny_vector(builder, random, name, width, 0.5f);
    snprintf(name, sizeof name, "blk.%zu.ffn_norm.weight", layer);
    tiny_vector(builder, random, name, width, 0.5f);
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, matrices[i].name);
        tiny_matrix(builder, random, name, options->type, matrices[i].rows, matrices[i].cols,
                    matrices[i].size);
        if (options->biases && i < 4) {
            snprintf(name, sizeof name, "blk.%zu.%s.bias", layer, matrices[i].name);
            tiny_vector(builder, random, name, matrices[i].rows, 0.9f);
        }
    }
}

void tiny_llama_add_tensors(const tiny_llama *options, gguf_builder *builder)
{
    test_random random = test_random_seed(options->seed);
    tiny_matrix(builder, &random, "token_embd.weight", options->type, options->vocabulary,
                options->width, 1);
    tiny_vector(builder, &random, "output_norm.weight", options->width, 0.5f);
    if (options->separate_output) {
        tiny_matrix(builder, &random, "output.weight", options->type, options->vocabulary,
                    options->width, 0.5f);
    }
    if (options->rope_factors) {
        tiny_vector(builder, &random, "rope_freqs.weight", options->head_dim / 2, 0.9f);
    }
    for (size_t layer = 0; layer < options->layers; layer++) {
        add_layer(options, builder, &random, layer);
    }
}

void tiny_llama_add(const tiny_llama *options, gguf_builder *builder)
{
    tiny_llama_add_metadata(options, builder);
    tiny_llama_add_tensors(options, builder);
}

void *tiny_llama_build(const tiny_llama *options, size_t *bytes)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(options, builder);
    void *file = gguf_builder_finish(builder, bytes);
    gguf_builder_destroy(builder);
    return file;
}

void tiny_llama_save(const tiny_llama *options, const char *path)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_llama_add(options, builder);
    gguf_builder_save(builder, path);
    gguf_builder_destroy(builder);
}
