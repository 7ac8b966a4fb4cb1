// SPDX-License-Identifier: MIT
#include "tests/support/tiny_sentencepiece.h"

#include <stdio.h>

#define LONGEST 16

typedef struct token {
    const char *text;
    int32_t type;
    float score;
} token;

static const token first[TINY_SP_BYTE] = {
    {"<pad>", 3, 0},           {"<eos>", 3, 0},         {"<bos>", 3, 0}, {"<unk>", 2, 0},
    {"<start_of_turn>", 3, 0}, {"<end_of_turn>", 3, 0}, {"  ", 4, 0},    {"\n", 4, 0},
};

static const token last[TINY_SP_COUNT - TINY_SP_SPACE] = {
    {"\u2581", 1, -10}, {"a", 1, -11}, {"b", 1, -12}, {"c", 1, -13},  {"\u00e9", 1, -14},
    {"\u2581a", 1, -1}, {"ab", 1, -2}, {"bc", 1, -2}, {"abc", 1, -3}, {"\u2581ab", 1, -4},
};

static token token_at(size_t id, char text[LONGEST])
{
    const token byte = {text, 6, 0};
    snprintf(text, LONGEST, "<0x%02X>", (unsigned)(id - TINY_SP_BYTE) & 0xff);
    return id < TINY_SP_BYTE ? first[id] : id < TINY_SP_SPACE ? byte : last[id - TINY_SP_SPACE];
}

void tiny_sp_names(gguf_builder *builder)
{
    gguf_builder_string(builder, "tokenizer.ggml.model", "llama");
    gguf_builder_string(builder, "tokenizer.ggml.pre", "default");
    gguf_builder_bool(builder, "tokenizer.ggml.add_space_prefix", false);
}

void tiny_sp_tokens(gguf_builder *builder)
{
    static char texts[TINY_SP_COUNT][LONGEST];
    const char *pointers[TINY_SP_COUNT];
    for (size_t id = 0; id < TINY_SP_COUNT; id++)
        pointers[id] = token_at(id, texts[id]).text;
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", pointers, TINY_SP_COUNT);
}

void tiny_sp_types(gguf_builder *builder)
{
    int32_t types[TINY_SP_COUNT];
    char text[LONGEST];
    for (size_t id = 0; id < TINY_SP_COUNT; id++)
        types[id] = token_at(id, text).type;
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, TINY_SP_COUNT);
}

void tiny_sp_scores(gguf_builder *builder)
{
    float scores[TINY_SP_COUNT];
    char text[LONGEST];
    for (size_t id = 0; id < TINY_SP_COUNT; id++)
        scores[id] = token_at(id, text).score;
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, TINY_SP_COUNT);
}

void tiny_sp_ids(gguf_builder *builder)
{
    gguf_builder_u32(builder, "tokenizer.ggml.bos_token_id", TINY_SP_BOS);
    gguf_builder_u32(builder, "tokenizer.ggml.eos_token_id", TINY_SP_EOS);
    gguf_builder_u32(builder, "tokenizer.ggml.unknown_token_id", TINY_SP_UNKNOWN);
    gguf_builder_u32(builder, "tokenizer.ggml.padding_token_id", TINY_SP_PAD);
}

void tiny_sp_metadata(gguf_builder *builder)
{
    tiny_sp_names(builder);
    tiny_sp_tokens(builder);
    tiny_sp_types(builder);
    tiny_sp_scores(builder);
    tiny_sp_ids(builder);
}
