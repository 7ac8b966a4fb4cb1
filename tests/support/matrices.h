// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_MATRICES_H
#define KVERN_TESTS_SUPPORT_MATRICES_H

// GGUF matrices of random blocks, for tests of the matrix products.

#include "engine/gguf/gguf.h"
#include "tests/support/random.h"

#include <stdint.h>

// The types that can be multiplied.
#define MATRIX_TYPES 14
extern const uint32_t matrix_types[MATRIX_TYPES];

typedef enum matrix_kind {
    MATRIX_ORDINARY, // random codes, scales of ordinary size and either sign
    MATRIX_LARGEST,  // all bits of all codes set, large scales
    MATRIX_SMALLEST, // all codes zero, scales that are no normal numbers
    MATRIX_MIXED,    // each block of one of these, or all zero
} matrix_kind;

#define MATRIX_KINDS 4

// The smallest number of columns that a type allows.
size_t matrix_block(uint32_t type);

// A matrix; its data is allocated and released with matrix_free. Float types hold random values.
gguf_tensor matrix_make(uint32_t type, size_t rows, size_t cols, matrix_kind kind,
                        test_random *random);

void matrix_free(gguf_tensor *tensor);

#endif
