// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_EXPERTS_SCRATCH_H
#define KVERN_ENGINE_EXPERTS_SCRATCH_H

// The part of a workspace that experts need. A token takes a slot for each of its experts; slots
// are sorted by expert, so that each matrix meets all of its tokens at once. Slots are worked on in
// waves of whole experts, which bounds what is between their matrices.

#include "engine/kernels/linear/linear.h"
#include "engine/model/scratch.h"

typedef struct experts_scratch {
    experts_sizes sizes;
    size_t wave;          // the most slots of a wave: at least those of any expert
    uint32_t *chosen;     // [tokens, used] experts of a token, ascending
    float *weights;       // [tokens, used]
    uint32_t *slots;      // [tokens, used] where each of these is among the sorted slots
    uint32_t *tokens;     // [tokens * used] the token of a slot
    uint32_t *experts;    // [tokens * used] its expert
    size_t *first;        // [experts + 1] the first slot of an expert
    linear *matrices;     // [2 * experts] of a wave
    linear_job *jobs;     // [2 * experts]
    linear_input *inputs; // [experts]
    float *gate;          // [wave, inner]
    float *up;            // [wave, inner]
    float *down;          // [wave, width]
    unsigned char *input; // what the inputs of a wave are made in
} experts_scratch;

// Measures the scratch of `max_tokens` tokens of `width` values (memory NULL), or points it into
// `memory`, behind `*bytes` bytes, and adds to them. `formats` and `most_cols` are those of the
// model's matrices. False on overflow.
bool experts_scratch_carve(experts_scratch *scratch, unsigned char *memory, size_t *bytes,
                           size_t max_tokens, size_t width, uint32_t formats, size_t most_cols);

#endif
