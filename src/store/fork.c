// SPDX-License-Identifier: MIT
#include "src/store/fork.h"

#include "src/base/fail.h"

static int64_t floor_of(const kvern_composition *composition, const kvern_row_source *source)
{
    const kvern_planned_layer *layer;
    return kvern_row_source_floor(composition, source, &layer);
}

int64_t kvern_fork_floor(const kvern_composition *composition, const kvern_checkpoint *checkpoint)
{
    const kvern_row_source kept = {.kept = checkpoint->sets};
    return floor_of(composition, &kept);
}

kvern_status kvern_fork_check(kvern_fork_source *source)
{
    const kvern_row_source row = {.batch = &source->state->batch, .row = source->row};
    source->floor = floor_of(source->state->composition, &row);
    if (source->floor <= (int64_t)source->count)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED,
                      "row %zu has %zu positions, and none of them may be reused", source->row,
                      source->count);
}

// Whether a checkpoint serves what the row does not, and may itself be reused.
static bool is_of_use(const kvern_fork_source *source, const kvern_checkpoint *checkpoint)
{
    const int64_t floor = kvern_fork_floor(source->state->composition, checkpoint);
    return checkpoint->position < (int64_t)source->count && floor < source->floor &&
           floor <= checkpoint->position;
}

const kvern_checkpoint *kvern_fork_next(const kvern_fork_source *source,
                                        const kvern_checkpoint *checkpoint)
{
    while (checkpoint && !is_of_use(source, checkpoint))
        checkpoint = checkpoint->below;
    return checkpoint;
}

const kvern_checkpoint *kvern_fork_first(const kvern_fork_source *source)
{
    return kvern_fork_next(source, source->state->batch.checkpoints[source->row]);
}

static kvern_status copy_checkpoint(const kvern_checkpoint *from, kvern_state *to)
{
    kvern_checkpoint *made;
    kvern_status status = kvern_checkpoint_make(to, from->position, &made);
    if (status)
        return status;
    for (size_t s = 0; s < to->batch.sets; s++)
        kvern_kept_row_share(&from->sets[s], &made->sets[s]);
    kvern_checkpoint_link(to, 0, made);
    return KVERN_OK;
}

kvern_status kvern_fork_make(const kvern_fork_source *source, kvern_state **out)
{
    kvern_status status = kvern_state_extract(source->state, source->row, out);
    const kvern_checkpoint *c = status ? NULL : kvern_fork_first(source);
    for (; c && !status; c = kvern_fork_next(source, c->below))
        status = copy_checkpoint(c, *out);
    return status;
}
