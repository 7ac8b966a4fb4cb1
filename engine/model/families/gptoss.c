// SPDX-License-Identifier: MIT
#include "engine/model/families/gptoss.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/sparse_layer.h"
#include "engine/model/window_facts.h"

#define GPTOSS_FULL_EVERY 2
// Those that are computed: see experts_activation.
#define GPTOSS_LIMIT 7
#define GPTOSS_ALPHA 1.702f

static const key_row KEYS[] = {
    {"attention.sliding_window", .rule = KEY_USED},
    {"attention.sliding_window_pattern", .rule = KEY_USED, .why = "which layers have the window"},
    {"expert_count", .rule = KEY_USED},
    {"expert_used_count", .rule = KEY_USED},
    {"expert_feed_forward_length", .rule = KEY_USED},
    {"expert_gating_func", .rule = KEY_USED},
};
static const key_table gptoss_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate_inp.weight", "mlp.router.weight"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
    {"ffn_gate_exps.weight", "mlp.experts.gate_proj.weight"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_proj.bias"},
    {"ffn_up_exps.weight", "mlp.experts.up_proj.weight"},
    {"ffn_up_exps.bias", "mlp.experts.up_proj.bias"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj.weight"},
    {"ffn_down_exps.bias", "mlp.experts.down_proj.bias"},
    // OpenAI's own: see engine/safetensors/block_tensors.h
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj_blocks"},
    {"ffn_gate_up_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj_blocks"},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"},
    // The same in floats, as Transformers writes it: [inputs, outputs].
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
    {"ffn_down_exps.weight", "mlp.experts.down_proj"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"num_local_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"experts_per_token", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"swiglu_limit", .rule = KEY_USED, .canonical = "swiglu_limit"},
    {"swiglu_alpha", .rule = KEY_USED, .canonical = "swiglu_alpha"},
    {"attention_bias", .rule = KEY_NEUTRAL, .neutral = KEY_TRUE},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu", .why = "a clamped one in fact"},
    {"initial_context_length", .rule = KEY_WITHOUT_EFFECT, .why = "rope_scaling has it"},
    {"quantization_config.quant_method", .rule = KEY_NEUTRAL, .text = "mxfp4",
     .why = "blocks and their scales"},
    {"quantization_config.modules_to_not_convert", .rule = KEY_USED, .why = "has no experts"},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"router_aux_loss_coef", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
};
static const key_table gptoss_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names gptoss_hf = {
    .model_type = "gpt_oss",
    .architecture = "gpt-oss",
    .tensors = HF_TENSORS,
    .keys = {&gptoss_hf_keys, &hf_common_keys},
};

static kvern_status check_number(facts_reader *reader, const char *name, float wanted)
{
    config_value found = facts_find(reader, name);
    float number = 0;
    return found.kind == CONFIG_ABSENT || (config_f32(&found, &number) && number == wanted)
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED, "%s must be %g", reader->key,
                             (double)wanted);
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    const weights *source = reader->source;
    facts->experts.router = MODEL_ROUTER_CHOSEN;
    const weights_tensor *fused = weights_find_tensor(source, "blk.0.ffn_gate_up_exps.weight");
    facts->experts.fused = facts->experts.in_turn = source->format->hf_names && fused;
    facts->experts.turned = facts->experts.fused && fused->type != ELEMENT_MXFP4;
    kvern_status status = facts_check_stated(reader, "rope.scaling.type"); // or yarn, or nothing
    if (status == KVERN_OK) {
        status = sparse_read_facts(reader, facts);
    }
    if (status == KVERN_OK) {
        status = check_number(reader, "swiglu_limit", GPTOSS_LIMIT);
    }
    if (status == KVERN_OK) {
        status = check_number(reader, "swiglu_alpha", GPTOSS_ALPHA);
    }
    return status == KVERN_OK ? facts_read_windows(reader, GPTOSS_FULL_EVERY, 0, facts) : status;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    sparse_layer *layer = object;
    const model_layer_facts *sizes = &facts->layer[index];
    const size_t width = facts->width;
    sparse_list_tensors(facts, index, layer, list);
    tensor_spec_norm(list, "post_attention_norm.weight", width, &layer->feed_forward_norm);
    attention_list_input_biases(&layer->attention, sizes, list);
    tensor_spec_vector(list, "attn_output.bias", width, &layer->attention.output_bias);
    attention_list_sinks(&layer->attention, sizes, list);
    experts_list_biases(&layer->experts, facts, index, list);
}

const model_family gptoss_family = {
    .architecture = "gpt-oss",
    .rope_style = ENGINE_ROPE_HALVES,
    .rope_base = 150000,
    .keys = &gptoss_keys,
    .hf = &gptoss_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(sparse_layer),
    .list_tensors = list_tensors,
    .list_scratch = sparse_list_scratch,
    .run_layer = sparse_run_swiglu_oai,
};
