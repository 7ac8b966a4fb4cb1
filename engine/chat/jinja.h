// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_JINJA_H
#define KVERN_ENGINE_JINJA_H

// The part of the template language Jinja that chat templates are written in.
//
// What is understood gives the text that Jinja gives with the settings chat templates are made for
// (trim_blocks, lstrip_blocks, no autoescape, undefined names are empty); everything else is
// refused with its line. Templates come from strangers: what one may nest, and how much work it may
// do, are bounded, so rendering ends and takes time in proportion to the template and the messages.
//
//   jinja_lexer.c    source to tokens: text, expressions, white space control
//   jinja_parser.c   tokens to a tree: expressions
//   jinja_blocks.c   the same: statements
//   jinja_value.c    memory of a rendering, strings, lists, mappings
//   jinja_text.c     operations on strings
//   jinja_run.c      statements
//   jinja_expression.c  expressions
//   jinja_filters.c  filters and tests
//   jinja_methods.c  methods and global functions
//   jinja_json.c     tojson
//
// Every byte of a text remembers where it comes from. Bytes of messages keep their origin through
// slices, filters and concatenation: what a user wrote can be told from what the template wrote.

#include "engine/base/error.h"
#include "engine/base/text_buffer.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct jinja_template jinja_template;

// Parses a source, which is not needed afterwards. On failure *out is NULL: KVERN_ERR_UNSUPPORTED
// for what is not understood, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status jinja_parse(const char *source, size_t bytes, jinja_template **out,
                                     engine_error *error);

// NULL is allowed.
void jinja_destroy(jinja_template *t);

// Where a byte of the result comes from. The numbers are those of jinja_result.origins.
typedef enum jinja_origin {
    JINJA_FROM_TEMPLATE,
    JINJA_FROM_MESSAGE,
    JINJA_FROM_ANCHOR // a message that the caller wants to find again
} jinja_origin;

// `data` NULL makes a name undefined.
typedef struct jinja_word {
    const char *data;
    size_t bytes;
} jinja_word;

typedef struct jinja_message {
    jinja_word role, content;
    jinja_origin role_origin, content_origin;
} jinja_message;

typedef struct jinja_input {
    const jinja_message *messages;
    size_t count;
    bool add_generation_prompt;
    jinja_word bos, eos; // texts of tokens
    int64_t now;         // seconds since 1970, for strftime_now
} jinja_input;

// Start with zeroes.
typedef struct jinja_result {
    text_buffer text;
    text_buffer origins; // a jinja_origin for each byte of the text
} jinja_result;

void jinja_result_free(jinja_result *result);

// Renders to *result, which is emptied first. On failure *result is empty: KVERN_ERR_ARGUMENT when
// the template itself refuses the messages (raise_exception, with its sentence),
// KVERN_ERR_UNSUPPORTED for what is not understood, or too much work, KVERN_ERR_MEMORY. Several
// threads may render one template.
KVERN_CHECK kvern_status jinja_render(const jinja_template *t, const jinja_input *input,
                                      jinja_result *result, engine_error *error);

// The bytes of the white space that a text begins with or ends in, or 0: white space of Unicode and
// the separators 1C to 1F.
size_t jinja_space_at(const char *text, size_t bytes);
size_t jinja_space_before(const char *text, size_t bytes);

#endif
