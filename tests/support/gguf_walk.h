// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_GGUF_WALK_H
#define KVERN_TESTS_SUPPORT_GGUF_WALK_H

#include "engine/gguf/gguf.h"

// Calls every accessor on everything in the file, reads every string, and decodes the first and
// last values of every tensor that can be decoded. Ends the program when the file contradicts
// itself or a promise of gguf.h; meant for sanitizers and fuzzing. The result depends on every byte
// that was read.
uint64_t gguf_walk(const gguf_file *file);

#endif
