// SPDX-License-Identifier: MIT
// Any bytes as a GGUF file: opened or refused with a sentence, and whatever opens can be read
// throughout.

#include "tests/support/gguf_walk.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    engine_error error = {0};
    kvern_status status = gguf_open_memory(data, size, &file, &error);
    if (status == KVERN_OK) {
        gguf_walk(file);
        gguf_close(file);
    } else if (file || error.status != status || strlen(error.text) < strlen("memory: x")) {
        abort();
    }
    return 0;
}
