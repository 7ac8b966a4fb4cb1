// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_FILES_INTERNAL_H
#define KVERN_ENGINE_TOKENIZER_FILES_INTERNAL_H

// What the reader of the files of a directory shares with the reader of a tokenizer.json.

#include "engine/base/text_buffer.h"
#include "engine/safetensors/config_json.h"
#include "engine/tokenizer/tokenizer_files.h"

// Files of keys, in the order in which they are asked for a special token.
typedef enum key_file {
    KEYS_CONFIG,
    KEYS_SPECIAL,
    KEYS_GENERATION,
    KEYS_MODEL,
    KEY_FILES
} key_file;

struct tokenizer_files {
    text_buffer tokenizer;        // the text of tokenizer.json, empty where there is none
    config_json *keys[KEY_FILES]; // NULL where there is no such file
    text_buffer chat;             // the chat template
    bool has_chat;
};

// What is done with the keys of these files.
extern const key_table tokenizer_config_keys;
extern const key_table special_tokens_keys;
extern const key_table generation_config_keys;

const char *key_file_name(key_file file);

// Refuses keys that are not known or not supported, by name.
KVERN_CHECK kvern_status tokenizer_files_check(const tokenizer_files *files, engine_error *error);

// The value of a key in the first of KEYS_CONFIG and KEYS_SPECIAL that has it: `name`, or
// `name`.content. *from says which. Absent when neither has it.
config_value tokenizer_files_token(const tokenizer_files *files, const char *name, key_file *from);

#endif
