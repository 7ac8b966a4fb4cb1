// SPDX-License-Identifier: MIT
#ifndef KVERN_CACHE_H
#define KVERN_CACHE_H

// A cache: the rows of one layer. A row is one sequence. Rows have their own lengths; nothing is
// ever padded. A cache is usable alone; an engine with many layers uses a state (kvern/state.h),
// which owns one cache per layer.

#include <kvern/read.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_cache kvern_cache;

// The new tokens of an append: a view of the caller's tensors.
//
// Row r receives counts[r] tokens. Element d of KV head h of token i of row r is read at
//     k[(start[r] + i) * k_token_stride + h * k_head_stride + d]
// and likewise for v. Strides and starts count elements and tokens, not bytes. Packed [tokens,
// heads, dim] and padded [rows, heads, length, dim] tensors are both such views (see
// kvern_queries); left and right padding are simply tokens that no row names.
typedef struct kvern_tokens {
    size_t size; // sizeof(kvern_tokens); set by kvern_tokens_default

    const void
        *k; // positional encoding already applied, for the positions that the tokens will have
    const void *v;
    kvern_type k_type; // element types of the tensors; they need not be the storage's
    kvern_type v_type;
    int64_t k_token_stride, k_head_stride;
    int64_t v_token_stride, v_head_stride;

    const int64_t
        *counts; // new tokens per row, one entry per row of the cache; 0 leaves a row alone
    const int64_t
        *k_start; // first token per row in k; NULL: rows follow each other (sums of counts)
    const int64_t *v_start; // the same in v
} kvern_tokens;

// Packed f32 tensors of a layer's geometry; k, v and counts remain to be set.
KVERN_API kvern_tokens kvern_tokens_default(const kvern_layer *layer);

// Makes a cache of `rows` empty rows (0 to KVERN_MAX_ROWS) for layer `layer` of a composition,
// which it keeps a reference to. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_RANGE (layer or rows), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_create(kvern_composition *composition, size_t layer,
                                                      size_t rows, kvern_cache **out);

// Ends a cache. Reads and forks made from it live on. NULL is allowed. A cache that a state owns
// must not be given here.
KVERN_API void kvern_cache_destroy(kvern_cache *cache);

// The plan of the cache's layer; owned by the composition.
KVERN_API const kvern_layer *kvern_cache_layer(const kvern_cache *cache);

// The exact storage identity (see kvern_composition_signature).
KVERN_API const char *kvern_cache_signature(const kvern_cache *cache);

// Whether this cache has a capability.
KVERN_API bool kvern_cache_can(const kvern_cache *cache, kvern_capability capability);

KVERN_API size_t kvern_cache_rows(const kvern_cache *cache);

// Positions that row `row` holds, which is also the position of its next token; -1 for a row out of
// range.
KVERN_API int64_t kvern_cache_length(const kvern_cache *cache, size_t row);

// Bytes of the pages that the cache's rows hold. A page that several rows share counts once for
// each.
KVERN_API uint64_t kvern_cache_bytes(const kvern_cache *cache);

// Makes room so that row `row` can reach `tokens` positions without any further allocation, appends
// and attends of one query per row with up to `query_heads` query heads included (0: appends only).
// Room is kept until kvern_cache_reset. Never shrinks. An append that has to leave the row's pages
// to an older read or to a fork takes new ones, room included, once; release reads before the next
// append to avoid it. On failure nothing changed. Errors: KVERN_ERR_RANGE,
// KVERN_ERR_ARGUMENT, KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_reserve(kvern_cache *cache, size_t row,
                                                       int64_t tokens, size_t query_heads);

// The appends. Each stores the new tokens at the end of their rows, advances the rows' lengths, and
// hands out a read of the result, which the caller releases. `read` may be NULL: append without
// attending. `tokens` is borrowed for the call. On failure no row changed and *read is NULL.
//
// The phase is named by the function and is never inferred from the number of tokens. The numbers
// are those of one arithmetic in every phase: a window of N tokens equals N decodes bit for bit.
//
// Errors of all: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a negative count, start or stride; more than
// 2^40 positions), KVERN_ERR_OVERFLOW, KVERN_ERR_UNSUPPORTED, KVERN_ERR_BUSY (the cache belongs to
// a state: use its steps), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.

// Decode: at most one new token per row; a larger count is KVERN_ERR_RANGE.
KVERN_API KVERN_CHECK kvern_status kvern_cache_append_decode(kvern_cache *cache,
                                                             const kvern_tokens *tokens,
                                                             kvern_read **read);

// Window: any number of new tokens per row, causal among themselves: prefill chunks and verify
// windows.
KVERN_API KVERN_CHECK kvern_status kvern_cache_append_window(kvern_cache *cache,
                                                             const kvern_tokens *tokens,
                                                             kvern_read **read);

// Known span: tokens that are already decided, each to be computed exactly like a decode at its
// position.
KVERN_API KVERN_CHECK kvern_status kvern_cache_append_known(kvern_cache *cache,
                                                            const kvern_tokens *tokens,
                                                            kvern_read **read);

// Drops the newest `tokens` positions of a row; their memory above the reserved room is given back.
// Reads and forks that hold them are unchanged. Never fails halfway. Errors: KVERN_ERR_RANGE (row,
// a negative number, or more than the row holds), KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_trim(kvern_cache *cache, size_t row, int64_t tokens);

// Back to the constructed state: the row is empty and its reserved room is given back.
// Errors: KVERN_ERR_RANGE, KVERN_ERR_BUSY.
KVERN_API KVERN_CHECK kvern_status kvern_cache_reset(kvern_cache *cache, size_t row);

// A new cache whose row i continues row rows[i] of this one. Pages are shared and copied when one
// side writes, so the cost does not grow with the length. A row may be named several times. On
// failure *out is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_fork(const kvern_cache *cache, const size_t *rows,
                                                    size_t count, kvern_cache **out);

// The stored values of `count` positions of a row from `position` on, decoded to f32 and packed
// [count, kv_heads, k_dim] and [count, kv_heads, v_dim]. Either pointer may be NULL.
// Errors: KVERN_ERR_RANGE, KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_cache_export(const kvern_cache *cache, size_t row,
                                                      int64_t position, int64_t count, float *k,
                                                      float *v);

#ifdef __cplusplus
}
#endif

#endif
