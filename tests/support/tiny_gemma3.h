// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_TINY_GEMMA3_H
#define KVERN_TESTS_TINY_GEMMA3_H

// Small random Gemma 3 models as GGUF files in memory, with the vocabulary of tiny_sentencepiece.h.
// The same options give the same bytes on every machine.

#include "tests/support/gguf_builder.h"

typedef struct tiny_gemma3 {
    uint32_t type; // gguf_type of the matrices; types with blocks of 256 need widths of 256
    size_t layers;
    size_t width;
    size_t heads;
    size_t kv_heads;
    size_t head_dim;
    size_t feed_forward;
    size_t context_length;
    size_t window;             // 0: no key
    size_t full_every;         // 0: no key, which means 6
    bool window_list;          // the pattern is written as a list of booleans
    float window_base;         // 0: no key, which means 10000
    float rope_linear;         // factor of linear rope scaling; 0: none
    float attention_scale;     // 0: no key
    float attention_softcap;   // 0: no key
    float logit_softcap;       // 0: no key
    const char *chat_template; // NULL: none
    uint64_t seed;
} tiny_gemma3;

// 7 layers with a window of 12, of which one is full; 4 heads on 2; widths of 64, or of 256 where
// the type needs it.
tiny_gemma3 tiny_gemma3_default(uint32_t type);

// Adds everything to a builder, so that a test can add what a model should not have.
void tiny_gemma3_add(const tiny_gemma3 *options, gguf_builder *builder);

// The whole file; free().
void *tiny_gemma3_build(const tiny_gemma3 *options, size_t *bytes);

#endif
