// SPDX-License-Identifier: MIT
#ifndef KVERN_READ_H
#define KVERN_READ_H

// A read: what an append returns, and the only thing that attention is computed on. It is an
// immutable snapshot of the positions that were stored when the append ended, and attends queries
// against them, once or many times, now or later. Appends, trims, forks and the end of its cache do
// not change a bit of what it answers.
//
//     kvern_read *read;
//     kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, &read); // or kvern_step_append
//     kvern_queries queries = kvern_queries_default(layer, QUERY_HEADS);
//     queries.q = q;
//     queries.out = out;
//     kvern_read_attend(read, &queries);                  // as often as you like
//     kvern_read_release(read);                           // gives the pages back
//
// A read holds the pages that it may need. One that is kept for long keeps their memory, and makes
// the next append of its rows take the last page anew (copy on write): release it when it has been
// attended, as a rule before the next append.
//
// Any thread may attend a read and release it, several threads may attend one read at a time, and
// the cache may go on meanwhile.

#include <kvern/composition.h>

#ifdef __cplusplus
extern "C" {
#endif

// One append of one layer, or a donor read of it: the rows' pages as they were, and how many
// queries each row may have. Owned by whoever it was handed out to.
typedef struct kvern_read kvern_read;

// The queries of one kvern_read_attend call and where the results go.
//
// Row r has counts[r] queries. They belong to the tokens first[r], first[r] + 1, ... of the tokens
// that the append added to row r: query i of the row sits at the position of token first[r] + i,
// and sees every stored position of its row up to and including its own, as far as its layer shows
// it; where tokens see each other both ways (kvern_phase, kvern_cache_read_block), these too.
//
// Element d of query head h of query i of row r is read at
//     q[(q_start[r] + i) * q_token_stride + h * q_head_stride + d]
// and element d of its result is written at
//     out[(out_start[r] + i) * out_token_stride + h * out_head_stride + d].
// Strides and starts count elements and tokens, not bytes. So packed [tokens, heads, dim] has a
// token stride of heads * dim and a head stride of dim; padded [rows, heads, length, dim] has a
// token stride of dim, a head stride of length * dim, and start[r] = r * heads * length + (left
// padding of row r). Query head h reads KV head h / (query_heads / kv_heads).
typedef struct kvern_queries {
    size_t size;        // sizeof(kvern_queries); set by kvern_queries_default
    size_t query_heads; // a multiple of the layer's kv_heads

    // The queries, with the positional encoding (RoPE) of their positions already applied, as the
    // keys had it when they were appended.
    const void *q;
    kvern_type q_type; // element type of q
    int64_t q_token_stride;
    int64_t q_head_stride;
    const int64_t
        *q_start; // one per row of the append; NULL: rows follow each other (sums of counts)

    // Where results go. Tokens and heads that no query names are not written.
    void *out;
    kvern_type out_type; // each f32 result is rounded once to this type
    int64_t out_token_stride;
    int64_t out_head_stride;
    const int64_t *out_start; // NULL: rows follow each other (sums of counts)

    const int64_t *counts; // queries per row; NULL: as many as the append added
    const int64_t *first;  // first token per row; NULL: 0 in every row

    // The softmax: out = sum of softmax(cap(scale * q . k)) * v over the positions in sight.
    float scale;   // multiplies the query, with one rounding per element; usually 1/sqrt(k_dim)
    float softcap; // 0: none; otherwise a score s becomes softcap * tanh(s / softcap)
    const float *sinks; // sink logits, learned with the model: query_heads scores that take part in
                        // the softmax and have no value; NULL: none. Positions that a window keeps
                        // in sight are something else: kvern_layer.keep

    // Which of the positions in sight each query attends (kvern/select.h), one list for each of
    // this call's queries; NULL: all. A result is then that of a row which holds the selected
    // positions and no others, so all of them together give what NULL gives, bit for bit.
    const struct kvern_selection *selection;
} kvern_queries;

// Writes a view of packed f32 queries and outputs of `query_heads` heads for a layer to `size`
// bytes, sizeof(kvern_queries) of the caller: token strides heads * dim, head strides dim, rows
// behind each other, scale 1/sqrt(k_dim), no softcap, no sinks, no selection. q and out remain to
// be set. Of a layer of latents vectors have latent_dim + rope_dim numbers, results latent_dim; the
// scale is 1/sqrt(latent_dim + rope_dim), in place of which models have one of their own, made from
// the dims of the keys that they do not make (kvern/latent.h).
KVERN_API void kvern_queries_init(kvern_queries *queries, size_t size, const kvern_layer *layer,
                                  size_t query_heads);

// The same as a value.
static inline kvern_queries kvern_queries_default(const kvern_layer *layer, size_t query_heads)
{
    kvern_queries queries;
    kvern_queries_init(&queries, sizeof queries, layer, query_heads);
    return queries;
}

// Attends the queries. All pointers are borrowed for the call; nothing overlaps `out`. The
// arithmetic is that of docs/arithmetic.md: a result depends on its own query, the stored positions
// that it sees, and scale, softcap and sinks, and on nothing else. A query that sees no position
// gives zeros, without sinks and with them. Query vectors of one call share the work of reading
// pages, so hand over those of all rows and tokens at once. On failure nothing was written to
// `out`. Errors: KVERN_ERR_ARGUMENT (a NULL pointer with work to do, heads that do not divide, an
// unknown type, a scale or softcap that is not finite, a negative softcap), KVERN_ERR_RANGE (a
// query beyond the tokens of the append, a negative count, start or stride; a selection with
// another number of queries, an empty list, or positions that do not ascend or that their query
// does not see), KVERN_ERR_UNSUPPORTED (a selection in a layer with a sliding window or chunks,
// whose arithmetic goes by absolute positions), KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY or
// KVERN_ERR_BUDGET (scratch beyond what was reserved).
KVERN_API KVERN_CHECK kvern_status kvern_read_attend(const kvern_read *read,
                                                     const kvern_queries *queries);

// Number of rows of the append, which is the number of rows that its cache had then, those without
// a new token included: as many entries as counts, first and the starts of kvern_queries have.
KVERN_API size_t kvern_read_rows(const kvern_read *read);

// Positions that row `row` held when the append ended, its new tokens included; -1 for a row out of
// range.
KVERN_API int64_t kvern_read_length(const kvern_read *read, size_t row);

// Gives the read back; its pages go when nobody else holds them. NULL is allowed. Any thread may do
// it.
KVERN_API void kvern_read_release(kvern_read *read);

#ifdef __cplusplus
}
#endif

#endif
