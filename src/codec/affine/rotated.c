// SPDX-License-Identifier: MIT
// Affine codes of rotated vectors: blocks are those of affine codes, kernels differ where vectors
// enter and leave.
#include "src/codec/affine/affine.h"
#include "src/codec/rotation/rotation.h"
#include "src/cpu/isa.h"

#include <stdio.h>

kvern_codec kvern_codec_rotated(uint32_t bits, uint32_t group)
{
    kvern_codec codec = kvern_codec_affine(bits, group);
    codec.kind = KVERN_CODEC_ROTATED;
    return codec;
}

static void name(const kvern_codec *codec, char text[KVERN_CODEC_NAME_BYTES])
{
    snprintf(text, KVERN_CODEC_NAME_BYTES, "rotated%ug%u%sr%d", (unsigned)codec->bits,
             (unsigned)codec->group, kvern_type_name(codec->scales), KVERN_ROTATION_VERSION);
}

// "rq4", or with its group "rq4g32".
static bool parse(const char *text, uint32_t group, kvern_codec *out)
{
    if (text[0] != 'r' || !kvern_affine_parse(text + 1, group, out))
        return false;
    out->kind = KVERN_CODEC_ROTATED;
    return true;
}

static void decode(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values)
{
    kvern_affine_decode(codec, stream, block, dim, slot, values);
    kvern_rotate_back_plain(dim, values);
}

// By instruction set and bits.
#define PLAIN &kvern_rotated_plain
#define ENTER(set, SET)                                                                            \
    [KVERN_ISA_##SET] = {                                                                          \
        [2] = &kvern_rotated_2_##set, [3] = &kvern_rotated_3_##set, [4] = &kvern_rotated_4_##set,  \
        [5] = &kvern_rotated_5_##set, [6] = &kvern_rotated_6_##set, [8] = &kvern_rotated_8_##set},
static const kvern_codec_kernels *const kernels[][9] = {
    [KVERN_ISA_PLAIN] =
        {[2] = PLAIN, [3] = PLAIN, [4] = PLAIN, [5] = PLAIN, [6] = PLAIN, [8] = PLAIN},
    KVERN_VECTOR_ISAS(ENTER)};

static const kvern_codec_kernels *kernels_of(const kvern_codec *codec, uint32_t features)
{
    KVERN_ASSERT(kvern_affine_exists(codec) && kernels[kvern_isa_of(features)][codec->bits]);
    return kernels[kvern_isa_of(features)][codec->bits];
}

const kvern_codec_type kvern_codec_type_rotated = {
    .exists = kvern_affine_exists,
    .name = name,
    .parse = parse,
    .user_names = "rq8, rq6, rq5, rq4, rq3, rq2",
    .dim_unit = kvern_affine_dim_unit,
    .block_bytes = kvern_affine_block_bytes,
    .query_floats = kvern_affine_query_floats,
    .decode = decode,
    .gather = kvern_affine_gather,
    .kernels_of = kernels_of,
    .affine = &kvern_affine_access_of_codes,
};
