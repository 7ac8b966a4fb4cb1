// SPDX-License-Identifier: MIT
// Which entries are there, which goes first, and what they count with.
#include "src/store/store.h"

#include "src/base/assert.h"
#include "src/base/context.h"

#include <string.h>

uint64_t kvern_store_bytes(const kvern_store *store)
{
    return store->own_bytes + store->booked + store->trie.bytes + store->claims.bytes;
}

size_t kvern_store_entry_bytes(size_t sets)
{
    return sizeof(kvern_store_entry) + sets * sizeof(kvern_row);
}

// ---- Layouts ----

static bool same_signatures(const kvern_composition *a, const kvern_composition *b)
{
    bool same = a == b || (a->count == b->count && a->sets == b->sets);
    for (size_t l = 0; same && a != b && l < a->count; l++)
        same = strcmp(a->layers[l].signature, b->layers[l].signature) == 0;
    return same;
}

kvern_store_layout *kvern_store_find_layout(kvern_store *store,
                                            const kvern_composition *composition)
{
    kvern_store_layout *layout = store->layouts;
    while (layout && !same_signatures(layout->composition, composition))
        layout = layout->next;
    return layout;
}

void kvern_store_leave_layout(kvern_store *store, kvern_store_layout *layout,
                              kvern_store_rest *rest)
{
    if (--layout->references > 0)
        return;
    kvern_store_layout **at = &store->layouts;
    while (*at != layout)
        at = &(*at)->next;
    *at = layout->next;
    store->own_bytes -= sizeof *layout;
    layout->next = rest->layouts;
    rest->layouts = layout;
}

// ---- Queues ----

static kvern_store_queue *queue_of(kvern_store *store, const kvern_store_entry *entry)
{
    return &store->queues[entry->retention];
}

static void put_newest(kvern_store *store, kvern_store_entry *entry)
{
    kvern_store_queue *queue = queue_of(store, entry);
    entry->newer = NULL;
    entry->older = queue->newest;
    *(queue->newest ? &queue->newest->newer : &queue->oldest) = entry;
    queue->newest = entry;
}

static void put_oldest(kvern_store *store, kvern_store_entry *entry)
{
    kvern_store_queue *queue = queue_of(store, entry);
    entry->older = NULL;
    entry->newer = queue->oldest;
    *(queue->oldest ? &queue->oldest->older : &queue->newest) = entry;
    queue->oldest = entry;
}

static void leave_queue(kvern_store *store, kvern_store_entry *entry)
{
    kvern_store_queue *queue = queue_of(store, entry);
    *(entry->newer ? &entry->newer->older : &queue->newest) = entry->older;
    *(entry->older ? &entry->older->newer : &queue->oldest) = entry->newer;
    entry->newer = entry->older = NULL;
}

void kvern_store_queue_entry(kvern_store *store, kvern_store_entry *entry)
{
    KVERN_ASSERT(entry->pins == 0);
    entry->used = ++store->time;
    put_newest(store, entry);
}

void kvern_store_pin(kvern_store *store, kvern_store_entry *entry)
{
    if (entry->pins++ > 0)
        return;
    leave_queue(store, entry);
    store->stats.pinned++;
}

// How long an entry has been unused, at the speed of its retention.
static uint64_t idle_time(const kvern_store *store, const kvern_store_entry *entry)
{
    static const uint64_t speed[KVERN_STORE_RETENTIONS] = {
        [KVERN_STORE_SHORT] = 16, [KVERN_STORE_NORMAL] = 4, [KVERN_STORE_LONG] = 1};
    return (store->time - entry->used) * speed[entry->retention];
}

kvern_store_entry *kvern_store_next_to_go(const kvern_store *store)
{
    static const kvern_store_retention order[KVERN_STORE_RETENTIONS] = {
        KVERN_STORE_SHORT, KVERN_STORE_NORMAL, KVERN_STORE_LONG};
    kvern_store_entry *next = NULL;
    for (size_t r = 0; r < KVERN_STORE_RETENTIONS; r++) {
        kvern_store_entry *oldest = store->queues[order[r]].oldest;
        if (oldest && (!next || idle_time(store, oldest) > idle_time(store, next)))
            next = oldest;
    }
    return next;
}

// ---- Counting ----

static void discount(kvern_store *store, const kvern_store_entry *entry)
{
    for (size_t s = 0; s < entry->set_count; s++)
        kvern_unclaim_row(&store->claims, &entry->sets[s]);
    store->own_bytes -= kvern_store_entry_bytes(entry->set_count);
}

static void count_again(kvern_store *store, const kvern_store_entry *entry)
{
    for (size_t s = 0; s < entry->set_count; s++)
        kvern_claim_row(&store->claims, &entry->sets[s]);
    store->own_bytes += kvern_store_entry_bytes(entry->set_count);
}

static void end_entry(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest)
{
    entry->next = rest->entries;
    rest->entries = entry;
    kvern_store_leave_layout(store, entry->layout, rest);
    entry->layout = NULL;
}

// It is found no more.
static void take_out(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest)
{
    kvern_trie_take_out(&store->trie, &entry->item, &rest->trie);
    store->stats.entries--;
}

void kvern_store_drop(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest)
{
    take_out(store, entry, rest);
    if (entry->pins)
        return;
    leave_queue(store, entry);
    discount(store, entry);
    end_entry(store, entry, rest);
}

void kvern_store_unpin(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest)
{
    KVERN_ASSERT(entry->pins > 0);
    if (--entry->pins > 0)
        return;
    store->stats.pinned--;
    if (entry->item.node) {
        kvern_store_queue_entry(store, entry);
        return;
    }
    discount(store, entry);
    end_entry(store, entry, rest);
}

static void evict(kvern_store *store, kvern_store_entry *entry, kvern_store_rest *rest)
{
    take_out(store, entry, rest);
    end_entry(store, entry, rest);
    store->stats.evictions++;
}

static void stay(kvern_store *store, kvern_store_entry *entry)
{
    count_again(store, entry);
    put_oldest(store, entry);
}

static bool fits(const kvern_store *store)
{
    const uint64_t budget = store->stats.budget_bytes;
    return !budget || kvern_store_bytes(store) <= budget;
}

// Those that are to go count no more, but are where they are until it is known that they suffice.
bool kvern_store_fit(kvern_store *store, kvern_store_rest *rest)
{
    kvern_store_entry *going = NULL, *entry; // the newest first
    while (!fits(store) && (entry = kvern_store_next_to_go(store))) {
        leave_queue(store, entry);
        discount(store, entry);
        entry->next = going;
        going = entry;
    }
    const bool enough = fits(store);
    kvern_store_entry *last = enough ? going : NULL;
    if (last)
        going = last->next;
    while ((entry = going)) {
        going = entry->next;
        if (enough)
            evict(store, entry, rest);
        else
            stay(store, entry);
    }
    if (!last)
        return enough;
    stay(store, last); // with what the others left in the index it may not have to go
    if (!fits(store)) {
        leave_queue(store, last);
        discount(store, last);
        evict(store, last, rest);
    }
    return true;
}

// ---- Without the lock ----

// Bytes that go back with a row: what nobody else has.
static uint64_t own_bytes(const kvern_row *row)
{
    uint64_t bytes = 0;
    if (!kvern_table_is_exclusive(row->table))
        return 0;
    for (size_t p = 0; p < row->table->count; p++) {
        const kvern_page *page = row->table->pages[p];
        bytes += kvern_page_is_exclusive(page) ? kvern_page_bytes(page) : 0;
    }
    return bytes + kvern_table_bytes(row->table->capacity);
}

static uint64_t free_entry(kvern_store *store, kvern_store_entry *entry)
{
    const size_t own = kvern_store_entry_bytes(entry->set_count);
    uint64_t bytes = own;
    for (size_t s = 0; s < entry->set_count; s++) {
        bytes += own_bytes(&entry->sets[s]);
        kvern_row_reset(&entry->sets[s]);
    }
    kvern_heap_give(kvern_store_heap(store), entry, own, KVERN_HEAP_ALIGNMENT);
    return bytes;
}

uint64_t kvern_store_rest_free(kvern_store *store, kvern_store_rest *rest)
{
    uint64_t bytes = 0;
    while (rest->entries) {
        kvern_store_entry *entry = rest->entries;
        rest->entries = entry->next;
        bytes += free_entry(store, entry);
    }
    while (rest->layouts) {
        kvern_store_layout *layout = rest->layouts;
        rest->layouts = layout->next;
        kvern_composition_release(layout->composition);
        kvern_heap_give(kvern_store_heap(store), layout, sizeof *layout, KVERN_HEAP_ALIGNMENT);
    }
    kvern_trie_rest_free(kvern_store_heap(store), &rest->trie);
    return bytes;
}
