// SPDX-License-Identifier: MIT
// GET /cache: the tree of prefixes.
#include "server/worker/snapshot_parts.h"

#include "server/base/json_text.h"

#include <kvern/experimental/store_tree.h>
#include <stdlib.h>

#define MOST_NODES 512
// Tokens of each that are shown: enough to see what it is.
#define EXCERPT 24

typedef struct tree {
    kvern_store_node nodes[MOST_NODES];
    int32_t tokens[MOST_NODES * EXCERPT];
    size_t count;
    bool whole;
} tree;

static json_t *text_json(const tokenizer *t, const int32_t *tokens, size_t count)
{
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < count && status == KVERN_OK; i++) {
        const tokenizer_text piece = tokenizer_piece_special(t, tokens[i]);
        status = text_buffer_append(&text, piece.data, piece.size);
    }
    json_t *json = status == KVERN_OK ? server_json_text(text.data, text.size) : NULL;
    text_buffer_free(&text);
    return json;
}

static json_t *node_json(const worker_options *options, const tree *t, size_t i)
{
    const kvern_store_node *node = &t->nodes[i];
    const size_t length = (size_t)(node->end - node->begin);
    json_t *json = json_pack("{s:I, s:I, s:I, s:I, s:b, s:I, s:I, s:I}", "parent",
                             (json_int_t)node->parent, "from", (json_int_t)node->begin, "to",
                             (json_int_t)node->end, "hits", (json_int_t)node->hits, "entry",
                             node->floor >= 0, "floor", (json_int_t)node->floor, "age",
                             (json_int_t)node->age, "pins", (json_int_t)node->pins);
    if (options->shows_texts) {
        json_object_set_new(json, "text",
                            text_json(model_tokenizer(options->model), t->tokens + i * EXCERPT,
                                      length < EXCERPT ? length : EXCERPT));
    }
    return json;
}

static json_t *tree_json(const worker_options *options, const tree *t,
                         const kvern_store_stats *stats)
{
    uint64_t entries = 0;
    json_t *nodes = json_array();
    for (size_t i = 0; nodes && i < t->count; i++) {
        entries += t->nodes[i].floor >= 0;
        json_array_append_new(nodes, node_json(options, t, i));
    }
    // The store may have changed between two looks at it.
    const uint64_t left_out = !t->whole && stats->entries > entries ? stats->entries - entries : 0;
    return json_pack("{s:o, s:I}", "nodes", nodes, "left_out", (json_int_t)left_out);
}

json_t *snapshot_tree(const worker_options *options, const kvern_store_stats *stats)
{
    tree *t = malloc(sizeof *t);
    json_t *json = NULL;
    // Its arguments are right, but for memory nothing can fail.
    if (t && kvern_store_list(options->schedule.store, &options->schedule.store_key,
                              options->composition, t->nodes, MOST_NODES, t->tokens, EXCERPT,
                              &t->count, &t->whole) == KVERN_OK) {
        json = tree_json(options, t, stats);
    }
    free(t);
    return json;
}
