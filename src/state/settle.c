// SPDX-License-Identifier: MIT
#include "src/state/settle.h"

#include "src/base/assert.h"
#include "src/base/size.h"

#include <stdatomic.h>
#include <string.h>

static void cancel(kvern_cache *caches, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        const kvern_planned_layer *layer = kvern_cache_planned(&caches[c]);
        const kvern_layer_rows rows = kvern_cache_layer_rows(&caches[c]);
        layer->ops->cancel_settling(layer, &rows);
    }
}

kvern_status kvern_settling_prepare(kvern_cache *caches, size_t count, const int64_t *counts,
                                    bool pending, bool shared, kvern_settling *out)
{
    KVERN_ASSERT(count == caches[0].batch->caches);
    *out = (kvern_settling){caches, count, counts, 0};
    for (size_t c = 0; c < count; c++) {
        const kvern_planned_layer *layer = kvern_cache_planned(&caches[c]);
        const kvern_layer_rows rows = kvern_cache_layer_rows(&caches[c]);
        kvern_status status =
            layer->ops->prepare_settling(layer, &rows, counts, pending, shared, &out->conversions);
        if (status) {
            cancel(caches, c);
            return status;
        }
    }
    return KVERN_OK;
}

void kvern_settling_cancel(kvern_settling *settling)
{
    cancel(settling->caches, settling->count);
}

// ---- Commit ----

// Rows do not depend on each other, in one layer or in several: each is settled by one thread.
typedef struct work {
    const kvern_settling *settling;
    _Atomic size_t next;
} work;

static void settle_row(const kvern_settling *s, size_t item)
{
    const size_t row_count = s->caches[0].batch->row_count;
    KVERN_ASSERT(s->counts[item % row_count] >= 0);
    kvern_cache *cache = &s->caches[item / row_count];
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    const kvern_layer_rows rows = kvern_cache_layer_rows(cache);
    if (s->counts[item % row_count])
        layer->ops->settle(layer, &rows, item % row_count);
}

static void settle_rows(void *arg, size_t index)
{
    work *w = arg;
    const size_t items = w->settling->count * w->settling->caches[0].batch->row_count;
    size_t item;
    (void)index;
    while ((item = atomic_fetch_add(&w->next, 1)) < items)
        settle_row(w->settling, item);
}

void kvern_settling_commit(kvern_settling *settling)
{
    const kvern_executor *executor = &kvern_cache_context(&settling->caches[0])->executor;
    const size_t tasks = kvern_min_size(executor->threads, settling->conversions);
    work w = {.settling = settling};
    if (tasks > 1)
        executor->run(executor->user, tasks, settle_rows, &w);
    else
        settle_rows(&w, 0);
}
