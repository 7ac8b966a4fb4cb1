// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_GCC_TILES_H
#define KVERN_BENCH_GCC_TILES_H

// Included before every C++ file of a peer that gcc compiles. gcc's own AMX intrinsics (at least up
// to version 12) tell the compiler of 8 of the 64 bytes that a tile configuration has, and of none
// that a tile is loaded from. The rest may be stored too late, and the peer ends with an illegal
// instruction. These say that memory is read.

#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)

#include <immintrin.h>

static inline void load_tile_config(const void *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])config) : "memory");
}

#define _tile_loadconfig(config) load_tile_config(config)

#undef _tile_loadd
#define _tile_loadd(tile, base, stride)                                                            \
    do {                                                                                           \
        __asm__ volatile("" : : : "memory");                                                       \
        _tile_loadd_internal(tile, base, stride);                                                  \
    } while (0)

#undef _tile_stream_loadd
#define _tile_stream_loadd(tile, base, stride)                                                     \
    do {                                                                                           \
        __asm__ volatile("" : : : "memory");                                                       \
        _tile_stream_loadd_internal(tile, base, stride);                                           \
    } while (0)

#endif

#endif
