// SPDX-License-Identifier: MIT
// Any bytes as a model in a GGUF file: refused with a sentence, or loaded and run.

#include "tests/support/model_walk.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    model_source *source;
    if (gguf_open_memory(data, size, &file, NULL) == KVERN_OK) {
        if (model_source_of_gguf(file, &source, NULL) != KVERN_OK) {
            abort();
        }
        model_walk(source);
    }
    return 0;
}
