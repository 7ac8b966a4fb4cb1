// SPDX-License-Identifier: MIT
#include "src/file/safetensors/writer.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/safetensors/reader.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_BYTES 8
#define BUFFER_BYTES ((size_t)1 << 20)
#define FIRST_PADS 16
#define LEAST_ALIGNMENT 8

static kvern_heap *heap_of(const kvern_safetensors_writer *writer)
{
    return &writer->context->heap;
}

static kvern_status no_memory(const kvern_safetensors_writer *writer)
{
    return kvern_fail(KVERN_ERR_MEMORY, "%s: no memory for its header", writer->file.path);
}

// ---- Describing ----

static kvern_status make_header(kvern_safetensors_writer *writer)
{
    writer->header = json_object();
    writer->metadata = json_object();
    if (!writer->header || !writer->metadata ||
        json_object_set(writer->header, "__metadata__", writer->metadata))
        return no_memory(writer);
    void *block;
    kvern_status status = kvern_heap_take(heap_of(writer), BUFFER_BYTES, 4096, &block);
    if (!status)
        writer->buffer = block;
    return status;
}

kvern_status kvern_safetensors_writer_begin(kvern_context *context, const kvern_disk_calls *calls,
                                            const char *path, kvern_safetensors_writer *out)
{
    *out = (kvern_safetensors_writer){.context = context, .alignment = LEAST_ALIGNMENT};
    kvern_status status = kvern_atomic_file_begin(&context->heap, calls, path, &out->file);
    if (!status)
        status = make_header(out);
    if (status)
        kvern_safetensors_abandon(out);
    return status;
}

kvern_status kvern_safetensors_writer_begin_sink(kvern_context *context,
                                                 const kvern_safetensors_sink *sink,
                                                 kvern_safetensors_writer *out)
{
    static char name[] = "memory"; // for messages
    *out = (kvern_safetensors_writer){
        .context = context, .alignment = LEAST_ALIGNMENT, .file = {.path = name}, .sink = sink};
    kvern_status status = make_header(out);
    if (status)
        kvern_safetensors_abandon(out);
    return status;
}

kvern_status kvern_safetensors_say(kvern_safetensors_writer *writer, const char *key,
                                   const char *value)
{
    if (json_object_get(writer->metadata, key))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: metadata %.80s is there already",
                          writer->file.path, key);
    json_t *text = json_string(value);
    if (!text)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: metadata %.80s is not UTF-8", writer->file.path,
                          key);
    return json_object_set_new(writer->metadata, key, text) ? no_memory(writer) : KVERN_OK;
}

static json_t *shape_json(size_t dims, const uint64_t *shape)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < dims; i++) {
        if (json_array_append_new(list, json_integer((json_int_t)shape[i]))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

// Room for `bytes` bytes of data under a name.
static kvern_status add_entry(kvern_safetensors_writer *writer, const char *name, kvern_dtype dtype,
                              size_t dims, const uint64_t *shape, uint64_t bytes)
{
    if (json_object_get(writer->header, name))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: tensor %.80s is there already",
                          writer->file.path, name);
    json_t *list = shape_json(dims, shape);
    json_t *entry = list ? json_pack("{s:s, s:o, s:[I, I]}", "dtype", kvern_dtypes[dtype].name,
                                     "shape", list, "data_offsets", (json_int_t)writer->described,
                                     (json_int_t)(writer->described + bytes))
                         : NULL;
    if (!entry || json_object_set_new(writer->header, name, entry))
        return no_memory(writer);
    writer->described += bytes;
    return KVERN_OK;
}

static kvern_status grow_pads(kvern_safetensors_writer *writer)
{
    const size_t capacity = writer->pad_capacity ? 2 * writer->pad_capacity : FIRST_PADS;
    void *block;
    kvern_status status = kvern_heap_take(heap_of(writer), capacity * sizeof writer->pads[0],
                                          KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    if (writer->pad_count)
        memcpy(block, writer->pads, writer->pad_count * sizeof writer->pads[0]);
    kvern_heap_give(heap_of(writer), writer->pads, writer->pad_capacity * sizeof writer->pads[0],
                    KVERN_HEAP_ALIGNMENT);
    writer->pads = block;
    writer->pad_capacity = capacity;
    return KVERN_OK;
}

static kvern_status add_pad(kvern_safetensors_writer *writer, size_t alignment)
{
    const uint64_t rest = writer->described % alignment;
    if (rest == 0)
        return KVERN_OK;
    kvern_status status = writer->pad_count == writer->pad_capacity ? grow_pads(writer) : KVERN_OK;
    if (status)
        return status;
    const kvern_safetensors_pad pad = {writer->described, alignment - (size_t)rest};
    const uint64_t shape = pad.bytes;
    char name[32];
    snprintf(name, sizeof name, "pad.%zu", writer->pad_count);
    if (!(status = add_entry(writer, name, KVERN_DTYPE_U8, 1, &shape, pad.bytes)))
        writer->pads[writer->pad_count++] = pad;
    return status;
}

kvern_status kvern_safetensors_describe(kvern_safetensors_writer *writer, const char *name,
                                        kvern_dtype dtype, size_t dims, const uint64_t *shape,
                                        size_t alignment)
{
    uint64_t bytes = kvern_dtypes[dtype].bytes;
    KVERN_ASSERT(!writer->text && dims <= KVERN_TENSOR_DIMS && alignment > 0);
    bool fits = true;
    for (size_t i = 0; i < dims; i++)
        fits = fits && kvern_u64_mul(bytes, shape[i], &bytes);
    if (!fits || bytes > INT64_MAX / 2 || writer->described > INT64_MAX / 2)
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s: tensor %.80s: its bytes overflow",
                          writer->file.path, name);
    kvern_status status = add_pad(writer, alignment);
    if (!status)
        status = add_entry(writer, name, dtype, dims, shape, bytes);
    if (!status)
        writer->alignment = kvern_max_size(writer->alignment, alignment);
    return status;
}

// ---- The header ----

static void store_length(char *to, uint64_t length)
{
    for (int i = 0; i < LENGTH_BYTES; i++)
        to[i] = (char)(length >> 8 * i & 255);
}

// The header's text with its length in front, and spaces behind it so that the data are aligned.
static kvern_status make_text(kvern_safetensors_writer *writer)
{
    const size_t used = json_dumpb(writer->header, NULL, 0, JSON_COMPACT);
    if (used == 0)
        return no_memory(writer);
    const size_t bytes = kvern_ceil_div(LENGTH_BYTES + used, writer->alignment) * writer->alignment;
    if (bytes - LENGTH_BYTES > KVERN_MOST_HEADER_BYTES)
        return kvern_fail(KVERN_ERR_RANGE, "%s: a header of %zu bytes, above %zu",
                          writer->file.path, bytes - LENGTH_BYTES, KVERN_MOST_HEADER_BYTES);
    void *block;
    kvern_status status = kvern_heap_take(heap_of(writer), bytes, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    writer->text = block;
    writer->text_bytes = bytes;
    memset(writer->text, ' ', bytes);
    store_length(writer->text, bytes - LENGTH_BYTES);
    if (json_dumpb(writer->header, writer->text + LENGTH_BYTES, used, JSON_COMPACT) != used)
        return no_memory(writer);
    return KVERN_OK;
}

kvern_status kvern_safetensors_start(kvern_safetensors_writer *writer)
{
    kvern_status status = make_text(writer);
    if (writer->sink)
        return status ? status
                      : writer->sink->put(writer->sink->user, writer->text, writer->text_bytes);
    if (!status)
        status = kvern_atomic_file_expect(&writer->file, writer->text_bytes + writer->described);
    if (!status)
        status = kvern_atomic_file_write(&writer->file, writer->text, writer->text_bytes);
    return status;
}

// ---- Data ----

static kvern_status flush(kvern_safetensors_writer *writer)
{
    const size_t bytes = writer->buffered;
    writer->buffered = 0;
    return kvern_atomic_file_write(&writer->file, writer->buffer, bytes);
}

// Through the buffer, or past it where that is empty. `data` NULL: zeros.
static kvern_status put_bytes(kvern_safetensors_writer *writer, const unsigned char *data,
                              size_t bytes)
{
    writer->put += bytes;
    if (writer->sink)
        return writer->sink->put(writer->sink->user, data, bytes);
    while (bytes > 0) {
        if (data && writer->buffered == 0 && bytes >= BUFFER_BYTES)
            return kvern_atomic_file_write(&writer->file, data, bytes);
        const size_t part = kvern_min_size(bytes, BUFFER_BYTES - writer->buffered);
        unsigned char *to = writer->buffer + writer->buffered;
        if (data)
            memcpy(to, data, part);
        else
            memset(to, 0, part);
        writer->buffered += part;
        data = data ? data + part : NULL;
        bytes -= part;
        kvern_status status = writer->buffered == BUFFER_BYTES ? flush(writer) : KVERN_OK;
        if (status)
            return status;
    }
    return KVERN_OK;
}

// Zeros, where they come next.
static kvern_status put_pads(kvern_safetensors_writer *writer)
{
    while (writer->next_pad < writer->pad_count &&
           writer->pads[writer->next_pad].begin == writer->put) {
        kvern_status status = put_bytes(writer, NULL, writer->pads[writer->next_pad++].bytes);
        if (status)
            return status;
    }
    return KVERN_OK;
}

kvern_status kvern_safetensors_put(kvern_safetensors_writer *writer, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    KVERN_ASSERT(writer->text);
    while (bytes > 0) {
        kvern_status status = put_pads(writer);
        if (status)
            return status;
        const bool padded = writer->next_pad < writer->pad_count;
        const uint64_t end = padded ? writer->pads[writer->next_pad].begin : writer->described;
        const uint64_t most = end - writer->put;
        if (most == 0)
            return kvern_fail(KVERN_ERR_ARGUMENT, "%s: more data than tensors", writer->file.path);
        const size_t part = bytes < most ? bytes : (size_t)most;
        if ((status = put_bytes(writer, from, part)))
            return status;
        from += part;
        bytes -= part;
    }
    return KVERN_OK;
}

// ---- The end ----

static void free_writer(kvern_safetensors_writer *writer)
{
    kvern_heap *heap = heap_of(writer);
    json_decref(writer->header);
    json_decref(writer->metadata);
    kvern_heap_give(heap, writer->buffer, BUFFER_BYTES, 4096);
    kvern_heap_give(heap, writer->text, writer->text_bytes, KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, writer->pads, writer->pad_capacity * sizeof writer->pads[0],
                    KVERN_HEAP_ALIGNMENT);
    *writer = (kvern_safetensors_writer){0};
}

kvern_status kvern_safetensors_commit(kvern_safetensors_writer *writer)
{
    kvern_status status = put_pads(writer);
    if (!status && writer->put != writer->described)
        status = kvern_fail(KVERN_ERR_ARGUMENT, "%s: tensors without data", writer->file.path);
    if (!status && !writer->sink)
        status = flush(writer);
    if (status) {
        kvern_safetensors_abandon(writer);
        return status;
    }
    if (!writer->sink)
        status = kvern_atomic_file_commit(&writer->file);
    free_writer(writer);
    return status;
}

void kvern_safetensors_abandon(kvern_safetensors_writer *writer)
{
    if (!writer->context)
        return;
    if (!writer->sink)
        kvern_atomic_file_abandon(&writer->file);
    free_writer(writer);
}
