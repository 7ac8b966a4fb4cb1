// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DEQUANTIZE_H
#define KVERN_ENGINE_DEQUANTIZE_H

// Reference decoding of GGUF tensor types to float32. This is the definition of what a stored block
// means; the matrix kernels read the same values from their own layouts.

#include "engine/gguf.h"

// Decodes `elements` values (a multiple of the type's block) from `blocks` to `out`. One rounding
// per arithmetic step in the order of the format's definition. Returns KVERN_ERR_UNSUPPORTED for an
// unknown type and KVERN_ERR_ARGUMENT when `elements` is no multiple of the block.
KVERN_CHECK kvern_status engine_dequantize(uint32_t type, const void *blocks, size_t elements,
                                           float *out);

#endif
