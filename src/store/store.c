// SPDX-License-Identifier: MIT
#include "src/store/store.h"

#include "src/base/assert.h"
#include "src/base/context.h"
#include "src/base/fail.h"
#include "src/base/sized.h"

#include <inttypes.h>

static const kvern_sized OPTIONS_SIZES =
    KVERN_SIZED(kvern_store_options, KVERN_SIZE_TO(kvern_store_options, budget_bytes));
static const kvern_sized STATS_SIZES =
    KVERN_SIZED(kvern_store_stats, KVERN_SIZE_TO(kvern_store_stats, evictions));

void kvern_store_options_init(kvern_store_options *options, size_t size)
{
    const kvern_store_options defaults = {.size = size};
    kvern_sized_init(&OPTIONS_SIZES, &defaults, options, size);
}

static kvern_status take_store(kvern_context *context, uint64_t budget_bytes, kvern_store **out)
{
    void *memory;
    if (budget_bytes && budget_bytes < sizeof **out)
        return kvern_fail(KVERN_ERR_BUDGET,
                          "a store of %" PRIu64 " bytes, but an empty one takes %zu", budget_bytes,
                          sizeof **out);
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &memory);
    if (status)
        return status;
    kvern_store *store = memory;
    store->context = context;
    store->own_bytes = sizeof *store;
    store->stats.budget_bytes = budget_bytes;
    // Ranks are nobody's to choose, so that no prompts make a treap deep.
    kvern_trie_init(&store->trie, (uint64_t)(uintptr_t)store);
    *out = store;
    return KVERN_OK;
}

kvern_status kvern_store_create(kvern_context *context, const kvern_store_options *given,
                                kvern_store **out)
{
    if (out)
        *out = NULL;
    if (!context || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context or out is NULL");
    kvern_store_options options = kvern_store_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTIONS_SIZES, given, &options) : KVERN_OK;
    if (status)
        return status;
    if (atomic_exchange(&context->has_store, true))
        return kvern_fail(KVERN_ERR_BUSY, "the context has a store");
    if ((status = take_store(context, options.budget_bytes, out))) {
        atomic_store(&context->has_store, false);
        return status;
    }
    kvern_context_retain(context);
    pthread_mutex_init(&(*out)->lock, NULL);
    return KVERN_OK;
}

void kvern_store_destroy(kvern_store *store)
{
    if (!store)
        return;
    kvern_context *context = store->context;
    (void)kvern_store_give_up(store, UINT64_MAX);
    KVERN_ASSERT(store->stats.pinned == 0 && store->claims.bytes == 0 && store->trie.bytes == 0 &&
                 store->booked == 0 && store->own_bytes == sizeof *store);
    pthread_mutex_destroy(&store->lock);
    kvern_heap_give(&context->heap, store, sizeof *store, KVERN_HEAP_ALIGNMENT);
    atomic_store(&context->has_store, false);
    kvern_context_release(context);
}

// One by one: what an entry gives back is known when it has gone.
uint64_t kvern_store_give_up(kvern_store *store, uint64_t bytes)
{
    uint64_t given = 0;
    while (given < bytes) {
        kvern_store_rest rest = {0};
        pthread_mutex_lock(&store->lock);
        kvern_store_entry *entry = kvern_store_next_to_go(store);
        if (entry) {
            kvern_store_drop(store, entry, &rest);
            store->stats.evictions++;
        }
        pthread_mutex_unlock(&store->lock);
        if (!entry)
            return given;
        given += kvern_store_rest_free(store, &rest);
    }
    return given;
}

// ---- Looking ----

const char *kvern_store_why_text(kvern_store_why why)
{
    switch (why) {
#define KVERN_STORE_WHY_CASE(symbol, value, text)                                                  \
    case symbol:                                                                                   \
        return text;
        KVERN_STORE_WHY_LIST(KVERN_STORE_WHY_CASE)
#undef KVERN_STORE_WHY_CASE
    }
    return "unknown reason";
}

void kvern_store_stats_init(kvern_store_stats *stats, size_t size)
{
    const kvern_store_stats none = {.size = size};
    kvern_sized_init(&STATS_SIZES, &none, stats, size);
}

kvern_status kvern_store_get_stats(kvern_store *store, kvern_store_stats *stats)
{
    if (!store || !stats)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store or stats is NULL");
    kvern_status status = kvern_sized_check_output(&STATS_SIZES, stats);
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    kvern_store_stats now = store->stats;
    now.bytes = kvern_store_bytes(store);
    now.page_bytes = store->claims.page_bytes;
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&STATS_SIZES, &now, stats);
    return KVERN_OK;
}
