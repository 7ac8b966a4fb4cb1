// SPDX-License-Identifier: MIT
#ifndef KVERN_KVERN_H
#define KVERN_KVERN_H

// Kvern holds the attention state (KV cache) of a language model and reads it: keys and values go
// in, attention comes out. This header includes the whole stable interface, but for kvern/math.h
// and kvern/recurrent_math.h, kernels that models need around their layers.
//
//   kvern_context      memory, budget, threads, instruction sets          kvern/context.h
//   kvern_composition  what each layer keeps, and how it is stored        kvern/composition.h
//   kvern_storage      which codecs a user wants for which layers         kvern/storage.h
//   kvern_cache        the rows of one layer; usable alone                kvern/cache.h
//   kvern_state        the caches of all layers; steps                    kvern/state.h
//   kvern_latent_...   layers of latents (MLA): appends, exports          kvern/latent.h
//   kvern_plan         what rows take at most, and room for it            kvern/plan.h
//   kvern_recur_...    recurrent layers: linear attention, SSMs, lanes    kvern/recurrent.h
//   checkpoints        rows as they were, to go back to                   kvern/checkpoint.h
//   kvern_round_...    speculative rounds of a state                      kvern/round.h
//   donors             layers and drafters that read another layer's rows  kvern/donor.h
//   kvern_read         what an append returns: attend, then release       kvern/read.h
//   kvern_selection    which positions queries attend: sparse attention   kvern/select.h
//   kvern_store        rows of earlier prompts, found by their tokens      kvern/store.h
//   kvern_disk_store   the same in a directory, across processes           kvern/disk_store.h
//   kvern_remote_store the same on a Redis server, across machines         kvern/remote_store.h
//   kvern_file         rows in a file, and back                            kvern/file.h
//   kvern_mlx_file     prompt caches of mlx-lm, both ways                  kvern/mlx_cache.h
//   kvern_status       one list of error codes, with detail text          kvern/status.h
//
// The promise: the same tokens give the same bits, however they were served - alone or in a batch,
// in one chunk or many, on one thread or many, on any supported processor. docs/arithmetic.md says
// how.
//
// Stable means: a program that was linked to one release works with every later one of the same
// SONAME (libkvern.so.0.2: all of 0.2). Functions stay, with their parameters; structs that begin
// with their size grow at the end only, and each side accepts the other's size; `reserved` words
// are 0 until a release gives them a use. Between versions of different SONAME, sources may need
// changes. What is in kvern/experimental/ may change or go in any release:
//
//   padded planes      rows from and to the rectangles of other engines kvern/experimental/padded.h
//   kvern_slot         a token's place, for kernels that store it there   kvern/experimental/slot.h
//   kvern_store_node   what prompts in a store share    kvern/experimental/store_tree.h
//
// Words of this library, and what they are called elsewhere:
//
//   row           a sequence (request, slot); its positions are the tokens it holds
//   read          an immutable view of a KV cache for attention: a snapshot
//   composition   the cache plan of a model: geometry and quantization of every layer
//   storage       a quantization recipe: which KV type for which layer
//   codec         KV cache type (quantization format)
//   form          precision stage of a row: bf16 first, or the planned codec
//   start         quantize from this many tokens on (quantized_kv_start)
//   boundary      the earliest length at which a planned prefill lets a row be quantized
//   settle        maintenance after an append: evict behind windows, quantize
//   room          reserved capacity
//   keep          first positions that a sliding window never drops: attention sinks (StreamingLLM)
//   sinks         learned logits that join a softmax (gpt-oss); not the kept positions
//   donor         the layer whose KV another layer reads: cross-layer KV sharing
//   known span    tokens that are decided already, computed as decodes
//   store         prefix cache: rows of earlier requests, found by their tokens
//   round         speculative decoding: draft, verify, accept or roll back
//
// examples/attend.c is a complete program of about thirty lines; examples/steps.c has a state of
// several layers, examples/hybrid.c latents, a selection, a recurrent layer, rounds and
// checkpoints, examples/prefix.c a prefix that two prompts share.

#include <kvern/cache.h>
#include <kvern/checkpoint.h>
#include <kvern/composition.h>
#include <kvern/context.h>
#include <kvern/cpu.h>
#include <kvern/disk_store.h>
#include <kvern/donor.h>
#include <kvern/file.h>
#include <kvern/latent.h>
#include <kvern/mlx_cache.h>
#include <kvern/plan.h>
#include <kvern/read.h>
#include <kvern/recurrent.h>
#include <kvern/remote_store.h>
#include <kvern/round.h>
#include <kvern/select.h>
#include <kvern/state.h>
#include <kvern/status.h>
#include <kvern/storage.h>
#include <kvern/store.h>
#include <kvern/version.h>

#ifdef __cplusplus
extern "C" {
#endif

// The version of the library that is linked, "major.minor.patch"; the headers' own is in
// kvern/version.h.
KVERN_API const char *kvern_version(void);

#ifdef __cplusplus
}
#endif

#endif
