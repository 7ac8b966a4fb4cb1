// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_TINY_TOKENIZER_H
#define KVERN_TESTS_TINY_TOKENIZER_H

// A byte-level vocabulary small enough to know by heart: special tokens, all bytes, a few merges.
//
//   gguf_builder *builder = gguf_builder_create();
//   tiny_tokenizer_metadata(builder, "gpt-2");
//   ... gguf_builder_finish, gguf_open_memory, tokenizer_create ...
//
// or tiny_tokenizer_create, which does all of that.

#include "engine/tokenizer/tokenizer.h"
#include "tests/support/gguf_builder.h"

// Ids. The byte b is token TINY_BYTE + b; the product of merge i is TINY_MERGE + i, except for the
// last merge, which makes the control token TINY_EVIL.
enum {
    TINY_ENDOFTEXT, // "<|endoftext|>", control
    TINY_IM_START,  // "<|im_start|>", control; the file's BOS
    TINY_IM_END,    // "<|im_end|>", control; the file's EOS
    TINY_TOOL,      // "<tool>", user-defined
    TINY_TOOL_CALL, // "<tool>call", user-defined
    TINY_UNKNOWN,   // "<unk>"
    TINY_UNUSED,    // "[PAD6]"
    TINY_EVIL,      // "evil", control
    TINY_EMPTY,     // "", user-defined
    TINY_BYTE,
    TINY_MERGE = TINY_BYTE + 256
};

// Merges, as text ("he ll") in the order of rank.
extern const char *const tiny_merges[];
extern const size_t tiny_merge_count;

// The pieces of tiny_tokenizer_metadata, for tests that leave one out or write it otherwise.
void tiny_tokenizer_names(gguf_builder *builder, const char *pre); // model and pre (NULL: no key)
void tiny_tokenizer_tokens(gguf_builder *builder);
void tiny_tokenizer_types(gguf_builder *builder);
void tiny_tokenizer_merges(gguf_builder *builder);
void tiny_tokenizer_ids(gguf_builder *builder);
void tiny_tokenizer_metadata(gguf_builder *builder, const char *pre);

// As the file writes it.
const char *tiny_token_text(size_t id);
size_t tiny_token_count(void);

// Turns a builder, which it uses up, into a tokenizer.
kvern_status tiny_tokenizer_build(gguf_builder *builder, tokenizer **out, engine_error *error);

// Ends the program when it fails.
tokenizer *tiny_tokenizer_create(const char *pre);

#endif
