// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DELTA_LAYER_H
#define KVERN_ENGINE_DELTA_LAYER_H

// A gated delta rule in place of attention (gated DeltaNet, Kimi Delta Attention): projections and
// a gated norm around what the library's recurrent layers compute (kvern/recurrent.h).

#include "engine/model/forward.h"
#include "engine/model/model_facts_reader.h"
#include "engine/model/model_tensors.h"
#include "engine/model/scratch.h"

typedef struct delta_layer {
    linear q;           // [key_heads * key_dim, width]
    linear k;           // likewise
    linear v;           // [value_heads * value_dim, width]
    linear z;           // likewise: the gate of the result; with a rank [.., rank]
    linear a_rank;      // [rank, width]; with a rank
    linear z_rank;      // likewise
    linear a;           // [value_heads, width]: decay; with a rank [value_heads * key_dim, rank]
    linear b;           // likewise: beta
    linear output;      // [width, value_heads * value_dim]
    float *convolution; // [taps, channels] once the layer is finished; [channels, taps] in files
    float *a_log;       // [value_heads]
    float *dt_bias;     // [value_heads]; with a rank [value_heads, key_dim]
    float *norm;        // [value_dim]
    // With a rank, until the layer is finished: `convolution` is that of queries, these are the
    // ones of keys and values.
    float *k_convolution;
    float *v_convolution;
} delta_layer;

// Reads facts->delta (ssm.conv_kernel, state_size, group_count, time_step_rank, and inner_size or
// the dims of values), and which layers have it: all but every `full_every`th, which the file may
// say too, or those that a list names.
KVERN_CHECK kvern_status facts_read_delta(facts_reader *reader, size_t full_every,
                                          model_facts *facts);

// The tensors attn_qkv, attn_gate, ssm_alpha, ssm_beta (or the fused ssm_in, ssm_ba), ssm_conv1d,
// ssm_a, ssm_dt, ssm_norm and ssm_out. With a rank attn_q, attn_k, attn_v, ssm_f_a, ssm_f_b,
// ssm_g_a, ssm_g_b, ssm_beta, ssm_conv1d_q, ssm_conv1d_k, ssm_conv1d_v, ssm_a, ssm_dt, ssm_norm and
// attn_output.
void delta_list_tensors(delta_layer *layer, const model_facts *facts, tensor_specs *list);
// For model_family.finish_layer.
KVERN_CHECK kvern_status delta_finish(delta_layer *layer, const model_facts *facts,
                                      engine_error *error);

void delta_list_scratch(const model_facts *facts, model_scratch *list);

// What the KV cache keeps of such a layer.
kvern_layer delta_plan(const model_facts *facts);

// x += the output matrix times what the rule makes of RMSNorm(x, norm).
KVERN_CHECK kvern_status delta_run(const delta_layer *layer, const forward_pass *pass, size_t index,
                                   const float *norm, engine_error *error);

#endif
