// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_TINY_TENSORS_H
#define KVERN_TESTS_TINY_TENSORS_H

// Random tensors for small models. The same random state gives the same bytes on every machine.

#include "tests/support/gguf_builder.h"
#include "tests/support/random.h"

// Adds a matrix [rows, cols] of weights of about `size`; `type` is a gguf_type.
void tiny_matrix(gguf_builder *builder, test_random *random, const char *name, uint32_t type,
                 size_t rows, size_t cols, float size);

// Adds a vector of values from 1 - spread to 1 + spread.
void tiny_vector(gguf_builder *builder, test_random *random, const char *name, size_t n,
                 float spread);

#endif
