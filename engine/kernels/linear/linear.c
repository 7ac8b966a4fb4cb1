// SPDX-License-Identifier: MIT
// Makes matrices out of tensors, and reads their rows.
#include "engine/kernels/linear/linear.h"

#include "engine/base/instruction_sets.h"
#include "engine/kernels/linear/linear_arena.h"
#include "engine/kernels/linear/linear_layout.h"

#include <kvern/cpu.h>

// Source bytes that are packed before their pages are given back: the weights are never held twice
// by more than this.
#define BAND_BYTES ((size_t)8 << 20)

// What is known of a tensor once it has been checked.
typedef struct shape {
    linear_layout layout;
    size_t rows;
    size_t cols;
    size_t row_bytes; // in the file
    size_t tiles;
    size_t tile_bytes;
    size_t packed_bytes;
} shape;

static kvern_status bad_matrix(engine_error *error, kvern_status status, text_view name,
                               const char *what)
{
    return engine_fail(error, status, "tensor %.*s: %s", (int)name.size, name.data, what);
}

static const void *forward(const void *data, size_t bytes)
{
    return data ? (const unsigned char *)data + bytes : NULL;
}

// One of the matrices of a tensor of codes, with its part of the scales and biases.
static kvern_status grouped_source(const weights_tensor *tensor, size_t index, linear_source *out,
                                   engine_error *error)
{
    const size_t cols = (size_t)tensor->shape[0], rows = (size_t)tensor->shape[1];
    const weights_groups *groups = &tensor->groups;
    size_t bytes, scales;
    const size_t bits = linear_is_affine(tensor->type) ? element_type_affine_bits(tensor->type) : 4;
    if (groups->inputs == 0 || cols % groups->inputs ||
        __builtin_mul_overflow(cols / 8 * rows, bits, &bytes) ||
        __builtin_mul_overflow(cols / groups->inputs * rows, linear_scale_bytes(groups->type),
                               &scales))
        return bad_matrix(error, KVERN_ERR_FORMAT, tensor->name, "its groups do not fit its rows");
    *out = (linear_source){
        .name = tensor->name,
        .type = tensor->type,
        .data = forward(tensor->data, index * bytes),
        .bytes = bytes,
        .rows = rows,
        .cols = cols,
        .groups = {forward(groups->scales, index * scales), forward(groups->biases, index * scales),
                   groups->type, groups->inputs},
    };
    return KVERN_OK;
}

kvern_status linear_source_of(const weights_tensor *tensor, size_t index, linear_source *out,
                              engine_error *error)
{
    const uint64_t *shape = tensor->shape;
    if (!tensor->known)
        return bad_matrix(error, KVERN_ERR_UNSUPPORTED, tensor->name, "its type cannot be decoded");
    if (tensor->dims > 3)
        return bad_matrix(error, KVERN_ERR_UNSUPPORTED, tensor->name, "it is no matrix");
    if (index >= shape[2])
        return bad_matrix(error, KVERN_ERR_RANGE, tensor->name, "it has fewer matrices");
    if (shape[0] > SIZE_MAX || shape[1] > SIZE_MAX || shape[2] > SIZE_MAX)
        return bad_matrix(error, KVERN_ERR_OVERFLOW, tensor->name, "its shape does not fit");
    if (tensor->groups.inputs || linear_is_affine(tensor->type))
        return grouped_source(tensor, index, out, error);
    const size_t bytes = tensor->bytes / (size_t)shape[2];
    *out = (linear_source){
        .name = tensor->name,
        .type = tensor->type,
        .data = tensor->data ? (const unsigned char *)tensor->data + index * bytes : NULL,
        .bytes = bytes,
        .rows = (size_t)shape[1],
        .cols = (size_t)shape[0],
    };
    return KVERN_OK;
}

static void advance(const void **data, size_t bytes)
{
    *data = forward(*data, bytes);
}

void linear_source_narrow(linear_source *source, size_t first, size_t rows)
{
    weights_groups *groups = &source->groups;
    const size_t row_bytes = source->bytes / source->rows;
    const size_t scales =
        groups->inputs ? source->cols / groups->inputs * linear_scale_bytes(groups->type) : 0;
    advance(&source->data, first * row_bytes);
    advance(&groups->scales, first * scales);
    advance(&groups->biases, first * scales);
    source->bytes = rows * row_bytes;
    source->rows = rows;
}

// Everything that is derived from rows and cols; false when it does not fit.
static bool measure(const linear_source *source, shape *shape)
{
    const linear_layout *layout = &shape->layout;
    const weights_groups *groups = &source->groups;
    const size_t blocks = shape->cols / layout->source_inputs;
    const size_t apart = source->type == ELEMENT_MXFP4 && groups->inputs ? 1 : 0;
    const size_t each = linear_scale_bytes(groups->type) * (linear_is_affine(source->type) ? 2 : 1);
    const size_t scales = groups->inputs ? shape->cols / groups->inputs * each : 0; // of a row
    size_t padded;
    shape->tiles = shape->rows / LINEAR_ROWS + (shape->rows % LINEAR_ROWS != 0);
    if (__builtin_mul_overflow(blocks, layout->source_bytes - apart, &shape->row_bytes) ||
        __builtin_add_overflow(shape->row_bytes, scales, &shape->tile_bytes) ||
        __builtin_mul_overflow(shape->tile_bytes, LINEAR_ROWS, &shape->tile_bytes) ||
        __builtin_mul_overflow(shape->tile_bytes, shape->tiles, &padded) ||
        __builtin_add_overflow(padded, LINEAR_ARENA_ALIGNMENT - 1, &padded))
        return false;
    shape->packed_bytes = padded / LINEAR_ARENA_ALIGNMENT * LINEAR_ARENA_ALIGNMENT;
    return true;
}

// Affine types have groups, MXFP4 may have some, and no others.
static bool has_groups(const linear_source *source)
{
    const weights_groups *groups = &source->groups;
    if (source->type == ELEMENT_MXFP4 && groups->inputs)
        return groups->inputs == 32 && groups->type == ELEMENT_BYTES;
    if (!linear_is_affine(source->type))
        return groups->inputs == 0;
    return (groups->inputs == 32 || groups->inputs == 64 || groups->inputs == 128) &&
           (groups->type == ELEMENT_F32 || groups->type == ELEMENT_F16 ||
            groups->type == ELEMENT_BF16) &&
           source->cols % groups->inputs == 0;
}

static kvern_status read_shape(const linear_source *source, shape *shape, engine_error *error)
{
    shape->layout = linear_layout_of(source->type);
    if (shape->layout.source_inputs == 0)
        return bad_matrix(error, KVERN_ERR_UNSUPPORTED, source->name,
                          "its type cannot be multiplied");
    shape->cols = source->cols;
    shape->rows = source->rows;
    if (!has_groups(source))
        return bad_matrix(error, KVERN_ERR_UNSUPPORTED, source->name,
                          "its groups are not of 32, 64 or 128 inputs with float scales");
    if (!measure(source, shape))
        return bad_matrix(error, KVERN_ERR_OVERFLOW, source->name, "its size does not fit");
    if (shape->cols == 0 || shape->rows == 0 || shape->cols % shape->layout.source_inputs ||
        source->bytes / shape->rows != shape->row_bytes || source->bytes % shape->rows)
        return bad_matrix(error, KVERN_ERR_FORMAT, source->name,
                          "its shape does not match its bytes");
    if (source->interleave && (source->interleave % 2 || shape->rows % source->interleave))
        return bad_matrix(error, KVERN_ERR_FORMAT, source->name, "its rows are no heads of pairs");
    return KVERN_OK;
}

kvern_status linear_packed_bytes(const linear_source *source, size_t *bytes, engine_error *error)
{
    shape shape;
    const kvern_status status = read_shape(source, &shape, error);
    if (status == KVERN_OK)
        *bytes = shape.packed_bytes;
    return status;
}

typedef struct pack_work {
    const linear_source *source;
    const shape *shape;
    unsigned char *tiles;
    size_t first_tile;
    size_t tiles_per_task;
    size_t end_tile;
} pack_work;

// The row of the source that becomes row `row` of the matrix.
static size_t source_row(const linear_source *source, size_t row)
{
    const size_t rows = source->interleave, run = source->run_rows;
    if (rows) {
        const size_t in_head = row % rows;
        row = row - in_head + in_head % 2 * (rows / 2) + in_head / 2;
    }
    return run ? row / run * source->run_stride + row % run : row;
}

static void pack_tile(const pack_work *work, size_t tile)
{
    const shape *shape = work->shape;
    const unsigned char *rows[LINEAR_ROWS];
    size_t source_rows[LINEAR_ROWS];
    const size_t first = tile * LINEAR_ROWS;
    const size_t left = shape->rows - first, count = left < LINEAR_ROWS ? left : LINEAR_ROWS;
    unsigned char *to = work->tiles + tile * shape->tile_bytes;
    for (size_t i = 0; i < count; i++) {
        source_rows[i] = source_row(work->source, first + i);
        rows[i] = (const unsigned char *)work->source->data + source_rows[i] * shape->row_bytes;
    }
    if (work->source->groups.inputs)
        linear_pack_grouped_tile(work->source, source_rows, count, to);
    else
        linear_pack_tile(work->source->type, rows, count, shape->cols, to);
}

static void pack_task(void *arg, size_t index)
{
    const pack_work *work = arg;
    const size_t first = work->first_tile + index * work->tiles_per_task;
    for (size_t tile = first; tile < work->end_tile && tile < first + work->tiles_per_task; tile++)
        pack_tile(work, tile);
}

static void run_tasks(const kvern_executor *executor, size_t tasks,
                      void (*task)(void *arg, size_t index), void *arg)
{
    if (executor && tasks > 1) {
        executor->run(executor->user, tasks, task, arg);
        return;
    }
    for (size_t i = 0; i < tasks; i++)
        task(arg, i);
}

// Gives back the pages of the rows that a band of tiles came from. (Interleaved rows come from a
// head or so further on, whose pages are read again.)
static void drop_band(const pack_work *work)
{
    const size_t tile_source = work->shape->row_bytes * LINEAR_ROWS;
    const size_t start = work->first_tile * tile_source, all = work->source->bytes;
    const size_t end = work->end_tile * tile_source;
    weights_drop_pages(work->source->file, (const unsigned char *)work->source->data + start,
                       (end < all ? end : all) - start);
}

static void pack_matrix(const kvern_executor *executor, pack_work work)
{
    const size_t all = work.shape->tiles, band = 1 + BAND_BYTES / work.shape->tile_bytes;
    const size_t threads = executor ? executor->threads : 1;
    for (; work.first_tile < all; work.first_tile = work.end_tile) {
        const size_t left = all - work.first_tile;
        const size_t tiles = left < band ? left : band;
        work.end_tile = work.first_tile + tiles;
        work.tiles_per_task = 1 + tiles / (4 * threads);
        run_tasks(executor, (tiles - 1) / work.tiles_per_task + 1, pack_task, &work);
        if (work.source->file)
            drop_band(&work);
    }
}

// The kernels of this build and what they need, the best one first.
static const struct {
    uint32_t feature;
    void (*kernel)(const linear_tile *tile);
} KERNELS[] = {
#ifdef ENGINE_HAS_AVX512VNNI
    {KVERN_CPU_AVX512_VNNI, linear_tile_avx512vnni},
#endif
#ifdef ENGINE_HAS_AVXVNNI
    {KVERN_CPU_AVX_VNNI, linear_tile_avxvnni},
#endif
#ifdef ENGINE_HAS_AVX2
    {KVERN_CPU_AVX2, linear_tile_avx2},
#endif
#ifdef ENGINE_HAS_NEON
    {KVERN_CPU_NEON, linear_tile_neon},
#endif
    {0, linear_tile_plain},
};

static void (*select_kernel(uint32_t features))(const linear_tile *tile)
{
    size_t i = 0;
    while ((features & KERNELS[i].feature) != KERNELS[i].feature)
        i++;
    return KERNELS[i].kernel;
}

kvern_status linear_create(linear_arena *arena, const linear_source *source,
                           linear_precision precision, uint32_t features,
                           const kvern_executor *executor, linear *out, engine_error *error)
{
    shape shape;
    const kvern_status status = read_shape(source, &shape, error);
    if (status != KVERN_OK)
        return status;
    unsigned char *tiles = linear_arena_take(arena, shape.packed_bytes);
    if (!tiles)
        return bad_matrix(error, KVERN_ERR_MEMORY, source->name, "the arena of weights is full");
    pack_matrix(executor, (pack_work){.source = source, .shape = &shape, .tiles = tiles});
    *out = (linear){
        .rows = shape.rows,
        .cols = shape.cols,
        .type = source->type,
        .scale_type = linear_is_affine(source->type) ? source->groups.type : 0,
        .group = linear_is_affine(source->type) ? source->groups.inputs : 0,
        .format = shape.layout.source_inputs == 1 ? LINEAR_FORMAT_F32
                  : precision == LINEAR_INT16     ? LINEAR_FORMAT_INT16
                                                  : LINEAR_FORMAT_INT8,
        .tiles = tiles,
        .tile_bytes = shape.tile_bytes,
        .kernel = select_kernel(features),
    };
    return KVERN_OK;
}

// Types without a minimum of their own: scale * (code - zero), which is the same value, and its
// zero has the sign that engine_dequantize gives it.
static float value_of(const linear_unit *unit, size_t part, size_t row, int code, int zero)
{
    if (zero)
        return unit->scale[part][row] * (float)(code - zero);
    return unit->scale[part][row] * (float)code + unit->minimum[part][row];
}

static void quantized_row(const linear *weights, const unsigned char *tile, size_t row, float *out)
{
    const int zero = linear_layout_of(weights->type).zero;
    for (size_t u = 0; u < weights->cols / LINEAR_UNIT; u++) {
        linear_unit unit;
        uint8_t codes[LINEAR_UNIT];
        linear_unpack_scales(weights->type, weights->scale_type, weights->group, tile, u, &unit);
        linear_unpack_codes(weights->type, &unit, row, codes);
        for (size_t i = 0; i < LINEAR_UNIT; i++)
            out[LINEAR_UNIT * u + i] = value_of(&unit, i / 16, row, codes[i], zero);
    }
}

static void float_row(const linear *weights, const unsigned char *tile, size_t row, float *out)
{
    for (size_t col = 0; col < weights->cols; col++)
        out[col] = linear_unpack_float(weights->type, tile, col, row);
}

void linear_row(const linear *weights, size_t row, float *out)
{
    const unsigned char *tile = weights->tiles + row / LINEAR_ROWS * weights->tile_bytes;
    if (weights->format == LINEAR_FORMAT_F32)
        float_row(weights, tile, row % LINEAR_ROWS, out);
    else
        quantized_row(weights, tile, row % LINEAR_ROWS, out);
}
