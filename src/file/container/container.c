// SPDX-License-Identifier: MIT
// What saving and loading know alike.
#include "src/file/container/container.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/attention/residual.h"

kvern_status kvern_container_check_machine(void)
{
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "files of rows need a little-endian machine");
}

kvern_row_set kvern_row_set_of(const kvern_composition *composition, size_t set)
{
    if (set < composition->count)
        return (kvern_row_set){&composition->layers[set], false};
    size_t l = 0;
    while (composition->layers[l].coded_set != set)
        l++;
    return (kvern_row_set){&composition->layers[l], true};
}

// What is precise of a layer is bf16, and what is coded is not.
bool kvern_row_set_is_first(const kvern_row_set *set, bool converted)
{
    if (set->layer->window.is_split)
        return !set->coded;
    return set->layer->first_pool && !converted;
}

int64_t kvern_row_set_keep(const kvern_row_set *set)
{
    if (set->coded)
        return kvern_residual_keep(set->layer);
    return set->layer->window.is_split ? set->layer->window.front : set->layer->window.keep;
}

kvern_page_span kvern_row_set_span(const kvern_row_set *set, int64_t length, int64_t held)
{
    kvern_page_span span = {.end = kvern_pages_of(length)};
    if (set->layer->geometry.whole)
        span.end = length > 0;
    if (held == 0)
        return span;
    span.kept = kvern_pages_of(kvern_row_set_keep(set));
    const size_t first = (size_t)held / KVERN_PAGE_POSITIONS;
    span.gap = first > span.kept ? first - span.kept : 0;
    return span;
}
