// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_NAIVE_LLAMA_H
#define KVERN_TESTS_NAIVE_LLAMA_H

// A llama forward pass in float64: see naive_parts.h.

#include "tests/support/naive_parts.h"

// Logits [count, vocabulary] of one row of tokens. noise may be NULL. Running out of memory ends
// the program.
void naive_llama_logits(const gguf_file *file, const model_facts *facts, const int32_t *tokens,
                        size_t count, const naive_noise *noise, double *logits);

#endif
