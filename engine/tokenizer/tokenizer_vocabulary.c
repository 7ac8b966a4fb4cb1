// SPDX-License-Identifier: MIT
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tokenizer_text token_string(const token_strings *strings, size_t index)
{
    const uint32_t start = strings->starts[index];
    return (tokenizer_text){strings->data.data + start, strings->starts[index + 1] - start};
}

kvern_status token_strings_reserve(token_strings *strings, size_t count)
{
    strings->starts = calloc(count + 1, sizeof *strings->starts);
    if (!strings->starts)
        return KVERN_ERR_MEMORY;
    return text_buffer_reserve(&strings->data, 1); // never NULL, even when all strings are empty
}

// Ends string `index`, which was appended to strings->data.
kvern_status token_strings_close(token_strings *strings, size_t index)
{
    if (strings->data.size > UINT32_MAX)
        return KVERN_ERR_OVERFLOW;
    strings->starts[index + 1] = (uint32_t)strings->data.size;
    return KVERN_OK;
}

static kvern_status load_texts(vocabulary *v, const gguf_entry *tokens)
{
    kvern_status status = token_strings_reserve(&v->texts, v->count);
    for (size_t i = 0; status == KVERN_OK && i < v->count; i++) {
        gguf_string text = {NULL, 0};
        if (!gguf_array_string(tokens, i, &text))
            return KVERN_ERR_FORMAT;
        status = text_buffer_append(&v->texts.data, text.data, text.size);
        if (status == KVERN_OK)
            status = token_strings_close(&v->texts, i);
    }
    return status;
}

static kvern_status reserve_types(vocabulary *v, engine_error *error)
{
    v->types = malloc(v->count);
    v->marks = calloc(v->count, sizeof *v->marks);
    if (!v->types || !v->marks)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu tokens", v->count);
    memset(v->types, TOKEN_NORMAL, v->count);
    return KVERN_OK;
}

static kvern_status load_types(vocabulary *v, const gguf_entry *types, engine_error *error)
{
    const kvern_status status = reserve_types(v, error);
    if (status != KVERN_OK || !types)
        return status;
    if (gguf_array_count(types) != v->count)
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "tokenizer.ggml.token_type has %zu elements for %zu tokens",
                           gguf_array_count(types), v->count);
    for (size_t i = 0; i < v->count; i++) {
        int64_t type = 0;
        if (!gguf_array_i64(types, i, &type) || type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "tokenizer.ggml.token_type of token %zu is %" PRId64
                               ", which is no token type",
                               i, type);
        v->types[i] = (uint8_t)type;
    }
    return KVERN_OK;
}

// The slot of this text, or the free slot where it belongs.
static uint32_t *find_slot(const token_index *index, const token_strings *strings, const char *text,
                           size_t size)
{
    for (size_t at = (size_t)hash_bytes(text, size, index->seed);; at++) {
        uint32_t *slot = &index->slots[at & index->mask];
        if (*slot == 0)
            return slot;
        const tokenizer_text other = token_string(strings, *slot - 1);
        if (other.size == size && memcmp(other.data, text, size) == 0)
            return slot;
    }
}

kvern_status token_index_init(token_index *index, size_t count)
{
    size_t slots = 16;
    while (slots < count * 2)
        slots *= 2;
    index->slots = calloc(slots, sizeof *index->slots);
    index->mask = slots - 1;
    index->seed = hash_seed();
    return index->slots ? KVERN_OK : KVERN_ERR_MEMORY;
}

void token_index_free(token_index *index)
{
    free(index->slots);
}

void token_index_add(token_index *index, const token_strings *strings, int32_t id)
{
    const tokenizer_text text = token_string(strings, (size_t)id);
    uint32_t *slot = text.size ? find_slot(index, strings, text.data, text.size) : NULL;
    if (slot && *slot == 0)
        *slot = (uint32_t)id + 1;
}

int32_t token_index_find(const token_index *index, const token_strings *strings, const char *text,
                         size_t size)
{
    return (int32_t)*find_slot(index, strings, text, size) - 1;
}

static void index_kind(vocabulary *v, bool ordinary)
{
    for (size_t i = 0; i < v->count; i++)
        if (vocabulary_is_ordinary(v, (int32_t)i) == ordinary)
            token_index_add(&v->by_text, &v->texts, (int32_t)i);
}

static kvern_status index_texts(vocabulary *v)
{
    const kvern_status status = token_index_init(&v->by_text, v->count);
    if (status != KVERN_OK)
        return status;
    index_kind(v, true);
    index_kind(v, false);
    return KVERN_OK;
}

kvern_status vocabulary_load(vocabulary *v, const gguf_file *file, engine_error *error)
{
    const gguf_entry *tokens = gguf_find(file, "tokenizer.ggml.tokens");
    v->count = gguf_array_count(tokens);
    if (v->count == 0 || gguf_array_type(tokens) != GGUF_STRING)
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "tokenizer.ggml.tokens is missing or no list of strings");
    if (v->count > INT32_MAX)
        return engine_fail(error, KVERN_ERR_RANGE, "a vocabulary of %zu tokens is too large",
                           v->count);
    kvern_status status = load_types(v, gguf_find(file, "tokenizer.ggml.token_type"), error);
    if (status != KVERN_OK)
        return status;
    status = load_texts(v, tokens);
    if (status == KVERN_OK)
        status = index_texts(v);
    if (status != KVERN_OK)
        return engine_fail(error, status, "loading %zu tokens: %s", v->count,
                           kvern_status_message(status));
    return KVERN_OK;
}

kvern_status vocabulary_fill(vocabulary *v, size_t count, const tokenizer_text *texts,
                             const uint8_t *types, engine_error *error)
{
    v->count = count;
    kvern_status status = reserve_types(v, error);
    if (status != KVERN_OK)
        return status;
    memcpy(v->types, types, count);
    status = token_strings_reserve(&v->texts, count);
    for (size_t i = 0; status == KVERN_OK && i < count; i++) {
        if (texts[i].size > 0)
            status = text_buffer_append(&v->texts.data, texts[i].data, texts[i].size);
        if (status == KVERN_OK)
            status = token_strings_close(&v->texts, i);
    }
    if (status == KVERN_OK)
        status = index_texts(v);
    return status == KVERN_OK ? KVERN_OK
                              : engine_fail(error, status, "loading %zu tokens: %s", count,
                                            kvern_status_message(status));
}

kvern_status vocabulary_decode(vocabulary *v, token_decoder decode, const void *arg,
                               engine_error *error)
{
    kvern_status status = token_strings_reserve(&v->pieces, v->count);
    for (size_t i = 0; status == KVERN_OK && i < v->count; i++) {
        const tokenizer_text text = token_string(&v->texts, i);
        status = decode(arg, (token_type)v->types[i], text, &v->pieces.data);
        if (status == KVERN_OK)
            status = token_strings_close(&v->pieces, i);
    }
    if (status != KVERN_OK)
        return engine_fail(error, status, "decoding %zu tokens: %s", v->count,
                           kvern_status_message(status));
    return KVERN_OK;
}

void token_strings_free(token_strings *strings)
{
    text_buffer_free(&strings->data);
    free(strings->starts);
}

void vocabulary_free(vocabulary *v)
{
    token_strings_free(&v->texts);
    token_strings_free(&v->pieces);
    free(v->types);
    free(v->marks);
    token_index_free(&v->by_text);
}

tokenizer_text vocabulary_text(const vocabulary *v, int32_t id)
{
    return token_string(&v->texts, (size_t)id);
}

tokenizer_text vocabulary_piece(const vocabulary *v, int32_t id)
{
    return token_string(&v->pieces, (size_t)id);
}

bool vocabulary_is_ordinary(const vocabulary *v, int32_t id)
{
    return !v->marks[id] && (v->types[id] == TOKEN_NORMAL || v->types[id] == TOKEN_BYTE);
}

int32_t vocabulary_find(const vocabulary *v, const char *text, size_t bytes)
{
    return bytes == 0 ? TOKENIZER_NO_TOKEN : token_index_find(&v->by_text, &v->texts, text, bytes);
}
