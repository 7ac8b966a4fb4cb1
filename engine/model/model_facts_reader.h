// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_MODEL_FACTS_READER_H
#define KVERN_ENGINE_MODEL_FACTS_READER_H

// Reading the configuration of a model by the engine's names, with errors that name the keys as the
// file does.

#include "engine/model/model.h"

// No dimension of a model comes near this; products of three of them fit 64 bits.
#define FACTS_MAX_DIM ((uint64_t)1 << 20)
#define FACTS_MAX_COUNT ((uint64_t)INT32_MAX)

// Set source and error. `key` holds the last key that was asked for, for messages.
typedef struct facts_reader {
    const weights *source;
    engine_error *error;
    char key[128];
} facts_reader;

// Absent when the file lacks the key.
config_value facts_find(facts_reader *reader, const char *name);

// Fails unless a config.json says it: for what its readers take differently when it does not. GGUF
// has but one reading. Errors: KVERN_ERR_FORMAT.
KVERN_CHECK kvern_status facts_check_stated(facts_reader *reader, const char *name);

// Whether the file has the key at all: with a null, too, which facts_find calls absent.
bool facts_states(facts_reader *reader, const char *name);

// A whole number from 1 to `most`. An absent key leaves *value as it is; 0 there means required.
KVERN_CHECK kvern_status facts_read_size(facts_reader *reader, const char *name, uint64_t most,
                                         size_t *value);

// The same for `count` layers: one number for all of them, or a list with one for each. An absent
// key leaves values[] as they are; a 0 in front means required.
KVERN_CHECK kvern_status facts_read_sizes(facts_reader *reader, const char *name, uint64_t most,
                                          size_t count, size_t *values);

// A finite number above 0. An absent key leaves *value as it is; 0 there means required.
KVERN_CHECK kvern_status facts_read_positive(facts_reader *reader, const char *name, float *value);

// True or false, or 1 or 0. An absent key leaves *value as it is.
KVERN_CHECK kvern_status facts_read_flag(facts_reader *reader, const char *name, bool *value);

// A finite number above 0, or 0 for a key that is absent or 0.
KVERN_CHECK kvern_status facts_read_optional(facts_reader *reader, const char *name, float *value);

// Refuses a key that is there with another number than `value`: KVERN_ERR_UNSUPPORTED.
KVERN_CHECK kvern_status facts_require(facts_reader *reader, const char *name, size_t value);

#endif
