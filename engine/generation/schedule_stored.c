// SPDX-License-Identifier: MIT
// Prompts that begin as something that was served before: a store (kvern/store.h) has the rows of
// prompts and answers that ended, and lends them. What it lends is what the row would have been, so
// the answer has the same bits.

#include "engine/generation/schedule_internal.h"

size_t schedule_stored_find(const schedule *s, schedule_sequence *q, kvern_store_hit *hit)
{
    *hit = kvern_store_hit_default();
    if (!s->options.store || !s->shares) {
        return 0;
    }
    const kvern_composition *plan = kvern_state_composition(s->state);
    // The arguments are right: this cannot fail.
    (void)!kvern_store_find(s->options.store, &s->options.store_key, plan, q->tokens, q->count,
                            hit);
    q->result.why = kvern_store_why_text(hit->why);
    return hit->positions >= SCHEDULE_LEAST_SHARED ? (size_t)hit->positions : 0;
}

bool schedule_stored_take(schedule *s, schedule_sequence *q, size_t row, const kvern_store_hit *hit)
{
    if (kvern_store_lend(s->options.store, hit, s->state, row) != KVERN_OK) {
        return false;
    }
    q->forwarded = q->result.shared_tokens = q->result.stored_tokens = (size_t)hit->positions;
    return true;
}

void schedule_stored_release(const schedule *s, kvern_store_hit *hit)
{
    if (s->options.store) {
        kvern_store_release(s->options.store, hit);
    }
}

// What cannot be kept is served anew when it is asked for again.
static bool publish(schedule *s, size_t row, const int32_t *tokens, kvern_store_retention retention)
{
    const int64_t length = kvern_state_length(s->state, row);
    kvern_store_publication publication = kvern_store_publication_default();
    publication.retention = retention;
    return s->options.store && s->shares && length >= SCHEDULE_LEAST_SHARED &&
           kvern_store_publish(s->options.store, &s->options.store_key, tokens, (size_t)length,
                               s->state, row, &publication) == KVERN_OK;
}

// Whether an entry of a longer row serves all its beginnings.
static bool any_prefix_serves(const schedule *s, size_t row)
{
    return kvern_state_min_reusable(s->state, row) == 0;
}

void schedule_stored_prompt(schedule *s, size_t row)
{
    // Another prompt may go on behind this one otherwise than the answer does.
    if (!any_prefix_serves(s, row) && publish(s, row, s->rows[row]->tokens, KVERN_STORE_NORMAL)) {
        (void)!schedule_room_renew(s, row); // gives the entry up where that takes the row's room
    }
}

void schedule_stored_end(schedule *s, const schedule_sequence *q, size_t row)
{
    const bool serves = any_prefix_serves(s, row); // its prompt, too
    (void)publish(s, row, q->tokens, serves ? KVERN_STORE_NORMAL : KVERN_STORE_SHORT);
}

uint64_t schedule_stored_forget(schedule *s, uint64_t bytes)
{
    return s->options.store ? kvern_store_give_up(s->options.store, bytes) : 0;
}

uint64_t schedule_stored_bytes(const schedule *s)
{
    kvern_store_stats stats = kvern_store_stats_default();
    // The arguments are right: this cannot fail.
    if (s->options.store) {
        (void)!kvern_store_get_stats(s->options.store, &stats);
    }
    return stats.bytes;
}
