// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_STORED_H
#define KVERN_TESTS_SUPPORT_STORED_H

// What a codec makes of values, from docs/arithmetic.md alone.

#include <kvern/composition.h>
#include <stdbool.h>

// out[d]: what a slot gives back that stores the `dim` values at x, as a key or as a value.
void stored_values(const kvern_codec *codec, bool key, const float *x, size_t dim, float *out);

// Whether the codec stores rotated vectors.
bool is_rotated(const kvern_codec *codec);

// The same for an affine codec in parts: codes[d], and scales[g] and biases[g] as they are stored.
void stored_codes(const kvern_codec *codec, const float *x, size_t dim, float *codes, float *scales,
                  float *biases);

// At most the size of the terms that the stored values were made of, |scale * code| + |bias| for
// affine codes, from the stored values: what rounding errors of scores are relative to. Those of
// rotated vectors spread over all numbers: each has the size of the whole vector.
void stored_sizes(const kvern_codec *codec, const float *stored, size_t dim, double *sizes);

#endif
