// SPDX-License-Identifier: MIT
#include "src/store/prompt.h"

#include "src/base/fail.h"
#include "src/store/why.h"

#include <string.h>

// ---- Finding ----

kvern_status kvern_prompt_make(const kvern_store_key *key, const int32_t *tokens, size_t count,
                               kvern_prompt *out)
{
    out->tokens = tokens;
    out->count = count;
    return kvern_key_front_make(key, &out->front);
}

static void count_lookup(kvern_store_lookups *counters, const kvern_prefix *found, size_t tokens)
{
    counters->count++;
    counters->tokens_asked += tokens;
    counters->why[found->why]++;
    if (!found->positions) {
        counters->misses++;
        counters->why_missed[found->why]++;
    } else if (found->why == KVERN_STORE_ALL) {
        counters->full_hits++;
    } else {
        counters->partial_hits++;
    }
}

kvern_prefix kvern_prompt_find(kvern_prompt *prompt, kvern_trie *trie, const uint64_t *layout,
                               kvern_store_why (*why_of)(const kvern_trie_item *item),
                               kvern_store_lookups *counters)
{
    kvern_key_front *front = &prompt->front;
    if (layout)
        kvern_key_front_set_layout(front, *layout);
    // The last token is left to run. Without a layout the fields are looked up alone.
    const size_t most = front->count + (prompt->count ? prompt->count - 1 : 0);
    kvern_key key = {front, prompt->tokens, layout ? prompt->count : 0};
    const kvern_trie_place place = kvern_trie_find(trie, &key, most);
    key.tokens_count = prompt->count;
    kvern_prefix found = {.why = kvern_store_why_no_more(&key, layout, &place, most, why_of)};
    if (place.matched > front->count)
        found.common = (int64_t)(place.matched - front->count);
    if (place.best) {
        found.positions = (int64_t)(place.served - front->count);
        found.item = kvern_trie_pick(place.best, place.served);
        *(place.served == place.best->end ? &place.best->hits : &place.best->inner_hits) += 1;
    }
    count_lookup(counters, &found, prompt->count);
    return found;
}

// ---- Lending ----

kvern_status kvern_loan_check_row(const kvern_context *context, const kvern_state *state,
                                  size_t row)
{
    kvern_status status = kvern_state_check_idle(state);
    if (status)
        return status;
    if (state->composition->context != context)
        return kvern_fail(KVERN_ERR_ARGUMENT, "the state belongs to another context");
    if (row >= state->batch.row_count)
        return kvern_fail(KVERN_ERR_RANGE, "row %zu of %zu", row, state->batch.row_count);
    if (state->batch.lengths[row])
        return kvern_fail(KVERN_ERR_BUSY, "row %zu is not empty", row);
    return KVERN_OK;
}

const char *kvern_composition_signature_of(const void *composition, size_t layer)
{
    return ((const kvern_composition *)composition)->layers[layer].signature;
}

kvern_status kvern_loan_check_layers(size_t count,
                                     const char *(*signature)(const void *of, size_t layer),
                                     const void *of, const kvern_composition *wanted)
{
    if (count != wanted->count)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a prefix of %zu layers cannot become one of %zu",
                          count, wanted->count);
    for (size_t i = 0; i < count; i++) {
        const char *has = signature(of, i), *wants = wanted->layers[i].signature;
        if (has != wants && strcmp(has, wants) != 0)
            return kvern_fail(KVERN_ERR_UNSUPPORTED,
                              "layer %zu: a prefix of %s cannot become one of %s", i, has, wants);
    }
    return KVERN_OK;
}
