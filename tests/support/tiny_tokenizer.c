// SPDX-License-Identifier: MIT
#include "tests/support/tiny_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const special_texts[TINY_BYTE] = {
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", "<tool>call",
    "<unk>",         "[PAD6]",       "evil",       "",
};
static const int32_t special_types[TINY_BYTE] = {3, 3, 3, 4, 4, 2, 5, 3, 4};

#define NORMAL 1
#define LONGEST 32

// "Ġ" is the space, "Ċ" the line feed, "Ã" and "©" the two bytes of é.
const char *const tiny_merges[] = {
    "Ġ t", "h e",   "Ġt he",  "i n",    "e r",  "l l",   "he ll",     "Ġ Ġ", "ĠĠ ĠĠ",
    "Ċ Ċ", "Ã ©",   "1 2",    "a a",    "aa a", "aa aa", "aaaa aaaa", "' s", "b c",
    "a b", "ab bc", "hell o", "Ġ hell", "e v",  "i l",   "ev il",
};
const size_t tiny_merge_count = sizeof tiny_merges / sizeof *tiny_merges;

#define PRODUCT_COUNT (sizeof tiny_merges / sizeof *tiny_merges - 1)
#define TOKEN_COUNT (TINY_MERGE + PRODUCT_COUNT)

static char texts[TOKEN_COUNT][LONGEST];

static bool is_printable(unsigned byte)
{
    return (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
}

static void write_byte_texts(void)
{
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        const unsigned code = is_printable(byte) ? byte : next++;
        char *text = texts[TINY_BYTE + byte];
        if (code < 0x80)
            snprintf(text, LONGEST, "%c", (int)code);
        else
            snprintf(text, LONGEST, "%c%c", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
    }
}

static void write_texts(void)
{
    if (texts[0][0])
        return;
    write_byte_texts();
    for (size_t i = 0; i < PRODUCT_COUNT; i++) {
        const char *space = strchr(tiny_merges[i], ' ');
        snprintf(texts[TINY_MERGE + i], LONGEST, "%.*s%s", (int)(space - tiny_merges[i]),
                 tiny_merges[i], space + 1);
    }
    for (size_t i = 0; i < TINY_BYTE; i++)
        snprintf(texts[i], LONGEST, "%s", special_texts[i]);
}

const char *tiny_token_text(size_t id)
{
    write_texts();
    return texts[id];
}

size_t tiny_token_count(void)
{
    return TOKEN_COUNT;
}

void tiny_tokenizer_names(gguf_builder *builder, const char *pre)
{
    gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
    if (pre)
        gguf_builder_string(builder, "tokenizer.ggml.pre", pre);
}

void tiny_tokenizer_tokens(gguf_builder *builder)
{
    const char *pointers[TOKEN_COUNT];
    for (size_t i = 0; i < TOKEN_COUNT; i++)
        pointers[i] = tiny_token_text(i);
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", pointers, TOKEN_COUNT);
}

void tiny_tokenizer_types(gguf_builder *builder)
{
    int32_t types[TOKEN_COUNT];
    for (size_t i = 0; i < TOKEN_COUNT; i++)
        types[i] = i < TINY_BYTE ? special_types[i] : NORMAL;
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, TOKEN_COUNT);
}

void tiny_tokenizer_merges(gguf_builder *builder)
{
    gguf_builder_strings(builder, "tokenizer.ggml.merges", tiny_merges, tiny_merge_count);
}

void tiny_tokenizer_ids(gguf_builder *builder)
{
    gguf_builder_u32(builder, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gguf_builder_u32(builder, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gguf_builder_u32(builder, "tokenizer.ggml.unknown_token_id", TINY_UNKNOWN);
}

void tiny_tokenizer_metadata(gguf_builder *builder, const char *pre)
{
    tiny_tokenizer_names(builder, pre);
    tiny_tokenizer_tokens(builder);
    tiny_tokenizer_types(builder);
    tiny_tokenizer_merges(builder);
    tiny_tokenizer_ids(builder);
}

kvern_status tiny_tokenizer_build(gguf_builder *builder, tokenizer **out, engine_error *error)
{
    gguf_file *file;
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    *out = NULL;
    kvern_status status = gguf_open_memory(data, bytes, &file, error);
    if (status == KVERN_OK)
        status = tokenizer_create(file, NULL, out, error);
    gguf_close(file);
    // A tokenizer must not look at its file any more.
    memset(data, 0xee, bytes);
    free(data);
    return status;
}

tokenizer *tiny_tokenizer_create(const char *pre)
{
    tokenizer *t;
    engine_error error = {0};
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, pre);
    if (tiny_tokenizer_build(builder, &t, &error) != KVERN_OK) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    return t;
}
