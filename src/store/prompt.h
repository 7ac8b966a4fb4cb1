// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_PROMPT_H
#define KVERN_STORE_PROMPT_H

// Looking prompts up and lending what was found: what stores in memory and on disk have in common.

#include "src/state/kept_row.h"
#include "src/store/trie.h"

// A prompt under its key, which is without a layout until it is looked up.
typedef struct kvern_prompt {
    kvern_key_front front;
    const int32_t *tokens;
    size_t count;
} kvern_prompt;

// The longest prefix that is there.
typedef struct kvern_prefix {
    int64_t positions;     // 0: nothing was found
    int64_t common;        // tokens in common with any item of the key
    kvern_trie_item *item; // that serves it; NULL: nothing was found
    kvern_store_why why;   // why `positions` are no more
} kvern_prefix;

// `tokens` is borrowed for as long as the prompt. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (the
// key's).
KVERN_CHECK kvern_status kvern_prompt_make(const kvern_store_key *key, const int32_t *tokens,
                                           size_t count, kvern_prompt *out);

// Looks it up, once, and counts that. Under the trie's lock. `layout`: the number of its layers'
// signatures; NULL: nothing has them. `why_of` says why an item serves nothing below its floor.
kvern_prefix kvern_prompt_find(kvern_prompt *prompt, kvern_trie *trie, const uint64_t *layout,
                               kvern_store_why (*why_of)(const kvern_trie_item *item),
                               kvern_store_lookups *counters);

// Whether a row can be lent to. Errors: KVERN_ERR_ARGUMENT (another context), KVERN_ERR_RANGE
// (row), KVERN_ERR_BUSY (it is not empty; a step or a round is open).
KVERN_CHECK kvern_status kvern_loan_check_row(const kvern_context *context,
                                              const kvern_state *state, size_t row);

// Whether what is kept of `count` layers, with signatures that `signature` knows, can become rows
// of a composition. Errors: KVERN_ERR_UNSUPPORTED: the detail names the layer and both signatures.
KVERN_CHECK kvern_status kvern_loan_check_layers(size_t count,
                                                 const char *(*signature)(const void *of,
                                                                          size_t layer),
                                                 const void *of, const kvern_composition *wanted);

// The same of a composition.
const char *kvern_composition_signature_of(const void *composition, size_t layer);

static inline void kvern_loan_count(kvern_store_lookups *counters, int64_t positions)
{
    counters->loans++;
    counters->tokens_lent += (uint64_t)positions;
}

#endif
