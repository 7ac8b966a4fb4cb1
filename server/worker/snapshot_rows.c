// SPDX-License-Identifier: MIT
// GET /cache: layers and rows.
#include "server/worker/snapshot_parts.h"

#include "engine/base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- Layers ----

static const char *kind_of(const kvern_layer *layer)
{
    switch (layer->kind) {
    case KVERN_LAYER_FULL:
        return "full";
    case KVERN_LAYER_WINDOW:
        return "window";
    case KVERN_LAYER_LATENT:
        return "latent";
    case KVERN_LAYER_RECURRENT:
        return "recurrent";
    case KVERN_LAYER_CHUNKED:
        return "chunked";
    case KVERN_LAYER_SHARED:
        return "shared";
    }
    return "unknown";
}

// Layers that can exchange rows are stored alike.
static bool alike(const kvern_composition *composition, size_t one, size_t other)
{
    const kvern_layer *a = kvern_composition_layer(composition, one);
    const kvern_layer *b = kvern_composition_layer(composition, other);
    return a->residual == b->residual && a->precise_sinks == b->precise_sinks &&
           strcmp(kvern_composition_signature(composition, one),
                  kvern_composition_signature(composition, other)) == 0;
}

// Whether no earlier layer is like it; *count: how many are.
static bool is_first(const kvern_composition *composition, size_t layer, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < kvern_composition_layers(composition); i++) {
        const bool same = alike(composition, i, layer);
        if (same && i < layer) {
            return false;
        }
        *count += same;
    }
    return true;
}

static json_t *layer_json(const kvern_composition *composition, size_t index, size_t count)
{
    const kvern_layer *layer = kvern_composition_layer(composition, index);
    json_t *start = layer->start == KVERN_NO_START ? json_null() : json_integer(layer->start);
    return json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I}", "layers",
                     (json_int_t)count, "kind", kind_of(layer), "storage",
                     kvern_composition_signature(composition, index), "window",
                     (json_int_t)layer->window, "keep", (json_int_t)layer->keep, "slack",
                     (json_int_t)layer->slack, "chunk", (json_int_t)layer->chunk, "residual",
                     (json_int_t)layer->residual, "precise_sinks", (json_int_t)layer->precise_sinks,
                     "start", start, "bytes_per_token",
                     (json_int_t)kvern_composition_layer_bytes_per_token(composition, index));
}

json_t *snapshot_layers(const kvern_composition *composition)
{
    json_t *layers = json_array();
    for (size_t i = 0; layers && i < kvern_composition_layers(composition); i++) {
        size_t count;
        if (is_first(composition, i, &count)) {
            json_array_append_new(layers, layer_json(composition, i, count));
        }
    }
    return layers;
}

// ---- Rows ----

static const job_choice *choice_of(const job *jobs, uint64_t id)
{
    for (const job *j = jobs; j && id; j = j->next) {
        for (size_t i = 0; i < j->count; i++) {
            if (j->choices[i].id == id && !j->choices[i].ended) {
                return &j->choices[i];
            }
        }
    }
    return NULL;
}

// Whether the row is converted, for each kind of storage.
static json_t *converted_json(const kvern_state *state, const kvern_composition *composition,
                              size_t row)
{
    json_t *converted = json_array();
    for (size_t i = 0; converted && i < kvern_composition_layers(composition); i++) {
        size_t count;
        if (is_first(composition, i, &count)) {
            const kvern_cache *cache = kvern_state_cache(state, i);
            json_array_append_new(converted, json_boolean(kvern_cache_converted(cache, row)));
        }
    }
    return converted;
}

// Where what it did not have to compute came from.
static json_t *source_json(const schedule_row *row)
{
    if (row->shared_tokens == 0) {
        return json_null();
    }
    return json_string(row->stored_tokens == 0 ? "row"
                       : row->from_disk        ? "disk"
                       : row->from_remote      ? "remote"
                                               : "memory");
}

// Of several answers to one request each has its number behind the name.
static json_t *name_json(const job_choice *c)
{
    if (!c) {
        return json_null();
    }
    return c->job->count == 1 ? json_string(c->job->name)
                              : json_sprintf("%s/%zu", c->job->name, c->index);
}

static json_t *row_json(const schedule_row *row, const job_choice *c)
{
    const bool reads = row->forwarded < row->prompt_tokens;
    const double seconds = c ? engine_seconds() - c->job->arrived : 0;
    return json_pack("{s:o, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:s?, s:f}", "id",
                     name_json(c), "request", (json_int_t)row->id, "state",
                     row->id == 0 ? "kept"
                     : reads      ? "prompt"
                                  : "decode",
                     "length", (json_int_t)row->length, "room", (json_int_t)row->final_length,
                     "prompt_tokens", (json_int_t)row->prompt_tokens, "generated_tokens",
                     (json_int_t)row->generated_tokens, "shared_tokens",
                     (json_int_t)row->shared_tokens, "stored_tokens",
                     (json_int_t)row->stored_tokens, "from", source_json(row), "why", row->why,
                     "seconds", seconds);
}

json_t *snapshot_rows(const schedule *s, const kvern_composition *composition, const job *jobs)
{
    const kvern_state *state = schedule_state(s);
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < kvern_state_rows(state); i++) {
        schedule_row row;
        if (schedule_get_row(s, i, &row)) {
            json_t *json = row_json(&row, choice_of(jobs, row.id));
            json_object_set_new(json, "converted", converted_json(state, composition, i));
            json_array_append_new(rows, json);
        }
    }
    return rows;
}
