// SPDX-License-Identifier: MIT
// Special tokens are few and a text holds few of them, but a file may have thousands of them that
// begin alike. A sorted list serves both: the first byte leads to a range, and each further byte of
// the text narrows it.
//
// What is looked for is what a token stands for, not how the file writes it: a SentencePiece
// vocabulary may write a space as U+2581.
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

typedef struct special_text {
    tokenizer_text text;
    int32_t id;
} special_text;

// By bytes, a beginning before what it begins, then the lower id.
static int compare_texts(const void *left, const void *right)
{
    const special_text *a = left;
    const special_text *b = right;
    const size_t common = a->text.size < b->text.size ? a->text.size : b->text.size;
    const int order = memcmp(a->text.data, b->text.data, common);
    if (order != 0)
        return order;
    if (a->text.size != b->text.size)
        return a->text.size < b->text.size ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static size_t collect_texts(const token_strings *strings, const uint8_t *wanted, size_t count,
                            special_text *texts)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const tokenizer_text text = token_string(strings, i);
        if (wanted[i] && text.size > 0)
            texts[found++] = (special_text){text, (int32_t)i};
    }
    return found;
}

static size_t count_wanted(const uint8_t *wanted, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += wanted[i] != 0;
    return found;
}

kvern_status special_set_init(special_set *set, const token_strings *strings, const uint8_t *wanted,
                              size_t count)
{
    const size_t most = count_wanted(wanted, count);
    special_text *texts = calloc(most + 1, sizeof *texts);
    set->ids = calloc(most + 1, sizeof *set->ids);
    if (!texts || !set->ids) {
        free(texts);
        return KVERN_ERR_MEMORY;
    }
    set->strings = strings;
    set->count = collect_texts(strings, wanted, count, texts);
    qsort(texts, set->count, sizeof *texts, compare_texts);
    for (size_t i = 0; i < set->count; i++) {
        set->ids[i] = texts[i].id;
        set->starts[(unsigned char)texts[i].text.data[0] + 1]++;
    }
    for (size_t byte = 0; byte < 256; byte++)
        set->starts[byte + 1] += set->starts[byte];
    free(texts);
    return KVERN_OK;
}

kvern_status special_set_of_types(special_set *set, const vocabulary *v, unsigned types, bool marks)
{
    uint8_t *wanted = malloc(v->count);
    if (!wanted)
        return KVERN_ERR_MEMORY;
    for (size_t i = 0; i < v->count; i++)
        wanted[i] = v->marks[i] ? marks : types >> v->types[i] & 1u;
    const kvern_status status = special_set_init(set, &v->pieces, wanted, v->count);
    free(wanted);
    return status;
}

void special_set_free(special_set *set)
{
    free(set->ids);
}

// The first index in [low, high) whose text has a byte of at least `byte` at `depth`. All texts of
// the range agree before `depth`; one that ends there comes first.
static size_t first_at_least(const special_set *set, size_t low, size_t high, size_t depth,
                             unsigned byte)
{
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const tokenizer_text text = token_string(set->strings, (size_t)set->ids[middle]);
        if (text.size > depth && (unsigned char)text.data[depth] >= byte)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int32_t special_set_match(const special_set *set, const char *text, size_t size, size_t *length)
{
    const unsigned first = (unsigned char)text[0];
    size_t low = set->starts[first];
    size_t high = set->starts[first + 1];
    int32_t found = TOKENIZER_NO_TOKEN;
    for (size_t depth = 1; low < high; depth++) {
        if (token_string(set->strings, (size_t)set->ids[low]).size == depth) {
            found = set->ids[low];
            *length = depth;
        }
        if (depth == size)
            break;
        const unsigned byte = (unsigned char)text[depth];
        low = first_at_least(set, low, high, depth, byte);
        high = first_at_least(set, low, high, depth, byte + 1);
    }
    return found;
}

// --- Edges

// The character at text[at], or -1; *length is its bytes.
static utf8proc_int32_t character_at(const char *text, size_t size, size_t at, size_t *length)
{
    utf8proc_int32_t code;
    if (at >= size || utf8_next(text + at, size - at, length) != UTF8_VALID)
        return -1;
    utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)*length, &code);
    return code;
}

// The character in front of text[at].
static utf8proc_int32_t character_before(const char *text, size_t at, size_t *length)
{
    for (size_t bytes = 1; bytes <= 4 && bytes <= at; bytes++) {
        const utf8proc_int32_t code = character_at(text, at, at - bytes, length);
        if (code >= 0 && *length == bytes)
            return code;
    }
    return -1;
}

// White_Space of Unicode.
static bool is_space(utf8proc_int32_t code)
{
    return (code >= 9 && code <= 13) || code == 0x85 ||
           (code >= 0 && (utf8proc_category(code) == UTF8PROC_CATEGORY_ZS ||
                          utf8proc_category(code) == UTF8PROC_CATEGORY_ZL ||
                          utf8proc_category(code) == UTF8PROC_CATEGORY_ZP));
}

// Letters and what is used like them, marks, digits, connectors and joiners: \w of Unicode.
static bool is_word(utf8proc_int32_t code)
{
    if (code < 0)
        return false;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: // joiners, and letters in circles and squares
        return code == 0x200c || code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
               (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
               (code >= 0x1f170 && code <= 0x1f189);
    }
}

static bool stands_alone(const char *text, size_t size, const special_place *place)
{
    size_t length;
    return !is_word(character_before(text, place->begin, &length)) &&
           !is_word(character_at(text, size, place->end, &length));
}

static void take_spaces(const char *text, size_t size, uint8_t edges, size_t taken,
                        special_place *place)
{
    size_t length;
    while (edges & TOKEN_EDGE_LEFT && place->begin > taken &&
           is_space(character_before(text, place->begin, &length)))
        place->begin -= length;
    while (edges & TOKEN_EDGE_RIGHT && is_space(character_at(text, size, place->end, &length)))
        place->end += length;
}

bool special_set_next(const special_set *set, const uint8_t *edges, const char *text, size_t size,
                      size_t from, size_t limit, size_t taken, special_place *place)
{
    for (size_t at = from, length = 0; set->count > 0 && at < limit; at++) {
        const int32_t id = special_set_match(set, text + at, limit - at, &length);
        if (id == TOKENIZER_NO_TOKEN)
            continue;
        const uint8_t bits = edges ? edges[id] : 0;
        *place = (special_place){id, at, at + length, at + length};
        if (!(bits & TOKEN_EDGE_WORD) || stands_alone(text, size, place)) {
            take_spaces(text, size, bits, taken, place);
            return true;
        }
        at += length - 1; // what is no word of its own is ordinary text
    }
    return false;
}
