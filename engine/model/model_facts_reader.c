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

bool facts_states(facts_reader *reader, const char *name)
{
    bool states = facts_find(reader, name).kind != CONFIG_ABSENT;
    for (size_t i = 0; i < weights_key_count(reader->source) && !states; i++) {
        text_view key;
        (void)weights_key_at(reader->source, i, &key);
        states = text_view_is(key, reader->key);
    }
    return states;
}

static kvern_status fail_absent(const facts_reader *reader)
{
    return engine_fail(reader->error, KVERN_ERR_FORMAT, "the model file lacks the key %s",
                       reader->key);
}

kvern_status facts_check_stated(facts_reader *reader, const char *name)
{
    return !reader->source->format->hf_names || facts_find(reader, name).kind != CONFIG_ABSENT
               ? KVERN_OK
               : fail_absent(reader);
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

static kvern_status read_list(const facts_reader *reader, const config_value *list, uint64_t most,
                              size_t count, size_t *values)
{
    if (list->count != count) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s lists %zu numbers, but the model has %zu layers", reader->key,
                           list->count, count);
    }
    for (size_t i = 0; i < count; i++) {
        config_value element = config_element(list, i);
        uint64_t number = 0;
        if (!config_size(&element, &number) || number == 0 || number > most) {
            return engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be whole numbers from 1 to %" PRIu64, reader->key, most);
        }
        values[i] = (size_t)number;
    }
    return KVERN_OK;
}

kvern_status facts_read_sizes(facts_reader *reader, const char *name, uint64_t most, size_t count,
                              size_t *values)
{
    config_value found = facts_find(reader, name);
    if (found.kind == CONFIG_LIST) {
        return read_list(reader, &found, most, count, values);
    }
    if (found.kind == CONFIG_ABSENT && values[0] != 0) {
        return KVERN_OK;
    }
    kvern_status status = facts_read_size(reader, name, most, &values[0]);
    for (size_t i = 1; i < count; i++) {
        values[i] = values[0];
    }
    return status;
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

kvern_status facts_read_flag(facts_reader *reader, const char *name, bool *value)
{
    config_value found = facts_find(reader, name);
    uint64_t number = found.flag;
    if (found.kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    if (found.kind != CONFIG_FLAG && (!config_size(&found, &number) || number > 1)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be true or false",
                           reader->key);
    }
    *value = number != 0;
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
