// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_WEIGHTS_H
#define KVERN_ENGINE_WEIGHTS_H

// A model on disk, whatever its format: tensors, and a configuration of keys and values. A format
// implements `weights_format` (engine/gguf/gguf_weights.c); the rest of the engine asks by the
// engine's own names, which are those of GGUF without the architecture:
//
//   tensors         "token_embd.weight", "blk.3.attn_q.weight"
//   configuration   "general.architecture", "block_count", "attention.head_count"
//
// Everything is borrowed from the open model and immutable; several threads may read it.

#include "engine/weights/config_value.h"
#include "engine/weights/element_type.h"

#define WEIGHTS_MAX_DIMS 4

// Of types whose scales are apart from their codes: every `inputs` elements of a row share one. Of
// affine types an element is scale * code + bias; of ELEMENT_MXFP4, whose blocks in a GGUF file
// have their scales in them, scales are bytes with exponents and there are no biases. Scales and
// biases have rows as the tensor has, of shape[0] / inputs elements.
typedef struct weights_groups {
    const void *scales;
    const void *biases;
    uint32_t type;   // of both: ELEMENT_F32, _F16 or _BF16, or ELEMENT_BYTES
    uint32_t inputs; // 32, 64 or 128; 0: nothing is apart
} weights_groups;

typedef struct weights_tensor {
    text_view name;                   // in the file
    uint32_t type;                    // of its elements, when `known`
    bool known;                       // the type can be decoded; otherwise data is NULL, bytes 0
    uint32_t dims;                    // 1 to WEIGHTS_MAX_DIMS
    uint64_t shape[WEIGHTS_MAX_DIMS]; // shape[0] is the contiguous one; unused entries are 1
    uint64_t elements;
    const void *data;
    size_t bytes;          // with those of its groups
    weights_groups groups; // where they are, data are codes: a row is a stream of bits, the lowest
                           // first
} weights_tensor;

// What a format does; `file` is its own open model.
typedef struct weights_format {
    const char *name; // "GGUF"

    // What its writers do to a model's tensors. `paired_rows`: of families that rotate pairs of
    // neighbours, q and k have their rows in that order, where training code has the two halves of
    // a head behind each other. `whole_norms`: a norm that multiplies by 1 + weight is stored as
    // that sum.
    bool paired_rows;
    bool whole_norms;

    bool hf_names; // keys and tensors are called as Hugging Face calls them, not as GGUF does

    // Tensors in the file's order, and by the engine's name; NULL when there is none.
    size_t (*tensor_count)(const void *file);
    const weights_tensor *(*tensor_at)(const void *file, size_t index);
    const weights_tensor *(*find_tensor)(const void *file, const char *name);

    // These bytes of a tensor's data are not needed any more: see weights_drop_pages.
    void (*drop_pages)(const void *file, const void *data, size_t bytes);

    // Configuration in the file's order, and by the engine's name; absent when there is none.
    size_t (*key_count)(const void *file);
    config_value (*key_at)(const void *file, size_t index, text_view *key);
    config_value (*find_key)(const void *file, const char *name);

    // What the file calls a key or tensor that the engine calls `name`, for messages: text[bytes].
    void (*key_name)(const void *file, const char *name, char *text, size_t bytes);
    void (*tensor_name)(const void *file, const char *name, char *text, size_t bytes);

    // Bytes on disk, all files together.
    uint64_t (*file_bytes)(const void *file);
} weights_format;

// An open model: a view, copied freely.
typedef struct weights {
    const weights_format *format;
    const void *file;
} weights;

static inline size_t weights_tensor_count(const weights *w)
{
    return w->format->tensor_count(w->file);
}

static inline const weights_tensor *weights_tensor_at(const weights *w, size_t index)
{
    return w->format->tensor_at(w->file, index);
}

static inline const weights_tensor *weights_find_tensor(const weights *w, const char *name)
{
    return w->format->find_tensor(w->file, name);
}

// Tells the operating system that these bytes have been repacked and will hardly be read again;
// reading them stays valid.
static inline void weights_drop_pages(const weights *w, const void *data, size_t bytes)
{
    w->format->drop_pages(w->file, data, bytes);
}

static inline size_t weights_key_count(const weights *w)
{
    return w->format->key_count(w->file);
}

static inline config_value weights_key_at(const weights *w, size_t index, text_view *key)
{
    return w->format->key_at(w->file, index, key);
}

static inline config_value weights_find_key(const weights *w, const char *name)
{
    return w->format->find_key(w->file, name);
}

#endif
