// SPDX-License-Identifier: MIT
#include "engine/speculation/draft.h"

kvern_status drafts_begin(drafts *d, size_t row, const draft_sequence *sequence,
                          engine_error *error)
{
    return d->kind->begin(d, row, sequence, error);
}

void drafts_end(drafts *d, size_t row)
{
    d->kind->end(d, row);
}

kvern_status drafts_read(drafts *d, draft_request *requests, size_t count, engine_error *error)
{
    return d->kind->read(d, requests, count, error);
}

static void empty(draft_request *requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        requests[i].proposed = 0;
    }
}

kvern_status drafts_propose(drafts *d, draft_request *requests, size_t count, engine_error *error)
{
    empty(requests, count);
    const kvern_status status = d->kind->propose(d, requests, count, error);
    if (status != KVERN_OK) {
        empty(requests, count);
    }
    return status;
}

kvern_status drafts_accept(drafts *d, size_t row, size_t accepted, engine_error *error)
{
    return d->kind->accept(d, row, accepted, error);
}

kvern_status drafts_trim(drafts *d, size_t row, size_t length, engine_error *error)
{
    return d->kind->trim(d, row, length, error);
}

uint64_t drafts_row_bytes(const drafts *d, size_t length)
{
    return d->kind->row_bytes(d, length);
}

void drafts_destroy(drafts *d)
{
    if (d) {
        d->kind->destroy(d);
    }
}

size_t drafts_trial(const kvern_state *state, size_t row)
{
    const int64_t limit = kvern_state_round_limit(state, row);
    const int64_t before = kvern_state_max_append(state, row) - 1;
    return (size_t)(limit < before ? limit : before);
}
