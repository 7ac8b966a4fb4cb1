// SPDX-License-Identifier: MIT
// Drafts by a model: what was not accepted leaves no trace in it, rows draft what each does alone,
// they stay within their context, and other vocabularies are refused.

#include "engine/speculation/draft_model.h"
#include "engine/speculation/draft_pace.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/random.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"

#include <stdlib.h>
#include <string.h>

#define DRAFTS 6

// Memory that can be had at some times and not at others.
static bool closed;

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    return closed ? NULL
                  : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *user, void *block, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    free(block);
}

typedef struct fixture {
    void *data;
    engine_fixture engine;
} fixture;

static uint64_t budget; // of fixtures that are opened; 0: none

static fixture open_data(void *data, size_t bytes)
{
    engine_fixture_options options = engine_fixture_default(data, bytes);
    options.max_tokens = options.max_rows = 1;
    options.context.allocator = (kvern_allocator){.allocate = allocate, .release = release};
    options.context.budget_bytes = budget;
    return (fixture){data, engine_fixture_open(&options)};
}

// A model with a vocabulary of bytes, and of `vocabulary` tokens in all.
static fixture open_llama(size_t vocabulary)
{
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    size_t bytes;
    options.vocabulary = vocabulary;
    options.byte_tokenizer = options.separate_output = true;
    void *data = tiny_llama_build(&options, &bytes);
    return open_data(data, bytes);
}

// A model with windows of 12 positions.
static fixture open_gemma(void)
{
    const tiny_gemma3 options = tiny_gemma3_default(GGUF_TYPE_F32);
    size_t bytes;
    void *data = tiny_gemma3_build(&options, &bytes);
    return open_data(data, bytes);
}

static void close_fixture(fixture *f)
{
    engine_fixture_close(&f->engine);
    free(f->data);
}

// Drafts of a model for itself, as if it were cheap.
static drafts *create_drafts(const fixture *f, size_t context_length)
{
    const draft_model_options options = {.context_length = context_length, .cost = 0.01f};
    drafts *d;
    assert_ok(draft_model_create(f->engine.model, f->engine.composition, f->engine.model, &options,
                                 &d, NULL));
    return d;
}

static drafts *create_rows(const fixture *f, size_t rows, size_t context_length)
{
    const draft_model_options options = {
        .rows = rows, .context_length = context_length, .cost = 0.01f};
    drafts *d;
    assert_ok(draft_model_create(f->engine.model, f->engine.composition, f->engine.model, &options,
                                 &d, NULL));
    return d;
}

static sampler *create_sampler(const fixture *f)
{
    const sampler_options options = {.temperature = 2, .top_k = 50, .top_p = 1, .seed = 4};
    sampler *s;
    assert_ok(sampler_create(&options, f->engine.facts->vocabulary, &s, NULL));
    return s;
}

static size_t propose(drafts *d, const sampler *s, const int32_t *tokens, size_t count,
                      int32_t out[DRAFTS])
{
    draft_request request = {.tokens = tokens,
                             .count = count,
                             .most = DRAFTS,
                             .sampler = s,
                             .cost = DRAFT_PACE_CHECK_COST,
                             .out = out};
    assert_ok(drafts_propose(d, &request, 1, NULL));
    assert_true(request.proposed <= DRAFTS);
    return request.proposed;
}

// However many of its drafts were accepted, it goes on as one that has seen nothing but the
// sequence.
static void rejected_drafts_leave_no_trace(void **state)
{
    (void)state;
    fixture fixtures[] = {open_llama(260), open_gemma()};
    for (size_t i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        sampler *s = create_sampler(f);
        for (size_t accepted = 0; accepted <= DRAFTS; accepted++) {
            drafts *d = create_drafts(f, 0), *fresh = create_drafts(f, 0);
            int32_t tokens[64], out[DRAFTS], expected[DRAFTS];
            size_t count = 20;
            for (size_t t = 0; t < count; t++) {
                tokens[t] = 30 + (int32_t)(t * t % 41);
            }
            for (int round = 0; round < 3; round++) {
                const size_t proposed = propose(d, s, tokens, count, out);
                assert_true(proposed > 1);
                const size_t kept = accepted < proposed ? accepted : proposed;
                assert_ok(drafts_accept(d, 0, kept, NULL));
                memcpy(tokens + count, out, kept * sizeof *out);
                count += kept;
                tokens[count++] = 90 + round; // the model's own
            }
            const size_t proposed = propose(d, s, tokens, count, out);
            assert_true(proposed > 0);
            // How many is a matter of what became of the others.
            const size_t wanted = propose(fresh, s, tokens, count, expected);
            const size_t common = proposed < wanted ? proposed : wanted;
            assert_memory_equal(out, expected, common * sizeof *out);
            drafts_destroy(d);
            drafts_destroy(fresh);
        }
        sampler_destroy(s);
        close_fixture(&fixtures[i]);
    }
}

// A sequence that was cut and goes on otherwise, within windows and past them.
static void trimmed_sequences_are_read_again(void **state)
{
    (void)state;
    fixture f = open_gemma();
    sampler *s = create_sampler(&f);
    for (size_t length = 0; length < 200; length += 33) {
        drafts *d = create_drafts(&f, 0), *fresh = create_drafts(&f, 0);
        int32_t tokens[200], out[DRAFTS], expected[DRAFTS];
        for (size_t t = 0; t < 200; t++) {
            tokens[t] = 30 + (int32_t)(t % 50);
        }
        draft_request read = {.tokens = tokens, .count = 200};
        assert_ok(drafts_read(d, &read, 1, NULL));
        assert_ok(drafts_trim(d, 0, length, NULL));
        tokens[length] = 99;
        assert_int_equal(propose(d, s, tokens, length + 1, out),
                         propose(fresh, s, tokens, length + 1, expected));
        assert_memory_equal(out, expected, sizeof out[0]);
        drafts_destroy(d);
        drafts_destroy(fresh);
    }
    sampler_destroy(s);
    close_fixture(&f);
}

// What has no place in its context is left out. A token that is proposed last needs none.
static void a_full_draft_model_proposes_nothing(void **state)
{
    (void)state;
    fixture f = open_llama(260);
    const int32_t tokens[12] = {30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41};
    static const size_t most[] = {[8] = 3, [9] = 2, [10] = 1, [11] = 0};
    sampler *s = create_sampler(&f);
    drafts *d = create_drafts(&f, 10);
    for (size_t count = 8; count <= 11; count++) {
        int32_t out[DRAFTS];
        const size_t proposed = propose(d, s, tokens, count, out);
        assert_int_equal(proposed, most[count]);
        if (proposed > 0) {
            assert_ok(drafts_accept(d, 0, 0, NULL));
        }
    }
    draft_request read = {.tokens = tokens, .count = 12};
    assert_ok(drafts_read(d, &read, 1, NULL));
    drafts_destroy(d);
    sampler_destroy(s);
    close_fixture(&f);
}

// ---- Rows ----

#define ROWS 4
#define LENGTH 400

// A sequence that is drafted for in a row among others, and in a row whose neighbours are empty.
typedef struct pair {
    int32_t tokens[LENGTH];
    size_t count;
    drafts *alone;
    sampler *sampler;
    int32_t together_out[DRAFTS], alone_out[DRAFTS];
} pair;

static void grow(pair *p, size_t tokens, test_random *random)
{
    for (size_t i = 0; i < tokens; i++) {
        p->tokens[p->count++] = 30 + (int32_t)test_random_below(random, 60);
    }
}

static draft_request request_of(pair *p, size_t row, int32_t *out)
{
    return (draft_request){.row = row,
                           .tokens = p->tokens,
                           .count = p->count,
                           .most = DRAFTS,
                           .sampler = p->sampler,
                           .cost = DRAFT_PACE_CHECK_COST,
                           .out = out};
}

// What became of the proposals of some rows, and more tokens.
static void settle(drafts *together, pair *pairs, const draft_request *requests, size_t count,
                   test_random *random)
{
    for (size_t i = 0; i < count; i++) {
        pair *p = &pairs[requests[i].row];
        draft_request own = request_of(p, 1, p->alone_out);
        assert_ok(drafts_propose(p->alone, &own, 1, NULL));
        assert_int_equal(requests[i].proposed, own.proposed);
        assert_memory_equal(p->together_out, p->alone_out, own.proposed * sizeof(int32_t));
        if (own.proposed > 0) {
            const size_t accepted = test_random_below(random, own.proposed + 1);
            assert_ok(drafts_accept(together, requests[i].row, accepted, NULL));
            assert_ok(drafts_accept(p->alone, 1, accepted, NULL));
            memcpy(p->tokens + p->count, p->alone_out, accepted * sizeof(int32_t));
            p->count += accepted;
        }
        grow(p, 1 + (test_random_below(random, 5) ? 0 : test_random_below(random, 30)), random);
    }
}

// Some of the rows, in any order, ask at a time; now and then their sequences are read ahead, or
// end. Each is proposed what it is when it is the only one.
static void rows_draft_what_each_does_alone(void **state)
{
    (void)state;
    static const size_t lengths[ROWS] = {1, 150, 20, 299};
    fixture fixtures[] = {open_llama(260), open_gemma()};
    for (size_t i = 0; i < 2; i++) {
        test_random random = test_random_seed(check_seed() + i);
        static pair pairs[ROWS];
        drafts *together = create_rows(&fixtures[i], ROWS, 300);
        size_t proposed = 0;
        for (size_t r = 0; r < ROWS; r++) {
            pairs[r] = (pair){.alone = create_rows(&fixtures[i], 2, 300),
                              .sampler = create_sampler(&fixtures[i])};
            grow(&pairs[r], lengths[r], &random);
        }
        for (int round = 0; round < 60; round++) {
            draft_request requests[ROWS];
            size_t count = 0;
            const size_t first = test_random_below(&random, ROWS);
            for (size_t j = 0; j < ROWS; j++) {
                const size_t r = (first + j) % ROWS;
                if (pairs[r].count + 40 > LENGTH) {
                    drafts_end(together, r);
                    drafts_destroy(pairs[r].alone);
                    pairs[r].alone = create_rows(&fixtures[i], 2, 300);
                    pairs[r].count = 0;
                    grow(&pairs[r], 1 + test_random_below(&random, 40), &random);
                } else if (test_random_below(&random, 8) == 0) {
                    draft_request read = {
                        .row = r, .tokens = pairs[r].tokens, .count = pairs[r].count - 1};
                    assert_ok(read.count > 0 ? drafts_read(together, &read, 1, NULL) : KVERN_OK);
                }
                if (test_random_below(&random, 3) > 0) {
                    requests[count++] = request_of(&pairs[r], r, pairs[r].together_out);
                }
            }
            assert_ok(drafts_propose(together, requests, count, NULL));
            for (size_t j = 0; j < count; j++) {
                proposed += requests[j].proposed;
            }
            settle(together, pairs, requests, count, &random);
        }
        assert_true(proposed > 100);
        for (size_t r = 0; r < ROWS; r++) {
            drafts_destroy(pairs[r].alone);
            sampler_destroy(pairs[r].sampler);
        }
        drafts_destroy(together);
        close_fixture(&fixtures[i]);
    }
}

static kvern_memory memory_of(const fixture *f)
{
    kvern_memory memory = {.size = sizeof memory};
    assert_ok(kvern_context_memory(f->engine.context, &memory));
    return memory;
}

// A sequence that begins as another one does takes no pages for what they share, and is drafted for
// as if it had read all of it. One that a window has passed is read again.
static void a_common_beginning_is_taken_over(void **state)
{
    (void)state;
    fixture fixtures[] = {open_llama(260), open_gemma()};
    for (size_t i = 0; i < 2; i++) {
        const fixture *f = &fixtures[i];
        test_random random = test_random_seed(9);
        static pair p, other;
        p = (pair){.sampler = create_sampler(f), .alone = create_rows(f, 2, 0)};
        drafts *d = create_rows(f, 3, 0);
        grow(&p, 200, &random);
        other = p;
        other.count = 128;
        draft_request read = {.row = 2, .tokens = p.tokens, .count = 200};
        assert_ok(drafts_read(d, &read, 1, NULL));
        const uint64_t before = memory_of(f).page_bytes;
        const draft_sequence sequence = {.length = 256, .room = 128, .like = 2, .shared = 128};
        assert_ok(drafts_begin(d, 0, &sequence, NULL));
        if (i == 0) { // two whole pages, and nothing behind them
            assert_int_equal(memory_of(f).page_bytes, before);
        }
        grow(&other, 5, &random);
        grow(&p, 1, &random);
        draft_request both[] = {request_of(&other, 0, other.together_out),
                                request_of(&p, 2, p.together_out)};
        assert_ok(drafts_propose(d, both, 2, NULL));
        const size_t proposed[] = {both[0].proposed, both[1].proposed};
        assert_true(proposed[0] > 0 && proposed[1] > 0);
        draft_request own = request_of(&other, 0, other.alone_out);
        assert_ok(drafts_propose(p.alone, &own, 1, NULL));
        assert_int_equal(own.proposed, proposed[0]);
        assert_memory_equal(other.together_out, other.alone_out, proposed[0] * sizeof(int32_t));
        own = request_of(&p, 1, p.alone_out);
        assert_ok(drafts_propose(p.alone, &own, 1, NULL));
        assert_memory_equal(p.together_out, p.alone_out, proposed[1] * sizeof(int32_t));
        drafts_destroy(d);
        drafts_destroy(p.alone);
        sampler_destroy(p.sampler);
        close_fixture(&fixtures[i]);
    }
}

// A row comes to its end in chunks of all sizes, within a budget. False: it could not begin.
// *missed: proposals that lacked memory.
static bool fill_row(bool gemma, uint64_t budget_bytes, size_t *missed)
{
    budget = budget_bytes;
    fixture f = gemma ? open_gemma() : open_llama(260);
    budget = 0;
    static pair p;
    p = (pair){.sampler = create_sampler(&f)};
    test_random random = test_random_seed(8);
    const draft_sequence sequence = {.length = 400, .room = 400, .like = DRAFT_NO_ROW};
    drafts *d = create_rows(&f, 2, 0);
    const bool begun = drafts_begin(d, 1, &sequence, NULL) == KVERN_OK;
    *missed = 0;
    while (begun && p.count + 140 < LENGTH) {
        // The second time, a chunk that lies in as many pages as can be.
        grow(&p, p.count == 0 ? 139 : 128, &random);
        draft_request request = request_of(&p, 1, p.together_out);
        request.most = 1; // which always pays, whatever became of the others
        assert_ok(drafts_propose(d, &request, 1, NULL));
        *missed += request.proposed == 0;
        if (request.proposed > 0) {
            assert_ok(drafts_accept(d, 1, 1, NULL));
            p.tokens[p.count++] = p.together_out[0];
        }
    }
    drafts_destroy(d);
    sampler_destroy(p.sampler);
    close_fixture(&f);
    return begun;
}

// What a row may take is reserved when it begins: with the least budget that lets it begin, it
// never lacks memory.
static void a_row_that_begins_has_its_room(void **state)
{
    (void)state;
    for (int gemma = 0; gemma < 2; gemma++) {
        uint64_t low = 50000, high = 3000000;
        size_t missed;
        assert_true(fill_row(gemma, high, &missed) && missed == 0);
        while (high - low > 1) {
            const uint64_t middle = low + (high - low) / 2;
            *(fill_row(gemma, middle, &missed) ? &high : &low) = middle;
        }
        assert_true(fill_row(gemma, high, &missed));
        assert_int_equal(missed, 0);
    }
}

// Rows beside row 1 take in `count` tokens, or as many of them as there are pages for.
static void read_others(drafts *d, const pair *p, size_t count)
{
    for (size_t row = 0; row < ROWS; row++) {
        draft_request read = {.row = row, .tokens = p->tokens, .count = count};
        if (row != 1) {
            assert_ok(drafts_read(d, &read, 1, NULL));
        }
    }
}

// Whenever memory is refused, rows propose less and fail nothing; once it is there again they
// propose what they would have.
static void a_lack_of_memory_makes_proposals_shorter(void **state)
{
    (void)state;
    fixture f = open_llama(260);
    size_t shorter = 0, none = 0;
    for (size_t length = 1; length < 140; length += 3) {
        test_random random = test_random_seed(length);
        static pair p;
        p = (pair){.sampler = create_sampler(&f), .alone = create_rows(&f, 2, 0)};
        drafts *d = create_rows(&f, ROWS, 0);
        grow(&p, length, &random);
        draft_request read = {.row = 1, .tokens = p.tokens, .count = length};
        assert_ok(drafts_read(d, &read, 1, NULL));
        grow(&p, 1, &random);
        draft_request less = request_of(&p, 1, p.together_out);
        draft_request full = request_of(&p, 1, p.alone_out);
        assert_ok(drafts_propose(p.alone, &full, 1, NULL));
        read_others(d, &p, 1);
        closed = true;
        for (size_t tokens = 64; tokens <= LENGTH; tokens += 64) {
            read_others(d, &p, tokens);
        }
        assert_ok(drafts_propose(d, &less, 1, NULL));
        closed = false;
        assert_true(less.proposed <= full.proposed);
        assert_memory_equal(p.together_out, p.alone_out, less.proposed * sizeof(int32_t));
        shorter += less.proposed < full.proposed;
        none += less.proposed == 0;
        if (less.proposed > 0) {
            drafts_end(d, 1); // in the middle of a proposal
        }
        assert_ok(drafts_propose(d, &less, 1, NULL));
        assert_int_equal(less.proposed, full.proposed);
        assert_memory_equal(p.together_out, p.alone_out, full.proposed * sizeof(int32_t));
        drafts_destroy(d);
        drafts_destroy(p.alone);
        sampler_destroy(p.sampler);
    }
    assert_true(shorter > none && none > 0);
    close_fixture(&f);
}

static void expect_refusal(const fixture *draft, const fixture *model, const char *reason)
{
    drafts *d;
    engine_error error;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  draft_model_create(draft->engine.model, draft->engine.composition,
                                     model->engine.model, NULL, &d, &error));
    assert_null(d);
    if (!strstr(error.text, reason)) {
        fail_msg("%s", error.text);
    }
}

static void other_vocabularies_are_refused(void **state)
{
    (void)state;
    fixture llama = open_llama(260), gemma = open_gemma();
    fixture same_size = open_llama(gemma.engine.facts->vocabulary);
    expect_refusal(&gemma, &llama, "token 0 of the draft model is");
    expect_refusal(&same_size, &gemma, "token 0 of the draft model is");
    close_fixture(&same_size);
    close_fixture(&gemma);
    close_fixture(&llama);
}

// Vocabularies that are padded to other sizes: what one of them lacks is read as another token, and
// never drafted.
static void vocabularies_of_other_sizes(void **state)
{
    (void)state;
    fixture fixtures[] = {open_llama(260), open_llama(400)};
    for (size_t i = 0; i < 2; i++) {
        const fixture *draft = &fixtures[i], *model = &fixtures[1 - i];
        const draft_model_options options = {.cost = 0.01f};
        sampler *s = create_sampler(model);
        drafts *d;
        assert_ok(draft_model_create(draft->engine.model, draft->engine.composition,
                                     model->engine.model, &options, &d, NULL));
        int32_t tokens[64], out[DRAFTS];
        size_t proposed = 0;
        for (size_t count = 1; count <= 60; count += 3) {
            for (size_t t = 0; t < count; t++) {
                tokens[t] = (int32_t)(t * 37 % model->engine.facts->vocabulary);
            }
            const size_t length = propose(d, s, tokens, count, out);
            for (size_t t = 0; t < length; t++) {
                assert_in_range(out[t], 0, 259);
            }
            proposed += length;
            if (length > 0) {
                assert_ok(drafts_accept(d, 0, 0, NULL));
            }
        }
        assert_true(proposed > 20);
        drafts_destroy(d);
        sampler_destroy(s);
    }
    close_fixture(&fixtures[0]);
    close_fixture(&fixtures[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejected_drafts_leave_no_trace),
        cmocka_unit_test(trimmed_sequences_are_read_again),
        cmocka_unit_test(a_full_draft_model_proposes_nothing),
        cmocka_unit_test(rows_draft_what_each_does_alone),
        cmocka_unit_test(a_common_beginning_is_taken_over),
        cmocka_unit_test(a_row_that_begins_has_its_room),
        cmocka_unit_test(a_lack_of_memory_makes_proposals_shorter),
        cmocka_unit_test(other_vocabularies_are_refused),
        cmocka_unit_test(vocabularies_of_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
