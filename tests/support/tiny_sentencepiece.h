// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_TINY_SENTENCEPIECE_H
#define KVERN_TESTS_TINY_SENTENCEPIECE_H

// A SentencePiece vocabulary small enough to know by heart: special tokens, all bytes, a few
// characters, and pieces whose scores say which is merged first. tiny_tokenizer_build turns a
// builder into a tokenizer.

#include "tests/support/gguf_builder.h"

// Ids. The byte b is token TINY_SP_BYTE + b.
enum {
    TINY_SP_PAD,        // "<pad>", control
    TINY_SP_EOS,        // "<eos>", control
    TINY_SP_BOS,        // "<bos>", control
    TINY_SP_UNKNOWN,    // "<unk>"
    TINY_SP_START,      // "<start_of_turn>", control
    TINY_SP_END,        // "<end_of_turn>", control
    TINY_SP_TWO_SPACES, // "  ", user-defined
    TINY_SP_LINE,       // "\n", user-defined
    TINY_SP_BYTE,
    TINY_SP_SPACE = TINY_SP_BYTE + 256,
    TINY_SP_A,
    TINY_SP_B,
    TINY_SP_C,
    TINY_SP_E_ACUTE,
    TINY_SP_SPACE_A,  // " a", score -1
    TINY_SP_AB,       // score -2
    TINY_SP_BC,       // score -2
    TINY_SP_ABC,      // score -3
    TINY_SP_SPACE_AB, // score -4
    TINY_SP_COUNT
};

// The parts of tiny_sp_metadata, for tests that write one otherwise.
void tiny_sp_names(gguf_builder *builder); // the kind, and no space prefix
void tiny_sp_tokens(gguf_builder *builder);
void tiny_sp_types(gguf_builder *builder);
void tiny_sp_scores(gguf_builder *builder);
void tiny_sp_ids(gguf_builder *builder);
void tiny_sp_metadata(gguf_builder *builder);

#endif
