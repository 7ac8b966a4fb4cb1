// SPDX-License-Identifier: MIT
// The tokenizer on a real vocabulary: equality with a reference tokenizer (tests/golden/tokenizer)
// and round trips. KVERN_TEST_MODEL is the path of SmolLM2-135M-Instruct's GGUF file; without it
// the test is skipped.

#include "engine/chat.h"
#include "engine/tokenizer.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static gguf_file *file;
static tokenizer *t;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int load_model(void **state)
{
    (void)state;
    engine_error error = {0};
    if (gguf_open(getenv("KVERN_TEST_MODEL"), &file, &error) != KVERN_OK ||
        tokenizer_create(file, &t, &error) != KVERN_OK) {
        fprintf(stderr, "%s\n", error.text);
        return -1;
    }
    return 0;
}

static int drop_model(void **state)
{
    (void)state;
    tokenizer_destroy(t);
    gguf_close(file);
    return 0;
}

static json_t *load_golden(void)
{
    json_error_t error;
    json_t *golden =
        json_load_file(KVERN_TESTS_DIR "/golden/tokenizer/smollm2.json", JSON_ALLOW_NUL, &error);
    if (!golden)
        fail_msg("smollm2.json: %s", error.text);
    return golden;
}

static void assert_decodes_to(const token_buffer *ids, const char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        const tokenizer_text piece = tokenizer_piece_special(t, ids->ids[i]);
        assert_true(piece.size > 0 && piece.size <= bytes - at);
        assert_memory_equal(piece.data, text + at, piece.size);
        at += piece.size;
    }
    assert_int_equal(at, bytes);
}

static bool equals(const token_buffer *ids, const json_t *expected)
{
    if (ids->count != json_array_size(expected))
        return false;
    for (size_t i = 0; i < ids->count; i++)
        if (ids->ids[i] != json_integer_value(json_array_get(expected, i)))
            return false;
    return true;
}

static void equals_the_reference(void **state)
{
    (void)state;
    json_t *golden = load_golden();
    assert_true(json_array_size(golden) > 150);
    for (size_t i = 0; i < json_array_size(golden); i++) {
        const json_t *entry = json_array_get(golden, i);
        const json_t *text = json_object_get(entry, "text");
        const unsigned flags =
            json_is_true(json_object_get(entry, "special")) ? TOKENIZER_PARSE_SPECIAL : 0;
        token_buffer ids = TOKEN_BUFFER_INIT;
        engine_error error = {0};
        if (tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids,
                             &error) != KVERN_OK)
            fail_msg("case %zu: %s", i, error.text);
        if (!equals(&ids, json_object_get(entry, "ids")))
            fail_msg("case %zu (\"%s\") differs", i, json_string_value(text));
        assert_decodes_to(&ids, json_string_value(text), json_string_length(text));
        token_buffer_free(&ids);
    }
    json_decref(golden);
}

// This vocabulary lacks 21 bytes: they are refused by name, all others come back.
static void bytes_come_back_or_are_refused(void **state)
{
    (void)state;
    size_t refused = 0;
    for (unsigned pair = 0; pair < 65536; pair++) {
        const char text[3] = {(char)(pair >> 8), (char)pair, 'x'};
        token_buffer ids = TOKEN_BUFFER_INIT;
        engine_error error = {0};
        if (tokenizer_encode(t, text, 3, 0, &ids, &error) == KVERN_OK) {
            assert_decodes_to(&ids, text, 3);
        } else {
            assert_int_equal(error.status, KVERN_ERR_UNSUPPORTED);
            refused += pair >> 8 == 'x';
        }
        token_buffer_free(&ids);
    }
    assert_int_equal(refused, 21);
}

static void loads_and_encodes_in_time(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    static const char sentence[] =
        "The miller's 12 wheels, turned by the caf\u00e9's stream, ground on.\n";
    char *text = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = sentence[i % (sizeof sentence - 1)];
    tokenizer *again;
    const double start = seconds();
    assert_int_equal(tokenizer_create(file, &again, NULL), KVERN_OK);
    const double loaded = seconds();
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(again, text, BYTES, 0, &ids, NULL), KVERN_OK);
    const double encoded = seconds();
    print_message("loaded in %.0f ms, 1 MB encoded in %.0f ms\n", (loaded - start) * 1e3,
                  (encoded - loaded) * 1e3);
    // Far above what an idle machine needs: this is here to catch another order of growth.
    assert_true(loaded - start < 2.0);
    assert_true(encoded - loaded < 10.0);
    token_buffer_free(&ids);
    tokenizer_destroy(again);
    free(text);
}

static void the_template_is_recognised(void **state)
{
    (void)state;
    chat_template *chat;
    engine_error error = {0};
    if (chat_template_detect(file, &chat, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    assert_string_equal(chat_template_name(chat), "chatml");
    assert_string_equal(chat_template_default_system(chat),
                        "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
    chat_template_destroy(chat);
}

// The template that test_chat.c renders is the one in the file.
static void the_golden_template_is_the_files(void **state)
{
    (void)state;
    json_error_t error;
    json_t *golden =
        json_load_file(KVERN_TESTS_DIR "/golden/chat/conversations.json", JSON_ALLOW_NUL, &error);
    if (!golden)
        fail_msg("conversations.json: %s", error.text);
    const json_t *expected = json_object_get(json_array_get(golden, 0), "template");
    gguf_string template;
    assert_true(gguf_get_string(gguf_find(file, "tokenizer.chat_template"), &template));
    assert_int_equal(template.size, json_string_length(expected));
    assert_memory_equal(template.data, json_string_value(expected), template.size);
    json_decref(golden);
}

static void end_tokens(void **state)
{
    (void)state;
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<|im_end|>", 10)));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<|endoftext|>", 13)));
    assert_false(tokenizer_is_end(t, tokenizer_find(t, "<|im_start|>", 12)));
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_size(t), 49152);
}

int main(void)
{
    if (!getenv("KVERN_TEST_MODEL")) {
        printf("skipped: KVERN_TEST_MODEL is not set\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_reference),
        cmocka_unit_test(bytes_come_back_or_are_refused),
        cmocka_unit_test(loads_and_encodes_in_time),
        cmocka_unit_test(the_template_is_recognised),
        cmocka_unit_test(the_golden_template_is_the_files),
        cmocka_unit_test(end_tokens),
    };
    return cmocka_run_group_tests(tests, load_model, drop_model);
}
