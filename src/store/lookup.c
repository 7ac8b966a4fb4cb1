// SPDX-License-Identifier: MIT
// Finding entries, and lending them to rows.
#include "src/store/store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/store/why.h"

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

// Under the lock.
static void find(kvern_store *store, kvern_key *key, kvern_key_front *front,
                 const kvern_composition *composition, kvern_store_hit *hit)
{
    const kvern_store_layout *layout = kvern_store_find_layout(store, composition);
    if (layout)
        kvern_key_front_set_layout(front, layout->number);
    const size_t tokens = key->tokens_count, most = front->count + (tokens ? tokens - 1 : 0);
    if (!layout)
        key->tokens_count = 0; // the fields alone
    const kvern_trie_place place = kvern_trie_find(&store->trie, key, most);
    key->tokens_count = tokens;
    hit->why = kvern_store_why_no_more(key, layout, &place, most, why_of);
    hit->common = place.matched > front->count ? (int64_t)(place.matched - front->count) : 0;
    if (!place.best)
        return;
    hit->positions = (int64_t)(place.served - front->count);
    hit->entry = (kvern_store_entry *)kvern_trie_pick(place.best, place.served);
    kvern_store_pin(store, hit->entry);
}

static void count_lookup(kvern_store_stats *stats, const kvern_store_hit *hit, size_t tokens)
{
    stats->lookups++;
    stats->tokens_asked += tokens;
    stats->why[hit->why]++;
    if (!hit->positions) {
        stats->misses++;
        stats->why_missed[hit->why]++;
    } else if (hit->why == KVERN_STORE_ALL) {
        stats->full_hits++;
    } else {
        stats->partial_hits++;
    }
}

kvern_status kvern_store_find(kvern_store *store, const kvern_store_key *given,
                              const kvern_composition *composition, const int32_t *tokens,
                              size_t count, kvern_store_hit *hit)
{
    kvern_key_front front;
    if (!store || !composition || !hit || (count && !tokens))
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, composition, tokens or hit is NULL");
    kvern_status status = kvern_sized_check_output(&HIT_SIZES, hit);
    if (!status)
        status = kvern_key_front_make(given, &front);
    if (status)
        return status;
    kvern_key key = {.front = &front, .tokens = tokens, .tokens_count = count};
    kvern_store_hit found = kvern_store_hit_default();
    pthread_mutex_lock(&store->lock);
    find(store, &key, &front, composition, &found);
    count_lookup(&store->stats, &found, count);
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&HIT_SIZES, &found, hit);
    return KVERN_OK;
}

// ---- Lending ----

static kvern_status check_layers(const kvern_composition *stored, const kvern_composition *wanted)
{
    if (stored->count != wanted->count)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a prefix of %zu layers cannot become one of %zu",
                          stored->count, wanted->count);
    for (size_t l = 0; l < stored->count; l++) {
        const char *has = stored->layers[l].signature, *wants = wanted->layers[l].signature;
        if (has != wants && strcmp(has, wants) != 0)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "layer %zu: a prefix of %s cannot become one of %s", l, has, wants);
    }
    return KVERN_OK;
}

static kvern_status check_loan(const kvern_store *store, const kvern_store_hit *hit,
                               const kvern_state *state, size_t row)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (!hit->entry)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit has no entry");
    if (hit->positions < hit->entry->floor || hit->positions > hit->entry->positions ||
        hit->positions <= 0)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit is not as it was found");
    if (state->composition->context != store->context)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the state belongs to another context");
    if (row >= state->batch.row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, state->batch.row_count);
    if (state->batch.lengths[row])
        return kvern_fail(KVERN_ERR_BUSY, "row %zu is not empty", row);
    return check_layers(hit->entry->layout->composition, state->composition);
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
    store->stats.loans++;
    store->stats.tokens_lent += (uint64_t)hit.positions;
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
