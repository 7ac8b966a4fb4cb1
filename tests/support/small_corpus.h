// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SMALL_CORPUS_H
#define KVERN_TESTS_SMALL_CORPUS_H

// Models of a few KB, from which fuzzers find their way. Whatever fails ends the program.

#include <stddef.h>

#define SMALL_CORPUS 3

const char *small_corpus_name(size_t index);

// As a GGUF file, and as fuzz_safetensors.c takes a directory; free().
void *small_corpus_gguf(size_t index, size_t *bytes);
void *small_corpus_directory(size_t index, size_t *bytes);

// Writes and releases data.
void small_corpus_save(const char *path, void *data, size_t bytes);

#endif
