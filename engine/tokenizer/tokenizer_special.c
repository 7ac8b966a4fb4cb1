// SPDX-License-Identifier: MIT
// Special tokens are few and a text holds few of them, but a file may have thousands of them that
// begin alike. A sorted list serves both: the first byte leads to a range, and each further byte of
// the text narrows it.
//
// What is looked for is what a token stands for, not how the file writes it: a SentencePiece
// vocabulary may write a space as U+2581.
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

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
