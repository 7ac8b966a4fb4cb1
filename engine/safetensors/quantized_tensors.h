// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_QUANTIZED_TENSORS_H
#define KVERN_ENGINE_QUANTIZED_TENSORS_H

// Weights as MLX quantizes them: a matrix P is three tensors, P.weight (words with the codes),
// P.scales and P.biases (none in the mode mxfp4), and config.json says in "quantization" how many
// bits a code has and how many elements share a scale, for all matrices and for some of them
// otherwise.

#include "engine/safetensors/config_json.h"
#include "engine/weights/weights.h"

// Joins them to one tensor of an affine type or of ELEMENT_MXFP4, in place; *count becomes smaller.
// `name` names the directory in errors. Errors: KVERN_ERR_FORMAT (tensors that contradict each
// other or config.json), KVERN_ERR_UNSUPPORTED (other modes, bits or groups), KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status quantized_tensors_join(const config_json *config, const char *name,
                                                weights_tensor *tensors, size_t *count,
                                                engine_error *error);

#endif
