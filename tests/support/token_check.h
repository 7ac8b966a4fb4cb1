// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_TOKEN_CHECK_H
#define KVERN_TESTS_SUPPORT_TOKEN_CHECK_H

// What every tokenizer has to do.

#include "engine/tokenizer/tokenizer.h"

#include <jansson.h>

// Fails the test unless the tokens that a text was encoded to, with these flags, give it byte for
// byte: in a listing, and where it cannot hold control tokens, in an answer.
void token_check_text(const tokenizer *t, const token_buffer *ids, const char *text, size_t bytes,
                      unsigned flags);

// Fails the test unless every text of a list of {"text", "special", "ids"} has these tokens, and
// with `comes_back` the tokens give the text. `special`: control tokens may be written in it.
void token_check_golden(const tokenizer *t, const json_t *cases, bool comes_back);

#endif
