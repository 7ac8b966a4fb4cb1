// SPDX-License-Identifier: MIT
// The GGUF reader on broken and forged files: refused with a sentence that names the fault, before
// anything is read out of bounds or allocated by a false count. Run it under AddressSanitizer too.

#include "engine/gguf/gguf.h"
#include "tests/support/byte_buffer.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_walk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TWO_TO_40 (UINT64_C(1) << 40)
#define TWO_TO_63 (UINT64_C(1) << 63)

static void put_header(byte_buffer *file, uint64_t tensors, uint64_t entries)
{
    byte_buffer_bytes(file, "GGUF", 4);
    byte_buffer_u32(file, 3);
    byte_buffer_u64(file, tensors);
    byte_buffer_u64(file, entries);
}

static void put_string(byte_buffer *file, const char *text)
{
    byte_buffer_u64(file, strlen(text));
    byte_buffer_bytes(file, text, strlen(text));
}

static void put_key(byte_buffer *file, const char *key, uint32_t type)
{
    put_string(file, key);
    byte_buffer_u32(file, type);
}

// A description with one dimension.
static void put_tensor(byte_buffer *file, const char *name, uint64_t elements, uint32_t type,
                       uint64_t offset)
{
    put_string(file, name);
    byte_buffer_u32(file, 1);
    byte_buffer_u64(file, elements);
    byte_buffer_u32(file, type);
    byte_buffer_u64(file, offset);
}

static void put_zeros(byte_buffer *file, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        byte_buffer_u8(file, 0);
    }
}

// From a block of exactly its size, so that AddressSanitizer sees a read past the end.
static void expect_refused_bytes(const void *data, size_t bytes, kvern_status expected,
                                 const char *sentence)
{
    void *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, data, bytes);
    gguf_file *file = (gguf_file *)exact;
    engine_error error = {0};
    kvern_status status = gguf_open_memory(exact, bytes, &file, &error);
    if (status != expected || !strstr(error.text, sentence)) {
        fail_msg("%s '%s' instead of %s '%s'", kvern_status_name(status), error.text,
                 kvern_status_name(expected), sentence);
    }
    assert_null(file);
    assert_int_equal(error.status, status);
    free(exact);
}

// Uses up the buffer.
static void expect_refused(byte_buffer *file, kvern_status expected, const char *sentence)
{
    expect_refused_bytes(file->data, file->size, expected, sentence);
    byte_buffer_free(file);
}

static void expect_opens(byte_buffer *file)
{
    gguf_file *open;
    engine_error error = {0};
    if (gguf_open_memory(file->data, file->size, &open, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    gguf_walk(open);
    gguf_close(open);
    byte_buffer_free(file);
}

static void wrong_mark(void **state)
{
    (void)state;
    expect_refused_bytes("", 0, KVERN_ERR_FORMAT, "memory: the file is empty");
    expect_refused_bytes("GGU", 3, KVERN_ERR_FORMAT, "the GGUF mark takes 4 bytes");
    expect_refused_bytes("GGMLxxxxxxxxxxxxxxxxxxxx", 24, KVERN_ERR_FORMAT, "not a GGUF file");
}

static void other_versions(void **state)
{
    (void)state;
    const struct {
        uint32_t version;
        const char *sentence;
    } cases[] = {{0, "version 0"},
                 {1, "version 1; versions 2 and 3"},
                 {4, "version 4"},
                 {0x03000000, "big-endian"},
                 {UINT32_MAX, "version 4294967295"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_builder *builder = gguf_builder_create();
        gguf_builder_version(builder, cases[i].version);
        size_t bytes;
        void *data = gguf_builder_finish(builder, &bytes);
        gguf_builder_destroy(builder);
        expect_refused_bytes(data, bytes, KVERN_ERR_UNSUPPORTED, cases[i].sentence);
        free(data);
    }
}

// Counts that would need terabytes if they were believed: refused as a format error, not for lack
// of memory.
static void counts_beyond_the_file(void **state)
{
    (void)state;
    const uint64_t counts[] = {1, 2, TWO_TO_40, TWO_TO_63, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        byte_buffer file = {0};
        put_header(&file, counts[i], 0);
        expect_refused(&file, KVERN_ERR_FORMAT, "the number of tensors is ");
        put_header(&file, 0, counts[i]);
        expect_refused(&file, KVERN_ERR_FORMAT, "the number of metadata entries is ");
    }
    for (uint32_t type = 0; type < 13; type++) {
        for (size_t i = 1; type != GGUF_ARRAY && i < sizeof counts / sizeof *counts; i++) {
            byte_buffer file = {0};
            put_header(&file, 0, 1);
            put_key(&file, "k", GGUF_ARRAY);
            byte_buffer_u32(&file, type);
            byte_buffer_u64(&file, counts[i]);
            byte_buffer_u8(&file, 1);
            expect_refused(&file, KVERN_ERR_FORMAT, "entry 0 'k': the array's length is ");
        }
    }
}

static void strings_beyond_the_file(void **state)
{
    (void)state;
    const uint64_t sizes[] = {31, TWO_TO_40, TWO_TO_63, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        byte_buffer file = {0};
        put_header(&file, 0, 1);
        byte_buffer_u64(&file, sizes[i]);
        put_zeros(&file, 15);
        expect_refused(&file, KVERN_ERR_FORMAT, "metadata entry 0: the key takes ");

        put_header(&file, 0, 1);
        put_key(&file, "k", GGUF_STRING);
        byte_buffer_u64(&file, sizes[i]);
        put_zeros(&file, 2);
        expect_refused(&file, KVERN_ERR_FORMAT, "metadata entry 0 'k': the string takes ");

        put_header(&file, 0, 1);
        put_key(&file, "k", GGUF_ARRAY);
        byte_buffer_u32(&file, GGUF_STRING);
        byte_buffer_u64(&file, 2);
        put_string(&file, "first");
        byte_buffer_u64(&file, sizes[i]);
        put_zeros(&file, 2);
        expect_refused(&file, KVERN_ERR_FORMAT, "entry 0 'k': a string of the array takes ");

        put_header(&file, 1, 0);
        byte_buffer_u64(&file, sizes[i]);
        put_zeros(&file, 30);
        expect_refused(&file, KVERN_ERR_FORMAT, "tensor 0: the name takes ");
    }
}

static void value_types_that_do_not_exist(void **state)
{
    (void)state;
    const uint32_t types[] = {13, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char sentence[100];
        byte_buffer file = {0};
        put_header(&file, 0, 1);
        put_key(&file, "general.name", types[i]);
        put_zeros(&file, 16);
        snprintf(sentence, sizeof sentence,
                 "entry 0 'general.name': the value type %u does not exist (at byte 44)", types[i]);
        expect_refused(&file, KVERN_ERR_FORMAT, sentence);

        put_header(&file, 0, 1);
        put_key(&file, "general.name", GGUF_ARRAY);
        byte_buffer_u32(&file, types[i]);
        byte_buffer_u64(&file, 0);
        snprintf(sentence, sizeof sentence, "the element type %u does not exist (at byte 48)",
                 types[i]);
        expect_refused(&file, KVERN_ERR_FORMAT, sentence);
    }
}

static void arrays_of_arrays(void **state)
{
    (void)state;
    byte_buffer file = {0};
    put_header(&file, 0, 1);
    put_key(&file, "nest", GGUF_ARRAY);
    byte_buffer_u32(&file, GGUF_ARRAY);
    byte_buffer_u64(&file, 1);
    byte_buffer_u32(&file, GGUF_UINT8);
    byte_buffer_u64(&file, 1);
    byte_buffer_u8(&file, 1);
    expect_refused(&file, KVERN_ERR_UNSUPPORTED, "entry 0 'nest': an array of arrays");
}

static void bools_beside_0_and_1(void **state)
{
    (void)state;
    byte_buffer file = {0};
    put_header(&file, 0, 1);
    put_key(&file, "b", GGUF_BOOL);
    byte_buffer_u8(&file, 2);
    expect_refused(&file, KVERN_ERR_FORMAT, "entry 0 'b': the bool is 2, not 0 or 1 (at byte 37)");

    put_header(&file, 0, 1);
    put_key(&file, "b", GGUF_ARRAY);
    byte_buffer_u32(&file, GGUF_BOOL);
    byte_buffer_u64(&file, 3);
    byte_buffer_bytes(&file, "\1\0\xff", 3);
    expect_refused(&file, KVERN_ERR_FORMAT, "the bool is 255, not 0 or 1 (at byte 51)");
}

// One entry with a key of any bytes.
static void put_byte_key(byte_buffer *file, const void *key, size_t bytes)
{
    put_header(file, 0, 1);
    byte_buffer_u64(file, bytes);
    byte_buffer_bytes(file, key, bytes);
    byte_buffer_u32(file, GGUF_UINT8);
    byte_buffer_u8(file, 1);
}

static void keys_that_are_no_names(void **state)
{
    (void)state;
    byte_buffer file = {0};
    put_byte_key(&file, "", 0);
    put_zeros(&file, 1);
    expect_refused(&file, KVERN_ERR_FORMAT, "the key has 0 bytes, not 1 to 65535");
    const char bad[] = {'\0', '\n', '\x1b', '\x7f', '\x80', '\xff'};
    for (size_t i = 0; i < sizeof bad; i++) {
        char key[3] = {'a', bad[i], 'b'};
        put_byte_key(&file, key, 3);
        expect_refused(&file, KVERN_ERR_FORMAT, "metadata entry 0: the key is not printable ASCII");
    }
    char *longest = malloc(65536);
    memset(longest, 'k', 65536);
    put_byte_key(&file, longest, 65535);
    expect_opens(&file);
    put_byte_key(&file, longest, 65536);
    expect_refused(&file, KVERN_ERR_FORMAT, "the key has 65536 bytes, not 1 to 65535");
    free(longest);
}

static void repeated_keys(void **state)
{
    (void)state;
    byte_buffer file = {0};
    put_header(&file, 0, 3);
    put_key(&file, "same", GGUF_UINT8);
    byte_buffer_u8(&file, 1);
    put_key(&file, "other", GGUF_UINT8);
    byte_buffer_u8(&file, 1);
    put_key(&file, "same", GGUF_BOOL);
    byte_buffer_u8(&file, 1);
    expect_refused(&file, KVERN_ERR_FORMAT, " 'same': the key occurs twice");
}

static void alignments(void **state)
{
    (void)state;
    const uint32_t bad[] = {0, 1, 2, 3, 4, 7, 9, 48, 131072, UINT32_C(1) << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char sentence[100];
        byte_buffer file = {0};
        put_header(&file, 0, 1);
        put_key(&file, "general.alignment", GGUF_UINT32);
        byte_buffer_u32(&file, bad[i]);
        snprintf(sentence, sizeof sentence,
                 "'general.alignment': %u is not a power of two from 8 to 65536", bad[i]);
        expect_refused(&file, KVERN_ERR_FORMAT, sentence);
    }
    const uint32_t good[] = {8, 16, 65536};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        byte_buffer file = {0};
        put_header(&file, 0, 1);
        put_key(&file, "general.alignment", GGUF_UINT32);
        byte_buffer_u32(&file, good[i]);
        expect_opens(&file);
    }
    byte_buffer file = {0};
    put_header(&file, 0, 1);
    put_key(&file, "general.alignment", GGUF_UINT64);
    byte_buffer_u64(&file, 32);
    expect_refused(&file, KVERN_ERR_FORMAT, "its type is uint64, not uint32");
}

static void put_shape(byte_buffer *file, uint32_t dims, const uint64_t *shape, uint32_t type)
{
    put_header(file, 1, 0);
    put_string(file, "w");
    byte_buffer_u32(file, dims);
    for (uint32_t i = 0; i < dims && i < 8; i++) {
        byte_buffer_u64(file, shape[i]);
    }
    byte_buffer_u32(file, type);
    byte_buffer_u64(file, 0);
    byte_buffer_align(file, 32);
    put_zeros(file, 64);
}

static void impossible_shapes(void **state)
{
    (void)state;
    const struct {
        uint32_t dims;
        uint64_t shape[8];
        uint32_t type;
        const char *sentence;
    } cases[] = {
        {0, {0}, 0, "0 dimensions, not 1 to 4"},
        {5, {1, 1, 1, 1, 1}, 0, "5 dimensions, not 1 to 4"},
        {UINT32_MAX, {1, 1, 1, 1}, 0, "4294967295 dimensions"},
        {1, {0}, 0, "shape[0] is 0"},
        {3, {4, 2, 0}, 0, "shape[2] is 0"},
        {3, {TWO_TO_63, TWO_TO_63, 0}, 0, "overflows at shape[0]"},
        {2, {TWO_TO_40, TWO_TO_40}, 0, "overflows at shape[1] = 1099511627776"},
        {4, {1 << 16, 1 << 16, 1 << 16, 1 << 15}, 0, "overflows at shape[3]"},
        {1, {UINT64_MAX}, 0, "overflows at shape[0]"},
        // An unknown type's elements are counted as well.
        {2, {TWO_TO_40, TWO_TO_40}, 77, "overflows at shape[1]"},
        // Fits an int64_t as a count, but not as bytes.
        {1, {INT64_MAX}, GGUF_TYPE_F32, "the number of bytes overflows"},
        {1, {TWO_TO_40}, GGUF_TYPE_F32, "(4398046511104 bytes at offset 0) leaves the data"},
        {1, {33}, GGUF_TYPE_Q4_0, "shape[0] = 33 is no multiple of the 32 elements in a Q4_0"},
        {2, {8, 4}, GGUF_TYPE_Q8_0, "shape[0] = 8 is no multiple of the 32"},
        {2, {128, 2}, GGUF_TYPE_Q6_K, "shape[0] = 128 is no multiple of the 256 elements"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        byte_buffer file = {0};
        put_shape(&file, cases[i].dims, cases[i].shape, cases[i].type);
        expect_refused(&file, KVERN_ERR_FORMAT, cases[i].sentence);
    }
}

static void tensor_names(void **state)
{
    (void)state;
    char name[66];
    memset(name, 'n', sizeof name);
    name[64] = '\0';
    byte_buffer file = {0};
    put_header(&file, 1, 0);
    put_tensor(&file, name, 1, 0, 0);
    byte_buffer_align(&file, 32);
    put_zeros(&file, 4);
    expect_opens(&file);

    name[64] = 'n';
    name[65] = '\0';
    put_header(&file, 1, 0);
    put_tensor(&file, name, 1, 0, 0);
    expect_refused(&file, KVERN_ERR_FORMAT, "tensor 0: the name has 65 bytes, not 1 to 64");

    put_header(&file, 1, 0);
    put_tensor(&file, "\x1b[2J", 1, 0, 0);
    expect_refused(&file, KVERN_ERR_FORMAT, "tensor 0: the name is not printable ASCII");

    put_header(&file, 2, 0);
    put_tensor(&file, "blk.0", 1, 0, 0);
    put_tensor(&file, "blk.0", 1, 0, 32);
    byte_buffer_align(&file, 32);
    put_zeros(&file, 64);
    expect_refused(&file, KVERN_ERR_FORMAT, "'blk.0': the name occurs twice");
}

// Two tensors of 16 floats in a data section of 128 bytes: where may they lie?
static void offsets(void **state)
{
    (void)state;
    const struct {
        uint64_t first, second;
        uint32_t first_type;
        const char *sentence; // NULL: opens
    } cases[] = {
        {0, 64, GGUF_TYPE_F32, NULL},
        {64, 0, GGUF_TYPE_F32, NULL},
        {0, 32, GGUF_TYPE_F32, "tensor 1 'b': its data overlaps that of tensor 'a'"},
        {32, 0, GGUF_TYPE_F32, "tensor 0 'a': its data overlaps that of tensor 'b'"},
        {0, 0, GGUF_TYPE_F32, "overlaps"},
        {0, 96, GGUF_TYPE_F32,
         "'b': its data (64 bytes at offset 96) leaves the data section of 128"},
        {128, 0, GGUF_TYPE_F32, "'a': its data (64 bytes at offset 128) leaves"},
        {0, UINT64_MAX - 31, GGUF_TYPE_F32,
         "'b': its data (64 bytes at offset 18446744073709551584)"},
        {0, TWO_TO_63, GGUF_TYPE_F32, "leaves the data section"},
        {0, 68, GGUF_TYPE_F32, "'b': its offset 68 is no multiple of the alignment 32"},
        // A type of unknown size: its start counts.
        {64, 0, 40, NULL},
        {96, 0, 40, NULL},
        {0, 64, 40, NULL},
        {0, 0, 40, "overlaps"},
        {32, 0, 40, "tensor 0 'a': its data overlaps that of tensor 'b'"},
        {128, 0, 40, "'a': its data (1 bytes at offset 128) leaves"},
        {3, 32, 40, "'a': its offset 3 is no multiple"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        byte_buffer file = {0};
        put_header(&file, 2, 0);
        put_tensor(&file, "a", 16, cases[i].first_type, cases[i].first);
        put_tensor(&file, "b", 16, GGUF_TYPE_F32, cases[i].second);
        byte_buffer_align(&file, 32);
        put_zeros(&file, 128);
        if (cases[i].sentence) {
            expect_refused(&file, KVERN_ERR_FORMAT, cases[i].sentence);
        } else {
            expect_opens(&file);
        }
    }
}

// A file with some of everything, about a kilobyte.
static void *make_valid(size_t *bytes)
{
    gguf_builder *builder = gguf_builder_create();
    unsigned char data[210] = {0};
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 7);
    }
    gguf_builder_string(builder, "general.architecture", "llama");
    gguf_builder_alignment(builder, 16);
    gguf_builder_u8(builder, "u8", 1);
    gguf_builder_i16(builder, "i16", -2);
    gguf_builder_f64(builder, "f64", 0.5);
    gguf_builder_bool(builder, "bool", true);
    gguf_builder_strings(builder, "tokens", (const char *[]){"a", "bc", ""}, 3);
    gguf_builder_array(builder, "scores", GGUF_FLOAT32, (float[]){1, 2}, 2);
    gguf_builder_array(builder, "flags", GGUF_BOOL, (bool[]){true, false}, 2);
    gguf_builder_tensor(builder, "f32", GGUF_TYPE_F32, 2, (uint64_t[]){4, 2}, data, 32);
    gguf_builder_tensor(builder, "q4_0", GGUF_TYPE_Q4_0, 3, (uint64_t[]){32, 1, 2}, data, 36);
    gguf_builder_tensor(builder, "nvfp4", 40, 1, (uint64_t[]){32}, data, 17);
    gguf_builder_tensor(builder, "q6_k", GGUF_TYPE_Q6_K, 1, (uint64_t[]){256}, data, 210);
    void *file = gguf_builder_finish(builder, bytes);
    gguf_builder_destroy(builder);
    return file;
}

// The builder does not pad the end, so that every byte belongs to something.
static void cut_at_every_byte(void **state)
{
    (void)state;
    size_t bytes;
    void *whole = make_valid(&bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        expect_refused_bytes(whole, cut, KVERN_ERR_FORMAT, "memory: ");
    }
    gguf_file *file;
    assert_int_equal(gguf_open_memory(whole, bytes, &file, NULL), KVERN_OK);
    gguf_close(file);
    free(whole);
}

// Opens or refuses; whatever opens can be read throughout. Returns whether it opened.
static bool try(const unsigned char *data, size_t bytes)
{
    gguf_file *file;
    engine_error error = {0};
    if (gguf_open_memory(data, bytes, &file, &error) != KVERN_OK) {
        assert_null(file);
        assert_memory_equal(error.text, "memory: ", 8);
        return false;
    }
    gguf_walk(file);
    gguf_close(file);
    return true;
}

static void change_every_byte(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *data = make_valid(&bytes);
    size_t opened = 0, refused = 0;
    for (size_t at = 0; at < bytes; at++) {
        unsigned char original = data[at];
        for (int bit = 0; bit < 8; bit++) {
            data[at] = (unsigned char)(original ^ 1 << bit);
            try(data, bytes) ? opened++ : refused++;
        }
        const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
        for (size_t i = 0; i < sizeof values; i++) {
            data[at] = values[i];
            try(data, bytes);
        }
        data[at] = original;
    }
    // Most of the file is names, values and data, which may be anything; headers may not.
    assert_true(opened > 0 && refused > 0);
    free(data);
}

// Every 8-byte window becomes a number that begs for an overflow.
static void change_every_word(void **state)
{
    (void)state;
    const uint64_t numbers[] = {0, 1, TWO_TO_40, TWO_TO_63 - 1, TWO_TO_63, UINT64_MAX};
    size_t bytes;
    unsigned char *data = make_valid(&bytes);
    for (size_t at = 0; at + 8 <= bytes; at++) {
        unsigned char original[8];
        memcpy(original, data + at, 8);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            memcpy(data + at, &numbers[i], 8);
            try(data, bytes);
        }
        memcpy(data + at, original, 8);
    }
    free(data);
}

// Positions in an array of strings are kept in 32 bits: a string that begins above that is refused.
// The file is sparse, and only its first and last page are read.
static void strings_above_4_gib(void **state)
{
    (void)state;
    char path[] = "/tmp/kvern-test-gguf-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    byte_buffer start = {0};
    put_header(&start, 0, 1);
    put_key(&start, "tokens", GGUF_ARRAY);
    byte_buffer_u32(&start, GGUF_STRING);
    byte_buffer_u64(&start, 2);
    byte_buffer_u64(&start, UINT32_MAX);
    bool made = write(descriptor, start.data, start.size) == (ssize_t)start.size &&
                ftruncate(descriptor, (off_t)start.size + UINT32_MAX + 8) == 0;
    close(descriptor);
    byte_buffer_free(&start);
    if (!made) {
        unlink(path);
        print_message("the file system has no room for a sparse file of 4 GiB\n");
        skip();
    }
    gguf_file *file;
    engine_error error = {0};
    kvern_status status = gguf_open(path, &file, &error);
    unlink(path);
    assert_int_equal(status, KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.text, "'tokens': an array of strings above 4 GiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_mark),
        cmocka_unit_test(other_versions),
        cmocka_unit_test(counts_beyond_the_file),
        cmocka_unit_test(strings_beyond_the_file),
        cmocka_unit_test(value_types_that_do_not_exist),
        cmocka_unit_test(arrays_of_arrays),
        cmocka_unit_test(bools_beside_0_and_1),
        cmocka_unit_test(keys_that_are_no_names),
        cmocka_unit_test(repeated_keys),
        cmocka_unit_test(alignments),
        cmocka_unit_test(impossible_shapes),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(offsets),
        cmocka_unit_test(strings_above_4_gib),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(change_every_byte),
        cmocka_unit_test(change_every_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
