// SPDX-License-Identifier: MIT
#include "tests/support/remote_bed.h"

#include "tests/support/check.h"
#include "tests/support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_OPTIONS 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static remote_reports reports;
static _Atomic pid_t server; // a proxy's threads look at it, too
static redisContext *connection;
static char url[300];

// ---- Reports ----

static void count_report(void *user, kvern_remote_event event, const char *why)
{
    (void)user;
    pthread_mutex_lock(&lock);
    reports.events[event]++;
    snprintf(reports.why, sizeof reports.why, "%s", why);
    pthread_mutex_unlock(&lock);
}

remote_reports remote_reported(void)
{
    pthread_mutex_lock(&lock);
    const remote_reports now = reports;
    pthread_mutex_unlock(&lock);
    return now;
}

void remote_forget_reports(void)
{
    pthread_mutex_lock(&lock);
    memset(&reports, 0, sizeof reports);
    pthread_mutex_unlock(&lock);
}

// ---- The server ----

bool remote_can_test(void)
{
    if (system("command -v redis-server >/dev/null 2>&1") == 0)
        return true;
    printf("skipped: there is no redis-server (tools/setup test)\n");
    return false;
}

static void run_server(const char *const *options)
{
    const char *arguments[MOST_OPTIONS + 16] = {"redis-server",
                                                "--port",
                                                "0",
                                                "--unixsocket",
                                                folder_path("redis"),
                                                "--save",
                                                "",
                                                "--appendonly",
                                                "no",
                                                "--dir",
                                                folder_path("."),
                                                "--logfile",
                                                folder_path("log")};
    size_t count = 13;
    for (size_t i = 0; options && options[i] && i < MOST_OPTIONS; i++)
        arguments[count++] = options[i];
    arguments[count] = NULL;
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    _exit(127);
}

// Whether the server answers, an error for want of a password included.
static bool answers(void)
{
    redisContext *c = redisConnectUnix(folder_path("redis"));
    redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
    const bool found = reply;
    freeReplyObject(reply);
    if (c)
        redisFree(c);
    return found;
}

void remote_start(const char *const *options)
{
    snprintf(url, sizeof url, "unix:%s", folder_path("redis"));
    (void)unlink(folder_path("redis"));
    server = fork();
    assert_true(server >= 0);
    if (server == 0)
        run_server(options);
    for (int i = 0; i < 1000; i++) {
        if (answers())
            return;
        usleep(10000);
    }
    fail_msg("redis-server does not begin");
}

void remote_kill(void)
{
    if (connection)
        redisFree(connection);
    connection = NULL;
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    server = 0;
}

pid_t remote_server(void)
{
    return server;
}

const char *remote_url(void)
{
    return url;
}

static redisReply *ask(const char *format, va_list arguments)
{
    if (!connection)
        connection = redisConnectUnix(folder_path("redis"));
    assert_true(connection && !connection->err);
    redisReply *reply = redisvCommand(connection, format, arguments);
    assert_non_null(reply);
    return reply;
}

redisReply *remote_ask(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(format, arguments);
    va_end(arguments);
    return reply;
}

long long remote_number(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = ask(format, arguments);
    va_end(arguments);
    assert_int_equal(REDIS_REPLY_INTEGER, reply->type);
    const long long number = reply->integer;
    freeReplyObject(reply);
    return number;
}

static redisReply *ask_keys(char kind)
{
    const char text[] = {kind, '\0'};
    redisReply *reply = remote_ask("KEYS kvern1:*:%s:*", text);
    assert_int_equal(REDIS_REPLY_ARRAY, reply->type);
    return reply;
}

size_t remote_keys(char kind)
{
    redisReply *reply = ask_keys(kind);
    const size_t count = reply->elements;
    freeReplyObject(reply);
    return count;
}

const char *remote_key(char kind, size_t index)
{
    static char key[KVERN_REMOTE_KEY_BYTES];
    redisReply *reply = ask_keys(kind);
    assert_true(index < reply->elements);
    snprintf(key, sizeof key, "%s", reply->element[index]->str);
    freeReplyObject(reply);
    return key;
}

// ---- Stores ----

kvern_remote_store_options remote_options(void)
{
    kvern_remote_store_options options = kvern_remote_store_options_default();
    options.report = count_report;
    options.probe_ms = 20;
    options.fetch_ms = 20000; // under sanitizers
    options.answer_ms = 5000;
    return options;
}

kvern_remote_store *remote_open(const store_bed *b, const char *given,
                                const kvern_remote_store_options *options)
{
    const kvern_remote_store_options own = remote_options();
    kvern_remote_store *r;
    assert_ok(
        kvern_remote_store_open(b->context, given ? given : url, options ? options : &own, &r));
    return r;
}

kvern_remote_outcome remote_put(const store_bed *b, kvern_remote_store *r,
                                const kvern_store_key *key, const int32_t *tokens, size_t count)
{
    kvern_remote_outcome outcome;
    kvern_state *s = store_cold(b, tokens, (int64_t)count);
    assert_ok(kvern_remote_store_publish(r, key, tokens, count, s, 0, &outcome));
    kvern_state_destroy(s);
    kvern_remote_store_flush(r);
    return outcome;
}

static kvern_remote_fetch *fetch(const store_bed *b, kvern_remote_store *r,
                                 const kvern_store_key *key, const int32_t *tokens, size_t count,
                                 kvern_remote_found *found)
{
    kvern_remote_fetch *made;
    *found = kvern_remote_found_default();
    assert_ok(kvern_remote_store_begin(r, key, b->composition, tokens, count, 0, 0, &made));
    assert_true(kvern_remote_store_wait(r, made, 60000, found));
    return made;
}

kvern_remote_found remote_find(const store_bed *b, kvern_remote_store *r,
                               const kvern_store_key *key, const int32_t *tokens, size_t count)
{
    kvern_remote_found found;
    kvern_remote_store_end(r, fetch(b, r, key, tokens, count, &found));
    return found;
}

int64_t remote_lend(const store_bed *b, kvern_remote_store *r, const kvern_store_key *key,
                    const int32_t *tokens, size_t count, kvern_state **out)
{
    kvern_remote_found found;
    kvern_remote_fetch *made = fetch(b, r, key, tokens, count, &found);
    *out = store_state(b, 1);
    if (found.positions)
        assert_ok(kvern_remote_store_lend(r, made, *out, 0));
    assert_int_equal(found.positions, kvern_state_length(*out, 0));
    kvern_remote_store_end(r, made);
    return found.positions;
}

kvern_remote_store_stats remote_stats(kvern_remote_store *r)
{
    kvern_remote_store_stats stats = kvern_remote_store_stats_default();
    assert_ok(kvern_remote_store_get_stats(r, &stats));
    return stats;
}
