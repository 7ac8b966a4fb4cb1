// SPDX-License-Identifier: MIT
#include "engine/model/experts_scratch.h"

#include "engine/model/carve.h"

// Slots of a wave when there are few tokens. So many are no burden, and all experts of a step that
// decodes are computed together.
#define LEAST_WAVE ((size_t)256)

// Inputs of a wave: rows of all of them, and what aligns those of every expert.
static bool take_inputs(experts_scratch *s, unsigned char *memory, size_t *bytes, uint32_t formats,
                        size_t most_cols)
{
    size_t rows, padding;
    return linear_input_bytes(most_cols, s->wave, formats, &rows) == KVERN_OK &&
           !__builtin_mul_overflow(s->sizes.experts, CARVE_ALIGNMENT * LINEAR_FORMATS, &padding) &&
           !__builtin_add_overflow(rows, padding, &rows) &&
           carve_take(memory, bytes, &s->input, rows, 1);
}

bool experts_scratch_carve(experts_scratch *s, unsigned char *memory, size_t *bytes,
                           size_t max_tokens, size_t width, uint32_t formats, size_t most_cols)
{
    const experts_sizes *sizes = &s->sizes;
    const size_t experts = sizes->experts, least = LEAST_WAVE;
    size_t slots, doubled;
    if (experts == 0) {
        return true;
    }
    if (__builtin_mul_overflow(max_tokens, sizes->used, &slots) || slots > UINT32_MAX ||
        __builtin_mul_overflow(experts, (size_t)2, &doubled)) {
        return false;
    }
    s->wave = max_tokens > least ? max_tokens : slots < least ? slots : least;
    return carve_take(memory, bytes, &s->chosen, slots, sizeof *s->chosen) &&
           carve_take(memory, bytes, &s->weights, slots, sizeof *s->weights) &&
           carve_take(memory, bytes, &s->slots, slots, sizeof *s->slots) &&
           carve_take(memory, bytes, &s->tokens, slots, sizeof *s->tokens) &&
           carve_take(memory, bytes, &s->experts, slots, sizeof *s->experts) &&
           carve_take(memory, bytes, &s->first, experts + 1, sizeof *s->first) &&
           carve_take(memory, bytes, &s->matrices, doubled, sizeof *s->matrices) &&
           carve_take(memory, bytes, &s->jobs, doubled, sizeof *s->jobs) &&
           carve_take(memory, bytes, &s->inputs, experts, sizeof *s->inputs) &&
           carve_take(memory, bytes, &s->gate, s->wave, sizes->inner * sizeof *s->gate) &&
           carve_take(memory, bytes, &s->up, s->wave, sizes->inner * sizeof *s->up) &&
           carve_take(memory, bytes, &s->down, s->wave, width * sizeof *s->down) &&
           take_inputs(s, memory, bytes, formats, most_cols);
}
