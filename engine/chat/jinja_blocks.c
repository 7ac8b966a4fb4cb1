// SPDX-License-Identifier: MIT
// Tokens become trees: statements.
#include "engine/chat/jinja_internal.h"

#include <string.h>

static jinja_node *parse_until(jinja_parser *p, const char *const *ends);

// Behind `{%`: whether the block is one of the names, which are terminated by NULL.
static bool at_block(const jinja_parser *p, const char *const *names)
{
    if (p->at->kind != JINJA_TOKEN_BLOCK_BEGIN || p->at->next->kind != JINJA_TOKEN_NAME)
        return false;
    for (; *names; names++)
        if (jinja_word_is(p->at->next->text, *names))
            return true;
    return false;
}

static void expect_kind(jinja_parser *p, jinja_token_kind kind)
{
    if (p->at->kind != kind)
        jinja_unexpected(p);
    p->at = p->at->next;
}

static void expect_block_end(jinja_parser *p)
{
    expect_kind(p, JINJA_TOKEN_BLOCK_END);
}

// Passes `{% name %}`, which is there.
static void pass_block(jinja_parser *p)
{
    p->at = p->at->next->next;
    expect_block_end(p);
}

// The part up to `{% end %}`, and that.
static jinja_node *parse_body(jinja_parser *p, const char *end)
{
    jinja_node *body = parse_until(p, (const char *const[]){end, NULL});
    pass_block(p);
    return body;
}

static jinja_node *parse_text(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_TEXT);
    node->text = p->at->text;
    p->at = p->at->next;
    return node;
}

static jinja_node *parse_print(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_PRINT);
    p->at = p->at->next;
    node->a = jinja_parse_tuple(p, true);
    expect_kind(p, JINJA_TOKEN_PRINT_END);
    return node;
}

// if, elif and else are branches in one list, so many of them are not deep.
static jinja_node *parse_if(jinja_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    jinja_node *node = jinja_node_new(p, JINJA_NODE_IF);
    jinja_node **end = &node->list;
    bool conditional = true;
    for (;;) {
        jinja_node *branch = jinja_node_new(p, JINJA_NODE_BRANCH);
        if (conditional)
            branch->a = jinja_parse_tuple(p, true);
        expect_block_end(p);
        branch->list = parse_until(p, conditional ? ends : ends + 2);
        *end = branch;
        end = &branch->next;
        p->at = p->at->next;
        if (jinja_skip_name(p, "endif"))
            break;
        conditional = jinja_at_name(p, "elif");
        p->at = p->at->next;
    }
    expect_block_end(p);
    return node;
}

// A name, or several with commas.
static jinja_node *parse_target(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_TUPLE);
    jinja_node **end = &node->list;
    const bool enclosed = jinja_skip_operator(p, "(");
    do {
        jinja_node *name = jinja_node_new(p, JINJA_NODE_NAME);
        name->text = jinja_expect_name(p);
        *end = name;
        end = &name->next;
    } while (jinja_skip_operator(p, ","));
    if (enclosed)
        jinja_expect_operator(p, ")");
    return node->list->next ? node : node->list;
}

static jinja_node *parse_for(jinja_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    jinja_node *node = jinja_node_new(p, JINJA_NODE_FOR);
    node->a = parse_target(p);
    if (!jinja_skip_name(p, "in"))
        jinja_unexpected(p);
    node->b = jinja_parse_tuple(p, false);
    if (jinja_skip_name(p, "if"))
        node->c = jinja_parse_expression(p);
    if (jinja_at_name(p, "recursive"))
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line, "a recursive loop");
    expect_block_end(p);
    p->loops++;
    node->list = parse_until(p, ends);
    p->loops--;
    if (at_block(p, (const char *const[]){"else", NULL})) {
        pass_block(p);
        node->other = parse_until(p, ends + 1);
    }
    pass_block(p);
    return node;
}

// {% set x = y %}, {% set x.y = z %}, or {% set x %}text{% endset %}.
static jinja_node *parse_set(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_SET);
    node->a = parse_target(p);
    if (node->a->kind == JINJA_NODE_NAME && jinja_skip_operator(p, ".")) {
        jinja_node *member = jinja_node_new(p, JINJA_NODE_ATTRIBUTE);
        member->a = node->a;
        member->text = jinja_expect_name(p);
        node->a = member;
    }
    if (jinja_skip_operator(p, "=")) {
        node->b = jinja_parse_tuple(p, true);
        expect_block_end(p);
        return node;
    }
    node->kind = JINJA_NODE_SET_BLOCK;
    if (jinja_at_operator(p, "|"))
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line, "a filter of a set block");
    expect_block_end(p);
    node->list = parse_body(p, "endset");
    return node;
}

static jinja_node *parse_macro(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_MACRO);
    jinja_node **end = &node->other;
    const unsigned loops = p->loops;
    node->text = jinja_expect_name(p);
    jinja_expect_operator(p, "(");
    while (!jinja_at_operator(p, ")")) {
        jinja_node *parameter = jinja_node_new(p, JINJA_NODE_ARGUMENT);
        parameter->text = jinja_expect_name(p);
        if (jinja_skip_operator(p, "="))
            parameter->a = jinja_parse_expression(p);
        *end = parameter;
        end = &parameter->next;
        if (!jinja_at_operator(p, ")"))
            jinja_expect_operator(p, ",");
    }
    jinja_expect_operator(p, ")");
    expect_block_end(p);
    p->loops = 0;
    node->list = parse_body(p, "endmacro");
    p->loops = loops;
    return node;
}

// {% generation %} marks what the assistant said, for training; it is a scope of its own.
static jinja_node *parse_generation(jinja_parser *p)
{
    jinja_node *node = jinja_node_new(p, JINJA_NODE_SCOPE);
    const unsigned loops = p->loops;
    expect_block_end(p);
    p->loops = 0;
    node->list = parse_body(p, "endgeneration");
    p->loops = loops;
    return node;
}

static jinja_node *parse_jump(jinja_parser *p, jinja_node_kind kind)
{
    jinja_node *node = jinja_node_new(p, kind);
    if (p->loops == 0)
        jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, p->at->line,
                   "break or continue outside of a loop");
    expect_block_end(p);
    return node;
}

static jinja_node *parse_block(jinja_parser *p)
{
    p->at = p->at->next;
    const unsigned line = p->at->line;
    const jinja_word name = jinja_expect_name(p);
    if (jinja_word_is(name, "if"))
        return parse_if(p);
    if (jinja_word_is(name, "for"))
        return parse_for(p);
    if (jinja_word_is(name, "set"))
        return parse_set(p);
    if (jinja_word_is(name, "macro"))
        return parse_macro(p);
    if (jinja_word_is(name, "generation"))
        return parse_generation(p);
    if (jinja_word_is(name, "break"))
        return parse_jump(p, JINJA_NODE_BREAK);
    if (jinja_word_is(name, "continue"))
        return parse_jump(p, JINJA_NODE_CONTINUE);
    jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, line, "the statement \"%.*s\" is not %s",
               JINJA_SHOWN(name),
               name.bytes > 3 && memcmp(name.data, "end", 3) == 0 ? "expected here" : "known");
}

// Statements up to a block of one of these names, which is not passed; NULL: to the end.
static jinja_node *parse_until(jinja_parser *p, const char *const *ends)
{
    jinja_node *first = NULL, **end = &first;
    const unsigned line = p->at->line;
    jinja_nest(p);
    while (!(ends && at_block(p, ends))) {
        jinja_node *node;
        if (p->at->kind == JINJA_TOKEN_TEXT)
            node = parse_text(p);
        else if (p->at->kind == JINJA_TOKEN_PRINT_BEGIN)
            node = parse_print(p);
        else if (p->at->kind == JINJA_TOKEN_BLOCK_BEGIN)
            node = parse_block(p);
        else if (p->at->kind == JINJA_TOKEN_END && !ends)
            break;
        else
            jinja_fail(p->trap, KVERN_ERR_UNSUPPORTED, line, "a block does not end with %s",
                       ends ? ends[0] : "");
        *end = node;
        end = &node->next;
    }
    p->nested--;
    return first;
}

jinja_node *jinja_parse_blocks(jinja_parser *p)
{
    return parse_until(p, NULL);
}
