// SPDX-License-Identifier: MIT
#include "src/codec/codec.h"

#include "src/base/assert.h"
#include "src/base/fail.h"

#include <kvern/storage.h>

#include <stdio.h>
#include <string.h>

// One line per codec: its number in kvern_codec, and what its folder defines.
#define CODECS(CODEC)                                                                              \
    CODEC(KVERN_CODEC_F32, kvern_codec_type_f32)                                                   \
    CODEC(KVERN_CODEC_BF16, kvern_codec_type_bf16)                                                 \
    CODEC(KVERN_CODEC_F16, kvern_codec_type_f16)                                                   \
    CODEC(KVERN_CODEC_AFFINE, kvern_codec_type_affine)                                             \
    CODEC(KVERN_CODEC_ROTATED, kvern_codec_type_rotated)                                           \
    CODEC(KVERN_CODEC_TURBO, kvern_codec_type_turbo)

#define DECLARE(kind, type) extern const kvern_codec_type type;
CODECS(DECLARE)

#define ENTER(kind, type) [kind] = &type,
static const kvern_codec_type *const types[] = {CODECS(ENTER)};
#define TYPES (sizeof types / sizeof types[0])

const kvern_codec_type *kvern_codec_type_of(const kvern_codec *codec)
{
    const size_t kind = (size_t)codec->kind;
    return kind < TYPES && types[kind]->exists(codec) ? types[kind] : NULL;
}

bool kvern_codec_equal(const kvern_codec *a, const kvern_codec *b)
{
    char a_name[KVERN_CODEC_NAME_BYTES], b_name[KVERN_CODEC_NAME_BYTES];
    const kvern_codec_type *type = kvern_codec_type_of(a);
    if (!type || type != kvern_codec_type_of(b))
        return false;
    type->name(a, a_name);
    type->name(b, b_name);
    return strcmp(a_name, b_name) == 0;
}

bool kvern_codec_has_biases(const kvern_codec *codec)
{
    return codec->kind != KVERN_CODEC_TURBO;
}

// "f32, bf16, ...": the names that kvern_codec_parse knows.
static const char *list_names(char *text, size_t bytes)
{
    size_t at = 0;
    for (size_t i = 0; i < TYPES && at < bytes; i++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%s", i ? ", " : "", types[i]->user_names);
    KVERN_ASSERT(at < bytes); // none was cut off
    return text;
}

kvern_status kvern_codec_parse(const char *name, uint32_t group, kvern_codec *out)
{
    kvern_codec codec;
    char names[256];
    if (!name || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "name or out is NULL");
    for (size_t i = 0; i < TYPES; i++) {
        if (!types[i]->parse(name, group, &codec))
            continue;
        if (!kvern_codec_type_of(&codec))
            return kvern_fail(KVERN_ERR_ARGUMENT, "there is no %.40s with a group of %u", name,
                              (unsigned)codec.group);
        *out = codec;
        return KVERN_OK;
    }
    return kvern_fail(KVERN_ERR_ARGUMENT, "\"%.40s\" is none of %s", name,
                      list_names(names, sizeof names));
}
