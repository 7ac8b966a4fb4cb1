// SPDX-License-Identifier: MIT
#ifndef KVERN_PLAN_H
#define KVERN_PLAN_H

// Plans: what rows are going to do at most. From a plan follow the bytes that they can take
// (kvern_composition_plan_bytes), by arithmetic alone, and reservations with which nothing of what
// was planned asks for pages again (kvern_state_reserve_plan, kvern_cache_reserve_plan). So an
// engine can know before a forward pass begins that memory lasts to its end.
//
//     kvern_plan plan = kvern_plan_default();
//     plan.rows = 8;                                  sequences at once
//     plan.tokens = 4096;                             prompt and answer of each
//     plan.chunk = 256;                               of a prompt, in one append
//     plan.query_vectors = QUERY_HEADS * 256;         of a row, in one attend
//     kvern_composition_plan_bytes(composition, &plan, &bytes);     does it fit?
//     for each row:
//         kvern_state_reserve_plan(state, row, &plan);              then it stays so
//
// What plan_bytes does not count is there before the first state: the context and the composition.
// kvern_context_memory tells it (held_bytes, when both have been made). So a budget that holds a
// plan is
//     held_bytes + bytes
// and may be set for a second context, or asked of the first: budget_bytes - held_bytes >= bytes.
//
// A fork shares its pages with where it came from. It adds a state and a list of pages per row and
// layer; then, in each layer, the pages that it fills itself, a copy of the last one if that is
// partly filled, and the lists that it makes of its own. A plan counts none of the sharing: planned
// as a row like the others, a fork is within it, whatever becomes of the other rows.
//
// A plan is for rows that are used like this: reads are released before their step ends, or, with a
// cache alone, before the row's next append; where kvern_state_plan_boundary is used, an append
// ends at the boundary. Otherwise a call may ask for memory that was not planned, and be refused
// it.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// Checkpoints of a row in a plan, at most.
#define KVERN_MAX_CHECKPOINTS 65536

// What rows do at most. Each field may be more than what is done; bytes grow with it.
typedef struct kvern_plan {
    size_t size;    // sizeof(kvern_plan); set by kvern_plan_init
    size_t rows;    // rows of the state, all alike: at least 1, as at first
    int64_t tokens; // positions that a row reaches; 0 at first
    int64_t chunk;  // tokens of a row's longest append: at least 1, as at first, for decodes
    int64_t round;  // tokens of a row's longest round (kvern/round.h); 0, as at first: no rounds

    // Query vectors of a row in one attend of a layer, its query heads times its queries; an attend
    // may have as many of each row. 0, as at first: no attends.
    size_t query_vectors;

    // Selections of positions (kvern/select.h), in layers that have them; 0, as at first: none. A
    // row's queries in one call are then no more than tokens of its longest append or round.
    int64_t selected;   // positions that a query selects at most: top_k
    size_t index_heads; // heads of the indexer, where kvern_read_select is called

    // Checkpoints (kvern/checkpoint.h) that a row has at once, KVERN_MAX_CHECKPOINTS at most; 0, as
    // at first: none. Bytes count them, while a reservation is for the row alone.
    size_t checkpoints;

    // Materialized reads of latents (kvern/latent.h) with weights of these dims, selected ones
    // among them where `selected` is set; 0, as at first: none. A row has no more queries in one
    // call than tokens in its longest append or round.
    size_t nope_dim;
    size_t value_dim;
} kvern_plan;

// Writes a plan of one row that decodes to `size` bytes, sizeof(kvern_plan) of the caller.
KVERN_API void kvern_plan_init(kvern_plan *plan, size_t size);

// The same as a value.
static inline kvern_plan kvern_plan_default(void)
{
    kvern_plan plan;
    kvern_plan_init(&plan, sizeof plan);
    return plan;
}

// The most that the allocator will have given at any time for a state of this composition with
// plan->rows rows that keep to the plan, in *bytes: pages, those of both forms of a layer with a
// start at once, lists of pages, reads, scratch and the state itself, and what arenas hold beyond
// their pages. What the context and the composition take is not in it. Rows that share pages take
// less. A context whose budget has as many bytes left refuses nothing that is planned and reserved.
// The number is no more than 4 % and 64 KiB above what the reservations of the plan take, where
// pages have 8 KiB or more; without a budget, 2 MiB more per size of page. Makes nothing and takes
// no memory. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (fields out of the ranges above, more than
// KVERN_MAX_ROWS rows or 2^40 tokens), KVERN_ERR_OVERFLOW (*bytes does not fit).
KVERN_API KVERN_CHECK kvern_status kvern_composition_plan_bytes(
    const kvern_composition *composition, const kvern_plan *plan, uint64_t *bytes);

// Makes room so that row `row` can do what the plan says, in all layers, without any further pages:
// appends of whole chunks, rounds, the conversion at a start, for which pages of the planned codecs
// are set aside now, and growing in them afterwards; reads of all layers, open at once, and their
// attends. plan->rows is not looked at. The plan replaces what was reserved for the row before:
// reserved anew with a shorter chunk, the row gives back what that does not need. Plans of rows may
// differ: scratch is for calls on all of them. Room is for what the row shares with forks at this
// time, and so reserve a row again that has been forked since. It is the row's until
// kvern_state_reset, and moves with it. On failure nothing changed. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_RANGE, KVERN_ERR_BUSY (a step or a round is open), KVERN_ERR_OVERFLOW,
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_state_reserve_plan(kvern_state *state, size_t row,
                                                            const kvern_plan *plan);

// The same for a row of a cache that stands alone, without rounds; until kvern_cache_reset. A
// conversion there happens while the read of its append is open, so its pages stay for that read;
// they are planned for, but for a list of pages. On failure nothing changed. Errors: those of
// kvern_state_reserve_plan; KVERN_ERR_BUSY is for a cache of a state.
KVERN_API KVERN_CHECK kvern_status kvern_cache_reserve_plan(kvern_cache *cache, size_t row,
                                                            const kvern_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
