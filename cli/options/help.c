// SPDX-License-Identifier: MIT
#include "cli/options/help.h"

#include <stdbool.h>
#include <string.h>

#define COLUMNS 80
#define DOC_COLUMN 30

// Prints the words of a line; all but its first words begin at `indent`. `column` is where it is.
static void fill_line(FILE *out, const char *text, size_t bytes, int indent, int column)
{
    bool first = true;
    while (bytes > 0) {
        const char *space = memchr(text, ' ', bytes);
        const size_t word = space ? (size_t)(space - text) : bytes;
        if (!first && column + 1 + (int)word >= COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)word, text);
        column += (int)word;
        first = false;
        text += word + (space ? 1 : 0);
        bytes -= word + (space ? 1 : 0);
    }
    fputc('\n', out);
}

void help_fill(FILE *out, const char *text, size_t bytes)
{
    while (bytes > 0) {
        const char *newline = memchr(text, '\n', bytes);
        const size_t line = newline ? (size_t)(newline - text) : bytes;
        if (line > 0 && text[0] == ' ') {
            fprintf(out, "%.*s\n", (int)line, text);
        } else {
            fill_line(out, text, line, 0, 0);
        }
        text += line + (newline ? 1 : 0);
        bytes -= line + (newline ? 1 : 0);
    }
}

static bool is_letter(int key)
{
    return key > ' ' && key < 127;
}

static void print_option(FILE *out, const struct argp_option *option)
{
    char left[80];
    const char *arg = option->arg ? option->arg : "";
    const char *equals = option->arg ? "=" : "";
    if (is_letter(option->key)) {
        snprintf(left, sizeof left, "  -%c, --%s%s%s", option->key, option->name, equals, arg);
    } else {
        snprintf(left, sizeof left, "      --%s%s%s", option->name, equals, arg);
    }
    int column = fprintf(out, "%s", left);
    if (column > DOC_COLUMN - 2) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", DOC_COLUMN - column, "");
    fill_line(out, option->doc, strlen(option->doc), DOC_COLUMN, DOC_COLUMN);
}

static bool is_shown(const struct argp_option *option)
{
    return option->name && !(option->flags & OPTION_HIDDEN);
}

// The options of a group, below its heading if the group before had another one.
static void print_group(FILE *out, const struct argp_option *options, const char *heading,
                        const char **before)
{
    for (const struct argp_option *o = options; o && (o->name || o->key); o++) {
        if (!is_shown(o)) {
            continue;
        }
        if (!*before || strcmp(*before, heading) != 0) {
            fprintf(out, "\n%s:\n", heading);
            *before = heading;
        }
        print_option(out, o);
    }
}

void help_print(FILE *out, const char *title, const struct argp *command)
{
    static const struct argp_option HELP[] = {{.name = "help", .key = 'h', .doc = "Show this help"},
                                              {0}};
    const char *before = NULL, *doc = command->doc, *rest = strchr(doc, '\v');
    fprintf(out, "Usage: %s [OPTION...]%s%s\n\n", title, command->args_doc ? " " : "",
            command->args_doc ? command->args_doc : "");
    help_fill(out, doc, rest ? (size_t)(rest - doc) : strlen(doc));
    print_group(out, command->options, "Options", &before);
    for (const struct argp_child *c = command->children; c && c->argp; c++) {
        print_group(out, c->argp->options, c->argp->doc ? c->argp->doc : "Options", &before);
    }
    print_group(out, HELP, before ? before : "Options", &before);
    if (rest) {
        fputc('\n', out);
        help_fill(out, rest + 1, strlen(rest + 1));
    }
}
