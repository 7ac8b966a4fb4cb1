// SPDX-License-Identifier: MIT
#include "src/state/batch.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <string.h>

// ---- Memory ----

// Of one row in one set.
#define ROW_BYTES                                                                                  \
    (sizeof(kvern_row) + sizeof(kvern_row_change) + sizeof(kvern_conversion) +                     \
     sizeof(kvern_row_undo))

_Static_assert(ROW_BYTES % _Alignof(kvern_row) == 0 && sizeof(kvern_row) % _Alignof(int64_t) == 0,
               "arrays behind arrays of one row's parts are aligned");

// Of one row besides that: what all caches know of it, and scratch.
#define SHARED_BYTES                                                                               \
    (4 * sizeof(int64_t) + sizeof(kvern_row) + sizeof(kvern_checkpoint *) + sizeof(bool))

// Far from overflow: there are at most KVERN_MAX_ROWS rows, and caches exist in memory.
static size_t memory_bytes(size_t sets, size_t capacity)
{
    return capacity * (sets * ROW_BYTES + SHARED_BYTES);
}

// Points the batch to memory for `capacity` rows.
static void place_arrays(kvern_batch *batch, void *memory, size_t capacity)
{
    KVERN_ASSERT(batch->row_count <= capacity);
    batch->memory = memory;
    batch->capacity = capacity;
    batch->spare = (kvern_row *)((char *)memory + capacity * batch->sets * ROW_BYTES);
    batch->lengths = (int64_t *)(batch->spare + capacity);
    batch->counts = batch->lengths + capacity;
    batch->round_begin = batch->counts + capacity;
    batch->round_most = batch->round_begin + capacity;
    batch->checkpoints = (kvern_checkpoint **)(batch->round_most + capacity);
    batch->named = (bool *)(batch->checkpoints + capacity);
    KVERN_ASSERT((char *)(batch->named + capacity) ==
                 (char *)memory + memory_bytes(batch->sets, capacity));
}

size_t kvern_batch_bytes(size_t sets, size_t rows)
{
    return memory_bytes(sets, kvern_max_size(rows, 1));
}

kvern_status kvern_batch_create(kvern_heap *heap, size_t caches, size_t sets, size_t rows,
                                kvern_batch *out)
{
    const size_t capacity = kvern_max_size(rows, 1); // so that the arrays exist
    void *memory;
    memset(out, 0, sizeof *out);
    kvern_status status = kvern_heap_take_zeroed(heap, memory_bytes(sets, capacity), &memory);
    if (status)
        return status;
    out->caches = caches;
    out->sets = sets;
    out->row_count = rows;
    place_arrays(out, memory, capacity);
    return KVERN_OK;
}

void kvern_batch_free(kvern_heap *heap, kvern_batch *batch)
{
    kvern_heap_give(heap, batch->memory, memory_bytes(batch->sets, batch->capacity),
                    KVERN_HEAP_ALIGNMENT);
    memset(batch, 0, sizeof *batch);
}

kvern_row_undo *kvern_batch_undos(const kvern_batch *batch, size_t set)
{
    KVERN_ASSERT(set < batch->sets);
    char *const end = (char *)batch->memory + (set + 1) * batch->capacity * ROW_BYTES;
    return (kvern_row_undo *)end - batch->capacity;
}

kvern_layer_rows kvern_batch_rows(const kvern_batch *batch, size_t set)
{
    KVERN_ASSERT(set < batch->sets);
    kvern_layer_rows at = {.count = batch->row_count, .of_state = batch->of_state};
    at.rows = (kvern_row *)((char *)batch->memory + set * batch->capacity * ROW_BYTES);
    at.changes = (kvern_row_change *)(at.rows + batch->capacity);
    at.conversions = (kvern_conversion *)(at.changes + batch->capacity);
    if (batch->round_open)
        at.undos = kvern_batch_undos(batch, set);
    return at;
}

// At least twice as large, so that rows which come one by one cost the same each; or, where there
// is no room for that, just large enough.
static kvern_status take_larger(kvern_heap *heap, size_t sets, size_t wish, size_t rows,
                                size_t *capacity, void **memory)
{
    *capacity = kvern_max_size(rows, wish);
    kvern_status status = kvern_heap_take_zeroed(heap, memory_bytes(sets, *capacity), memory);
    if (status && wish > rows) {
        *capacity = rows;
        status = kvern_heap_take_zeroed(heap, memory_bytes(sets, rows), memory);
    }
    return status;
}

// Set by set: what lies between the rows is for the length of a call, or of a round, only.
kvern_status kvern_batch_grow(kvern_heap *heap, kvern_batch *batch, size_t rows)
{
    KVERN_ASSERT(!batch->step_open && !batch->round_open);
    if (rows <= batch->capacity)
        return KVERN_OK;
    kvern_batch larger = *batch;
    const size_t wish = kvern_min_size(2 * batch->capacity, KVERN_MAX_ROWS);
    size_t capacity;
    void *memory;
    kvern_status status = take_larger(heap, batch->sets, wish, rows, &capacity, &memory);
    if (status)
        return status;
    place_arrays(&larger, memory, capacity);
    for (size_t s = 0; s < batch->sets; s++)
        memcpy(kvern_batch_rows(&larger, s).rows, kvern_batch_rows(batch, s).rows,
               batch->row_count * sizeof(kvern_row));
    memcpy(larger.lengths, batch->lengths, batch->row_count * sizeof larger.lengths[0]);
    memcpy(larger.checkpoints, batch->checkpoints, batch->row_count * sizeof larger.checkpoints[0]);
    KVERN_ASSERT(rows <= larger.capacity);
    kvern_batch_free(heap, batch);
    *batch = larger;
    return KVERN_OK;
}

kvern_plan kvern_batch_plan(const kvern_batch *batch, const kvern_plan *plan)
{
    const kvern_plan *before = &batch->reserved;
    kvern_plan all = *plan;
    all.rows = batch->row_count;
    if (!batch->reservation)
        return all;
    all.tokens = kvern_max_i64(plan->tokens, before->tokens);
    all.chunk = kvern_max_i64(plan->chunk, before->chunk);
    all.round = kvern_max_i64(plan->round, before->round);
    all.query_vectors = kvern_max_size(plan->query_vectors, before->query_vectors);
    all.selected = kvern_max_i64(plan->selected, before->selected);
    all.index_heads = kvern_max_size(plan->index_heads, before->index_heads);
    all.nope_dim = kvern_max_size(plan->nope_dim, before->nope_dim);
    all.value_dim = kvern_max_size(plan->value_dim, before->value_dim);
    return all;
}

static bool has_reserved_rows(const kvern_batch *batch)
{
    for (size_t s = 0; s < batch->sets; s++) {
        const kvern_row *rows = kvern_batch_rows(batch, s).rows;
        for (size_t r = 0; r < batch->row_count; r++)
            if (rows[r].reserved)
                return true;
    }
    return false;
}

void kvern_batch_unreserve(kvern_context *context, kvern_batch *batch)
{
    if (!batch->reservation || has_reserved_rows(batch))
        return;
    kvern_reservation_end(context, batch->reservation);
    batch->reservation = NULL;
}

// ---- Checks ----

kvern_status kvern_batch_check_no_round(const kvern_batch *batch)
{
    if (batch->round_open)
        return kvern_fail(KVERN_ERR_BUSY, "a round is open");
    return KVERN_OK;
}

kvern_status kvern_batch_check_idle(const kvern_batch *batch)
{
    if (batch->step_open)
        return kvern_fail(KVERN_ERR_BUSY, "a step is open");
    return kvern_batch_check_no_round(batch);
}

// Flags are for a row's first tokens, of which one alone has none to see.
static kvern_status check_flagged(const kvern_batch *batch, size_t row, int64_t count)
{
    if (count > 0 && batch->lengths[row] > 0)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "row %zu: a bidirectional append at position %" PRId64
                          ": it is a row's first",
                          row, batch->lengths[row]);
    if (count == 1)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu: a bidirectional append of one token", row);
    return KVERN_OK;
}

kvern_status kvern_batch_check_counts(const kvern_batch *batch, kvern_phase phase,
                                      const int64_t *counts)
{
    const int64_t most = phase == KVERN_PHASE_DECODE ? 1 : KVERN_MAX_POSITIONS;
    if ((unsigned)phase > KVERN_PHASE_ENCODER)
        return kvern_fail(KVERN_ERR_ARGUMENT, "phase %d is unknown", (int)phase);
    if (batch->row_count && !counts)
        return kvern_fail(KVERN_ERR_ARGUMENT, "counts is NULL");
    for (size_t r = 0; r < batch->row_count; r++) {
        if (counts[r] < 0 || counts[r] > most)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu: %" PRId64 " tokens, not 0 to %" PRId64, r,
                              counts[r], most);
        if (counts[r] > KVERN_MAX_POSITIONS - batch->lengths[r])
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " positions and %" PRId64 " more", r,
                              batch->lengths[r], counts[r]);
        kvern_status status =
            phase == KVERN_PHASE_BIDIRECTIONAL ? check_flagged(batch, r, counts[r]) : KVERN_OK;
        if (status)
            return status;
    }
    return KVERN_OK;
}
