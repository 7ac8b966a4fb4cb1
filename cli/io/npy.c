// SPDX-License-Identifier: MIT
#include "cli/io/npy.h"

#include "cli/io/atomic_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_FLOAT "<f4"
#else
#define NATIVE_FLOAT ">f4"
#endif

struct npy_writer {
    atomic_file *file;
    size_t columns, rows_left;
};

// Magic, version, length of the dictionary, the dictionary; padded so that the values begin at a
// multiple of 64 bytes.
static kvern_status write_header(npy_writer *writer, size_t rows, engine_error *error)
{
    static const char magic[8] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char header[192];
    memcpy(header, magic, sizeof magic);
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '" NATIVE_FLOAT "', 'fortran_order': False, "
                          "'shape': (%zu, %zu), }",
                          rows, writer->columns);
    size_t total = (10 + (size_t)length + 1 + 63) / 64 * 64;
    memset(header + 10 + length, ' ', total - 10 - (size_t)length);
    header[total - 1] = '\n';
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    return atomic_file_write(writer->file, header, total, error);
}

static kvern_status begin_file(npy_writer *writer, const char *path, size_t rows,
                               engine_error *error)
{
    size_t bytes;
    if (__builtin_mul_overflow(rows, writer->columns, &bytes) ||
        __builtin_mul_overflow(bytes, sizeof(float), &bytes) || bytes > INT64_MAX - 4096) {
        return engine_fail(error, KVERN_ERR_OVERFLOW, "%s: %zu x %zu values are too many", path,
                           rows, writer->columns);
    }
    kvern_status status = atomic_file_create(path, &writer->file, error);
    if (status == KVERN_OK) {
        status = atomic_file_take_space(writer->file, bytes, error);
    }
    if (status == KVERN_OK) {
        status = write_header(writer, rows, error);
    }
    return status;
}

kvern_status npy_create(const char *path, size_t rows, size_t columns, npy_writer **out,
                        engine_error *error)
{
    *out = NULL;
    npy_writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory", path);
    }
    writer->columns = columns;
    writer->rows_left = rows;
    kvern_status status = begin_file(writer, path, rows, error);
    if (status != KVERN_OK) {
        npy_abandon(writer);
        return status;
    }
    *out = writer;
    return KVERN_OK;
}

kvern_status npy_write_rows(npy_writer *writer, const float *values, size_t rows,
                            engine_error *error)
{
    if (rows > writer->rows_left) {
        return engine_fail(error, KVERN_ERR_ARGUMENT, "%s: more rows than announced",
                           atomic_file_name(writer->file));
    }
    writer->rows_left -= rows;
    return atomic_file_write(writer->file, values, rows * writer->columns * sizeof(float), error);
}

kvern_status npy_finish(npy_writer *writer, engine_error *error)
{
    kvern_status status;
    if (writer->rows_left) {
        status = engine_fail(error, KVERN_ERR_ARGUMENT, "%s: %zu rows are missing",
                             atomic_file_name(writer->file), writer->rows_left);
        atomic_file_abandon(writer->file);
    } else {
        status = atomic_file_finish(writer->file, error);
    }
    free(writer);
    return status;
}

void npy_abandon(npy_writer *writer)
{
    if (writer) {
        atomic_file_abandon(writer->file);
        free(writer);
    }
}
