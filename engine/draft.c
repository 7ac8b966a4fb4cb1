// SPDX-License-Identifier: MIT
#include "engine/draft.h"

kvern_status drafts_read(drafts *d, const int32_t *tokens, size_t count, engine_error *error)
{
    return d->kind->read(d, tokens, count, error);
}

kvern_status drafts_propose(drafts *d, const draft_request *request, int32_t *out, size_t *count,
                            engine_error *error)
{
    *count = 0;
    return d->kind->propose(d, request, out, count, error);
}

kvern_status drafts_accept(drafts *d, size_t accepted, engine_error *error)
{
    return d->kind->accept(d, accepted, error);
}

kvern_status drafts_trim(drafts *d, size_t length, engine_error *error)
{
    return d->kind->trim(d, length, error);
}

void drafts_destroy(drafts *d)
{
    if (d) {
        d->kind->destroy(d);
    }
}
