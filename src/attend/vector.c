// SPDX-License-Identifier: MIT
#include "src/attend/vector.h"

#include "src/math/element.h"
#include "src/math/exp.h"

#include <math.h>
#include <string.h>

void kvern_vector_load(const kvern_softmax_kernels *kernels, const kvern_queries *queries,
                       int64_t at, size_t dim, float *to)
{
    const float *from = (const float *)queries->q + at;
    if (queries->q_type != KVERN_F32) {
        for (size_t d = 0; d < dim; d++)
            to[d] = kvern_load_element(queries->q_type, queries->q, at + (int64_t)d);
        from = to;
    }
    kernels->scale(dim, from, queries->scale, to);
}

// A sink is one more score whose value vector is zero. Returns the new sum.
static float add_sink(float sink, float m, float l, float *acc, size_t dim)
{
    const float larger = sink > m ? sink : m, base = larger == -INFINITY ? 0 : larger;
    const float c = plain_exp(m - base);
    for (size_t d = 0; d < dim; d++)
        acc[d] *= c;
    return fmaf(l, c, plain_exp(sink - base));
}

// Writes acc / l, or zeros for a vector that saw nothing.
void kvern_vector_finish(const kvern_softmax_kernels *kernels, const kvern_stream_plan *values,
                         const kvern_queries *queries, size_t query_head, int64_t at, size_t dim,
                         float m, float l, float *acc)
{
    if (queries->sinks)
        l = add_sink(queries->sinks[query_head], m, l, acc, dim);
    float *to = queries->out_type == KVERN_F32 ? (float *)queries->out + at : acc;
    if (l == 0)
        memset(to, 0, dim * sizeof *to);
    else
        kernels->divide(dim, acc, l, to);
    if (l != 0 && values && values->kernels.finish)
        values->kernels.finish(&values->codec, dim, to);
    for (size_t d = 0; queries->out_type != KVERN_F32 && d < dim; d++)
        kvern_store_element(queries->out_type, queries->out, at + (int64_t)d, to[d]);
}
