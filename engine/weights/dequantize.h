// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DEQUANTIZE_H
#define KVERN_ENGINE_DEQUANTIZE_H

// Reference decoding of element types to float32. This is the definition of what a stored block
// means; the matrix kernels read the same values from their own layouts.

#include "engine/weights/element_type.h"

#include <kvern/status.h>

// Decodes `elements` values (a multiple of the type's block) from `blocks`, at any address, to
// `out`. Every value is the exact one rounded once to float32: all products of a block's scales and
// codes fit its 24 bits, so that only the addition of a minimum rounds, and no order of the
// products and no fused multiply-add can change a bit. Returns KVERN_ERR_UNSUPPORTED for an unknown
// type and KVERN_ERR_ARGUMENT when `elements` is no multiple of the block; `out` is then unchanged.
KVERN_CHECK kvern_status engine_dequantize(uint32_t type, const void *blocks, size_t elements,
                                           float *out);

#endif
