// SPDX-License-Identifier: MIT
#include "tests/support/store_bed.h"

#include "src/store/store.h"
#include "tests/support/check.h"
#include "tests/support/hybrid_state.h"

#include <stdlib.h>
#include <string.h>

store_bed *store_bed_open(const kvern_layer *layers, size_t count, uint64_t store_budget,
                          uint64_t context_budget)
{
    store_bed *b = calloc(1, sizeof *b);
    assert_non_null(b);
    ledger_init(&b->books);
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&b->books);
    options.threads = 1;
    options.budget_bytes = context_budget;
    assert_ok(kvern_context_create(&options, &b->context));
    assert_ok(kvern_composition_create(b->context, layers, count, &b->composition));
    kvern_store_options store = kvern_store_options_default();
    store.budget_bytes = store_budget;
    assert_ok(kvern_store_create(b->context, &store, &b->store));
    return b;
}

void store_bed_close(store_bed *b)
{
    kvern_store_destroy(b->store);
    kvern_composition_release(b->composition);
    kvern_context_release(b->context);
    ledger_finish(&b->books);
    free(b);
}

store_bed *store_bed_small(uint64_t store_budget)
{
    const kvern_layer layer = kvern_layer_default(1, 16);
    return store_bed_open(&layer, 1, store_budget, 0);
}

kvern_state *store_state(const store_bed *b, size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(b->composition, rows, &s));
    return s;
}

// Positions of the row's next window.
static int64_t next_window(const kvern_state *s, size_t row, const int32_t *tokens, int64_t length)
{
    const int64_t begin = kvern_state_length(s, row), most = kvern_state_max_append(s, row);
    int64_t count = 1;
    while (begin + count < length && count < most && tokens[begin + count] == tokens[begin])
        count++;
    return count;
}

void store_serve(kvern_state *s, size_t row, const int32_t *tokens, int64_t length, float *out)
{
    const size_t rows = kvern_state_rows(s);
    uint64_t *sequences = calloc(rows, sizeof *sequences);
    int64_t *counts = calloc(rows, sizeof *counts);
    assert_true(sequences && counts);
    while (kvern_state_length(s, row) < length) {
        counts[row] = next_window(s, row, tokens, length);
        sequences[row] = (uint64_t)tokens[kvern_state_length(s, row)] + 1;
        hybrid_step(s, KVERN_PHASE_WINDOW, sequences, counts, out);
        if (out)
            out += hybrid_outputs(s, counts[row]);
    }
    free(sequences);
    free(counts);
}

void store_repeat(int32_t *tokens, size_t count, int32_t token)
{
    for (size_t i = 0; i < count; i++)
        tokens[i] = token;
}

kvern_state *store_cold(const store_bed *b, const int32_t *tokens, int64_t length)
{
    kvern_state *s = store_state(b, 1);
    store_serve(s, 0, tokens, length, NULL);
    return s;
}

void store_expect_goes_on(const store_bed *b, kvern_state *s, size_t row, const int32_t *tokens,
                          int64_t length)
{
    const int64_t begin = kvern_state_length(s, row);
    const size_t count = hybrid_outputs(s, length - begin);
    float *wanted = malloc((2 * count + 1) * sizeof *wanted), *got = wanted + count;
    assert_non_null(wanted);
    assert_true(length > begin);
    kvern_state *cold = store_cold(b, tokens, begin);
    store_serve(cold, 0, tokens, length, wanted);
    store_serve(s, row, tokens, length, got);
    check_same_floats(wanted, got, count, "a row that goes on from a store");
    kvern_state_destroy(cold);
    free(wanted);
}

void store_put(const store_bed *b, const kvern_store_key *key, const int32_t *tokens, size_t count)
{
    kvern_state *s = store_cold(b, tokens, (int64_t)count);
    assert_ok(kvern_store_publish(b->store, key, tokens, count, s, 0, NULL));
    kvern_state_destroy(s);
}

kvern_store_hit store_find(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                           size_t count)
{
    kvern_store_hit hit = kvern_store_hit_default();
    assert_ok(kvern_store_find(b->store, key, b->composition, tokens, count, &hit));
    return hit;
}

int64_t store_found(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                    size_t count)
{
    kvern_store_hit hit = store_find(b, key, tokens, count);
    const int64_t positions = hit.positions;
    kvern_store_release(b->store, &hit);
    return positions;
}

static const kvern_store_entry *entry_of(const store_bed *b, const kvern_store_key *given,
                                         const int32_t *tokens, size_t count)
{
    kvern_key_front front;
    const kvern_store_layout *layout = kvern_store_find_layout(b->store, b->composition);
    assert_ok(kvern_key_front_make(given, &front));
    if (!layout)
        return NULL;
    kvern_key_front_set_layout(&front, layout->number);
    const kvern_key key = {.front = &front, .tokens = tokens, .tokens_count = count};
    const kvern_trie_place place = kvern_trie_find(&b->store->trie, &key, 0);
    const bool whole = place.matched == kvern_key_count(&key) && place.node->end == place.matched;
    return whole ? (const kvern_store_entry *)place.node->item : NULL;
}

bool store_has(const store_bed *b, const kvern_store_key *key, const int32_t *tokens, size_t count)
{
    return entry_of(b, key, tokens, count);
}

bool store_used_last(const store_bed *b, const kvern_store_key *key, const int32_t *tokens,
                     size_t count)
{
    const kvern_store_entry *entry = entry_of(b, key, tokens, count);
    return entry && entry->used == b->store->time;
}

kvern_store_stats store_stats(const store_bed *b)
{
    kvern_store_stats stats = kvern_store_stats_default();
    assert_ok(kvern_store_get_stats(b->store, &stats));
    return stats;
}

void store_expect_sound(const store_bed *b)
{
    const char *wrong = kvern_store_walk(b->store);
    if (wrong)
        fail_msg("%s", wrong);
}
