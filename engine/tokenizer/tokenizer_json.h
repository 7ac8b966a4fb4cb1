// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_JSON_H
#define KVERN_ENGINE_TOKENIZER_JSON_H

// Byte-pair vocabularies from a tokenizer.json, as the tokenizers library of Hugging Face writes
// it: what the parts of the reader share. docs/formats/tokenizer_json.md says what is honoured.
//
//   tokenizer_json.c          the whole file, special tokens, the beginning of a text
//   tokenizer_json_fields.c   members of JSON objects; what is refused
//   tokenizer_json_model.c    vocabulary, merges, added tokens
//   tokenizer_json_steps.c    normalizers, pre-tokenizers, decoders, post-processors
//   tokenizer_json_encode.c   texts to tokens
//   tokenizer_steps.c         runs normalizers and pre-tokenizers
//   tokenizer_regex.c         regular expressions of Oniguruma for PCRE2
//   tokenizer_files.c         the files that lie beside a tokenizer.json

#include "engine/tokenizer/tokenizer_internal.h"

#include <jansson.h>

// --- tokenizer_regex.c

// Appends what an expression of Oniguruma (Ruby's syntax, Unicode) is called in PCRE2's, for
// PCRE2_UTF | PCRE2_UCP. An expression of which it is not known that it means the same in both is
// refused: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status tokenizer_regex_translate(text_view pattern, text_buffer *out,
                                                   engine_error *error);

// --- tokenizer_steps.c

// A stretch of a text, cut into pieces that cover it.
typedef struct text_pieces {
    text_buffer text;
    size_t *ends; // of each piece, in text; none is empty
    size_t count;
    size_t capacity;
    bool first; // the stretch begins where the whole text does
} text_pieces;

void text_pieces_free(text_pieces *pieces); // all zero is permitted

// Sets one piece, or none for an empty text.
KVERN_CHECK kvern_status text_pieces_set(text_pieces *pieces, const char *text, size_t bytes,
                                         bool first);

typedef enum step_kind {
    STEP_PREPEND,      // `text` in front of the stretch
    STEP_REPLACE,      // `text` for every match
    STEP_UNICODE,      // a normal form
    STEP_SPLIT,        // at matches
    STEP_PREFIX_SPACE, // a space in front of every piece without one
    STEP_METASPACE,    // `text` for every space, and in front: see `scheme`
} step_kind;

// What becomes of a match that a text is split at.
typedef enum split_behavior {
    SPLIT_ISOLATED,
    SPLIT_WITH_PREVIOUS,
    SPLIT_WITH_NEXT,
    SPLIT_CONTIGUOUS, // with neighbours that match as well
} split_behavior;

typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

// A regular expression or a text, compiled.
typedef struct text_pattern text_pattern;

KVERN_CHECK kvern_status text_pattern_create(text_view pattern, bool literal, text_pattern **out,
                                             engine_error *error);
void text_pattern_destroy(text_pattern *pattern); // NULL is allowed

typedef struct text_step {
    step_kind kind;
    text_buffer text;      // owned
    text_pattern *pattern; // owned; of STEP_REPLACE and STEP_SPLIT
    split_behavior behavior;
    bool invert;           // what does not match counts as a match
    prepend_scheme scheme; // of STEP_METASPACE
    int form;              // of STEP_UNICODE: options of utf8proc
} text_step;

#define MOST_TEXT_STEPS 32

typedef struct text_steps {
    text_step step[MOST_TEXT_STEPS];
    size_t count;
} text_steps;

void text_steps_free(text_steps *steps);

// Runs the steps one after another. Faulty UTF-8 is left alone, a piece of its own where a step
// splits. On failure the pieces are in no particular state.
KVERN_CHECK kvern_status text_steps_run(const text_steps *steps, text_pieces *pieces,
                                        engine_error *error);

// --- tokenizer_json_fields.c

// An object of a file, and where it is: "model", "pre_tokenizer.pretokenizers[1]".
typedef struct json_place {
    const char *file;
    const json_t *object;
    char path[96]; // "" for the whole file
    engine_error *error;
} json_place;

// An object within one: member `name`, or with an index the element of the list that it is. A NULL
// object for what is absent, null, or no object.
json_place json_place_in(const json_place *outer, const char *name);
json_place json_place_at(const json_place *outer, const char *name, size_t index);

// Fails with the place in front: "tokenizer.json: model.dropout: ...". `name` may be NULL.
kvern_status json_place_fail(const json_place *place, kvern_status status, const char *name,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));

// Refuses a place that is no object, or one with members that are not in `known`, names separated
// by '|': KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status json_place_check(const json_place *place, const char *known);

// A member, which keeps its value where it is absent or null.
KVERN_CHECK kvern_status json_place_flag(const json_place *place, const char *name, bool *value);
KVERN_CHECK kvern_status json_place_text(const json_place *place, const char *name,
                                         text_view *value);
// Refuses a flag with another value: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status json_place_require(const json_place *place, const char *name, bool absent,
                                            bool value);

// Whether the member "type" is this.
bool json_place_is(const json_place *place, const char *type);
// Says that this "type" is not supported.
kvern_status json_place_unknown(const json_place *place, const char *what);

// --- The vocabulary

// What is known of a token, besides TOKEN_EDGE_ bits.
#define ADDED_NORMALIZED 8u
#define ADDED_SPECIAL 16u
#define ADDED_IN_VOCABULARY 64u // the vocabulary has it, so that words may be made of it
#define ADDED_TOKEN 128u        // it was added

// The state of tokenizer_json_model.
typedef struct json_bpe {
    text_steps normalizer;
    text_steps splitter;
    bool byte_level;    // words are bytes, in the alphabet
    bool byte_fallback; // a character that is no token is its bytes
    bool fuse_unknown;
    bool whole_words; // a word that is a token is not built from merges
    bool spaced;      // U+2581 comes out as a space
    int32_t unknown;
    int32_t byte_tokens[256];
    token_index words; // ordinary tokens and user-defined ones, by their texts
    merge_table merges;
    token_strings normalized_texts; // of the user-defined tokens that are looked for in normalized
    special_set normalized;         // text
    int32_t template_bos;           // the token that the post-processor begins a text with
    bool template_ends;             // it adds one at the end
} json_bpe;

extern const tokenizer_model tokenizer_json_model;

// --- tokenizer_json_model.c

// Reads "model" and "added_tokens": t->words, t->edges (ADDED_ bits of every token) and the flags
// of the state.
KVERN_CHECK kvern_status tokenizer_json_vocabulary(tokenizer *t, const json_place *root);

// What is left when t->words.marks are known: merges, and the tokens that words are made of.
KVERN_CHECK kvern_status tokenizer_json_merges(tokenizer *t, const json_place *root);

// --- tokenizer_json_steps.c

// Reads "normalizer", "pre_tokenizer", "decoder" and "post_processor" into the state.
KVERN_CHECK kvern_status tokenizer_json_steps(tokenizer *t, const json_place *root);

// --- tokenizer_json_encode.c

// tokenizer_model.encode
KVERN_CHECK kvern_status tokenizer_json_encode(const tokenizer *t, const char *text, size_t begin,
                                               size_t end, token_buffer *out, engine_error *error);

#endif
