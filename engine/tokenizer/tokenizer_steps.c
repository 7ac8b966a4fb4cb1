// SPDX-License-Identifier: MIT
// Normalizers change a text, pre-tokenizers cut it into words. Each step reads pieces and writes
// new ones.
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer_json.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// Patterns come from strangers: one that steps back without end is given up.
#define MOST_MATCH_STEPS 100000000u

// --- Pieces

void text_pieces_free(text_pieces *pieces)
{
    text_buffer_free(&pieces->text);
    free(pieces->ends);
}

// Ends a piece at the end of the text. An empty one is none.
static kvern_status end_piece(text_pieces *pieces)
{
    const size_t end = pieces->text.size;
    if (end == (pieces->count ? pieces->ends[pieces->count - 1] : 0))
        return KVERN_OK;
    if (pieces->count == pieces->capacity) {
        const size_t capacity = 2 * pieces->capacity + 16;
        size_t *ends = realloc(pieces->ends, capacity * sizeof *ends);
        if (!ends)
            return KVERN_ERR_MEMORY;
        pieces->ends = ends;
        pieces->capacity = capacity;
    }
    pieces->ends[pieces->count++] = end;
    return KVERN_OK;
}

static kvern_status add_text(text_pieces *pieces, const char *text, size_t bytes)
{
    return bytes ? text_buffer_append(&pieces->text, text, bytes) : KVERN_OK;
}

static kvern_status add_piece(text_pieces *pieces, const char *text, size_t bytes)
{
    const kvern_status status = add_text(pieces, text, bytes);
    return status == KVERN_OK ? end_piece(pieces) : status;
}

kvern_status text_pieces_set(text_pieces *pieces, const char *text, size_t bytes, bool first)
{
    text_buffer_clear(&pieces->text);
    pieces->count = 0;
    pieces->first = first;
    return add_piece(pieces, text, bytes);
}

// --- Patterns

struct text_pattern {
    pcre2_code *code;
    pcre2_match_context *context;
};

static kvern_status fail_pcre2(engine_error *error, int code)
{
    char message[128];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
    const bool memory = code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED ||
                        code == PCRE2_ERROR_HEAPLIMIT;
    return engine_fail(error, memory ? KVERN_ERR_MEMORY : KVERN_ERR_UNSUPPORTED,
                       "the tokenizer's regular expression: %s", message);
}

// A pattern that matches nothing at all has no words.
static kvern_status refuse_empty(const pcre2_code *code, engine_error *error)
{
    uint32_t empty = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty ? engine_fail(error, KVERN_ERR_UNSUPPORTED,
                               "the tokenizer's regular expression may match an empty text")
                 : KVERN_OK;
}

static kvern_status compile(text_pattern *pattern, text_view text, uint32_t options,
                            engine_error *error)
{
    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE where;
    pattern->context = pcre2_match_context_create(NULL);
    if (pattern->context)
        pattern->code =
            pcre2_compile((PCRE2_SPTR)text.data, text.size, options, &code, &where, NULL);
    if (!pattern->code)
        return fail_pcre2(error, code);
    pcre2_set_match_limit(pattern->context, MOST_MATCH_STEPS);
    // Where generated code is not allowed, matching is interpreted: slower, with the same result.
    (void)pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE);
    return refuse_empty(pattern->code, error);
}

kvern_status text_pattern_create(text_view text, bool literal, text_pattern **out,
                                 engine_error *error)
{
    text_buffer translated = TEXT_BUFFER_INIT;
    text_pattern *pattern = calloc(1, sizeof *pattern);
    *out = NULL;
    if (!pattern)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a regular expression");
    kvern_status status = KVERN_OK;
    if (literal) {
        status = compile(pattern, text, PCRE2_UTF | PCRE2_LITERAL, error);
    } else {
        status = tokenizer_regex_translate(text, &translated, error);
        if (status == KVERN_OK)
            status = compile(pattern, (text_view){translated.data, translated.size},
                             PCRE2_UTF | PCRE2_UCP, error);
    }
    text_buffer_free(&translated);
    if (status == KVERN_OK)
        *out = pattern;
    else
        text_pattern_destroy(pattern);
    return status;
}

void text_pattern_destroy(text_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->context);
    free(pattern);
}

// --- Running

typedef struct step_run {
    const text_step *step;
    text_pieces *in;
    text_pieces *out;
    pcre2_match_data *match;
    engine_error *error;
} step_run;

// The next match in valid text from `at` on; `found` is false when there is none.
static kvern_status next_match(const step_run *run, text_view text, size_t at, bool *found,
                               size_t *begin, size_t *end)
{
    const text_pattern *pattern = run->step->pattern;
    int code = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, at, PCRE2_NO_UTF_CHECK,
                           run->match, pattern->context);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, at,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->match, pattern->context);
    *found = code >= 0;
    if (code == PCRE2_ERROR_NOMATCH)
        return KVERN_OK;
    if (code < 0)
        return fail_pcre2(run->error, code);
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(run->match);
    *begin = bounds[0];
    *end = bounds[1];
    return *end > *begin ? KVERN_OK : fail_pcre2(run->error, PCRE2_ERROR_NOMATCH);
}

// What a splitter remembers between stretches that match and stretches that do not.
typedef struct splitting {
    const step_run *run;
    bool previous; // the last stretch was a match
    bool any;      // there was one
} splitting;

// Adds a stretch, of which it is known whether it is a match. The last piece stays open, for what
// may join it.
static kvern_status add_stretch(splitting *s, const char *text, size_t bytes, bool matches)
{
    bool joins = false;
    switch (s->run->step->behavior) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_WITH_PREVIOUS:
        joins = matches && !s->previous;
        break;
    case SPLIT_WITH_NEXT:
        joins = s->previous && !matches;
        break;
    case SPLIT_CONTIGUOUS:
        joins = matches == s->previous;
        break;
    }
    kvern_status status = s->any && !joins ? end_piece(s->run->out) : KVERN_OK;
    s->previous = matches;
    s->any = true;
    return status == KVERN_OK ? add_text(s->run->out, text, bytes) : status;
}

static kvern_status split_valid(const step_run *run, text_view text)
{
    splitting s = {.run = run};
    const bool invert = run->step->invert;
    size_t at = 0, begin = 0, end = 0;
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && at < text.size) {
        bool found;
        status = next_match(run, text, at, &found, &begin, &end);
        if (status != KVERN_OK || !found)
            break;
        if (begin > at)
            status = add_stretch(&s, text.data + at, begin - at, invert);
        if (status == KVERN_OK)
            status = add_stretch(&s, text.data + begin, end - begin, !invert);
        at = end;
    }
    if (status == KVERN_OK && at < text.size)
        status = add_stretch(&s, text.data + at, text.size - at, invert);
    return status == KVERN_OK ? end_piece(run->out) : status;
}

static kvern_status replace_valid(const step_run *run, text_view text)
{
    const text_buffer *with = &run->step->text;
    size_t at = 0, begin = 0, end = 0;
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK && at < text.size) {
        bool found;
        status = next_match(run, text, at, &found, &begin, &end);
        if (status != KVERN_OK || !found)
            break;
        status = add_text(run->out, text.data + at, begin - at);
        if (status == KVERN_OK)
            status = add_text(run->out, with->data, with->size);
        at = end;
    }
    return status == KVERN_OK ? add_text(run->out, text.data + at, text.size - at) : status;
}

static bool is_ascii(text_view text)
{
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= 0x80)
            return false;
    return true;
}

static kvern_status normalize_valid(const step_run *run, text_view text)
{
    utf8proc_uint8_t *normal;
    if (is_ascii(text))
        return add_text(run->out, text.data, text.size);
    const utf8proc_ssize_t size =
        utf8proc_map((const utf8proc_uint8_t *)text.data, (utf8proc_ssize_t)text.size, &normal,
                     (utf8proc_option_t)run->step->form);
    if (size < 0)
        return size == UTF8PROC_ERROR_NOMEM ? KVERN_ERR_MEMORY : KVERN_ERR_FORMAT;
    const kvern_status status = add_text(run->out, (const char *)normal, (size_t)size);
    free(normal);
    return status;
}

// The end of the characters from `at` on that are valid, or with `valid` false that are not.
static size_t run_end(text_view text, size_t at, bool valid)
{
    size_t length;
    while (at < text.size &&
           (utf8_next(text.data + at, text.size - at, &length) == UTF8_VALID) == valid)
        at += length;
    return at;
}

// Hands the valid stretches of a piece to a step; others stay as they are.
static kvern_status each_valid(const step_run *run, text_view piece,
                               kvern_status (*step)(const step_run *run, text_view text))
{
    kvern_status status = KVERN_OK;
    bool valid = true;
    for (size_t at = 0, end; status == KVERN_OK && at < piece.size; at = end, valid = !valid) {
        end = run_end(piece, at, valid);
        const text_view text = {piece.data + at, end - at};
        if (valid && text.size > 0)
            status = step(run, text);
        else
            status = add_text(run->out, text.data, text.size);
        if (status == KVERN_OK && run->step->kind == STEP_SPLIT)
            status = end_piece(run->out);
    }
    return status;
}

static kvern_status prefix_space(const step_run *run, text_view piece)
{
    kvern_status status = piece.data[0] == ' ' ? KVERN_OK : add_text(run->out, " ", 1);
    return status == KVERN_OK ? add_text(run->out, piece.data, piece.size) : status;
}

static kvern_status metaspace(const step_run *run, text_view piece, bool first)
{
    const text_buffer *mark = &run->step->text;
    const bool wanted = run->step->scheme == PREPEND_ALWAYS ||
                        (run->step->scheme == PREPEND_FIRST && first && run->in->first);
    const bool there = piece.data[0] == ' ' || (piece.size >= mark->size &&
                                                memcmp(piece.data, mark->data, mark->size) == 0);
    kvern_status status = wanted && !there ? add_text(run->out, mark->data, mark->size) : KVERN_OK;
    for (size_t at = 0, end; status == KVERN_OK && at < piece.size; at = end) {
        const char *space = memchr(piece.data + at, ' ', piece.size - at);
        end = space ? (size_t)(space - piece.data) : piece.size;
        status = add_text(run->out, piece.data + at, end - at);
        if (status == KVERN_OK && space) {
            status = add_text(run->out, mark->data, mark->size);
            end++;
        }
    }
    return status;
}

static kvern_status run_piece(const step_run *run, text_view piece, bool first)
{
    kvern_status status = KVERN_OK;
    switch (run->step->kind) {
    case STEP_PREPEND:
        status = add_text(run->out, run->step->text.data, run->step->text.size);
        if (status == KVERN_OK)
            status = add_text(run->out, piece.data, piece.size);
        break;
    case STEP_REPLACE:
        status = each_valid(run, piece, replace_valid);
        break;
    case STEP_UNICODE:
        status = each_valid(run, piece, normalize_valid);
        break;
    case STEP_SPLIT:
        status = each_valid(run, piece, split_valid);
        break;
    case STEP_PREFIX_SPACE:
        status = prefix_space(run, piece);
        break;
    case STEP_METASPACE:
        status = metaspace(run, piece, first);
        break;
    }
    return status == KVERN_OK ? end_piece(run->out) : status;
}

static kvern_status run_step(const text_step *step, text_pieces *in, text_pieces *out,
                             engine_error *error)
{
    step_run run = {.step = step, .in = in, .out = out, .error = error};
    kvern_status status = text_pieces_set(out, "", 0, in->first);
    if (step->pattern) {
        run.match = pcre2_match_data_create_from_pattern(step->pattern->code, NULL);
        status = run.match ? status : KVERN_ERR_MEMORY;
    }
    for (size_t i = 0; status == KVERN_OK && i < in->count; i++) {
        const size_t begin = i ? in->ends[i - 1] : 0;
        status = run_piece(&run, (text_view){in->text.data + begin, in->ends[i] - begin}, i == 0);
    }
    pcre2_match_data_free(run.match);
    return status;
}

kvern_status text_steps_run(const text_steps *steps, text_pieces *pieces, engine_error *error)
{
    text_pieces other = {0};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < steps->count; i++) {
        status = run_step(&steps->step[i], pieces, &other, error);
        const text_pieces swap = *pieces;
        *pieces = other;
        other = swap;
    }
    text_pieces_free(&other);
    if (status == KVERN_ERR_MEMORY || status == KVERN_ERR_OVERFLOW)
        return engine_fail(error, status, "no memory to split a text into words");
    return status;
}

void text_steps_free(text_steps *steps)
{
    for (size_t i = 0; i < steps->count; i++) {
        text_buffer_free(&steps->step[i].text);
        text_pattern_destroy(steps->step[i].pattern);
    }
}
