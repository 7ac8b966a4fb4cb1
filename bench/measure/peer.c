// SPDX-License-Identifier: MIT
#include "bench/measure/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Sends a line and reads the answer, without its end; the caller frees it. NULL: the peer has gone.
__attribute__((format(printf, 2, 3))) static char *ask(peer_process *peer, const char *format, ...)
{
    char *answer = NULL;
    size_t size = 0;
    va_list args;
    va_start(args, format);
    const bool sent = vfprintf(peer->to, format, args) > 0;
    va_end(args);
    if (!sent || fflush(peer->to) != 0 || getline(&answer, &size, peer->from) < 0) {
        free(answer);
        return NULL;
    }
    answer[strcspn(answer, "\n")] = 0;
    return answer;
}

static bool take_name(peer_process *peer)
{
    char *answer = ask(peer, "name\n");
    if (answer)
        snprintf(peer->name, sizeof peer->name, "%s", answer);
    free(answer);
    return peer->name[0] != 0;
}

// Whether an answer is "no" and a reason, which is kept.
static bool take_refusal(peer_process *peer, const char *answer)
{
    const bool refused = answer && strncmp(answer, "no ", 3) == 0;
    snprintf(peer->refusal, sizeof peer->refusal, "%s", refused ? answer + 3 : "");
    return refused;
}

static peer_answer take_opening(peer_process *peer, char *answer)
{
    peer->opened = answer && strcmp(answer, "ok") == 0;
    const bool refused = take_refusal(peer, answer);
    free(answer);
    return peer->opened ? PEER_OK : refused ? PEER_NO : PEER_GONE;
}

peer_answer peer_open(peer_process *peer, const char *line)
{
    return take_opening(peer, ask(peer, "%s\n", line));
}

peer_answer peer_open_model(peer_process *peer, const char *storage, size_t threads, size_t context,
                            const char *file)
{
    if (strchr(file, '\n')) { // a line cannot hold it
        snprintf(peer->refusal, sizeof peer->refusal, "the file's name has more than one line");
        return PEER_NO;
    }
    return take_opening(peer, ask(peer, "model %s %zu %zu %s\n", storage, threads, context, file));
}

// Reads exactly `count` numbers. False: there are others, or something else.
static bool take_numbers(char *answer, double *values, size_t count)
{
    char *at = answer;
    for (size_t i = 0; i < count && at; i++) {
        char *end;
        values[i] = strtod(at, &end);
        at = end == at ? NULL : end;
    }
    const bool whole = at && strspn(at, " ") == strlen(at);
    free(answer);
    return whole;
}

bool peer_run(peer_process *peer, double *seconds)
{
    return take_numbers(ask(peer, "run\n"), seconds, 1) && *seconds > 0;
}

static bool take_floats(char *answer, float *values, size_t count)
{
    double *wide = calloc(count, sizeof *wide);
    if (!wide) {
        free(answer);
        return false;
    }
    const bool whole = take_numbers(answer, wide, count);
    for (size_t i = 0; i < count && whole; i++)
        values[i] = (float)wide[i];
    free(wide);
    return whole;
}

bool peer_output(peer_process *peer, size_t token, size_t head, float *values, size_t count)
{
    return take_floats(ask(peer, "output %zu %zu\n", token, head), values, count);
}

peer_answer peer_logits(peer_process *peer, float *values, size_t count)
{
    char *answer = ask(peer, "logits %zu\n", count);
    if (!take_refusal(peer, answer))
        return take_floats(answer, values, count) ? PEER_OK : PEER_GONE;
    free(answer);
    return PEER_NO;
}

bool peer_time(peer_process *peer, size_t context, size_t prompt, size_t generate,
               double *prompt_seconds, double *generation_seconds)
{
    double seconds[2];
    if (!take_numbers(ask(peer, "time %zu %zu %zu\n", context, prompt, generate), seconds, 2) ||
        seconds[0] <= 0 || seconds[1] <= 0)
        return false;
    *prompt_seconds = seconds[0];
    *generation_seconds = seconds[1];
    return true;
}

void peer_close(peer_process *peer)
{
    if (peer->opened)
        free(ask(peer, "close\n"));
    peer->opened = false;
}

// In the child: the pipes become standard input and output. Their own descriptors close by
// themselves.
static void become(const char *program, const int down[2], const int up[2])
{
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    execlp(program, program, (char *)NULL);
    _exit(127);
}

// Two pipes whose ends in this process no other peer inherits: each ends when its input does.
static bool make_pipes(int down[2], int up[2])
{
    if (pipe2(down, O_CLOEXEC) != 0)
        return false;
    if (pipe2(up, O_CLOEXEC) == 0)
        return true;
    close(down[0]);
    close(down[1]);
    return false;
}

static bool start(peer_process *peer, const char *program)
{
    int down[2], up[2];
    if (!make_pipes(down, up))
        return false;
    peer->child = fork();
    if (peer->child == 0)
        become(program, down, up);
    close(down[0]);
    close(up[1]);
    peer->to = fdopen(down[1], "w");
    peer->from = fdopen(up[0], "r");
    return peer->child > 0 && peer->to && peer->from;
}

bool peer_start(const char *program, peer_process *peer)
{
    memset(peer, 0, sizeof *peer);
    signal(SIGPIPE, SIG_IGN); // a peer that has gone is an answer, not the end of this program
    if (start(peer, program) && take_name(peer))
        return true;
    peer_stop(peer);
    return false;
}

void peer_stop(peer_process *peer)
{
    if (peer->to)
        fclose(peer->to);
    if (peer->from)
        fclose(peer->from);
    if (peer->child > 0)
        waitpid(peer->child, NULL, 0);
    memset(peer, 0, sizeof *peer);
}

uint32_t peer_fill(float *data, size_t count, uint32_t seed, float range)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = ((float)(seed >> 8) / 8388608.0f - 1) * range;
    }
    return seed;
}
