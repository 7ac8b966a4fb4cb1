// SPDX-License-Identifier: MIT
// A GGUF file as a source of weights. Its own names are the engine's, but that keys of a model
// begin with its architecture.
#include "engine/gguf/gguf_internal.h"

#include <stdio.h>

// Longer than any key that the engine asks for.
#define KEY_NAME_BYTES 192

static size_t tensor_count(const void *file)
{
    return gguf_tensor_count(file);
}

static const weights_tensor *tensor_at(const void *file, size_t index)
{
    return gguf_tensor_at(file, index);
}

static const weights_tensor *find_tensor(const void *file, const char *name)
{
    return gguf_find_tensor(file, name);
}

static void drop_pages(const void *file, const void *data, size_t bytes)
{
    gguf_drop_pages(file, data, bytes);
}

static size_t key_count(const void *file)
{
    return gguf_entry_count(file);
}

static config_value key_at(const void *file, size_t index, text_view *key)
{
    const gguf_entry *entry = gguf_entry_at(file, index);
    *key = gguf_entry_key(entry);
    return gguf_entry_value(entry);
}

static void key_name(const void *file, const char *name, char *text, size_t bytes)
{
    gguf_string architecture = {"", 0};
    gguf_get_string(gguf_find(file, "general.architecture"), &architecture);
    if (strncmp(name, "general.", 8) == 0 || strncmp(name, "tokenizer.", 10) == 0) {
        snprintf(text, bytes, "%s", name);
        return;
    }
    snprintf(text, bytes, "%.*s.%s", text_view_shown(architecture, 64), architecture.data, name);
}

static config_value find_key(const void *file, const char *name)
{
    char key[KEY_NAME_BYTES];
    key_name(file, name, key, sizeof key);
    return gguf_entry_value(gguf_find(file, key));
}

static void tensor_name(const void *file, const char *name, char *text, size_t bytes)
{
    (void)file;
    snprintf(text, bytes, "%s", name);
}

static uint64_t file_bytes(const void *file)
{
    return gguf_file_bytes(file);
}

const weights_format gguf_weights_format = {
    .name = "GGUF",
    .paired_rows = true,
    .whole_norms = true,
    .tensor_count = tensor_count,
    .tensor_at = tensor_at,
    .find_tensor = find_tensor,
    .drop_pages = drop_pages,
    .key_count = key_count,
    .key_at = key_at,
    .find_key = find_key,
    .key_name = key_name,
    .tensor_name = tensor_name,
    .file_bytes = file_bytes,
};

weights gguf_weights(const gguf_file *file)
{
    return (weights){&gguf_weights_format, file};
}
