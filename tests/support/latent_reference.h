// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LATENT_REFERENCE_H
#define KVERN_TESTS_SUPPORT_LATENT_REFERENCE_H

// Latent attention by its definition, in double precision, and how far results in float32 may be
// from it, whichever way they were computed.

#include <stddef.h>
#include <stdint.h>

#define LATENT_REFERENCE_VALUES 128

// One head: nope rows of [latent] numbers for its keys, value rows for its values; what its query
// sees, packed.
typedef struct latent_head {
    size_t latent, rope, nope, value; // value at most LATENT_REFERENCE_VALUES
    const float *key_rows, *value_rows;
    const float *latents, *ropes; // [positions][latent], [positions][rope]
    const float *q;               // [nope + rope]
    double scale;
} latent_head;

typedef struct latent_result {
    double out[LATENT_REFERENCE_VALUES];
    double value_size; // of what a result is a mean of
    double tolerance;  // of results in float32
} latent_result;

// The result over `count` of the positions: those listed, or the first ones (NULL).
latent_result latent_reference(const latent_head *head, const int64_t *positions, int64_t count);

#endif
