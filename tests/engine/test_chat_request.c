// SPDX-License-Identifier: MIT
// Requests as JSON objects: every key is honoured or refused by its name, null is absent, and what
// asks for nothing is accepted.

#include "engine/request/chat_request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *const STOPS[] = {"stop"};

static chat_request_defaults defaults(void)
{
    return (chat_request_defaults){.max_tokens = -1,
                                   .sampling = {.temperature = 0.5f,
                                                .top_k = 7,
                                                .top_p = 0.75f,
                                                .min_p = 0.25f,
                                                .seed = 3,
                                                .penalties = {.repeat = 1, .window = 64}},
                                   .stops = STOPS,
                                   .stop_count = 1};
}

static kvern_status read_text(const char *text, chat_request *out, engine_error *error)
{
    const chat_request_defaults d = defaults();
    json_t *object = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(object);
    const kvern_status status = chat_request_read(object, &d, out, error);
    json_decref(object);
    return status;
}

static chat_request read_well(const char *text)
{
    chat_request request;
    engine_error error = {0};
    if (read_text(text, &request, &error) != KVERN_OK) {
        fail_msg("%s: %s", text, error.text);
    }
    return request;
}

static void expect_refused(const char *text, kvern_status status, const char *part)
{
    chat_request request;
    engine_error error = {0};
    const kvern_status got = read_text(text, &request, &error);
    if (got != status || !strstr(error.text, part)) {
        fail_msg("%s: status %d, %s", text, (int)got, error.text);
    }
    const chat_request zero = {0};
    assert_memory_equal(&request, &zero, sizeof zero);
}

static void every_key_is_read(void **state)
{
    (void)state;
    chat_request r = read_well(
        "{\"prompt\": \"a\\u0000b\", \"max_tokens\": 5, \"temperature\": 2, \"top_k\": 3, "
        "\"top_p\": 0.5, \"min_p\": 0.125, \"seed\": 11, \"presence_penalty\": -1, "
        "\"frequency_penalty\": 2, \"repeat_penalty\": 1.5, \"repeat_last_n\": -1, "
        "\"logit_bias\": {\"12\": -100, \"0\": 1}, \"stop\": [\"x\", \"y\"], \"ignore_eos\": "
        "true}");
    const sampler_options *s = &r.sampling;
    assert_int_equal(r.prompt_bytes, 3);
    assert_memory_equal(r.prompt, "a\0b", 3);
    assert_int_equal(r.max_tokens, 5);
    assert_true(s->temperature == 2 && s->top_k == 3 && s->top_p == 0.5f && s->min_p == 0.125f);
    assert_int_equal(s->seed, 11);
    assert_true(s->penalties.presence == -1 && s->penalties.frequency == 2);
    assert_true(s->penalties.repeat == 1.5f && s->penalties.window == PENALTY_WINDOW_ALL);
    assert_int_equal(s->bias_count, 2);
    assert_true(s->biases[0].token == 12 && s->biases[0].bias == -100);
    assert_true(s->biases[1].token == 0 && s->biases[1].bias == 1);
    assert_int_equal(r.stop_count, 2);
    assert_string_equal(r.stops[1], "y");
    assert_true(r.ignore_eos);
    chat_request_free(&r);
}

static void what_is_absent_stays(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {
        "{\"prompt\": \"a\"}",
        "{\"prompt\": \"a\", \"messages\": null, \"max_tokens\": null, \"temperature\": null, "
        "\"top_k\": null, \"top_p\": null, \"min_p\": null, \"seed\": null, \"stop\": null, "
        "\"presence_penalty\": null, \"frequency_penalty\": null, \"repeat_penalty\": null, "
        "\"logit_bias\": null, \"ignore_eos\": null, \"n\": null, \"tools\": null}"};
    for (size_t i = 0; i < 2; i++) {
        chat_request r = read_well(TEXTS[i]);
        const chat_request_defaults d = defaults();
        assert_int_equal(r.max_tokens, -1);
        assert_memory_equal(&r.sampling, &d.sampling, sizeof d.sampling);
        assert_int_equal(r.stop_count, 1);
        assert_string_equal(r.stops[0], "stop");
        assert_false(r.ignore_eos);
        chat_request_free(&r);
    }
}

static void what_asks_for_nothing_is_accepted(void **state)
{
    (void)state;
    chat_request r = read_well(
        "{\"prompt\": \"a\", \"n\": 1, \"best_of\": 1.0, \"stream\": false, \"logprobs\": false, "
        "\"top_logprobs\": 0, \"echo\": false, \"suffix\": \"\", \"tools\": [], \"tool_choice\": "
        "\"none\", \"response_format\": {\"type\": \"text\"}, \"typical_p\": 1, \"mirostat\": 0, "
        "\"top_n_sigma\": -1, \"model\": \"m\", \"user\": \"u\", \"metadata\": {\"a\": 1}, "
        "\"anything\": [1]}");
    chat_request_free(&r);
    assert_true(chat_request_knows("model"));
    assert_true(chat_request_knows("tools"));
    assert_false(chat_request_knows("anything"));
}

static void what_cannot_be_done_is_refused(void **state)
{
    (void)state;
    static const char *const KEYS[][2] = {
        {"n", "2"},
        {"best_of", "3"},
        {"stream", "true"},
        {"logprobs", "true"},
        {"logprobs", "5"},
        {"top_logprobs", "1"},
        {"echo", "true"},
        {"suffix", "\"x\""},
        {"tools", "[{}]"},
        {"tool_choice", "\"auto\""},
        {"functions", "[{}]"},
        {"response_format", "{\"type\": \"json_object\"}"},
        {"grammar", "\"root ::= x\""},
        {"typical_p", "0.5"},
        {"mirostat", "2"},
        {"dry_multiplier", "0.8"},
        {"xtc_probability", "0.5"},
        {"min_tokens", "3"},
        {"stop_token_ids", "[3]"},
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        char text[200], part[80];
        snprintf(text, sizeof text, "{\"prompt\": \"a\", \"%s\": %s}", KEYS[i][0], KEYS[i][1]);
        snprintf(part, sizeof part, "\"%s\" is not supported", KEYS[i][0]);
        expect_refused(text, KVERN_ERR_UNSUPPORTED, part);
    }
    expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"name\": \"b\"}]}",
                   KVERN_ERR_UNSUPPORTED, "the \"name\" of message 1");
    expect_refused(
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
        KVERN_ERR_UNSUPPORTED, "message 1 has a part of type \"image_url\"");
    expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                   "\"text\": \"a\", \"image_url\": \"b\"}]}]}",
                   KVERN_ERR_UNSUPPORTED, "the \"image_url\" of a part of message 1");
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    static const char *const KEYS[][2] = {
        {"max_tokens", "-2"},
        {"max_tokens", "1.5"},
        {"max_tokens", "\"1\""},
        {"temperature", "-1"},
        {"temperature", "101"},
        {"temperature", "\"hot\""},
        {"top_k", "-2"},
        {"top_k", "0.5"},
        {"top_p", "1.5"},
        {"min_p", "-0.1"},
        {"seed", "-2"},
        {"presence_penalty", "1000"},
        {"frequency_penalty", "[]"},
        {"repeat_penalty", "0"},
        {"repetition_penalty", "-1"},
        {"repeat_last_n", "-2"},
        {"logit_bias", "[]"},
        {"logit_bias", "{\"x\": 1}"},
        {"logit_bias", "{\"1\": 101}"},
        {"logit_bias", "{\"-1\": 1}"},
        {"logit_bias", "{\"01\": 1}"},
        {"logit_bias", "{\"1\": 2, \"001\": 3}"},
        {"logit_bias", "{\"\": 1}"},
        {"stop", "\"\""},
        {"stop", "[\"a\", 5]"},
        {"stop", "\"a\\u0000\""},
        {"ignore_eos", "1"},
        {"messages", "[{}]"},
    };
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        char text[200], part[80];
        snprintf(text, sizeof text, "{\"prompt\": \"a\", \"%s\": %s}", KEYS[i][0], KEYS[i][1]);
        snprintf(part, sizeof part, "\"%s\"", KEYS[i][0]);
        expect_refused(text, KVERN_ERR_FORMAT, part);
    }
    expect_refused("[1]", KVERN_ERR_FORMAT, "not a JSON object");
    expect_refused("{}", KVERN_ERR_FORMAT, "neither a \"prompt\" nor \"messages\"");
    expect_refused("{\"prompt\": 5}", KVERN_ERR_FORMAT, "\"prompt\" is not a string");
    expect_refused("{\"messages\": []}", KVERN_ERR_FORMAT, "\"messages\"");
    expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": [5]}]}", KVERN_ERR_FORMAT,
                   "a part of message 1");
    expect_refused("{\"messages\": [{\"role\": \"a\\u0000\", \"content\": \"\"}]}",
                   KVERN_ERR_FORMAT, "the role of message 1");
    expect_refused("{\"prompt\": \"a\", \"max_tokens\": 1, \"n_predict\": 2}", KVERN_ERR_FORMAT,
                   "\"max_tokens\" and \"n_predict\" say different things");
    expect_refused("{\"prompt\": \"a\", \"repeat_penalty\": 1, \"repetition_penalty\": 1}",
                   KVERN_ERR_FORMAT, "are the same");
}

static void messages_and_their_parts(void **state)
{
    (void)state;
    const char *text =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"a\"}, {\"type\": \"text\", \"text\": \"\"}, {\"type\": "
        "\"text\", \"text\": \"bc\"}], \"tool_calls\": []}, {\"role\": "
        "\"assistant\", \"content\": []}, {\"role\": \"user\", \"content\": \"d\"}]}";
    json_t *object = json_loads(text, 0, NULL);
    chat_request_defaults d = defaults();
    chat_request r;
    d.system = "first";
    assert_int_equal(chat_request_read(object, &d, &r, NULL), KVERN_OK);
    json_decref(object); // the request keeps it
    static const chat_message WANTED[] = {
        {"system", "first", 5}, {"user", "abc", 3}, {"assistant", "", 0}, {"user", "d", 1}};
    assert_int_equal(r.message_count, 4);
    assert_null(r.prompt);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(r.messages[i].role, WANTED[i].role);
        assert_int_equal(r.messages[i].content_bytes, WANTED[i].content_bytes);
        assert_memory_equal(r.messages[i].content, WANTED[i].content, WANTED[i].content_bytes);
    }
    chat_request_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(what_is_absent_stays),
        cmocka_unit_test(what_asks_for_nothing_is_accepted),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(messages_and_their_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
