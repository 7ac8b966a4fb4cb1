// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_BLOCK_TENSORS_H
#define KVERN_ENGINE_BLOCK_TENSORS_H

// Weights in MXFP4 as OpenAI publishes them: config.json's quantization_config has the quant_method
// "mxfp4", and a matrix P, or a stack of them, is two tensors of bytes, P_blocks [..., rows,
// groups, 16] with the codes of 32 elements in each block, and P_scales [..., rows, groups] with
// their exponents. Byte b of a block has element 2 b in its low half and 2 b + 1 in its high one.

#include "engine/safetensors/config_json.h"
#include "engine/weights/weights.h"

// Joins them to one tensor of ELEMENT_MXFP4 that keeps the name P_blocks, in place; *count becomes
// smaller. Does nothing with another quant_method, or none. `name` names the directory in errors.
// Errors: KVERN_ERR_FORMAT (tensors that contradict each other or config.json, or none in blocks),
// KVERN_ERR_UNSUPPORTED (another member of quantization_config, or a quantization beside it),
// KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status block_tensors_join(const config_json *config, const char *name,
                                            weights_tensor *tensors, size_t *count,
                                            engine_error *error);

#endif
