// SPDX-License-Identifier: MIT
#include "engine/model/families/deepseek.h"

#include "engine/model/experts_facts.h"
#include "engine/model/experts_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/latent_layer.h"
#include "engine/model/rope_facts.h"

#include <math.h>

// Of the norms inside of attention, whatever that of the model is.
#define NORM_EPSILON 1e-6f

typedef struct deepseek_layer {
    latent_layer attention;
    experts_layer experts;
    float *attention_norm;    // [width]
    float *feed_forward_norm; // [width]
} deepseek_layer;

static const key_row KEYS[] = {
    {"attention.q_lora_rank", .rule = KEY_USED},
    {"attention.kv_lora_rank", .rule = KEY_USED},
    {"attention.key_length_mla", .rule = KEY_USED},
    {"attention.value_length_mla", .rule = KEY_USED},
    {"attention.head_count_kv", .rule = KEY_WITHOUT_EFFECT, .why = "all heads share a latent"},
    {"attention.key_length", .rule = KEY_USED, .why = "without key_length_mla"},
    {"attention.value_length", .rule = KEY_USED, .why = "without value_length_mla"},
    {"rope.scaling.yarn_log_multiplier", .rule = KEY_USED},
    {"leading_dense_block_count", .rule = KEY_USED},
    {"expert_count", .rule = KEY_USED},
    {"expert_used_count", .rule = KEY_USED},
    {"expert_shared_count", .rule = KEY_USED},
    {"expert_feed_forward_length", .rule = KEY_USED},
    {"expert_group_count", .rule = KEY_USED},
    {"expert_group_used_count", .rule = KEY_USED},
    {"expert_weights_norm", .rule = KEY_USED},
    {"expert_weights_scale", .rule = KEY_USED},
    {"expert_gating_func", .rule = KEY_USED},
};
static const key_table deepseek_keys = {NULL, KEYS, sizeof KEYS / sizeof KEYS[0], .open = false};

static const hf_tensor_name HF_TENSORS[] = {
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"attn_k_b.weight", "self_attn.embed_q.weight"},
    {"attn_v_b.weight", "self_attn.unembed_out.weight"},
    {"indexer.attn_q_b.weight", "self_attn.indexer.wq_b.weight"},
    {"indexer.attn_k.weight", "self_attn.indexer.wk.weight"},
    {"indexer.k_norm.weight", "self_attn.indexer.k_norm.weight"},
    {"indexer.k_norm.bias", "self_attn.indexer.k_norm.bias"},
    {"indexer.proj.weight", "self_attn.indexer.weights_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
    HF_EXPERTS_NAMES,
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"q_lora_rank", .rule = KEY_USED, .canonical = "attention.q_lora_rank"},
    {"kv_lora_rank", .rule = KEY_USED, .canonical = "attention.kv_lora_rank"},
    {"qk_rope_head_dim", .rule = KEY_USED, .canonical = "rope.dimension_count"},
    {"qk_nope_head_dim", .rule = KEY_USED, .canonical = "attention.key_length_nope"},
    {"v_head_dim", .rule = KEY_USED, .canonical = "attention.value_length_mla"},
    {"head_dim", .rule = KEY_WITHOUT_EFFECT, .why = "the parts of a head have their own"},
    {"qk_head_dim", .rule = KEY_WITHOUT_EFFECT, .why = "the parts of a head have their own"},
    {"num_key_value_heads", .rule = KEY_WITHOUT_EFFECT, .why = "all heads share a latent"},
    {"first_k_dense_replace", .rule = KEY_USED, .canonical = "leading_dense_block_count"},
    {"moe_layer_freq", .rule = KEY_NEUTRAL, .neutral = KEY_ONE},
    {"num_nextn_predict_layers", .rule = KEY_WITHOUT_EFFECT, .why = "of layers that only guess"},
    {"auto_map*", .rule = KEY_WITHOUT_EFFECT, .why = "model_type says what is computed"},
    {"n_routed_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_local_experts", .rule = KEY_WITHOUT_EFFECT, .why = "n_routed_experts counts"},
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"n_shared_experts", .rule = KEY_USED, .canonical = "expert_shared_count"},
    {"moe_intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"n_group", .rule = KEY_USED, .canonical = "expert_group_count"},
    {"topk_group", .rule = KEY_USED, .canonical = "expert_group_used_count"},
    {"norm_topk_prob", .rule = KEY_USED, .canonical = "expert_weights_norm"},
    {"routed_scaling_factor", .rule = KEY_USED, .canonical = "expert_weights_scale"},
    {"scoring_func", .rule = KEY_NEUTRAL, .text = "sigmoid"},
    {"topk_method", .rule = KEY_NEUTRAL, .text = "noaux_tc"},
    {"rope_interleave", .rule = KEY_NEUTRAL, .neutral = KEY_TRUE},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"aux_loss_alpha", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"seq_aux", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"ep_size", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
    {"router_aux_loss_coef", .rule = KEY_WITHOUT_EFFECT, .why = "of training"},
};
static const key_table deepseek_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                           .open = false};
// Of V2, whose experts are chosen by a softmax: of all, or of the best groups.
static const key_row V2_KEYS[] = {
    {"topk_method", .rule = KEY_USED, .canonical = "expert_choice"},
    {"scoring_func", .rule = KEY_NEUTRAL, .text = "softmax"},
    {"norm_topk_prob", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL},
};
static const key_table v2_hf_keys = {"", V2_KEYS, sizeof V2_KEYS / sizeof V2_KEYS[0],
                                     .open = false};
// Of those with an indexer.
static const key_row INDEXER_KEYS[] = {
    {"index_n_heads", .rule = KEY_USED, .canonical = "attention.indexer.head_count"},
    {"index_head_dim", .rule = KEY_USED, .canonical = "attention.indexer.key_length"},
    {"index_topk", .rule = KEY_USED, .canonical = "attention.indexer.top_k"},
    {"indexer_rope_interleave", .rule = KEY_USED, .canonical = "attention.indexer.pairs"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.types"},
    {"mlp_layer_types", .rule = KEY_USED, .canonical = "feed_forward_types"},
};
static const key_table indexer_hf_keys = {
    "", INDEXER_KEYS, sizeof INDEXER_KEYS / sizeof INDEXER_KEYS[0], .open = false};
// Of GLM, whose layers may share what an indexer selects.
static const key_row SHARING_KEYS[] = {
    {"indexer_types", .rule = KEY_USED, .canonical = "attention.indexer.types"},
    {"index_topk_freq", .rule = KEY_USED, .canonical = "attention.indexer.interval"},
    {"index_skip_topk_offset", .rule = KEY_USED, .canonical = "attention.indexer.offset"},
    {"index_topk_pattern", .rule = KEY_USED, .canonical = "attention.indexer.pattern"},
    {"index_share_for_mtp_iteration", .rule = KEY_WITHOUT_EFFECT,
     .why = "of layers that guess at further tokens, which are not run"},
};
static const key_table sharing_hf_keys = {
    "", SHARING_KEYS, sizeof SHARING_KEYS / sizeof SHARING_KEYS[0], .open = false};
static const hf_names deepseek_v2_hf = {
    .model_type = "deepseek_v2",
    .architecture = "deepseek_v2",
    .tensors = HF_TENSORS,
    .keys = {&v2_hf_keys, &deepseek_hf_keys, &hf_common_keys},
};
static const hf_names deepseek_v3_hf = {
    .model_type = "deepseek_v3",
    .architecture = "deepseek2",
    .tensors = HF_TENSORS,
    .keys = {&deepseek_hf_keys, &hf_common_keys},
};
static const hf_names deepseek_v32_hf = {
    .model_type = "deepseek_v32",
    .architecture = "deepseek_v32",
    .tensors = HF_TENSORS,
    .keys = {&indexer_hf_keys, &deepseek_hf_keys, &hf_common_keys},
};
static const hf_names glm_moe_dsa_hf = {
    .model_type = "glm_moe_dsa",
    .architecture = "glm_moe_dsa",
    .tensors = HF_TENSORS,
    .keys = {&sharing_hf_keys, &indexer_hf_keys, &deepseek_hf_keys, &hf_common_keys},
};

// --- Facts

// A rank of 0, or none, is none.
static kvern_status read_rank(facts_reader *reader, model_latent *latent)
{
    config_value found = facts_find(reader, "attention.q_lora_rank");
    uint64_t rank = 0;
    bool none = found.kind == CONFIG_ABSENT || (config_size(&found, &rank) && rank == 0);
    return none ? KVERN_OK
                : facts_read_size(reader, "attention.q_lora_rank", FACTS_MAX_DIM, &latent->q_rank);
}

// GGUF states the length of a whole key; files from before latents were stored, under another name.
static kvern_status read_key_length(facts_reader *reader, model_latent *latent)
{
    size_t length = 0;
    if (reader->source->format->hf_names) {
        return facts_read_size(reader, "attention.key_length_nope", FACTS_MAX_DIM, &latent->key);
    }
    bool older = facts_find(reader, "attention.key_length_mla").kind == CONFIG_ABSENT;
    kvern_status status =
        facts_read_size(reader, older ? "attention.key_length" : "attention.key_length_mla",
                        FACTS_MAX_DIM, &length);
    if (status == KVERN_OK && length <= latent->rope) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is %zu, of which %zu rotate: nothing is left", reader->key, length,
                           latent->rope);
    }
    latent->key = length - latent->rope;
    return status;
}

static kvern_status read_lengths(facts_reader *reader, model_latent *latent)
{
    latent->norm_epsilon = NORM_EPSILON;
    kvern_status status =
        facts_read_size(reader, "attention.kv_lora_rank", KVERN_MAX_LATENT_DIM, &latent->latent);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "rope.dimension_count", KVERN_MAX_HEAD_DIM, &latent->rope);
    }
    if (status == KVERN_OK) {
        status = read_key_length(reader, latent);
    }
    if (status != KVERN_OK) {
        return status;
    }
    bool older = facts_find(reader, "attention.value_length_mla").kind == CONFIG_ABSENT;
    status =
        facts_read_size(reader, older ? "attention.value_length" : "attention.value_length_mla",
                        FACTS_MAX_DIM, &latent->value);
    return status == KVERN_OK ? read_rank(reader, latent) : status;
}

static void set_layers(model_facts *facts, size_t heads)
{
    const model_latent *latent = &facts->latent;
    facts->heads = heads;
    for (size_t i = 0; i < facts->layers; i++) {
        model_layer_facts *layer = &facts->layer[i];
        layer->kind = MODEL_LAYER_LATENT;
        layer->heads = (uint32_t)heads;
        layer->kv_heads = 1;
        layer->head_dim = (uint32_t)(latent->key + latent->rope);
        layer->value_dim = (uint32_t)latent->value;
    }
}

// Readers differ in whether mscale_all_dim counts where the scaling is of another kind.
static kvern_status check_no_multiplier(facts_reader *reader)
{
    float multiplier = 0;
    kvern_status status = facts_read_optional(reader, "rope.scaling.mscale_all_dim", &multiplier);
    return status == KVERN_OK && multiplier > 0
               ? engine_fail(reader->error, KVERN_ERR_UNSUPPORTED, "%s is supported with yarn",
                             reader->key)
               : status;
}

// Yarn makes scores larger by the square of what belongs to mscale_all_dim; GGUF has a tenth of
// that as the multiplier, and vectors of their own length.
static kvern_status read_scale(facts_reader *reader, model_facts *facts)
{
    const bool hf = reader->source->format->hf_names;
    const float dim = (float)(facts->latent.key + facts->latent.rope);
    float factor = 1, multiplier = 0;
    facts->attention_scale = 1 / sqrtf(dim);
    if (facts->rope[0].scaling != MODEL_ROPE_YARN) {
        return check_no_multiplier(reader);
    }
    kvern_status status = facts_read_positive(reader, "rope.scaling.factor", &factor);
    if (status == KVERN_OK) {
        status = hf ? facts_read_optional(reader, "rope.scaling.mscale_all_dim", &multiplier)
                    : facts_read_positive(reader, "rope.scaling.yarn_log_multiplier", &multiplier);
    }
    if (!hf) {
        multiplier /= 0.1f;
        facts->rope[0].magnitude = 1;
    }
    const double magnitude = multiplier > 0 ? facts_yarn_magnitude(factor, multiplier) : 1;
    facts->attention_scale = (float)(facts->attention_scale * magnitude * magnitude);
    return status;
}

static kvern_status read_attention(facts_reader *reader, model_facts *facts)
{
    size_t heads = 0;
    kvern_status status = facts_read_size(reader, "attention.head_count", FACTS_MAX_DIM, &heads);
    if (status == KVERN_OK) {
        status = read_lengths(reader, &facts->latent);
    }
    if (status != KVERN_OK) {
        return status;
    }
    set_layers(facts, heads);
    facts->latent.fused = weights_find_tensor(reader->source, "blk.0.attn_kv_b.weight") != NULL;
    status = facts_read_rope(reader, facts);
    return status == KVERN_OK ? read_scale(reader, facts) : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_attention(reader, facts);
    return status == KVERN_OK ? facts_read_corrected_experts(reader, facts) : status;
}

// The best of all experts, or of the groups whose best experts are best.
static kvern_status read_v2_choice(facts_reader *reader, bool *grouped)
{
    config_value method = facts_find(reader, "expert_choice");
    *grouped = text_view_is(method.text, "group_limited_greedy");
    if (!*grouped && method.kind != CONFIG_ABSENT && !text_view_is(method.text, "greedy")) {
        return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                           "%s is supported with greedy and group_limited_greedy", reader->key);
    }
    kvern_status status = *grouped ? facts_check_stated(reader, "expert_group_count") : KVERN_OK;
    return *grouped && status == KVERN_OK ? facts_check_stated(reader, "expert_group_used_count")
                                          : status;
}

static kvern_status read_v2_facts(facts_reader *reader, model_facts *facts)
{
    bool grouped = false;
    kvern_status status = read_attention(reader, facts);
    facts->experts.router = MODEL_ROUTER_SOFTMAX;
    if (status == KVERN_OK) {
        status = read_v2_choice(reader, &grouped);
    }
    if (status == KVERN_OK) {
        status = facts_read_experts(reader, facts);
    }
    if (!grouped) { // whatever the file says of groups
        facts->experts.groups = facts->experts.used_groups = 1;
    }
    return status;
}

// The indexer rotates the first dims of its heads by halves, or by neighbours as the attention
// does.
static kvern_status read_indexer(facts_reader *reader, bool pairs, model_facts *facts)
{
    model_latent *latent = &facts->latent;
    kvern_status status = facts_read_size(reader, "attention.indexer.head_count",
                                          KVERN_MAX_INDEX_HEADS, &latent->index_heads);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.indexer.key_length", KVERN_MAX_HEAD_DIM,
                                 &latent->index_dim);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.indexer.top_k", FACTS_MAX_COUNT,
                                 &latent->index_top_k);
    }
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "attention.indexer.pairs", &pairs);
    }
    if (status == KVERN_OK && (latent->index_dim < latent->rope || latent->q_rank == 0)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "an indexer needs a q_lora_rank, and heads of %zu dims to rotate",
                           latent->rope);
    }
    if (!pairs) {
        facts->rope[1] = facts->rope[0];
        facts->rope[1].halves = true;
        facts->ropes = 2;
        latent->index_rope = 1;
    }
    return status;
}

// What layers of selected positions are called.
static kvern_status check_layer_types(facts_reader *reader, const model_facts *facts)
{
    config_value list = facts_find(reader, "attention.types");
    bool right = list.kind == CONFIG_ABSENT || list.count == facts->layers;
    for (size_t i = 0; i < list.count && right; i++) {
        text_view type = config_element(&list, i).text;
        right = text_view_is(type, "indexed_attention") ||
                text_view_is(type, "deepseek_sparse_attention");
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                               "%s is supported with indexed_attention in all %zu layers",
                               reader->key, facts->layers);
}

// Every layer has an indexer of its own.
static void set_indexed(model_facts *facts)
{
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].indexed = true;
    }
}

static kvern_status read_v32_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_facts(reader, facts);
    if (status == KVERN_OK) {
        status = check_layer_types(reader, facts);
    }
    set_indexed(facts);
    return status == KVERN_OK ? read_indexer(reader, false, facts) : status;
}

static kvern_status read_index_types(const facts_reader *reader, const config_value *list,
                                     model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        text_view type = config_element(list, i).text;
        facts->layer[i].indexed = text_view_is(type, "full");
        right = facts->layer[i].indexed || text_view_is(type, "shared");
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a list of %zu types, full or shared", reader->key,
                               facts->layers);
}

// One letter for each layer. Of a list and letters some readers follow the one, and some the other.
static kvern_status read_index_pattern(facts_reader *reader, bool listed, model_facts *facts)
{
    config_value pattern = facts_find(reader, "attention.indexer.pattern");
    bool right = pattern.kind == CONFIG_TEXT && pattern.text.size == facts->layers;
    bool same = true;
    for (size_t i = 0; i < facts->layers && right; i++) {
        const bool full = pattern.text.data[i] == 'F';
        right = full || pattern.text.data[i] == 'S';
        same = same && full == facts->layer[i].indexed;
        facts->layer[i].indexed = full;
    }
    if (!right) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be a text of %zu letters, F or S", reader->key, facts->layers);
    }
    return same || !listed ? KVERN_OK
                           : engine_fail(reader->error, KVERN_ERR_FORMAT,
                                         "%s says something else than indexer_types", reader->key);
}

// Without a list or letters: the first `offset` layers, and one of every `interval` that begin with
// the last of these.
static kvern_status read_index_interval(facts_reader *reader, model_facts *facts)
{
    size_t interval = 1, offset = 2;
    kvern_status status =
        facts_read_size(reader, "attention.indexer.interval", FACTS_MAX_COUNT, &interval);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.indexer.offset", FACTS_MAX_COUNT, &offset);
    }
    for (size_t i = 0; i < facts->layers; i++) {
        facts->layer[i].indexed = i < offset || (i + 1 - offset) % interval == 0;
    }
    return status;
}

// Which layers select positions; the others attend those of the latest one that does.
static kvern_status read_sharing(facts_reader *reader, model_facts *facts)
{
    const bool lettered = facts_find(reader, "attention.indexer.pattern").kind != CONFIG_ABSENT;
    config_value list = facts_find(reader, "attention.indexer.types");
    const bool listed = list.kind != CONFIG_ABSENT;
    kvern_status status = listed ? read_index_types(reader, &list, facts) : KVERN_OK;
    if (status == KVERN_OK && lettered) {
        status = read_index_pattern(reader, listed, facts);
    } else if (status == KVERN_OK && !listed) {
        status = read_index_interval(reader, facts);
    }
    if (status == KVERN_OK && !facts->layer[0].indexed) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s: the first layer cannot be shared, no layer before it selects",
                           reader->key);
    }
    return status;
}

static kvern_status read_glm_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_facts(reader, facts);
    if (status == KVERN_OK) {
        status = check_layer_types(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_sharing(reader, facts);
    }
    return status == KVERN_OK ? read_indexer(reader, true, facts) : status;
}

// --- Layers

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    deepseek_layer *layer = object;
    tensor_spec_norm(list, "attn_norm.weight", facts->width, &layer->attention_norm);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
    latent_list_tensors(&layer->attention, facts, index, list);
    experts_list_tensors(&layer->experts, facts, index, list);
    if (facts->layer[index].experts) { // V2 has none
        tensor_spec_vector(list, "exp_probs_b.bias", facts->experts.count,
                           &layer->experts.correction)
            ->optional = facts->experts.router == MODEL_ROUTER_SOFTMAX;
    }
}

static void list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    latent_list_scratch(facts, index, list);
    experts_list_scratch(facts, index, list);
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const deepseek_layer *layer = object;
    kvern_status status = latent_run(&layer->attention, pass, index, layer->attention_norm, error);
    return status == KVERN_OK ? experts_run(&layer->experts, pass, index, layer->feed_forward_norm,
                                            EXPERTS_SILU, error)
                              : status;
}

#define DEEPSEEK_LAYERS                                                                            \
    .rope_style = ENGINE_ROPE_PAIRS, .plan_layer = latent_plan_layer,                              \
    .layer_bytes = sizeof(deepseek_layer), .list_tensors = list_tensors,                           \
    .list_scratch = list_scratch, .run_layer = run_layer

const model_family deepseek2_family = {
    .architecture = "deepseek2",
    .rope_base = 10000,
    .keys = &deepseek_keys,
    .hf = &deepseek_v3_hf,
    .read_facts = read_facts,
    DEEPSEEK_LAYERS,
};

// The same network as deepseek2, of which GGUF files have this one, too.
const model_family deepseek_v2_family = {
    .architecture = "deepseek_v2",
    .rope_base = 10000,
    .hf = &deepseek_v2_hf,
    .read_facts = read_v2_facts,
    DEEPSEEK_LAYERS,
};

const model_family deepseek_v32_family = {
    .architecture = "deepseek_v32",
    .rope_base = 10000,
    .hf = &deepseek_v32_hf,
    .read_facts = read_v32_facts,
    DEEPSEEK_LAYERS,
};

const model_family glm_moe_dsa_family = {
    .architecture = "glm_moe_dsa",
    .hf = &glm_moe_dsa_hf,
    .read_facts = read_glm_facts,
    DEEPSEEK_LAYERS,
};
