// SPDX-License-Identifier: MIT
#include "src/file/padded_planes.h"

#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/codec/codec.h"
#include "src/layer/latent/latent.h"

#include <inttypes.h>

const kvern_sized kvern_planes_sizes =
    KVERN_SIZED(kvern_padded_planes, KVERN_SIZE_TO(kvern_padded_planes, offsets),
                KVERN_SIZE_TO(kvern_padded_planes, reserved));

void kvern_padded_planes_init(kvern_padded_planes *planes, size_t size)
{
    const kvern_padded_planes defaults = {.k_type = KVERN_BF16,
                                          .v_type = KVERN_BF16,
                                          .latent_type = KVERN_BF16,
                                          .rope_type = KVERN_BF16,
                                          .index_type = KVERN_BF16};
    kvern_sized_init(&kvern_planes_sizes, &defaults, planes, size);
}

// ---- Planes ----

// What the caller has for each lane.
typedef struct lanes {
    kvern_plane of[KVERN_LANES];
} lanes;

static lanes lanes_of(const kvern_padded_planes *p)
{
    return (lanes){{
        [KVERN_LANE_K] = {.name = "k", .type = p->k_type, .numbers = p->k, .codes = p->k_codes},
        [KVERN_LANE_V] = {.name = "v", .type = p->v_type, .numbers = p->v, .codes = p->v_codes},
        [KVERN_LANE_LATENT] = {.name = "latent",
                               .type = p->latent_type,
                               .numbers = p->latent,
                               .codes = p->latent_codes},
        [KVERN_LANE_ROPE] =
            {.name = "rope", .type = p->rope_type, .numbers = p->rope, .codes = p->rope_codes},
        [KVERN_LANE_INDEX] =
            {.name = "index", .type = p->index_type, .numbers = p->index, .codes = p->index_codes},
    }};
}

kvern_plane_set kvern_planes_of(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    const lanes given = lanes_of(planes);
    kvern_plane_set set = {.count = g->stream_count};
    KVERN_ASSERT(set.count <= KVERN_MAX_STREAMS);
    for (size_t s = 0; s < g->stream_count; s++) {
        set.planes[s] = given.of[g->streams[s].lane];
        set.planes[s].dim = g->streams[s].dim;
        set.planes[s].layer = cache->layer;
        set.planes[s].stream = s;
    }
    return set;
}

bool kvern_plane_has_codes(const kvern_plane *p)
{
    return p->codes.words || p->codes.scales || p->codes.biases || p->codes.reserved[0] ||
           p->codes.reserved[1];
}

bool kvern_planes_have_codes(const kvern_plane_set *set)
{
    bool any = false;
    for (size_t s = 0; s < set->count; s++)
        any = any || kvern_plane_has_codes(&set->planes[s]);
    return any;
}

char *kvern_plane_numbers(const kvern_plane *p, size_t index)
{
    return p->numbers + index * p->dim * kvern_type_bytes(p->type);
}

// ---- Checks ----

kvern_status kvern_planes_read(const kvern_padded_planes *given, kvern_padded_planes *known)
{
    if (!given)
        return kvern_fail(KVERN_ERR_ARGUMENT, "planes is NULL");
    return kvern_sized_read(&kvern_planes_sizes, given, known);
}

static kvern_status check_plane(const kvern_plane *p, const kvern_stream_plan *planned,
                                size_t vectors)
{
    size_t bytes;
    if (p->numbers && !kvern_type_bytes(p->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: unknown element type %d of %s", p->layer,
                          (int)p->type, p->name);
    if (!kvern_size_mul(vectors, p->dim * sizeof(float), &bytes) || bytes > PTRDIFF_MAX)
        return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: %zu vectors of %s do not fit memory",
                          p->layer, vectors, p->name);
    if (!kvern_plane_has_codes(p))
        return KVERN_OK;
    if (p->codes.reserved[0] || p->codes.reserved[1])
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a reserved pointer of %s is not NULL",
                          p->layer, p->name);
    if (!p->codes.words || !p->codes.scales ||
        (!p->codes.biases && kvern_codec_has_biases(&planned->codec)))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: words, scales or biases of %s is NULL",
                          p->layer, p->name);
    if (planned->type->affine)
        return KVERN_OK;
    char stored[KVERN_CODEC_NAME_BYTES];
    planned->type->name(&planned->codec, stored);
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "layer %zu: %s is stored in %s, not in codes",
                      p->layer, p->name, stored);
}

// A plane of a stream that the layer does not have would be without effect.
kvern_status kvern_planes_check_surplus(const kvern_planned_layer *layer,
                                        const kvern_padded_planes *planes)
{
    const lanes given = lanes_of(planes);
    for (size_t lane = 0; lane < KVERN_LANES; lane++) {
        const kvern_plane *p = &given.of[lane];
        bool has = false;
        for (size_t s = 0; s < layer->geometry.stream_count; s++)
            has = has || layer->geometry.streams[s].lane == lane;
        if (!has && (p->numbers || kvern_plane_has_codes(p)))
            return kvern_fail(KVERN_ERR_ARGUMENT,
                              "layer %zu: a plane of %s, and the layer, %s, has none", layer->index,
                              p->name, layer->signature);
    }
    if (planes->reserved)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "layer %zu: the reserved word of its planes is "
                          "not 0",
                          layer->index);
    return KVERN_OK;
}

kvern_status kvern_planes_check(const kvern_cache *cache, const kvern_padded_planes *planes)
{
    kvern_status status = kvern_latent_check_streams(kvern_cache_planned(cache));
    if (!status)
        status = kvern_planes_check_surplus(kvern_cache_planned(cache), planes);
    if (status)
        return status;
    if (planes->width < 0 || planes->width > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: a width of %" PRId64, cache->layer,
                          planes->width);
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    const kvern_plane_set set = kvern_planes_of(cache, planes);
    size_t vectors;
    if (!kvern_size_mul(cache->batch->row_count * g->kv_heads, (size_t)planes->width, &vectors))
        return kvern_fail(KVERN_ERR_OVERFLOW,
                          "layer %zu: planes of %" PRId64 " columns do not fit memory",
                          cache->layer, planes->width);
    for (size_t s = 0; s < set.count && !status; s++)
        status = check_plane(&set.planes[s], &g->streams[s], vectors);
    return status;
}

// ---- Columns ----

int64_t kvern_columns_position(const kvern_columns *c, int64_t column)
{
    KVERN_ASSERT(column >= 0 && column < c->count);
    return column < c->keep ? column : column + c->dropped;
}
