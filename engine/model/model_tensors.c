// SPDX-License-Identifier: MIT
#include "engine/model/model_tensors.h"

#include "engine/model/families/model_family.h"
#include "engine/model/key_balance.h"
#include "engine/weights/dequantize.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Matrices are packed in tiles of 32 rows. A model whose matrices have fewer would take up to 32
// times its file; so much is let pass for small ones.
#define PACKED_SLACK ((size_t)64 << 20)

// --- Lists

static tensor_spec *add_spec(tensor_specs *list, const char *name, size_t rows, size_t cols)
{
    tensor_spec *spec = &list->spec[list->count++];
    *spec = (tensor_spec){.rows = rows, .cols = cols};
    snprintf(spec->name, sizeof spec->name, "%s%s", list->prefix, name);
    return spec;
}

tensor_spec *tensor_spec_matrix(tensor_specs *list, const char *name, size_t rows, size_t cols,
                                linear *out)
{
    tensor_spec *spec = add_spec(list, name, rows, cols);
    spec->matrix = out;
    return spec;
}

tensor_spec *tensor_spec_part(tensor_specs *list, const char *name, size_t fused_rows,
                              size_t first_row, size_t rows, size_t cols, linear *out)
{
    tensor_spec *spec = tensor_spec_matrix(list, name, rows, cols, out);
    spec->fused_rows = fused_rows;
    spec->first_row = first_row;
    return spec;
}

tensor_spec *tensor_spec_stack(tensor_specs *list, const char *name, size_t count, size_t rows,
                               size_t cols, linear_stack *out)
{
    tensor_spec *spec = add_spec(list, name, rows, cols);
    spec->count = count;
    spec->stack = out;
    return spec;
}

tensor_spec *tensor_spec_vector(tensor_specs *list, const char *name, size_t n, float **out)
{
    tensor_spec *spec = add_spec(list, name, 1, n);
    spec->vector = out;
    return spec;
}

void tensor_spec_norm(tensor_specs *list, const char *name, size_t n, float **out)
{
    tensor_spec_vector(list, name, n, out)->kind = MODEL_TENSOR_NORM;
}

void tensor_spec_unread(tensor_specs *list, const char *name, size_t rows, size_t cols)
{
    tensor_spec *spec = add_spec(list, name, rows, cols);
    spec->optional = spec->unread = true;
}

static void list_global(const model_facts *facts, model_parts *parts, tensor_specs *list)
{
    size_t width = facts->width;
    tensor_spec_matrix(list, "token_embd.weight", facts->vocabulary, width, &parts->embedding);
    tensor_spec_norm(list, "output_norm.weight", width, &parts->output_norm);
    if (!facts->tied_output) {
        tensor_spec_matrix(list, "output.weight", facts->vocabulary, width, &parts->output);
    }
    if (facts->layer_inputs) {
        const size_t all = facts->layers * facts->layer_inputs;
        layer_inputs *inputs = &parts->inputs;
        tensor_spec_matrix(list, "per_layer_token_embd.weight", facts->vocabulary, all,
                           &inputs->embedding);
        tensor_spec_matrix(list, "per_layer_model_proj.weight", all, width, &inputs->projection);
        tensor_spec_norm(list, "per_layer_proj_norm.weight", facts->layer_inputs, &inputs->norm);
    }
    const model_rope *rope = &facts->rope[0];
    if (rope->tensor) {
        tensor_spec_vector(list, rope->tensor, rope->dim / 2, &parts->rope_divisors);
    }
    if (rope->unused_tensor) {
        tensor_spec_vector(list, rope->unused_tensor, rope->dim / 2, &parts->unused_divisors);
    }
}

static void *layer_at(const model_facts *facts, const model_parts *parts, size_t index)
{
    return (char *)parts->layers + index * facts->family->layer_bytes;
}

void model_list_tensors(const model_facts *facts, model_parts *parts, long index, char *prefix,
                        tensor_specs *list)
{
    prefix[0] = '\0';
    list->prefix = prefix;
    list->count = 0;
    list->query_norm = list->key_norm = NULL;
    if (index < 0) {
        list_global(facts, parts, list);
        return;
    }
    snprintf(prefix, MODEL_NAME_BYTES, "blk.%ld.", index);
    facts->family->list_tensors(facts, (size_t)index, layer_at(facts, parts, (size_t)index), list);
}

// --- Stacks

// In how many tensors the file has what a spec asks for.
static size_t tensors_of(const weights *source, const tensor_spec *spec)
{
    return spec->stack && !weights_find_tensor(source, spec->name) ? spec->count : 1;
}

// The engine's name of tensor `index` of `tensors`: "blk.3.ffn_gate.7.weight" in place of
// "blk.3.ffn_gate_exps.weight".
static void name_tensor(const tensor_spec *spec, size_t tensors, size_t index,
                        char name[MODEL_NAME_BYTES])
{
    const char *end = tensors > 1 ? strstr(spec->name, "_exps.weight") : NULL;
    if (!end) {
        memcpy(name, spec->name, sizeof spec->name);
        return;
    }
    snprintf(name, MODEL_NAME_BYTES, "%.*s.%zu.weight", (int)(end - spec->name), spec->name, index);
}

// --- Checking

typedef struct tensor_check {
    const weights *source;
    engine_error *error;
    size_t packed; // bytes in the arena
    size_t stored; // bytes of the same matrices in the file
    const weights_tensor **taken;
    size_t taken_count;
    size_t taken_room;
} tensor_check;

static void describe_shape(const weights_tensor *tensor, char *text, size_t bytes)
{
    size_t at = 0;
    for (uint32_t i = 0; i < tensor->dims && at < bytes; i++) {
        at +=
            (size_t)snprintf(text + at, bytes - at, "%s%" PRIu64, i ? " x " : "", tensor->shape[i]);
    }
}

// The shape of one of `tensors` tensors of a spec, the contiguous dimension first.
static uint32_t wanted_shape(const tensor_spec *spec, size_t tensors, size_t shape[3])
{
    uint32_t dims = 0;
    shape[dims++] = spec->vector && spec->fused_rows ? spec->fused_rows : spec->cols;
    if (spec->flat) {
        shape[dims++] = spec->fused_rows * spec->count;
        return dims;
    }
    if (spec->turned) {
        shape[0] = spec->fused_rows ? spec->fused_rows : spec->rows;
        shape[dims++] = spec->cols;
        shape[dims++] = spec->count;
        return dims;
    }
    if (!spec->vector) {
        shape[dims++] = spec->fused_rows ? spec->fused_rows : spec->rows;
    }
    if (spec->count > 0 && tensors == 1) {
        shape[dims++] = spec->count;
    }
    return dims;
}

// A matrix of one row may come as a vector, and vectors with dimensions of 1 between theirs: the
// taps of a convolution.
static bool same_shape(const weights_tensor *tensor, const tensor_spec *spec, const size_t *wanted,
                       uint32_t dims)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < tensor->dims; i++) {
        if (at < dims && tensor->shape[i] == wanted[at]) {
            at++;
        } else if (!spec->vector || tensor->shape[i] != 1) {
            return false;
        }
    }
    const bool row = (spec->matrix || spec->unread) && spec->rows == 1;
    return at == dims || (row && at == 1);
}

static kvern_status check_shape(const weights_tensor *tensor, const tensor_spec *spec,
                                size_t tensors, const char *name, engine_error *error)
{
    size_t wanted[3];
    const uint32_t dims = wanted_shape(spec, tensors, wanted);
    if (same_shape(tensor, spec, wanted, dims)) {
        return KVERN_OK;
    }
    char shape[96], needed[96];
    weights_tensor model = {.dims = dims};
    for (uint32_t i = 0; i < dims; i++) {
        model.shape[i] = wanted[i];
    }
    describe_shape(tensor, shape, sizeof shape);
    describe_shape(&model, needed, sizeof needed);
    return engine_fail(error, KVERN_ERR_FORMAT, "the tensor %s is %s, but the model needs %s", name,
                       shape, needed);
}

// Tensor `index` of the `tensors` of a spec, or NULL when it is absent and may be.
static kvern_status find_tensor(const weights *source, const tensor_spec *spec, size_t tensors,
                                size_t index, const weights_tensor **out, engine_error *error)
{
    char own[MODEL_NAME_BYTES], name[2 * MODEL_NAME_BYTES];
    name_tensor(spec, tensors, index, own);
    const weights_tensor *tensor = weights_find_tensor(source, own);
    *out = tensor;
    source->format->tensor_name(source->file, own, name, sizeof name);
    if (!tensor) {
        return spec->optional ? KVERN_OK
                              : engine_fail(error, KVERN_ERR_FORMAT,
                                            "the model file lacks the tensor %s", name);
    }
    kvern_status status = check_shape(tensor, spec, tensors, name, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (!tensor->known) {
        const char *type = element_type_name(tensor->type);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the tensor %s has the element type %s (%u), which is not supported",
                           name, type ? type : "unknown", tensor->type);
    }
    return KVERN_OK;
}

// Of a fused matrix, behind `skipped` rows that are others': the spec's part.
static void take_part(const tensor_spec *spec, size_t skipped, linear_source *matrix)
{
    if (spec->fused_rows) {
        linear_source_narrow(matrix, skipped + spec->first_row, spec->rows);
    }
    if (spec->fused_rows && spec->pieces) {
        matrix->run_rows = spec->rows / spec->pieces;
        matrix->run_stride = spec->fused_rows / spec->pieces;
    }
}

// Matrix `index` of those of a tensor, or the part of a fused one, as it lies in the file.
static kvern_status source_of(const tensor_spec *spec, const weights_tensor *tensor, size_t index,
                              linear_source *out, engine_error *error)
{
    const bool parts = spec->flat;
    kvern_status status = linear_source_of(tensor, parts ? 0 : index, out, error);
    if (status == KVERN_OK && (parts || !spec->turned)) {
        take_part(spec, parts ? index * spec->fused_rows : 0, out);
    }
    return status;
}

// What a turned matrix will be: of floats, as blocks of others run along rows.
static linear_source turned_source(const tensor_spec *spec, const linear_source *matrix,
                                   const float *values)
{
    linear_source turned = *matrix;
    turned.rows = matrix->cols;
    turned.cols = matrix->rows;
    turned.type = ELEMENT_F32;
    turned.bytes = matrix->rows * matrix->cols * sizeof(float);
    turned.data = values;
    turned.groups = (weights_groups){0};
    if (!spec->flat) {
        take_part(spec, 0, &turned);
    }
    return turned;
}

// A matrix, or `count` of them in one tensor.
static kvern_status measure_matrices(tensor_check *check, const tensor_spec *spec,
                                     const weights_tensor *tensor, size_t count)
{
    linear_source matrix;
    size_t packed = 0;
    kvern_status status = source_of(spec, tensor, 0, &matrix, check->error);
    if (status == KVERN_OK && spec->turned) {
        matrix = turned_source(spec, &matrix, NULL);
    }
    if (status == KVERN_OK) {
        status = linear_packed_bytes(&matrix, &packed, check->error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    if (__builtin_mul_overflow(packed, count, &packed) ||
        __builtin_add_overflow(check->packed, packed, &check->packed)) {
        return engine_fail(check->error, KVERN_ERR_OVERFLOW,
                           "the weights do not fit the address space");
    }
    check->stored += matrix.bytes * count;
    return KVERN_OK;
}

static kvern_status check_tensor(tensor_check *check, const tensor_spec *spec, size_t tensors,
                                 size_t index)
{
    const weights_tensor *tensor;
    kvern_status status = find_tensor(check->source, spec, tensors, index, &tensor, check->error);
    if (status != KVERN_OK || !tensor) {
        return status;
    }
    // More than the file has means that two specs took one tensor, which no format lets happen.
    const bool again = spec->first_row > 0;
    if (check->taken_count == check->taken_room && !again) {
        return engine_fail(check->error, KVERN_ERR_FORMAT, "a tensor was asked for twice");
    }
    if (!again) {
        check->taken[check->taken_count++] = tensor;
    }
    const size_t matrices = spec->stack && tensors == 1 ? spec->count : 1;
    return spec->vector || spec->unread ? KVERN_OK
                                        : measure_matrices(check, spec, tensor, matrices);
}

static kvern_status check_list(tensor_check *check, const tensor_specs *list)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < list->count && status == KVERN_OK; i++) {
        const tensor_spec *spec = &list->spec[i];
        const size_t tensors = tensors_of(check->source, spec);
        for (size_t k = 0; k < tensors && status == KVERN_OK; k++) {
            status = check_tensor(check, spec, tensors, k);
        }
    }
    return status;
}

static int compare_pointers(const void *a, const void *b)
{
    uintptr_t left = (uintptr_t) * (const weights_tensor *const *)a;
    uintptr_t right = (uintptr_t) * (const weights_tensor *const *)b;
    return (left > right) - (left < right);
}

static kvern_status check_all_taken(tensor_check *check)
{
    size_t count = check->taken_count;
    qsort(check->taken, count, sizeof *check->taken, compare_pointers);
    for (size_t i = 0; i < weights_tensor_count(check->source); i++) {
        const weights_tensor *tensor = weights_tensor_at(check->source, i);
        if (!bsearch(&tensor, check->taken, count, sizeof *check->taken, compare_pointers)) {
            return engine_fail(check->error, KVERN_ERR_UNSUPPORTED,
                               "the model has a tensor %.*s, which this engine does not know",
                               text_view_shown(tensor->name, 128), tensor->name.data);
        }
    }
    return KVERN_OK;
}

// `scratch` is a family's object for a layer, which lists are made for and nothing is written to.
static kvern_status check_layers(tensor_check *check, const model_facts *facts, void *scratch)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        char prefix[MODEL_NAME_BYTES];
        tensor_specs list = {.prefix = prefix};
        snprintf(prefix, sizeof prefix, "blk.%zu.", i);
        facts->family->list_tensors(facts, i, scratch, &list);
        status = check_list(check, &list);
    }
    return status;
}

static kvern_status run_check(tensor_check *check, const model_facts *facts, void *scratch)
{
    char prefix[MODEL_NAME_BYTES];
    model_parts parts = {0};
    tensor_specs list;
    model_list_tensors(facts, &parts, -1, prefix, &list);
    kvern_status status = check_list(check, &list);
    if (status == KVERN_OK) {
        status = check_layers(check, facts, scratch);
    }
    if (status == KVERN_OK) {
        status = check_all_taken(check);
    }
    if (status == KVERN_OK && check->packed / 2 > check->stored + PACKED_SLACK / 2) {
        return engine_fail(check->error, KVERN_ERR_UNSUPPORTED,
                           "the matrices have so few rows that %zu bytes of them would take %zu",
                           check->stored, check->packed);
    }
    return status;
}

kvern_status model_check_tensors(const weights *source, const model_facts *facts,
                                 size_t *packed_bytes, engine_error *error)
{
    tensor_check check = {.source = source, .error = error};
    check.taken_room = weights_tensor_count(source);
    check.taken = calloc(check.taken_room > 0 ? check.taken_room : 1, sizeof *check.taken);
    void *scratch = calloc(1, facts->family->layer_bytes);
    kvern_status status = check.taken && scratch
                              ? run_check(&check, facts, scratch)
                              : engine_fail(error, KVERN_ERR_MEMORY,
                                            "no memory to list %zu tensors", check.taken_room);
    free(scratch);
    free(check.taken);
    *packed_bytes = check.packed;
    return status;
}

// --- Loading

// The engine wants 1 + weight of some families' norms.
static void adjust_vector(const model_loader *loader, const tensor_spec *spec, float *values)
{
    const weights_format *format = loader->source->format;
    if (spec->kind == MODEL_TENSOR_NORM && loader->facts->family->norm_adds_one &&
        !format->whole_norms) {
        for (size_t i = 0; i < spec->cols; i++) {
            values[i] = 1 + values[i];
        }
    }
}

// Rows of heads in the order of pairs, where the file has them by halves.
static size_t interleave_of(const model_loader *loader, const tensor_spec *spec)
{
    bool halves = !loader->source->format->paired_rows && !loader->facts->family->paired_files;
    bool pairs = loader->facts->family->rope_style == ENGINE_ROPE_PAIRS;
    return spec->kind == MODEL_TENSOR_ROTATED && halves && pairs ? spec->head : 0;
}

// The same for a vector, such as a bias. False when memory is missing.
static bool turn_vector(const model_loader *loader, const tensor_spec *spec, float *values)
{
    size_t rows = interleave_of(loader, spec);
    float *head = rows ? malloc(rows * sizeof *head) : NULL;
    if (rows && !head) {
        return false;
    }
    for (size_t first = 0; rows && first + rows <= spec->cols; first += rows) {
        memcpy(head, values + first, rows * sizeof *head);
        for (size_t i = 0; i < rows; i++) {
            values[first + i] = head[i % 2 * (rows / 2) + i / 2];
        }
    }
    free(head);
    return true;
}

// Of a vector that is a part of what the tensor has, its own elements, moved to the front.
static void keep_part(const tensor_spec *spec, float *values)
{
    const size_t pieces = spec->pieces ? spec->pieces : 1, all = spec->fused_rows;
    const size_t run = spec->cols / pieces, stride = all / pieces;
    for (size_t row = 0; all && row < (spec->count ? spec->count : 1); row++) {
        for (size_t i = 0; i < spec->cols; i++) { // never beyond where it is read
            values[row * spec->cols + i] =
                values[row * all + spec->first_row + i / run * stride + i % run];
        }
    }
}

static kvern_status load_vector(const model_loader *loader, const tensor_spec *spec,
                                const weights_tensor *tensor)
{
    const size_t stored = spec->fused_rows ? spec->fused_rows : spec->cols;
    const size_t n = stored * (spec->count ? spec->count : 1);
    float *values = malloc(n * sizeof *values);
    if (!values) {
        return engine_fail(loader->error, KVERN_ERR_MEMORY, "no memory for the tensor %s",
                           spec->name);
    }
    kvern_status status = engine_dequantize(tensor->type, tensor->data, n, values);
    if (status != KVERN_OK) {
        free(values);
        return engine_fail(loader->error, status, "the tensor %s cannot be decoded", spec->name);
    }
    keep_part(spec, values);
    if (!turn_vector(loader, spec, values)) {
        free(values);
        return engine_fail(loader->error, KVERN_ERR_MEMORY, "no memory for the tensor %s",
                           spec->name);
    }
    adjust_vector(loader, spec, values);
    *spec->vector = values;
    return KVERN_OK;
}

// The matrices that most of a prompt's time goes to read activations in 8 bits, all others in 16:
// the output, which makes the logits and meets one token of a prompt, latents, and what recurs.
// So do all of a model with experts, where a small error may choose another one, and types whose
// models were not measured. docs/linear.md has the divergences.
static linear_precision precision_of(const model_loader *loader, const tensor_spec *spec,
                                     const linear_source *matrix)
{
    static const char *const rounded[] = {"attn_q",      "attn_k",   "attn_v", "attn_qkv",
                                          "attn_output", "ffn_gate", "ffn_up", "ffn_down"};
    unsigned layer;
    char part[MODEL_NAME_BYTES];
    if (loader->precise || loader->facts->experts.count || matrix->groups.inputs ||
        matrix->type == ELEMENT_MXFP4 ||
        sscanf(spec->name, "blk.%u.%95[a-z_].weight", &layer, part) != 2) {
        return LINEAR_INT16;
    }
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        if (strcmp(part, rounded[i]) == 0) {
            return LINEAR_INT8;
        }
    }
    return LINEAR_INT16;
}

static kvern_status create_matrix(model_loader *loader, const tensor_spec *spec,
                                  const linear_source *matrix, linear *out)
{
    kvern_status status = linear_create(loader->arena, matrix, precision_of(loader, spec, matrix),
                                        loader->features, loader->executor, out, loader->error);
    if (status == KVERN_OK) {
        loader->formats |= LINEAR_FORMAT_BIT(out->format);
        loader->most_cols = matrix->cols > loader->most_cols ? matrix->cols : loader->most_cols;
    }
    return status;
}

// Its values, rows and columns exchanged.
static void turn_matrix(const float *values, size_t rows, size_t cols, float *turned)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t col = 0; col < cols; col++) {
            turned[col * rows + row] = values[row * cols + col];
        }
    }
}

static kvern_status load_turned(model_loader *loader, const tensor_spec *spec,
                                const linear_source *matrix, linear *out)
{
    const size_t count = matrix->rows * matrix->cols;
    float *values = malloc(2 * count * sizeof *values);
    if (!values) {
        return engine_fail(loader->error, KVERN_ERR_MEMORY, "no memory to turn the tensor %.*s",
                           text_view_shown(matrix->name, 128), matrix->name.data);
    }
    const linear_source turned = turned_source(spec, matrix, values + count);
    kvern_status status = matrix->groups.inputs
                              ? KVERN_ERR_UNSUPPORTED
                              : engine_dequantize(matrix->type, matrix->data, count, values);
    if (status == KVERN_OK) {
        turn_matrix(values, matrix->rows, matrix->cols, values + count);
        status = create_matrix(loader, spec, &turned, out);
    } else {
        status = engine_fail(loader->error, status, "the tensor %.*s cannot be decoded",
                             text_view_shown(matrix->name, 128), matrix->name.data);
    }
    free(values);
    return status;
}

static kvern_status load_matrix(model_loader *loader, const tensor_spec *spec,
                                const weights_tensor *tensor, size_t index, linear *out)
{
    linear_source matrix;
    kvern_status status = source_of(spec, tensor, index, &matrix, loader->error);
    if (status != KVERN_OK) {
        return status;
    }
    loader->done_bytes += matrix.bytes;
    if (spec->turned) {
        return load_turned(loader, spec, &matrix, out);
    }
    matrix.file = spec->pieces ? NULL : loader->source; // whose pages others need
    matrix.interleave = interleave_of(loader, spec);
    return create_matrix(loader, spec, &matrix, out);
}
// Adds a matrix to a stack, behind the last one in the arena.
static kvern_status load_next(model_loader *loader, const tensor_spec *spec,
                              const weights_tensor *tensor, size_t index)
{
    linear_stack *stack = spec->stack;
    linear matrix;
    kvern_status status = load_matrix(loader, spec, tensor, index, &matrix);
    if (status != KVERN_OK) {
        return status;
    }
    if (stack->count == 0) {
        stack->first = matrix;
    } else if (stack->count == 1) {
        stack->stride = (size_t)(matrix.tiles - stack->first.tiles);
    }
    if (matrix.type != stack->first.type) {
        return engine_fail(loader->error, KVERN_ERR_UNSUPPORTED,
                           "the tensor %.*s has another element type than the matrices before it",
                           text_view_shown(tensor->name, 128), tensor->name.data);
    }
    stack->count++;
    return KVERN_OK;
}

static kvern_status load_stack(model_loader *loader, const tensor_spec *spec,
                               const weights_tensor *tensor, size_t tensors)
{
    kvern_status status = KVERN_OK;
    const size_t matrices = tensors == 1 ? spec->count : 1;
    for (size_t i = 0; i < matrices && status == KVERN_OK; i++) {
        status = load_next(loader, spec, tensor, i);
    }
    return status;
}

static kvern_status load_tensor(model_loader *loader, const tensor_spec *spec, size_t tensors,
                                size_t index)
{
    const weights_tensor *tensor;
    kvern_status status = find_tensor(loader->source, spec, tensors, index, &tensor, loader->error);
    if (status != KVERN_OK || !tensor || spec->unread) {
        loader->done_bytes += tensor ? tensor->bytes : 0;
        return status;
    }
    status = spec->stack    ? load_stack(loader, spec, tensor, tensors)
             : spec->matrix ? load_matrix(loader, spec, tensor, 0, spec->matrix)
                            : load_vector(loader, spec, tensor);
    loader->done_bytes += spec->vector && spec->first_row == 0 ? tensor->bytes : 0;
    if (status == KVERN_OK && loader->progress) {
        loader->progress(loader->user, loader->done_bytes, loader->facts->tensor_bytes);
    }
    return status;
}

static void balance_keys(const model_facts *facts, const tensor_specs *list, long index)
{
    const model_layer_facts *layer = &facts->layer[index];
    const model_rope *rope = facts->ropes ? &facts->rope[layer->rope] : NULL;
    key_balance(*list->query_norm, *list->key_norm, layer->head_dim, rope ? rope->dim : 0,
                rope && rope->halves ? ENGINE_ROPE_HALVES : facts->family->rope_style);
}

kvern_status model_load_tensors(model_loader *loader, model_parts *parts, long index)
{
    char prefix[MODEL_NAME_BYTES];
    tensor_specs list;
    kvern_status status = KVERN_OK;
    model_list_tensors(loader->facts, parts, index, prefix, &list);
    for (size_t i = 0; i < list.count && status == KVERN_OK; i++) {
        const tensor_spec *spec = &list.spec[i];
        const size_t tensors = tensors_of(loader->source, spec);
        for (size_t k = 0; k < tensors && status == KVERN_OK; k++) {
            status = load_tensor(loader, spec, tensors, k);
        }
    }
    if (status == KVERN_OK && list.key_norm) {
        balance_keys(loader->facts, &list, index);
    }
    return status;
}

void model_unload_tensors(const model_facts *facts, model_parts *parts)
{
    for (long i = -1; i < (long)facts->layers && (i < 0 || parts->layers); i++) {
        char prefix[MODEL_NAME_BYTES];
        tensor_specs list;
        model_list_tensors(facts, parts, i, prefix, &list);
        for (size_t w = 0; w < list.count; w++) {
            if (list.spec[w].vector) {
                free(*list.spec[w].vector);
                *list.spec[w].vector = NULL;
            }
        }
    }
}
