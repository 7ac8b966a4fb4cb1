// SPDX-License-Identifier: MIT
// The vocabulary of a tokenizer.json: tokens, merges, and tokens that were added later.
#include "engine/tokenizer/tokenizer_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ids may leave gaps, of this many tokens more than there are of them.
#define MOST_GAPS ((uint64_t)65536)

// --- Tokens, in the order of their ids

typedef struct token_list {
    const json_place *root;
    json_place model;
    const json_t *vocab;
    const json_t *added;
    size_t count;
    tokenizer_text *texts; // borrowed from the file
    uint8_t *types;
    uint8_t *flags; // ADDED_
} token_list;

static bool read_id(const json_t *json, uint64_t *id)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *id = (uint64_t)json_integer_value(json);
    return true;
}

static kvern_status fail_token(const json_place *place, const char *list, const char *text,
                               const char *what)
{
    return json_place_fail(place, KVERN_ERR_FORMAT, list, "the token \"%.60s\" %s", text, what);
}

static kvern_status count_id(const token_list *list, const char *name, const char *text,
                             const json_t *json, uint64_t *most)
{
    uint64_t id;
    if (!read_id(json, &id) || id > INT32_MAX - 1)
        return fail_token(list->root, name, text, "has no id");
    *most = id + 1 > *most ? id + 1 : *most;
    return KVERN_OK;
}

// The largest id decides how many tokens there are.
static kvern_status count_tokens(token_list *list)
{
    const char *text;
    json_t *id;
    uint64_t most = 0;
    kvern_status status = KVERN_OK;
    json_object_foreach((json_t *)list->vocab, text, id)
    {
        if (status == KVERN_OK)
            status = count_id(list, "model.vocab", text, id, &most);
    }
    for (size_t i = 0; status == KVERN_OK && i < json_array_size(list->added); i++) {
        const json_t *token = json_array_get(list->added, i);
        const char *content = json_string_value(json_object_get(token, "content"));
        status = count_id(list, "added_tokens", content ? content : "",
                          json_object_get(token, "id"), &most);
    }
    const uint64_t listed = json_object_size(list->vocab) + json_array_size(list->added);
    if (status == KVERN_OK && (most == 0 || most > listed + MOST_GAPS))
        return json_place_fail(list->root, KVERN_ERR_FORMAT, "model.vocab",
                               "%" PRIu64 " tokens have ids up to %" PRIu64, listed, most);
    list->count = (size_t)most;
    return status;
}

static kvern_status place_vocabulary(token_list *list)
{
    const char *text;
    json_t *json;
    json_object_foreach((json_t *)list->vocab, text, json)
    {
        const size_t id = (size_t)json_integer_value(json);
        if (list->flags[id])
            return fail_token(list->root, "model.vocab", text, "has the id of another one");
        list->texts[id] = (tokenizer_text){text, strlen(text)};
        list->types[id] = TOKEN_NORMAL;
        list->flags[id] = ADDED_IN_VOCABULARY;
    }
    return KVERN_OK;
}

static kvern_status read_added_flags(const json_place *place, uint8_t *flags)
{
    static const struct {
        const char *name;
        uint8_t bit;
    } names[] = {
        {"single_word", TOKEN_EDGE_WORD}, {"lstrip", TOKEN_EDGE_LEFT}, {"rstrip", TOKEN_EDGE_RIGHT},
        {"normalized", ADDED_NORMALIZED}, {"special", ADDED_SPECIAL},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool value = false;
        const kvern_status status = json_place_flag(place, names[i].name, &value);
        if (status != KVERN_OK)
            return status;
        *flags |= value ? names[i].bit : 0;
    }
    return KVERN_OK;
}

// A text that the vocabulary has already keeps its id.
static kvern_status place_added(token_list *list, const json_place *place)
{
    text_view content = {"", 0};
    kvern_status status =
        json_place_check(place, "id|content|single_word|lstrip|rstrip|normalized|special");
    if (status == KVERN_OK)
        status = json_place_text(place, "content", &content);
    if (status != KVERN_OK)
        return status;
    const size_t id = (size_t)json_integer_value(json_object_get(place->object, "id"));
    const json_t *known = json_object_get(list->vocab, content.data);
    const tokenizer_text text = list->texts[id];
    const bool same = text.size == content.size && content.size > 0 &&
                      memcmp(text.data, content.data, text.size) == 0;
    if (content.size == 0 || list->flags[id] & ADDED_TOKEN || (known && !same) ||
        (list->flags[id] && !same))
        return fail_token(place, NULL, content.data, "contradicts another one, or is empty");
    list->texts[id] = (tokenizer_text){content.data, content.size};
    list->flags[id] |= ADDED_TOKEN;
    status = read_added_flags(place, &list->flags[id]);
    list->types[id] = list->flags[id] & ADDED_SPECIAL ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
    return status;
}

static kvern_status place_tokens(token_list *list)
{
    list->texts = calloc(list->count, sizeof *list->texts);
    list->types = malloc(list->count);
    list->flags = calloc(list->count, 1);
    if (!list->texts || !list->types || !list->flags)
        return engine_fail(list->root->error, KVERN_ERR_MEMORY, "no memory for %zu tokens",
                           list->count);
    memset(list->types, TOKEN_UNUSED, list->count);
    kvern_status status = place_vocabulary(list);
    for (size_t i = 0; status == KVERN_OK && i < json_array_size(list->added); i++) {
        const json_place place = json_place_at(list->root, "added_tokens", i);
        status = place_added(list, &place);
    }
    return status;
}

// --- The model's flags

static void byte_token_text(size_t byte, char text[8])
{
    snprintf(text, 8, "<0x%02zX>", byte);
}

// All bytes have a token, or byte_fallback has no meaning.
static kvern_status type_byte_tokens(token_list *list, json_bpe *bpe)
{
    size_t found = 0;
    for (size_t byte = 0; bpe->byte_fallback && byte < 256; byte++) {
        char text[8];
        byte_token_text(byte, text);
        const json_t *id = json_object_get(list->vocab, text);
        if (!id)
            continue;
        found++;
        const size_t at = (size_t)json_integer_value(id);
        list->types[at] = list->types[at] == TOKEN_NORMAL ? TOKEN_BYTE : list->types[at];
    }
    if (found != 0 && found != 256)
        return json_place_fail(&list->model, KVERN_ERR_UNSUPPORTED, "byte_fallback",
                               "%zu of 256 bytes have a token", found);
    bpe->byte_fallback = found != 0;
    return KVERN_OK;
}

static kvern_status require_none(const json_place *place, const char *name)
{
    const json_t *value = json_object_get(place->object, name);
    const bool none = !value || json_is_null(value) ||
                      (json_is_number(value) && json_number_value(value) == 0) ||
                      (json_is_string(value) && json_string_length(value) == 0);
    return none ? KVERN_OK
                : json_place_fail(place, KVERN_ERR_UNSUPPORTED, name, "it is not supported");
}

static kvern_status read_unknown(const token_list *list, json_bpe *bpe)
{
    text_view text = {NULL, 0};
    const kvern_status status = json_place_text(&list->model, "unk_token", &text);
    bpe->unknown = TOKENIZER_NO_TOKEN;
    if (status != KVERN_OK || !text.data)
        return status;
    const json_t *id = json_object_get(list->vocab, text.data);
    if (!id)
        return fail_token(&list->model, "unk_token", text.data, "is not in the vocabulary");
    bpe->unknown = (int32_t)json_integer_value(id);
    return KVERN_OK;
}

static kvern_status read_flags(const json_place *model, json_bpe *bpe)
{
    kvern_status status = require_none(model, "dropout");
    if (status == KVERN_OK)
        status = require_none(model, "continuing_subword_prefix");
    if (status == KVERN_OK)
        status = require_none(model, "end_of_word_suffix");
    if (status == KVERN_OK)
        status = json_place_flag(model, "fuse_unk", &bpe->fuse_unknown);
    if (status == KVERN_OK)
        status = json_place_flag(model, "byte_fallback", &bpe->byte_fallback);
    return status == KVERN_OK ? json_place_flag(model, "ignore_merges", &bpe->whole_words) : status;
}

static kvern_status read_model(const json_place *root, token_list *list, json_bpe *bpe)
{
    list->model = json_place_in(root, "model");
    if (list->model.object && json_object_get(list->model.object, "type") &&
        !json_place_is(&list->model, "BPE"))
        return json_place_unknown(&list->model, "a vocabulary");
    kvern_status status =
        json_place_check(&list->model, "type|dropout|unk_token|continuing_subword_prefix|"
                                       "end_of_word_suffix|fuse_unk|byte_fallback|ignore_merges|"
                                       "vocab|merges");
    if (status == KVERN_OK)
        status = read_flags(&list->model, bpe);
    list->vocab = json_object_get(list->model.object, "vocab");
    list->added = json_object_get(root->object, "added_tokens");
    if (status == KVERN_OK && !json_is_object(list->vocab))
        return json_place_fail(&list->model, KVERN_ERR_FORMAT, "vocab", "it is no object");
    return status == KVERN_OK && list->added && !json_is_array(list->added) &&
                   !json_is_null(list->added)
               ? json_place_fail(root, KVERN_ERR_FORMAT, "added_tokens", "it is no list")
               : status;
}

kvern_status tokenizer_json_vocabulary(tokenizer *t, const json_place *root)
{
    json_bpe *bpe = t->state;
    token_list list = {.root = root};
    kvern_status status = read_model(root, &list, bpe);
    if (status == KVERN_OK)
        status = count_tokens(&list);
    if (status == KVERN_OK)
        status = place_tokens(&list);
    if (status == KVERN_OK)
        status = type_byte_tokens(&list, bpe);
    if (status == KVERN_OK)
        status = read_unknown(&list, bpe);
    if (status == KVERN_OK)
        status = vocabulary_fill(&t->words, list.count, list.texts, list.types, root->error);
    t->edges = list.flags;
    free(list.texts);
    free(list.types);
    return status;
}

// --- Merges

// Control tokens and marks are no part of ordinary text: what a user types must not make one.
static bool is_of_words(const tokenizer *t, int32_t id)
{
    const uint8_t type = t->words.types[id];
    return t->edges[id] & ADDED_IN_VOCABULARY && !t->words.marks[id] &&
           (type == TOKEN_NORMAL || type == TOKEN_BYTE || type == TOKEN_USER_DEFINED);
}

static kvern_status index_words(const tokenizer *t, json_bpe *bpe, engine_error *error)
{
    if (token_index_init(&bpe->words, t->words.count) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu tokens", t->words.count);
    for (size_t id = 0; id < t->words.count; id++)
        if (is_of_words(t, (int32_t)id))
            token_index_add(&bpe->words, &t->words.texts, (int32_t)id);
    return KVERN_OK;
}

static void find_byte_tokens(const tokenizer *t, json_bpe *bpe)
{
    for (size_t byte = 0; byte < 256; byte++) {
        char text[8] = "";
        size_t size = 6;
        if (bpe->byte_level)
            size = byte_alphabet_write((unsigned char)byte, text);
        else
            byte_token_text(byte, text);
        bpe->byte_tokens[byte] = bpe->byte_level || bpe->byte_fallback
                                     ? token_index_find(&bpe->words, &t->words.texts, text, size)
                                     : TOKENIZER_NO_TOKEN;
    }
}

// The two texts of a merge: "left right", or a list of both.
static bool read_pair(const json_t *json, text_view pair[2])
{
    if (json_array_size(json) == 2) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *text = json_array_get(json, i);
            pair[i] = (text_view){json_string_value(text), json_string_length(text)};
        }
        return pair[0].data && pair[1].data;
    }
    const char *text = json_string_value(json);
    const size_t size = json_string_length(json);
    const char *space = text ? memchr(text, ' ', size) : NULL;
    if (!space)
        return false;
    pair[0] = (text_view){text, (size_t)(space - text)};
    pair[1] = (text_view){space + 1, size - pair[0].size - 1};
    return !memchr(pair[1].data, ' ', pair[1].size);
}

// A pair that comes again has its last rank.
static kvern_status add_merge(const tokenizer *t, const json_place *model, size_t index,
                              const json_t *json, text_buffer *joined)
{
    const json_bpe *bpe = t->state;
    text_view pair[2];
    if (!read_pair(json, pair))
        return json_place_fail(model, KVERN_ERR_FORMAT, "merges", "element %zu is no pair", index);
    text_buffer_clear(joined);
    for (size_t i = 0; i < 2; i++)
        if (pair[i].size && text_buffer_append(joined, pair[i].data, pair[i].size) != KVERN_OK)
            return engine_fail(model->error, KVERN_ERR_MEMORY, "no memory for a merge");
    const int32_t left = vocabulary_find(&t->words, pair[0].data, pair[0].size);
    const int32_t right = vocabulary_find(&t->words, pair[1].data, pair[1].size);
    const int32_t product = vocabulary_find(&t->words, joined->data, joined->size);
    if (left < 0 || right < 0 || product < 0)
        return json_place_fail(model, KVERN_ERR_FORMAT, "merges",
                               "element %zu is made of or makes a text that is no token", index);
    if (is_of_words(t, left) && is_of_words(t, right) && is_of_words(t, product))
        *merge_table_find(&bpe->merges, left, right) =
            (merge){left, right, (uint32_t)index, product};
    return KVERN_OK;
}

kvern_status tokenizer_json_merges(tokenizer *t, const json_place *root)
{
    json_bpe *bpe = t->state;
    const json_place model = json_place_in(root, "model");
    const json_t *merges = json_object_get(model.object, "merges");
    const size_t count = json_array_size(merges);
    if (!json_is_array(merges) || count > INT32_MAX)
        return json_place_fail(&model, KVERN_ERR_FORMAT, "merges", "it is no list");
    if (bpe->byte_level && bpe->byte_fallback)
        return json_place_fail(&model, KVERN_ERR_UNSUPPORTED, "byte_fallback",
                               "together with ByteLevel");
    text_buffer joined = TEXT_BUFFER_INIT;
    kvern_status status = index_words(t, bpe, root->error);
    if (status == KVERN_OK)
        status = merge_table_init(&bpe->merges, count, root->error);
    for (size_t i = 0; status == KVERN_OK && i < count; i++)
        status = add_merge(t, &model, i, json_array_get(merges, i), &joined);
    text_buffer_free(&joined);
    if (status == KVERN_OK)
        find_byte_tokens(t, bpe);
    return status;
}
