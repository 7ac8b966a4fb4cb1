// SPDX-License-Identifier: MIT
// The files of a directory that speak of texts: reading, and what is done with their keys.
#include "engine/tokenizer/tokenizer_files_internal.h"

#include "engine/base/mapped_file.h"
#include "engine/safetensors/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096

static const struct {
    const char *name;
    const key_table *table; // NULL: judged where the model is read
} KEY_TABLES[KEY_FILES] = {
    [KEYS_CONFIG] = {"tokenizer_config.json", &tokenizer_config_keys},
    [KEYS_SPECIAL] = {"special_tokens_map.json", &special_tokens_keys},
    [KEYS_GENERATION] = {"generation_config.json", &generation_config_keys},
    [KEYS_MODEL] = {"config.json", NULL},
};

const char *key_file_name(key_file file)
{
    return KEY_TABLES[file].name;
}

// --- Chat templates

static kvern_status take_chat(tokenizer_files *files, const char *text, size_t bytes,
                              engine_error *error)
{
    text_buffer_clear(&files->chat);
    const kvern_status status = bytes ? text_buffer_append(&files->chat, text, bytes) : KVERN_OK;
    files->has_chat = status == KVERN_OK;
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail(error, status, "no memory for a chat template");
}

// Of a list of templates with names the one for conversations.
static kvern_status take_listed_chat(tokenizer_files *files, const char *name, const json_t *list,
                                     engine_error *error)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const json_t *text = json_object_get(entry, "template");
        const char *called = json_string_value(json_object_get(entry, "name"));
        if (!called || !json_is_string(text))
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "%s: chat_template: element %zu has no name or no template", name,
                               i);
        if (strcmp(called, "default") == 0)
            return take_chat(files, json_string_value(text), json_string_length(text), error);
    }
    return KVERN_OK;
}

static kvern_status take_chat_of(tokenizer_files *files, const char *name, const json_t *root,
                                 engine_error *error)
{
    const json_t *chat = json_object_get(root, "chat_template");
    if (!chat || json_is_null(chat) || files->has_chat)
        return KVERN_OK;
    if (json_is_string(chat))
        return take_chat(files, json_string_value(chat), json_string_length(chat), error);
    return json_is_array(chat)
               ? take_listed_chat(files, name, chat, error)
               : engine_fail(error, KVERN_ERR_FORMAT, "%s: chat_template is no text", name);
}

static kvern_status read_chat_json(tokenizer_files *files, text_view text, engine_error *error)
{
    static const char name[] = "chat_template.json";
    json_t *root;
    if (!text.data || files->has_chat)
        return KVERN_OK;
    kvern_status status = json_text_read(text.data, text.size, name, &root, error);
    if (status == KVERN_OK)
        status = take_chat_of(files, name, root, error);
    json_decref(root);
    return status;
}

// --- Reading

static kvern_status read_keys(tokenizer_files *files, key_file file, text_view text,
                              engine_error *error)
{
    return text.data ? config_json_read(text.data, text.size, key_file_name(file),
                                        &files->keys[file], error)
                     : KVERN_OK;
}

static kvern_status read_all(tokenizer_files *files, const tokenizer_texts *texts,
                             engine_error *error)
{
    const text_view keys[KEY_FILES] = {texts->config, texts->special, texts->generation,
                                       texts->model};
    kvern_status status = KVERN_OK;
    if (texts->tokenizer.size > 0 && text_buffer_append(&files->tokenizer, texts->tokenizer.data,
                                                        texts->tokenizer.size) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for tokenizer.json");
    for (size_t i = 0; status == KVERN_OK && i < KEY_FILES; i++)
        status = read_keys(files, (key_file)i, keys[i], error);
    if (status == KVERN_OK && texts->jinja.data)
        status = take_chat(files, texts->jinja.data, texts->jinja.size, error);
    if (status == KVERN_OK && files->keys[KEYS_CONFIG])
        status = take_chat_of(files, key_file_name(KEYS_CONFIG),
                              config_json_root(files->keys[KEYS_CONFIG]), error);
    return status == KVERN_OK ? read_chat_json(files, texts->chat, error) : status;
}

kvern_status tokenizer_files_read(const tokenizer_texts *texts, tokenizer_files **out,
                                  engine_error *error)
{
    *out = NULL;
    tokenizer_files *files = calloc(1, sizeof *files);
    if (!files)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to read a tokenizer");
    const kvern_status status = read_all(files, texts, error);
    if (status == KVERN_OK)
        *out = files;
    else
        tokenizer_files_close(files);
    return status;
}

// A file that is there: its text, of at least the empty string.
static kvern_status map_text(const char *directory, const char *name, mapped_file *file,
                             text_view *text, engine_error *error)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= PATH_BYTES)
        return engine_fail(error, KVERN_ERR_IO, "%.200s...: the name is too long", path);
    if (access(path, F_OK) != 0)
        return KVERN_OK;
    const kvern_status status = mapped_file_open(path, file, error);
    if (status == KVERN_OK)
        *text = (text_view){file->data ? (const char *)file->data : "", file->bytes};
    return status;
}

kvern_status tokenizer_files_open(const char *directory, tokenizer_files **out, engine_error *error)
{
    tokenizer_texts texts = {0};
    const struct {
        const char *name;
        text_view *text;
    } all[] = {
        {"tokenizer.json", &texts.tokenizer},
        {"tokenizer_config.json", &texts.config},
        {"special_tokens_map.json", &texts.special},
        {"generation_config.json", &texts.generation},
        {"config.json", &texts.model},
        {"chat_template.jinja", &texts.jinja},
        {"chat_template.json", &texts.chat},
    };
    mapped_file files[sizeof all / sizeof all[0]] = {{NULL, 0, false}};
    kvern_status status = KVERN_OK;
    *out = NULL;
    for (size_t i = 0; status == KVERN_OK && i < sizeof all / sizeof all[0]; i++)
        status = map_text(directory, all[i].name, &files[i], all[i].text, error);
    if (status == KVERN_OK)
        status = tokenizer_files_read(&texts, out, error);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        mapped_file_close(&files[i]);
    return status;
}

void tokenizer_files_close(tokenizer_files *files)
{
    if (!files)
        return;
    text_buffer_free(&files->tokenizer);
    text_buffer_free(&files->chat);
    for (size_t i = 0; i < KEY_FILES; i++)
        config_json_free(files->keys[i]);
    free(files);
}

bool tokenizer_files_present(const tokenizer_files *files)
{
    return files->tokenizer.size > 0;
}

bool tokenizer_files_chat_template(const tokenizer_files *files, text_view *out)
{
    *out = (text_view){files->chat.data ? files->chat.data : "", files->chat.size};
    return files->has_chat;
}

// --- Keys

static const text_view NO_ARCHITECTURE = {NULL, 0};

kvern_status tokenizer_files_check(const tokenizer_files *files, engine_error *error)
{
    kvern_status status = KVERN_OK;
    for (size_t f = 0; f < KEY_FILES; f++) {
        const key_table *table = KEY_TABLES[f].table;
        for (size_t i = 0; table && files->keys[f] && i < config_json_count(files->keys[f]); i++) {
            text_view key;
            engine_error fault = {KVERN_OK, ""};
            const config_value value = config_json_at(files->keys[f], i, &key);
            status = key_check(&table, 1, NO_ARCHITECTURE, key, &value, &fault);
            if (status != KVERN_OK)
                return engine_fail(error, status, "%s: %s", KEY_TABLES[f].name, fault.text);
        }
    }
    return status;
}

bool tokenizer_files_judge_key(const tokenizer_files *files, size_t index, tokenizer_file_key *key)
{
    for (size_t f = 0; f < KEY_FILES; f++) {
        const key_table *table = KEY_TABLES[f].table;
        const size_t count = table && files->keys[f] ? config_json_count(files->keys[f]) : 0;
        if (index < count) {
            const key_row *row;
            const config_value value = config_json_at(files->keys[f], index, &key->name);
            key->file = KEY_TABLES[f].name;
            key->verdict = key_judge(&table, 1, NO_ARCHITECTURE, key->name, &value, &row);
            key->why = row ? row->why : NULL;
            return true;
        }
        index -= count;
    }
    return false;
}

config_value tokenizer_files_token(const tokenizer_files *files, const char *name, key_file *from)
{
    for (*from = KEYS_CONFIG; *from <= KEYS_SPECIAL; ++*from) {
        char inner[64];
        const config_json *keys = files->keys[*from];
        if (!keys)
            continue;
        config_value value = config_json_find(keys, name);
        snprintf(inner, sizeof inner, "%s.content", name);
        if (value.kind == CONFIG_ABSENT)
            value = config_json_find(keys, inner);
        if (value.kind != CONFIG_ABSENT)
            return value;
    }
    return (config_value){.kind = CONFIG_ABSENT};
}
