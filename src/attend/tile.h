// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_TILE_H
#define KVERN_ATTEND_TILE_H

// The arithmetic of one tile: a few query vectors of one KV head, or of several, over the pages of
// their row, or of several rows that share pages. A page that several rows have is read once for
// all their vectors. Where a KV head has few vectors, a tile takes several heads, so that memory is
// read from the front to the back of a page: a head's part alone is too short for the hardware to
// foresee what comes next.

#include "src/attend/attend.h"
#include "src/attend/latent_kernels.h"
#include "src/attend/softmax.h"

// Vectors of a tile at most: enough that a page's values are read once for many, few enough that
// the working memory of a worker stays in its second-level cache.
#define KVERN_TILE_VECTORS 32

// First queries of the rows of a tile lie this many positions apart at most where there is a
// window, so that what the tile's vectors see together is little more than what one of them sees.
#define KVERN_TILE_REACH 1024

// What all tiles of an attend share.
typedef struct kvern_attend_job {
    const kvern_view *view;
    kvern_softmax_kernels kernels;
    const kvern_queries *queries;
    size_t group;                       // query heads per KV head
    const kvern_latent_kernels *latent; // where values are keys (latent_block.h); else NULL
} kvern_attend_job;

// Vectors of one KV head that the queries of a row make: vector v of KV head `head` is query head
// head * group + v % group of query v / group.
static inline size_t kvern_row_vectors(const kvern_attend_job *job, size_t row)
{
    return (size_t)job->queries->counts[row] * job->group;
}

// A tile holds `count` vectors of each of its KV heads. Of one row they are those from number
// `first` on, of several rows all vectors of each of them, row by row. In the working memory the
// vectors of one head follow those of the head before. All pages of a pass have the same geometry.
typedef struct kvern_tile {
    const uint32_t *rows;
    size_t row_count;
    size_t head, heads;  // the first KV head, and how many
    size_t first, count; // vectors of one head; heads * count is at most KVERN_TILE_VECTORS
    kvern_visibility sees[KVERN_PASSES]; // what its vectors see together in each pass
    size_t coded_spans;                  // spans of the first pass of which a vector sees something
    size_t spans;                        // these, and behind them those of the second
} kvern_tile;

static inline kvern_pass kvern_tile_pass(const kvern_tile *tile, size_t span)
{
    return span < tile->coded_spans ? KVERN_PASS_CODED : KVERN_PASS_REST;
}

// Running results of the vectors of a tile (see softmax.h).
typedef struct kvern_partial {
    float *m, *l; // [vectors]
    float *acc;   // [vectors][v_dim]
} kvern_partial;

// What a worker needs besides for latents (src/attend/latent_block.h).
typedef struct kvern_latent_space {
    float *q;          // [32 / group][query_dim][group] (latent_kernels.h)
    float *block;      // a piece, decoded; NULL: pages have their keys in f32
    float *sums;       // [v_dim][32]
    float *weights;    // [64][32]
    size_t page_bytes; // that queries are scored against
} kvern_latent_space;

// The working memory of one worker.
typedef struct kvern_workspace {
    float *q;               // [KVERN_TILE_VECTORS][query_floats], scaled and prepared
    float *weights;         // [KVERN_TILE_VECTORS][64]
    uint64_t *visible;      // [KVERN_TILE_VECTORS], slots of the block at hand
    kvern_visibility *sees; // [KVERN_TILE_VECTORS], of the loaded vectors
    kvern_partial span, total;
    kvern_latent_space latent;
} kvern_workspace;

// Memory for the results of tiles of up to `vectors` vectors: whole cache lines.
size_t kvern_partial_bytes(const kvern_attend_job *job, size_t vectors);
kvern_partial kvern_partial_at(size_t vectors, void *memory);

size_t kvern_workspace_bytes(const kvern_attend_job *job);
kvern_workspace kvern_workspace_at(const kvern_attend_job *job, void *memory);

// Loads and scales the tile's queries, as a pass wants them. What follows works on the tile that is
// loaded, a span on the pass that it belongs to.
void kvern_tile_load(const kvern_attend_job *job, const kvern_tile *tile, kvern_pass pass,
                     kvern_workspace *work);

// What a tile of queries sees: sets `sees` and what follows from the fields before them.
void kvern_tile_place(const kvern_attend_job *job, kvern_tile *tile);

// The partial result over the tile's span number `span`, 0 to tile->spans - 1, from a fresh start.
// Vectors that see nothing of the span stay empty.
void kvern_tile_span(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                     kvern_workspace *work, kvern_partial *out);

// Merges the result of span number `span` into the total of the spans before it.
void kvern_tile_merge(const kvern_attend_job *job, const kvern_tile *tile, size_t span,
                      const kvern_workspace *work, kvern_partial *total, const kvern_partial *part);

// Sinks, division, and rounding to the output type.
void kvern_tile_finish(const kvern_attend_job *job, const kvern_tile *tile, kvern_partial *total);

#endif
