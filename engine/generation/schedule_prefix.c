// SPDX-License-Identifier: MIT
// Prompts that begin alike. A sequence that begins as one does that runs takes the beginning over
// from its row: pages are shared, and nothing of it is computed again. What is taken over is what
// it would have been: only as much as the row could be trimmed to (kvern_state_min_reusable).

#include "engine/generation/schedule_internal.h"

bool schedule_prefix_possible(const kvern_composition *composition)
{
    for (size_t l = 0; l < kvern_composition_layers(composition); l++) {
        // Converted after its first append: the beginning depends on how long that was.
        if (kvern_composition_layer(composition, l)->start == 0) {
            return false;
        }
    }
    return true;
}

// Tokens that two prompts begin with alike, the last one of q left out: its logits are needed.
static size_t common_tokens(const schedule_sequence *q, const schedule_sequence *other)
{
    const size_t most = q->count - 1 < other->count ? q->count - 1 : other->count;
    size_t count = 0;
    while (count < most && q->tokens[count] == other->tokens[count]) {
        count++;
    }
    return count;
}

bool schedule_prefix_coming(const schedule *s, const schedule_sequence *q)
{
    for (size_t r = 0; s->shares && r < kvern_state_rows(s->state); r++) {
        const schedule_sequence *other = s->rows[r];
        if (!other || other->forwarded == other->count) {
            continue;
        }
        const size_t common = common_tokens(q, other);
        if (common >= SCHEDULE_LEAST_SHARED && common > other->forwarded) {
            return true;
        }
    }
    return false;
}

size_t schedule_prefix_find(const schedule *s, const schedule_sequence *q, size_t *count)
{
    size_t best = 0;
    *count = 0;
    for (size_t r = 0; s->shares && r < kvern_state_rows(s->state); r++) {
        const schedule_sequence *other = s->rows[r];
        if (!other) {
            continue;
        }
        const size_t common = common_tokens(q, other);
        if (common >= SCHEDULE_LEAST_SHARED && common > *count &&
            (int64_t)common >= kvern_state_min_reusable(s->state, r)) {
            best = r;
            *count = common;
        }
    }
    return best;
}

bool schedule_prefix_take(schedule *s, schedule_sequence *q, size_t row, size_t count)
{
    kvern_state *copy;
    if (kvern_state_extract(s->state, row, &copy) != KVERN_OK) {
        return false;
    }
    const int64_t surplus = kvern_state_length(copy, 0) - (int64_t)count;
    kvern_status status = kvern_state_trim(copy, 0, surplus);
    if (status == KVERN_OK) {
        status = kvern_state_join(s->state, &copy, 1);
    }
    kvern_state_destroy(copy);
    if (status == KVERN_OK) {
        q->forwarded = q->result.shared_tokens = count;
        q->like = s->rows[row]->draft_row;
        q->source = row;
    }
    return status == KVERN_OK;
}
