// SPDX-License-Identifier: MIT
#include "engine/speculation/ngram_index.h"

#include <stdlib.h>

// Places that a search looks at.
#define MOST_PLACES 32

// A pair is named by the place of its second token; 0, which is no such place, ends a chain.
struct ngram_index {
    size_t capacity;
    size_t count;     // tokens taken in
    unsigned shift;   // of a hash, to the number of a bucket
    uint32_t *newest; // [buckets] the newest pair of each
    uint32_t *older;  // [capacity] the pair before this one in its bucket
    uint32_t *bucket; // [capacity] of each pair
};

kvern_status ngram_index_create(size_t capacity, ngram_index **out, engine_error *error)
{
    *out = NULL;
    if (capacity > INT32_MAX) {
        return engine_fail(error, KVERN_ERR_RANGE, "an index of %zu tokens is too large", capacity);
    }
    ngram_index *index = calloc(1, sizeof *index);
    if (index) {
        unsigned bits = 4;
        while ((size_t)1 << bits < capacity) {
            bits++;
        }
        index->capacity = capacity;
        index->shift = 32 - bits;
        index->newest = calloc((size_t)1 << bits, sizeof *index->newest);
        index->older = calloc(capacity + 1, sizeof *index->older);
        index->bucket = calloc(capacity + 1, sizeof *index->bucket);
    }
    if (!index || !index->newest || !index->older || !index->bucket) {
        ngram_index_destroy(index);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for an index of %zu tokens",
                           capacity);
    }
    *out = index;
    return KVERN_OK;
}

void ngram_index_destroy(ngram_index *index)
{
    if (!index) {
        return;
    }
    free(index->newest);
    free(index->older);
    free(index->bucket);
    free(index);
}

// Multiplicative hashing: the upper bits of the product are well mixed. It has no seed, since
// chains decide which places are found; a search of a long chain ends after MOST_PLACES.
static uint32_t bucket_of(const ngram_index *index, const int32_t *tokens, size_t at)
{
    const uint32_t mixed = (uint32_t)tokens[at - 1] * 0x9e3779b1u + (uint32_t)tokens[at];
    return mixed * 0x85ebca6bu >> index->shift;
}

void ngram_index_extend(ngram_index *index, const int32_t *tokens, size_t count)
{
    count = count < index->capacity ? count : index->capacity;
    for (; index->count < count; index->count++) {
        const size_t at = index->count;
        if (at > 0) {
            index->bucket[at] = bucket_of(index, tokens, at);
            index->older[at] = index->newest[index->bucket[at]];
            index->newest[index->bucket[at]] = (uint32_t)at;
        }
    }
}

// A pair that is newer than all that stay is the newest of its bucket.
void ngram_index_trim(ngram_index *index, size_t count)
{
    while (index->count > count) {
        const size_t at = --index->count;
        if (at > 0) {
            index->newest[index->bucket[at]] = index->older[at];
        }
    }
}

// How many tokens are the same before two ends, at `at` and at `end` behind it.
static size_t same_tokens(const int32_t *tokens, size_t at, size_t end)
{
    size_t same = 0;
    while (same < NGRAM_MOST && same <= at && tokens[at - same] == tokens[end - same]) {
        same++;
    }
    return same;
}

size_t ngram_index_find(ngram_index *index, const int32_t *tokens, size_t count, size_t *next)
{
    size_t best = 0;
    if (count < NGRAM_LEAST) {
        return 0;
    }
    ngram_index_extend(index, tokens, count - 1);
    size_t at = index->newest[bucket_of(index, tokens, count - 1)];
    for (size_t i = 0; at > 0 && i < MOST_PLACES && best < NGRAM_MOST; i++) {
        const size_t same = same_tokens(tokens, at, count - 1);
        if (same >= NGRAM_LEAST && same > best) {
            best = same;
            *next = at + 1;
        }
        at = index->older[at];
    }
    return best;
}
