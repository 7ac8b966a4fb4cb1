// SPDX-License-Identifier: MIT
// kvern tokenize: text to tokens.

#include "cli/commands/command.h"
#include "cli/io/json.h"
#include "cli/io/report.h"
#include "cli/io/text.h"
#include "cli/options/prompt.h"
#include "cli/session/model_loading.h"

#include <stdio.h>

static error_t parse_tokenize(int key, char *argument, struct argp_state *state)
{
    (void)argument;
    switch (key) {
    case ARGP_KEY_END:
        if (prompt_is_missing(state->input)) {
            options_fail(state, "no text given: use -p TEXT, -f FILE or standard input");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child TOKENIZE_CHILDREN[] = {{.argp = &options_model_argp},
                                                      {.argp = &options_text_argp},
                                                      {.argp = &options_template_argp},
                                                      {.argp = &options_json_argp},
                                                      {0}};

static const struct argp TOKENIZE_ARGP = {
    .parser = parse_tokenize,
    .args_doc = "MODEL",
    .doc = "Shows the tokens of a text: one per line, its number, a tab, and what it stands for."
           "\v"
           "  kvern tokenize MODEL -p \"some text\"\n"
           "  kvern tokenize MODEL -f FILE --json\n\n"
           "Without -p and -f the text is standard input. It is used as it is, control "
           "tokens recognised, unless --template says otherwise. In the list a backslash begins an "
           "escape: \\n, \\t, \\r, \\\\, or \\xHH for any other control character and for bytes "
           "that are part of a character only. --json gives "
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

static int tokenize(const cli_options *options, const tokenizer *tokens)
{
    engine_error error;
    text_buffer text = TEXT_BUFFER_INIT;
    token_buffer ids = TOKEN_BUFFER_INIT;
    kvern_status status = prompt_read(options, &text, &error);
    if (status == KVERN_OK) {
        status = prompt_encode_plain(options, tokens, &text, &ids, &error);
    }
    int code = status != KVERN_OK ? report_engine_error(&error)
               : options->json    ? print_tokens_json(tokens, &ids)
                                  : print_token_lines(tokens, &ids);
    token_buffer_free(&ids);
    text_buffer_free(&text);
    return code;
}

static int run_tokenize(int argc, char **argv)
{
    cli_options options = {0};
    options_parse(&TOKENIZE_ARGP, argc, argv, &options);
    engine_error error;
    tokenizer *tokens;
    if (open_tokenizer(&options, &tokens, &error) != KVERN_OK) {
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
