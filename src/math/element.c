// SPDX-License-Identifier: MIT
#include "src/math/element.h"

size_t kvern_type_bytes(kvern_type type)
{
    switch (type) {
    case KVERN_F32:
        return sizeof(float);
    case KVERN_BF16:
    case KVERN_F16:
        return sizeof(uint16_t);
    }
    return 0;
}

const char *kvern_type_name(kvern_type type)
{
    switch (type) {
    case KVERN_F32:
        return "f32";
    case KVERN_BF16:
        return "bf16";
    case KVERN_F16:
        return "f16";
    }
    return "?";
}
