// SPDX-License-Identifier: MIT
#include "src/codec/codec.h"

#include "src/codec/affine/affine.h"
#include "src/codec/dense/dense.h"

#include <stdio.h>

size_t kvern_type_bytes(kvern_type type)
{
    switch (type) {
    case KVERN_F32:
        return 4;
    case KVERN_BF16:
    case KVERN_F16:
        return 2;
    }
    return 0;
}

kvern_codec kvern_codec_dense(kvern_type type)
{
    return (kvern_codec){.kind = (kvern_codec_kind)type};
}

kvern_codec kvern_codec_affine(uint32_t bits, uint32_t group)
{
    return (kvern_codec){KVERN_CODEC_AFFINE, bits, group, KVERN_BF16};
}

const kvern_codec_layout *kvern_codec_layout_of(const kvern_codec *codec)
{
    switch (codec->kind) {
    case KVERN_CODEC_F32:
        return &kvern_dense_f32;
    case KVERN_CODEC_BF16:
        return &kvern_dense_bf16;
    case KVERN_CODEC_F16:
        return &kvern_dense_f16;
    case KVERN_CODEC_AFFINE:
        return kvern_affine_exists(codec) ? &kvern_affine_layout : NULL;
    }
    return NULL;
}

bool kvern_codec_fits(const kvern_codec *codec, size_t dim)
{
    return codec->kind != KVERN_CODEC_AFFINE || dim % codec->group == 0;
}

void kvern_codec_name(const kvern_codec *codec, char name[KVERN_CODEC_NAME_BYTES])
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    if (codec->kind == KVERN_CODEC_AFFINE)
        snprintf(name, KVERN_CODEC_NAME_BYTES, "affine%ug%u%s", (unsigned)codec->bits,
                 (unsigned)codec->group, types[codec->scales]);
    else
        snprintf(name, KVERN_CODEC_NAME_BYTES, "%s", types[codec->kind]);
}

static kvern_codec_kernels affine_kernels(const kvern_codec *codec, uint32_t features)
{
#if defined(__x86_64__)
    if (features & KVERN_CPU_AVX512)
        return kvern_affine_kernels_avx512(codec->bits);
    if (features & KVERN_CPU_AVX2)
        return kvern_affine_kernels_avx2(codec->bits);
#elif defined(__aarch64__)
    if (features & KVERN_CPU_NEON)
        return kvern_affine_kernels_neon(codec->bits);
#endif
    (void)codec;
    (void)features;
    return kvern_affine_kernels_plain();
}

kvern_codec_kernels kvern_codec_kernels_of(const kvern_codec *codec, uint32_t features)
{
    if (codec->kind == KVERN_CODEC_AFFINE)
        return affine_kernels(codec, features);
    const kvern_type type = (kvern_type)codec->kind;
#if defined(__x86_64__)
    if (features & KVERN_CPU_AVX512)
        return kvern_dense_kernels_avx512(type);
    if (features & KVERN_CPU_AVX2)
        return kvern_dense_kernels_avx2(type);
#elif defined(__aarch64__)
    if (features & KVERN_CPU_NEON)
        return kvern_dense_kernels_neon(type);
#endif
    (void)features;
    return kvern_dense_kernels_plain(type);
}
