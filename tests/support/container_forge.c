// SPDX-License-Identifier: MIT
#include "tests/support/container_forge.h"

#include "src/file/container/container.h"
#include "tests/support/folder.h"

#define XXH_INLINE_ALL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

// The end of the block is the end of the file where that is no multiple of 16.
forgery forgery_of(const void *data, size_t bytes)
{
    forgery f = {.bytes = bytes};
    if (posix_memalign((void **)&f.data, 4096, bytes ? bytes : 1))
        abort();
    if (bytes)
        memcpy(f.data, data, bytes);
    return f;
}

forgery forgery_read(const char *name)
{
    size_t bytes;
    unsigned char *data = folder_read(name, &bytes);
    const forgery f = forgery_of(data, bytes);
    free(data);
    return f;
}

void forgery_free(forgery *f)
{
    free(f->data);
    *f = (forgery){0};
}

static bool open_tensors(const forgery *f, kvern_context *context, kvern_safetensors *tensors)
{
    kvern_mapping *mapping;
    if (kvern_mapping_of(context, f->data, f->bytes, &mapping))
        abort();
    const bool opened = !kvern_safetensors_read(mapping, "forgery", tensors);
    kvern_mapping_release(mapping);
    return opened;
}

bool forgery_replace(forgery *f, const char *from, const char *to)
{
    unsigned char *at = memmem(f->data, f->bytes, from, strlen(from));
    if (!at || strlen(from) != strlen(to))
        return false;
    memcpy(at, to, strlen(to));
    return true;
}

unsigned char *forgery_tensor(forgery *f, kvern_context *context, const char *name, size_t *bytes)
{
    kvern_safetensors tensors;
    if (!open_tensors(f, context, &tensors))
        abort();
    const kvern_tensor *tensor = kvern_safetensors_find(&tensors, name);
    unsigned char *data = tensor ? f->data + (tensor->data - f->data) : NULL;
    if (!data)
        abort();
    *bytes = tensor->bytes;
    kvern_safetensors_close(&tensors);
    return data;
}

kvern_status forgery_use(const forgery *f, kvern_context *context, bool copy, kvern_state *state)
{
    kvern_file *file;
    kvern_file_load_options options = kvern_file_load_options_default();
    options.copy = copy;
    kvern_status status = kvern_file_open_memory(context, f->data, f->bytes, &file);
    if (status) {
        if (file)
            abort();
        return status;
    }
    status = kvern_file_verify(file);
    if (!status)
        status = kvern_file_load(file, &options, state);
    kvern_file_close(file);
    return status;
}

static void sum_pages(forgery *f, const kvern_safetensors *tensors)
{
    const kvern_tensor *sums = kvern_safetensors_find(tensors, "page_sums");
    size_t at = 0;
    for (size_t l = 0; sums && l < 64; l++) {
        for (int first = 0; first < 2; first++) {
            char name[48];
            snprintf(name, sizeof name, "pages.%zu%s", l, first ? ".first" : "");
            const kvern_tensor *pages = kvern_safetensors_find(tensors, name);
            const size_t count = pages && pages->dims == 2 ? (size_t)pages->shape[0] : 0;
            for (size_t i = 0; i < count && at < sums->bytes / 8; i++, at++) {
                const size_t page = pages->bytes / count;
                const uint64_t sum = XXH3_64bits(pages->data + i * page, page);
                memcpy(f->data + (sums->data - f->data) + 8 * at, &sum, sizeof sum);
            }
        }
    }
}

void forgery_sum(forgery *f, kvern_context *context, bool pages)
{
    static const char *const names[] = {"snapshots", "records", "ranges", "flags",
                                        "page_sums", "tables",  "tokens"};
    kvern_safetensors tensors;
    XXH3_state_t state;
    if (!open_tensors(f, context, &tensors))
        return;
    const kvern_tensor *sum = kvern_safetensors_find(&tensors, "sum");
    if (pages)
        sum_pages(f, &tensors);
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, f->data, tensors.data_begin);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const kvern_tensor *tensor = kvern_safetensors_find(&tensors, names[i]);
        if (tensor)
            XXH3_64bits_update(&state, tensor->data, tensor->bytes);
    }
    const uint64_t digest = XXH3_64bits_digest(&state);
    if (sum && sum->bytes >= sizeof digest)
        memcpy(f->data + (sum->data - f->data), &digest, sizeof digest);
    kvern_safetensors_close(&tensors);
}
