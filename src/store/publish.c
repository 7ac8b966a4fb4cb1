// SPDX-License-Identifier: MIT
// Rows become entries: what one takes is booked, made, and put in.
#include "src/store/store.h"

#include "src/base/assert.h"
#include "src/base/context.h"
#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/state/checkpoint.h"
#include "src/store/why.h"

#include <inttypes.h>

static const kvern_sized PUBLICATION_SIZES = KVERN_SIZED(
    kvern_store_publication, KVERN_SIZE_TO(kvern_store_publication, without_checkpoints));

void kvern_store_publication_init(kvern_store_publication *publication, size_t size)
{
    const kvern_store_publication defaults = {.size = size};
    kvern_sized_init(&PUBLICATION_SIZES, &defaults, publication, size);
}

// One entry on its way in.
typedef struct publishing {
    kvern_store *store;
    kvern_composition *composition;
    kvern_key key;
    kvern_row_source source;
    kvern_store_layout *layout; // held
    kvern_store_retention retention;
    int64_t positions, floor;
    kvern_store_why why_floor;

    uint64_t booked;       // bytes besides those of tables and pages
    size_t fresh;          // words of the key that are not in the trie
    kvern_trie_node *held; // where it leaves it; NULL: at the root
    kvern_trie_parts parts;
    kvern_store_entry *entry;
} publishing;

// ---- What an entry is ----

static void look_at_row(publishing *p)
{
    const kvern_planned_layer *layer;
    p->floor = kvern_row_source_floor(p->composition, &p->source, &layer);
    p->why_floor = kvern_store_why_floor(&p->source, layer, p->floor);
}

// ---- Layouts ----

static kvern_status make_layout(publishing *p, kvern_store_layout **out)
{
    kvern_store *store = p->store;
    void *memory;
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&store->lock);
    store->booked += sizeof **out;
    const bool fits = kvern_store_fit(store, &rest);
    if (!fits)
        store->booked -= sizeof **out;
    pthread_mutex_unlock(&store->lock);
    (void)kvern_store_rest_free(store, &rest);
    if (!fits)
        return kvern_fail(KVERN_ERR_BUDGET, "the store has no room for the layers of a model");
    kvern_status status = kvern_heap_take_zeroed(kvern_store_heap(store), sizeof **out, &memory);
    if (!status) {
        *out = memory;
        (*out)->composition = p->composition;
        kvern_composition_retain(p->composition);
        return KVERN_OK;
    }
    pthread_mutex_lock(&store->lock);
    store->booked -= sizeof **out;
    pthread_mutex_unlock(&store->lock);
    return status;
}

// `made`, or NULL, is there already where another thread was faster.
static bool take_layout(publishing *p, kvern_store_layout *made, kvern_store_rest *rest)
{
    kvern_store *store = p->store;
    kvern_store_layout *layout = kvern_store_find_layout(store, p->composition);
    if (made) {
        store->booked -= sizeof *made;
        if (!layout) {
            store->own_bytes += sizeof *made;
            made->number = ++store->layouts_made;
            made->next = store->layouts;
            store->layouts = layout = made;
        } else {
            made->next = rest->layouts;
            rest->layouts = made;
        }
    }
    if (layout)
        layout->references++;
    p->layout = layout;
    return layout;
}

static kvern_status hold_layout(publishing *p, kvern_key_front *front)
{
    kvern_store_rest rest = {0};
    kvern_store_layout *made = NULL;
    for (;;) {
        pthread_mutex_lock(&p->store->lock);
        const bool taken = take_layout(p, made, &rest);
        pthread_mutex_unlock(&p->store->lock);
        if (taken)
            break;
        kvern_status status = make_layout(p, &made);
        if (status)
            return status;
    }
    (void)kvern_store_rest_free(p->store, &rest);
    kvern_key_front_set_layout(front, p->layout->number);
    p->key.front = front;
    return KVERN_OK;
}

static void let_layout_go(publishing *p)
{
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&p->store->lock);
    kvern_store_leave_layout(p->store, p->layout, &rest);
    pthread_mutex_unlock(&p->store->lock);
    (void)kvern_store_rest_free(p->store, &rest);
}

// ---- Booking ----

static void claim_rows(publishing *p)
{
    for (size_t s = 0; s < p->composition->sets; s++)
        kvern_claim_row(&p->store->claims, kvern_row_source_set(&p->source, s));
    p->store->booked += p->booked;
}

static void unclaim_rows(publishing *p)
{
    for (size_t s = 0; s < p->composition->sets; s++)
        kvern_unclaim_row(&p->store->claims, kvern_row_source_set(&p->source, s));
    p->store->booked -= p->booked;
}

// What the entry takes with nothing else in the store.
static uint64_t least_bytes(const publishing *p)
{
    uint64_t bytes = sizeof *p->store + sizeof *p->layout + p->booked;
    for (size_t s = 0; s < p->composition->sets; s++)
        bytes += kvern_claim_most(kvern_row_source_set(&p->source, s));
    return bytes;
}

// Under the lock. Where the key leaves the trie is held first, for entries there may have to go.
static bool book(publishing *p, kvern_store_rest *rest)
{
    kvern_store *store = p->store;
    const uint64_t budget = store->stats.budget_bytes;
    const kvern_trie_place place = kvern_trie_find(&store->trie, &p->key, 0);
    p->fresh = kvern_key_count(&p->key) - place.matched;
    p->booked = kvern_trie_parts_bytes(p->fresh) + kvern_store_entry_bytes(p->composition->sets);
    if (budget && least_bytes(p) > budget)
        return false;
    p->held = place.node->parent ? place.node : NULL;
    if (p->held)
        kvern_trie_hold(p->held);
    claim_rows(p);
    if (kvern_store_fit(store, rest))
        return true;
    unclaim_rows(p);
    if (p->held)
        kvern_trie_let_go(&store->trie, p->held, &rest->trie);
    return false;
}

static void give_booking_up(publishing *p)
{
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&p->store->lock);
    unclaim_rows(p);
    if (p->held)
        kvern_trie_let_go(&p->store->trie, p->held, &rest.trie);
    pthread_mutex_unlock(&p->store->lock);
    (void)kvern_store_rest_free(p->store, &rest);
}

// ---- Making and putting in ----

static kvern_status make_entry(publishing *p)
{
    kvern_heap *heap = kvern_store_heap(p->store);
    const size_t sets = p->composition->sets;
    void *memory;
    kvern_status status = kvern_trie_parts_make(heap, &p->key, p->fresh, &p->parts);
    if (status)
        return status;
    if ((status = kvern_heap_take_zeroed(heap, kvern_store_entry_bytes(sets), &memory))) {
        kvern_trie_parts_free(heap, &p->parts);
        return status;
    }
    p->entry = memory;
    *p->entry = (kvern_store_entry){
        .item.floor = p->key.front->count + (size_t)p->floor,
        .layout = p->layout,
        .retention = p->retention,
        .pins = 1,
        .positions = p->positions,
        .floor = p->floor,
        .why_floor = p->why_floor,
        .set_count = sets,
    };
    for (size_t s = 0; s < sets; s++)
        kvern_kept_row_share(kvern_row_source_set(&p->source, s), &p->entry->sets[s]);
    return KVERN_OK;
}

// An item is the first thing of its entry.
static kvern_store_entry *entry_of(kvern_trie_item *item)
{
    return (kvern_store_entry *)item;
}

static void replace_equal(publishing *p, kvern_store_rest *rest)
{
    kvern_store *store = p->store;
    const kvern_trie_place place = kvern_trie_find(&store->trie, &p->key, 0);
    if (place.matched < kvern_key_count(&p->key) || place.node->end > place.matched ||
        !place.node->item)
        return;
    kvern_store_drop(store, entry_of(place.node->item), rest);
    store->stats.replaced++;
}

// Beginnings of which the new entry serves all.
static void drop_beginnings(publishing *p, kvern_store_rest *rest)
{
    kvern_store *store = p->store;
    kvern_trie_node *node = p->entry->item.node->parent;
    while (node) {
        kvern_trie_node *next = node->parent;
        kvern_store_entry *entry = node->item ? entry_of(node->item) : NULL;
        if (entry && entry->pins == 0 && p->floor <= entry->floor) {
            kvern_store_drop(store, entry, rest);
            store->stats.served_by_longer++;
        }
        node = next;
    }
}

static void put_entry(publishing *p)
{
    kvern_store *store = p->store;
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&store->lock);
    replace_equal(p, &rest);
    kvern_trie_put(&store->trie, &p->key, &p->entry->item, &p->parts);
    if (p->held)
        kvern_trie_let_go(&store->trie, p->held, &rest.trie);
    drop_beginnings(p, &rest);
    p->layout->references++;
    store->booked -= p->booked;
    store->own_bytes += kvern_store_entry_bytes(p->entry->set_count);
    store->stats.entries++;
    store->stats.pinned++;
    store->stats.publications++;
    pthread_mutex_unlock(&store->lock);
    kvern_trie_parts_free(kvern_store_heap(store), &p->parts);
    (void)kvern_store_rest_free(store, &rest);
}

static void unpin(publishing *p)
{
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&p->store->lock);
    kvern_store_unpin(p->store, p->entry, &rest);
    pthread_mutex_unlock(&p->store->lock);
    (void)kvern_store_rest_free(p->store, &rest);
}

// Puts the row in; its entry is pinned then.
static kvern_status publish_one(publishing *p)
{
    kvern_store_rest rest = {0};
    pthread_mutex_lock(&p->store->lock);
    const bool fits = book(p, &rest);
    pthread_mutex_unlock(&p->store->lock);
    (void)kvern_store_rest_free(p->store, &rest);
    if (!fits)
        return kvern_fail(KVERN_ERR_BUDGET,
                          "an entry of %" PRIu64 " bytes does not fit the store's %" PRIu64
                          ", or pinned ones leave it no room",
                          least_bytes(p), p->store->stats.budget_bytes);
    kvern_status status = make_entry(p);
    if (status)
        give_booking_up(p);
    else
        put_entry(p);
    return status;
}

// ---- Checkpoints ----

static void count_left_out(publishing *p)
{
    pthread_mutex_lock(&p->store->lock);
    p->store->stats.checkpoints_left_out++;
    pthread_mutex_unlock(&p->store->lock);
}

// Those that the row's own entry does not serve, the largest first; but none that was made below
// its floor.
static void publish_checkpoints(const publishing *row, const kvern_checkpoint *first)
{
    for (const kvern_checkpoint *at = first; at; at = at->below) {
        publishing p = *row;
        p.source = (kvern_row_source){.kept = at->sets};
        p.positions = at->position;
        p.key.tokens_count = (size_t)at->position;
        look_at_row(&p);
        if (at->position == row->positions || row->floor <= p.floor || p.floor > p.positions)
            continue;
        if (publish_one(&p))
            count_left_out(&p);
        else
            unpin(&p);
    }
}

// ---- The call ----

static kvern_status read_publication(const kvern_store_publication *given,
                                     kvern_store_publication *out)
{
    *out = kvern_store_publication_default();
    kvern_status status = given ? kvern_sized_read(&PUBLICATION_SIZES, given, out) : KVERN_OK;
    if (!status && (size_t)out->retention >= KVERN_STORE_RETENTIONS)
        status = kvern_fail(KVERN_ERR_UNSUPPORTED, "unknown retention %d", (int)out->retention);
    if (!status && out->without_checkpoints > 1)
        status = kvern_fail(KVERN_ERR_UNSUPPORTED, "without_checkpoints is neither 0 nor 1");
    return status;
}

static kvern_status publish_row(publishing *p, const kvern_key_front *front,
                                const kvern_checkpoint *checkpoints)
{
    kvern_key_front own = *front;
    look_at_row(p);
    if (p->floor > p->positions)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "row %zu has %" PRId64 " positions, but nothing below %" PRId64
                          " of it may be reused",
                          p->source.row, p->positions, p->floor);
    kvern_status status = hold_layout(p, &own);
    if (status)
        return status;
    if (!(status = publish_one(p))) {
        publish_checkpoints(p, checkpoints);
        unpin(p);
    }
    let_layout_go(p);
    return status;
}

kvern_status kvern_store_publish(kvern_store *store, const kvern_store_key *key,
                                 const int32_t *tokens, size_t count, const kvern_state *state,
                                 size_t row, const kvern_store_publication *given)
{
    kvern_key_front front;
    kvern_store_publication publication;
    if (!store || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store or tokens is NULL");
    kvern_status status = kvern_kept_row_check(store->context, state, row, count);
    if (!status)
        status = read_publication(given, &publication);
    if (!status)
        status = kvern_key_front_make(key, &front);
    if (status)
        return status;
    publishing p = {
        .store = store,
        .composition = state->composition,
        .key = {.tokens = tokens, .tokens_count = count},
        .source = {.batch = &state->batch, .row = row},
        .retention = publication.retention,
        .positions = (int64_t)count,
    };
    status = publish_row(&p, &front,
                         publication.without_checkpoints ? NULL : state->batch.checkpoints[row]);
    if (status == KVERN_ERR_BUDGET || status == KVERN_ERR_MEMORY) {
        pthread_mutex_lock(&store->lock);
        store->stats.refused++;
        pthread_mutex_unlock(&store->lock);
    }
    return status;
}
