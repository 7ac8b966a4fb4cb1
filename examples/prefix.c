// SPDX-License-Identifier: MIT
// Prefix reuse: two questions on one document. What the first one has computed is lent to the
// second one, which runs its own tokens alone.
//
//     cc prefix.c $(pkg-config --cflags --libs kvern) -o prefix
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>

#define HEADS 2
#define DIM 8
#define DOCUMENT 1000 // tokens that both prompts begin with
#define PROMPT 1010

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

// Stands for a forward pass over the tokens that the row does not have yet.
static void run(kvern_state *state, const int32_t *tokens, int64_t count)
{
    static float k[PROMPT * HEADS * DIM], v[PROMPT * HEADS * DIM];
    const int64_t begin = kvern_state_length(state, 0), fresh = count - begin;
    kvern_tokens stored = kvern_tokens_default(kvern_cache_layer(kvern_state_cache(state, 0)));
    for (int64_t i = 0; i < fresh * HEADS * DIM; i++)
        k[i] = v[i] = (float)tokens[begin + i / (HEADS * DIM)];
    check(kvern_step_begin(state, KVERN_PHASE_WINDOW, &fresh));
    stored.k = k, stored.v = v;
    check(kvern_step_append(state, 0, &stored, NULL));
    check(kvern_step_end(state));
}

int main(void)
{
    // What else has to be the same for a prefix to be: here, which model it is.
    const kvern_store_key key = {&(kvern_store_field){"model", "tiny", 4}, 1};
    const kvern_layer layer = kvern_layer_default(HEADS, DIM);
    kvern_store_options options = kvern_store_options_default();
    kvern_context *context;
    kvern_composition *composition;
    kvern_store *store;
    int64_t reused[2];
    options.budget_bytes = UINT64_C(64) << 20;
    check(kvern_context_create(NULL, &context));
    check(kvern_composition_create(context, &layer, 1, &composition));
    check(kvern_store_create(context, &options, &store));

    for (int32_t question = 0; question < 2; question++) {
        int32_t tokens[PROMPT];
        kvern_state *state;
        kvern_store_hit hit = kvern_store_hit_default();
        for (int32_t i = 0; i < PROMPT; i++)
            tokens[i] = i < DOCUMENT ? i : 5000 + question;
        check(kvern_state_create(composition, 1, &state));
        check(kvern_store_find(store, &key, composition, tokens, PROMPT, &hit));
        if (hit.positions)
            check(kvern_store_lend(store, &hit, state, 0)); // shares the pages, copies nothing
        reused[question] = hit.positions;
        printf("question %d: %lld of %d tokens are there (%s)\n", question + 1,
               (long long)hit.positions, PROMPT, kvern_store_why_text(hit.why));
        kvern_store_release(store, &hit);
        run(state, tokens, PROMPT);
        check(kvern_store_publish(store, &key, tokens, PROMPT, state, 0, NULL));
        kvern_state_destroy(state); // the store keeps what it shares
    }
    kvern_store_destroy(store);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return reused[0] == 0 && reused[1] == DOCUMENT ? 0 : 1;
}
