// SPDX-License-Identifier: MIT
#include "engine/model/experts_layer.h"

#include <kvern/math.h>
#include <string.h>

#define SWIGLU_OAI_ALPHA 1.702f
#define SWIGLU_OAI_LIMIT 7.0f

// --- What a layer is

static void list_shared(experts_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const size_t inner = facts->experts.shared, width = facts->width;
    if (inner == 0) {
        return;
    }
    tensor_spec_matrix(list, "ffn_gate_shexp.weight", inner, width, &layer->network.gate);
    tensor_spec_matrix(list, "ffn_up_shexp.weight", inner, width, &layer->network.up);
    tensor_spec_matrix(list, "ffn_down_shexp.weight", width, inner, &layer->network.down);
    if (facts->experts.shared_gate) {
        tensor_spec_matrix(list, "ffn_gate_inp_shexp.weight", 1, width, &layer->shared_gate);
    }
}

// Where both are one tensor the gate is in front, or each of its rows is.
static void want_part(tensor_spec *spec, const model_experts *experts, bool up)
{
    const size_t inner = experts->feed_forward;
    spec->turned = spec->stack && experts->turned;
    if (experts->fused) {
        spec->fused_rows = 2 * inner;
        spec->first_row = !up ? 0 : experts->in_turn ? 1 : inner;
        spec->pieces = experts->in_turn ? inner : 0;
    }
}

static void list_gate_and_up(experts_layer *layer, const model_facts *facts, tensor_specs *list)
{
    const model_experts *experts = &facts->experts;
    const size_t inner = experts->feed_forward, width = facts->width, count = experts->count;
    const char *const fused = experts->fused ? "ffn_gate_up_exps.weight" : NULL;
    want_part(tensor_spec_stack(list, fused ? fused : "ffn_gate_exps.weight", count, inner, width,
                                &layer->gate),
              experts, false);
    want_part(tensor_spec_stack(list, fused ? fused : "ffn_up_exps.weight", count, inner, width,
                                &layer->up),
              experts, true);
}

void experts_list_tensors(experts_layer *layer, const model_facts *facts, size_t index,
                          tensor_specs *list)
{
    const model_experts *experts = &facts->experts;
    const size_t inner = experts->feed_forward, width = facts->width, count = experts->count;
    if (!facts->layer[index].experts) {
        feed_forward_list_tensors(&layer->network, &facts->layer[index], width, list);
        return;
    }
    tensor_spec_matrix(list, "ffn_gate_inp.weight", count, width, &layer->router);
    list_gate_and_up(layer, facts, list);
    tensor_spec_stack(list, "ffn_down_exps.weight", count, width, inner, &layer->down)->turned =
        experts->turned;
    list_shared(layer, facts, list);
}

void experts_list_biases(experts_layer *layer, const model_facts *facts, size_t index,
                         tensor_specs *list)
{
    const model_experts *experts = &facts->experts;
    const size_t inner = experts->feed_forward, count = experts->count;
    if (!facts->layer[index].experts) {
        return;
    }
    tensor_spec_vector(list, "ffn_gate_inp.bias", count, &layer->router_bias);
    const char *const fused = experts->fused ? "ffn_gate_up_exps.bias" : NULL;
    tensor_spec *gate =
        tensor_spec_vector(list, fused ? fused : "ffn_gate_exps.bias", inner, &layer->gate_bias);
    tensor_spec *up =
        tensor_spec_vector(list, fused ? fused : "ffn_up_exps.bias", inner, &layer->up_bias);
    gate->count = up->count = count;
    want_part(gate, experts, false);
    want_part(up, experts, true);
    tensor_spec_vector(list, "ffn_down_exps.bias", facts->width, &layer->down_bias)->count = count;
}

void experts_list_scratch(const model_facts *facts, size_t index, model_scratch *list)
{
    const model_experts *experts = &facts->experts;
    if (!facts->layer[index].experts) {
        feed_forward_list_scratch(&facts->layer[index], list);
        return;
    }
    const model_layer_facts shared = {.feed_forward = (uint32_t)experts->shared};
    feed_forward_list_scratch(&shared, list);
    model_scratch_need(list, SCRATCH_NORMED, facts->width);
    model_scratch_need(list, SCRATCH_ROUTER, experts->count);
    model_scratch_need(list, SCRATCH_SCORES, 2 * experts->count);
    model_scratch_need(list, SCRATCH_EXPERTS, facts->width);
    model_scratch_need(list, SCRATCH_BRANCH, experts->shared_gate ? facts->width : 0);
    model_scratch_need(list, SCRATCH_SHARED_GATE, experts->shared_gate ? 1 : 0);
    list->experts = (experts_sizes){experts->count, experts->used, experts->feed_forward};
}

// --- Which experts a token uses

static void normed_rows(const forward_pass *pass, const void *norm, size_t begin, size_t end,
                        float *unused)
{
    (void)unused;
    float *const *array = pass->workspace->array;
    const size_t width = pass->facts->width;
    for (size_t t = begin; t < end; t++) {
        pass->ops->rms_norm(array[SCRATCH_X] + t * width, norm, pass->facts->norm_epsilon, width,
                            array[SCRATCH_NORMED] + t * width);
    }
}

static void choose_rows(const forward_pass *pass, const void *correction, size_t begin, size_t end,
                        float *unused)
{
    (void)unused;
    const model_experts *experts = &pass->facts->experts;
    const model_workspace *w = pass->workspace;
    const size_t n = experts->count, used = experts->used;
    for (size_t t = begin; t < end; t++) {
        router_choose(experts, pass->features, w->array[SCRATCH_ROUTER] + t * n, correction,
                      w->array[SCRATCH_SCORES] + t * 2 * n, w->experts.chosen + t * used,
                      w->experts.weights + t * used);
    }
}

static kvern_status route(const experts_layer *layer, const forward_pass *pass, const float *norm,
                          engine_error *error)
{
    float *const *array = pass->workspace->array;
    forward_each_token(pass, pass->tokens, pass->facts->width, normed_rows, norm);
    forward_plain_input(pass, array[SCRATCH_NORMED], &layer->router);
    const linear_job logits =
        forward_product(pass, &layer->router, layer->router_bias, array[SCRATCH_ROUTER], false);
    kvern_status status = forward_apply(pass, &logits, 1, error);
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, pass->facts->experts.count, choose_rows,
                           layer->correction);
    }
    return status;
}

// Sorts what was chosen by expert, and of each expert by token.
static void sort_slots(const forward_pass *pass)
{
    const experts_scratch *s = &pass->workspace->experts;
    const size_t n = s->sizes.experts, used = s->sizes.used, slots = pass->tokens * used;
    memset(s->first, 0, (n + 1) * sizeof *s->first);
    for (size_t i = 0; i < slots; i++) {
        s->first[s->chosen[i] + 1]++;
    }
    for (size_t e = 0; e < n; e++) {
        s->first[e + 1] += s->first[e];
    }
    for (size_t i = 0; i < slots; i++) {
        const uint32_t expert = s->chosen[i];
        const size_t slot = s->first[expert]++; // now where the next token of the expert goes
        s->slots[i] = (uint32_t)slot;
        s->tokens[slot] = (uint32_t)(i / used);
        s->experts[slot] = expert;
    }
    memmove(s->first + 1, s->first, n * sizeof *s->first);
    s->first[0] = 0;
}

// --- Waves

// Experts from `begin` to `end - 1`, and their slots.
typedef struct wave {
    const experts_layer *layer;
    experts_activation activation;
    size_t begin;
    size_t end;
    size_t first; // slot
    size_t slots;
} wave;

// The next experts whose slots fit.
static void next_wave(const experts_scratch *s, wave *w)
{
    w->begin = w->end;
    w->first = s->first[w->begin];
    while (w->end < s->sizes.experts && s->first[w->end + 1] - w->first <= s->wave) {
        w->end++;
    }
    w->slots = s->first[w->end] - w->first;
}

// Begins the inputs of a wave for matrices of a stack, one of each expert that has tokens.
static void begin_inputs(const forward_pass *pass, const wave *w, const linear_stack *stack)
{
    const experts_scratch *s = &pass->workspace->experts;
    const uint32_t formats = LINEAR_FORMAT_BIT(stack->first.format);
    unsigned char *memory = s->input;
    for (size_t e = w->begin; e < w->end; e++) {
        const size_t rows = s->first[e + 1] - s->first[e];
        size_t bytes;
        if (linear_input_bytes(stack->first.cols, rows, formats, &bytes) != KVERN_OK) {
            continue; // the workspace has been measured
        }
        linear_input_init(&s->inputs[e], memory, stack->first.cols, rows, formats, pass->features);
        memory += bytes;
    }
}

// Sets the row of a slot.
static void set_row(const experts_scratch *s, size_t slot, const float *values)
{
    const uint32_t expert = s->experts[slot];
    linear_input_row(&s->inputs[expert], slot - s->first[expert], values);
}

// Whether weights multiply what experts read.
static bool weighs_inputs(const forward_pass *pass)
{
    return pass->facts->experts.router == MODEL_ROUTER_INPUT;
}

static float weight_of(const experts_scratch *s, size_t slot)
{
    size_t i = s->tokens[slot] * s->sizes.used;
    while (s->slots[i] != slot) {
        i++;
    }
    return s->weights[i];
}

static void slot_inputs(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                        float *scratch)
{
    const wave *w = arg;
    const experts_scratch *s = &pass->workspace->experts;
    const size_t width = pass->facts->width;
    for (size_t slot = w->first + begin; slot < w->first + end; slot++) {
        const float *normed = pass->workspace->array[SCRATCH_NORMED] + s->tokens[slot] * width;
        if (weighs_inputs(pass)) {
            const float weight = weight_of(s, slot);
            for (size_t i = 0; i < width; i++) {
                scratch[i] = normed[i] * weight;
            }
            normed = scratch;
        }
        set_row(s, slot, normed);
    }
}

static float clamped(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}

// (u + 1) * (g * sigmoid(alpha g)), g at most the limit, u within it.
static void swiglu_oai(uint32_t features, size_t n, float *gate, float *up)
{
    float sigmoid[64];
    for (size_t first = 0; first < n; first += 64) {
        const size_t count = n - first < 64 ? n - first : 64;
        float *g = gate + first, *u = up + first;
        for (size_t i = 0; i < count; i++) {
            g[i] = g[i] > SWIGLU_OAI_LIMIT ? SWIGLU_OAI_LIMIT : g[i];
            sigmoid[i] = SWIGLU_OAI_ALPHA * g[i];
        }
        kvern_sigmoid_array(features, count, sigmoid, sigmoid);
        for (size_t i = 0; i < count; i++) {
            g[i] = (clamped(u[i], -SWIGLU_OAI_LIMIT, SWIGLU_OAI_LIMIT) + 1) * (g[i] * sigmoid[i]);
        }
    }
}

static void slot_activations(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                             float *unused)
{
    (void)unused;
    const wave *w = arg;
    const experts_scratch *s = &pass->workspace->experts;
    const size_t inner = s->sizes.inner;
    for (size_t i = begin; i < end; i++) {
        float *gate = s->gate + i * inner, *up = s->up + i * inner;
        if (w->activation == EXPERTS_SWIGLU_OAI) {
            swiglu_oai(pass->features, inner, gate, up);
        } else {
            kvern_silu_array(pass->features, inner, gate, gate);
            pass->ops->multiply(gate, up, inner);
        }
        set_row(s, w->first + i, gate);
    }
}

// Adds the products of an expert's tokens with a matrix of a stack to the jobs of a wave.
static void add_job(const experts_scratch *s, const wave *w, const linear_stack *stack,
                    const float *bias, size_t expert, float *y, size_t *jobs)
{
    const size_t rows = stack->first.rows, first = s->first[expert] - w->first;
    s->matrices[*jobs] = linear_stack_at(stack, expert);
    s->jobs[*jobs] = (linear_job){.weights = &s->matrices[*jobs],
                                  .input = &s->inputs[expert],
                                  .y = y + first * rows,
                                  .y_stride = rows,
                                  .bias = bias ? bias + expert * rows : NULL};
    (*jobs)++;
}

static size_t gate_and_up_jobs(const experts_scratch *s, const wave *w)
{
    const experts_layer *layer = w->layer;
    size_t jobs = 0;
    for (size_t e = w->begin; e < w->end; e++) {
        if (s->first[e + 1] > s->first[e]) {
            add_job(s, w, &layer->gate, layer->gate_bias, e, s->gate, &jobs);
            add_job(s, w, &layer->up, layer->up_bias, e, s->up, &jobs);
        }
    }
    return jobs;
}

static size_t down_jobs(const experts_scratch *s, const wave *w)
{
    size_t jobs = 0;
    for (size_t e = w->begin; e < w->end; e++) {
        if (s->first[e + 1] > s->first[e]) {
            add_job(s, w, &w->layer->down, w->layer->down_bias, e, s->down, &jobs);
        }
    }
    return jobs;
}

// sum = fma(weight, what an expert gives, sum), experts ascending: those of this wave.
static void add_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                     float *unused)
{
    (void)unused;
    const wave *w = arg;
    const experts_scratch *s = &pass->workspace->experts;
    const size_t width = pass->facts->width, used = s->sizes.used;
    for (size_t i = begin * used; i < end * used; i++) {
        float *sum = pass->workspace->array[SCRATCH_EXPERTS] + i / used * width;
        const uint32_t slot = s->slots[i];
        if (slot >= w->first && slot < w->first + w->slots) {
            pass->ops->add_scaled(sum, weighs_inputs(pass) ? 1 : s->weights[i],
                                  s->down + (slot - w->first) * width, width);
        }
    }
}

static kvern_status run_wave(const forward_pass *pass, const wave *w, engine_error *error)
{
    const experts_scratch *s = &pass->workspace->experts;
    const size_t width = pass->facts->width, inner = s->sizes.inner;
    begin_inputs(pass, w, &w->layer->gate);
    forward_each_token(pass, w->slots, width, slot_inputs, w);
    kvern_status status = forward_apply(pass, s->jobs, gate_and_up_jobs(s, w), error);
    if (status != KVERN_OK) {
        return status;
    }
    begin_inputs(pass, w, &w->layer->down);
    forward_each_token(pass, w->slots, inner, slot_activations, w);
    status = forward_apply(pass, s->jobs, down_jobs(s, w), error);
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, width, add_rows, w);
    }
    return status;
}

static kvern_status run_experts(const experts_layer *layer, const forward_pass *pass,
                                experts_activation activation, engine_error *error)
{
    const experts_scratch *s = &pass->workspace->experts;
    wave w = {.layer = layer, .activation = activation};
    kvern_status status = KVERN_OK;
    memset(pass->workspace->array[SCRATCH_EXPERTS], 0,
           pass->tokens * pass->facts->width * sizeof(float));
    while (w.end < s->sizes.experts && status == KVERN_OK) {
        next_wave(s, &w);
        if (w.slots > 0) {
            status = run_wave(pass, &w, error);
        }
    }
    return status;
}

// --- The expert that all tokens use

static void add_shared_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                            float *unused)
{
    (void)arg;
    (void)unused;
    float *const *array = pass->workspace->array;
    const size_t width = pass->facts->width;
    for (size_t t = begin; t < end; t++) {
        pass->ops->add_scaled(array[SCRATCH_EXPERTS] + t * width,
                              kvern_sigmoid(array[SCRATCH_SHARED_GATE][t]),
                              array[SCRATCH_BRANCH] + t * width, width);
    }
}

static kvern_status run_gated_shared(const experts_layer *layer, const forward_pass *pass,
                                     const float *norm, engine_error *error)
{
    float *const *array = pass->workspace->array;
    forward_plain_input(pass, array[SCRATCH_NORMED], &layer->shared_gate);
    const linear_job gate =
        forward_product(pass, &layer->shared_gate, NULL, array[SCRATCH_SHARED_GATE], false);
    kvern_status status = forward_apply(pass, &gate, 1, error);
    if (status == KVERN_OK) {
        status = feed_forward_run(&layer->network, pass, norm, kvern_silu_array,
                                  array[SCRATCH_BRANCH], false, error);
    }
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, pass->facts->width, add_shared_rows, NULL);
    }
    return status;
}

static kvern_status run_shared(const experts_layer *layer, const forward_pass *pass,
                               const float *norm, engine_error *error)
{
    const model_experts *experts = &pass->facts->experts;
    if (experts->shared == 0) {
        return KVERN_OK;
    }
    if (experts->shared_gate) {
        return run_gated_shared(layer, pass, norm, error);
    }
    return feed_forward_run(&layer->network, pass, norm, kvern_silu_array,
                            pass->workspace->array[SCRATCH_EXPERTS], true, error);
}

static void add_to_stream(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                          float *unused)
{
    (void)arg;
    (void)unused;
    float *const *array = pass->workspace->array;
    const size_t width = pass->facts->width;
    pass->ops->add(array[SCRATCH_X] + begin * width, array[SCRATCH_EXPERTS] + begin * width,
                   (end - begin) * width);
}

kvern_status experts_run(const experts_layer *layer, const forward_pass *pass, size_t index,
                         const float *norm, experts_activation activation, engine_error *error)
{
    if (!pass->facts->layer[index].experts) {
        return feed_forward_run(&layer->network, pass, norm, kvern_silu_array,
                                pass->workspace->array[SCRATCH_X], true, error);
    }
    kvern_status status = route(layer, pass, norm, error);
    if (status != KVERN_OK) {
        return status;
    }
    sort_slots(pass);
    status = run_experts(layer, pass, activation, error);
    if (status == KVERN_OK) {
        status = run_shared(layer, pass, norm, error);
    }
    if (status == KVERN_OK) {
        forward_each_token(pass, pass->tokens, pass->facts->width, add_to_stream, NULL);
    }
    return status;
}
