// SPDX-License-Identifier: MIT
// A tokenizer from a directory's files: the whole tokenizer.json, and what the files beside it say
// about special tokens.
#include "engine/tokenizer/tokenizer_json.h"

#include "engine/safetensors/json_text.h"
#include "engine/tokenizer/tokenizer_files_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// Added tokens of two kinds are compared pair by pair.
#define MOST_PAIRS ((size_t)1 << 22)
// Ids that one key may list.
#define MOST_END_IDS 16

// --- Special tokens that the files name

static kvern_status find_named(const tokenizer *t, const tokenizer_files *files, const char *name,
                               int32_t *id, engine_error *error)
{
    key_file from;
    const config_value value = tokenizer_files_token(files, name, &from);
    *id = TOKENIZER_NO_TOKEN;
    if (value.kind == CONFIG_ABSENT)
        return KVERN_OK;
    if (value.kind == CONFIG_TEXT)
        *id = tokenizer_find(t, value.text.data, value.text.size);
    return *id != TOKENIZER_NO_TOKEN
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_FORMAT, "%s: %s is no token of tokenizer.json",
                             key_file_name(from), name);
}

// A file that names another token than tokenizer_config.json does.
static kvern_status check_map(const tokenizer_files *files, const char *name, engine_error *error)
{
    key_file first, second;
    const tokenizer_files map = {.keys = {NULL, files->keys[KEYS_SPECIAL]}};
    const config_value one = tokenizer_files_token(files, name, &first);
    const config_value two = tokenizer_files_token(&map, name, &second);
    const bool same =
        two.kind == CONFIG_ABSENT ||
        (one.kind == CONFIG_TEXT && two.kind == CONFIG_TEXT && one.text.size == two.text.size &&
         memcmp(one.text.data, two.text.data, one.text.size) == 0);
    return same ? KVERN_OK
                : engine_fail(error, KVERN_ERR_FORMAT,
                              "%s of special_tokens_map.json is not that of tokenizer_config.json",
                              name);
}

static kvern_status load_named(tokenizer *t, const tokenizer_files *files, engine_error *error)
{
    const struct {
        const char *name;
        int32_t *id;
    } all[] = {{"bos_token", &t->bos},
               {"eos_token", &t->eos},
               {"unk_token", &t->unknown},
               {"pad_token", &t->padding}};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < sizeof all / sizeof *all; i++) {
        status = find_named(t, files, all[i].name, all[i].id, error);
        if (status == KVERN_OK)
            status = check_map(files, all[i].name, error);
    }
    if (t->unknown == TOKENIZER_NO_TOKEN)
        t->unknown = ((const json_bpe *)t->state)->unknown;
    t->eot = t->eom = t->fim_pad = t->fim_rep = t->fim_sep = TOKENIZER_NO_TOKEN;
    return status;
}

// --- added_tokens_decoder says again what tokenizer.json says.

static kvern_status check_added(const tokenizer *t, const json_place *place, const char *number)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } flags[] = {{"single_word", TOKEN_EDGE_WORD},
                 {"lstrip", TOKEN_EDGE_LEFT},
                 {"rstrip", TOKEN_EDGE_RIGHT},
                 {"normalized", ADDED_NORMALIZED},
                 {"special", ADDED_SPECIAL}};
    char *end;
    const unsigned long id = strtoul(number, &end, 10);
    text_view content = {"", 0};
    kvern_status status =
        json_place_check(place, "content|single_word|lstrip|rstrip|normalized|special");
    if (status == KVERN_OK)
        status = json_place_text(place, "content", &content);
    if (status != KVERN_OK)
        return status;
    const bool known = *end == '\0' && id < t->words.count && t->edges[id] & ADDED_TOKEN;
    const tokenizer_text text =
        known ? vocabulary_text(&t->words, (int32_t)id) : (tokenizer_text){"", 0};
    if (!known || text.size != content.size || memcmp(text.data, content.data, text.size) != 0)
        return json_place_fail(place, KVERN_ERR_FORMAT, NULL, "tokenizer.json has no such token");
    for (size_t i = 0; status == KVERN_OK && i < sizeof flags / sizeof *flags; i++) {
        bool value = false;
        status = json_place_flag(place, flags[i].name, &value);
        if (status == KVERN_OK && value != ((t->edges[id] & flags[i].bit) != 0))
            status = json_place_fail(place, KVERN_ERR_FORMAT, flags[i].name,
                                     "tokenizer.json says otherwise");
    }
    return status;
}

static kvern_status check_added_tokens(const tokenizer *t, const tokenizer_files *files,
                                       engine_error *error)
{
    const config_json *keys = files->keys[KEYS_CONFIG];
    const json_place root = {.file = key_file_name(KEYS_CONFIG),
                             .object = keys ? config_json_root(keys) : NULL,
                             .error = error};
    const json_place all = json_place_in(&root, "added_tokens_decoder");
    const char *number;
    json_t *unused;
    kvern_status status = KVERN_OK;
    json_object_foreach((json_t *)all.object, number, unused)
    {
        const json_place one = json_place_in(&all, number);
        if (status == KVERN_OK)
            status = check_added(t, &one, number);
    }
    return status;
}

// --- The beginning of a text

static kvern_status find_flag(const tokenizer_files *files, const char *name, config_value *out,
                              engine_error *error)
{
    *out = (config_value){.kind = CONFIG_ABSENT};
    if (files->keys[KEYS_CONFIG])
        *out = config_json_find(files->keys[KEYS_CONFIG], name);
    return out->kind == CONFIG_ABSENT || out->kind == CONFIG_FLAG
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_FORMAT, "%s: %s is no boolean",
                             key_file_name(KEYS_CONFIG), name);
}

// A flag of tokenizer_config.json counts before the post-processor.
static kvern_status load_beginning(tokenizer *t, const tokenizer_files *files, engine_error *error)
{
    const json_bpe *bpe = t->state;
    config_value begins, ends;
    kvern_status status = find_flag(files, "add_bos_token", &begins, error);
    if (status == KVERN_OK)
        status = find_flag(files, "add_eos_token", &ends, error); // true is refused already
    if (status != KVERN_OK)
        return status;
    if (bpe->template_ends && ends.kind == CONFIG_ABSENT)
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "tokenizer.json: post_processor: it puts a token behind a text");
    const bool template = bpe->template_bos != TOKENIZER_NO_TOKEN;
    t->adds_bos = begins.kind == CONFIG_FLAG ? begins.flag : template;
    if (t->bos == TOKENIZER_NO_TOKEN)
        t->bos = bpe->template_bos;
    if (t->adds_bos && t->bos == TOKENIZER_NO_TOKEN)
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: add_bos_token is set without a bos_token",
                           key_file_name(KEYS_CONFIG));
    if (t->adds_bos && template && t->bos != bpe->template_bos)
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "tokenizer.json: post_processor: it begins a text with another token "
                           "than bos_token");
    return KVERN_OK;
}

static bool prefixes_space(const json_bpe *bpe)
{
    bool found = false;
    for (size_t i = 0; i < bpe->normalizer.count; i++)
        found = found || bpe->normalizer.step[i].kind == STEP_PREPEND;
    for (size_t i = 0; i < bpe->splitter.count; i++) {
        const text_step *step = &bpe->splitter.step[i];
        found = found || step->kind == STEP_PREFIX_SPACE ||
                (step->kind == STEP_METASPACE && step->scheme != PREPEND_NEVER);
    }
    return found;
}

static kvern_status check_prefix(const tokenizer *t, const tokenizer_files *files,
                                 engine_error *error)
{
    config_value flag;
    const kvern_status status = find_flag(files, "add_prefix_space", &flag, error);
    if (status == KVERN_OK && flag.kind == CONFIG_FLAG && flag.flag != prefixes_space(t->state))
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "%s: add_prefix_space is not what tokenizer.json does",
                           key_file_name(KEYS_CONFIG));
    return status;
}

// --- The end of an answer

static kvern_status add_end_id(tokenizer *t, const config_value *value, const char *file,
                               engine_error *error)
{
    uint64_t id = 0;
    if (!config_size(value, &id) || id >= t->words.count)
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "%s: eos_token_id is none of the %zu tokens of tokenizer.json", file,
                           t->words.count);
    tokenizer_add_end(t, (int32_t)id);
    return KVERN_OK;
}

// generation_config.json before config.json, and in addition to eos_token.
static kvern_status load_ends(tokenizer *t, const tokenizer_files *files, engine_error *error)
{
    config_value value = {.kind = CONFIG_ABSENT};
    key_file file = KEYS_GENERATION;
    for (; file <= KEYS_MODEL && value.kind == CONFIG_ABSENT; file++)
        if (files->keys[file])
            value = config_json_find(files->keys[file], "eos_token_id");
    if (value.kind == CONFIG_ABSENT)
        return KVERN_OK;
    const char *name = key_file_name(file - 1);
    if (value.kind != CONFIG_LIST)
        return add_end_id(t, &value, name, error);
    if (value.count > MOST_END_IDS)
        return engine_fail(error, KVERN_ERR_UNSUPPORTED, "%s: eos_token_id lists more than %d ids",
                           name, MOST_END_IDS);
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < value.count; i++) {
        const config_value element = config_element(&value, i);
        status = add_end_id(t, &element, name, error);
    }
    return status;
}

// --- Added tokens. Those that are looked for in normalized text come after the others have been
// taken out. Where nothing is normalized that makes no difference, unless two of them overlap.

static bool overlap(tokenizer_text a, tokenizer_text b)
{
    for (size_t shift = 0; shift < a.size; shift++) {
        const size_t common = a.size - shift < b.size ? a.size - shift : b.size;
        if (memcmp(a.data + shift, b.data, common) == 0)
            return true;
    }
    return false;
}

static bool is_looked_for(const tokenizer *t, size_t id, bool normalized)
{
    const uint8_t wanted = ADDED_TOKEN | (normalized ? ADDED_NORMALIZED : 0);
    return (t->edges[id] & (ADDED_TOKEN | ADDED_NORMALIZED)) == wanted;
}

static kvern_status fail_overlap(const tokenizer *t, size_t id, engine_error *error)
{
    const tokenizer_text text = vocabulary_text(&t->words, (int32_t)id);
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "tokenizer.json: added_tokens: \"%.*s\" is normalized and overlaps others",
                       (int)(text.size < 60 ? text.size : 60), text.data);
}

static kvern_status check_overlaps(const tokenizer *t, engine_error *error)
{
    size_t pairs = 0;
    for (size_t a = 0; a < t->words.count; a++) {
        if (!is_looked_for(t, a, true))
            continue;
        for (size_t b = 0; b < t->words.count; b++) {
            if (!is_looked_for(t, b, false))
                continue;
            const tokenizer_text one = vocabulary_text(&t->words, (int32_t)a);
            const tokenizer_text two = vocabulary_text(&t->words, (int32_t)b);
            if (++pairs > MOST_PAIRS || overlap(one, two) || overlap(two, one))
                return fail_overlap(t, a, error);
        }
    }
    return KVERN_OK;
}

// Which part of a text may hold a control token is not known behind a normalizer.
static kvern_status check_normalized(const tokenizer *t, engine_error *error)
{
    for (size_t id = 0; id < t->words.count; id++) {
        if (!is_looked_for(t, id, true) ||
            (t->words.types[id] == TOKEN_USER_DEFINED && !t->words.marks[id]))
            continue;
        const tokenizer_text text = vocabulary_text(&t->words, (int32_t)id);
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "tokenizer.json: added_tokens: the special token \"%.*s\" is "
                           "normalized",
                           (int)(text.size < 60 ? text.size : 60), text.data);
    }
    return KVERN_OK;
}

// What each token that is looked for in normalized text is there.
static kvern_status normalize_added(const tokenizer *t, json_bpe *bpe, engine_error *error)
{
    text_pieces text = {0};
    kvern_status status = token_strings_reserve(&bpe->normalized_texts, t->words.count);
    for (size_t id = 0; status == KVERN_OK && id < t->words.count; id++) {
        const bool wanted = is_looked_for(t, id, true);
        const tokenizer_text own = vocabulary_text(&t->words, (int32_t)id);
        if (wanted)
            status = text_pieces_set(&text, own.data, own.size, true);
        if (status == KVERN_OK && wanted)
            status = text_steps_run(&bpe->normalizer, &text, error);
        if (status == KVERN_OK && wanted && text.text.size > 0)
            status =
                text_buffer_append(&bpe->normalized_texts.data, text.text.data, text.text.size);
        if (status == KVERN_OK)
            status = token_strings_close(&bpe->normalized_texts, id);
    }
    text_pieces_free(&text);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail(error, status, "normalizing the added tokens");
}

// The set of the added tokens of a kind. `control`: those that act as control tokens as well.
static kvern_status collect(const tokenizer *t, const token_strings *strings, bool normalized,
                            bool others, bool control, special_set *out)
{
    uint8_t *wanted = malloc(t->words.count);
    if (!wanted)
        return KVERN_ERR_MEMORY;
    for (size_t id = 0; id < t->words.count; id++) {
        const bool plain = t->words.types[id] == TOKEN_USER_DEFINED && !t->words.marks[id];
        wanted[id] = (plain || control) && ((normalized && is_looked_for(t, id, true)) ||
                                            (others && is_looked_for(t, id, false)));
    }
    const kvern_status status = special_set_init(out, strings, wanted, t->words.count);
    free(wanted);
    return status;
}

static kvern_status find_added(tokenizer *t, engine_error *error)
{
    json_bpe *bpe = t->state;
    const bool apart = bpe->normalizer.count > 0;
    const token_strings *texts = &t->words.texts;
    kvern_status status = apart ? check_normalized(t, error) : check_overlaps(t, error);
    if (status == KVERN_OK && apart)
        status = normalize_added(t, bpe, error);
    if (status != KVERN_OK)
        return status;
    status = collect(t, texts, !apart, true, false, &t->user_defined);
    if (status == KVERN_OK)
        status = collect(t, texts, !apart, true, true, &t->special);
    if (status == KVERN_OK && apart)
        status = collect(t, &bpe->normalized_texts, true, false, false, &bpe->normalized);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail(error, status, "no memory for the special tokens");
}

// --- The whole file

static kvern_status decode_text(const void *arg, token_type type, tokenizer_text text,
                                text_buffer *out)
{
    const json_bpe *bpe = arg;
    const int byte = type == TOKEN_BYTE ? token_named_byte(text) : -1;
    if (byte >= 0)
        return text_buffer_append(out, (char[]){(char)byte}, 1);
    if (bpe->byte_level && type == TOKEN_NORMAL)
        return byte_alphabet_decode(text, out);
    if (bpe->spaced && (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED))
        return token_append_spaced(text.data, text.size, out);
    return text_buffer_append(out, text.data, text.size);
}

static kvern_status check_root(const json_place *root)
{
    text_view version = text_view_of("1.0");
    kvern_status status = json_place_check(
        root, "version|truncation|padding|added_tokens|normalizer|pre_tokenizer|post_processor|"
              "decoder|model");
    if (status == KVERN_OK)
        status = json_place_text(root, "version", &version);
    return status == KVERN_OK && !text_view_is(version, "1.0")
               ? json_place_fail(root, KVERN_ERR_UNSUPPORTED, "version", "only 1.0 can be read")
               : status;
}

static kvern_status load(tokenizer *t, const tokenizer_files *files, const json_place *root)
{
    text_view chat;
    engine_error *error = root->error;
    kvern_status status = check_root(root);
    if (status == KVERN_OK)
        status = tokenizer_files_check(files, error);
    if (status == KVERN_OK)
        status = tokenizer_json_vocabulary(t, root);
    if (status == KVERN_OK)
        status = load_named(t, files, error);
    if (status == KVERN_OK)
        status = check_added_tokens(t, files, error);
    (void)tokenizer_files_chat_template(files, &chat);
    // A text of the vocabulary that was not added is ordinary, whatever it looks like.
    if (status == KVERN_OK)
        status = vocabulary_find_marks(&t->words, chat, 1u << TOKEN_USER_DEFINED, error);
    if (status == KVERN_OK)
        status = tokenizer_json_steps(t, root);
    if (status == KVERN_OK)
        status = vocabulary_decode(&t->words, decode_text, t->state, error);
    if (status == KVERN_OK)
        status = tokenizer_json_merges(t, root);
    if (status == KVERN_OK)
        status = load_beginning(t, files, error);
    if (status == KVERN_OK)
        status = check_prefix(t, files, error);
    if (status == KVERN_OK)
        status = find_added(t, error);
    if (status == KVERN_OK)
        status = tokenizer_finish(t, error);
    return status == KVERN_OK ? load_ends(t, files, error) : status;
}

static kvern_status parse(const tokenizer_files *files, json_t **out, engine_error *error)
{
    if (!tokenizer_files_present(files))
        return engine_fail(error, KVERN_ERR_UNSUPPORTED, "the directory has no tokenizer.json");
    return json_text_read(files->tokenizer.data, files->tokenizer.size, "tokenizer.json", out,
                          error);
}

kvern_status tokenizer_create_from_files(const tokenizer_files *files, const char *pre,
                                         tokenizer **out, engine_error *error)
{
    json_t *root;
    *out = NULL;
    if (pre)
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "tokenizer.json says how texts are split; it cannot be \"%s\"",
                           tokenizer_printable(text_view_of(pre)).text);
    kvern_status status = parse(files, &root, error);
    if (status != KVERN_OK)
        return status;
    tokenizer *t = calloc(1, sizeof *t);
    json_bpe *bpe = calloc(1, sizeof *bpe);
    if (!t || !bpe) {
        free(t);
        free(bpe);
        json_decref(root);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a tokenizer");
    }
    t->model = &tokenizer_json_model;
    t->state = bpe;
    const json_place whole = {
        .file = "tokenizer.json", .object = json_is_object(root) ? root : NULL, .error = error};
    status = load(t, files, &whole);
    json_decref(root);
    if (status != KVERN_OK)
        tokenizer_destroy(t);
    else
        *out = t;
    return status;
}

static void destroy(tokenizer *t)
{
    json_bpe *bpe = t->state;
    text_steps_free(&bpe->normalizer);
    text_steps_free(&bpe->splitter);
    token_index_free(&bpe->words);
    merge_table_free(&bpe->merges);
    token_strings_free(&bpe->normalized_texts);
    special_set_free(&bpe->normalized);
    free(bpe);
}

const tokenizer_model tokenizer_json_model = {
    .name = "BPE", .destroy = destroy, .encode = tokenizer_json_encode};
