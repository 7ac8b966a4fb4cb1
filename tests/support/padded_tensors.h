// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_PADDED_TENSORS_H
#define KVERN_TESTS_SUPPORT_PADDED_TENSORS_H

// Memory for padded planes (kvern/experimental/padded.h), full of 0xff until something is written.

#include <kvern/experimental/padded.h>

#include <stdbool.h>

typedef struct padded_tensors {
    kvern_padded_planes planes;
    size_t rows;
    size_t k_bytes, v_bytes; // of each array of the stream, none is larger
    size_t lane_bytes[3];    // likewise, of latents: latent, rope, index
} padded_tensors;

// Planes of `width` columns for the rows of a cache. A stream is given as codes where asked for,
// else as numbers of its type; latents go by k, and their other lanes are numbers of the type of v.
padded_tensors padded_create(const kvern_cache *cache, int64_t width, bool k_codes, bool v_codes,
                             kvern_type k_type, kvern_type v_type);
void padded_destroy(padded_tensors *tensors);

// The planes of a cache in the forms in which nothing is lost: codes where the rows are stored in
// them, else f32. All rows must be in one form.
padded_tensors padded_export(const kvern_cache *cache);

// Fails the test unless two have the same columns and bytes everywhere.
void padded_expect_same(const padded_tensors *wanted, const padded_tensors *got, const char *what);

#endif
