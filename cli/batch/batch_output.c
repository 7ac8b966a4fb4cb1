// SPDX-License-Identifier: MIT
#include "cli/batch/batch_output.h"

#include "cli/batch/batch_input.h"
#include "cli/io/descriptor.h"
#include "cli/io/json.h"
#include "cli/io/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

// What every line of a job begins with.
static const char BEGINNING[] = "{\"id\":";

static kvern_status fail_io(const batch_output *out, engine_error *error)
{
    return engine_fail(error, KVERN_ERR_IO, "%s: %s", out->path, strerror(errno));
}

static kvern_status fail_line(const batch_output *out, size_t number, engine_error *error)
{
    return engine_fail(error, KVERN_ERR_FORMAT,
                       "%s, line %zu: this is not a result of kvern batch, so the file is left "
                       "alone",
                       out->path, number);
}

// ---- What is there ----

// The key of a result that a job has written; NULL: it is none. free().
static char *result_key(const json_t *value)
{
    const bool ours = json_is_string(json_object_get(value, "text"));
    return ours ? batch_id_key(json_object_get(value, "id")) : NULL;
}

// A result that does not say what job it comes from may be any job's.
static bool is_of_job(const json_t *value, const char *job)
{
    const char *other = json_string_value(json_object_get(value, "job"));
    return !other || strcmp(other, job) == 0;
}

static kvern_status take_result_line(batch_output *out, const char *line, size_t bytes,
                                     size_t number, engine_error *error)
{
    json_t *value = json_loadb(line, bytes, JSON_ALLOW_NUL, NULL);
    char *key = result_key(value);
    const bool same = is_of_job(value, out->job);
    json_decref(value);
    if (!key) {
        return fail_line(out, number, error);
    }
    if (!same) {
        free(key);
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "%s, line %zu: this result comes from another model or other options, "
                           "so the file is left alone",
                           out->path, number);
    }
    const bool kept = json_object_set_new_nocheck(out->done, key, json_true()) == 0;
    free(key);
    return kept ? KVERN_OK : engine_fail(error, KVERN_ERR_MEMORY, "no memory for %s", out->path);
}

// A last line without an end is one of ours, whole or torn, or the file is not ours: what is torn
// is no JSON any more, and what somebody else wrote whole must not be taken for it.
static bool is_torn(const char *tail, size_t bytes)
{
    const size_t most = sizeof BEGINNING - 1;
    if (memcmp(tail, BEGINNING, bytes < most ? bytes : most) != 0) {
        return false;
    }
    json_t *value = json_loadb(tail, bytes, JSON_ALLOW_NUL, NULL);
    char *key = result_key(value);
    const bool torn = key || !value;
    free(key);
    json_decref(value);
    return torn;
}

static kvern_status take_result_lines(batch_output *out, const text_buffer *text,
                                      engine_error *error)
{
    size_t at = 0, number = 1;
    const char *newline;
    while (at < text->size && (newline = memchr(text->data + at, '\n', text->size - at))) {
        const size_t bytes = (size_t)(newline - text->data) - at;
        kvern_status status = take_result_line(out, text->data + at, bytes, number++, error);
        if (status != KVERN_OK) {
            return status;
        }
        at += bytes + 1;
    }
    if (at < text->size && !is_torn(text->data + at, text->size - at)) {
        return fail_line(out, number, error);
    }
    out->size = (off_t)at;
    return at < text->size && ftruncate(out->fd, out->size) != 0 ? fail_io(out, error) : KVERN_OK;
}

static kvern_status read_file(batch_output *out, engine_error *error)
{
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status = text_read_file(out->path, &text, error);
    if (status == KVERN_OK) {
        status = take_result_lines(out, &text, error);
    }
    text_buffer_free(&text);
    if (status == KVERN_OK && lseek(out->fd, out->size, SEEK_SET) < 0) {
        return fail_io(out, error);
    }
    return status;
}

// ---- Life ----

static kvern_status open_file(batch_output *out, engine_error *error)
{
    struct stat info;
    const bool exists = stat(out->path, &info) == 0;
    out->regular = !exists || S_ISREG(info.st_mode);
    out->fd = open(out->path, (out->regular ? O_RDWR | O_CREAT : O_WRONLY) | O_CLOEXEC, 0666);
    if (out->fd < 0) {
        return fail_io(out, error);
    }
    if (!out->regular) {
        return KVERN_OK;
    }
    if (flock(out->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return engine_fail(error, KVERN_ERR_BUSY, "%s: another job is writing to this file",
                           out->path);
    }
    return read_file(out, error);
}

kvern_status batch_output_open(const char *path, const char *job, batch_output *out,
                               engine_error *error)
{
    *out = (batch_output){.path = path, .fd = -1, .done = json_object()};
    snprintf(out->job, sizeof out->job, "%s", job);
    kvern_status status = out->done
                              ? open_file(out, error)
                              : engine_fail(error, KVERN_ERR_MEMORY, "no memory for %s", path);
    if (status != KVERN_OK) {
        (void)!batch_output_close(out, NULL);
    }
    return status;
}

kvern_status batch_output_close(batch_output *out, engine_error *error)
{
    kvern_status status = KVERN_OK;
    if (out->fd >= 0 && close(out->fd) != 0) {
        status = fail_io(out, error);
    }
    json_decref(out->done);
    *out = (batch_output){.fd = -1};
    return status;
}

bool batch_output_same(const char *path, const char *input)
{
    struct stat mine, other;
    const bool standard = strcmp(input, "-") == 0;
    return stat(path, &mine) == 0 &&
           (standard ? fstat(STDIN_FILENO, &other) : stat(input, &other)) == 0 &&
           S_ISREG(mine.st_mode) && mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

bool batch_output_has(const batch_output *out, const char *key)
{
    return json_object_get(out->done, key);
}

// ---- Writing ----

// Takes back what was written of a line.
static void cut(const batch_output *out)
{
    const int reason = errno;
    if (out->regular && ftruncate(out->fd, out->size) == 0) {
        (void)!lseek(out->fd, out->size, SEEK_SET);
    }
    errno = reason;
}

kvern_status batch_output_write(batch_output *out, json_t *result, engine_error *error)
{
    text_buffer line = TEXT_BUFFER_INIT;
    char *text = result ? json_compact(result) : NULL;
    json_decref(result);
    kvern_status status = KVERN_ERR_MEMORY;
    if (text) {
        status = text_buffer_append(&line, text, strlen(text));
    }
    if (status == KVERN_OK) {
        status = text_buffer_append(&line, "\n", 1);
    }
    free(text);
    if (status != KVERN_OK) {
        status = engine_fail(error, status, "no memory for a result");
    } else if (descriptor_write(out->fd, line.data, line.size)) {
        out->size += (off_t)line.size;
    } else {
        cut(out);
        status = fail_io(out, error);
    }
    text_buffer_free(&line);
    return status;
}
