// SPDX-License-Identifier: MIT
// Statements, and the two calls that begin: reading a source and rendering it.
#include "engine/chat/jinja_internal.h"

#include <stdlib.h>
#include <string.h>

struct jinja_template {
    jinja_trap trap; // while it is being read
    jinja_arena arena;
    const jinja_node *body;
    size_t bytes; // of the source
};

// Work that a rendering may do: a part that is always there, and one that grows with what there is
// to do. Real templates need about ten steps for each byte of the messages.
#define STEPS 20000000u
#define STEPS_PER_BYTE 100u

// Memory that it may hold, likewise. Nothing is given back before its end but what blocks wrote, so
// a template that puts a text together from hundreds of messages holds hundreds of such texts.
#define MEMORY ((uint64_t)64 << 20)
#define MEMORY_PER_BYTE 256u

// --- Reading

kvern_status jinja_parse(const char *source, size_t bytes, jinja_template **out,
                         engine_error *error)
{
    *out = NULL;
    jinja_template *t = calloc(1, sizeof *t);
    if (!t)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
    t->trap.error = error;
    t->bytes = bytes;
    if (setjmp(t->trap.jump) == 0) {
        jinja_parser parser = {.trap = &t->trap, .arena = &t->arena};
        parser.at = jinja_lex(&t->trap, &t->arena, source, bytes);
        t->body = jinja_parse_blocks(&parser);
        *out = t;
        return KVERN_OK;
    }
    const kvern_status status = t->trap.status;
    jinja_destroy(t);
    return status;
}

void jinja_destroy(jinja_template *t)
{
    if (!t)
        return;
    jinja_arena_free(&t->arena);
    free(t);
}

// --- Writing

void jinja_result_free(jinja_result *result)
{
    text_buffer_free(&result->text);
    text_buffer_free(&result->origins);
}

void jinja_write(jinja_run *run, const jinja_string *text)
{
    jinja_result *out = run->out;
    jinja_charge(run, text->size / 16 + 1);
    jinja_hold(run, 2 * text->size); // with its origins
    kvern_status status = text_buffer_append(&out->text, text->data, text->size);
    if (status == KVERN_OK)
        status = text_buffer_reserve(&out->origins, text->size);
    if (status != KVERN_OK)
        jinja_fail(&run->trap, status, 0, "no memory for what a chat template writes");
    if (text->size == 0)
        return;
    unsigned char *origins = (unsigned char *)out->origins.data + out->origins.size;
    if (text->origins)
        memcpy(origins, text->origins, text->size);
    else
        memset(origins, JINJA_FROM_TEMPLATE, text->size);
    out->origins.size += text->size;
}

jinja_result *jinja_capture(jinja_run *run)
{
    jinja_result *outer = run->out;
    jinja_output *output = jinja_run_take(run, sizeof *output);
    output->older = run->outputs;
    run->outputs = output;
    run->out = &output->result;
    return outer;
}

jinja_value jinja_release(jinja_run *run, jinja_result *outer)
{
    jinja_result *inner = run->out;
    const jinja_value text = jinja_output_text(run, inner);
    run->memory += 2 * inner->text.size;
    jinja_result_free(inner); // the newest of the outputs; it stays in the list, empty
    run->out = outer;
    return text;
}

void jinja_enter(jinja_run *run)
{
    jinja_charge(run, 1);
    if (++run->depth > JINJA_MOST_DEPTH)
        jinja_refuse(run, "this goes more than %d levels deep", JINJA_MOST_DEPTH);
}

// --- Statements

static void run_if(jinja_run *run, const jinja_node *node)
{
    for (const jinja_node *branch = node->list; branch; branch = branch->next) {
        if (branch->a && !jinja_truth(jinja_evaluate(run, branch->a)))
            continue;
        jinja_run_list(run, branch->list);
        return;
    }
}

// Gives a target its value: a name, or several of them the items of a list.
static void assign(jinja_run *run, const jinja_node *target, jinja_value value)
{
    if (target->kind == JINJA_NODE_NAME) {
        jinja_bind(run, target->text, value);
        return;
    }
    const jinja_list *items = jinja_items(run, value);
    size_t i = 0;
    for (const jinja_node *n = target->list; n; n = n->next, i++) {
        if (i == items->count)
            jinja_refuse(run, "%zu values for more names", items->count);
        jinja_bind(run, n->text, items->items[i]);
    }
    if (i != items->count)
        jinja_refuse(run, "%zu values for %zu names", items->count, i);
}

// The items for which the condition of a loop holds.
static const jinja_list *chosen_items(jinja_run *run, const jinja_node *node,
                                      const jinja_list *items)
{
    jinja_list *chosen = jinja_list_new(run, items->count);
    jinja_frame *frame = run->frame;
    chosen->count = 0;
    for (size_t i = 0; i < items->count; i++) {
        jinja_push_frame(run, frame);
        assign(run, node->a, items->items[i]);
        if (jinja_truth(jinja_evaluate(run, node->c)))
            chosen->items[chosen->count++] = items->items[i];
        run->frame = frame;
    }
    return chosen;
}

static void run_for(jinja_run *run, const jinja_node *node)
{
    const jinja_list *items = jinja_items(run, jinja_evaluate(run, node->b));
    jinja_frame *frame = run->frame;
    if (node->c)
        items = chosen_items(run, node, items);
    jinja_loop *loop = jinja_run_take(run, sizeof *loop);
    loop->items = items;
    for (; loop->at < items->count && run->signal != JINJA_BREAKS; loop->at++) {
        jinja_push_frame(run, frame);
        jinja_bind(run, (jinja_word){"loop", 4},
                   (jinja_value){.kind = JINJA_LOOP, .as.loop = loop});
        assign(run, node->a, items->items[loop->at]);
        run->signal = JINJA_GOES_ON;
        jinja_run_list(run, node->list);
    }
    run->signal = JINJA_GOES_ON;
    run->frame = frame;
    if (items->count == 0)
        jinja_run_list(run, node->other);
}

static void run_set(jinja_run *run, const jinja_node *node)
{
    jinja_value value;
    if (node->kind == JINJA_NODE_SET) {
        value = jinja_evaluate(run, node->b);
    } else {
        jinja_frame *frame = run->frame;
        jinja_result *outer = jinja_capture(run);
        jinja_push_frame(run, frame);
        jinja_run_list(run, node->list);
        run->frame = frame;
        value = jinja_release(run, outer);
    }
    if (node->a->kind != JINJA_NODE_ATTRIBUTE) {
        assign(run, node->a, value);
        return;
    }
    const jinja_value object = jinja_evaluate(run, node->a->a);
    if (object.kind != JINJA_NAMESPACE)
        jinja_refuse(run, "%s is no namespace", jinja_kind_name(object.kind));
    jinja_mapping_set(run, object.as.mapping,
                      jinja_text(run, node->a->text.data, node->a->text.bytes), value);
}

static void run_macro(jinja_run *run, const jinja_node *node)
{
    jinja_macro *macro = jinja_run_take(run, sizeof *macro);
    *macro = (jinja_macro){node, run->frame};
    jinja_bind(run, node->text, (jinja_value){.kind = JINJA_MACRO, .as.macro = macro});
}

static void run_scope(jinja_run *run, const jinja_node *node)
{
    jinja_frame *frame = run->frame;
    jinja_push_frame(run, frame);
    jinja_run_list(run, node->list);
    run->frame = frame;
}

static void run_node(jinja_run *run, const jinja_node *node)
{
    const jinja_string text = {node->text.data, NULL, node->text.bytes};
    run->line = node->line;
    switch (node->kind) {
    case JINJA_NODE_TEXT:
        jinja_write(run, &text);
        break;
    case JINJA_NODE_PRINT:
        jinja_write(run, jinja_written(run, jinja_evaluate(run, node->a)));
        break;
    case JINJA_NODE_IF:
        run_if(run, node);
        break;
    case JINJA_NODE_FOR:
        run_for(run, node);
        break;
    case JINJA_NODE_SET:
    case JINJA_NODE_SET_BLOCK:
        run_set(run, node);
        break;
    case JINJA_NODE_MACRO:
        run_macro(run, node);
        break;
    case JINJA_NODE_SCOPE:
        run_scope(run, node);
        break;
    case JINJA_NODE_BREAK:
        run->signal = JINJA_BREAKS;
        break;
    default:
        run->signal = JINJA_CONTINUES;
        break;
    }
}

void jinja_run_list(jinja_run *run, const jinja_node *list)
{
    jinja_enter(run);
    for (; list && run->signal == JINJA_GOES_ON; list = list->next) {
        jinja_charge(run, 1);
        run_node(run, list);
    }
    run->depth--;
}

// --- Rendering

static void bind_word(jinja_run *run, const char *name, jinja_word word)
{
    if (word.data)
        jinja_bind(run, (jinja_word){name, strlen(name)}, jinja_text(run, word.data, word.bytes));
}

static void bind_name(jinja_run *run, const char *name, jinja_value value)
{
    jinja_bind(run, (jinja_word){name, strlen(name)}, value);
}

static jinja_value word_value(jinja_run *run, jinja_word word, jinja_origin origin)
{
    return jinja_text_from(run, word.data, word.bytes, origin);
}

static jinja_value message_value(jinja_run *run, const jinja_message *m)
{
    const jinja_value value = jinja_mapping_new(run, JINJA_MAPPING);
    jinja_mapping_set(run, value.as.mapping, jinja_literal(run, "role"),
                      word_value(run, m->role, m->role_origin));
    jinja_mapping_set(run, value.as.mapping, jinja_literal(run, "content"),
                      word_value(run, m->content, m->content_origin));
    return value;
}

// What transformers gives a template.
static void bind_input(jinja_run *run)
{
    jinja_list *messages = jinja_list_new(run, run->input->count);
    for (size_t i = 0; i < messages->count; i++)
        messages->items[i] = message_value(run, &run->input->messages[i]);
    bind_name(run, "messages", jinja_list_value(messages));
    bind_name(run, "add_generation_prompt", jinja_boolean(run->input->add_generation_prompt));
    bind_name(run, "tools", jinja_none());
    bind_name(run, "documents", jinja_none());
    bind_word(run, "bos_token", run->input->bos);
    bind_word(run, "eos_token", run->input->eos);
}

// Bytes of what there is to do.
static uint64_t bytes_of(const jinja_template *t, const jinja_input *input)
{
    uint64_t bytes = t->bytes;
    for (size_t i = 0; i < input->count; i++)
        bytes += input->messages[i].content.bytes + input->messages[i].role.bytes + 64;
    return bytes;
}

static void release(jinja_run *run)
{
    for (jinja_output *output = run->outputs; output; output = output->older)
        jinja_result_free(&output->result);
    jinja_arena_free(&run->arena);
    free(run);
}

kvern_status jinja_render(const jinja_template *t, const jinja_input *input, jinja_result *result,
                          engine_error *error)
{
    text_buffer_clear(&result->text);
    text_buffer_clear(&result->origins);
    jinja_run *run = calloc(1, sizeof *run);
    if (!run)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
    run->trap.error = error;
    run->input = input;
    run->out = result;
    run->steps = STEPS + STEPS_PER_BYTE * bytes_of(t, input);
    run->memory = MEMORY + MEMORY_PER_BYTE * bytes_of(t, input);
    kvern_status status = KVERN_OK;
    if (setjmp(run->trap.jump) == 0) {
        jinja_push_frame(run, NULL);
        bind_input(run);
        jinja_run_list(run, t->body);
    } else {
        text_buffer_clear(&result->text);
        text_buffer_clear(&result->origins);
        status = run->trap.status;
    }
    release(run);
    return status;
}
