// SPDX-License-Identifier: MIT
#include "cli/conversation/rows_file.h"

#include "cli/session/model_fingerprint.h"

#include <kvern/kvern.h>
#include <stdio.h>
#include <string.h>

static const char BUN[] = "MLXBUNKV1\n";

// A safetensors file begins with the length of its header, whose eighth byte is 0, and the header.
bool rows_file_is(const char *path)
{
    char begin[sizeof BUN - 1] = {0};
    FILE *file = fopen(path, "rb");
    const size_t count = file ? fread(begin, 1, sizeof begin, file) : 0;
    if (file) {
        fclose(file);
    }
    return count == sizeof begin &&
           ((begin[7] == 0 && begin[8] == '{') || memcmp(begin, BUN, sizeof begin) == 0);
}

// ---- Whose row it is ----

static kvern_status refuse(const char *path, const char *name, const char *value,
                           engine_error *error)
{
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "%s: its identity says that %s is '%.60s', which this conversation has not",
                       path, name, value);
}

// What is said besides the model: by whom, with which version and arithmetic it was computed.
static kvern_status check_statement(const char *path, const char *name, const char *value,
                                    engine_error *error)
{
    const bool own = (strcmp(name, "user.kvern") == 0 && strcmp(value, kvern_version()) == 0) ||
                     (strcmp(name, "user.arithmetic") == 0 && strcmp(value, MODEL_ARITHMETIC) == 0);
    if (own || strcmp(name, "model") == 0 || strcmp(name, "user.from") == 0) {
        return KVERN_OK;
    }
    return refuse(path, name, value, error);
}

static kvern_status check_model(const run_session *session, const char *path, const char *says,
                                engine_error *error)
{
    char own[MODEL_FINGERPRINT_TEXT];
    const char *model = session->options->common.model;
    if (!says) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s does not say of which model its rows are: kvern cache convert says "
                           "it with --model MODEL",
                           path);
    }
    kvern_status status = model_fingerprint_text(model, own, error);
    if (status != KVERN_OK || strcmp(says, own) == 0) {
        return status;
    }
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "%s: rows of another model than %s (%.40s, "
                       "not %s)",
                       path, model, says, own);
}

// Rows of our own say what they were computed with, but for those of builds that did not yet.
static kvern_status check_arithmetic(const char *path, const kvern_file *file, engine_error *error)
{
    return !kvern_file_identity_of(file, "user.kvern") ||
                   kvern_file_identity_of(file, "user.arithmetic")
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_UNSUPPORTED,
                             "%s: rows of an earlier build, which computed other bits", path);
}

static kvern_status check_identity(const run_session *session, const char *path,
                                   const kvern_file *file, engine_error *error)
{
    const char *name, *value;
    kvern_status status = check_model(session, path, kvern_file_identity_of(file, "model"), error);
    for (size_t i = 0; status == KVERN_OK && (value = kvern_file_identity_at(file, i, &name));
         i++) {
        status = check_statement(path, name, value, error);
    }
    return status == KVERN_OK ? check_arithmetic(path, file, error) : status;
}

// ---- The row ----

static kvern_status check_row(const char *path, const kvern_file *file, engine_error *error)
{
    kvern_file_facts facts = kvern_file_facts_default();
    kvern_status status = kvern_file_get_facts(file, &facts);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, path);
    }
    if (facts.rows != 1) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s has %zu rows, and a conversation is one", path, facts.rows);
    }
    if (!kvern_file_tokens(file, 0)) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s has no tokens: kvern cache convert adds them with --tokens FILE",
                           path);
    }
    return KVERN_OK;
}

static kvern_status adopt(run_session *session, const kvern_file *file, kvern_state *state,
                          engine_error *error)
{
    kvern_file_load_options options = kvern_file_load_options_default();
    options.verify = 1;
    kvern_status status = kvern_file_load(file, &options, state);
    if (status != KVERN_OK) {
        return engine_fail(error, status, "%s", kvern_error_detail()); // it names the file
    }
    return generator_adopt(session->generator, state, kvern_file_tokens(file, 0),
                           (size_t)kvern_file_length(file, 0), error);
}

static kvern_status load(const char *path, run_session *session, const kvern_file *file,
                         engine_error *error)
{
    kvern_state *state;
    kvern_status status = check_row(path, file, error);
    if (status == KVERN_OK) {
        status = check_identity(session, path, file, error);
    }
    if (status != KVERN_OK) {
        return status;
    }
    status = kvern_state_create(session->loaded.composition, 0, &state);
    if (status != KVERN_OK) {
        return engine_fail_kvern(error, status, path);
    }
    status = adopt(session, file, state, error);
    kvern_state_destroy(state);
    return status;
}

// The sentence of a file that is a prompt cache says what to do with it.
static kvern_status refuse_file(const char *path, kvern_context *context, kvern_status status,
                                engine_error *error)
{
    kvern_mlx_file *cache;
    status = engine_fail(error, status, "%s", kvern_error_detail());
    if (kvern_mlx_open(context, path, &cache) != KVERN_OK) {
        return status;
    }
    kvern_mlx_close(cache);
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "%s is a prompt cache of mlx-lm or mlx-bun: kvern cache convert makes a "
                       "file of rows of it, which /load takes",
                       path);
}

kvern_status rows_file_load(const char *path, run_session *session, int64_t *positions,
                            engine_error *error)
{
    kvern_file *file;
    kvern_context *context = session->loaded.context;
    kvern_status status = kvern_file_open(context, path, &file);
    if (status != KVERN_OK) {
        return refuse_file(path, context, status, error);
    }
    *positions = kvern_file_length(file, 0);
    status = load(path, session, file, error);
    kvern_file_close(file);
    return status;
}
