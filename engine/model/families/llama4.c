// SPDX-License-Identifier: MIT
#include "engine/model/families/llama4.h"

#include "engine/kernels/natural_log.h"
#include "engine/model/decoder_layer.h"
#include "engine/model/experts_facts.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/sparse_layer.h"

#include <kvern/math.h>
#include <math.h>
#include <stdio.h>

// What holds for a file that does not say.
#define LLAMA4_PLAIN_EVERY 4
#define LLAMA4_TEMPERATURE_STEP 8192.0F
#define LLAMA4_TEMPERATURE_GROWTH 0.1F

#define OF_TRAINING "of training"

static const hf_tensor_name HF_TENSORS[] = {
    {"ffn_gate.weight", "feed_forward.gate_proj.weight"},
    {"ffn_up.weight", "feed_forward.up_proj.weight"},
    {"ffn_down.weight", "feed_forward.down_proj.weight"},
    {"ffn_gate_inp.weight", "feed_forward.router.weight"},
    {"ffn_gate_exps.weight", "feed_forward.experts.gate_proj.weight"},
    {"ffn_up_exps.weight", "feed_forward.experts.up_proj.weight"},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj.weight"},
    {"ffn_gate_up_exps.weight", "feed_forward.experts.gate_up_proj"},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj"},
    {"ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight"},
    {"ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight"},
    {"ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"num_local_experts", .rule = KEY_USED, .canonical = "expert_count"},
    {"num_experts_per_tok", .rule = KEY_USED, .canonical = "expert_used_count"},
    {"intermediate_size", .rule = KEY_USED, .canonical = "expert_feed_forward_length"},
    {"intermediate_size_mlp", .rule = KEY_USED, .canonical = "feed_forward_length"},
    {"interleave_moe_layer_step", .rule = KEY_USED, .canonical = "interleave_moe_layer_step"},
    {"moe_layers", .rule = KEY_USED, .canonical = "expert_layers"},
    {"attention_chunk_size", .rule = KEY_USED, .canonical = "attention.chunk"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.layer_kinds"},
    {"no_rope_layers", .rule = KEY_USED, .canonical = "rope.layers"},
    {"no_rope_layer_interval", .rule = KEY_USED, .canonical = "rope.layer_interval"},
    {"use_qk_norm", .rule = KEY_USED, .canonical = "attention.unit_rotated"},
    {"attn_temperature_tuning", .rule = KEY_USED, .canonical = "attention.temperature"},
    {"floor_scale", .rule = KEY_USED, .canonical = "attention.temperature_step"},
    {"attn_scale", .rule = KEY_USED, .canonical = "attention.temperature_growth"},
    {"hidden_act", .rule = KEY_NEUTRAL, .text = "silu"},
    {"for_llm_compression", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"output_router_logits", .rule = KEY_WITHOUT_EFFECT, .why = OF_TRAINING},
    {"router_aux_loss_coef", .rule = KEY_WITHOUT_EFFECT, .why = OF_TRAINING},
    {"router_jitter_noise", .rule = KEY_WITHOUT_EFFECT, .why = OF_TRAINING},
};
static const key_table llama4_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names llama4_hf = {
    .model_type = "llama4_text",
    .architecture = "llama4",
    .tensors = HF_TENSORS,
    .keys = {&llama4_hf_keys, &hf_common_keys},
};

enum { ROTATING_ROPE = 0, NO_ROPE = 1 };

// --- Facts

// An empty list is none.
static kvern_status read_rotating_layers(facts_reader *reader, model_facts *facts)
{
    size_t interval = LLAMA4_PLAIN_EVERY;
    kvern_status status =
        facts_read_size(reader, "rope.layer_interval", FACTS_MAX_COUNT, &interval);
    const config_value list = facts_find(reader, "rope.layers");
    const bool listed = list.kind == CONFIG_LIST && list.count > 0;
    bool right = list.kind == CONFIG_ABSENT || list.kind == CONFIG_LIST;
    right = right && (!listed || list.count == facts->layers);
    for (size_t i = 0; i < facts->layers && right; i++) {
        uint64_t rotates = (i + 1) % interval != 0;
        const config_value element = listed ? config_element(&list, i) : (config_value){0};
        right = !listed || (config_size(&element, &rotates) && rotates <= 1);
        facts->layer[i].rope = rotates ? ROTATING_ROPE : NO_ROPE;
    }
    return status != KVERN_OK || right
               ? status
               : engine_fail(reader->error, KVERN_ERR_FORMAT,
                             "%s must be a list of %zu times 0 or 1", reader->key, facts->layers);
}

// Layers that rotate have the chunks: a list of kinds must say so, too.
static kvern_status check_kinds(facts_reader *reader, const model_facts *facts)
{
    const config_value list = facts_find(reader, "attention.layer_kinds");
    bool right =
        list.kind == CONFIG_ABSENT || (list.kind == CONFIG_LIST && list.count == facts->layers);
    for (size_t i = 0; i < list.count && right; i++) {
        const config_value kind = config_element(&list, i);
        right = text_view_is(kind.text, facts->layer[i].rope == ROTATING_ROPE ? "chunked_attention"
                                                                              : "full_attention");
    }
    return right
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                             "%s is supported where layers that rotate have chunks, and no others",
                             reader->key);
}

// Chunks as wide as the context hide nothing, nor does a null.
static kvern_status read_chunks(facts_reader *reader, model_facts *facts)
{
    size_t chunk = facts->context_length;
    kvern_status status = facts_states(reader, "attention.chunk")
                              ? facts_read_size(reader, "attention.chunk", FACTS_MAX_COUNT, &chunk)
                              : facts_check_stated(reader, "attention.chunk");
    for (size_t i = 0; i < facts->layers && chunk < facts->context_length; i++) {
        if (facts->layer[i].rope == ROTATING_ROPE) {
            facts->layer[i].kind = MODEL_LAYER_CHUNKED;
            facts->layer[i].window = (uint32_t)chunk;
        }
    }
    return status == KVERN_OK ? check_kinds(reader, facts) : status;
}

// True, or, in older files, a number that is not 0.
static kvern_status read_temperature(facts_reader *reader, model_facts *facts)
{
    const config_value tuned = facts_find(reader, "attention.temperature");
    uint64_t number = 1;
    if (tuned.kind != CONFIG_ABSENT && tuned.kind != CONFIG_FLAG && !config_size(&tuned, &number)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be true or false",
                           reader->key);
    }
    facts->temperature_step = LLAMA4_TEMPERATURE_STEP;
    facts->temperature_growth = LLAMA4_TEMPERATURE_GROWTH;
    kvern_status status =
        facts_read_positive(reader, "attention.temperature_step", &facts->temperature_step);
    if (status == KVERN_OK) {
        status =
            facts_read_positive(reader, "attention.temperature_growth", &facts->temperature_growth);
    }
    if (number == 0 || (tuned.kind == CONFIG_FLAG && !tuned.flag)) {
        facts->temperature_step = 0;
    }
    return status;
}

// A list of the layers with experts says what the interval says.
static kvern_status check_expert_layers(facts_reader *reader, const model_facts *facts)
{
    const config_value list = facts_find(reader, "expert_layers");
    size_t at = 0;
    bool right = list.kind == CONFIG_ABSENT || list.kind == CONFIG_LIST;
    for (size_t i = 0; i < facts->layers && right && list.kind == CONFIG_LIST; i++) {
        uint64_t layer = facts->layers;
        if (!facts->layer[i].experts) {
            continue;
        }
        const config_value element =
            at < list.count ? config_element(&list, at) : (config_value){0};
        right = config_size(&element, &layer) && layer == i;
        at++;
    }
    return right && (list.kind != CONFIG_LIST || at == list.count)
               ? KVERN_OK
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                             "%s is supported with the layers that "
                             "interleave_moe_layer_step says",
                             reader->key);
}

// Hugging Face has gate and up of all experts in one tensor, rows in place of columns; mlx-lm does
// not.
static kvern_status read_experts(facts_reader *reader, model_facts *facts)
{
    model_experts *experts = &facts->experts;
    experts->router = MODEL_ROUTER_INPUT;
    kvern_status status = facts_check_stated(reader, "interleave_moe_layer_step");
    if (status == KVERN_OK) {
        status = facts_read_experts(reader, facts);
    }
    experts->shared = experts->feed_forward;
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        char name[MODEL_NAME_BYTES];
        snprintf(name, sizeof name, "blk.%zu.ffn_gate_up_exps.weight", i);
        experts->fused = experts->turned =
            experts->fused || weights_find_tensor(reader->source, name);
    }
    return status == KVERN_OK ? check_expert_layers(reader, facts) : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_read_heads(reader, facts);
    if (status == KVERN_OK) {
        status = read_experts(reader, facts);
    }
    if (status == KVERN_OK) {
        status = facts_read_rope(reader, facts);
    }
    facts->rope[NO_ROPE] = (model_rope){.base = 1, .dim = 0, .factor = 1, .magnitude = 1};
    facts->ropes = 2;
    if (status == KVERN_OK) {
        status = read_rotating_layers(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_chunks(reader, facts);
    }
    if (status == KVERN_OK) {
        status = facts_check_stated(reader, "attention.unit_rotated");
    }
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "attention.unit_rotated", &facts->unit_rotated);
    }
    return status == KVERN_OK ? read_temperature(reader, facts) : status;
}

// --- Layers

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    sparse_layer *layer = object;
    sparse_list_tensors(facts, index, layer, list);
    tensor_spec_norm(list, "ffn_norm.weight", facts->width, &layer->feed_forward_norm);
}

static void list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    sparse_list_scratch(facts, index, list);
    model_scratch_need(list, SCRATCH_TEMPERATURE, facts->temperature_step > 0 ? 1 : 0);
}

// log(floor((position + 1) / step) + 1) * growth + 1, in float64, rounded once.
static float temperature_at(const model_facts *facts, int64_t position)
{
    const double steps = floor((double)(position + 1) / facts->temperature_step);
    return (float)(natural_log(steps + 1) * facts->temperature_growth + 1);
}

static void fill_temperatures(const forward_pass *pass)
{
    float *factor = pass->workspace->array[SCRATCH_TEMPERATURE];
    for (size_t r = 0; r < kvern_state_rows(pass->state); r++) {
        const int64_t first = kvern_step_position(pass->state, r);
        for (int64_t i = 0; i < kvern_step_count(pass->state, r); i++) {
            *factor++ = temperature_at(pass->facts, first + i);
        }
    }
}

static void temper_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                        float *scratch)
{
    (void)scratch;
    const model_layer_facts *layer = arg;
    const size_t floats = (size_t)layer->heads * layer->head_dim;
    float *const *array = pass->workspace->array;
    for (size_t t = begin; t < end; t++) {
        for (size_t i = 0; i < floats; i++) {
            array[SCRATCH_Q][t * floats + i] *= array[SCRATCH_TEMPERATURE][t];
        }
    }
}

// What is done to queries and keys once they are rotated, or where nothing rotates.
static void finish_queries(const forward_pass *pass, size_t index)
{
    const model_facts *facts = pass->facts;
    const model_layer_facts *layer = &facts->layer[index];
    if (layer->rope == ROTATING_ROPE && facts->unit_rotated) {
        forward_norm_heads(pass, index, NULL, NULL);
    }
    if (layer->rope == NO_ROPE && facts->temperature_step > 0) {
        fill_temperatures(pass);
        forward_each_token(pass, pass->tokens, (size_t)layer->heads * layer->head_dim, temper_rows,
                           layer);
    }
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const sparse_layer *layer = object;
    kvern_status status =
        attention_project(&layer->attention, pass, index, layer->attention_norm, error);
    if (status == KVERN_OK) {
        finish_queries(pass, index);
        status = attention_run(&layer->attention, pass, index, pass->workspace->array[SCRATCH_X],
                               true, error);
    }
    return status == KVERN_OK ? experts_run(&layer->experts, pass, index, layer->feed_forward_norm,
                                            EXPERTS_SILU, error)
                              : status;
}

const model_family llama4_family = {
    .architecture = "llama4",
    .rope_style = ENGINE_ROPE_PAIRS,
    .paired_files = true,
    .rope_base = 500000,
    .hf = &llama4_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(sparse_layer),
    .list_tensors = list_tensors,
    .list_scratch = list_scratch,
    .run_layer = run_layer,
};
