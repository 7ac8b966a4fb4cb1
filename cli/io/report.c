// SPDX-License-Identifier: MIT
#include "cli/io/report.h"

#include "cli/io/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int stdout_errno; // the first failed write, while it still has its reason

// A closed descriptor would be given to the next file that is opened, and our output would go
// there. The stand-in is opened the wrong way round, so that using it still is an error.
static void occupy_descriptor(int fd)
{
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) {
        return;
    }
    int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != fd) {
        close(opened);
    }
}

static bool close_stdout(void)
{
    if (fflush(stdout) != 0 && !stdout_errno) {
        stdout_errno = errno;
    }
    bool failed = ferror(stdout) != 0;
    if (fclose(stdout) != 0 && !stdout_errno && errno != EBADF) {
        stdout_errno = errno;
    }
    return !failed && !stdout_errno;
}

// Runs at every exit, those inside argp included: output that was lost is a failure.
static void check_stdout(void)
{
    if (!close_stdout()) {
        if (stdout_errno == EPIPE) {
            signals_die_of_pipe(); // whoever read has what he wanted: `kvern run ... | head`
        }
        report_error("standard output: %s", strerror(stdout_errno ? stdout_errno : EIO));
        _exit(CLI_FAILURE);
    }
}

// argp writes help in pieces and does not ask what became of them: all of it fits this buffer, so
// that it is written where a failure's reason can be had. A terminal keeps its lines.
static void widen_stdout(void)
{
    static char buffer[1 << 14];
    if (!isatty(STDOUT_FILENO)) {
        setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    }
}

void report_start(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        occupy_descriptor(fd);
    }
    widen_stdout();
    signals_start();
    atexit(check_stdout);
}

static int print_line(const char *text)
{
    char line[2048];
    int length = snprintf(line, sizeof line - 1, "kvern: %s", text);
    if (length > (int)sizeof line - 2) {
        length = (int)sizeof line - 2;
    }
    for (int i = 0; i < length; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[length] = '\n';
    fwrite(line, 1, (size_t)length + 1, stderr);
    return CLI_FAILURE;
}

int report_error(const char *format, ...)
{
    char text[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return print_line(text);
}

int report_engine_error(const engine_error *error)
{
    return print_line(error->text);
}

bool report_color(void)
{
    const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0 && !(none && none[0]);
}

bool report_write(const void *data, size_t bytes)
{
    bool written = fwrite(data, 1, bytes, stdout) == bytes && fflush(stdout) == 0;
    if (!written && !stdout_errno) {
        stdout_errno = errno;
    }
    return written;
}
