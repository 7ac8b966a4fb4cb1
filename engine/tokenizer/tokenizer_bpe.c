// SPDX-License-Identifier: MIT
// Byte-level byte-pair encoding, as introduced by GPT-2.
//
// Every byte is a token, so every text can be written. A word starts as its bytes; then pairs of
// tokens are merged in the order of the file's list of merges.
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct bpe {
    word_splitter *splitter;
    bool whole_words;
    int32_t byte_tokens[256]; // TOKENIZER_NO_TOKEN for bytes that the vocabulary lacks
    merge_table merges;
} bpe;

// Special tokens stand for their text.
static kvern_status decode_text(const void *arg, token_type type, tokenizer_text text,
                                text_buffer *out)
{
    (void)arg;
    if (type != TOKEN_NORMAL && type != TOKEN_BYTE)
        return text_buffer_append(out, text.data, text.size);
    return byte_alphabet_decode(text, out);
}

static int32_t find_ordinary(const vocabulary *v, const char *text, size_t size)
{
    const int32_t id = vocabulary_find(v, text, size);
    if (id == TOKENIZER_NO_TOKEN || !vocabulary_is_ordinary(v, id))
        return TOKENIZER_NO_TOKEN;
    return id;
}

static void find_byte_tokens(bpe *b, const vocabulary *v)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[2];
        const size_t size = byte_alphabet_write((unsigned char)byte, text);
        b->byte_tokens[byte] = find_ordinary(v, text, size);
    }
}

// --- Merges

static kvern_status fail_merge(engine_error *error, size_t index, gguf_string text,
                               const char *fault)
{
    return engine_fail(error, KVERN_ERR_FORMAT, "tokenizer.ggml.merges: element %zu (\"%s\") %s",
                       index, tokenizer_printable(text).text, fault);
}

// Enters the merge "left right". A pair that comes again keeps its first rank. A pair that makes or
// needs a special token is left out: special tokens are taken out of a text before, and what a user
// types must not make one.
static kvern_status add_merge(bpe *b, const vocabulary *v, size_t index, gguf_string text,
                              text_buffer *joined, engine_error *error)
{
    const char *space = text.size > 1 ? memchr(text.data + 1, ' ', text.size - 1) : NULL;
    if (!space || space + 1 == text.data + text.size)
        return fail_merge(error, index, text, "is no pair");
    const size_t left_size = (size_t)(space - text.data);
    const size_t right_size = text.size - left_size - 1;
    text_buffer_clear(joined);
    if (text_buffer_append(joined, text.data, left_size) != KVERN_OK ||
        text_buffer_append(joined, space + 1, right_size) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a merge");
    const int32_t left = vocabulary_find(v, text.data, left_size);
    const int32_t right = vocabulary_find(v, space + 1, right_size);
    const int32_t product = vocabulary_find(v, joined->data, joined->size);
    if (left < 0 || right < 0 || product < 0)
        return fail_merge(error, index, text, "is made of or makes a text that is no token");
    if (!vocabulary_is_ordinary(v, left) || !vocabulary_is_ordinary(v, right) ||
        !vocabulary_is_ordinary(v, product))
        return KVERN_OK;
    merge *slot = merge_table_find(&b->merges, left, right);
    if (slot->rank == NO_RANK)
        *slot = (merge){left, right, (uint32_t)index, product};
    return KVERN_OK;
}

static kvern_status load_merges(bpe *b, const vocabulary *v, const gguf_file *file,
                                engine_error *error)
{
    const gguf_entry *merges = gguf_find(file, "tokenizer.ggml.merges");
    const size_t count = gguf_array_count(merges);
    if (!merges || (count > 0 && gguf_array_type(merges) != GGUF_STRING))
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "tokenizer.ggml.merges is missing or no list of strings");
    if (count > INT32_MAX)
        return engine_fail(error, KVERN_ERR_RANGE, "%zu merges are too many", count);
    kvern_status status = merge_table_init(&b->merges, count, error);
    text_buffer joined = TEXT_BUFFER_INIT;
    for (size_t i = 0; status == KVERN_OK && i < count; i++) {
        gguf_string text = {"", 0};
        (void)gguf_array_string(merges, i, &text);
        status = add_merge(b, v, i, text, &joined, error);
    }
    text_buffer_free(&joined);
    return status;
}

// --- Words

typedef struct word_workspace {
    merge_workspace merge;
    text_buffer text; // of a word, in the alphabet
} word_workspace;

static void workspace_free(word_workspace *w)
{
    merge_workspace_free(&w->merge);
    text_buffer_free(&w->text);
}

static uint32_t rank_pair(const void *arg, const merge_workspace *w, uint32_t at, int32_t *product)
{
    const bpe *b = arg;
    return merge_table_rank(&b->merges, w, at, product);
}

// Fills the symbols with the word's bytes. `offset` is where the word is in the text, for the
// message.
static kvern_status start_word(const bpe *b, word_workspace *w, tokenizer_text word, size_t offset,
                               engine_error *error)
{
    if (merge_workspace_reserve(&w->merge, word.size) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to tokenize a word of %zu bytes",
                           word.size);
    for (size_t i = 0; i < word.size; i++) {
        const unsigned char byte = (unsigned char)word.data[i];
        const int32_t id = b->byte_tokens[byte];
        if (id == TOKENIZER_NO_TOKEN)
            return engine_fail(
                error, KVERN_ERR_UNSUPPORTED,
                "the model's vocabulary has no token for byte 0x%02x (at byte %zu of "
                "the text)",
                byte, offset + i);
        w->merge.symbols[i] = (symbol){.id = id,
                                       .previous = i > 0 ? (uint32_t)i - 1 : NO_SYMBOL,
                                       .next = i + 1 < word.size ? (uint32_t)i + 1 : NO_SYMBOL};
    }
    return KVERN_OK;
}

// The token that a word is as a whole, or TOKENIZER_NO_TOKEN.
static kvern_status find_whole(const vocabulary *v, word_workspace *w, tokenizer_text word,
                               int32_t *id)
{
    text_buffer_clear(&w->text);
    const kvern_status status = text_buffer_reserve(&w->text, 2 * word.size);
    if (status != KVERN_OK)
        return status;
    byte_alphabet_write_text(word, &w->text);
    *id = find_ordinary(v, w->text.data, w->text.size);
    return KVERN_OK;
}

static kvern_status emit_word(const word_workspace *w, token_buffer *out, engine_error *error)
{
    for (uint32_t at = 0; at != NO_SYMBOL; at = w->merge.symbols[at].next)
        if (token_buffer_push(out, w->merge.symbols[at].id) != KVERN_OK)
            return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu tokens", out->count + 1);
    return KVERN_OK;
}

static kvern_status encode_word(const tokenizer *t, word_workspace *w, tokenizer_text word,
                                size_t offset, token_buffer *out, engine_error *error)
{
    const bpe *b = t->state;
    int32_t whole = TOKENIZER_NO_TOKEN;
    kvern_status status = KVERN_OK;
    if (b->whole_words)
        status = find_whole(&t->words, w, word, &whole);
    if (status == KVERN_OK && whole != TOKENIZER_NO_TOKEN)
        status = token_buffer_push(out, whole);
    if (status != KVERN_OK)
        return engine_fail(error, status, "no memory to tokenize a word of %zu bytes", word.size);
    if (whole != TOKENIZER_NO_TOKEN)
        return KVERN_OK;
    status = start_word(b, w, word, offset, error);
    if (status != KVERN_OK)
        return status;
    merge_symbols(&w->merge, rank_pair, b);
    return emit_word(w, out, error);
}

// --- The model

static kvern_status bpe_encode(const tokenizer *t, const char *text, size_t begin, size_t end,
                               token_buffer *out, engine_error *error)
{
    const bpe *b = t->state;
    word_cursor *cursor;
    word_workspace workspace = {0};
    kvern_status status =
        word_cursor_create(b->splitter, text + begin, end - begin, &cursor, error);
    if (status != KVERN_OK)
        return status;
    tokenizer_text word = {text + begin, 0};
    do {
        const size_t offset = (size_t)(word.data - text) + word.size;
        status = word_cursor_next(cursor, &word, error);
        if (status == KVERN_OK && word.size > 0)
            status = encode_word(t, &workspace, word, offset, out, error);
    } while (status == KVERN_OK && word.size > 0);
    workspace_free(&workspace);
    word_cursor_destroy(cursor);
    return status;
}

static kvern_status find_pre_tokenizer(gguf_string name, bool asked, const pre_tokenizer **out,
                                       engine_error *error)
{
    char known[256];
    *out = pre_tokenizer_find(name);
    if (*out)
        return KVERN_OK;
    pre_tokenizer_list(known, sizeof known);
    if (asked)
        return engine_fail(error, KVERN_ERR_ARGUMENT,
                           "no pre-tokenizer is named \"%s\"; known are: %s",
                           tokenizer_printable(name).text, known);
    if (text_view_is(name, "default"))
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "this file does not say how its tokenizer splits a text "
                           "(tokenizer.ggml.pre); --pre NAME tells it: %s",
                           known);
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "pre-tokenizer \"%s\" (tokenizer.ggml.pre) is not known; known are: %s",
                       tokenizer_printable(name).text, known);
}

// Files from before the key existed, and those that call it "default", hold vocabularies of many
// kinds: to take one for GPT-2 would give tokens that its model has not seen.
static kvern_status choose_pre_tokenizer(tokenizer *t, bpe *b, const gguf_file *file,
                                         const char *asked, engine_error *error)
{
    gguf_string name = text_view_of("default");
    const pre_tokenizer *pre;
    const gguf_entry *entry = gguf_find(file, "tokenizer.ggml.pre");
    if (entry && !gguf_get_string(entry, &name))
        return engine_fail(error, KVERN_ERR_FORMAT, "tokenizer.ggml.pre is no string");
    if (asked)
        name = text_view_of(asked);
    const kvern_status status = find_pre_tokenizer(name, asked, &pre, error);
    if (status != KVERN_OK)
        return status;
    t->pre = pre->name;
    t->adds_bos = pre->adds_bos;
    b->whole_words = pre->whole_words;
    return word_splitter_create(pre->pattern, &b->splitter, error);
}

// Only vocabularies of pieces have it.
static kvern_status refuse_space_prefix(const gguf_file *file, engine_error *error)
{
    bool prefix = false;
    if (gguf_get_bool(gguf_find(file, "tokenizer.ggml.add_space_prefix"), &prefix) && prefix)
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "tokenizer.ggml.add_space_prefix of a byte-pair vocabulary");
    return KVERN_OK;
}

static kvern_status bpe_create(tokenizer *t, const gguf_file *file, const char *pre,
                               engine_error *error)
{
    bpe *b = calloc(1, sizeof *b);
    if (!b)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a tokenizer");
    t->state = b;
    kvern_status status = refuse_space_prefix(file, error);
    if (status == KVERN_OK)
        status = choose_pre_tokenizer(t, b, file, pre, error);
    if (status == KVERN_OK)
        status = vocabulary_decode(&t->words, decode_text, NULL, error);
    if (status == KVERN_OK)
        status = load_merges(b, &t->words, file, error);
    if (status == KVERN_OK)
        find_byte_tokens(b, &t->words);
    return status;
}

static void bpe_destroy(tokenizer *t)
{
    bpe *b = t->state;
    if (!b)
        return;
    word_splitter_destroy(b->splitter);
    merge_table_free(&b->merges);
    free(b);
}

const tokenizer_model tokenizer_bpe_model = {
    .name = "gpt2", .create = bpe_create, .destroy = bpe_destroy, .encode = bpe_encode};
