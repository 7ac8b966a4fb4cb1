// SPDX-License-Identifier: MIT
// Finding entries, and lending them to rows.
#include "src/store/store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/store/prompt.h"

#include <string.h>

static const kvern_sized HIT_SIZES =
    KVERN_SIZED(kvern_store_hit, KVERN_SIZE_TO(kvern_store_hit, reserved));

void kvern_store_hit_init(kvern_store_hit *hit, size_t size)
{
    const kvern_store_hit none = {.size = size};
    kvern_sized_init(&HIT_SIZES, &none, hit, size);
}

// ---- Finding ----

static kvern_store_why why_of(const kvern_trie_item *item)
{
    return ((const kvern_store_entry *)item)->why_floor;
}

kvern_status kvern_store_find(kvern_store *store, const kvern_store_key *key,
                              const kvern_composition *composition, const int32_t *tokens,
                              size_t count, kvern_store_hit *hit)
{
    kvern_prompt prompt;
    kvern_store_hit found = kvern_store_hit_default();
    if (!store || !composition || !hit || (count && !tokens))
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, composition, tokens or hit is NULL");
    kvern_status status = kvern_sized_check_output(&HIT_SIZES, hit);
    if (!status)
        status = kvern_prompt_make(key, tokens, count, &prompt);
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    const kvern_store_layout *layout = kvern_store_find_layout(store, composition);
    const kvern_prefix prefix = kvern_prompt_find(
        &prompt, &store->trie, layout ? &layout->number : NULL, why_of, &store->stats.lookups);
    found.positions = prefix.positions;
    found.common = prefix.common;
    found.why = prefix.why;
    if ((found.entry = (kvern_store_entry *)prefix.item))
        kvern_store_pin(store, found.entry);
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&HIT_SIZES, &found, hit);
    return KVERN_OK;
}

// ---- Lending ----

static kvern_status check_loan(const kvern_store *store, const kvern_store_hit *hit,
                               const kvern_state *state, size_t row)
{
    if (!hit->entry)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit has no entry");
    if (hit->positions < hit->entry->floor || hit->positions > hit->entry->positions ||
        hit->positions <= 0)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit is not as it was found");
    kvern_status status = kvern_loan_check_row(store->context, state, row);
    if (status)
        return status;
    const kvern_composition *stored = hit->entry->layout->composition;
    return kvern_loan_check_layers(stored->count, kvern_composition_signature_of, stored,
                                   state->composition);
}

kvern_status kvern_store_lend(kvern_store *store, const kvern_store_hit *given, kvern_state *state,
                              size_t row)
{
    kvern_store_hit hit;
    if (!store || !given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store or hit is NULL");
    kvern_status status = kvern_sized_read(&HIT_SIZES, given, &hit);
    if (!status)
        status = check_loan(store, &hit, state, row);
    if (status)
        return status;
    kvern_kept_row_lend(state, row, hit.entry->sets, hit.entry->positions, hit.positions);
    pthread_mutex_lock(&store->lock);
    kvern_loan_count(&store->stats.lookups, hit.positions);
    pthread_mutex_unlock(&store->lock);
    return KVERN_OK;
}

void kvern_store_release(kvern_store *store, kvern_store_hit *hit)
{
    kvern_store_rest rest = {0};
    kvern_store_entry *entry = hit->entry;
    if (!entry)
        return;
    hit->entry = NULL;
    hit->positions = 0;
    pthread_mutex_lock(&store->lock);
    kvern_store_unpin(store, entry, &rest);
    pthread_mutex_unlock(&store->lock);
    (void)kvern_store_rest_free(store, &rest);
}
