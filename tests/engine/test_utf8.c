// SPDX-License-Identifier: MIT
// UTF-8: classification against the definition, and the stream against every way to cut a text.

#include "engine/base/utf8.h"
#include "tests/support/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define REPLACEMENT "\xef\xbf\xbd"

static size_t write_character(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

// Every number that four bytes can write, surrogates and too large ones included.
static void every_code_point_is_classified(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x200000; code++) {
        char text[4];
        size_t length = 0;
        const size_t size = write_character(code, text);
        const bool valid = code < 0xd800 || (code > 0xdfff && code < 0x110000);
        const utf8_kind kind = utf8_next(text, size, &length);
        if (kind != (valid ? UTF8_VALID : UTF8_INVALID) || (valid && length != size))
            fail_msg("code point %x", code);
        for (size_t cut = 1; valid && cut < size; cut++) {
            if (utf8_next(text, cut, &length) != UTF8_INCOMPLETE || length != cut)
                fail_msg("code point %x cut after %zu bytes", code, cut);
        }
    }
}

// Two bytes are a character exactly when some code point is written so.
static void every_pair_is_classified(void **state)
{
    (void)state;
    static bool pairs[65536];
    char text[4];
    size_t length;
    for (uint32_t code = 0x80; code < 0x800; code++) {
        write_character(code, text);
        pairs[(unsigned char)text[0] << 8 | (unsigned char)text[1]] = true;
    }
    for (unsigned pair = 0; pair < 65536; pair++) {
        text[0] = (char)(pair >> 8);
        text[1] = (char)pair;
        const bool valid = utf8_next(text, 2, &length) == UTF8_VALID;
        assert_int_equal(valid, pair < 0x8000 || pairs[pair]);
        assert_true(length >= 1 && length <= 2);
    }
}

static text_buffer stream_all(const char *data, size_t size, size_t step)
{
    text_buffer out = TEXT_BUFFER_INIT;
    utf8_stream stream = {{0}, 0};
    for (size_t at = 0; at < size; at += step) {
        const size_t bytes = size - at < step ? size - at : step;
        assert_int_equal(utf8_stream_push(&stream, data + at, bytes, &out), KVERN_OK);
    }
    assert_int_equal(utf8_stream_flush(&stream, &out), KVERN_OK);
    assert_int_equal(utf8_stream_flush(&stream, &out), KVERN_OK);
    return out;
}

static void assert_stream(const char *data, size_t size, const char *expected, size_t expected_size)
{
    for (size_t step = 1; step <= size + 1; step++) {
        text_buffer out = stream_all(data, size, step);
        assert_int_equal(out.size, expected_size);
        if (expected_size > 0)
            assert_memory_equal(out.data, expected, expected_size);
        text_buffer_free(&out);
    }
}

#define ASSERT_STREAM(data, expected)                                                              \
    assert_stream(data, sizeof data - 1, expected, sizeof expected - 1)

static void valid_text_passes_unchanged(void **state)
{
    (void)state;
    ASSERT_STREAM("", "");
    ASSERT_STREAM("plain", "plain");
    ASSERT_STREAM("nul\0inside", "nul\0inside");
    ASSERT_STREAM("caf\u00e9 \u4e2d\u6587 \U0001f600 \u0645",
                  "caf\u00e9 \u4e2d\u6587 \U0001f600 \u0645");
    ASSERT_STREAM("\ufeff\uffff\U0010ffff\u07ff\u0800\U00010000",
                  "\ufeff\uffff\U0010ffff\u07ff\u0800\U00010000");
}

// The examples of the Unicode standard, section 3.9, "U+FFFD substitution of maximal subparts".
static void faulty_text_is_replaced(void **state)
{
    (void)state;
    ASSERT_STREAM("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41",
                  REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                      REPLACEMENT REPLACEMENT "A");
    ASSERT_STREAM("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41",
                  REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                      REPLACEMENT REPLACEMENT "A");
    ASSERT_STREAM("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42",
                  REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT
                  "A" REPLACEMENT REPLACEMENT "B");
    ASSERT_STREAM("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41",
                  REPLACEMENT REPLACEMENT REPLACEMENT REPLACEMENT "A");
}

static void an_unfinished_end_is_replaced_once(void **state)
{
    (void)state;
    ASSERT_STREAM("a\xf0\x9f\x98", "a" REPLACEMENT);
    ASSERT_STREAM("\xe2\x82", REPLACEMENT);
    ASSERT_STREAM("\xc3", REPLACEMENT);
    ASSERT_STREAM("\xf0\x9f\xf0\x9f", REPLACEMENT REPLACEMENT);
}

static void nothing_is_shown_before_it_is_whole(void **state)
{
    (void)state;
    static const char emoji[] = "\U0001f600";
    utf8_stream stream = {{0}, 0};
    text_buffer out = TEXT_BUFFER_INIT;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(utf8_stream_push(&stream, emoji + i, 1, &out), KVERN_OK);
        assert_int_equal(out.size, 0);
    }
    assert_int_equal(utf8_stream_push(&stream, emoji + 3, 1, &out), KVERN_OK);
    assert_int_equal(out.size, 4);
    assert_memory_equal(out.data, emoji, 4);
    text_buffer_free(&out);
}

// However a random string is cut, the output is the same and valid.
static void cuts_change_nothing(void **state)
{
    (void)state;
    static const char alphabet[] = "a\x80\xbf\xc2\xe0\xa0\xed\x9f\xf0\x90\xf4\x8f\xff\xe2";
    test_random random = test_random_seed(7);
    for (int round = 0; round < 3000; round++) {
        char text[24];
        const size_t size = 1 + test_random_below(&random, sizeof text);
        for (size_t i = 0; i < size; i++)
            text[i] = alphabet[test_random_below(&random, sizeof alphabet - 1)];
        text_buffer whole = stream_all(text, size, size);
        for (size_t at = 0, length; at < whole.size; at += length)
            assert_int_equal(utf8_next(whole.data + at, whole.size - at, &length), UTF8_VALID);
        assert_stream(text, size, whole.data, whole.size);
        text_buffer_free(&whole);
    }
}

static void sizes_beyond_the_machine_are_refused(void **state)
{
    (void)state;
    utf8_stream stream = {{0}, 0};
    text_buffer out = TEXT_BUFFER_INIT;
    assert_int_equal(utf8_stream_push(&stream, "a", SIZE_MAX / 2, &out), KVERN_ERR_OVERFLOW);
    assert_int_equal(text_buffer_append(&out, "ab", 2), KVERN_OK);
    assert_int_equal(text_buffer_reserve(&out, SIZE_MAX - 1), KVERN_ERR_OVERFLOW);
    assert_int_equal(out.size, 2);
    assert_int_equal(stream.count, 0);
    text_buffer_free(&out);
    assert_null(out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_is_classified),
        cmocka_unit_test(every_pair_is_classified),
        cmocka_unit_test(valid_text_passes_unchanged),
        cmocka_unit_test(faulty_text_is_replaced),
        cmocka_unit_test(an_unfinished_end_is_replaced_once),
        cmocka_unit_test(nothing_is_shown_before_it_is_whole),
        cmocka_unit_test(cuts_change_nothing),
        cmocka_unit_test(sizes_beyond_the_machine_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
