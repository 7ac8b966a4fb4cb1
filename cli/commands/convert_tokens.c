// SPDX-License-Identifier: MIT
#include "cli/commands/convert_tokens.h"

#include "cli/io/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 12 // of a token, with a blank

// Tokens as they are read.
typedef struct token_list {
    int32_t *ids;
    size_t count, capacity;
} token_list;

static bool add_token(token_list *list, long long id)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 256;
        int32_t *ids = realloc(list->ids, capacity * sizeof *ids);
        if (!ids)
            return false;
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = (int32_t)id;
    return true;
}

static kvern_status no_memory(engine_error *error)
{
    return engine_fail(error, KVERN_ERR_MEMORY, "no memory for tokens");
}

static bool is_token(long long id)
{
    return id >= INT32_MIN && id <= INT32_MAX; // those of images may be below 0
}

// ---- Texts ----

static kvern_status read_numbers(const char *text, const char *what, token_list *list,
                                 engine_error *error)
{
    static const char between[] = " \t\r\n,";
    for (const char *at = text + strspn(text, between); *at; at += strspn(at, between)) {
        char *end;
        errno = 0;
        const long long id = strtoll(at, &end, 10);
        if (end == at || errno || !is_token(id) || (*end && !strchr(between, *end)))
            return engine_fail(error, KVERN_ERR_FORMAT, "%s: token %zu is none", what, list->count);
        if (!add_token(list, id))
            return no_memory(error);
        at = end;
    }
    return KVERN_OK;
}

// [1, 2], {"tokens": [1, 2]} or {"tokens": [{"id": 1, "text": "a"}, ...]}.
static kvern_status read_array(const json_t *root, const char *what, token_list *list,
                               engine_error *error)
{
    const json_t *array = json_is_object(root) ? json_object_get(root, "tokens") : root;
    if (!json_is_array(array))
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: it has no list of tokens", what);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *entry = json_array_get(array, i);
        const json_t *id = json_is_object(entry) ? json_object_get(entry, "id") : entry;
        if (!json_is_integer(id) || !is_token(json_integer_value(id)))
            return engine_fail(error, KVERN_ERR_FORMAT, "%s: token %zu is none", what, i);
        if (!add_token(list, json_integer_value(id)))
            return no_memory(error);
    }
    return KVERN_OK;
}

static kvern_status read_text(const char *text, const char *what, token_list *list,
                              engine_error *error)
{
    json_error_t where;
    const char first = text[strspn(text, " \t\r\n")];
    if (first != '[' && first != '{')
        return read_numbers(text, what, list, error);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    kvern_status status = root ? read_array(root, what, list, error)
                               : engine_fail(error, KVERN_ERR_FORMAT, "%s, line %d: %s", what,
                                             where.line, where.text);
    json_decref(root);
    return status;
}

static kvern_status read_file(const char *path, token_list *list, engine_error *error)
{
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status = text_read_file(path, &text, error);
    if (status == KVERN_OK && text_buffer_append(&text, "", 1) != KVERN_OK)
        status = no_memory(error);
    if (status == KVERN_OK)
        status = read_text(text.data, path, list, error);
    text_buffer_free(&text);
    return status;
}

// ---- Rows ----

void row_tokens_free(row_tokens *tokens)
{
    for (size_t r = 0; tokens->list && r < tokens->rows; r++)
        free(tokens->list[r]);
    free(tokens->list);
    free(tokens->counts);
    *tokens = (row_tokens){0};
}

void row_tokens_key(size_t row, char key[CONVERT_TOKENS_KEY])
{
    snprintf(key, CONVERT_TOKENS_KEY, row ? "kvern_tokens_%zu" : "kvern_tokens", row);
}

// A row's tokens from the file itself. *has: it has some, be it none.
static kvern_status read_own(const kvern_mlx_file *file, size_t row, token_list *list, bool *has,
                             engine_error *error)
{
    size_t count;
    char key[CONVERT_TOKENS_KEY];
    const int32_t *tokens = kvern_mlx_tokens(file, &count);
    *has = tokens != NULL;
    for (size_t i = 0; tokens && i < count; i++) {
        if (!add_token(list, tokens[i]))
            return no_memory(error);
    }
    row_tokens_key(row, key);
    const char *note = tokens ? NULL : kvern_mlx_find_note(file, key);
    *has = *has || note;
    return note ? read_text(note, key, list, error) : KVERN_OK;
}

// What is given beside the file.
static kvern_status read_given(const char *path, token_list *list, bool *has, engine_error *error)
{
    token_list given = {0};
    kvern_status status = read_file(path, &given, error);
    const bool same =
        !*has ||
        (given.count == list->count &&
         (given.count == 0 || memcmp(given.ids, list->ids, given.count * sizeof *given.ids) == 0));
    if (status == KVERN_OK && !same)
        status = engine_fail(error, KVERN_ERR_ARGUMENT,
                             "%s: other tokens than the prompt cache has itself", path);
    free(list->ids);
    *list = given;
    *has = true;
    return status;
}

static kvern_status read_row(const kvern_mlx_file *file, const char *path, size_t row,
                             row_tokens *out, bool *has, engine_error *error)
{
    token_list list = {0};
    kvern_status status = read_own(file, row, &list, has, error);
    if (status == KVERN_OK && path)
        status = read_given(path, &list, has, error);
    out->list[row] = list.ids;
    out->counts[row] = (int64_t)list.count;
    return status;
}

static kvern_status read_rows(const kvern_mlx_file *file, const char *path, row_tokens *out,
                              engine_error *error)
{
    size_t found = 0;
    kvern_status status = KVERN_OK;
    for (size_t r = 0; r < out->rows && status == KVERN_OK; r++) {
        bool has = false;
        status = read_row(file, path, r, out, &has, error);
        found += has;
    }
    if (status == KVERN_OK && found > 0 && found < out->rows)
        status =
            engine_fail(error, KVERN_ERR_FORMAT, "%zu of %zu rows have tokens", found, out->rows);
    if (status != KVERN_OK || found == 0)
        row_tokens_free(out);
    return status;
}

kvern_status row_tokens_of_mlx(const kvern_mlx_file *file, const char *path, row_tokens *out,
                               engine_error *error)
{
    const size_t rows = kvern_mlx_rows(file);
    *out = (row_tokens){0};
    if (path && rows != 1)
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "--tokens %s: those of one row, and the prompt cache has %zu", path,
                           rows);
    out->list = calloc(rows + 1, sizeof *out->list);
    out->counts = calloc(rows + 1, sizeof *out->counts);
    out->rows = rows;
    if (out->list && out->counts)
        return read_rows(file, path, out, error);
    row_tokens_free(out);
    return no_memory(error);
}

char *row_tokens_text(const int32_t *tokens, size_t count)
{
    char *text = malloc(count * NUMBER_BYTES + 1);
    size_t at = 0;
    if (!text)
        return NULL;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        at += (size_t)sprintf(text + at, i ? " %d" : "%d", (int)tokens[i]);
    return text;
}
