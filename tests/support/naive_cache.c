// SPDX-License-Identifier: MIT
#include "tests/support/naive_cache.h"

#include "tests/support/batch_view.h"
#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"
#include "tests/support/storages.h"
#include "tests/support/stored.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LANES 3 // of latents
#define MOST_DIM (KVERN_MAX_LATENT_DIM + KVERN_MAX_ROPE_DIM)

// ---- Rows ----

static size_t k_floats(const kvern_layer *layer)
{
    return layer->kv_heads * layer->k_dim;
}

static size_t v_floats(const kvern_layer *layer)
{
    return layer->kv_heads * layer->v_dim;
}

static float *resize(float *floats, size_t count)
{
    float *resized = realloc(floats, (count + 1) * sizeof *floats);
    assert_non_null(resized);
    return resized;
}

static void make_room(naive_row *row, const kvern_layer *layer, int64_t length)
{
    if (length <= row->capacity)
        return;
    row->capacity = 2 * length;
    row->k = resize(row->k, (size_t)row->capacity * k_floats(layer));
    row->v = resize(row->v, (size_t)row->capacity * v_floats(layer));
    row->index = resize(row->index, (size_t)row->capacity * layer->index_dim);
    row->coded_k = resize(row->coded_k, (size_t)row->capacity * k_floats(layer));
    row->coded_v = resize(row->coded_v, (size_t)row->capacity * v_floats(layer));
    row->group = realloc(row->group, (size_t)row->capacity * sizeof *row->group);
    assert_non_null(row->group);
}

// ---- What is kept precise (kvern_layer.residual) ----

static int64_t whole_pages(int64_t positions, int64_t rest)
{
    return (positions + rest) / KVERN_PAGE_POSITIONS * KVERN_PAGE_POSITIONS;
}

// The first positions that stay precise.
static int64_t front_of(const kvern_layer *layer)
{
    int64_t sinks = layer->precise_sinks;
    if (layer->kind != KVERN_LAYER_FULL && sinks > layer->keep)
        sinks = layer->keep;
    return whole_pages(sinks, KVERN_PAGE_POSITIONS - 1);
}

bool naive_is_split(const kvern_layer *layer)
{
    return layer->residual > 0 || front_of(layer) > 0;
}

// The end of what a query at `position` reads in the planned codecs by its position.
static int64_t coded_end(const kvern_layer *layer, int64_t position)
{
    const int64_t behind = position + 1 - layer->residual;
    return behind > front_of(layer) ? whole_pages(behind, 0) : front_of(layer);
}

static bool has_started(const naive_row *row, const kvern_layer *layer)
{
    return layer->start == KVERN_NO_START || row->converted;
}

// Whether a query at `position` reads position p so.
static bool reads_coded(const naive_row *row, const kvern_layer *layer, int64_t position, int64_t p)
{
    if (!naive_is_split(layer) || !has_started(row, layer) || p < front_of(layer))
        return false;
    if (row->block && position >= row->length - row->block) // in the form that there is
        position = row->length - row->block - 1;
    return p < row->coded || p < coded_end(layer, position);
}

// The least length at which the last position finds all it saw.
static int64_t least_length(const naive_row *row, const kvern_layer *layer)
{
    int64_t length = row->length;
    if (row->held == 0)
        return 0;
    while (layer_first_seen(layer, length - 1) >= row->held)
        length--;
    return length + 1;
}

int64_t naive_row_least_donor(const naive_row *row, const kvern_layer *layer)
{
    const int64_t least = least_length(row, layer) - (row->held > 0);
    const int64_t precise = row->coded ? row->coded + layer->residual - 1 : 0;
    return least > precise ? least : precise;
}

// The first position of a query's group, or its own.
static int64_t first_of_group(const naive_row *row, int64_t query)
{
    int64_t first = query;
    for (int64_t p = query; p-- > 0 && row->group[query];) {
        if (row->group[p] == row->group[query])
            first = p;
    }
    return first;
}

bool naive_row_can_read(const naive_row *row, const kvern_layer *layer, int64_t base)
{
    bool can = base == row->length || base >= naive_row_least_donor(row, layer);
    for (int64_t q = base; row->groups && row->held && q < row->length && can; q++)
        can = !row->group[q] || first_of_group(row, q) >= row->held;
    return can;
}

int64_t naive_row_first_seen(const naive_row *row, const kvern_layer *layer, int64_t query)
{
    const int64_t recent = layer_first_seen(layer, query);
    const int64_t first = row->group[query] == row->flagged ? query : first_of_group(row, query);
    return first < recent ? first : recent;
}

static bool is_latent(const kvern_layer *layer)
{
    return layer->kind == KVERN_LAYER_LATENT;
}

static void append_latent(naive_row *row, const kvern_layer *layer, const float *latent,
                          const float *index)
{
    float *to = row->k + (size_t)row->length * k_floats(layer);
    float *to_index = row->index + (size_t)row->length * layer->index_dim;
    stored_values(&layer->latent_codec, true, latent, layer->latent_dim, to);
    memcpy(row->v + (size_t)row->length * v_floats(layer), to, layer->latent_dim * sizeof *to);
    if (layer->rope_dim)
        stored_values(&layer->rope_codec, true, latent + layer->latent_dim, layer->rope_dim,
                      to + layer->latent_dim);
    if (layer->index_dim)
        stored_values(&layer->index_codec, true, index, layer->index_dim, to_index);
}

static void append_heads(naive_row *row, const kvern_layer *layer, const float *k, const float *v)
{
    float *to_k = row->k + (size_t)row->length * k_floats(layer);
    float *to_v = row->v + (size_t)row->length * v_floats(layer);
    const kvern_codec k_codec = naive_row_codec(row, layer, 0);
    const kvern_codec v_codec = naive_row_codec(row, layer, 1);
    for (size_t h = 0; h < layer->kv_heads; h++) {
        stored_values(&k_codec, true, k + h * layer->k_dim, layer->k_dim, to_k + h * layer->k_dim);
        stored_values(&v_codec, false, v + h * layer->v_dim, layer->v_dim, to_v + h * layer->v_dim);
    }
    float *coded_k = row->coded_k + (size_t)row->length * k_floats(layer);
    float *coded_v = row->coded_v + (size_t)row->length * v_floats(layer);
    for (size_t h = 0; h < layer->kv_heads && naive_is_split(layer); h++) {
        stored_values(&layer->k_codec, true, to_k + h * layer->k_dim, layer->k_dim,
                      coded_k + h * layer->k_dim);
        stored_values(&layer->v_codec, false, to_v + h * layer->v_dim, layer->v_dim,
                      coded_v + h * layer->v_dim);
    }
}

void naive_row_append(naive_row *row, const kvern_layer *layer, const float *k, const float *v,
                      const float *index)
{
    make_room(row, layer, row->length + 1);
    if (is_latent(layer))
        append_latent(row, layer, k, index);
    else
        append_heads(row, layer, k, v);
    row->group[row->length++] = 0;
}

bool naive_row_sees(const naive_row *row, const kvern_layer *layer, int64_t query, int64_t position)
{
    const int64_t base = row->length - row->block; // of the block, if there is one
    if (query >= base && position < base)
        return layer_sees(layer, base, position);
    return layer_sees(layer, query, position) ||
           (row->group[query] && row->group[query] == row->group[position]);
}

bool naive_row_may_trim(const naive_row *row, const kvern_layer *layer, int64_t length)
{
    return length == 0 || (length >= row->length - naive_row_trimmable(row, layer) &&
                           both_ways_may_cut(row->group, row->length, length));
}

kvern_codec naive_row_codec(const naive_row *row, const kvern_layer *layer, int stream)
{
    if (naive_is_split(layer) || !has_started(row, layer))
        return kvern_codec_dense(KVERN_BF16);
    return stream ? layer->v_codec : layer->k_codec;
}

static void convert(naive_row *row, const kvern_layer *layer)
{
    const size_t vectors = (size_t)row->length * layer->kv_heads;
    for (size_t i = 0; i < vectors && !naive_is_split(layer); i++) {
        float *k = row->k + i * layer->k_dim, *v = row->v + i * layer->v_dim;
        stored_values(&layer->k_codec, true, k, layer->k_dim, k);
        stored_values(&layer->v_codec, false, v, layer->v_dim, v);
    }
    row->converted = true;
    row->floor = layer->start > 0 ? row->length : 0;
}

void naive_row_settle(naive_row *row, const kvern_layer *layer, int64_t count)
{
    if (count == 0)
        return;
    if (layer->start != KVERN_NO_START && !row->converted && row->length >= layer->start &&
        row->length >= row->boundary)
        convert(row, layer);
    const int64_t last = row->length - layer->slack - 1; // of what is left after a trim
    int64_t held = last < 0 ? 0 : layer_first_seen(layer, last);
    if (naive_is_split(layer)) {
        if (!has_started(row, layer))
            return; // a window drops nothing before
        const int64_t end = coded_end(layer, row->length - 1), front = front_of(layer);
        if (end > front && end > row->coded)
            row->coded = end;
        if (held >= row->coded) // the last page stays
            held = row->coded - 1;
        if (held <= front)
            return;
        if (layer->kind == KVERN_LAYER_CHUNKED) // and of a chunk all or nothing
            held = (held + layer->chunk - 1) / layer->chunk * layer->chunk;
    }
    if (held > layer->keep && held > row->held)
        row->held = held;
}

int64_t naive_row_trimmable(const naive_row *row, const kvern_layer *layer)
{
    int64_t least = least_length(row, layer);
    least = row->coded > least ? row->coded : least;
    while (!both_ways_may_cut(row->group, row->length, least))
        least++;
    return row->length - least;
}

int64_t naive_row_min_reusable(const naive_row *row, const kvern_layer *layer)
{
    int64_t least = row->length - naive_row_trimmable(row, layer);
    if (row->coded && layer->residual && row->coded + layer->residual - 1 > least)
        least = row->coded + layer->residual - 1;
    return row->floor > least ? row->floor : least;
}

void naive_row_trim(naive_row *row, int64_t tokens)
{
    row->length -= tokens;
    if (row->length == 0)
        row->held = row->coded = 0;
}

void naive_row_reset(naive_row *row)
{
    row->length = row->held = row->floor = row->boundary = row->coded = row->groups = 0;
    row->flagged = 0;
    row->converted = false;
}

const float *naive_row_keys(const naive_row *row, const kvern_layer *layer, int64_t position,
                            int64_t p)
{
    const float *from = reads_coded(row, layer, position, p) ? row->coded_k : row->k;
    return from + (size_t)p * k_floats(layer);
}

const float *naive_row_values(const naive_row *row, const kvern_layer *layer, int64_t position,
                              int64_t p)
{
    const float *from = reads_coded(row, layer, position, p) ? row->coded_v : row->v;
    return from + (size_t)p * v_floats(layer);
}

void naive_row_copy(const naive_row *from, const kvern_layer *layer, naive_row *to)
{
    *to = *from;
    to->k = to->v = to->index = to->coded_k = to->coded_v = NULL;
    to->group = NULL;
    to->capacity = 0;
    make_room(to, layer, from->length);
    if (from->length) {
        memcpy(to->k, from->k, (size_t)from->length * k_floats(layer) * sizeof(float));
        memcpy(to->v, from->v, (size_t)from->length * v_floats(layer) * sizeof(float));
        memcpy(to->index, from->index, (size_t)from->length * layer->index_dim * sizeof(float));
        memcpy(to->coded_k, from->coded_k, (size_t)from->length * k_floats(layer) * sizeof(float));
        memcpy(to->coded_v, from->coded_v, (size_t)from->length * v_floats(layer) * sizeof(float));
        memcpy(to->group, from->group, (size_t)from->length * sizeof *to->group);
    }
}

void naive_row_free(naive_row *row)
{
    free(row->k);
    free(row->v);
    free(row->index);
    free(row->coded_k);
    free(row->coded_v);
    free(row->group);
    memset(row, 0, sizeof *row);
}

// ---- Attention, and how far the library may be from it ----
//
// u = 2^-24 is the relative error of one f32 rounding, g(n) = n u / (1 - n u) that of n of them in
// a row. For one query vector, with exact scores s_p, the largest one m, weights w_p = exp(s_p - m)
// and L = sum w_p (with the sink's):
//
//  - A score is a chain of k_dim fma of products of a query that was rounded once:
//        |s' - s| <= g(k_dim + 1) sum_d |q_d scale k_pd|
//    Affine codes add two fma per group, a sum of the query (at most 11 roundings), and the
//    rounding of the stored value that is compared with: g(k_dim + 2 groups + 13), relative to the
//    sizes of scale * code and bias instead of those of their sum. A softcap never makes
//    differences larger; its division, tanh (1.5 ulp = 3 u) and product add at most 6 u |s|. The
//    largest of these over the visible positions is E.
//  - A weight is exp(s' - m'), where m' is the largest score so far; later it is multiplied by
//    exp(m' - m'') when the maximum grows. The exponents add up to s' - m for the final m, so that
//    the roundings of the subtractions, u each of its own part, add up to at most u (m - s'). Each
//    exp has 1 ulp <= 2 u, each product 1 u: 3 u for the weight and for each growth of the maximum.
//    It grows at most once per block, 16 times in a span, once per merge of a span, and by the
//    sink. Below exp(-87) a weight becomes 0, which loses exp(-87) |v_p| / L at most. Otherwise
//    w'_p = w_p (1 + e), |e| <= e_w = exp(2 E + u D + 3 u (18 + spans)) - 1, with D the largest m -
//    s_p, at most 87: E once for the score and once for m.
//  - acc is a chain of fma over at most 1024 positions of a span, then one fma and one product per
//    merge: g(1024 + 2 spans) relative to sum w'_p |v_p|. Affine codes add a sum per run of visible
//    positions (17 runs in a span with kept positions, 16 otherwise, and 32 a block where positions
//    are flagged), the 8 roundings of that sum,
//    which outweigh the one of weight times scale, and the rounding of the stored value that is
//    compared with: g(1024 + runs + 9 + 2 spans), relative to the sizes of scale * code and bias.
//    L is a tree per block (8 roundings), 16 blocks, and the merges: g(24 + 2 spans).
//  - Where positions are kept precise there are twice as many spans at most, and the larger of the
//    bounds for both codecs holds.
//  - Rotated vectors meet in rotated space. A rotation is two transforms at most of log2(dim)
//    orthogonal steps, each of which rounds once, as do its factor and the product with it; so its
//    error has 2 (log2(dim) + 2) u of the vector's length, and that is what a number of the result
//    may have, whatever its own size. The query is rotated, and the stored value that is compared
//    with was rotated back: twice that for a score, relative to the product of both lengths; the
//    same for the result, relative to the lengths of the values. Turbo codes add one product.
//  - Latents are read as the numbers that their codecs stand for, so that all of them count as f32.
//  - The division rounds once, and the result is rounded once to its type.
//
// Together: |out' - out| <= A ((1 + e_w) (1 + g_acc) / ((1 - e_w) (1 - g_L)) (1 + u) - 1) +
// rounding, with A = sum w_p |v_p| / L, or of the sizes for affine codes.

#define U 0x1p-24

// Latents are decoded first, and read as f32; where that leaves them rotated, queries and results
// are, as with a vector of codes that have no group.
static kvern_codec latent_codec_read(const kvern_layer *layer, int stream)
{
    const bool rotated =
        is_rotated(&layer->latent_codec) || (stream == 0 && is_rotated(&layer->rope_codec));
    return rotated ? kvern_codec_turbo(1) : kvern_codec_dense(KVERN_F32);
}

// The codec whose arithmetic a stream is read by at position p.
static kvern_codec codec_read(const naive_row *row, const kvern_layer *layer, int stream,
                              int64_t position, int64_t p)
{
    if (is_latent(layer))
        return latent_codec_read(layer, stream);
    if (reads_coded(row, layer, position, p))
        return stream ? layer->v_codec : layer->k_codec;
    return naive_row_codec(row, layer, stream);
}

// What is read there.
static const float *k_read(const naive_row *row, const kvern_layer *layer, int64_t position,
                           int64_t p)
{
    const float *k = reads_coded(row, layer, position, p) ? row->coded_k : row->k;
    return k + (size_t)p * k_floats(layer);
}

static const float *v_read(const naive_row *row, const kvern_layer *layer, int64_t position,
                           int64_t p)
{
    const float *v = reads_coded(row, layer, position, p) ? row->coded_v : row->v;
    return v + (size_t)p * v_floats(layer);
}

static double g(double n)
{
    return n * U / (1 - n * U);
}

// Roundings on the way of a vector that is rotated and back.
static double rotations(const kvern_codec *codec, size_t dim)
{
    return is_rotated(codec) ? 4 * (log2((double)dim) + 2) : 0;
}

// The exact score of a position, and what its error may be.
static double score(const float *q, float scale, const kvern_codec *codec, const float *k,
                    size_t dim, float softcap, double *error)
{
    double s = 0, size = 0, square = 0, sizes[MOST_DIM];
    stored_sizes(codec, k, dim, sizes);
    for (size_t d = 0; d < dim; d++) {
        const double factor = (double)q[d] * (double)scale;
        s += factor * (double)k[d];
        size += fabs(factor) * sizes[d];
        square += factor * factor;
    }
    if (is_rotated(codec))
        size = sqrt(square) * sizes[0];
    *error = g((double)dim + (codec->group ? 2 * (double)dim / codec->group + 13 : 1) +
               rotations(codec, dim)) *
             size;
    if (softcap > 0) {
        s = (double)softcap * tanh(s / (double)softcap);
        *error += 6 * U * fabs(s);
    }
    return s;
}

typedef struct scored {
    double *s;      // per visible position
    double largest; // of them and the sink
    double error;   // E
    double sum;     // L
    double deepest; // D
} scored;

static scored score_all(const naive_row *row, const kvern_layer *layer, const naive_query *query)
{
    scored all = {.largest = query->sink ? (double)*query->sink : -INFINITY};
    all.s = malloc((size_t)row->length * sizeof *all.s);
    assert_non_null(all.s);
    for (int64_t p = 0; p < row->length; p++) {
        if (!naive_row_sees(row, layer, query->position, p))
            continue;
        double error;
        const kvern_codec codec = codec_read(row, layer, 0, query->position, p);
        const float *k = k_read(row, layer, query->position, p) + query->kv_head * layer->k_dim;
        all.s[p] = score(query->q, query->scale, &codec, k, layer->k_dim, query->softcap, &error);
        all.largest = fmax(all.largest, all.s[p]);
        all.error = fmax(all.error, error);
    }
    for (int64_t p = 0; p < row->length; p++) {
        if (!naive_row_sees(row, layer, query->position, p))
            continue;
        all.sum += exp(all.s[p] - all.largest);
        all.deepest = fmax(all.deepest, fmin(all.largest - all.s[p], 87));
    }
    if (query->sink)
        all.sum += exp((double)*query->sink - all.largest);
    return all;
}

// The factor of A above.
static double relative_bound(const scored *all, const kvern_layer *layer, const naive_row *row)
{
    const kvern_codec *codec = &layer->v_codec;
    const double runs = row->groups ? 32 * 16 : 17;
    const double codes = codec->group ? runs + 9 : is_rotated(codec) ? 1 : 0;
    const double chain = 1024 + codes + rotations(codec, layer->v_dim);
    const double spans = (naive_is_split(layer) ? 2 : 1) * (1 + (double)((row->length - 1) / 1024));
    const double weight = expm1(2 * all->error + U * all->deepest + 3 * U * (18 + spans));
    if (weight >= 1) // scores so large that rounding decides: nothing can be said
        return INFINITY;
    return (1 + weight) * (1 + g(chain + 2 * spans)) / ((1 - weight) * (1 - g(24 + 2 * spans))) *
               (1 + U) -
           1;
}

void naive_row_attend(const naive_row *row, const kvern_layer *layer, const naive_query *query,
                      double *out, double *bound)
{
    scored all = score_all(row, layer, query);
    const double relative = relative_bound(&all, layer, row);
    double size[MOST_DIM] = {0}, lost[MOST_DIM] = {0};
    memset(out, 0, layer->v_dim * sizeof *out);
    for (int64_t p = 0; p < row->length; p++) {
        if (!naive_row_sees(row, layer, query->position, p))
            continue;
        const kvern_codec codec = codec_read(row, layer, 1, query->position, p);
        const float *v = v_read(row, layer, query->position, p) + query->kv_head * layer->v_dim;
        const double weight = exp(all.s[p] - all.largest);
        double sizes[MOST_DIM];
        stored_sizes(&codec, v, layer->v_dim, sizes);
        for (size_t d = 0; d < layer->v_dim; d++) {
            out[d] += weight * (double)v[d];
            size[d] += weight * sizes[d];
            lost[d] += exp(-87) * sizes[d]; // weights that are 0 for the library
        }
    }
    for (size_t d = 0; d < layer->v_dim; d++) {
        out[d] /= all.sum;
        bound[d] = size[d] / all.sum * relative + lost[d] / all.sum;
        bound[d] += rounding_error(query->out_type, fabs(out[d]) + bound[d]);
    }
    free(all.s);
}

// ---- Checking a read ----

static kvern_type random_type(test_random *random)
{
    return (kvern_type)test_random_below(random, 3);
}

static size_t random_group(test_random *random)
{
    static const size_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 5, 40};
    return groups[test_random_below(random, sizeof groups / sizeof groups[0])];
}

static float random_of(test_random *random, const float *choices, size_t count)
{
    return choices[test_random_below(random, count)];
}

// One attend: its options, its tensors, and the queries of each row.
typedef struct attempt {
    const kvern_read *read;
    const kvern_layer *layer;
    size_t rows;
    int64_t *counts, *first;
    kvern_queries queries;
    batch_view q, out;
    float *sinks;
} attempt;

// Multiply-adds that the library may spend on one attend: plain kernels take a few ns for each.
#define MOST_ATTEND_WORK 1e7

static double attend_work(const attempt *a, const naive_row *rows)
{
    double work = 0;
    for (size_t r = 0; r < a->rows; r++)
        work += (double)a->counts[r] * (double)a->queries.query_heads * (double)rows[r].length *
                (double)(a->layer->k_dim + a->layer->v_dim);
    return work;
}

// All queries of the append, or some of each row, from a random one on.
static void choose_counts(test_random *random, attempt *a, const naive_row *rows,
                          const int64_t *base)
{
    for (size_t r = 0; r < a->rows; r++)
        a->counts[r] = rows[r].length - base[r];
    const double share = MOST_ATTEND_WORK / (attend_work(a, rows) + 1);
    const bool all = share >= 1 && test_random_below(random, 2);
    for (size_t r = 0; r < a->rows && !all; r++) {
        const uint64_t appended = (uint64_t)a->counts[r];
        const uint64_t most = share < 1 ? 1 + (uint64_t)((double)appended * share) : appended;
        a->first[r] = (int64_t)test_random_below(random, appended + 1);
        const uint64_t left = appended - (uint64_t)a->first[r];
        a->counts[r] = (int64_t)test_random_below(random, (left < most ? left : most) + 1);
    }
    a->queries.counts = all ? NULL : a->counts;
    a->queries.first = all ? NULL : a->first;
}

static void choose_options(test_random *random, attempt *a)
{
    static const float caps[] = {0, 0, 0, 1, 30}, sinks[] = {0, 5, -20, 0.5f};
    a->queries.softcap = random_of(random, caps, 5);
    if (test_random_below(random, 2))
        a->queries.scale = test_random_signed(random);
    if (test_random_below(random, 3) == 0) {
        for (size_t h = 0; h < a->queries.query_heads; h++)
            a->sinks[h] = random_of(random, sinks, 4);
        a->queries.sinks = a->sinks;
    }
}

static void make_tensors(test_random *random, attempt *a)
{
    static const float sizes[] = {1, 1, 8, 0.01f};
    kvern_queries *q = &a->queries;
    q->q_type = random_type(random);
    q->out_type = random_type(random);
    a->q =
        batch_view_create(random, q->q_type, a->rows, a->counts, q->query_heads, a->layer->k_dim);
    a->out =
        batch_view_create(random, q->out_type, a->rows, a->counts, q->query_heads, a->layer->v_dim);
    const float size = random_of(random, sizes, 4);
    float values[MOST_DIM];
    for (size_t r = 0; r < a->rows; r++) {
        for (int64_t i = 0; i < a->counts[r]; i++) {
            for (size_t h = 0; h < q->query_heads; h++) {
                for (size_t d = 0; d < a->layer->k_dim; d++)
                    values[d] = size * test_random_signed(random);
                batch_view_set(&a->q, r, i, h, values);
            }
        }
    }
    q->q = a->q.data;
    q->out = a->out.data;
    q->q_token_stride = a->q.token_stride;
    q->q_head_stride = a->q.head_stride;
    q->out_token_stride = a->out.token_stride;
    q->out_head_stride = a->out.head_stride;
    q->q_start = a->q.packed && test_random_below(random, 2) ? NULL : a->q.start;
    q->out_start = a->out.packed && test_random_below(random, 2) ? NULL : a->out.start;
}

static void *new_numbers(size_t count, size_t size)
{
    void *numbers = calloc(count + 1, size);
    assert_non_null(numbers);
    return numbers;
}

static attempt make_attempt(test_random *random, const kvern_read *read, const kvern_layer *layer,
                            const naive_row *rows, const int64_t *base, size_t row_count)
{
    attempt a = {.read = read, .layer = layer, .rows = row_count};
    const size_t heads = layer->kv_heads * random_group(random);
    a.counts = new_numbers(row_count, sizeof *a.counts);
    a.first = new_numbers(row_count, sizeof *a.first);
    a.sinks = new_numbers(heads, sizeof *a.sinks);
    a.queries = kvern_queries_default(layer, heads);
    choose_counts(random, &a, rows, base);
    choose_options(random, &a);
    make_tensors(random, &a);
    return a;
}

static void free_attempt(attempt *a)
{
    batch_view_destroy(&a->q);
    batch_view_destroy(&a->out);
    free(a->counts);
    free(a->first);
    free(a->sinks);
}

static void check_vector(const attempt *a, const naive_row *row, size_t r, int64_t i, size_t head,
                         int64_t position)
{
    float q[MOST_DIM], got[MOST_DIM];
    double wanted[MOST_DIM], bound[MOST_DIM];
    batch_view_get(&a->q, r, i, head, q);
    batch_view_get(&a->out, r, i, head, got);
    const naive_query query = {
        .position = position,
        .kv_head = head / (a->queries.query_heads / a->layer->kv_heads),
        .q = q,
        .scale = a->queries.scale,
        .softcap = a->queries.softcap,
        .sink = a->queries.sinks ? &a->queries.sinks[head] : NULL,
        .out_type = a->queries.out_type,
    };
    naive_row_attend(row, a->layer, &query, wanted, bound);
    for (size_t d = 0; d < a->layer->v_dim; d++) {
        if (!(fabs((double)got[d] - wanted[d]) <= bound[d]))
            fail_msg("row %zu, position %lld, head %zu of %zu, dim %zu: %.9g, not %.9g +- %.3g", r,
                     (long long)position, head, a->queries.query_heads, d, (double)got[d],
                     wanted[d], bound[d]);
    }
}

// Multiply-adds that one check of a read may take: results are sampled above it.
#define MOST_WORK 2e6

static void check_results(test_random *random, const attempt *a, const naive_row *rows,
                          const int64_t *base)
{
    double work = 0;
    for (size_t r = 0; r < a->rows; r++)
        work += (double)a->counts[r] * (double)a->queries.query_heads * (double)rows[r].length *
                (double)(a->layer->k_dim + 4 * a->layer->v_dim);
    const uint64_t every = 1 + (uint64_t)(work / MOST_WORK);
    for (size_t r = 0; r < a->rows; r++) {
        for (int64_t i = 0; i < a->counts[r]; i++) {
            for (size_t h = 0; h < a->queries.query_heads; h++) {
                if (test_random_below(random, every) == 0)
                    check_vector(a, &rows[r], r, i, h, base[r] + a->first[r] + i);
            }
        }
    }
}

void naive_check_read(test_random *random, const kvern_read *read, const kvern_layer *layer,
                      const naive_row *rows, const int64_t *base, size_t row_count)
{
    assert_int_equal(kvern_read_rows(read), row_count);
    for (size_t r = 0; r < row_count; r++)
        assert_int_equal(kvern_read_length(read, r), rows[r].length);
    attempt a = make_attempt(random, read, layer, rows, base, row_count);
    assert_ok(kvern_read_attend(read, &a.queries));
    check_results(random, &a, rows, base);
    batch_view_expect_rest_untouched(&a.out);
    free_attempt(&a);
}

static void check_latents(test_random *random, const kvern_cache *cache, size_t index,
                          const naive_row *row)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    const size_t dims = k_floats(layer) + layer->index_dim;
    const int64_t first = (int64_t)test_random_below(random, (uint64_t)row->length + 1);
    const int64_t most = row->length - first < 200 ? row->length - first : 200;
    float *x = new_numbers((size_t)most * dims, sizeof *x), *one = new_numbers(dims, sizeof *one);
    float *rope = x + (size_t)most * layer->latent_dim;
    float *keys = x + (size_t)most * k_floats(layer);
    assert_ok(kvern_cache_export_latent(cache, index, first, most, x, layer->rope_dim ? rope : NULL,
                                        layer->index_dim ? keys : NULL));
    for (size_t i = 0; i < (size_t)most; i++) {
        const float *stored = row->k + ((size_t)first + i) * k_floats(layer);
        memcpy(one, x + i * layer->latent_dim, layer->latent_dim * sizeof *one);
        memcpy(one + layer->latent_dim, rope + i * layer->rope_dim, layer->rope_dim * sizeof *one);
        check_same_floats(stored, one, k_floats(layer), "stored latents");
    }
    if (layer->index_dim && most > 0)
        check_same_floats(row->index + (size_t)first * layer->index_dim, keys,
                          (size_t)most * layer->index_dim, "stored index keys");
    free(one);
    free(x);
}

void naive_check_stored(test_random *random, const kvern_cache *cache, size_t index,
                        const naive_row *row)
{
    const kvern_layer *layer = kvern_cache_layer(cache);
    assert_int_equal(kvern_cache_length(cache, index), row->length);
    assert_int_equal(kvern_cache_trimmable(cache, index), naive_row_trimmable(row, layer));
    assert_int_equal(kvern_cache_min_reusable(cache, index), naive_row_min_reusable(row, layer));
    const bool planned = layer->start == KVERN_NO_START || row->converted;
    assert_int_equal(kvern_cache_converted(cache, index), planned);
    const int64_t until = layer->start > row->boundary ? layer->start : row->boundary;
    if (!planned && row->length < until)
        assert_int_equal(kvern_cache_max_append(cache, index), until - row->length);
    if (is_latent(layer)) {
        check_latents(random, cache, index, row);
        return;
    }
    if (row->held > layer->keep) {
        float *none = NULL;
        assert_status(KVERN_ERR_RANGE,
                      kvern_cache_export(cache, index, row->held - 1, 1, none, none));
    }
    const int64_t from = test_random_below(random, 4) ? row->held : 0;
    const int64_t to = row->held && from == 0 ? layer->keep : row->length;
    const int64_t first = from + (int64_t)test_random_below(random, (uint64_t)(to - from) + 1);
    const int64_t most = to - first < 200 ? to - first : 200;
    float *k = new_numbers((size_t)most * k_floats(layer), sizeof *k);
    float *v = new_numbers((size_t)most * v_floats(layer), sizeof *v);
    assert_ok(kvern_cache_export(cache, index, first, most, k, v));
    for (size_t i = 0; i < (size_t)most; i++) { // as a query in front of all that is coded
        check_same_floats(k_read(row, layer, -1, first + (int64_t)i), k + i * k_floats(layer),
                          k_floats(layer), "stored keys");
        check_same_floats(v_read(row, layer, -1, first + (int64_t)i), v + i * v_floats(layer),
                          v_floats(layer), "stored values");
    }
    free(k);
    free(v);
}

// ---- Appending ----

// Both in one array, as the naive row has them.
static void append_latents(test_random *random, const kvern_layer *layer, naive_row *row, size_t r,
                           int64_t count, batch_view *views)
{
    const size_t latent = layer->latent_dim, rope = layer->rope_dim;
    float *x = new_numbers(latent + rope + layer->index_dim, sizeof *x);
    float *const lanes[] = {x, x + latent, x + latent + rope};
    for (int64_t i = 0; i < count; i++) {
        for (size_t j = 0; j < latent + rope + layer->index_dim; j++)
            x[j] = test_random_below(random, 64) ? test_random_signed(random)
                                                 : 10 * test_random_signed(random);
        for (size_t lane = 0; lane < LANES; lane++) {
            if (!views[lane].data)
                continue;
            batch_view_set(&views[lane], r, i, 0, lanes[lane]);
            batch_view_get(&views[lane], r, i, 0, lanes[lane]);
        }
        naive_row_append(row, layer, x, NULL, lanes[2]);
    }
    free(x);
}

static void append_row(test_random *random, const kvern_layer *layer, naive_row *row, size_t r,
                       int64_t count, batch_view *views)
{
    if (is_latent(layer)) {
        append_latents(random, layer, row, r, count, views);
        return;
    }
    float *k = new_numbers(k_floats(layer), sizeof *k),
          *v = new_numbers(v_floats(layer), sizeof *v);
    for (int64_t i = 0; i < count; i++) {
        for (size_t j = 0; j < k_floats(layer); j++)
            k[j] = 2 * test_random_signed(random);
        for (size_t j = 0; j < v_floats(layer); j++)
            v[j] = test_random_below(random, 64) ? test_random_signed(random)
                                                 : 100 * test_random_signed(random);
        for (size_t h = 0; h < layer->kv_heads; h++) {
            batch_view_set(&views[0], r, i, h, k + h * layer->k_dim);
            batch_view_set(&views[1], r, i, h, v + h * layer->v_dim);
            batch_view_get(&views[0], r, i, h, k + h * layer->k_dim);
            batch_view_get(&views[1], r, i, h, v + h * layer->v_dim);
        }
        naive_row_append(row, layer, k, v, NULL);
    }
    free(k);
    free(v);
}

static void view_latents(test_random *random, const kvern_layer *layer, size_t row_count,
                         naive_tokens *made)
{
    kvern_latent_tokens *t = &made->latents;
    const size_t dims[LANES] = {layer->latent_dim, layer->rope_dim, layer->index_dim};
    const void **const data[LANES] = {&t->latent, &t->rope, &t->index};
    const int64_t **const starts[LANES] = {&t->latent_start, &t->rope_start, &t->index_start};
    int64_t *const strides[LANES] = {&t->latent_token_stride, &t->rope_token_stride,
                                     &t->index_token_stride};
    kvern_type *const types[LANES] = {&t->latent_type, &t->rope_type, &t->index_type};
    *t = kvern_latent_tokens_default(layer);
    t->counts = made->counts;
    t->rope_counts = layer->rope_dim && test_random_below(random, 2) ? made->counts : NULL;
    for (size_t lane = 0; lane < LANES; lane++) {
        if (!dims[lane])
            continue;
        batch_view *view = &made->views[lane];
        *types[lane] = random_type(random);
        *view = batch_view_create(random, *types[lane], row_count, made->counts, 1, dims[lane]);
        *data[lane] = view->data;
        *strides[lane] = view->token_stride;
        *starts[lane] = view->packed && test_random_below(random, 2) ? NULL : view->start;
    }
}

naive_tokens naive_append_both_ways(test_random *random, const kvern_layer *layer, naive_row *rows,
                                    size_t row_count, kvern_phase phase, const int64_t *counts)
{
    naive_tokens made = naive_append(random, layer, rows, row_count, counts);
    int64_t **groups = new_numbers(row_count, sizeof *groups);
    for (size_t r = 0; r < row_count; r++)
        groups[r] = counts[r] ? rows[r].group + rows[r].length - counts[r] : NULL;
    for (size_t r = 0; r < row_count; r++)
        both_ways_choose(random, phase, counts[r], groups[r]);
    made.both = both_ways_of(phase, row_count, counts, groups, &made.tokens);
    for (size_t r = 0; r < row_count; r++) {
        int64_t last = rows[r].groups;
        for (int64_t i = 0; i < counts[r]; i++) {
            if (groups[r][i])
                groups[r][i] += rows[r].groups;
            last = groups[r][i] > last ? groups[r][i] : last;
        }
        if (phase == KVERN_PHASE_BIDIRECTIONAL && last > rows[r].groups)
            rows[r].flagged = last;
        rows[r].groups = last;
    }
    free(groups);
    return made;
}

naive_tokens naive_append(test_random *random, const kvern_layer *layer, naive_row *rows,
                          size_t row_count, const int64_t *counts)
{
    naive_tokens made = {.tokens = kvern_tokens_default(layer), .is_latent = is_latent(layer)};
    kvern_tokens *t = &made.tokens;
    made.views = new_numbers(LANES, sizeof *made.views);
    made.counts = new_numbers(row_count, sizeof *made.counts);
    memcpy(made.counts, counts, row_count * sizeof *counts);
    if (made.is_latent) {
        view_latents(random, layer, row_count, &made);
        for (size_t r = 0; r < row_count; r++)
            append_row(random, layer, &rows[r], r, counts[r], made.views);
        return made;
    }
    t->k_type = random_type(random);
    t->v_type = random_type(random);
    batch_view *k = &made.views[0], *v = &made.views[1];
    *k = batch_view_create(random, t->k_type, row_count, counts, layer->kv_heads, layer->k_dim);
    *v = batch_view_create(random, t->v_type, row_count, counts, layer->kv_heads, layer->v_dim);
    for (size_t r = 0; r < row_count; r++)
        append_row(random, layer, &rows[r], r, counts[r], made.views);
    t->counts = made.counts;
    t->k = k->data;
    t->v = v->data;
    t->k_token_stride = k->token_stride;
    t->k_head_stride = k->head_stride;
    t->v_token_stride = v->token_stride;
    t->v_head_stride = v->head_stride;
    t->k_start = k->packed && test_random_below(random, 2) ? NULL : k->start;
    t->v_start = v->packed && test_random_below(random, 2) ? NULL : v->start;
    return made;
}

void naive_tokens_free(naive_tokens *tokens)
{
    for (size_t lane = 0; lane < LANES; lane++)
        batch_view_destroy(&tokens->views[lane]);
    free(tokens->views);
    free(tokens->counts);
    both_ways_free(&tokens->both);
    memset(tokens, 0, sizeof *tokens);
}

kvern_status naive_cache_append(kvern_cache *cache, kvern_phase phase, const naive_tokens *tokens,
                                kvern_read **read)
{
    return tokens->is_latent ? kvern_cache_append_latent(cache, phase, &tokens->latents, read)
                             : kvern_cache_append(cache, phase, &tokens->tokens, read);
}

kvern_status naive_step_append(kvern_state *state, size_t layer, const naive_tokens *tokens,
                               kvern_read **read)
{
    return tokens->is_latent ? kvern_step_append_latent(state, layer, &tokens->latents, read)
                             : kvern_step_append(state, layer, &tokens->tokens, read);
}

void naive_check_appends(kvern_layer layer, const int64_t *counts, size_t appends)
{
    test_random random = test_random_seed(check_seed());
    bed *b = bed_create(layer, 1);
    naive_row row = {0};
    for (size_t i = 0; i < appends; i++) {
        const int64_t base = row.length;
        kvern_read *read;
        naive_tokens tokens = naive_append(&random, &layer, &row, 1, &counts[i]);
        assert_ok(naive_cache_append(b->cache, KVERN_PHASE_WINDOW, &tokens, &read));
        naive_check_read(&random, read, &layer, &row, &base, 1);
        kvern_read_release(read);
        naive_tokens_free(&tokens);
        naive_row_settle(&row, &layer, counts[i]);
    }
    naive_check_stored(&random, b->cache, 0, &row);
    naive_row_free(&row);
    bed_destroy(b);
}

// ---- Reads that are kept ----

void naive_read_keep(naive_read *kept, kvern_read *read, const kvern_layer *layer,
                     const naive_row *rows, const int64_t *base, size_t row_count)
{
    assert_true(row_count <= NAIVE_READ_ROWS);
    naive_read_drop(kept);
    *kept = (naive_read){.read = read, .layer = layer, .row_count = row_count};
    for (size_t r = 0; r < row_count; r++) {
        naive_row_copy(&rows[r], layer, &kept->rows[r]);
        kept->base[r] = base[r];
    }
}

void naive_read_drop(naive_read *kept)
{
    kvern_read_release(kept->read);
    for (size_t r = 0; r < kept->row_count; r++)
        naive_row_free(&kept->rows[r]);
    memset(kept, 0, sizeof *kept);
}

void naive_read_check(test_random *random, naive_read *kept)
{
    if (!kept->read)
        return;
    naive_check_read(random, kept->read, kept->layer, kept->rows, kept->base, kept->row_count);
    if (test_random_below(random, 4) == 0)
        naive_read_drop(kept);
}
