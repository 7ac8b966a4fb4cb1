// SPDX-License-Identifier: MIT
#include "bench/measure/peer.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME_BYTES 64

struct peer_process {
    pid_t child;
    FILE *to, *from;
    char name[NAME_BYTES];
};

// Sends a line and reads the answer, without its end. False when the peer has gone.
static bool ask(peer_process *peer, const char *line, char *answer, int bytes)
{
    if (fprintf(peer->to, "%s\n", line) < 0 || fflush(peer->to) != 0 ||
        !fgets(answer, bytes, peer->from))
        return false;
    answer[strcspn(answer, "\n")] = 0;
    return true;
}

static bool open_case(void *user, const attention_case *c)
{
    static const char *const STORAGE[] = {"f32", "bf16", "f16"};
    char line[256], answer[256];
    snprintf(line, sizeof line, "open %s %s %zu %zu %zu %lld %lld %zu", c->phase,
             STORAGE[c->storage], c->head_dim, c->query_heads, c->kv_heads, (long long)c->positions,
             (long long)c->new_tokens, c->threads);
    return ask(user, line, answer, sizeof answer) && strcmp(answer, "ok") == 0;
}

static double run_case(void *user)
{
    char answer[256];
    return ask(user, "run", answer, sizeof answer) ? strtod(answer, NULL) : -1;
}

static void close_case(void *user)
{
    char answer[256];
    (void)ask(user, "close", answer, sizeof answer);
}

// In the child: the pipes become standard input and output.
static void become(const char *program, const int down[2], const int up[2])
{
    dup2(down[0], STDIN_FILENO);
    dup2(up[1], STDOUT_FILENO);
    close(down[0]);
    close(down[1]);
    close(up[0]);
    close(up[1]);
    execlp(program, program, (char *)NULL);
    _exit(127);
}

static bool start(peer_process *peer, const char *program)
{
    int down[2], up[2];
    if (pipe(down) != 0)
        return false;
    if (pipe(up) != 0) {
        close(down[0]);
        close(down[1]);
        return false;
    }
    peer->child = fork();
    if (peer->child == 0)
        become(program, down, up);
    close(down[0]);
    close(up[1]);
    peer->to = fdopen(down[1], "w");
    peer->from = fdopen(up[0], "r");
    return peer->child > 0 && peer->to && peer->from;
}

bool peer_open(const char *program, peer_process **out, attention_peer *calls)
{
    *out = NULL;
    peer_process *peer = calloc(1, sizeof *peer);
    if (!peer)
        return false;
    signal(SIGPIPE, SIG_IGN); // a peer that has gone is an answer, not the end of this program
    if (!start(peer, program) || !ask(peer, "name", peer->name, sizeof peer->name)) {
        peer_close(peer);
        return false;
    }
    *calls = (attention_peer){peer, peer->name, open_case, run_case, close_case};
    *out = peer;
    return true;
}

void peer_close(peer_process *peer)
{
    if (!peer)
        return;
    if (peer->to)
        fclose(peer->to);
    if (peer->from)
        fclose(peer->from);
    if (peer->child > 0)
        waitpid(peer->child, NULL, 0);
    free(peer);
}

const char *peer_name(const peer_process *peer)
{
    return peer->name;
}
