// SPDX-License-Identifier: MIT
// Memory, failure, and what values are: all of them are made in the arena of a rendering and are
// not changed afterwards, but for namespaces.
#include "engine/chat/jinja_internal.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- Arena

#define CHUNK_BYTES ((size_t)16 << 10)

struct jinja_chunk {
    jinja_chunk *older;
    size_t size;
    alignas(max_align_t) char bytes[];
};

void *jinja_arena_take(jinja_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    const size_t align = alignof(max_align_t);
    const size_t wanted = (bytes + align) / align * align;
    if (!arena->chunks || arena->chunks->size - arena->used < wanted) {
        const size_t size = wanted > CHUNK_BYTES ? wanted : CHUNK_BYTES;
        jinja_chunk *chunk = calloc(1, sizeof *chunk + size);
        if (!chunk)
            return NULL;
        *chunk = (jinja_chunk){.older = arena->chunks, .size = size};
        arena->chunks = chunk;
        arena->used = 0;
    }
    void *taken = arena->chunks->bytes + arena->used;
    arena->used += wanted;
    return taken;
}

void jinja_arena_free(jinja_arena *arena)
{
    while (arena->chunks) {
        jinja_chunk *older = arena->chunks->older;
        free(arena->chunks);
        arena->chunks = older;
    }
    arena->used = 0;
}

// --- Failure

void jinja_fail(jinja_trap *trap, kvern_status status, unsigned line, const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++) // words of a file and of messages
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = *c == '\n' || *c == '\t' ? ' ' : '?';
    if (line > 0)
        trap->status =
            engine_fail(trap->error, status, "the chat template, line %u: %s", line, text);
    else
        trap->status = engine_fail(trap->error, status, "%s", text);
    longjmp(trap->jump, 1);
}

void *jinja_take(jinja_trap *trap, jinja_arena *arena, size_t bytes)
{
    void *taken = jinja_arena_take(arena, bytes);
    if (!taken)
        jinja_fail(trap, KVERN_ERR_MEMORY, 0, "no memory for a chat template");
    return taken;
}

void jinja_charge(jinja_run *run, size_t steps)
{
    if (steps > run->steps)
        jinja_refuse(run, "this asks for more work than a chat template may do");
    run->steps -= steps;
}

void jinja_hold(jinja_run *run, size_t bytes)
{
    if (bytes > run->memory)
        jinja_refuse(run, "this asks for more memory than a chat template may take");
    run->memory -= bytes;
}

void *jinja_run_take(jinja_run *run, size_t bytes)
{
    jinja_charge(run, bytes / 16 + 1);
    jinja_hold(run, bytes);
    return jinja_take(&run->trap, &run->arena, bytes);
}

// --- Simple values

jinja_value jinja_undefined(void)
{
    return (jinja_value){.kind = JINJA_UNDEFINED};
}

jinja_value jinja_none(void)
{
    return (jinja_value){.kind = JINJA_NONE};
}

jinja_value jinja_boolean(bool value)
{
    return (jinja_value){.kind = JINJA_BOOLEAN, .as.boolean = value};
}

jinja_value jinja_integer(int64_t value)
{
    return (jinja_value){.kind = JINJA_INTEGER, .as.integer = value};
}

jinja_value jinja_real(double value)
{
    return (jinja_value){.kind = JINJA_REAL, .as.real = value};
}

// --- Strings

static jinja_value string_value(jinja_run *run, const char *data, const unsigned char *origins,
                                size_t size)
{
    jinja_string *string = jinja_run_take(run, sizeof *string);
    *string = (jinja_string){data, origins, size};
    return (jinja_value){.kind = JINJA_STRING, .as.string = string};
}

jinja_value jinja_text(jinja_run *run, const char *data, size_t size)
{
    return string_value(run, data, NULL, size);
}

jinja_value jinja_literal(jinja_run *run, const char *text)
{
    return jinja_text(run, text, strlen(text));
}

jinja_value jinja_text_from(jinja_run *run, const char *data, size_t size, jinja_origin origin)
{
    unsigned char *origins = jinja_run_take(run, size);
    memset(origins, (int)origin, size);
    return string_value(run, data, origins, size);
}

jinja_value jinja_part(jinja_run *run, const jinja_string *text, size_t begin, size_t end)
{
    return string_value(run, text->data + begin, text->origins ? text->origins + begin : NULL,
                        end - begin);
}

jinja_value jinja_joined(jinja_run *run, const jinja_string *const *parts, size_t count)
{
    size_t size = 0;
    bool mixed = false;
    for (size_t i = 0; i < count; i++) {
        size += parts[i]->size; // the sum of what exists; repeats are charged before
        mixed = mixed || parts[i]->origins;
    }
    char *data = jinja_run_take(run, size);
    unsigned char *origins = mixed ? jinja_run_take(run, size) : NULL;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i]->size == 0)
            continue;
        memcpy(data + at, parts[i]->data, parts[i]->size);
        if (parts[i]->origins)
            memcpy(origins + at, parts[i]->origins, parts[i]->size);
        at += parts[i]->size;
    }
    return string_value(run, data, origins, size);
}

jinja_value jinja_concatenate(jinja_run *run, const jinja_string *a, const jinja_string *b)
{
    return jinja_joined(run, (const jinja_string *const[]){a, b}, 2);
}

jinja_value jinja_output_text(jinja_run *run, const jinja_result *output)
{
    const size_t size = output->text.size;
    const jinja_string whole = {output->text.data, (unsigned char *)output->origins.data, size};
    const jinja_string *const parts[] = {&whole};
    return jinja_joined(run, parts, size > 0);
}

// --- Lists and mappings

jinja_list *jinja_list_new(jinja_run *run, size_t count)
{
    jinja_charge(run, count);
    jinja_list *list = jinja_run_take(run, sizeof *list);
    *list = (jinja_list){jinja_run_take(run, count * sizeof *list->items), count, false};
    return list;
}

jinja_value jinja_list_value(const jinja_list *list)
{
    return (jinja_value){.kind = JINJA_LIST, .as.list = list};
}

jinja_value jinja_pair(jinja_run *run, jinja_value first, jinja_value second)
{
    jinja_list *pair = jinja_list_new(run, 2);
    pair->items[0] = first;
    pair->items[1] = second;
    pair->tuple = true;
    return jinja_list_value(pair);
}

jinja_value jinja_mapping_new(jinja_run *run, jinja_kind kind)
{
    return (jinja_value){.kind = kind, .as.mapping = jinja_run_take(run, sizeof(jinja_mapping))};
}

static jinja_value *find_entry(jinja_run *run, const jinja_mapping *mapping, jinja_value key)
{
    jinja_charge(run, mapping->count + 1);
    for (size_t i = 0; i < mapping->count; i++)
        if (jinja_equal(run, mapping->entries[i].key, key))
            return &mapping->entries[i].value;
    return NULL;
}

const jinja_value *jinja_mapping_find(jinja_run *run, const jinja_mapping *mapping, jinja_value key)
{
    return find_entry(run, mapping, key);
}

void jinja_mapping_set(jinja_run *run, jinja_mapping *mapping, jinja_value key, jinja_value value)
{
    jinja_value *there = find_entry(run, mapping, key);
    if (there) {
        *there = value;
        return;
    }
    if (mapping->count == mapping->capacity) {
        const size_t capacity = mapping->capacity * 2 + 4;
        jinja_entry *entries = jinja_run_take(run, capacity * sizeof *entries);
        if (mapping->count > 0)
            memcpy(entries, mapping->entries, mapping->count * sizeof *entries);
        mapping->entries = entries;
        mapping->capacity = capacity;
    }
    mapping->entries[mapping->count++] = (jinja_entry){key, value};
}

// --- What all values have

const char *jinja_kind_name(jinja_kind kind)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "an undefined value",
        [JINJA_NONE] = "none",
        [JINJA_BOOLEAN] = "a boolean",
        [JINJA_INTEGER] = "an integer",
        [JINJA_REAL] = "a number",
        [JINJA_STRING] = "a string",
        [JINJA_LIST] = "a list",
        [JINJA_MAPPING] = "a mapping",
        [JINJA_NAMESPACE] = "a namespace",
        [JINJA_LOOP] = "a loop",
        [JINJA_MACRO] = "a macro",
        [JINJA_FUNCTION] = "a function",
    };
    return names[kind];
}

bool jinja_word_is(jinja_word word, const char *text)
{
    return word.data && strlen(text) == word.bytes && memcmp(word.data, text, word.bytes) == 0;
}

bool jinja_is_text(jinja_value value, const char *text)
{
    return value.kind == JINJA_STRING &&
           jinja_word_is((jinja_word){value.as.string->data, value.as.string->size}, text);
}

size_t jinja_length(jinja_run *run, jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_STRING:
        jinja_charge(run, value.as.string->size / 16);
        return jinja_characters(value.as.string);
    case JINJA_LIST:
        return value.as.list->count;
    case JINJA_MAPPING:
        return value.as.mapping->count;
    default:
        jinja_refuse(run, "%s has no length", jinja_kind_name(value.kind));
    }
}

bool jinja_truth(jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOLEAN:
        return value.as.boolean;
    case JINJA_INTEGER:
        return value.as.integer != 0;
    case JINJA_REAL:
        return value.as.real != 0;
    case JINJA_STRING:
        return value.as.string->size > 0;
    case JINJA_LIST:
        return value.as.list->count > 0;
    case JINJA_MAPPING:
        return value.as.mapping->count > 0;
    default:
        return true;
    }
}

static bool is_number(jinja_value v)
{
    return v.kind == JINJA_BOOLEAN || v.kind == JINJA_INTEGER || v.kind == JINJA_REAL;
}

static double as_real(jinja_value v)
{
    return v.kind == JINJA_REAL      ? v.as.real
           : v.kind == JINJA_BOOLEAN ? (double)v.as.boolean
                                     : (double)v.as.integer;
}

static int64_t as_integer(jinja_value v)
{
    return v.kind == JINJA_BOOLEAN ? v.as.boolean : v.as.integer;
}

static int order_of_numbers(jinja_value a, jinja_value b)
{
    if (a.kind == JINJA_REAL || b.kind == JINJA_REAL) {
        const double x = as_real(a), y = as_real(b);
        return x < y ? -1 : x > y;
    }
    const int64_t x = as_integer(a), y = as_integer(b);
    return x < y ? -1 : x > y;
}

static int order_of_strings(jinja_run *run, const jinja_string *a, const jinja_string *b)
{
    const size_t common = a->size < b->size ? a->size : b->size;
    jinja_charge(run, common / 16);
    const int order = common > 0 ? memcmp(a->data, b->data, common) : 0;
    return order != 0 ? order : a->size < b->size ? -1 : a->size > b->size;
}

static bool equal_lists(jinja_run *run, const jinja_list *a, const jinja_list *b)
{
    if (a->count != b->count || a->tuple != b->tuple)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!jinja_equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_mappings(jinja_run *run, const jinja_mapping *a, const jinja_mapping *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const jinja_value *other = jinja_mapping_find(run, b, a->entries[i].key);
        if (!other || !jinja_equal(run, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_of_one_kind(jinja_run *run, jinja_value a, jinja_value b)
{
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return true;
    case JINJA_STRING:
        return a.as.string->size == b.as.string->size &&
               order_of_strings(run, a.as.string, b.as.string) == 0;
    case JINJA_LIST:
        return equal_lists(run, a.as.list, b.as.list);
    case JINJA_MAPPING:
        return equal_mappings(run, a.as.mapping, b.as.mapping);
    default:
        return a.as.mapping == b.as.mapping; // the same object
    }
}

bool jinja_equal(jinja_run *run, jinja_value a, jinja_value b)
{
    if (is_number(a) && is_number(b))
        return order_of_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    jinja_enter(run);
    const bool equal = equal_of_one_kind(run, a, b);
    run->depth--;
    return equal;
}

int jinja_order(jinja_run *run, jinja_value a, jinja_value b)
{
    if (is_number(a) && is_number(b))
        return order_of_numbers(a, b);
    if (a.kind != JINJA_STRING || b.kind != JINJA_STRING)
        jinja_refuse(run, "%s and %s have no order", jinja_kind_name(a.kind),
                     jinja_kind_name(b.kind));
    return order_of_strings(run, a.as.string, b.as.string);
}

bool jinja_contains(jinja_run *run, jinja_value container, jinja_value item)
{
    if (container.kind == JINJA_STRING) {
        if (item.kind != JINJA_STRING)
            jinja_refuse(run, "%s cannot be in a string", jinja_kind_name(item.kind));
        jinja_charge(run, container.as.string->size / 16);
        return jinja_find(container.as.string, item.as.string, 0) != SIZE_MAX;
    }
    if (container.kind == JINJA_MAPPING)
        return jinja_mapping_find(run, container.as.mapping, item) != NULL;
    const jinja_list *items = jinja_items(run, container);
    jinja_charge(run, items->count);
    for (size_t i = 0; i < items->count; i++)
        if (jinja_equal(run, items->items[i], item))
            return true;
    return false;
}

static const jinja_string *written_number(jinja_run *run, jinja_value value)
{
    char text[40];
    if (value.kind == JINJA_INTEGER) {
        snprintf(text, sizeof text, "%lld", (long long)value.as.integer);
    } else {
        // The fewest digits that give the number back.
        int digits = 1;
        do
            snprintf(text, sizeof text, "%.*g", digits, value.as.real);
        while (strtod(text, NULL) != value.as.real && ++digits <= 17);
        if (strpbrk(text, "ein"))
            jinja_refuse(run, "the number %s cannot be written", text);
        if (!strchr(text, '.'))
            strcat(text, ".0");
    }
    const size_t size = strlen(text);
    char *copy = jinja_run_take(run, size + 1);
    memcpy(copy, text, size + 1);
    return jinja_text(run, copy, size).as.string;
}

const jinja_string *jinja_written(jinja_run *run, jinja_value value)
{
    switch (value.kind) {
    case JINJA_STRING:
        return value.as.string;
    case JINJA_UNDEFINED:
        return jinja_literal(run, "").as.string;
    case JINJA_NONE:
        return jinja_literal(run, "None").as.string;
    case JINJA_BOOLEAN:
        return jinja_literal(run, value.as.boolean ? "True" : "False").as.string;
    case JINJA_INTEGER:
    case JINJA_REAL:
        return written_number(run, value);
    default:
        jinja_refuse(run, "%s cannot be written as it is", jinja_kind_name(value.kind));
    }
}

const jinja_list *jinja_items(jinja_run *run, jinja_value value)
{
    jinja_list *list;
    switch (value.kind) {
    case JINJA_LIST:
        return value.as.list;
    case JINJA_UNDEFINED:
        return jinja_list_new(run, 0);
    case JINJA_STRING:
        return jinja_spell(run, value.as.string);
    case JINJA_MAPPING:
        list = jinja_list_new(run, value.as.mapping->count);
        for (size_t i = 0; i < list->count; i++)
            list->items[i] = value.as.mapping->entries[i].key;
        return list;
    default:
        jinja_refuse(run, "%s cannot be gone over", jinja_kind_name(value.kind));
    }
}

int64_t jinja_whole(jinja_run *run, jinja_value value)
{
    if (value.kind != JINJA_INTEGER && value.kind != JINJA_BOOLEAN)
        jinja_refuse(run, "%s where an integer is needed", jinja_kind_name(value.kind));
    return as_integer(value);
}
