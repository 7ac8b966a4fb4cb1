// SPDX-License-Identifier: MIT
// The functions of kvern/recurrent_math.h: what is checked, and which kernel computes.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/math/exp.h"
#include "src/math/fpenv.h"
#include "src/recurrent/recurrence.h"
#include "src/recurrent/recurrence_kernels.h"
#include "src/recurrent/recurrence_layout.h"

#include <kvern/math.h>
#include <kvern/recurrent_math.h>

#include <math.h>
#include <string.h>

static const kvern_sized CONVOLUTION_SIZES =
    KVERN_SIZED(kvern_convolution, KVERN_SIZE_TO(kvern_convolution, reserved));
static const kvern_sized NORM_SIZES =
    KVERN_SIZED(kvern_gated_norm, KVERN_SIZE_TO(kvern_gated_norm, weight_per_part));

// ---- Checks ----

// `count` rows of `floats` numbers, a stride apart.
static kvern_status check_rows(const char *name, const void *data, size_t count, int64_t stride,
                               size_t floats)
{
    size_t extent;
    if (!count)
        return KVERN_OK;
    if (!data)
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s is NULL", name);
    if (stride < 0 || (uint64_t)stride < floats)
        return kvern_fail(KVERN_ERR_RANGE, "%s_stride is %lld, and a row has %zu numbers", name,
                          (long long)stride, floats);
    if (!kvern_size_mul(count, (size_t)stride, &extent) ||
        !kvern_size_mul(extent, sizeof(float), &extent))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s: %zu rows, %lld numbers apart", name, count,
                          (long long)stride);
    return KVERN_OK;
}

static kvern_status check_activation(kvern_activation activation)
{
    if ((unsigned)activation > KVERN_ACTIVATION_SIGMOID)
        return kvern_fail(KVERN_ERR_ARGUMENT, "activation is %d", (int)activation);
    return KVERN_OK;
}

// ---- Convolution ----

void kvern_convolution_init(kvern_convolution *convolution, size_t size, size_t channels,
                            size_t taps)
{
    const kvern_convolution defaults = {
        .channels = channels,
        .taps = taps,
        .x_stride = (int64_t)channels,
        .y_stride = (int64_t)channels,
        .activation = KVERN_ACTIVATION_SILU,
    };
    kvern_sized_init(&CONVOLUTION_SIZES, &defaults, convolution, size);
}

static kvern_status check_convolution(const kvern_convolution *c)
{
    size_t weights;
    if (c->taps < 1 || c->taps > KVERN_MAX_CONV_KERNEL)
        return kvern_fail(KVERN_ERR_RANGE, "taps is %zu, from 1 to %d", c->taps,
                          KVERN_MAX_CONV_KERNEL);
    if (!c->channels || c->reserved)
        return kvern_fail(KVERN_ERR_ARGUMENT, "channels is %zu, reserved is %u", c->channels,
                          (unsigned)c->reserved);
    if (!kvern_size_mul(c->channels, KVERN_MAX_CONV_KERNEL * sizeof(float), &weights))
        return kvern_fail(KVERN_ERR_OVERFLOW, "channels is %zu", c->channels);
    if (!c->weight || (!c->tail && c->taps > 1))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s is NULL", c->weight ? "tail" : "weight");
    kvern_status status = check_activation(c->activation);
    if (!status)
        status = check_rows("x", c->x, c->count, c->x_stride, c->channels);
    if (!status)
        status = check_rows("y", c->y, c->count, c->y_stride, c->channels);
    return status;
}

static void convolve_tokens(uint32_t features, const kvern_convolution *c)
{
    const kvern_recurrence_kernels *kernels = kvern_recurrence_kernels_of(features);
    const float *rows[KVERN_MAX_CONV_KERNEL];
    for (size_t t = 0; t < c->count; t++) {
        float *y = c->y + t * (size_t)c->y_stride;
        kvern_find_taps(c->taps, c->channels, c->tail, c->x, (size_t)c->x_stride, t, rows);
        kernels->convolve(c->channels, c->taps, rows, c->weight, c->channels, c->bias,
                          c->activation == KVERN_ACTIVATION_SILU, y);
        if (c->activation == KVERN_ACTIVATION_SIGMOID)
            kvern_sigmoid_array(features, c->channels, y, y);
    }
    kvern_move_tail(c->taps, c->channels, c->tail, c->count, c->x, (size_t)c->x_stride);
}

kvern_status kvern_convolve(uint32_t features, const kvern_convolution *convolution)
{
    kvern_convolution c;
    if (!convolution)
        return kvern_fail(KVERN_ERR_ARGUMENT, "convolution is NULL");
    kvern_status status = kvern_sized_read(&CONVOLUTION_SIZES, convolution, &c);
    if (!status)
        status = check_convolution(&c);
    if (status || !c.count)
        return status;
    const kvern_fp_saved saved = kvern_fp_enter();
    convolve_tokens(features, &c);
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Norms ----

void kvern_rms_scale_array(uint32_t features, size_t n, const float *x, float eps, float factor,
                           const float *weight, float *y)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    kvern_recurrence_kernels_of(features)->rms_scale(n, x, eps, factor, weight, y);
    kvern_fp_leave(saved);
}

void kvern_gated_norm_init(kvern_gated_norm *norm, size_t size, size_t dim, size_t parts)
{
    size_t row = 0;
    if (!kvern_size_mul(dim, parts, &row) || row > INT64_MAX)
        row = 0; // which the call refuses
    const kvern_gated_norm defaults = {
        .dim = dim,
        .parts = parts,
        .x_stride = (int64_t)row,
        .z_stride = (int64_t)row,
        .out_stride = (int64_t)row,
        .eps = 1e-6f,
        .activation = KVERN_ACTIVATION_SILU,
    };
    kvern_sized_init(&NORM_SIZES, &defaults, norm, size);
}

static kvern_status check_norm(const kvern_gated_norm *n)
{
    size_t row;
    if (!n->dim || !n->parts)
        return kvern_fail(KVERN_ERR_ARGUMENT, "dim is %zu, parts is %zu", n->dim, n->parts);
    if (!kvern_size_mul(n->dim, n->parts, &row))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%zu parts of %zu numbers", n->parts, n->dim);
    if (n->gate_first > 1 || n->weight_per_part > 1)
        return kvern_fail(KVERN_ERR_ARGUMENT, "gate_first is %u, weight_per_part is %u",
                          (unsigned)n->gate_first, (unsigned)n->weight_per_part);
    if (!(n->eps >= 0) || isinf(n->eps))
        return kvern_fail(KVERN_ERR_ARGUMENT, "eps is %g", (double)n->eps);
    kvern_status status = check_activation(n->activation);
    if (!status)
        status = check_rows("x", n->x, n->count, n->x_stride, row);
    if (!status && n->z)
        status = check_rows("z", n->z, n->count, n->z_stride, row);
    if (!status)
        status = check_rows("out", n->out, n->count, n->out_stride, row);
    return status;
}

static void normalize_part(const kvern_recurrence_kernels *kernels, const kvern_gated_norm *n,
                           size_t row, size_t part)
{
    const size_t at = part * n->dim;
    const float *x = n->x + row * (size_t)n->x_stride + at;
    const float *z = n->z ? n->z + row * (size_t)n->z_stride + at : NULL;
    const float *weight = n->weight ? n->weight + (n->weight_per_part ? at : 0) : NULL;
    float *out = n->out + row * (size_t)n->out_stride + at;
    if (z)
        kernels->normalize_gated(n->dim, x, z, weight, n->eps, n->activation, n->gate_first != 0,
                                 out);
    else
        kernels->rms_scale(n->dim, x, n->eps, 1, weight, out);
}

kvern_status kvern_normalize_gated(uint32_t features, const kvern_gated_norm *norm)
{
    kvern_gated_norm n;
    if (!norm)
        return kvern_fail(KVERN_ERR_ARGUMENT, "norm is NULL");
    kvern_status status = kvern_sized_read(&NORM_SIZES, norm, &n);
    if (!status)
        status = check_norm(&n);
    if (status)
        return status;
    const kvern_recurrence_kernels *kernels = kvern_recurrence_kernels_of(features);
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t row = 0; row < n.count; row++) {
        for (size_t part = 0; part < n.parts; part++)
            normalize_part(kernels, &n, row, part);
    }
    kvern_fp_leave(saved);
    return KVERN_OK;
}

// ---- Gates ----

void kvern_decay_array(uint32_t features, size_t n, const float *a, const float *dt_bias,
                       float a_log, float *decay)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&a_log);
    kvern_recurrence_kernels_of(features)->decay(n, a, dt_bias, plain_exp(a_log), decay);
    kvern_fp_leave(saved);
}

void kvern_step_size_array(uint32_t features, size_t n, const float *a, const float *dt_bias,
                           float low, float high, float a_log, float *dt, float *decay)
{
    const kvern_fp_saved saved = kvern_fp_enter();
    kvern_fp_pin(&a_log);
    kvern_recurrence_kernels_of(features)->step_size(n, a, dt_bias, low, high, plain_exp(a_log), dt,
                                                     decay);
    kvern_fp_leave(saved);
}
