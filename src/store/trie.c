// SPDX-License-Identifier: MIT
#include "src/store/trie.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <string.h>

// ---- The treap of siblings ----

static size_t least_of(const kvern_trie_node *tree)
{
    return tree ? tree->least_beside : KVERN_NO_FLOOR;
}

static void sum_beside(kvern_trie_node *tree)
{
    tree->least_beside =
        kvern_min_size(tree->least, kvern_min_size(least_of(tree->left), least_of(tree->right)));
}

static kvern_trie_node *rotate_right(kvern_trie_node *tree)
{
    kvern_trie_node *top = tree->left;
    tree->left = top->right;
    top->right = tree;
    sum_beside(tree);
    return top;
}

static kvern_trie_node *rotate_left(kvern_trie_node *tree)
{
    kvern_trie_node *top = tree->right;
    tree->right = top->left;
    top->left = tree;
    sum_beside(tree);
    return top;
}

// The treap with one node more.
static kvern_trie_node *add_sibling(kvern_trie_node *tree, kvern_trie_node *fresh)
{
    if (!tree) {
        sum_beside(fresh);
        return fresh;
    }
    if (fresh->run[0] < tree->run[0]) {
        tree->left = add_sibling(tree->left, fresh);
        if (tree->left->rank > tree->rank)
            tree = rotate_right(tree);
    } else {
        tree->right = add_sibling(tree->right, fresh);
        if (tree->right->rank > tree->rank)
            tree = rotate_left(tree);
    }
    sum_beside(tree);
    return tree;
}

static kvern_trie_node *join_treaps(kvern_trie_node *left, kvern_trie_node *right)
{
    if (!left || !right)
        return left ? left : right;
    kvern_trie_node *top = left->rank > right->rank ? left : right;
    if (top == left)
        left->right = join_treaps(left->right, right);
    else
        right->left = join_treaps(left, right->left);
    sum_beside(top);
    return top;
}

// The treap with another node, or none, where the one with this first word was.
static kvern_trie_node *replace_sibling(kvern_trie_node *tree, int32_t word, kvern_trie_node *with)
{
    if (word < tree->run[0]) {
        tree->left = replace_sibling(tree->left, word, with);
    } else if (word > tree->run[0]) {
        tree->right = replace_sibling(tree->right, word, with);
    } else if (!with) {
        return join_treaps(tree->left, tree->right);
    } else if (with != tree) {
        with->left = tree->left;
        with->right = tree->right;
        with->rank = tree->rank;
        tree->left = tree->right = NULL;
        tree = with;
    }
    sum_beside(tree);
    return tree;
}

static kvern_trie_node *find_child(const kvern_trie_node *node, int32_t word)
{
    kvern_trie_node *child = node->children;
    while (child && child->run[0] != word)
        child = word < child->run[0] ? child->left : child->right;
    return child;
}

// ---- Nodes ----

// Brings the floors of a node, and of all above it, up to date.
static void renew(kvern_trie_node *node)
{
    for (;;) {
        const size_t own = node->item ? node->item->floor : KVERN_NO_FLOOR;
        node->least = kvern_min_size(own, least_of(node->children));
        kvern_trie_node *parent = node->parent;
        if (!parent)
            return;
        parent->children = replace_sibling(parent->children, node->run[0], node);
        node = parent;
    }
}

static uint64_t next_rank(kvern_trie *trie)
{
    uint64_t z = trie->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t block_bytes(size_t count)
{
    return sizeof(kvern_token_block) + count * sizeof(int32_t);
}

static void leave_block(kvern_trie *trie, kvern_token_block *block, kvern_trie_rest *rest)
{
    if (--block->references > 0)
        return;
    trie->bytes -= block_bytes(block->count);
    block->next = rest->blocks;
    rest->blocks = block;
}

static void leave_node(kvern_trie *trie, kvern_trie_node *node, kvern_trie_rest *rest)
{
    leave_block(trie, node->block, rest);
    trie->bytes -= sizeof *node;
    node->parent = rest->nodes;
    rest->nodes = node;
}

// Puts a node at the last `count` words of an edge, or at a new one.
static void place_node(kvern_trie *trie, kvern_trie_node *node, kvern_token_block *block,
                       const int32_t *run, size_t count)
{
    memset(node, 0, sizeof *node);
    node->rank = next_rank(trie);
    node->block = block;
    node->run = run;
    node->count = count;
    node->least = node->least_beside = KVERN_NO_FLOOR;
    block->references++;
    trie->bytes += sizeof *node;
}

// Cuts the edge to a node behind its first `front` words; there is a node of its own then.
static kvern_trie_node *cut_edge(kvern_trie *trie, kvern_trie_node *node, size_t front,
                                 kvern_trie_node *branch)
{
    kvern_trie_node *parent = node->parent;
    KVERN_ASSERT(front > 0 && front < node->count);
    place_node(trie, branch, node->block, node->run, front);
    branch->parent = parent;
    branch->end = node->end - (node->count - front);
    branch->least = node->least;
    branch->inner_hits = node->inner_hits; // where on the edge they ended is not known any more
    node->inner_hits = 0;
    parent->children = replace_sibling(parent->children, node->run[0], branch);
    node->run += front;
    node->count -= front;
    node->parent = branch;
    branch->children = add_sibling(NULL, node);
    return branch;
}

static bool is_idle(const kvern_trie_node *node)
{
    return node->parent && !node->item && !node->holds;
}

// Makes one edge of two, where nothing lies between them and they were one before.
static kvern_trie_node *close_cut(kvern_trie *trie, kvern_trie_node *node, kvern_trie_rest *rest)
{
    kvern_trie_node *child = node->children;
    if (!is_idle(node) || !child || child->left || child->right || child->block != node->block)
        return node;
    KVERN_ASSERT(child->run == node->run + node->count); // they were one edge
    kvern_trie_node *parent = node->parent;
    child->run = node->run;
    child->count += node->count;
    child->inner_hits += node->hits + node->inner_hits;
    child->parent = parent;
    parent->children = replace_sibling(parent->children, node->run[0], child);
    leave_node(trie, node, rest);
    return child;
}

// Takes away what leads nowhere, from a node upwards.
static void prune(kvern_trie *trie, kvern_trie_node *node, kvern_trie_rest *rest)
{
    while (is_idle(node) && !node->children) {
        kvern_trie_node *parent = node->parent;
        parent->children = replace_sibling(parent->children, node->run[0], NULL);
        leave_node(trie, node, rest);
        node = parent;
    }
    renew(close_cut(trie, node, rest));
}

// ---- Calls ----

void kvern_trie_init(kvern_trie *trie, uint64_t seed)
{
    memset(trie, 0, sizeof *trie);
    trie->random = seed;
    trie->root.least = trie->root.least_beside = KVERN_NO_FLOOR;
}

kvern_trie_place kvern_trie_find(kvern_trie *trie, const kvern_key *key, size_t most)
{
    kvern_trie_place place = {.node = &trie->root};
    const size_t count = kvern_key_count(key);
    bool whole = true; // the node's run is in common
    while (whole && place.matched < count) {
        kvern_trie_node *child = find_child(place.node, kvern_key_word(key, place.matched));
        if (!child)
            break;
        const size_t same = kvern_key_match(key, place.matched, child->run,
                                            kvern_min_size(child->count, count - place.matched));
        place.node = child;
        place.matched += same;
        whole = same == child->count;
        const size_t served = kvern_min_size(place.matched, most);
        if (served > key->front->count && child->least <= served) {
            place.best = child;
            place.served = served;
        }
    }
    return place;
}

kvern_trie_item *kvern_trie_pick(kvern_trie_node *node, size_t most)
{
    KVERN_ASSERT(node->least <= most);
    while (!node->item || node->item->floor > most) {
        kvern_trie_node *child = node->children;
        for (;;) { // the first one below which there is such an item
            if (least_of(child->left) <= most)
                child = child->left;
            else if (child->least <= most)
                break;
            else
                child = child->right;
        }
        node = child;
    }
    return node->item;
}

const kvern_trie_node *kvern_trie_first_child(const kvern_trie_node *node)
{
    const kvern_trie_node *child = node->children;
    while (child && child->left)
        child = child->left;
    return child;
}

const kvern_trie_node *kvern_trie_next_sibling(const kvern_trie_node *node)
{
    const kvern_trie_node *next = NULL;
    const kvern_trie_node *tree = node->parent ? node->parent->children : NULL;
    while (tree) {
        if (tree->run[0] > node->run[0])
            next = tree;
        tree = tree->run[0] > node->run[0] ? tree->left : tree->right;
    }
    return next;
}

void kvern_trie_hold(kvern_trie_node *node)
{
    node->holds++;
}

void kvern_trie_let_go(kvern_trie *trie, kvern_trie_node *node, kvern_trie_rest *rest)
{
    KVERN_ASSERT(node->holds > 0);
    node->holds--;
    prune(trie, node, rest);
}

void kvern_trie_put(kvern_trie *trie, const kvern_key *key, kvern_trie_item *item,
                    kvern_trie_parts *parts)
{
    const kvern_trie_place place = kvern_trie_find(trie, key, 0);
    const size_t left = kvern_key_count(key) - place.matched;
    kvern_trie_node *node = place.node;
    if (place.matched < node->end) {
        node = cut_edge(trie, node, node->count - (node->end - place.matched), parts->branch);
        parts->branch = NULL;
    }
    if (left) {
        kvern_token_block *block = parts->block;
        kvern_trie_node *leaf = parts->leaf;
        KVERN_ASSERT(block->count >= left);
        trie->bytes += block_bytes(block->count);
        place_node(trie, leaf, block, block->words + (block->count - left), left);
        leaf->parent = node;
        leaf->end = kvern_key_count(key);
        node->children = add_sibling(node->children, leaf);
        parts->leaf = NULL;
        parts->block = NULL;
        node = leaf;
    }
    KVERN_ASSERT(!node->item && node->end == kvern_key_count(key));
    node->item = item;
    item->node = node;
    renew(node);
}

void kvern_trie_exchange(kvern_trie_item *item, kvern_trie_item *other)
{
    kvern_trie_node *node = item->node;
    KVERN_ASSERT(node && node->item == item);
    node->item = other;
    item->node = NULL;
    other->node = node;
    renew(node);
}

void kvern_trie_take_out(kvern_trie *trie, kvern_trie_item *item, kvern_trie_rest *rest)
{
    kvern_trie_node *node = item->node;
    KVERN_ASSERT(node && node->item == item);
    node->item = NULL;
    item->node = NULL;
    prune(trie, node, rest);
}

// ---- Memory ----

uint64_t kvern_trie_parts_bytes(size_t words)
{
    return 2 * sizeof(kvern_trie_node) + (words ? block_bytes(words) : 0);
}

kvern_status kvern_trie_parts_make(kvern_heap *heap, const kvern_key *key, size_t words,
                                   kvern_trie_parts *parts)
{
    void *leaf, *branch = NULL, *block = NULL;
    kvern_status status = kvern_heap_take(heap, sizeof(kvern_trie_node), sizeof(void *), &leaf);
    if (!status)
        status = kvern_heap_take(heap, sizeof(kvern_trie_node), sizeof(void *), &branch);
    if (!status && words)
        status = kvern_heap_take(heap, block_bytes(words), sizeof(void *), &block);
    *parts = (kvern_trie_parts){leaf, branch, block};
    if (status) {
        kvern_trie_parts_free(heap, parts);
        return status;
    }
    if (words) {
        *parts->block = (kvern_token_block){.count = words};
        kvern_key_copy_end(key, words, parts->block->words);
    }
    return KVERN_OK;
}

static void free_node(kvern_heap *heap, kvern_trie_node *node)
{
    kvern_heap_give(heap, node, sizeof *node, sizeof(void *));
}

static void free_block(kvern_heap *heap, kvern_token_block *block)
{
    kvern_heap_give(heap, block, block ? block_bytes(block->count) : 0, sizeof(void *));
}

void kvern_trie_parts_free(kvern_heap *heap, kvern_trie_parts *parts)
{
    free_node(heap, parts->leaf);
    free_node(heap, parts->branch);
    free_block(heap, parts->block);
    *parts = (kvern_trie_parts){0};
}

void kvern_trie_rest_free(kvern_heap *heap, kvern_trie_rest *rest)
{
    while (rest->nodes) {
        kvern_trie_node *node = rest->nodes;
        rest->nodes = node->parent;
        free_node(heap, node);
    }
    while (rest->blocks) {
        kvern_token_block *block = rest->blocks;
        rest->blocks = block->next;
        free_block(heap, block);
    }
}
