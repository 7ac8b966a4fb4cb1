// SPDX-License-Identifier: MIT
// Greedy merging: the adjacent pair with the lowest rank, the leftmost of equals, becomes one
// symbol, until no pair has a rank. The symbols are a linked list and their ranked pairs a heap, so
// n symbols take O(n log n).
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdlib.h>

void merge_workspace_free(merge_workspace *w)
{
    free(w->symbols);
    free(w->heap);
}

// n symbols have at most n - 1 pairs at first; each of at most n - 1 merges takes one entry off the
// heap and adds two.
kvern_status merge_workspace_reserve(merge_workspace *w, size_t bytes)
{
    if (bytes <= w->capacity)
        return KVERN_OK;
    const size_t capacity = bytes < 2 * w->capacity + 64 ? 2 * w->capacity + 64 : bytes;
    symbol *symbols = realloc(w->symbols, capacity * sizeof *symbols);
    if (!symbols)
        return KVERN_ERR_MEMORY;
    w->symbols = symbols;
    ranked_pair *heap = realloc(w->heap, 2 * capacity * sizeof *heap);
    if (!heap)
        return KVERN_ERR_MEMORY;
    w->heap = heap;
    w->capacity = capacity;
    return KVERN_OK;
}

static void heap_push(merge_workspace *w, ranked_pair pair)
{
    size_t at = w->heap_count++;
    while (at > 0 && pair < w->heap[(at - 1) / 2]) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = pair;
}

static ranked_pair heap_pop(merge_workspace *w)
{
    const ranked_pair top = w->heap[0];
    const ranked_pair last = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t child = 1; child < w->heap_count; child = 2 * at + 1) {
        if (child + 1 < w->heap_count && w->heap[child + 1] < w->heap[child])
            child++;
        if (last <= w->heap[child])
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    w->heap[at] = last;
    return top;
}

// Ranks the pair that begins at a symbol, after one of its two changed.
static void rank_again(merge_workspace *w, pair_ranker rank, const void *arg, uint32_t at)
{
    symbol *s = &w->symbols[at];
    s->rank = s->next == NO_SYMBOL ? NO_RANK : rank(arg, w, at, &s->product);
    if (s->rank != NO_RANK)
        heap_push(w, (ranked_pair)s->rank << 32 | at);
}

static void merge_pair(merge_workspace *w, pair_ranker rank, const void *arg, uint32_t at)
{
    symbol *left = &w->symbols[at];
    symbol *right = &w->symbols[left->next];
    left->id = left->product;
    left->next = right->next;
    right->rank = NO_RANK;
    if (left->next != NO_SYMBOL)
        w->symbols[left->next].previous = at;
    rank_again(w, rank, arg, at);
    if (left->previous != NO_SYMBOL)
        rank_again(w, rank, arg, left->previous);
}

void merge_symbols(merge_workspace *w, pair_ranker rank, const void *arg)
{
    w->heap_count = 0;
    for (uint32_t at = 0; at != NO_SYMBOL; at = w->symbols[at].next)
        rank_again(w, rank, arg, at);
    while (w->heap_count > 0) {
        const ranked_pair pair = heap_pop(w);
        const uint32_t at = (uint32_t)pair;
        if (w->symbols[at].rank == (uint32_t)(pair >> 32))
            merge_pair(w, rank, arg, at);
    }
}
