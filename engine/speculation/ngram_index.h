// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_NGRAM_INDEX_H
#define KVERN_ENGINE_NGRAM_INDEX_H

// Where the end of a sequence of tokens has occurred in it before.
//
// Every pair of neighbours is kept in a chain with the earlier pairs of the same hash, the newest
// first, so a token is taken in and given back in constant time, and a search looks at a bounded
// number of places however long the sequence is.

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

// The least and the most tokens that a match has: beyond the most, all are as good.
#define NGRAM_LEAST 2
#define NGRAM_MOST 16

typedef struct ngram_index ngram_index;

// Room for sequences of up to `capacity` tokens. On failure *out is NULL. Errors: KVERN_ERR_RANGE
// (more than INT32_MAX tokens), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status ngram_index_create(size_t capacity, ngram_index **out,
                                            engine_error *error);

// NULL is allowed.
void ngram_index_destroy(ngram_index *index);

// Takes in the first `count` tokens; those that it has already must not have changed. Tokens beyond
// the capacity are left out.
void ngram_index_extend(ngram_index *index, const int32_t *tokens, size_t count);

// Forgets all but the first `count` tokens.
void ngram_index_trim(ngram_index *index, size_t count);

// The longest match of the sequence's end among its earlier tokens, of NGRAM_MOST tokens at most;
// of several the newest one. Returns its length, 0 if there is none of NGRAM_LEAST, and in *next
// the place of the token that followed it. The last token must not have been taken in yet;
// everything before it is taken in. Of a pair that occurs very often only the newest places are
// looked at.
size_t ngram_index_find(ngram_index *index, const int32_t *tokens, size_t count, size_t *next);

#endif
