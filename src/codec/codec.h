// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODEC_H
#define KVERN_CODEC_CODEC_H

// Codecs: how the values of a position are stored, and the kernels that read them.
//
// A block is the part of a page that belongs to one KV head and one stream (keys or values): 64
// positions of `dim` values. Its layout belongs to the codec; everybody else goes through these
// functions. `dim` is a multiple of 8, at most KVERN_MAX_HEAD_DIM. Positions inside a block are
// called slots, 0 to 63.

#include <kvern/composition.h>
#include <stdbool.h>

// Keys and values are read in different directions, so each codec has a form for both.
typedef enum kvern_stream { KVERN_STREAM_K = 0, KVERN_STREAM_V = 1 } kvern_stream;

// Layout and looking. Plain C, the same on every machine. Every function is given the codec with
// its parameters.
typedef struct kvern_codec_layout {
    // Bytes of a block; a multiple of 64.
    size_t (*block_bytes)(const kvern_codec *codec, size_t dim);

    // Floats of a prepared query: dim values and what the codec adds. Such a codec has `prepare`,
    // which completes a scaled query of dim values; it looks at nothing else. NULL: adds nothing.
    size_t (*query_floats)(const kvern_codec *codec, size_t dim);
    void (*prepare)(const kvern_codec *codec, size_t dim, float *q);

    // The stored values of a slot, exactly.
    void (*decode)(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values);
} kvern_codec_layout;

// NULL for a codec that does not exist.
const kvern_codec_layout *kvern_codec_layout_of(const kvern_codec *codec);

// Whether a codec can store vectors of `dim` values (a multiple of 8, at most KVERN_MAX_HEAD_DIM).
bool kvern_codec_fits(const kvern_codec *codec, size_t dim);

// Writes the codec's name as it stands in signatures, for example "bf16".
#define KVERN_CODEC_NAME_BYTES 24
void kvern_codec_name(const kvern_codec *codec, char name[KVERN_CODEC_NAME_BYTES]);

// Scores of one block of keys against n queries (docs/arithmetic.md, step 2):
//     scores[i * 64 + p] = sum over d ascending of q[i * q_stride + d] * k[p][d], by fma from +0
// or as the codec states; q holds prepared queries, q_stride floats apart;
// for the slots p of tiles [tile_begin, tile_end), 16 slots each; other scores are not written.
// Slots that were never stored give unspecified scores, but never a trap. `next`: memory that will
// be read after this block; a kernel may prefetch as many bytes as the block has from there.
typedef void kvern_score_fn(const kvern_codec *codec, const void *block, size_t dim,
                            size_t tile_begin, size_t tile_end, size_t n, const float *q,
                            size_t q_stride, float *scores, const void *next);

// Adds weighted values of one block to n accumulators (docs/arithmetic.md, step 4):
//     for slots p in [begin, end) ascending: acc[i * dim + d] = fma(w[i * 64 + p], v[p][d], acc[i *
//     dim + d])
// Slots outside [begin, end) are not read into any result.
typedef void kvern_accumulate_fn(const kvern_codec *codec, const void *block, size_t dim,
                                 size_t begin, size_t end, size_t n, const float *w, float *acc,
                                 const void *next);

// Stores the `dim` values at `values` (elements of `type`, contiguous) in a slot, rounding each
// once.
typedef void kvern_encode_fn(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                             size_t slot, kvern_type type, const void *values);

// The kernels that write and read a codec's blocks.
typedef struct kvern_codec_kernels {
    kvern_encode_fn *encode;
    kvern_score_fn *score;
    kvern_accumulate_fn *accumulate;
} kvern_codec_kernels;

// The best kernels within `features` (bits of kvern/cpu.h); the plain ones when there are none.
kvern_codec_kernels kvern_codec_kernels_of(const kvern_codec *codec, uint32_t features);

#endif
