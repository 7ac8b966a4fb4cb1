// SPDX-License-Identifier: MIT
// kvern inspect: what a model file holds, and what its KV cache will take.

#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/io/text.h"
#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"

#include "engine/chat/chat.h"
#include "engine/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_child INSPECT_CHILDREN[] = {
    {.argp = &options_model_argp},   {.argp = &options_context_argp}, {.argp = &options_codec_argp},
    {.argp = &options_storage_argp}, {.argp = &options_json_argp},    {0}};

static const struct argp INSPECT_ARGP = {
    .args_doc = "MODEL",
    .doc = "Shows what a model file holds: geometry, tensor types, tokenizer, chat template, and "
           "the bytes of its KV cache per token and at full context (or at --ctx). No weight is "
           "read."
           "\v"
           "  kvern inspect MODEL\n"
           "  kvern inspect MODEL -c 8192 --kv q4 --json",
    .children = INSPECT_CHILDREN,
};

// Everything that is shown. What a file lacks, or what this program does not know, has a text that
// says so instead.
typedef struct inspection {
    const cli_options *options;
    model_source *source;
    const gguf_file *file; // NULL: another format
    model_texts texts;
    model_facts facts;
    bool runnable; // facts are complete; otherwise facts_error says why
    engine_error facts_error;
    tokenizer *tokens; // NULL: tokenizer_error says why
    engine_error tokenizer_error;
    chat_template *chat; // NULL: template_error says why
    engine_error template_error;
    uint64_t kv_token_bytes;
    size_t kv_context;
    uint64_t kv_context_bytes;
} inspection;

static kvern_status measure_cache(inspection *found, engine_error *error)
{
    cli_options alone = {.threads = 1}; // nothing is computed
    kvern_context *context;
    kvern_status status = load_context(&alone, &context, error);
    if (status != KVERN_OK) {
        return status;
    }
    kvern_composition *plan;
    status =
        storage_composition(&found->options->storage, &found->facts, context, true, &plan, error);
    if (status == KVERN_OK) {
        found->kv_token_bytes = kvern_composition_bytes_per_token(plan);
        found->kv_context_bytes = kvern_composition_row_bytes(plan, found->kv_context);
        kvern_composition_release(plan);
    }
    kvern_context_release(context);
    return status;
}

static void collect_texts(inspection *found)
{
    text_view chat;
    kvern_status status = model_texts_open(found->source, &found->texts, &found->tokenizer_error);
    if (status != KVERN_OK) {
        found->template_error = found->tokenizer_error;
        return;
    }
    if (model_texts_tokenizer(&found->texts, found->options->pre, &found->tokens,
                              &found->tokenizer_error) != KVERN_OK) {
        found->tokens = NULL;
    }
    if (!model_texts_chat_template(&found->texts, &chat)) {
        found->template_error = found->tokenizer_error; // without a tokenizer it were of no use
        if (found->tokens) {
            (void)chat_template_missing(&found->template_error);
        }
    } else if (chat_template_of_text(chat, found->tokens, &found->chat, &found->template_error) !=
               KVERN_OK) {
        found->chat = NULL;
    }
}

// A file that cannot be run is inspected as far as it can be understood.
static void collect(inspection *found)
{
    kvern_status status = model_read_facts(found->source, &found->facts, &found->facts_error);
    if (status == KVERN_OK) {
        int64_t wanted = found->options->context;
        found->kv_context = wanted ? (size_t)wanted : found->facts.context_length;
        status = measure_cache(found, &found->facts_error);
    }
    found->runnable = status == KVERN_OK;
    collect_texts(found);
}

static void discard(inspection *found)
{
    chat_template_destroy(found->chat);
    tokenizer_destroy(found->tokens);
    model_texts_free(&found->texts);
    model_source_close(found->source);
}

// One "name  value" line.
static void show(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void show(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("%-16s ", name);
    vprintf(format, args);
    putchar('\n');
    va_end(args);
}

static void show_bytes(const char *name, uint64_t bytes)
{
    char text[NUMBER_BYTES_TEXT];
    show(name, "%" PRIu64 " (%s)", bytes, number_format_bytes(bytes, text));
}

// Strings of the file may hold anything.
static void show_string(const char *name, gguf_string string)
{
    text_buffer text = TEXT_BUFFER_INIT;
    if (string.size && text_append_escaped(&text, string.data, string.size) == KVERN_OK) {
        show(name, "%.*s", (int)text.size, text.data);
    } else {
        show(name, "-");
    }
    text_buffer_free(&text);
}

static size_t count_layers(const model_facts *facts, model_layer_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < facts->layers; i++) {
        count += facts->layer[i].kind == kind;
    }
    return count;
}

// The first layer of a kind, or NULL.
static const model_layer_facts *first_layer(const model_facts *facts, model_layer_kind kind)
{
    for (size_t i = 0; i < facts->layers; i++) {
        if (facts->layer[i].kind == kind) {
            return &facts->layer[i];
        }
    }
    return NULL;
}

// A number that layers have each for themselves.
typedef size_t (*layer_number)(const model_layer_facts *layer);

static size_t dim_of_keys(const model_layer_facts *layer)
{
    return layer->head_dim;
}

static size_t dim_of_values(const model_layer_facts *layer)
{
    return layer->value_dim;
}

static size_t number_of_heads(const model_layer_facts *layer)
{
    return layer->heads;
}

static size_t number_of_kv_heads(const model_layer_facts *layer)
{
    return layer->kv_heads;
}

static size_t feed_forward_width(const model_layer_facts *layer)
{
    return layer->feed_forward;
}

// The least and the most of all layers.
static void range_of(const model_facts *facts, layer_number number, size_t *least, size_t *most)
{
    *least = *most = number(&facts->layer[0]);
    for (size_t i = 1; i < facts->layers; i++) {
        size_t n = number(&facts->layer[i]);
        *least = n < *least ? n : *least;
        *most = n > *most ? n : *most;
    }
}

// "8", or "2 to 8" where layers differ.
typedef char range_text[48];

static const char *range(const model_facts *facts, layer_number number, range_text text)
{
    size_t least, most;
    range_of(facts, number, &least, &most);
    if (least == most) {
        snprintf(text, sizeof(range_text), "%zu", most);
    } else {
        snprintf(text, sizeof(range_text), "%zu to %zu", least, most);
    }
    return text;
}

static void show_experts(const model_facts *facts)
{
    const model_experts *experts = &facts->experts;
    size_t layers = 0;
    for (size_t i = 0; i < facts->layers; i++) {
        layers += facts->layer[i].experts;
    }
    if (experts->count == 0) {
        return;
    }
    show("experts", "%zu of %zu for each token, %zu wide, in %zu of %zu layers", experts->used,
         experts->count, experts->feed_forward, layers, facts->layers);
    if (experts->shared > 0) {
        show("", "and one of %zu for all", experts->shared);
    }
}

static void show_indexer(const model_facts *facts)
{
    const model_latent *latent = &facts->latent;
    size_t full = 0;
    for (size_t i = 0; i < facts->layers; i++) {
        full += facts->layer[i].indexed;
    }
    show("indexer", "%zu heads of %zu, %zu positions", latent->index_heads, latent->index_dim,
         latent->index_top_k);
    if (full < facts->layers) {
        show("", "in %zu of %zu layers; %zu share what the latest of these selected", full,
             facts->layers, facts->layers - full);
    }
}

static void show_latents(const model_facts *facts)
{
    const model_latent *latent = &facts->latent;
    if (latent->latent == 0) {
        return;
    }
    show("latents", "%zu numbers, and %zu of a key that %s", latent->latent, latent->rope,
         facts->ropes ? "rotates" : "does not rotate");
    if (latent->index_heads > 0) {
        show_indexer(facts);
    }
}

static size_t count_shared(const model_facts *facts)
{
    size_t count = 0;
    for (size_t i = 0; i < facts->layers; i++) {
        count += facts->layer[i].shared;
    }
    return count;
}

static void show_shared(const model_facts *facts)
{
    if (count_shared(facts) > 0) {
        show("shared", "%zu of %zu layers read the keys and values of others", count_shared(facts),
             facts->layers);
    }
    if (facts->layer_inputs > 0) {
        show("layer inputs", "%zu numbers of each token", facts->layer_inputs);
    }
}

static void show_geometry(const model_facts *facts)
{
    range_text heads, kv_heads, keys, values, inner;
    const model_layer_facts *windowed = first_layer(facts, MODEL_LAYER_WINDOW);
    const model_layer_facts *chunked = first_layer(facts, MODEL_LAYER_CHUNKED);
    show("parameters", "%" PRIu64, facts->parameters);
    show("layers", "%zu", facts->layers);
    show("width", "%zu", facts->width);
    show("heads", "%s query, %s key/value", range(facts, number_of_heads, heads),
         range(facts, number_of_kv_heads, kv_heads));
    show("head dim", "%s key, %s value", range(facts, dim_of_keys, keys),
         range(facts, dim_of_values, values));
    show_shared(facts);
    show("feed-forward", "%s", range(facts, feed_forward_width, inner));
    show_experts(facts);
    show_latents(facts);
    show("vocabulary", "%zu, output %s", facts->vocabulary,
         facts->tied_output ? "tied to the embedding" : "separate");
    show("context", "%zu tokens", facts->context_length);
    if (windowed) {
        show("window", "%" PRIu32 " tokens in %zu of %zu layers, rotary base %g", windowed->window,
             count_layers(facts, MODEL_LAYER_WINDOW), facts->layers,
             number_of_float(facts->rope[windowed->rope].base));
    }
    if (chunked) {
        show("chunks", "%" PRIu32 " tokens in %zu of %zu layers", chunked->window,
             count_layers(facts, MODEL_LAYER_CHUNKED), facts->layers);
    }
    if (facts->delta.key_heads > 0) {
        show("delta rule", "in %zu of %zu layers, %zu key heads of %zu, %zu value heads of %zu",
             count_layers(facts, MODEL_LAYER_DELTA), facts->layers, facts->delta.key_heads,
             facts->delta.key_dim, facts->delta.value_heads, facts->delta.value_dim);
    }
    static const char *const SCALING[] = {"",
                                          ", scaled linearly",
                                          ", scaled as in llama3",
                                          ", scaled by yarn",
                                          ", scaled by longrope",
                                          ", of which a part rotates"};
    if (facts->ropes == 0) {
        show("rotary", "nothing rotates");
        return;
    }
    show("rotary", "base %g, %zu dimensions%s", (double)facts->rope[0].base, facts->rope[0].dim,
         SCALING[facts->rope[0].scaling]);
}

// The name of a tensor type; one that has none is called by its number.
static const char *type_name(uint32_t type, char text[16])
{
    const char *known = element_type_name(type);
    if (known) {
        return known;
    }
    snprintf(text, 16, "type %" PRIu32, type);
    return text;
}

static void show_types(const model_facts *facts)
{
    for (size_t i = 0; i < facts->types; i++) {
        const model_type_count *type = &facts->type[i];
        char name[16];
        show(i == 0 ? "tensors" : "", "%-5s %5zu tensors, %" PRIu64 " bytes",
             type_name(type->type, name), type->tensors, type->bytes);
    }
}

static void show_token(const tokenizer *tokens, const char *name, int32_t id)
{
    if (id == TOKENIZER_NO_TOKEN) {
        return;
    }
    tokenizer_text piece = tokenizer_piece_special(tokens, id);
    text_buffer text = TEXT_BUFFER_INIT;
    if (text_append_escaped(&text, piece.data, piece.size) == KVERN_OK) {
        show(name, "%d %.*s", (int)id, (int)text.size, text.data ? text.data : "");
    }
    text_buffer_free(&text);
}

// Marks that the file types otherwise than control, as many as a line has room for.
static void show_marks(const tokenizer *tokens)
{
    text_buffer text = TEXT_BUFFER_INIT;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < tokenizer_size(tokens) && text.size < 200; i++) {
        tokenizer_text piece = tokenizer_piece_special(tokens, (int32_t)i);
        if (tokenizer_is_mark(tokens, (int32_t)i)) {
            status = text_append_escaped(&text, piece.data, piece.size);
            status = status == KVERN_OK ? text_buffer_append(&text, " ", 1) : status;
        }
    }
    if (status == KVERN_OK && text.size > 0) {
        show("  marks", "%.*s(act as control tokens)", (int)text.size, text.data);
    }
    text_buffer_free(&text);
}

static void show_tokenizer(const inspection *found)
{
    if (!found->tokens) {
        show("tokenizer", "unusable: %s", found->tokenizer_error.text);
        return;
    }
    const char *pre = tokenizer_pre(found->tokens);
    show("tokenizer", "%s%s%s, %zu tokens%s", tokenizer_name(found->tokens),
         pre ? ", split as " : "", pre ? pre : "", tokenizer_size(found->tokens),
         tokenizer_adds_bos(found->tokens) ? ", a beginning token is added" : "");
    show_token(found->tokens, "  beginning", tokenizer_bos(found->tokens));
    show_token(found->tokens, "  end", tokenizer_eos(found->tokens));
    show_token(found->tokens, "  end of turn", tokenizer_eot(found->tokens));
    show_marks(found->tokens);
}

static void show_cache(const inspection *found)
{
    char text[NUMBER_BYTES_TEXT];
    char storage[STORAGE_TEXT];
    show("KV cache", "%s, %" PRIu64 " bytes per token",
         storage_text(&found->options->storage, &found->facts, storage), found->kv_token_bytes);
    show("", "%" PRIu64 " bytes (%s) for %zu tokens", found->kv_context_bytes,
         number_format_bytes(found->kv_context_bytes, text), found->kv_context);
}

static void show_key(const char *title, key_verdict verdict, text_view key, const char *why)
{
    text_buffer name = TEXT_BUFFER_INIT;
    if (text_append_escaped(&name, key.data, key.size) == KVERN_OK) {
        show(title, "%-9s %.*s%s%s%s", key_verdict_name(verdict), (int)name.size, name.data,
             why ? " (" : "", why ? why : "", why ? ")" : "");
    }
    text_buffer_free(&name);
}

// What is done with every key of the file; nothing for an architecture that is not known.
static void show_keys(const inspection *found)
{
    model_key key;
    for (size_t i = 0; model_judge_key(found->source, i, &key); i++) {
        show_key(i == 0 ? "keys" : "", key.verdict, key.name, key.why);
    }
    tokenizer_file_key own;
    const char *file = NULL;
    for (size_t i = 0; found->texts.files && tokenizer_files_judge_key(found->texts.files, i, &own);
         i++) {
        if (own.file != file) {
            show("keys", "of %s:", own.file);
        }
        file = own.file;
        show_key("", own.verdict, own.name, own.why);
    }
}

static void show_file(const inspection *found)
{
    const char *path = found->options->model;
    if (!found->file) {
        show("directory", "%s, safetensors", path);
        return;
    }
    size_t parts = gguf_file_parts(found->file);
    show("file", "%s, GGUF %" PRIu32, path, gguf_version(found->file));
    if (parts > 1) {
        show("", "the first of %zu parts", parts);
    }
}

static int print_inspection_text(const inspection *found)
{
    const model_facts *facts = &found->facts;
    show_file(found);
    show_bytes("file bytes", facts->file_bytes);
    show_bytes("weight bytes", facts->tensor_bytes);
    show_string("architecture", facts->architecture);
    show_string("name", facts->name);
    if (found->runnable) {
        show_geometry(facts);
    }
    show_types(facts);
    show_tokenizer(found);
    show("chat template", "%s",
         found->chat ? chat_template_name(found->chat) : found->template_error.text);
    if (found->runnable) {
        show_cache(found);
    }
    show_keys(found);
    return CLI_SUCCESS;
}

static json_t *string_json(gguf_string string)
{
    return string.size ? json_text(string.data, string.size) : json_null();
}

static json_t *window_json(const model_facts *facts)
{
    const model_layer_facts *windowed = first_layer(facts, MODEL_LAYER_WINDOW);
    if (!windowed) {
        return json_null();
    }
    return json_pack("{s:I, s:I, s:f}", "tokens", (json_int_t)windowed->window, "layers",
                     (json_int_t)count_layers(facts, MODEL_LAYER_WINDOW), "rope_base",
                     number_of_float(facts->rope[windowed->rope].base));
}

static json_t *chunks_json(const model_facts *facts)
{
    const model_layer_facts *chunked = first_layer(facts, MODEL_LAYER_CHUNKED);
    return chunked ? json_pack("{s:I, s:I}", "tokens", (json_int_t)chunked->window, "layers",
                               (json_int_t)count_layers(facts, MODEL_LAYER_CHUNKED))
                   : json_null();
}

static json_t *delta_json(const model_facts *facts)
{
    const model_delta *delta = &facts->delta;
    if (delta->key_heads == 0) {
        return json_null();
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "layers",
                     (json_int_t)count_layers(facts, MODEL_LAYER_DELTA), "key_heads",
                     (json_int_t)delta->key_heads, "value_heads", (json_int_t)delta->value_heads,
                     "key_dim", (json_int_t)delta->key_dim, "value_dim",
                     (json_int_t)delta->value_dim, "conv_kernel", (json_int_t)delta->taps);
}

// A number, or where layers differ a list with one for each.
static json_t *layers_json(const model_facts *facts, layer_number number)
{
    size_t least, most;
    range_of(facts, number, &least, &most);
    if (least == most) {
        return json_integer((json_int_t)most);
    }
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->layers; i++) {
        if (json_array_append_new(list, json_integer((json_int_t)number(&facts->layer[i]))) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *rope_json(const model_rope *rope)
{
    static const char *const SCALING[] = {"none", "linear",   "llama3",
                                          "yarn", "longrope", "proportional"};
    return json_pack("{s:f, s:I, s:s, s:f}", "base", number_of_float(rope->base), "dim",
                     (json_int_t)rope->dim, "scaling", SCALING[rope->scaling], "factor",
                     number_of_float(rope->factor));
}

static json_t *geometry_json(const model_facts *facts)
{
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:f, s:b, s:o, s:o, s:o, s:o, s:I, s:I}",
        "layers", (json_int_t)facts->layers, "width", (json_int_t)facts->width, "heads",
        layers_json(facts, number_of_heads), "kv_heads", layers_json(facts, number_of_kv_heads),
        "head_dim", layers_json(facts, dim_of_keys), "value_dim", layers_json(facts, dim_of_values),
        "feed_forward", layers_json(facts, feed_forward_width), "vocabulary",
        (json_int_t)facts->vocabulary, "context_length", (json_int_t)facts->context_length,
        "norm_epsilon", number_of_float(facts->norm_epsilon), "tied_output",
        (int)facts->tied_output, "rope", facts->ropes ? rope_json(&facts->rope[0]) : json_null(),
        "window", window_json(facts), "chunks", chunks_json(facts), "delta", delta_json(facts),
        "shared_layers", (json_int_t)count_shared(facts), "layer_inputs",
        (json_int_t)facts->layer_inputs);
}

static json_t *types_json(const model_facts *facts)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < facts->types; i++) {
        const model_type_count *type = &facts->type[i];
        char name[16];
        json_t *entry = json_pack("{s:s, s:I, s:I}", "type", type_name(type->type, name), "count",
                                  (json_int_t)type->tensors, "bytes", (json_int_t)type->bytes);
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

static json_t *token_json(int32_t id)
{
    return id == TOKENIZER_NO_TOKEN ? json_null() : json_integer(id);
}

static json_t *tokenizer_json(const inspection *found)
{
    const tokenizer *tokens = found->tokens;
    if (!tokens) {
        return json_null();
    }
    return json_pack("{s:s, s:s?, s:I, s:o, s:o, s:o, s:b}", "kind", tokenizer_name(tokens), "pre",
                     tokenizer_pre(tokens), "tokens", (json_int_t)tokenizer_size(tokens), "bos",
                     token_json(tokenizer_bos(tokens)), "eos", token_json(tokenizer_eos(tokens)),
                     "eot", token_json(tokenizer_eot(tokens)), "adds_bos",
                     (int)tokenizer_adds_bos(tokens));
}

static json_t *cache_json(const inspection *found)
{
    char storage[STORAGE_TEXT];
    return json_pack("{s:s, s:I, s:I, s:I}", "storage",
                     storage_text(&found->options->storage, &found->facts, storage),
                     "bytes_per_token", (json_int_t)found->kv_token_bytes, "context",
                     (json_int_t)found->kv_context, "context_bytes",
                     (json_int_t)found->kv_context_bytes);
}

// *list is NULL when memory is missing.
static void add_key_json(json_t **list, const char *file, text_view key, key_verdict verdict,
                         const char *why)
{
    json_t *entry = json_pack("{s:o, s:s, s:s?, s:s?}", "key", json_text(key.data, key.size),
                              "verdict", key_verdict_name(verdict), "why", why, "file", file);
    if (json_array_append_new(*list, entry) != 0) {
        json_decref(*list);
        *list = NULL;
    }
}

static json_t *keys_json(const inspection *found)
{
    json_t *list = json_array();
    model_key key;
    for (size_t i = 0; list && model_judge_key(found->source, i, &key); i++) {
        add_key_json(&list, NULL, key.name, key.verdict, key.why);
    }
    tokenizer_file_key own;
    const tokenizer_files *files = found->texts.files;
    for (size_t i = 0; list && files && tokenizer_files_judge_key(files, i, &own); i++) {
        add_key_json(&list, own.file, own.name, own.verdict, own.why);
    }
    return list;
}

// What is unknown or cannot be used is null.
static int print_inspection_json(const inspection *found)
{
    const model_facts *facts = &found->facts;
    json_t *object = json_object();
    json_put_text(&object, "file", found->options->model);
    json_put(&object, "gguf_version",
             found->file ? json_integer((json_int_t)gguf_version(found->file)) : json_null());
    json_put_size(&object, "file_bytes", facts->file_bytes);
    json_put_size(&object, "weight_bytes", facts->tensor_bytes);
    json_put(&object, "architecture", string_json(facts->architecture));
    json_put(&object, "name", string_json(facts->name));
    json_put_size(&object, "parameters", facts->parameters);
    json_put(&object, "geometry", found->runnable ? geometry_json(facts) : json_null());
    json_put(&object, "tensors", types_json(facts));
    json_put(&object, "tokenizer", tokenizer_json(found));
    json_put_text(&object, "template", found->chat ? chat_template_name(found->chat) : NULL);
    json_put(&object, "kv", found->runnable ? cache_json(found) : json_null());
    json_put(&object, "keys", keys_json(found));
    return json_print(object);
}

static int run_inspect(int argc, char **argv)
{
    cli_options options = {0};
    options_parse(&INSPECT_ARGP, argc, argv, &options);
    inspection found = {.options = &options};
    engine_error error;
    if (model_source_open(options.model, &found.source, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    found.file = model_source_gguf(found.source);
    collect(&found);
    int code = options.json ? print_inspection_json(&found) : print_inspection_text(&found);
    if (!found.runnable) {
        (void)load_name_file(&options, KVERN_ERR_FORMAT, &found.facts_error);
        code = report_engine_error(&found.facts_error);
    }
    discard(&found);
    return code;
}

const command command_inspect = {
    .name = "inspect",
    .title = "kvern inspect",
    .summary = "show what a model file holds and what its KV cache takes",
    .run = run_inspect,
};
