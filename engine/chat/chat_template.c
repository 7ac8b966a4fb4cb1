// SPDX-License-Identifier: MIT
#include "engine/chat/chat_internal.h"
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const chat_style chatml = {
    .name = "chatml",
    .before_role = "<|im_start|>",
    .after_role = "\n",
    .after_content = "<|im_end|>\n",
    .assistant = "assistant",
};

static const chat_style gemma = {
    .name = "gemma",
    .before_role = "<start_of_turn>",
    .after_role = "\n",
    .after_content = "<end_of_turn>\n",
    .assistant = "model",
    .trims = true,
    .system_in_first = true,
};

static const chat_style *const styles[] = {&chatml, &gemma};

// Where the file names none of them.
#define ADVICE "choose --template chatml, --template gemma or --raw"

#define STYLE_COUNT (sizeof styles / sizeof *styles)

// Marks that tell the kind of a template; the first row whose marks are all there decides. Kinds
// that use the tokens of ChatML in another way stand before it.
typedef struct chat_kind {
    const char *name;
    const char *marks[2];    // the second may be NULL
    const chat_style *style; // NULL: recognised, not rendered
} chat_kind;

static const chat_kind kinds[] = {
    {"phi4", {"<|im_sep|>", NULL}, NULL},
    {"kimi", {"<|im_middle|>", NULL}, NULL},
    {"smolvlm", {"<end_of_utterance>", NULL}, NULL},
    {"chatml with a date", {"<|im_start|>", "strftime_now"}, NULL},
    {"chatml", {"<|im_start|>", "<|im_end|>"}, &chatml},
    {"llama3", {"<|start_header_id|>", NULL}, NULL},
    {"llama4", {"<|header_start|>", NULL}, NULL},
    {"gemma", {"<start_of_turn>", "<end_of_turn>"}, &gemma},
    {"deepseek", {"<\xef\xbd\x9cUser\xef\xbd\x9c>", NULL}, NULL}, // with full-width bars
    {"command-r", {"<|START_OF_TURN_TOKEN|>", NULL}, NULL},
    {"granite", {"<|start_of_role|>", NULL}, NULL},
    {"harmony", {"<|channel|>", NULL}, NULL},
    {"phi3", {"<|assistant|>", "<|end|>"}, NULL},
    {"zephyr", {"<|assistant|>", NULL}, NULL},
    {"llama2", {"[INST]", "<<SYS>>"}, NULL},
    {"mistral", {"[INST]", NULL}, NULL},
    {"alpaca", {"### Instruction", NULL}, NULL},
    {"vicuna", {"USER:", "ASSISTANT:"}, NULL},
};

#define KIND_COUNT (sizeof kinds / sizeof *kinds)

static bool contains(gguf_string text, const char *mark)
{
    return memmem(text.data, text.size, mark, strlen(mark)) != NULL;
}

static const chat_kind *find_kind(gguf_string text)
{
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (contains(text, kinds[i].marks[0]) &&
            (!kinds[i].marks[1] || contains(text, kinds[i].marks[1])))
            return &kinds[i];
    return NULL;
}

// --- The default system message: a string literal of the template that holds a whole message.

// One character of a Jinja string literal at text[0]; *length is what it takes.
static char literal_char(gguf_string text, size_t *length)
{
    *length = 1;
    if (text.data[0] != '\\' || text.size < 2)
        return text.data[0];
    *length = 2;
    switch (text.data[1]) {
    case 'n':
        return '\n';
    case 't':
        return '\t';
    default:
        return text.data[1];
    }
}

static gguf_string skip(gguf_string text, size_t bytes)
{
    return (gguf_string){text.data + bytes, text.size - bytes};
}

static bool starts_with(gguf_string text, const char *start)
{
    return text.size >= strlen(start) && memcmp(text.data, start, strlen(start)) == 0;
}

// Reads a literal up to the end of a message. False when the literal ends before.
static bool read_content(gguf_string text, char quote, char *content)
{
    while (text.size > 0 && text.data[0] != quote) {
        size_t length;
        if (starts_with(text, "<|im_end|>")) {
            *content = '\0';
            return true;
        }
        *content++ = literal_char(text, &length);
        text = skip(text, length);
    }
    return false;
}

// Copies the default system message to `content` (room for the whole text and one byte). The first
// literal that begins a system message and also ends it holds one: where a template writes a
// message of the conversation, the literal ends before its content.
static bool find_default_system(gguf_string text, char *content)
{
    static const char head[] = "<|im_start|>system";
    const char *found;
    while ((found = memmem(text.data, text.size, head, sizeof head - 1)) != NULL) {
        const char quote = found > text.data ? found[-1] : '\0';
        size_t length;
        text = skip(text, (size_t)(found - text.data) + sizeof head - 1);
        if ((quote != '\'' && quote != '"') || text.size == 0 ||
            literal_char(text, &length) != '\n')
            continue;
        if (read_content(skip(text, length), quote, content))
            return true;
    }
    return false;
}

// --- Creation

static kvern_status create(const chat_style *style, char *default_system, chat_template **out,
                           engine_error *error)
{
    chat_template *chat = calloc(1, sizeof *chat);
    if (!chat) {
        free(default_system);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
    }
    chat->style = style;
    chat->default_system = default_system;
    *out = chat;
    return KVERN_OK;
}

static kvern_status refuse(const chat_kind *kind, engine_error *error)
{
    if (!kind)
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "this file's chat template is of no known kind; " ADVICE);
    return engine_fail(
        error, KVERN_ERR_UNSUPPORTED,
        "this file's chat template is of the %s kind, which is not supported; " ADVICE, kind->name);
}

bool chat_template_present(const gguf_file *file)
{
    return gguf_find(file, "tokenizer.chat_template") != NULL;
}

kvern_status chat_template_detect(const gguf_file *file, chat_template **out, engine_error *error)
{
    *out = NULL;
    gguf_string text;
    if (!gguf_get_string(gguf_find(file, "tokenizer.chat_template"), &text))
        return engine_fail(error, KVERN_ERR_UNSUPPORTED, "this file has no chat template; " ADVICE);
    const chat_kind *kind = find_kind(text);
    if (!kind || !kind->style)
        return refuse(kind, error);
    char *content = malloc(text.size + 1);
    if (!content)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
    if (!find_default_system(text, content)) {
        free(content);
        content = NULL;
    }
    return create(kind->style, content, out, error);
}

kvern_status chat_template_find(const char *name, chat_template **out, engine_error *error)
{
    *out = NULL;
    char known[128] = "";
    for (size_t i = 0; i < STYLE_COUNT; i++) {
        const size_t used = strlen(known);
        if (strcmp(styles[i]->name, name) == 0)
            return create(styles[i], NULL, out, error);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", styles[i]->name);
    }
    return engine_fail(error, KVERN_ERR_ARGUMENT, "no chat template is named \"%s\"; known are: %s",
                       tokenizer_printable((gguf_string){name, strlen(name)}).text, known);
}

void chat_template_destroy(chat_template *chat)
{
    if (!chat)
        return;
    free(chat->default_system);
    free(chat);
}

const char *const *chat_template_names(void)
{
    static const char *const names[] = {"chatml", NULL};
    return names;
}

const char *chat_template_name(const chat_template *chat)
{
    return chat->style->name;
}

const char *chat_template_default_system(const chat_template *chat)
{
    return chat->default_system;
}
