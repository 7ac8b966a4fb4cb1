// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_CONVERT_TOKENS_H
#define KVERN_CLI_CONVERT_TOKENS_H

// The tokens of rows on their way between files: prompt caches of mlx-lm have none, so they are in
// the user metadata there, row by row: `kvern_tokens`, `kvern_tokens_1`, ..., numbers with blanks
// between them.

#include "engine/base/error.h"

#include <kvern/mlx_cache.h>

#define CONVERT_TOKENS_KEY 40 // bytes of such a name

// The tokens of all rows, or of none.
typedef struct row_tokens {
    size_t rows;
    int32_t **list; // [rows]; NULL: of none. So is each where its row is empty.
    int64_t *counts;
} row_tokens;

void row_tokens_free(row_tokens *tokens); // all zero is permitted

// Those that a file has; `path` names a file with those of its only row, or is NULL: JSON as of
// `kvern tokenize --json`, or numbers. Where both have some they have to be the same. On failure
// *out is all zero. Errors: KVERN_ERR_IO, KVERN_ERR_FORMAT, KVERN_ERR_ARGUMENT (a file for many
// rows), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status row_tokens_of_mlx(const kvern_mlx_file *file, const char *path,
                                           row_tokens *out, engine_error *error);

// Writes the name of a row's note.
void row_tokens_key(size_t row, char key[CONVERT_TOKENS_KEY]);

// Tokens as text; free(). NULL: no memory.
char *row_tokens_text(const int32_t *tokens, size_t count);

#endif
