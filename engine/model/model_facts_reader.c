// SPDX-License-Identifier: MIT
#include "engine/model/model_facts_reader.h"

#include <inttypes.h>
#include <math.h>

config_value facts_find(facts_reader *reader, const char *name)
{
    const weights *w = reader->source;
    w->format->key_name(w->file, name, reader->key, sizeof reader->key);
    return weights_find_key(w, name);
}

static kvern_status fail_absent(const facts_reader *reader)
{
    return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                       reader->key);
}

kvern_status facts_read_size(facts_reader *reader, const char *name, uint64_t most, size_t *value)
{
    config_value found = facts_find(reader, name);
    if (found.kind == CONFIG_ABSENT) {
        return *value != 0 ? KVERN_OK : fail_absent(reader);
    }
    uint64_t number = 0;
    if (!config_size(&found, &number) || number == 0 || number > most) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be a whole number from 1 to %" PRIu64, reader->key, most);
    }
    *value = (size_t)number;
    return KVERN_OK;
}

kvern_status facts_read_positive(facts_reader *reader, const char *name, float *value)
{
    config_value found = facts_find(reader, name);
    if (found.kind == CONFIG_ABSENT) {
        return *value != 0 ? KVERN_OK : fail_absent(reader);
    }
    float number = 0;
    if (!config_f32(&found, &number) || !(number > 0) || isinf(number)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a number above 0",
                           reader->key);
    }
    *value = number;
    return KVERN_OK;
}

kvern_status facts_read_optional(facts_reader *reader, const char *name, float *value)
{
    *value = 0;
    config_value found = facts_find(reader, name);
    float number = 0;
    bool off = found.kind == CONFIG_ABSENT || (config_f32(&found, &number) && number == 0);
    return off ? KVERN_OK : facts_read_positive(reader, name, value);
}

kvern_status facts_require(facts_reader *reader, const char *name, size_t value)
{
    config_value found = facts_find(reader, name);
    uint64_t number = 0;
    if (found.kind == CONFIG_ABSENT || (config_size(&found, &number) && number == value)) {
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "%s is supported only with the value %zu, which all layers have",
                       reader->key, value);
}
