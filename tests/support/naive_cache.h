// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_NAIVE_CACHE_H
#define KVERN_TESTS_SUPPORT_NAIVE_CACHE_H

// What a cache is, without any of its parts: an array of positions per row, rounded to the storage
// types, and attention over it in double precision. Random operations on a real cache are compared
// with the same operations on this one.

#include "tests/support/both_ways.h"
#include "tests/support/random.h"

#include <kvern/kvern.h>

#include <stdbool.h>

// One row: the stored keys and values of its positions. Latents are keys of latent_dim + rope_dim
// numbers, whose first latent_dim are the values.
typedef struct naive_row {
    int64_t length, capacity;
    int64_t held;     // positions from here on must be held, beside the kept ones
    int64_t floor;    // length at the conversion, 0 for none
    int64_t boundary; // not converted below
    bool converted;   // at its start
    float *k;         // [length][kv_heads][k_dim]
    float *v;         // [length][kv_heads][v_dim]
    // In a layer that keeps positions precise, k and v are what is precise, and these are the same
    // as the planned codecs store it; read so by every query below `coded`.
    float *coded_k, *coded_v;
    int64_t coded;
    float *index;    // [length][index_dim]
    int64_t *group;  // [length]: positions of one group see each other both ways; 0: of none
    int64_t groups;  // the last group that was made
    int64_t flagged; // the group whose positions were flagged, so that they may be no neighbours
    int64_t block;   // so many of the last positions are a block that was read; 0: there is none
} naive_row;

// The codec that the row stores keys (0) or values (1) in now, all of them, or what is precise.
kvern_codec naive_row_codec(const naive_row *row, const kvern_layer *layer, int stream);

// Whether a layer keeps positions precise, and the least position of which a donor read may have
// a query.
bool naive_is_split(const kvern_layer *layer);
int64_t naive_row_least_donor(const naive_row *row, const kvern_layer *layer);

// Whether a donor read may have queries from `base` on: all that they see is held.
bool naive_row_can_read(const naive_row *row, const kvern_layer *layer, int64_t base);

// The first position of the stretch that a query sees with its own.
int64_t naive_row_first_seen(const naive_row *row, const kvern_layer *layer, int64_t query);

// Whether a query at `query` sees `position`.
bool naive_row_sees(const naive_row *row, const kvern_layer *layer, int64_t query,
                    int64_t position);

// Whether the row can be trimmed to that length.
bool naive_row_may_trim(const naive_row *row, const kvern_layer *layer, int64_t length);

// The keys and values of position p, of all heads, as a query at `position` reads them.
const float *naive_row_keys(const naive_row *row, const kvern_layer *layer, int64_t position,
                            int64_t p);
const float *naive_row_values(const naive_row *row, const kvern_layer *layer, int64_t position,
                              int64_t p);

// What the end of an append of `count` tokens does: the window moves on, the row is converted.
void naive_row_settle(naive_row *row, const kvern_layer *layer, int64_t count);

// As kvern_cache_trimmable and kvern_cache_min_reusable.
int64_t naive_row_trimmable(const naive_row *row, const kvern_layer *layer);
int64_t naive_row_min_reusable(const naive_row *row, const kvern_layer *layer);

// Drops the newest positions when that is allowed. Empties the row: a new one (naive_row_reset).
void naive_row_trim(naive_row *row, int64_t tokens);
void naive_row_reset(naive_row *row);

// Appends one position; k and v are [kv_heads][dim], and for latents v is not looked at; they are
// rounded to the row's storage.
void naive_row_append(naive_row *row, const kvern_layer *layer, const float *k, const float *v,
                      const float *index);

void naive_row_copy(const naive_row *from, const kvern_layer *layer, naive_row *to);
void naive_row_free(naive_row *row);

// One query vector.
typedef struct naive_query {
    int64_t position; // what it sees follows from that
    size_t kv_head;
    const float *q; // [k_dim]
    float scale, softcap;
    const float *sink; // NULL: none
    kvern_type out_type;
} naive_query;

// out[d] in double precision, and by how much a result in the library's arithmetic may differ from
// it (see naive_cache.c).
void naive_row_attend(const naive_row *row, const kvern_layer *layer, const naive_query *query,
                      double *out, double *bound);

// Attends random queries of a read whose rows hold what `rows` say, base[r] being the position of
// the first token of the append, and fails the test when a result is not what it should be, or when
// anything else was written. The read is attended with random types, layouts, heads, and options.
void naive_check_read(test_random *random, const kvern_read *read, const kvern_layer *layer,
                      const naive_row *rows, const int64_t *base, size_t row_count);

// A read that is kept, and what its rows held. All zero: none.
#define NAIVE_READ_ROWS 8
typedef struct naive_read {
    kvern_read *read;
    const kvern_layer *layer; // of the caller
    size_t row_count;
    naive_row rows[NAIVE_READ_ROWS];
    int64_t base[NAIVE_READ_ROWS];
} naive_read;

// Takes a read over, with copies of its rows; drops what was kept before.
void naive_read_keep(naive_read *kept, kvern_read *read, const kvern_layer *layer,
                     const naive_row *rows, const int64_t *base, size_t row_count);
void naive_read_drop(naive_read *kept);

// naive_check_read, if there is one; then it is dropped, now and then.
void naive_read_check(test_random *random, naive_read *kept);

// Fails the test unless a row of a cache holds exactly what `row` says.
void naive_check_stored(test_random *random, const kvern_cache *cache, size_t index,
                        const naive_row *row);

// Appends counts[r] random tokens to every row of a naive cache, and makes a view of the same
// tokens for the library. Release with naive_tokens_free.
typedef struct naive_tokens {
    kvern_tokens tokens;
    kvern_latent_tokens latents; // of a layer of latents
    bool is_latent;
    struct batch_view *views; // of k and v, or of latents, rotated keys and index keys
    both_ways both;
    int64_t *counts;
} naive_tokens;

naive_tokens naive_append(test_random *random, const kvern_layer *layer, naive_row *rows,
                          size_t row_count, const int64_t *counts);

// The same in a phase whose tokens see each other both ways, chosen at random.
naive_tokens naive_append_both_ways(test_random *random, const kvern_layer *layer, naive_row *rows,
                                    size_t row_count, kvern_phase phase, const int64_t *counts);
void naive_tokens_free(naive_tokens *tokens);

// Appends them: to a cache that stands alone, and to a layer of the open step.
KVERN_CHECK kvern_status naive_cache_append(kvern_cache *cache, kvern_phase phase,
                                            const naive_tokens *tokens, kvern_read **read);
KVERN_CHECK kvern_status naive_step_append(kvern_state *state, size_t layer,
                                           const naive_tokens *tokens, kvern_read **read);

// Appends counts[i] random tokens to a cache of one row, one append after the other, and checks
// what every one of them reads and, in the end, what is stored.
void naive_check_appends(kvern_layer layer, const int64_t *counts, size_t appends);

#endif
