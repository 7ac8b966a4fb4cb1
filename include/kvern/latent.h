// SPDX-License-Identifier: MIT
#ifndef KVERN_LATENT_H
#define KVERN_LATENT_H

// Latent layers: multi-head latent attention (MLA), as DeepSeek's models have it. A position keeps
// one small vector, the latent, from which the keys and values of all heads could be made, beside
// one key that carries the rotary embedding, and, where a model selects the positions that it
// attends (DSA), an index key. All of them have one head; each is stored once.
//
//     kvern_layer layer = kvern_layer_latent(512, 64, 0);
//     layer.latent_codec = kvern_codec_dense(KVERN_BF16);          // f32 unless said otherwise
//     ...
//     kvern_latent_tokens tokens = kvern_latent_tokens_default(&layer);
//     tokens.latent = c, tokens.rope = k_rope, tokens.counts = counts;
//     kvern_cache_append_latent(cache, KVERN_PHASE_WINDOW, &tokens, &read);
//     kvern_queries queries = kvern_queries_default(&layer, heads);
//     queries.scale = ...;                       // that of the model's own heads
//     kvern_read_attend(read, &queries);         // [heads, latent_dim + rope_dim] queries, results
//                                                // [heads, latent_dim]
//
// That read is the absorbed one: the caller has multiplied a head's query by its key projection
// (the first latent_dim numbers of a query; the rest is the rotated part), and multiplies results
// by the value projection. It is one arithmetic for decode, window and known span alike. Blocks
// that make keys and values themselves export the lanes (kvern_read_export_latent).
//
// Everything else that caches and states do with rows holds for latent layers too; what works on
// keys and values alone (kvern_cache_append, kvern_cache_export, decode slots) is refused with
// KVERN_ERR_UNSUPPORTED, and what is here is refused by layers of other kinds.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// The new tokens of an append to a latent layer: views of the caller's tensors, the lanes, which
// are read and rounded once to what the layer stores. Nothing is kept after the call.
//
// Row r receives counts[r] tokens. Element d of the latent of token i of row r is read at
//     latent[(start[r] + i) * latent_token_stride + d]
// and likewise in the other lanes. Strides and starts count elements and tokens, not bytes. Packed
// [tokens, dim] and padded [rows, length, dim] tensors are both such views: padding is tokens that
// no row names.
typedef struct kvern_latent_tokens {
    size_t size; // sizeof(kvern_latent_tokens); set by kvern_latent_tokens_default

    const void *latent; // after its normalization
    const void *rope;   // rotated for the positions that the tokens will have; NULL where the layer
                        // has rope_dim 0, and only there
    const void *index;  // index keys; NULL where the layer has index_dim 0, and only there
    kvern_type latent_type, rope_type, index_type; // element types; need not be the storage's
    int64_t latent_token_stride, rope_token_stride, index_token_stride;

    const int64_t *counts; // new tokens per row of the cache; 0 leaves a row alone
    // Tokens per row that the other lanes have, where they come from elsewhere: lanes that disagree
    // are refused. NULL: the same as counts.
    const int64_t *rope_counts;
    const int64_t *index_counts;
    // First token per row in each lane; NULL: rows follow each other (sums of counts).
    const int64_t *latent_start;
    const int64_t *rope_start;
    const int64_t *index_start;
} kvern_latent_tokens;

// Writes a view of packed f32 lanes of a layer's geometry to `size` bytes,
// sizeof(kvern_latent_tokens) of the caller; the lanes and counts remain to be set.
KVERN_API void kvern_latent_tokens_init(kvern_latent_tokens *tokens, size_t size,
                                        const kvern_layer *layer);

// The same as a value.
static inline kvern_latent_tokens kvern_latent_tokens_default(const kvern_layer *layer)
{
    kvern_latent_tokens tokens;
    kvern_latent_tokens_init(&tokens, sizeof tokens, layer);
    return tokens;
}

// Stores new tokens behind their rows and hands out a read, as kvern_cache_append does for keys and
// values (kvern/cache.h), with its errors. On failure no row changed and *read is NULL. Besides:
// KVERN_ERR_UNSUPPORTED (a layer of another kind), KVERN_ERR_ARGUMENT (a lane that the layer has is
// missing, or there is one that it does not have), KVERN_ERR_RANGE (lanes disagree on counts).
KVERN_API KVERN_CHECK kvern_status kvern_cache_append_latent(kvern_cache *cache, kvern_phase phase,
                                                             const kvern_latent_tokens *tokens,
                                                             kvern_read **read);

// Appends the step's tokens to a latent layer, as kvern_step_append does for keys and values
// (kvern/state.h), with its errors and those above. On failure the layer is unchanged and the step
// stays open.
KVERN_API KVERN_CHECK kvern_status kvern_step_append_latent(kvern_state *state, size_t layer,
                                                            const kvern_latent_tokens *tokens,
                                                            kvern_read **read);

// What a row of a latent layer stores at `count` positions from `position` on, decoded to f32 and
// packed [count, latent_dim], [count, rope_dim] and [count, index_dim]. NULL: that lane is not
// wanted. Errors: KVERN_ERR_ARGUMENT (a lane that the layer does not have), KVERN_ERR_RANGE,
// KVERN_ERR_UNSUPPORTED (a layer of another kind), KVERN_ERR_BUSY (a round of the cache's state is
// open).
KVERN_API KVERN_CHECK kvern_status kvern_cache_export_latent(const kvern_cache *cache, size_t row,
                                                             int64_t position, int64_t count,
                                                             float *latent, float *rope,
                                                             float *index);

// The same of a read, whose rows are as they were when it was made, whatever has happened to the
// cache since. A row of the read has kvern_read_length positions; those below its length without
// the tokens of the append were stored before it. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE,
// KVERN_ERR_UNSUPPORTED.
KVERN_API KVERN_CHECK kvern_status kvern_read_export_latent(const kvern_read *read, size_t row,
                                                            int64_t position, int64_t count,
                                                            float *latent, float *rope,
                                                            float *index);

// ---- Materialized reads ----

// The projections that make keys and values of all heads from a latent (kv_b_proj), borrowed for a
// call. Row j of head h begins at
//     weights[h * head_stride + j * row_stride]
// and has latent_dim numbers. Rows 0 to nope_dim - 1 of a head make its key, in front of the
// rotated part, the value_dim rows behind them its value.
typedef struct kvern_latent_weights {
    size_t size;      // sizeof(kvern_latent_weights); set by kvern_latent_weights_default
    size_t nope_dim;  // a multiple of 8, at most KVERN_MAX_HEAD_DIM
    size_t value_dim; // likewise
    const float *weights;
    int64_t head_stride; // in elements
    int64_t row_stride;
} kvern_latent_weights;

// Writes a view of packed weights [heads, nope_dim + value_dim, latent_dim] to `size` bytes,
// sizeof(kvern_latent_weights) of the caller; the weights remain to be set.
KVERN_API void kvern_latent_weights_init(kvern_latent_weights *weights, size_t size,
                                         const kvern_layer *layer, size_t nope_dim,
                                         size_t value_dim);

// The same as a value.
static inline kvern_latent_weights kvern_latent_weights_default(const kvern_layer *layer,
                                                                size_t nope_dim, size_t value_dim)
{
    kvern_latent_weights weights;
    kvern_latent_weights_init(&weights, sizeof weights, layer, nope_dim, value_dim);
    return weights;
}

// Attends queries that have not been multiplied by the key projection: [heads, nope_dim + rope_dim]
// numbers, with results of [heads, value_dim]; the strides of *queries say where they lie, and are
// not those of kvern_queries_default. Keys and values of each head are made from the latents, 64
// positions at a time, and forgotten. That takes as long as some hundred queries of a row, which
// share it: so this is for windows, and saves work there, while an absorbed read is many times
// faster for a decode or a selection.
//
// The arithmetic is that of a full-attention layer with as many KV heads as query heads that stores
// the made keys and values in f32 (docs/arithmetic.md, "Materialized reads"): equal to itself over
// chunks, batches, threads and processors, but not to the absorbed read, which rounds elsewhere. A
// model uses one of the two for all of its tokens. Sinks, softcap and selections work as in
// kvern_read_attend, with its errors and what they leave unchanged; besides: KVERN_ERR_UNSUPPORTED
// (a layer of another kind), KVERN_ERR_ARGUMENT (weights, or their dims), KVERN_ERR_RANGE (a stride
// is negative).
KVERN_API KVERN_CHECK kvern_status kvern_read_attend_materialized(
    const kvern_read *read, const kvern_queries *queries, const kvern_latent_weights *weights);

#ifdef __cplusplus
}
#endif

#endif
