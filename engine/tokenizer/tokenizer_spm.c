// SPDX-License-Identifier: MIT
// SentencePiece vocabularies whose tokens have scores ("llama" in GGUF).
//
// Such a vocabulary writes a space as U+2581; in a text the two characters are the same. Text
// starts as user-defined tokens, the longest at every place, and between them as characters. Then
// the adjacent pair that makes the token of the highest score, the leftmost of equals, is merged,
// until no pair makes a token. A character that is no token becomes one token for each of its
// bytes.
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct spm {
    uint32_t *ranks;  // of each token: the higher its score the lower
    token_index made; // pieces of the tokens that merges can make
    size_t longest;   // bytes of the longest of these
    special_set user_defined;
    bool space_prefix;        // a text begins with a space that nobody wrote
    int32_t byte_tokens[256]; // TOKENIZER_NO_TOKEN for bytes that the vocabulary lacks
} spm;

// --- Loading

// Byte tokens stand for their byte, ordinary and user-defined ones for their text with its spaces,
// all others for their text.
static kvern_status decode_text(const void *arg, token_type type, tokenizer_text text,
                                text_buffer *out)
{
    (void)arg;
    const int byte = type == TOKEN_BYTE ? token_named_byte(text) : -1;
    if (byte >= 0)
        return text_buffer_append(out, (char[]){(char)byte}, 1);
    if (type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED)
        return token_append_spaced(text.data, text.size, out);
    return text_buffer_append(out, text.data, text.size);
}

static kvern_status find_byte_tokens(spm *s, const vocabulary *v, engine_error *error)
{
    for (size_t byte = 0; byte < 256; byte++)
        s->byte_tokens[byte] = TOKENIZER_NO_TOKEN;
    for (size_t id = 0; id < v->count; id++) {
        if (v->types[id] != TOKEN_BYTE)
            continue;
        const tokenizer_text text = vocabulary_text(v, (int32_t)id);
        const int byte = token_named_byte(text);
        if (byte < 0)
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "token %zu is a byte token, but \"%s\" names no byte", id,
                               tokenizer_printable((gguf_string){text.data, text.size}).text);
        if (s->byte_tokens[byte] == TOKENIZER_NO_TOKEN)
            s->byte_tokens[byte] = (int32_t)id;
    }
    return KVERN_OK;
}

// Numbers in the opposite order of scores. Floats of one sign compare as their bits do, negative
// ones the other way round.
static uint32_t rank_of(float score)
{
    const float value = score + 0.0f; // no negative zero
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t ascending = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    return ~ascending;
}

static kvern_status load_scores(spm *s, const vocabulary *v, const gguf_file *file,
                                engine_error *error)
{
    const gguf_entry *scores = gguf_find(file, "tokenizer.ggml.scores");
    if (gguf_array_count(scores) != v->count)
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "tokenizer.ggml.scores has %zu elements for %zu tokens",
                           gguf_array_count(scores), v->count);
    s->ranks = malloc(v->count * sizeof *s->ranks);
    if (!s->ranks)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu scores", v->count);
    for (size_t id = 0; id < v->count; id++) {
        float score;
        if (!gguf_array_f32(scores, id, &score) || isnan(score))
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "tokenizer.ggml.scores of token %zu is no number", id);
        s->ranks[id] = rank_of(score);
    }
    return KVERN_OK;
}

static kvern_status index_made(spm *s, const vocabulary *v)
{
    const kvern_status status = token_index_init(&s->made, v->count);
    for (size_t id = 0; status == KVERN_OK && id < v->count; id++) {
        const size_t size = vocabulary_piece(v, (int32_t)id).size;
        const tokenizer_text text = vocabulary_text(v, (int32_t)id);
        // A space that is not written as U+2581 is no space of the vocabulary.
        if (v->types[id] != TOKEN_NORMAL || v->marks[id] || memchr(text.data, ' ', text.size))
            continue;
        token_index_add(&s->made, &v->pieces, (int32_t)id);
        s->longest = size > s->longest ? size : s->longest;
    }
    return status;
}

static kvern_status load_flag(const gguf_file *file, const char *key, bool *flag,
                              engine_error *error)
{
    const gguf_entry *entry = gguf_find(file, key);
    if (entry && !gguf_get_bool(entry, flag))
        return engine_fail(error, KVERN_ERR_FORMAT, "%s is no boolean", key);
    return KVERN_OK;
}

static kvern_status spm_create(tokenizer *t, const gguf_file *file, const char *pre,
                               engine_error *error)
{
    if (pre)
        return engine_fail(
            error, KVERN_ERR_ARGUMENT,
            "a vocabulary of pieces does not split texts into words, as \"%s\" would",
            tokenizer_printable(text_view_of(pre)).text);
    spm *s = calloc(1, sizeof *s);
    if (!s)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a tokenizer");
    t->state = s;
    t->adds_bos = true;
    s->space_prefix = true;
    kvern_status status =
        load_flag(file, "tokenizer.ggml.add_space_prefix", &s->space_prefix, error);
    if (status == KVERN_OK)
        status = find_byte_tokens(s, &t->words, error);
    if (status == KVERN_OK)
        status = load_scores(s, &t->words, file, error);
    if (status == KVERN_OK)
        status = vocabulary_decode(&t->words, decode_text, NULL, error);
    if (status != KVERN_OK)
        return status;
    status = index_made(s, &t->words);
    if (status == KVERN_OK)
        status = special_set_of_types(&s->user_defined, &t->words, 1u << TOKEN_USER_DEFINED, false);
    return status == KVERN_OK ? KVERN_OK : engine_fail(error, status, "no memory for a tokenizer");
}

static void spm_destroy(tokenizer *t)
{
    spm *s = t->state;
    if (!s)
        return;
    token_index_free(&s->made);
    special_set_free(&s->user_defined);
    free(s->ranks);
    free(s);
}

// --- Encoding

// A text on its way to tokens. `at` offsets are those of `text`.
typedef struct spm_encoding {
    const tokenizer *t;
    const spm *s;
    text_buffer text;  // with its spaces
    const char *piece; // the stretch between user-defined tokens that is being merged
    size_t piece_size;
    merge_workspace merge;
    token_buffer *out;
    engine_error *error;
} spm_encoding;

static kvern_status fail_memory(const spm_encoding *e, size_t bytes)
{
    return engine_fail(e->error, KVERN_ERR_MEMORY, "no memory to tokenize %zu bytes", bytes);
}

static kvern_status push(const spm_encoding *e, int32_t id)
{
    if (token_buffer_push(e->out, id) != KVERN_OK)
        return engine_fail(e->error, KVERN_ERR_MEMORY, "no memory for %zu tokens",
                           e->out->count + 1);
    return KVERN_OK;
}

// One symbol for each character, or for bytes that are none.
static void start_symbols(spm_encoding *e)
{
    uint32_t previous = NO_SYMBOL;
    for (size_t at = 0, length; at < e->piece_size; at += length) {
        utf8_next(e->piece + at, e->piece_size - at, &length);
        const bool last = at + length == e->piece_size;
        e->merge.symbols[at] = (symbol){.id = TOKENIZER_NO_TOKEN,
                                        .previous = previous,
                                        .next = last ? NO_SYMBOL : (uint32_t)(at + length)};
        previous = (uint32_t)at;
    }
}

static size_t symbol_end(const spm_encoding *e, uint32_t at)
{
    const uint32_t next = e->merge.symbols[at].next;
    return next == NO_SYMBOL ? e->piece_size : next;
}

static int32_t find_made(const spm_encoding *e, size_t begin, size_t end)
{
    if (end - begin > e->s->longest)
        return TOKENIZER_NO_TOKEN;
    return token_index_find(&e->s->made, &e->t->words.pieces, e->piece + begin, end - begin);
}

static uint32_t rank_pair(const void *arg, const merge_workspace *w, uint32_t at, int32_t *product)
{
    const spm_encoding *e = arg;
    *product = find_made(e, at, symbol_end(e, w->symbols[at].next));
    return *product == TOKENIZER_NO_TOKEN ? NO_RANK : e->s->ranks[*product];
}

static kvern_status push_bytes(const spm_encoding *e, size_t begin, size_t end)
{
    kvern_status status = KVERN_OK;
    for (size_t i = begin; status == KVERN_OK && i < end; i++) {
        const unsigned char byte = (unsigned char)e->piece[i];
        if (e->s->byte_tokens[byte] == TOKENIZER_NO_TOKEN)
            return engine_fail(e->error, KVERN_ERR_UNSUPPORTED,
                               "the model's vocabulary has no token for byte 0x%02x", byte);
        status = push(e, e->s->byte_tokens[byte]);
    }
    return status;
}

static kvern_status push_symbols(const spm_encoding *e)
{
    kvern_status status = KVERN_OK;
    for (uint32_t at = 0; status == KVERN_OK && at != NO_SYMBOL; at = e->merge.symbols[at].next) {
        const size_t end = symbol_end(e, at);
        int32_t id = e->merge.symbols[at].id;
        if (id == TOKENIZER_NO_TOKEN)
            id = find_made(e, at, end); // a character that was never merged
        status = id == TOKENIZER_NO_TOKEN ? push_bytes(e, at, end) : push(e, id);
    }
    return status;
}

static kvern_status encode_piece(spm_encoding *e, size_t begin, size_t end)
{
    if (begin == end)
        return KVERN_OK;
    e->piece = e->text.data + begin;
    e->piece_size = end - begin;
    if (merge_workspace_reserve(&e->merge, e->piece_size) != KVERN_OK)
        return fail_memory(e, e->piece_size);
    start_symbols(e);
    merge_symbols(&e->merge, rank_pair, e);
    return push_symbols(e);
}

static kvern_status encode_text(spm_encoding *e)
{
    const size_t size = e->text.size;
    kvern_status status = KVERN_OK;
    size_t begin = 0;
    size_t length;
    for (size_t at = 0; status == KVERN_OK && at < size; at += length) {
        const char *text = e->text.data + at;
        const int32_t id = special_set_match(&e->s->user_defined, text, size - at, &length);
        if (id == TOKENIZER_NO_TOKEN) {
            utf8_next(text, size - at, &length);
            continue;
        }
        status = encode_piece(e, begin, at);
        if (status == KVERN_OK)
            status = push(e, id);
        begin = at + length;
    }
    return status == KVERN_OK ? encode_piece(e, begin, size) : status;
}

static kvern_status spm_encode(const tokenizer *t, const char *text, size_t begin, size_t end,
                               token_buffer *out, engine_error *error)
{
    spm_encoding e = {.t = t, .s = t->state, .out = out, .error = error};
    kvern_status status = KVERN_OK;
    if (e.s->space_prefix)
        status = text_buffer_append(&e.text, " ", 1);
    if (status == KVERN_OK)
        status = token_append_spaced(text + begin, end - begin, &e.text);
    if (status == KVERN_OK)
        status = encode_text(&e);
    else
        status = fail_memory(&e, end - begin);
    text_buffer_free(&e.text);
    merge_workspace_free(&e.merge);
    return status;
}

const tokenizer_model tokenizer_spm_model = {.name = "llama",
                                             .finds_user_defined = true,
                                             .create = spm_create,
                                             .destroy = spm_destroy,
                                             .encode = spm_encode};
