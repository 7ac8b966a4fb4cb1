// SPDX-License-Identifier: MIT
#ifndef KVERN_KVERN_H
#define KVERN_KVERN_H

// Kvern holds the attention state (KV cache) of a language model and reads it: keys and values go
// in, attention comes out. This header includes the whole stable interface.
//
//   kvern_context      memory, budget, threads, instruction sets          kvern/context.h
//   kvern_composition  what each layer keeps, and how it is stored        kvern/composition.h
//   kvern_storage      which codecs a user wants for which layers         kvern/storage.h
//   kvern_cache        the rows of one layer; usable alone                kvern/cache.h
//   kvern_state        the caches of all layers; steps                    kvern/state.h
//   kvern_plan         what rows take at most, and room for it            kvern/plan.h
//   padded planes      rows from and to the rectangles of other engines   kvern/padded.h
//   kvern_round_...    speculative rounds of a state                      kvern/round.h
//   kvern_slot         a token's place, for kernels that store it there   kvern/slot.h
//   kvern_read         what an append returns: attend, then release       kvern/read.h
//   kvern_status       one list of error codes, with detail text          kvern/status.h
//
// The promise: the same tokens give the same bits, however they were served - alone or in a batch,
// in one chunk or many, on one thread or many, on any supported processor. docs/arithmetic.md says
// how.
//
// examples/attend.c is a complete program of about thirty lines.

#include <kvern/cache.h>
#include <kvern/composition.h>
#include <kvern/context.h>
#include <kvern/cpu.h>
#include <kvern/padded.h>
#include <kvern/plan.h>
#include <kvern/read.h>
#include <kvern/round.h>
#include <kvern/slot.h>
#include <kvern/state.h>
#include <kvern/status.h>
#include <kvern/storage.h>
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
