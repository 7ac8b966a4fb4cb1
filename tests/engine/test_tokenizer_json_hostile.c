// SPDX-License-Identifier: MIT
// The files of a tokenizer: what they may say is honoured, everything else is refused by its name.

#include "engine/chat/chat.h"
#include "tests/support/check.h"
#include "tests/support/json_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDED(id, text, special)                                                                   \
    "{\"id\": " #id ", \"content\": \"" text "\", \"single_word\": false, \"lstrip\": false, "     \
    "\"rstrip\": false, \"normalized\": false, \"special\": " #special "}"

// Byte-level, of a few bytes.
static const char SMALL[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": "
    "[" ADDED(7, "<s>", true) ", " ADDED(
        8, "<|im_end|>",
        false) "], \"normalizer\": null, "
               "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
               "\"trim_offsets\": "
               "true, \"use_regex\": true}, \"post_processor\": null, \"decoder\": {\"type\": "
               "\"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": "
               "null, "
               "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": "
               "false, "
               "\"byte_fallback\": false, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"\u0120\": "
               "3, "
               "\"\u0120ab\": 4, \"<\": 5, \"s\": 6}, \"merges\": [\"a b\", \"\u0120 ab\"]}}";

// A copy with one text for another; free().
static char *replaced(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

typedef struct expectation {
    const char *from, *to; // in SMALL
    kvern_status status;
    const char *text;
} expectation;

static void expect(const tokenizer_texts *texts, const char *what, kvern_status status,
                   const char *text)
{
    tokenizer *t;
    engine_error error = {KVERN_OK, ""};
    const kvern_status got = json_tokenizer_try(texts, NULL, &t, &error);
    if (got != status || (t != NULL) != (got == KVERN_OK) || !strstr(error.text, text))
        fail_msg("%s: \"%s\" (%d) where %d and \"%s\" were expected", what, error.text, (int)got,
                 (int)status, text);
    tokenizer_destroy(t);
}

#define PRE "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
#define NULL_NORMALIZER "\"normalizer\": null"
#define NULL_PROCESSOR "\"post_processor\": null"
#define DECODER "\"decoder\": {\"type\": \"ByteLevel\"}"
#define TEMPLATE(single)                                                                           \
    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [" single "], \"pair\": "  \
    "[], \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [7], \"tokens\": [\"<s>\"]}}}"
#define TOKEN "{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}"
#define SEQUENCE "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define SPLIT(pattern, behavior)                                                                   \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": " pattern     \
    ", \"behavior\": \"" behavior "\", \"invert\": false}, " PRE "\"use_regex\": true}]}"
#define REGEX(text) SPLIT("{\"Regex\": \"" text "\"}", "Isolated")

// Each case is the small tokenizer with one thing changed.
static void expect_all(const expectation *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *text = replaced(SMALL, cases[i].from, cases[i].to);
        expect(&(tokenizer_texts){.tokenizer = text_view_of(text)}, cases[i].to, cases[i].status,
               cases[i].text);
        free(text);
    }
}

static const expectation FILES[] = {
    {"{", "{", KVERN_OK, ""},
    {"\"1.0\"", "\"2.0\"", KVERN_ERR_UNSUPPORTED, "version"},
    {"\"truncation\"", "\"cutting\"", KVERN_ERR_UNSUPPORTED, "\"cutting\""},
    {"{", "[", KVERN_ERR_FORMAT, "tokenizer.json: line 1"},
    {"\"version\": \"1.0\"", "\"version\": \"1.0\", \"version\": \"1.0\"", KVERN_ERR_FORMAT,
     "duplicate"},
};

static void files_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(FILES, sizeof FILES / sizeof FILES[0]);
    expect(&(tokenizer_texts){0}, "nothing", KVERN_ERR_UNSUPPORTED, "no tokenizer.json");
}

static const expectation MODELS[] = {
    {"\"BPE\"", "\"Unigram\"", KVERN_ERR_UNSUPPORTED, "vocabulary of type \"Unigram\""},
    {"\"dropout\": null", "\"dropout\": 0.1", KVERN_ERR_UNSUPPORTED, "model.dropout"},
    {"\"dropout\": null", "\"dropout\": 0", KVERN_OK, ""},
    {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", KVERN_ERR_UNSUPPORTED,
     "model.end_of_word_suffix"},
    {"\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
     KVERN_ERR_UNSUPPORTED, "model.continuing_subword_prefix"},
    {"\"unk_token\": null", "\"unk_token\": \"<unk>\"", KVERN_ERR_FORMAT, "<unk>"},
    {"\"fuse_unk\": false", "\"fuse_unk\": 1", KVERN_ERR_FORMAT, "model.fuse_unk"},
    {"\"fuse_unk\"", "\"unknown\"", KVERN_ERR_UNSUPPORTED, "\"unknown\""},
    {"\"b\": 1", "\"b\": 0", KVERN_ERR_FORMAT, "has the id of another"},
    {"\"b\": 1", "\"b\": -1", KVERN_ERR_FORMAT, "has no id"},
    {"\"b\": 1", "\"b\": 1.5", KVERN_ERR_FORMAT, "has no id"},
    {"\"b\": 1", "\"b\": 2000000000", KVERN_ERR_FORMAT, "ids up to"},
    {"\"b\": 1", "\"b\": 100", KVERN_OK, ""}, // a gap
    {"\"vocab\": {", "\"vocab\": [{", KVERN_ERR_FORMAT, "line 1"},
    {"\"a b\", ", "\"a b\", \"a c\", ", KVERN_ERR_FORMAT, "element 1 is made of or makes"},
    {"\"a b\", ", "\"ab\", ", KVERN_ERR_FORMAT, "element 0 is no pair"},
    {"\"a b\", ", "\"a b b\", ", KVERN_ERR_FORMAT, "element 0 is no pair"},
    {"\"a b\", ", "[\"a\", \"b\"], ", KVERN_OK, ""},
    {"\"a b\", ", "[\"a\", 1], ", KVERN_ERR_FORMAT, "element 0 is no pair"},
    {"\"merges\": [", "\"merges\": 1, \"fuse_unk\": [", KVERN_ERR_FORMAT, "line 1"},
};

static void models_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(MODELS, sizeof MODELS / sizeof MODELS[0]);
}

static const expectation ADDED_TOKENS[] = {
    {"\"id\": 7", "\"id\": 6", KVERN_ERR_FORMAT, "contradicts another one"},
    {"\"id\": 8", "\"id\": 7", KVERN_ERR_FORMAT, "contradicts another one"},
    {"\"content\": \"<s>\"", "\"content\": \"\"", KVERN_ERR_FORMAT, "empty"},
    {"\"content\": \"<s>\"", "\"content\": \"ab\"", KVERN_ERR_FORMAT, "contradicts"},
    {"\"content\": \"<s>\"", "\"text\": \"<s>\"", KVERN_ERR_UNSUPPORTED, "\"text\""},
    {"\"single_word\": false", "\"single_word\": \"no\"", KVERN_ERR_FORMAT, "single_word"},
    {"\"normalized\": false, \"special\": true", "\"normalized\": true, \"special\": true",
     KVERN_OK, ""},
};

static void added_tokens_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(ADDED_TOKENS, sizeof ADDED_TOKENS / sizeof ADDED_TOKENS[0]);
}

static const expectation NORMALIZERS[] = {
    {NULL_NORMALIZER, "\"normalizer\": {\"type\": \"Lowercase\"}", KVERN_ERR_UNSUPPORTED,
     "normalizer: a normalizer of type \"Lowercase\""},
    {NULL_NORMALIZER, "\"normalizer\": 1", KVERN_ERR_FORMAT, "normalizer"},
    {NULL_NORMALIZER, "\"normalizer\": {\"type\": \"NFC\"}", KVERN_OK, ""},
    {NULL_NORMALIZER, "\"normalizer\": {\"type\": \"NFC\", \"x\": 1}", KVERN_ERR_UNSUPPORTED,
     "\"x\""},
    {NULL_NORMALIZER,
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, "
     "{\"type\": \"Strip\"}]}",
     KVERN_ERR_UNSUPPORTED, "normalizer.normalizers[1]: a normalizer of type \"Strip\""},
    {NULL_NORMALIZER,
     "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": "
     "\"\"}",
     KVERN_ERR_UNSUPPORTED, "may match an empty text"},
    {NULL_NORMALIZER, "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {}, \"content\": \"\"}",
     KVERN_ERR_FORMAT, "pattern"},
};

static void normalizers_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(NORMALIZERS, sizeof NORMALIZERS / sizeof NORMALIZERS[0]);
}

static const expectation PRE_TOKENIZERS[] = {
    {PRE "\"use_regex\": true}", "{\"type\": \"Whitespace\"}", KVERN_ERR_UNSUPPORTED,
     "pre_tokenizer: a pre-tokenizer of type \"Whitespace\""},
    {PRE "\"use_regex\": true}", "null", KVERN_ERR_UNSUPPORTED, "decoder"},
    {PRE "\"use_regex\": true}", "5", KVERN_ERR_FORMAT, "pre_tokenizer"},
    {PRE "\"use_regex\": true}",
     "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, {\"type\": "
     "\"Digits\"}]}",
     KVERN_ERR_UNSUPPORTED, "nothing may follow ByteLevel"},
    {PRE "\"use_regex\": true}", SPLIT("{\"String\": \"a\"}", "Removed"), KVERN_ERR_UNSUPPORTED,
     "\"Removed\" is not supported"},
    {PRE "\"use_regex\": true}", SPLIT("{\"String\": \"a\"}", "Contiguous"), KVERN_OK, ""},
    {PRE "\"use_regex\": true}", REGEX("[a[b]]"), KVERN_ERR_UNSUPPORTED, "a class in a class"},
    {PRE "\"use_regex\": true}", REGEX("[a-z&&[^b]]"), KVERN_ERR_UNSUPPORTED, "an intersection"},
    {PRE "\"use_regex\": true}", REGEX("\\\\w+"), KVERN_ERR_UNSUPPORTED, "an escape"},
    {PRE "\"use_regex\": true}", REGEX("(?i)a"), KVERN_ERR_UNSUPPORTED, "a group"},
    {PRE "\"use_regex\": true}", REGEX("a{2}+"), KVERN_ERR_UNSUPPORTED, "behind a brace"},
    {PRE "\"use_regex\": true}", REGEX("a{,2}"), KVERN_ERR_UNSUPPORTED, "a brace"},
    {PRE "\"use_regex\": true}", REGEX("\\\\p{Emoji}"), KVERN_ERR_UNSUPPORTED,
     "an unknown property"},
    {PRE "\"use_regex\": true}", REGEX("^a"), KVERN_ERR_UNSUPPORTED, "a sign"},
    {PRE "\"use_regex\": true}", REGEX("a."), KVERN_ERR_UNSUPPORTED, "a sign"},
    {PRE "\"use_regex\": true}", REGEX("[a"), KVERN_ERR_UNSUPPORTED, "an open class"},
    {PRE "\"use_regex\": true}", REGEX("(a"), KVERN_ERR_UNSUPPORTED, "regular expression"},
    {PRE "\"use_regex\": true}", REGEX("a*"), KVERN_ERR_UNSUPPORTED, "an empty text"},
    {PRE "\"use_regex\": true}", REGEX("[\\\\s-a]"), KVERN_ERR_UNSUPPORTED, "a range"},
    {PRE "\"use_regex\": true}", REGEX("\\\\u00e9+|\\\\x{1F600}|\\\\x41"), KVERN_OK, ""},
    {PRE "\"use_regex\": true}", REGEX("\\\\xe9"), KVERN_ERR_UNSUPPORTED, "a code"},
};

static void pre_tokenizers_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(PRE_TOKENIZERS, sizeof PRE_TOKENIZERS / sizeof PRE_TOKENIZERS[0]);
}

static const expectation DECODERS[] = {
    {DECODER, "\"decoder\": null", KVERN_ERR_FORMAT, "decoder"},
    {DECODER, "\"decoder\": {\"type\": \"WordPiece\"}", KVERN_ERR_UNSUPPORTED, "\"WordPiece\""},
    {DECODER, "\"decoder\": {\"type\": \"Fuse\"}", KVERN_ERR_UNSUPPORTED, "it must be ByteLevel"},
    {DECODER, "\"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}",
     KVERN_ERR_UNSUPPORTED, "only one space"},
    {DECODER,
     "\"decoder\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": "
     "\"b\"}",
     KVERN_ERR_UNSUPPORTED, "only U+2581"},
};

static void decoders_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(DECODERS, sizeof DECODERS / sizeof DECODERS[0]);
}

static const expectation POST_PROCESSORS[] = {
    {NULL_PROCESSOR, "\"post_processor\": {\"type\": \"BertProcessing\"}", KVERN_ERR_UNSUPPORTED,
     "\"BertProcessing\""},
    {NULL_PROCESSOR, TEMPLATE(TOKEN ", " SEQUENCE), KVERN_OK, ""},
    {NULL_PROCESSOR, TEMPLATE(SEQUENCE ", " TOKEN), KVERN_ERR_UNSUPPORTED,
     "it puts a token behind a text"},
    {NULL_PROCESSOR, TEMPLATE(TOKEN ", " TOKEN ", " SEQUENCE), KVERN_ERR_UNSUPPORTED,
     "more than one token"},
    {NULL_PROCESSOR, TEMPLATE(SEQUENCE ", " SEQUENCE), KVERN_ERR_UNSUPPORTED, "comes twice"},
    {NULL_PROCESSOR, TEMPLATE(TOKEN), KVERN_ERR_UNSUPPORTED, "no text"},
};

static void post_processors_are_honoured_or_refused(void **state)
{
    (void)state;
    expect_all(POST_PROCESSORS, sizeof POST_PROCESSORS / sizeof POST_PROCESSORS[0]);
}

// Behind a normalizer nobody knows which part of a text is trusted.
static void special_tokens_are_not_normalized(void **state)
{
    (void)state;
    char *normal = replaced(SMALL, NULL_NORMALIZER, "\"normalizer\": {\"type\": \"NFC\"}");
    static const char *const specials[] = {"true", "false"};
    for (size_t i = 0; i < 2; i++) {
        char from[64], to[64];
        snprintf(from, sizeof from, "\"normalized\": false, \"special\": %s", specials[i]);
        snprintf(to, sizeof to, "\"normalized\": true, \"special\": %s", specials[i]);
        char *text = replaced(normal, from, to);
        expect(&(tokenizer_texts){.tokenizer = text_view_of(text)}, to, KVERN_ERR_UNSUPPORTED,
               i ? "\"<|im_end|>\" is normalized" : "\"<s>\" is normalized");
        free(text);
    }
    free(normal);
    char *text = replaced(SMALL, "\"content\": \"<s>\"", "\"content\": \"<|im\"");
    char *two = replaced(text, "\"normalized\": false, \"special\": true",
                         "\"normalized\": true, \"special\": true");
    expect(&(tokenizer_texts){.tokenizer = text_view_of(two)}, "overlap", KVERN_ERR_UNSUPPORTED,
           "overlaps others");
    free(text);
    free(two);
}

typedef struct config_case {
    const char *config, *special, *generation, *model;
    kvern_status status;
    const char *text;
} config_case;

static text_view view(const char *text)
{
    return text ? text_view_of(text) : (text_view){NULL, 0};
}

static tokenizer_texts texts_of(const config_case *c)
{
    return (tokenizer_texts){.tokenizer = text_view_of(SMALL),
                             .config = view(c->config),
                             .special = view(c->special),
                             .generation = view(c->generation),
                             .model = view(c->model)};
}

#define DECODED(flags)                                                                             \
    "{\"added_tokens_decoder\": {\"7\": {\"content\": \"<s>\", \"special\": true" flags "}}}"

static void the_files_beside_it_are_honoured_or_refused(void **state)
{
    (void)state;
    static const config_case cases[] = {
        {"{}", "{}", "{}", "{}", KVERN_OK, ""},
        {"{\"strange\": 1}", NULL, NULL, NULL, KVERN_ERR_UNSUPPORTED,
         "tokenizer_config.json: the model has the key strange"},
        {NULL, "{\"strange\": 1}", NULL, NULL, KVERN_ERR_UNSUPPORTED, "special_tokens_map.json"},
        {NULL, NULL, "{\"strange\": 1}", NULL, KVERN_ERR_UNSUPPORTED, "generation_config.json"},
        {"[]", NULL, NULL, NULL, KVERN_ERR_FORMAT, "tokenizer_config.json: it is not a JSON"},
        {"{\"bos_token\": \"<x>\"}", NULL, NULL, NULL, KVERN_ERR_FORMAT, "bos_token is no token"},
        {"{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}}", NULL, NULL, NULL, KVERN_OK,
         ""},
        {"{\"bos_token\": \"<s>\"}", "{\"bos_token\": \"ab\"}", NULL, NULL, KVERN_ERR_FORMAT,
         "bos_token of special_tokens_map.json"},
        {"{\"add_bos_token\": true}", NULL, NULL, NULL, KVERN_ERR_FORMAT, "without a bos_token"},
        {"{\"add_bos_token\": true, \"bos_token\": \"<s>\"}", NULL, NULL, NULL, KVERN_OK, ""},
        {"{\"add_bos_token\": 1}", NULL, NULL, NULL, KVERN_ERR_FORMAT, "add_bos_token is no"},
        {"{\"add_eos_token\": true}", NULL, NULL, NULL, KVERN_ERR_UNSUPPORTED, "add_eos_token"},
        {"{\"add_eos_token\": false}", NULL, NULL, NULL, KVERN_OK, ""},
        {"{\"add_prefix_space\": true}", NULL, NULL, NULL, KVERN_ERR_UNSUPPORTED,
         "add_prefix_space"},
        {"{\"add_prefix_space\": false}", NULL, NULL, NULL, KVERN_OK, ""},
        {"{\"split_special_tokens\": true}", NULL, NULL, NULL, KVERN_ERR_UNSUPPORTED,
         "split_special_tokens"},
        {DECODED(""), NULL, NULL, NULL, KVERN_OK, ""},
        {DECODED(", \"lstrip\": true"), NULL, NULL, NULL, KVERN_ERR_FORMAT, "7.lstrip"},
        {"{\"added_tokens_decoder\": {\"6\": {\"content\": \"s\"}}}", NULL, NULL, NULL,
         KVERN_ERR_FORMAT, "tokenizer.json has no such token"},
        {NULL, NULL, "{\"eos_token_id\": 9}", NULL, KVERN_ERR_FORMAT, "none of the 9 tokens"},
        {NULL, NULL, "{\"eos_token_id\": [7, -1]}", NULL, KVERN_ERR_FORMAT, "eos_token_id"},
        {NULL, NULL, NULL, "{\"eos_token_id\": \"x\"}", KVERN_ERR_FORMAT, "config.json"},
        {NULL, NULL, "{\"suppress_tokens\": [1]}", NULL, KVERN_ERR_UNSUPPORTED, "suppress_tokens"},
        {NULL, NULL, "{\"suppress_tokens\": null, \"temperature\": 0.6}", NULL, KVERN_OK, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tokenizer_texts texts = texts_of(&cases[i]);
        expect(&texts, cases[i].text, cases[i].status, cases[i].text);
    }
}

static tokenizer *made_of(const config_case *c)
{
    tokenizer *t;
    engine_error error = {KVERN_OK, ""};
    const tokenizer_texts texts = texts_of(c);
    if (json_tokenizer_try(&texts, NULL, &t, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    return t;
}

static void special_tokens_are_those_of_the_files(void **state)
{
    (void)state;
    tokenizer *t = made_of(&(config_case){
        .config = "{\"bos_token\": \"<s>\", \"add_bos_token\": true, \"pad_token\": \"s\"}",
        .special = "{\"eos_token\": {\"content\": \"<s>\"}}",
        .generation = "{\"eos_token_id\": [2, 6]}",
        .model = "{\"eos_token_id\": 1}"});
    assert_int_equal(tokenizer_bos(t), 7);
    assert_int_equal(tokenizer_eos(t), 7);
    assert_int_equal(tokenizer_padding(t), 6);
    assert_true(tokenizer_adds_bos(t));
    static const bool ends[9] = {false, false, true, false, false, false, true, true, false};
    for (int32_t id = 0; id < 9; id++)
        assert_int_equal(tokenizer_is_end(t, id), ends[id] || id == 8); // "<|im_end|>" is a mark
    assert_true(tokenizer_is_control(t, 7) && !tokenizer_is_control(t, 8));
    assert_true(tokenizer_is_mark(t, 8) && !tokenizer_is_mark(t, 7));
    assert_int_equal(tokenizer_size(t), 9);
    assert_string_equal(tokenizer_name(t), "BPE");
    assert_null(tokenizer_pre(t));
    tokenizer_destroy(t);
    // config.json where there is no generation_config.json; a text that asks for a beginning
    t = made_of(&(config_case){.model = "{\"text_config\": {\"eos_token_id\": 1}}"});
    assert_true(tokenizer_is_end(t, 1) && !tokenizer_is_end(t, 2) && !tokenizer_adds_bos(t));
    tokenizer_destroy(t);
    engine_error error;
    const tokenizer_texts texts = {.tokenizer = text_view_of(SMALL)};
    assert_int_equal(json_tokenizer_try(&texts, "gpt2", &t, &error), KVERN_ERR_ARGUMENT);
}

// What a user types makes no control token, and bytes without a token are named.
static void texts_are_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned flags;
        int32_t ids[8];
        size_t count;
    } cases[] = {
        {"ab ab", 0, {2, 4}, 2},
        {"<s>ab", TOKENIZER_PARSE_SPECIAL, {7, 2}, 2},
        {"<s", 0, {5, 6}, 2},
        {"", 0, {0}, 0},
    };
    tokenizer *t = made_of(&(config_case){0});
    engine_error error;
    token_buffer ids = TOKEN_BUFFER_INIT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        token_buffer_free(&ids);
        assert_int_equal(
            tokenizer_encode(t, cases[i].text, strlen(cases[i].text), cases[i].flags, &ids, &error),
            KVERN_OK);
        assert_int_equal(ids.count, cases[i].count);
        for (size_t k = 0; k < ids.count; k++)
            assert_int_equal(ids.ids[k], cases[i].ids[k]);
    }
    ids.count = 0;
    assert_int_equal(tokenizer_encode(t, "ab<s>", 5, 0, &ids, &error), KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "byte 0x3e"));
    assert_int_equal(ids.count, 0);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
}

static void expect_chat(const tokenizer_texts *texts, const char *expected)
{
    tokenizer_files *files;
    engine_error error = {KVERN_OK, ""};
    text_view chat;
    if (tokenizer_files_read(texts, &files, &error) != KVERN_OK)
        fail_msg("%s", error.text);
    assert_int_equal(tokenizer_files_chat_template(files, &chat), expected != NULL);
    assert_true(!expected || text_view_is(chat, expected));
    tokenizer_files_close(files);
}

static void chat_templates_are_found(void **state)
{
    (void)state;
    const text_view one = text_view_of("{\"chat_template\": \"one\"}");
    const text_view two = text_view_of("{\"chat_template\": \"two\"}");
    expect_chat(&(tokenizer_texts){0}, NULL);
    expect_chat(&(tokenizer_texts){.config = text_view_of("{\"chat_template\": null}")}, NULL);
    expect_chat(&(tokenizer_texts){.config = one}, "one");
    expect_chat(&(tokenizer_texts){.chat = two}, "two");
    expect_chat(&(tokenizer_texts){.config = one, .chat = two}, "one");
    expect_chat(&(tokenizer_texts){.config = one, .jinja = text_view_of("three")}, "three");
    expect_chat(
        &(tokenizer_texts){
            .config =
                text_view_of("{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"a\"}, "
                             "{\"name\": \"default\", \"template\": \"b\"}]}")},
        "b");
    expect_chat(
        &(tokenizer_texts){
            .config = text_view_of(
                "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"a\"}]}")},
        NULL);
    tokenizer_files *files;
    engine_error error;
    static const char *const wrong[] = {"{\"chat_template\": 1}", "{\"chat_template\": [1]}"};
    for (size_t i = 0; i < 2; i++) {
        const tokenizer_texts texts = {.config = text_view_of(wrong[i])};
        assert_int_equal(tokenizer_files_read(&texts, &files, &error), KVERN_ERR_FORMAT);
        assert_null(files);
        assert_non_null(strstr(error.text, "chat_template"));
    }
}

// A pattern that tries every way to cut a word is given up.
static void hostile_patterns_end(void **state)
{
    (void)state;
    static char text[4001];
    char *json = replaced(SMALL, PRE "\"use_regex\": true}", REGEX("(?:a|aa|aaa)+b"));
    tokenizer *t;
    engine_error error = {KVERN_OK, ""};
    const tokenizer_texts texts = {.tokenizer = text_view_of(json)};
    assert_int_equal(json_tokenizer_try(&texts, NULL, &t, &error), KVERN_OK);
    memset(text, 'a', sizeof text - 1);
    memcpy(text + sizeof text - 3, "sb", 2); // a text without a b is no work
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_int_equal(tokenizer_encode(t, text, sizeof text - 1, 0, &ids, &error),
                     KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "limit"));
    tokenizer_destroy(t);
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_honoured_or_refused),
        cmocka_unit_test(models_are_honoured_or_refused),
        cmocka_unit_test(added_tokens_are_honoured_or_refused),
        cmocka_unit_test(normalizers_are_honoured_or_refused),
        cmocka_unit_test(pre_tokenizers_are_honoured_or_refused),
        cmocka_unit_test(decoders_are_honoured_or_refused),
        cmocka_unit_test(post_processors_are_honoured_or_refused),
        cmocka_unit_test(special_tokens_are_not_normalized),
        cmocka_unit_test(the_files_beside_it_are_honoured_or_refused),
        cmocka_unit_test(special_tokens_are_those_of_the_files),
        cmocka_unit_test(texts_are_tokens),
        cmocka_unit_test(chat_templates_are_found),
        cmocka_unit_test(hostile_patterns_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
