// SPDX-License-Identifier: MIT
// The affine codec: names and sizes, the sums of a prepared query, and looking, one slot at a time.
#include "src/codec/affine/affine.h"

#include "src/base/assert.h"
#include "src/codec/codes/codes_stream.h"
#include "src/codec/slot_columns.h"
#include "src/cpu/isa.h"
#include "src/math/sum.h"

#include <kvern/cache.h>

#include <math.h>
#include <stdio.h>

// ---- Parameters and names ----

kvern_codec kvern_codec_affine(uint32_t bits, uint32_t group)
{
    return (kvern_codec){
        .kind = KVERN_CODEC_AFFINE, .bits = bits, .group = group, .scales = KVERN_BF16};
}

bool kvern_affine_exists(const kvern_codec *codec)
{
    const bool bits = (codec->bits >= 2 && codec->bits <= 6) || codec->bits == 8;
    const bool group = codec->group == 32 || codec->group == 64 || codec->group == 128;
    return bits && group && kvern_type_bytes(codec->scales) != 0;
}

static void name(const kvern_codec *codec, char text[KVERN_CODEC_NAME_BYTES])
{
    snprintf(text, KVERN_CODEC_NAME_BYTES, "affine%ug%u%s", (unsigned)codec->bits,
             (unsigned)codec->group, kvern_type_name(codec->scales));
}

// "", or "g32", "g64", "g128", which replace *group.
static bool parse_group(const char *text, uint32_t *group)
{
    static const uint32_t groups[] = {32, 64, 128};
    static const char *const names[] = {"g32", "g64", "g128"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *group = groups[i];
            return true;
        }
    }
    return text[0] == '\0';
}

bool kvern_affine_parse(const char *text, uint32_t group, kvern_codec *out)
{
    if (text[0] != 'q' || text[1] == '\0' || !strchr("234568", text[1]) ||
        !parse_group(text + 2, &group))
        return false;
    *out = kvern_codec_affine((uint32_t)(text[1] - '0'), group);
    return true;
}

// ---- Sizes ----

size_t kvern_affine_dim_unit(const kvern_codec *codec)
{
    return codec->group;
}

size_t kvern_affine_block_bytes(const kvern_codec *codec, size_t dim)
{
    const size_t bytes = kvern_affine_sides(codec, dim) * kvern_type_bytes(codec->scales) +
                         kvern_codes_bytes(codec->bits, dim);
    KVERN_ASSERT(bytes % 64 == 0);
    return bytes;
}

size_t kvern_affine_query_floats(const kvern_codec *codec, size_t dim)
{
    return dim + dim / codec->group;
}

// The sum of a group, by sixteen sums and the canonical tree.
static float group_sum(const float *q, size_t group)
{
    float sums[16];
    memcpy(sums, q, sizeof sums);
    KVERN_ASSERT(group % 16 == 0);
    for (size_t d = 16; d < group; d += 16) {
        for (size_t i = 0; i < 16; i++)
            sums[i] += q[d + i];
    }
    return kvern_sum16(sums);
}

void kvern_affine_prepare(const kvern_codec *codec, size_t dim, float *q)
{
    KVERN_ASSERT(dim % codec->group == 0);
    for (size_t g = 0; g < dim / codec->group; g++)
        q[dim + g] = group_sum(q + g * codec->group, codec->group);
}

// ---- Looking at a slot ----

void kvern_affine_decode(const kvern_codec *codec, kvern_stream stream, const void *block,
                         size_t dim, size_t slot, float *values)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    for (size_t d = 0; d < dim; d++) {
        const size_t g = d / codec->group;
        values[d] = fmaf(kvern_load_element(codec->scales, block, kvern_affine_scale_at(slot, g)),
                         (float)kvern_codes_find(codec->bits, stream, words, dim, slot, d),
                         kvern_load_element(codec->scales, block, kvern_affine_bias_at(slot, g)));
    }
}

// ---- Copying slots ----

void kvern_affine_gather(const kvern_codec *codec, kvern_stream stream, size_t dim,
                         const void *block, const uint8_t *slots, size_t count, void *to, size_t at)
{
    kvern_gather_columns(kvern_type_bytes(codec->scales), 2 * (dim / codec->group), block, slots,
                         count, to, at);
    kvern_codes_gather(codec->bits, stream, dim, kvern_affine_words(codec, block, dim), slots,
                       count, kvern_affine_words(codec, to, dim), at);
}

// ---- Codes in the layout of MLX ----

// The arrays of one vector: its words, scales and biases.
static kvern_affine_arrays vector_at(const kvern_codec *codec, size_t dim,
                                     const kvern_affine_arrays *arrays, size_t index)
{
    const size_t sides = index * (dim / codec->group) * kvern_type_bytes(codec->scales);
    return (kvern_affine_arrays){.words = arrays->words +
                                          index * kvern_codes_stream_words(codec->bits, dim),
                                 .scales = (char *)arrays->scales + sides,
                                 .biases = (char *)arrays->biases + sides};
}

static void export_slot(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, const kvern_affine_arrays *arrays, size_t index)
{
    const kvern_affine_arrays to = vector_at(codec, dim, arrays, index);
    kvern_codes_to_stream(codec->bits, stream, kvern_affine_words(codec, block, dim), dim, slot,
                          to.words);
    const size_t bytes = kvern_type_bytes(codec->scales);
    for (size_t g = 0; g < dim / codec->group; g++) {
        memcpy((char *)to.scales + g * bytes,
               (const char *)block + kvern_affine_scale_at(slot, g) * bytes, bytes);
        memcpy((char *)to.biases + g * bytes,
               (const char *)block + kvern_affine_bias_at(slot, g) * bytes, bytes);
    }
}

static void import_slot(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, const kvern_affine_arrays *arrays, size_t index)
{
    const kvern_affine_arrays from = vector_at(codec, dim, arrays, index);
    kvern_codes_from_stream(codec->bits, stream, kvern_affine_words(codec, block, dim), dim, slot,
                            from.words);
    const size_t bytes = kvern_type_bytes(codec->scales);
    for (size_t g = 0; g < dim / codec->group; g++) {
        memcpy((char *)block + kvern_affine_scale_at(slot, g) * bytes,
               (const char *)from.scales + g * bytes, bytes);
        memcpy((char *)block + kvern_affine_bias_at(slot, g) * bytes,
               (const char *)from.biases + g * bytes, bytes);
    }
}

static void clear_vector(const kvern_codec *codec, size_t dim, const kvern_affine_arrays *arrays,
                         size_t index)
{
    const kvern_affine_arrays to = vector_at(codec, dim, arrays, index);
    const size_t sides = dim / codec->group * kvern_type_bytes(codec->scales);
    memset(to.words, 0, kvern_codes_stream_words(codec->bits, dim) * sizeof to.words[0]);
    memset(to.scales, 0, sides);
    memset(to.biases, 0, sides);
}

const kvern_affine_access kvern_affine_access_of_codes = {export_slot, import_slot, clear_vector};

// ---- The codec ----

// By instruction set and bits.
#define PLAIN &kvern_affine_plain
#define ENTER(set, SET)                                                                            \
    [KVERN_ISA_##SET] = {                                                                          \
        [2] = &kvern_affine_2_##set, [3] = &kvern_affine_3_##set, [4] = &kvern_affine_4_##set,     \
        [5] = &kvern_affine_5_##set, [6] = &kvern_affine_6_##set, [8] = &kvern_affine_8_##set},
static const kvern_codec_kernels *const kernels[][9] = {
    [KVERN_ISA_PLAIN] =
        {[2] = PLAIN, [3] = PLAIN, [4] = PLAIN, [5] = PLAIN, [6] = PLAIN, [8] = PLAIN},
    KVERN_VECTOR_ISAS(ENTER)};

static const kvern_codec_kernels *kernels_of(const kvern_codec *codec, uint32_t features)
{
    KVERN_ASSERT(kvern_affine_exists(codec) && kernels[kvern_isa_of(features)][codec->bits]);
    return kernels[kvern_isa_of(features)][codec->bits];
}

const kvern_codec_type kvern_codec_type_affine = {
    .exists = kvern_affine_exists,
    .name = name,
    .parse = kvern_affine_parse,
    .user_names = "q8, q6, q5, q4, q3, q2, or one of these with its group: q4g32",
    .dim_unit = kvern_affine_dim_unit,
    .block_bytes = kvern_affine_block_bytes,
    .query_floats = kvern_affine_query_floats,
    .decode = kvern_affine_decode,
    .gather = kvern_affine_gather,
    .kernels_of = kernels_of,
    .affine = &kvern_affine_access_of_codes,
};
