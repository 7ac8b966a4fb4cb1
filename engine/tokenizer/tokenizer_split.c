// SPDX-License-Identifier: MIT
// Pre-tokenizers: byte-pair merges never cross the border of a word, and what a word is was fixed
// when the vocabulary was trained. Each is one regular expression whose matches, one after another,
// are the words.
//
// White space is written out, because \s of PCRE2 has U+180E, which is none in Unicode since 6.3,
// and the tokenizers that these vocabularies were trained with follow Unicode. Which characters are
// letters or numbers depends on PCRE2's Unicode tables: two versions may differ on characters that
// are new in one.
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer_internal.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// clang-format off
#define SPACE "\\p{Z}\\t-\\r\\x{85}" // for use inside brackets
#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"
#define SYMBOLS "[^" SPACE "\\p{L}\\p{N}]+"
#define LAST_SPACE_APART "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

// GPT-2: a word takes the space before it.
#define GPT2_PATTERN \
    CONTRACTION "| ?\\p{L}+| ?\\p{N}+| ?" SYMBOLS "|" LAST_SPACE_APART

// Every digit is a word, and the text between digits is split as GPT-2 does it: so white space
// before a digit is whole, as at the end of a text.
#define DIGITS_GPT2_PATTERN \
    CONTRACTION "| ?\\p{L}+|\\p{N}| ?" SYMBOLS \
    "|[" SPACE "]+(?![^" SPACE "\\p{N}])|[" SPACE "]+"

// Llama 3 and Qwen 2: any sign may stand before a word, line ends stay with the signs before them,
// and numbers are cut into groups.
#define GROUPED_PATTERN(number) \
    "(?i:" CONTRACTION ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number "| ?" SYMBOLS "[\\r\\n]*" \
    "|[" SPACE "]*[\\r\\n]+|" LAST_SPACE_APART
#define LLAMA3_PATTERN GROUPED_PATTERN("\\p{N}{1,3}")
#define QWEN2_PATTERN GROUPED_PATTERN("\\p{N}")

static const pre_tokenizer pre_tokenizers[] = {
    {"gpt-2", GPT2_PATTERN, false, false},
    {"gpt2", GPT2_PATTERN, false, false},
    {"smollm", DIGITS_GPT2_PATTERN, false, false},
    {"starcoder", DIGITS_GPT2_PATTERN, false, false},
    {"llama-bpe", LLAMA3_PATTERN, true, true},
    {"llama3", LLAMA3_PATTERN, true, true},
    {"qwen2", QWEN2_PATTERN, false, false},
};
// clang-format on

#define PRE_TOKENIZER_COUNT (sizeof pre_tokenizers / sizeof *pre_tokenizers)

const pre_tokenizer *pre_tokenizer_find(gguf_string name)
{
    for (size_t i = 0; i < PRE_TOKENIZER_COUNT; i++) {
        if (text_view_is(name, pre_tokenizers[i].name))
            return &pre_tokenizers[i];
    }
    return NULL;
}

void pre_tokenizer_list(char *text, size_t size)
{
    text[0] = '\0';
    for (size_t i = 0; i < PRE_TOKENIZER_COUNT; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s", i ? ", " : "", pre_tokenizers[i].name);
    }
}

struct word_splitter {
    pcre2_code *code;
    pcre2_match_context *context;
};

static kvern_status fail_pcre2(engine_error *error, int code, const char *what)
{
    char message[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    const bool memory = code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED ||
                        code == PCRE2_ERROR_HEAPLIMIT || code == PCRE2_ERROR_JIT_STACKLIMIT;
    return engine_fail(error, memory ? KVERN_ERR_MEMORY : KVERN_ERR_UNSUPPORTED, "%s: %s", what,
                       message);
}

kvern_status word_splitter_create(const char *pattern, word_splitter **out, engine_error *error)
{
    *out = NULL;
    word_splitter *splitter = calloc(1, sizeof *splitter);
    if (!splitter)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a pre-tokenizer");
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE where;
    splitter->context = pcre2_match_context_create(NULL);
    if (splitter->context)
        splitter->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                       PCRE2_UTF | PCRE2_UCP, &code, &where, NULL);
    if (!splitter->code) {
        word_splitter_destroy(splitter);
        return fail_pcre2(error, code, "the pre-tokenizer's regular expression");
    }
    // The default limit guards against patterns that backtrack without end. Ours step back once
    // over white space, which a long run of it would count against the limit.
    pcre2_set_match_limit(splitter->context, UINT32_MAX);
    // Where generated code is not allowed, matching is interpreted: slower, with the same result.
    (void)pcre2_jit_compile(splitter->code, PCRE2_JIT_COMPLETE);
    *out = splitter;
    return KVERN_OK;
}

void word_splitter_destroy(word_splitter *splitter)
{
    if (!splitter)
        return;
    pcre2_code_free(splitter->code);
    pcre2_match_context_free(splitter->context);
    free(splitter);
}

struct word_cursor {
    const word_splitter *splitter;
    pcre2_match_data *match;
    const char *text;
    size_t bytes;
    size_t at;
    size_t valid_end; // the text is valid UTF-8 from `at` to here
};

kvern_status word_cursor_create(const word_splitter *splitter, const char *text, size_t bytes,
                                word_cursor **out, engine_error *error)
{
    word_cursor *cursor = calloc(1, sizeof *cursor);
    if (cursor)
        cursor->match = pcre2_match_data_create_from_pattern(splitter->code, NULL);
    if (!cursor || !cursor->match) {
        free(cursor);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory to split a text into words");
    }
    cursor->splitter = splitter;
    cursor->text = text;
    cursor->bytes = bytes;
    *out = cursor;
    return KVERN_OK;
}

void word_cursor_destroy(word_cursor *cursor)
{
    if (!cursor)
        return;
    pcre2_match_data_free(cursor->match);
    free(cursor);
}

// The end of the characters from `at` on that are valid, or with `valid` false that are not.
static size_t run_end(const word_cursor *cursor, size_t at, bool valid)
{
    while (at < cursor->bytes) {
        size_t length;
        const utf8_kind kind = utf8_next(cursor->text + at, cursor->bytes - at, &length);
        if ((kind == UTF8_VALID) != valid)
            break;
        at += length;
    }
    return at;
}

// The end of the word that begins at cursor->at, in valid text.
static kvern_status match_word(const word_cursor *cursor, size_t *end, engine_error *error)
{
    const char *start = cursor->text + cursor->at;
    const int found =
        pcre2_match(cursor->splitter->code, (PCRE2_SPTR)start, cursor->valid_end - cursor->at, 0,
                    PCRE2_NO_UTF_CHECK, cursor->match, cursor->splitter->context);
    *end = cursor->valid_end;
    if (found == PCRE2_ERROR_NOMATCH)
        return KVERN_OK;
    if (found < 0)
        return fail_pcre2(error, found, "splitting a text into words");
    // Text that the pattern skips is a word too.
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(cursor->match);
    const size_t length = bounds[0] > 0 ? bounds[0] : bounds[1];
    if (length > 0)
        *end = cursor->at + length;
    return KVERN_OK;
}

kvern_status word_cursor_next(word_cursor *cursor, tokenizer_text *word, engine_error *error)
{
    size_t end = cursor->at;
    if (cursor->at == cursor->valid_end)
        cursor->valid_end = run_end(cursor, cursor->at, true);
    if (cursor->at == cursor->valid_end) {
        end = cursor->valid_end = run_end(cursor, cursor->at, false);
    } else {
        const kvern_status status = match_word(cursor, &end, error);
        if (status != KVERN_OK)
            return status;
    }
    *word = (tokenizer_text){cursor->text + cursor->at, end - cursor->at};
    cursor->at = end;
    return KVERN_OK;
}
