// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_ROWS_STORAGE_H
#define KVERN_CLI_ROWS_STORAGE_H

// How the rows of a file are stored, in the words of --kv.

#include <kvern/file.h>

#define ROWS_STORAGE_TEXT 160

// "bf16", "q8/q4" (keys, then values), "q4 from 512 on", "rq8/rq6 behind the first 64 and the last
// 128"; "bf16, q4" where layers differ. Returns `text`, which is empty where the library does not
// know the layers.
const char *rows_storage(const kvern_file *file, char text[ROWS_STORAGE_TEXT]);

#endif
