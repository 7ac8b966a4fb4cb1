// SPDX-License-Identifier: MIT
// A store that machines share when things fail: connections that end at every byte, servers that
// are killed, silent, slow or full, values that are damaged or somebody else's, no memory. Faults
// F12 and T3 of other systems. Whatever happens, what is lent is right, and a request never fails.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/random.h"
#include "tests/support/remote_bed.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH 140

static int32_t tokens[2 * LENGTH];

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_forget_reports();
    store_repeat(tokens, LENGTH, 1);
    store_repeat(tokens + LENGTH, LENGTH, 2);
    return 0;
}

static int with_server(void **state)
{
    set_up(state);
    remote_start(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remote_kill();
    folder_remove();
    return 0;
}

// What is lent of it is right; returns how much.
static int64_t expect_right(const store_bed *b, kvern_remote_store *r)
{
    kvern_state *s;
    const int64_t lent = remote_lend(b, r, NULL, tokens, 2 * LENGTH, &s);
    store_expect_goes_on(b, s, 0, tokens, 2 * LENGTH);
    kvern_state_destroy(s);
    return lent;
}

static void wait_until_reachable(kvern_remote_store *r)
{
    for (int i = 0; i < 1000 && !remote_stats(r).is_reachable; i++)
        usleep(10000);
    assert_true(remote_stats(r).is_reachable);
}

// ---- A false server: takes connections, and does one of some things ----

typedef struct false_server {
    int listens;
    pthread_t thread;
    const char *answer; // to whatever comes first; NULL: silence
    size_t dribble;     // milliseconds between the bytes of it
    ssize_t forward;    // bytes of the client that reach the true server; then both ends are closed
    bool kills;         // the true server is killed then, too
    atomic_bool ends;
    atomic_uint connections;
} false_server;

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(s, (struct sockaddr *)&address, sizeof address)) {
        close(s);
        return -1;
    }
    return s;
}

// Passes bytes on until so many have come from the client. *left: how many may still come.
static void pass_on(false_server *f, int client)
{
    const int server = connect_to(folder_path("redis"));
    char bytes[4096];
    while (server >= 0 && !atomic_load(&f->ends)) {
        fd_set ready;
        struct timeval most = {.tv_usec = 10000};
        FD_ZERO(&ready);
        FD_SET(client, &ready);
        FD_SET(server, &ready);
        if (select((client > server ? client : server) + 1, &ready, NULL, NULL, &most) <= 0)
            continue;
        if (FD_ISSET(server, &ready)) {
            const ssize_t count = read(server, bytes, sizeof bytes);
            if (count <= 0 || write(client, bytes, (size_t)count) != count)
                break;
        }
        if (FD_ISSET(client, &ready)) {
            const size_t most_bytes =
                (size_t)f->forward < sizeof bytes ? (size_t)f->forward : sizeof bytes;
            const ssize_t count = most_bytes ? read(client, bytes, most_bytes) : 0;
            if (count <= 0 || write(server, bytes, (size_t)count) != count)
                break;
            f->forward -= count;
        }
    }
    if (f->kills)
        remote_kill();
    if (server >= 0)
        close(server);
}

static void dribble(false_server *f, int client)
{
    char bytes[4096];
    if (read(client, bytes, sizeof bytes) <= 0)
        return;
    for (const char *at = f->answer; at && *at && !atomic_load(&f->ends); at++) {
        if (send(client, at, 1, MSG_NOSIGNAL) != 1)
            return;
        usleep((useconds_t)f->dribble * 1000);
    }
    while (!atomic_load(&f->ends))
        usleep(1000);
}

static void *serve(void *given)
{
    false_server *f = given;
    while (!atomic_load(&f->ends)) {
        const int client = accept(f->listens, NULL, NULL);
        if (client < 0)
            continue;
        atomic_fetch_add(&f->connections, 1);
        if (f->forward >= 0)
            pass_on(f, client);
        else
            dribble(f, client);
        close(client);
    }
    return NULL;
}

static const char *false_url(void)
{
    static char url[300];
    snprintf(url, sizeof url, "unix:%s", folder_path("false"));
    return url;
}

static void begin_false(false_server *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval most = {.tv_usec = 10000};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", folder_path("false"));
    unlink(address.sun_path);
    f->listens = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(0, bind(f->listens, (struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, listen(f->listens, 16));
    assert_int_equal(0, setsockopt(f->listens, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most));
    assert_int_equal(0, pthread_create(&f->thread, NULL, serve, f));
}

static void end_false(false_server *f)
{
    atomic_store(&f->ends, true);
    pthread_join(f->thread, NULL);
    close(f->listens);
}

// ---- Servers that are not there, or as if ----

static void a_dead_server_costs_one_warning(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    char url[300];
    snprintf(url, sizeof url, "unix:%s", folder_path("redis"));
    kvern_remote_store *r = remote_open(b, url, NULL);
    assert_int_equal(0, expect_right(b, r));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
        assert_int_equal(KVERN_REMOTE_OFFLINE, remote_put(b, r, NULL, tokens, LENGTH));
    }
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_DOWN]);
    assert_int_equal(1, remote_stats(r).outages);
    remote_start(NULL);
    wait_until_reachable(r);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_UP]);
    assert_int_equal(KVERN_REMOTE_QUEUED, remote_put(b, r, NULL, tokens, LENGTH));
    assert_int_equal(LENGTH, expect_right(b, r));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// While it is known to be down, no call waits for anything.
static void calls_return_at_once_while_it_is_down(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    false_server f = {.forward = -1};
    kvern_remote_store_options options = remote_options();
    options.answer_ms = 200;
    options.probe_ms = 100000;
    begin_false(&f);
    kvern_remote_store *r = remote_open(b, false_url(), &options);
    int64_t begun = kvern_remote_now();
    assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    assert_true(kvern_remote_now() - begun < 5000);
    begun = kvern_remote_now();
    for (int i = 0; i < 1000; i++)
        assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    assert_true(kvern_remote_now() - begun < 5000);
    assert_int_equal(1, atomic_load(&f.connections));
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_DOWN]);
    kvern_remote_store_close(r);
    end_false(&f);
    store_bed_close(b);
}

// A byte now and then is no silence; the time of the fetch ends it all the same.
static void a_slow_answer_is_late(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    false_server f = {.forward = -1,
                      .answer = "+PONG\r\n*2\r\n$1\r\n*\r\n$900\r\n0000000000000000"
                                "00000000000000000000000000000000000000000000000000",
                      .dribble = 50};
    kvern_remote_store_options options = remote_options();
    options.fetch_ms = 700;
    options.answer_ms = 600;
    begin_false(&f);
    kvern_remote_store *r = remote_open(b, false_url(), &options);
    const int64_t begun = kvern_remote_now();
    const kvern_remote_found found = remote_find(b, r, NULL, tokens, LENGTH);
    assert_int_equal(KVERN_STORE_LATE, found.why);
    assert_true(kvern_remote_now() - begun < 10000);
    assert_int_equal(0, remote_stats(r).outages);
    kvern_remote_store_close(r);
    end_false(&f);
    store_bed_close(b);
}

// Answers that are none, or of other kinds than asked for.
static void strange_answers_are_an_outage(void **state)
{
    (void)state;
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                          "$-2\r\n",
                                          "*-5\r\n",
                                          ":x\r\n",
                                          "$99999999999\r\n",
                                          "-LOADING it loads\r\n",
                                          "-MOVED 1 other:1\r\n",
                                          "-NOAUTH who is there\r\n",
                                          "+PONG\r\n-ERR unknown command\r\n",
                                          "+PONG\r\n-CLUSTERDOWN not now\r\n"};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        store_bed *b = store_bed_small(0);
        false_server f = {.forward = -1, .answer = answers[i]};
        kvern_remote_store_options options = remote_options();
        options.answer_ms = 100;
        begin_false(&f);
        kvern_remote_store *r = remote_open(b, false_url(), &options);
        assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
        assert_int_equal(1, remote_stats(r).outages);
        kvern_remote_store_close(r);
        end_false(&f);
        store_bed_close(b);
    }
}

// ---- Ends at every byte ----

static void put_through(const store_bed *b, ssize_t bytes, bool kills, uint64_t budget)
{
    false_server f = {.forward = bytes, .kills = kills};
    kvern_remote_store_options options = remote_options();
    options.budget_bytes = budget;
    options.probe_ms = 100000;
    begin_false(&f);
    kvern_remote_store *r = remote_open(b, false_url(), &options);
    remote_put(b, r, NULL, tokens, LENGTH);
    kvern_remote_store_close(r);
    end_false(&f);
}

// A writer that is killed anywhere leaves the whole entry, or none; and the next one writes it.
static void a_writer_may_end_at_any_byte(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    bool nothing = false, all = false;
    for (ssize_t bytes = 0; bytes < 40000 && !all; bytes += bytes % 7 == 0 ? 211 : 97) {
        put_through(b, bytes, false, bytes % 2 ? 1000000 : 0);
        const int64_t lent = expect_right(b, r);
        assert_true(lent == 0 || lent == LENGTH);
        nothing = nothing || lent == 0;
        all = remote_keys('i') == 3 && lent == LENGTH;
        assert_int_equal(0, remote_stats(r).damaged);
        remote_put(b, r, NULL, tokens, LENGTH);
        assert_int_equal(LENGTH, expect_right(b, r));
        freeReplyObject(remote_ask("FLUSHALL"));
    }
    assert_true(nothing && all);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// So does one whose server is killed; that one comes back empty.
static void a_server_may_end_at_any_byte(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    for (ssize_t bytes = 100; bytes < 30000; bytes = bytes * 2 + 37) {
        put_through(b, bytes, true, 0);
        assert_int_equal(0, expect_right(b, r));
        remote_start(NULL);
        wait_until_reachable(r);
        assert_int_equal(0, expect_right(b, r));
        remote_put(b, r, NULL, tokens, LENGTH);
        assert_int_equal(LENGTH, expect_right(b, r));
    }
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// A server that was there all the time to whoever did not ask it meanwhile.
static void a_server_that_began_anew_is_no_outage(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(LENGTH, expect_right(b, r));
    remote_kill();
    remote_start(NULL);
    assert_int_equal(0, expect_right(b, r));
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(LENGTH, expect_right(b, r));
    assert_int_equal(0, remote_stats(r).outages);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// ---- Values that are gone, damaged, or somebody else's ----

typedef void harm(const char *key);

static void lose(const char *key)
{
    remote_number("DEL %s", key);
}

static void flip(const char *key)
{
    const long long bytes = remote_number("STRLEN %s", key);
    redisReply *byte = remote_ask("GETRANGE %s %lld %lld", key, bytes / 2, bytes / 2);
    const char other = (char)(byte->str[0] ^ 0x10);
    remote_number("SETRANGE %s %lld %b", key, bytes / 2, &other, (size_t)1);
    freeReplyObject(byte);
}

static void cut(const char *key)
{
    redisReply *half = remote_ask("GETRANGE %s 0 %lld", key, remote_number("STRLEN %s", key) / 2);
    freeReplyObject(remote_ask("SET %s %b", key, half->str, half->len));
    freeReplyObject(half);
}

static void lengthen(const char *key)
{
    remote_number("APPEND %s x", key);
}

static void empty(const char *key)
{
    freeReplyObject(remote_ask("SET %s %s", key, ""));
}

static void retype(const char *key)
{
    remote_number("DEL %s", key);
    remote_number("RPUSH %s 1 2 3", key);
}

static void retype_to_text(const char *key)
{
    freeReplyObject(remote_ask("SET %s foreign", key));
}

static void fill_foreign(const char *key)
{
    remote_number("HSET %s * foreign", key);
}

static void harm_each(char kind, harm *does, bool is_damage)
{
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, tokens, LENGTH);
    const size_t count = remote_keys(kind);
    for (size_t i = 0; i < count; i++) {
        char key[KVERN_REMOTE_KEY_BYTES];
        snprintf(key, sizeof key, "%s", remote_key(kind, i));
        does(key);
        expect_right(b, r);
        assert_true(remote_stats(r).is_reachable);
        remote_put(b, r, NULL, tokens, LENGTH); // makes it whole again
        assert_int_equal(LENGTH, expect_right(b, r));
    }
    const kvern_remote_store_stats stats = remote_stats(r);
    assert_int_equal(is_damage ? count : 0, stats.damaged);
    assert_int_equal(is_damage ? count : 0, remote_reported().events[KVERN_REMOTE_DAMAGED]);
    kvern_remote_store_close(r);
    store_bed_close(b);
    freeReplyObject(remote_ask("FLUSHALL"));
    remote_forget_reports();
}

static void what_is_gone_or_damaged_is_a_miss(void **state)
{
    (void)state;
    static harm *const all[] = {flip, cut, lengthen, empty, retype};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        harm_each('b', all[i], true);
        harm_each('e', all[i], true);
    }
    harm_each('b', lose, false);
    harm_each('e', lose, false);
    harm_each('i', lose, false);
    harm_each('i', retype, true);
    harm_each('i', retype_to_text, true);
    harm_each('i', fill_foreign, true);
}

// An entry under the name of another one is not taken for it.
static void an_entry_under_anothers_name_is_a_miss(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    int32_t other[LENGTH];
    char key[KVERN_REMOTE_KEY_BYTES];
    store_repeat(other, LENGTH, 5);
    remote_put(b, r, NULL, other, LENGTH);
    snprintf(key, sizeof key, "%s", remote_key('e', 0));
    redisReply *value = remote_ask("GET %s", key);
    remote_number("DEL %s", key);
    remote_put(b, r, NULL, tokens, LENGTH);
    freeReplyObject(remote_ask("SET %s %b", remote_key('e', 0), value->str, value->len));
    freeReplyObject(value);
    assert_int_equal(0, expect_right(b, r));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

static void a_foreign_ledger_is_replaced(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.budget_bytes = 1000000;
    kvern_remote_store *r = remote_open(b, NULL, &options);
    freeReplyObject(remote_ask("SET kvern1:ledger foreign"));
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(1, remote_stats(r).failures);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(LENGTH, expect_right(b, r));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// ---- Servers that refuse ----

static void passwords_are_asked_for(void **state)
{
    (void)state;
    static const char *const options[] = {"--requirepass", "secret", NULL};
    remote_start(options);
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options o = remote_options();
    kvern_remote_store *r = remote_open(b, NULL, &o);
    assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    assert_non_null(strstr(remote_reported().why, "NOAUTH"));
    kvern_remote_store_close(r);
    o.password = "wrong";
    r = remote_open(b, NULL, &o);
    assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    assert_non_null(strstr(remote_reported().why, "WRONGPASS"));
    assert_null(strstr(remote_reported().why, "wrong "));
    kvern_remote_store_close(r);
    o.password = "secret";
    r = remote_open(b, NULL, &o);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(LENGTH, expect_right(b, r));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// A full server refuses what is new, and is no outage; what is there is served.
static void a_full_server_refuses(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, tokens, LENGTH);
    freeReplyObject(remote_ask("CONFIG SET maxmemory 1"));
    remote_put(b, r, NULL, tokens, 2 * LENGTH);
    remote_put(b, r, NULL, tokens, 2 * LENGTH);
    assert_int_equal(2, remote_stats(r).failures);
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_NOT_WRITTEN]);
    assert_non_null(strstr(remote_reported().why, "OOM"));
    assert_int_equal(LENGTH, expect_right(b, r));
    freeReplyObject(remote_ask("CONFIG SET maxmemory 0"));
    remote_put(b, r, NULL, tokens, 2 * LENGTH);
    assert_int_equal(2 * LENGTH - 1, expect_right(b, r));
    assert_int_equal(0, remote_stats(r).outages);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// A server that evicts of its own: parts of entries go, in any order.
static void a_server_may_evict(void **state)
{
    (void)state;
    static const char *const policies[] = {"allkeys-lru", "allkeys-random", "volatile-ttl"};
    for (size_t p = 0; p < 3; p++) {
        store_bed *b = store_bed_small(0);
        kvern_remote_store *r = remote_open(b, NULL, NULL);
        test_random random = test_random_seed(p);
        int32_t prompt[2 * LENGTH];
        freeReplyObject(remote_ask("CONFIG SET maxmemory-policy %s", policies[p]));
        freeReplyObject(remote_ask("CONFIG SET maxmemory 1500000"));
        uint64_t lent = 0;
        for (int i = 0; i < 150; i++) {
            kvern_state *s;
            store_repeat(prompt, 2 * LENGTH, (int32_t)test_random_below(&random, 30));
            prompt[0] = 1;
            lent += (uint64_t)remote_lend(b, r, NULL, prompt, LENGTH, &s);
            store_expect_goes_on(b, s, 0, prompt, LENGTH);
            assert_ok(kvern_remote_store_publish(r, NULL, prompt, LENGTH, s, 0, NULL));
            kvern_state_destroy(s);
            kvern_remote_store_flush(r);
        }
        assert_true(lent > 0);
        assert_int_equal(0, remote_stats(r).damaged + remote_stats(r).outages);
        kvern_remote_store_close(r);
        store_bed_close(b);
        freeReplyObject(remote_ask("FLUSHALL"));
    }
}

// A server that runs no scripts cannot keep a budget: nothing is written.
static void without_scripts_there_is_no_budget(void **state)
{
    (void)state;
    static const char *const options[] = {"--rename-command", "EVAL", "", NULL};
    remote_start(options);
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options o = remote_options();
    o.budget_bytes = 1000000;
    kvern_remote_store *r = remote_open(b, NULL, &o);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(1, remote_stats(r).failures);
    assert_int_equal(0, remote_number("DBSIZE"));
    assert_int_equal(0, remote_stats(r).outages);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// ---- Processes and memory ----

static void in_a_process_that_is_killed(long microseconds)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        store_bed *b = store_bed_small(0);
        kvern_remote_store *r = remote_open(b, NULL, NULL);
        for (;;)
            remote_put(b, r, NULL, tokens, LENGTH);
    }
    usleep((useconds_t)microseconds);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void two_processes_share_and_one_is_killed(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    for (long i = 0; i < 12; i++) {
        in_a_process_that_is_killed(i * i * 500);
        const int64_t lent = expect_right(b, r);
        assert_true(lent == 0 || lent == LENGTH);
        assert_int_equal(0, remote_stats(r).damaged + remote_stats(r).outages);
    }
    assert_int_equal(LENGTH, expect_right(b, r)); // the last had long enough
    kvern_remote_store_close(r);
    store_bed_close(b);
}

// Each call for memory fails once, on whatever thread.
static void without_memory_it_is_a_miss(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, tokens, LENGTH);
    int64_t lent = 0;
    for (int64_t at = 0; lent == 0; at++) {
        kvern_remote_fetch *f = NULL;
        kvern_remote_found found = kvern_remote_found_default();
        ledger_refuse(&b->books, at);
        kvern_status status =
            kvern_remote_store_begin(r, NULL, b->composition, tokens, LENGTH, 0, 0, &f);
        if (!status)
            assert_true(kvern_remote_store_wait(r, f, 60000, &found));
        ledger_refuse(&b->books, -1);
        lent = found.positions;
        assert_true(status == KVERN_OK || status == KVERN_ERR_MEMORY);
        assert_true(lent > 0 || status || found.why == KVERN_STORE_NO_ROOM);
        kvern_remote_store_end(r, f);
        assert_true(at < 1000);
    }
    assert_int_equal(LENGTH, expect_right(b, r));
    assert_int_equal(0, remote_stats(r).outages + remote_stats(r).damaged);
    kvern_remote_store_close(r);
    store_bed_close(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, with_server, tear_down)
#define ALONE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ALONE(a_dead_server_costs_one_warning),
        ALONE(calls_return_at_once_while_it_is_down),
        ALONE(a_slow_answer_is_late),
        ALONE(strange_answers_are_an_outage),
        TEST(a_writer_may_end_at_any_byte),
        TEST(a_server_may_end_at_any_byte),
        TEST(a_server_that_began_anew_is_no_outage),
        TEST(what_is_gone_or_damaged_is_a_miss),
        TEST(an_entry_under_anothers_name_is_a_miss),
        TEST(a_foreign_ledger_is_replaced),
        ALONE(passwords_are_asked_for),
        TEST(a_full_server_refuses),
        TEST(a_server_may_evict),
        ALONE(without_scripts_there_is_no_budget),
        TEST(two_processes_share_and_one_is_killed),
        TEST(without_memory_it_is_a_miss),
    };
    signal(SIGPIPE, SIG_IGN); // of the false server's writes
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
