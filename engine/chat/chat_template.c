// SPDX-License-Identifier: MIT
// Where templates come from: the file, or a name.
#include "engine/chat/chat_internal.h"
#include "engine/tokenizer/tokenizer_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ADVICE "choose a --template NAME or --raw"

// The text of a token, copied. *out is NULL when there is none, or no memory (false).
static bool copy_token_text(const tokenizer *tokens, int32_t id, char **out, size_t *bytes)
{
    *out = NULL;
    if (!tokens || id == TOKENIZER_NO_TOKEN)
        return true;
    const tokenizer_text text = tokenizer_piece_special(tokens, id);
    *bytes = text.size;
    *out = malloc(text.size + 1);
    if (*out)
        memcpy(*out, text.data, text.size);
    return *out;
}

static kvern_status create(const char *name, gguf_string source, const tokenizer *tokens,
                           chat_template **out, engine_error *error)
{
    chat_template *chat = calloc(1, sizeof *chat);
    if (!chat ||
        !copy_token_text(tokens, tokens ? tokenizer_bos(tokens) : 0, &chat->bos,
                         &chat->bos_bytes) ||
        !copy_token_text(tokens, tokens ? tokenizer_eos(tokens) : 0, &chat->eos,
                         &chat->eos_bytes)) {
        chat_template_destroy(chat);
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a chat template");
    }
    chat->name = name;
    chat->now = (int64_t)time(NULL);
    const kvern_status status = jinja_parse(source.data, source.size, &chat->program, error);
    if (status != KVERN_OK)
        chat_template_destroy(chat);
    else
        *out = chat;
    return status;
}

static kvern_status create_builtin(const chat_builtin *builtin, const tokenizer *tokens,
                                   chat_template **out, engine_error *error)
{
    const gguf_string source = {builtin->source, strlen(builtin->source)};
    return create(builtin->name, source, tokens, out, error);
}

void chat_template_destroy(chat_template *chat)
{
    if (!chat)
        return;
    jinja_destroy(chat->program);
    free(chat->bos);
    free(chat->eos);
    free(chat);
}

const char *chat_template_name(const chat_template *chat)
{
    return chat->name;
}

void chat_template_set_time(chat_template *chat, int64_t seconds)
{
    chat->now = seconds;
}

// --- By name

kvern_status chat_template_find(const char *name, const tokenizer *tokens, chat_template **out,
                                engine_error *error)
{
    *out = NULL;
    char known[128] = "";
    for (size_t i = 0; i < chat_builtin_count; i++) {
        const size_t used = strlen(known);
        if (strcmp(chat_builtins[i].name, name) == 0)
            return create_builtin(&chat_builtins[i], tokens, out, error);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", chat_builtins[i].name);
    }
    return engine_fail(error, KVERN_ERR_ARGUMENT, "no chat template is named \"%s\"; known are: %s",
                       tokenizer_printable((gguf_string){name, strlen(name)}).text, known);
}

// --- From the file. It is named after the template of ours that writes the same, if one does.

static bool writes_same(const chat_template *chat, const chat_template *other)
{
    static const chat_message probe[] = {
        {"system", " s ", 3}, {"user", " u ", 3}, {"assistant", " a ", 3}, {"user", "v", 1}};
    const size_t count = sizeof probe / sizeof *probe;
    jinja_result ours = {0}, theirs = {0};
    const bool same =
        chat_run(chat, probe, count, count, true, &ours, NULL) == KVERN_OK &&
        chat_run(other, probe, count, count, true, &theirs, NULL) == KVERN_OK &&
        ours.text.size == theirs.text.size &&
        (ours.text.size == 0 || memcmp(ours.text.data, theirs.text.data, ours.text.size) == 0);
    jinja_result_free(&ours);
    jinja_result_free(&theirs);
    return same;
}

static kvern_status name_template(chat_template *chat, const tokenizer *tokens, engine_error *error)
{
    chat->name = "custom";
    for (size_t i = 0; i < chat_builtin_count; i++) {
        chat_template *other;
        const kvern_status status = create_builtin(&chat_builtins[i], tokens, &other, error);
        if (status != KVERN_OK)
            return status;
        if (writes_same(chat, other))
            chat->name = chat_builtins[i].name;
        chat_template_destroy(other);
    }
    return KVERN_OK;
}

bool chat_template_present(const gguf_file *file)
{
    return gguf_find(file, "tokenizer.chat_template") != NULL;
}

kvern_status chat_template_missing(engine_error *error)
{
    return engine_fail(error, KVERN_ERR_UNSUPPORTED, "this file has no chat template; " ADVICE);
}

kvern_status chat_template_detect(const gguf_file *file, const tokenizer *tokens,
                                  chat_template **out, engine_error *error)
{
    *out = NULL;
    gguf_string source;
    if (!gguf_get_string(gguf_find(file, "tokenizer.chat_template"), &source))
        return chat_template_missing(error);
    return chat_template_of_text(source, tokens, out, error);
}

kvern_status chat_template_of_text(text_view source, const tokenizer *tokens, chat_template **out,
                                   engine_error *error)
{
    *out = NULL;
    engine_error fault = {0};
    kvern_status status = create("custom", source, tokens, out, &fault);
    if (status == KVERN_OK)
        status = name_template(*out, tokens, &fault);
    if (status == KVERN_OK)
        return KVERN_OK;
    chat_template_destroy(*out);
    *out = NULL;
    return engine_fail(error, status, "%s%s", fault.text,
                       status == KVERN_ERR_UNSUPPORTED ? "; " ADVICE : "");
}
