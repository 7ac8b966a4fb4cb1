// SPDX-License-Identifier: MIT
#ifndef KVERN_RECURRENT_H
#define KVERN_RECURRENT_H

// Recurrent layers: linear attention and state space models. A row keeps one state of fixed size,
// whatever its length: the last inputs of a causal convolution, and a matrix per value head, which
// every token decays and adds to. Gated DeltaNet (Qwen3-Next), Kimi Delta Attention, Mamba2 (SSD);
// and lanes, states of the caller's own that the library keeps without knowing what they are.
//
//     kvern_layer layer = kvern_layer_delta(16, 32, 128, 128, 4);
//     ...
//     kvern_recur_tokens tokens = kvern_recur_tokens_default(&layer);
//     tokens.x = qkv, tokens.a = a, tokens.b = b;    // projections of the new tokens
//     tokens.weights = &weights;                     // convolution, decay; kvern_recur_weights
//     tokens.y = y, tokens.counts = counts;          // results
//     kvern_cache_recur(cache, KVERN_PHASE_WINDOW, &tokens);       or, in a step of a state,
//     kvern_step_recur(state, layer_index, &tokens);
//
// The caller keeps its projections, the library state and order: tokens enter one by one, in the
// order of their positions, in one arithmetic for decode, window and known span. So a window of N
// tokens equals N decodes bit for bit, and so do chunks, batches and numbers of threads. Everything
// is computed in f32, as docs/arithmetic.md states.
//
// A state cannot be cut back: such a layer is not trimmable (kvern_cache_trimmable is 0; all of a
// row can be trimmed, which empties it), and what is reused of a row is all of it
// (kvern_cache_min_reusable is its length). A round (kvern/round.h) can take tokens back exactly
// nevertheless, as many as the layer's slack. What else caches and states do with rows holds for
// these layers too; what works on keys and values (kvern_cache_append, reads, kvern_cache_export,
// decode slots, padded planes) is refused with KVERN_ERR_UNSUPPORTED, and what is here is refused
// by layers of other kinds.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a recurrent layer is made with: the model's parameters, borrowed for the length of a call.
// All are f32 and packed. Dims are those of the layer (kvern_layer): K conv_kernel, Hk key_heads,
// Hv value_heads, Dk k_dim, Dv v_dim.
typedef struct kvern_recur_weights {
    size_t size; // sizeof(kvern_recur_weights); set by kvern_recur_weights_default

    // The convolution, [K, conv_dim]: tap after tap, the one of the oldest token first. Where the
    // layer has one, and only there.
    const float *conv_weight;
    const float *conv_bias; // [conv_dim]; NULL: none

    // Decay. DELTA: g = exp(-exp(a_log) * softplus(a + dt_bias)), one per value head; a_log and
    // dt_bias are [Hv]. DELTA_CHANNELS: one per key channel; a_log is [Hv], dt_bias [Hv, Dk]. SSD:
    // dt = softplus(a + dt_bias) between dt_low and dt_high, g = exp(-exp(a_log) * dt).
    const float *a_log;
    const float *dt_bias;  // NULL: none
    float dt_low, dt_high; // SSD alone; at first 0 and infinity

    const float *d; // SSD, [Hv]: how much of a token goes straight to its result; NULL: nothing

    // DELTA, DELTA_CHANNELS: the queries and keys of a head become x / sqrt(mean(x * x) + norm_eps)
    // times a factor each; where both factors are 0 they stay as they are. At first 1 / Dk,
    // 1 / sqrt(Dk) (keys of length 1) and 1e-6.
    float q_factor, k_factor, norm_eps;
    float beta_factor; // beta = beta_factor * sigmoid(b); 1 at first
} kvern_recur_weights;

// Writes weights without arrays and with the scales of a layer's dims to `size` bytes,
// sizeof(kvern_recur_weights) of the caller.
KVERN_API void kvern_recur_weights_init(kvern_recur_weights *weights, size_t size,
                                        const kvern_layer *layer);

// The same as a value.
static inline kvern_recur_weights kvern_recur_weights_default(const kvern_layer *layer)
{
    kvern_recur_weights weights;
    kvern_recur_weights_init(&weights, sizeof weights, layer);
    return weights;
}

// The new tokens of a recurrent layer: views of the caller's tensors, all of them f32, and of the
// one that receives the results. Nothing is kept after the call.
//
// Row r receives counts[r] tokens. Channel c of token i of row r is read at
//     x[(start[r] + i) * x_token_stride + c]
// and likewise in the other tensors: packed [tokens, channels] and padded [rows, length, channels]
// ones are both such views. Strides and starts count elements and tokens, not bytes. Padding, on
// the left or on the right, is tokens that no row names: it is never read, never enters a state,
// and nothing is written there.
typedef struct kvern_recur_tokens {
    size_t size; // sizeof(kvern_recur_tokens); set by kvern_recur_tokens_default

    // Before the convolution, which is followed by silu; where the layer has none, x is what
    // follows, as it is. DELTA: the channels of queries [Hk, Dk], keys [Hk, Dk] and values [Hv, Dv]
    // behind each other. SSD: those of x [Hv, Dv], B [Hk, Dk] and C [Hk, Dk].
    const float *x;
    const float *a; // decay: [Hv]; DELTA_CHANNELS: [Hv, Dk]
    const float *b; // DELTA, DELTA_CHANNELS: [Hv], beta follows from it; SSD: NULL
    float *y;       // results, [Hv, Dv], before gate and norm; NULL: none wanted
    int64_t x_token_stride, a_token_stride, b_token_stride, y_token_stride;

    const int64_t *counts; // new tokens per row of the cache; 0 leaves a row alone
    const int64_t *start;  // first token per row in all four; NULL: rows follow each other (sums
                           // of counts)

    const kvern_recur_weights *weights;
} kvern_recur_tokens;

// Writes a view of packed f32 tensors of a layer's dims to `size` bytes, sizeof(kvern_recur_tokens)
// of the caller; tensors, counts and weights remain to be set.
KVERN_API void kvern_recur_tokens_init(kvern_recur_tokens *tokens, size_t size,
                                       const kvern_layer *layer);

// The same as a value.
static inline kvern_recur_tokens kvern_recur_tokens_default(const kvern_layer *layer)
{
    kvern_recur_tokens tokens;
    kvern_recur_tokens_init(&tokens, sizeof tokens, layer);
    return tokens;
}

// Takes new tokens into the states of their rows and writes their results. On failure no row
// changed and nothing was written. Errors: those of kvern_cache_append (kvern/cache.h); besides,
// KVERN_ERR_UNSUPPORTED (a layer of another kind, or a lane), KVERN_ERR_ARGUMENT (a tensor or an
// array of the weights is missing, or there is one that the layer does not have).
KVERN_API KVERN_CHECK kvern_status kvern_cache_recur(kvern_cache *cache, kvern_phase phase,
                                                     const kvern_recur_tokens *tokens);

// The same for the tokens of an open step, in one layer, once per step; tokens->counts is NULL or
// equal to the step's. On failure the layer is unchanged and the step stays open. Errors: those of
// kvern_step_append (kvern/state.h), and those above.
KVERN_API KVERN_CHECK kvern_status kvern_step_recur(kvern_state *state, size_t layer,
                                                    const kvern_recur_tokens *tokens);

// Lanes: the caller computes. lanes[r] receives the address of row r's lane, lane_bytes bytes,
// aligned to 64, where the row gets tokens, and NULL where it gets none. A lane holds what the
// caller left there before the tokens of this call, zeros in an empty row; the caller writes what
// it is to be behind them. Forks, rounds and abandoned steps have their own copies. In a step this
// is the layer's append, once per step. Addresses are good until the step ends, or, for a cache
// alone, until its next call. On failure nothing changed. Errors: those of kvern_cache_append and
// kvern_step_append; KVERN_ERR_UNSUPPORTED (a layer that is no lane).
KVERN_API KVERN_CHECK kvern_status kvern_cache_lanes(kvern_cache *cache, kvern_phase phase,
                                                     const int64_t *counts, void **lanes);
KVERN_API KVERN_CHECK kvern_status kvern_step_lanes(kvern_state *state, size_t layer, void **lanes);

// ---- Rows as data ----

// The state of a row in f32: what of a layer goes into a file. NULL: that part is not wanted, or
// there is none.
typedef struct kvern_recur_state {
    size_t size; // sizeof(kvern_recur_state)
    float *conv; // [K - 1, conv_dim]: the inputs that the convolution still needs, oldest first
    float *s;    // [Hv, Dv, Dk]
    void *lane;  // of a lane: lane_bytes bytes
} kvern_recur_state;

// Copies what a row's state is to the caller's arrays; that of an empty row is zero. Within a step
// it is what the row had before, unless the layer has taken the step's tokens already. Errors:
// KVERN_ERR_ARGUMENT (an array for a part that the layer does not have), KVERN_ERR_RANGE,
// KVERN_ERR_UNSUPPORTED (a layer of another kind), KVERN_ERR_BUSY (a round of the cache's state is
// open).
KVERN_API KVERN_CHECK kvern_status kvern_cache_export_recurrent(const kvern_cache *cache,
                                                                size_t row,
                                                                const kvern_recur_state *state);

// The empty row becomes one of `length` positions (at least 1) with that state; all parts that the
// layer has are there. What was reserved for the row stays. On failure nothing changed. Errors:
// KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE, KVERN_ERR_UNSUPPORTED, KVERN_ERR_BUSY (the row is not empty;
// a cache of a state), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_import_recurrent(kvern_cache *cache, size_t row,
                                                                int64_t length,
                                                                const kvern_recur_state *state);

#ifdef __cplusplus
}
#endif

#endif
