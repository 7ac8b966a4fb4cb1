// SPDX-License-Identifier: MIT
// Which entries there are.
#include "src/store/disk/disk_store.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

// ---- Layouts ----

const char *kvern_disk_file_signature(const void *file, size_t layer)
{
    return kvern_file_signature(file, layer);
}

static bool has_signatures(const kvern_disk_layout *layout,
                           const char *(*signature)(const void *of, size_t layer), const void *of)
{
    const char *at = layout->signatures;
    for (size_t l = 0; l < layout->layers; l++) {
        if (strcmp(at, signature(of, l)) != 0)
            return false;
        at += strlen(at) + 1;
    }
    return true;
}

kvern_disk_layout *kvern_disk_find_layout(const kvern_disk_store *store, size_t layers,
                                          const char *(*signature)(const void *of, size_t layer),
                                          const void *of)
{
    kvern_disk_layout *layout = store->layouts;
    while (layout && (layout->layers != layers || !has_signatures(layout, signature, of)))
        layout = layout->next;
    return layout;
}

static kvern_status make_layout(kvern_disk_store *store, const kvern_file *file, size_t layers,
                                kvern_disk_layout **out)
{
    size_t bytes = 0;
    void *block;
    for (size_t l = 0; l < layers; l++)
        bytes += strlen(kvern_file_signature(file, l)) + 1;
    kvern_status status =
        kvern_heap_take(kvern_disk_heap(store), sizeof **out + bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_disk_layout *layout = block;
    *layout = (kvern_disk_layout){.layers = layers, .bytes = bytes};
    char *at = layout->signatures;
    for (size_t l = 0; l < layers; l++) {
        const size_t length = strlen(kvern_file_signature(file, l)) + 1;
        memcpy(at, kvern_file_signature(file, l), length);
        at += length;
    }
    layout->number = ++store->layouts_made;
    layout->next = store->layouts;
    store->layouts = *out = layout;
    return KVERN_OK;
}

static kvern_status hold_layout(kvern_disk_store *store, const kvern_file *file,
                                kvern_disk_layout **out)
{
    kvern_status status = KVERN_OK;
    *out = kvern_disk_find_layout(store, file->layers, kvern_disk_file_signature, file);
    if (!*out)
        status = make_layout(store, file, file->layers, out);
    if (!status)
        (*out)->references++;
    return status;
}

static void leave_layout(kvern_disk_store *store, kvern_disk_layout *layout, kvern_disk_rest *rest)
{
    if (--layout->references)
        return;
    kvern_disk_layout **link = &store->layouts;
    while (*link != layout)
        link = &(*link)->next;
    *link = layout->next;
    layout->next = rest->layouts;
    rest->layouts = layout;
}

// ---- Items ----

static kvern_disk_item *item_of(kvern_trie_item *item)
{
    return (kvern_disk_item *)item; // it is the first thing of it
}

static bool is_in_front(const kvern_disk_item *item)
{
    return item->item.node->item == &item->item;
}

// The item of the least floor is in front.
static void add_beside(kvern_disk_item *front, kvern_disk_item *item)
{
    if (item->item.floor < front->item.floor) {
        kvern_trie_node *node = front->item.node;
        kvern_trie_exchange(&front->item, &item->item);
        front->item.node = node;
        item->behind = front;
        return;
    }
    item->item.node = front->item.node;
    item->behind = front->behind;
    front->behind = item;
}

static kvern_status add_item(kvern_disk_store *store, const kvern_key *key, kvern_disk_item *item)
{
    const kvern_trie_place place = kvern_trie_find(&store->trie, key, 0);
    const size_t fresh = kvern_key_count(key) - place.matched;
    kvern_trie_parts parts;
    if (fresh == 0 && place.node->end == place.matched && place.node->item) {
        add_beside(item_of(place.node->item), item);
        return KVERN_OK;
    }
    kvern_status status = kvern_trie_parts_make(kvern_disk_heap(store), key, fresh, &parts);
    if (status)
        return status;
    kvern_trie_put(&store->trie, key, &item->item, &parts);
    kvern_trie_parts_free(kvern_disk_heap(store), &parts);
    return KVERN_OK;
}

static kvern_disk_item *least_behind(kvern_disk_item *front)
{
    kvern_disk_item *least = front->behind;
    for (kvern_disk_item *at = least; at; at = at->behind) {
        if (at->item.floor < least->item.floor)
            least = at;
    }
    return least;
}

static void leave_line(kvern_disk_item *front, kvern_disk_item *item)
{
    kvern_disk_item *before = front;
    while (before->behind != item)
        before = before->behind;
    before->behind = item->behind;
}

static void take_item_out(kvern_disk_store *store, kvern_disk_item *item, kvern_disk_rest *rest)
{
    if (!item->item.node) // it was never put in
        return;
    if (!is_in_front(item)) {
        leave_line(item_of(item->item.node->item), item);
    } else if (item->behind) {
        kvern_disk_item *next = least_behind(item);
        leave_line(item, next);
        next->behind = item->behind;
        kvern_trie_exchange(&item->item, &next->item);
    } else {
        kvern_trie_take_out(&store->trie, &item->item, &rest->trie);
    }
    item->item.node = NULL;
    item->behind = NULL;
}

// ---- Names ----

static kvern_disk_entry **bucket_of(const kvern_disk_store *store, const char *name)
{
    static const char hex[] = "0123456789abcdef";
    size_t number = 0;
    for (int i = 0; i < 3; i++)
        number = 16 * number + (size_t)(strchr(hex, name[i]) - hex);
    return (kvern_disk_entry **)&store->buckets[number];
}

kvern_disk_entry *kvern_disk_find_name(const kvern_disk_store *store, const char *name)
{
    kvern_disk_entry *entry = *bucket_of(store, name);
    while (entry && strcmp(entry->name, name) != 0)
        entry = entry->next_named;
    return entry;
}

// ---- Entries ----

size_t kvern_disk_entry_bytes(size_t items)
{
    return sizeof(kvern_disk_entry) + items * sizeof(kvern_disk_item);
}

static kvern_status make_entry(kvern_disk_store *store, const kvern_disk_facts *facts,
                               const struct stat *file_facts, kvern_disk_entry **out)
{
    void *block;
    kvern_status status = kvern_heap_take_zeroed(kvern_disk_heap(store),
                                                 kvern_disk_entry_bytes(facts->snapshots), &block);
    if (status)
        return status;
    kvern_disk_entry *entry = *out = block;
    memcpy(entry->name, facts->name, sizeof entry->name);
    entry->bytes = (uint64_t)file_facts->st_size;
    entry->inode = file_facts->st_ino;
    entry->used = kvern_disk_time(&file_facts->st_mtim);
    entry->item_count = facts->snapshots;
    return KVERN_OK;
}

// The longest first, so that the others find their words in the trie.
static kvern_status add_items(kvern_disk_store *store, const kvern_disk_facts *facts,
                              kvern_disk_entry *entry)
{
    kvern_key_front front = facts->front;
    const char *note = facts->note;
    kvern_status status = KVERN_OK;
    kvern_key_front_set_layout(&front, entry->layout->number);
    for (size_t i = 0; i < entry->item_count && !status; i++) {
        kvern_disk_item *item = &entry->items[i];
        kvern_disk_snapshot snapshot;
        const bool read = kvern_disk_snapshot_read(&note, &snapshot);
        KVERN_ASSERT(read); // kvern_disk_facts_read has
        (void)read;
        item->entry = entry;
        item->positions = snapshot.positions;
        item->floor = snapshot.floor;
        item->why_floor = snapshot.why;
        item->item.floor = front.count + (size_t)snapshot.floor;
        const kvern_key key = {&front, facts->tokens, (size_t)snapshot.positions};
        status = add_item(store, &key, item);
    }
    return status;
}

static void take_items_out(kvern_disk_store *store, kvern_disk_entry *entry, kvern_disk_rest *rest)
{
    for (size_t i = 0; i < entry->item_count; i++)
        take_item_out(store, &entry->items[i], rest);
}

kvern_status kvern_disk_index_add(kvern_disk_store *store, const kvern_file *file,
                                  const kvern_disk_facts *facts, const struct stat *file_facts,
                                  kvern_disk_entry **out)
{
    kvern_disk_rest rest = {0};
    kvern_disk_entry *entry = NULL;
    *out = NULL;
    kvern_status status = make_entry(store, facts, file_facts, &entry);
    if (status)
        return status;
    if (!(status = hold_layout(store, file, &entry->layout)) &&
        !(status = add_items(store, facts, entry))) {
        kvern_disk_entry **bucket = bucket_of(store, entry->name);
        entry->next_named = *bucket;
        *bucket = entry;
        entry->is_listed = entry->is_seen = true;
        store->stats.entries++;
        store->stats.bytes += entry->bytes;
        *out = entry;
        return KVERN_OK;
    }
    take_items_out(store, entry, &rest);
    if (entry->layout)
        leave_layout(store, entry->layout, &rest);
    rest.entries = entry;
    kvern_disk_rest_free(store, &rest);
    return status;
}

void kvern_disk_index_drop(kvern_disk_store *store, kvern_disk_entry *entry, kvern_disk_rest *rest)
{
    kvern_disk_entry **link = bucket_of(store, entry->name);
    KVERN_ASSERT(entry->is_listed);
    while (*link != entry)
        link = &(*link)->next_named;
    *link = entry->next_named;
    entry->is_listed = false;
    store->stats.entries--;
    store->stats.bytes -= entry->bytes;
    take_items_out(store, entry, rest);
    leave_layout(store, entry->layout, rest);
    entry->layout = NULL;
    if (entry->pins)
        return;
    entry->next = rest->entries;
    rest->entries = entry;
}

void kvern_disk_unpin(kvern_disk_store *store, kvern_disk_entry *entry, kvern_disk_rest *rest)
{
    KVERN_ASSERT(entry->pins > 0);
    if (--entry->pins)
        return;
    store->stats.pinned--;
    if (entry->is_listed)
        return;
    entry->next = rest->entries;
    rest->entries = entry;
}

// ---- Who serves whom ----

bool kvern_disk_serves(kvern_disk_store *store, const kvern_key *key, int64_t floor)
{
    const kvern_trie_place place = kvern_trie_find(&store->trie, key, 0);
    return place.matched == kvern_key_count(key) &&
           place.node->least <= key->front->count + (size_t)floor;
}

static bool serves_item(const kvern_disk_entry *entry, const kvern_disk_item *item)
{
    for (size_t i = 0; i < entry->item_count; i++) {
        const kvern_disk_item *own = &entry->items[i];
        if (own->positions >= item->positions && own->floor <= item->floor)
            return true;
    }
    return false;
}

// All of whose tokens are a beginning of the entry's.
static bool serves_entry(const kvern_disk_entry *entry, const kvern_disk_entry *other)
{
    for (size_t i = 0; i < other->item_count; i++) {
        if (!serves_item(entry, &other->items[i]))
            return false;
    }
    return true;
}

// Entries whose rows end at a node.
static void drop_at(kvern_disk_store *store, kvern_trie_node *node, const kvern_disk_entry *entry,
                    kvern_disk_rest *rest)
{
    kvern_disk_item *next;
    for (kvern_disk_item *at = node->item ? item_of(node->item) : NULL; at; at = next) {
        kvern_disk_entry *other = at->entry;
        next = at->behind;
        if (other == entry || other->pins || at != &other->items[0] || !serves_entry(entry, other))
            continue;
        kvern_disk_index_drop(store, other, rest);
        store->stats.served_by_longer++;
    }
}

// The path to a node stays while the node does, but for the nodes that only they led to.
void kvern_disk_index_drop_beginnings(kvern_disk_store *store, kvern_disk_entry *entry,
                                      kvern_disk_rest *rest)
{
    for (;;) {
        const uint64_t before = store->stats.served_by_longer;
        kvern_trie_node *node = entry->items[0].item.node;
        while (node && store->stats.served_by_longer == before) {
            drop_at(store, node, entry, rest);
            node = node->parent;
        }
        if (store->stats.served_by_longer == before)
            return;
    }
}

// ---- Memory ----

static void free_entry(kvern_disk_store *store, kvern_disk_entry *entry)
{
    kvern_heap_give(kvern_disk_heap(store), entry, kvern_disk_entry_bytes(entry->item_count),
                    KVERN_HEAP_ALIGNMENT);
}

void kvern_disk_rest_free(kvern_disk_store *store, kvern_disk_rest *rest)
{
    kvern_heap *heap = kvern_disk_heap(store);
    while (rest->entries) {
        kvern_disk_entry *entry = rest->entries;
        rest->entries = entry->next;
        free_entry(store, entry);
    }
    while (rest->layouts) {
        kvern_disk_layout *layout = rest->layouts;
        rest->layouts = layout->next;
        kvern_heap_give(heap, layout, sizeof *layout + layout->bytes, KVERN_HEAP_ALIGNMENT);
    }
    kvern_trie_rest_free(heap, &rest->trie);
}

// ---- For tests ----

static const char *walk_entry(const kvern_disk_entry *entry)
{
    if (!entry->is_listed || !entry->layout)
        return "an entry is in its bucket, and not listed";
    for (size_t i = 0; i < entry->item_count; i++) {
        const kvern_disk_item *item = &entry->items[i];
        if (!item->item.node || item->entry != entry)
            return "an item is not in the trie";
        const kvern_disk_item *at = item_of(item->item.node->item);
        if (at->item.floor > item->item.floor)
            return "an item of a lower floor is behind another one";
        while (at && at != item)
            at = at->behind;
        if (!at)
            return "an item is not in the line at its node";
    }
    return NULL;
}

const char *kvern_disk_walk(kvern_disk_store *store)
{
    const char *wrong = kvern_trie_walk(&store->trie);
    uint64_t entries = 0, bytes = 0;
    for (size_t b = 0; b < KVERN_DISK_BUCKETS; b++) {
        for (kvern_disk_entry *e = store->buckets[b]; e && !wrong; e = e->next_named) {
            wrong = walk_entry(e);
            entries++;
            bytes += e->bytes;
        }
    }
    if (!wrong && (entries != store->stats.entries || bytes != store->stats.bytes))
        wrong = "there are other entries than counted";
    return wrong;
}
