// SPDX-License-Identifier: MIT
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/sized.h"

#define QUEUE_ENTRIES 16
#define QUEUE_BYTES (UINT64_C(1) << 30)

static const kvern_sized OPTIONS_SIZES =
    KVERN_SIZED(kvern_disk_store_options, KVERN_SIZE_TO(kvern_disk_store_options, drop_at_close));
static const kvern_sized STATS_SIZES =
    KVERN_SIZED(kvern_disk_store_stats, KVERN_SIZE_TO(kvern_disk_store_stats, left_over));

void kvern_disk_store_options_init(kvern_disk_store_options *options, size_t size)
{
    const kvern_disk_store_options defaults = {.size = size};
    kvern_sized_init(&OPTIONS_SIZES, &defaults, options, size);
}

void kvern_disk_store_stats_init(kvern_disk_store_stats *stats, size_t size)
{
    const kvern_disk_store_stats none = {.size = size};
    kvern_sized_init(&STATS_SIZES, &none, stats, size);
}

// ---- Opening ----

static kvern_status read_options(const kvern_disk_store_options *given,
                                 kvern_disk_store_options *out)
{
    *out = kvern_disk_store_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTIONS_SIZES, given, out) : KVERN_OK;
    if (status)
        return status;
    if (out->create > 1 || out->read_only > 1 || out->trust_pages > 1 || out->drop_at_close > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a flag of the options is neither 0 nor 1");
    if (!out->queue_entries)
        out->queue_entries = QUEUE_ENTRIES;
    if (!out->queue_bytes)
        out->queue_bytes = QUEUE_BYTES;
    return KVERN_OK;
}

static kvern_status make_store(kvern_context *context, const kvern_disk_store_options *options,
                               const kvern_disk_calls *calls, kvern_disk_store **out)
{
    void *block;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &block);
    if (status)
        return status;
    kvern_disk_store *store = *out = block;
    store->context = context;
    store->options = *options;
    store->calls = calls ? *calls : kvern_system_disk;
    store->lock_file = -1;
    store->stats.size = sizeof store->stats;
    store->stats.budget_bytes = options->budget_bytes;
    // Ranks are nobody's to choose, so that no prompts make a treap deep.
    kvern_trie_init(&store->trie, (uint64_t)(uintptr_t)store);
    kvern_context_retain(context);
    pthread_mutex_init(&store->disk_lock, NULL);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->queue.changed, NULL);
    return KVERN_OK;
}

static void drop_all(kvern_disk_store *store)
{
    kvern_disk_rest rest = {0};
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        while (store->buckets[b])
            kvern_disk_index_drop(store, store->buckets[b], &rest);
    }
    kvern_disk_rest_free(store, &rest);
}

static void free_store(kvern_disk_store *store)
{
    kvern_context *context = store->context;
    drop_all(store);
    kvern_disk_directory_unlock(store);
    pthread_cond_destroy(&store->queue.changed);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->disk_lock);
    kvern_heap_give(&context->heap, store, sizeof *store, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

// With the writer's lock nobody else changes what is looked at. Under disk_lock.
static kvern_status become_writer(kvern_disk_store *store)
{
    store->scanned = (struct timespec){0}; // what a reader has passed over is to be moved aside
    kvern_status status = kvern_disk_scan(store);
    if (status)
        return status;
    kvern_disk_count_aside(store);
    if (store->options.budget_bytes)
        (void)kvern_disk_make_room(store, 0, store->options.budget_bytes);
    if ((status = kvern_disk_writer_start(store)))
        return status;
    pthread_mutex_lock(&store->lock);
    store->stats.is_writer = 1;
    pthread_mutex_unlock(&store->lock);
    return KVERN_OK;
}

// As the writer where there is none. Under disk_lock.
static kvern_status look(kvern_disk_store *store)
{
    if (!kvern_disk_directory_lock(store))
        return kvern_disk_scan(store);
    kvern_status status = become_writer(store);
    if (status)
        kvern_disk_directory_unlock(store);
    return status;
}

static kvern_status open_store(kvern_disk_store *store, const char *directory)
{
    kvern_status status = kvern_disk_directory_open(store, directory);
    return status ? status : look(store);
}

kvern_status kvern_disk_store_open_by(const kvern_disk_calls *calls, kvern_context *context,
                                      const char *directory, const kvern_disk_store_options *given,
                                      kvern_disk_store **out)
{
    kvern_disk_store_options options;
    kvern_disk_store *store;
    if (out)
        *out = NULL;
    if (!context || !directory || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context, directory or out is NULL");
    kvern_status status = read_options(given, &options);
    if (!status)
        status = kvern_container_check_machine();
    if (!status)
        status = make_store(context, &options, calls, &store);
    if (status)
        return status;
    if ((status = open_store(store, directory)))
        free_store(store);
    else
        *out = store;
    return status;
}

kvern_status kvern_disk_store_open(kvern_context *context, const char *directory,
                                   const kvern_disk_store_options *options, kvern_disk_store **out)
{
    return kvern_disk_store_open_by(NULL, context, directory, options, out);
}

void kvern_disk_store_close(kvern_disk_store *store)
{
    if (!store)
        return;
    if (store->stats.is_writer)
        kvern_disk_writer_end(store);
    free_store(store);
}

kvern_status kvern_disk_store_rescan(kvern_disk_store *store)
{
    if (!store)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store is NULL");
    if (kvern_disk_is_writer(store))
        return KVERN_OK;
    pthread_mutex_lock(&store->disk_lock);
    kvern_status status = store->lock_file >= 0 ? KVERN_OK : look(store);
    pthread_mutex_unlock(&store->disk_lock);
    return status;
}

// ---- What there is ----

static const kvern_sized ENTRY_SIZES =
    KVERN_SIZED(kvern_disk_entry_facts, KVERN_SIZE_TO(kvern_disk_entry_facts, reserved));

static int visit_entry(const kvern_disk_entry *entry,
                       int (*visit)(void *user, const kvern_disk_entry_facts *facts), void *user)
{
    const kvern_disk_entry_facts known = {
        .size = sizeof known,
        .name = entry->name,
        .bytes = entry->bytes,
        .used = entry->used / 1000000000,
        .positions = entry->items[0].positions,
        .floor = entry->items[0].floor,
        .checkpoints = entry->item_count - 1,
    };
    kvern_disk_entry_facts facts;
    kvern_sized_init(&ENTRY_SIZES, &known, &facts, sizeof facts);
    return visit(user, &facts);
}

int kvern_disk_store_each(kvern_disk_store *store,
                          int (*visit)(void *user, const kvern_disk_entry_facts *facts), void *user)
{
    int result = 0;
    pthread_mutex_lock(&store->lock);
    for (size_t b = 0; b < KVERN_DISK_BUCKETS && !result; b++) {
        for (const kvern_disk_entry *e = store->buckets[b]; e && !result; e = e->next_named)
            result = visit_entry(e, visit, user);
    }
    pthread_mutex_unlock(&store->lock);
    return result;
}

kvern_status kvern_disk_store_prune(kvern_disk_store *store, uint64_t bytes)
{
    if (!store)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store is NULL");
    if (!kvern_disk_is_writer(store))
        return kvern_fail(KVERN_ERR_BUSY,
                          "another process has %s open for writing, or it was opened to read only",
                          store->directory);
    pthread_mutex_lock(&store->disk_lock);
    (void)kvern_disk_make_room(store, 0, bytes);
    pthread_mutex_unlock(&store->disk_lock);
    return KVERN_OK;
}

kvern_status kvern_disk_store_get_stats(kvern_disk_store *store, kvern_disk_store_stats *stats)
{
    if (!store || !stats)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store or stats is NULL");
    kvern_status status = kvern_sized_check_output(&STATS_SIZES, stats);
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    kvern_disk_store_stats now = store->stats;
    now.queued = store->queue.count;
    now.queued_bytes = store->queue.bytes;
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&STATS_SIZES, &now, stats);
    return KVERN_OK;
}
