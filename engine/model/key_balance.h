// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_KEY_BALANCE_H
#define KVERN_ENGINE_KEY_BALANCE_H

// Makes keys bear few bits better, at no cost and without a change to any result in bf16.
//
// A score is the sum of q[d] * k[d]. Some models learn large norm weights for a number of their
// keys and small ones for the same number of their queries. Such a number decides little and yet
// sets the scale that a quantized key is stored with. Where a key is multiplied by s[d] and the
// query divided by it, the score is the same, and the error of it is least when both are as large
// as each other: s[d] = sqrt(|q[d]| / |k[d]|) (the balance of SmoothQuant and SmoothAttention).
// Queries and keys that a norm made have one size each but for the weights of their norms, so the
// weights alone tell s: no text has to be run through the model.
//
// s is a power of two and the same for the two numbers of a rotary pair. Then every product, the
// rotation and the rounding to bf16 are exactly what they would be without it.

#include "engine/kernels/rope.h"

#include <stddef.h>

// Multiplies the `dim` weights of the norm of keys by s, and divides those of queries by it. The
// first rope_dim numbers of a head rotate, in pairs of that style.
void key_balance(float *query_weights, float *key_weights, size_t dim, size_t rope_dim,
                 engine_rope_style style);

#endif
