// SPDX-License-Identifier: MIT
// Writes the seeds of the fuzz target tokenizer_file into a folder: small files with every key that
// the tokenizer and the chat templates read. `make_tokenizer_file_corpus
// tests/fuzz/corpus/tokenizer_file`

#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tokenizer.h"

#include <stdio.h>

static void save(gguf_builder *builder, const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gguf_builder_save(builder, path);
    gguf_builder_destroy(builder);
}

// A few tokens, so that the fuzzer changes something in each of them.
static void make_small(const char *folder, const char *pre, const char *name)
{
    static const char *const tokens[] = {"a",        "b",    "ab",         "\u0120",
                                         "\u0120ab", "abab", "<|im_end|>", "1"};
    static const char *const merges[] = {"a b", "\u0120 ab", "ab ab"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 3, 4};
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_names(builder, pre);
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", tokens, 8);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, 8);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", merges, 3);
    gguf_builder_u32(builder, "tokenizer.ggml.bos_token_id", 6);
    gguf_builder_u32(builder, "tokenizer.ggml.eos_token_id", 6);
    gguf_builder_bool(builder, "tokenizer.ggml.add_bos_token", true);
    gguf_builder_string(builder, "tokenizer.chat_template",
                        "{{ '<|im_start|>system\\nab\\'<|im_end|>' }}");
    save(builder, folder, name);
}

static void make_whole(const char *folder)
{
    gguf_builder *builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "qwen2");
    gguf_builder_u32(builder, "tokenizer.ggml.eot_token_id", TINY_IM_END);
    gguf_builder_u32(builder, "tokenizer.ggml.padding_token_id", TINY_UNUSED);
    gguf_builder_string(builder, "tokenizer.chat_template", "[INST]");
    save(builder, folder, "whole");
}

static void make_pieces(const char *folder, bool said, const char *name)
{
    gguf_builder *builder = gguf_builder_create();
    if (said)
        tiny_sp_names(builder);
    else
        gguf_builder_string(builder, "tokenizer.ggml.model", "llama");
    tiny_sp_tokens(builder);
    tiny_sp_types(builder);
    tiny_sp_scores(builder);
    tiny_sp_ids(builder);
    gguf_builder_string(builder, "tokenizer.chat_template", "<start_of_turn>");
    save(builder, folder, name);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_tokenizer_file_corpus FOLDER\n");
        return 2;
    }
    make_small(argv[1], "smollm", "small");
    make_small(argv[1], "llama-bpe", "whole_words");
    make_small(argv[1], NULL, "no_pre");
    make_whole(argv[1]);
    make_pieces(argv[1], true, "pieces");
    make_pieces(argv[1], false, "pieces_prefix");
    return 0;
}
