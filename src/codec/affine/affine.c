// SPDX-License-Identifier: MIT
// The affine codec: names and sizes, the sums of a prepared query, and looking, one slot at a time.
#include "src/codec/affine/affine.h"

#include "src/base/assert.h"
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

static bool exists(const kvern_codec *codec)
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

// "q4", or with its group "q4g32".
static bool parse(const char *text, uint32_t group, kvern_codec *out)
{
    if (text[0] != 'q' || text[1] == '\0' || !strchr("234568", text[1]) ||
        !parse_group(text + 2, &group))
        return false;
    *out = kvern_codec_affine((uint32_t)(text[1] - '0'), group);
    return true;
}

// ---- Sizes ----

static size_t dim_unit(const kvern_codec *codec)
{
    return codec->group;
}

static size_t block_bytes(const kvern_codec *codec, size_t dim)
{
    const size_t bytes = kvern_affine_sides(codec, dim) * kvern_type_bytes(codec->scales) +
                         kvern_codes_bytes(codec->bits, dim);
    KVERN_ASSERT(bytes % 64 == 0);
    return bytes;
}

static size_t query_floats(const kvern_codec *codec, size_t dim)
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

static void prepare(const kvern_codec *codec, size_t dim, float *q)
{
    KVERN_ASSERT(dim % codec->group == 0);
    for (size_t g = 0; g < dim / codec->group; g++)
        q[dim + g] = group_sum(q + g * codec->group, codec->group);
}

// ---- Looking at a slot ----

static void decode(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values)
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

static void gather_codes_v(const kvern_codec *codec, size_t dim, const uint32_t *words,
                           const uint8_t *slots, size_t count, uint32_t *to, size_t at)
{
    uint32_t codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM && at + count <= KVERN_PAGE_POSITIONS);
    for (size_t i = 0; i < count; i++) {
        for (size_t d = 0; d < dim; d++)
            codes[d] = kvern_codes_find(codec->bits, KVERN_STREAM_V, words, dim, slots[i], d);
        kvern_codes_place(codec->bits, KVERN_STREAM_V, to, dim, at + i, codes);
    }
}

static void gather(const kvern_codec *codec, kvern_stream stream, size_t dim, const void *block,
                   const uint8_t *slots, size_t count, void *to, size_t at)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    uint32_t *to_words = kvern_affine_words(codec, to, dim);
    kvern_gather_columns(kvern_type_bytes(codec->scales), 2 * (dim / codec->group), block, slots,
                         count, to, at);
    if (stream == KVERN_STREAM_K)
        kvern_gather_columns(sizeof words[0], dim / KVERN_CODES_COLUMN * codec->bits, words, slots,
                             count, to_words, at);
    else
        gather_codes_v(codec, dim, words, slots, count, to_words, at);
}

// ---- Codes in the layout of MLX ----

// The arrays of one vector: its words, scales and biases.
static kvern_affine_arrays vector_at(const kvern_codec *codec, size_t dim,
                                     const kvern_affine_arrays *arrays, size_t index)
{
    const size_t sides = index * (dim / codec->group) * kvern_type_bytes(codec->scales);
    KVERN_ASSERT(dim * codec->bits % 32 == 0); // vectors are whole words
    return (kvern_affine_arrays){.words = arrays->words + index * (dim * codec->bits / 32),
                                 .scales = (char *)arrays->scales + sides,
                                 .biases = (char *)arrays->biases + sides};
}

// The codes are one stream of bits, low bits first.
static void export_codes(const kvern_codec *codec, kvern_stream stream, const void *block,
                         size_t dim, size_t slot, uint32_t *to)
{
    const uint32_t *words = kvern_affine_words(codec, block, dim);
    memset(to, 0, dim * codec->bits / 8);
    for (size_t d = 0; d < dim; d++) {
        const uint64_t code = kvern_codes_find(codec->bits, stream, words, dim, slot, d);
        const size_t bit = d * codec->bits, word = bit / 32;
        const uint64_t placed = code << bit % 32;
        KVERN_ASSERT(code >> codec->bits == 0);
        to[word] |= (uint32_t)placed;
        if (placed >> 32)
            to[word + 1] |= (uint32_t)(placed >> 32);
    }
}

static void export_slot(const kvern_codec *codec, kvern_stream stream, const void *block,
                        size_t dim, size_t slot, const kvern_affine_arrays *arrays, size_t index)
{
    const kvern_affine_arrays to = vector_at(codec, dim, arrays, index);
    export_codes(codec, stream, block, dim, slot, to.words);
    const size_t bytes = kvern_type_bytes(codec->scales);
    for (size_t g = 0; g < dim / codec->group; g++) {
        memcpy((char *)to.scales + g * bytes,
               (const char *)block + kvern_affine_scale_at(slot, g) * bytes, bytes);
        memcpy((char *)to.biases + g * bytes,
               (const char *)block + kvern_affine_bias_at(slot, g) * bytes, bytes);
    }
}

// The code number d of a stream of bits.
static uint32_t code_in_stream(uint32_t bits, const uint32_t *words, size_t d)
{
    const size_t bit = d * bits, word = bit / 32;
    uint64_t pair = words[word];
    if (bit % 32 + bits > 32)
        pair |= (uint64_t)words[word + 1] << 32;
    return (uint32_t)(pair >> bit % 32) & ((UINT32_C(1) << bits) - 1);
}

static void import_slot(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                        size_t slot, const kvern_affine_arrays *arrays, size_t index)
{
    const kvern_affine_arrays from = vector_at(codec, dim, arrays, index);
    uint32_t codes[KVERN_MAX_STREAM_DIM];
    KVERN_ASSERT(dim <= KVERN_MAX_STREAM_DIM);
    for (size_t d = 0; d < dim; d++)
        codes[d] = code_in_stream(codec->bits, from.words, d);
    kvern_codes_place(codec->bits, stream, kvern_affine_words(codec, block, dim), dim, slot, codes);
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
    memset(to.words, 0, dim * codec->bits / 8);
    memset(to.scales, 0, sides);
    memset(to.biases, 0, sides);
}

static const kvern_affine_access access = {export_slot, import_slot, clear_vector};

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
    KVERN_ASSERT(exists(codec) && kernels[kvern_isa_of(features)][codec->bits]);
    return kernels[kvern_isa_of(features)][codec->bits];
}

const kvern_codec_type kvern_codec_type_affine = {
    .exists = exists,
    .name = name,
    .parse = parse,
    .user_names = "q8, q6, q5, q4, q3, q2, or one of these with its group: q4g32",
    .dim_unit = dim_unit,
    .block_bytes = block_bytes,
    .query_floats = query_floats,
    .prepare = prepare,
    .decode = decode,
    .gather = gather,
    .kernels_of = kernels_of,
    .affine = &access,
};
