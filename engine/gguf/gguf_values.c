// SPDX-License-Identifier: MIT
#include "engine/base/little_endian.h"
#include "engine/gguf/gguf_internal.h"

#include <float.h>
#include <math.h>

static const struct value_facts {
    const char *name;
    size_t scalar_bytes; // 0: not a number and not a bool
} VALUES[] = {
    [GGUF_UINT8] = {"uint8", 1},     [GGUF_INT8] = {"int8", 1},     [GGUF_UINT16] = {"uint16", 2},
    [GGUF_INT16] = {"int16", 2},     [GGUF_UINT32] = {"uint32", 4}, [GGUF_INT32] = {"int32", 4},
    [GGUF_FLOAT32] = {"float32", 4}, [GGUF_BOOL] = {"bool", 1},     [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0},     [GGUF_UINT64] = {"uint64", 8}, [GGUF_INT64] = {"int64", 8},
    [GGUF_FLOAT64] = {"float64", 8},
};

#define VALUE_COUNT (sizeof VALUES / sizeof VALUES[0])

const char *gguf_value_type_name(uint32_t type)
{
    return type < VALUE_COUNT ? VALUES[type].name : NULL;
}

size_t gguf_scalar_bytes(uint32_t type)
{
    return type < VALUE_COUNT ? VALUES[type].scalar_bytes : 0;
}

// A number without loss, whatever it was stored as.
typedef struct number {
    enum { NO_NUMBER, INTEGER, LARGE_INTEGER, REAL } kind; // LARGE_INTEGER: above INT64_MAX
    union {
        int64_t integer;
        uint64_t large_integer;
        double real;
    };
} number;

static number from_integer(int64_t value)
{
    return (number){.kind = INTEGER, .integer = value};
}

static number from_real(double value)
{
    return (number){.kind = REAL, .real = value};
}

static number from_u64(uint64_t value)
{
    if (value <= INT64_MAX) {
        return from_integer((int64_t)value);
    }
    return (number){.kind = LARGE_INTEGER, .large_integer = value};
}

static number load_number(gguf_value_type type, const unsigned char *bytes)
{
    switch (type) {
    case GGUF_UINT8:
        return from_integer(bytes[0]);
    case GGUF_INT8:
        return from_integer((int8_t)bytes[0]);
    case GGUF_UINT16:
        return from_integer(engine_load_u16(bytes));
    case GGUF_INT16:
        return from_integer((int16_t)engine_load_u16(bytes));
    case GGUF_UINT32:
        return from_integer(engine_load_u32(bytes));
    case GGUF_INT32:
        return from_integer((int32_t)engine_load_u32(bytes));
    case GGUF_UINT64:
        return from_u64(engine_load_u64(bytes));
    case GGUF_INT64:
        return from_integer((int64_t)engine_load_u64(bytes));
    case GGUF_FLOAT32:
        return from_real(engine_load_f32(bytes));
    case GGUF_FLOAT64:
        return from_real(engine_load_f64(bytes));
    default:
        return (number){.kind = NO_NUMBER};
    }
}

static number scalar(const gguf_entry *entry)
{
    return entry ? load_number(entry->type, entry->value) : (number){.kind = NO_NUMBER};
}

static number element(const gguf_entry *entry, size_t index)
{
    if (index >= gguf_array_count(entry)) {
        return (number){.kind = NO_NUMBER};
    }
    return load_number(entry->element, entry->value + index * gguf_scalar_bytes(entry->element));
}

static bool to_i64(number from, int64_t *value)
{
    if (from.kind != INTEGER) {
        return false;
    }
    *value = from.integer;
    return true;
}

static bool to_f32(number from, float *value)
{
    switch (from.kind) {
    case INTEGER:
        *value = (float)from.integer;
        return true;
    case LARGE_INTEGER:
        *value = (float)from.large_integer;
        return true;
    case REAL:
        if (isfinite(from.real) && fabs(from.real) > FLT_MAX) {
            return false;
        }
        *value = (float)from.real;
        return true;
    default:
        return false;
    }
}

static gguf_string load_string(const unsigned char *bytes)
{
    return (gguf_string){(const char *)bytes + 8, (size_t)engine_load_u64(bytes)};
}

bool gguf_get_u64(const gguf_entry *entry, uint64_t *value)
{
    number from = scalar(entry);
    if (from.kind == LARGE_INTEGER) {
        *value = from.large_integer;
        return true;
    }
    if (from.kind != INTEGER || from.integer < 0) {
        return false;
    }
    *value = (uint64_t)from.integer;
    return true;
}

bool gguf_get_f32(const gguf_entry *entry, float *value)
{
    return to_f32(scalar(entry), value);
}

bool gguf_get_bool(const gguf_entry *entry, bool *value)
{
    if (!entry || entry->type != GGUF_BOOL) {
        return false;
    }
    *value = entry->value[0] == 1;
    return true;
}

bool gguf_get_string(const gguf_entry *entry, gguf_string *value)
{
    if (!entry || entry->type != GGUF_STRING) {
        return false;
    }
    *value = load_string(entry->value);
    return true;
}

size_t gguf_array_count(const gguf_entry *entry)
{
    return entry ? entry->count : 0;
}

gguf_value_type gguf_array_type(const gguf_entry *entry)
{
    return entry && entry->type == GGUF_ARRAY ? entry->element : GGUF_UINT8;
}

bool gguf_array_string(const gguf_entry *entry, size_t index, gguf_string *value)
{
    if (index >= gguf_array_count(entry) || entry->element != GGUF_STRING) {
        return false;
    }
    *value = load_string(entry->value + entry->string_starts[index]);
    return true;
}

bool gguf_array_i64(const gguf_entry *entry, size_t index, int64_t *value)
{
    return to_i64(element(entry, index), value);
}

bool gguf_array_f32(const gguf_entry *entry, size_t index, float *value)
{
    return to_f32(element(entry, index), value);
}

bool gguf_array_bool(const gguf_entry *entry, size_t index, bool *value)
{
    if (index >= gguf_array_count(entry) || entry->element != GGUF_BOOL) {
        return false;
    }
    *value = entry->value[index] == 1;
    return true;
}

static config_value value_of_number(number from)
{
    switch (from.kind) {
    case INTEGER:
        return (config_value){.kind = CONFIG_INTEGER, .integer = from.integer};
    case LARGE_INTEGER:
        return (config_value){.kind = CONFIG_REAL, .real = (double)from.large_integer};
    case REAL:
        return (config_value){.kind = CONFIG_REAL, .real = from.real};
    default:
        return (config_value){.kind = CONFIG_OTHER};
    }
}

static config_value value_of_element(const void *list, size_t index)
{
    const gguf_entry *entry = list;
    gguf_string text;
    bool flag;
    if (gguf_array_string(entry, index, &text)) {
        return (config_value){.kind = CONFIG_TEXT, .text = text};
    }
    if (gguf_array_bool(entry, index, &flag)) {
        return (config_value){.kind = CONFIG_FLAG, .flag = flag};
    }
    return value_of_number(element(entry, index));
}

config_value gguf_entry_value(const gguf_entry *entry)
{
    gguf_string text;
    bool flag;
    if (!entry) {
        return (config_value){.kind = CONFIG_ABSENT};
    }
    if (entry->type == GGUF_ARRAY) {
        return (config_value){
            .kind = CONFIG_LIST, .count = entry->count, .list = entry, .at = value_of_element};
    }
    if (gguf_get_string(entry, &text)) {
        return (config_value){.kind = CONFIG_TEXT, .text = text};
    }
    if (gguf_get_bool(entry, &flag)) {
        return (config_value){.kind = CONFIG_FLAG, .flag = flag};
    }
    return value_of_number(scalar(entry));
}
