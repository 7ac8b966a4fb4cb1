// SPDX-License-Identifier: MIT
// Rows of a state to a file of mlx-lm: which layer becomes which cache.
#include "src/file/mlx/mlx_export.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/state/state.h"

#include <stdio.h>
#include <string.h>

static const kvern_sized OPTION_SIZES =
    KVERN_SIZED(kvern_mlx_export_options, sizeof(kvern_mlx_export_options));

void kvern_mlx_export_options_init(kvern_mlx_export_options *options, size_t size)
{
    const kvern_mlx_export_options defaults = {.values = KVERN_BF16, .conv = KVERN_F32};
    kvern_sized_init(&OPTION_SIZES, &defaults, options, size);
}

// ---- Options ----

// mlx-lm makes a tree of the keys: dots are branches, and numbers are places in a list.
static kvern_status check_note(const kvern_mlx_note *note)
{
    if (!note->key || !note->value)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the key or the value of a note is NULL");
    const char first = note->key[0];
    const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
    if ((letter || first == '_') && !strchr(note->key, '.'))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_ARGUMENT,
                      "a note's key begins with a letter and has no dot, unlike '%.80s'",
                      note->key);
}

static kvern_status check_options(const kvern_mlx_export_options *o)
{
    if (o->reserved)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a reserved word of the options is not 0");
    if (o->layout != KVERN_MLX_STATES && o->layout != KVERN_MLX_INFOS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "layout %d is not written", (int)o->layout);
    if ((unsigned)o->conversion > KVERN_MLX_CONVERT || (unsigned)o->slots > KVERN_MLX_SLOTS_SPLIT ||
        !kvern_type_bytes(o->values) || !kvern_type_bytes(o->conv))
        return kvern_fail(KVERN_ERR_ARGUMENT, "unknown conversion %d, slots %d or type %d, %d",
                          (int)o->conversion, (int)o->slots, (int)o->values, (int)o->conv);
    if ((o->list_count && !o->lists) || (o->note_count && !o->notes))
        return kvern_fail(KVERN_ERR_ARGUMENT, "lists or notes is NULL");
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < o->note_count && !status; i++)
        status = check_note(&o->notes[i]);
    return status;
}

static kvern_status read_options(const kvern_mlx_export_options *given,
                                 kvern_mlx_export_options *known)
{
    *known = kvern_mlx_export_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTION_SIZES, given, known) : KVERN_OK;
    return status ? status : check_options(known);
}

static bool is_shared(const kvern_mlx_exporter *x, size_t layer)
{
    return x->state->composition->layers[layer].plan.kind == KVERN_LAYER_SHARED;
}

static bool is_indexed(const kvern_mlx_exporter *x, size_t layer)
{
    return x->state->composition->layers[layer].plan.index_dim > 0;
}

// Lists that the caller asks for: of layers that are there, and none with an indexed one.
static kvern_status check_lists(const kvern_mlx_exporter *x)
{
    const kvern_mlx_export_options *o = &x->options;
    size_t layer = 0;
    for (size_t e = 0; e < o->list_count; e++) {
        for (size_t c = 0; c < o->lists[e] || o->lists[e] == 0; c++, layer++) {
            while (layer < x->state->composition->count && is_shared(x, layer))
                layer++;
            if (o->lists[e] == 0 || layer == x->state->composition->count)
                return kvern_fail(KVERN_ERR_ARGUMENT, "entry %zu is a list of %zu layers", e,
                                  o->lists[e]);
            if (o->lists[e] > 1 && is_indexed(x, layer))
                return kvern_fail(KVERN_ERR_UNSUPPORTED,
                                  "layer %zu, of latents with index keys, in a list", layer);
        }
    }
    while (layer < x->state->composition->count && is_shared(x, layer))
        layer++;
    if (o->lists && layer < x->state->composition->count)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the lists end before layer %zu", layer);
    return KVERN_OK;
}

// ---- Entries ----

// A member of the list that entry `entry` is.
static kvern_status export_member(kvern_mlx_exporter *x, size_t entry, size_t c, size_t layer,
                                  kvern_mlx_part part)
{
    kvern_mlx_sink *sink = &x->sink;
    kvern_mlx_class class;
    kvern_mlx_place at, list;
    kvern_status status = kvern_mlx_export_class(x, layer, &class);
    if (status)
        return status;
    snprintf(list.tensors, sizeof list.tensors, "%zu.%zu", entry, c);
    snprintf(at.infos, sizeof at.infos, "0.%zu.1.%zu", entry, c);
    snprintf(at.tensors, sizeof at.tensors,
             sink->layout == KVERN_MLX_STATES ? "%zu.%zu.0" : "%zu.%zu", entry, c);
    const char *name = kvern_mlx_class_names[class];
    if (sink->layout == KVERN_MLX_STATES)
        status = kvern_mlx_string(sink, &list, "1", name);
    else
        status = kvern_mlx_say(sink, name, "0.%zu.0.%zu", entry, c);
    return status ? status : kvern_mlx_export_cache(x, layer, part, class, &at);
}

static kvern_status say_class(kvern_mlx_exporter *x, size_t entry, const char *name)
{
    return x->sink.layout == KVERN_MLX_STATES ? kvern_mlx_say(&x->sink, name, "1.%zu", entry)
                                              : kvern_mlx_say(&x->sink, name, "2.%zu", entry);
}

static kvern_status export_alone(kvern_mlx_exporter *x, size_t entry, size_t layer)
{
    kvern_mlx_class class;
    kvern_mlx_place at;
    kvern_status status = kvern_mlx_export_class(x, layer, &class);
    if (!status)
        status = say_class(x, entry, kvern_mlx_class_names[class]);
    if (status)
        return status;
    snprintf(at.tensors, sizeof at.tensors, "%zu", entry);
    snprintf(at.infos, sizeof at.infos, "0.%zu", entry);
    return kvern_mlx_export_cache(x, layer, KVERN_MLX_WHOLE, class, &at);
}

static kvern_status export_indexed(kvern_mlx_exporter *x, size_t entry, size_t layer)
{
    kvern_status status = say_class(x, entry, "CacheList");
    if (!status)
        status = export_member(x, entry, 0, layer, KVERN_MLX_WHOLE);
    return status ? status : export_member(x, entry, 1, layer, KVERN_MLX_INDEX_KEYS);
}

// Entry `entry`, of `count` layers from *layer on.
static kvern_status export_entry(kvern_mlx_exporter *x, size_t entry, size_t count, size_t *layer)
{
    kvern_status status = KVERN_OK;
    if (count > 1)
        status = say_class(x, entry, "CacheList");
    for (size_t c = 0; c < count && !status; c++) {
        while (is_shared(x, *layer))
            ++*layer;
        if (count > 1)
            status = export_member(x, entry, c, *layer, KVERN_MLX_WHOLE);
        else if (is_indexed(x, *layer))
            status = export_indexed(x, entry, *layer);
        else
            status = export_alone(x, entry, *layer);
        ++*layer;
    }
    return status;
}

// All of them: once to describe, once to write.
static kvern_status export_entries(kvern_mlx_exporter *x)
{
    const kvern_mlx_export_options *o = &x->options;
    size_t layer = 0, last = x->state->composition->count;
    kvern_status status = KVERN_OK;
    while (last > 0 && is_shared(x, last - 1))
        last--;
    for (size_t e = 0; layer < last && !status; e++)
        status = export_entry(x, e, o->lists ? o->lists[e] : 1, &layer);
    return status;
}

// ---- The file ----

static kvern_status say_notes(kvern_mlx_exporter *x)
{
    const kvern_mlx_export_options *o = &x->options;
    const bool states = o->layout == KVERN_MLX_STATES;
    kvern_status status = states ? kvern_mlx_say(&x->sink, "", "2.0") : KVERN_OK;
    for (size_t i = 0; i < o->note_count && !status; i++)
        status =
            kvern_mlx_say(&x->sink, o->notes[i].value, states ? "0.%s" : "1.%s", o->notes[i].key);
    return status;
}

static kvern_status write_file(kvern_mlx_exporter *x, const char *path)
{
    kvern_context *context = x->state->composition->context;
    kvern_status status = kvern_safetensors_writer_begin(context, NULL, path, &x->sink.writer);
    if (status)
        return status;
    x->sink.layout = x->options.layout;
    x->sink.describing = true;
    if (!(status = say_notes(x)))
        status = export_entries(x);
    if (!status)
        status = kvern_safetensors_start(&x->sink.writer);
    x->sink.describing = false;
    if (!status)
        status = export_entries(x);
    if (!status)
        return kvern_safetensors_commit(&x->sink.writer);
    kvern_safetensors_abandon(&x->sink.writer);
    return status;
}

// With the lengths of the rows, of which at least one has positions.
static kvern_status export_rows(kvern_mlx_exporter *x, const char *path)
{
    kvern_heap *heap = &x->state->composition->context->heap;
    const size_t bytes = 3 * x->rows * sizeof(int64_t);
    void *block;
    kvern_status status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    int64_t longest = 0;
    x->lengths = block;
    x->held = x->lengths + x->rows;
    x->numbers = x->held + x->rows;
    for (size_t r = 0; r < x->rows; r++) {
        x->lengths[r] = kvern_state_length(x->state, r);
        longest = kvern_max_i64(longest, x->lengths[r]);
    }
    if (longest == 0)
        status = kvern_fail(KVERN_ERR_RANGE, "all rows are empty, which no file says");
    else if (!(status = check_lists(x)))
        status = write_file(x, path);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

// A fork of the rows is what is written: it shares their pages.
static kvern_status fork_rows(const kvern_state *state, const size_t *rows, size_t count,
                              kvern_state **out)
{
    kvern_heap *heap = &state->composition->context->heap;
    const size_t all = kvern_state_rows(state), bytes = all * sizeof(size_t);
    void *block;
    if (rows)
        return kvern_state_fork(state, rows, count, out);
    if (count || all == 0)
        return kvern_fail(count ? KVERN_ERR_ARGUMENT : KVERN_ERR_RANGE, "%zu rows, without a list",
                          count);
    kvern_status status = kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    size_t *list = block;
    for (size_t r = 0; r < all; r++)
        list[r] = r;
    status = kvern_state_fork(state, list, all, out);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

kvern_status kvern_mlx_export(const kvern_state *state, const size_t *rows, size_t count,
                              const char *path, const kvern_mlx_export_options *options)
{
    kvern_mlx_exporter x = {0};
    kvern_state *fork;
    if (!state || !path)
        return kvern_fail(KVERN_ERR_ARGUMENT, "state or path is NULL");
    kvern_status status = read_options(options, &x.options);
    if (!status)
        status = fork_rows(state, rows, count, &fork);
    if (status)
        return status;
    x.state = fork;
    x.rows = kvern_state_rows(fork);
    status = x.rows ? export_rows(&x, path) : kvern_fail(KVERN_ERR_RANGE, "the state has no rows");
    kvern_state_destroy(fork);
    return status;
}
