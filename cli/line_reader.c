// SPDX-License-Identifier: MIT
#include "cli/line_reader.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HISTORY_LINES 1000

struct line_reader {
    EditLine *editor;
    History *history;
    bool continued; // the prompt of a further line is due
    struct sigaction previous;
};

static atomic_bool *interrupt_flag;

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    atomic_store(interrupt_flag, true);
}

// While a line is read, Ctrl-C has to break into the wait for a key; at any other time it must not
// make a write fail.
static void watch_interrupt(bool breaks_reads, struct sigaction *previous)
{
    struct sigaction action = {.sa_handler = note_interrupt,
                               .sa_flags = breaks_reads ? 0 : SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, previous);
}

// Models speak UTF-8, so the keyboard should too. Only the character type changes: numbers keep
// their decimal point.
static void choose_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
}

static char *show_prompt(EditLine *editor)
{
    static char first[] = "> ", further[] = "... ";
    line_reader *reader = NULL;
    el_get(editor, EL_CLIENTDATA, &reader);
    return reader && reader->continued ? further : first;
}

static bool set_up(line_reader *reader)
{
    HistEvent event;
    reader->history = history_init();
    reader->editor = el_init("kvern", stdin, stdout, stderr);
    if (!reader->history || !reader->editor) {
        return false;
    }
    history(reader->history, &event, H_SETSIZE, HISTORY_LINES);
    history(reader->history, &event, H_SETUNIQUE, 1);
    el_set(reader->editor, EL_CLIENTDATA, reader);
    el_set(reader->editor, EL_EDITOR, "emacs");
    el_set(reader->editor, EL_PROMPT, show_prompt);
    el_set(reader->editor, EL_HIST, history, reader->history);
    el_set(reader->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(reader->editor, NULL); // the user's ~/.editrc
    return true;
}

line_reader *line_reader_open(atomic_bool *interrupt)
{
    choose_locale();
    line_reader *reader = calloc(1, sizeof *reader);
    if (!reader) {
        return NULL;
    }
    interrupt_flag = interrupt;
    watch_interrupt(false, &reader->previous);
    if (!set_up(reader)) {
        line_reader_close(reader);
        return NULL;
    }
    return reader;
}

void line_reader_close(line_reader *reader)
{
    if (!reader) {
        return;
    }
    if (reader->editor) {
        el_end(reader->editor);
    }
    if (reader->history) {
        history_end(reader->history);
    }
    sigaction(SIGINT, &reader->previous, NULL);
    free(reader);
}

// One line without its newline; NULL with errno EINTR after Ctrl-C.
static const char *read_line(line_reader *reader, size_t *size)
{
    int count = 0;
    errno = 0;
    watch_interrupt(true, NULL);
    const char *line = el_gets(reader->editor, &count);
    int reason = errno;
    watch_interrupt(false, NULL);
    errno = count < 0 ? reason : 0;
    if (!line || count <= 0) {
        return NULL;
    }
    *size = (size_t)count;
    if (line[*size - 1] == '\n') {
        (*size)--;
    }
    return line;
}

static void remember(line_reader *reader, const char *line)
{
    HistEvent event;
    if (line[strspn(line, " \t\n")]) {
        history(reader->history, &event, H_ENTER, line);
    }
}

static line_result end_of_input(void)
{
    bool interrupted = errno == EINTR && atomic_exchange(interrupt_flag, false);
    putchar('\n');
    fflush(stdout);
    return interrupted ? LINE_INTERRUPTED : LINE_END;
}

line_result line_reader_next(line_reader *reader, text_buffer *message)
{
    text_buffer_clear(message);
    reader->continued = false;
    atomic_store(interrupt_flag, false);
    for (;;) {
        size_t size;
        const char *line = read_line(reader, &size);
        if (!line) {
            return end_of_input();
        }
        remember(reader, line);
        reader->continued = size > 0 && line[size - 1] == '\\';
        if (text_buffer_append(message, line, reader->continued ? size - 1 : size) != KVERN_OK ||
            (reader->continued && text_buffer_append(message, "\n", 1) != KVERN_OK)) {
            return LINE_NO_MEMORY;
        }
        if (!reader->continued) {
            return LINE_READ;
        }
    }
}
