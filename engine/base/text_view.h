// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TEXT_VIEW_H
#define KVERN_ENGINE_TEXT_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

// A borrowed string: not terminated, `size` bytes, may hold any byte.
typedef struct text_view {
    const char *data;
    size_t size;
} text_view;

static inline text_view text_view_of(const char *text)
{
    return (text_view){text, strlen(text)};
}

static inline bool text_view_is(text_view view, const char *text)
{
    return view.size == strlen(text) && (view.size == 0 || memcmp(view.data, text, view.size) == 0);
}

static inline bool text_view_starts(text_view view, const char *text)
{
    size_t size = strlen(text);
    return view.size >= size && (size == 0 || memcmp(view.data, text, size) == 0);
}

// Bytes for "%.*s": at most `most`.
static inline int text_view_shown(text_view view, size_t most)
{
    return (int)(view.size < most ? view.size : most);
}

#endif
