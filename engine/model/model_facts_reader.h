// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_FACTS_READER_H
#define KVERN_ENGINE_MODEL_FACTS_READER_H

// Reading the keys "<architecture>.<name>" of a model file, with errors that name them.

#include "engine/model/model.h"

// No dimension of a model comes near this; products of three of them fit 64 bits.
#define FACTS_MAX_DIM ((uint64_t)1 << 20)
#define FACTS_MAX_COUNT ((uint64_t)INT32_MAX)

// Set file, architecture and error. `key` holds the last key that was asked for, for messages.
typedef struct facts_reader {
    const gguf_file *file;
    const gguf_string *architecture;
    engine_error *error;
    char key[128];
} facts_reader;

// NULL when the file lacks the key.
const gguf_entry *facts_find(facts_reader *reader, const char *name);

// A whole number from 1 to `most`. An absent key leaves *value as it is; 0 there means required.
KVERN_CHECK kvern_status facts_read_size(facts_reader *reader, const char *name, uint64_t most,
                                         size_t *value);

// A finite number above 0. An absent key leaves *value as it is; 0 there means required.
KVERN_CHECK kvern_status facts_read_positive(facts_reader *reader, const char *name, float *value);

// A finite number above 0, or 0 for a key that is absent or 0.
KVERN_CHECK kvern_status facts_read_optional(facts_reader *reader, const char *name, float *value);

// Keys that would change what is computed: KVERN_ERR_UNSUPPORTED names the first that is there and
// neither 0 nor false.
KVERN_CHECK kvern_status facts_refuse(facts_reader *reader, const char *const *names, size_t count);

#endif
