// SPDX-License-Identifier: MIT
#include "engine/base/little_endian.h"
#include "engine/gguf/gguf_internal.h"

#include <stdlib.h>

static kvern_status check_bools(const gguf_cursor *cursor, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] > 1) {
            return gguf_fail(cursor, KVERN_ERR_FORMAT, (size_t)(bytes + i - cursor->data),
                             "the bool is %d, not 0 or 1", bytes[i]);
        }
    }
    return KVERN_OK;
}

// `count` numbers or bools, one after the other.
static kvern_status take_scalars(gguf_cursor *cursor, gguf_value_type type, size_t count,
                                 const unsigned char **start)
{
    size_t each = gguf_scalar_bytes(type);
    // The count of an array was checked against the bytes left, so the product cannot overflow.
    kvern_status status = gguf_take(cursor, (uint64_t)count * each, "the value", start);
    if (status == KVERN_OK && type == GGUF_BOOL) {
        status = check_bools(cursor, *start, count);
    }
    return status;
}

// Walks the strings once, and keeps where each begins: tokenizers read them by index.
static kvern_status take_strings(gguf_cursor *cursor, gguf_entry *entry)
{
    entry->value = cursor->data + cursor->at;
    entry->string_starts = malloc((entry->count ? entry->count : 1) * sizeof(uint32_t));
    if (!entry->string_starts) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory for %zu string positions",
                         entry->count);
    }
    size_t first = cursor->at;
    for (size_t i = 0; i < entry->count; i++) {
        if (cursor->at - first > UINT32_MAX) {
            return gguf_fail(cursor, KVERN_ERR_UNSUPPORTED, cursor->at,
                             "an array of strings above 4 GiB");
        }
        entry->string_starts[i] = (uint32_t)(cursor->at - first);
        gguf_string string;
        kvern_status status = gguf_take_string(cursor, "a string of the array", &string);
        if (status != KVERN_OK) {
            return status;
        }
    }
    return KVERN_OK;
}

static kvern_status take_array(gguf_cursor *cursor, gguf_entry *entry)
{
    size_t at = cursor->at;
    uint32_t element;
    kvern_status status = gguf_take_u32(cursor, "the element type", &element);
    if (status != KVERN_OK) {
        return status;
    }
    if (element == GGUF_ARRAY) {
        return gguf_fail(cursor, KVERN_ERR_UNSUPPORTED, at, "an array of arrays");
    }
    size_t each = element == GGUF_STRING ? GGUF_MIN_STRING_BYTES : gguf_scalar_bytes(element);
    if (each == 0) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "the element type %u does not exist",
                         element);
    }
    entry->element = (gguf_value_type)element;
    status = gguf_take_count(cursor, "the array's length", each, &entry->count);
    if (status != KVERN_OK) {
        return status;
    }
    return element == GGUF_STRING
               ? take_strings(cursor, entry)
               : take_scalars(cursor, entry->element, entry->count, &entry->value);
}

static kvern_status take_entry(gguf_cursor *cursor, gguf_entry *entry)
{
    kvern_status status = gguf_take_name(cursor, "the key", GGUF_MAX_KEY_BYTES, &entry->key);
    if (status != KVERN_OK) {
        return status;
    }
    size_t at = cursor->at;
    uint32_t type;
    status = gguf_take_u32(cursor, "the value type", &type);
    if (status != KVERN_OK) {
        return status;
    }
    if (type != GGUF_STRING && type != GGUF_ARRAY && gguf_scalar_bytes(type) == 0) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "the value type %u does not exist", type);
    }
    entry->type = (gguf_value_type)type;
    if (type == GGUF_ARRAY) {
        return take_array(cursor, entry);
    }
    if (type == GGUF_STRING) {
        gguf_string string;
        entry->value = cursor->data + cursor->at;
        return gguf_take_string(cursor, "the string", &string);
    }
    return take_scalars(cursor, entry->type, 1, &entry->value);
}

static kvern_status take_entries(gguf_cursor *cursor, gguf_file *file)
{
    for (size_t i = 0; i < file->entry_count; i++) {
        gguf_cursor_begin_item(cursor, "metadata entry", i);
        kvern_status status = take_entry(cursor, &file->entries[i]);
        if (status != KVERN_OK) {
            return status;
        }
    }
    return KVERN_OK;
}

static kvern_status sort_keys(gguf_cursor *cursor, gguf_file *file)
{
    const gguf_string *repeated;
    if (!name_index_build(&file->entry_names, file->entries, sizeof *file->entries,
                          file->entry_count, &repeated)) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory for %zu keys",
                         file->entry_count);
    }
    if (repeated) {
        const gguf_entry *entry = (const gguf_entry *)repeated;
        gguf_cursor_begin_item(cursor, "metadata entry", (size_t)(entry - file->entries));
        cursor->item_name = *repeated;
        return gguf_fail(cursor, KVERN_ERR_FORMAT,
                         (size_t)((const unsigned char *)repeated->data - cursor->data),
                         "the key occurs twice");
    }
    return KVERN_OK;
}

static kvern_status read_alignment(gguf_cursor *cursor, gguf_file *file)
{
    file->alignment = GGUF_DEFAULT_ALIGNMENT;
    const gguf_entry *entry = gguf_find(file, "general.alignment");
    if (!entry) {
        return KVERN_OK;
    }
    gguf_cursor_begin_item(cursor, "metadata entry", (size_t)(entry - file->entries));
    cursor->item_name = entry->key;
    size_t at = (size_t)(entry->value - cursor->data);
    if (entry->type != GGUF_UINT32) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "its type is %s, not uint32",
                         gguf_value_type_name(entry->type));
    }
    uint32_t alignment = engine_load_u32(entry->value);
    bool power_of_two = (alignment & (alignment - 1)) == 0;
    if (!power_of_two || alignment < GGUF_MIN_ALIGNMENT || alignment > GGUF_MAX_ALIGNMENT) {
        return gguf_fail(cursor, KVERN_ERR_FORMAT, at, "%u is not a power of two from %d to %d",
                         alignment, GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
    }
    file->alignment = alignment;
    return KVERN_OK;
}

kvern_status gguf_parse_metadata(gguf_cursor *cursor, gguf_file *file)
{
    file->entries = calloc(file->entry_count ? file->entry_count : 1, sizeof *file->entries);
    if (!file->entries) {
        return gguf_fail(cursor, KVERN_ERR_MEMORY, cursor->at, "no memory for %zu metadata entries",
                         file->entry_count);
    }
    kvern_status status = take_entries(cursor, file);
    if (status == KVERN_OK) {
        status = sort_keys(cursor, file);
    }
    if (status == KVERN_OK) {
        status = read_alignment(cursor, file);
    }
    return status;
}
