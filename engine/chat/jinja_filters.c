// SPDX-License-Identifier: MIT
// Filters (x | name) and tests (x is name).
#include "engine/chat/jinja_internal.h"

#include <stdlib.h>
#include <string.h>

// --- Arguments

jinja_value jinja_argument(const jinja_arguments *arguments, size_t place, const char *name,
                           jinja_value otherwise)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const jinja_word given = arguments->names[i];
        if (given.data ? name && jinja_word_is(given, name) : i == place)
            return arguments->values[i];
    }
    return otherwise;
}

void jinja_check_arguments(jinja_run *run, const jinja_arguments *arguments, const char *what,
                           size_t most, const char *const *names)
{
    if (arguments->count > most)
        jinja_refuse(run, "%zu arguments for %s", arguments->count, what);
    for (size_t i = 0; i < arguments->count; i++) {
        bool known = !arguments->names[i].data;
        for (const char *const *name = names; !known && name && *name; name++)
            known = jinja_word_is(arguments->names[i], *name);
        if (!known)
            jinja_refuse(run, "the argument \"%.*s\" of %s is not known",
                         JINJA_SHOWN(arguments->names[i]), what);
    }
}

static jinja_value first_argument(const jinja_arguments *arguments)
{
    return jinja_argument(arguments, 0, NULL, jinja_undefined());
}

static const jinja_string *string_argument(jinja_run *run, const jinja_arguments *arguments,
                                           size_t place, const char *name, const char *otherwise)
{
    const jinja_value value = jinja_argument(arguments, place, name, jinja_literal(run, otherwise));
    return jinja_written(run, value);
}

// --- Tests

typedef bool (*test_function)(jinja_run *run, jinja_value value, const jinja_arguments *arguments);

static bool test_defined(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind != JINJA_UNDEFINED;
}

static bool test_undefined(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return !test_defined(run, v, a);
}

static bool test_none(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_NONE;
}

static bool test_string(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_STRING;
}

static bool test_mapping(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_MAPPING;
}

static bool test_sequence(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_MAPPING ||
           v.kind == JINJA_UNDEFINED;
}

static bool test_iterable(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return test_sequence(run, v, a) || v.kind == JINJA_LOOP;
}

static bool test_boolean(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_BOOLEAN;
}

static bool test_true(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return test_boolean(run, v, a) && v.as.boolean;
}

static bool test_false(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return test_boolean(run, v, a) && !v.as.boolean;
}

static bool test_integer(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_INTEGER;
}

static bool test_float(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)run, (void)a;
    return v.kind == JINJA_REAL;
}

static bool test_number(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return test_integer(run, v, a) || test_float(run, v, a) || test_boolean(run, v, a);
}

static bool test_equal(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return jinja_equal(run, v, first_argument(a));
}

static bool test_unequal(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return !test_equal(run, v, a);
}

static bool test_in(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return jinja_contains(run, first_argument(a), v);
}

static bool test_odd(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_whole(run, v) % 2 != 0;
}

static bool test_even(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return !test_odd(run, v, a);
}

static bool test_divisible(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const int64_t by = jinja_whole(run, first_argument(a));
    if (by == 0)
        jinja_refuse(run, "a division by 0");
    return by == -1 || jinja_whole(run, v) % by == 0;
}

static const struct {
    const char *name;
    test_function test;
    size_t arguments;
} tests[] = {
    {"defined", test_defined, 0},
    {"undefined", test_undefined, 0},
    {"none", test_none, 0},
    {"string", test_string, 0},
    {"mapping", test_mapping, 0},
    {"sequence", test_sequence, 0},
    {"iterable", test_iterable, 0},
    {"boolean", test_boolean, 0},
    {"true", test_true, 0},
    {"false", test_false, 0},
    {"integer", test_integer, 0},
    {"float", test_float, 0},
    {"number", test_number, 0},
    {"odd", test_odd, 0},
    {"even", test_even, 0},
    {"eq", test_equal, 1},
    {"equalto", test_equal, 1},
    {"ne", test_unequal, 1},
    {"in", test_in, 1},
    {"divisibleby", test_divisible, 1},
};

#define TEST_COUNT (sizeof tests / sizeof *tests)

bool jinja_has_test(jinja_word name)
{
    for (size_t i = 0; i < TEST_COUNT; i++)
        if (jinja_word_is(name, tests[i].name))
            return true;
    return false;
}

bool jinja_test(jinja_run *run, jinja_word name, jinja_value value,
                const jinja_arguments *arguments)
{
    for (size_t i = 0; i < TEST_COUNT; i++) {
        if (!jinja_word_is(name, tests[i].name))
            continue;
        if (arguments->count != tests[i].arguments)
            jinja_refuse(run, "%zu arguments for the test \"%s\"", arguments->count, tests[i].name);
        return tests[i].test(run, value, arguments);
    }
    jinja_refuse(run, "the test \"%.*s\" is not known", JINJA_SHOWN(name));
}

// --- Filters

typedef jinja_value (*filter_function)(jinja_run *run, jinja_value value,
                                       const jinja_arguments *arguments);

static jinja_value filter_trim(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const jinja_value set = jinja_argument(a, 0, "chars", jinja_none());
    return jinja_strip(run, jinja_written(run, v),
                       set.kind == JINJA_NONE ? NULL : jinja_written(run, set),
                       JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT);
}

static jinja_value filter_length(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_integer((int64_t)jinja_length(run, v));
}

static jinja_value filter_default(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const bool falsy = jinja_truth(jinja_argument(a, 1, "boolean", jinja_boolean(false)));
    if (v.kind == JINJA_UNDEFINED || (falsy && !jinja_truth(v)))
        return jinja_argument(a, 0, "default_value", jinja_literal(run, ""));
    return v;
}

static jinja_value filter_string(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return (jinja_value){.kind = JINJA_STRING, .as.string = jinja_written(run, v)};
}

static jinja_value filter_upper(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, jinja_written(run, v), JINJA_UPPER);
}

static jinja_value filter_lower(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, jinja_written(run, v), JINJA_LOWER);
}

static jinja_value filter_capitalize(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, jinja_written(run, v), JINJA_CAPITALIZE);
}

static jinja_value filter_title(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, jinja_written(run, v), JINJA_WORDS);
}

static jinja_value filter_replace(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    if (a->count < 2)
        jinja_refuse(run, "the filter \"replace\" needs two arguments");
    const jinja_value most = jinja_argument(a, 2, "count", jinja_none());
    return jinja_replace(run, jinja_written(run, v), string_argument(run, a, 0, "old", ""),
                         string_argument(run, a, 1, "new", ""),
                         most.kind == JINJA_NONE ? -1 : jinja_whole(run, most));
}

static jinja_value filter_join(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return jinja_join(run, string_argument(run, a, 0, "d", ""), jinja_items(run, v));
}

static jinja_value filter_list(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    return jinja_list_value(jinja_items(run, v));
}

static jinja_value filter_first(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    const jinja_list *items = jinja_items(run, v);
    return items->count > 0 ? items->items[0] : jinja_undefined();
}

static jinja_value filter_last(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    const jinja_list *items = jinja_items(run, v);
    return items->count > 0 ? items->items[items->count - 1] : jinja_undefined();
}

static jinja_value filter_reverse(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    const jinja_list *items = jinja_items(run, v);
    jinja_list *reversed = jinja_list_new(run, items->count);
    for (size_t i = 0; i < items->count; i++)
        reversed->items[i] = items->items[items->count - 1 - i];
    if (v.kind == JINJA_STRING)
        return jinja_join(run, jinja_literal(run, "").as.string, reversed);
    return jinja_list_value(reversed);
}

static jinja_value filter_int(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    if (v.kind == JINJA_INTEGER || v.kind == JINJA_BOOLEAN)
        return jinja_integer(jinja_whole(run, v));
    jinja_refuse(run, "the filter \"int\" of %s", jinja_kind_name(v.kind));
}

static jinja_value filter_abs(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    const int64_t value = jinja_whole(run, v);
    if (value == INT64_MIN)
        jinja_refuse(run, "a number is too large");
    return jinja_integer(value < 0 ? -value : value);
}

static jinja_value filter_items(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    (void)a;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_list_value(jinja_list_new(run, 0));
    if (v.kind != JINJA_MAPPING)
        jinja_refuse(run, "%s has no items", jinja_kind_name(v.kind));
    const jinja_mapping *mapping = v.as.mapping;
    jinja_list *list = jinja_list_new(run, mapping->count);
    for (size_t i = 0; i < list->count; i++)
        list->items[i] = jinja_pair(run, mapping->entries[i].key, mapping->entries[i].value);
    return jinja_list_value(list);
}

// By keys, which Jinja compares without regard to case; insertion keeps the order of equals.
static jinja_value filter_dictsort(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const jinja_value pairs = filter_items(run, v, a);
    const jinja_list *list = pairs.as.list;
    jinja_value *keys = jinja_run_take(run, list->count * sizeof *keys);
    for (size_t i = 0; i < list->count; i++) {
        const jinja_value pair = list->items[i];
        const jinja_value key = pair.as.list->items[0];
        const jinja_value folded =
            key.kind == JINJA_STRING ? jinja_recase(run, key.as.string, JINJA_LOWER) : key;
        size_t at = i;
        for (; at > 0 && jinja_order(run, keys[at - 1], folded) > 0; at--) {
            jinja_charge(run, 1);
            keys[at] = keys[at - 1];
            list->items[at] = list->items[at - 1];
        }
        keys[at] = folded;
        list->items[at] = pair;
    }
    return pairs;
}

static jinja_value filter_tojson(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const jinja_value indent = jinja_argument(a, 1, "indent", jinja_none());
    if (jinja_truth(jinja_argument(a, 0, "ensure_ascii", jinja_boolean(false))))
        jinja_refuse(run, "tojson with escapes outside ASCII");
    const int64_t spaces = indent.kind == JINJA_NONE ? -1 : jinja_whole(run, indent);
    if (indent.kind != JINJA_NONE && (spaces < 0 || spaces > 16))
        jinja_refuse(run, "tojson with an indent of %lld", (long long)spaces);
    return jinja_to_json(run, v, spaces);
}

static jinja_value filter_safe(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return filter_string(run, v, a);
}

// --- Filters that go over a list

// arguments[from ..] by position.
static jinja_arguments arguments_from(const jinja_arguments *a, size_t from)
{
    from = from < a->count ? from : a->count;
    return (jinja_arguments){a->values + from, a->names + from, a->count - from};
}

static jinja_word word_of(jinja_run *run, jinja_value value)
{
    const jinja_string *text = jinja_written(run, value);
    return (jinja_word){text->data, text->size};
}

// To these filters everything that is false is an empty list.
static const jinja_list *items_or_none(jinja_run *run, jinja_value value)
{
    return jinja_truth(value) ? jinja_items(run, value) : jinja_list_new(run, 0);
}

// Whether an item, or with `attribute` a member of it, passes the test in the arguments; without
// one whether it is true.
static bool is_selected(jinja_run *run, jinja_value item, bool attribute, const jinja_arguments *a)
{
    const size_t place = attribute;
    if (attribute) {
        if (a->count == 0)
            jinja_refuse(run, "a selection by no attribute");
        item = jinja_item(run, item, a->values[0]);
    }
    if (a->count <= place)
        return jinja_truth(item);
    const jinja_word test = word_of(run, a->values[place]);
    const jinja_arguments rest = arguments_from(a, place + 1);
    if (!jinja_has_test(test))
        jinja_refuse(run, "the test \"%.*s\" is not known", JINJA_SHOWN(test));
    return jinja_test(run, test, item, &rest);
}

static jinja_value select_items(jinja_run *run, jinja_value v, const jinja_arguments *a,
                                bool attribute, bool wanted)
{
    const jinja_list *items = items_or_none(run, v);
    jinja_list *selected = jinja_list_new(run, items->count);
    selected->count = 0;
    for (size_t i = 0; i < items->count; i++)
        if (is_selected(run, items->items[i], attribute, a) == wanted)
            selected->items[selected->count++] = items->items[i];
    return jinja_list_value(selected);
}

static jinja_value filter_select(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return select_items(run, v, a, false, true);
}

static jinja_value filter_reject(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return select_items(run, v, a, false, false);
}

static jinja_value filter_selectattr(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return select_items(run, v, a, true, true);
}

static jinja_value filter_rejectattr(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    return select_items(run, v, a, true, false);
}

static jinja_value filter_map(jinja_run *run, jinja_value v, const jinja_arguments *a)
{
    const jinja_list *items = items_or_none(run, v);
    const jinja_value attribute = jinja_argument(a, SIZE_MAX, "attribute", jinja_undefined());
    jinja_list *mapped = jinja_list_new(run, items->count);
    if (a->count == 0)
        jinja_refuse(run, "the filter \"map\" without an argument");
    const jinja_arguments rest = arguments_from(a, 1);
    for (size_t i = 0; i < items->count; i++)
        mapped->items[i] =
            attribute.kind == JINJA_UNDEFINED
                ? jinja_filter(run, word_of(run, a->values[0]), items->items[i], &rest)
                : jinja_item(run, items->items[i], attribute);
    return jinja_list_value(mapped);
}

// --- All filters

static const struct {
    const char *name;
    filter_function filter;
    size_t most; // arguments
    const char *names[3];
} filters[] = {
    {"trim", filter_trim, 1, {"chars"}},
    {"length", filter_length, 0, {0}},
    {"count", filter_length, 0, {0}},
    {"default", filter_default, 2, {"default_value", "boolean"}},
    {"d", filter_default, 2, {"default_value", "boolean"}},
    {"string", filter_string, 0, {0}},
    {"safe", filter_safe, 0, {0}},
    {"upper", filter_upper, 0, {0}},
    {"lower", filter_lower, 0, {0}},
    {"capitalize", filter_capitalize, 0, {0}},
    {"title", filter_title, 0, {0}},
    {"replace", filter_replace, 3, {"count"}},
    {"join", filter_join, 1, {"d"}},
    {"list", filter_list, 0, {0}},
    {"first", filter_first, 0, {0}},
    {"last", filter_last, 0, {0}},
    {"reverse", filter_reverse, 0, {0}},
    {"int", filter_int, 0, {0}},
    {"abs", filter_abs, 0, {0}},
    {"items", filter_items, 0, {0}},
    {"dictsort", filter_dictsort, 0, {0}},
    {"tojson", filter_tojson, 2, {"ensure_ascii", "indent"}},
    {"select", filter_select, 2, {0}},
    {"reject", filter_reject, 2, {0}},
    {"selectattr", filter_selectattr, 3, {0}},
    {"rejectattr", filter_rejectattr, 3, {0}},
    {"map", filter_map, 4, {"attribute"}},
};

#define FILTER_COUNT (sizeof filters / sizeof *filters)

static size_t find_filter(jinja_word name)
{
    size_t i = 0;
    while (i < FILTER_COUNT && !jinja_word_is(name, filters[i].name))
        i++;
    return i;
}

bool jinja_has_filter(jinja_word name)
{
    return find_filter(name) < FILTER_COUNT;
}

jinja_value jinja_filter(jinja_run *run, jinja_word name, jinja_value value,
                         const jinja_arguments *arguments)
{
    const size_t i = find_filter(name);
    if (i == FILTER_COUNT)
        jinja_refuse(run, "the filter \"%.*s\" is not known", JINJA_SHOWN(name));
    jinja_enter(run); // "map" may call itself
    jinja_check_arguments(run, arguments, filters[i].name, filters[i].most, filters[i].names);
    const jinja_value result = filters[i].filter(run, value, arguments);
    run->depth--;
    return result;
}
