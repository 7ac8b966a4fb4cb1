// SPDX-License-Identifier: MIT
// Tokens become trees: expressions. From the loosest operator to the tightest:
//
//   x if y else z, or, and, not, comparisons and `in`, + -, ~, * / // %, sign, then members, calls,
//   filters and tests
#include "engine/chat/jinja_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

jinja_node *jinja_node_new(jinja_parser *p, jinja_node_kind kind)
{
    jinja_node *node = jinja_take(p->trap, p->arena, sizeof *node);
    *node = (jinja_node){.kind = kind, .line = p->at->line, .height = 1};
    return node;
}

void jinja_nest(jinja_parser *p)
{
    if (++p->nested > JINJA_MOST_NESTED)
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line,
                   "it is nested more than %d levels deep", JINJA_MOST_NESTED);
}

// Notes that a node stands over another one. Chains of operators grow a tree without recursion in
// the parser, but evaluation follows them.
static void cover(const jinja_parser *p, jinja_node *node, const jinja_node *below)
{
    if (below->height + 1 > node->height)
        node->height = below->height + 1;
    if (node->height > JINJA_MOST_NESTED)
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, node->line,
                   "an expression is nested more than %d levels deep", JINJA_MOST_NESTED);
}

static jinja_node *cover_a(const jinja_parser *p, jinja_node *node, jinja_node *a)
{
    node->a = a;
    cover(p, node, a);
    return node;
}

// Appends to a list of which *end is the last link.
static void append(const jinja_parser *p, jinja_node *node, jinja_node ***end, jinja_node *item)
{
    **end = item;
    *end = &item->next;
    cover(p, node, item);
}

// --- Tokens

static const char *show_kind(jinja_token_kind kind)
{
    static const char *const names[] = {
        [JINJA_TOKEN_END] = "the end of the template",
        [JINJA_TOKEN_TEXT] = "text",
        [JINJA_TOKEN_PRINT_BEGIN] = "{{",
        [JINJA_TOKEN_PRINT_END] = "}}",
        [JINJA_TOKEN_BLOCK_BEGIN] = "{%",
        [JINJA_TOKEN_BLOCK_END] = "%}",
        [JINJA_TOKEN_NAME] = "the name",
        [JINJA_TOKEN_STRING] = "the string",
        [JINJA_TOKEN_INTEGER] = "the number",
        [JINJA_TOKEN_REAL] = "the number",
        [JINJA_TOKEN_OPERATOR] = "the operator",
    };
    return names[kind];
}

void jinja_unexpected(jinja_parser *p)
{
    const bool named = p->at->kind >= JINJA_TOKEN_NAME;
    const jinja_word word = named ? p->at->text : (jinja_word){"", 0};
    jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line, "%s%s%.*s is not expected here",
               show_kind(p->at->kind), named ? " " : "", JINJA_SHOWN(word));
}

bool jinja_at_operator(const jinja_parser *p, const char *text)
{
    return p->at->kind == JINJA_TOKEN_OPERATOR && jinja_word_is(p->at->text, text);
}

bool jinja_at_name(const jinja_parser *p, const char *text)
{
    return p->at->kind == JINJA_TOKEN_NAME && jinja_word_is(p->at->text, text);
}

static void skip(jinja_parser *p)
{
    p->at = p->at->next;
}

bool jinja_skip_operator(jinja_parser *p, const char *text)
{
    const bool found = jinja_at_operator(p, text);
    if (found)
        skip(p);
    return found;
}

bool jinja_skip_name(jinja_parser *p, const char *text)
{
    const bool found = jinja_at_name(p, text);
    if (found)
        skip(p);
    return found;
}

void jinja_expect_operator(jinja_parser *p, const char *text)
{
    if (!jinja_skip_operator(p, text))
        jinja_unexpected(p);
}

jinja_word jinja_expect_name(jinja_parser *p)
{
    const jinja_word word = p->at->text;
    if (p->at->kind != JINJA_TOKEN_NAME)
        jinja_unexpected(p);
    skip(p);
    return word;
}

// --- The tightest parts

static jinja_node *parse_number(jinja_parser *p)
{
    char text[64];
    const bool real = p->at->kind == JINJA_TOKEN_REAL;
    jinja_node *node = jinja_node_new(p, real ? JINJA_NODE_REAL : JINJA_NODE_INTEGER);
    const size_t bytes = p->at->text.bytes < sizeof text ? p->at->text.bytes : sizeof text - 1;
    memcpy(text, p->at->text.data, bytes);
    text[bytes] = '\0';
    errno = 0;
    if (real)
        node->number.real = strtod(text, NULL);
    else
        node->number.integer = strtoll(text, NULL, 10);
    if (errno != 0 || bytes != p->at->text.bytes)
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line, "the number %.*s is too large",
                   JINJA_SHOWN(p->at->text));
    skip(p);
    return node;
}

// Strings that stand side by side are one.
static jinja_node *parse_string(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_STRING);
    size_t bytes = 0, at = 0;
    const jinja_token *first = p->at;
    for (; p->at->kind == JINJA_TOKEN_STRING; skip(p))
        bytes += p->at->text.bytes;
    node->text = first->text;
    if (first->next == p->at)
        return node;
    char *joined = jinja_take(p->trap, p->arena, bytes);
    for (const jinja_token *t = first; t != p->at; t = t->next) {
        if (t->text.bytes > 0)
            memcpy(joined + at, t->text.data, t->text.bytes);
        at += t->text.bytes;
    }
    node->text = (jinja_word){joined, bytes};
    return node;
}

static jinja_node *parse_name(jinja_parser *p)
{
    static const struct {
        const char *name;
        jinja_node_kind kind;
    } constants[] = {
        {"true", JINJA_NODE_TRUE},   {"True", JINJA_NODE_TRUE}, {"false", JINJA_NODE_FALSE},
        {"False", JINJA_NODE_FALSE}, {"none", JINJA_NODE_NONE}, {"None", JINJA_NODE_NONE},
    };
    jinja_node *node = jinja_node_new(p, JINJA_NODE_NAME);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (jinja_at_name(p, constants[i].name))
            node->kind = constants[i].kind;
    node->text = jinja_expect_name(p);
    return node;
}

static jinja_node *parse_list(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_LIST);
    jinja_node **end = &node->list;
    jinja_expect_operator(p, "[");
    while (!jinja_at_operator(p, "]")) {
        append(p, node, &end, jinja_parse_expression(p));
        if (!jinja_at_operator(p, "]"))
            jinja_expect_operator(p, ",");
    }
    skip(p);
    return node;
}

static jinja_node *parse_mapping(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_MAPPING);
    jinja_node **end = &node->list;
    jinja_expect_operator(p, "{");
    while (!jinja_at_operator(p, "}")) {
        append(p, node, &end, jinja_parse_expression(p));
        jinja_expect_operator(p, ":");
        append(p, node, &end, jinja_parse_expression(p));
        if (!jinja_at_operator(p, "}"))
            jinja_expect_operator(p, ",");
    }
    skip(p);
    return node;
}

static jinja_node *parse_parentheses(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_TUPLE);
    jinja_expect_operator(p, "(");
    if (jinja_skip_operator(p, ")"))
        return node;
    node = jinja_parse_tuple(p, true);
    jinja_expect_operator(p, ")");
    return node;
}

static jinja_node *parse_primary(jinja_parser *p)
{
    switch (p->at->kind) {
    case JINJA_TOKEN_NAME:
        return parse_name(p);
    case JINJA_TOKEN_STRING:
        return parse_string(p);
    case JINJA_TOKEN_INTEGER:
    case JINJA_TOKEN_REAL:
        return parse_number(p);
    default:
        if (jinja_at_operator(p, "("))
            return parse_parentheses(p);
        if (jinja_at_operator(p, "["))
            return parse_list(p);
        if (jinja_at_operator(p, "{"))
            return parse_mapping(p);
        jinja_unexpected(p);
    }
}

// --- Members, calls, filters, tests

static jinja_node *parse_argument(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_ARGUMENT);
    const jinja_token *behind = p->at->next;
    if (p->at->kind == JINJA_TOKEN_NAME && behind->kind == JINJA_TOKEN_OPERATOR &&
        jinja_word_is(behind->text, "=")) {
        node->text = jinja_expect_name(p);
        skip(p);
    }
    return cover_a(p, node, jinja_parse_expression(p));
}

static void parse_arguments(jinja_parser *p, jinja_node *node)
{
    jinja_node **end = &node->list;
    jinja_expect_operator(p, "(");
    while (!jinja_at_operator(p, ")")) {
        append(p, node, &end, parse_argument(p));
        if (!jinja_at_operator(p, ")"))
            jinja_expect_operator(p, ",");
    }
    skip(p);
}

static jinja_node *parse_call(jinja_parser *p, jinja_node *callee)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_CALL);
    cover_a(p, node, callee);
    parse_arguments(p, node);
    return node;
}

static jinja_node *parse_bound(jinja_parser *p)
{
    if (jinja_at_operator(p, ":") || jinja_at_operator(p, "]"))
        return jinja_node_new(p, JINJA_NODE_NONE);
    return jinja_parse_expression(p);
}

static jinja_node *parse_brackets(jinja_parser *p, jinja_node *object)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_ITEM);
    cover_a(p, node, object);
    jinja_expect_operator(p, "[");
    jinja_node *first = parse_bound(p);
    if (jinja_skip_operator(p, ":")) {
        jinja_node **end = &node->list;
        node->kind = JINJA_NODE_SLICE;
        append(p, node, &end, first);
        append(p, node, &end, parse_bound(p));
        append(p, node, &end,
               jinja_skip_operator(p, ":") ? parse_bound(p) : jinja_node_new(p, JINJA_NODE_NONE));
    } else {
        node->b = first;
        cover(p, node, first);
    }
    jinja_expect_operator(p, "]");
    return node;
}

static jinja_node *parse_dot(jinja_parser *p, jinja_node *object)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_ATTRIBUTE);
    cover_a(p, node, object);
    jinja_expect_operator(p, ".");
    if (p->at->kind == JINJA_TOKEN_INTEGER) { // x.0
        node->kind = JINJA_NODE_ITEM;
        node->b = parse_number(p);
        return node;
    }
    node->text = jinja_expect_name(p);
    return node;
}

static jinja_node *parse_postfix(jinja_parser *p, jinja_node *node)
{
    for (;;) {
        if (jinja_at_operator(p, "."))
            node = parse_dot(p, node);
        else if (jinja_at_operator(p, "["))
            node = parse_brackets(p, node);
        else if (jinja_at_operator(p, "("))
            node = parse_call(p, node);
        else
            return node;
    }
}

static jinja_node *parse_filter(jinja_parser *p, jinja_node *value)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_FILTER);
    cover_a(p, node, value);
    node->text = jinja_expect_name(p);
    if (!jinja_has_filter(node->text))
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, node->line, "the filter \"%.*s\" is not known",
                   JINJA_SHOWN(node->text));
    if (jinja_at_operator(p, "("))
        parse_arguments(p, node);
    return node;
}

// Whether what stands behind the name of a test is its argument.
static bool at_test_argument(const jinja_parser *p)
{
    if (p->at->kind == JINJA_TOKEN_NAME)
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
               !jinja_at_name(p, "if") && !jinja_at_name(p, "is");
    return p->at->kind == JINJA_TOKEN_STRING || p->at->kind == JINJA_TOKEN_INTEGER ||
           p->at->kind == JINJA_TOKEN_REAL || jinja_at_operator(p, "[") ||
           jinja_at_operator(p, "{");
}

static jinja_node *parse_test(jinja_parser *p, jinja_node *value)
{
    const bool negated = jinja_skip_name(p, "not");
    jinja_node *node = jinja_node_new(p, JINJA_NODE_TEST);
    cover_a(p, node, value);
    node->text = jinja_expect_name(p);
    if (!jinja_has_test(node->text))
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, node->line, "the test \"%.*s\" is not known",
                   JINJA_SHOWN(node->text));
    if (jinja_at_operator(p, "(")) {
        parse_arguments(p, node);
    } else if (at_test_argument(p)) {
        jinja_node *argument = jinja_node_new(p, JINJA_NODE_ARGUMENT);
        jinja_node **end = &node->list;
        append(p, node, &end, cover_a(p, argument, parse_postfix(p, parse_primary(p))));
    }
    return negated ? cover_a(p, jinja_node_new(p, JINJA_NODE_NOT), node) : node;
}

jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *node)
{
    for (;;) {
        if (jinja_skip_operator(p, "|"))
            node = parse_filter(p, node);
        else if (jinja_skip_name(p, "is"))
            node = parse_test(p, node);
        else if (jinja_at_operator(p, "("))
            node = parse_call(p, node);
        else
            return node;
    }
}

// --- Operators

static jinja_node *parse_sign(jinja_parser *p, bool filters)
{
    jinja_node *node;
    jinja_nest(p);
    if (jinja_at_operator(p, "-") || jinja_at_operator(p, "+")) {
        node = jinja_node_new(p, jinja_at_operator(p, "-") ? JINJA_NODE_NEGATE : JINJA_NODE_PLUS);
        skip(p);
        cover_a(p, node, parse_sign(p, false));
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    p->nested--;
    return filters ? jinja_parse_filters(p, node) : node;
}

// The operators of arithmetic, the loosest first.
static const char *const levels[][5] = {{"+", "-", NULL}, {"~", NULL}, {"*", "/", "//", "%", NULL}};

#define LEVELS (sizeof levels / sizeof *levels)

static bool at_level(const jinja_parser *p, size_t level)
{
    for (const char *const *text = levels[level]; *text; text++)
        if (jinja_at_operator(p, *text))
            return true;
    return false;
}

static jinja_node *parse_arithmetic(jinja_parser *p, size_t level)
{
    if (level == LEVELS)
        return parse_sign(p, true);
    jinja_node *left = parse_arithmetic(p, level + 1);
    while (at_level(p, level)) {
        jinja_node *node = jinja_node_new(p, JINJA_NODE_BINARY);
        node->text = p->at->text;
        skip(p);
        cover_a(p, node, left);
        node->b = parse_arithmetic(p, level + 1);
        cover(p, node, node->b);
        left = node;
    }
    return left;
}

// The comparison that stands here, or a word without data.
static jinja_word take_comparison(jinja_parser *p)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">"};
    const jinja_word word = p->at->text;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (jinja_skip_operator(p, operators[i]))
            return word;
    if (jinja_skip_name(p, "in"))
        return word;
    if (jinja_at_name(p, "not") && p->at->next->kind == JINJA_TOKEN_NAME &&
        jinja_word_is(p->at->next->text, "in")) {
        skip(p);
        skip(p);
        return (jinja_word){"not in", 6};
    }
    return (jinja_word){NULL, 0};
}

static jinja_node *parse_comparison(jinja_parser *p)
{
    jinja_node *left = parse_arithmetic(p, 0);
    jinja_node *node = jinja_node_new(p, JINJA_NODE_COMPARE);
    jinja_node **end = &node->list;
    jinja_word word;
    while ((word = take_comparison(p)).data) {
        jinja_node *operand = jinja_node_new(p, JINJA_NODE_OPERAND);
        operand->text = word;
        append(p, node, &end, cover_a(p, operand, parse_arithmetic(p, 0)));
    }
    return node->list ? cover_a(p, node, left) : left;
}

static jinja_node *parse_not(jinja_parser *p)
{
    if (!jinja_at_name(p, "not"))
        return parse_comparison(p);
    jinja_node *node = jinja_node_new(p, JINJA_NODE_NOT);
    skip(p);
    jinja_nest(p);
    cover_a(p, node, parse_not(p));
    p->nested--;
    return node;
}

static jinja_node *parse_and(jinja_parser *p)
{
    jinja_node *left = parse_not(p);
    while (jinja_at_name(p, "and")) {
        jinja_node *node = jinja_node_new(p, JINJA_NODE_AND);
        skip(p);
        cover_a(p, node, left);
        node->b = parse_not(p);
        cover(p, node, node->b);
        left = node;
    }
    return left;
}

static jinja_node *parse_or(jinja_parser *p)
{
    jinja_node *left = parse_and(p);
    while (jinja_at_name(p, "or")) {
        jinja_node *node = jinja_node_new(p, JINJA_NODE_OR);
        skip(p);
        cover_a(p, node, left);
        node->b = parse_and(p);
        cover(p, node, node->b);
        left = node;
    }
    return left;
}

jinja_node *jinja_parse_expression(jinja_parser *p)
{
    jinja_nest(p);
    jinja_node *value = parse_or(p);
    while (jinja_at_name(p, "if")) {
        jinja_node *node = jinja_node_new(p, JINJA_NODE_CONDITIONAL);
        skip(p);
        cover_a(p, node, value);
        node->b = parse_or(p);
        cover(p, node, node->b);
        if (jinja_skip_name(p, "else")) {
            node->c = jinja_parse_expression(p);
            cover(p, node, node->c);
        }
        value = node;
    }
    p->nested--;
    return value;
}

// Where a tuple without parentheses ends.
static bool at_tuple_end(const jinja_parser *p)
{
    return p->at->kind == JINJA_TOKEN_BLOCK_END || p->at->kind == JINJA_TOKEN_PRINT_END ||
           jinja_at_operator(p, ")") || jinja_at_name(p, "in") || jinja_at_operator(p, "=");
}

jinja_node *jinja_parse_tuple(jinja_parser *p, bool conditional)
{
    jinja_node *first = conditional ? jinja_parse_expression(p) : parse_or(p);
    if (!jinja_at_operator(p, ","))
        return first;
    jinja_node *node = jinja_node_new(p, JINJA_NODE_TUPLE);
    jinja_node **end = &node->list;
    append(p, node, &end, first);
    while (jinja_skip_operator(p, ",") && !at_tuple_end(p))
        append(p, node, &end, conditional ? jinja_parse_expression(p) : parse_or(p));
    return node;
}
