// SPDX-License-Identifier: MIT
// Every invariant of a store, for tests.
#include "src/base/size.h"
#include "src/store/store.h"

static const char *walk_siblings(const kvern_trie_node *tree, const kvern_trie_node *parent,
                                 int64_t above, int64_t below);

static const char *walk_node(const kvern_trie_node *node)
{
    const kvern_trie_node *children = node->children;
    const size_t own = node->item ? node->item->floor : KVERN_NO_FLOOR;
    const size_t least = children ? children->least_beside : KVERN_NO_FLOOR;
    if (node->least != kvern_min_size(own, least))
        return "a node's least floor is another one";
    if (node->item && node->item->node != node)
        return "an item lies elsewhere";
    if (node->item && node->item->floor > node->end)
        return "an item serves nothing";
    return children ? walk_siblings(children, node, INT64_MIN, INT64_MAX) : NULL;
}

static const char *walk_edge(const kvern_trie_node *node, const kvern_trie_node *parent)
{
    if (node->parent != parent || node->end != parent->end + node->count || node->count == 0)
        return "a node is not where its edge leads";
    if (node->run < node->block->words ||
        node->run + node->count > node->block->words + node->block->count)
        return "a run lies outside its block";
    if (node->block->references == 0)
        return "a block is used by nobody";
    if (!node->item && !node->holds && !node->children)
        return "an edge leads nowhere";
    return NULL;
}

static const char *walk_siblings(const kvern_trie_node *tree, const kvern_trie_node *parent,
                                 int64_t above, int64_t below)
{
    const char *wrong = walk_edge(tree, parent);
    if (wrong)
        return wrong;
    const int64_t word = tree->run[0];
    size_t least = tree->least;
    if (word <= above || word >= below)
        return "siblings are not in order";
    if (tree->left) {
        if (tree->left->rank > tree->rank)
            return "siblings are ranked wrongly";
        least = kvern_min_size(least, tree->left->least_beside);
        wrong = walk_siblings(tree->left, parent, above, word);
    }
    if (!wrong && tree->right) {
        if (tree->right->rank > tree->rank)
            return "siblings are ranked wrongly";
        least = kvern_min_size(least, tree->right->least_beside);
        wrong = walk_siblings(tree->right, parent, word, below);
    }
    if (!wrong && tree->least_beside != least)
        wrong = "siblings have another least floor";
    return wrong ? wrong : walk_node(tree);
}

const char *kvern_trie_walk(const kvern_trie *trie)
{
    return walk_node(&trie->root);
}

// ---- Entries ----

static const char *walk_queue(const kvern_store *store, size_t retention, size_t *count)
{
    const kvern_store_queue *queue = &store->queues[retention];
    uint64_t before = 0;
    const kvern_store_entry *newer = NULL;
    for (const kvern_store_entry *e = queue->oldest; e; e = e->newer, ++*count) {
        if (e->used <= before || e->used > store->time)
            return "entries are not in the order of their use";
        if (e->pins || !e->item.node || (size_t)e->retention != retention)
            return "an entry is in a queue that it does not belong to";
        if (e->newer ? e->newer->older != e : queue->newest != e)
            return "a queue is not linked both ways";
        for (size_t s = 0; s < e->set_count; s++) {
            if (!kvern_row_is_sound(&e->sets[s]))
                return "a row of an entry is not sound";
        }
        before = e->used;
        newer = e;
    }
    return queue->newest == newer ? NULL : "a queue has another newest entry";
}

static void claim_all(kvern_store *store, void (*claim)(kvern_claims *, const kvern_row *))
{
    for (size_t r = 0; r < KVERN_STORE_RETENTIONS; r++) {
        for (kvern_store_entry *e = store->queues[r].oldest; e; e = e->newer) {
            for (size_t s = 0; s < e->set_count; s++)
                claim(&store->claims, &e->sets[s]);
        }
    }
}

// Without any entry nothing is claimed; with all of them, what was.
static const char *walk_claims(kvern_store *store)
{
    const kvern_claims before = store->claims;
    claim_all(store, kvern_unclaim_row);
    const kvern_claims none = store->claims;
    claim_all(store, kvern_claim_row);
    if (before.bytes != store->claims.bytes || before.page_bytes != store->claims.page_bytes)
        return "entries count with other bytes than they did";
    if (!store->stats.pinned && (none.bytes || none.page_bytes))
        return "bytes are counted that no entry has";
    return NULL;
}

const char *kvern_store_walk(kvern_store *store)
{
    const kvern_store_stats *stats = &store->stats;
    const char *wrong = kvern_trie_walk(&store->trie);
    size_t count = 0;
    for (size_t r = 0; !wrong && r < KVERN_STORE_RETENTIONS; r++)
        wrong = walk_queue(store, r, &count);
    if (wrong)
        return wrong;
    if (count > stats->entries || count + stats->pinned < stats->entries)
        return "there are other entries than counted";
    if (store->booked || (stats->budget_bytes && kvern_store_bytes(store) > stats->budget_bytes))
        return "more is counted than the budget, or booked by nobody";
    return walk_claims(store);
}
