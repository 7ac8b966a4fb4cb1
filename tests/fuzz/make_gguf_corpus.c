// SPDX-License-Identifier: MIT
// Writes the seeds of the GGUF fuzz target into a folder: small files that between them hold every
// kind of value and tensor, from which the fuzzer finds its way. `make_gguf_corpus
// tests/fuzz/corpus/gguf`

#include "tests/support/gguf_builder.h"

#include <stdio.h>
#include <stdlib.h>

static void save(gguf_builder *builder, const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gguf_builder_save(builder, path);
    gguf_builder_destroy(builder);
}

static void make_empty(const char *folder)
{
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_version(builder, 2);
    save(builder, folder, "empty");
}

static void make_scalars(const char *folder)
{
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_u8(builder, "a", 1);
    gguf_builder_i8(builder, "b", -2);
    gguf_builder_u16(builder, "c", 3);
    gguf_builder_i16(builder, "d", -4);
    gguf_builder_u32(builder, "e", 5);
    gguf_builder_i32(builder, "f", -6);
    gguf_builder_u64(builder, "g", UINT64_MAX);
    gguf_builder_i64(builder, "h", -8);
    gguf_builder_f32(builder, "i", 0.5f);
    gguf_builder_f64(builder, "j", 1e300);
    gguf_builder_bool(builder, "k", true);
    gguf_builder_string(builder, "l", "text");
    save(builder, folder, "scalars");
}

static void make_arrays(const char *folder)
{
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_strings(builder, "tokens", (const char *[]){"a", "", "bc"}, 3);
    gguf_builder_array(builder, "scores", GGUF_FLOAT32, (float[]){1, -2}, 2);
    gguf_builder_array(builder, "types", GGUF_INT32, (int32_t[]){1, 3, 6}, 3);
    gguf_builder_array(builder, "pattern", GGUF_BOOL, (bool[]){true, false}, 2);
    gguf_builder_array(builder, "none", GGUF_UINT64, NULL, 0);
    save(builder, folder, "arrays");
}

static void make_plain_tensors(const char *folder)
{
    gguf_builder *builder = gguf_builder_create();
    unsigned char data[32] = {1, 2, 3, 4};
    gguf_builder_alignment(builder, 8);
    gguf_builder_tensor(builder, "f32", GGUF_TYPE_F32, 2, (uint64_t[]){2, 2}, data, 16);
    gguf_builder_tensor(builder, "f16", GGUF_TYPE_F16, 1, (uint64_t[]){4}, data, 8);
    gguf_builder_tensor(builder, "bf16", GGUF_TYPE_BF16, 3, (uint64_t[]){2, 1, 2}, data, 8);
    gguf_builder_tensor(builder, "other", 39, 1, (uint64_t[]){32}, data, 17);
    save(builder, folder, "plain_tensors");
}

// One file per group of block types keeps each within a few hundred bytes.
static void make_blocks(const char *folder, const char *name, const uint32_t *types, size_t count)
{
    gguf_builder *builder = gguf_builder_create();
    unsigned char data[256];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 37);
    }
    gguf_builder_alignment(builder, 8);
    for (size_t i = 0; i < count; i++) {
        size_t elements, bytes;
        if (!element_type_block(types[i], &elements, &bytes)) {
            abort();
        }
        uint64_t shape[] = {elements};
        gguf_builder_tensor(builder, element_type_name(types[i]), types[i], 1, shape, data, bytes);
    }
    save(builder, folder, name);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    const char *folder = argv[1];
    make_empty(folder);
    make_scalars(folder);
    make_arrays(folder);
    make_plain_tensors(folder);
    make_blocks(folder, "small_blocks",
                (uint32_t[]){GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1,
                             GGUF_TYPE_Q8_0},
                5);
    make_blocks(folder, "q2_k", (uint32_t[]){GGUF_TYPE_Q2_K}, 1);
    make_blocks(folder, "q3_k", (uint32_t[]){GGUF_TYPE_Q3_K}, 1);
    make_blocks(folder, "q4_k", (uint32_t[]){GGUF_TYPE_Q4_K}, 1);
    make_blocks(folder, "q5_k", (uint32_t[]){GGUF_TYPE_Q5_K}, 1);
    make_blocks(folder, "q6_k", (uint32_t[]){GGUF_TYPE_Q6_K}, 1);
    return 0;
}
