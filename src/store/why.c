// SPDX-License-Identifier: MIT
#include "src/store/why.h"

#include "src/base/size.h"

kvern_store_why kvern_store_why_floor(const kvern_row_source *source,
                                      const kvern_planned_layer *layer, int64_t floor)
{
    if (!layer)
        return KVERN_STORE_TOKENS;
    if (layer->geometry.whole)
        return KVERN_STORE_CHECKPOINT;
    const kvern_row *row = kvern_row_source_set(source, layer->index);
    if (row->floor == floor)
        return KVERN_STORE_FLOOR;
    if (row->ranges && row->ranges->list[row->range_count - 1].end == floor)
        return KVERN_STORE_BOTH_WAYS;
    return layer->coded_set ? KVERN_STORE_PRECISE : KVERN_STORE_WINDOW;
}

kvern_store_why kvern_store_why_no_more(const kvern_key *key, bool layout,
                                        const kvern_trie_place *place, size_t most,
                                        kvern_store_why (*why_of)(const kvern_trie_item *item))
{
    const kvern_key_front *front = key->front;
    if (key->tokens_count < 2)
        return KVERN_STORE_SHORT_PROMPT;
    if (place->matched < front->fields)
        return KVERN_STORE_NO_KEY;
    if (!layout || place->matched < front->count)
        return KVERN_STORE_SIGNATURE;
    const size_t common = kvern_min_size(place->matched, most);
    if (common == front->count)
        return KVERN_STORE_TOKENS;
    if (place->best && place->served == common)
        return common == most ? KVERN_STORE_ALL : KVERN_STORE_TOKENS;
    if (place->node->least == KVERN_NO_FLOOR) // of an entry that is not in yet
        return KVERN_STORE_TOKENS;
    return why_of(kvern_trie_pick(place->node, place->node->least));
}
