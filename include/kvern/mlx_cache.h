// SPDX-License-Identifier: MIT
#ifndef KVERN_MLX_CACHE_H
#define KVERN_MLX_CACHE_H

// Prompt caches of mlx-lm: the files of its save_prompt_cache, read and written; and those of
// mlx-bun (MLXBUNKV1), read. A cache that mlx-lm computed continues here, and one of ours there.
//
//     kvern_mlx_file *file;
//     kvern_mlx_open(context, "prompt.safetensors", &file);
//     kvern_mlx_import(file, composition, NULL, &state);       its rows, as a new state
//     kvern_mlx_close(file);
//     ... steps ...
//     kvern_mlx_export(state, NULL, 0, "longer.safetensors", NULL);
//
// What is stored goes over bit for bit: numbers in bf16, f16 or f32, and the codes, scales and
// biases of quantized caches. Where a layer stores something else than the file has, the call is
// refused, unless a conversion is asked for. (Signalling NaNs become quiet.) docs/formats/
// mlx-prompt-cache.md says what is in the files, and what each class becomes.
//
// The files hold no tokens, no model and no rope parameters. Whoever saves keeps the tokens whose
// keys and values these are: a program of mlx-lm in its user metadata, or beside the file; they go
// to and come from kvern_mlx_note here, under a key of the caller's. A file of another model with
// layers of the same dims cannot be told from the right one.
//
// The library has these functions where it was built with KVERN_FILES.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_mlx_file kvern_mlx_file;

// How a file says what its caches are.
typedef enum kvern_mlx_layout {
    KVERN_MLX_STATES = 0, // mlx-lm 0.32 and later: everything is a tensor
    KVERN_MLX_INFOS = 1,  // up to 0.31: numbers are metadata
    KVERN_MLX_BUN = 2     // MLXBUNKV1 of mlx-bun; never written
} kvern_mlx_layout;

typedef enum kvern_mlx_conversion {
    KVERN_MLX_EXACT = 0,  // what is stored differently is refused
    KVERN_MLX_CONVERT = 1 // it is computed anew from the values
} kvern_mlx_conversion;

// User metadata.
typedef struct kvern_mlx_note {
    const char *key;   // UTF-8; no dots and not a number: mlx-lm reads these as trees
    const char *value; // UTF-8
} kvern_mlx_note;

// One cache of a file. The caches of a CacheList are listed each by itself, in order.
typedef struct kvern_mlx_cache {
    size_t size;            // sizeof(kvern_mlx_cache) of the caller
    const char *class_name; // of mlx-lm: "KVCache"
    size_t entry;           // its place in the file's list of caches
    size_t member, members; // its place in a CacheList, and how many that has; 0 and 0: in none
    size_t rows;            // 0: an empty cache, which could be of any number of rows
    size_t kv_heads;        // 0 where there are no keys and values
    size_t k_dim, v_dim;
    const char *dtype; // of numbers, or of scales: "BF16"; of the state of an ArraysCache. "": none
    size_t slots;      // of an ArraysCache; 0 in others
    int64_t max_size;  // of a window; 0 in others
    int64_t keep;      // of a window
    int64_t chunk;     // 0 where there are no chunks
    uint32_t bits;     // of a quantized cache; 0 in others
    uint32_t group;
} kvern_mlx_cache;

// Opens a file and checks all of it but the values: classes, shapes, and the numbers that say what
// of a tensor is filled. The file stays mapped until it is closed. On failure *out is NULL. Errors:
// KVERN_ERR_IO, KVERN_ERR_FORMAT (not such a file, or parts of it disagree), KVERN_ERR_UNSUPPORTED
// (a class or a dtype that is not known here, by its name), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_mlx_open(kvern_context *context, const char *path,
                                                  kvern_mlx_file **out);
KVERN_API void kvern_mlx_close(kvern_mlx_file *file); // NULL is allowed

KVERN_API kvern_mlx_layout kvern_mlx_file_layout(const kvern_mlx_file *file);

// Caches in the file, those in a CacheList counted each.
KVERN_API size_t kvern_mlx_caches(const kvern_mlx_file *file);

// Writes the facts of cache `index` to the caller's struct. Its strings belong to the file. Errors:
// KVERN_ERR_RANGE, KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_mlx_cache_facts(const kvern_mlx_file *file, size_t index,
                                                         kvern_mlx_cache *facts);

// Rows of the file. Where its caches have different numbers of rows, none is imported.
KVERN_API size_t kvern_mlx_rows(const kvern_mlx_file *file);

// Positions of a row: what the caches say that say it. -1 where none does (an ArraysCache knows no
// position, nor does a ChunkedKVCache of mlx-lm up to 0.31 that has dropped some), where they
// disagree, and for a row out of range.
KVERN_API int64_t kvern_mlx_length(const kvern_mlx_file *file, size_t row);

// The same in one cache.
KVERN_API int64_t kvern_mlx_cache_length(const kvern_mlx_file *file, size_t index, size_t row);

// User metadata number `index`; NULLs behind the last. By key; NULL: there is none. The strings
// belong to the file.
KVERN_API kvern_mlx_note kvern_mlx_file_note(const kvern_mlx_file *file, size_t index);
KVERN_API const char *kvern_mlx_find_note(const kvern_mlx_file *file, const char *key);

// The tokens of a file of mlx-bun, and how many; NULL in others. They belong to the file.
KVERN_API const int32_t *kvern_mlx_tokens(const kvern_mlx_file *file, size_t *count);

// ---- From a file ----

typedef struct kvern_mlx_import_options {
    size_t size; // sizeof(kvern_mlx_import_options); set by kvern_mlx_import_options_default
    // Positions per row of the file, for whoever knows them (the number of tokens). Needed where
    // kvern_mlx_length is -1; elsewhere the file has to say the same. NULL: not known.
    const int64_t *lengths;
    kvern_mlx_conversion conversion; // values are stored as an append of them would
    uint32_t reserved;               // 0
    // Rotated dims of a key, its first ones, which here lie in pairs of neighbours where the file
    // has halves: element i of the file's, and i + k_pairs / 2, are 2i and 2i + 1. Even; 0: keys
    // are as they are. Which way a model has its keys only its engine knows. Codes cannot be
    // reordered: they need a conversion. Keys and values alone, all layers.
    size_t k_pairs;
} kvern_mlx_import_options;

KVERN_API void kvern_mlx_import_options_init(kvern_mlx_import_options *options, size_t size);

static inline kvern_mlx_import_options kvern_mlx_import_options_default(void)
{
    kvern_mlx_import_options options;
    kvern_mlx_import_options_init(&options, sizeof options);
    return options;
}

// Makes a state of the file's rows. The caches of the file are those of the composition's layers
// in order, shared layers having none; an indexed layer of latents takes a CacheList of two. Joins
// (kvern_state_join) bring the rows to those of another state. `options` may be NULL.
//
// Rings become positions in order, columns of padding go, and of windows and chunks is taken what
// the layer holds. A KVCache fits every layer of keys and values and every layer of latents, where
// it has one head, its keys being the latents and its values the rotated keys. An ArraysCache fits
// a recurrent layer: [conv, state], or [conv of q, of k, of v, state], or [state] where there is no
// convolution; what is None is zero.
//
// On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (lengths that are not those
// of the file), KVERN_ERR_FORMAT (caches disagree on their rows, or on the length of one; or none
// says it), KVERN_ERR_UNSUPPORTED (other numbers of layers; a class, dims, a window or a storage
// that the layer does not have: the detail names the layer and both), KVERN_ERR_OVERFLOW,
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_mlx_import(const kvern_mlx_file *file,
                                                    kvern_composition *composition,
                                                    const kvern_mlx_import_options *options,
                                                    kvern_state **out);

// The same for one cache alone: the rows of cache `index`, and the next one where the layer is
// one of latents with index keys, become those of `cache`, which has as many, all empty. On failure
// nothing changed. Errors: those above; KVERN_ERR_BUSY (a row is not empty; a cache of a state).
KVERN_API KVERN_CHECK kvern_status kvern_mlx_import_cache(const kvern_mlx_file *file, size_t index,
                                                          const kvern_mlx_import_options *options,
                                                          kvern_cache *cache);

// The layer that would store cache `index` as it is: for programs without a model. The caller has
// set layer->size (kvern_layer_default does). Latents cannot
// be told from a head of keys and values. Errors: KVERN_ERR_RANGE, KVERN_ERR_UNSUPPORTED (an
// ArraysCache, which does not say what it is; an empty cache; what no layer stores).
KVERN_API KVERN_CHECK kvern_status kvern_mlx_layer(const kvern_mlx_file *file, size_t index,
                                                   kvern_layer *layer);

// ---- To a file ----

// What slots the ArraysCache of a recurrent layer with a convolution has.
typedef enum kvern_mlx_slots {
    KVERN_MLX_SLOTS_BY_KIND = 0, // split where there is a decay per channel (Kimi), else joined
    KVERN_MLX_SLOTS_JOINED = 1,  // [conv, state]
    KVERN_MLX_SLOTS_SPLIT = 2    // [conv of q, conv of k, conv of v, state]; no SSD
} kvern_mlx_slots;

typedef struct kvern_mlx_export_options {
    size_t size; // sizeof(kvern_mlx_export_options); set by kvern_mlx_export_options_default
    kvern_mlx_layout layout;         // KVERN_MLX_STATES by default
    kvern_mlx_conversion conversion; // what the classes of mlx-lm cannot hold is written as values
    kvern_type values;               // of this type; bf16 by default
    // Of the last inputs of convolutions, which a model in bf16 has in bf16; rounded once. f32, as
    // here, at first.
    kvern_type conv;
    kvern_mlx_slots slots;
    uint32_t reserved; // 0
    size_t k_pairs;    // as in kvern_mlx_import_options: pairs here, halves in the file
    // Which layers are a CacheList together: entry e of the file is of lists[e] layers, shared ones
    // not counted, and the sum is all. NULL: each is an entry. (An indexed layer of latents is a
    // list of two anyhow, and can be in no other.)
    const size_t *lists;
    size_t list_count;
    const kvern_mlx_note *notes; // user metadata
    size_t note_count;
} kvern_mlx_export_options;

KVERN_API void kvern_mlx_export_options_init(kvern_mlx_export_options *options, size_t size);

static inline kvern_mlx_export_options kvern_mlx_export_options_default(void)
{
    kvern_mlx_export_options options;
    kvern_mlx_export_options_init(&options, sizeof options);
    return options;
}

// Writes `count` rows of a state (NULL and 0: all) to a file that mlx-lm's load_prompt_cache takes
// and goes on with. The file appears when it is complete, and replaces one of its name.
//
// One row: KVCache for full attention and latents, QuantizedKVCache where both streams have affine
// codes of one kind, RotatingKVCache for windows, ChunkedKVCache for chunks, ArraysCache for
// recurrent layers, CacheList of two for latents with index keys. Several rows: BatchKVCache,
// BatchRotatingKVCache and ArraysCache. Shared layers write nothing. mlx-lm has no class for
// quantized windows, chunks or latents, for batches that are quantized, chunked or keep positions,
// for codes of rotated vectors, for keys and values in codes of two kinds, and for rows that keep
// positions precise: such layers are refused by name, or written as values where a conversion is
// asked for; batches of chunks or with kept positions are refused always.
//
// Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a row; all rows are empty), KVERN_ERR_UNSUPPORTED,
// KVERN_ERR_BUSY (a step or a round is open), KVERN_ERR_IO, KVERN_ERR_OVERFLOW, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_mlx_export(const kvern_state *state, const size_t *rows,
                                                    size_t count, const char *path,
                                                    const kvern_mlx_export_options *options);

#ifdef __cplusplus
}
#endif

#endif
