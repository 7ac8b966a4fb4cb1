// SPDX-License-Identifier: MIT
// One layer as a cache of mlx-lm.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/file/mlx/mlx_export.h"
#include "src/file/padded_planes.h"
#include "src/state/state.h"

#include <inttypes.h>

// ---- Forms ----

static kvern_status refuse(const kvern_cache *cache, const char *why)
{
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu, %s: mlx-lm has no cache %s", cache->layer,
                      kvern_cache_signature(cache), why);
}

// Whether all rows that are not empty are in the planned codecs, or none.
static bool all_converted(const kvern_mlx_exporter *x, const kvern_cache *cache, bool converted)
{
    bool all = true;
    for (size_t r = 0; r < x->rows; r++)
        all = all && (x->lengths[r] == 0 || kvern_cache_converted(cache, r) == converted);
    return all;
}

// The numbers of a stream as they are stored; false: they are stored otherwise.
static bool stored_type(const kvern_mlx_exporter *x, const kvern_cache *cache,
                        const kvern_stream_plan *stream, kvern_type *type)
{
    const bool waits = kvern_cache_planned(cache)->first_pool && all_converted(x, cache, false);
    *type = waits ? KVERN_BF16 : (kvern_type)stream->codec.kind;
    return !cache->coded_set &&
           (waits || (stream->codec.kind <= KVERN_CODEC_F16 && all_converted(x, cache, true)));
}

static bool all_stored_as_numbers(const kvern_mlx_exporter *x, const kvern_cache *cache)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    kvern_type type;
    bool all = true;
    for (size_t s = 0; s < g->stream_count; s++)
        all = all && stored_type(x, cache, &g->streams[s], &type);
    return all;
}

// QuantizedKVCache has one width of codes and one group for keys and values.
static bool has_quantized_class(const kvern_mlx_exporter *x, const kvern_cache *cache)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    return plan->kind == KVERN_LAYER_FULL && plan->k_codec.kind == KVERN_CODEC_AFFINE &&
           kvern_codec_equal(&plan->k_codec, &plan->v_codec) && !cache->coded_set && x->rows == 1 &&
           all_converted(x, cache, true);
}

// Groups of codes are of other dims when pairs are turned.
static bool is_quantized(const kvern_mlx_exporter *x, const kvern_cache *cache)
{
    return !x->options.k_pairs && has_quantized_class(x, cache);
}

// ---- The class ----

static kvern_status check_recurrent(const kvern_mlx_exporter *x, const kvern_cache *cache)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    if (plan->recurrence == KVERN_RECURRENCE_LANE)
        return refuse(cache, "for a lane");
    if (plan->recurrence == KVERN_RECURRENCE_SSD && x->options.slots == KVERN_MLX_SLOTS_SPLIT)
        return refuse(cache, "for an SSM whose convolution is split");
    return KVERN_OK;
}

static kvern_status check_class(const kvern_mlx_exporter *x, const kvern_cache *cache,
                                kvern_mlx_class class)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    if (class == KVERN_MLX_ARRAYS)
        return check_recurrent(x, cache);
    if (class == KVERN_MLX_QUANTIZED)
        return KVERN_OK;
    if (x->options.k_pairs % 2 ||
        (plan->kv_heads && plan->kind != KVERN_LAYER_LATENT && x->options.k_pairs > plan->k_dim))
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %zu dims in pairs of keys of %zu",
                          cache->layer, x->options.k_pairs, plan->k_dim);
    if (class == KVERN_MLX_BATCH_ROTATING && plan->keep)
        return refuse(cache, "for several rows that keep positions");
    if (class == KVERN_MLX_CHUNKED && x->rows > 1)
        return refuse(cache, "for several rows of chunks");
    if (x->options.conversion != KVERN_MLX_EXACT || all_stored_as_numbers(x, cache))
        return KVERN_OK;
    return refuse(cache, has_quantized_class(x, cache)
                             ? "for codes of keys in pairs of neighbours, which cannot be turned; "
                               "its values can be asked for"
                             : "for such codes; its values can be asked for");
}

kvern_status kvern_mlx_export_class(const kvern_mlx_exporter *x, size_t layer,
                                    kvern_mlx_class *class)
{
    const kvern_cache *cache = &x->state->caches[layer];
    const bool batch = x->rows > 1;
    switch (kvern_cache_planned(cache)->plan.kind) {
    case KVERN_LAYER_RECURRENT:
        *class = KVERN_MLX_ARRAYS;
        break;
    case KVERN_LAYER_WINDOW:
        *class = batch ? KVERN_MLX_BATCH_ROTATING : KVERN_MLX_ROTATING;
        break;
    case KVERN_LAYER_CHUNKED:
        *class = KVERN_MLX_CHUNKED;
        break;
    default:
        *class = batch                    ? KVERN_MLX_BATCH
                 : is_quantized(x, cache) ? KVERN_MLX_QUANTIZED
                                          : KVERN_MLX_KV;
        break;
    }
    return check_class(x, cache, *class);
}

// ---- Columns ----

// What of the layer goes into the file: `columns` of which each row has the last few.
typedef struct span {
    int64_t width;   // columns of the planes that are made of it
    int64_t columns; // of the file
} span;

// A window is as many positions as mlx-lm's ring has; what a row holds beyond them stays here.
static int64_t columns_of(const kvern_mlx_exporter *x, const kvern_layer *plan, size_t row)
{
    return plan->kind == KVERN_LAYER_WINDOW ? kvern_min_i64(x->lengths[row], plan->window)
                                            : x->held[row];
}

static kvern_status find_span(const kvern_mlx_exporter *x, const kvern_cache *cache, span *out)
{
    kvern_padded_planes planes = kvern_padded_planes_default();
    planes.width = kvern_cache_padded_width(cache);
    planes.left_padding = x->held;
    kvern_status status = kvern_cache_export_padded(cache, &planes);
    *out = (span){.width = planes.width};
    for (size_t r = 0; r < x->rows && !status; r++) {
        x->held[r] = planes.width - x->held[r];
        const int64_t columns = columns_of(x, &kvern_cache_planned(cache)->plan, r);
        KVERN_ASSERT(columns <= x->held[r]);
        out->columns = kvern_max_i64(out->columns, columns);
    }
    return status;
}

// Vectors of one head of one row, from the planes to the file: padding, kept ones, newest ones.
static kvern_status put_head(kvern_mlx_exporter *x, const kvern_layer *plan, const span *s,
                             size_t row, const char *head, size_t bytes)
{
    const int64_t columns = columns_of(x, plan, row), held = x->held[row];
    const int64_t kept = columns < held ? plan->keep : 0, newest = columns - kept;
    kvern_status status = kvern_mlx_put_zeros(&x->sink, (size_t)(s->columns - columns) * bytes);
    if (!status && kept)
        status =
            kvern_mlx_put(&x->sink, head + (size_t)(s->width - held) * bytes, (size_t)kept * bytes);
    if (!status && newest)
        status = kvern_mlx_put(&x->sink, head + (size_t)(s->width - newest) * bytes,
                               (size_t)newest * bytes);
    return status;
}

static kvern_status put_plane(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                              const char *plane, size_t bytes)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    kvern_status status = KVERN_OK;
    for (size_t r = 0; r < x->rows; r++) {
        for (size_t h = 0; h < layer->geometry.kv_heads && !status; h++) {
            const size_t head = r * layer->geometry.kv_heads + h;
            status =
                put_head(x, &layer->plan, s, r, plane + head * (size_t)s->width * bytes, bytes);
        }
    }
    return status;
}

// ---- Streams ----

static kvern_dtype dtype_of(kvern_type type)
{
    return type == KVERN_F32    ? KVERN_DTYPE_F32
           : type == KVERN_BF16 ? KVERN_DTYPE_BF16
                                : KVERN_DTYPE_F16;
}

static kvern_status describe(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                             const kvern_mlx_place *at, const char *leaf, kvern_dtype dtype,
                             size_t dim)
{
    const uint64_t shape[] = {x->rows, kvern_cache_planned(cache)->geometry.kv_heads,
                              (uint64_t)s->columns, dim};
    return kvern_mlx_describe(&x->sink, at, leaf, dtype, 4, shape);
}

// A plane of vectors of `bytes` bytes.
static kvern_status take_plane(const kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                               size_t bytes, size_t *total, void **out)
{
    const size_t heads = kvern_cache_planned(cache)->geometry.kv_heads;
    if (!kvern_size_mul(bytes, x->rows * heads, total) ||
        !kvern_size_mul(*total, (size_t)s->width, total) || *total > PTRDIFF_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: its planes do not fit memory",
                          cache->layer);
    return kvern_heap_take(&kvern_cache_context(cache)->heap, *total, KVERN_HEAP_ALIGNMENT, out);
}

static void set_numbers(kvern_padded_planes *planes, kvern_lane lane, void *numbers,
                        kvern_type type)
{
    switch (lane) {
    case KVERN_LANE_K:
        planes->k = numbers, planes->k_type = type;
        break;
    case KVERN_LANE_V:
        planes->v = numbers, planes->v_type = type;
        break;
    case KVERN_LANE_LATENT:
        planes->latent = numbers, planes->latent_type = type;
        break;
    case KVERN_LANE_ROPE:
        planes->rope = numbers, planes->rope_type = type;
        break;
    case KVERN_LANE_INDEX:
        planes->index = numbers, planes->index_type = type;
        break;
    }
}

static kvern_type type_of(const kvern_mlx_exporter *x, const kvern_cache *cache,
                          const kvern_stream_plan *stream)
{
    kvern_type type;
    return stored_type(x, cache, stream, &type) ? type : x->options.values;
}

static kvern_status export_numbers(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                   const kvern_mlx_place *at, const char *leaf,
                                   const kvern_stream_plan *stream)
{
    const kvern_type type = type_of(x, cache, stream);
    const size_t bytes = stream->dim * kvern_type_bytes(type);
    size_t total;
    void *plane;
    if (x->sink.describing)
        return describe(x, cache, s, at, leaf, dtype_of(type), stream->dim);
    kvern_status status = take_plane(x, cache, s, bytes, &total, &plane);
    if (status)
        return status;
    kvern_padded_planes planes = kvern_padded_planes_default();
    planes.width = s->width;
    set_numbers(&planes, stream->lane, plane, type);
    status = kvern_cache_export_padded(cache, &planes);
    if (!status && stream->lane == KVERN_LANE_K)
        kvern_mlx_reorder(plane, total / bytes, stream->dim, kvern_type_bytes(type),
                          x->options.k_pairs, false);
    if (!status)
        status = put_plane(x, cache, s, plane, bytes);
    kvern_heap_give(&kvern_cache_context(cache)->heap, plane, total, KVERN_HEAP_ALIGNMENT);
    return status;
}

// Words, scales and biases are three tensors, written one after the other.
static kvern_status export_codes(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                 const kvern_mlx_place *at, const kvern_stream_plan *stream)
{
    const bool values = stream->lane == KVERN_LANE_V;
    const kvern_codec *codec = &stream->codec;
    const size_t words = stream->dim * codec->bits / 32, groups = stream->dim / codec->group;
    const size_t scale = groups * kvern_type_bytes(codec->scales);
    const size_t bytes[3] = {words * 4, scale, scale};
    const kvern_dtype scale_type = dtype_of(codec->scales);
    const kvern_dtype dtypes[3] = {KVERN_DTYPE_U32, scale_type, scale_type};
    const size_t dims[3] = {words, groups, groups};
    size_t totals[3] = {0};
    void *parts[3] = {0};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < 3 && !status; i++) {
        const char leaf[] = {values ? '1' : '0', '.', (char)('0' + i), '\0'};
        status = x->sink.describing ? describe(x, cache, s, at, leaf, dtypes[i], dims[i])
                                    : take_plane(x, cache, s, bytes[i], &totals[i], &parts[i]);
    }
    if (!status && !x->sink.describing) {
        kvern_padded_planes planes = kvern_padded_planes_default();
        planes.width = s->width;
        *(values ? &planes.v_codes : &planes.k_codes) =
            (kvern_affine_arrays){.words = parts[0], .scales = parts[1], .biases = parts[2]};
        status = kvern_cache_export_padded(cache, &planes);
    }
    for (size_t i = 0; i < 3 && !status && !x->sink.describing; i++)
        status = put_plane(x, cache, s, parts[i], bytes[i]);
    for (size_t i = 0; i < 3; i++)
        kvern_heap_give(&kvern_cache_context(cache)->heap, parts[i], totals[i],
                        KVERN_HEAP_ALIGNMENT);
    return status;
}

// What mlx-lm has where a layer has nothing for values. Beside index keys these are zeros of their
// dim in one layout and nothing in the other; latents without a rotated key have nothing there.
static kvern_status export_no_values(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                     const kvern_mlx_place *at, const kvern_stream_plan *keys)
{
    const bool zeros = keys->lane == KVERN_LANE_INDEX && x->sink.layout == KVERN_MLX_STATES;
    const size_t dim = zeros ? keys->dim : 0;
    const kvern_type type = type_of(x, cache, keys);
    if (x->sink.describing)
        return describe(x, cache, s, at, "1", dtype_of(type), dim);
    return kvern_mlx_put_zeros(&x->sink,
                               x->rows * (size_t)s->columns * dim * kvern_type_bytes(type));
}

static const kvern_stream_plan *stream_of(const kvern_geometry *g, kvern_lane lane,
                                          kvern_lane otherwise)
{
    for (size_t s = 0; s < g->stream_count; s++) {
        if (g->streams[s].lane == lane || g->streams[s].lane == otherwise)
            return &g->streams[s];
    }
    return NULL;
}

static kvern_status export_streams(kvern_mlx_exporter *x, const kvern_cache *cache,
                                   kvern_mlx_part part, kvern_mlx_class class, const span *s,
                                   const kvern_mlx_place *at)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    const bool index = part == KVERN_MLX_INDEX_KEYS;
    const kvern_stream_plan *k = stream_of(g, index ? KVERN_LANE_INDEX : KVERN_LANE_K,
                                           index ? KVERN_LANE_INDEX : KVERN_LANE_LATENT);
    const kvern_stream_plan *v = stream_of(g, KVERN_LANE_V, KVERN_LANE_ROPE);
    kvern_status status;
    if (class == KVERN_MLX_QUANTIZED) {
        status = export_codes(x, cache, s, at, k);
        return status ? status : export_codes(x, cache, s, at, v);
    }
    if ((status = export_numbers(x, cache, s, at, "0", k)))
        return status;
    return index || !v ? export_no_values(x, cache, s, at, k)
                       : export_numbers(x, cache, s, at, "1", v);
}

// ---- Numbers ----

static kvern_status export_batch(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                 const kvern_mlx_place *at)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    kvern_status status = kvern_mlx_numbers(&x->sink, at, "2", x->rows, x->lengths);
    for (size_t r = 0; r < x->rows; r++)
        x->numbers[r] = s->columns - columns_of(x, plan, r);
    return status ? status : kvern_mlx_numbers(&x->sink, at, "3", x->rows, x->numbers);
}

// The older layout takes any text for True but the empty one.
static kvern_status export_batch_ring(kvern_mlx_exporter *x, const kvern_cache *cache,
                                      const span *s, const kvern_mlx_place *at)
{
    kvern_mlx_sink *sink = &x->sink;
    kvern_status status = export_batch(x, cache, s, at);
    if (!status)
        status = kvern_mlx_number(sink, at, "4", "0", kvern_cache_planned(cache)->plan.window);
    if (!status)
        status = kvern_mlx_number(sink, at, "5", "1", s->columns);
    if (!status)
        status = kvern_mlx_number(sink, at, "6", "2", s->columns);
    if (!status)
        status = kvern_mlx_flag(sink, at, "7", false);
    if (!status && sink->layout == KVERN_MLX_INFOS)
        status = kvern_mlx_say(sink, "", "%s.3", at->infos);
    return status;
}

static kvern_status export_ring(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                const kvern_mlx_place *at)
{
    const kvern_layer *plan = &kvern_cache_planned(cache)->plan;
    kvern_status status = kvern_mlx_number(&x->sink, at, "2", "2", x->lengths[0]);
    if (!status)
        status = kvern_mlx_number(&x->sink, at, "3", "0", plan->keep);
    if (!status)
        status = kvern_mlx_number(&x->sink, at, "4", "1", plan->window);
    return status ? status : kvern_mlx_number(&x->sink, at, "5", "3", s->columns);
}

static kvern_status export_chunks(kvern_mlx_exporter *x, const kvern_cache *cache, const span *s,
                                  const kvern_mlx_place *at)
{
    const int64_t start = x->lengths[0] - s->columns;
    if (x->sink.layout == KVERN_MLX_INFOS && start > 0)
        return refuse(cache, "up to 0.31 that finds its positions again");
    kvern_status status = kvern_mlx_number(&x->sink, at, "2", NULL, x->lengths[0]);
    if (!status)
        status = kvern_mlx_number(&x->sink, at, "3", "0", kvern_cache_planned(cache)->plan.chunk);
    return status ? status : kvern_mlx_number(&x->sink, at, "4", "1", start);
}

static kvern_status export_bits(kvern_mlx_exporter *x, const kvern_cache *cache,
                                const kvern_mlx_place *at)
{
    const kvern_codec *codec = &kvern_cache_planned(cache)->plan.k_codec;
    kvern_status status = kvern_mlx_number(&x->sink, at, "2", "0", x->lengths[0]);
    if (!status)
        status = kvern_mlx_number(&x->sink, at, "3", "1", codec->group);
    return status ? status : kvern_mlx_number(&x->sink, at, "4", "2", codec->bits);
}

// Classes without numbers have an empty text for them in the older layout.
static kvern_status say_nothing(kvern_mlx_exporter *x, const kvern_mlx_place *at)
{
    return x->sink.layout == KVERN_MLX_INFOS ? kvern_mlx_say(&x->sink, "", "%s", at->infos)
                                             : KVERN_OK;
}

static kvern_status export_class(kvern_mlx_exporter *x, const kvern_cache *cache,
                                 kvern_mlx_class class, const span *s, const kvern_mlx_place *at)
{
    kvern_status status;
    switch (class) {
    case KVERN_MLX_QUANTIZED:
        return export_bits(x, cache, at);
    case KVERN_MLX_ROTATING:
        return export_ring(x, cache, s, at);
    case KVERN_MLX_CHUNKED:
        return export_chunks(x, cache, s, at);
    case KVERN_MLX_BATCH_ROTATING:
        return export_batch_ring(x, cache, s, at);
    case KVERN_MLX_BATCH:
        if ((status = export_batch(x, cache, s, at)) ||
            (status = kvern_mlx_number(&x->sink, at, "4", NULL, s->columns)))
            return status;
        return say_nothing(x, at);
    default:
        status = kvern_mlx_number(&x->sink, at, "2", NULL, x->lengths[0]);
        return status ? status : say_nothing(x, at);
    }
}

// ---- The cache ----

kvern_status kvern_mlx_export_cache(kvern_mlx_exporter *x, size_t layer, kvern_mlx_part part,
                                    kvern_mlx_class class, const kvern_mlx_place *at)
{
    const kvern_cache *cache = &x->state->caches[layer];
    span s;
    if (class == KVERN_MLX_ARRAYS) {
        kvern_status status = kvern_mlx_export_slots(x, cache, at);
        return status ? status : say_nothing(x, at);
    }
    kvern_status status = find_span(x, cache, &s);
    if (!status)
        status = export_streams(x, cache, part, class, &s, at);
    return status ? status : export_class(x, cache, class, &s, at);
}
