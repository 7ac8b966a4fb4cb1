// SPDX-License-Identifier: MIT
#include "tests/support/tiny_gemma3.h"

#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tensors.h"

#include <stdio.h>
#include <stdlib.h>

tiny_gemma3 tiny_gemma3_default(uint32_t type)
{
    size_t block = 1;
    size_t bytes = 0;
    if (!element_type_block(type, &block, &bytes)) {
        abort();
    }
    size_t width = block > 64 ? 256 : 64;
    return (tiny_gemma3){.type = type,
                         .layers = 7,
                         .width = width,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = width / 4,
                         .feed_forward = width > 64 ? 256 : 96,
                         .context_length = 512,
                         .window = 12,
                         .seed = 101 + type};
}

static void add_size(gguf_builder *builder, const char *key, size_t value)
{
    if (value) {
        gguf_builder_u32(builder, key, (uint32_t)value);
    }
}

static void add_number(gguf_builder *builder, const char *key, float value)
{
    if (value != 0) {
        gguf_builder_f32(builder, key, value);
    }
}

static void add_window_list(const tiny_gemma3 *options, gguf_builder *builder)
{
    bool *windowed = calloc(options->layers, sizeof *windowed);
    if (!windowed) {
        abort();
    }
    for (size_t i = 0; i < options->layers; i++) {
        windowed[i] = (i + 1) % options->full_every != 0;
    }
    gguf_builder_array(builder, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, windowed,
                       options->layers);
    free(windowed);
}

static void add_metadata(const tiny_gemma3 *options, gguf_builder *builder)
{
    gguf_builder_string(builder, "general.architecture", "gemma3");
    gguf_builder_string(builder, "general.name", "tiny");
    add_size(builder, "gemma3.block_count", options->layers);
    add_size(builder, "gemma3.context_length", options->context_length);
    add_size(builder, "gemma3.embedding_length", options->width);
    add_size(builder, "gemma3.feed_forward_length", options->feed_forward);
    add_size(builder, "gemma3.attention.head_count", options->heads);
    add_size(builder, "gemma3.attention.head_count_kv", options->kv_heads);
    add_size(builder, "gemma3.attention.key_length", options->head_dim);
    add_size(builder, "gemma3.attention.sliding_window", options->window);
    add_number(builder, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
    add_number(builder, "gemma3.attention.scale", options->attention_scale);
    add_number(builder, "gemma3.attn_logit_softcapping", options->attention_softcap);
    add_number(builder, "gemma3.final_logit_softcapping", options->logit_softcap);
    add_number(builder, "gemma3.rope.freq_base", 1e6f);
    add_number(builder, "gemma3.rope.freq_base_swa", options->window_base);
    if (options->rope_linear != 0) {
        gguf_builder_string(builder, "gemma3.rope.scaling.type", "linear");
        add_number(builder, "gemma3.rope.scaling.factor", options->rope_linear);
    }
    if (options->window_list) {
        add_window_list(options, builder);
    } else {
        add_size(builder, "gemma3.attention.sliding_window_pattern", options->full_every);
    }
    if (options->chat_template) {
        gguf_builder_string(builder, "tokenizer.chat_template", options->chat_template);
    }
    tiny_sp_metadata(builder);
}

static void add_layer(const tiny_gemma3 *options, gguf_builder *builder, test_random *random,
                      size_t layer)
{
    size_t width = options->width;
    size_t queries = options->heads * options->head_dim;
    size_t keys = options->kv_heads * options->head_dim;
    size_t inner = options->feed_forward;
    float size = 1.6f / __builtin_sqrtf((float)width);
    const struct {
        const char *name;
        size_t rows, cols;
    } tensors[] = {
        {"attn_norm", 0, width},
        {"attn_q", queries, width},
        {"attn_k", keys, width},
        {"attn_v", keys, width},
        {"attn_q_norm", 0, options->head_dim},
        {"attn_k_norm", 0, options->head_dim},
        {"attn_output", width, queries},
        {"post_attention_norm", 0, width},
        {"ffn_norm", 0, width},
        {"ffn_gate", inner, width},
        {"ffn_up", inner, width},
        {"ffn_down", width, inner},
        {"post_ffw_norm", 0, width},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, tensors[i].name);
        if (tensors[i].rows) {
            tiny_matrix(builder, random, name, options->type, tensors[i].rows, tensors[i].cols,
                        size);
        } else {
            tiny_vector(builder, random, name, tensors[i].cols, 0.5f);
        }
    }
}

void tiny_gemma3_add(const tiny_gemma3 *options, gguf_builder *builder)
{
    test_random random = test_random_seed(options->seed);
    add_metadata(options, builder);
    tiny_matrix(builder, &random, "token_embd.weight", options->type, TINY_SP_COUNT, options->width,
                0.5f);
    tiny_vector(builder, &random, "output_norm.weight", options->width, 0.5f);
    for (size_t layer = 0; layer < options->layers; layer++) {
        add_layer(options, builder, &random, layer);
    }
}

void *tiny_gemma3_build(const tiny_gemma3 *options, size_t *bytes)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_gemma3_add(options, builder);
    void *file = gguf_builder_finish(builder, bytes);
    gguf_builder_destroy(builder);
    return file;
}
