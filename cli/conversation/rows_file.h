// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_ROWS_FILE_H
#define KVERN_CLI_ROWS_FILE_H

// /load of a file with a row of a KV cache (kvern/file.h), as `kvern cache convert` makes one of a
// prompt cache of mlx-lm: what was computed there need not be computed here.

#include "cli/session/session.h"

// Whether a file is no text, but tensors: a file of rows, perhaps a prompt cache.
bool rows_file_is(const char *path);

// The session's sequence becomes the row of a file, with its tokens; *positions are its. It has to
// be of the model, byte for byte, stored as the session stores rows, and made with nothing that the
// session has not. On failure the sequence stays what it was. Errors: KVERN_ERR_IO,
// KVERN_ERR_FORMAT, KVERN_ERR_UNSUPPORTED (another identity or storage, many rows, no tokens: by
// name), those of generator_adopt.
KVERN_CHECK kvern_status rows_file_load(const char *path, run_session *session, int64_t *positions,
                                        engine_error *error);

#endif
