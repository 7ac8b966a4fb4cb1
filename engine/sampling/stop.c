// SPDX-License-Identifier: MIT
// Every string is matched by its own Knuth-Morris-Pratt automaton. The text held back is always the
// longest prefix of a stop string that the stream ends with, so it needs no memory of its own: it
// is read from that string.
#include "engine/sampling/stop.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct stop_string {
    char *text;
    size_t size;
    size_t *border; // border[i]: length of the longest proper prefix of text[0..i] that is its
                    // suffix too
    size_t matched; // the stream ends with this many first bytes of text
} stop_string;

struct stop_matcher {
    stop_string *strings;
    size_t count;
    const stop_string *found;
};

static size_t advance(const stop_string *string, size_t matched, char byte)
{
    while (matched > 0 && string->text[matched] != byte)
        matched = string->border[matched - 1];
    return string->text[matched] == byte ? matched + 1 : 0;
}

static kvern_status string_init(stop_string *string, const char *text)
{
    string->size = strlen(text);
    string->text = strdup(text);
    string->border = calloc(string->size, sizeof *string->border);
    if (!string->text || !string->border)
        return KVERN_ERR_MEMORY;
    for (size_t i = 1; i < string->size; i++)
        string->border[i] = advance(string, string->border[i - 1], text[i]);
    return KVERN_OK;
}

kvern_status stop_matcher_create(const char *const *strings, size_t count, stop_matcher **out,
                                 engine_error *error)
{
    *out = NULL;
    for (size_t i = 0; i < count; i++)
        if (strings[i][0] == '\0')
            return engine_fail(error, KVERN_ERR_ARGUMENT, "stop string %zu is empty", i + 1);
    stop_matcher *m = calloc(1, sizeof *m);
    if (m)
        m->strings = calloc(count ? count : 1, sizeof *m->strings);
    bool ok = m && m->strings;
    for (size_t i = 0; ok && i < count; i++) {
        m->count = i + 1;
        ok = string_init(&m->strings[i], strings[i]) == KVERN_OK;
    }
    if (!ok) {
        stop_matcher_destroy(m);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu stop strings", count);
    }
    *out = m;
    return KVERN_OK;
}

void stop_matcher_destroy(stop_matcher *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++) {
        free(m->strings[i].text);
        free(m->strings[i].border);
    }
    free(m->strings);
    free(m);
}

// The string with the longest matched prefix; NULL when nothing is held back.
static const stop_string *held_prefix(const stop_matcher *m)
{
    const stop_string *longest = NULL;
    for (size_t i = 0; i < m->count; i++)
        if (m->strings[i].matched > (longest ? longest->matched : 0))
            longest = &m->strings[i];
    return longest;
}

// Feeds one byte to every automaton and returns the longest string that it completes, or NULL.
static const stop_string *advance_all(stop_matcher *m, char byte)
{
    const stop_string *complete = NULL;
    for (size_t i = 0; i < m->count; i++) {
        stop_string *string = &m->strings[i];
        string->matched = advance(string, string->matched, byte);
        if (string->matched == string->size && (!complete || string->size > complete->size))
            complete = string;
    }
    return complete;
}

// Appends the first `size` bytes of (prefix, byte); the room was reserved before.
static void release(const char *prefix, size_t prefix_size, char byte, size_t size,
                    text_buffer *out)
{
    const size_t from_prefix = size < prefix_size ? size : prefix_size;
    if (from_prefix > 0)
        memcpy(out->data + out->size, prefix, from_prefix);
    out->size += from_prefix;
    if (size > prefix_size)
        out->data[out->size++] = byte;
}

kvern_status stop_matcher_push(stop_matcher *m, const char *data, size_t size, text_buffer *out,
                               bool *stopped)
{
    const stop_string *held = held_prefix(m);
    size_t held_size = held ? held->matched : 0;
    if (size > SIZE_MAX - held_size)
        return KVERN_ERR_OVERFLOW;
    const kvern_status status = text_buffer_reserve(out, held_size + size);
    if (status != KVERN_OK)
        return status;
    for (size_t i = 0; i < size && !m->found; i++) {
        const char *prefix = held ? held->text : NULL;
        m->found = advance_all(m, data[i]);
        held = m->found ? m->found : held_prefix(m);
        const size_t keep = held ? held->matched : 0;
        release(prefix, held_size, data[i], held_size + 1 - keep, out);
        held_size = keep;
    }
    *stopped = m->found != NULL;
    return KVERN_OK;
}

kvern_status stop_matcher_flush(stop_matcher *m, text_buffer *out)
{
    const stop_string *held = m->found ? NULL : held_prefix(m);
    if (!held)
        return KVERN_OK;
    const kvern_status status = text_buffer_append(out, held->text, held->matched);
    for (size_t i = 0; status == KVERN_OK && i < m->count; i++)
        m->strings[i].matched = 0;
    return status;
}

const char *stop_matcher_found(const stop_matcher *m)
{
    return m->found ? m->found->text : NULL;
}

void stop_matcher_reset(stop_matcher *m)
{
    for (size_t i = 0; i < m->count; i++)
        m->strings[i].matched = 0;
    m->found = NULL;
}
