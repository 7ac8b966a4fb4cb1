// SPDX-License-Identifier: MIT
// Safetensors files as the library reads and writes them: what is in a file comes back, and each
// kind of bad file is refused with its own sentence. Faults F2 to F10 of other systems.
#include "src/file/safetensors/reader.h"
#include "src/file/safetensors/writer.h"
#include "tests/support/byte_buffer.h"
#include "tests/support/check.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"

#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A file of a header's text and some bytes, in a block of exactly that size.
typedef struct forged {
    unsigned char *data;
    size_t bytes;
} forged;

static forged forge_length(uint64_t length, const char *header, size_t data_bytes)
{
    forged file = {.bytes = 8 + strlen(header) + data_bytes};
    byte_buffer buffer = {0};
    byte_buffer_u64(&buffer, length);
    byte_buffer_bytes(&buffer, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++)
        byte_buffer_u8(&buffer, (uint8_t)i);
    file.data = malloc(file.bytes);
    assert_non_null(file.data);
    memcpy(file.data, buffer.data, file.bytes);
    byte_buffer_free(&buffer);
    return file;
}

static forged forge(const char *header, size_t data_bytes)
{
    return forge_length(strlen(header), header, data_bytes);
}

static kvern_status read_bytes(const void *data, size_t bytes, kvern_safetensors *file)
{
    kvern_mapping *mapping;
    kvern_status status = kvern_mapping_of(file_context, data, bytes, &mapping);
    assert_ok(status);
    status = kvern_safetensors_read(mapping, "memory", file);
    kvern_mapping_release(mapping);
    return status;
}

// Fails the test unless the file is refused with the status and a sentence that holds `part`.
static void expect_refusal(forged forged_file, kvern_status wanted, const char *part)
{
    kvern_safetensors file;
    const uint64_t held = file_books.held_bytes;
    const kvern_status status = read_bytes(forged_file.data, forged_file.bytes, &file);
    if (status != wanted || !strstr(kvern_error_detail(), part))
        fail_msg("%s '%s', not %s '%s'", kvern_status_name(status), kvern_error_detail(),
                 kvern_status_name(wanted), part);
    assert_null(file.mapping);
    assert_true(file_books.held_bytes == held);
    free(forged_file.data);
}

static void expect_format(const char *header, size_t data_bytes, const char *part)
{
    expect_refusal(forge(header, data_bytes), KVERN_ERR_FORMAT, part);
}

static void what_is_there_is_found(void **state)
{
    (void)state;
    forged bytes = forge("{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                         "\"__metadata__\":{\"one\":\"1\",\"two\":\"\\u00e9\"},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                         "\"c\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]}}   ",
                         16);
    kvern_safetensors file;
    assert_ok(read_bytes(bytes.data, bytes.bytes, &file));
    assert_int_equal(3, file.count);
    const kvern_tensor *b = kvern_safetensors_find(&file, "b");
    assert_true(b->dtype == KVERN_DTYPE_BF16 && b->dims == 2 && b->shape[1] == 3);
    assert_true(b->elements == 6 && b->bytes == 12 && b->data[0] == 4);
    const kvern_tensor *a;
    assert_ok(kvern_safetensors_need(&file, "a", KVERN_DTYPE_F32, 0, &a));
    assert_int_equal(1, a->elements);
    assert_int_equal(0, kvern_safetensors_find(&file, "c")->bytes);
    assert_null(kvern_safetensors_find(&file, "d"));
    assert_string_equal("\xc3\xa9", kvern_safetensors_metadata(&file, "two"));
    assert_null(kvern_safetensors_metadata(&file, "three"));
    assert_status(KVERN_ERR_FORMAT, kvern_safetensors_need(&file, "a", KVERN_DTYPE_U8, 0, &a));
    assert_status(KVERN_ERR_FORMAT, kvern_safetensors_need(&file, "z", KVERN_DTYPE_U8, 0, &a));
    kvern_safetensors_close(&file);
    free(bytes.data);
}

static void files_without_tensors_are_files(void **state)
{
    (void)state;
    forged bytes = forge("{}", 0);
    kvern_safetensors file;
    assert_ok(read_bytes(bytes.data, bytes.bytes, &file));
    assert_int_equal(0, file.count);
    assert_null(kvern_safetensors_metadata(&file, "x"));
    kvern_safetensors_close(&file);
    free(bytes.data);
}

static void fault_f2_files_cut_anywhere_are_refused(void **state)
{
    (void)state;
    forged whole = forge("{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}", 9);
    for (size_t bytes = 0; bytes < whole.bytes; bytes++) {
        unsigned char *cut = malloc(bytes ? bytes : 1); // so that a byte behind it is noticed
        assert_non_null(cut);
        memcpy(cut, whole.data, bytes);
        expect_refusal((forged){cut, bytes}, KVERN_ERR_FORMAT, "memory: ");
    }
    free(whole.data);
}

static void fault_f4_shapes_that_are_not_their_bytes_are_refused(void **state)
{
    (void)state;
    expect_format("{\"k\":{\"dtype\":\"BF16\",\"shape\":[1,8,1000,64],\"data_offsets\":[0,4]}}", 4,
                  "tensor k: its shape does not match its bytes");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
                  "\"data_offsets\":[0,0]}}",
                  0, "the number of its elements overflows");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[0,4294967296,4294967296],"
                  "\"data_offsets\":[0,0]}}",
                  0, "the number of its elements overflows");
    expect_format("{\"k\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],"
                  "\"data_offsets\":[0,0]}}",
                  0, "its shape does not match its bytes");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,0]}}", 0,
                  "not a list of counts");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", 1,
                  "not a list of counts");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":3,\"data_offsets\":[0,3]}}", 3, "no shape");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[99999999999999999999],"
                  "\"data_offsets\":[0,3]}}",
                  3, "too big integer");
    expect_refusal(forge("{\"k\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
                         "\"data_offsets\":[0,1]}}",
                         1),
                   KVERN_ERR_UNSUPPORTED, "9 dimensions");
}

static void fault_f6_unknown_types_are_refused_by_name(void **state)
{
    (void)state;
    expect_refusal(forge("{\"k\":{\"dtype\":\"BF17\",\"shape\":[2],"
                         "\"data_offsets\":[1099511627776,1099511627780]}}",
                         4),
                   KVERN_ERR_UNSUPPORTED, "tensor k: the dtype BF17 is not known");
    expect_format("{\"k\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "no dtype");
}

static void fault_f7_lengths_of_headers_are_bounded(void **state)
{
    (void)state;
    const char *header = "{}";
    const uint64_t held = file_books.most_bytes;
    const uint64_t lengths[] = {UINT64_C(1) << 63, UINT64_C(1) << 40, UINT64_MAX, 3};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        expect_refusal(forge_length(lengths[i], header, 0), KVERN_ERR_FORMAT,
                       "its header is longer than the file");
    expect_refusal(forge_length(0, header, 0), KVERN_ERR_FORMAT, "its header, byte");
    assert_true(file_books.most_bytes <= held + 4096);
    const size_t most = (size_t)16 << 20;
    char *long_header = malloc(most + 2);
    assert_non_null(long_header);
    memset(long_header, ' ', most + 1);
    long_header[most + 1] = '\0';
    memcpy(long_header, "{}", 2);
    expect_refusal(forge(long_header, 0), KVERN_ERR_FORMAT, "longer than 16 MiB");
    free(long_header);
}

static void fault_f9_data_that_overlap_or_leave_gaps_are_refused(void **state)
{
    (void)state;
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                  4, "overlap another's");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
                  7, "tensor v: its data overlap another's");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                  "\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
                  9, "tensor v: there is a gap in front");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[1,5]}}", 5, "gap");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5,
                  "bytes behind the last tensor");
    expect_format("{}", 1, "bytes behind the last tensor");
}

static void fault_f10_places_outside_of_the_file_are_refused(void **state)
{
    (void)state;
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[16],\"data_offsets\":[-16,0]}}", 16,
                  "not a begin and an end");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[16],"
                  "\"data_offsets\":[1099511627776,1099511627792]}}",
                  16, "its data are not in the file");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[4,2]}}", 4,
                  "not a begin and an end");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,1,2]}}", 2,
                  "not a begin and an end");
}

static void headers_of_other_forms_are_refused(void **state)
{
    (void)state;
    expect_format("[]", 0, "not a JSON object");
    expect_format("{\"k\":1}", 0, "tensor k: it has not dtype");
    expect_format("{\"k\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
                  "tensor k: it has not dtype");
    expect_format("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "no name");
    expect_format("{\"__metadata__\":[]}", 0, "not an object");
    expect_format("{\"__metadata__\":{\"a\":1}}", 0, "metadata a: it is not a string");
    expect_format("{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", 0, "duplicate");
    expect_format("{\"k\":{},\"k\":{}}", 0, "duplicate");
    expect_format("{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "its header, byte");
    expect_format("{} x", 0, "its header, byte");
    expect_format("{\"\xff\":{}}", 0, "its header, byte");
}

static void bad_places_of_files_are_refused(void **state)
{
    (void)state;
    kvern_safetensors file;
    assert_status(KVERN_ERR_IO, kvern_safetensors_open(file_context, folder_path("absent"), &file));
    assert_status(KVERN_ERR_FORMAT, kvern_safetensors_open(file_context, folder_path("."), &file));
    byte_buffer empty = {0};
    byte_buffer_save(&empty, folder_path("empty"));
    assert_status(KVERN_ERR_FORMAT,
                  kvern_safetensors_open(file_context, folder_path("empty"), &file));
}

// ---- Writing ----

static void write_sample(kvern_safetensors_writer *writer, const char *path)
{
    const uint64_t five = 5, pages[] = {2, 6000};
    static unsigned char data[12000];
    memset(data, 7, sizeof data);
    assert_ok(kvern_safetensors_writer_begin(file_context, NULL, path, writer));
    assert_ok(kvern_safetensors_say(writer, "a", "\"quoted\" \xc3\xa9 /"));
    assert_ok(kvern_safetensors_describe(writer, "small", KVERN_DTYPE_U8, 1, &five, 1));
    assert_ok(kvern_safetensors_describe(writer, "pages", KVERN_DTYPE_U8, 2, pages, 4096));
    assert_ok(kvern_safetensors_describe(writer, "more", KVERN_DTYPE_U16, 1, &five, 4096));
    assert_ok(kvern_safetensors_start(writer));
    assert_ok(kvern_safetensors_put(writer, "01234", 5));
    assert_ok(kvern_safetensors_put(writer, data, 5000));
    assert_ok(kvern_safetensors_put(writer, data, 7000));
    assert_ok(kvern_safetensors_put(writer, "0123456789", 10));
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    kvern_safetensors_writer writer;
    kvern_safetensors file;
    write_sample(&writer, folder_path("sample"));
    assert_ok(kvern_safetensors_commit(&writer));
    assert_ok(kvern_safetensors_open(file_context, folder_path("sample"), &file));
    assert_string_equal("\"quoted\" \xc3\xa9 /", kvern_safetensors_metadata(&file, "a"));
    assert_memory_equal("01234", kvern_safetensors_find(&file, "small")->data, 5);
    const kvern_tensor *pages = kvern_safetensors_find(&file, "pages");
    assert_true((uintptr_t)pages->data % 4096 == 0 && pages->bytes == 12000);
    for (size_t i = 0; i < pages->bytes; i++)
        assert_int_equal(7, pages->data[i]);
    const kvern_tensor *more = kvern_safetensors_find(&file, "more");
    assert_true((uintptr_t)more->data % 4096 == 0);
    assert_memory_equal("0123456789", more->data, 10);
    const kvern_tensor *pad = kvern_safetensors_find(&file, "pad.0");
    for (size_t i = 0; i < pad->bytes; i++)
        assert_int_equal(0, pad->data[i]);
    kvern_safetensors_close(&file);
    folder_expect_files(1 + 1); // with the empty one
}

static void misuse_of_the_writer_is_refused(void **state)
{
    (void)state;
    const uint64_t two = 2, most = UINT64_C(1) << 62;
    kvern_safetensors_writer writer;
    const char *path = folder_path("misuse");
    assert_ok(kvern_safetensors_writer_begin(file_context, NULL, path, &writer));
    assert_ok(kvern_safetensors_say(&writer, "a", "1"));
    assert_status(KVERN_ERR_ARGUMENT, kvern_safetensors_say(&writer, "a", "1"));
    assert_status(KVERN_ERR_ARGUMENT, kvern_safetensors_say(&writer, "b", "\xff"));
    assert_ok(kvern_safetensors_describe(&writer, "t", KVERN_DTYPE_U8, 1, &two, 1));
    assert_status(KVERN_ERR_ARGUMENT,
                  kvern_safetensors_describe(&writer, "t", KVERN_DTYPE_U8, 1, &two, 1));
    assert_status(KVERN_ERR_OVERFLOW,
                  kvern_safetensors_describe(&writer, "u", KVERN_DTYPE_F64, 1, &most, 1));
    assert_ok(kvern_safetensors_start(&writer));
    assert_status(KVERN_ERR_ARGUMENT, kvern_safetensors_put(&writer, "123", 3));
    kvern_safetensors_abandon(&writer);
    kvern_safetensors_abandon(&writer);
    assert_ok(kvern_safetensors_writer_begin(file_context, NULL, path, &writer));
    assert_ok(kvern_safetensors_describe(&writer, "t", KVERN_DTYPE_U8, 1, &two, 1));
    assert_ok(kvern_safetensors_start(&writer));
    assert_ok(kvern_safetensors_put(&writer, "1", 1));
    assert_status(KVERN_ERR_ARGUMENT, kvern_safetensors_commit(&writer));
    assert_false(folder_has("misuse"));
    assert_false(folder_has("misuse.tmp-0"));
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    kvern_safetensors file = {0};
    kvern_status status = KVERN_ERR_MEMORY;
    for (int64_t granted = 0; status; granted++) {
        ledger_refuse(&file_books, granted);
        status = kvern_safetensors_open(file_context, folder_path("sample"), &file);
        ledger_relent(&file_books);
        assert_true(!status || (status == KVERN_ERR_MEMORY && !file.mapping));
    }
    kvern_safetensors_close(&file);
    kvern_safetensors_writer writer = {0};
    status = KVERN_ERR_MEMORY;
    for (int64_t granted = 0; status; granted++) {
        ledger_refuse(&file_books, granted);
        status =
            kvern_safetensors_writer_begin(file_context, NULL, folder_path("refused"), &writer);
        if (!status)
            status = kvern_safetensors_start(&writer);
        ledger_relent(&file_books);
        kvern_safetensors_abandon(&writer);
        assert_false(folder_has("refused.tmp-0"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_found),
        cmocka_unit_test(files_without_tensors_are_files),
        cmocka_unit_test(fault_f2_files_cut_anywhere_are_refused),
        cmocka_unit_test(fault_f4_shapes_that_are_not_their_bytes_are_refused),
        cmocka_unit_test(fault_f6_unknown_types_are_refused_by_name),
        cmocka_unit_test(fault_f7_lengths_of_headers_are_bounded),
        cmocka_unit_test(fault_f9_data_that_overlap_or_leave_gaps_are_refused),
        cmocka_unit_test(fault_f10_places_outside_of_the_file_are_refused),
        cmocka_unit_test(headers_of_other_forms_are_refused),
        cmocka_unit_test(bad_places_of_files_are_refused),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(misuse_of_the_writer_is_refused),
        cmocka_unit_test(each_allocation_may_fail),
    };
    folder_make();
    const int failed = cmocka_run_group_tests(tests, file_bed_set_up, file_bed_tear_down);
    folder_remove();
    return failed;
}
