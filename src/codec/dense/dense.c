// SPDX-License-Identifier: MIT
// The dense codecs: sizes and places in a block, and decoding, one slot at a time.
#include "src/codec/dense/dense.h"

#include "src/base/assert.h"
#include "src/codec/slot_columns.h"
#include "src/cpu/isa.h"
#include "src/math/element.h"

#include <kvern/experimental/slot.h>

#include <stdio.h>
#include <string.h>

_Static_assert((int)KVERN_CODEC_F32 == (int)KVERN_F32 && (int)KVERN_CODEC_BF16 == (int)KVERN_BF16 &&
                   (int)KVERN_CODEC_F16 == (int)KVERN_F16,
               "a dense codec has the number of its type");

static kvern_type type_of(const kvern_codec *codec)
{
    return (kvern_type)codec->kind;
}

kvern_codec kvern_codec_dense(kvern_type type)
{
    return (kvern_codec){.kind = (kvern_codec_kind)type};
}

static bool exists(const kvern_codec *codec)
{
    (void)codec;
    return true;
}

static void name(const kvern_codec *codec, char text[KVERN_CODEC_NAME_BYTES])
{
    snprintf(text, KVERN_CODEC_NAME_BYTES, "%s", kvern_type_name(type_of(codec)));
}

static size_t dim_unit(const kvern_codec *codec)
{
    (void)codec;
    return 1;
}

static size_t block_bytes(const kvern_codec *codec, size_t dim)
{
    KVERN_ASSERT(dim % 8 == 0);
    return dim * KVERN_PAGE_POSITIONS * kvern_type_bytes(type_of(codec));
}

static size_t query_floats(const kvern_codec *codec, size_t dim)
{
    (void)codec;
    return dim;
}

// By instruction set and kind.
#define ENTER(set, SET)                                                                            \
    [KVERN_ISA_##SET] = {[KVERN_CODEC_F32] = &kvern_dense_f32_##set,                               \
                         [KVERN_CODEC_BF16] = &kvern_dense_bf16_##set,                             \
                         [KVERN_CODEC_F16] = &kvern_dense_f16_##set},
static const kvern_codec_kernels *const kernels[][3] = {ENTER(plain, PLAIN)
                                                            KVERN_VECTOR_ISAS(ENTER)};

static const kvern_codec_kernels *kernels_of(const kvern_codec *codec, uint32_t features)
{
    KVERN_ASSERT((size_t)codec->kind < sizeof kernels[0] / sizeof kernels[0][0]);
    KVERN_ASSERT(kernels[kvern_isa_of(features)][codec->kind]);
    return kernels[kvern_isa_of(features)][codec->kind];
}

// ---- Places ----

static kvern_slot_stream place_k(kvern_type type, char *block, size_t dim, size_t slot)
{
    const int64_t pair = type == KVERN_BF16 ? 2 : 1;
    return (kvern_slot_stream){
        .type = type,
        .data = block + kvern_dense_k_offset(type, slot, 0) * kvern_type_bytes(type),
        .group = pair,
        .group_stride = pair * KVERN_PAGE_POSITIONS,
        .dim_stride = 1,
        .whole = (int64_t)dim,
    };
}

static kvern_slot_stream place_v(kvern_type type, char *block, size_t dim, size_t slot)
{
    const size_t bytes = kvern_type_bytes(type), whole = dim - dim % KVERN_DENSE_PANEL;
    kvern_slot_stream stream = {
        .type = type,
        .data = block + kvern_dense_v_offset(type, dim, slot, 0) * bytes,
        .group = KVERN_DENSE_PANEL,
        .group_stride = KVERN_DENSE_PANEL * KVERN_PAGE_POSITIONS,
        .dim_stride = type == KVERN_BF16 ? 2 : 1,
        .whole = (int64_t)whole,
    };
    if (whole < dim)
        stream.rest = block + kvern_dense_v_offset(type, dim, slot, whole) * bytes;
    return stream;
}

static kvern_slot_stream place(const kvern_codec *codec, kvern_stream stream, void *block,
                               size_t dim, size_t slot)
{
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS);
    return stream == KVERN_STREAM_K ? place_k(type_of(codec), block, dim, slot)
                                    : place_v(type_of(codec), block, dim, slot);
}

// ---- Decoding ----

static size_t offset_of(kvern_stream stream, kvern_type type, size_t dim, size_t slot, size_t d)
{
    return stream == KVERN_STREAM_K ? kvern_dense_k_offset(type, slot, d)
                                    : kvern_dense_v_offset(type, dim, slot, d);
}

// Inlined with a constant `stored` below, so that each codec gets its own loop.
static inline void decode(kvern_type stored, kvern_stream stream, const void *block, size_t dim,
                          size_t slot, float *values)
{
    for (size_t d = 0; d < dim; d++)
        values[d] = kvern_load_element(stored, block, offset_of(stream, stored, dim, slot, d));
}

// ---- Copying slots ----

// Of values: panel by panel the slots' rows of `width` elements, or every other half word of them.
static void gather_panel(kvern_type type, const char *from, size_t slot, char *to, size_t at,
                         size_t width)
{
    const size_t bytes = kvern_type_bytes(type);
    KVERN_ASSERT(slot < KVERN_PAGE_POSITIONS && at < KVERN_PAGE_POSITIONS);
    if (type != KVERN_BF16) {
        memcpy(to + at * width * bytes, from + slot * width * bytes, width * bytes);
        return;
    }
    from += kvern_dense_v_offset(type, width, slot, 0) * bytes;
    to += kvern_dense_v_offset(type, width, at, 0) * bytes;
    for (size_t d = 0; d < width; d++)
        memcpy(to + 4 * d, from + 4 * d, bytes);
}

static void gather(const kvern_codec *codec, kvern_stream stream, size_t dim, const void *block,
                   const uint8_t *slots, size_t count, void *to, size_t at)
{
    const kvern_type type = type_of(codec);
    if (stream == KVERN_STREAM_K) { // words: a float, or a pair of bf16
        const size_t bytes = type == KVERN_F16 ? 2 : 4;
        kvern_gather_columns(bytes, dim * kvern_type_bytes(type) / bytes, block, slots, count, to,
                             at);
        return;
    }
    for (size_t first = 0; first < dim; first += KVERN_DENSE_PANEL) {
        const size_t width = kvern_dense_panel_width(dim, first);
        const size_t panel = first * KVERN_PAGE_POSITIONS * kvern_type_bytes(type);
        for (size_t i = 0; i < count; i++)
            gather_panel(type, (const char *)block + panel, slots[i], (char *)to + panel, at + i,
                         width);
    }
}

#define DENSE_CODEC(type_name, type)                                                               \
    static bool parse_##type_name(const char *text, uint32_t group, kvern_codec *out)              \
    {                                                                                              \
        (void)group;                                                                               \
        *out = kvern_codec_dense(type);                                                            \
        return strcmp(text, #type_name) == 0;                                                      \
    }                                                                                              \
    static void decode_##type_name(const kvern_codec *codec, kvern_stream stream,                  \
                                   const void *block, size_t dim, size_t slot, float *values)      \
    {                                                                                              \
        (void)codec;                                                                               \
        decode(type, stream, block, dim, slot, values);                                            \
    }                                                                                              \
    const kvern_codec_type kvern_codec_type_##type_name = {                                        \
        .exists = exists,                                                                          \
        .name = name,                                                                              \
        .parse = parse_##type_name,                                                                \
        .user_names = #type_name,                                                                  \
        .dim_unit = dim_unit,                                                                      \
        .block_bytes = block_bytes,                                                                \
        .query_floats = query_floats,                                                              \
        .decode = decode_##type_name,                                                              \
        .gather = gather,                                                                          \
        .kernels_of = kernels_of,                                                                  \
        .place = place,                                                                            \
    };

DENSE_CODEC(f32, KVERN_F32)
DENSE_CODEC(bf16, KVERN_BF16)
DENSE_CODEC(f16, KVERN_F16)
