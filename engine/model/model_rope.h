// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_ROPE_H
#define KVERN_ENGINE_MODEL_ROPE_H

// How a model rotates queries and keys to their positions: docs/engine.md, "Rotary embedding".

#include <kvern/composition.h>

#include <stdbool.h>
#include <stddef.h>

#define MODEL_MAX_ROPES 2
#define MODEL_MAX_ROPE_PAIRS (KVERN_MAX_HEAD_DIM / 2)

// How a file stretches rotary positions beyond the context that its model was trained with first.
typedef enum model_rope_scaling {
    MODEL_ROPE_PLAIN = 0,
    MODEL_ROPE_LINEAR = 1,      // positions are divided by one factor
    MODEL_ROPE_LLAMA3 = 2,      // low frequencies are divided by it, with a passage to high ones
    MODEL_ROPE_YARN = 3,        // the same with another passage, and longer vectors
    MODEL_ROPE_LONGROPE = 4,    // every frequency by a factor of its own, and longer vectors
    MODEL_ROPE_PROPORTIONAL = 5 // none: a part of the pairs does not rotate at all
} model_rope_scaling;

// One way to rotate.
typedef struct model_rope {
    float base;
    bool halves; // pairs are those of the two halves, whatever the family's style is
    size_t dim;  // dimensions of a head that rotate, the first ones; even; 0: nothing does
    model_rope_scaling scaling;
    float factor;                        // of MODEL_ROPE_LINEAR; 1 otherwise
    float magnitude;                     // what cosines and sines are multiplied by
    bool divided;                        // each frequency is divided by a number of its own:
    float divisor[MODEL_MAX_ROPE_PAIRS]; // [dim / 2], unless the file has them:
    const char *tensor;                  // the name of its tensor, or NULL
    const char *unused_tensor;           // one for contexts of another length, or NULL
} model_rope;

#endif
