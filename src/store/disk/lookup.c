// SPDX-License-Identifier: MIT
// Finding entries, and lending them to rows.
#include "src/store/disk/disk_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/store/prompt.h"

#include <fcntl.h>
#include <string.h>

static const kvern_sized HIT_SIZES =
    KVERN_SIZED(kvern_disk_hit, KVERN_SIZE_TO(kvern_disk_hit, reserved));

void kvern_disk_hit_init(kvern_disk_hit *hit, size_t size)
{
    const kvern_disk_hit none = {.size = size};
    kvern_sized_init(&HIT_SIZES, &none, hit, size);
}

// ---- Finding ----

static kvern_store_why why_of(const kvern_trie_item *item)
{
    return ((const kvern_disk_item *)item)->why_floor;
}

// Under the lock.
static kvern_disk_entry *pin(kvern_disk_store *store, const kvern_disk_item *item)
{
    if (item->entry->pins++ == 0)
        store->stats.pinned++;
    return item->entry;
}

kvern_status kvern_disk_store_find(kvern_disk_store *store, const kvern_store_key *key,
                                   const kvern_composition *composition, const int32_t *tokens,
                                   size_t count, kvern_disk_hit *hit)
{
    kvern_prompt prompt;
    kvern_disk_hit found = kvern_disk_hit_default();
    if (!store || !composition || !hit || (count && !tokens))
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, composition, tokens or hit is NULL");
    kvern_status status = kvern_sized_check_output(&HIT_SIZES, hit);
    if (!status)
        status = kvern_prompt_make(key, tokens, count, &prompt);
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    const kvern_disk_layout *layout = kvern_disk_find_layout(
        store, composition->count, kvern_composition_signature_of, composition);
    const kvern_prefix prefix = kvern_prompt_find(
        &prompt, &store->trie, layout ? &layout->number : NULL, why_of, &store->stats.lookups);
    found.positions = prefix.positions;
    found.common = prefix.common;
    found.why = prefix.why;
    if (prefix.item)
        found.entry = pin(store, (const kvern_disk_item *)prefix.item);
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&HIT_SIZES, &found, hit);
    return KVERN_OK;
}

void kvern_disk_store_release(kvern_disk_store *store, kvern_disk_hit *hit)
{
    kvern_disk_rest rest = {0};
    kvern_disk_entry *entry = hit->entry;
    if (!entry)
        return;
    hit->entry = NULL;
    hit->positions = 0;
    pthread_mutex_lock(&store->lock);
    kvern_disk_unpin(store, entry, &rest);
    pthread_mutex_unlock(&store->lock);
    kvern_disk_rest_free(store, &rest);
}

// ---- Lending ----

// One loan on its way.
typedef struct lending {
    kvern_disk_store *store;
    kvern_disk_entry *entry;
    kvern_state *state;
    size_t row;
    int64_t positions;
    char path[KVERN_DISK_PATH_BYTES];
    kvern_file *file;
    kvern_state *loaded; // one row
    kvern_row *kept;     // its rows in all sets, one behind the other
    bool is_gone;
    bool is_damaged; // the detail says how
} lending;

// The shortest of what the entry's file has that serves so many positions; NULL: nothing does.
static const kvern_disk_item *item_for(const kvern_disk_entry *entry, int64_t positions)
{
    const kvern_disk_item *found = NULL;
    for (size_t i = 0; i < entry->item_count; i++) {
        const kvern_disk_item *item = &entry->items[i];
        if (item->floor <= positions && positions <= item->positions)
            found = item;
    }
    return found;
}

static kvern_status check_loan(const lending *l)
{
    if (!l->entry)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit has no entry");
    if (l->positions <= 0 || !item_for(l->entry, l->positions))
        return kvern_fail(KVERN_ERR_ARGUMENT, "the hit is not as it was found");
    return kvern_loan_check_row(l->store->context, l->state, l->row);
}

// Whether the name stands for the file that the index knows, whose tokens it has compared.
static bool is_as_indexed(const lending *l)
{
    struct stat facts;
    return lstat(l->path, &facts) == 0 && facts.st_ino == l->entry->inode &&
           (uint64_t)facts.st_size == l->entry->bytes;
}

// Memory is not the file's fault; nor are layers that are not its.
static kvern_status judge(lending *l, kvern_status status)
{
    if (!status || status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET)
        return status;
    l->is_damaged = true;
    return KVERN_OK;
}

static kvern_status open_file(lending *l)
{
    if (!is_as_indexed(l)) {
        l->is_gone = true;
        return KVERN_OK;
    }
    kvern_status status = kvern_file_open(l->store->context, l->path, &l->file);
    if (status != KVERN_ERR_MEMORY && status != KVERN_ERR_BUDGET && !is_as_indexed(l)) {
        l->is_gone = true;
        return KVERN_OK;
    }
    return judge(l, status);
}

static kvern_status verify(lending *l)
{
    kvern_disk_store *store = l->store;
    pthread_mutex_lock(&store->lock);
    const bool verified = l->entry->is_verified || store->options.trust_pages;
    pthread_mutex_unlock(&store->lock);
    if (verified)
        return KVERN_OK;
    kvern_status status = judge(l, kvern_file_verify(l->file));
    if (status || l->is_damaged)
        return status;
    pthread_mutex_lock(&store->lock);
    l->entry->is_verified = true;
    pthread_mutex_unlock(&store->lock);
    return KVERN_OK;
}

static kvern_status load(lending *l)
{
    kvern_composition *composition = l->state->composition;
    void *block;
    kvern_status status = kvern_state_make(composition, 0, &l->loaded);
    if (status)
        return status;
    l->loaded->batch.checkpoint_budget = UINT64_MAX;
    status = kvern_heap_take_zeroed(kvern_disk_heap(l->store),
                                    composition->sets * sizeof(kvern_row), &block);
    if (status)
        return status;
    l->kept = block;
    return judge(l, kvern_file_load(l->file, NULL, l->loaded));
}

// The rows of what serves the hit, or NULL.
static const kvern_row *kept_rows(lending *l, int64_t positions)
{
    const kvern_batch *batch = &l->loaded->batch;
    if (batch->lengths[0] == positions) {
        for (size_t s = 0; s < batch->sets; s++)
            l->kept[s] = kvern_batch_rows(batch, s).rows[0];
        return l->kept;
    }
    const kvern_checkpoint *at = batch->checkpoints[0];
    while (at && at->position != positions)
        at = at->below;
    return at ? at->sets : NULL;
}

// The note of a file is no more than a word: the row itself says what may be cut off it.
static void lend_row(lending *l, int64_t *lent)
{
    const int64_t length = item_for(l->entry, l->positions)->positions;
    const kvern_planned_layer *layer;
    const kvern_row_source source = {.kept = kept_rows(l, length)};
    if (!source.kept ||
        kvern_row_source_floor(l->state->composition, &source, &layer) > l->positions) {
        l->is_damaged = kvern_fail(KVERN_ERR_FORMAT, "it does not serve what it says");
        return;
    }
    kvern_kept_row_lend(l->state, l->row, source.kept, length, l->positions);
    *lent = l->positions;
}

// A reader may not: then its entry is old to others.
static void touch(lending *l)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct stat facts;
    const bool touched = is_as_indexed(l) && utimensat(AT_FDCWD, l->path, now, 0) == 0 &&
                         lstat(l->path, &facts) == 0;
    pthread_mutex_lock(&l->store->lock);
    if (touched)
        l->entry->used = kvern_max_i64(l->entry->used, kvern_disk_time(&facts.st_mtim));
    kvern_loan_count(&l->store->stats.lookups, l->positions);
    pthread_mutex_unlock(&l->store->lock);
}

// The entry is found no more. True: it was until now.
static bool forget(lending *l)
{
    kvern_disk_store *store = l->store;
    kvern_disk_rest rest = {0};
    pthread_mutex_lock(&store->lock);
    const bool listed = l->entry->is_listed;
    if (listed)
        kvern_disk_index_drop(store, l->entry, &rest);
    if (l->is_gone)
        store->stats.gone++;
    else
        store->stats.damaged++;
    pthread_mutex_unlock(&store->lock);
    kvern_disk_rest_free(store, &rest);
    return listed;
}

static void forget_file(lending *l)
{
    if (l->is_gone) {
        (void)forget(l);
        return;
    }
    pthread_mutex_lock(&l->store->disk_lock);
    if (forget(l) && is_as_indexed(l))
        kvern_disk_set_aside(l->store, l->entry->name, kvern_error_detail());
    pthread_mutex_unlock(&l->store->disk_lock);
}

static kvern_status lend(lending *l, int64_t *lent)
{
    kvern_disk_path(l->store, NULL, l->entry->name, l->path);
    kvern_status status = open_file(l);
    if (status || l->is_gone || l->is_damaged)
        return status;
    // Layers are the caller's to match, as for a store in memory.
    status = kvern_loan_check_layers(l->file->layers, kvern_disk_file_signature, l->file,
                                     l->state->composition);
    if (!status)
        status = verify(l);
    if (!status && !l->is_damaged)
        status = load(l);
    if (!status && !l->is_damaged)
        lend_row(l, lent);
    return status;
}

kvern_status kvern_disk_store_lend(kvern_disk_store *store, const kvern_disk_hit *given,
                                   kvern_state *state, size_t row, int64_t *lent)
{
    kvern_disk_hit hit;
    if (!store || !given || !state || !lent)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, hit, state or lent is NULL");
    kvern_status status = kvern_sized_read(&HIT_SIZES, given, &hit);
    if (status)
        return status;
    lending l = {
        .store = store,
        .entry = hit.entry,
        .state = state,
        .row = row,
        .positions = hit.positions,
    };
    int64_t positions = 0;
    if ((status = check_loan(&l)))
        return status;
    status = lend(&l, &positions);
    kvern_state_destroy(l.loaded);
    kvern_heap_give(kvern_disk_heap(store), l.kept, state->composition->sets * sizeof(kvern_row),
                    KVERN_HEAP_ALIGNMENT);
    kvern_file_close(l.file);
    if (status)
        return status;
    if (l.is_gone || l.is_damaged)
        forget_file(&l);
    else
        touch(&l);
    *lent = positions;
    return KVERN_OK;
}
