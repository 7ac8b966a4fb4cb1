// SPDX-License-Identifier: MIT
// Prompts whose beginning may be at a server that machines share (kvern/remote_store.h). A request
// waits in the queue while that is asked and fetched, for as long as the store allows; requests
// behind it that wait for nothing pass it, and those that run go on.

#include "engine/generation/schedule_internal.h"

// Requests at the head of the queue that are asked for ahead of their turn. What was fetched for
// them takes memory until then.
#define AHEAD 4
// Of a step without tokens: waited for a fetch, so that its caller does not spin.
#define PATIENCE_MS 5

static bool can_ask(const schedule *s, const schedule_sequence *q)
{
    const kept_sequence *kept = q->request.kept;
    return s->options.remote && s->shares && !q->asked && q->count > SCHEDULE_LEAST_FETCHED &&
           !(kept && kept_sequence_length(kept) > 0);
}

// Where it cannot be asked for want of memory, the request is served without.
static void ask(schedule *s, schedule_sequence *q)
{
    const int64_t least = (int64_t)schedule_stored_have(s, q) + SCHEDULE_LEAST_FETCHED;
    q->asked = true;
    (void)!kvern_remote_store_begin(s->options.remote, &s->options.store_key,
                                    kvern_state_composition(s->state), q->tokens, q->count, least,
                                    0, &q->fetch);
}

void schedule_fetched_ask(schedule *s)
{
    size_t ahead = 0;
    for (schedule_sequence *q = s->first; q && ahead < AHEAD; q = q->next, ahead++) {
        if (can_ask(s, q)) {
            ask(s, q);
        }
    }
}

bool schedule_fetched_coming(const schedule *s, const schedule_sequence *q)
{
    return q->fetch && !kvern_remote_store_poll(s->options.remote, q->fetch, NULL);
}

void schedule_fetched_find(const schedule *s, const schedule_sequence *q, kvern_remote_found *found)
{
    *found = kvern_remote_found_default();
    if (q->fetch) {
        (void)kvern_remote_store_poll(s->options.remote, q->fetch, found);
    }
}

int64_t schedule_fetched_lend(schedule *s, schedule_sequence *q, size_t row,
                              const kvern_remote_found *found)
{
    return kvern_remote_store_lend(s->options.remote, q->fetch, s->state, row) == KVERN_OK
               ? found->positions
               : 0;
}

void schedule_fetched_end(const schedule *s, schedule_sequence *q)
{
    if (q->fetch) {
        kvern_remote_store_end(s->options.remote, q->fetch);
    }
    q->fetch = NULL;
}

uint64_t schedule_fetched_forget(schedule *s)
{
    uint64_t ended = 0;
    for (schedule_sequence *q = s->first; q; q = q->next) {
        ended += q->fetch != NULL;
        schedule_fetched_end(s, q);
    }
    return ended + kvern_remote_store_give_up(s->options.remote);
}

void schedule_fetched_wait(const schedule *s)
{
    for (const schedule_sequence *q = s->first; q; q = q->next) {
        if (schedule_fetched_coming(s, q)) {
            (void)kvern_remote_store_wait(s->options.remote, q->fetch, PATIENCE_MS, NULL);
            return;
        }
    }
}
