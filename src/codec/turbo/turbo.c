// SPDX-License-Identifier: MIT
// The TurboQuant codec: names and sizes, and looking, one slot at a time.
#include "src/codec/turbo/turbo.h"

#include "src/codec/codes/codes_stream.h"
#include "src/codec/rotation/rotation.h"
#include "src/codec/slot_columns.h"
#include "src/cpu/isa.h"

#include <kvern/cache.h>

#include <stdio.h>
#include <string.h>

// ---- Parameters and names ----

kvern_codec kvern_codec_turbo(uint32_t bits)
{
    return (kvern_codec){.kind = KVERN_CODEC_TURBO, .bits = bits};
}

static bool exists(const kvern_codec *codec)
{
    return codec->bits >= 1 && codec->bits <= KVERN_TURBO_MOST_BITS;
}

static void name(const kvern_codec *codec, char text[KVERN_CODEC_NAME_BYTES])
{
    snprintf(text, KVERN_CODEC_NAME_BYTES, "turbo%ur%dc%d", (unsigned)codec->bits,
             KVERN_ROTATION_VERSION, KVERN_TURBO_CODEBOOK_VERSION(codec->bits));
}

static bool parse(const char *text, uint32_t group, kvern_codec *out)
{
    (void)group;
    if (strncmp(text, "tq", 2) != 0 || text[2] < '1' || text[2] > '0' + KVERN_TURBO_MOST_BITS ||
        text[3])
        return false;
    *out = kvern_codec_turbo((uint32_t)(text[2] - '0'));
    return true;
}

// ---- Sizes ----

static size_t dim_unit(const kvern_codec *codec)
{
    (void)codec;
    return 16;
}

static size_t block_bytes(const kvern_codec *codec, size_t dim)
{
    return KVERN_TURBO_SCALE_BYTES + kvern_codes_bytes(codec->bits, dim);
}

static size_t query_floats(const kvern_codec *codec, size_t dim)
{
    (void)codec;
    return dim;
}

// ---- Looking at a slot ----

static void decode(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values)
{
    const uint32_t *words = kvern_turbo_words(block);
    const float scale = kvern_turbo_scale(block, slot);
    for (size_t d = 0; d < dim; d++)
        values[d] = scale * kvern_turbo_levels[codec->bits][kvern_codes_find(codec->bits, stream,
                                                                             words, dim, slot, d)];
    kvern_rotate_back_plain(dim, values);
}

// ---- Copying slots ----

static void gather(const kvern_codec *codec, kvern_stream stream, size_t dim, const void *block,
                   const uint8_t *slots, size_t count, void *to, size_t at)
{
    kvern_gather_columns(sizeof(uint16_t), 1, block, slots, count, to, at);
    kvern_codes_gather(codec->bits, stream, dim, kvern_turbo_words(block), slots, count,
                       kvern_turbo_words(to), at);
}

// ---- Codes for callers ----

// As affine ones, but for the scale, which is one of the vector, and for biases: there are none.
static void export_slot(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, const kvern_affine_arrays *to, size_t index)
{
    kvern_codes_to_stream(codec->bits, stream, kvern_turbo_words(block), dim, slot,
                          to->words + index * kvern_codes_stream_words(codec->bits, dim));
    memcpy((uint16_t *)to->scales + index, (const uint16_t *)block + slot, sizeof(uint16_t));
}

static void import_slot(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, const kvern_affine_arrays *from, size_t index)
{
    kvern_codes_from_stream(codec->bits, stream, kvern_turbo_words(block), dim, slot,
                            from->words + index * kvern_codes_stream_words(codec->bits, dim));
    memcpy((uint16_t *)block + slot, (const uint16_t *)from->scales + index, sizeof(uint16_t));
}

static void clear_vector(const kvern_codec *codec, size_t dim, const kvern_affine_arrays *to,
                         size_t index)
{
    const size_t words = kvern_codes_stream_words(codec->bits, dim);
    memset(to->words + index * words, 0, words * sizeof to->words[0]);
    memset((uint16_t *)to->scales + index, 0, sizeof(uint16_t));
}

static const kvern_affine_access access = {export_slot, import_slot, clear_vector};

// ---- The codec ----

// By instruction set and bits.
#define PLAIN &kvern_turbo_plain
#define ENTER(set, SET)                                                                            \
    [KVERN_ISA_##SET] = {                                                                          \
        [1] = &kvern_turbo_1_##set, [2] = &kvern_turbo_2_##set, [3] = &kvern_turbo_3_##set,        \
        [4] = &kvern_turbo_4_##set, [5] = &kvern_turbo_5_##set, [6] = &kvern_turbo_6_##set},
static const kvern_codec_kernels *const kernels[][KVERN_TURBO_MOST_BITS + 1] = {
    [KVERN_ISA_PLAIN] =
        {[1] = PLAIN, [2] = PLAIN, [3] = PLAIN, [4] = PLAIN, [5] = PLAIN, [6] = PLAIN},
    KVERN_VECTOR_ISAS(ENTER)};

static const kvern_codec_kernels *kernels_of(const kvern_codec *codec, uint32_t features)
{
    KVERN_ASSERT(exists(codec) && kernels[kvern_isa_of(features)][codec->bits]);
    return kernels[kvern_isa_of(features)][codec->bits];
}

const kvern_codec_type kvern_codec_type_turbo = {
    .exists = exists,
    .name = name,
    .parse = parse,
    .user_names = "tq6, tq5, tq4, tq3, tq2, tq1",
    .dim_unit = dim_unit,
    .block_bytes = block_bytes,
    .query_floats = query_floats,
    .decode = decode,
    .gather = gather,
    .kernels_of = kernels_of,
    .affine = &access,
};
