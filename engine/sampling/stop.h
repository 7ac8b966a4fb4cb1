// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_STOP_H
#define KVERN_ENGINE_STOP_H

// Stop strings: generation ends where one of them appears, and nothing of it is ever shown.
//
// A stop string may begin in one token and end in another, so the matcher holds back the bytes that
// could still become one: never more than the longest stop string less one byte. Matching is on
// bytes and comes before utf8_stream.

#include "engine/base/error.h"
#include "engine/base/text_buffer.h"

#include <stdbool.h>

typedef struct stop_matcher stop_matcher;

// Copies `count` strings; none may be empty (KVERN_ERR_ARGUMENT). count 0 gives a matcher that
// passes everything on. On failure *out is NULL.
KVERN_CHECK kvern_status stop_matcher_create(const char *const *strings, size_t count,
                                             stop_matcher **out, engine_error *error);

// NULL is allowed.
void stop_matcher_destroy(stop_matcher *m);

// Takes the next bytes of the generation and appends to `out` those that can be shown. *stopped
// tells whether a stop string is complete: the one that ends first, and of those that end together
// the longest. Bytes after it are dropped, and so is everything pushed later. On failure
// (KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW) the matcher, `out` and *stopped are unchanged.
KVERN_CHECK kvern_status stop_matcher_push(stop_matcher *m, const char *data, size_t size,
                                           text_buffer *out, bool *stopped);

// The generation ended without a stop string: appends what was held back. After a stop there is
// nothing. Same failures.
KVERN_CHECK kvern_status stop_matcher_flush(stop_matcher *m, text_buffer *out);

// The string that was found, NULL before that. Owned by the matcher.
const char *stop_matcher_found(const stop_matcher *m);

// Forgets held bytes and a found string, for the next generation.
void stop_matcher_reset(stop_matcher *m);

#endif
