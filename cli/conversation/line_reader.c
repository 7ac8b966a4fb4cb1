// SPDX-License-Identifier: MIT
#include "cli/conversation/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define HISTORY_LINES 1000

struct line_reader {
    EditLine *editor;
    History *history;
    bool continued;   // the prompt of a further line is due
    bool interrupted; // Ctrl-C ended the wait for a key
    struct sigaction previous;
};

static atomic_bool *interrupt_flag;

// Ctrl-C arrives here as a byte, so that a wait for a key cannot miss it, whichever thread the
// signal was given to, and however shortly before the wait it came.
static int interrupt_pipe[2] = {-1, -1};

static void note_interrupt(int signal_number)
{
    (void)signal_number;
    int reason = errno;
    atomic_store(interrupt_flag, true);
    ssize_t written = write(interrupt_pipe[1], "", 1); // a full pipe says the same
    (void)written;
    errno = reason;
}

static bool take_interrupts(void)
{
    char bytes[64];
    bool any = false;
    while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0) {
        any = true;
    }
    return any;
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

// Waits for a key or Ctrl-C. False: Ctrl-C.
static bool wait_for_key(void)
{
    struct pollfd sources[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = interrupt_pipe[0], .events = POLLIN}};
    while (poll(sources, 2, -1) < 0) {
    }
    return !(sources[1].revents & POLLIN && take_interrupts());
}

// What libedit calls for one character: 1, 0 at the end of the input, -1 to give up.
static int read_key(EditLine *editor, wchar_t *key)
{
    mbstate_t part = {0};
    char byte;
    for (;;) {
        if (!wait_for_key()) {
            line_reader *reader = NULL;
            el_get(editor, EL_CLIENTDATA, &reader);
            reader->interrupted = true;
            return -1;
        }
        ssize_t count = read(STDIN_FILENO, &byte, 1);
        if (count <= 0) {
            return 0;
        }
        size_t bytes = mbrtowc(key, &byte, 1, &part);
        if (bytes == 0 || bytes == 1) {
            return 1;
        }
        if (bytes == (size_t)-1) {
            part = (mbstate_t){0}; // no character: as if it had not been typed
        }
    }
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
    el_set(reader->editor, EL_GETCFN, read_key);
    el_set(reader->editor, EL_EDITOR, "emacs");
    el_set(reader->editor, EL_PROMPT, show_prompt);
    el_set(reader->editor, EL_HIST, history, reader->history);
    el_set(reader->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(reader->editor, NULL); // the user's ~/.editrc
    return true;
}

static bool watch_interrupts(line_reader *reader, atomic_bool *interrupt)
{
    if (pipe2(interrupt_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    interrupt_flag = interrupt;
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &reader->previous);
    return true;
}

line_reader *line_reader_open(atomic_bool *interrupt)
{
    choose_locale();
    line_reader *reader = calloc(1, sizeof *reader);
    if (!reader || !watch_interrupts(reader, interrupt)) {
        free(reader);
        return NULL;
    }
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
    close(interrupt_pipe[0]);
    close(interrupt_pipe[1]);
    free(reader);
}

// One line without its newline; NULL at the end of the input or after Ctrl-C.
static const char *read_line(line_reader *reader, size_t *size)
{
    int count = 0;
    reader->interrupted = false;
    // By itself, libedit shows the prompt first: what is typed in between would be echoed twice,
    // and a Ctrl-D lost.
    el_set(reader->editor, EL_PREP_TERM, 1);
    const char *line = el_gets(reader->editor, &count);
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

line_result line_reader_next(line_reader *reader, text_buffer *message)
{
    text_buffer_clear(message);
    reader->continued = false;
    take_interrupts(); // those meant for the answer before
    atomic_store(interrupt_flag, false);
    for (;;) {
        size_t size;
        const char *line = read_line(reader, &size);
        if (!line) {
            putchar('\n');
            atomic_store(interrupt_flag, false);
            return reader->interrupted ? LINE_INTERRUPTED : LINE_END;
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
