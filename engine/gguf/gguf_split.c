// SPDX-License-Identifier: MIT
// Models that are split over several files: the first has all metadata, and each has tensors of its
// own.
#include "engine/gguf/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// The keys that number parts are 16 bits wide.
#define MOST_PARTS 65535
#define PATH_BYTES 4096

// What a file says of itself.
typedef struct split_facts {
    uint64_t number; // from 0
    uint64_t count;  // 0 or 1: not split
    uint64_t tensors;
    bool states_tensors;
} split_facts;

static kvern_status read_number(const gguf_file *file, const char *key, uint64_t most,
                                uint64_t *value, bool *found, engine_error *error)
{
    const gguf_entry *entry = gguf_find(file, key);
    *value = 0;
    *found = entry != NULL;
    if (entry && (!gguf_get_u64(entry, value) || *value > most)) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s must be a whole number up to %" PRIu64, key,
                           most);
    }
    return KVERN_OK;
}

static kvern_status read_split(const gguf_file *file, split_facts *facts, engine_error *error)
{
    bool found;
    kvern_status status =
        read_number(file, "split.count", MOST_PARTS, &facts->count, &found, error);
    if (status == KVERN_OK) {
        status = read_number(file, "split.no", MOST_PARTS, &facts->number, &found, error);
    }
    if (status == KVERN_OK) {
        status = read_number(file, "split.tensors.count", INT32_MAX, &facts->tensors,
                             &facts->states_tensors, error);
    }
    return status;
}

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

// The name of part `number` (from 0), from that of the first. False when that one has another form.
static bool part_path(const char *first, uint64_t number, uint64_t count, char path[PATH_BYTES])
{
    char end[64];
    snprintf(end, sizeof end, "-00001-of-%05" PRIu64 ".gguf", count);
    if (!ends_with(first, end)) {
        return false;
    }
    int stem = (int)(strlen(first) - strlen(end));
    int size = snprintf(path, PATH_BYTES, "%.*s-%05" PRIu64 "-of-%05" PRIu64 ".gguf", stem, first,
                        number + 1, count);
    return size > 0 && size < PATH_BYTES;
}

// A part has tensors and its number; whatever else it said would be passed over.
static kvern_status check_part(const gguf_file *part, const char *path, uint64_t number,
                               uint64_t count, engine_error *error)
{
    split_facts facts = {0};
    kvern_status status = read_split(part, &facts, error);
    if (status == KVERN_OK && (facts.number != number || facts.count != count)) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: it is part %" PRIu64 " of %" PRIu64 ", not part %" PRIu64
                           " of %" PRIu64,
                           path, facts.number + 1, facts.count, number + 1, count);
    }
    for (size_t i = 0; i < part->entry_count && status == KVERN_OK; i++) {
        text_view key = part->entries[i].key;
        if (!text_view_starts(key, "split.") && !text_view_is(key, "general.alignment") &&
            !text_view_is(key, "general.architecture")) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "%s: a part after the first has the key %.*s", path,
                               text_view_shown(key, 64), key.data);
        }
    }
    return status;
}

static kvern_status open_parts(gguf_file *file, const char *path, uint64_t count,
                               engine_error *error)
{
    char name[PATH_BYTES];
    if (!path || !part_path(path, 0, count, name)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s: part 1 of %" PRIu64 " of a split model; to find the others, its "
                           "name must end in -00001-of-%05" PRIu64 ".gguf",
                           path ? path : "memory", count, count);
    }
    file->parts = calloc(count, sizeof(gguf_file *));
    if (!file->parts) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory for %" PRIu64 " parts", path,
                           count);
    }
    kvern_status status = KVERN_OK;
    for (uint64_t i = 1; i < count && status == KVERN_OK; i++) {
        engine_error cause;
        if (!part_path(path, i, count, name)) {
            return engine_fail(error, KVERN_ERR_IO, "%s: its name is too long", path);
        }
        status = gguf_open_part(name, &file->parts[file->part_count], &cause);
        if (status != KVERN_OK) {
            return engine_fail(error, status,
                               "%s: part 1 of %" PRIu64 " of a split model, and part %" PRIu64
                               " cannot be opened: %.200s",
                               path, count, i + 1, cause.text);
        }
        status = check_part(file->parts[file->part_count++], name, i, count, error);
    }
    return status;
}

// Puts the tensors of all parts into one list.
static kvern_status join_tensors(gguf_file *file, const char *path, const split_facts *facts,
                                 engine_error *error)
{
    size_t count = file->tensor_count;
    for (size_t i = 0; i < file->part_count; i++) {
        count += file->parts[i]->tensor_count;
    }
    if (facts->states_tensors && count != facts->tensors) {
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: its parts have %zu tensors, but it states %" PRIu64, path, count,
                           facts->tensors);
    }
    gguf_placed_tensor *all = calloc(count ? count : 1, sizeof *all);
    if (!all) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory for %zu tensors", path, count);
    }
    size_t at = file->tensor_count;
    memcpy(all, file->tensors, at * sizeof *all);
    for (size_t i = 0; i < file->part_count; i++) {
        const gguf_file *part = file->parts[i];
        memcpy(all + at, part->tensors, part->tensor_count * sizeof *all);
        at += part->tensor_count;
    }
    free(file->tensors);
    name_index_free(&file->tensor_names);
    file->tensors = all;
    file->tensor_count = count;
    const text_view *repeated;
    if (!name_index_build(&file->tensor_names, all, sizeof *all, count, &repeated)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory for %zu tensors", path, count);
    }
    return repeated ? engine_fail(error, KVERN_ERR_FORMAT, "%s: two parts have the tensor %.*s",
                                  path, text_view_shown(*repeated, 64), repeated->data)
                    : KVERN_OK;
}

kvern_status gguf_join_parts(gguf_file *file, const char *path, engine_error *error)
{
    split_facts facts = {0};
    kvern_status status = read_split(file, &facts, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (facts.number > 0) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s: part %" PRIu64 " of %" PRIu64 " of a split model; name the first",
                           path ? path : "memory", facts.number + 1, facts.count);
    }
    if (facts.count < 2) {
        return KVERN_OK;
    }
    status = open_parts(file, path, facts.count, error);
    return status == KVERN_OK ? join_tensors(file, path, &facts, error) : status;
}
