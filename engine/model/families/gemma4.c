// SPDX-License-Identifier: MIT
#include "engine/model/families/gemma4.h"

#include "engine/model/decoder_layer.h"
#include "engine/model/facts_parts.h"
#include "engine/model/families/gemma_facts.h"
#include "engine/model/families/model_keys.h"
#include "engine/model/layer_inputs.h"
#include "engine/model/window_facts.h"

#include <kvern/math.h>
#include <math.h>

#define OF_EXPERTS "this model's experts are not computed"
#define TEXTS_ONLY "texts only"

static const hf_tensor_name HF_TENSORS[] = {
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"inp_gate.weight", "per_layer_input_gate.weight"},
    {"proj.weight", "per_layer_projection.weight"},
    {"post_norm.weight", "post_per_layer_input_norm.weight"},
    {"layer_output_scale.weight", "layer_scalar"},
    {NULL, NULL},
};
static const key_row HF_KEYS[] = {
    {"global_head_dim", .rule = KEY_USED, .canonical = "attention.full_key_length"},
    {"num_global_key_value_heads", .rule = KEY_USED, .canonical = "attention.full_head_count_kv"},
    {"attention_k_eq_v", .rule = KEY_USED, .canonical = "attention.values_are_keys"},
    {"num_kv_shared_layers", .rule = KEY_USED, .canonical = "attention.shared_layers"},
    {"use_double_wide_mlp", .rule = KEY_USED, .canonical = "feed_forward_shared_double"},
    {"hidden_size_per_layer_input", .rule = KEY_USED, .canonical = "layer_input_length"},
    {"vocab_size_per_layer_input", .rule = KEY_USED, .canonical = "layer_input_vocab_size"},
    {"final_logit_softcapping", .rule = KEY_USED, .canonical = "final_logit_softcapping"},
    {"sliding_window", .rule = KEY_USED, .canonical = "attention.sliding_window"},
    {"layer_types", .rule = KEY_USED, .canonical = "attention.sliding_window_pattern"},
    {"sliding_window_pattern", .rule = KEY_USED, .canonical = "attention.full_every"},
    {"rope_parameters.full_attention.rope_theta", .rule = KEY_USED, .canonical = "rope.freq_base"},
    {"rope_parameters.full_attention.rope_type", .rule = KEY_USED,
     .canonical = "rope.scaling.type"},
    {"rope_parameters.full_attention.partial_rotary_factor", .rule = KEY_USED,
     .canonical = "rope.dimension_part"},
    {"rope_parameters.full_attention.factor", .rule = KEY_USED, .canonical = "rope.scaling.factor"},
    {"rope_parameters.sliding_attention.rope_theta", .rule = KEY_USED,
     .canonical = "rope.freq_base_swa"},
    {"rope_parameters.sliding_attention.rope_type", .rule = KEY_NEUTRAL, .text = "default"},
    {"rope_parameters.sliding_attention.partial_rotary_factor", .rule = KEY_NEUTRAL,
     .neutral = KEY_ONE | KEY_NULL},
    {"rope_traditional", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO},
    {"hidden_activation", .rule = KEY_NEUTRAL, .text = "gelu_pytorch_tanh"},
    {"enable_moe_block", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL, .why = OF_EXPERTS},
    {"num_experts", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL, .why = OF_EXPERTS},
    {"top_k_experts", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL, .why = OF_EXPERTS},
    {"moe_intermediate_size", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL,
     .why = OF_EXPERTS},
    {"expert_intermediate_size", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL,
     .why = OF_EXPERTS},
    {"use_bidirectional_attention", .rule = KEY_NEUTRAL, .neutral = KEY_ZERO | KEY_NULL,
     .text = "vision", .why = TEXTS_ONLY},
    {"vision_soft_tokens_per_image", .rule = KEY_WITHOUT_EFFECT, .why = TEXTS_ONLY},
    {"boa_token_i*", .rule = KEY_WITHOUT_EFFECT, .why = TEXTS_ONLY},
    {"eoa_token_i*", .rule = KEY_WITHOUT_EFFECT, .why = TEXTS_ONLY},
};
static const key_table gemma4_hf_keys = {"", HF_KEYS, sizeof HF_KEYS / sizeof HF_KEYS[0],
                                         .open = false};
static const hf_names gemma4_hf = {
    .model_type = "gemma4_text",
    .architecture = "gemma4",
    .tensors = HF_TENSORS,
    .keys = {&gemma4_hf_keys, &hf_common_keys},
};

// The ropes of full layers and of those with the window.
enum { FULL_ROPE = 0, WINDOW_ROPE = 1 };

typedef struct gemma4_layer {
    decoder_layer decoder;
    linear input_gate;       // [layer_inputs, width], where facts have them
    linear input_projection; // [width, layer_inputs]
    float *input_norm;       // [width]
    float *scale;            // [1] what the stream is multiplied by in the end
} gemma4_layer;

// --- Facts

// A number that may be 0, and that a file says: readers differ where it does not.
static kvern_status read_count(facts_reader *reader, const char *name, uint64_t most, size_t *out)
{
    config_value found = facts_find(reader, name);
    uint64_t number;
    if (!config_size(&found, &number) || number > most) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "the key %s must be a number from 0 to %llu", reader->key,
                           (unsigned long long)most);
    }
    *out = (size_t)number;
    return KVERN_OK;
}

// The last layer is full to some readers whatever the list says.
static kvern_status read_layer_kinds(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_check_stated(reader, "attention.sliding_window_pattern");
    if (status == KVERN_OK) {
        status = facts_read_windows(reader, facts->layers, WINDOW_ROPE, facts);
    }
    if (status == KVERN_OK && facts->layer[facts->layers - 1].kind != MODEL_LAYER_FULL) {
        (void)facts_find(reader, "attention.sliding_window_pattern");
        return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                           "%s ends with a layer with a window: readers differ in it", reader->key);
    }
    return status;
}

// Full layers have heads of their own size, and, where values are keys, another number of them.
static kvern_status read_full_heads(facts_reader *reader, model_facts *facts)
{
    bool values_are_keys = false;
    size_t dim = facts->layer[0].head_dim, keys = facts->layer[0].kv_heads;
    kvern_status status = facts_check_stated(reader, "attention.full_key_length");
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.full_key_length", KVERN_MAX_HEAD_DIM, &dim);
    }
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "attention.values_are_keys", &values_are_keys);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.full_head_count_kv", facts->heads, &keys);
    }
    if (status == KVERN_OK && facts->heads % keys != 0) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is %zu, which does not divide %zu query heads", reader->key, keys,
                           facts->heads);
    }
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        model_layer_facts *layer = &facts->layer[i];
        if (layer->kind == MODEL_LAYER_FULL) {
            layer->head_dim = layer->value_dim = (uint32_t)dim;
            layer->kv_heads = values_are_keys ? (uint32_t)keys : layer->kv_heads;
            layer->values_are_keys = values_are_keys;
        }
    }
    return status;
}

// The last layer before `end` of a kind; `end` when there is none.
static size_t last_of_kind(const model_facts *facts, size_t end, model_layer_kind kind)
{
    size_t last = end;
    for (size_t i = 0; i < end; i++) {
        last = facts->layer[i].kind == kind ? i : last;
    }
    return last;
}

// The last layers read what the last one of their kind before them keeps.
static kvern_status read_shared(facts_reader *reader, model_facts *facts)
{
    size_t count;
    bool wide = false;
    kvern_status status = read_count(reader, "attention.shared_layers", facts->layers - 1, &count);
    if (status == KVERN_OK && count > 0) {
        status = facts_check_stated(reader, "feed_forward_shared_double");
    }
    if (status == KVERN_OK) {
        status = facts_read_flag(reader, "feed_forward_shared_double", &wide);
    }
    for (size_t i = facts->layers - (status == KVERN_OK ? count : 0); i < facts->layers; i++) {
        model_layer_facts *layer = &facts->layer[i];
        const size_t first = facts->layers - count, donor = last_of_kind(facts, first, layer->kind);
        if (donor == first) {
            return engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "layer %zu shares the keys of a layer of its kind, and none of the "
                               "first %zu is",
                               i, first);
        }
        layer->shared = true;
        layer->donor = (uint32_t)donor;
        layer->feed_forward *= wide ? 2 : 1;
    }
    return status;
}

// Only the first pairs of a head rotate, at the frequencies that they have among all of them.
static kvern_status read_full_rope(facts_reader *reader, model_facts *facts, size_t dim)
{
    model_rope *rope = &facts->rope[FULL_ROPE];
    float part = 1, factor = 1;
    *rope = (model_rope){.dim = dim,
                         .scaling = MODEL_ROPE_PROPORTIONAL,
                         .factor = 1,
                         .magnitude = 1,
                         .divided = true};
    kvern_status status = facts_read_positive(reader, "rope.freq_base", &rope->base);
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.dimension_part", &part);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.factor", &factor);
    }
    const size_t rotating = status == KVERN_OK && part <= 1 ? (size_t)((double)dim * part) : 0;
    if (status == KVERN_OK && (rotating == 0 || rotating % 2 != 0)) {
        (void)facts_find(reader, "rope.dimension_part");
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s must be at most 1, and some pairs of a head of %zu", reader->key,
                           dim);
    }
    for (size_t i = 0; i < dim / 2; i++) {
        rope->divisor[i] = i < rotating / 2 ? factor : INFINITY;
    }
    const text_view type = facts_find(reader, "rope.scaling.type").text;
    const bool plain = text_view_is(type, "default") && rotating == dim && factor == 1;
    return status != KVERN_OK || plain || text_view_is(type, "proportional")
               ? status
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                             "%s is supported with \"proportional\", or \"default\" where all of a "
                             "head rotates",
                             reader->key);
}

static kvern_status read_ropes(facts_reader *reader, model_facts *facts)
{
    const size_t last = facts->layers - 1;
    const size_t window = last_of_kind(facts, last, MODEL_LAYER_WINDOW);
    model_rope *rope = &facts->rope[WINDOW_ROPE];
    kvern_status status = read_full_rope(reader, facts, facts->layer[last].head_dim);
    *rope = (model_rope){.dim = facts->layer[window].head_dim, .factor = 1, .magnitude = 1};
    facts->ropes = 2;
    return status == KVERN_OK ? facts_read_positive(reader, "rope.freq_base_swa", &rope->base)
                              : status;
}

// Both tables are looked up by the same tokens.
static kvern_status read_layer_inputs(facts_reader *reader, model_facts *facts)
{
    size_t stated = 0, tokens = 0;
    kvern_status status =
        read_count(reader, "layer_input_length", FACTS_MAX_DIM, &facts->layer_inputs);
    if (status != KVERN_OK || facts->layer_inputs == 0) {
        return status;
    }
    facts->layer_inputs_scale = gemma_embedding_scale(facts->layer_inputs);
    status = facts_read_size(reader, "vocab_size", FACTS_MAX_COUNT, &tokens);
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "layer_input_vocab_size", FACTS_MAX_COUNT, &stated);
    }
    return status != KVERN_OK || stated == tokens
               ? status
               : engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                             "%s is %zu, but there are %zu tokens", reader->key, stated, tokens);
}

// Readers take other caps, where a file does not say it; a null is none.
static kvern_status read_softcap(facts_reader *reader, model_facts *facts)
{
    if (!facts_states(reader, "final_logit_softcapping")) {
        return facts_check_stated(reader, "final_logit_softcapping");
    }
    return facts_read_optional(reader, "final_logit_softcapping", &facts->logit_softcap);
}

static kvern_status read_layers(facts_reader *reader, model_facts *facts)
{
    kvern_status status = facts_check_stated(reader, "attention.key_length");
    if (status == KVERN_OK) {
        status = facts_read_heads(reader, facts);
    }
    if (status == KVERN_OK) {
        status = facts_read_feed_forward(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_layer_kinds(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_full_heads(reader, facts);
    }
    return status == KVERN_OK ? read_shared(reader, facts) : status;
}

static kvern_status read_facts(facts_reader *reader, model_facts *facts)
{
    kvern_status status = read_layers(reader, facts);
    facts->embedding_scale = gemma_embedding_scale(facts->width);
    facts->attention_scale = 1;
    if (status == KVERN_OK) {
        status = read_ropes(reader, facts);
    }
    if (status == KVERN_OK) {
        status = read_softcap(reader, facts);
    }
    return status == KVERN_OK ? read_layer_inputs(reader, facts) : status;
}

// --- Layers

// Some files have the matrices that a shared layer does without.
static void list_unread(const model_facts *facts, const model_layer_facts *sizes,
                        tensor_specs *list)
{
    const size_t keys = (size_t)sizes->kv_heads * sizes->head_dim;
    tensor_spec_unread(list, "attn_k.weight", keys, facts->width);
    tensor_spec_unread(list, "attn_v.weight", keys, facts->width);
    tensor_spec_unread(list, "attn_k_norm.weight", 1, sizes->head_dim);
}

static void list_attention(attention_layer *layer, const model_facts *facts,
                           const model_layer_facts *sizes, tensor_specs *list)
{
    layer->unit_values = true;
    tensor_spec_norm(list, "attn_q_norm.weight", sizes->head_dim, &layer->q_norm);
    if (sizes->shared) {
        attention_list_shared_tensors(layer, sizes, facts->width, list);
        list_unread(facts, sizes, list);
        return;
    }
    tensor_spec_norm(list, "attn_k_norm.weight", sizes->head_dim, &layer->k_norm);
    if (sizes->values_are_keys) {
        attention_list_keys_tensors(layer, sizes, facts->width, list);
    } else {
        attention_list_tensors(layer, sizes, facts->width, list);
    }
}

static void list_tensors(const model_facts *facts, size_t index, void *object, tensor_specs *list)
{
    gemma4_layer *layer = object;
    decoder_layer *decoder = &layer->decoder;
    const model_layer_facts *sizes = &facts->layer[index];
    const size_t width = facts->width, numbers = facts->layer_inputs;
    tensor_spec_norm(list, "attn_norm.weight", width, &decoder->attention_norm);
    tensor_spec_norm(list, "ffn_norm.weight", width, &decoder->feed_forward_norm);
    decoder_list_post_norms(decoder, width, list);
    list_attention(&decoder->attention, facts, sizes, list);
    feed_forward_list_tensors(&decoder->feed_forward, sizes, width, list);
    tensor_spec_vector(list, "layer_output_scale.weight", 1, &layer->scale);
    if (numbers) {
        tensor_spec_matrix(list, "inp_gate.weight", numbers, width, &layer->input_gate);
        tensor_spec_matrix(list, "proj.weight", width, numbers, &layer->input_projection);
        tensor_spec_norm(list, "post_norm.weight", width, &layer->input_norm);
    }
}

static void list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    decoder_list_post_scratch(facts, index, list);
    model_scratch_need(list, SCRATCH_GATE, facts->layer_inputs);
}

// x += RMSNorm(projection (gelu(gate x) * the layer's inputs))
static kvern_status add_inputs(const gemma4_layer *layer, size_t index, const forward_pass *pass,
                               engine_error *error)
{
    float *const *array = pass->workspace->array;
    size_t stride;
    const float *inputs = layer_inputs_of(pass, index, &stride);
    forward_plain_input(pass, array[SCRATCH_X], &layer->input_gate);
    const linear_job gate =
        forward_product(pass, &layer->input_gate, NULL, array[SCRATCH_GATE], false);
    kvern_status status = forward_apply(pass, &gate, 1, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_gated_input(pass, kvern_gelu_array, inputs, stride, &layer->input_projection);
    const linear_job projection =
        forward_product(pass, &layer->input_projection, NULL, array[SCRATCH_BRANCH], false);
    status = forward_apply(pass, &projection, 1, error);
    if (status == KVERN_OK) {
        forward_add_norm(pass, array[SCRATCH_BRANCH], layer->input_norm);
    }
    return status;
}

static void scale_rows(const forward_pass *pass, const void *scale, size_t begin, size_t end,
                       float *scratch)
{
    (void)scratch;
    const size_t width = pass->facts->width;
    float *x = pass->workspace->array[SCRATCH_X];
    for (size_t i = begin * width; i < end * width; i++) {
        x[i] *= *(const float *)scale;
    }
}

static kvern_status run_layer(const void *object, size_t index, const forward_pass *pass,
                              engine_error *error)
{
    const gemma4_layer *layer = object;
    kvern_status status = decoder_run_gelu(&layer->decoder, index, pass, error);
    if (status == KVERN_OK && pass->facts->layer_inputs) {
        status = add_inputs(layer, index, pass, error);
    }
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, pass->facts->width, scale_rows, layer->scale);
    }
    return status;
}

const model_family gemma4_family = {
    .architecture = "gemma4",
    .rope_style = ENGINE_ROPE_HALVES,
    .hf = &gemma4_hf,
    .read_facts = read_facts,
    .plan_layer = decoder_plan_layer,
    .layer_bytes = sizeof(gemma4_layer),
    .list_tensors = list_tensors,
    .list_scratch = list_scratch,
    .run_layer = run_layer,
};
