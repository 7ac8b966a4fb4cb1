// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_FILES_H
#define KVERN_ENGINE_TOKENIZER_FILES_H

// What a Hugging Face directory says about texts: tokenizer.json, and beside it
// tokenizer_config.json, special_tokens_map.json, generation_config.json, config.json,
// chat_template.jinja and chat_template.json. docs/formats/tokenizer_json.md says what is honoured.

#include "engine/tokenizer/tokenizer.h"

typedef struct tokenizer_files tokenizer_files;

// The contents of the files; NULL data for one that is not there.
typedef struct tokenizer_texts {
    text_view tokenizer;  // tokenizer.json
    text_view config;     // tokenizer_config.json
    text_view special;    // special_tokens_map.json
    text_view generation; // generation_config.json
    text_view model;      // config.json
    text_view jinja;      // chat_template.jinja
    text_view chat;       // chat_template.json
} tokenizer_texts;

// Reads the files of a directory. Files that are missing are missing; the rest is read and its keys
// are judged when something is asked for. On failure *out is NULL and the error names the file.
// Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT, KVERN_ERR_UNSUPPORTED (a chat template in a form that is
// not known), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status tokenizer_files_open(const char *directory, tokenizer_files **out,
                                              engine_error *error);

// The same from memory that the caller keeps (tests, fuzzing).
KVERN_CHECK kvern_status tokenizer_files_read(const tokenizer_texts *texts, tokenizer_files **out,
                                              engine_error *error);

void tokenizer_files_close(tokenizer_files *files); // NULL is allowed

// Whether there is a tokenizer.json.
bool tokenizer_files_present(const tokenizer_files *files);

// The chat template, borrowed from the files: that of chat_template.jinja, else of
// tokenizer_config.json ("default" where it has several), else of chat_template.json. False when
// there is none.
bool tokenizer_files_chat_template(const tokenizer_files *files, text_view *out);

// Makes a tokenizer, which is independent of the files. `pre` must be NULL: a tokenizer.json says
// how it splits texts. On failure *out is NULL and *error names the file and the key at fault:
// KVERN_ERR_UNSUPPORTED for what is not known or not done here, and where there is no
// tokenizer.json, KVERN_ERR_ARGUMENT for a `pre`, KVERN_ERR_FORMAT for contradictory data,
// KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status tokenizer_create_from_files(const tokenizer_files *files, const char *pre,
                                                     tokenizer **out, engine_error *error);

// What is done with key number `index` of tokenizer_config.json, special_tokens_map.json and
// generation_config.json, one file behind the other. False when there is no such key. Texts are
// borrowed from the files.
typedef struct tokenizer_file_key {
    const char *file;
    text_view name;
    key_verdict verdict;
    const char *why;
} tokenizer_file_key;
bool tokenizer_files_judge_key(const tokenizer_files *files, size_t index, tokenizer_file_key *key);

#endif
