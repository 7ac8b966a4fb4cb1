// SPDX-License-Identifier: MIT
// Operations on strings. They count characters as Python does; a byte that is no part of a
// character counts as one.
#include "engine/base/utf8.h"
#include "engine/chat/jinja_internal.h"

#include <string.h>

static size_t character_at(const jinja_string *text, size_t at)
{
    size_t length;
    utf8_next(text->data + at, text->size - at, &length);
    return length;
}

size_t jinja_space_at(const char *text, size_t bytes)
{
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };
    const char first = bytes > 0 ? text[0] : 'x';
    if (first == ' ' || (first >= '\t' && first <= '\r') || (first >= 0x1c && first <= 0x1f))
        return 1;
    for (size_t i = 0; (unsigned char)first >= 0xc2 && i < sizeof wide / sizeof *wide; i++) {
        const size_t size = strlen(wide[i]);
        if (bytes >= size && memcmp(text, wide[i], size) == 0)
            return size;
    }
    return 0;
}

size_t jinja_space_before(const char *text, size_t bytes)
{
    for (size_t size = 1; size <= 3 && size <= bytes; size++)
        if (jinja_space_at(text + bytes - size, size) == size)
            return size;
    return 0;
}

// --- Taking off

// Whether the character text[at .. at + size) is one of a set, or with NULL white space.
static bool is_stripped(const jinja_string *text, size_t at, size_t size, const jinja_string *set)
{
    if (!set)
        return jinja_space_at(text->data + at, size) == size;
    for (size_t i = 0, length; i < set->size; i += length) {
        length = character_at(set, i);
        if (length == size && memcmp(set->data + i, text->data + at, size) == 0)
            return true;
    }
    return false;
}

// The bytes of the last character of text[0 .. end).
static size_t last_character(const jinja_string *text, size_t end)
{
    size_t begin = end > 4 ? end - 4 : 0;
    while (begin < end) {
        size_t length;
        const utf8_kind kind = utf8_next(text->data + begin, end - begin, &length);
        if (kind == UTF8_VALID && begin + length == end)
            return length;
        begin++;
    }
    return 1;
}

jinja_value jinja_strip(jinja_run *run, const jinja_string *text, const jinja_string *set,
                        unsigned sides)
{
    size_t begin = 0, end = text->size;
    jinja_charge(run, text->size / 4 * (set ? set->size + 1 : 1));
    while ((sides & JINJA_STRIP_LEFT) && begin < end) {
        const size_t size = character_at(text, begin);
        if (!is_stripped(text, begin, size, set))
            break;
        begin += size;
    }
    while ((sides & JINJA_STRIP_RIGHT) && begin < end) {
        const size_t size = last_character(text, end);
        if (!is_stripped(text, end - size, size, set))
            break;
        end -= size;
    }
    return jinja_part(run, text, begin, end);
}

// --- Upper and lower case

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// Whether a character with this one before it begins a word.
static bool begins_word(char before, jinja_case wanted)
{
    if (wanted == JINJA_TITLE)
        return upper(before) == lower(before);
    return wanted == JINJA_WORDS && (jinja_space_at(&before, 1) || strchr("-({[<", before));
}

jinja_value jinja_recase(jinja_run *run, const jinja_string *text, jinja_case wanted)
{
    char *data = jinja_run_take(run, text->size);
    for (size_t i = 0; i < text->size; i++) {
        const char c = text->data[i];
        if ((unsigned char)c >= 0x80)
            jinja_refuse(run, "changing the case of characters outside ASCII");
        const bool first = i == 0 || begins_word(text->data[i - 1], wanted);
        const bool up = wanted == JINJA_UPPER || (wanted != JINJA_LOWER && first);
        data[i] = up ? upper(c) : lower(c);
    }
    const jinja_string changed = {data, text->origins, text->size};
    return jinja_part(run, &changed, 0, text->size);
}

// --- Searching

size_t jinja_find(const jinja_string *text, const jinja_string *part, size_t from)
{
    if (part->size == 0)
        return from <= text->size ? from : SIZE_MAX;
    if (from >= text->size)
        return SIZE_MAX;
    const char *found = memmem(text->data + from, text->size - from, part->data, part->size);
    return found ? (size_t)(found - text->data) : SIZE_MAX;
}

// Strings that are collected before they become a list or one string.
typedef struct collection {
    const jinja_string **items;
    size_t count, capacity;
} collection;

static void collect(jinja_run *run, collection *c, const jinja_string *item)
{
    if (c->count == c->capacity) {
        const size_t capacity = c->capacity * 2 + 8;
        const jinja_string **items = jinja_run_take(run, capacity * sizeof(jinja_string *));
        if (c->count > 0)
            memcpy(items, c->items, c->count * sizeof(jinja_string *));
        c->items = items;
        c->capacity = capacity;
    }
    c->items[c->count++] = item;
}

static void collect_part(jinja_run *run, collection *c, const jinja_string *text, size_t begin,
                         size_t end)
{
    collect(run, c, jinja_part(run, text, begin, end).as.string);
}

static jinja_value collected_list(jinja_run *run, const collection *c)
{
    jinja_list *list = jinja_list_new(run, c->count);
    for (size_t i = 0; i < c->count; i++)
        list->items[i] = (jinja_value){.kind = JINJA_STRING, .as.string = c->items[i]};
    return jinja_list_value(list);
}

jinja_value jinja_replace(jinja_run *run, const jinja_string *text, const jinja_string *old,
                          const jinja_string *by, int64_t most)
{
    if (old->size == 0)
        jinja_refuse(run, "replacing an empty string");
    collection c = {0};
    size_t at = 0, found;
    jinja_charge(run, text->size / 16);
    while (most != 0 && (found = jinja_find(text, old, at)) != SIZE_MAX) {
        jinja_charge(run, by->size / 16 + 1);
        collect_part(run, &c, text, at, found);
        collect(run, &c, by);
        at = found + old->size;
        most--;
    }
    collect_part(run, &c, text, at, text->size);
    return jinja_joined(run, c.items, c.count);
}

static jinja_value split_at_space(jinja_run *run, const jinja_string *text, int64_t most)
{
    collection c = {0};
    size_t at = 0, space;
    for (;;) {
        while ((space = jinja_space_at(text->data + at, text->size - at)) > 0)
            at += space;
        if (at == text->size)
            break;
        const size_t begin = at;
        if (most-- == 0) {
            collect_part(run, &c, text, begin, text->size);
            break;
        }
        while (at < text->size && jinja_space_at(text->data + at, text->size - at) == 0)
            at++;
        collect_part(run, &c, text, begin, at);
    }
    return collected_list(run, &c);
}

jinja_value jinja_split(jinja_run *run, const jinja_string *text, const jinja_string *separator,
                        int64_t most)
{
    jinja_charge(run, text->size / 4);
    if (!separator)
        return split_at_space(run, text, most);
    if (separator->size == 0)
        jinja_refuse(run, "splitting at an empty string");
    collection c = {0};
    size_t at = 0, found;
    while (most != 0 && (found = jinja_find(text, separator, at)) != SIZE_MAX) {
        collect_part(run, &c, text, at, found);
        at = found + separator->size;
        most--;
    }
    collect_part(run, &c, text, at, text->size);
    return collected_list(run, &c);
}

jinja_value jinja_join(jinja_run *run, const jinja_string *between, const jinja_list *items)
{
    collection c = {0};
    for (size_t i = 0; i < items->count; i++) {
        jinja_charge(run, between->size / 16 + 1);
        if (i > 0)
            collect(run, &c, between);
        collect(run, &c, jinja_written(run, items->items[i]));
    }
    return jinja_joined(run, c.items, c.count);
}

// --- Characters

size_t jinja_characters(const jinja_string *text)
{
    size_t count = 0;
    for (size_t at = 0; at < text->size; at += character_at(text, at))
        count++;
    return count;
}

const jinja_list *jinja_spell(jinja_run *run, const jinja_string *text)
{
    jinja_charge(run, text->size);
    jinja_list *list = jinja_list_new(run, jinja_characters(text));
    for (size_t i = 0, at = 0, length; i < list->count; i++, at += length) {
        length = character_at(text, at);
        list->items[i] = jinja_part(run, text, at, at + length);
    }
    return list;
}

jinja_value jinja_character(jinja_run *run, const jinja_string *text, int64_t index)
{
    jinja_charge(run, text->size / 4);
    const int64_t count = (int64_t)jinja_characters(text);
    index = index < 0 ? index + count : index;
    if (index < 0 || index >= count)
        return jinja_undefined();
    size_t at = 0;
    for (; index > 0; index--)
        at += character_at(text, at);
    return jinja_part(run, text, at, at + character_at(text, at));
}
