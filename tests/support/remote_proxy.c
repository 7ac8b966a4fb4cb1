// SPDX-License-Identifier: MIT
#include "tests/support/remote_proxy.h"

#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/remote_bed.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLICE_MS 5

typedef struct passing {
    remote_proxy *proxy;
    int client, server;
    pid_t process;                   // of the server
    redisReader *commands, *answers; // hiredis reads both: a command is an array of texts
    pthread_t thread;
} passing;

static struct sockaddr_un address_of(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", folder_path(name));
    return address;
}

static bool write_all(int to, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t done = send(to, bytes, count, MSG_NOSIGNAL);
        if (done <= 0)
            return false;
        bytes += done;
        count -= (size_t)done;
    }
    return true;
}

// The next bytes of either side; 0: it ended.
static size_t read_some(const passing *p, int from, char *bytes, size_t room)
{
    struct pollfd ready = {.fd = from, .events = POLLIN};
    while (!atomic_load(&p->proxy->ends)) {
        if (poll(&ready, 1, SLICE_MS) <= 0)
            continue;
        const ssize_t count = read(from, bytes, room);
        return count > 0 ? (size_t)count : 0;
    }
    return 0;
}

static bool send_command(const passing *p, const redisReply *command)
{
    const char *parts[256];
    size_t sizes[256];
    char *text;
    if (command->type != REDIS_REPLY_ARRAY || command->elements > 256)
        return false;
    for (size_t i = 0; i < command->elements; i++) {
        parts[i] = command->element[i]->str;
        sizes[i] = command->element[i]->len;
    }
    const int bytes = redisFormatCommandArgv(&text, (int)command->elements, parts, sizes);
    const bool sent = bytes > 0 && write_all(p->server, text, (size_t)bytes);
    redisFreeCommand(text);
    return sent;
}

// Counts a command that was answered; true: it was the last one.
static bool was_last(remote_proxy *proxy)
{
    const long done = atomic_fetch_add(&proxy->commands, 1) + 1;
    const long last = atomic_load(&proxy->kill_after);
    return last >= 0 && done >= last;
}

static void kill_server(remote_proxy *proxy, pid_t process)
{
    kill(process, SIGKILL);
    atomic_store(&proxy->has_killed, true);
}

// Nobody else's command is on its way to the server, so that all that comes is the answer.
static bool pass_answer(passing *p)
{
    char bytes[16384], *all = NULL;
    size_t count = 0;
    void *answer = NULL;
    while (!answer) {
        const size_t more = read_some(p, p->server, bytes, sizeof bytes);
        char *grown = more ? realloc(all, count + more) : NULL;
        if (!grown)
            break;
        all = grown;
        memcpy(all + count, bytes, more);
        count += more;
        if (redisReaderFeed(p->answers, bytes, more) || redisReaderGetReply(p->answers, &answer))
            break;
    }
    const bool is_last = answer && was_last(p->proxy);
    if (is_last)
        kill_server(p->proxy, p->process);
    const bool passed =
        answer && !(is_last && p->proxy->keeps_last) && write_all(p->client, all, count);
    freeReplyObject(answer);
    free(all);
    return passed && !is_last;
}

static bool pass_commands(passing *p)
{
    bool goes_on = true;
    while (goes_on) {
        void *command = NULL;
        if (redisReaderGetReply(p->commands, &command) || !command)
            return !command;
        goes_on = !atomic_load(&p->proxy->has_killed) && send_command(p, command) && pass_answer(p);
        freeReplyObject(command);
    }
    return false;
}

static void *pass_on(void *given)
{
    passing *p = given;
    char bytes[16384];
    for (bool goes_on = p->server >= 0; goes_on;) {
        const size_t count = read_some(p, p->client, bytes, sizeof bytes);
        goes_on =
            count && redisReaderFeed(p->commands, bytes, count) == REDIS_OK && pass_commands(p);
    }
    if (p->server >= 0)
        close(p->server);
    close(p->client);
    redisReaderFree(p->commands);
    redisReaderFree(p->answers);
    return NULL;
}

static int connect_to_server(void)
{
    const struct sockaddr_un address = address_of("redis");
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(s, (const struct sockaddr *)&address, sizeof address) == 0)
        return s;
    close(s);
    return -1;
}

// Killed before the first command, a server has answered none.
static void begin_passing(passing *p, remote_proxy *proxy, int client)
{
    if (atomic_load(&proxy->kill_after) == 0 && !atomic_load(&proxy->has_killed))
        kill_server(proxy, remote_server());
    *p = (passing){.proxy = proxy,
                   .client = client,
                   .process = remote_server(),
                   .server = connect_to_server(),
                   .commands = redisReaderCreate(),
                   .answers = redisReaderCreate()};
    assert_int_equal(0, pthread_create(&p->thread, NULL, pass_on, p));
}

static void *serve(void *given)
{
    remote_proxy *proxy = given;
    passing all[REMOTE_PROXY_CONNECTIONS];
    size_t count = 0;
    while (!atomic_load(&proxy->ends)) {
        const int client = accept(proxy->listens, NULL, NULL);
        if (client < 0)
            continue;
        atomic_fetch_add(&proxy->connections, 1);
        if (count < REMOTE_PROXY_CONNECTIONS)
            begin_passing(&all[count++], proxy, client);
        else
            close(client);
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(all[i].thread, NULL);
    return NULL;
}

const char *remote_proxy_url(void)
{
    static char url[300];
    snprintf(url, sizeof url, "unix:%s", folder_path("proxy"));
    return url;
}

void remote_proxy_begin(remote_proxy *proxy)
{
    const struct sockaddr_un address = address_of("proxy");
    const struct timeval most = {.tv_usec = SLICE_MS * 1000};
    unlink(address.sun_path);
    proxy->listens = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(0, bind(proxy->listens, (const struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, listen(proxy->listens, 16));
    assert_int_equal(0, setsockopt(proxy->listens, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most));
    assert_int_equal(0, pthread_create(&proxy->thread, NULL, serve, proxy));
}

void remote_proxy_end(remote_proxy *proxy)
{
    atomic_store(&proxy->ends, true);
    pthread_join(proxy->thread, NULL);
    close(proxy->listens);
}
