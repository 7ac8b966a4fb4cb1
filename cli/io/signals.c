// SPDX-License-Identifier: MIT
#include "cli/io/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

typedef struct watched {
    int number;
    void (*handler)(int);
    struct sigaction previous;
} watched;

// Installs a handler unless the signal is ignored.
static void watch(watched *w, int flags)
{
    struct sigaction action = {.sa_handler = w->handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGTTOU); // a handler may change the terminal from the background
    sigaction(w->number, &action, &w->previous);
    if (w->previous.sa_handler == SIG_IGN) {
        sigaction(w->number, &w->previous, NULL);
    }
}

static void watch_all(watched *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        watch(&list[i], SA_RESTART);
    }
}

static void unwatch_all(const watched *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sigaction(list[i].number, &list[i].previous, NULL);
    }
}

// The signal does what it would have done; it is delivered when the handler returns.
static void die(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

static void (*pipe_handler)(int); // the caller's

void signals_start(void)
{
    pipe_handler = signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

void signals_die_of_pipe(void)
{
    if (pipe_handler != SIG_IGN) {
        die(SIGPIPE);
    }
}

// ---- A job that ends in order ----

static volatile sig_atomic_t noted;

static void note(int number)
{
    noted = number;
}

void signals_note_interrupts(void)
{
    watched list[] = {{.number = SIGINT, .handler = note}, {.number = SIGTERM, .handler = note}};
    noted = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        watch(&list[i], (int)SA_RESETHAND);
    }
}

int signals_noted(void)
{
    return noted;
}

// ---- A file that is not finished ----

// The handler may run between any two instructions, so the path is written before the flag is set,
// and the flag is cleared before the path goes out of use.
static char unfinished_path[PATH_MAX];
static volatile sig_atomic_t unfinished;

static void remove_and_die(int number)
{
    if (unfinished) {
        unlink(unfinished_path);
    }
    die(number);
}

static watched removers[] = {{.number = SIGINT, .handler = remove_and_die},
                             {.number = SIGTERM, .handler = remove_and_die},
                             {.number = SIGHUP, .handler = remove_and_die},
                             {.number = SIGQUIT, .handler = remove_and_die},
                             {.number = SIGXCPU, .handler = remove_and_die}};
#define REMOVER_COUNT (sizeof removers / sizeof removers[0])

bool signals_remove_at_end(const char *path)
{
    const size_t bytes = strlen(path) + 1;
    if (bytes > sizeof unfinished_path) {
        return false;
    }
    memcpy(unfinished_path, path, bytes);
    unfinished = 1;
    watch_all(removers, REMOVER_COUNT);
    return true;
}

void signals_keep_file(void)
{
    if (unfinished) {
        unfinished = 0;
        unwatch_all(removers, REMOVER_COUNT);
    }
}

// ---- A conversation on a terminal ----

static atomic_bool *interrupt_flag;
static int event_pipe[2] = {-1, -1};
static struct termios terminal; // as it was

static void tell(signals_event event)
{
    const char byte = (char)event;
    const ssize_t written = write(event_pipe[1], &byte, 1); // a full pipe says enough
    (void)written;
}

static void interrupt(int number)
{
    (void)number;
    const int reason = errno;
    atomic_store(interrupt_flag, true);
    tell(SIGNALS_INTERRUPT);
    errno = reason;
}

static void resize(int number)
{
    (void)number;
    const int reason = errno;
    tell(SIGNALS_RESIZE);
    errno = reason;
}

static void give_back_and_die(int number)
{
    tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal);
    die(number);
}

// SIGSTOP stops at once, so that the mode of the terminal can be set again behind it.
static void give_back_and_stop(int number)
{
    (void)number;
    const int reason = errno;
    struct termios mode;
    const bool known = tcgetattr(STDIN_FILENO, &mode) == 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal);
    raise(SIGSTOP);
    if (known) {
        tcsetattr(STDIN_FILENO, TCSADRAIN, &mode);
    }
    tell(SIGNALS_CONTINUE);
    errno = reason;
}

static watched watchers[] = {{.number = SIGINT, .handler = interrupt},
                             {.number = SIGWINCH, .handler = resize},
                             {.number = SIGTERM, .handler = give_back_and_die},
                             {.number = SIGHUP, .handler = give_back_and_die},
                             {.number = SIGQUIT, .handler = give_back_and_die},
                             {.number = SIGTSTP, .handler = give_back_and_stop}};
#define WATCHER_COUNT (sizeof watchers / sizeof watchers[0])

bool signals_watch_terminal(atomic_bool *flag, int *fd)
{
    if (tcgetattr(STDIN_FILENO, &terminal) != 0 || pipe2(event_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    interrupt_flag = flag;
    *fd = event_pipe[0];
    watch_all(watchers, WATCHER_COUNT);
    return true;
}

signals_event signals_next_event(void)
{
    char byte;
    return read(event_pipe[0], &byte, 1) == 1 ? (signals_event)byte : SIGNALS_NONE;
}

void signals_unwatch_terminal(void)
{
    unwatch_all(watchers, WATCHER_COUNT);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal);
    close(event_pipe[0]);
    close(event_pipe[1]);
}
