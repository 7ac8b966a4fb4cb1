// SPDX-License-Identifier: MIT
#include "engine/model/model_facts_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

const gguf_entry *facts_find(facts_reader *reader, const char *name)
{
    snprintf(reader->key, sizeof reader->key, "%.*s.%s", (int)reader->architecture->size,
             reader->architecture->data, name);
    return gguf_find(reader->file, reader->key);
}

kvern_status facts_read_size(facts_reader *reader, const char *name, uint64_t most, size_t *value)
{
    const gguf_entry *entry = facts_find(reader, name);
    if (!entry && *value != 0) {
        return KVERN_OK;
    }
    uint64_t number = 0;
    if (!entry) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                           reader->key);
    }
    if (!gguf_get_u64(entry, &number) || number == 0 || number > most) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be a whole number from 1 to %" PRIu64, reader->key, most);
    }
    *value = (size_t)number;
    return KVERN_OK;
}

kvern_status facts_read_positive(facts_reader *reader, const char *name, float *value)
{
    const gguf_entry *entry = facts_find(reader, name);
    if (!entry && *value != 0) {
        return KVERN_OK;
    }
    float number = 0;
    if (!entry) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                           reader->key);
    }
    if (!gguf_get_f32(entry, &number) || !(number > 0) || isinf(number)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a number above 0",
                           reader->key);
    }
    *value = number;
    return KVERN_OK;
}

kvern_status facts_read_optional(facts_reader *reader, const char *name, float *value)
{
    *value = 0;
    const gguf_entry *entry = facts_find(reader, name);
    float number = 0;
    bool off = !entry || (gguf_get_f32(entry, &number) && number == 0);
    return off ? KVERN_OK : facts_read_positive(reader, name, value);
}

kvern_status facts_refuse(facts_reader *reader, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const gguf_entry *entry = facts_find(reader, names[i]);
        float number = 1;
        bool flag = true;
        bool off =
            (gguf_get_f32(entry, &number) && number == 0) || (gguf_get_bool(entry, &flag) && !flag);
        if (entry && !off) {
            return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                               "the model needs %s, which this engine does not support",
                               reader->key);
        }
    }
    return KVERN_OK;
}
