// SPDX-License-Identifier: MIT
// Drafts from the sequence itself: the index against a search by hand, what is proposed, and that
// drafts which keep failing become few.

#include "engine/speculation/draft_ngram.h"
#include "engine/speculation/draft_pace.h"
#include "engine/speculation/ngram_index.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORT 30 // so few places that a search looks at all of them

static ngram_index *create_index(size_t capacity)
{
    ngram_index *index;
    assert_ok(ngram_index_create(capacity, &index, NULL));
    return index;
}

static size_t same_before(const int32_t *tokens, size_t at, size_t end)
{
    size_t same = 0;
    while (same < NGRAM_MOST && same <= at && tokens[at - same] == tokens[end - same]) {
        same++;
    }
    return same;
}

// The longest match, and of several the newest.
static size_t find_by_hand(const int32_t *tokens, size_t count, size_t *next)
{
    size_t best = 0;
    for (size_t at = count - 1; at-- > 0;) {
        const size_t same = same_before(tokens, at, count - 1);
        if (same >= NGRAM_LEAST && same > best) {
            best = same;
            *next = at + 1;
        }
    }
    return best;
}

// Random sequences of few kinds of tokens that grow and are trimmed and go on otherwise.
static void the_index_finds_what_a_search_finds(void **state)
{
    (void)state;
    test_random random = test_random_seed(check_seed());
    size_t found = 0;
    for (int sequence = 0; sequence < 300; sequence++) {
        const uint64_t kinds = 1 + test_random_below(&random, 6);
        ngram_index *index = create_index(SHORT);
        int32_t tokens[SHORT];
        for (size_t count = 1, step = 0; step < 60; step++) {
            if (count == SHORT || test_random_below(&random, 8) == 0) {
                count = (count + 1) / 2 + test_random_below(&random, count / 2 + 1);
                count = count < SHORT ? count : SHORT - 1;
                ngram_index_trim(index, test_random_below(&random, count));
            }
            tokens[count - 1] = (int32_t)(test_random_below(&random, kinds) * 1000003);
            size_t next = 0, expected_next = 0;
            const size_t expected = find_by_hand(tokens, count, &expected_next);
            assert_int_equal(ngram_index_find(index, tokens, count, &next), expected);
            assert_int_equal(next, expected_next);
            found += expected > 0;
            count++;
        }
        ngram_index_destroy(index);
    }
    assert_true(found > 1000);
}

// A match is bounded in work however often its pair occurs: a search of all places would take
// minutes.
static void long_sequences_are_fast(void **state)
{
    (void)state;
    const size_t count = 256 * 1024;
    int32_t *tokens = calloc(count, sizeof *tokens);
    assert_non_null(tokens);
    test_random random = test_random_seed(check_seed());
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)test_random_below(&random, 2); // each pair is everywhere
    }
    ngram_index *index = create_index(count);
    const clock_t start = clock();
    for (size_t i = 1; i <= count; i++) {
        size_t next = 0;
        const size_t match = ngram_index_find(index, tokens, i, &next);
        assert_true(match == 0 || same_before(tokens, next - 1, i - 1) == match);
    }
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 10);
    ngram_index_destroy(index);
    free(tokens);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    ngram_index *index;
    drafts *d;
    assert_status(KVERN_ERR_RANGE, ngram_index_create((size_t)INT32_MAX + 1, &index, NULL));
    assert_null(index);
    assert_status(KVERN_ERR_RANGE, draft_ngram_create(1, (size_t)INT32_MAX + 1, &d, NULL));
    assert_null(d);

    // What is beyond the capacity is left out, and no harm done.
    index = create_index(4);
    const int32_t tokens[] = {5, 6, 7, 5, 6, 7, 5, 6};
    size_t next;
    assert_int_equal(ngram_index_find(index, tokens, 8, &next), 2);
    assert_int_equal(next, 2);
    ngram_index_destroy(index);
}

// ---- Drafts ----

static drafts *create_drafts(void)
{
    drafts *d;
    assert_ok(draft_ngram_create(1, 4096, &d, NULL));
    return d;
}

// A proposal behind a text in which every character is a token.
static size_t propose(drafts *d, const char *text, size_t most, char *out)
{
    int32_t tokens[256], proposed[64];
    const size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        tokens[i] = text[i];
    }
    draft_request request = {.tokens = tokens,
                             .count = length,
                             .most = most,
                             .cost = DRAFT_PACE_CHECK_COST,
                             .out = proposed};
    assert_ok(drafts_propose(d, &request, 1, NULL));
    const size_t count = request.proposed;
    assert_true(count <= most);
    for (size_t i = 0; i < count; i++) {
        out[i] = (char)proposed[i];
        assert_true(out[i]);
    }
    out[count] = '\0';
    return count;
}

static void what_followed_is_proposed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *start; // how the proposal starts; "" for none
    } cases[] = {
        {"The quick brown fox. The quick ", "brown"},
        {"a-long-match-of-1 and a-long-match-of-2, then a-long-match-of-", "2"}, // the newest
        {"xxabcd1 yyabcd2 xxabc", "d1"},                                         // the longest
        {"no pair twice", ""},
        {"z", ""},
        {"0123401234012340123", "4012340"}, // goes round in circles
        {"aaaaaaaaaaaaaaaaaaaa", "aaaa"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        drafts *d = create_drafts();
        char out[65];
        propose(d, cases[i].text, 7, out);
        const size_t length = strlen(cases[i].start);
        if (length == 0) {
            assert_string_equal(out, "");
        }
        // As many as pay, and these.
        assert_true(out[0] || length == 0);
        assert_int_equal(strncmp(out, cases[i].start, strlen(out) < length ? strlen(out) : length),
                         0);
        drafts_destroy(d);
    }
}

static void a_trimmed_sequence_is_forgotten(void **state)
{
    (void)state;
    drafts *d = create_drafts();
    char out[65];
    assert_true(propose(d, "The quick brown fox. The quick ", 7, out) > 0);
    assert_ok(drafts_accept(d, 0, 0, NULL));
    assert_ok(drafts_trim(d, 0, 4, NULL));
    assert_int_equal(propose(d, "The slow grey cat, quick ", 7, out), 0);
    assert_ok(drafts_trim(d, 0, 0, NULL));
    assert_true(propose(d, "In a hat. In a ", 7, out) > 0);
    assert_int_equal(out[0], 'h');
    assert_ok(drafts_accept(d, 0, 1, NULL));
    drafts_destroy(d);
}

// Chances to draft come all the time, and what is proposed is always wrong: hardly anything is
// proposed any more. When it becomes right, it is soon proposed in full again.
static void failing_drafts_become_few(void **state)
{
    (void)state;
    drafts *d = create_drafts();
    char out[65];
    const char *text = "abcdefgh abcdefgh abcd";
    size_t drafted = 0;
    for (int i = 0; i < 1000; i++) {
        const size_t count = propose(d, text, 8, out);
        drafted += count;
        if (count > 0) {
            assert_ok(drafts_accept(d, 0, 0, NULL));
        }
    }
    assert_in_range(drafted, 10, 80);
    size_t last = 0, chances = 0;
    for (; last < 8 && chances < 1000; chances++) {
        last = propose(d, text, 8, out);
        if (last > 0) {
            assert_ok(drafts_accept(d, 0, last, NULL));
        }
    }
    assert_in_range(chances, 1, 100);
    drafts_destroy(d);
}

// As many as pay: none below the cost, all when all are right, and never fewer for a higher rate.
static void the_pace_follows_the_rate(void **state)
{
    (void)state;
    draft_pace pace = {.cost = 0.2f};
    size_t last = 0;
    for (int percent = 0; percent <= 100; percent += 5) {
        pace.rate[0] = (float)percent / 100;
        pace.passed[0] = 0;
        const size_t count = draft_pace_choose(&pace, 0, 16);
        assert_true(count >= last && count <= 16);
        assert_true(percent > 20 || count == 0);
        assert_true(percent < 30 || count > 0);
        last = count;
    }
    assert_int_equal(last, 16);
    assert_int_equal(draft_pace_choose(&pace, 0, 0), 0);
    assert_int_equal(draft_pace_choose(&pace, 0, 3), 3);

    // Kinds do not meet; right ones raise the rate, and only the first wrong one lowers it.
    pace.rate[0] = pace.rate[1] = 0.5f;
    draft_pace_learn(&pace, 0, 4, 4);
    assert_true(pace.rate[0] > 0.5f && pace.rate[0] < 1);
    pace.rate[0] = 0.5f;
    draft_pace_learn(&pace, 0, 1, 0);
    const float once = pace.rate[0];
    pace.rate[0] = 0.5f;
    draft_pace_learn(&pace, 0, 8, 0);
    assert_true(pace.rate[0] == once && once < 0.5f);
    assert_true(pace.rate[1] == 0.5f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_finds_what_a_search_finds),
        cmocka_unit_test(long_sequences_are_fast),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(what_followed_is_proposed),
        cmocka_unit_test(a_trimmed_sequence_is_forgotten),
        cmocka_unit_test(failing_drafts_become_few),
        cmocka_unit_test(the_pace_follows_the_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
