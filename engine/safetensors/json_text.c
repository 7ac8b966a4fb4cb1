// SPDX-License-Identifier: MIT
#include "engine/safetensors/json_text.h"

kvern_status json_text_read(const char *text, size_t bytes, const char *name, json_t **out,
                            engine_error *error)
{
    json_error_t fault = {.line = 0};
    *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
    if (*out) {
        return KVERN_OK;
    }
    // Where memory is refused, not every place in the library says so.
    if (fault.text[0] == '\0' || json_error_code(&fault) == json_error_out_of_memory) {
        return engine_fail(error, KVERN_ERR_MEMORY, "%s: no memory to read it", name);
    }
    return engine_fail(error, KVERN_ERR_FORMAT, "%s: line %d: %s", name, fault.line, fault.text);
}
