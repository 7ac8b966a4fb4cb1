// SPDX-License-Identifier: MIT
// Stop strings against a definition that looks at the whole text at once, for every way to cut it.

#include "engine/sampling/stop.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

// What is shown of `text`, and the string that ends it (NULL: none): the first end of a stop
// string, the longest of those that end there.
static size_t shown_bytes(const char *text, size_t size, const char *const *stops, size_t count,
                          const char **found)
{
    *found = NULL;
    for (size_t end = 1; end <= size; end++) {
        for (size_t i = 0; i < count; i++) {
            const size_t length = strlen(stops[i]);
            if (length <= end && memcmp(text + end - length, stops[i], length) == 0 &&
                (!*found || length > strlen(*found)))
                *found = stops[i];
        }
        if (*found)
            return end - strlen(*found);
    }
    return size;
}

// Bytes at the end of `text` that could begin a stop string.
static size_t held_bytes(const char *text, size_t size, const char *const *stops, size_t count)
{
    size_t held = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t length = 1; length < strlen(stops[i]) && length <= size; length++)
            if (length > held && memcmp(text + size - length, stops[i], length) == 0)
                held = length;
    return held;
}

static stop_matcher *create(const char *const *stops, size_t count)
{
    stop_matcher *m;
    engine_error error = {0};
    if (stop_matcher_create(stops, count, &m, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return m;
}

static void check(stop_matcher *m, const char *text, size_t size, size_t step,
                  const char *const *stops, size_t count)
{
    const char *found;
    bool stopped = false;
    text_buffer out = TEXT_BUFFER_INIT;
    const size_t shown = shown_bytes(text, size, stops, count, &found);
    for (size_t at = 0; at < size; at += step) {
        const size_t bytes = size - at < step ? size - at : step;
        assert_int_equal(stop_matcher_push(m, text + at, bytes, &out, &stopped), KVERN_OK);
        if (!stopped)
            assert_int_equal(out.size, at + bytes - held_bytes(text, at + bytes, stops, count));
    }
    assert_int_equal(stopped, found != NULL);
    assert_int_equal(stop_matcher_flush(m, &out), KVERN_OK);
    assert_int_equal(stop_matcher_flush(m, &out), KVERN_OK);
    assert_int_equal(out.size, shown);
    if (shown > 0)
        assert_memory_equal(out.data, text, shown);
    if (found)
        assert_string_equal(stop_matcher_found(m), found);
    else
        assert_null(stop_matcher_found(m));
    stop_matcher_reset(m);
    text_buffer_free(&out);
}

static void check_all_cuts(const char *text, const char *const *stops, size_t count)
{
    stop_matcher *m = create(stops, count);
    for (size_t step = 1; step <= strlen(text) + 1; step++)
        check(m, text, strlen(text), step, stops, count);
    stop_matcher_destroy(m);
}

static void without_strings_all_passes(void **state)
{
    (void)state;
    check_all_cuts("anything at all", NULL, 0);
    check_all_cuts("", NULL, 0);
}

static void a_string_ends_the_text(void **state)
{
    (void)state;
    const char *const stops[] = {"STOP"};
    check_all_cuts("before STOP after", stops, 1);
    check_all_cuts("STOP", stops, 1);
    check_all_cuts("STOSTOP", stops, 1);
    check_all_cuts("STO", stops, 1);
    check_all_cuts("S T O P STO", stops, 1);
}

static void strings_that_overlap_themselves(void **state)
{
    (void)state;
    const char *const stops[] = {"aabaaab"};
    check_all_cuts("aabaaabaaab", stops, 1);
    check_all_cuts("aabaabaaab", stops, 1);
    check_all_cuts("aaaaaaabaaa", stops, 1);
    const char *const lines[] = {"\n\n"};
    check_all_cuts("one\ntwo\n\nthree", lines, 1);
}

static void the_first_end_wins_then_the_longest(void **state)
{
    (void)state;
    const char *const stops[] = {"abcd", "bc", "abc", "c"};
    check_all_cuts("xabcd", stops, 4);
    check_all_cuts("xxbcd", stops, 4);
    check_all_cuts("xxaabab", stops, 4);
    const char *const nested[] = {"User:", "\nUser:", "<|im_end|>"};
    check_all_cuts("hello\nUser: more", nested, 3);
    check_all_cuts("hello <|im_User:", nested, 3);
}

static void random_texts(void **state)
{
    (void)state;
    test_random random = test_random_seed(11);
    for (int round = 0; round < 4000; round++) {
        char strings[3][8];
        const char *stops[3];
        char text[33];
        const size_t count = 1 + test_random_below(&random, 3);
        for (size_t i = 0; i < count; i++) {
            const size_t size = 1 + test_random_below(&random, 7);
            for (size_t j = 0; j < size; j++)
                strings[i][j] = (char)('a' + test_random_below(&random, 2));
            strings[i][size] = '\0';
            stops[i] = strings[i];
        }
        const size_t size = test_random_below(&random, 33);
        for (size_t i = 0; i < size; i++)
            text[i] = (char)('a' + test_random_below(&random, 2 + round % 2));
        stop_matcher *m = create(stops, count);
        for (size_t step = 1; step <= size; step += 1 + step / 2)
            check(m, text, size, step, stops, count);
        stop_matcher_destroy(m);
    }
}

// A NUL byte in the stream is no end of a string.
static void nul_bytes_match_nothing(void **state)
{
    (void)state;
    const char *const stops[] = {"ab"};
    stop_matcher *m = create(stops, 1);
    check(m, "a\0b\0\0", 5, 1, stops, 1);
    check(m, "\0ab\0", 4, 2, stops, 1);
    stop_matcher_destroy(m);
}

static void after_a_stop_all_is_dropped_until_reset(void **state)
{
    (void)state;
    const char *const stops[] = {"."};
    stop_matcher *m = create(stops, 1);
    text_buffer out = TEXT_BUFFER_INIT;
    bool stopped = false;
    assert_int_equal(stop_matcher_push(m, "one. two", 8, &out, &stopped), KVERN_OK);
    assert_true(stopped);
    stopped = false;
    assert_int_equal(stop_matcher_push(m, "three", 5, &out, &stopped), KVERN_OK);
    assert_true(stopped);
    assert_int_equal(out.size, 3);
    stop_matcher_reset(m);
    assert_int_equal(stop_matcher_push(m, "four", 4, &out, &stopped), KVERN_OK);
    assert_false(stopped);
    assert_int_equal(out.size, 7);
    assert_memory_equal(out.data, "onefour", 7);
    text_buffer_free(&out);
    stop_matcher_destroy(m);
}

static void an_empty_string_is_refused(void **state)
{
    (void)state;
    const char *const stops[] = {"a", ""};
    stop_matcher *m = create(stops, 1);
    stop_matcher_destroy(m);
    engine_error error = {0};
    assert_int_equal(stop_matcher_create(stops, 2, &m, &error), KVERN_ERR_ARGUMENT);
    assert_null(m);
    assert_non_null(strstr(error.text, "2"));
    stop_matcher_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_strings_all_passes),
        cmocka_unit_test(a_string_ends_the_text),
        cmocka_unit_test(strings_that_overlap_themselves),
        cmocka_unit_test(the_first_end_wins_then_the_longest),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(nul_bytes_match_nothing),
        cmocka_unit_test(after_a_stop_all_is_dropped_until_reset),
        cmocka_unit_test(an_empty_string_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
