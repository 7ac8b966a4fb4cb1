// SPDX-License-Identifier: MIT
#include "engine/base/little_endian.h"
#include "engine/gguf/gguf_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
        .data = file->data, .bytes = file->bytes, .file_name = name, .error = error};
    if (file->bytes == 0) {
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
static kvern_status open_bytes(const void *data, size_t bytes, bool mapped, const char *name,
                               gguf_file **out, engine_error *error)
{
    gguf_file *file = calloc(1, sizeof *file);
    if (!file) {
        if (mapped) {
            munmap((void *)data, bytes);
        }
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory to open it", name);
    }
    *file = (gguf_file){.data = data, .bytes = bytes, .mapped = mapped};
    kvern_status status = parse(file, name, error);
    if (status != KVERN_OK) {
        gguf_close(file);
        return status;
    }
    *out = file;
    return KVERN_OK;
}

// Maps an open descriptor. *data is NULL for an empty file, which cannot be mapped.
static kvern_status map_file(int descriptor, const char *path, void **data, size_t *bytes,
                             engine_error *error)
{
    struct stat facts;
    *data = NULL;
    *bytes = 0;
    if (fstat(descriptor, &facts) != 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(facts.st_mode)) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path,
                           S_ISDIR(facts.st_mode) ? "is a directory" : "is not a regular file");
    }
    if ((uintmax_t)facts.st_size > SIZE_MAX / 2) {
        return engine_fail(error, KVERN_ERR_OVERFLOW, "%s: too large for this machine", path);
    }
    if (facts.st_size == 0) {
        return KVERN_OK;
    }
    void *mapping = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapping == MAP_FAILED) {
        return engine_fail(error, KVERN_ERR_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    }
    *data = mapping;
    *bytes = (size_t)facts.st_size;
    return KVERN_OK;
}

kvern_status gguf_open(const char *path, gguf_file **out, engine_error *error)
{
    *out = NULL;
    // Without O_NONBLOCK, opening a named pipe would wait for a writer.
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return engine_fail(error, KVERN_ERR_IO, "%s: %s", path, strerror(errno));
    }
    void *data;
    size_t bytes;
    kvern_status status = map_file(descriptor, path, &data, &bytes, error);
    close(descriptor);
    if (status != KVERN_OK) {
        return status;
    }
    return open_bytes(data, bytes, data != NULL, path, out, error);
}

kvern_status gguf_open_memory(const void *data, size_t bytes, gguf_file **out, engine_error *error)
{
    *out = NULL;
    return open_bytes(data, bytes, false, "memory", out, error);
}

void gguf_close(gguf_file *file)
{
    if (!file) {
        return;
    }
    for (size_t i = 0; file->entries && i < file->entry_count; i++) {
        free(file->entries[i].string_starts);
    }
    free(file->entries);
    free(file->entry_names.sorted);
    free(file->tensors);
    free(file->tensor_names.sorted);
    if (file->mapped) {
        munmap((void *)file->data, file->bytes);
    }
    free(file);
}

uint32_t gguf_version(const gguf_file *file)
{
    return file->version;
}

size_t gguf_file_bytes(const gguf_file *file)
{
    return file->bytes;
}

void gguf_drop_pages(const gguf_file *file, const void *data, size_t bytes)
{
    if (!file->mapped || bytes == 0) {
        return;
    }
    // Outwards to whole pages: a neighbour's page that goes with it is read again when it is
    // needed, and many small tensors leave nothing behind.
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t start = (size_t)((const unsigned char *)data - file->data);
    size_t first = start / page * page;
    madvise((void *)(file->data + first), start + bytes - first, MADV_DONTNEED);
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
    return (const gguf_entry *)gguf_names_find(&file->entry_names, key);
}

gguf_string gguf_entry_key(const gguf_entry *entry)
{
    return entry->key;
}

gguf_value_type gguf_entry_type(const gguf_entry *entry)
{
    return entry->type;
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
    return (const gguf_tensor *)gguf_names_find(&file->tensor_names, name);
}
