// SPDX-License-Identifier: MIT
// What a tokenizer.json does to a text before and after its vocabulary: normalizers and
// pre-tokenizers become steps, decoders and post-processors a few flags.
#include "engine/tokenizer/tokenizer_json.h"

#include <string.h>
#include <utf8proc.h>

#define SPACE_MARK "\xe2\x96\x81" // U+2581

// The words of GPT-2, which ByteLevel splits a text into.
#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "[\\p{P}$+<=>^`|~]"

#define MOST_NESTING 8

// Where steps are put.
typedef struct step_list {
    json_bpe *bpe;
    text_steps *steps;
} step_list;

typedef kvern_status (*part_reader)(const step_list *list, const json_place *place, int depth);

static kvern_status add_step(const step_list *list, const json_place *place, step_kind kind,
                             text_step **out)
{
    if (list->steps->count == MOST_TEXT_STEPS)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL, "there are more than %d steps",
                               MOST_TEXT_STEPS);
    *out = &list->steps->step[list->steps->count++];
    **out = (text_step){.kind = kind};
    return KVERN_OK;
}

static kvern_status set_text(const json_place *place, text_step *step, text_view text)
{
    const kvern_status status =
        text.size ? text_buffer_append(&step->text, text.data, text.size) : KVERN_OK;
    return status == KVERN_OK
               ? KVERN_OK
               : json_place_fail(place, status, NULL, "there is no memory to read it");
}

// A step with the text that a member gives, which must be there.
static kvern_status add_text_step(const step_list *list, const json_place *place, step_kind kind,
                                  const char *name, text_step **out)
{
    text_view text = {NULL, 0};
    kvern_status status = json_place_text(place, name, &text);
    if (status == KVERN_OK && !text.data)
        return json_place_fail(place, KVERN_ERR_FORMAT, name, "it is missing");
    if (status == KVERN_OK)
        status = add_step(list, place, kind, out);
    return status == KVERN_OK ? set_text(place, *out, text) : status;
}

static kvern_status set_pattern(const json_place *place, text_step *step, text_view text,
                                bool literal)
{
    engine_error fault = {KVERN_OK, ""};
    const kvern_status status = text_pattern_create(text, literal, &step->pattern, &fault);
    return status == KVERN_OK ? KVERN_OK : json_place_fail(place, status, NULL, "%s", fault.text);
}

// {"String": "..."} or {"Regex": "..."}
static kvern_status read_pattern(const json_place *place, text_step *step)
{
    const json_place pattern = json_place_in(place, "pattern");
    text_view literal = {NULL, 0}, regex = {NULL, 0};
    kvern_status status = json_place_check(&pattern, "String|Regex");
    if (status == KVERN_OK)
        status = json_place_text(&pattern, "String", &literal);
    if (status == KVERN_OK)
        status = json_place_text(&pattern, "Regex", &regex);
    if (status != KVERN_OK)
        return status;
    if (!literal.data == !regex.data)
        return json_place_fail(&pattern, KVERN_ERR_FORMAT, NULL, "it is neither text nor regex");
    return set_pattern(&pattern, step, literal.data ? literal : regex, literal.data != NULL);
}

// The elements of a Sequence, one after another.
static kvern_status read_sequence(const step_list *list, const json_place *place, const char *name,
                                  part_reader read, int depth)
{
    const json_t *parts = json_object_get(place->object, name);
    kvern_status status = KVERN_OK;
    if (!json_is_array(parts) || depth == MOST_NESTING)
        return json_place_fail(place, KVERN_ERR_FORMAT, name, "it is no list, or too deep");
    for (size_t i = 0; status == KVERN_OK && i < json_array_size(parts); i++) {
        const json_place part = json_place_at(place, name, i);
        status = read(list, &part, depth + 1);
    }
    return status;
}

// --- Normalizers

static const struct unicode_form {
    const char *type;
    int options;
} FORMS[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static kvern_status read_form(const step_list *list, const json_place *place)
{
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        text_step *step = NULL;
        if (!json_place_is(place, FORMS[i].type))
            continue;
        kvern_status status = json_place_check(place, "type");
        if (status == KVERN_OK)
            status = add_step(list, place, STEP_UNICODE, &step);
        if (status == KVERN_OK)
            step->form = FORMS[i].options;
        return status;
    }
    return json_place_unknown(place, "a normalizer");
}

static kvern_status read_normalizer(const step_list *list, const json_place *place, int depth)
{
    text_step *step = NULL;
    kvern_status status = KVERN_OK;
    if (json_place_is(place, "Sequence")) {
        status = json_place_check(place, "type|normalizers");
        return status == KVERN_OK
                   ? read_sequence(list, place, "normalizers", read_normalizer, depth)
                   : status;
    }
    if (json_place_is(place, "Prepend")) {
        status = json_place_check(place, "type|prepend");
        return status == KVERN_OK ? add_text_step(list, place, STEP_PREPEND, "prepend", &step)
                                  : status;
    }
    if (json_place_is(place, "Replace")) {
        status = json_place_check(place, "type|pattern|content");
        if (status == KVERN_OK)
            status = add_text_step(list, place, STEP_REPLACE, "content", &step);
        return status == KVERN_OK ? read_pattern(place, step) : status;
    }
    return read_form(list, place);
}

// --- Pre-tokenizers

static kvern_status read_behavior(const json_place *place, text_step *step)
{
    static const char *const names[] = {"Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    text_view name = text_view_of("Isolated");
    const kvern_status status = json_place_text(place, "behavior", &name);
    if (status != KVERN_OK)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        step->behavior = (split_behavior)i;
        if (text_view_is(name, names[i]))
            return KVERN_OK;
    }
    return json_place_fail(place, KVERN_ERR_UNSUPPORTED, "behavior",
                           "\"%.*s\" is not supported: no part of a text is left out",
                           text_view_shown(name, 40), name.data);
}

static kvern_status read_split(const step_list *list, const json_place *place)
{
    text_step *step = NULL;
    kvern_status status = json_place_check(place, "type|pattern|behavior|invert");
    if (status == KVERN_OK)
        status = add_step(list, place, STEP_SPLIT, &step);
    if (status == KVERN_OK)
        status = read_behavior(place, step);
    if (status == KVERN_OK)
        status = json_place_flag(place, "invert", &step->invert);
    return status == KVERN_OK ? read_pattern(place, step) : status;
}

static kvern_status add_split(const step_list *list, const json_place *place, const char *regex,
                              split_behavior behavior)
{
    text_step *step = NULL;
    const kvern_status status = add_step(list, place, STEP_SPLIT, &step);
    if (status != KVERN_OK)
        return status;
    step->behavior = behavior;
    return set_pattern(place, step, text_view_of(regex), false);
}

static kvern_status read_digits(const step_list *list, const json_place *place)
{
    bool individual = false;
    kvern_status status = json_place_check(place, "type|individual_digits");
    if (status == KVERN_OK)
        status = json_place_flag(place, "individual_digits", &individual);
    return status == KVERN_OK
               ? add_split(list, place, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS)
               : status;
}

static kvern_status read_punctuation(const step_list *list, const json_place *place)
{
    text_step *step = NULL;
    kvern_status status = json_place_check(place, "type|behavior");
    if (status == KVERN_OK)
        status = add_step(list, place, STEP_SPLIT, &step);
    if (status == KVERN_OK)
        status = read_behavior(place, step);
    return status == KVERN_OK ? set_pattern(place, step, text_view_of(PUNCTUATION), false) : status;
}

static kvern_status read_byte_level(const step_list *list, const json_place *place)
{
    bool prefix = true, words = true;
    text_step *step = NULL;
    kvern_status status = json_place_check(place, "type|add_prefix_space|trim_offsets|use_regex");
    if (status == KVERN_OK)
        status = json_place_flag(place, "add_prefix_space", &prefix);
    if (status == KVERN_OK)
        status = json_place_flag(place, "use_regex", &words);
    list->bpe->byte_level = true;
    if (status == KVERN_OK && prefix)
        status = add_step(list, place, STEP_PREFIX_SPACE, &step);
    return status == KVERN_OK && words ? add_split(list, place, GPT2_WORDS, SPLIT_ISOLATED)
                                       : status;
}

static kvern_status read_scheme(const json_place *place, prepend_scheme *scheme)
{
    static const char *const names[] = {"always", "first", "never"};
    text_view name = {NULL, 0};
    bool prefix = true;
    kvern_status status = json_place_text(place, "prepend_scheme", &name);
    if (status == KVERN_OK)
        status = json_place_flag(place, "add_prefix_space", &prefix); // its older name
    *scheme = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (status != KVERN_OK || !name.data)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (text_view_is(name, names[i])) {
            *scheme = (prepend_scheme)i;
            return prefix || *scheme == PREPEND_NEVER
                       ? KVERN_OK
                       : json_place_fail(place, KVERN_ERR_FORMAT, "add_prefix_space",
                                         "it contradicts prepend_scheme");
        }
    return json_place_fail(place, KVERN_ERR_UNSUPPORTED, "prepend_scheme", "it is not known");
}

static kvern_status read_metaspace(const step_list *list, const json_place *place)
{
    text_step *step = NULL;
    bool split = true;
    kvern_status status =
        json_place_check(place, "type|replacement|prepend_scheme|add_prefix_space|split|str_rep");
    if (status == KVERN_OK)
        status = json_place_flag(place, "split", &split);
    if (status == KVERN_OK)
        status = add_text_step(list, place, STEP_METASPACE, "replacement", &step);
    if (status == KVERN_OK && step->text.size == 0)
        status = json_place_fail(place, KVERN_ERR_FORMAT, "replacement", "it is empty");
    if (status == KVERN_OK)
        status = read_scheme(place, &step->scheme);
    if (status != KVERN_OK || !split)
        return status;
    const text_view mark = {step->text.data, step->text.size};
    status = add_step(list, place, STEP_SPLIT, &step);
    if (status != KVERN_OK)
        return status;
    step->behavior = SPLIT_WITH_NEXT;
    return set_pattern(place, step, mark, true);
}

static kvern_status read_pre_tokenizer(const step_list *list, const json_place *place, int depth)
{
    static const struct {
        const char *type;
        kvern_status (*read)(const step_list *list, const json_place *place);
    } kinds[] = {
        {"Split", read_split},
        {"Digits", read_digits},
        {"ByteLevel", read_byte_level},
        {"Metaspace", read_metaspace},
        {"Punctuation", read_punctuation},
    };
    if (list->bpe->byte_level)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                               "nothing may follow ByteLevel, which makes bytes of a text");
    if (json_place_is(place, "Sequence")) {
        const kvern_status status = json_place_check(place, "type|pretokenizers");
        return status == KVERN_OK
                   ? read_sequence(list, place, "pretokenizers", read_pre_tokenizer, depth)
                   : status;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (json_place_is(place, kinds[i].type))
            return kinds[i].read(list, place);
    return json_place_unknown(place, "a pre-tokenizer");
}

// --- Decoders. A token comes out alone, so what a decoder does to a whole text must not matter:
// the space that it takes off in front is one that an answer, which continues a prompt, keeps.

typedef struct decoding {
    bool bytes;  // ByteLevel
    bool spaces; // U+2581 becomes a space
    bool fallback;
} decoding;

static kvern_status read_replace_decoder(const json_place *place, decoding *found)
{
    const json_place pattern = json_place_in(place, "pattern");
    text_view mark = {NULL, 0}, content = {NULL, 0};
    kvern_status status = json_place_check(place, "type|pattern|content");
    if (status == KVERN_OK)
        status = json_place_check(&pattern, "String");
    if (status == KVERN_OK)
        status = json_place_text(&pattern, "String", &mark);
    if (status == KVERN_OK)
        status = json_place_text(place, "content", &content);
    if (status == KVERN_OK && (!text_view_is(mark, SPACE_MARK) || !text_view_is(content, " ")))
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                               "only U+2581 may be replaced, by a space");
    found->spaces = true;
    return status;
}

static kvern_status read_strip_decoder(const json_place *place)
{
    text_view content = {NULL, 0};
    kvern_status status = json_place_check(place, "type|content|start|stop");
    if (status == KVERN_OK)
        status = json_place_text(place, "content", &content);
    const json_int_t start = json_integer_value(json_object_get(place->object, "start"));
    const json_int_t stop = json_integer_value(json_object_get(place->object, "stop"));
    if (status == KVERN_OK && (!text_view_is(content, " ") || start < 0 || start > 1 || stop != 0))
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                               "only one space in front may be taken off");
    return status;
}

static kvern_status read_metaspace_decoder(const json_place *place, decoding *found)
{
    text_view mark = {NULL, 0};
    kvern_status status =
        json_place_check(place, "type|replacement|prepend_scheme|add_prefix_space|split|str_rep");
    if (status == KVERN_OK)
        status = json_place_text(place, "replacement", &mark);
    if (status == KVERN_OK && !text_view_is(mark, SPACE_MARK))
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, "replacement", "only U+2581 is");
    found->spaces = true;
    return status;
}

static kvern_status read_decoder(const json_place *place, decoding *found, int depth)
{
    kvern_status status = KVERN_OK;
    if (json_place_is(place, "Sequence")) {
        const json_t *parts = json_object_get(place->object, "decoders");
        status = json_place_check(place, "type|decoders");
        if (status == KVERN_OK && (!json_is_array(parts) || depth == MOST_NESTING))
            return json_place_fail(place, KVERN_ERR_FORMAT, "decoders", "it is no list");
        for (size_t i = 0; status == KVERN_OK && i < json_array_size(parts); i++) {
            const json_place part = json_place_at(place, "decoders", i);
            status = read_decoder(&part, found, depth + 1);
        }
        return status;
    }
    if (json_place_is(place, "ByteLevel")) {
        found->bytes = true;
        return json_place_check(place, "type|add_prefix_space|trim_offsets|use_regex");
    }
    if (json_place_is(place, "ByteFallback")) {
        found->fallback = true;
        return json_place_check(place, "type");
    }
    if (json_place_is(place, "Fuse"))
        return json_place_check(place, "type");
    if (json_place_is(place, "Replace"))
        return read_replace_decoder(place, found);
    if (json_place_is(place, "Strip"))
        return read_strip_decoder(place);
    if (json_place_is(place, "Metaspace"))
        return read_metaspace_decoder(place, found);
    return json_place_unknown(place, "a decoder");
}

// Tokens must come out as what they were made from.
static kvern_status check_decoding(const json_bpe *bpe, const json_place *place,
                                   const decoding *found)
{
    if (found->bytes != bpe->byte_level)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                               "it must be ByteLevel when the pre-tokenizer is, and else not");
    if (bpe->byte_fallback && !found->fallback)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                               "it must have ByteFallback, because the model has byte_fallback");
    return KVERN_OK;
}

// --- Post-processors: the token that a text begins with.

typedef struct processing {
    tokenizer *t;
    json_bpe *bpe;
} processing;

static kvern_status read_template_token(const processing *p, const json_place *place,
                                        const json_place *token, bool *seen)
{
    const json_place all = json_place_in(place, "special_tokens");
    text_view name = {NULL, 0};
    kvern_status status = json_place_text(token, "id", &name);
    if (status != KVERN_OK || !name.data)
        return json_place_fail(token, KVERN_ERR_FORMAT, "id", "it is no text");
    const json_place one = json_place_in(&all, name.data);
    const json_t *ids = json_object_get(one.object, "ids");
    const json_int_t id = json_integer_value(json_array_get(ids, 0));
    if (json_array_size(ids) != 1 || id < 0 || (uint64_t)id >= p->t->words.count)
        return json_place_fail(&one, KVERN_ERR_UNSUPPORTED, "ids", "it must be one token");
    if (*seen) {
        p->bpe->template_ends = true;
        return KVERN_OK;
    }
    if (p->bpe->template_bos != TOKENIZER_NO_TOKEN)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, "single",
                               "more than one token is put in front of a text");
    p->bpe->template_bos = (int32_t)id;
    return KVERN_OK;
}

static kvern_status read_template(const processing *p, const json_place *place)
{
    const json_t *single = json_object_get(place->object, "single");
    bool seen = false;
    kvern_status status = json_place_check(place, "type|single|pair|special_tokens");
    if (status == KVERN_OK && !json_is_array(single))
        return json_place_fail(place, KVERN_ERR_FORMAT, "single", "it is no list");
    for (size_t i = 0; status == KVERN_OK && i < json_array_size(single); i++) {
        const json_place element = json_place_at(place, "single", i);
        const json_place token = json_place_in(&element, "SpecialToken");
        status = json_place_check(&element, "SpecialToken|Sequence");
        if (status == KVERN_OK && token.object)
            status = read_template_token(p, place, &token, &seen);
        else if (status == KVERN_OK && seen)
            status = json_place_fail(place, KVERN_ERR_UNSUPPORTED, "single", "a text comes twice");
        else
            seen = true;
    }
    return status == KVERN_OK && !seen
               ? json_place_fail(place, KVERN_ERR_UNSUPPORTED, "single", "it has no text")
               : status;
}

static kvern_status read_processor(const processing *p, const json_place *place, int depth)
{
    kvern_status status = KVERN_OK;
    if (json_place_is(place, "Sequence")) {
        const json_t *parts = json_object_get(place->object, "processors");
        status = json_place_check(place, "type|processors");
        if (status == KVERN_OK && (!json_is_array(parts) || depth == MOST_NESTING))
            return json_place_fail(place, KVERN_ERR_FORMAT, "processors", "it is no list");
        for (size_t i = 0; status == KVERN_OK && i < json_array_size(parts); i++) {
            const json_place part = json_place_at(place, "processors", i);
            status = read_processor(p, &part, depth + 1);
        }
        return status;
    }
    if (json_place_is(place, "ByteLevel")) // of offsets
        return json_place_check(place, "type|add_prefix_space|trim_offsets|use_regex");
    if (json_place_is(place, "TemplateProcessing"))
        return read_template(p, place);
    return json_place_unknown(place, "a post-processor");
}

// --- All of them

// A part is an object, or null.
static kvern_status check_part(const json_place *root, const char *name)
{
    const json_t *part = json_object_get(root->object, name);
    return !part || json_is_null(part) || json_is_object(part)
               ? KVERN_OK
               : json_place_fail(root, KVERN_ERR_FORMAT, name, "it is no object");
}

static kvern_status check_parts(const json_place *root)
{
    static const char *const names[] = {"normalizer", "pre_tokenizer", "decoder", "post_processor"};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < sizeof names / sizeof *names; i++)
        status = check_part(root, names[i]);
    return status;
}

kvern_status tokenizer_json_steps(tokenizer *t, const json_place *root)
{
    json_bpe *bpe = t->state;
    const json_place normalizer = json_place_in(root, "normalizer");
    const json_place words = json_place_in(root, "pre_tokenizer");
    const json_place decoder = json_place_in(root, "decoder");
    const json_place processor = json_place_in(root, "post_processor");
    const processing p = {t, bpe};
    decoding found = {false, false, false};
    kvern_status status = check_parts(root);
    bpe->template_bos = TOKENIZER_NO_TOKEN;
    if (status == KVERN_OK && normalizer.object)
        status = read_normalizer(&(step_list){bpe, &bpe->normalizer}, &normalizer, 0);
    if (status == KVERN_OK && words.object)
        status = read_pre_tokenizer(&(step_list){bpe, &bpe->splitter}, &words, 0);
    if (status == KVERN_OK && !decoder.object)
        status = json_place_fail(root, KVERN_ERR_FORMAT, "decoder", "there is none");
    if (status == KVERN_OK)
        status = read_decoder(&decoder, &found, 0);
    if (status == KVERN_OK)
        status = check_decoding(bpe, &decoder, &found);
    if (status == KVERN_OK && processor.object)
        status = read_processor(&p, &processor, 0);
    bpe->spaced = found.spaces;
    return status;
}
