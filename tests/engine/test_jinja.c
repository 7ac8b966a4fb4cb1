// SPDX-License-Identifier: MIT
// The template language: the texts of Jinja (tests/golden/chat/conversations.json) for the
// templates of well-known models and for each construct, where every byte comes from, what is
// refused, and that a hostile template ends.

#include "engine/chat/jinja.h"
#include "tests/support/check.h"
#include "tests/support/golden_json.h"
#include "tests/support/sanitizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#define MOST_MESSAGES 8
#define NOW 1751544000 // of make_chat.py

static jinja_word word_of(const json_t *string)
{
    return (jinja_word){json_string_value(string), json_string_length(string)};
}

static kvern_status render(jinja_word source, const jinja_message *messages, size_t count,
                           bool prompt, jinja_result *result, engine_error *error)
{
    jinja_template *t;
    kvern_status status = jinja_parse(source.data, source.bytes, &t, error);
    if (status != KVERN_OK) {
        assert_null(t);
        return status;
    }
    const jinja_input input = {.messages = messages,
                               .count = count,
                               .add_generation_prompt = prompt,
                               .bos = {"<s>", 3},
                               .eos = {"</s>", 4},
                               .now = NOW};
    status = jinja_render(t, &input, result, error);
    jinja_destroy(t);
    assert_int_equal(result->text.size, result->origins.size);
    return status;
}

// --- Golden

static char *read_template(const char *name, size_t *bytes)
{
    char path[1024];
    static char text[1 << 16];
    snprintf(path, sizeof path, "%s/golden/chat/templates/%s.jinja", KVERN_TESTS_DIR, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s", path);
    *bytes = fread(text, 1, sizeof text, file);
    fclose(file);
    assert_true(*bytes > 0 && *bytes < sizeof text);
    return text;
}

static jinja_word source_of(const json_t *entry)
{
    const json_t *inline_source = json_object_get(entry, "template");
    jinja_word source;
    if (inline_source)
        return word_of(inline_source);
    source.data = read_template(json_string_value(json_object_get(entry, "name")), &source.bytes);
    return source;
}

static size_t read_messages(const json_t *entry, jinja_message *messages)
{
    const json_t *list = json_object_get(entry, "messages");
    const size_t count = json_array_size(list);
    assert_true(count <= MOST_MESSAGES);
    for (size_t i = 0; i < count; i++)
        messages[i] =
            (jinja_message){.role = word_of(json_object_get(json_array_get(list, i), "role")),
                            .content = word_of(json_object_get(json_array_get(list, i), "content")),
                            .role_origin = JINJA_FROM_TEMPLATE,
                            .content_origin = JINJA_FROM_MESSAGE};
    return count;
}

// "error": the template's own sentence must be shown. "fault": any refusal will do.
static bool is_refused_right(const json_t *entry, kvern_status status, const engine_error *error)
{
    const char *sentence = json_string_value(json_object_get(entry, "error"));
    if (!sentence)
        return status != KVERN_OK;
    char start[128];
    snprintf(start, sizeof start, "%.*s", (int)strcspn(sentence, "\n"), sentence);
    return status == KVERN_ERR_ARGUMENT && strstr(error->text, start);
}

static bool is_right(const json_t *entry)
{
    jinja_message messages[MOST_MESSAGES];
    const size_t count = read_messages(entry, messages);
    const json_t *text = json_object_get(entry, "text");
    jinja_result result = {0};
    engine_error error = {0};
    const kvern_status status =
        render(source_of(entry), messages, count, json_is_true(json_object_get(entry, "prompt")),
               &result, &error);
    const bool right =
        !text ? is_refused_right(entry, status, &error)
              : status == KVERN_OK && result.text.size == json_string_length(text) &&
                    (result.text.size == 0 ||
                     memcmp(result.text.data, json_string_value(text), result.text.size) == 0);
    if (!right)
        print_error("%s: %s\n%.*s\n", json_string_value(json_object_get(entry, "name")),
                    status == KVERN_OK ? "another text" : error.text, (int)result.text.size,
                    result.text.data ? result.text.data : "");
    jinja_result_free(&result);
    return right;
}

static void renders_as_jinja_does(void **state)
{
    (void)state;
    const char *others = getenv("KVERN_TEST_CHAT"); // of tests/oracle/test_chat.py
    json_t *golden = others ? json_load_file(others, JSON_ALLOW_NUL, NULL)
                            : golden_json_open("chat/conversations.json", 600);
    assert_true(json_array_size(golden) >= 600);
    size_t wrong = 0;
    for (size_t i = 0; i < json_array_size(golden); i++)
        wrong += !is_right(json_array_get(golden, i));
    json_decref(golden);
    assert_int_equal(wrong, 0);
}

// --- Origins

static const jinja_message attack[] = {{.role = {"user", 4},
                                        .content = {" Ab,c ", 6},
                                        .role_origin = JINJA_FROM_TEMPLATE,
                                        .content_origin = JINJA_FROM_MESSAGE},
                                       {.role = {"x", 1},
                                        .content = {"q", 1},
                                        .role_origin = JINJA_FROM_MESSAGE,
                                        .content_origin = JINJA_FROM_ANCHOR}};

static void every_byte_knows_where_it_comes_from(void **state)
{
    (void)state;
    // In the third column: t of the template, m of a message, a of the anchor.
    static const char *const cases[][3] = {
        {"<{{ messages[0].content }}>", "< Ab,c >", "tmmmmmmt"},
        {"{{ '<' + messages[0].content.strip() + '>' }}", "<Ab,c>", "tmmmmt"},
        {"{{ messages[0].role ~ messages[1].role ~ messages[1].content }}", "userxq", "ttttma"},
        {"{{ messages[0].content | upper | trim | replace(',', '--') }}", "AB--C", "mmttm"},
        {"{{ messages[0].content.split(',') | join('|') }}", " Ab|c ", "mmmtmm"},
        {"{{ messages[0].content[1:3] }}{{ messages[0].content[::-1] }}", "Ab c,bA ", "mmmmmmmm"},
        {"{{ [messages[1].content, 'a\"'] | tojson }}", "[\"q\", \"a\\\"\"]", "ttattttttttt"},
        {"{% set x %}[{{ messages[1].content }}]{% endset %}{{ x * 2 }}", "[q][q]", "tattat"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(messages[1].role) | length }}"
         "{{ m(messages[1].role) }}",
         "3<x>", "ttmt"},
        {"{% for c in messages[0].content %}{{ c }}.{% endfor %}", " .A.b.,.c. .", "mtmtmtmtmtmt"},
        {"{{ '{}-{}'.format(messages[1].content, 1) }}{{ bos_token }}", "q-1<s>", "attttt"},
        {"{{ messages | map(attribute='content') | first | title }}", " Ab,c ", "mmmmmm"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_result r = {0};
        engine_error error = {0};
        if (render((jinja_word){cases[i][0], strlen(cases[i][0])}, attack, 2, false, &r, &error) !=
            KVERN_OK)
            fail_msg("%s: %s", cases[i][0], error.text);
        for (size_t at = 0; at < r.origins.size; at++)
            r.origins.data[at] = "tma"[(unsigned char)r.origins.data[at]];
        if (r.text.size != strlen(cases[i][1]) || r.text.size != strlen(cases[i][2]) ||
            memcmp(r.text.data, cases[i][1], r.text.size) != 0 ||
            memcmp(r.origins.data, cases[i][2], r.text.size) != 0)
            fail_msg("case %zu: %.*s %.*s", i, (int)r.text.size, r.text.data, (int)r.text.size,
                     r.origins.data);
        jinja_result_free(&r);
    }
}

// --- Refusals

static void what_is_not_understood_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a\n\n{{ x | shuffle }}", "line 3: the filter \"shuffle\" is not known"},
        {"{% if x is prime %}{% endif %}", "line 1: the test \"prime\" is not known"},
        {"\n{% include 'x' %}", "line 2: the statement \"include\" is not known"},
        {"{% raw %}{% endraw %}", "the statement \"raw\" is not known"},
        {"{% call m() %}{% endcall %}", "the statement \"call\" is not known"},
        {"{% endfor %}", "the statement \"endfor\" is not expected here"},
        {"{% break %}", "break or continue outside of a loop"},
        {"{% for x in y recursive %}{% endfor %}", "a recursive loop"},
        {"{% if true %}", "a block does not end with elif"},
        {"{% for x in y %}", "a block does not end with else"},
        {"\n{{ 'abc", "line 2: a string does not end"},
        {"{# abc", "a comment does not end"},
        {"{{ 1 ", "a {{ expression does not end"},
        {"{% if", "a {% block does not end"},
        {"{{ 1 2 }}", "the number 2 is not expected here"},
        {"{{ a ** b }}", "the operator * is not expected here"},
        {"{{ }}", "}} is not expected here"},
        {"{{ ? }}", "the byte 0x3f in an expression"},
        {"{{ '\\N{DASH}' }}", "the escape \\N in a string"},
        {"{{ '\\xZZ' }}", "an escape in a string is cut"},
        {"{{ '\\ud800' }}", "an escape in a string stands for no character"},
        {"{{ 1x }}", "a number is written as \"1x\""},
        {"{{ 99999999999999999999 }}", "is too large"},
        {"{{ 9223372036854775807 + 1 }}", "a number is too large"},
        {"a\n{{ 'a'.zfill(3) }}", "line 2: the method \"zfill\" of a string is not known"},
        {"{{ messages[0].pop('a') }}", "the method \"pop\" of a mapping is not known"},
        {"{{ messages.append(1) }}", "the method \"append\" of a list is not known"},
        {"{{ messages[0].items }}", "the method \"items\" is not called"},
        {"{{ messages }}", "a list cannot be written as it is"},
        {"{{ messages[0] }}", "a mapping cannot be written as it is"},
        {"{{ '\u00e9' | upper }}", "changing the case of characters outside ASCII"},
        {"{{ 'a' | trim(chars='a', x=1) }}", "2 arguments for trim"},
        {"{{ 'a' | trim(x=1) }}", "the argument \"x\" of trim is not known"},
        {"{{ 'a' | tojson(ensure_ascii=true) }}", "tojson with escapes outside ASCII"},
        {"{% for a in [1] %}{{ loop.cycle(1) }}{% endfor %}", "the method \"cycle\" of a loop"},
        {"{% for a in [1] %}{{ loop.depth }}{% endfor %}", "loop.depth is not known"},
        {"{{ lipsum() }}", "lipsum is undefined"},
        {"{% macro m() %}{% endmacro %}{{ m(1) }}", "the macro m takes no such argument"},
        {"{% set a = 1 %}{% set a.b = 1 %}", "an integer is no namespace"},
        {"{{ 1e5 }}", "a number is written as \"1e\""},
        {"{{ messages[::0] | length }}", "a slice with steps of 0"},
        {"{{ 'abc'.endswith(['c']) }}", "a list where a string or a tuple is needed"},
        {"{{ 'abc'.startswith(['a']) }}", "a list where a string or a tuple is needed"},
        {"{{ ([1] + (2,)) | length }}", "+ does not go with a list and a tuple"},
        {"{{ raise_exception() if (1, 2) == [1, 2] else messages }}", "a list cannot be written"},
        {"{{ raise_exception() if [('a', 1)] != {'a': 1} | items | list else messages }}",
         "a list cannot be written"},
        {"{{ raise_exception() if (1, 2, 3)[:2] != (1, 2) else messages }}",
         "a list cannot be written"},
        {"{{ '\x1b[31m' + 1 }}", "+ does not go with a string and an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_result r = {0};
        engine_error error = {0};
        const kvern_status status =
            render((jinja_word){cases[i][0], strlen(cases[i][0])}, attack, 2, false, &r, &error);
        if (status != KVERN_ERR_UNSUPPORTED || !strstr(error.text, cases[i][1]) ||
            !strstr(error.text, "the chat template, line "))
            fail_msg("%s: %s", cases[i][0], error.text);
        assert_int_equal(r.text.size, 0);
        jinja_result_free(&r);
    }
}

// A template's sentence may hold anything; it is shown without control characters.
static void a_template_refuses(void **state)
{
    (void)state;
    static const char source[] =
        "some text {{ raise_exception('No \x1b[31m' ~ '%s' ~ bos_token) }}";
    jinja_result r = {0};
    engine_error error = {0};
    assert_int_equal(render((jinja_word){source, sizeof source - 1}, attack, 2, false, &r, &error),
                     KVERN_ERR_ARGUMENT);
    assert_string_equal(error.text, "the chat template refuses these messages: No ?[31m%s<s>");
    assert_int_equal(r.text.size, 0);
    jinja_result_free(&r);
}

// --- Hostile templates

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// before, `part` so many times, after.
static char *repeated(const char *before, const char *part, const char *after, size_t times)
{
    const size_t bytes = strlen(part);
    char *text = malloc(strlen(before) + times * bytes + strlen(after) + 1);
    assert_non_null(text);
    strcpy(text, before);
    char *at = text + strlen(before);
    for (size_t i = 0; i < times; i++, at += bytes)
        memcpy(at, part, bytes);
    strcpy(at, after);
    return text;
}

static void assert_too_deep(const char *text)
{
    jinja_template *t;
    engine_error error = {0};
    assert_int_equal(jinja_parse(text, strlen(text), &t, &error), KVERN_ERR_UNSUPPORTED);
    if (!strstr(error.text, "levels deep"))
        fail_msg("%.40s: %s", text, error.text);
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    // What opens and what closes a hundred thousand levels.
    static const char *const pairs[][2] = {
        {"(", ")"},  {"[", "]"},   {"{'a':", "}"}, {"a[", "]"},
        {"a(", ")"}, {"not ", ""}, {"-", ""},      {"1 if 1 else ", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char *opening = repeated("{{ ", pairs[i][0], "1", 100000);
        char *text = repeated(opening, pairs[i][1], " }}", 100000);
        assert_too_deep(text);
        free(opening);
        free(text);
    }
    // Chains, and statements without their ends.
    static const char *const cases[][3] = {
        {"{{ 1", " + 1", " }}"},     {"{{ 'a'", " ~ 'b'", "}}"},   {"{{ a", "[0]", " }}"},
        {"{{ a", ".b", " }}"},       {"{{ a", "()", " }}"},        {"{{ a", "|trim", " }}"},
        {"{{ 1", " and 1", " }}"},   {"{{ 1", " or 1", " }}"},     {"{{ 1", " if 1", " }}"},
        {"", "{% if 1 %}", ""},      {"", "{% for a in b %}", ""}, {"", "{% set a %}", ""},
        {"", "{% macro a() %}", ""}, {"", "{% generation %}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i][0], cases[i][1], cases[i][2], 100000);
        assert_too_deep(text);
        free(text);
    }
}

static void endless_work_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for a in range(99) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(l=[1]) %}{% for a in range(99) %}"
        "{% set ns.l = ns.l + ns.l %}{% endfor %}",
        "{{ 'a' * 1000000000000 }}",
        "{{ ('ab' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000) | join('b' * 100000) }}",
        "{% set ns = namespace(l=1) %}{% for a in range(999) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l == ns.l }}",
        "{% set ns = namespace(l=1) %}{% for a in range(999) %}{% set ns.l = [ns.l] %}"
        "{% endfor %}{{ ns.l | tojson }}",
        "{% set ns = namespace(m={}) %}{% for a in range(30000) %}"
        "{{ range(30000) | list | length }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_result r = {0};
        engine_error error = {0};
        const kvern_status status =
            render((jinja_word){cases[i], strlen(cases[i])}, attack, 2, false, &r, &error);
        if (status != KVERN_ERR_UNSUPPORTED ||
            (!strstr(error.text, "more work") && !strstr(error.text, "more memory") &&
             !strstr(error.text, "levels deep") && !strstr(error.text, "a range from")))
            fail_msg("case %zu: %s", i, error.text);
        jinja_result_free(&r);
    }
}

// What a template holds is bounded below what its work would permit.
static void endless_memory_is_refused(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "{% set ns = namespace(s='aaaaaaaa') %}{% for a in range(99) %}"
        "{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for a in range(200) %}{{ s }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for a in range(200) %}{% set t = s ~ 'b' %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set t %}{% for a in range(200) %}{{ s }}{% endfor %}"
        "{% endset %}",
        "{% for a in range(9000) %}{% set l = range(9000) | list %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_result r = {0};
        engine_error error = {0};
        const kvern_status status =
            render((jinja_word){cases[i], strlen(cases[i])}, attack, 2, false, &r, &error);
        if (status != KVERN_ERR_UNSUPPORTED || !strstr(error.text, "more memory"))
            fail_msg("case %zu: %s", i, error.text);
        assert_int_equal(r.text.size, 0);
        jinja_result_free(&r);
    }
    struct rusage usage; // of this program since it began
    getrusage(RUSAGE_SELF, &usage);
    print_message("%ld KiB at most\n", usage.ru_maxrss);
    if (!HAS_SANITIZER)
        assert_true(usage.ru_maxrss < 180 << 10);
}

// A template that puts the whole conversation together anew for each of many messages may do so,
// and one that captures much text and drops it.
static void long_conversations_are_not_refused(void **state)
{
    (void)state;
    enum { MESSAGES = 300, BYTES = 4000 };
    static const char *const cases[] = {
        "{% set ns = namespace(s='') %}{% for m in messages %}"
        "{% set ns.s = ns.s + m.content | trim %}{% endfor %}{{ ns.s }}",
        "{% for m in messages %}{% set t %}{{ m.content }}{{ m.content }}{% endset %}{{ t }}"
        "{% endfor %}",
    };
    char *content = malloc(BYTES);
    assert_non_null(content);
    memset(content, 'x', BYTES);
    jinja_message messages[MESSAGES];
    for (size_t i = 0; i < MESSAGES; i++)
        messages[i] = (jinja_message){.role = {"user", 4}, .content = {content, BYTES}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        jinja_result r = {0};
        engine_error error = {0};
        if (render((jinja_word){cases[i], strlen(cases[i])}, messages, MESSAGES, false, &r, &error))
            fail_msg("case %zu: %s", i, error.text);
        assert_int_equal(r.text.size, (i + 1) * MESSAGES * BYTES);
        jinja_result_free(&r);
    }
    free(content);
}

static double time_of(const char *before, const char *part, const char *after, size_t bytes)
{
    char *text = repeated(before, part, after, bytes / strlen(part));
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        jinja_result r = {0};
        const double start = seconds();
        (void)!render((jinja_word){text, strlen(text)}, attack, 2, false, &r, NULL);
        const double taken = seconds() - start;
        least = taken < least ? taken : least;
        jinja_result_free(&r);
    }
    free(text);
    return least;
}

// The first case took 22 seconds when the default system message was looked for in the text.
static void twice_the_template_takes_twice_the_time(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"{{ '", "\\'<|im_start|>system\\n", "' }}"},
        {"", "\\'<|im_start|>system\\n", ""},
        {"", "{{ 'a' }}\n", ""},
        {"", "   \n", "{%- if true %}{% endif %}"},
        {"", "  {% if true -%}   x   {%- endif %}\n", ""},
        {"", "{# c #}", ""},
        {"", "{", ""},
        {"", "{#", ""},
        {"", "{{ '", ""},
        {"{{ [", "1,", "] | length }}"},
        {"{% if 0 %}", "{% elif 0 %}a", "{% endif %}"},
        {"", "{% set a = messages[0].content | trim %}", ""},
        {"{{ ", "'a' ", "}}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double one = time_of(cases[i][0], cases[i][1], cases[i][2], 210000);
        const double two = time_of(cases[i][0], cases[i][1], cases[i][2], 420000);
        if (two > 4 * one + 0.05)
            fail_msg("case %zu: %.3f s, and of twice as much %.3f s", i, one, two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_jinja_does),
        cmocka_unit_test(every_byte_knows_where_it_comes_from),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(a_template_refuses),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(endless_work_is_refused),
        cmocka_unit_test(endless_memory_is_refused),
        cmocka_unit_test(long_conversations_are_not_refused),
        cmocka_unit_test(twice_the_template_takes_twice_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
