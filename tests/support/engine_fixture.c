// SPDX-License-Identifier: MIT
#include "tests/support/engine_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define MUST(call)                                                                                 \
    do {                                                                                           \
        engine_error error = {KVERN_OK, ""};                                                       \
        if ((call) != KVERN_OK) {                                                                  \
            fail_msg("%s: %s; %s", #call, error.text, kvern_error_detail());                       \
        }                                                                                          \
    } while (0)

engine_fixture_options engine_fixture_default(const void *file_data, size_t file_bytes)
{
    engine_fixture_options options = {.file_data = file_data,
                                      .file_bytes = file_bytes,
                                      .context = kvern_context_options_default(),
                                      .kv = KVERN_F32,
                                      .max_tokens = 512,
                                      .max_rows = 8};
    options.context.threads = 1;
    return options;
}

model_source *engine_fixture_source(const void *file_data, size_t file_bytes)
{
    gguf_file *file;
    model_source *source = NULL;
    MUST(gguf_open_memory(file_data, file_bytes, &file, &error));
    MUST(model_source_of_gguf(file, &source, &error));
    return source;
}

engine_fixture engine_fixture_open(const engine_fixture_options *options)
{
    engine_fixture f = {0};
    MUST(kvern_context_create(&options->context, &f.context));
    if (options->source) {
        MUST(model_load(options->source, NULL, f.context, NULL, NULL, &f.model, &error));
    } else if (options->path) {
        MUST(model_open(options->path, f.context, NULL, NULL, &f.model, &error));
    } else {
        model_source *source = engine_fixture_source(options->file_data, options->file_bytes);
        if (options->precise) {
            model_source_keep_precise(source);
        }
        MUST(model_load(source, NULL, f.context, NULL, NULL, &f.model, &error));
    }
    f.facts = model_get_facts(f.model);
    kvern_storage storage = kvern_storage_default();
    storage.k = storage.v = kvern_codec_dense(options->kv);
    MUST(model_composition(f.facts, f.context, &storage, &f.composition, &error));
    MUST(model_workspace_create(f.model, options->max_tokens, options->max_rows, &f.workspace,
                                &error));
    return f;
}

void engine_fixture_close(engine_fixture *fixture)
{
    model_workspace_destroy(fixture->workspace);
    kvern_composition_release(fixture->composition);
    model_close(fixture->model);
    kvern_context_release(fixture->context);
}

kvern_state *engine_fixture_state(const engine_fixture *fixture, size_t rows)
{
    kvern_state *state;
    MUST(kvern_state_create(fixture->composition, rows, &state));
    return state;
}

void engine_fixture_forward(const engine_fixture *fixture, kvern_state *state, kvern_phase phase,
                            const int32_t *tokens, const int64_t *counts, float *logits)
{
    model_step step = {.phase = phase,
                       .tokens = tokens,
                       .counts = counts,
                       .logits = logits,
                       .logits_counts = counts};
    MUST(model_forward(fixture->model, fixture->workspace, state, &step, &error));
}
