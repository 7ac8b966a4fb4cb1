// SPDX-License-Identifier: MIT
#include "engine/base/little_endian.h"
#include "engine/gguf/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

static kvern_status take_magic(gguf_cursor *cursor)
{
    const unsigned char *magic;
    kvern_status status = gguf_take(cursor, 4, "the GGUF mark", &magic);
    if (status == KVERN_OK && memcmp(magic, "GGUF", 4) != 0) {
        status = gguf_fail(cursor, KVERN_ERR_FORMAT, 0, "not a GGUF file");
    }
    return status;
}

static kvern_status take_version(gguf_cursor *cursor, gguf_file *file)
{
    size_t at = cursor->at;
    kvern_status status = gguf_take_u32(cursor, "the version", &file->version);
    if (status != KVERN_OK || file->version == 2 || file->version == 3) {
        return status;
    }
    // A small number with its bytes the other way around.
    if (file->version != 0 && (file->version & 0xffffff) == 0) {
        return gguf_fail(cursor, KVERN_ERR_UNSUPPORTED, at, "a big-endian GGUF file");
    }
    return gguf_fail(cursor, KVERN_ERR_UNSUPPORTED, at,
                     "GGUF version %u; versions 2 and 3 can be read", file->version);
}

static kvern_status take_header(gguf_cursor *cursor, gguf_file *file)
{
    kvern_status status = take_magic(cursor);
    if (status == KVERN_OK) {
        status = take_version(cursor, file);
    }
    if (status == KVERN_OK) {
        status = gguf_take_count(cursor, "the number of tensors", GGUF_MIN_TENSOR_BYTES,
                                 &file->tensor_count);
    }
    if (status == KVERN_OK) {
        status = gguf_take_count(cursor, "the number of metadata entries", GGUF_MIN_ENTRY_BYTES,
                                 &file->entry_count);
    }
    return status;
}

static kvern_status parse(gguf_file *file, const char *name, engine_error *error)
{
    gguf_cursor cursor = {
        .data = file->file.data, .bytes = file->file.bytes, .file_name = name, .error = error};
    if (file->file.bytes == 0) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: the file is empty", name);
    }
    kvern_status status = take_header(&cursor, file);
    if (status == KVERN_OK) {
        status = gguf_parse_metadata(&cursor, file);
    }
    if (status == KVERN_OK) {
        status = gguf_parse_tensors(&cursor, file);
    }
    return status;
}

// Takes over the mapping, also when it fails.
static kvern_status open_mapping(mapped_file mapping, const char *name, gguf_file **out,
                                 engine_error *error)
{
    gguf_file *file = calloc(1, sizeof *file);
    if (!file) {
        mapped_file_close(&mapping);
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory to open it", name);
    }
    file->file = mapping;
    kvern_status status = parse(file, name, error);
    if (status != KVERN_OK) {
        gguf_close(file);
        return status;
    }
    *out = file;
    return KVERN_OK;
}

kvern_status gguf_open_part(const char *path, gguf_file **out, engine_error *error)
{
    mapped_file mapping;
    *out = NULL;
    kvern_status status = mapped_file_open(path, &mapping, error);
    return status == KVERN_OK ? open_mapping(mapping, path, out, error) : status;
}

// The whole of a model that may be split.
static kvern_status finish_opening(const char *path, gguf_file **out, engine_error *error)
{
    kvern_status status = gguf_join_parts(*out, path, error);
    if (status != KVERN_OK) {
        gguf_close(*out);
        *out = NULL;
    }
    return status;
}

kvern_status gguf_open(const char *path, gguf_file **out, engine_error *error)
{
    kvern_status status = gguf_open_part(path, out, error);
    return status == KVERN_OK ? finish_opening(path, out, error) : status;
}

kvern_status gguf_open_memory(const void *data, size_t bytes, gguf_file **out, engine_error *error)
{
    *out = NULL;
    const mapped_file memory = {.data = data, .bytes = bytes};
    kvern_status status = open_mapping(memory, "memory", out, error);
    return status == KVERN_OK ? finish_opening(NULL, out, error) : status;
}

void gguf_close(gguf_file *file)
{
    if (!file) {
        return;
    }
    for (size_t i = 0; i < file->part_count; i++) {
        gguf_close(file->parts[i]);
    }
    free(file->parts);
    for (size_t i = 0; file->entries && i < file->entry_count; i++) {
        free(file->entries[i].string_starts);
    }
    free(file->entries);
    name_index_free(&file->entry_names);
    free(file->tensors);
    name_index_free(&file->tensor_names);
    mapped_file_close(&file->file);
    free(file);
}

uint32_t gguf_version(const gguf_file *file)
{
    return file->version;
}

size_t gguf_file_bytes(const gguf_file *file)
{
    size_t bytes = file->file.bytes;
    for (size_t i = 0; i < file->part_count; i++) {
        bytes += file->parts[i]->file.bytes;
    }
    return bytes;
}

size_t gguf_file_parts(const gguf_file *file)
{
    return 1 + file->part_count;
}

void gguf_drop_pages(const gguf_file *file, const void *data, size_t bytes)
{
    const gguf_file *owner = file;
    for (size_t i = 0; i < file->part_count && !mapped_file_holds(&owner->file, data); i++) {
        owner = file->parts[i];
    }
    if (mapped_file_holds(&owner->file, data)) {
        mapped_file_drop(&owner->file, data, bytes);
    }
}

size_t gguf_entry_count(const gguf_file *file)
{
    return file->entry_count;
}

const gguf_entry *gguf_entry_at(const gguf_file *file, size_t index)
{
    return index < file->entry_count ? &file->entries[index] : NULL;
}

const gguf_entry *gguf_find(const gguf_file *file, const char *key)
{
    return (const gguf_entry *)name_index_find(&file->entry_names, text_view_of(key));
}

gguf_string gguf_entry_key(const gguf_entry *entry)
{
    return entry->key;
}

size_t gguf_tensor_count(const gguf_file *file)
{
    return file->tensor_count;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t index)
{
    return index < file->tensor_count ? &file->tensors[index].tensor : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name)
{
    return (const gguf_tensor *)name_index_find(&file->tensor_names, text_view_of(name));
}
