// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_NAIVE_GEMMA3_H
#define KVERN_TESTS_NAIVE_GEMMA3_H

// A Gemma 3 forward pass in float64: see naive_parts.h. What the file says is taken from
// `expected`, which the test states itself, so that a key that is read wrongly is seen.

#include "tests/support/naive_parts.h"

typedef struct naive_gemma3 {
    size_t window;     // of window layers
    size_t full_every; // layers i with (i + 1) % full_every == 0 see everything
    double window_base;
    double full_base;
    double full_factor; // positions of full layers are divided by it
    double embedding_scale;
    double attention_scale;
    double attention_softcap; // 0: none
    double logit_softcap;     // 0: none
} naive_gemma3;

// Logits [count, vocabulary] of one row of tokens. noise may be NULL. Running out of memory ends
// the program.
void naive_gemma3_logits(const gguf_file *file, const model_facts *facts,
                         const naive_gemma3 *expected, const int32_t *tokens, size_t count,
                         const naive_noise *noise, double *logits);

#endif
