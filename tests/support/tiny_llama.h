// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_TINY_LLAMA_H
#define KVERN_TESTS_TINY_LLAMA_H

// Small random llama models as GGUF files in memory. The same options give the same bytes on every
// machine.

#include "engine/gguf/gguf.h"
#include "tests/support/gguf_builder.h"

typedef struct tiny_llama {
    uint32_t type; // gguf_type of the matrices; types with blocks of 256 need widths of 256
    size_t layers;
    size_t width;
    size_t heads;
    size_t kv_heads;
    size_t head_dim;
    size_t feed_forward;
    size_t vocabulary;
    size_t context_length;
    bool separate_output; // an output.weight of its own
    bool rope_factors;    // a rope_freqs.weight tensor
    float rope_linear;    // factor of linear rope scaling; 0: none
    bool biases;          // of the four matrices of attention
    // Of the last layer, where it differs; 0: as all others. Then keys are lists.
    size_t last_heads;
    size_t last_kv_heads;
    size_t last_feed_forward;
    bool byte_tokenizer; // a tokenizer: 256 bytes, then control tokens; vocabulary 260 or more
    uint32_t end_token;  // of that tokenizer
    uint64_t seed;
} tiny_llama;

// 2 layers, 4 heads on 2, a vocabulary of 100; widths of 64, or of 256 where the type needs it.
tiny_llama tiny_llama_default(uint32_t type);

// Control tokens of a byte_tokenizer.
#define TINY_LLAMA_START 256 // "<|im_start|>"
#define TINY_LLAMA_END 257   // "<|im_end|>", the end_token unless another one is set

// Adds everything to a builder, so that a test can add what a model should not have.
void tiny_llama_add(const tiny_llama *options, gguf_builder *builder);
// The metadata and the tensors alone.
void tiny_llama_add_metadata(const tiny_llama *options, gguf_builder *builder);
void tiny_llama_add_tensors(const tiny_llama *options, gguf_builder *builder);

// The whole file; free().
void *tiny_llama_build(const tiny_llama *options, size_t *bytes);

// The same as a file. The program ends when that fails.
void tiny_llama_save(const tiny_llama *options, const char *path);

#endif
