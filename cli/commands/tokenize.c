// SPDX-License-Identifier: MIT
// kvern tokenize: text to tokens.

#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/report.h"
#include "cli/io/text.h"
#include "cli/options/prompt.h"
#include "cli/session/model_loading.h"

#include <stdbool.h>
#include <stdio.h>

enum { KEY_NO_CONTROL = OPTIONS_KEY_COMMAND };

typedef struct tokenize_options {
    cli_options common;
    bool no_control; // --no-control was given
} tokenize_options;

static void check_tokenize(struct argp_state *state, const tokenize_options *options)
{
    if (options->no_control && (options->common.raw || options->common.template_name)) {
        options_fail(state, "--no-control cannot be used with --raw or --template");
    }
    if (prompt_is_missing(&options->common)) {
        options_fail(state, "no text given: use -p TEXT, -f FILE or standard input");
    }
}

static error_t parse_tokenize(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    tokenize_options *options = state->input;
    switch (key) {
    case KEY_NO_CONTROL:
        options->no_control = true;
        return 0;
    case ARGP_KEY_END:
        check_tokenize(state, options);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option TOKENIZE_OPTIONS[] = {
    {.name = "no-control",
     .key = KEY_NO_CONTROL,
     .doc = "Control tokens in the text are characters, as kvern eval reads a text"},
    {0}};

static const struct argp_child TOKENIZE_CHILDREN[] = {{.argp = &options_model_argp},
                                                      {.argp = &options_text_argp},
                                                      {.argp = &options_template_argp},
                                                      {.argp = &options_json_argp},
                                                      {0}};

static const struct argp TOKENIZE_ARGP = {
    .options = TOKENIZE_OPTIONS,
    .parser = parse_tokenize,
    .args_doc = "MODEL",
    .doc = "Shows the tokens of a text: one per line, its number, a tab, and what it stands for."
           "\v"
           "  kvern tokenize MODEL -p \"some text\"\n"
           "  kvern tokenize MODEL -f FILE --json\n\n"
           "Without -p and -f the text is standard input. It is used as it is, control "
           "tokens recognised, unless --template or --no-control says otherwise. In the list a "
           "backslash begins an escape: \\n, \\t, \\r, \\\\, or \\xHH for any other control "
           "character and for bytes that are part of a character only. --json gives "
           "{\"tokens\":[{\"id\":1,\"text\":\"a\"}]}, such bytes shown as U+FFFD.",
    .children = TOKENIZE_CHILDREN,
};

static int print_token_lines(const tokenizer *tokens, const token_buffer *ids)
{
    text_buffer line = TEXT_BUFFER_INIT;
    int code = CLI_SUCCESS;
    for (size_t i = 0; i < ids->count && code == CLI_SUCCESS; i++) {
        tokenizer_text piece = tokenizer_piece_special(tokens, ids->ids[i]);
        text_buffer_clear(&line);
        if (text_append_escaped(&line, piece.data, piece.size) != KVERN_OK) {
            code = report_error("no memory for a line");
        } else if (printf("%d\t%.*s\n", (int)ids->ids[i], (int)line.size,
                          line.data ? line.data : "") < 0) {
            code = CLI_FAILURE; // reported at the end of the process
        }
    }
    text_buffer_free(&line);
    return code;
}

static int print_tokens_json(const tokenizer *tokens, const token_buffer *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < ids->count; i++) {
        tokenizer_text piece = tokenizer_piece_special(tokens, ids->ids[i]);
        json_t *token = json_pack("{s:i, s:o}", "id", (int)ids->ids[i], "text",
                                  json_text(piece.data, piece.size));
        if (json_array_append_new(list, token) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    return json_print(json_pack("{s:o}", "tokens", list));
}

static kvern_status open_tokenizer(const cli_options *options, tokenizer **out, engine_error *error)
{
    model_texts texts;
    kvern_status status = model_texts_open_path(options->model, &texts, error);
    if (status != KVERN_OK) {
        return status;
    }
    status =
        load_name_file(options, model_texts_tokenizer(&texts, options->pre, out, error), error);
    model_texts_free(&texts);
    return status;
}

static kvern_status encode(const tokenize_options *options, const tokenizer *tokens,
                           text_buffer *text, token_buffer *ids, engine_error *error)
{
    if (options->no_control) {
        return tokenizer_encode(tokens, text->data ? text->data : "", text->size, TOKENIZER_ADD_BOS,
                                ids, error);
    }
    return prompt_encode_plain(&options->common, tokens, text, ids, error);
}

static int tokenize(const tokenize_options *options, const tokenizer *tokens)
{
    engine_error error;
    text_buffer text = TEXT_BUFFER_INIT;
    token_buffer ids = TOKEN_BUFFER_INIT;
    kvern_status status = prompt_read(&options->common, &text, &error);
    if (status == KVERN_OK) {
        status = encode(options, tokens, &text, &ids, &error);
    }
    int code = status != KVERN_OK     ? report_engine_error(&error)
               : options->common.json ? print_tokens_json(tokens, &ids)
                                      : print_token_lines(tokens, &ids);
    token_buffer_free(&ids);
    text_buffer_free(&text);
    return code;
}

static int run_tokenize(int argc, char **argv)
{
    tokenize_options options = {0};
    options_parse(&TOKENIZE_ARGP, argc, argv, &options.common);
    engine_error error;
    tokenizer *tokens;
    if (open_tokenizer(&options.common, &tokens, &error) != KVERN_OK) {
        return report_engine_error(&error);
    }
    int code = tokenize(&options, tokens);
    tokenizer_destroy(tokens);
    return code;
}

const command command_tokenize = {
    .name = "tokenize",
    .title = "kvern tokenize",
    .summary = "show the tokens of a text",
    .run = run_tokenize,
};
