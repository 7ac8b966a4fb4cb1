// SPDX-License-Identifier: MIT
#include "cli/storage.h"

#include "cli/number.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_GROUP 64

static bool parse_affine(const char *name, kvern_codec *codec)
{
    char bits[8];
    uint64_t bit_count, group = DEFAULT_GROUP;
    const size_t length = strcspn(name, "g");
    if (length >= sizeof bits)
        return false;
    snprintf(bits, sizeof bits, "%.*s", (int)length, name);
    if (!number_parse(bits, 8, &bit_count) || bit_count < 2 || bit_count == 7 ||
        (name[length] && !number_parse(name + length + 1, 128, &group)) ||
        (group != 32 && group != 64 && group != 128))
        return false;
    *codec = kvern_codec_affine((uint32_t)bit_count, (uint32_t)group);
    return true;
}

bool storage_parse(const char *name, kvern_codec *codec)
{
    static const struct {
        const char *name;
        kvern_type type;
    } DENSE[] = {{"bf16", KVERN_BF16}, {"f16", KVERN_F16}, {"f32", KVERN_F32}};
    for (size_t i = 0; i < sizeof DENSE / sizeof DENSE[0]; i++)
        if (strcmp(name, DENSE[i].name) == 0) {
            *codec = kvern_codec_dense(DENSE[i].type);
            return true;
        }
    return name[0] == 'q' && parse_affine(name + 1, codec);
}
