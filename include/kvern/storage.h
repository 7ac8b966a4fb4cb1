// SPDX-License-Identifier: MIT
#ifndef KVERN_STORAGE_H
#define KVERN_STORAGE_H

// From a model's geometry and a user's wishes to the layers of a composition: which codec every
// layer stores its keys and values in, and from where on.
//
//     kvern_layer layers[] = ...;                       the model's geometry, kinds and windows
//     kvern_storage storage = kvern_storage_default();
//     kvern_codec_parse("q4", 64, &storage.k);          4 bits for keys
//     storage.v = storage.k;                            and values,
//     storage.precise_last = 1;                         but bf16 in the last layer
//     kvern_storage_apply(&storage, layers, count);
//     kvern_composition_create(context, layers, count, &composition);

#include <kvern/composition.h>

#ifdef __cplusplus
extern "C" {
#endif

// Another storage for one layer: what a kv_config.json says about it, for example.
//
//     const kvern_codec eight = kvern_codec_affine(8, 64);
//     const kvern_layer_storage others[] = {{.layer = 7, .k = eight, .v = eight}};
//     storage.layers = others;
//     storage.layer_count = 1;
//
// Entries are as far apart as this struct is long, which does not change.
typedef struct kvern_layer_storage {
    size_t layer; // its index in the array that kvern_storage_apply is given
    // Of its keys and of its values; bf16 in both: no start. In a layer of latents: of these, and
    // of the rotated keys; its index keys are as kvern_storage.index says.
    kvern_codec k, v;
    // Instead of kvern_storage's, window_residual included; 0: as that says, KVERN_NO_RESIDUAL:
    // nothing stays precise. 0 in layers of latents.
    int64_t residual, precise_sinks;
} kvern_layer_storage;

// No position of a layer is kept precise, whatever is said of the others.
#define KVERN_NO_RESIDUAL (-1)

// How the layers of a model are stored: a quantization recipe. Three rules, each of which wins over
// those before it: one pair of codecs for all layers, bf16 for some of the first and the last ones
// (which bear fewer bits worst), and exceptions for single layers. A start puts the codes off until
// a row has so many positions; short rows are then never quantized.
typedef struct kvern_storage {
    size_t size;                       // sizeof(kvern_storage); set by kvern_storage_default
    kvern_codec k, v;                  // of all layers
    int64_t start;                     // of all layers that are not in bf16: see kvern_layer.start
    size_t precise_first;              // so many layers at the beginning, and
    size_t precise_last;               // so many at the end stay in bf16; shared ones do not count
    const kvern_layer_storage *layers; // exceptions, which win over everything above; borrowed
    size_t layer_count;
    // Of all layers of latents (kvern/latent.h), to which k, v, start and the precise layers do not
    // apply: of the latents, of the rotated keys, and of index keys, where a layer has them.
    kvern_codec latent, rope, index;
    // Of all layers that are not in bf16: see kvern_layer.residual. A layer whose window or chunk
    // is no longer than the residual is in bf16 then, for all that its queries see is precise.
    int64_t residual;
    int64_t precise_sinks;
    // Of layers with a window or a chunk, instead of k, v and residual, where windows_apart is 1;
    // 0: they are stored as the others. All that such a layer holds is new, so that a residual
    // takes much of it and coarse codes show; and the longer a row gets, the less of its memory it
    // takes.
    uint64_t windows_apart;
    kvern_codec window_k, window_v;
    int64_t window_residual;
    // kvern_layer.rotated_latents of all layers of latents: 1 where latent or rope, or an exception
    // for such a layer, may be codes of rotated vectors.
    uint64_t rotated_latents;
} kvern_storage;

// Writes the defaults to `size` bytes, sizeof(kvern_storage) of the caller: bf16 in every layer,
// f32 in layers of latents, no start, no exceptions.
KVERN_API void kvern_storage_init(kvern_storage *storage, size_t size);

// The same as a value.
static inline kvern_storage kvern_storage_default(void)
{
    kvern_storage storage;
    kvern_storage_init(&storage, sizeof storage);
    return storage;
}

// Presets: recipes by name, for users who do not want to choose codecs. From the largest to the
// smallest:
//
//     light      rotated codes, keys in 8 bits, values in 6; the newest 128 positions are in bf16
//     balanced   TurboQuant codes, keys in 4 bits, values in 3; the newest 384 are in bf16. Windows
//                and chunks have keys in 5 bits, values in 4, and the newest 64 in bf16
//     small      TurboQuant codes, keys in 4 bits, values in 3; the newest 64 are in bf16
//
// In all of them the first 64 positions are in bf16, too. docs/PERF.md has what they cost. Head
// dims must be multiples of 16 (balanced, small) or 64 (light).
//
// What a name stands for may change with a release, as better recipes are found; bytes and
// signatures tell what it is. kvern_storage_preset replaces k, v, residual, precise_sinks and what
// is said of windows, and leaves the rest: start, precise layers, exceptions, latents. *storage has
// been initialized, and is unchanged on failure. Errors: KVERN_ERR_ARGUMENT (another name, NULL, or
// a size that has nothing of windows).
KVERN_API KVERN_CHECK kvern_status kvern_storage_preset(const char *name, kvern_storage *storage);

// The name of preset number `index`, from 0 on; NULL: there are no more.
KVERN_API const char *kvern_storage_preset_name(size_t index);

// Finds a codec by its name, as users type it: "f32", "bf16" and "f16" are dense; "q8", "q6", "q5",
// "q4", "q3" and "q2" are affine codes of so many bits, with groups of `group` and scales in bf16;
// "q4g32" names its group itself. With an r in front, as in "rq4" and "rq4g32", they are those of
// rotated vectors, and "tq6" to "tq1" turbo codes, which have no groups. *out is
// unchanged on failure. KVERN_ERR_ARGUMENT: another name, NULL, or a group that is not 32, 64 or
// 128 for codes with groups.
KVERN_API KVERN_CHECK kvern_status kvern_codec_parse(const char *name, uint32_t group,
                                                     kvern_codec *out);

// Writes codecs, starts and what is precise (k_codec, v_codec, start, residual, precise_sinks; in
// layers of latents latent_codec, rope_codec and index_codec) into `count` layers, and replaces
// what they had; of their other fields only the kind, the window or chunk and the dims of latents
// are looked at. Recurrent layers, which have one storage, and shared ones, which are stored as
// their donors, stay as they are and cannot be exceptions (KVERN_ERR_UNSUPPORTED). A layer in bf16
// throughout has no start and no residual. `storage` and its exceptions are borrowed for the call.
// On failure no layer changed. Errors: KVERN_ERR_ARGUMENT (NULL, a size that is not known, or
// layers of several sizes), KVERN_ERR_UNSUPPORTED (fields that the library does not know, or
// reserved ones, are set, or what is precise in latents), KVERN_ERR_RANGE (an exception for a layer
// that does not exist, or two for one layer; more precise layers than layers; a negative residual).
// Whether codecs suit the layers, kvern_composition_create says.
KVERN_API KVERN_CHECK kvern_status kvern_storage_apply(const kvern_storage *storage,
                                                       kvern_layer *layers, size_t count);

#ifdef __cplusplus
}
#endif

#endif
