// SPDX-License-Identifier: MIT
// A stretch of ordinary text to tokens: it is normalized, tokens that are looked for in normalized
// text are taken out, the rest is cut into words, and each word is built from merges.
#include "engine/tokenizer/tokenizer_json.h"

#include "engine/base/utf8.h"

#include <string.h>

typedef struct json_encoding {
    const tokenizer *t;
    const json_bpe *bpe;
    merge_workspace merge;
    text_buffer word; // in the alphabet
    token_buffer *out;
    engine_error *error;
} json_encoding;

static kvern_status push(const json_encoding *e, int32_t id)
{
    return token_buffer_push(e->out, id) == KVERN_OK
               ? KVERN_OK
               : engine_fail(e->error, KVERN_ERR_MEMORY, "no memory for %zu tokens",
                             e->out->count + 1);
}

static kvern_status fail_memory(const json_encoding *e, size_t bytes)
{
    return engine_fail(e->error, KVERN_ERR_MEMORY, "no memory to tokenize %zu bytes", bytes);
}

static int32_t find_word(const json_encoding *e, const char *text, size_t size)
{
    return size ? token_index_find(&e->bpe->words, &e->t->words.texts, text, size)
                : TOKENIZER_NO_TOKEN;
}

// --- Symbols

// Where the symbols of a word are put, each at the byte where it begins.
typedef struct symbol_list {
    symbol *symbols;
    uint32_t last;
    bool unknown; // the last one stands for what is not in the vocabulary
} symbol_list;

static void add_symbol(symbol_list *list, size_t at, int32_t id)
{
    list->symbols[at] = (symbol){.id = id, .previous = list->last, .next = NO_SYMBOL};
    if (list->last != NO_SYMBOL)
        list->symbols[list->last].next = (uint32_t)at;
    list->last = (uint32_t)at;
    list->unknown = false;
}

static kvern_status fail_byte(const json_encoding *e, char byte)
{
    return engine_fail(e->error, KVERN_ERR_UNSUPPORTED,
                       "the model's vocabulary has no token for byte 0x%02x", (unsigned char)byte);
}

// What is no token is its bytes, or else the unknown token.
static kvern_status add_missing(const json_encoding *e, symbol_list *list, tokenizer_text word,
                                size_t at, size_t length)
{
    const json_bpe *bpe = e->bpe;
    const bool bytes = bpe->byte_fallback;
    for (size_t i = at; bytes && i < at + length; i++) {
        const int32_t id = bpe->byte_tokens[(unsigned char)word.data[i]];
        if (id == TOKENIZER_NO_TOKEN)
            return fail_byte(e, word.data[i]);
        add_symbol(list, i, id);
    }
    if (bytes || (list->unknown && bpe->fuse_unknown))
        return KVERN_OK;
    if (bpe->unknown == TOKENIZER_NO_TOKEN)
        return fail_byte(e, word.data[at]);
    add_symbol(list, at, bpe->unknown);
    list->unknown = true;
    return KVERN_OK;
}

static kvern_status start_word(json_encoding *e, tokenizer_text word)
{
    if (merge_workspace_reserve(&e->merge, word.size) != KVERN_OK)
        return fail_memory(e, word.size);
    symbol_list list = {e->merge.symbols, NO_SYMBOL, false};
    kvern_status status = KVERN_OK;
    for (size_t at = 0, length = 1; status == KVERN_OK && at < word.size; at += length) {
        int32_t id = TOKENIZER_NO_TOKEN;
        if (e->bpe->byte_level) {
            id = e->bpe->byte_tokens[(unsigned char)word.data[at]];
        } else {
            utf8_next(word.data + at, word.size - at, &length);
            id = find_word(e, word.data + at, length);
        }
        if (id != TOKENIZER_NO_TOKEN)
            add_symbol(&list, at, id);
        else
            status = add_missing(e, &list, word, at, length);
    }
    return status;
}

// --- Words

static kvern_status find_whole(json_encoding *e, tokenizer_text word, int32_t *id)
{
    if (!e->bpe->byte_level) {
        *id = find_word(e, word.data, word.size);
        return KVERN_OK;
    }
    text_buffer_clear(&e->word);
    if (text_buffer_reserve(&e->word, 2 * word.size) != KVERN_OK)
        return fail_memory(e, word.size);
    byte_alphabet_write_text(word, &e->word);
    *id = find_word(e, e->word.data, e->word.size);
    return KVERN_OK;
}

static uint32_t rank_pair(const void *arg, const merge_workspace *w, uint32_t at, int32_t *product)
{
    return merge_table_rank(arg, w, at, product);
}

static kvern_status encode_word(json_encoding *e, tokenizer_text word)
{
    int32_t whole = TOKENIZER_NO_TOKEN;
    kvern_status status = e->bpe->whole_words ? find_whole(e, word, &whole) : KVERN_OK;
    if (status != KVERN_OK || whole != TOKENIZER_NO_TOKEN)
        return status == KVERN_OK ? push(e, whole) : status;
    status = start_word(e, word);
    if (status != KVERN_OK)
        return status;
    merge_symbols(&e->merge, rank_pair, &e->bpe->merges);
    for (uint32_t at = 0; status == KVERN_OK && at != NO_SYMBOL; at = e->merge.symbols[at].next)
        status = push(e, e->merge.symbols[at].id);
    return status;
}

// Cuts a normalized stretch into words.
static kvern_status encode_words(json_encoding *e, const char *text, size_t bytes, bool first)
{
    text_pieces words = {0};
    kvern_status status = text_pieces_set(&words, text, bytes, first);
    if (status != KVERN_OK)
        status = fail_memory(e, bytes);
    else
        status = text_steps_run(&e->bpe->splitter, &words, e->error);
    for (size_t i = 0; status == KVERN_OK && i < words.count; i++) {
        const size_t begin = i ? words.ends[i - 1] : 0;
        status = encode_word(e, (tokenizer_text){words.text.data + begin, words.ends[i] - begin});
    }
    text_pieces_free(&words);
    return status;
}

static kvern_status encode_normalized(json_encoding *e, const text_pieces *normal)
{
    const char *text = normal->text.data;
    const size_t size = normal->text.size;
    special_place place = {0};
    size_t done = 0;
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && special_set_next(&e->bpe->normalized, e->t->edges, text, size,
                                                  place.next, size, done, &place)) {
        if (place.begin > done)
            status = encode_words(e, text + done, place.begin - done, normal->first && done == 0);
        if (status == KVERN_OK)
            status = push(e, place.id);
        done = place.end;
    }
    if (status == KVERN_OK && done < size)
        status = encode_words(e, text + done, size - done, normal->first && done == 0);
    return status;
}

kvern_status tokenizer_json_encode(const tokenizer *t, const char *text, size_t begin, size_t end,
                                   token_buffer *out, engine_error *error)
{
    json_encoding e = {.t = t, .bpe = t->state, .out = out, .error = error};
    text_pieces normal = {0};
    kvern_status status = text_pieces_set(&normal, text + begin, end - begin, begin == 0);
    if (status != KVERN_OK)
        status = fail_memory(&e, end - begin);
    else
        status = text_steps_run(&e.bpe->normalizer, &normal, error);
    if (status == KVERN_OK && normal.text.size > 0)
        status = encode_normalized(&e, &normal);
    text_pieces_free(&normal);
    merge_workspace_free(&e.merge);
    text_buffer_free(&e.word);
    return status;
}
