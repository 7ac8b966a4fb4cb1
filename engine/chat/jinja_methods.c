// SPDX-License-Identifier: MIT
// Methods of strings and mappings, and global functions.
#include "engine/chat/jinja_internal.h"

#include <string.h>
#include <time.h>

// --- Methods of strings

typedef jinja_value (*text_method)(jinja_run *run, const jinja_string *text,
                                   const jinja_arguments *arguments);

static const jinja_string *string_at(jinja_run *run, const jinja_arguments *a, size_t place)
{
    const jinja_value value = jinja_argument(a, place, NULL, jinja_undefined());
    if (value.kind != JINJA_STRING)
        jinja_refuse(run, "%s where a string is needed", jinja_kind_name(value.kind));
    return value.as.string;
}

// None and nothing mean the same.
static const jinja_string *optional_string(jinja_run *run, const jinja_arguments *a, size_t place,
                                           const char *name)
{
    const jinja_value value = jinja_argument(a, place, name, jinja_none());
    if (value.kind == JINJA_NONE)
        return NULL;
    if (value.kind != JINJA_STRING)
        jinja_refuse(run, "%s where a string is needed", jinja_kind_name(value.kind));
    return value.as.string;
}

static int64_t count_at(jinja_run *run, const jinja_arguments *a, size_t place, const char *name)
{
    return jinja_whole(run, jinja_argument(a, place, name, jinja_integer(-1)));
}

static jinja_value text_strip(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return jinja_strip(run, text, optional_string(run, a, 0, NULL),
                       JINJA_STRIP_LEFT | JINJA_STRIP_RIGHT);
}

static jinja_value text_lstrip(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return jinja_strip(run, text, optional_string(run, a, 0, NULL), JINJA_STRIP_LEFT);
}

static jinja_value text_rstrip(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return jinja_strip(run, text, optional_string(run, a, 0, NULL), JINJA_STRIP_RIGHT);
}

static jinja_value text_split(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return jinja_split(run, text, optional_string(run, a, 0, "sep"),
                       count_at(run, a, 1, "maxsplit"));
}

static jinja_value text_replace(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return jinja_replace(run, text, string_at(run, a, 0), string_at(run, a, 1),
                         count_at(run, a, 2, "count"));
}

static jinja_value text_upper(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, text, JINJA_UPPER);
}

static jinja_value text_lower(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, text, JINJA_LOWER);
}

static jinja_value text_capitalize(jinja_run *run, const jinja_string *text,
                                   const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, text, JINJA_CAPITALIZE);
}

static jinja_value text_title(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    (void)a;
    return jinja_recase(run, text, JINJA_TITLE);
}

static bool has_affix(jinja_run *run, const jinja_string *text, jinja_value affix, bool at_end)
{
    if (affix.kind != JINJA_STRING)
        jinja_refuse(run, "%s where a string is needed", jinja_kind_name(affix.kind));
    const size_t size = affix.as.string->size;
    if (size > text->size)
        return false;
    jinja_charge(run, size / 16);
    const char *where = text->data + (at_end ? text->size - size : 0);
    return size == 0 || memcmp(where, affix.as.string->data, size) == 0;
}

// The affix may be a tuple of several.
static jinja_value has_any_affix(jinja_run *run, const jinja_string *text, const jinja_arguments *a,
                                 bool at_end)
{
    const jinja_value affix = jinja_argument(a, 0, NULL, jinja_undefined());
    if (affix.kind != JINJA_LIST)
        return jinja_boolean(has_affix(run, text, affix, at_end));
    if (!affix.as.list->tuple)
        jinja_refuse(run, "a list where a string or a tuple is needed");
    for (size_t i = 0; i < affix.as.list->count; i++)
        if (has_affix(run, text, affix.as.list->items[i], at_end))
            return jinja_boolean(true);
    return jinja_boolean(false);
}

static jinja_value text_startswith(jinja_run *run, const jinja_string *text,
                                   const jinja_arguments *a)
{
    return has_any_affix(run, text, a, false);
}

static jinja_value text_endswith(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    return has_any_affix(run, text, a, true);
}

static jinja_value text_find(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    jinja_charge(run, text->size / 4);
    const size_t found = jinja_find(text, string_at(run, a, 0), 0);
    if (found == SIZE_MAX)
        return jinja_integer(-1);
    const jinja_string before = {text->data, NULL, found};
    return jinja_integer((int64_t)jinja_characters(&before));
}

static jinja_value text_count(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    const jinja_string *part = string_at(run, a, 0);
    int64_t count = 0;
    if (part->size == 0)
        jinja_refuse(run, "counting empty strings");
    jinja_charge(run, text->size / 4);
    for (size_t at = 0; (at = jinja_find(text, part, at)) != SIZE_MAX; at += part->size)
        count++;
    return jinja_integer(count);
}

static jinja_value text_join(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    const jinja_list *items = jinja_items(run, jinja_argument(a, 0, NULL, jinja_undefined()));
    for (size_t i = 0; i < items->count; i++)
        if (items->items[i].kind != JINJA_STRING)
            jinja_refuse(run, "%s where a string is needed", jinja_kind_name(items->items[i].kind));
    return jinja_join(run, text, items);
}

// The arguments in the places of `{}`.
static jinja_value text_format(jinja_run *run, const jinja_string *text, const jinja_arguments *a)
{
    static const jinja_string hole = {"{}", NULL, 2};
    const jinja_list *parts = jinja_split(run, text, &hole, -1).as.list;
    const jinja_string **all = jinja_run_take(run, 2 * parts->count * sizeof(jinja_string *));
    if (parts->count != a->count + 1)
        jinja_refuse(run, "format with %zu values for %zu places", a->count, parts->count - 1);
    for (size_t i = 0; i < parts->count; i++) {
        all[2 * i] = parts->items[i].as.string;
        if (memchr(all[2 * i]->data, '{', all[2 * i]->size) ||
            memchr(all[2 * i]->data, '}', all[2 * i]->size))
            jinja_refuse(run, "format with braces other than {}");
        if (i < a->count)
            all[2 * i + 1] = jinja_written(run, a->values[i]);
    }
    return jinja_joined(run, all, 2 * parts->count - 1);
}

static jinja_value text_removeprefix(jinja_run *run, const jinja_string *text,
                                     const jinja_arguments *a)
{
    const jinja_string *prefix = string_at(run, a, 0);
    const jinja_value value = {.kind = JINJA_STRING, .as.string = prefix};
    return jinja_part(run, text, has_affix(run, text, value, false) ? prefix->size : 0, text->size);
}

static jinja_value text_removesuffix(jinja_run *run, const jinja_string *text,
                                     const jinja_arguments *a)
{
    const jinja_string *suffix = string_at(run, a, 0);
    const jinja_value value = {.kind = JINJA_STRING, .as.string = suffix};
    return jinja_part(run, text, 0,
                      text->size - (has_affix(run, text, value, true) ? suffix->size : 0));
}

static const struct {
    const char *name;
    text_method method;
    size_t least, most; // arguments
    const char *names[3];
} text_methods[] = {
    {"strip", text_strip, 0, 1, {0}},
    {"lstrip", text_lstrip, 0, 1, {0}},
    {"rstrip", text_rstrip, 0, 1, {0}},
    {"split", text_split, 0, 2, {"sep", "maxsplit"}},
    {"replace", text_replace, 2, 3, {"count"}},
    {"upper", text_upper, 0, 0, {0}},
    {"lower", text_lower, 0, 0, {0}},
    {"capitalize", text_capitalize, 0, 0, {0}},
    {"title", text_title, 0, 0, {0}},
    {"startswith", text_startswith, 1, 1, {0}},
    {"endswith", text_endswith, 1, 1, {0}},
    {"find", text_find, 1, 1, {0}},
    {"count", text_count, 1, 1, {0}},
    {"join", text_join, 1, 1, {0}},
    {"format", text_format, 0, 8, {0}},
    {"removeprefix", text_removeprefix, 1, 1, {0}},
    {"removesuffix", text_removesuffix, 1, 1, {0}},
};

#define TEXT_METHOD_COUNT (sizeof text_methods / sizeof *text_methods)

static jinja_value call_text_method(jinja_run *run, const jinja_string *text, jinja_word name,
                                    const jinja_arguments *a)
{
    for (size_t i = 0; i < TEXT_METHOD_COUNT; i++) {
        if (!jinja_word_is(name, text_methods[i].name))
            continue;
        jinja_check_arguments(run, a, text_methods[i].name, text_methods[i].most,
                              text_methods[i].names);
        if (a->count < text_methods[i].least)
            jinja_refuse(run, "%zu arguments for %s", a->count, text_methods[i].name);
        return text_methods[i].method(run, text, a);
    }
    jinja_refuse(run, "the method \"%.*s\" of a string is not known", JINJA_SHOWN(name));
}

// --- Methods of mappings

bool jinja_is_mapping_method(jinja_word name)
{
    static const char *const names[] = {"get",    "items",      "keys",    "values",
                                        "copy",   "clear",      "pop",     "popitem",
                                        "update", "setdefault", "fromkeys"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (jinja_word_is(name, names[i]))
            return true;
    return false;
}

static jinja_value mapping_get(jinja_run *run, jinja_value object, const jinja_arguments *a)
{
    jinja_check_arguments(run, a, "get", 2, NULL);
    if (a->count == 0)
        jinja_refuse(run, "get without a key");
    const jinja_value *found = jinja_mapping_find(run, object.as.mapping, a->values[0]);
    return found ? *found : jinja_argument(a, 1, NULL, jinja_none());
}

static jinja_value call_mapping_method(jinja_run *run, jinja_value object, jinja_word name,
                                       const jinja_arguments *a)
{
    static const jinja_arguments none = {0};
    if (jinja_word_is(name, "get"))
        return mapping_get(run, object, a);
    if (a->count == 0 && jinja_word_is(name, "items"))
        return jinja_filter(run, (jinja_word){"items", 5}, object, &none);
    if (a->count == 0 && jinja_word_is(name, "keys"))
        return jinja_list_value(jinja_items(run, object));
    if (a->count == 0 && jinja_word_is(name, "values")) {
        jinja_list *values = jinja_list_new(run, object.as.mapping->count);
        for (size_t i = 0; i < values->count; i++)
            values->items[i] = object.as.mapping->entries[i].value;
        return jinja_list_value(values);
    }
    jinja_refuse(run, "the method \"%.*s\" of a mapping is not known", JINJA_SHOWN(name));
}

jinja_value jinja_call_method(jinja_run *run, jinja_value object, jinja_word name,
                              const jinja_arguments *arguments)
{
    if (object.kind == JINJA_STRING)
        return call_text_method(run, object.as.string, name, arguments);
    if (object.kind == JINJA_MAPPING)
        return call_mapping_method(run, object, name, arguments);
    jinja_refuse(run, "the method \"%.*s\" of %s is not known", JINJA_SHOWN(name),
                 jinja_kind_name(object.kind));
}

// --- Functions

static jinja_value new_mapping(jinja_run *run, const jinja_arguments *a, jinja_kind kind)
{
    const jinja_value mapping = jinja_mapping_new(run, kind);
    for (size_t i = 0; i < a->count; i++) {
        if (!a->names[i].data)
            jinja_refuse(run, "a namespace or mapping from a value without a name");
        jinja_mapping_set(run, mapping.as.mapping,
                          jinja_text(run, a->names[i].data, a->names[i].bytes), a->values[i]);
    }
    return mapping;
}

static jinja_value function_namespace(jinja_run *run, const jinja_arguments *a)
{
    return new_mapping(run, a, JINJA_NAMESPACE);
}

static jinja_value function_dict(jinja_run *run, const jinja_arguments *a)
{
    return new_mapping(run, a, JINJA_MAPPING);
}

static jinja_value function_range(jinja_run *run, const jinja_arguments *a)
{
    jinja_check_arguments(run, a, "range", 3, NULL);
    if (a->count == 0)
        jinja_refuse(run, "range without an end");
    const int64_t first = a->count > 1 ? jinja_whole(run, a->values[0]) : 0;
    const int64_t end = jinja_whole(run, a->values[a->count > 1]);
    const int64_t step = a->count > 2 ? jinja_whole(run, a->values[2]) : 1;
    const int64_t most = INT32_MAX;
    if (step == 0 || first < -most || first > most || end < -most || end > most || step < -most ||
        step > most)
        jinja_refuse(run, "a range from %lld to %lld by %lld", (long long)first, (long long)end,
                     (long long)step);
    int64_t count = step > 0 ? (end - first + step - 1) / step : (first - end - step - 1) / -step;
    count = count < 0 ? 0 : count;
    jinja_list *list = jinja_list_new(run, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        list->items[i] = jinja_integer(first + i * step);
    return jinja_list_value(list);
}

_Noreturn static jinja_value function_raise(jinja_run *run, const jinja_arguments *a)
{
    const jinja_string *text =
        jinja_written(run, jinja_argument(a, 0, "message", jinja_undefined()));
    jinja_fail(&run->trap, KVERN_ERR_ARGUMENT, 0, "the chat template refuses these messages: %.*s",
               (int)(text->size < 300 ? text->size : 300), text->data);
}

static jinja_value function_strftime(jinja_run *run, const jinja_arguments *a)
{
    char format[64], text[256];
    const jinja_value wanted = jinja_argument(a, 0, "format", jinja_undefined());
    const time_t now = (time_t)run->input->now;
    struct tm parts;
    if (a->count != 1 || wanted.kind != JINJA_STRING || wanted.as.string->size >= sizeof format ||
        memchr(wanted.as.string->data, '\0', wanted.as.string->size) || !localtime_r(&now, &parts))
        jinja_refuse(run, "strftime_now of this format");
    memcpy(format, wanted.as.string->data, wanted.as.string->size);
    format[wanted.as.string->size] = '\0';
    const size_t size = strftime(text, sizeof text, format, &parts);
    char *copy = jinja_run_take(run, size);
    memcpy(copy, text, size);
    return jinja_text(run, copy, size);
}

static const struct {
    const char *name;
    jinja_value (*function)(jinja_run *run, const jinja_arguments *arguments);
} functions[] = {
    {"namespace", function_namespace},   {"dict", function_dict},
    {"range", function_range},           {"raise_exception", function_raise},
    {"strftime_now", function_strftime},
};

#define FUNCTION_COUNT (sizeof functions / sizeof *functions)

const char *jinja_function(jinja_word name)
{
    for (size_t i = 0; i < FUNCTION_COUNT; i++)
        if (jinja_word_is(name, functions[i].name))
            return functions[i].name;
    return NULL;
}

jinja_value jinja_call_function(jinja_run *run, const char *name, const jinja_arguments *arguments)
{
    size_t i = 0;
    while (functions[i].name != name)
        i++;
    return functions[i].function(run, arguments);
}
