// SPDX-License-Identifier: MIT
#ifndef KVERN_FILE_PADDED_PLANES_H
#define KVERN_FILE_PADDED_PLANES_H

// What imports and exports of padded planes (kvern/experimental/padded.h) have in common: the
// caller's planes stream by stream, and which position a column is.

#include "src/base/sized.h"
#include "src/layer/attention/attention.h"
#include "src/state/cache.h"

#include <kvern/experimental/padded.h>

extern const kvern_sized kvern_planes_sizes;

// One stream of the planes of one layer.
typedef struct kvern_plane {
    size_t layer;
    size_t stream; // its number in the geometry
    const char *name;
    size_t dim;
    kvern_type type;
    char *numbers; // NULL: not in this form
    kvern_affine_arrays codes;
} kvern_plane;

// The planes of all streams of a layer.
typedef struct kvern_plane_set {
    size_t count;
    kvern_plane planes[KVERN_MAX_STREAMS];
} kvern_plane_set;

// What of a row is in its plane.
typedef struct kvern_columns {
    int64_t count, offset;
    int64_t keep;
    int64_t dropped; // positions behind the kept ones that have no column
} kvern_columns;

// Copies the caller's struct, of whatever size it knows, to *known.
KVERN_CHECK kvern_status kvern_planes_read(const kvern_padded_planes *given,
                                           kvern_padded_planes *known);

// Checks what imports and exports ask alike: the kind of layer, the width, types and codes.
KVERN_CHECK kvern_status kvern_planes_check(const kvern_cache *cache,
                                            const kvern_padded_planes *planes);

// Refuses planes of streams that the layer does not have.
KVERN_CHECK kvern_status kvern_planes_check_surplus(const kvern_planned_layer *layer,
                                                    const kvern_padded_planes *planes);

kvern_plane_set kvern_planes_of(const kvern_cache *cache, const kvern_padded_planes *planes);
bool kvern_planes_have_codes(const kvern_plane_set *set);
bool kvern_plane_has_codes(const kvern_plane *p);

// Vector `index` of a plane, of [rows * kv_heads * width] ones, given as numbers.
char *kvern_plane_numbers(const kvern_plane *p, size_t index);

// Fills the empty rows of a cache from planes, as kvern_cache_import_padded does, also of a cache
// of a state: one that nobody else knows yet. On failure nothing changed.
KVERN_CHECK kvern_status kvern_cache_fill_padded(kvern_cache *cache,
                                                 const kvern_padded_planes *planes);

int64_t kvern_columns_position(const kvern_columns *c, int64_t column);

#endif
