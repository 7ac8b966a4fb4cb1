// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODEC_TYPE_H
#define KVERN_CODEC_CODEC_TYPE_H

// What a codec is: how the values of a position are stored, and the kernels that write and read
// them. A codec is a folder of src/codec that fills in one kvern_codec_type, and a line in
// codec.c; nothing outside of src/codec asks which codec it has before it.
//
// A block is the part of a page that belongs to one KV head and one stream (keys or values): 64
// positions of `dim` values. Its layout belongs to the codec; everybody else goes through these
// functions. `dim` is a multiple of 8 and of the codec's own unit, at most KVERN_MAX_STREAM_DIM.
// Positions inside a block are called slots, 0 to 63. Blocks begin at multiples of 64 bytes.

#include <kvern/composition.h>
#include <stdbool.h>

struct kvern_affine_arrays;
struct kvern_slot_stream;

// Numbers of a vector at most: of a latent. Those of keys and values are fewer.
#define KVERN_MAX_STREAM_DIM KVERN_MAX_LATENT_DIM

// Keys and values are read in different directions, so each codec has a form for both.
typedef enum kvern_stream { KVERN_STREAM_K = 0, KVERN_STREAM_V = 1 } kvern_stream;

// ---- Kernels ----

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

// The same for four vectors, in the slots slot to slot + 3, at values[0] to values[3].
typedef void kvern_encode_four_fn(const kvern_codec *codec, kvern_stream stream, void *block,
                                  size_t dim, size_t slot, kvern_type type,
                                  const void *const values[4]);

// The values of the dims [begin, end) of a block of keys, in the order of a block of f32:
//     to[(d - begin) * 64 + p] for all slots p
// exactly as `decode` gives them; of rotated vectors, what it rotates back. Both are multiples of
// 32, or `dim`. Slots that were never stored give unspecified values, but never a trap. `to` is
// aligned to 64 bytes. Latents are read so.
typedef void kvern_decode_block_fn(const kvern_codec *codec, const void *block, size_t dim,
                                   size_t begin, size_t end, float *to);

// Makes a scaled query of `dim` numbers one that `score` takes, of query_floats. It looks at
// nothing else.
typedef void kvern_prepare_fn(const kvern_codec *codec, size_t dim, float *q);

// Rotates `dim` numbers as stored vectors are: a query that meets what decode_block gives.
typedef void kvern_rotate_fn(size_t dim, float *x);

// Makes `dim` sums that `accumulate` has added up, or the same multiple of each, those of the
// numbers themselves. That is linear but for roundings, so it may be done before or after sums are
// merged or divided, if all of them are treated alike.
typedef void kvern_finish_fn(const kvern_codec *codec, size_t dim, float *sums);

// The kernels that write and read a codec's blocks.
typedef struct kvern_codec_kernels {
    kvern_encode_fn *encode;
    kvern_encode_four_fn *encode_four; // NULL: it would be no faster
    kvern_score_fn *score;
    kvern_accumulate_fn *accumulate;
    kvern_decode_block_fn *decode_block;
    kvern_prepare_fn *prepare; // NULL: a query is taken as it is
    kvern_finish_fn *finish;   // NULL: values are added up as they are
    kvern_rotate_fn *rotate;   // NULL: vectors are stored as they are, not rotated
} kvern_codec_kernels;

// ---- Codes for callers ----

// How a codec whose codes are affine hands them out and takes them in, in the layout of MLX:
// vector number `index` of the arrays.
typedef struct kvern_affine_access {
    void (*export)(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, const struct kvern_affine_arrays *to, size_t index);
    void (*import)(const kvern_codec *codec, kvern_stream stream, void *block, size_t dim,
                   size_t slot, const struct kvern_affine_arrays *from, size_t index);
    // Zeros, where there is no position.
    void (*clear)(const kvern_codec *codec, size_t dim, const struct kvern_affine_arrays *to,
                  size_t index);
} kvern_affine_access;

// ---- The codec ----

#define KVERN_CODEC_NAME_BYTES 32

// Plain C, the same on every machine. Every function is given the codec with its parameters; all
// but `exists` are given one that exists.
typedef struct kvern_codec_type {
    // Whether the parameters are ones that exist.
    bool (*exists)(const kvern_codec *codec);

    // The name as it stands in signatures, for example "affine4g64bf16": all of the parameters, so
    // that equal names are equal blocks.
    void (*name)(const kvern_codec *codec, char name[KVERN_CODEC_NAME_BYTES]);

    // Reads a name that users write, for example "q4"; `group` is what they said apart from it.
    // False for a name of somebody else's. What does not exist may come out.
    bool (*parse)(const char *name, uint32_t group, kvern_codec *out);
    const char *user_names; // for messages: all that `parse` knows

    // Vectors must be a multiple of so many values.
    size_t (*dim_unit)(const kvern_codec *codec);

    // Bytes of a block; a multiple of 64.
    size_t (*block_bytes)(const kvern_codec *codec, size_t dim);

    // Floats of a prepared query: dim values and what the codec adds.
    size_t (*query_floats)(const kvern_codec *codec, size_t dim);

    // The stored values of a slot, exactly.
    void (*decode)(const kvern_codec *codec, kvern_stream stream, const void *block, size_t dim,
                   size_t slot, float *values);

    // Copies slots[0 .. count - 1], ascending, of one block to the slots from `at` on of another
    // one, which has room for them: what is stored, bit for bit.
    void (*gather)(const kvern_codec *codec, kvern_stream stream, size_t dim, const void *block,
                   const uint8_t *slots, size_t count, void *to, size_t at);

    // The best kernels within `features` (bits of kvern/cpu.h); the plain ones when there are none.
    const kvern_codec_kernels *(*kernels_of)(const kvern_codec *codec, uint32_t features);

    // Where the elements of a slot lie, for callers that write them in place; `head_stride` is not
    // the codec's to say. NULL: values have no place of their own.
    struct kvern_slot_stream (*place)(const kvern_codec *codec, kvern_stream stream, void *block,
                                      size_t dim, size_t slot);

    const kvern_affine_access *affine; // NULL: the codes are not affine
} kvern_codec_type;

#endif
