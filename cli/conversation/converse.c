// SPDX-License-Identifier: MIT
#include "cli/conversation/converse.h"

#include "cli/conversation/conversation_file.h"
#include "cli/conversation/history_file.h"
#include "cli/conversation/line_reader.h"
#include "cli/conversation/rows_file.h"
#include "cli/io/nearest.h"
#include "cli/io/report.h"
#include "cli/options/prompt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The conversation so far. Contents are owned.
typedef struct conversation {
    run_session *session;
    chat_message *messages;
    size_t count, capacity;
    size_t forwarded; // messages whose tokens are in the cache
    size_t opening;   // messages that are there before the first one is typed: the system message
} conversation;

static bool add_message(conversation *talk, const char *role, const char *content, size_t bytes)
{
    if (talk->count == talk->capacity) {
        size_t capacity = talk->capacity ? talk->capacity * 2 : 16;
        chat_message *grown = realloc(talk->messages, capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        talk->messages = grown;
        talk->capacity = capacity;
    }
    char *copy = malloc(bytes + 1);
    if (!copy) {
        return false;
    }
    if (bytes) {
        memcpy(copy, content, bytes);
    }
    copy[bytes] = 0;
    talk->messages[talk->count++] = (chat_message){role, copy, bytes};
    return true;
}

static void forget_messages(conversation *talk, size_t keep)
{
    while (talk->count > keep) {
        free((char *)talk->messages[--talk->count].content);
    }
}

// Of the tokens of a whole conversation, those that the cache has already are left out.
static kvern_status skip_known(conversation *talk, token_buffer *tokens, engine_error *error)
{
    size_t known;
    talk->forwarded = 0;
    kvern_status status =
        generator_rewind(talk->session->generator, tokens->ids, tokens->count, &known, error);
    if (status == KVERN_OK) {
        tokens->count -= known;
        memmove(tokens->ids, tokens->ids + known, tokens->count * sizeof *tokens->ids);
    }
    return status;
}

// The tokens that the cache lacks: the end of the last answer, the new message, the prompt of the
// next answer.
static kvern_status encode_turn(conversation *talk, token_buffer *out, engine_error *error)
{
    const run_session *session = talk->session;
    const tokenizer *tokens = model_tokenizer(session->loaded.model);
    if (session->chat) {
        bool whole;
        kvern_status status = prompt_encode_chat(tokens, session->chat, talk->messages, talk->count,
                                                 talk->forwarded, out, &whole, error);
        // A template may write past answers otherwise than they were given.
        return status == KVERN_OK && whole ? skip_known(talk, out, error) : status;
    }
    const chat_message *message = &talk->messages[talk->count - 1];
    text_buffer text = {(char *)message->content, message->content_bytes, 0};
    return prompt_encode_raw(tokens, &text, talk->forwarded == 0, out, error);
}

// Answers the newest message, which is taken back when it never reached the cache.
static kvern_status answer_turn(conversation *talk, engine_error *error)
{
    run_session *session = talk->session;
    token_buffer prompt = TOKEN_BUFFER_INIT;
    kvern_status status = encode_turn(talk, &prompt, error);
    if (status == KVERN_OK) {
        status = session_answer(session, &prompt, error);
    } else {
        session->last = (generate_result){0};
    }
    token_buffer_free(&prompt);
    if (session->last.prompt_tokens == 0) {
        forget_messages(talk, talk->count - 1);
        return status;
    }
    talk->forwarded = talk->count + 1;
    if (!add_message(talk, "assistant", session->answer.data, session->answer.size)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the conversation");
    }
    return status;
}

// Nothing of it is in the cache any more; the messages stay.
static kvern_status forget_cache(conversation *talk, engine_error *error)
{
    talk->forwarded = 0;
    return generator_reset(talk->session->generator, error);
}

static kvern_status start_again(conversation *talk, engine_error *error)
{
    forget_messages(talk, talk->opening);
    return forget_cache(talk, error);
}

static void explain_end(const run_session *session)
{
    if (session->last.reason == GENERATE_CONTEXT) {
        fputs("(the context is full; /clear begins a new conversation)\n", stderr);
    } else if (session->last.reason == GENERATE_CANCELLED) {
        fputs("(cancelled)\n", stderr);
    } else if (session->last.reason == GENERATE_MAX_TOKENS) {
        fputs("(the answer reached -n)\n", stderr);
    }
}

// ---- Commands ----

typedef struct talk_command {
    const char *name;
    const char *argument; // what --help calls it; NULL: it takes none
    const char *summary;
    // *over: the conversation ends.
    kvern_status (*run)(conversation *talk, const char *argument, bool *over, engine_error *error);
} talk_command;

static kvern_status talk_clear(conversation *talk, const char *argument, bool *over,
                               engine_error *error)
{
    (void)argument;
    (void)over;
    return start_again(talk, error);
}

static kvern_status talk_exit(conversation *talk, const char *argument, bool *over,
                              engine_error *error)
{
    (void)talk;
    (void)argument;
    (void)error;
    *over = true;
    return KVERN_OK;
}

// With a template the cache goes back as far as it has to.
static kvern_status talk_regen(conversation *talk, const char *argument, bool *over,
                               engine_error *error)
{
    (void)argument;
    (void)over;
    if (talk->count < talk->opening + 2) {
        fputs("(there is no answer yet)\n", stderr);
        return KVERN_OK;
    }
    forget_messages(talk, talk->count - 1);
    kvern_status status = talk->session->chat ? KVERN_OK : forget_cache(talk, error);
    talk->forwarded = 0;
    if (status == KVERN_OK) {
        status = answer_turn(talk, error);
    }
    if (status == KVERN_OK) {
        explain_end(talk->session);
    }
    return status;
}

// Whether the template can write a conversation that begins with this system message.
static kvern_status check_system(const conversation *talk, const char *system, engine_error *error)
{
    const chat_message messages[2] = {{"system", system, strlen(system)}, {"user", "?", 1}};
    token_buffer tokens = TOKEN_BUFFER_INIT;
    if (!talk->session->chat) {
        return engine_fail(
            error, KVERN_ERR_UNSUPPORTED,
            "a system message needs a chat template, and this conversation has none");
    }
    kvern_status status =
        prompt_encode_chat(model_tokenizer(talk->session->loaded.model), talk->session->chat,
                           messages, 2, 0, &tokens, NULL, error);
    token_buffer_free(&tokens);
    return status;
}

// Puts a message at the beginning, or takes it away again.
static kvern_status set_opening(conversation *talk, const char *system, engine_error *error)
{
    const size_t before = talk->opening, after = system[0] ? 1 : 0;
    chat_message added = {0};
    if (after > 0) {
        if (!add_message(talk, "system", system, strlen(system))) {
            return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the conversation");
        }
        added = talk->messages[--talk->count];
    }
    if (before > 0) {
        free((char *)talk->messages[0].content);
    }
    if (talk->count > before) { // with one more than before there is room for it
        memmove(talk->messages + after, talk->messages + before,
                (talk->count - before) * sizeof *talk->messages);
    }
    if (after > 0) {
        talk->messages[0] = added;
    }
    talk->count = talk->count - before + after;
    talk->opening = after;
    return forget_cache(talk, error);
}

static kvern_status talk_system(conversation *talk, const char *argument, bool *over,
                                engine_error *error)
{
    (void)over;
    kvern_status status = argument[0] ? check_system(talk, argument, error) : KVERN_OK;
    return status == KVERN_OK ? set_opening(talk, argument, error) : status;
}

static kvern_status name_a_file(engine_error *error)
{
    return engine_fail(error, KVERN_ERR_ARGUMENT, "/save and /load take the name of a file");
}

static kvern_status talk_save(conversation *talk, const char *argument, bool *over,
                              engine_error *error)
{
    (void)over;
    kvern_status status = argument[0]
                              ? conversation_save(argument, talk->messages, talk->count, error)
                              : name_a_file(error);
    if (status == KVERN_OK) {
        fprintf(stderr, "(messages in the file: %zu)\n", talk->count);
    }
    return status;
}

static bool add_loaded(void *user, const char *role, const char *content, size_t bytes)
{
    return add_message(user, role, content, bytes);
}

static bool begins_with_system(const conversation *talk)
{
    return talk->count > 0 && strcmp(talk->messages[0].role, "system") == 0;
}

// A row of a file is the sequence now, and the conversation begins anew: of the next prompt what it
// has in common with the row's tokens is not computed. A text without a template goes on behind it.
static kvern_status load_rows(conversation *talk, const char *path, engine_error *error)
{
    int64_t positions;
    kvern_status status = rows_file_load(path, talk->session, &positions, error);
    if (status == KVERN_OK) {
        forget_messages(talk, talk->opening);
        talk->forwarded = talk->session->chat ? 0 : 1;
        fprintf(stderr, "(tokens from the file: %" PRId64 ")\n", positions);
    }
    return status;
}

// The conversation of a file goes on. On failure the present one does.
static kvern_status talk_load(conversation *talk, const char *argument, bool *over,
                              engine_error *error)
{
    (void)over;
    if (!argument[0]) {
        return name_a_file(error);
    }
    if (rows_file_is(argument)) {
        return load_rows(talk, argument, error);
    }
    conversation loaded = {.session = talk->session};
    kvern_status status = conversation_load(argument, add_loaded, &loaded, error);
    if (status == KVERN_OK && !talk->session->chat) {
        status = engine_fail(error, KVERN_ERR_UNSUPPORTED,
                             "going on with a conversation needs a chat template");
    }
    if (status == KVERN_OK) {
        status = forget_cache(talk, error);
    }
    if (status == KVERN_OK) {
        loaded.opening = begins_with_system(&loaded);
        const conversation present = *talk;
        *talk = loaded;
        loaded = present;
        fprintf(stderr, "(messages from the file: %zu)\n", talk->count);
    }
    forget_messages(&loaded, 0);
    free(loaded.messages);
    return status;
}

static kvern_status talk_help(conversation *talk, const char *argument, bool *over,
                              engine_error *error);

static const talk_command COMMANDS[] = {
    {"/clear", NULL, "forgets everything said so far", talk_clear},
    {"/regen", NULL, "answers the last message once more", talk_regen},
    {"/system", "TEXT", "changes the system message; without TEXT there is none", talk_system},
    {"/save", "FILE", "writes the conversation to a file", talk_save},
    {"/load", "FILE", "goes on with the conversation of a file, or its rows", talk_load},
    {"/help", NULL, "shows this list", talk_help},
    {"/exit", NULL, "ends the conversation, as do /quit and /bye", talk_exit},
    {"/quit", NULL, NULL, talk_exit},
    {"/bye", NULL, NULL, talk_exit},
};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])

static const char KEYS[] = "  //TEXT        sends /TEXT, a message that begins with a slash\n"
                           "  \"\"\"           begins a message of several lines, and ends it\n"
                           "  \\             at the end of a line: it goes on in the next one\n"
                           "  Ctrl-C        ends the running answer\n"
                           "  Ctrl-D        on an empty line: ends the conversation\n";

static kvern_status talk_help(conversation *talk, const char *argument, bool *over,
                              engine_error *error)
{
    (void)talk;
    (void)argument;
    (void)over;
    (void)error;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const talk_command *c = &COMMANDS[i];
        if (c->summary) {
            const int width = fprintf(stderr, "  %s %s", c->name, c->argument ? c->argument : "");
            fprintf(stderr, "%*s%s\n", 16 - width, "", c->summary);
        }
    }
    fputs(KEYS, stderr);
    return KVERN_OK;
}

static kvern_status refuse_command(const char *word, engine_error *error)
{
    const char *names[COMMAND_COUNT];
    char list[80] = "";
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = COMMANDS[i].name;
        if (COMMANDS[i].summary) {
            const size_t length = strlen(list);
            snprintf(list + length, sizeof list - length, "%s%s", length > 0 ? ", " : "", names[i]);
        }
    }
    const char *meant = nearest_name(word, names, COMMAND_COUNT);
    return engine_fail(
        error, KVERN_ERR_ARGUMENT,
        "unknown command '%.40s'%s%s; nothing was sent (there are %s; //TEXT sends a "
        "message that begins with a slash)",
        word, meant ? ", did you mean " : "", meant ? meant : "", list);
}

// Carries out a line such as "/system Be brief." Blanks at its end do not count.
static kvern_status take_command(conversation *talk, char *line, bool *over, engine_error *error)
{
    size_t size = strlen(line);
    while (size > 0 && line[size - 1] == ' ') {
        line[--size] = 0;
    }
    char *argument = line + strcspn(line, " ");
    if (*argument) {
        *argument++ = 0;
        argument += strspn(argument, " ");
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const talk_command *c = &COMMANDS[i];
        if (strcmp(c->name, line) != 0) {
            continue;
        }
        if (!c->argument && argument[0]) {
            return engine_fail(error, KVERN_ERR_ARGUMENT,
                               "%s takes no argument, and nothing was sent", c->name);
        }
        return c->run(talk, argument, over, error);
    }
    return refuse_command(line, error);
}

// ---- What is typed ----

// Whether somebody wants to leave who does not know how.
static bool is_farewell(const char *text)
{
    return strcmp(text, "exit") == 0 || strcmp(text, "quit") == 0;
}

static kvern_status take_message(conversation *talk, const char *text, size_t bytes,
                                 engine_error *error)
{
    if (!add_message(talk, "user", text, bytes)) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the conversation");
    }
    kvern_status status = answer_turn(talk, error);
    if (status == KVERN_OK) {
        explain_end(talk->session);
    }
    return status;
}

// Carries out one message, which is not empty. One slash begins a command, two a message that
// begins with one. False: the program has to end, a failure was reported.
static bool take_typed(conversation *talk, text_buffer *line, bool quoted, bool *over)
{
    engine_error error;
    kvern_status status = text_buffer_append(line, "", 1); // so that it is a string
    const bool slash = !quoted && line->data[0] == '/';
    const bool doubled = slash && line->data[1] == '/';
    if (status != KVERN_OK) {
        status = engine_fail(&error, status, "no memory for a line");
    } else if (slash && !doubled) {
        status = take_command(talk, line->data, over, &error);
    } else if (!quoted && is_farewell(line->data)) {
        fprintf(
            stderr,
            "(nothing was sent; /exit or Ctrl-D ends the conversation, \"\"\"%s\"\"\" sends the "
            "word)\n",
            line->data);
    } else {
        status = take_message(talk, line->data + doubled, line->size - 1 - doubled, &error);
    }
    if (status != KVERN_OK) {
        report_engine_error(&error); // a message that is too long is no reason to end
    }
    if (status == KVERN_ERR_RANGE) {
        fputs("(this message was forgotten; /clear begins a new conversation)\n", stderr);
    }
    return !talk->session->write_failed;
}

static int talk_on(conversation *talk, line_reader *reader)
{
    text_buffer line = TEXT_BUFFER_INIT;
    line_result result = LINE_READ;
    bool going = true, over = false;
    while (going && !over && result != LINE_END && result != LINE_NO_MEMORY) {
        result = line_reader_next(reader, &line);
        if (result == LINE_INTERRUPTED) {
            fputs("(Ctrl-D or /exit ends the conversation)\n", stderr);
        } else if ((result == LINE_READ || result == LINE_QUOTED) && line.size > 0) {
            going = take_typed(talk, &line, result == LINE_QUOTED, &over);
        }
    }
    text_buffer_free(&line);
    if (result == LINE_NO_MEMORY) {
        return report_error("no memory for a line");
    }
    return going ? CLI_SUCCESS : CLI_FAILURE;
}

static int talk_in_terminal(conversation *talk)
{
    char history[PATH_MAX];
    const session_options *options = talk->session->options;
    const char *system = options->system;
    if (system && !add_message(talk, "system", system, strlen(system))) {
        return report_error("no memory for the conversation");
    }
    talk->opening = talk->count;
    const line_reader_options wanted = {
        .interrupt = &talk->session->cancel,
        .history = !options->no_history && history_file_path(history) ? history : NULL,
        .color = report_color()};
    line_reader *reader = line_reader_open(&wanted);
    int code = reader ? talk_on(talk, reader) : report_error("the terminal cannot be used");
    line_reader_close(reader);
    return code;
}

int converse(run_session *session)
{
    conversation talk = {.session = session};
    int code = talk_in_terminal(&talk);
    forget_messages(&talk, 0);
    free(talk.messages);
    if (code == CLI_SUCCESS && !session->options->common.quiet) {
        session_print_facts(session);
    }
    return code;
}
