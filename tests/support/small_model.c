// SPDX-License-Identifier: MIT
#include "tests/support/small_model.h"

#include "tests/support/gguf_builder.h"
#include "tests/support/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 2,
    WIDTH = 264, // at least the vocabulary, so that every token has its own direction
    HEADS = 4,
    KV_HEADS = 2,
    HEAD_DIM = 8,
    FEED_FORWARD = 32
};

static const char CHATML[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

typedef struct small_writer {
    gguf_builder *builder;
    const small_model *options;
    test_random random;
} small_writer;

// The character that stands for a byte in a byte-level vocabulary: printable ones for themselves,
// the others for U+0100 and up.
static void byte_text(unsigned byte, char text[4])
{
    unsigned point = byte, shifted = 256;
    for (unsigned b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        point = printable ? b : shifted++;
    }
    if (point < 128) {
        snprintf(text, 4, "%c", (char)point);
    } else {
        snprintf(text, 4, "%c%c", (char)(0xc0 | point >> 6), (char)(0x80 | (point & 0x3f)));
    }
}

static void write_vocabulary(small_writer *writer)
{
    char bytes[256][4];
    const char *tokens[SMALL_MODEL_VOCABULARY];
    int32_t types[SMALL_MODEL_VOCABULARY];
    for (unsigned b = 0; b < 256; b++) {
        byte_text(b, bytes[b]);
        tokens[b] = bytes[b];
        types[b] = 1;
    }
    static const char *const OTHERS[] = {"he", "ll", "<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (unsigned i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        tokens[256 + i] = OTHERS[i];
        types[256 + i] = i < 2 ? 1 : 3; // ordinary, control
    }
    if (writer->options->mark_type) {
        types[SMALL_MODEL_IM_START] = types[SMALL_MODEL_IM_END] = writer->options->mark_type;
    }
    static const char *const MERGES[] = {"h e", "l l"};
    gguf_builder_string(writer->builder, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(writer->builder, "tokenizer.ggml.pre",
                        writer->options->no_pre ? "default" : "smollm");
    gguf_builder_strings(writer->builder, "tokenizer.ggml.tokens", tokens, SMALL_MODEL_VOCABULARY);
    gguf_builder_array(writer->builder, "tokenizer.ggml.token_type", GGUF_INT32, types,
                       SMALL_MODEL_VOCABULARY);
    gguf_builder_strings(writer->builder, "tokenizer.ggml.merges", MERGES, 2);
    gguf_builder_u32(writer->builder, "tokenizer.ggml.bos_token_id", SMALL_MODEL_IM_START);
    gguf_builder_u32(writer->builder, "tokenizer.ggml.eos_token_id",
                     writer->options->other_end ? SMALL_MODEL_END_OF_TEXT : SMALL_MODEL_IM_END);
    gguf_builder_bool(writer->builder, "tokenizer.ggml.add_bos_token", false);
}

static void write_metadata(small_writer *writer)
{
    gguf_builder *builder = writer->builder;
    const small_model *options = writer->options;
    const char *chat = options->chat ? options->chat : CHATML;
    gguf_builder_string(builder, "general.architecture",
                        options->architecture ? options->architecture : "llama");
    gguf_builder_string(builder, "general.name", "small\tmodel");
    gguf_builder_u32(builder, "llama.block_count", LAYERS);
    gguf_builder_u32(builder, "llama.embedding_length", WIDTH);
    gguf_builder_u32(builder, "llama.feed_forward_length", FEED_FORWARD);
    gguf_builder_u32(builder, "llama.context_length",
                     options->context ? (uint32_t)options->context : 256);
    gguf_builder_u32(builder, "llama.attention.head_count", HEADS);
    gguf_builder_u32(builder, "llama.attention.head_count_kv", KV_HEADS);
    gguf_builder_u32(builder, "llama.attention.key_length", HEAD_DIM);
    gguf_builder_u32(builder, "llama.attention.value_length", HEAD_DIM);
    gguf_builder_f32(builder, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_builder_f32(builder, "llama.rope.freq_base", 10000.0f);
    gguf_builder_u32(builder, "llama.rope.dimension_count", HEAD_DIM);
    if (chat[0]) {
        gguf_builder_string(builder, "tokenizer.chat_template", chat);
    }
}

static void write_tensor(small_writer *writer, const char *name, size_t rows, size_t columns,
                         const float *values)
{
    gguf_builder_tensor(writer->builder, name, GGUF_TYPE_F32, rows ? 2 : 1,
                        (uint64_t[]){columns, rows}, values,
                        (rows ? rows : 1) * columns * sizeof *values);
}

// A matrix of random values, or of zeroes when the answer is given; `rows` 0: a vector of ones.
static void write_plain(small_writer *writer, const char *name, size_t rows, size_t columns)
{
    size_t count = (rows ? rows : 1) * columns;
    float *values = calloc(count, sizeof *values);
    if (!values) {
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        bool random = rows && !writer->options->answer;
        values[i] = random ? test_random_signed(&writer->random) * 0.3f : rows ? 0 : 1;
    }
    write_tensor(writer, name, rows, columns, values);
    free(values);
}

static void write_layer(small_writer *writer, unsigned layer)
{
    static const struct {
        const char *name;
        size_t rows, columns;
    } TENSORS[] = {
        {"attn_norm", 0, WIDTH},
        {"attn_q", HEADS * HEAD_DIM, WIDTH},
        {"attn_k", KV_HEADS * HEAD_DIM, WIDTH},
        {"attn_v", KV_HEADS * HEAD_DIM, WIDTH},
        {"attn_output", WIDTH, HEADS * HEAD_DIM},
        {"ffn_norm", 0, WIDTH},
        {"ffn_gate", FEED_FORWARD, WIDTH},
        {"ffn_up", FEED_FORWARD, WIDTH},
        {"ffn_down", WIDTH, FEED_FORWARD},
    };
    for (size_t i = 0; i < sizeof TENSORS / sizeof TENSORS[0]; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, TENSORS[i].name);
        write_plain(writer, name, TENSORS[i].rows, TENSORS[i].columns);
    }
}

// Token t is direction t.
static void write_chain_embedding(small_writer *writer)
{
    static float values[SMALL_MODEL_VOCABULARY * WIDTH];
    for (size_t t = 0; t < SMALL_MODEL_VOCABULARY; t++) {
        values[t * WIDTH + t] = 1;
    }
    write_tensor(writer, "token_embd.weight", SMALL_MODEL_VOCABULARY, WIDTH, values);
}

// The output matrix looks in direction t for the token that follows t.
static void write_chain_output(small_writer *writer)
{
    static float values[SMALL_MODEL_VOCABULARY * WIDTH];
    const unsigned char *answer = (const unsigned char *)writer->options->answer;
    size_t next[SMALL_MODEL_VOCABULARY];
    for (size_t t = 0; t < SMALL_MODEL_VOCABULARY; t++) {
        next[t] = writer->options->turn_end ? writer->options->turn_end : SMALL_MODEL_IM_END;
    }
    size_t from = '\n';
    for (size_t i = 0; answer[i]; i++) {
        next[from] = answer[i];
        from = answer[i];
    }
    if (writer->options->endless) {
        next[from] = answer[0];
    }
    memset(values, 0, sizeof values);
    for (size_t t = 0; t < SMALL_MODEL_VOCABULARY; t++) {
        values[next[t] * WIDTH + t] = 4; // times the root of WIDTH after the norm
    }
    write_tensor(writer, "output.weight", SMALL_MODEL_VOCABULARY, WIDTH, values);
}

static void write_tensors(small_writer *writer)
{
    if (writer->options->answer) {
        write_chain_embedding(writer);
        write_chain_output(writer);
    } else {
        write_plain(writer, "token_embd.weight", SMALL_MODEL_VOCABULARY, WIDTH);
        write_plain(writer, "output.weight", SMALL_MODEL_VOCABULARY, WIDTH);
    }
    write_plain(writer, "output_norm.weight", 0, WIDTH);
    for (unsigned layer = 0; layer < LAYERS; layer++) {
        write_layer(writer, layer);
    }
}

void small_model_save(const small_model *options, const char *path)
{
    small_writer writer = {gguf_builder_create(), options, test_random_seed(1)};
    write_metadata(&writer);
    write_vocabulary(&writer);
    write_tensors(&writer);
    gguf_builder_save(writer.builder, path);
    gguf_builder_destroy(writer.builder);
}
