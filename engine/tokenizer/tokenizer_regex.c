// SPDX-License-Identifier: MIT
// A tokenizer.json has regular expressions for Oniguruma. Most of them mean the same to PCRE2; the
// difference is in white space, in what scripts are called, in classes within classes, and in a
// few signs. What is not known to mean the same is refused.
#define PCRE2_CODE_UNIT_WIDTH 8

#include "engine/base/utf8.h"
#include "engine/tokenizer/tokenizer_json.h"

#include <ctype.h>
#include <pcre2.h>
#include <string.h>

// White space of Unicode, inside brackets: \s of PCRE2 has U+180E as well.
#define SPACE "\\p{Z}\\t-\\r\\x{85}"

typedef struct translation {
    text_view pattern;
    size_t at;
    text_buffer *out;
    engine_error *error;
    bool in_class;
    bool after_set; // in a class, behind a set of characters such as \s
} translation;

static kvern_status refuse(const translation *tr, const char *what)
{
    return engine_fail(tr->error, KVERN_ERR_UNSUPPORTED,
                       "the regular expression \"%.*s\" has %s at byte %zu, which is not supported",
                       text_view_shown(tr->pattern, 80), tr->pattern.data, what, tr->at);
}

static kvern_status put(const translation *tr, const char *text, size_t bytes)
{
    const kvern_status status = text_buffer_append(tr->out, text, bytes);
    return status == KVERN_OK
               ? KVERN_OK
               : engine_fail(tr->error, status, "no memory for a regular expression");
}

static kvern_status put_text(const translation *tr, const char *text)
{
    return put(tr, text, strlen(text));
}

static char peek(const translation *tr, size_t ahead)
{
    return tr->at + ahead < tr->pattern.size ? tr->pattern.data[tr->at + ahead] : '\0';
}

// Copies what follows and goes on behind it.
static kvern_status copy(translation *tr, size_t bytes)
{
    const kvern_status status = put(tr, tr->pattern.data + tr->at, bytes);
    tr->at += bytes;
    return status;
}

// General categories have one letter, or two.
static bool is_category(const char *name, size_t size)
{
    static const char *const seconds[] = {"Cc Cf",    "Lu Ll Lt Lm Lo",       "Mn Mc Me",
                                          "Nd Nl No", "Pc Pd Ps Pe Pi Pf Po", "Sm Sc Sk So",
                                          "Zs Zl Zp"};
    if (size == 1)
        return name[0] != '\0' && strchr("LMNPSZ", name[0]);
    const char two[3] = {name[0], size == 2 ? name[1] : '\0', '\0'};
    for (size_t i = 0; size == 2 && i < sizeof seconds / sizeof *seconds; i++)
        if (strstr(seconds[i], two) && two[0] != ' ' && two[1] != ' ')
            return true;
    return false;
}

static bool is_script(const char *name, size_t size)
{
    static const char *const scripts[] = {
        "Han",      "Hiragana", "Katakana",  "Hangul",     "Latin",    "Greek",
        "Cyrillic", "Arabic",   "Hebrew",    "Thai",       "Lao",      "Tibetan",
        "Khmer",    "Myanmar",  "Bengali",   "Tamil",      "Telugu",   "Kannada",
        "Gujarati", "Gurmukhi", "Oriya",     "Sinhala",    "Georgian", "Armenian",
        "Bopomofo", "Ethiopic", "Mongolian", "Devanagari", "Malayalam"};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strlen(scripts[i]) == size && memcmp(scripts[i], name, size) == 0)
            return true;
    return false;
}

// \p{L}, \P{Lu}, \p{^N}, \p{Han}. PCRE2 takes a bare script's name for its extensions as well.
static kvern_status property(translation *tr)
{
    const char *start = tr->pattern.data + tr->at;
    const char *close = memchr(start, '}', tr->pattern.size - tr->at);
    if (peek(tr, 2) != '{' || !close)
        return refuse(tr, "a property without braces");
    const bool negated = start[3] == '^';
    const char *name = start + 3 + negated;
    const size_t size = (size_t)(close - name), whole = (size_t)(close - start) + 1;
    if (is_category(name, size))
        return copy(tr, whole);
    if (!is_script(name, size))
        return refuse(tr, "an unknown property");
    kvern_status status = put(tr, start, (size_t)(name - start));
    if (status == KVERN_OK)
        status = put_text(tr, "sc:");
    if (status == KVERN_OK)
        status = put(tr, name, size + 1);
    tr->at += whole;
    return status;
}

// \x{1F600}, \x41, \u4E00
static kvern_status code_point(translation *tr)
{
    const bool braces = peek(tr, 1) == 'x' && peek(tr, 2) == '{';
    const size_t first = braces ? 3 : 2, most = braces ? 6 : peek(tr, 1) == 'x' ? 2 : 4;
    size_t digits = 0;
    while (digits < most && isxdigit((unsigned char)peek(tr, first + digits)))
        digits++;
    const bool right = braces ? digits > 0 && peek(tr, first + digits) == '}' : digits == most;
    // Two digits are a byte to Oniguruma.
    if (!right || (!braces && most == 2 && peek(tr, 2) > '7'))
        return refuse(tr, "a code of a character");
    kvern_status status = put_text(tr, "\\x{");
    if (status == KVERN_OK)
        status = put(tr, tr->pattern.data + tr->at + first, digits);
    tr->at += first + digits + braces;
    return status == KVERN_OK ? put_text(tr, "}") : status;
}

static kvern_status set_of(translation *tr, const char *inside, const char *outside)
{
    tr->at += 2;
    return put_text(tr, tr->in_class ? inside : outside);
}

static kvern_status escape(translation *tr)
{
    const char c = peek(tr, 1);
    tr->after_set = c != '\0' && strchr("sSdDpP", c);
    switch (c) {
    case 's':
        return set_of(tr, SPACE, "[" SPACE "]");
    case 'S':
        return set_of(tr, "\\S\\x{180E}", "[^" SPACE "]");
    case 'd':
        return set_of(tr, "\\p{Nd}", "\\p{Nd}");
    case 'D':
        return set_of(tr, "\\P{Nd}", "\\P{Nd}");
    case 'p':
    case 'P':
        return property(tr);
    case 'x':
    case 'u':
        return code_point(tr);
    case 'r':
    case 'n':
    case 't':
    case 'f':
        return copy(tr, 2);
    default:
        return ispunct((unsigned char)c) ? copy(tr, 2) : refuse(tr, "an escape");
    }
}

static kvern_status open_class(translation *tr)
{
    const size_t bytes = peek(tr, 1) == '^' ? 2 : 1;
    tr->in_class = true;
    tr->after_set = false;
    return peek(tr, bytes) == ']' ? refuse(tr, "an empty class") : copy(tr, bytes);
}

// A class in a class is a union, and && an intersection; PCRE2 takes them for signs.
static kvern_status in_class(translation *tr, char c)
{
    if (c == '[')
        return refuse(tr, "a class in a class");
    if (c == '&' && peek(tr, 1) == '&')
        return refuse(tr, "an intersection of classes");
    if (c == '-' && tr->after_set && peek(tr, 1) != ']')
        return refuse(tr, "a range from a set");
    tr->in_class = c != ']';
    tr->after_set = false;
    return copy(tr, 1);
}

static kvern_status group(translation *tr)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t size = strlen(known[i]);
        if (tr->pattern.size - tr->at >= size &&
            memcmp(tr->pattern.data + tr->at, known[i], size) == 0)
            return copy(tr, size);
    }
    return peek(tr, 1) == '?' || peek(tr, 1) == '*' ? refuse(tr, "a group") : copy(tr, 1);
}

// {n}, {n,} or {n,m}. A sign behind it means something else in each of the two.
static kvern_status repetition(translation *tr)
{
    size_t at = 1, digits = 0;
    for (; isdigit((unsigned char)peek(tr, at)); at++)
        digits++;
    if (peek(tr, at) == ',')
        for (at++; isdigit((unsigned char)peek(tr, at));)
            at++;
    if (digits == 0 || peek(tr, at) != '}')
        return refuse(tr, "a brace");
    const char next = peek(tr, at + 1);
    return next == '+' || next == '?' ? refuse(tr, "a sign behind a brace") : copy(tr, at + 1);
}

static kvern_status outside(translation *tr, char c)
{
    switch (c) {
    case '[':
        return open_class(tr);
    case '(':
        return group(tr);
    case '{':
        return repetition(tr);
    case '$':
        tr->at++;
        return put_text(tr, "(?=\\n|\\z)");
    case '.':
    case '^':
    case '}':
    case ']':
        return refuse(tr, "a sign");
    default:
        return copy(tr, 1);
    }
}

static bool is_text(text_view pattern)
{
    size_t length;
    for (size_t at = 0; at < pattern.size; at += length)
        if (pattern.data[at] == '\0' ||
            utf8_next(pattern.data + at, pattern.size - at, &length) != UTF8_VALID)
            return false;
    return pattern.size > 0;
}

kvern_status tokenizer_regex_translate(text_view pattern, text_buffer *out, engine_error *error)
{
    translation tr = {.pattern = pattern, .out = out, .error = error};
    kvern_status status = is_text(pattern) ? KVERN_OK : refuse(&tr, "no text or a zero byte");
    while (status == KVERN_OK && tr.at < pattern.size) {
        const char c = pattern.data[tr.at];
        status = c == '\\' ? escape(&tr) : tr.in_class ? in_class(&tr, c) : outside(&tr, c);
    }
    return status == KVERN_OK && tr.in_class ? refuse(&tr, "an open class") : status;
}
