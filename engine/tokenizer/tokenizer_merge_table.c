// SPDX-License-Identifier: MIT
// The merges of a byte-pair vocabulary: which pairs of tokens make a token, and in which order.
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/hash.h"

#include <stdlib.h>

kvern_status merge_table_init(merge_table *table, size_t count, engine_error *error)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    table->slots = malloc(slots * sizeof *table->slots);
    if (!table->slots)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu merges", count);
    for (size_t i = 0; i < slots; i++)
        table->slots[i].rank = NO_RANK;
    table->mask = slots - 1;
    table->seed = hash_seed();
    return KVERN_OK;
}

void merge_table_free(merge_table *table)
{
    free(table->slots);
}

merge *merge_table_find(const merge_table *table, int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t at = (size_t)hash_u64(key, table->seed);; at++) {
        merge *slot = &table->slots[at & table->mask];
        if (slot->rank == NO_RANK || (slot->left == left && slot->right == right))
            return slot;
    }
}

uint32_t merge_table_rank(const merge_table *table, const merge_workspace *w, uint32_t at,
                          int32_t *product)
{
    const symbol *left = &w->symbols[at];
    const merge *found = merge_table_find(table, left->id, w->symbols[left->next].id);
    *product = found->product;
    return found->rank;
}
