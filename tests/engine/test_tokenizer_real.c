// SPDX-License-Identifier: MIT
// The tokenizer on a real vocabulary: equality with a reference tokenizer (tests/golden/tokenizer)
// and round trips. KVERN_TEST_MODEL is the path of SmolLM2-135M-Instruct's GGUF file; without it
// the test is skipped.

#include "engine/chat/chat.h"
#include "tests/support/check.h"
#include "tests/support/golden_json.h"
#include "tests/support/real_model.h"
#include "tests/support/token_check.h"

#define VARIABLE "KVERN_TEST_MODEL"

static real_tokenizer real;

static int load_model(void **state)
{
    (void)state;
    return real_tokenizer_open(VARIABLE, &real);
}

static int drop_model(void **state)
{
    (void)state;
    return real_tokenizer_close(&real);
}

static void equals_the_reference(void **state)
{
    (void)state;
    json_t *golden = golden_json_open("tokenizer/smollm2.json", 150);
    token_check_golden(real.tokens, golden, true);
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
        if (tokenizer_encode(real.tokens, text, 3, 0, &ids, &error) == KVERN_OK) {
            token_check_text(real.tokens, &ids, text, 3, 0);
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
    real_tokenizer_expect_load_in_time(&real);
    real_tokenizer_expect_encode_in_time(
        &real, "lines", "The miller's 12 wheels, turned by the caf\u00e9's stream, ground on.\n");
}

static void the_template_is_recognised(void **state)
{
    (void)state;
    chat_template *chat;
    engine_error error = {0};
    if (chat_template_detect(real.file, real.tokens, &chat, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    assert_string_equal(chat_template_name(chat), "chatml");
    assert_int_equal(chat_turn_end(chat, real.tokens), tokenizer_eos(real.tokens));
    chat_template_destroy(chat);
}

// The template that test_jinja.c renders is the one in the file.
static void the_golden_template_is_the_files(void **state)
{
    (void)state;
    char expected[1024];
    FILE *file = fopen(KVERN_TESTS_DIR "/golden/chat/templates/smollm2.jinja", "rb");
    assert_non_null(file);
    const size_t bytes = fread(expected, 1, sizeof expected, file);
    fclose(file);
    gguf_string template;
    assert_true(gguf_get_string(gguf_find(real.file, "tokenizer.chat_template"), &template));
    assert_int_equal(template.size, bytes);
    assert_memory_equal(template.data, expected, bytes);
}

static void end_tokens(void **state)
{
    (void)state;
    const tokenizer *t = real.tokens;
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<|im_end|>", 10)));
    assert_true(tokenizer_is_end(t, tokenizer_find(t, "<|endoftext|>", 13)));
    assert_false(tokenizer_is_end(t, tokenizer_find(t, "<|im_start|>", 12)));
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_size(t), 49152);
}

int main(void)
{
    if (real_model_is_missing(VARIABLE))
        return 0;
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
