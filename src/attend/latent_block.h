// SPDX-License-Identifier: MIT
#ifndef KVERN_ATTEND_LATENT_BLOCK_H
#define KVERN_ATTEND_LATENT_BLOCK_H

// Blocks of latents in a tile. The latent of a position and the rotated key behind it are one key
// that queries are scored against; the latent alone is the value. A page that stores both in f32
// has that key as it is; from other codecs its values are decoded, once for all vectors that meet
// the block. Every codec is therefore read by one arithmetic, that of f32. Lanes of rotated vectors
// stay rotated, and so are the queries and the sums.

#include "src/attend/tile.h"

// Some vectors of a tile that meet a block: [from, to), none of which sees nothing of it.
typedef struct kvern_latent_run {
    size_t from, to;
    size_t count; // vectors of the tile
    uint64_t any; // slots that one of them sees: their own are in work->visible
} kvern_latent_run;

// The working memory of one worker: nothing where values are not keys.
size_t kvern_latent_space_bytes(const kvern_attend_job *job);
kvern_latent_space kvern_latent_space_at(const kvern_attend_job *job, void *memory);

// Rotates the parts of a scaled query as the lanes that they meet are stored.
void kvern_latent_rotate(const kvern_attend_job *job, float *q);

// Packs the queries of a tile, which work->q has.
void kvern_latent_load(const kvern_attend_job *job, size_t count, kvern_workspace *work);

// Before the first block of a span.
void kvern_latent_start(const kvern_attend_job *job, size_t count, kvern_workspace *work);

// The block of a page. `next_page`: the one that is read next; or NULL.
void kvern_latent_page(const kvern_attend_job *job, const kvern_latent_run *run, const void *page,
                       const void *next_page, kvern_workspace *work, kvern_partial *out);

// After the last one: the sums go to out->acc.
void kvern_latent_finish(const kvern_attend_job *job, size_t count, const kvern_workspace *work,
                         kvern_partial *out);

#endif
