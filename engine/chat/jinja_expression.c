// SPDX-License-Identifier: MIT
// What expressions are worth.
#include "engine/chat/jinja_internal.h"

#include <math.h>
#include <string.h>

// --- Names

void jinja_push_frame(jinja_run *run, jinja_frame *outer)
{
    jinja_frame *frame = jinja_run_take(run, sizeof *frame);
    frame->outer = outer;
    run->frame = frame;
}

static bool same_word(jinja_word a, jinja_word b)
{
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

static jinja_binding *find_binding(jinja_run *run, const jinja_frame *frame, jinja_word name)
{
    for (jinja_binding *b = frame->bindings; b; b = b->next) {
        jinja_charge(run, 1);
        if (same_word(b->name, name))
            return b;
    }
    return NULL;
}

void jinja_bind(jinja_run *run, jinja_word name, jinja_value value)
{
    jinja_binding *binding = find_binding(run, run->frame, name);
    if (!binding) {
        binding = jinja_run_take(run, sizeof *binding);
        *binding = (jinja_binding){.name = name, .next = run->frame->bindings};
        run->frame->bindings = binding;
    }
    binding->value = value;
}

static jinja_value evaluate_name(jinja_run *run, const jinja_node *node)
{
    for (const jinja_frame *frame = run->frame; frame; frame = frame->outer) {
        const jinja_binding *binding = find_binding(run, frame, node->text);
        if (binding)
            return binding->value;
    }
    const char *function = jinja_function(node->text);
    if (function)
        return (jinja_value){.kind = JINJA_FUNCTION, .as.function = function};
    return (jinja_value){.kind = JINJA_UNDEFINED, .as.missing = &node->text};
}

// --- Members

_Noreturn static void refuse_undefined(jinja_run *run, jinja_value object)
{
    const jinja_word name = object.as.missing ? *object.as.missing : (jinja_word){"a value", 7};
    jinja_refuse(run, "%.*s is undefined", JINJA_SHOWN(name));
}

static jinja_value loop_neighbour(const jinja_loop *loop, bool next)
{
    const size_t at = next ? loop->at + 1 : loop->at - 1; // wraps below 0
    return at < loop->items->count ? loop->items->items[at] : jinja_undefined();
}

static jinja_value loop_member(jinja_run *run, const jinja_loop *loop, jinja_word name)
{
    const int64_t at = (int64_t)loop->at, count = (int64_t)loop->items->count;
    if (jinja_word_is(name, "index"))
        return jinja_integer(at + 1);
    if (jinja_word_is(name, "index0"))
        return jinja_integer(at);
    if (jinja_word_is(name, "revindex"))
        return jinja_integer(count - at);
    if (jinja_word_is(name, "revindex0"))
        return jinja_integer(count - at - 1);
    if (jinja_word_is(name, "first"))
        return jinja_boolean(at == 0);
    if (jinja_word_is(name, "last"))
        return jinja_boolean(at + 1 == count);
    if (jinja_word_is(name, "length"))
        return jinja_integer(count);
    if (jinja_word_is(name, "previtem"))
        return loop_neighbour(loop, false);
    if (jinja_word_is(name, "nextitem"))
        return loop_neighbour(loop, true);
    jinja_refuse(run, "loop.%.*s is not known", JINJA_SHOWN(name));
}

jinja_value jinja_member(jinja_run *run, jinja_value object, jinja_word name)
{
    const jinja_value *found;
    switch (object.kind) {
    case JINJA_UNDEFINED:
        refuse_undefined(run, object);
    case JINJA_LOOP:
        return loop_member(run, object.as.loop, name);
    case JINJA_MAPPING:
        if (jinja_is_mapping_method(name))
            jinja_refuse(run, "the method \"%.*s\" is not called", JINJA_SHOWN(name));
        // fallthrough
    case JINJA_NAMESPACE:
        found = jinja_mapping_find(run, object.as.mapping, jinja_text(run, name.data, name.bytes));
        return found ? *found : jinja_undefined();
    default:
        return jinja_undefined();
    }
}

jinja_value jinja_item(jinja_run *run, jinja_value object, jinja_value key)
{
    if (object.kind == JINJA_UNDEFINED)
        refuse_undefined(run, object);
    if (object.kind == JINJA_MAPPING) {
        const jinja_value *found = jinja_mapping_find(run, object.as.mapping, key);
        return found ? *found : jinja_undefined();
    }
    if (object.kind == JINJA_NAMESPACE && key.kind == JINJA_STRING)
        return jinja_member(run, object, (jinja_word){key.as.string->data, key.as.string->size});
    if (key.kind != JINJA_INTEGER && key.kind != JINJA_BOOLEAN)
        return jinja_undefined();
    int64_t index = jinja_whole(run, key);
    if (object.kind == JINJA_STRING)
        return jinja_character(run, object.as.string, index);
    if (object.kind != JINJA_LIST)
        return jinja_undefined();
    const int64_t count = (int64_t)object.as.list->count;
    index = index < 0 ? index + count : index;
    return index >= 0 && index < count ? object.as.list->items[index] : jinja_undefined();
}

// --- Slices, as Python cuts them

typedef struct slice {
    int64_t begin, end, step;
} slice;

static int64_t clip(int64_t value, int64_t count, int64_t low, int64_t high)
{
    if (value < 0)
        value = value < -count ? low : value + count;
    return value < low ? low : value > high ? high : value;
}

static slice evaluate_slice(jinja_run *run, const jinja_node *node, int64_t count)
{
    const jinja_value begin = jinja_evaluate(run, node->list);
    const jinja_value end = jinja_evaluate(run, node->list->next);
    const jinja_value step = jinja_evaluate(run, node->list->next->next);
    slice s = {.step = step.kind == JINJA_NONE ? 1 : jinja_whole(run, step)};
    if (s.step == 0)
        jinja_refuse(run, "a slice with steps of 0");
    const bool down = s.step < 0;
    const int64_t low = down ? -1 : 0, high = down ? count - 1 : count;
    s.begin = begin.kind == JINJA_NONE ? (down ? high : low)
                                       : clip(jinja_whole(run, begin), count, low, high);
    s.end = end.kind == JINJA_NONE ? (down ? low : high)
                                   : clip(jinja_whole(run, end), count, low, high);
    return s;
}

static const jinja_list *cut(jinja_run *run, const jinja_list *items, slice s)
{
    size_t count = 0;
    if (s.step > 0 && s.begin < s.end)
        count = (size_t)((s.end - s.begin - 1) / s.step + 1);
    else if (s.step < 0 && s.begin > s.end)
        count = (size_t)((s.end - s.begin + 1) / s.step + 1);
    jinja_list *list = jinja_list_new(run, count);
    for (size_t i = 0; i < count; i++)
        list->items[i] = items->items[s.begin + (int64_t)i * s.step];
    list->tuple = items->tuple;
    return list;
}

static jinja_value evaluate_cut(jinja_run *run, const jinja_node *node)
{
    const jinja_value object = jinja_evaluate(run, node->a);
    if (object.kind == JINJA_UNDEFINED)
        refuse_undefined(run, object);
    if (object.kind != JINJA_STRING && object.kind != JINJA_LIST)
        jinja_refuse(run, "%s cannot be cut", jinja_kind_name(object.kind));
    const jinja_list *items = jinja_items(run, object);
    const slice s = evaluate_slice(run, node, (int64_t)items->count);
    if (object.kind == JINJA_LIST)
        return jinja_list_value(cut(run, items, s));
    return jinja_join(run, jinja_literal(run, "").as.string, cut(run, items, s));
}

// --- Calls

static jinja_arguments evaluate_arguments(jinja_run *run, const jinja_node *list)
{
    size_t count = 0;
    for (const jinja_node *n = list; n; n = n->next)
        count++;
    jinja_value *values = jinja_run_take(run, count * sizeof *values);
    jinja_word *names = jinja_run_take(run, count * sizeof *names);
    size_t i = 0;
    for (const jinja_node *n = list; n; n = n->next, i++) {
        values[i] = jinja_evaluate(run, n->a);
        names[i] = n->text;
        if (i > 0 && names[i - 1].data && !n->text.data)
            jinja_refuse(run, "an argument without a name stands behind one with a name");
    }
    return (jinja_arguments){values, names, count};
}

static void bind_parameters(jinja_run *run, const jinja_macro *macro,
                            const jinja_arguments *arguments)
{
    size_t place = 0, used = 0;
    for (const jinja_node *n = macro->node->other; n; n = n->next, place++) {
        jinja_value value = jinja_undefined();
        size_t found = arguments->count;
        for (size_t i = 0; i < arguments->count; i++)
            if (arguments->names[i].data ? same_word(arguments->names[i], n->text) : i == place)
                found = i;
        jinja_charge(run, arguments->count);
        if (found < arguments->count) {
            value = arguments->values[found];
            used++;
        } else if (n->a) {
            value = jinja_evaluate(run, n->a);
        } else {
            value.as.missing = &n->text;
        }
        jinja_bind(run, n->text, value);
    }
    if (used != arguments->count)
        jinja_refuse(run, "the macro %.*s takes no such argument", JINJA_SHOWN(macro->node->text));
}

static jinja_value call_macro(jinja_run *run, const jinja_macro *macro,
                              const jinja_arguments *arguments)
{
    jinja_frame *frame = run->frame;
    jinja_push_frame(run, macro->frame);
    bind_parameters(run, macro, arguments);
    jinja_result *outer = jinja_capture(run);
    jinja_run_list(run, macro->node->list);
    const jinja_value text = jinja_release(run, outer);
    run->frame = frame;
    return text;
}

static jinja_value evaluate_method(jinja_run *run, const jinja_node *node)
{
    const jinja_value object = jinja_evaluate(run, node->a->a);
    if (object.kind == JINJA_UNDEFINED)
        refuse_undefined(run, object);
    const jinja_arguments arguments = evaluate_arguments(run, node->list);
    run->line = node->line;
    return jinja_call_method(run, object, node->a->text, &arguments);
}

static jinja_value evaluate_call(jinja_run *run, const jinja_node *node)
{
    if (node->a->kind == JINJA_NODE_ATTRIBUTE)
        return evaluate_method(run, node);
    const jinja_value callee = jinja_evaluate(run, node->a);
    const jinja_arguments arguments = evaluate_arguments(run, node->list);
    run->line = node->line;
    if (callee.kind == JINJA_MACRO)
        return call_macro(run, callee.as.macro, &arguments);
    if (callee.kind == JINJA_FUNCTION)
        return jinja_call_function(run, callee.as.function, &arguments);
    if (callee.kind == JINJA_UNDEFINED)
        refuse_undefined(run, callee);
    jinja_refuse(run, "%s cannot be called", jinja_kind_name(callee.kind));
}

static jinja_value evaluate_filter(jinja_run *run, const jinja_node *node)
{
    const jinja_value value = jinja_evaluate(run, node->a);
    const jinja_arguments arguments = evaluate_arguments(run, node->list);
    run->line = node->line;
    return jinja_filter(run, node->text, value, &arguments);
}

static jinja_value evaluate_test(jinja_run *run, const jinja_node *node)
{
    const jinja_value value = jinja_evaluate(run, node->a);
    const jinja_arguments arguments = evaluate_arguments(run, node->list);
    run->line = node->line;
    return jinja_boolean(jinja_test(run, node->text, value, &arguments));
}

// --- Arithmetic

static bool is_integer(jinja_value v)
{
    return v.kind == JINJA_INTEGER || v.kind == JINJA_BOOLEAN;
}

static double real_of(jinja_run *run, jinja_value v)
{
    return v.kind == JINJA_REAL ? v.as.real : (double)jinja_whole(run, v);
}

_Noreturn static void refuse_operands(jinja_run *run, jinja_word op, jinja_value a, jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        refuse_undefined(run, a.kind == JINJA_UNDEFINED ? a : b);
    jinja_refuse(run, "%.*s does not go with %s and %s", JINJA_SHOWN(op), jinja_kind_name(a.kind),
                 jinja_kind_name(b.kind));
}

// The quotient is rounded down, and the rest has the sign of the divisor.
static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static jinja_value integer_arithmetic(jinja_run *run, jinja_word op, int64_t a, int64_t b)
{
    int64_t result = 0;
    bool overflows = false;
    const bool divides = op.data[0] == '/' || op.data[0] == '%';
    if (divides && b == 0)
        jinja_refuse(run, "a division by 0");
    if (jinja_word_is(op, "/"))
        return jinja_real((double)a / (double)b);
    if (divides && b == -1 && a == INT64_MIN)
        overflows = true;
    else if (jinja_word_is(op, "//"))
        result = divide_down(a, b);
    else if (jinja_word_is(op, "%"))
        result = a - divide_down(a, b) * b;
    else if (jinja_word_is(op, "+"))
        overflows = __builtin_add_overflow(a, b, &result);
    else if (jinja_word_is(op, "-"))
        overflows = __builtin_sub_overflow(a, b, &result);
    else
        overflows = __builtin_mul_overflow(a, b, &result);
    if (overflows)
        jinja_refuse(run, "a number is too large");
    return jinja_integer(result);
}

static jinja_value real_arithmetic(jinja_run *run, jinja_word op, double a, double b)
{
    if ((op.data[0] == '/' || op.data[0] == '%') && b == 0)
        jinja_refuse(run, "a division by 0");
    if (jinja_word_is(op, "/"))
        return jinja_real(a / b);
    if (jinja_word_is(op, "//"))
        return jinja_real(floor(a / b));
    if (jinja_word_is(op, "%"))
        return jinja_real(a - floor(a / b) * b);
    return jinja_real(op.data[0] == '+' ? a + b : op.data[0] == '-' ? a - b : a * b);
}

static jinja_value repeat(jinja_run *run, const jinja_string *text, int64_t times)
{
    const size_t count = times > 0 ? (size_t)times : 0;
    jinja_charge(run, count);
    const jinja_string **parts = jinja_run_take(run, count * sizeof(jinja_string *));
    for (size_t i = 0; i < count; i++) {
        jinja_charge(run, text->size / 16);
        parts[i] = text;
    }
    return jinja_joined(run, parts, count);
}

static jinja_value add_lists(jinja_run *run, const jinja_list *a, const jinja_list *b)
{
    if (a->tuple != b->tuple)
        jinja_refuse(run, "+ does not go with a list and a tuple");
    jinja_list *sum = jinja_list_new(run, a->count + b->count);
    sum->tuple = a->tuple;
    for (size_t i = 0; i < sum->count; i++)
        sum->items[i] = i < a->count ? a->items[i] : b->items[i - a->count];
    return jinja_list_value(sum);
}

static jinja_value evaluate_binary(jinja_run *run, const jinja_node *node)
{
    const jinja_value a = jinja_evaluate(run, node->a);
    const jinja_value b = jinja_evaluate(run, node->b);
    const jinja_word op = node->text;
    run->line = node->line;
    if (jinja_word_is(op, "~"))
        return jinja_concatenate(run, jinja_written(run, a), jinja_written(run, b));
    if (is_integer(a) && is_integer(b))
        return integer_arithmetic(run, op, jinja_whole(run, a), jinja_whole(run, b));
    if ((is_integer(a) || a.kind == JINJA_REAL) && (is_integer(b) || b.kind == JINJA_REAL))
        return real_arithmetic(run, op, real_of(run, a), real_of(run, b));
    if (jinja_word_is(op, "+") && a.kind == JINJA_STRING && b.kind == JINJA_STRING)
        return jinja_concatenate(run, a.as.string, b.as.string);
    if (jinja_word_is(op, "+") && a.kind == JINJA_LIST && b.kind == JINJA_LIST)
        return add_lists(run, a.as.list, b.as.list);
    if (jinja_word_is(op, "*") && a.kind == JINJA_STRING && is_integer(b))
        return repeat(run, a.as.string, jinja_whole(run, b));
    refuse_operands(run, op, a, b);
}

static jinja_value evaluate_sign(jinja_run *run, const jinja_node *node)
{
    const jinja_value value = jinja_evaluate(run, node->a);
    if (value.kind == JINJA_REAL)
        return jinja_real(node->kind == JINJA_NODE_NEGATE ? -value.as.real : value.as.real);
    const int64_t whole = jinja_whole(run, value);
    const jinja_word op = {node->kind == JINJA_NODE_NEGATE ? "-" : "+", 1};
    return integer_arithmetic(run, op, 0, whole);
}

// --- Comparisons

static bool compare(jinja_run *run, jinja_word op, jinja_value a, jinja_value b)
{
    if (jinja_word_is(op, "=="))
        return jinja_equal(run, a, b);
    if (jinja_word_is(op, "!="))
        return !jinja_equal(run, a, b);
    if (jinja_word_is(op, "in"))
        return jinja_contains(run, b, a);
    if (jinja_word_is(op, "not in"))
        return !jinja_contains(run, b, a);
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        refuse_undefined(run, a.kind == JINJA_UNDEFINED ? a : b);
    const int order = jinja_order(run, a, b);
    if (op.data[0] == '<')
        return op.bytes == 1 ? order < 0 : order <= 0;
    return op.bytes == 1 ? order > 0 : order >= 0;
}

static jinja_value evaluate_comparison(jinja_run *run, const jinja_node *node)
{
    jinja_value left = jinja_evaluate(run, node->a);
    for (const jinja_node *n = node->list; n; n = n->next) {
        const jinja_value right = jinja_evaluate(run, n->a);
        run->line = node->line;
        if (!compare(run, n->text, left, right))
            return jinja_boolean(false);
        left = right;
    }
    return jinja_boolean(true);
}

// --- All expressions

static jinja_value evaluate_list(jinja_run *run, const jinja_node *node)
{
    size_t count = 0;
    for (const jinja_node *n = node->list; n; n = n->next)
        count++;
    jinja_list *list = jinja_list_new(run, count);
    size_t i = 0;
    for (const jinja_node *n = node->list; n; n = n->next)
        list->items[i++] = jinja_evaluate(run, n);
    list->tuple = node->kind == JINJA_NODE_TUPLE;
    return jinja_list_value(list);
}

static jinja_value evaluate_mapping(jinja_run *run, const jinja_node *node)
{
    const jinja_value mapping = jinja_mapping_new(run, JINJA_MAPPING);
    for (const jinja_node *n = node->list; n; n = n->next->next) {
        const jinja_value key = jinja_evaluate(run, n);
        jinja_mapping_set(run, mapping.as.mapping, key, jinja_evaluate(run, n->next));
    }
    return mapping;
}

static jinja_value evaluate_conditional(jinja_run *run, const jinja_node *node)
{
    if (jinja_truth(jinja_evaluate(run, node->b)))
        return jinja_evaluate(run, node->a);
    return node->c ? jinja_evaluate(run, node->c) : jinja_undefined();
}

// The value of an operator that may leave out its right side is that of one of its sides.
static jinja_value evaluate_either(jinja_run *run, const jinja_node *node)
{
    const jinja_value left = jinja_evaluate(run, node->a);
    return jinja_truth(left) == (node->kind == JINJA_NODE_OR) ? left : jinja_evaluate(run, node->b);
}

static jinja_value evaluate_node(jinja_run *run, const jinja_node *node)
{
    switch (node->kind) {
    case JINJA_NODE_STRING:
        return jinja_text(run, node->text.data, node->text.bytes);
    case JINJA_NODE_INTEGER:
        return jinja_integer(node->number.integer);
    case JINJA_NODE_REAL:
        return jinja_real(node->number.real);
    case JINJA_NODE_TRUE:
    case JINJA_NODE_FALSE:
        return jinja_boolean(node->kind == JINJA_NODE_TRUE);
    case JINJA_NODE_NAME:
        return evaluate_name(run, node);
    case JINJA_NODE_LIST:
    case JINJA_NODE_TUPLE:
        return evaluate_list(run, node);
    case JINJA_NODE_MAPPING:
        return evaluate_mapping(run, node);
    case JINJA_NODE_ATTRIBUTE:
        return jinja_member(run, jinja_evaluate(run, node->a), node->text);
    case JINJA_NODE_ITEM: {
        const jinja_value object = jinja_evaluate(run, node->a);
        return jinja_item(run, object, jinja_evaluate(run, node->b));
    }
    case JINJA_NODE_SLICE:
        return evaluate_cut(run, node);
    case JINJA_NODE_CALL:
        return evaluate_call(run, node);
    case JINJA_NODE_FILTER:
        return evaluate_filter(run, node);
    case JINJA_NODE_TEST:
        return evaluate_test(run, node);
    case JINJA_NODE_NOT:
        return jinja_boolean(!jinja_truth(jinja_evaluate(run, node->a)));
    case JINJA_NODE_NEGATE:
    case JINJA_NODE_PLUS:
        return evaluate_sign(run, node);
    case JINJA_NODE_AND:
    case JINJA_NODE_OR:
        return evaluate_either(run, node);
    case JINJA_NODE_BINARY:
        return evaluate_binary(run, node);
    case JINJA_NODE_COMPARE:
        return evaluate_comparison(run, node);
    case JINJA_NODE_CONDITIONAL:
        return evaluate_conditional(run, node);
    default:
        return jinja_none();
    }
}

jinja_value jinja_evaluate(jinja_run *run, const jinja_node *node)
{
    jinja_enter(run);
    run->line = node->line;
    const jinja_value value = evaluate_node(run, node);
    run->depth--;
    return value;
}
