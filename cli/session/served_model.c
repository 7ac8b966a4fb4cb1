// SPDX-License-Identifier: MIT
#include "cli/session/served_model.h"

#include <stdio.h>
#include <string.h>

static void name_model(const char *path, char name[128])
{
    static const char SUFFIX[] = ".gguf";
    const size_t suffix = sizeof SUFFIX - 1;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') {
        end--;
    }
    if (end > suffix && memcmp(path + end - suffix, SUFFIX, suffix) == 0) {
        end -= suffix;
    }
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    snprintf(name, 128, "%.*s", (int)(end - begin), path + begin);
}

static kvern_status open_parts(const session_options *options, served_model *m, engine_error *error)
{
    kvern_status status = check_draft(&options->common, error);
    if (status == KVERN_OK) {
        status = load_model(&options->common, &m->loaded, error);
    }
    if (status == KVERN_OK && !model_tokenizer(m->loaded.model)) {
        status =
            engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s has no tokenizer", options->common.model);
    }
    if (status == KVERN_OK) {
        status = session_template(options, m->loaded.model, false, &m->chat, error);
    }
    if (status == KVERN_OK) {
        status = load_draft_beside(&options->common, &m->loaded, &m->draft, error);
    }
    return status == KVERN_OK ? prefix_cache_open(&options->common, &m->loaded, &m->cache, error)
                              : status;
}

kvern_status served_model_open(const session_options *options, served_model *out,
                               engine_error *error)
{
    *out = (served_model){0};
    name_model(options->common.model, out->name);
    const kvern_status status = open_parts(options, out, error);
    if (status != KVERN_OK) {
        served_model_close(out);
    }
    return status;
}

void served_model_close(served_model *m)
{
    prefix_cache_close(&m->cache);
    chat_template_destroy(m->chat);
    unload_model(&m->draft);
    unload_model(&m->loaded);
    *m = (served_model){0};
}

static size_t draft_tokens_of(const draft_options *options)
{
    if (!options->source) {
        return 0;
    }
    return options->tokens ? options->tokens : GENERATOR_DRAFT_TOKENS;
}

schedule_options served_model_schedule(const served_model *m, const session_options *options,
                                       size_t rows)
{
    return (schedule_options){.context_length = m->loaded.context_length,
                              .most_rows = rows,
                              .draft_tokens = draft_tokens_of(&options->common.draft),
                              .draft = m->draft.model,
                              .draft_composition = m->draft.composition,
                              .store = m->cache.store,
                              .disk = m->cache.disk,
                              .remote = m->cache.remote,
                              .store_key = m->cache.key};
}
