// SPDX-License-Identifier: MIT
#include "cli/commands/cache_convert.h"

#include "cli/commands/convert_tokens.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/options/storage_options.h"
#include "cli/session/model_fingerprint.h"

#include "engine/model/model.h"

#include <inttypes.h>
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// A container says where its rows are from, and in which order the pairs of its keys lie where no
// model says that; a prompt cache has the container's identity in a note.
#define FROM_KEY "from"
#define ORDER_OF_MLX "mlx-lm"
#define IDENTITY_NOTE "kvern_identity"
#define MOST_KEYS 64 // of an identity

// What --model says. All zero: there is none.
typedef struct convert_model {
    kvern_composition *composition; // as `kvern run` has it with the same options
    size_t key_pairs;
    char fingerprint[MODEL_FINGERPRINT_TEXT];
} convert_model;

typedef struct conversion {
    const convert_options *options;
    kvern_context *context;
    convert_model model;
    kvern_composition *own; // the layers of the file, where no model says them
    kvern_state *state;
    size_t first, rows; // of the state, that are written
    engine_error *error;
} conversion;

// A call of the library whose sentence names the file already.
static kvern_status fail_plainly(const conversion *c, kvern_status status)
{
    return engine_fail(c->error, status, "%s", kvern_error_detail());
}

// The same where the library could do otherwise if it were asked to.
static kvern_status fail_to_convert(const conversion *c, kvern_status status)
{
    const bool choice = strstr(kvern_error_detail(), "can be asked for") != NULL;
    return engine_fail(c->error, status, "%s%s", kvern_error_detail(), choice ? " (--recode)" : "");
}

// ---- The model ----

static kvern_status read_model(const conversion *c, model_source *source, convert_model *model)
{
    const cli_options *common = c->options->common;
    model_facts facts;
    kvern_status status = model_read_facts(source, &facts, c->error);
    if (status == KVERN_OK)
        status = storage_composition(&common->storage, &facts, c->context, true,
                                     &model->composition, c->error);
    if (status == KVERN_OK)
        model->key_pairs = model_key_pairs(&facts);
    return status;
}

static kvern_status open_model(conversion *c)
{
    const char *path = c->options->common->model;
    model_source *source;
    if (!path)
        return KVERN_OK;
    kvern_status status = model_source_open(path, &source, c->error);
    if (status != KVERN_OK)
        return status;
    status = read_model(c, source, &c->model);
    model_source_close(source);
    return status == KVERN_OK ? model_fingerprint_text(path, c->model.fingerprint, c->error)
                              : status;
}

// `says`: what the file says of its model, or NULL.
static kvern_status check_fingerprint(const conversion *c, const char *says)
{
    if (!says || !c->options->common->model || strcmp(says, c->model.fingerprint) == 0)
        return KVERN_OK;
    return engine_fail(c->error, KVERN_ERR_UNSUPPORTED,
                       "%s: rows of another model than %s (%.40s, not %s)", c->options->in,
                       c->options->common->model, says, c->model.fingerprint);
}

// ---- From a prompt cache ----

static kvern_status layers_of_caches(const conversion *c, const kvern_mlx_file *file,
                                     kvern_layer *layers)
{
    for (size_t i = 0; i < kvern_mlx_caches(file); i++) {
        layers[i] = kvern_layer_default(1, 8);
        kvern_status status = kvern_mlx_layer(file, i, &layers[i]);
        if (status != KVERN_OK)
            return engine_fail(c->error, status, "%s; --model MODEL says which layers it has",
                               kvern_error_detail());
    }
    return KVERN_OK;
}

// What a list of caches is, a layer or several, is the model's.
static kvern_status refuse_lists(const conversion *c, const kvern_mlx_file *file)
{
    for (size_t i = 0; i < kvern_mlx_caches(file); i++) {
        kvern_mlx_cache facts = {.size = sizeof facts};
        if (kvern_mlx_cache_facts(file, i, &facts) == KVERN_OK && facts.members > 0)
            return engine_fail(c->error, KVERN_ERR_UNSUPPORTED,
                               "%s: cache %zu is a CacheList, which is latents with index keys or "
                               "several layers; --model MODEL says which layers it has",
                               c->options->in, facts.entry);
    }
    return KVERN_OK;
}

// Without a model each layer stores what the file has.
static kvern_status compose_of_caches(conversion *c, const kvern_mlx_file *file)
{
    const size_t count = kvern_mlx_caches(file);
    kvern_layer *layers = calloc(count + 1, sizeof *layers);
    if (!layers)
        return engine_fail(c->error, KVERN_ERR_MEMORY, "no memory for %zu layers", count);
    kvern_status status = refuse_lists(c, file);
    if (status == KVERN_OK)
        status = layers_of_caches(c, file, layers);
    if (status == KVERN_OK) {
        status = kvern_composition_create(c->context, layers, count, &c->own);
        if (status != KVERN_OK)
            status = fail_plainly(c, status);
    }
    free(layers);
    return status;
}

static kvern_status import_state(conversion *c, const kvern_mlx_file *file,
                                 const row_tokens *tokens)
{
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    options.lengths = tokens->list ? tokens->counts : NULL;
    options.k_pairs = c->options->has_pairs ? c->options->pairs : c->model.key_pairs;
    options.conversion = c->options->recode ? KVERN_MLX_CONVERT : KVERN_MLX_EXACT;
    for (size_t r = 0; r < kvern_mlx_rows(file) && !tokens->list; r++) {
        if (kvern_mlx_length(file, r) < 0)
            return engine_fail(c->error, KVERN_ERR_FORMAT,
                               "%s: its caches do not say how many positions row %zu has: give "
                               "--tokens FILE",
                               c->options->in, r);
    }
    kvern_composition *layers = c->own ? c->own : c->model.composition;
    kvern_status status = kvern_mlx_import(file, layers, &options, &c->state);
    c->rows = kvern_mlx_rows(file);
    return status == KVERN_OK ? status : fail_to_convert(c, status);
}

// The identity of rows from a prompt cache, and what its strings are from.
typedef struct made_identity {
    json_t *said; // by the container that the prompt cache is from; NULL: there was none
    kvern_file_key keys[MOST_KEYS];
    kvern_file_identity identity;
} made_identity;

// Statements of others go on; those about the model and its keys are made anew.
static void take_statement(made_identity *made, const char *name, const char *value)
{
    kvern_file_identity *identity = &made->identity;
    if (strcmp(name, "adapter") == 0)
        identity->adapter = value;
    else if (strcmp(name, "media") == 0)
        identity->media = value;
    else if (strncmp(name, "user.", 5) == 0 && strcmp(name, "user.kvern") != 0 &&
             strcmp(name, "user.arithmetic") != 0 && strcmp(name, "user." FROM_KEY) != 0 &&
             identity->key_count < MOST_KEYS)
        made->keys[identity->key_count++] = (kvern_file_key){name + 5, value};
}

static kvern_status take_statements(const conversion *c, made_identity *made)
{
    const char *name;
    json_t *value;
    json_object_foreach(made->said, name, value)
    {
        if (!json_is_string(value))
            return engine_fail(c->error, KVERN_ERR_FORMAT, "%s: %s: %.40s is no text",
                               c->options->in, IDENTITY_NOTE, name);
        take_statement(made, name, json_string_value(value));
    }
    return check_fingerprint(c, json_string_value(json_object_get(made->said, "model")));
}

static kvern_status make_identity(const conversion *c, const kvern_mlx_file *file,
                                  made_identity *made)
{
    const char *note = kvern_mlx_find_note(file, IDENTITY_NOTE);
    const bool bun = kvern_mlx_file_layout(file) == KVERN_MLX_BUN;
    *made = (made_identity){.identity = kvern_file_identity_default()};
    made->identity.keys = made->keys;
    made->keys[made->identity.key_count++] = (kvern_file_key){FROM_KEY, bun ? "mlx-bun" : "mlx-lm"};
    if (c->options->common->model)
        made->identity.model = c->model.fingerprint;
    else if (!c->options->has_pairs || c->options->pairs == 0)
        made->identity.rope = ORDER_OF_MLX;
    if (!note)
        return KVERN_OK;
    made->said = json_loads(note, JSON_REJECT_DUPLICATES, NULL);
    return json_is_object(made->said)
               ? take_statements(c, made)
               : engine_fail(c->error, KVERN_ERR_FORMAT, "%s: the note %s is no object of JSON",
                             c->options->in, IDENTITY_NOTE);
}

static kvern_status save_container(const conversion *c, const kvern_file_identity *identity,
                                   const row_tokens *tokens)
{
    kvern_file_content content = kvern_file_content_default();
    content.identity = identity;
    content.tokens = (const int32_t *const *)tokens->list;
    kvern_status status = kvern_file_save(c->state, &content, c->options->out);
    return status == KVERN_OK ? status : fail_plainly(c, status);
}

static kvern_status to_container(conversion *c, const kvern_mlx_file *file)
{
    row_tokens tokens = {0};
    made_identity made;
    kvern_status status = make_identity(c, file, &made);
    if (status == KVERN_OK)
        status = row_tokens_of_mlx(file, c->options->tokens, &tokens, c->error);
    if (status == KVERN_OK && !c->model.composition)
        status = compose_of_caches(c, file);
    if (status == KVERN_OK)
        status = import_state(c, file, &tokens);
    if (status == KVERN_OK)
        status = save_container(c, &made.identity, &tokens);
    row_tokens_free(&tokens);
    json_decref(made.said);
    return status;
}

// ---- To a prompt cache ----

// What of a layer its model says, however it is stored.
#define GEOMETRY 13

static void geometry_of(const kvern_layer *layer, int64_t out[GEOMETRY])
{
    const int64_t all[GEOMETRY] = {(int64_t)layer->kind,
                                   (int64_t)layer->kv_heads,
                                   (int64_t)layer->k_dim,
                                   (int64_t)layer->v_dim,
                                   layer->window,
                                   layer->keep,
                                   layer->chunk,
                                   (int64_t)layer->latent_dim,
                                   (int64_t)layer->rope_dim,
                                   (int64_t)layer->index_dim,
                                   (int64_t)layer->recurrence,
                                   (int64_t)layer->key_heads,
                                   (int64_t)layer->value_heads};
    memcpy(out, all, sizeof all);
}

static kvern_status check_geometry(const conversion *c)
{
    const kvern_composition *model = c->model.composition;
    const size_t layers = model ? kvern_composition_layers(model) : 0;
    if (model && layers != kvern_composition_layers(c->own))
        return engine_fail(c->error, KVERN_ERR_UNSUPPORTED,
                           "%s: rows of %zu layers, and %s has %zu", c->options->in,
                           kvern_composition_layers(c->own), c->options->common->model, layers);
    for (size_t l = 0; l < layers; l++) {
        int64_t theirs[GEOMETRY], own[GEOMETRY];
        geometry_of(kvern_composition_layer(model, l), theirs);
        geometry_of(kvern_composition_layer(c->own, l), own);
        if (memcmp(theirs, own, sizeof own) != 0)
            return engine_fail(c->error, KVERN_ERR_UNSUPPORTED,
                               "%s: layer %zu: rows of %s, and the model's layer is %s",
                               c->options->in, l, kvern_composition_signature(c->own, l),
                               kvern_composition_signature(model, l));
    }
    return KVERN_OK;
}

// Latents and recurrent states have one order; keys have that of the engine.
static bool has_keys(const kvern_composition *composition)
{
    bool has = false;
    for (size_t l = 0; l < kvern_composition_layers(composition); l++) {
        const kvern_layer_kind kind = kvern_composition_layer(composition, l)->kind;
        has = has || (kind != KVERN_LAYER_LATENT && kind != KVERN_LAYER_RECURRENT);
    }
    return has;
}

static kvern_status find_pairs(const conversion *c, const kvern_file *file, size_t *pairs)
{
    const char *order = kvern_file_identity_of(file, "rope");
    *pairs = c->options->has_pairs ? c->options->pairs : c->model.key_pairs;
    if (c->options->has_pairs || c->model.composition || !has_keys(c->own) ||
        (order && strcmp(order, ORDER_OF_MLX) == 0))
        return KVERN_OK;
    return engine_fail(c->error, KVERN_ERR_UNSUPPORTED,
                       "%s: the order of the rotated pairs in its keys is the model's, and is in "
                       "no file: give --model MODEL, or --key-pairs",
                       c->options->in);
}

static kvern_status load_rows(conversion *c, const kvern_file *file)
{
    kvern_file_load_options options = kvern_file_load_options_default();
    kvern_status status = kvern_file_composition(file, &c->own);
    if (status != KVERN_OK)
        return fail_plainly(c, status);
    status = check_geometry(c);
    if (status != KVERN_OK)
        return status;
    options.verify = 1; // damage is not to be carried on
    status = kvern_state_create(c->own, 0, &c->state);
    if (status == KVERN_OK)
        status = kvern_file_load(file, &options, c->state);
    if (status != KVERN_OK)
        return fail_plainly(c, status);
    c->rows = kvern_state_rows(c->state);
    if (c->options->has_row && c->options->row >= c->rows)
        return engine_fail(c->error, KVERN_ERR_RANGE, "%s: row %zu of %zu", c->options->in,
                           c->options->row, c->rows);
    c->first = c->options->has_row ? c->options->row : 0;
    c->rows = c->options->has_row ? 1 : c->rows;
    return KVERN_OK;
}

// User metadata; the values are owned.
typedef struct made_notes {
    kvern_mlx_note *list;
    char (*keys)[CONVERT_TOKENS_KEY]; // [rows]
    char **values;                    // [rows + 1] of tokens and of the identity
    size_t count, value_count;
} made_notes;

static void free_notes(made_notes *notes)
{
    for (size_t i = 0; i < notes->value_count; i++)
        free(notes->values[i]);
    free(notes->list);
    free(notes->keys);
    free(notes->values);
}

// `text` is taken over; NULL: there was no memory.
static bool add_note(made_notes *notes, const char *key, char *text)
{
    notes->values[notes->value_count++] = text;
    notes->list[notes->count++] = (kvern_mlx_note){key, text};
    return text != NULL;
}

static bool note_tokens(const conversion *c, const kvern_file *file, made_notes *notes)
{
    bool good = true;
    for (size_t i = 0; i < c->rows && good; i++) {
        const int64_t length = kvern_file_length(file, c->first + i);
        const int32_t *tokens = kvern_file_tokens(file, c->first + i);
        row_tokens_key(i, notes->keys[i]);
        if (tokens)
            good = add_note(notes, notes->keys[i], row_tokens_text(tokens, (size_t)length));
    }
    return good;
}

static bool note_identity(const kvern_file *file, made_notes *notes)
{
    const char *name, *value;
    json_t *said = json_object();
    for (size_t i = 0; (value = kvern_file_identity_at(file, i, &name)); i++)
        json_put_text(&said, name, value);
    const bool none = said && json_object_size(said) == 0;
    const bool good = none || (said && add_note(notes, IDENTITY_NOTE, json_compact(said)));
    json_decref(said);
    return good;
}

// mlx_lm.generate wants both of them from a prompt cache.
static void note_model(const conversion *c, made_notes *notes)
{
    if (c->options->mlx_model) {
        notes->list[notes->count++] = (kvern_mlx_note){"model", c->options->mlx_model};
        notes->list[notes->count++] = (kvern_mlx_note){"tokenizer_config", "{}"};
    }
}

static kvern_status make_notes(const conversion *c, const kvern_file *file, made_notes *notes)
{
    *notes = (made_notes){.list = calloc(c->rows + 3, sizeof *notes->list),
                          .keys = calloc(c->rows + 1, sizeof *notes->keys),
                          .values = calloc(c->rows + 1, sizeof *notes->values)};
    if (!notes->list || !notes->keys || !notes->values || !note_tokens(c, file, notes) ||
        !note_identity(file, notes))
        return engine_fail(c->error, KVERN_ERR_MEMORY, "no memory for tokens");
    note_model(c, notes);
    return KVERN_OK;
}

static kvern_status export_rows(const conversion *c, const made_notes *notes, size_t pairs)
{
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    const size_t row = c->first;
    options.layout = c->options->to == CONVERT_MLX_OLD ? KVERN_MLX_INFOS : KVERN_MLX_STATES;
    options.conversion = c->options->recode ? KVERN_MLX_CONVERT : KVERN_MLX_EXACT;
    options.k_pairs = pairs;
    options.notes = notes->list;
    options.note_count = notes->count;
    kvern_status status = kvern_mlx_export(c->state, c->options->has_row ? &row : NULL,
                                           c->options->has_row, c->options->out, &options);
    return status == KVERN_OK ? status : fail_to_convert(c, status);
}

static kvern_status to_prompt_cache(conversion *c, const kvern_file *file)
{
    size_t pairs = 0;
    made_notes notes = {0};
    kvern_status status = check_fingerprint(c, kvern_file_identity_of(file, "model"));
    if (status == KVERN_OK)
        status = load_rows(c, file);
    if (status == KVERN_OK)
        status = find_pairs(c, file, &pairs);
    if (status == KVERN_OK)
        status = make_notes(c, file, &notes);
    if (status == KVERN_OK)
        status = export_rows(c, &notes, pairs);
    free_notes(&notes);
    return status;
}

// ---- The command ----

// As with /save, a slip of the pen must not cost another file.
static kvern_status check_output(const conversion *c)
{
    struct stat facts;
    const char *out = c->options->out;
    if (c->options->force || lstat(out, &facts) != 0)
        return KVERN_OK;
    return engine_fail(c->error, KVERN_ERR_ARGUMENT, "%s is there; --force replaces it", out);
}

static kvern_status refuse_target(const conversion *c, const char *what)
{
    return engine_fail(c->error, KVERN_ERR_ARGUMENT, "%s is %s already", c->options->in, what);
}

// What is not wanted of a file in this direction.
static kvern_status refuse_option(const conversion *c, const char *name, const char *what)
{
    return engine_fail(c->error, KVERN_ERR_ARGUMENT, "%s is for %s, and %s is none", name, what,
                       c->options->in);
}

static kvern_status convert_container(conversion *c, const kvern_file *file)
{
    if (c->options->to == CONVERT_KVERN)
        return refuse_target(c, "a file of rows");
    if (c->options->has_storage)
        return refuse_option(c, "--kv", "prompt caches");
    return c->options->tokens ? refuse_option(c, "--tokens", "prompt caches")
                              : to_prompt_cache(c, file);
}

static kvern_status convert_prompt_cache(conversion *c, const kvern_mlx_file *file)
{
    if (c->options->to == CONVERT_MLX || c->options->to == CONVERT_MLX_OLD)
        return refuse_target(c, "a prompt cache of mlx-lm");
    if (c->options->has_row)
        return refuse_option(c, "--row", "files of rows");
    return c->options->mlx_model ? refuse_option(c, "--mlx-model", "files of rows")
                                 : to_container(c, file);
}

// *container: what IN is. What is neither is reported as what it was first.
static kvern_status convert(conversion *c, bool *container)
{
    kvern_file *file;
    kvern_mlx_file *cache;
    kvern_status status = kvern_file_open(c->context, c->options->in, &file);
    *container = status == KVERN_OK;
    if (status == KVERN_OK) {
        status = convert_container(c, file);
        kvern_file_close(file);
        return status;
    }
    status = fail_plainly(c, status);
    kvern_status second = kvern_mlx_open(c->context, c->options->in, &cache);
    if (second == KVERN_OK) {
        second = convert_prompt_cache(c, cache);
        kvern_mlx_close(cache);
        return second;
    }
    const bool neither = strstr(kvern_error_detail(), "is no prompt cache of mlx-lm") != NULL;
    return neither ? status : fail_plainly(c, second);
}

static int say_result(const conversion *c, bool container)
{
    struct stat facts = {0};
    int64_t positions = 0;
    for (size_t r = c->first; r < c->first + c->rows; r++)
        positions += kvern_state_length(c->state, r);
    (void)!stat(c->options->out, &facts);
    const char *format = container ? "mlx-lm" : "kvern";
    if (c->options->common->json)
        return json_print(json_pack("{s:s, s:I, s:I, s:I}", "format", format, "rows",
                                    (json_int_t)c->rows, "positions", (json_int_t)positions,
                                    "bytes", (json_int_t)facts.st_size));
    printf("%s: %s, %zu %s, %" PRId64 " %s\n", c->options->out,
           container ? "a prompt cache of mlx-lm" : "a file of rows", c->rows,
           number_noun(c->rows, "row", "rows"), positions,
           number_noun((uint64_t)positions, "position", "positions"));
    return CLI_SUCCESS;
}

int cache_convert(kvern_context *context, const convert_options *options)
{
    engine_error error;
    conversion c = {.options = options, .context = context, .error = &error};
    bool container = false;
    kvern_status status = check_output(&c);
    if (status == KVERN_OK)
        status = open_model(&c);
    if (status == KVERN_OK)
        status = convert(&c, &container);
    const int code = status == KVERN_OK ? say_result(&c, container) : report_engine_error(&error);
    kvern_state_destroy(c.state);
    kvern_composition_release(c.own);
    kvern_composition_release(c.model.composition);
    return code;
}
