// SPDX-License-Identifier: MIT
#include "cli/conversation/line_reader.h"

#include "cli/io/descriptor.h"
#include "cli/io/signals.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#define HISTORY_LINES 1000
#define QUOTES "\"\"\""
#define QUOTES_SIZE (sizeof QUOTES - 1)

// While a line is read the terminal marks what is pasted.
#define PASTE_MARKS_ON "\033[?2004h"
#define PASTE_MARKS_OFF "\033[?2004l"
#define PASTE_BEGIN "\033[200~"
#define PASTE_END L"\033[201~"
#define PASTE_END_SIZE 6

struct line_reader {
    EditLine *editor;
    History *history;
    const char *history_path; // NULL: none
    int events;               // cli/io/signals.h
    bool color;
    bool continued;   // the prompt of a further line is due
    bool interrupted; // Ctrl-C ended the wait for a key
    atomic_bool *interrupt;
};

static line_reader *reader_of(EditLine *editor)
{
    line_reader *reader = NULL;
    el_get(editor, EL_CLIENTDATA, &reader);
    return reader;
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

// ---- Keys ----

// What takes no width stands between two of these, as libedit wants it.
#define ESCAPE '\1'

static char *show_prompt(EditLine *editor)
{
    static char first[] = "> ", further[] = "... ";
    // libedit drops what would stand behind the last blank.
    static char dim_first[] = "\1\033[2m\1>\1\033[0m\1 ";
    static char dim_further[] = "\1\033[2m\1...\1\033[0m\1 ";
    const line_reader *reader = reader_of(editor);
    const bool continued = reader && reader->continued;
    if (reader && reader->color) {
        return continued ? dim_further : dim_first;
    }
    return continued ? further : first;
}

// Deals with what signals told. False: Ctrl-C.
static bool take_events(line_reader *reader)
{
    bool interrupted = false;
    signals_event event;
    while ((event = signals_next_event()) != SIGNALS_NONE) {
        if (event == SIGNALS_RESIZE) {
            el_resize(reader->editor);
        } else if (event == SIGNALS_CONTINUE) {
            descriptor_write(STDOUT_FILENO, PASTE_MARKS_ON, sizeof PASTE_MARKS_ON - 1);
            el_set(reader->editor, EL_REFRESH);
        }
        interrupted |= event == SIGNALS_INTERRUPT;
    }
    return !interrupted;
}

// Waits for a key. False: Ctrl-C, or the terminal cannot be waited for.
static bool wait_for_key(line_reader *reader)
{
    struct pollfd sources[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                {.fd = reader->events, .events = POLLIN}};
    for (;;) {
        const int count = poll(sources, 2, -1);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        if (count > 0 && sources[1].revents && !take_events(reader)) {
            reader->interrupted = true;
            return false;
        }
        if (count > 0 && sources[0].revents) {
            return true;
        }
    }
}

// What libedit calls for one character: 1, 0 at the end of the input, -1 to give up.
static int read_key(EditLine *editor, wchar_t *key)
{
    mbstate_t part = {0};
    char byte;
    for (;;) {
        if (!wait_for_key(reader_of(editor))) {
            return -1;
        }
        const ssize_t count = read(STDIN_FILENO, &byte, 1);
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (count <= 0) {
            return 0;
        }
        const size_t bytes = mbrtowc(key, &byte, 1, &part);
        if (bytes == 0 || bytes == 1) {
            return 1;
        }
        if (bytes == (size_t)-1) {
            part = (mbstate_t){0}; // no character: as if it had not been typed
        }
    }
}

// ---- Pasting ----

typedef struct pasted {
    wchar_t *text;
    size_t size, capacity;
} pasted;

static bool add_key(pasted *p, wchar_t key)
{
    if (p->size + 1 >= p->capacity) {
        const size_t capacity = p->capacity ? 2 * p->capacity : 256;
        wchar_t *grown = realloc(p->text, capacity * sizeof *grown);
        if (!grown) {
            return false;
        }
        p->text = grown;
        p->capacity = capacity;
    }
    p->text[p->size++] = key == L'\r' ? L'\n' : key;
    return true;
}

static bool is_complete(const pasted *p)
{
    return p->size >= PASTE_END_SIZE &&
           wmemcmp(p->text + p->size - PASTE_END_SIZE, PASTE_END, PASTE_END_SIZE) == 0;
}

// Leaves out what a terminal would act on, and the newlines at the end, which would be an Enter
// that nobody pressed.
static void clean(pasted *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->size; i++) {
        const wchar_t key = p->text[i];
        if ((key >= L' ' && key != 0x7f) || key == L'\n' || key == L'\t') {
            p->text[kept++] = key;
        }
    }
    while (kept > 0 && p->text[kept - 1] == L'\n') {
        kept--;
    }
    p->text[kept] = 0;
    p->size = kept;
}

// Puts what is pasted into the line, its newlines too. libedit calls it at the beginning mark.
static unsigned char paste(EditLine *editor, int key)
{
    (void)key;
    pasted p = {0};
    wchar_t next;
    bool good = true;
    while (good && !is_complete(&p)) {
        good = el_wgetc(editor, &next) == 1 && add_key(&p, next);
    }
    if (good) {
        p.size -= PASTE_END_SIZE;
        clean(&p);
        good = p.size == 0 || el_winsertstr(editor, p.text) == 0;
    }
    free(p.text);
    return good ? CC_REFRESH : CC_ERROR;
}

// ---- History ----

// libedit writes a file from its beginning: under another name, so that a killed program leaves the
// old one or the new one.
static void save_history(line_reader *reader)
{
    HistEvent event;
    char path[PATH_MAX];
    if (!reader->history_path || snprintf(path, sizeof path, "%s.%ld", reader->history_path,
                                          (long)getpid()) >= (int)sizeof path) {
        return;
    }
    if (history(reader->history, &event, H_SAVE, path) < 0 ||
        rename(path, reader->history_path) != 0) {
        unlink(path);
    }
}

static void remember_line(line_reader *reader, const char *line)
{
    HistEvent event;
    if (line[strspn(line, " \t\n")]) {
        history(reader->history, &event, H_ENTER, line);
        save_history(reader);
    }
}

// ---- Life ----

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
    if (reader->history_path) {
        history(reader->history, &event, H_LOAD, reader->history_path);
    }
    el_set(reader->editor, EL_CLIENTDATA, reader);
    el_set(reader->editor, EL_GETCFN, read_key);
    el_set(reader->editor, EL_EDITOR, "emacs");
    el_set(reader->editor, EL_PROMPT_ESC, show_prompt, ESCAPE);
    el_set(reader->editor, EL_HIST, history, reader->history);
    el_set(reader->editor, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(reader->editor, EL_ADDFN, "kvern-paste", "Insert what is pasted", paste);
    el_source(reader->editor, NULL); // the user's ~/.editrc
    el_set(reader->editor, EL_BIND, PASTE_BEGIN, "kvern-paste", NULL);
    return true;
}

line_reader *line_reader_open(const line_reader_options *options)
{
    choose_locale();
    line_reader *reader = calloc(1, sizeof *reader);
    if (!reader || !signals_watch_terminal(options->interrupt, &reader->events)) {
        free(reader);
        return NULL;
    }
    reader->interrupt = options->interrupt;
    reader->history_path = options->history;
    reader->color = options->color;
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
    signals_unwatch_terminal();
    free(reader);
}

// ---- Lines ----

// One line without its newline; NULL at the end of the input or after Ctrl-C.
static const char *read_typed_line(line_reader *reader, size_t *size)
{
    int count = 0;
    reader->interrupted = false;
    // By itself, libedit shows the prompt first: what is typed in between would be echoed twice,
    // and a Ctrl-D lost.
    el_set(reader->editor, EL_PREP_TERM, 1);
    descriptor_write(STDOUT_FILENO, PASTE_MARKS_ON, sizeof PASTE_MARKS_ON - 1);
    const char *line = el_gets(reader->editor, &count);
    descriptor_write(STDOUT_FILENO, PASTE_MARKS_OFF, sizeof PASTE_MARKS_OFF - 1);
    if (!line || count <= 0) {
        return NULL;
    }
    *size = (size_t)count;
    if (line[*size - 1] == '\n') {
        (*size)--;
    }
    return line;
}

static bool ends_in_quotes(const char *line, size_t size)
{
    return size >= QUOTES_SIZE && memcmp(line + size - QUOTES_SIZE, QUOTES, QUOTES_SIZE) == 0;
}

// Takes a line of a message in. *quoted: it lies between quotes; *more: it goes on.
static kvern_status take_typed_line(text_buffer *message, const char *line, size_t size,
                                    bool *quoted, bool *more)
{
    const bool first = !*more;
    if (first && size >= QUOTES_SIZE && memcmp(line, QUOTES, QUOTES_SIZE) == 0) {
        *quoted = true;
        line += QUOTES_SIZE;
        size -= QUOTES_SIZE;
    }
    if (*quoted) {
        *more = !ends_in_quotes(line, size);
        size -= *more ? 0 : QUOTES_SIZE;
    } else {
        *more = size > 0 && line[size - 1] == '\\';
        size -= *more ? 1 : 0;
    }
    if (*quoted && first && *more && size == 0) {
        return KVERN_OK; // the text begins in the next line
    }
    const kvern_status status = text_buffer_append(message, line, size);
    return status == KVERN_OK && *more ? text_buffer_append(message, "\n", 1) : status;
}

// A newline before the closing quotes does not belong to the text.
static void end_quoted(text_buffer *message)
{
    if (message->size > 0 && message->data[message->size - 1] == '\n') {
        message->size--;
    }
}

line_result line_reader_next(line_reader *reader, text_buffer *message)
{
    bool quoted = false, more = false;
    text_buffer_clear(message);
    reader->continued = false;
    (void)take_events(reader); // those meant for the answer before
    atomic_store(reader->interrupt, false);
    do {
        size_t size;
        const char *line = read_typed_line(reader, &size);
        if (!line) {
            putchar('\n');
            atomic_store(reader->interrupt, false);
            return reader->interrupted ? LINE_INTERRUPTED : LINE_END;
        }
        remember_line(reader, line);
        if (take_typed_line(message, line, size, &quoted, &more) != KVERN_OK) {
            return LINE_NO_MEMORY;
        }
        reader->continued = more;
    } while (more);
    if (quoted) {
        end_quoted(message);
    }
    return quoted ? LINE_QUOTED : LINE_READ;
}
