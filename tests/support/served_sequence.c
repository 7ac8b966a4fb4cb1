// SPDX-License-Identifier: MIT
#include "tests/support/served_sequence.h"

#include "tests/support/check.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>

static void *must_allocate(size_t count, size_t size)
{
    void *block = calloc(count, size);
    assert_non_null(block);
    return block;
}

static void fill_tokens(test_random *random, size_t limit, size_t count, int32_t *tokens)
{
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)test_random_below(random, limit);
    }
}

served_sequence served_sequence_create(const engine_fixture_options *options, size_t count,
                                       size_t limit, uint64_t seed)
{
    test_random random = test_random_seed(seed);
    engine_fixture f = engine_fixture_open(options);
    served_sequence s = {.count = count, .vocabulary = f.facts->vocabulary};
    s.tokens = must_allocate(count, sizeof *s.tokens);
    s.logits = must_allocate(count * s.vocabulary, sizeof *s.logits);
    fill_tokens(&random, limit, count, s.tokens);
    kvern_state *state = engine_fixture_state(&f, 1);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, s.tokens, &(int64_t){(int64_t)count},
                           s.logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    return s;
}

void served_sequence_free(served_sequence *sequence)
{
    free(sequence->tokens);
    free(sequence->logits);
}

served_sequence served_sequence_beginning(const served_sequence *sequence, size_t count)
{
    served_sequence beginning = *sequence;
    beginning.count = count < sequence->count ? count : sequence->count;
    return beginning;
}

static void expect_logits(const served_sequence *s, size_t from, size_t count, const float *logits,
                          const char *way)
{
    size_t bytes = count * s->vocabulary * sizeof *logits;
    if (memcmp(s->logits + from * s->vocabulary, logits, bytes) != 0) {
        fail_msg("other bits: %s, tokens %zu to %zu", way, from, from + count - 1);
    }
}

// How the rest of a row is cut: chunks of `most` tokens, or with `random` of 1 to `most`.
typedef struct cutting {
    kvern_phase phase;
    size_t most;
    test_random *random;
    const char *way;
} cutting;

static void serve_rest(const engine_fixture *f, kvern_state *state, const served_sequence *s,
                       const cutting *cut)
{
    float *logits = must_allocate(cut->most * s->vocabulary, sizeof *logits);
    size_t at = (size_t)kvern_state_length(state, 0);
    while (at < s->count) {
        size_t chunk = cut->random ? 1 + test_random_below(cut->random, cut->most) : cut->most;
        chunk = chunk < s->count - at ? chunk : s->count - at;
        engine_fixture_forward(f, state, cut->phase, s->tokens + at, &(int64_t){(int64_t)chunk},
                               logits);
        expect_logits(s, at, chunk, logits, cut->way);
        at += chunk;
    }
    free(logits);
}

static void serve_fresh(const engine_fixture *f, const served_sequence *s, const cutting *cut)
{
    kvern_state *state = engine_fixture_state(f, 1);
    serve_rest(f, state, s, cut);
    kvern_state_destroy(state);
}

void serve_window(const engine_fixture *f, const served_sequence *sequence)
{
    serve_fresh(f, sequence, &(cutting){KVERN_PHASE_WINDOW, sequence->count, NULL, "one window"});
}

void serve_decodes(const engine_fixture *f, const served_sequence *sequence)
{
    serve_fresh(f, sequence, &(cutting){KVERN_PHASE_DECODE, 1, NULL, "decodes"});
}

void serve_known(const engine_fixture *f, const served_sequence *sequence, size_t chunk)
{
    serve_fresh(f, sequence, &(cutting){KVERN_PHASE_KNOWN, chunk, NULL, "known spans"});
}

void serve_chunks(const engine_fixture *f, const served_sequence *sequence, size_t chunk)
{
    serve_fresh(f, sequence, &(cutting){KVERN_PHASE_WINDOW, chunk, NULL, "chunks"});
}

void serve_random_chunks(const engine_fixture *f, const served_sequence *sequence, size_t most,
                         uint64_t seed)
{
    test_random random = test_random_seed(seed);
    serve_fresh(f, sequence, &(cutting){KVERN_PHASE_WINDOW, most, &random, "random chunks"});
}

void serve_after_trim(const engine_fixture *f, const served_sequence *sequence)
{
    kvern_state *state = engine_fixture_state(f, 1);
    const cutting whole = {KVERN_PHASE_WINDOW, sequence->count, NULL, "one window"};
    const cutting again = {KVERN_PHASE_WINDOW, 17, NULL, "after a trim"};
    serve_rest(f, state, sequence, &whole);
    assert_ok(kvern_state_trim(state, 0, (int64_t)(sequence->count * 2 / 3)));
    serve_rest(f, state, sequence, &again);
    kvern_state_destroy(state);
}

void serve_in_batch(const engine_fixture *f, const served_sequence *sequence, uint64_t seed)
{
    enum { ROWS = 3, MOST = 20 };
    size_t vocabulary = sequence->vocabulary;
    test_random random = test_random_seed(seed);
    kvern_state *state = engine_fixture_state(f, ROWS);
    float *logits = must_allocate(ROWS * MOST * vocabulary, sizeof *logits);
    int32_t tokens[ROWS * MOST];
    for (size_t at = 0, count; at < sequence->count; at += count) {
        int64_t counts[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            counts[r] = (int64_t)test_random_below(&random, MOST + 1);
        }
        count = (size_t)counts[1];
        count = count < sequence->count - at ? count : sequence->count - at;
        counts[1] = (int64_t)count;
        fill_tokens(&random, vocabulary, ROWS * MOST, tokens);
        memcpy(tokens + counts[0], sequence->tokens + at, count * sizeof *tokens);
        engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, tokens, counts, logits);
        expect_logits(sequence, at, count, logits + (size_t)counts[0] * vocabulary,
                      "beside other rows");
    }
    free(logits);
    kvern_state_destroy(state);
}

void serve_in_rounds(const engine_fixture *f, const served_sequence *sequence, uint64_t seed)
{
    enum { MOST = 7 };
    test_random random = test_random_seed(seed);
    kvern_state *state = engine_fixture_state(f, 1);
    float *logits = must_allocate(MOST * sequence->vocabulary, sizeof *logits);
    for (size_t at = 0, right; at < sequence->count; at += right) {
        int32_t tokens[MOST];
        int64_t drafts = 1 + (int64_t)test_random_below(&random, MOST);
        right = test_random_below(&random, (size_t)drafts + 1);
        right = right < sequence->count - at ? right : sequence->count - at;
        fill_tokens(&random, sequence->vocabulary, MOST, tokens);
        memcpy(tokens, sequence->tokens + at, right * sizeof *tokens);
        assert_ok(kvern_round_begin(state, &drafts));
        engine_fixture_forward(f, state, KVERN_PHASE_WINDOW, tokens, &drafts, logits);
        expect_logits(sequence, at, right, logits, "in rounds");
        if (right == (size_t)drafts) {
            assert_ok(kvern_round_commit(state));
        } else {
            assert_ok(kvern_round_rollback(state, &(int64_t){(int64_t)right}));
        }
    }
    free(logits);
    kvern_state_destroy(state);
}
