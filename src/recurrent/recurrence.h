// SPDX-License-Identifier: MIT
#ifndef KVERN_RECURRENT_RECURRENCE_H
#define KVERN_RECURRENT_RECURRENCE_H

// The recurrence of one row: what its state is, how tokens change it, and what they give. The
// arithmetic is stated in docs/arithmetic.md, "Recurrent layers". Nothing here allocates, checks
// arguments of callers or knows of rows; that is the layer's business (src/layer/recurrent).
//
// A token brings, per layer, `channels` numbers into a causal depthwise convolution (with silu),
// whose outputs are its q, k and v, and gate inputs a and b. Tokens are taken one after the other,
// and no number of tokens that are handed over together, and no cut of the value heads, changes a
// bit.

#include <kvern/composition.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum kvern_recurrence_rule {
    // Gated DeltaNet: one decay per value head. a and b: [value_heads].
    KVERN_RULE_DELTA,
    // The same with a decay per key channel (Kimi). a: [value_heads][k_dim], b: [value_heads].
    KVERN_RULE_DELTA_CHANNELS,
    // Mamba2: k is B, q is C, v is x, key heads are groups, beta is the step size dt. a: dt before
    // its bias, [value_heads]; b is not used.
    KVERN_RULE_SSD
} kvern_recurrence_rule;

typedef struct kvern_recurrence_shape {
    kvern_recurrence_rule rule;
    size_t taps; // of the convolution, at most KVERN_MAX_CONV_KERNEL; 0: none, x is what it would
                 // have given
    size_t key_heads, value_heads; // value_heads is a multiple of key_heads
    size_t k_dim, v_dim;           // any sizes but 0
} kvern_recurrence_shape;

// Learned numbers and constants of a layer, borrowed.
typedef struct kvern_recurrence_weights {
    const float *conv;      // [taps][channels]: the last tap meets the newest token
    const float *conv_bias; // [channels]; NULL: none
    const float *a_log;     // [value_heads]
    const float *dt_bias;   // as a token's a is; NULL: none
    const float *skip;      // SSD: D, [value_heads]; NULL: none
    float dt_low, dt_high;  // SSD: the limits of dt
    // Delta: q and k of a head become factor * x / sqrt(mean(x^2) + norm_eps); factors of zero:
    // they stay as they are.
    float q_factor, k_factor, norm_eps;
    float beta_factor; // delta: beta = beta_factor * sigmoid(b); 1 in most models
} kvern_recurrence_weights;

// Tokens of one row. Strides count floats from token to token.
typedef struct kvern_recurrence_tokens {
    size_t count;
    const float *x; // [channels] each
    const float *a, *b;
    size_t x_stride, a_stride, b_stride;
    float *y; // [value_heads][v_dim] each; NULL: not wanted
    size_t y_stride;
} kvern_recurrence_tokens;

// ---- Sizes, in floats. ----

// Inputs of the convolution per token, in the order q, k, v: 2 * key_heads * k_dim + value_heads *
// v_dim. SSD: in the order v, k, q (x, B, C), as Mamba2 has them.
size_t kvern_recurrence_channels(const kvern_recurrence_shape *shape);

// What a token brings as a and as b.
size_t kvern_recurrence_a_floats(const kvern_recurrence_shape *shape);
size_t kvern_recurrence_b_floats(const kvern_recurrence_shape *shape);

// The state of a row: the tail, [taps - 1][channels], the inputs before the next token, oldest
// first; from a multiple of 16 floats on S. A new row's state is zero all over. S is, per value
// head, a matrix [v_dim][k_dim] (as the formulas have it: y = S q), kept in blocks of 32 values:
// [ceil(v_dim / 32)][k_dim][32], so that lanes of a vector are different outputs and a block lies
// in one piece. Lanes behind v_dim hold what a v of zero makes of them.
size_t kvern_recurrence_state_floats(const kvern_recurrence_shape *shape);
size_t kvern_recurrence_tail_floats(const kvern_recurrence_shape *shape);
size_t kvern_recurrence_s_offset(const kvern_recurrence_shape *shape);

// S as [value_heads][v_dim][k_dim], out of a state and into one.
void kvern_recurrence_export_s(const kvern_recurrence_shape *shape, const float *state, float *s);
void kvern_recurrence_import_s(const kvern_recurrence_shape *shape, const float *s, float *state);

// A token's record: what changes S, after convolution, norms and gates: k, v, decay, beta.
size_t kvern_recurrence_record_floats(const kvern_recurrence_shape *shape);

// What one call of kvern_recurrence_run needs for itself, whatever its count of tokens.
size_t kvern_recurrence_scratch_floats(const kvern_recurrence_shape *shape);

// ---- Work. ----
//
// The caller has set the floating-point environment (kvern_fp_enter). `features` as in
// kvern/math.h.

// Runs at least one token through value heads first_head to first_head + heads - 1: their part of S
// as it is in the state `before` (which may be `state`; NULL: zero) changes and goes to `state`;
// writes their part of y. The tail is read, from `state`: when all heads are through, call
// kvern_recurrence_move_tail once. Cuts of the heads may run at the same time, each with a scratch
// of its own. `records` (NULL: none) receives one record per token.
void kvern_recurrence_run(uint32_t features, const kvern_recurrence_shape *shape,
                          const kvern_recurrence_weights *weights, const float *before,
                          float *state, const kvern_recurrence_tokens *tokens, float *records,
                          size_t first_head, size_t heads, float *scratch);

// Changes S as the run did that made the records, bit for bit, without outputs. `before` is as
// above.
void kvern_recurrence_replay(uint32_t features, const kvern_recurrence_shape *shape,
                             const float *before, float *state, const float *records, size_t count,
                             size_t first_head, size_t heads);

// The tail after `count` more tokens whose inputs are x, exactly.
void kvern_recurrence_move_tail(const kvern_recurrence_shape *shape, float *state, size_t count,
                                const float *x, size_t x_stride);

#endif
