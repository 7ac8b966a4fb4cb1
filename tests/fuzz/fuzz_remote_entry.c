// SPDX-License-Identifier: MIT
// Any bytes as what lies at a server of a store that machines share: after a byte that says which,
// the value of an entry (with its sum made right, or nothing would be behind it), or a field of the
// index and its value. Refused with a sentence, or what was read holds what it promises, and is
// written as it was read.

#include "src/store/remote/remote_store.h"
#include "tests/support/small_rows.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MOST_CONTAINER (UINT64_C(1) << 24)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool holds)
{
    if (!holds)
        abort();
}

static void check_extents(const kvern_manifest *m)
{
    uint64_t literals = 0, end = 0;
    for (size_t i = 0; i < m->piece_count; i++) {
        expect(m->pieces[i].offset >= end && m->pieces[i].bytes > 0);
        end = m->pieces[i].offset + m->pieces[i].bytes;
        literals += m->pieces[i].bytes;
        expect(end <= m->container_bytes);
    }
    expect(literals == m->literal_bytes);
    end = 0;
    for (size_t i = 0; i < m->block_count; i++) {
        expect(m->blocks[i].offset >= end && m->blocks[i].bytes > 0);
        end = m->blocks[i].offset + m->blocks[i].bytes;
        expect(end <= m->container_bytes);
    }
}

// The container is laid out, and opened as a file is.
static void lay_out(kvern_context *context, const kvern_manifest *m)
{
    kvern_file *file;
    void *container = aligned_alloc(4096, ((size_t)m->container_bytes + 4095) / 4096 * 4096);
    expect(container);
    memset(container, 0, (size_t)m->container_bytes);
    kvern_manifest_spread(m, container);
    if (kvern_file_open_memory(context, container, (size_t)m->container_bytes, &file) == KVERN_OK)
        kvern_file_close(file);
    free(container);
}

static void read_entry(const uint8_t *data, size_t size)
{
    kvern_context *context = small_rows_context();
    kvern_manifest m;
    void *again;
    size_t bytes;
    uint8_t *value = malloc(size + 1);
    expect(value);
    memcpy(value, data, size);
    if (size >= 8) {
        const uint64_t sum = XXH3_64bits(value, size - 8);
        memcpy(value + size - 8, &sum, 8);
    }
    if (kvern_manifest_read(&context->heap, value, size, &m) == KVERN_OK) {
        check_extents(&m);
        expect(kvern_manifest_write(&m, &again, &bytes) == KVERN_OK);
        expect(bytes == size && memcmp(again, value, size) == 0);
        kvern_heap_give(&context->heap, again, bytes, KVERN_HEAP_ALIGNMENT);
        if (m.container_bytes <= MOST_CONTAINER)
            lay_out(context, &m);
    } else {
        expect(*kvern_error_detail());
    }
    kvern_manifest_free(&m);
    free(value);
    kvern_context_release(context);
}

// A field, an end of line, and its value.
static void read_hint(const char *text, size_t size)
{
    kvern_remote_hint hint;
    const char *line = memchr(text, '\n', size);
    const size_t field = line ? (size_t)(line - text) : 0;
    if (line && kvern_remote_hint_read(text, field, line + 1, size - field - 1, &hint)) {
        expect(strlen(hint.name) == KVERN_REMOTE_HASH_DIGITS);
        expect(hint.positions > 0 && hint.floor >= 0 && hint.floor <= hint.positions);
        expect(hint.why < KVERN_STORE_WHY_COUNT);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'e') {
        read_entry(data + 1, size - 1);
    } else {
        char *text = malloc(size); // exactly as large: reads behind it are found
        expect(text);
        memcpy(text, data + 1, size - 1);
        read_hint(text, size - 1);
        free(text);
    }
    return 0;
}
