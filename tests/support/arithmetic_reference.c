// SPDX-License-Identifier: MIT
#include "tests/support/arithmetic_reference.h"

#include <kvern/composition.h>
#include <kvern/math.h>

#include <math.h>
#include <stdbool.h>

#define BLOCK 64
#define SPAN 1024

// The running result of step 4.
typedef struct triple {
    float m, l;
    float acc[KVERN_MAX_HEAD_DIM];
} triple;

static float base_of(float m)
{
    return m == -INFINITY ? 0 : m;
}

static float tree(const float *t)
{
    float r[8];
    for (int i = 0; i < 8; i++)
        r[i] = t[i] + t[i + 8];
    for (int i = 0; i < 4; i++)
        r[i] = r[i] + r[i + 4];
    for (int i = 0; i < 2; i++)
        r[i] = r[i] + r[i + 2];
    return r[0] + r[1];
}

// Step 2 for keys in codes, of one group.
static float add_group(const reference_stream *k, const float *q, int64_t p, int64_t g, float s)
{
    float sums[16], t = 0;
    for (int64_t i = 0; i < k->group; i++)
        sums[i % 16] = i < 16 ? q[i] : sums[i % 16] + q[i];
    for (int64_t i = 0; i < k->group; i++)
        t = fmaf(q[i], k->x[p * k->stride + g * k->group + i], t);
    s = fmaf(k->scales[p * k->side_stride + g], t, s);
    return fmaf(k->biases[p * k->side_stride + g], tree(sums), s);
}

// Steps 1 to 3.
static float score(const reference_stream *k, const reference_query *query, int64_t p)
{
    float scaled[KVERN_MAX_HEAD_DIM], s = 0;
    for (int64_t d = 0; d < k->dim; d++)
        scaled[d] = query->q[d] * query->scale;
    for (int64_t g = 0; k->group && g < k->dim / k->group; g++)
        s = add_group(k, scaled + g * k->group, p, g, s);
    for (int64_t d = 0; !k->group && d < k->dim; d++)
        s = fmaf(scaled[d], k->x[p * k->stride + d], s);
    return query->softcap > 0 ? query->softcap * kvern_tanh(s / query->softcap) : s;
}

static bool sees(const reference_query *query, int64_t p)
{
    const bool before = query->block && p < query->block;
    const int64_t position = before ? query->block : query->position;
    if (query->groups && (p >= query->length ||
                          (query->groups[p] && query->groups[p] == query->groups[query->position])))
        return p < query->length;
    if (query->chunk && p / query->chunk != position / query->chunk)
        return false;
    return p <= position && (!query->recent || p < query->keep || p > position - query->recent);
}

static bool sees_any(const reference_query *query, int64_t begin, int64_t count)
{
    for (int64_t p = begin; p < begin + count; p++) {
        if (sees(query, p))
            return true;
    }
    return false;
}

// The end of step 4 for values in codes: the visible positions [begin, end) of a block, which
// follow each other.
static void add_run(const reference_stream *v, const float *w, int64_t begin, int64_t end,
                    float *acc)
{
    for (int64_t d = 0; d < v->dim; d++) {
        const int64_t g = d / v->group;
        float lanes[16] = {0};
        for (int64_t p = begin; p < end; p++)
            lanes[p % 16] = fmaf(w[p % BLOCK], v->biases[p * v->side_stride + g], lanes[p % 16]);
        for (int64_t p = begin; p < end; p++)
            acc[d] = fmaf(w[p % BLOCK] * v->scales[p * v->side_stride + g], v->x[p * v->stride + d],
                          acc[d]);
        acc[d] = acc[d] + tree(lanes);
    }
}

static void add_values(const reference_stream *v, const reference_query *query, const float *w,
                       int64_t begin, float *acc)
{
    for (int64_t p = begin, end; p < begin + BLOCK; p = end) {
        end = p + 1;
        if (!sees(query, p))
            continue;
        while (v->group && end < begin + BLOCK && sees(query, end))
            end++;
        if (v->group)
            add_run(v, w, p, end, acc);
        for (int64_t d = 0; !v->group && d < v->dim; d++)
            acc[d] = fmaf(w[p - begin], v->x[p * v->stride + d], acc[d]);
    }
}

// Step 4 for the block that starts at position `begin`.
static void add_block(const reference_head *head, const reference_query *query, int64_t begin,
                      triple *t)
{
    float s[BLOCK], w[BLOCK], lanes[16], larger = t->m;
    for (int64_t i = 0; i < BLOCK; i++) {
        if (!sees(query, begin + i))
            continue;
        s[i] = score(&head->k, query, begin + i);
        if (s[i] > larger)
            larger = s[i];
    }
    if (larger > t->m) {
        const float c = kvern_exp(t->m - larger);
        t->l *= c;
        for (int64_t d = 0; d < head->v.dim; d++)
            t->acc[d] *= c;
        t->m = larger;
    }
    for (int64_t i = 0; i < BLOCK; i++)
        w[i] = sees(query, begin + i) ? kvern_exp(s[i] - base_of(t->m)) : 0;
    for (int i = 0; i < 16; i++)
        lanes[i] = ((w[i] + w[i + 16]) + w[i + 32]) + w[i + 48];
    t->l += tree(lanes);
    add_values(&head->v, query, w, begin, t->acc);
}

static triple reduce_span(const reference_head *head, const reference_query *query, int64_t begin)
{
    triple t = {.m = -INFINITY};
    for (int64_t b = begin; b < begin + SPAN; b += BLOCK) {
        if (sees_any(query, b, BLOCK))
            add_block(head, query, b, &t);
    }
    return t;
}

// Step 5.
static void merge(int64_t v_dim, triple *total, const triple *part)
{
    const float m = part->m > total->m ? part->m : total->m;
    const float a = kvern_exp(total->m - base_of(m)), b = kvern_exp(part->m - base_of(m));
    total->l = fmaf(part->l, b, total->l * a);
    for (int64_t d = 0; d < v_dim; d++)
        total->acc[d] = fmaf(part->acc[d], b, total->acc[d] * a);
    total->m = m;
}

// Step 6.
static void add_sink(int64_t v_dim, triple *total, float z)
{
    const float m = z > total->m ? z : total->m;
    const float c = kvern_exp(total->m - base_of(m));
    total->l = fmaf(total->l, c, kvern_exp(z - base_of(m)));
    for (int64_t d = 0; d < v_dim; d++)
        total->acc[d] *= c;
}

void reference_attend(const reference_head *head, const reference_query *query, float *out)
{
    triple total = {.m = -INFINITY};
    bool begun = false;
    const int64_t last = query->groups ? query->length - 1 : query->position;
    for (int64_t span = 0; span <= last; span += SPAN) {
        if (!sees_any(query, span, SPAN))
            continue;
        const triple part = reduce_span(head, query, span);
        if (begun)
            merge(head->v.dim, &total, &part);
        else
            total = part;
        begun = true;
    }
    if (query->sink)
        add_sink(head->v.dim, &total, *query->sink);
    for (int64_t d = 0; d < head->v.dim; d++)
        out[d] = total.l == 0 ? 0 : total.acc[d] / total.l;
}
