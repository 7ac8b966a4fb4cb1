// SPDX-License-Identifier: MIT
#include "engine/model/families/kimi.h"

#include "engine/model/delta_layer.h"
#include "engine/model/experts_facts.h"
#include "engine/model/experts_layer.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/latent_layer.h"

#include <math.h>
#include <stdio.h>

// Taps of a convolution whose config does not say it.
#define COMMON_TAPS 4

typedef struct kimi_layer {
    delta_layer delta;      // of MODEL_LAYER_DELTA; all others have:
    latent_layer attention; // and both kinds:
    experts_layer experts;
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} kimi_layer;

// As they are published, and as mlx-lm writes them.
static const hf_tensor_name HF_TENSORS[] = {
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attn_k_b.weight", "self_attn.embed_q.weight"},
    {"attn_v_b.weight", "self_attn.unembed_out.weight"},
    {"ssm_conv1d_q.weight", "self_attn.q_conv1d.weight"},
    {"ssm_conv1d_q.weight", "self_attn.q_conv.conv.weight"},
    {"ssm_conv1d_k.weight", "self_attn.k_conv1d.weight"},
    {"ssm_conv1d_k.weight", "self_attn.k_conv.conv.weight"},
    {"ssm_conv1d_v.weight", "self_attn.v_conv1d.weight"},
    {"ssm_conv1d_v.weight", "self_attn.v_conv.conv.weight"},
    {"ssm_f_a.weight", "self_attn.f_a_proj.weight"},
    {"ssm_f_b.weight", "self_attn.f_b_proj.weight"},
    {"ssm_g_a.weight", "self_attn.g_a_proj.weight"},
    {"ssm_g_b.weight", "self_attn.g_b_proj.weight"},
    {"ssm_beta.weight", "self_attn.b_proj.weight"},
    {"ssm_a", "self_attn.A_log"},
    {"ssm_dt.bias", "self_attn.dt_bias"},
    {"ssm_norm.weight", "self_attn.o_norm.weight"},
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias"},
    {"exp_probs_b.bias", "mlp.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "block_sparse_moe.shared_experts.gate_proj.weight"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "block_sparse_moe.shared_experts.up_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    {"ffn_gate.*.weight", "block_sparse_moe.experts.*.w1.weight"},
    {"ffn_up.*.weight", "block_sparse_moe.experts.*.w3.weight"},
    {"ffn_down.*.weight", "block_sparse_moe.experts.*.w2.weight"},
    HF_EXPERTS_NAMES,
    {NULL, NULL},
};
#define UNBOUNDED "decays have no lower bound"
static const key_row HF_KEYS[] = {
    {"model_max_length", .rule = KEY_USED, .canonical = "context_length"},
    {"linear_attn_config.num_heads", .rule = KEY_USED, .canonical = "ssm.time_step_rank"},
    {"linear_attn_config.head_dim", .rule = KEY_USED, .canonical = "ssm.state_size"},
    {"linear_attn_config.short_conv_kernel_size", .rule = KEY_USED, .canonical = "ssm.conv_kernel"},
    {"linear_attn_config.kda_layers", .rule = KEY_USED, .canonical = "delta_layers"},
    {"linear_attn_config.full_attn_layers", .rule = KEY_USED, .canonical = "full_layers"},
    {"linear_num_heads", .rule = KEY_USED, .canonical = "ssm.time_step_rank"},
    {"linear_head_dim", .rule = KEY_USED, .canonical = "ssm.state_size"},
    {"linear_conv_kernel_dim", .rule = KEY_USED, .canonical = "ssm.conv_kernel"},
    {"layer_types", .rule = KEY_USED, .canonical = "layer_kinds"},
    {"mlp_layer_types", .rule = KEY_USED, .canonical = "feed_forward_types"},
    {"mla_use_nope", .rule = KEY_USED, .canonical = "attention.nope"},
    {"q_lora_rank", .rule = KEY_NEUTRAL, .neutral = KEY_NULL},
    {"kv_lora_rank", .rule = KEY_USED, .canonical = "attention.kv_lora_rank"},
    {"qk_rope_head_dim", .rule = KEY_USED, .canonical = "rope.dimension_count"},
    {"qk_nope_head_dim", .rule = KEY_USED, .canonical = "attention.key_length_nope"},
    {"v_head_dim", .rule = KEY_USED, .canonical = "attention.value_length_mla"},
    {"qk_head_dim", .rule = KEY_WITHOUT_EFFECT, .why = "the parts of a head have their own"},
    {"num_key_value_heads", .rule = KEY_WITHOUT_EFFECT, .why = "all heads share a latent"},
    {"rope_theta", .rule = KEY_WITHOUT_EFFECT, .why = "nothing rotates"},
    {"rope_scaling*", .rule = KEY_WITHOUT_EFFECT, .why = "nothing rotates"},
    {"rope_parameters*", .rule = KEY_WITHOUT_EFFECT, .why = "nothing rotates"},
    {"first_k_dense_replace", .rule = KEY_USED, .canonical = "leading_dense_block_count"},
    {"moe_layer_freq", .rule = KEY_NEUTRAL, .neutral = KEY_ONE},
    {"num_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_experts_per_token", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"num_shared_experts", .rule = KEY_USED, .canonical = "expert_shared_count"},
    {"moe_intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"num_expert_group", .rule = KEY_USED, .canonical = "expert_group_count"},
    {"topk_group", .rule = KEY_USED, .canonical = "expert_group_used_count"},
    {"use_grouped_topk", .rule = KEY_NEUTRAL, .neutral = KEY_TRUE},
    {"moe_renormalize", .rule = KEY_USED, .canonical = "expert_weights_norm"},
    {"routed_scaling_factor", .rule = KEY_USED, .canonical = "expert_weights_scale"},
    {"moe_router_activation_func", .rule = KEY_NEUTRAL, .text = "sigmoid"},
    {"num_nextn_predict_layers", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"gate_lower_bound", .rule = KEY_NEUTRAL, .neutral = KEY_NULL, .why = UNBOUNDED},
    {"linear_attn_config.gate_lower_bound", .rule = KEY_NEUTRAL, .neutral = KEY_NULL,
     .why = UNBOUNDED},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"auto_map*", .rule = KEY_WITHOUT_EFFECT, .why = "its code is what this family computes"},
};
static const key_table kimi_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                       .open = false};
static const hf_names kimi_linear_hf = {
    .model_type = "kimi_linear",
    .architecture = "kimi-linear",
    .tensors = HF_TENSORS,
    .keys = {&kimi_hf_keys, &hf_common_keys},
};

// --- Facts

// Marks the layers that a list of numbers from 1 on names.
static kvern_status read_list(facts_reader *reader, const config_value *list, size_t layers,
                              bool *named)
{
    bool right = list->kind == CONFIG_LIST;
    for (size_t i = 0; right && i < list->count; i++) {
        const config_value element = config_element(list, i);
        uint64_t number = 0;
        right = config_size(&element, &number) && number >= 1 && number <= layers;
        if (right) {
            named[number - 1] = true;
        }
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a list of layers from 1 to %zu", reader->key, layers);
}

// What each layer is by its name, as Transformers 5 has it. Beside a list of numbers, which comes
// first there, it must say the same.
static kvern_status check_kinds(facts_reader *reader, const config_value *kinds, bool numbered,
                                size_t layers, bool *delta)
{
    bool right = kinds->count == layers, same = true;
    for (size_t i = 0; i < layers && right; i++) {
        text_view kind = config_element(kinds, i).text;
        const bool linear = text_view_is(kind, "linear_attention");
        right = linear || text_view_is(kind, "full_attention");
        same = same && linear == delta[i];
        delta[i] = linear;
    }
    if (right && (same || !numbered)) {
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_FORMAT,
                       right ? "%s and kda_layers do not say the same of all %zu layers"
                             : "%s must be a list of linear_attention and full_attention for %zu "
                               "layers",
                       reader->key, layers);
}

static kvern_status read_delta_layers(facts_reader *reader, size_t layers, bool *delta)
{
    config_value list = facts_find(reader, "delta_layers");
    config_value kinds = facts_find(reader, "layer_kinds");
    const bool numbered = list.kind != CONFIG_ABSENT, named = kinds.kind != CONFIG_ABSENT;
    kvern_status status = KVERN_OK;
    if (numbered || !named) {
        list = facts_find(reader, "delta_layers");
        status = read_list(reader, &list, layers, delta);
    }
    if (status == KVERN_OK && named) {
        kinds = facts_find(reader, "layer_kinds");
        status = check_kinds(reader, &kinds, numbered, layers, delta);
    }
    return status;
}

// The list of the layers with attention is not needed; where there is one, the two must agree.
static kvern_status read_kinds(facts_reader *reader, model_facts *facts)
{
    bool delta[MODEL_MAX_LAYERS] = {false}, full[MODEL_MAX_LAYERS] = {false};
    kvern_status status = read_delta_layers(reader, facts->layers, delta);
    config_value list = facts_find(reader, "full_layers");
    const bool both = list.kind != CONFIG_ABSENT;
    if (status == KVERN_OK && both) {
        status = read_list(reader, &list, facts->layers, full);
    }
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        facts->layer[i].kind = delta[i] ? MODEL_LAYER_DELTA : MODEL_LAYER_LATENT;
        if (both && delta[i] == full[i]) {
            status = engine_fail(reader->error, KVERN_ERR_FORMAT,
                                 "%s and kda_layers must have layer %zu in one of them",
                                 reader->key, i + 1);
        }
    }
    return status;
}

static kvern_status read_delta(facts_reader *reader, model_delta *delta)
{
    delta->taps = COMMON_TAPS;
    kvern_status status =
        facts_read_size(reader, "ssm.time_step_rank", KVERN_MAX_KV_HEADS, &delta->value_heads);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "ssm.state_size", KVERN_MAX_HEAD_DIM, &delta->value_dim);
    }
    delta->key_heads = delta->value_heads;
    delta->key_dim = delta->rank = delta->value_dim;
    return status == KVERN_OK
               ? facts_read_size(reader, "ssm.conv_kernel", KVERN_MAX_CONV_KERNEL, &delta->taps)
               : status;
}

// The part of a key that all heads share; it may be absent, null or 0.
static kvern_status read_shared_part(facts_reader *reader, model_latent *latent)
{
    config_value found = facts_find(reader, "rope.dimension_count");
    uint64_t number = 0;
    const bool none = found.kind == CONFIG_ABSENT || (config_size(&found, &number) && number == 0);
    return none
               ? KVERN_OK
               : facts_read_size(reader, "rope.dimension_count", KVERN_MAX_HEAD_DIM, &latent->rope);
}

// Lengths that are not stated are head_dim.
static kvern_status read_lengths(facts_reader *reader, model_latent *latent)
{
    size_t head_dim = 0;
    const bool stated = facts_find(reader, "attention.key_length").kind != CONFIG_ABSENT;
    kvern_status status =
        stated ? facts_read_size(reader, "attention.key_length", FACTS_MAX_DIM, &head_dim)
               : KVERN_OK;
    latent->key = latent->value = head_dim;
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.key_length_nope", FACTS_MAX_DIM, &latent->key);
    }
    if (status == KVERN_OK) {
        status =
            facts_read_size(reader, "attention.value_length_mla", FACTS_MAX_DIM, &latent->value);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.kv_lora_rank", KVERN_MAX_LATENT_DIM,
                                 &latent->latent);
    }
    return status == KVERN_OK ? read_shared_part(reader, latent) : status;
}

// Whether rotation would be that of DeepSeek, nobody says: no such model was published.
// Transformers 5 rotates nothing and has no key for it; its configs name the layers.
static kvern_status check_nope(facts_reader *reader)
{
    bool nope = facts_find(reader, "layer_kinds").kind != CONFIG_ABSENT;
    kvern_status status = facts_read_flag(reader, "attention.nope", &nope);
    return status != KVERN_OK || nope
               ? status
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                             "%s must be true: rotation is not supported", reader->key);
}

static kvern_status read_attention(facts_reader *reader, model_facts *facts)
{
    model_latent *latent = &facts->latent;
    kvern_status status =
        facts_read_size(reader, "attention.head_count", FACTS_MAX_DIM, &facts->heads);
    if (status == KVERN_OK) {
        status = check_nope(reader);
    }
    if (status == KVERN_OK) {
        status = read_lengths(reader, latent);
    }
    latent->norm_epsilon = facts->norm_epsilon;
    facts->attention_scale = 1 / sqrtf((float)(latent->key + latent->rope));
    for (size_t i = 0; i < facts->layers; i++) {
        model_layer_facts *layer = &facts->layer[i];
        layer->heads = (uint32_t)facts->heads;
        layer->kv_heads = 1;
        layer->head_dim = (uint32_t)(latent->key + latent->rope);
        layer->value_dim = (uint32_t)latent->value;
    }
    return status;
}

// Whether some layer has one projection for keys and values; then all must.
static bool has_fused_projection(const weights *source, size_t layers)
{
    bool found = false;
    for (size_t i = 0; i < layers && !found; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%zu.attn_kv_b.weight", i);
        found = weights_find_tensor(source, name) != NULL;
    }
    return found;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    model_experts *experts = &facts->experts;
    kvern_status status = read_attention(reader, facts);
    if (status == KVERN_OK) {
        status = read_delta(reader, &facts->delta);
    }
    if (status == KVERN_OK) {
        status = read_kinds(reader, facts);
    }
    facts->latent.fused = has_fused_projection(reader->source, facts->layers);
    experts->router = MODEL_ROUTER_SIGMOID;
    experts->normalized = true;
    if (status == KVERN_OK) {
        status = facts_read_experts(reader, facts);
    }
    experts->normalized = experts->normalized && experts->used > 1;
    return status;
}

// --- Layers

static bool has_delta(const model_facts *facts, size_t index)
{
    return facts->layer[index].kind == MODEL_LAYER_DELTA;
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    kimi_layer *layer = object;
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
    if (has_delta(facts, index)) {
        delta_list_tensors(&layer->delta, facts, list);
    } else {
        latent_list_tensors(&layer->attention, facts, index, list);
    }
    experts_list_tensors(&layer->experts, facts, index, list);
    if (facts->layer[index].experts) {
        tensor_spec_vector(list, "exp_probs_b.bias", facts->experts.count,
                           &layer->experts.correction);
    }
}

static kvern_status finish_layer(const model_facts *facts, void *object, engine_error *error)
{
    kimi_layer *layer = object;
    return layer->delta.convolution ? delta_finish(&layer->delta, facts, error) : KVERN_OK;
}

static void list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    if (has_delta(facts, index)) {
        delta_list_scratch(facts, list);
    } else {
        latent_list_scratch(facts, index, list);
    }
    experts_list_scratch(facts, index, list);
}

static kvern_layer plan_layer(const model_facts *facts, size_t index)
{
    return has_delta(facts, index) ? delta_plan(facts) : latent_plan_layer(facts, index);
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const kimi_layer *layer = object;
    kvern_status status =
        has_delta(pass->facts, index)
            ? delta_run(&layer->delta, pass, index, layer->attention_norm, error)
            : latent_run(&layer->attention, pass, index, layer->attention_norm, error);
    return status == KVERN_OK ? experts_run(&layer->experts, pass, index, layer->feed_forward_norm,
                                            EXPERTS_SILU, error)
                              : status;
}

const model_family kimi_linear_family = {
    .architecture = "kimi-linear",
    .hf = &kimi_linear_hf,
    .read_facts = read_facts,
    .plan_layer = plan_layer,
    .layer_bytes = sizeof(kimi_layer),
    .list_tensors = list_tensors,
    .finish_layer = finish_layer,
    .list_scratch = list_scratch,
    .run_layer = run_layer,
};
