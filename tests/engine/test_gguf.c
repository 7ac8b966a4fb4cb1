// SPDX-License-Identifier: MIT
// The GGUF reader on good files: what the builder or the reference writer put in comes out.
// Refusals are tested in test_gguf_hostile.c.

#include "engine/gguf/gguf.h"
#include "tests/support/byte_buffer.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/gguf_walk.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

// A file in memory, open; the builder is used up.
typedef struct built {
    void *data;
    size_t bytes;
    gguf_file *file;
} built;

static gguf_file *open_memory(const void *data, size_t bytes)
{
    gguf_file *file;
    engine_error error = {0};
    if (gguf_open_memory(data, bytes, &file, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return file;
}

static gguf_file *open_path(const char *path)
{
    gguf_file *file;
    engine_error error = {0};
    if (gguf_open(path, &file, &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    return file;
}

static built build(gguf_builder *builder)
{
    built result;
    result.data = gguf_builder_finish(builder, &result.bytes);
    gguf_builder_destroy(builder);
    result.file = open_memory(result.data, result.bytes);
    return result;
}

static void release(built *built)
{
    gguf_walk(built->file);
    gguf_close(built->file);
    free(built->data);
}

static void assert_text(gguf_string string, const char *expected)
{
    assert_int_equal(string.size, strlen(expected));
    assert_memory_equal(string.data, expected, string.size);
}

static void assert_u64(const gguf_file *file, const char *key, uint64_t expected)
{
    uint64_t value;
    assert_true(gguf_get_u64(gguf_find(file, key), &value));
    assert_true(value == expected);
}

static void assert_i64(const gguf_file *file, const char *key, int64_t expected)
{
    config_value value = gguf_entry_value(gguf_find(file, key));
    assert_int_equal(value.kind, CONFIG_INTEGER);
    assert_true(value.integer == expected);
}

static void assert_f32(const gguf_file *file, const char *key, float expected)
{
    float value;
    assert_true(gguf_get_f32(gguf_find(file, key), &value));
    assert_memory_equal(&value, &expected, sizeof value);
}

static void assert_string(const gguf_file *file, const char *key, const char *expected)
{
    gguf_string value;
    assert_true(gguf_get_string(gguf_find(file, key), &value));
    assert_text(value, expected);
}

static void empty_file_has_nothing(void **state)
{
    (void)state;
    built built = build(gguf_builder_create());
    assert_int_equal(gguf_version(built.file), 3);
    assert_int_equal(gguf_file_bytes(built.file), 24);
    assert_int_equal(gguf_entry_count(built.file), 0);
    assert_int_equal(gguf_tensor_count(built.file), 0);
    assert_null(gguf_find(built.file, "general.architecture"));
    assert_null(gguf_find_tensor(built.file, "output.weight"));
    release(&built);
}

static void version_2_is_read(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_version(builder, 2);
    gguf_builder_u32(builder, "a.b", 7);
    built built = build(builder);
    assert_int_equal(gguf_version(built.file), 2);
    assert_u64(built.file, "a.b", 7);
    release(&built);
}

static void scalars_of_every_type(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_u8(builder, "u8", UINT8_MAX);
    gguf_builder_i8(builder, "i8", INT8_MIN);
    gguf_builder_u16(builder, "u16", UINT16_MAX);
    gguf_builder_i16(builder, "i16", INT16_MIN);
    gguf_builder_u32(builder, "u32", UINT32_MAX);
    gguf_builder_i32(builder, "i32", INT32_MIN);
    gguf_builder_u64(builder, "u64", UINT64_MAX);
    gguf_builder_i64(builder, "i64", INT64_MIN);
    gguf_builder_f32(builder, "f32", 0.1f);
    gguf_builder_f64(builder, "f64", 0.1);
    gguf_builder_bool(builder, "yes", true);
    gguf_builder_bool(builder, "no", false);
    gguf_builder_string(builder, "string", "kværn");
    gguf_builder_string(builder, "empty", "");
    gguf_builder_bytes(builder, "bytes", (gguf_string){"a\0\xff", 3});
    built built = build(builder);
    gguf_file *file = built.file;

    assert_u64(file, "u8", UINT8_MAX);
    assert_i64(file, "i8", INT8_MIN);
    assert_u64(file, "u16", UINT16_MAX);
    assert_i64(file, "i16", INT16_MIN);
    assert_u64(file, "u32", UINT32_MAX);
    assert_i64(file, "i32", INT32_MIN);
    assert_u64(file, "u64", UINT64_MAX);
    assert_i64(file, "i64", INT64_MIN);
    assert_f32(file, "f32", 0.1f);
    assert_f32(file, "f64", 0.1f);
    bool flag = false;
    assert_true(gguf_get_bool(gguf_find(file, "yes"), &flag) && flag);
    assert_true(gguf_get_bool(gguf_find(file, "no"), &flag) && !flag);
    assert_string(file, "string", "kværn");
    assert_string(file, "empty", "");
    gguf_string bytes;
    assert_true(gguf_get_string(gguf_find(file, "bytes"), &bytes));
    assert_int_equal(bytes.size, 3);
    assert_memory_equal(bytes.data, "a\0\xff", 3);

    // Entries keep the file's order and types.
    assert_int_equal(gguf_entry_count(file), 15);
    assert_text(gguf_entry_key(gguf_entry_at(file, 0)), "u8");
    assert_int_equal(gguf_entry_value(gguf_entry_at(file, 0)).kind, CONFIG_INTEGER);
    assert_text(gguf_entry_key(gguf_entry_at(file, 9)), "f64");
    assert_int_equal(gguf_entry_value(gguf_entry_at(file, 9)).kind, CONFIG_REAL);
    assert_null(gguf_entry_at(file, 15));
    release(&built);
}

static void conversions_refuse_what_does_not_fit(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_i32(builder, "negative", -1);
    gguf_builder_u64(builder, "large", (uint64_t)INT64_MAX + 1);
    gguf_builder_f32(builder, "real", 2.0f);
    gguf_builder_f64(builder, "huge", 1e300);
    gguf_builder_f64(builder, "infinite", INFINITY);
    gguf_builder_f64(builder, "largest", FLT_MAX);
    gguf_builder_bool(builder, "bool", true);
    gguf_builder_string(builder, "string", "1");
    gguf_builder_array(builder, "array", GGUF_UINT32, (uint32_t[]){1}, 1);
    built built = build(builder);
    gguf_file *file = built.file;

    uint64_t u64 = 42;
    float f32 = 42;
    bool flag = true;
    gguf_string string = {"same", 4};
    const char *no_integers[] = {"real", "huge", "bool", "string", "array", "absent"};
    for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++) {
        assert_false(gguf_get_u64(gguf_find(file, no_integers[i]), &u64));
        assert_int_not_equal(gguf_entry_value(gguf_find(file, no_integers[i])).kind,
                             CONFIG_INTEGER);
    }
    assert_false(gguf_get_u64(gguf_find(file, "negative"), &u64));
    assert_int_equal(gguf_entry_value(gguf_find(file, "large")).kind, CONFIG_REAL);
    const char *no_floats[] = {"huge", "bool", "string", "array", "absent"};
    for (size_t i = 0; i < sizeof no_floats / sizeof *no_floats; i++) {
        assert_false(gguf_get_f32(gguf_find(file, no_floats[i]), &f32));
    }
    assert_false(gguf_get_bool(gguf_find(file, "negative"), &flag));
    assert_false(gguf_get_string(gguf_find(file, "array"), &string));
    assert_false(gguf_get_string(NULL, &string));
    assert_true(u64 == 42 && f32 == 42 && flag);
    assert_text(string, "same");

    assert_f32(file, "negative", -1);
    assert_f32(file, "large", 0x1p63f);
    assert_f32(file, "infinite", INFINITY);
    assert_f32(file, "largest", FLT_MAX);
    release(&built);
}

static void arrays_of_every_type(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_array(builder, "u8", GGUF_UINT8, (uint8_t[]){1, UINT8_MAX}, 2);
    gguf_builder_array(builder, "i8", GGUF_INT8, (int8_t[]){1, INT8_MIN}, 2);
    gguf_builder_array(builder, "u16", GGUF_UINT16, (uint16_t[]){1, UINT16_MAX}, 2);
    gguf_builder_array(builder, "i16", GGUF_INT16, (int16_t[]){1, INT16_MIN}, 2);
    gguf_builder_array(builder, "u32", GGUF_UINT32, (uint32_t[]){1, UINT32_MAX}, 2);
    gguf_builder_array(builder, "i32", GGUF_INT32, (int32_t[]){1, INT32_MIN}, 2);
    gguf_builder_array(builder, "u64", GGUF_UINT64, (uint64_t[]){1, INT64_MAX}, 2);
    gguf_builder_array(builder, "i64", GGUF_INT64, (int64_t[]){1, INT64_MIN}, 2);
    built built = build(builder);
    const int64_t expected[] = {UINT8_MAX,  INT8_MIN,  UINT16_MAX, INT16_MIN,
                                UINT32_MAX, INT32_MIN, INT64_MAX,  INT64_MIN};
    const gguf_value_type types[] = {GGUF_UINT8,  GGUF_INT8,  GGUF_UINT16, GGUF_INT16,
                                     GGUF_UINT32, GGUF_INT32, GGUF_UINT64, GGUF_INT64};
    for (size_t i = 0; i < 8; i++) {
        const gguf_entry *entry = gguf_entry_at(built.file, i);
        int64_t first, second;
        float real;
        assert_int_equal(gguf_entry_value(entry).kind, CONFIG_LIST);
        assert_int_equal(gguf_array_type(entry), types[i]);
        assert_int_equal(gguf_array_count(entry), 2);
        assert_true(gguf_array_i64(entry, 0, &first) && first == 1);
        assert_true(gguf_array_i64(entry, 1, &second) && second == expected[i]);
        assert_true(gguf_array_f32(entry, 1, &real) && real == (float)expected[i]);
        assert_false(gguf_array_i64(entry, 2, &first));
        assert_false(gguf_array_i64(entry, SIZE_MAX, &first));
    }
    release(&built);
}

static void arrays_of_reals_bools_and_strings(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_array(builder, "f32", GGUF_FLOAT32, (float[]){0.25f, -3}, 2);
    gguf_builder_array(builder, "f64", GGUF_FLOAT64, (double[]){0.1, 1e300}, 2);
    gguf_builder_array(builder, "bool", GGUF_BOOL, (bool[]){true, false}, 2);
    gguf_builder_strings(builder, "string", (const char *[]){"a", "", "€"}, 3);
    gguf_builder_strings(builder, "none", NULL, 0);
    built built = build(builder);
    gguf_file *file = built.file;

    float real;
    bool flag;
    int64_t integer = 42;
    gguf_string string;
    const gguf_entry *entry = gguf_find(file, "f32");
    assert_true(gguf_array_f32(entry, 1, &real) && real == -3);
    assert_false(gguf_array_i64(entry, 1, &integer));
    entry = gguf_find(file, "f64");
    assert_true(gguf_array_f32(entry, 0, &real) && real == 0.1f);
    assert_false(gguf_array_f32(entry, 1, &real));
    entry = gguf_find(file, "bool");
    assert_true(gguf_array_bool(entry, 0, &flag) && flag);
    assert_true(gguf_array_bool(entry, 1, &flag) && !flag);
    assert_false(gguf_array_bool(entry, 2, &flag));
    assert_false(gguf_array_i64(entry, 0, &integer));
    entry = gguf_find(file, "string");
    assert_int_equal(gguf_array_type(entry), GGUF_STRING);
    assert_true(gguf_array_string(entry, 1, &string));
    assert_text(string, "");
    assert_true(gguf_array_string(entry, 2, &string));
    assert_text(string, "€");
    assert_false(gguf_array_string(entry, 3, &string));
    assert_false(gguf_array_string(gguf_find(file, "f32"), 0, &string));
    assert_false(gguf_array_f32(entry, 0, &real));
    assert_int_equal(gguf_array_count(gguf_find(file, "none")), 0);
    assert_int_equal(gguf_array_count(NULL), 0);
    assert_int_equal(integer, 42);
    release(&built);
}

// As many strings as the largest vocabularies have, read backwards: by an index, not by walking.
static void large_string_array(void **state)
{
    (void)state;
    enum { COUNT = 262144 };
    static char texts[COUNT][12];
    static const char *pointers[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof texts[i], "%zu", i * i % 1000003);
        pointers[i] = texts[i];
    }
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_strings(builder, "tokens", pointers, COUNT);
    gguf_builder_u32(builder, "after", 1);
    built built = build(builder);
    const gguf_entry *entry = gguf_find(built.file, "tokens");
    assert_int_equal(gguf_array_count(entry), COUNT);
    for (size_t i = COUNT; i-- > 0;) {
        gguf_string string;
        assert_true(gguf_array_string(entry, i, &string));
        assert_text(string, texts[i]);
    }
    assert_u64(built.file, "after", 1);
    release(&built);
}

static void names_are_found_among_many(void **state)
{
    (void)state;
    enum { COUNT = 700 };
    gguf_builder *builder = gguf_builder_create();
    char name[40];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "key.%u", i * 7919 % COUNT);
        gguf_builder_u32(builder, name, i * 7919 % COUNT);
        snprintf(name, sizeof name, "blk.%u.weight", i * 7919 % COUNT);
        float data[2] = {(float)(i * 7919 % COUNT), 0};
        gguf_builder_tensor(builder, name, GGUF_TYPE_F32, 1, (uint64_t[]){2}, data, sizeof data);
    }
    built built = build(builder);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "key.%u", i);
        assert_u64(built.file, name, i);
        snprintf(name, sizeof name, "blk.%u.weight", i);
        const gguf_tensor *tensor = gguf_find_tensor(built.file, name);
        assert_non_null(tensor);
        assert_text(tensor->name, name);
        assert_true(((const float *)tensor->data)[0] == (float)i);
    }
    const char *absent[] = {"", "key.", "key.00", "key.700", "kez", "key.1 "};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        assert_null(gguf_find(built.file, absent[i]));
        assert_null(gguf_find_tensor(built.file, absent[i]));
    }
    release(&built);
}

static void tensors_carry_shape_and_data(void **state)
{
    (void)state;
    const uint32_t alignments[] = {8, 32, 64};
    for (size_t a = 0; a < 3; a++) {
        gguf_builder *builder = gguf_builder_create();
        unsigned char data[176 * 6];
        for (size_t i = 0; i < sizeof data; i++) {
            data[i] = (unsigned char)(i * 31);
        }
        gguf_builder_alignment(builder, alignments[a]);
        gguf_builder_tensor(builder, "one", GGUF_TYPE_F16, 1, (uint64_t[]){5}, data, 10);
        gguf_builder_tensor(builder, "four", GGUF_TYPE_Q5_K, 4, (uint64_t[]){256, 3, 1, 2}, data,
                            sizeof data);
        gguf_builder_tensor(builder, "two", GGUF_TYPE_Q8_0, 2, (uint64_t[]){64, 3}, data, 34 * 6);
        built built = build(builder);
        assert_int_equal(gguf_tensor_count(built.file), 3);
        assert_null(gguf_tensor_at(built.file, 3));

        const gguf_tensor *tensor = gguf_tensor_at(built.file, 1);
        assert_ptr_equal(tensor, gguf_find_tensor(built.file, "four"));
        assert_text(tensor->name, "four");
        assert_true(tensor->known);
        assert_int_equal(tensor->type, GGUF_TYPE_Q5_K);
        assert_int_equal(tensor->dims, 4);
        assert_memory_equal(tensor->shape, ((uint64_t[]){256, 3, 1, 2}), sizeof tensor->shape);
        assert_int_equal(tensor->elements, 256 * 6);
        assert_int_equal(tensor->bytes, sizeof data);
        assert_memory_equal(tensor->data, data, sizeof data);
        for (size_t i = 0; i < 3; i++) {
            uintptr_t address = (uintptr_t)gguf_tensor_at(built.file, i)->data;
            assert_int_equal(address % alignments[a], 0);
        }
        tensor = gguf_find_tensor(built.file, "one");
        assert_memory_equal(tensor->shape, ((uint64_t[]){5, 1, 1, 1}), sizeof tensor->shape);
        release(&built);
    }
}

static void unknown_types_open(void **state)
{
    (void)state;
    gguf_builder *builder = gguf_builder_create();
    unsigned char data[64] = {0};
    gguf_builder_tensor(builder, "named", 40, 2, (uint64_t[]){32, 2}, data, 34);
    gguf_builder_tensor(builder, "future", 4000000000u, 1, (uint64_t[]){7}, data, 7);
    gguf_builder_tensor(builder, "known", GGUF_TYPE_F32, 1, (uint64_t[]){16}, data, 64);
    built built = build(builder);
    const gguf_tensor *tensor = gguf_find_tensor(built.file, "named");
    assert_false(tensor->known);
    assert_int_equal(tensor->type, 40);
    assert_int_equal(tensor->elements, 64);
    assert_int_equal(tensor->bytes, 0);
    assert_null(tensor->data);
    tensor = gguf_find_tensor(built.file, "future");
    assert_false(tensor->known);
    assert_true(tensor->type == 4000000000u);
    assert_true(gguf_find_tensor(built.file, "known")->known);
    release(&built);
}

static void type_facts(void **state)
{
    (void)state;
    const struct {
        uint32_t type;
        const char *name;
        size_t elements, bytes;
    } types[] = {{0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},
                 {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},
                 {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
                 {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
                 {30, "BF16", 1, 2},     {39, "MXFP4", 32, 17}};
    size_t known = 0;
    size_t elements, bytes;
    for (uint32_t type = 0; type < 100; type++) {
        known += element_type_block(type, &elements, &bytes);
    }
    assert_int_equal(known, sizeof types / sizeof *types);
    for (size_t i = 0; i < known; i++) {
        assert_string_equal(element_type_name(types[i].type), types[i].name);
        assert_true(element_type_block(types[i].type, &elements, &bytes));
        assert_int_equal(elements, types[i].elements);
        assert_int_equal(bytes, types[i].bytes);
    }
    assert_string_equal(element_type_name(20), "IQ4_NL");
    assert_null(element_type_name(4)); // withdrawn from the format
    assert_null(element_type_name(77));
    assert_null(element_type_name(UINT32_MAX));
    assert_false(element_type_block(UINT32_MAX, &elements, &bytes));
    assert_string_equal(gguf_value_type_name(GGUF_FLOAT64), "float64");
    assert_null(gguf_value_type_name(13));
}

// Written by another program (tests/golden/gguf/make_golden.py).
static void reference_file_is_read(void **state)
{
    (void)state;
    gguf_file *file = open_path(KVERN_TESTS_DIR "/golden/gguf/reference.gguf");
    assert_string(file, "general.architecture", "test");
    assert_u64(file, "test.uint8", 200);
    assert_i64(file, "test.int8", -100);
    assert_u64(file, "test.uint16", 60000);
    assert_i64(file, "test.int16", -30000);
    assert_u64(file, "test.uint32", 4000000000u);
    assert_i64(file, "test.int32", -2000000000);
    assert_u64(file, "test.uint64", 18000000000000000000u);
    assert_i64(file, "test.int64", -9000000000000000000);
    assert_f32(file, "test.float32", 0.1f);
    assert_f32(file, "test.float64", 0.1f);
    assert_string(file, "test.string", "kværn");
    bool flag;
    assert_true(gguf_get_bool(gguf_find(file, "test.bool"), &flag) && flag);
    int64_t integer;
    const gguf_entry *entry = gguf_find(file, "test.array.int32");
    assert_int_equal(gguf_array_count(entry), 3);
    assert_true(gguf_array_i64(entry, 0, &integer) && integer == -1);
    entry = gguf_find(file, "test.array.uint64");
    assert_false(gguf_array_i64(entry, 0, &integer)); // 2^63
    assert_true(gguf_array_i64(entry, 1, &integer) && integer == 7);
    float real;
    assert_true(gguf_array_f32(gguf_find(file, "test.array.float32"), 1, &real) && real == -0.25f);
    entry = gguf_find(file, "test.array.bool");
    assert_true(gguf_array_bool(entry, 1, &flag) && !flag);
    assert_true(gguf_array_bool(entry, 2, &flag) && flag);
    gguf_string string;
    assert_true(gguf_array_string(gguf_find(file, "test.array.string"), 2, &string));
    assert_text(string, "€");
    assert_int_equal(gguf_tensor_count(file), 28);
    gguf_walk(file);
    gguf_close(file);
}

// A folder for the files of one test, and the path of one in it.
static char folder[] = "/tmp/kvern-test-gguf-XXXXXX";
static char path[sizeof folder + 300];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_open_fails(const char *where, kvern_status expected, const char *sentence)
{
    gguf_file *file = (gguf_file *)folder;
    engine_error error = {0};
    assert_int_equal(gguf_open(where, &file, &error), expected);
    assert_null(file);
    assert_int_equal(error.status, expected);
    if (!strstr(error.text, sentence)) {
        fail_msg("'%s' does not contain '%s'", error.text, sentence);
    }
    assert_int_equal(gguf_open(where, &file, NULL), expected);
}

static void missing_file(void **state)
{
    (void)state;
    expect_open_fails(path_of("missing.gguf"), KVERN_ERR_IO, "missing.gguf: No such file");
}

static void empty_file(void **state)
{
    (void)state;
    byte_buffer_save(&(byte_buffer){0}, path_of("empty.gguf"));
    expect_open_fails(path, KVERN_ERR_FORMAT, "empty.gguf: the file is empty");
}

static void folder_instead_of_file(void **state)
{
    (void)state;
    expect_open_fails(folder, KVERN_ERR_IO, ": is a directory");
    expect_open_fails("/dev/null", KVERN_ERR_IO, "/dev/null: is not a regular file");
}

static void pipe_does_not_hang(void **state)
{
    (void)state;
    assert_int_equal(mkfifo(path_of("pipe.gguf"), 0600), 0);
    expect_open_fails(path, KVERN_ERR_IO, "is not a regular file");
}

static void long_path_does_not_hide_the_fault(void **state)
{
    (void)state;
    char name[256];
    memset(name, 'x', 250);
    strcpy(name + 250, ".gguf");
    byte_buffer text = {0};
    byte_buffer_bytes(&text, "#!/bin/sh\n", 10);
    byte_buffer_save(&text, path_of(name));
    byte_buffer_free(&text);
    expect_open_fails(path, KVERN_ERR_FORMAT, "x.gguf: not a GGUF file (at byte 0)");
}

// Kilobytes of this process that are mapped from files and present.
static long resident_file_kilobytes(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[200];
    long kilobytes = -1;
    while (status && fgets(line, sizeof line, status)) {
        sscanf(line, "RssFile: %ld kB", &kilobytes);
    }
    if (status) {
        fclose(status);
    }
    return kilobytes;
}

static uint64_t sum_bytes(const gguf_tensor *tensor)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < tensor->bytes; i++) {
        sum += ((const unsigned char *)tensor->data)[i];
    }
    return sum;
}

static void file_on_disk_gives_its_pages_back(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    gguf_builder *builder = gguf_builder_create();
    unsigned char *data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (unsigned char)(i >> 3);
    }
    gguf_builder_alignment(builder, 4096);
    gguf_builder_tensor(builder, "big", GGUF_TYPE_F32, 1, (uint64_t[]){BYTES / 4}, data, BYTES);
    gguf_builder_tensor(builder, "small", GGUF_TYPE_F32, 1, (uint64_t[]){2}, data, 8);
    gguf_builder_tensor(builder, "other", 40, 1, (uint64_t[]){32}, data, 17);
    gguf_builder_save(builder, path_of("disk.gguf"));
    gguf_builder_destroy(builder);
    free(data);

    gguf_file *file = open_path(path);
    const gguf_tensor *big = gguf_find_tensor(file, "big");
    assert_int_equal((uintptr_t)big->data % 4096, 0);
    uint64_t before = sum_bytes(big);
    long touched = resident_file_kilobytes();
    const gguf_tensor *small = gguf_find_tensor(file, "small");
    const gguf_tensor *other = gguf_find_tensor(file, "other");
    gguf_drop_pages(file, big->data, big->bytes);
    gguf_drop_pages(file, small->data, small->bytes);
    gguf_drop_pages(file, other->data, other->bytes);
    long dropped = resident_file_kilobytes();
    if (touched > 0) { // Linux tells; elsewhere only the contents are checked
        assert_true(touched - dropped > BYTES / 1024 / 2);
    }
    assert_true(sum_bytes(big) == before);
    gguf_walk(file);
    gguf_close(file);
}

static void closing_nothing(void **state)
{
    (void)state;
    gguf_close(NULL);
}

#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_file_has_nothing),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(scalars_of_every_type),
        cmocka_unit_test(conversions_refuse_what_does_not_fit),
        cmocka_unit_test(arrays_of_every_type),
        cmocka_unit_test(arrays_of_reals_bools_and_strings),
        cmocka_unit_test(large_string_array),
        cmocka_unit_test(names_are_found_among_many),
        cmocka_unit_test(tensors_carry_shape_and_data),
        cmocka_unit_test(unknown_types_open),
        cmocka_unit_test(type_facts),
        cmocka_unit_test(reference_file_is_read),
        ON_DISK(missing_file),
        ON_DISK(empty_file),
        ON_DISK(folder_instead_of_file),
        ON_DISK(pipe_does_not_hang),
        ON_DISK(long_path_does_not_hide_the_fault),
        ON_DISK(file_on_disk_gives_its_pages_back),
        cmocka_unit_test(closing_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
