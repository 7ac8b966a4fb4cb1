// SPDX-License-Identifier: MIT
#ifndef KVERN_EXPERIMENTAL_PADDED_H
#define KVERN_EXPERIMENTAL_PADDED_H

// Experimental: this may change or go in any release (kvern/kvern.h).
//
// Rows as rectangles, for engines that keep a batch in one tensor: planes [rows, kv_heads, width,
// dim] in which every row is right-justified, behind padding of its own width. Nothing is stored
// so here; this is how rows come from such a tensor and go to one.
//
// A row occupies the columns [left_padding[r], width) of its plane, and the next token of the row
// has position offsets[r]. The columns are the positions that the row holds, in order: all of them,
// or, when a sliding window has dropped some, the layer's kept positions and then the newest ones.
// So the last column is position offsets[r] - 1 whenever the row has a column, and a row with more
// positions than columns is one that has dropped the difference.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

// One layer's planes. Each stream, keys or values for example, is in one of two forms: numbers, or
// the words, scales and biases of an affine codec in the layout of mx.quantize (see
// kvern_affine_arrays), with [rows, kv_heads, width] instead of [count, kv_heads] in front.
typedef struct kvern_padded_planes {
    size_t size;                 // sizeof(kvern_padded_planes); set by kvern_padded_planes_default
    int64_t width;               // columns
    void *k;                     // [rows, kv_heads, width, k_dim]; NULL: not as numbers
    void *v;                     // [rows, kv_heads, width, v_dim]; NULL: not as numbers
    kvern_type k_type, v_type;   // elements of k and v
    kvern_affine_arrays k_codes; // all three NULL: not as codes
    kvern_affine_arrays v_codes;
    int64_t *left_padding; // [rows]
    int64_t *offsets;      // [rows]

    // The lanes of a layer of latents (kvern/latent.h), which has these instead of k and v:
    // [rows, width, latent_dim], [rows, width, rope_dim] and [rows, width, index_dim].
    void *latent, *rope, *index;
    kvern_affine_arrays latent_codes, rope_codes, index_codes;
    kvern_type latent_type, rope_type, index_type;
    uint32_t reserved; // 0
} kvern_padded_planes;

// Writes the defaults to `size` bytes, sizeof(kvern_padded_planes) of the caller: no pointers,
// width 0, and bf16 as the type of numbers.
KVERN_API void kvern_padded_planes_init(kvern_padded_planes *planes, size_t size);

// The same as a value.
static inline kvern_padded_planes kvern_padded_planes_default(void)
{
    kvern_padded_planes planes;
    kvern_padded_planes_init(&planes, sizeof planes);
    return planes;
}

// Columns that the planes of a cache need: positions that its longest row holds, 0 without any.
KVERN_API int64_t kvern_cache_padded_width(const kvern_cache *cache);

// Writes the rows of a cache to planes of `planes->width` columns, which may be more than are
// needed: their left padding is written as zeros. Pointers that are NULL are not written; a stream
// may be written in both forms. Numbers are what the row stores, rounded once to the type, and
// exactly in the type of a dense codec and in f32; codes are what it stores, bit for bit. On
// failure nothing was written. Errors: KVERN_ERR_ARGUMENT (NULL, a size or type that does not
// exist, codes of which a part is NULL, a plane of a stream that the layer does not have),
// KVERN_ERR_RANGE (a width below the one needed), KVERN_ERR_UNSUPPORTED (codes of a stream that is
// not stored in affine codes, or not yet in some row), KVERN_ERR_OVERFLOW (planes that do not fit
// memory), KVERN_ERR_BUSY (a step or a round of the cache's state is open).
KVERN_API KVERN_CHECK kvern_status kvern_cache_export_padded(const kvern_cache *cache,
                                                             const kvern_padded_planes *planes);

// Fills all rows of a cache, which must be empty, from planes, which are only read; padding is not
// looked at. A row without columns stays empty; its offset is 0. Every stream of a row with columns
// is given in exactly one form.
//
// Given as numbers, positions are stored as an append of all of them would: rounded once to what
// the row stores; a row of a layer with a start that reaches it is rounded to bf16 and converted.
// When a stream is given as codes, the row is in the layer's planned codecs from the beginning,
// even below the start; codes are stored bit for bit, and the other stream's numbers rounded once.
// A planned boundary (kvern_cache_plan_boundary) puts a conversion off here, too.
//
// Numbers that were exported from affine codes are quantized anew, and the codes may differ: to get
// such a row back bit for bit, export and import its codes.
//
// Where a window is, a row's offset may exceed its columns if these are at least as many as the
// window; where chunks are, if they reach back to the beginning of the last position's chunk.
// Columns that the row would not hold any more, and those of an older chunk that is not whole, are
// left out. How far it can be trimmed follows from what it holds (kvern_cache_trimmable); what was
// trimmed or converted before counts as not reusable (kvern_cache_min_reusable).
//
// Which positions see each other both ways (kvern_range) is not part of planes: a row that comes
// from them can be trimmed anywhere.
//
// Layers that keep positions precise (kvern_layer.residual) are appended to, and so want numbers
// of all positions.
//
// Uses reserved room, unless the row was not converted and is now. Nothing changes on failure.
// Errors: KVERN_ERR_ARGUMENT (NULL, a size or type that does not exist, a stream in no or in both
// forms, a plane of a stream that the layer does not have), KVERN_ERR_RANGE (a width or a left
// padding that is negative, padding beyond the width, an offset below the columns, or beyond them
// where no window has dropped positions, or with fewer columns than the window), KVERN_ERR_BUSY (a
// row is not empty; a cache of a state), KVERN_ERR_UNSUPPORTED (codes for a stream that is not
// stored in affine codes, codes or a row without all positions where some are kept precise),
// KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_cache_import_padded(kvern_cache *cache,
                                                             const kvern_padded_planes *planes);

// The same for all layers of a state, or for none: layers[l] are the planes of layer l, all of one
// size. A row must have one offset in all layers (KVERN_ERR_RANGE); its columns may differ, as
// those of windows do. KVERN_ERR_BUSY during a step or a round. The detail names the layer. For
// export, use kvern_cache_export_padded on each cache.
KVERN_API KVERN_CHECK kvern_status kvern_state_import_padded(kvern_state *state,
                                                             const kvern_padded_planes *layers);

#ifdef __cplusplus
}
#endif

#endif
