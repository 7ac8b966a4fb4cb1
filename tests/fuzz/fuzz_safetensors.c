// SPDX-License-Identifier: MIT
// Any bytes as a directory of safetensors: two bytes with the length of a config.json, that text,
// and a file of tensors. Refused with a sentence, or loaded and run.

#include "tests/support/model_walk.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t config = size < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (size < 2 || config > size - 2) {
        return 0;
    }
    model_source *source;
    engine_error error = {0};
    kvern_status status = model_source_of_safetensors(
        (const char *)data + 2, config, data + 2 + config, size - 2 - config, &source, &error);
    if (status == KVERN_OK) {
        model_walk(source);
    } else if (source || error.status != status || strlen(error.text) < strlen("memory: x")) {
        abort();
    }
    return 0;
}
