// SPDX-License-Identifier: MIT
// The rotation for one instruction set. Included once by rotation_<isa>.c after the lanes header.
//
// Parameters:
//   ROTATE, ROTATE_BACK  the names of the functions
//   ROTATION_HELD        vectors of 16 numbers that registers hold, 4 to 16
//
// Numbers go through registers that many at a time, for the signs and the steps within those; steps
// across them meet memory, which is in the first-level cache.
#include "src/codec/rotation/rotation.h"

#include "src/base/assert.h"
#include "src/math/unroll.h"

#include <math.h>
#include <stdbool.h>

// One transform: of which numbers, and by what factor and signs.
typedef struct rotation_stage {
    float *x;
    size_t n, dim;
    unsigned number; // of the stage
    bool back;       // signs come last, not first
    float factor;
} rotation_stage;

// Numbers whose bit of `signs` is set are negated.
LANES_INLINE lanes negate(lanes v, uint64_t signs)
{
    return lanes_select(lanes_mask_from_bits((uint32_t)signs & 0xffff), lanes_neg(v), v);
}

// A step within 16 lanes: those in `upper` become partner - self, the others self + partner. The
// products are exact, so that each lane is rounded once.
LANES_INLINE lanes meet_lanes(lanes v, int step, uint32_t upper)
{
    const lanes one = lanes_set(1);
    return lanes_fma(v, negate(one, upper), lanes_swap(v, step));
}

// The steps below 16 * T of T vectors.
LANES_INLINE void meet_within(int T, lanes v[ROTATION_HELD])
{
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        v[t] = meet_lanes(v[t], 1, 0xaaaa);
        v[t] = meet_lanes(v[t], 2, 0xcccc);
        v[t] = meet_lanes(v[t], 4, 0xf0f0);
        v[t] = meet_lanes(v[t], 8, 0xff00);
    }
    KVERN_UNROLL
    for (int step = 1; step < T; step *= 2) {
        KVERN_UNROLL
        for (int t = 0; t < T; t++) {
            if (t & step)
                continue;
            const lanes a = v[t], b = v[t + step];
            v[t] = lanes_add(a, b);
            v[t + step] = lanes_sub(a, b);
        }
    }
}

// What follows the last step, for the vector that begins with number `at`.
LANES_INLINE lanes end_steps(const rotation_stage *s, lanes v, size_t at, uint64_t signs)
{
    v = lanes_mul(v, lanes_set(s->factor));
    return s->back ? negate(v, signs >> at % 64) : v;
}

// The steps within T vectors from number `at` on.
LANES_INLINE void step_within(int T, const rotation_stage *s, size_t at)
{
    float *x = s->x + at;
    lanes v[ROTATION_HELD];
    uint64_t signs[(ROTATION_HELD + 3) / 4];
    KVERN_UNROLL
    for (int t = 0; t < T; t++) {
        if (t % 4 == 0)
            signs[t / 4] = kvern_rotation_signs(s->dim, s->number, at / 64 + (size_t)t / 4);
        v[t] = lanes_load(x + t * 16);
        if (!s->back)
            v[t] = negate(v[t], signs[t / 4] >> 16 * (t % 4));
    }
    meet_within(T, v);
    KVERN_UNROLL
    for (int t = 0; t < T; t++)
        lanes_store(x + t * 16, s->n == 16 * (size_t)T
                                    ? end_steps(s, v[t], (size_t)t * 16, signs[t / 4])
                                    : v[t]);
}

// A step across what registers hold.
LANES_INLINE void step_across(const rotation_stage *s, size_t step)
{
    const bool last = 2 * step == s->n;
    for (size_t i = 0; i < s->n; i += i % step + 16 == step ? step + 16 : 16) {
        const lanes a = lanes_load(s->x + i), b = lanes_load(s->x + i + step);
        lanes sum = lanes_add(a, b), difference = lanes_sub(a, b);
        if (last) {
            sum = end_steps(s, sum, i, kvern_rotation_signs(s->dim, s->number, i / 64));
            difference = end_steps(s, difference, i,
                                   kvern_rotation_signs(s->dim, s->number, (i + step) / 64));
        }
        lanes_store(s->x + i, sum);
        lanes_store(s->x + i + step, difference);
    }
}

LANES_INLINE void run_stage(rotation_stage s)
{
    s.factor = sqrtf(1.0f / (float)s.n);
    if (s.n == 16)
        step_within(1, &s, 0);
    else if (s.n == 32)
        step_within(2, &s, 0);
    else if (s.n == 64)
        step_within(4, &s, 0);
    else if (ROTATION_HELD > 8 && s.n == 128)
        step_within(ROTATION_HELD > 8 ? 8 : 1, &s, 0);
    else
        for (size_t at = 0; at < s.n; at += 16 * ROTATION_HELD)
            step_within(ROTATION_HELD, &s, at);
    for (size_t step = 16 * ROTATION_HELD; step < s.n; step *= 2)
        step_across(&s, step);
}

// ---- The rotation ----

void ROTATE(size_t dim, float *x)
{
    const size_t n = kvern_rotation_size(dim), rest = dim - n;
    KVERN_ASSERT(dim % 16 == 0 && dim > 0 && dim <= KVERN_MAX_STREAM_DIM);
    run_stage((rotation_stage){.x = x, .n = n, .dim = dim});
    if (rest)
        run_stage((rotation_stage){.x = x + rest, .n = n, .dim = dim, .number = 1});
}

void ROTATE_BACK(size_t dim, float *x)
{
    const size_t n = kvern_rotation_size(dim), rest = dim - n;
    KVERN_ASSERT(dim % 16 == 0 && dim > 0 && dim <= KVERN_MAX_STREAM_DIM);
    if (rest)
        run_stage((rotation_stage){.x = x + rest, .n = n, .dim = dim, .number = 1, .back = true});
    run_stage((rotation_stage){.x = x, .n = n, .dim = dim, .back = true});
}
