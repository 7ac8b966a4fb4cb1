// SPDX-License-Identifier: MIT
// Rows that come and go. What a cache and a state do alike is written once, for the caches that
// share a batch: those of a state, or one that stands alone.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/state/checkpoint.h"
#include "src/state/walk.h"

#include <string.h>

// ---- Sharing ----

static kvern_status check_rows(const size_t *rows, size_t count, size_t row_count)
{
    if (count && !rows)
        return kvern_fail(KVERN_ERR_ARGUMENT, "rows is NULL");
    for (size_t i = 0; i < count; i++) {
        if (rows[i] >= row_count)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", rows[i], row_count);
    }
    return KVERN_OK;
}

static void share_rows(const kvern_cache *from, const size_t *rows, size_t count, kvern_cache *to)
{
    const kvern_layer_rows old = kvern_cache_layer_rows(from), made = kvern_cache_layer_rows(to);
    KVERN_ASSERT(made.count == count && !old.coded == !made.coded);
    for (size_t i = 0; i < count; i++) {
        kvern_row_share(&old.rows[rows[i]], &made.rows[i]);
        if (old.coded)
            kvern_row_share(&old.coded[rows[i]], &made.coded[i]);
    }
}

static void share_lengths(const kvern_batch *from, const size_t *rows, size_t count,
                          kvern_batch *to)
{
    for (size_t i = 0; i < count; i++)
        to->lengths[i] = from->lengths[rows[i]];
}

kvern_status kvern_cache_fork(const kvern_cache *cache, const size_t *rows, size_t count,
                              kvern_cache **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    kvern_status status = kvern_cache_check_idle(cache);
    if (!status)
        status = check_rows(rows, count, cache->batch->row_count);
    if (!status)
        status = kvern_cache_create(cache->composition, cache->layer, count, out);
    if (status)
        return status;
    share_rows(cache, rows, count, *out);
    share_lengths(cache->batch, rows, count, (*out)->batch);
    return KVERN_OK;
}

kvern_status kvern_cache_extract(const kvern_cache *cache, size_t row, kvern_cache **out)
{
    return kvern_cache_fork(cache, &row, 1, out);
}

kvern_status kvern_state_fork(const kvern_state *state, const size_t *rows, size_t count,
                              kvern_state **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    kvern_status status = kvern_state_check_idle(state);
    if (!status)
        status = check_rows(rows, count, kvern_state_rows(state));
    if (!status)
        status = kvern_state_make(state->composition, count, out);
    if (status)
        return status;
    for (size_t l = 0; l < state->composition->count; l++)
        share_rows(&state->caches[l], rows, count, &(*out)->caches[l]);
    share_lengths(&state->batch, rows, count, &(*out)->batch);
    return KVERN_OK;
}

kvern_status kvern_state_extract(const kvern_state *state, size_t row, kvern_state **out)
{
    return kvern_state_fork(state, &row, 1, out);
}

// ---- Fresh rows ----

// Room for `count` rows more than there are.
static kvern_status make_room(kvern_cache *caches, size_t count)
{
    kvern_batch *batch = caches[0].batch;
    if (count > KVERN_MAX_ROWS - batch->row_count)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows and %zu more, above %d", batch->row_count,
                          count, KVERN_MAX_ROWS);
    kvern_status status =
        kvern_batch_grow(&kvern_cache_context(&caches[0])->heap, batch, batch->row_count + count);
    for (size_t c = 0; !status && c < batch->caches; c++)
        kvern_cache_find_rows(&caches[c]);
    return status;
}

static kvern_status add_rows(kvern_cache *caches, size_t count)
{
    kvern_batch *batch = caches[0].batch;
    kvern_status status = make_room(caches, count);
    if (status)
        return status;
    for (size_t s = 0; s < batch->sets; s++)
        memset(kvern_batch_rows(batch, s).rows + batch->row_count, 0, count * sizeof(kvern_row));
    KVERN_ASSERT(batch->row_count + count <= batch->capacity);
    memset(batch->lengths + batch->row_count, 0, count * sizeof batch->lengths[0]);
    memset(batch->checkpoints + batch->row_count, 0, count * sizeof batch->checkpoints[0]);
    batch->row_count += count;
    KVERN_ASSERT(!kvern_caches_walk(caches));
    return KVERN_OK;
}

kvern_status kvern_cache_add_rows(kvern_cache *cache, size_t count)
{
    kvern_status status = kvern_cache_check_alone(cache);
    return status ? status : add_rows(cache, count);
}

kvern_status kvern_state_add_rows(kvern_state *state, size_t count)
{
    kvern_status status = kvern_state_check_idle(state);
    return status ? status : add_rows(state->caches, count);
}

// ---- Filtering and reordering ----

// Also notes which rows are named.
static kvern_status check_choice(const kvern_batch *batch, const size_t *rows, size_t count)
{
    bool *named = batch->named;
    kvern_status status = check_rows(rows, count, batch->row_count);
    if (status)
        return status;
    memset(named, 0, batch->row_count * sizeof named[0]);
    for (size_t i = 0; i < count; i++) {
        if (named[rows[i]])
            return kvern_fail(KVERN_ERR_ARGUMENT, "row %zu is named twice", rows[i]);
        named[rows[i]] = true;
    }
    return KVERN_OK;
}

static void choose_rows(const kvern_batch *batch, size_t set, const size_t *rows, size_t count)
{
    kvern_row *old = batch->spare, *chosen = kvern_batch_rows(batch, set).rows;
    KVERN_ASSERT(batch->row_count <= batch->capacity && count <= batch->row_count);
    for (size_t r = 0; r < batch->row_count; r++) {
        if (!batch->named[r])
            kvern_row_reset(&chosen[r]);
    }
    memcpy(old, chosen, batch->row_count * sizeof old[0]);
    for (size_t i = 0; i < count; i++)
        chosen[i] = old[rows[i]];
}

// No step is open, so that its counts are free to hold the old lengths.
static void choose_lengths(kvern_batch *batch, const size_t *rows, size_t count)
{
    int64_t *old = batch->counts;
    KVERN_ASSERT(!batch->step_open && count <= batch->row_count);
    memcpy(old, batch->lengths, batch->row_count * sizeof old[0]);
    for (size_t i = 0; i < count; i++)
        batch->lengths[i] = old[rows[i]];
    batch->row_count = count;
}

// Likewise, in the memory of the spare rows.
static void choose_checkpoints(kvern_cache *caches, const size_t *rows, size_t count)
{
    kvern_batch *batch = caches[0].batch;
    kvern_checkpoint **old = (kvern_checkpoint **)batch->spare;
    for (size_t r = 0; r < batch->row_count; r++) {
        if (!batch->named[r])
            kvern_checkpoints_drop(caches, r, -1);
    }
    memcpy(old, batch->checkpoints, batch->row_count * sizeof old[0]);
    for (size_t i = 0; i < count; i++)
        batch->checkpoints[i] = old[rows[i]];
}

static kvern_status keep_rows(kvern_cache *caches, const size_t *rows, size_t count)
{
    kvern_batch *batch = caches[0].batch;
    kvern_status status = check_choice(batch, rows, count);
    if (status)
        return status;
    for (size_t s = 0; s < batch->sets; s++)
        choose_rows(batch, s, rows, count);
    choose_checkpoints(caches, rows, count);
    choose_lengths(batch, rows, count);
    KVERN_ASSERT(!kvern_caches_walk(caches));
    return KVERN_OK;
}

kvern_status kvern_cache_keep(kvern_cache *cache, const size_t *rows, size_t count)
{
    kvern_status status = kvern_cache_check_alone(cache);
    return status ? status : keep_rows(cache, rows, count);
}

kvern_status kvern_state_keep(kvern_state *state, const size_t *rows, size_t count)
{
    kvern_status status = kvern_state_check_idle(state);
    return status ? status : keep_rows(state->caches, rows, count);
}

// ---- Joining ----

// The caches of number `index` of the others, or NULL.
typedef kvern_cache *others_at(const void *others, size_t index);

static kvern_cache *caches_at(const void *others, size_t index)
{
    return ((kvern_cache *const *)others)[index];
}

static kvern_cache *states_at(const void *others, size_t index)
{
    kvern_state *state = ((kvern_state *const *)others)[index];
    return state ? state->caches : NULL;
}

// Whether rows of the second caches can become rows of the first ones.
static kvern_status check_same(const kvern_cache *to, const kvern_cache *from)
{
    const size_t layers = to->batch->caches;
    if (kvern_cache_context(to) != kvern_cache_context(from))
        return kvern_fail(KVERN_ERR_ARGUMENT, "rows of two contexts cannot join");
    if (from->batch->caches != layers)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "rows of %zu layers cannot join rows of %zu",
                          from->batch->caches, layers);
    for (size_t l = 0; l < layers; l++) {
        const char *own = kvern_cache_signature(&to[l]), *other = kvern_cache_signature(&from[l]);
        if (own != other && strcmp(own, other) != 0)
            return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: rows of %s cannot join rows of %s",
                              to[l].layer, other, own);
    }
    return KVERN_OK;
}

static kvern_status check_other(const kvern_cache *to, others_at *at, const void *others,
                                size_t index)
{
    const kvern_cache *from = at(others, index);
    if (!from || from == to)
        return kvern_fail(KVERN_ERR_ARGUMENT, "number %zu of the others is %s", index,
                          from ? "what they join" : "NULL");
    for (size_t i = 0; i < index; i++) {
        if (at(others, i) == from)
            return kvern_fail(KVERN_ERR_ARGUMENT, "numbers %zu and %zu of the others are the same",
                              i, index);
    }
    kvern_status status =
        to->batch->of_state ? kvern_cache_check_idle(from) : kvern_cache_check_alone(from);
    return status ? status : check_same(to, from);
}

// For which there is room.
static void move_rows(kvern_cache *to, kvern_cache *from)
{
    kvern_batch *batch = to[0].batch, *left = from[0].batch;
    KVERN_ASSERT(batch != left && batch->caches == left->caches && batch->sets == left->sets);
    KVERN_ASSERT(batch->row_count + left->row_count <= batch->capacity);
    for (size_t s = 0; s < batch->sets; s++)
        memcpy(kvern_batch_rows(batch, s).rows + batch->row_count, kvern_batch_rows(left, s).rows,
               left->row_count * sizeof(kvern_row));
    memcpy(batch->lengths + batch->row_count, left->lengths,
           left->row_count * sizeof left->lengths[0]);
    memcpy(batch->checkpoints + batch->row_count, left->checkpoints,
           left->row_count * sizeof left->checkpoints[0]);
    batch->checkpoint_bytes += left->checkpoint_bytes;
    batch->row_count += left->row_count;
    left->row_count = 0;
    left->checkpoint_bytes = 0;
    KVERN_ASSERT(batch->row_count <= batch->capacity);
}

static kvern_status join(kvern_cache *to, others_at *at, const void *others, size_t count)
{
    size_t rows = 0;
    if (count && !others)
        return kvern_fail(KVERN_ERR_ARGUMENT, "others is NULL");
    for (size_t i = 0; i < count; i++) {
        kvern_status status = check_other(to, at, others, i);
        if (status)
            return status;
        rows += at(others, i)->batch->row_count;
    }
    kvern_status status = make_room(to, rows);
    if (status)
        return status;
    for (size_t i = 0; i < count; i++)
        move_rows(to, at(others, i));
    kvern_checkpoints_fit(to, NULL);
    KVERN_ASSERT(!kvern_caches_walk(to));
    return KVERN_OK;
}

kvern_status kvern_cache_join(kvern_cache *cache, kvern_cache *const *others, size_t count)
{
    kvern_status status = kvern_cache_check_alone(cache);
    return status ? status : join(cache, caches_at, others, count);
}

kvern_status kvern_state_join(kvern_state *state, kvern_state *const *others, size_t count)
{
    kvern_status status = kvern_state_check_idle(state);
    return status ? status : join(state->caches, states_at, others, count);
}
