// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_OPS_KERNELS_H
#define KVERN_ENGINE_OPS_KERNELS_H

// The kernels that ops_template.h makes, one set per instruction set; see engine/kernels/ops.h.

#include <stddef.h>

#define OPS_DECLARE(isa)                                                                           \
    void engine_rms_norm_##isa(const float *x, const float *weight, float epsilon, size_t n,       \
                               float *out);                                                        \
    void engine_rotate_pairs_##isa(float *x, size_t heads, size_t stride, const float *table,      \
                                   size_t dim);                                                    \
    void engine_rotate_halves_##isa(float *x, size_t heads, size_t stride, const float *table,     \
                                    size_t dim);                                                   \
    void engine_add_##isa(float *x, const float *y, size_t n);                                     \
    void engine_add_scaled_##isa(float *x, float scale, const float *y, size_t n);                 \
    void engine_multiply_##isa(float *x, const float *y, size_t n);

OPS_DECLARE(plain)
OPS_DECLARE(avx2)
OPS_DECLARE(avx512)

#endif
