// SPDX-License-Identifier: MIT
#include "cli/io/progress.h"

#include "cli/io/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define REDRAW_SECONDS 0.1
#define BAR_WIDTH 30

static bool disabled;

void progress_disable(void)
{
    disabled = true;
}

static bool can_draw(void)
{
    const char *terminal = getenv("TERM");
    return !disabled && isatty(STDERR_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
}

static size_t screen_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return 80;
    }
    return size.ws_col;
}

progress progress_start(const char *label, const char *unit)
{
    double now = number_seconds(); // work that ends within the first interval shows no bar
    return (progress){.label = label, .unit = unit, .started = now, .drawn = now};
}

// "1234/5678 tokens  170/s  26 s left" or the same in bytes.
static void describe(const progress *bar, uint64_t done, uint64_t total, char *text, size_t size)
{
    double seconds = number_seconds() - bar->started;
    double rate = number_per_second(done, seconds);
    double left = rate > 0 ? (double)(total - done) / rate : 0;
    if (bar->unit) {
        snprintf(text, size, "%llu/%llu %s  %.0f/s  %.0f s left", (unsigned long long)done,
                 (unsigned long long)total, bar->unit, rate, left);
    } else {
        char done_text[NUMBER_BYTES_TEXT], total_text[NUMBER_BYTES_TEXT];
        snprintf(text, size, "%s of %s", number_format_bytes(done, done_text),
                 number_format_bytes(total, total_text));
    }
}

static void draw(const progress *bar, uint64_t done, uint64_t total)
{
    char cells[BAR_WIDTH + 1], facts[128], line[256];
    size_t filled = total ? (size_t)((double)done / (double)total * BAR_WIDTH) : BAR_WIDTH;
    memset(cells, '.', BAR_WIDTH);
    memset(cells, '#', filled);
    cells[BAR_WIDTH] = 0;
    describe(bar, done, total, facts, sizeof facts);
    snprintf(line, sizeof line, "%s [%s] %s", bar->label, cells, facts);
    // A line that wraps could not be removed again.
    fprintf(stderr, "\r%.*s\033[K", (int)(screen_width() - 1), line);
}

void progress_update(progress *bar, uint64_t done, uint64_t total)
{
    double now = number_seconds();
    if (now - bar->drawn < REDRAW_SECONDS || !can_draw()) {
        return;
    }
    draw(bar, done < total ? done : total, total);
    bar->drawn = now;
    bar->shown = true;
}

void progress_end(progress *bar)
{
    if (bar->shown) {
        fputs("\r\033[K", stderr);
        bar->shown = false;
    }
}
