// SPDX-License-Identifier: MIT
#include "src/codec/codec.h"

#include "src/codec/dense/dense.h"

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

const kvern_codec *kvern_codec_of(kvern_type type)
{
    switch (type) {
    case KVERN_F32:
        return &kvern_dense_f32;
    case KVERN_BF16:
        return &kvern_dense_bf16;
    case KVERN_F16:
        return &kvern_dense_f16;
    }
    return NULL;
}

kvern_codec_kernels kvern_codec_kernels_of(kvern_type type, uint32_t features)
{
#if defined(__x86_64__)
    if (features & KVERN_CPU_AVX512)
        return kvern_dense_kernels_avx512(type);
    if (features & KVERN_CPU_AVX2)
        return kvern_dense_kernels_avx2(type);
#endif
    (void)features;
    return kvern_dense_kernels_plain(type);
}
