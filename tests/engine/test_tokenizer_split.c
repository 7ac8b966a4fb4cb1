// SPDX-License-Identifier: MIT
// Pre-tokenizers against tests/golden/tokenizer/words.json, and what the golden file cannot hold:
// faulty UTF-8.

#include "engine/tokenizer/tokenizer_internal.h"
#include "tests/support/golden_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static word_splitter *create(const char *name)
{
    word_splitter *splitter;
    engine_error error = {0};
    const pre_tokenizer *pre = pre_tokenizer_find((gguf_string){name, strlen(name)});
    assert_non_null(pre);
    if (word_splitter_create(pre->pattern, &splitter, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return splitter;
}

// Writes the sizes of the words; returns how many there are.
static size_t split(const word_splitter *splitter, const char *text, size_t bytes, size_t *sizes,
                    size_t most)
{
    word_cursor *cursor;
    tokenizer_text word;
    size_t count = 0;
    size_t at = 0;
    assert_int_equal(word_cursor_create(splitter, text, bytes, &cursor, NULL), KVERN_OK);
    for (;;) {
        assert_int_equal(word_cursor_next(cursor, &word, NULL), KVERN_OK);
        if (word.size == 0)
            break;
        assert_ptr_equal(word.data, text + at);
        assert_true(count < most);
        sizes[count++] = word.size;
        at += word.size;
    }
    assert_int_equal(at, bytes);
    word_cursor_destroy(cursor);
    return count;
}

static void check_case(const char *kind, const word_splitter *splitter, const json_t *entry)
{
    const json_t *text = json_object_get(entry, "text");
    const json_t *expected = json_object_get(entry, kind);
    size_t sizes[2048];
    assert_true(json_is_string(text) && json_is_array(expected));
    const size_t count =
        split(splitter, json_string_value(text), json_string_length(text), sizes, 2048);
    bool equal = count == json_array_size(expected);
    for (size_t i = 0; equal && i < count; i++)
        equal = (json_int_t)sizes[i] == json_integer_value(json_array_get(expected, i));
    if (!equal)
        fail_msg("%s splits \"%s\" otherwise", kind, json_string_value(text));
}

static void equals_the_reference(void **state)
{
    (void)state;
    static const char *const kinds[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    json_t *golden = golden_json_open("tokenizer/words.json", 100);
    for (size_t k = 0; k < 4; k++) {
        word_splitter *splitter = create(kinds[k]);
        for (size_t i = 0; i < json_array_size(golden); i++)
            check_case(kinds[k], splitter, json_array_get(golden, i));
        word_splitter_destroy(splitter);
    }
    json_decref(golden);
}

static void assert_words(const word_splitter *splitter, const char *text, size_t bytes,
                         const size_t *expected, size_t count)
{
    size_t sizes[16];
    assert_int_equal(split(splitter, text, bytes, sizes, 16), count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(sizes[i], expected[i]);
}

#define ASSERT_WORDS(splitter, text, ...)                                                          \
    assert_words(splitter, text, sizeof text - 1, (const size_t[]){__VA_ARGS__},                   \
                 sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

// Faulty bytes are a word; text before and after them is split as if it were alone.
static void faulty_bytes_are_words(void **state)
{
    (void)state;
    word_splitter *splitter = create("gpt-2");
    ASSERT_WORDS(splitter, "\xff", 1);
    ASSERT_WORDS(splitter, "ab\xff\xfe\xc3 cd", 2, 3, 3);
    ASSERT_WORDS(splitter,
                 "ab  \xff"
                 "1",
                 2, 2, 1, 1);
    ASSERT_WORDS(splitter, "ab \xe4\xb8", 2, 1, 2);
    ASSERT_WORDS(splitter, "\xed\xa0\x80\u00e9\xf4\x90\x80\x80", 3, 2, 4);
    ASSERT_WORDS(splitter, "\xc0\x80x\xc3\xa9", 2, 3);
    word_splitter_destroy(splitter);
}

// Longer than PCRE2's default limit of steps back.
static void a_very_long_run_of_spaces_is_one_word(void **state)
{
    (void)state;
    enum { BYTES = 12 * 1000 * 1000 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, ' ', BYTES);
    word_splitter *splitter = create("qwen2");
    size_t size = 0;
    assert_int_equal(split(splitter, text, BYTES, &size, 1), 1);
    assert_int_equal(size, BYTES);
    word_splitter_destroy(splitter);
    free(text);
}

static void names_are_found_whole(void **state)
{
    (void)state;
    assert_null(pre_tokenizer_find((gguf_string){"gpt", 3}));
    assert_null(pre_tokenizer_find((gguf_string){"gpt-22", 6}));
    assert_null(pre_tokenizer_find((gguf_string){"", 0}));
    assert_string_equal(pre_tokenizer_find((gguf_string){"smollmX", 6})->name, "smollm");
    char list[256];
    pre_tokenizer_list(list, sizeof list);
    assert_non_null(strstr(list, "smollm, "));
    assert_non_null(strstr(list, "qwen2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(faulty_bytes_are_words),
        cmocka_unit_test(a_very_long_run_of_spaces_is_one_word),
        cmocka_unit_test(names_are_found_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
