// SPDX-License-Identifier: MIT
// Rows that come and go. What a cache and a state do alike is written once, for the caches that
// share a row block: those of a state, or one that stands alone.
#include "src/base/fail.h"
#include "src/state/state.h"

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
    for (size_t i = 0; i < count; i++)
        kvern_row_share(&from->rows[rows[i]], &to->rows[i]);
}

kvern_status kvern_cache_fork(const kvern_cache *cache, const size_t *rows, size_t count,
                              kvern_cache **out)
{
    if (!out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "out is NULL");
    *out = NULL;
    kvern_status status = kvern_cache_check_idle(cache);
    if (!status)
        status = check_rows(rows, count, cache->row_count);
    if (!status)
        status = kvern_cache_create(cache->composition, cache->layer, count, out);
    if (!status)
        share_rows(cache, rows, count, *out);
    return status;
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
    for (size_t i = 0; i < count; i++)
        (*out)->block.lengths[i] = state->block.lengths[rows[i]];
    return KVERN_OK;
}

kvern_status kvern_state_extract(const kvern_state *state, size_t row, kvern_state **out)
{
    return kvern_state_fork(state, &row, 1, out);
}

// ---- Fresh rows ----

static void set_row_count(kvern_cache *caches, size_t rows)
{
    for (size_t c = 0; c < caches[0].block->caches; c++)
        caches[c].row_count = rows;
}

// Room for `count` rows more than there are.
static kvern_status make_room(kvern_cache *caches, size_t count)
{
    const size_t held = caches[0].row_count;
    if (count > KVERN_MAX_ROWS - held)
        return kvern_fail(KVERN_ERR_RANGE, "%zu rows and %zu more, above %d", held, count,
                          KVERN_MAX_ROWS);
    return kvern_row_block_grow(caches, held + count);
}

static kvern_status add_rows(kvern_cache *caches, size_t count)
{
    kvern_row_block *block = caches[0].block;
    const size_t held = caches[0].row_count;
    kvern_status status = make_room(caches, count);
    if (status)
        return status;
    for (size_t c = 0; c < block->caches; c++)
        memset(caches[c].rows + held, 0, count * sizeof caches[c].rows[0]);
    memset(block->lengths + held, 0, count * sizeof block->lengths[0]);
    set_row_count(caches, held + count);
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
static kvern_status check_choice(const kvern_cache *cache, const size_t *rows, size_t count)
{
    bool *named = cache->block->named;
    kvern_status status = check_rows(rows, count, cache->row_count);
    if (status)
        return status;
    memset(named, 0, cache->row_count * sizeof named[0]);
    for (size_t i = 0; i < count; i++) {
        if (named[rows[i]])
            return kvern_fail(KVERN_ERR_ARGUMENT, "row %zu is named twice", rows[i]);
        named[rows[i]] = true;
    }
    return KVERN_OK;
}

static void choose_rows(kvern_cache *cache, const size_t *rows, size_t count)
{
    kvern_row *old = cache->block->spare;
    for (size_t r = 0; r < cache->row_count; r++) {
        if (!cache->block->named[r])
            kvern_row_reset(&cache->rows[r]);
    }
    memcpy(old, cache->rows, cache->row_count * sizeof old[0]);
    for (size_t i = 0; i < count; i++)
        cache->rows[i] = old[rows[i]];
}

// No step is open, so that its counts are free to hold the old lengths.
static void choose_lengths(const kvern_row_block *block, size_t held, const size_t *rows,
                           size_t count)
{
    int64_t *old = block->counts;
    memcpy(old, block->lengths, held * sizeof old[0]);
    for (size_t i = 0; i < count; i++)
        block->lengths[i] = old[rows[i]];
}

static kvern_status keep_rows(kvern_cache *caches, const size_t *rows, size_t count)
{
    kvern_status status = check_choice(&caches[0], rows, count);
    if (status)
        return status;
    for (size_t c = 0; c < caches[0].block->caches; c++)
        choose_rows(&caches[c], rows, count);
    choose_lengths(caches[0].block, caches[0].row_count, rows, count);
    set_row_count(caches, count);
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
    const size_t layers = to->block->caches;
    if (kvern_cache_context(to) != kvern_cache_context(from))
        return kvern_fail(KVERN_ERR_ARGUMENT, "rows of two contexts cannot join");
    if (from->block->caches != layers)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "rows of %zu layers cannot join rows of %zu",
                          from->block->caches, layers);
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
    kvern_status status = to->owner ? kvern_cache_check_idle(from) : kvern_cache_check_alone(from);
    return status ? status : check_same(to, from);
}

// The numbers of rows of `to` are set by the caller.
static void move_rows(kvern_cache *to, size_t at, kvern_cache *from)
{
    const kvern_row_block *block = to[0].block;
    const size_t count = from[0].row_count;
    for (size_t c = 0; c < block->caches; c++)
        memcpy(to[c].rows + at, from[c].rows, count * sizeof to[c].rows[0]);
    memcpy(block->lengths + at, from[0].block->lengths, count * sizeof block->lengths[0]);
    set_row_count(from, 0);
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
        rows += at(others, i)->row_count;
    }
    kvern_status status = make_room(to, rows);
    if (status)
        return status;
    size_t end = to->row_count;
    for (size_t i = 0; i < count; i++) {
        const size_t moved = at(others, i)->row_count;
        move_rows(to, end, at(others, i));
        end += moved;
    }
    set_row_count(to, end);
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
