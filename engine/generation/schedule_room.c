// SPDX-License-Identifier: MIT
// The memory of a scheduler's rows. With a budget a row's room is reserved up to its final length,
// by the library, which knows every byte of it, and so is that of its drafts. What no reservation
// covers (engine/model/row_room.h) is promised: bytes that later admissions leave free.

#include "engine/generation/schedule_internal.h"

#include "engine/model/row_room.h"

#include <inttypes.h>

static kvern_memory memory_of(const schedule *s)
{
    kvern_memory memory = {.size = sizeof memory};
    if (kvern_context_memory(s->context, &memory) != KVERN_OK) {
        memory.budget_bytes = 0; // impossible: the arguments are right
    }
    return memory;
}

// Bytes that a row may still take beyond what is reserved for it.
static uint64_t promise_of(const schedule *s, size_t row, const schedule_sequence *q)
{
    const row_room room = {.length = q->final_length,
                           .prompt = q->count,
                           .prompt_done = q->forwarded == q->count,
                           .chunk = s->options.chunk,
                           .shared = q->result.shared_tokens};
    return row_room_promise(s->state, row, &room);
}

static uint64_t promised(const schedule *s)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        bytes += s->rows[r] ? s->rows[r]->promised + s->rows[r]->draft_promised : 0;
    }
    return bytes;
}

static uint64_t row_bytes(const schedule *s, const schedule_sequence *q)
{
    return kvern_composition_row_bytes(kvern_state_composition(s->state), q->final_length);
}

kvern_status schedule_room_check(const schedule *s, schedule_sequence *q, engine_error *error)
{
    const uint64_t budget = memory_of(s).budget_bytes;
    const uint64_t left = budget - s->base_bytes, row = row_bytes(s, q);
    if (budget == 0) {
        return KVERN_OK;
    }
    if (row <= left) {
        q->undrafted = schedule_draft_bytes(s, q) > left - row;
        return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "its row of up to %zu tokens, %zu of them the prompt, takes %" PRIu64
                       " bytes; the budget is %" PRIu64 " bytes, of which %" PRIu64 " are left",
                       q->final_length, q->count, row, budget, left);
}

bool schedule_room_likely(const schedule *s, const schedule_sequence *q)
{
    const kvern_memory memory = memory_of(s);
    const uint64_t wanted = row_bytes(s, q) + schedule_draft_bytes(s, q);
    const uint64_t free_bytes = memory.budget_bytes - memory.held_bytes;
    return memory.budget_bytes == 0 || schedule_running(s) == 0 ||
           (promised(s) <= free_bytes && wanted <= free_bytes - promised(s));
}

static kvern_status reserve(schedule *s, size_t row, size_t tokens, engine_error *error)
{
    // Scratch for the queries of a whole step.
    size_t queries = model_get_facts(s->model)->heads * s->options.chunk;
    kvern_status status = kvern_state_reserve(s->state, row, (int64_t)tokens, queries);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "making room for a request");
}

// Whether `bytes` are free beside what was promised to the other rows.
static kvern_status check_free(const schedule *s, uint64_t bytes, engine_error *error)
{
    const kvern_memory memory = memory_of(s);
    const uint64_t free_bytes = memory.budget_bytes - memory.held_bytes;
    const uint64_t wanted = promised(s) + bytes;
    if (free_bytes >= wanted) {
        return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_BUDGET,
                       "%" PRIu64 " bytes are needed beside the rows, and %" PRIu64 " are left",
                       wanted, free_bytes);
}

static size_t converted_layers(const schedule *s, size_t row)
{
    size_t count = 0;
    for (size_t l = 0; l < kvern_composition_layers(kvern_state_composition(s->state)); l++) {
        count += kvern_cache_converted(kvern_state_cache(s->state, l), row) ? 1 : 0;
    }
    return count;
}

// Room of a row's drafts, beside what is promised to its own and all others. Alone, or without a
// budget, the row goes without drafts when there is none; otherwise it waits.
static kvern_status take_drafts(schedule *s, schedule_sequence *q, bool budget, engine_error *error)
{
    const bool alone = schedule_running(s) == 0;
    kvern_status status = schedule_draft_seat(s, q, budget ? q->final_length : q->count, error);
    if (status == KVERN_ERR_BUDGET && !alone) {
        return status;
    }
    if (!budget || (alone && q->draft_row == DRAFT_NO_ROW)) {
        return KVERN_OK;
    }
    status = check_free(s, q->promised + q->draft_promised, error);
    if (status == KVERN_OK || !alone) {
        return status;
    }
    // Bytes that the library holds without using them count as taken here. So a row that is alone,
    // which nothing can take them from, may try; but its drafts may not take them.
    schedule_draft_leave(s, q);
    return KVERN_OK;
}

kvern_status schedule_room_take(schedule *s, size_t row, schedule_sequence *q, engine_error *error)
{
    const bool budget = memory_of(s).budget_bytes != 0;
    // Without a budget the rest is taken as it is needed: otherwise whole contexts would be
    // reserved for answers that end early.
    const kvern_status status = reserve(s, row, budget ? q->final_length : q->count, error);
    if (status != KVERN_OK) {
        return status;
    }
    q->promised = budget ? promise_of(s, row, q) : 0;
    q->converted = converted_layers(s, row);
    return take_drafts(s, q, budget, error);
}

// Reserves the rest of a row that has been converted since; until that is done the promise stays.
static void renew_row(schedule *s, size_t row)
{
    schedule_sequence *q = s->rows[row];
    const size_t converted = converted_layers(s, row);
    if (converted != q->converted && reserve(s, row, q->final_length, NULL) != KVERN_OK) {
        return;
    }
    q->converted = converted;
    q->promised = promise_of(s, row, q);
}

void schedule_room_renew(schedule *s)
{
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && s->rows[r]->promised > 0) {
            renew_row(s, r);
        }
    }
}

uint64_t schedule_room_bytes(const schedule *s)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < kvern_state_rows(s->state); r++) {
        bytes += kvern_composition_row_bytes(kvern_state_composition(s->state),
                                             (uint64_t)kvern_state_length(s->state, r));
    }
    return bytes;
}
