// SPDX-License-Identifier: MIT
#include "cli/conversation/converse.h"

#include "cli/conversation/line_reader.h"
#include "cli/io/report.h"
#include "cli/options/prompt.h"

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

// The tokens that the cache lacks: the end of the last answer, the new message, the prompt of the
// next answer.
static kvern_status encode_turn(const conversation *talk, token_buffer *out, engine_error *error)
{
    const run_session *session = talk->session;
    const tokenizer *tokens = model_tokenizer(session->loaded.model);
    if (session->chat) {
        return prompt_encode_chat(tokens, session->chat, talk->messages, talk->count,
                                  talk->forwarded, out, error);
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

static kvern_status start_again(conversation *talk, engine_error *error)
{
    forget_messages(talk, talk->opening);
    talk->forwarded = 0;
    return generator_reset(talk->session->generator, error);
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

// ---- What is typed ----

static const char COMMANDS[] = "/clear   forgets everything said so far\n"
                               "/help    shows this list\n"
                               "//TEXT   sends /TEXT, a message that begins with a slash\n"
                               "\\        at the end of a line: it goes on in the next one\n"
                               "Ctrl-C   ends the running answer\n"
                               "Ctrl-D   on an empty line: ends the conversation\n";

// Whether a line is this command; blanks behind it do not count.
static bool is_command(const text_buffer *line, const char *command)
{
    size_t size = line->size;
    while (size > 0 && line->data[size - 1] == ' ') {
        size--;
    }
    return size == strlen(command) && memcmp(line->data, command, size) == 0;
}

static kvern_status take_command(conversation *talk, const text_buffer *line, engine_error *error)
{
    if (is_command(line, "/clear")) {
        return start_again(talk, error);
    }
    if (!is_command(line, "/help")) {
        fputs("(there is no such command, and nothing was sent)\n", stderr);
    }
    fputs(COMMANDS, stderr);
    return KVERN_OK;
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

// Carries out one line, which is not empty. One slash begins a command, two a message that begins
// with one. False: the program has to end, a failure was reported.
static bool take_line(conversation *talk, const text_buffer *line)
{
    engine_error error;
    kvern_status status;
    const bool slash = line->data[0] == '/';
    const bool doubled = slash && line->size > 1 && line->data[1] == '/';
    if (slash && !doubled) {
        status = take_command(talk, line, &error);
    } else {
        status = take_message(talk, line->data + doubled, line->size - doubled, &error);
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
    bool going = true;
    while (going && result != LINE_END && result != LINE_NO_MEMORY) {
        result = line_reader_next(reader, &line);
        if (result == LINE_INTERRUPTED) {
            fputs("(Ctrl-D ends the conversation)\n", stderr);
        } else if (result == LINE_READ && line.size > 0) {
            going = take_line(talk, &line);
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
    const char *system = talk->session->options->system;
    if (system && !add_message(talk, "system", system, strlen(system))) {
        return report_error("no memory for the conversation");
    }
    talk->opening = talk->count;
    line_reader *reader = line_reader_open(&talk->session->cancel);
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
