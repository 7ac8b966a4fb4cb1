// SPDX-License-Identifier: MIT
// The tree of a store's entries, for people who look at it.
#include "src/store/store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/store/prompt.h"

#include <kvern/experimental/store_tree.h>
#include <string.h>

typedef struct listing {
    kvern_store_node *nodes;
    size_t room;
    int32_t *tokens;
    size_t excerpt;
    size_t count;
    size_t front; // words in front of the tokens
} listing;

// One node of the trie, whose tokens begin at position `begin`.
static void list_node(const kvern_store *store, const kvern_trie_node *node, int64_t parent,
                      listing *l)
{
    const size_t end = node->end - l->front;
    const size_t words = kvern_min_size(node->count, end);
    const kvern_store_entry *entry = (const kvern_store_entry *)node->item;
    l->nodes[l->count] = (kvern_store_node){
        .parent = parent,
        .begin = (int64_t)(end - words),
        .end = (int64_t)end,
        .hits = node->hits + node->inner_hits,
        .floor = entry ? entry->floor : -1,
        .age = entry ? store->time - entry->used : 0,
        .pins = entry ? entry->pins : 0,
    };
    if (l->excerpt)
        memcpy(l->tokens + l->count * l->excerpt, node->run + (node->count - words),
               kvern_min_size(words, l->excerpt) * sizeof(int32_t));
    l->count++;
}

// The node behind another one, depth first, below `top`; NULL: there is none. *at is the index of
// the node in the list, and becomes that of the next one's parent. A trie may be as deep as
// conversations have turns, so nothing here calls itself: the list knows the way back.
static const kvern_trie_node *next_below(const listing *l, const kvern_trie_node *top,
                                         const kvern_trie_node *node, int64_t *at)
{
    const kvern_trie_node *next = kvern_trie_first_child(node);
    for (; !next && node != top; node = node->parent) {
        next = kvern_trie_next_sibling(node);
        *at = l->nodes[*at].parent;
    }
    return next;
}

// All below `top`, and what of its edge is tokens. False: there was no room for them.
static bool list_below(const kvern_store *store, const kvern_trie_node *top, listing *l)
{
    const kvern_trie_node *node = top->end > l->front ? top : kvern_trie_first_child(top);
    int64_t at = -1;
    while (node && l->count < l->room) {
        list_node(store, node, at, l);
        at = (int64_t)l->count - 1;
        node = next_below(l, top, node, &at);
    }
    return !node;
}

kvern_status kvern_store_list(kvern_store *store, const kvern_store_key *key,
                              const kvern_composition *composition, kvern_store_node *nodes,
                              size_t room, int32_t *tokens, size_t excerpt, size_t *count,
                              bool *whole)
{
    kvern_prompt prompt;
    listing l = {.nodes = nodes, .room = room, .tokens = tokens, .excerpt = excerpt};
    if (!store || !composition || !count || !whole || (room && !nodes))
        return kvern_fail(KVERN_ERR_ARGUMENT, "store, composition, nodes or a result is NULL");
    if (room && excerpt && !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "tokens is NULL");
    kvern_status status = kvern_prompt_make(key, NULL, 0, &prompt);
    if (status)
        return status;
    bool all = true;
    pthread_mutex_lock(&store->lock);
    const kvern_store_layout *layout = kvern_store_find_layout(store, composition);
    if (layout) {
        kvern_key_front_set_layout(&prompt.front, layout->number);
        l.front = prompt.front.count;
        const kvern_key words = {&prompt.front, NULL, 0};
        const kvern_trie_place place = kvern_trie_find(&store->trie, &words, 0);
        if (place.matched == l.front)
            all = list_below(store, place.node, &l);
    }
    pthread_mutex_unlock(&store->lock);
    *count = l.count;
    *whole = all;
    return KVERN_OK;
}
