// SPDX-License-Identifier: MIT
#include "engine/weights/config_value.h"

#include <float.h>
#include <math.h>

config_value config_element(const config_value *value, size_t index)
{
    if (value->kind != CONFIG_LIST || index >= value->count) {
        return (config_value){.kind = CONFIG_ABSENT};
    }
    return value->at(value->list, index);
}

bool config_size(const config_value *value, uint64_t *number)
{
    if (value->kind != CONFIG_INTEGER || value->integer < 0) {
        return false;
    }
    *number = (uint64_t)value->integer;
    return true;
}

bool config_f32(const config_value *value, float *number)
{
    if (value->kind == CONFIG_INTEGER) {
        *number = (float)value->integer;
        return true;
    }
    if (value->kind != CONFIG_REAL || (isfinite(value->real) && fabs(value->real) > FLT_MAX)) {
        return false;
    }
    *number = (float)value->real;
    return true;
}
