// SPDX-License-Identifier: MIT
#ifndef KVERN_COMPOSITION_H
#define KVERN_COMPOSITION_H

// What each layer of a model keeps, and how: the immutable plan that caches and states are made
// from. Elsewhere this is the configuration of a KV cache, one for all layers; here every layer has
// its own.
//
//     kvern_layer layers[LAYERS];
//     for (size_t i = 0; i < LAYERS; i++)              // every sixth layer sees everything, the
//         layers[i] = i % 6 == 5                       // others a window of 512
//                         ? kvern_layer_default(KV_HEADS, HEAD_DIM)
//                         : kvern_layer_window(KV_HEADS, HEAD_DIM, 512);
//     layers[5].k_codec = kvern_codec_affine(8, 64);
//     kvern_composition *composition;
//     kvern_status status = kvern_composition_create(context, layers, LAYERS, &composition);
//
// kvern/storage.h fills in codecs from names that users type.

#include <kvern/context.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// How numbers are stored, and the element type of a caller's tensor. Tensors are aligned to their
// elements. What a caller hands over in one type and a layer stores in another is rounded once,
// from the value itself; results of a read are computed in f32 and rounded once to the type that is
// asked for.
typedef enum kvern_type {
    KVERN_F32 = 0,
    KVERN_BF16 = 1, // the upper half of an f32; rounded to nearest, ties to even
    KVERN_F16 = 2   // IEEE binary16; rounded to nearest, ties to even; too large becomes infinite
} kvern_type;

// Bytes of one element: 4, 2, 2; 0 for an unknown type.
KVERN_API size_t kvern_type_bytes(kvern_type type);

// How a stream of a layer, its keys or its values, is stored. Bits that a value takes, by the names
// that users type (kvern_codec_parse), affine codes in groups of 64, turbo codes of heads of 128
// (bits + 16 / head dim):
//
//     f32   bf16, f16   q8, rq8   q6, rq6   q5, rq5   q4, rq4   q3, rq3   q2, rq2
//     32    16          8.5       6.5       5.5       4.5       3.5       2.5
//
//     tq6     tq5     tq4     tq3     tq2     tq1
//     6.125   5.125   4.125   3.125   2.125   1.125
//
// A later release may add kinds; their numbers never change.
typedef enum kvern_codec_kind {
    KVERN_CODEC_F32 = 0, // dense: every value by itself, in the kvern_type of the same number
    KVERN_CODEC_BF16 = 1,
    KVERN_CODEC_F16 = 2,
    KVERN_CODEC_AFFINE = 3, // integer codes, with a scale and a bias for every group of values
    // Of rotated vectors, in which no value stands out: affine codes, or codes for the levels of a
    // normal distribution, with a scale for every vector (TurboQuant). In latents only where
    // kvern_layer.rotated_latents says so.
    KVERN_CODEC_ROTATED = 4,
    KVERN_CODEC_TURBO = 5
} kvern_codec_kind;

// A codec with its parameters, passed and stored by value. Made by the functions below; fields that
// a kind does not have are 0, and so are reserved ones (KVERN_ERR_UNSUPPORTED otherwise).
typedef struct kvern_codec {
    kvern_codec_kind kind;
    uint32_t bits;     // affine, rotated: bits of a code: 2, 3, 4, 5, 6 or 8; turbo: 1 to 6
    uint32_t group;    // affine, rotated: consecutive values that share a scale: 32, 64 or 128
    kvern_type scales; // the same: the type of scales and biases, which values are rounded to first
    // Parameters of kinds to come. A word that is not 0 is refused.
    uint64_t reserved[2];
} kvern_codec;

// A dense codec: values are rounded once to `type`. An unknown type gives a codec that
// kvern_composition_create refuses.
KVERN_API kvern_codec kvern_codec_dense(kvern_type type);

// The affine codec of MLX: a value is scale * code + bias, scale and bias in bf16. Stored codes,
// scales and biases equal those of mx.quantize on the values in bf16 (`scales` may be set to
// another type afterwards), as its CPU definition states: docs/arithmetic.md, "Affine codes". A
// value takes bits + 32 / group bits. Nothing is checked yet: kvern_composition_create refuses bits
// and groups that do not exist, and a group that does not divide the head dim of its stream.
KVERN_API kvern_codec kvern_codec_affine(uint32_t bits, uint32_t group);

// The same codes of rotated vectors: each head is rotated first, by an orthogonal matrix that its
// dim determines (docs/arithmetic.md, "Rotated vectors"), which spreads a value that stands out
// over all of them. Queries are rotated alike, and what a read returns is rotated back. With 2 to 5
// bits it loses less than affine codes where channels have outliers, as keys of most models have; a
// vector with a NaN or an infinity reads as NaN altogether. Latents are stored so only where
// kvern_layer.rotated_latents is 1.
KVERN_API kvern_codec kvern_codec_rotated(uint32_t bits, uint32_t group);

// TurboQuant: a rotated vector becomes codes of 1 to 6 bits for the levels of a normal
// distribution, and one scale in f16: for keys the one that keeps scores free of bias, for values
// the one with the least error (docs/arithmetic.md, "Turbo codes"). A value takes bits + 16 / head
// dim bits. Head dims are multiples of 16. The mean squared error is 0.36, 0.117, 0.035 and 0.0095
// of the vector's square, whatever the vector. A latent, which is key and value at once, has the
// scale of a key. For latents as the one above.
KVERN_API kvern_codec kvern_codec_turbo(uint32_t bits);

// What a layer keeps. A later release adds kinds, and a library that does not know one refuses it
// with KVERN_ERR_UNSUPPORTED.
typedef enum kvern_layer_kind {
    KVERN_LAYER_FULL = 0,   // keys and values of every position
    KVERN_LAYER_WINDOW = 1, // of the newest positions only: a sliding window
    KVERN_LAYER_LATENT = 2, // latents of every position: MLA (kvern/latent.h)
    // A state of fixed size: linear attention, state space models (kvern/recurrent.h)
    KVERN_LAYER_RECURRENT = 3,
    KVERN_LAYER_CHUNKED = 4, // keys and values, of the present chunk: chunked local attention
    KVERN_LAYER_SHARED = 5   // nothing: it reads what another layer keeps (kvern/donor.h)
} kvern_layer_kind;

// What a recurrent layer's states do with a token, S being the state of a value head, [v_dim,
// k_dim], and q, k, v the token's query, key and value:
typedef enum kvern_recurrence {
    // Gated delta rule (gated DeltaNet): S *= g; S += beta * (v - S k) k^T; the result is S q.
    KVERN_RECURRENCE_DELTA = 0,
    // The same with a decay g per key channel (Kimi Delta Attention).
    KVERN_RECURRENCE_DELTA_CHANNELS = 1,
    // State space duality (Mamba2), with x for v, B for k, C for q: S = g S + (dt x) B^T; the
    // result is S C + d x. Keys are groups, k_dim is the state's size, v_dim a head's.
    KVERN_RECURRENCE_SSD = 2,
    // A lane: lane_bytes bytes per row that the caller computes with.
    KVERN_RECURRENCE_LANE = 3
} kvern_recurrence;

// Limits of a layer's geometry. A plan beyond one of them is refused when the composition is made;
// none is silently cut.
#define KVERN_MAX_HEAD_DIM 576    // of keys, and of values
#define KVERN_MAX_LATENT_DIM 1024 // of latents
#define KVERN_MAX_ROPE_DIM 256    // of the rotated keys beside them
#define KVERN_MAX_INDEX_DIM 256   // of index keys
#define KVERN_MAX_KV_HEADS 4096   // of a layer
#define KVERN_MAX_CONV_KERNEL 16  // taps of a recurrent layer's convolution
#define KVERN_MAX_LANE_BYTES ((size_t)1 << 30)
#define KVERN_MAX_LAYERS 4096               // of a composition
#define KVERN_MAX_ROWS 65536                // of a cache or a state
#define KVERN_MAX_WINDOW (INT64_C(1) << 32) // positions; a row may have 2^40

// One page (a block of a paged KV cache) holds this many consecutive positions of one row and one
// layer, for all KV heads. Memory is given, shared and taken back in pages, so a row of a single
// position holds as much as one of 64.
#define KVERN_PAGE_POSITIONS 64

// The plan of one layer. A capability that a plan asks for is built or refused, never replaced.
// Fields that a release adds are 0 in the structs of older programs, and mean what was before.
typedef struct kvern_layer {
    size_t size; // sizeof(kvern_layer); set by kvern_layer_default
    kvern_layer_kind kind;

    // Geometry. A model with grouped heads has fewer KV heads than query heads, which are named
    // with the queries (kvern_queries); with one KV head it is multi-query attention.
    size_t kv_heads; // 1 to KVERN_MAX_KV_HEADS
    size_t k_dim;    // head dim of keys and queries: a multiple of 8, at most KVERN_MAX_HEAD_DIM
    size_t v_dim;    // head dim of values and outputs: likewise, may differ from k_dim

    // How keys and values are stored. They may differ: keys bear fewer bits worse than values.
    kvern_codec k_codec;
    kvern_codec v_codec;

    // Sliding window (0 in other kinds; slack is for chunks, too). A query sees `window` positions
    // at most, its own included: the first `keep` positions of the row (attention sinks) and the
    // newest window - keep. So the query at position p sees the positions j <= p with j < keep or j
    // > p - (window - keep). Pages of which nothing is needed any more are used again, so a row's
    // bytes do not grow with its length. The newest `slack` positions can always be trimmed; more,
    // once positions have been dropped, cannot (kvern_cache_trimmable), unless all are.
    int64_t window; // 1 to KVERN_MAX_WINDOW
    int64_t keep;   // 0 to window - 1
    int64_t slack;  // 0 to KVERN_MAX_WINDOW

    // bf16 first, quantized later. KVERN_NO_START: k_codec and v_codec from the first position on.
    // Otherwise a row begins in bf16, and the append that leaves it with at least `start` positions
    // is still read in bf16; then the row is converted, once, to k_codec and v_codec, and whatever
    // follows is stored and read in them. 0 converts after the first append. While a row is
    // converted it holds at most one page of the planned codecs beside what it held in bf16; but
    // where a read or a fork holds pages of it, new ones in their place are taken before it starts.
    // Under a budget the same holds for the bytes that the allocator gave; without one, pages lie
    // in arenas of up to 2 MiB, which go back with their last page.
    int64_t start;

    // Latents (0 in other kinds; MLA). A position has one latent of `latent_dim` numbers, one key
    // of `rope_dim` that carries the rotary embedding, and, where the layer selects positions
    // (sparse attention, DSA), one index key of `index_dim`. All query heads share them: kv_heads
    // is 1, and so queries have k_dim = latent_dim + rope_dim numbers and results v_dim =
    // latent_dim. k_codec and v_codec stay 0, and start is KVERN_NO_START.
    size_t latent_dim; // a multiple of 8, at most KVERN_MAX_LATENT_DIM
    size_t rope_dim;   // a multiple of 8, at most KVERN_MAX_ROPE_DIM; 0: there is no such key
    size_t index_dim;  // a multiple of 8, at most KVERN_MAX_INDEX_DIM; 0: the layer has no indexer
    // How they are stored, each of its own; that of a part which is not there stays 0 (f32).
    kvern_codec latent_codec;
    kvern_codec rope_codec;
    kvern_codec index_codec;

    // Recurrent layers (0 in other kinds; kvern/recurrent.h). A row has a state of fixed size
    // instead of positions: a matrix of v_dim times k_dim for each value head, and what a causal
    // convolution over the channels of queries, keys and values still needs. value_heads is a
    // multiple of key_heads, kv_heads is 0. Everything is f32, so k_codec and v_codec stay 0, and
    // start is KVERN_NO_START. `slack` is how many tokens a round may have (kvern/round.h), which
    // bounds what has to be noted for it; 0: there are no rounds.
    kvern_recurrence recurrence;
    uint32_t conv_kernel; // taps of the convolution, 2 to KVERN_MAX_CONV_KERNEL; 0: there is none
    size_t conv_dim;      // its channels, 2 * key_heads * k_dim + value_heads * v_dim; or 0
    size_t key_heads;     // heads of queries and keys, groups of B and C: 1 to KVERN_MAX_KV_HEADS
    size_t value_heads;   // heads of values: as many
    size_t lane_bytes;    // KVERN_RECURRENCE_LANE, and 0 in others: 1 to KVERN_MAX_LANE_BYTES

    // Chunked local attention (0 in other kinds): a row is cut into chunks of `chunk` positions,
    // and a query sees those of its own chunk up to its own position. So the query at position p
    // sees the positions j <= p with floor(j / chunk) == floor(p / chunk): the first query of a
    // chunk sees itself alone. As with a sliding window, pages of which nothing is needed any more
    // are used again, and `slack` says how many of the newest positions can always be trimmed:
    // where they reach into the chunk before, that one is still held.
    int64_t chunk; // 1 to KVERN_MAX_WINDOW

    // Positions that are kept in bf16 while others are stored in k_codec and v_codec (0 in layers
    // of latents and recurrent ones; 0 and 0: none). A query at position p reads the row's first
    // `precise_sinks` positions and the newest `residual` ones, its own included, in bf16; both are
    // rounded up to whole pages, so of what lies between them it reads the pages in the planned
    // codecs that end at p + 1 - residual or before. What a query reads depends on p alone,
    // whatever the appends were. A row stores a position in one form, and in both until an append
    // ends whose queries read it in both. With a start all of that begins when the row has reached
    // it, and nothing of a sliding window is dropped before. What has left the residual does not
    // come back, so a row can be trimmed less far (kvern_cache_trimmable). Refused are selections
    // of positions, codes in padded planes, and planes without all positions of a row
    // (KVERN_ERR_UNSUPPORTED).
    int64_t residual;      // 0 to KVERN_MAX_WINDOW; less than `window`, or `chunk`
    int64_t precise_sinks; // likewise; where a window slides, those of them that it keeps

    // Shared layers (0 in other kinds; kvern/donor.h): the index of the layer that is read, an
    // earlier one which keeps keys and values. kv_heads, k_dim and v_dim are that layer's; all else
    // follows from it and stays 0, and start is KVERN_NO_START.
    size_t donor;

    // Whether latents and the rotated keys beside them may be stored in codes of rotated vectors
    // (kvern_codec_rotated, kvern_codec_turbo; 0 in other kinds): 1, or 0: such a latent_codec or
    // rope_codec is refused (KVERN_ERR_UNSUPPORTED), so that nobody gets them who has only asked
    // for few bits. Index keys need no leave.
    uint64_t rotated_latents;
} kvern_layer;

// The start of a layer that is never converted: stored in its codecs from the first position on.
#define KVERN_NO_START (-1)

// Slack of kvern_layer_window: room to take a speculative round back. It costs a page more per row
// at most, and no position more is seen.
#define KVERN_DEFAULT_SLACK 64

// Writes a full-attention layer with both head dims `head_dim`, stored in bf16, to `size` bytes,
// sizeof(kvern_layer) of the caller. Nothing is checked yet.
KVERN_API void kvern_layer_init(kvern_layer *layer, size_t size, size_t kv_heads, size_t head_dim);

// The same as a value.
static inline kvern_layer kvern_layer_default(size_t kv_heads, size_t head_dim)
{
    kvern_layer layer;
    kvern_layer_init(&layer, sizeof layer, kv_heads, head_dim);
    return layer;
}

// The same with a sliding window of `window` positions, no kept ones, and KVERN_DEFAULT_SLACK.
static inline kvern_layer kvern_layer_window(size_t kv_heads, size_t head_dim, int64_t window)
{
    kvern_layer layer = kvern_layer_default(kv_heads, head_dim);
    layer.kind = KVERN_LAYER_WINDOW;
    layer.window = window;
    layer.slack = KVERN_DEFAULT_SLACK;
    return layer;
}

// The same with chunks of `chunk` positions that see nothing of each other, and
// KVERN_DEFAULT_SLACK.
static inline kvern_layer kvern_layer_chunked(size_t kv_heads, size_t head_dim, int64_t chunk)
{
    kvern_layer layer = kvern_layer_default(kv_heads, head_dim);
    layer.kind = KVERN_LAYER_CHUNKED;
    layer.chunk = chunk;
    layer.slack = KVERN_DEFAULT_SLACK;
    return layer;
}

// A latent layer (MLA) of these dims, every part stored in f32.
static inline kvern_layer kvern_layer_latent(size_t latent_dim, size_t rope_dim, size_t index_dim)
{
    kvern_layer layer = kvern_layer_default(1, latent_dim);
    layer.kind = KVERN_LAYER_LATENT;
    layer.k_dim = latent_dim + rope_dim;
    layer.k_codec = layer.v_codec = layer.latent_codec; // f32, which is 0
    layer.latent_dim = latent_dim;
    layer.rope_dim = rope_dim;
    layer.index_dim = index_dim;
    return layer;
}

// Slack of recurrent layers that are made by the functions below, in tokens of a round.
#define KVERN_RECURRENT_SLACK 16

// Makes recurrent layers; nothing is checked yet. Their codecs are f32.
static inline kvern_layer kvern_layer_recurrent(kvern_recurrence recurrence, size_t key_heads,
                                                size_t value_heads, size_t k_dim, size_t v_dim,
                                                uint32_t conv_kernel)
{
    kvern_layer layer = kvern_layer_default(0, 0);
    layer.kind = KVERN_LAYER_RECURRENT;
    layer.recurrence = recurrence;
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    layer.slack = KVERN_RECURRENT_SLACK;
    layer.key_heads = key_heads;
    layer.value_heads = value_heads;
    layer.k_dim = k_dim;
    layer.v_dim = v_dim;
    layer.conv_kernel = conv_kernel;
    layer.conv_dim = conv_kernel ? 2 * key_heads * k_dim + value_heads * v_dim : 0;
    return layer;
}

// Gated DeltaNet, with one decay per value head.
static inline kvern_layer kvern_layer_delta(size_t key_heads, size_t value_heads, size_t k_dim,
                                            size_t v_dim, uint32_t conv_kernel)
{
    return kvern_layer_recurrent(KVERN_RECURRENCE_DELTA, key_heads, value_heads, k_dim, v_dim,
                                 conv_kernel);
}

// Mamba2: `groups` of B and C, heads of head_dim with states of head_dim times state_dim.
static inline kvern_layer kvern_layer_ssd(size_t groups, size_t heads, size_t state_dim,
                                          size_t head_dim, uint32_t conv_kernel)
{
    return kvern_layer_recurrent(KVERN_RECURRENCE_SSD, groups, heads, state_dim, head_dim,
                                 conv_kernel);
}

// A lane of that many bytes, with a slack of 1: what the caller computes cannot be computed again.
static inline kvern_layer kvern_layer_lane(size_t lane_bytes)
{
    kvern_layer layer = kvern_layer_recurrent(KVERN_RECURRENCE_LANE, 0, 0, 0, 0, 0);
    layer.slack = 1;
    layer.lane_bytes = lane_bytes;
    return layer;
}

// A layer that reads what `layers[donor]` keeps, of the layers that the composition is made from.
static inline kvern_layer kvern_layer_shared(const kvern_layer *layers, size_t donor)
{
    kvern_layer layer = kvern_layer_default(layers[donor].kv_heads, layers[donor].k_dim);
    layer.kind = KVERN_LAYER_SHARED;
    layer.v_dim = layers[donor].v_dim;
    layer.k_codec = layer.v_codec = kvern_codec_dense(KVERN_F32);
    layer.donor = donor;
    return layer;
}

// The plans of all layers, checked, with what follows from them: where streams lie in a page, and
// which layers' pages come from one pool. It never changes, is counted by references, and may be
// used by any number of threads, caches and states at once.
typedef struct kvern_composition kvern_composition;

// Makes a composition of `count` layers (1 to KVERN_MAX_LAYERS). `layers` is borrowed for the call;
// all of them have one size.
// On success *out holds one reference (kvern_composition_release); on failure *out is NULL and the
// detail names the layer and the field. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (window, keep,
// slack, chunk or start), KVERN_ERR_UNSUPPORTED (an unknown kind or codec; a group that does not
// divide a head dim; a start with a stream whose codec takes more room than bf16),
// KVERN_ERR_OVERFLOW (a page would be larger than 1 GiB), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET. A
// shared layer's donor that is no earlier layer is KVERN_ERR_RANGE, one of another kind
// KVERN_ERR_UNSUPPORTED.
KVERN_API KVERN_CHECK kvern_status kvern_composition_create(kvern_context *context,
                                                            const kvern_layer *layers, size_t count,
                                                            kvern_composition **out);

// Gives a reference back. NULL is allowed. Caches and states keep their own, so it may be given
// back as soon as they are made.
KVERN_API void kvern_composition_release(kvern_composition *composition);

// The number of layers, 1 to KVERN_MAX_LAYERS. Layers are named by their index, 0 to this less 1,
// in the order in which they were given.
KVERN_API size_t kvern_composition_layers(const kvern_composition *composition);

// The plan of one layer, owned by the composition; NULL when the index is out of range. Its size is
// the library's, which may know other fields than the caller.
KVERN_API const kvern_layer *kvern_composition_layer(const kvern_composition *composition,
                                                     size_t layer);

// The exact storage identity of one layer, for example "full:h3:k64=bf16:v64=bf16". Two layers can
// exchange rows exactly when their signatures are the same string: joins compare them, and a
// program may, to see in advance what would be refused. It says what a row of the layer is (a
// window with its kept positions and slack, a chunk with its slack, a start), heads, dims and
// codecs; it does not say which model the row belongs to. Of a shared layer it is "shared:5:" and
// what that donor's says. Owned by the composition; NULL when the index is out of range.
KVERN_API const char *kvern_composition_signature(const kvern_composition *composition,
                                                  size_t layer);

// Bytes of storage that one more position of one row takes in one layer, in its planned codecs:
// for a comparison of storages, or for an estimate. What a row really holds goes by whole pages
// (kvern_composition_row_bytes), and a window does not grow for ever. A shared layer takes none. An
// index out of range gives 0.
KVERN_API uint64_t kvern_composition_layer_bytes_per_token(const kvern_composition *composition,
                                                           size_t layer);

// The sum over all layers: what a token more of one sequence takes while no window is full.
KVERN_API uint64_t kvern_composition_bytes_per_token(const kvern_composition *composition);

// Bytes of the pages that one row of `tokens` positions holds at most over all layers, when they
// arrive one by one or in rounds (kvern/round.h): whole pages, nothing else. A recurrent layer has
// its state, that of an open step, and what a round needs, whatever the length. A layer with a
// start counts with the larger one of its two forms while `tokens` is below start, and with the
// planned one from there on. UINT64_MAX when the number does not fit. Lists of pages, reads and
// scratch come on top: kvern_composition_plan_bytes (kvern/plan.h) counts all that a budget has to
// hold.
KVERN_API uint64_t kvern_composition_row_bytes(const kvern_composition *composition,
                                               uint64_t tokens);

// The same for one layer; 0 when the index is out of range.
KVERN_API uint64_t kvern_composition_layer_row_bytes(const kvern_composition *composition,
                                                     size_t layer, uint64_t tokens);

// What a layer can do. A capability that is reported is honoured; a call that needs an absent one
// is refused with KVERN_ERR_UNSUPPORTED. Ask before a feature is offered to a user: whether a plan
// can be decoded, drafted or shared follows from its kind and not from its name.
typedef enum kvern_capability {
    KVERN_CAN_DECODE = 0, // appends in KVERN_PHASE_DECODE
    KVERN_CAN_WINDOW = 1, // in KVERN_PHASE_WINDOW
    KVERN_CAN_KNOWN = 2,  // in KVERN_PHASE_KNOWN
    // Drop any number of the newest positions, whatever the row holds. Sliding windows, chunks and
    // layers with a residual do not have it: how many they can drop, kvern_cache_trimmable says.
    KVERN_CAN_TRIM = 3,
    KVERN_CAN_FORK = 4, // share positions with another cache
    // Tokens that see each other both ways (KVERN_PHASE_RANGES and the two behind it), of
    // attention; and kvern_cache_read_block, of attention without chunks that keeps its own keys
    // and values.
    KVERN_CAN_BIDIRECTIONAL = 5,
    KVERN_CAN_BLOCK = 6,
    KVERN_CAN_LATENT = 7, // appends of latents (kvern/latent.h), and none of keys and values
    KVERN_CAN_RECUR = 8,  // recurrent steps (kvern/recurrent.h), and no appends
    // Read what another layer keeps (kvern/donor.h), and no appends. What such a layer can do
    // besides is what its donor can, but for block reads.
    KVERN_CAN_SHARE = 9
} kvern_capability;

// False for an absent capability, an unknown one, or an index out of range.
KVERN_API bool kvern_composition_can(const kvern_composition *composition, size_t layer,
                                     kvern_capability capability);

#ifdef __cplusplus
}
#endif

#endif
