// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_JINJA_INTERNAL_H
#define KVERN_ENGINE_JINJA_INTERNAL_H

// What the parts of the template language share; jinja.h has the list of them.

#include "engine/chat/jinja.h"

#include <setjmp.h>

// How deep a source may nest brackets, blocks and operators, and how deep evaluation goes, macros
// included. Both bound the stack.
#define JINJA_MOST_NESTED 100
#define JINJA_MOST_DEPTH 400

// --- Memory that lives as long as a template or a rendering

typedef struct jinja_chunk jinja_chunk;
typedef struct jinja_arena {
    jinja_chunk *chunks; // the newest first
    size_t used;         // bytes of the newest
} jinja_arena;

// Zeroed, and aligned for everything; NULL when there is no memory.
void *jinja_arena_take(jinja_arena *arena, size_t bytes);
void jinja_arena_free(jinja_arena *arena);

// --- Failure. Reading and rendering go deep, and a failure ends all of it: it jumps to the call
// that began. What is owned meanwhile is in the arena or in the structure that holds the trap.

typedef struct jinja_trap {
    jmp_buf jump;
    kvern_status status;
    engine_error *error; // NULL is allowed
} jinja_trap;

// Line 0: the sentence names none.
_Noreturn void jinja_fail(jinja_trap *trap, kvern_status status, unsigned line, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));
// jinja_arena_take that fails by jumping.
void *jinja_take(jinja_trap *trap, jinja_arena *arena, size_t bytes);

// A word of a template as "%.*s" wants it, cut to what a sentence has room for.
#define JINJA_SHOWN(word) (int)((word).bytes < 40 ? (word).bytes : 40), (word).data

// --- jinja_lexer.c

typedef enum jinja_token_kind {
    JINJA_TOKEN_END,
    JINJA_TOKEN_TEXT,
    JINJA_TOKEN_PRINT_BEGIN,
    JINJA_TOKEN_PRINT_END,
    JINJA_TOKEN_BLOCK_BEGIN,
    JINJA_TOKEN_BLOCK_END,
    JINJA_TOKEN_NAME,
    JINJA_TOKEN_STRING,
    JINJA_TOKEN_INTEGER,
    JINJA_TOKEN_REAL,
    JINJA_TOKEN_OPERATOR
} jinja_token_kind;

typedef struct jinja_token {
    jinja_token_kind kind;
    unsigned line;
    jinja_word text; // of a string what it stands for
    struct jinja_token *next;
} jinja_token;

// The tokens of a source; the last one is an END that follows itself.
jinja_token *jinja_lex(jinja_trap *trap, jinja_arena *arena, const char *source, size_t bytes);

// --- jinja_parser.c, jinja_blocks.c

typedef enum jinja_node_kind {
    // Expressions
    JINJA_NODE_STRING,
    JINJA_NODE_INTEGER,
    JINJA_NODE_REAL,
    JINJA_NODE_TRUE,
    JINJA_NODE_FALSE,
    JINJA_NODE_NONE,
    JINJA_NODE_NAME,
    JINJA_NODE_LIST,
    JINJA_NODE_TUPLE,
    JINJA_NODE_MAPPING,   // list: key, value, key, value, ...
    JINJA_NODE_ATTRIBUTE, // a.text
    JINJA_NODE_ITEM,      // a[b]
    JINJA_NODE_SLICE,     // a[list of three; NONE nodes where absent]
    JINJA_NODE_CALL,      // a(list of ARGUMENT)
    JINJA_NODE_ARGUMENT,  // text=a, or a
    JINJA_NODE_FILTER,    // a | text(list)
    JINJA_NODE_TEST,      // a is text(list)
    JINJA_NODE_NOT,
    JINJA_NODE_NEGATE,
    JINJA_NODE_PLUS,
    JINJA_NODE_AND,
    JINJA_NODE_OR,
    JINJA_NODE_BINARY,      // a text b
    JINJA_NODE_COMPARE,     // a, then list of OPERAND
    JINJA_NODE_OPERAND,     // text a
    JINJA_NODE_CONDITIONAL, // a if b else c, which may be NULL
    // Statements
    JINJA_NODE_TEXT,
    JINJA_NODE_PRINT,     // list
    JINJA_NODE_IF,        // list of BRANCH
    JINJA_NODE_BRANCH,    // condition a, NULL for else; list
    JINJA_NODE_FOR,       // target a in b if c; list; other is the part behind else
    JINJA_NODE_SET,       // target a = b
    JINJA_NODE_SET_BLOCK, // target a = list
    JINJA_NODE_MACRO,     // text(other: list of ARGUMENT, a the default); list
    JINJA_NODE_SCOPE,     // list
    JINJA_NODE_BREAK,
    JINJA_NODE_CONTINUE
} jinja_node_kind;

typedef struct jinja_node {
    jinja_node_kind kind;
    unsigned line;
    unsigned height; // of the tree below
    jinja_word text;
    union {
        int64_t integer;
        double real;
    } number;
    struct jinja_node *a, *b, *c;
    struct jinja_node *list, *other; // the first of each; `next` leads on
    struct jinja_node *next;
} jinja_node;

typedef struct jinja_parser {
    jinja_trap *trap;
    jinja_arena *arena;
    const jinja_token *at;
    unsigned nested;
    unsigned loops; // around this place, within the macro
} jinja_parser;

jinja_node *jinja_node_new(jinja_parser *p, jinja_node_kind kind);
// Counts a nested part; leave with p->nested--.
void jinja_nest(jinja_parser *p);
bool jinja_at_operator(const jinja_parser *p, const char *text);
bool jinja_at_name(const jinja_parser *p, const char *text);
bool jinja_skip_operator(jinja_parser *p, const char *text);
bool jinja_skip_name(jinja_parser *p, const char *text);
void jinja_expect_operator(jinja_parser *p, const char *text);
jinja_word jinja_expect_name(jinja_parser *p);
_Noreturn void jinja_unexpected(jinja_parser *p);

// `a`, `a, b`, or with `conditional` false one without `x if y else z`.
jinja_node *jinja_parse_tuple(jinja_parser *p, bool conditional);
jinja_node *jinja_parse_expression(jinja_parser *p);
// The filters behind a node, from `|` on.
jinja_node *jinja_parse_filters(jinja_parser *p, jinja_node *node);

// Statements up to the end of the source.
jinja_node *jinja_parse_blocks(jinja_parser *p);

// --- jinja_value.c

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOLEAN,
    JINJA_INTEGER,
    JINJA_REAL,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_MAPPING,
    JINJA_NAMESPACE, // a mapping that may change
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION
} jinja_kind;

typedef struct jinja_string {
    const char *data;
    const unsigned char *origins; // a jinja_origin for each byte; NULL: all from the template
    size_t size;
} jinja_string;

typedef struct jinja_list jinja_list;
typedef struct jinja_mapping jinja_mapping;
typedef struct jinja_loop jinja_loop;
typedef struct jinja_macro jinja_macro;

typedef struct jinja_value {
    jinja_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        const jinja_string *string;
        const jinja_list *list;
        jinja_mapping *mapping; // of a namespace too
        const jinja_loop *loop;
        const jinja_macro *macro;
        const char *function;      // its name
        const jinja_word *missing; // the name that is undefined; NULL: unknown
    } as;
} jinja_value;

struct jinja_list {
    jinja_value *items;
    size_t count;
    bool tuple; // never equal to a list, nor added to one
};

typedef struct jinja_entry {
    jinja_value key, value;
} jinja_entry;

// In the order of insertion.
struct jinja_mapping {
    jinja_entry *entries;
    size_t count, capacity;
};

struct jinja_loop {
    const jinja_list *items;
    size_t at;
};

typedef struct jinja_binding {
    jinja_word name;
    jinja_value value;
    struct jinja_binding *next;
} jinja_binding;

typedef struct jinja_frame {
    struct jinja_frame *outer;
    jinja_binding *bindings;
} jinja_frame;

struct jinja_macro {
    const jinja_node *node;
    jinja_frame *frame; // where it was defined
};

typedef enum jinja_signal { JINJA_GOES_ON, JINJA_BREAKS, JINJA_CONTINUES } jinja_signal;

typedef struct jinja_output {
    jinja_result result;
    struct jinja_output *older; // for releasing
} jinja_output;

typedef struct jinja_run {
    jinja_trap trap;
    jinja_arena arena;
    const jinja_input *input;
    jinja_frame *frame;
    jinja_output *outputs; // all that were made
    jinja_result *out;     // where text goes now
    uint64_t steps;        // that are left
    uint64_t memory;       // bytes that values and texts may still take
    unsigned depth;
    unsigned line; // of what is being evaluated
    jinja_signal signal;
} jinja_run;

#define jinja_refuse(run, ...)                                                                     \
    jinja_fail(&(run)->trap, KVERN_ERR_UNSUPPORTED, (run)->line, __VA_ARGS__)

// Takes steps for work; fails when none are left.
void jinja_charge(jinja_run *run, size_t steps);
// The same for bytes that are held to the end of the rendering, or until they are given back by
// adding them to run->memory.
void jinja_hold(jinja_run *run, size_t bytes);
void *jinja_run_take(jinja_run *run, size_t bytes);

jinja_value jinja_undefined(void);
jinja_value jinja_none(void);
jinja_value jinja_boolean(bool value);
jinja_value jinja_integer(int64_t value);
jinja_value jinja_real(double value);
// Borrowed bytes, which must live as long as the run.
jinja_value jinja_text(jinja_run *run, const char *data, size_t size);
jinja_value jinja_literal(jinja_run *run, const char *text);
jinja_value jinja_text_from(jinja_run *run, const char *data, size_t size, jinja_origin origin);
// text[begin .. end), sharing its bytes.
jinja_value jinja_part(jinja_run *run, const jinja_string *text, size_t begin, size_t end);
// Several strings in one.
jinja_value jinja_joined(jinja_run *run, const jinja_string *const *parts, size_t count);
jinja_value jinja_concatenate(jinja_run *run, const jinja_string *a, const jinja_string *b);
// Copies what was written to an output.
jinja_value jinja_output_text(jinja_run *run, const jinja_result *output);

// A list with room for `count` items, all undefined; items may be set until it is used.
jinja_list *jinja_list_new(jinja_run *run, size_t count);
jinja_value jinja_list_value(const jinja_list *list);
jinja_value jinja_pair(jinja_run *run, jinja_value first, jinja_value second);

jinja_value jinja_mapping_new(jinja_run *run, jinja_kind kind);
void jinja_mapping_set(jinja_run *run, jinja_mapping *mapping, jinja_value key, jinja_value value);
// NULL when it is not there.
const jinja_value *jinja_mapping_find(jinja_run *run, const jinja_mapping *mapping,
                                      jinja_value key);

const char *jinja_kind_name(jinja_kind kind);
bool jinja_is_text(jinja_value value, const char *text);
bool jinja_word_is(jinja_word word, const char *text);
bool jinja_truth(jinja_value value);
bool jinja_equal(jinja_run *run, jinja_value a, jinja_value b);
// Negative, 0 or positive; refuses what has no order.
int jinja_order(jinja_run *run, jinja_value a, jinja_value b);
bool jinja_contains(jinja_run *run, jinja_value container, jinja_value item);
// What is written for a value. Refuses lists and mappings.
const jinja_string *jinja_written(jinja_run *run, jinja_value value);
// What a loop goes over.
const jinja_list *jinja_items(jinja_run *run, jinja_value value);
size_t jinja_length(jinja_run *run, jinja_value value);
int64_t jinja_whole(jinja_run *run, jinja_value value);

// --- jinja_text.c: operations on strings, in characters

#define JINJA_STRIP_LEFT 1u
#define JINJA_STRIP_RIGHT 2u
// `set`: the characters to take off; NULL: white space.
jinja_value jinja_strip(jinja_run *run, const jinja_string *text, const jinja_string *set,
                        unsigned sides);
typedef enum jinja_case {
    JINJA_UPPER,
    JINJA_LOWER,
    JINJA_CAPITALIZE, // the first character up, all others down
    JINJA_TITLE,      // the same for every run of letters (title of Python)
    JINJA_WORDS       // the same behind white space, hyphens and brackets (title of Jinja)
} jinja_case;
jinja_value jinja_recase(jinja_run *run, const jinja_string *text, jinja_case wanted);
// `most` < 0: all.
jinja_value jinja_replace(jinja_run *run, const jinja_string *text, const jinja_string *old,
                          const jinja_string *by, int64_t most);
// `separator` NULL: at white space.
jinja_value jinja_split(jinja_run *run, const jinja_string *text, const jinja_string *separator,
                        int64_t most);
jinja_value jinja_join(jinja_run *run, const jinja_string *between, const jinja_list *items);
size_t jinja_characters(const jinja_string *text);
jinja_value jinja_character(jinja_run *run, const jinja_string *text, int64_t index);
const jinja_list *jinja_spell(jinja_run *run, const jinja_string *text);
// The byte where `part` begins, or SIZE_MAX.
size_t jinja_find(const jinja_string *text, const jinja_string *part, size_t from);

// --- jinja_expression.c

jinja_value jinja_evaluate(jinja_run *run, const jinja_node *node);
jinja_value jinja_member(jinja_run *run, jinja_value object, jinja_word name);
jinja_value jinja_item(jinja_run *run, jinja_value object, jinja_value key);
void jinja_bind(jinja_run *run, jinja_word name, jinja_value value);
void jinja_push_frame(jinja_run *run, jinja_frame *outer);

// --- jinja_run.c

void jinja_write(jinja_run *run, const jinja_string *text);
void jinja_run_list(jinja_run *run, const jinja_node *list);
// Directs what is written to a new output; give what it returns to jinja_release.
jinja_result *jinja_capture(jinja_run *run);
jinja_value jinja_release(jinja_run *run, jinja_result *outer);
void jinja_enter(jinja_run *run);

// --- jinja_filters.c, jinja_methods.c, jinja_json.c

// Evaluated arguments. Names are those of the call; data NULL: by position.
typedef struct jinja_arguments {
    const jinja_value *values;
    const jinja_word *names;
    size_t count;
} jinja_arguments;

// The argument called `name` or at `place` of those without a name, or `otherwise`.
jinja_value jinja_argument(const jinja_arguments *arguments, size_t place, const char *name,
                           jinja_value otherwise);
// Refuses arguments beyond `most`, and those with a name that is not in `names` (NULL-terminated).
void jinja_check_arguments(jinja_run *run, const jinja_arguments *arguments, const char *what,
                           size_t most, const char *const *names);

jinja_value jinja_filter(jinja_run *run, jinja_word name, jinja_value value,
                         const jinja_arguments *arguments);
bool jinja_test(jinja_run *run, jinja_word name, jinja_value value,
                const jinja_arguments *arguments);
// Whether a filter or test of this name exists: asked while parsing.
bool jinja_has_filter(jinja_word name);
bool jinja_has_test(jinja_word name);

jinja_value jinja_call_method(jinja_run *run, jinja_value object, jinja_word name,
                              const jinja_arguments *arguments);
// Members of a mapping that are methods and hide its keys.
bool jinja_is_mapping_method(jinja_word name);
jinja_value jinja_call_function(jinja_run *run, const char *name, const jinja_arguments *arguments);
// The function of this name, or NULL.
const char *jinja_function(jinja_word name);

jinja_value jinja_to_json(jinja_run *run, jinja_value value, int64_t indent);

#endif
