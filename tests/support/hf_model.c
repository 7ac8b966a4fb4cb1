// SPDX-License-Identifier: MIT
#include "tests/support/hf_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 160

static void *must(void *memory)
{
    if (!memory) {
        abort();
    }
    return memory;
}

// A text that grows.
typedef struct text {
    char *data;
    size_t size, room;
} text;

static void add_text(text *t, const char *more)
{
    size_t size = strlen(more);
    if (t->size + size + 1 > t->room) {
        t->room = 2 * (t->size + size + 1);
        t->data = must(realloc(t->data, t->room));
    }
    memcpy(t->data + t->size, more, size + 1);
    t->size += size;
}

struct safetensors_builder {
    text header;
    unsigned char *data;
    size_t bytes;
};

safetensors_builder *safetensors_builder_create(void)
{
    safetensors_builder *builder = must(calloc(1, sizeof *builder));
    add_text(&builder->header, "{\"__metadata__\": {\"format\": \"pt\"}");
    return builder;
}

void safetensors_builder_destroy(safetensors_builder *builder)
{
    free(builder->header.data);
    free(builder->data);
    free(builder);
}

void safetensors_builder_add(safetensors_builder *builder, const char *name, const char *dtype,
                             size_t dims, const uint64_t *shape, const void *data, size_t bytes)
{
    char part[2 * NAME_BYTES];
    snprintf(part, sizeof part, ", \"%s\": {\"dtype\": \"%s\", \"shape\": [", name, dtype);
    add_text(&builder->header, part);
    for (size_t i = 0; i < dims; i++) {
        snprintf(part, sizeof part, "%s%" PRIu64, i ? ", " : "", shape[i]);
        add_text(&builder->header, part);
    }
    snprintf(part, sizeof part, "], \"data_offsets\": [%zu, %zu]}", builder->bytes,
             builder->bytes + bytes);
    add_text(&builder->header, part);
    builder->data = must(realloc(builder->data, builder->bytes + bytes + 1));
    memcpy(builder->data + builder->bytes, data, bytes);
    builder->bytes += bytes;
}

void *safetensors_builder_finish(const safetensors_builder *builder, size_t *bytes)
{
    uint64_t length = builder->header.size + 1;
    unsigned char *file = must(malloc(8 + length + builder->bytes));
    for (size_t i = 0; i < 8; i++) {
        file[i] = (unsigned char)(length >> (8 * i));
    }
    memcpy(file + 8, builder->header.data, builder->header.size);
    file[8 + builder->header.size] = '}';
    if (builder->bytes > 0) {
        memcpy(file + 8 + length, builder->data, builder->bytes);
    }
    *bytes = 8 + length + builder->bytes;
    return file;
}

// ---- From GGUF. ----

// What training code calls a tensor, whose GGUF name has no "blk.N." any more.
static const char *hf_name(bool gemma3, const char *name)
{
    static const char *const names[][3] = {
        {"token_embd.weight", "model.embed_tokens.weight", NULL},
        {"output_norm.weight", "model.norm.weight", NULL},
        {"output.weight", "lm_head.weight", NULL},
        {"attn_norm.weight", "input_layernorm.weight", NULL},
        {"attn_q.weight", "self_attn.q_proj.weight", NULL},
        {"attn_k.weight", "self_attn.k_proj.weight", NULL},
        {"attn_v.weight", "self_attn.v_proj.weight", NULL},
        {"attn_output.weight", "self_attn.o_proj.weight", NULL},
        {"attn_q.bias", "self_attn.q_proj.bias", NULL},
        {"attn_k.bias", "self_attn.k_proj.bias", NULL},
        {"attn_v.bias", "self_attn.v_proj.bias", NULL},
        {"attn_output.bias", "self_attn.o_proj.bias", NULL},
        {"attn_q_norm.weight", "self_attn.q_norm.weight", NULL},
        {"attn_k_norm.weight", "self_attn.k_norm.weight", NULL},
        {"ffn_gate.weight", "mlp.gate_proj.weight", NULL},
        {"ffn_up.weight", "mlp.up_proj.weight", NULL},
        {"ffn_down.weight", "mlp.down_proj.weight", NULL},
        {"post_attention_norm.weight", "post_attention_layernorm.weight", NULL},
        {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", NULL},
        {"ffn_norm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], name) == 0) {
            return gemma3 && names[i][2] ? names[i][2] : names[i][1];
        }
    }
    abort();
}

// Puts the two halves of every head behind each other: row 2 i + h of a head becomes row
// h * dim / 2 + i.
static void by_halves(const unsigned char *in, size_t rows, size_t row_bytes, size_t dim,
                      unsigned char *out)
{
    for (size_t r = 0; r < rows; r++) {
        size_t in_head = r % dim;
        size_t to = r - in_head + in_head % 2 * (dim / 2) + in_head / 2;
        memcpy(out + to * row_bytes, in + r * row_bytes, row_bytes);
    }
}

// The bytes of a tensor as training code has them; free().
static void *converted(const gguf_tensor *tensor, const char *name, const model_facts *facts,
                       bool gemma3)
{
    unsigned char *data = must(malloc(tensor->bytes));
    size_t rows = tensor->dims == 2 ? (size_t)tensor->shape[1] : (size_t)tensor->shape[0];
    bool rotates = strncmp(name, "attn_q.", 7) == 0 || strncmp(name, "attn_k.", 7) == 0;
    memcpy(data, tensor->data, tensor->bytes);
    if (rotates && !gemma3) {
        by_halves(tensor->data, rows, tensor->bytes / rows, facts->layer[0].head_dim, data);
    }
    if (gemma3 && strstr(name, "norm")) { // exact between a half and two
        float *weights = (float *)(void *)data;
        for (size_t i = 0; i < rows; i++) {
            weights[i] -= 1;
        }
    }
    return data;
}

static void add_tensor(safetensors_builder *builder, const gguf_tensor *tensor, const char *name,
                       const void *data)
{
    const char *dtype = tensor->type == GGUF_TYPE_F32   ? "F32"
                        : tensor->type == GGUF_TYPE_F16 ? "F16"
                                                        : "BF16";
    const uint64_t vector[] = {tensor->shape[0]}, matrix[] = {tensor->shape[1], tensor->shape[0]};
    safetensors_builder_add(builder, name, dtype, tensor->dims, tensor->dims == 2 ? matrix : vector,
                            data, tensor->bytes);
}

static void add_number(text *t, const char *key, double value)
{
    char part[NAME_BYTES];
    snprintf(part, sizeof part, ", \"%s\": %.17g", key, value);
    add_text(t, part);
}

static void add_windows(text *config, const model_facts *facts)
{
    add_text(config, ", \"layer_types\": [");
    for (size_t i = 0; i < facts->layers; i++) {
        bool windowed = facts->layer[i].kind == MODEL_LAYER_WINDOW;
        add_text(config, i ? ", " : "");
        add_text(config, windowed ? "\"sliding_attention\"" : "\"full_attention\"");
    }
    add_text(config, "]");
    add_number(config, "sliding_window", (double)facts->layer[0].window);
    add_number(config, "rope_local_base_freq", (double)facts->rope[1].base);
    add_number(config, "query_pre_attn_scalar", (double)facts->layer[0].head_dim);
    add_text(config, ", \"hidden_activation\": \"gelu_pytorch_tanh\"");
    add_text(config, ", \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null");
}

static char *make_config(const gguf_file *file, const model_facts *facts, bool gemma3)
{
    text config = {0};
    add_text(&config, gemma3 ? "{\"model_type\": \"gemma3_text\"" : "{\"model_type\": \"llama\"");
    add_number(&config, "num_hidden_layers", (double)facts->layers);
    add_number(&config, "hidden_size", (double)facts->width);
    add_number(&config, "intermediate_size", (double)facts->layer[0].feed_forward);
    add_number(&config, "max_position_embeddings", (double)facts->context_length);
    add_number(&config, "num_attention_heads", (double)facts->layer[0].heads);
    add_number(&config, "num_key_value_heads", (double)facts->layer[0].kv_heads);
    add_number(&config, "head_dim", (double)facts->layer[0].head_dim);
    add_number(&config, "rms_norm_eps", (double)facts->norm_epsilon);
    add_number(&config, "rope_theta", (double)facts->rope[0].base);
    add_number(&config, "vocab_size", (double)facts->vocabulary);
    add_text(&config, facts->tied_output ? ", \"tie_word_embeddings\": true"
                                         : ", \"tie_word_embeddings\": false");
    if (gemma3) {
        add_windows(&config, facts);
    } else {
        bool biases = gguf_find_tensor(file, "blk.0.attn_q.bias") != NULL;
        add_text(&config, biases ? ", \"attention_bias\": true" : ", \"attention_bias\": false");
        add_text(&config, ", \"hidden_act\": \"silu\", \"torch_dtype\": \"float32\"");
    }
    if (facts->rope[0].scaling == MODEL_ROPE_LINEAR) {
        add_text(&config, ", \"rope_scaling\": {\"rope_type\": \"linear\"");
        add_number(&config, "factor", (double)facts->rope[0].factor);
        add_text(&config, "}");
    } else {
        add_text(&config, ", \"rope_scaling\": null");
    }
    add_text(&config, "}");
    return config.data;
}

hf_model hf_model_of(const gguf_file *file, const model_facts *facts)
{
    bool gemma3 = text_view_is(facts->architecture, "gemma3");
    hf_model model = {.config = make_config(file, facts, gemma3)};
    safetensors_builder *all = safetensors_builder_create();
    safetensors_builder *part[2] = {safetensors_builder_create(), safetensors_builder_create()};
    text index = {0};
    add_text(&index, "{\"metadata\": {}, \"weight_map\": {");
    for (size_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        char name[NAME_BYTES], own[NAME_BYTES], entry[2 * NAME_BYTES];
        unsigned layer;
        int behind = 0;
        snprintf(own, sizeof own, "%.*s", (int)tensor->name.size, tensor->name.data);
        if (sscanf(own, "blk.%u.%n", &layer, &behind) == 1 && behind > 0) {
            snprintf(name, sizeof name, "model.layers.%u.%s", layer, hf_name(gemma3, own + behind));
        } else {
            snprintf(name, sizeof name, "%s", hf_name(gemma3, own));
        }
        void *data = converted(tensor, own + behind, facts, gemma3);
        add_tensor(all, tensor, name, data);
        add_tensor(part[i % 2], tensor, name, data);
        free(data);
        snprintf(entry, sizeof entry, "%s\"%s\": \"model-0000%zu-of-00002.safetensors\"",
                 i ? ", " : "", name, i % 2 + 1);
        add_text(&index, entry);
    }
    add_text(&index, "}}");
    model.index = index.data;
    model.tensors = safetensors_builder_finish(all, &model.tensor_bytes);
    safetensors_builder_destroy(all);
    for (size_t i = 0; i < 2; i++) {
        model.shard[i] = safetensors_builder_finish(part[i], &model.shard_bytes[i]);
        safetensors_builder_destroy(part[i]);
    }
    return model;
}

void hf_model_free(hf_model *model)
{
    free(model->config);
    free(model->tensors);
    free(model->shard[0]);
    free(model->shard[1]);
    free(model->index);
}
