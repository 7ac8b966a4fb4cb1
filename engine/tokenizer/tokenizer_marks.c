// SPDX-License-Identifier: MIT
// Marks of chat templates: tokens that act as control tokens whatever type the file gives them.
//
// Many files call "<|im_end|>" a user-defined or even an ordinary token. As such it would be
// recognised in what a user writes, who could then end the turn. So a token is a mark when it looks
// like one and the file's template has its text, or when one of the templates by name writes it.
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdlib.h>
#include <string.h>

// What the templates by name write, and what ends a generation.
static const char *const well_known[] = {
    "<|im_start|>",
    "<|im_end|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "[INST]",
    "[/INST]",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
};

static bool has_space(tokenizer_text text)
{
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] <= ' ')
            return true;
    return false;
}

// An ordinary token must look like nothing else; a user-defined one may be a tag.
static bool looks_like_mark(const vocabulary *v, int32_t id)
{
    const tokenizer_text text = vocabulary_text(v, id);
    if (text.size < 3 || text.size > TOKENIZER_MAX_SPECIAL || !strchr("<[", text.data[0]) ||
        has_space(text))
        return false;
    const char first = text.data[0], last = text.data[text.size - 1];
    if (v->types[id] == TOKEN_USER_DEFINED)
        return (first == '<' && last == '>') || (first == '[' && last == ']');
    return v->types[id] == TOKEN_NORMAL && text.size > 4 && memcmp(text.data, "<|", 2) == 0 &&
           memcmp(text.data + text.size - 2, "|>", 2) == 0;
}

// Marks the tokens of a set whose text is in the template.
static void search_template(vocabulary *v, const special_set *set, text_view text)
{
    for (size_t at = 0; at < text.size; at++) {
        size_t length;
        const int32_t id = special_set_match(set, text.data + at, text.size - at, &length);
        if (id != TOKENIZER_NO_TOKEN)
            v->marks[id] = true;
    }
}

static void mark_well_known(vocabulary *v, unsigned types)
{
    for (size_t i = 0; i < sizeof well_known / sizeof *well_known; i++) {
        const int32_t id = vocabulary_find(v, well_known[i], strlen(well_known[i]));
        if (id != TOKENIZER_NO_TOKEN && types >> v->types[id] & 1u && looks_like_mark(v, id))
            v->marks[id] = true;
    }
}

kvern_status vocabulary_find_marks(vocabulary *v, text_view template, unsigned types,
                                   engine_error *error)
{
    special_set set = {0};
    uint8_t *wanted = malloc(v->count);
    if (!wanted)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu tokens", v->count);
    for (size_t id = 0; id < v->count; id++)
        wanted[id] = types >> v->types[id] & 1u && looks_like_mark(v, (int32_t)id);
    const kvern_status status = special_set_init(&set, &v->texts, wanted, v->count);
    free(wanted);
    if (status != KVERN_OK) {
        special_set_free(&set);
        return engine_fail(error, status, "no memory for the special tokens");
    }
    search_template(v, &set, template);
    mark_well_known(v, types);
    special_set_free(&set);
    return KVERN_OK;
}
