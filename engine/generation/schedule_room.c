// SPDX-License-Identifier: MIT
// The memory of a scheduler's rows. With a budget a row and its drafts have room up to their final
// length before they run, planned and reserved by the library (kvern/plan.h), which knows every
// byte of it: no step is refused memory then.

#include "engine/generation/schedule_internal.h"

#include <inttypes.h>

static kvern_memory memory_of(const schedule *s)
{
    kvern_memory memory = {.size = sizeof memory};
    if (kvern_context_memory(s->context, &memory) != KVERN_OK) {
        memory.budget_bytes = 0; // impossible: the arguments are right
    }
    return memory;
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

static uint64_t left_bytes(const schedule *s)
{
    const kvern_memory memory = memory_of(s);
    return memory.budget_bytes == 0 ? UINT64_MAX : memory.budget_bytes - memory.held_bytes;
}

bool schedule_room_likely(schedule *s, const schedule_sequence *q)
{
    const uint64_t wanted = row_bytes(s, q) + schedule_draft_bytes(s, q), left = left_bytes(s);
    if (wanted <= left || schedule_running(s) == 0) {
        return true;
    }
    schedule_stored_forget(s, wanted - left);
    return wanted <= left_bytes(s);
}

// What a row is going to do until it has `tokens` positions. Only a prompt comes in chunks.
static kvern_plan plan_of(const schedule *s, const schedule_sequence *q, size_t tokens)
{
    const size_t rest = q->count - q->forwarded, chunk = s->options.chunk;
    const size_t round = s->drafts ? 1 + s->options.draft_tokens : 0;
    kvern_plan plan = kvern_plan_default();
    plan.tokens = (int64_t)tokens;
    plan.chunk = (int64_t)(rest < 1 ? 1 : rest < chunk ? rest : chunk);
    plan.round = (int64_t)(round < tokens ? round : tokens);
    const size_t queries = (size_t)(plan.chunk > plan.round ? plan.chunk : plan.round);
    const model_facts *facts = model_get_facts(s->model);
    plan.query_vectors = facts->heads * queries;
    plan.index_heads = facts->latent.index_heads;
    plan.selected = facts->latent.index_heads ? (int64_t)facts->latent.index_top_k : 0;
    return plan;
}

// Checkpoints, and what the store has, go before a request does.
static kvern_status reserve(schedule *s, size_t row, const schedule_sequence *q, size_t tokens,
                            engine_error *error)
{
    const kvern_plan plan = plan_of(s, q, tokens);
    kvern_status status = kvern_state_reserve_plan(s->state, row, &plan);
    if (status != KVERN_OK && schedule_kept_forget(s)) {
        status = kvern_state_reserve_plan(s->state, row, &plan);
    }
    const uint64_t bytes = kvern_composition_row_bytes(kvern_state_composition(s->state), tokens);
    bool more = s->options.store || s->options.disk || s->options.remote;
    while (status != KVERN_OK && more) {
        more = schedule_stored_forget(s, bytes) > 0;
        status = kvern_state_reserve_plan(s->state, row, &plan);
    }
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail_kvern(error, status, "making room for a request");
}

// Rows that share pages since a prompt's beginning was taken over may need pages of their own.
static kvern_status renew_others(schedule *s, const schedule_sequence *q, engine_error *error)
{
    kvern_status status = KVERN_OK;
    for (size_t r = 0; q->source != SCHEDULE_NO_ROW && r < kvern_state_rows(s->state); r++) {
        if (s->rows[r] && status == KVERN_OK) {
            status = reserve(s, r, s->rows[r], s->rows[r]->final_length, error);
        }
    }
    return status;
}

// Without a budget the rest is taken as it is needed: otherwise whole contexts would be reserved
// for answers that end early.
kvern_status schedule_room_take(schedule *s, size_t row, schedule_sequence *q, engine_error *error)
{
    const bool budget = memory_of(s).budget_bytes != 0;
    const size_t tokens = budget ? q->final_length : q->count;
    kvern_status status = reserve(s, row, q, tokens, error);
    if (status == KVERN_OK && budget) {
        status = renew_others(s, q, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    // A row whose drafts have no room goes without them; but beside others it waits for it.
    status = schedule_draft_seat(s, q, tokens, error);
    return status == KVERN_ERR_BUDGET && schedule_running(s) > 0 ? status : KVERN_OK;
}

kvern_status schedule_room_renew(schedule *s, size_t row)
{
    const schedule_sequence *q = s->rows[row];
    const bool budget = memory_of(s).budget_bytes != 0;
    return reserve(s, row, q, budget ? q->final_length : q->count, NULL);
}

void schedule_room_settle(schedule *s, size_t row)
{
    if (memory_of(s).budget_bytes != 0) { // what fails here keeps more room than it needs
        (void)!reserve(s, row, s->rows[row], s->rows[row]->final_length, NULL);
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
