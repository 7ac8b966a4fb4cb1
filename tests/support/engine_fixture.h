// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_ENGINE_FIXTURE_H
#define KVERN_TESTS_ENGINE_FIXTURE_H

// A model with all that a forward pass needs, for tests. Everything that fails here fails the test.

#include "engine/model/model.h"

// A GGUF file in memory as a model's source; the test fails when it is none.
model_source *engine_fixture_source(const void *file_data, size_t file_bytes);

typedef struct engine_fixture_options {
    model_source *source; // taken over by the first fixture; or NULL:
    const char *path;     // a file, or NULL: file_data
    const void *file_data;
    size_t file_bytes;
    kvern_context_options context; // threads, instruction sets, budget, allocator
    kvern_type kv;                 // storage of K and V
    bool precise;                  // model_source_keep_precise; of file_data
    size_t max_tokens;             // of one forward pass
    size_t max_rows;
} engine_fixture_options;

// One thread, every instruction set, f32 storage, 512 tokens, 8 rows.
engine_fixture_options engine_fixture_default(const void *file_data, size_t file_bytes);

typedef struct engine_fixture {
    kvern_context *context;
    model *model;
    const model_facts *facts;
    kvern_composition *composition;
    model_workspace *workspace;
} engine_fixture;

engine_fixture engine_fixture_open(const engine_fixture_options *options);
void engine_fixture_close(engine_fixture *fixture);

kvern_state *engine_fixture_state(const engine_fixture *fixture, size_t rows);

// One forward pass over a state; logits of every token.
void engine_fixture_forward(const engine_fixture *fixture, kvern_state *state, kvern_phase phase,
                            const int32_t *tokens, const int64_t *counts, float *logits);

#endif
