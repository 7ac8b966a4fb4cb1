// SPDX-License-Identifier: MIT
// A source becomes texts and tokens. White space control is done here: `-` takes all white space on
// its side, a block or comment takes the line end behind it and the blanks before it on its line
// (trim_blocks and lstrip_blocks), `+` keeps them.
#include "engine/chat/jinja_internal.h"

#include <string.h>

typedef struct lexer {
    jinja_trap *trap;
    jinja_arena *arena;
    const char *source;
    size_t size, at;
    unsigned line;
    bool line_starts; // what was read last ended a line
    jinja_token first, *last;
} lexer;

static bool looking_at(const lexer *l, const char *text)
{
    const size_t bytes = strlen(text);
    return l->size - l->at >= bytes && memcmp(l->source + l->at, text, bytes) == 0;
}

static void add_token(lexer *l, jinja_token_kind kind, const char *data, size_t bytes)
{
    jinja_token *token = jinja_take(l->trap, l->arena, sizeof *token);
    *token = (jinja_token){.kind = kind, .line = l->line, .text = {data, bytes}};
    l->last->next = token;
    l->last = token;
}

static void advance(lexer *l, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        l->line += l->source[l->at + i] == '\n';
    l->at += bytes;
    if (bytes > 0)
        l->line_starts = l->source[l->at - 1] == '\n';
}

static size_t space_here(const lexer *l)
{
    return jinja_space_at(l->source + l->at, l->size - l->at);
}

static void skip_space(lexer *l)
{
    size_t space;
    while ((space = space_here(l)) > 0)
        advance(l, space);
}

// --- Texts

// The place of the next `{{`, `{%` or `{#`, or the end.
static size_t find_opening(const lexer *l)
{
    for (size_t at = l->at; at + 1 < l->size; at++) {
        const char *brace = memchr(l->source + at, '{', l->size - 1 - at);
        if (!brace)
            break;
        at = (size_t)(brace - l->source);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#')
            return at;
    }
    return l->size;
}

static size_t without_space_behind(const char *text, size_t bytes)
{
    size_t space;
    while ((space = jinja_space_before(text, bytes)) > 0)
        bytes -= space;
    return bytes;
}

// A text before a block loses the blanks of its last line, if it has nothing else there.
static size_t without_indent(const lexer *l, const char *text, size_t bytes)
{
    size_t line = bytes;
    while (line > 0 && text[line - 1] != '\n')
        line--;
    if (line == 0 && !l->line_starts)
        return bytes;
    return without_space_behind(text + line, bytes - line) == 0 ? line : bytes;
}

static void take_text(lexer *l, size_t end)
{
    const char *text = l->source + l->at;
    size_t bytes = end - l->at;
    if (end < l->size) {
        const char sign = end + 2 < l->size ? l->source[end + 2] : '\0';
        if (sign == '-')
            bytes = without_space_behind(text, bytes);
        else if (sign != '+' && l->source[end + 1] != '{')
            bytes = without_indent(l, text, bytes);
    }
    if (bytes > 0)
        add_token(l, JINJA_TOKEN_TEXT, text, bytes);
    advance(l, end - l->at);
}

// --- What closes a comment, a block or an expression: `-` takes the white space behind it.

static void take_closing(lexer *l, const char *closing, bool takes_line_end)
{
    const char sign = l->source[l->at];
    const bool signed_end = sign == '-' || sign == '+';
    advance(l, strlen(closing) + signed_end);
    if (sign == '-')
        skip_space(l);
    else if (sign != '+' && takes_line_end && looking_at(l, "\n"))
        advance(l, 1);
}

// Whether `closing`, with a sign or without, is next.
static bool at_closing(const lexer *l, const char *closing)
{
    if (looking_at(l, closing))
        return true;
    const char sign = l->at < l->size ? l->source[l->at] : '\0';
    const bool may_keep = closing[0] != '}';
    if (sign != '-' && (sign != '+' || !may_keep))
        return false;
    return l->size - l->at >= 3 && memcmp(l->source + l->at + 1, closing, 2) == 0;
}

static void take_comment(lexer *l)
{
    const unsigned line = l->line;
    while (l->at < l->size && !at_closing(l, "#}"))
        advance(l, 1);
    if (l->at == l->size)
        jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, line, "a comment does not end");
    take_closing(l, "#}", true);
}

// --- Tokens of expressions

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void take_name(lexer *l)
{
    size_t end = l->at;
    while (end < l->size && (is_letter(l->source[end]) || is_digit(l->source[end])))
        end++;
    add_token(l, JINJA_TOKEN_NAME, l->source + l->at, end - l->at);
    advance(l, end - l->at);
}

static void take_number(lexer *l)
{
    size_t end = l->at;
    bool real = false;
    while (end < l->size && is_digit(l->source[end]))
        end++;
    if (end + 1 < l->size && l->source[end] == '.' && is_digit(l->source[end + 1])) {
        real = true;
        for (end++; end < l->size && is_digit(l->source[end]);)
            end++;
    }
    if (end < l->size && is_letter(l->source[end]))
        jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line, "a number is written as \"%.*s\"",
                   (int)(end + 1 - l->at < 40 ? end + 1 - l->at : 40), l->source + l->at);
    add_token(l, real ? JINJA_TOKEN_REAL : JINJA_TOKEN_INTEGER, l->source + l->at, end - l->at);
    advance(l, end - l->at);
}

static size_t put_code(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    const size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(heads[more] | code >> (6 * more));
    for (size_t i = 1; i <= more; i++)
        out[i] = (char)(0x80 | (code >> (6 * (more - i)) & 0x3f));
    return more + 1;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The escape \x, \u or \U at text[0], with so many digits behind it.
static size_t take_code(lexer *l, const char *text, size_t left, size_t digits, char *out)
{
    uint32_t code = 0;
    for (size_t i = 0; i < digits; i++) {
        const int value = i + 1 < left ? hex_value(text[i + 1]) : -1;
        if (value < 0)
            jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line, "an escape in a string is cut");
        code = code << 4 | (uint32_t)value;
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line,
                   "an escape in a string stands for no character");
    return put_code(code, out);
}

// Writes what the escape text[0 .. left), which is behind its backslash, stands for. Returns the
// bytes of the escape.
static size_t take_escape(lexer *l, const char *text, size_t left, char *out, size_t *written)
{
    static const char plain[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    for (size_t i = 0; i + 1 < sizeof plain; i += 2) {
        if (text[0] == plain[i]) {
            out[0] = plain[i + 1];
            *written = 1;
            return 1;
        }
    }
    const size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : text[0] == 'U' ? 8 : 0;
    if (digits > 0) {
        *written = take_code(l, text, left, digits, out);
        return digits + 1;
    }
    if (text[0] == 'N' || is_digit(text[0]))
        jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line, "the escape \\%c in a string", text[0]);
    if (text[0] == '\n') {
        *written = 0;
        return 1;
    }
    out[0] = '\\'; // it escapes nothing
    *written = 1;
    return 0;
}

static void take_string(lexer *l)
{
    const char quote = l->source[l->at];
    size_t end = l->at + 1;
    while (end < l->size && l->source[end] != quote)
        end += l->source[end] == '\\' ? 2 : 1;
    if (end >= l->size)
        jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line, "a string does not end");
    const char *text = l->source + l->at + 1;
    const size_t bytes = end - l->at - 1;
    char *out = jinja_take(l->trap, l->arena, bytes + 1); // an escape is longer than its character
    size_t size = 0;
    for (size_t i = 0; i < bytes;) {
        if (text[i] != '\\') {
            out[size++] = text[i++];
            continue;
        }
        size_t written;
        i += 1 + take_escape(l, text + i + 1, bytes - i - 1, out + size, &written);
        size += written;
    }
    add_token(l, JINJA_TOKEN_STRING, out, size);
    advance(l, end + 1 - l->at);
}

static void take_operator(lexer *l, unsigned *open)
{
    static const char *const operators[] = {"==", "!=", ">=", "<=", "//", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(", ")", "{",
                                            "}",  ">",  "<",  "=",  ".",  ":", "|", ","};
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        const char *text = operators[i];
        if (!looking_at(l, text))
            continue;
        if (strchr("([{", text[0]))
            ++*open;
        else if (strchr(")]}", text[0]) && *open > 0)
            --*open;
        add_token(l, JINJA_TOKEN_OPERATOR, text, strlen(text));
        advance(l, strlen(text));
        return;
    }
    jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, l->line, "the byte 0x%02x in an expression",
               (unsigned char)l->source[l->at]);
}

static void take_token(lexer *l, unsigned *open)
{
    const char c = l->source[l->at];
    if (is_letter(c))
        take_name(l);
    else if (is_digit(c))
        take_number(l);
    else if (c == '"' || c == '\'')
        take_string(l);
    else
        take_operator(l, open);
}

// From behind `{{` or `{%` to behind what closes it.
static void take_expression(lexer *l, bool block)
{
    const char *closing = block ? "%}" : "}}";
    const unsigned line = l->line;
    unsigned open = 0;
    add_token(l, block ? JINJA_TOKEN_BLOCK_BEGIN : JINJA_TOKEN_PRINT_BEGIN, "", 0);
    for (;;) {
        skip_space(l);
        if (l->at == l->size)
            jinja_fail(l->trap, KVERN_ERR_UNSUPPORTED, line, "%s does not end",
                       block ? "a {% block" : "a {{ expression");
        if (open == 0 && at_closing(l, closing))
            break;
        take_token(l, &open);
    }
    add_token(l, block ? JINJA_TOKEN_BLOCK_END : JINJA_TOKEN_PRINT_END, closing, 2);
    take_closing(l, closing, block);
}

// --- The source

// A copy whose lines end in \n, without the end of the last one.
static char *normalized(jinja_trap *trap, jinja_arena *arena, const char *source, size_t *bytes)
{
    char *copy = jinja_take(trap, arena, *bytes + 1);
    size_t size = 0;
    for (size_t i = 0; i < *bytes; i++) {
        if (source[i] == '\n' && i > 0 && source[i - 1] == '\r')
            continue;
        copy[size++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (size > 0 && copy[size - 1] == '\n')
        size--;
    *bytes = size;
    return copy;
}

jinja_token *jinja_lex(jinja_trap *trap, jinja_arena *arena, const char *source, size_t bytes)
{
    lexer l = {.trap = trap, .arena = arena, .line = 1, .line_starts = true};
    l.source = normalized(trap, arena, source, &bytes);
    l.size = bytes;
    l.last = &l.first;
    while (l.at < l.size) {
        take_text(&l, find_opening(&l));
        if (l.at == l.size)
            break;
        const char kind = l.source[l.at + 1];
        const char sign = l.at + 2 < l.size ? l.source[l.at + 2] : '\0';
        advance(&l, 2 + (sign == '-' || sign == '+'));
        if (kind == '#')
            take_comment(&l);
        else
            take_expression(&l, kind == '%');
    }
    add_token(&l, JINJA_TOKEN_END, "", 0);
    l.last->next = l.last;
    return l.first.next;
}
