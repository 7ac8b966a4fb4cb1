// SPDX-License-Identifier: MIT
// Who speaks with whom: servers with TLS, their certificates and ours, users and passwords, nodes
// of a cluster. Certificates are made by openssl in the test's folder.
#include "tests/support/check.h"
#include "tests/support/folder.h"
#include "tests/support/remote_bed.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH 140
#define PATH_BYTES 300

static int32_t tokens[LENGTH];
static char port[8]; // that the server listens at, besides its socket

static int set_up(void **state)
{
    (void)state;
    folder_make();
    remote_forget_reports();
    store_repeat(tokens, LENGTH, 1);
    return 0;
}

static pid_t second; // of a cluster's second node
static char second_port[8];

static void end_second(void)
{
    if (second > 0) {
        kill(second, SIGKILL);
        waitpid(second, NULL, 0);
    }
    second = 0;
}

static int tear_down(void **state)
{
    (void)state;
    end_second();
    remote_kill();
    folder_remove();
    return 0;
}

// A port that was free a moment ago.
static void choose_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(0, bind(s, (struct sockaddr *)&address, sizeof address));
    assert_int_equal(0, getsockname(s, (struct sockaddr *)&address, &bytes));
    snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
    close(s);
}

static const char *url_of(const char *scheme, const char *user, const char *host)
{
    static char url[PATH_BYTES];
    snprintf(url, sizeof url, "%s://%s%s:%s/1", scheme, user, host, port);
    return url;
}

// The row goes there and back.
static void expect_works(const store_bed *b, const char *url,
                         const kvern_remote_store_options *options)
{
    kvern_remote_store *r = remote_open(b, url, options);
    kvern_state *s;
    assert_int_equal(KVERN_REMOTE_QUEUED, remote_put(b, r, NULL, tokens, LENGTH));
    if (remote_stats(r).publications != 1)
        fail_msg("%s: %s", url, remote_reported().why);
    assert_int_equal(LENGTH - 1, remote_lend(b, r, NULL, tokens, LENGTH, &s));
    store_expect_goes_on(b, s, 0, tokens, LENGTH);
    assert_int_equal(0, remote_stats(r).outages + remote_stats(r).failures);
    kvern_state_destroy(s);
    kvern_remote_store_close(r);
}

// Nothing is had from there, and the report says why.
static void expect_outage(const store_bed *b, const char *url,
                          const kvern_remote_store_options *options, const char *why,
                          kvern_remote_error kind)
{
    kvern_remote_store_options o = *options;
    o.probe_ms = 100000;
    o.answer_ms = 1000; // of a server that waits for us
    remote_forget_reports();
    kvern_remote_store *r = remote_open(b, url, &o);
    assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    if (!strstr(remote_reported().why, why))
        fail_msg("not for '%s': %s", why, remote_reported().why);
    const kvern_remote_store_stats stats = remote_stats(r);
    assert_int_equal(1, stats.errors[kind]);
    assert_int_equal(0, stats.is_reachable);
    assert_true(stats.probe_in_seconds > 1);
    kvern_remote_store_close(r);
}

// ---- TLS ----

static bool has_tls(void)
{
    if (system("command -v openssl >/dev/null 2>&1") != 0) {
        printf("skipped: there is no openssl to make certificates with\n");
        return false;
    }
    if (system("redis-server --tls-port 1 --port 0 --tls-cert-file /nowhere 2>&1 "
               "| grep -qE 'Bad directive|TLS support'") == 0) {
        printf("skipped: redis-server has no TLS\n");
        return false;
    }
    store_bed *b = store_bed_small(0);
    const kvern_remote_store_options options = remote_options();
    kvern_remote_store *r;
    const kvern_status status =
        kvern_remote_store_open(b->context, "rediss://127.0.0.1:1", &options, &r);
    if (status) {
        assert_status(KVERN_ERR_UNSUPPORTED, status);
        assert_non_null(strstr(kvern_error_detail(), "KVERN_TLS"));
        printf("skipped: the library has no TLS\n");
    }
    kvern_remote_store_close(r);
    store_bed_close(b);
    return !status;
}

static const char *path_of(const char *name)
{
    static char paths[8][PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_BYTES, "%s", folder_path(name));
    return path;
}

static void make(const char *command)
{
    char all[2000];
    snprintf(all, sizeof all, "cd '%s' && (%s) >openssl.log 2>&1", folder_path("."), command);
    if (system(all) != 0)
        fail_msg("openssl: %s", command);
}

#define NEW_KEY "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
#define SIGNED(name, subject, names)                                                               \
    "printf 'subjectAltName=" names "' >" name ".ext && " NEW_KEY "-subj /CN=" subject             \
    " -keyout " name ".key -out " name ".csr && openssl x509 -req -in " name                       \
    ".csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile " name ".ext -out " name       \
    ".pem"

static void make_certificates(void)
{
    make(NEW_KEY "-x509 -days 2 -subj /CN=ca -keyout ca.key -out ca.pem");
    make(NEW_KEY "-x509 -days 2 -subj /CN=ca -keyout else.key -out else.pem");
    make(SIGNED("server", "server", "IP:127.0.0.1,DNS:localhost"));
    make(SIGNED("other", "other", "DNS:example.org"));
    make(SIGNED("client", "client", "DNS:client"));
}

static void start_secure(const char *certificate, const char *key, const char *asks_clients)
{
    choose_port();
    const char *const options[] = {"--tls-port",
                                   port,
                                   "--tls-cert-file",
                                   path_of(certificate),
                                   "--tls-key-file",
                                   path_of(key),
                                   "--tls-ca-cert-file",
                                   path_of("ca.pem"),
                                   "--tls-auth-clients",
                                   asks_clients,
                                   NULL};
    remote_start(options);
}

static void rows_go_through_tls(void **state)
{
    (void)state;
    if (!has_tls())
        return;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    make_certificates();
    start_secure("server.pem", "server.key", "no");
    options.ca_file = path_of("ca.pem");
    expect_works(b, url_of("rediss", "", "127.0.0.1"), &options);
    options.budget_bytes = 10000000;
    expect_works(b, url_of("rediss", "", "localhost"), &options);
    store_bed_close(b);
}

// Verification is never off: an unknown signer, another name, no TLS at all.
static void who_is_not_the_server_is_refused(void **state)
{
    (void)state;
    if (!has_tls())
        return;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    make_certificates();
    start_secure("other.pem", "other.key", "no");
    expect_outage(b, url_of("rediss", "", "127.0.0.1"), &options, "certificate",
                  KVERN_REMOTE_ERROR_CLOSED); // whom the system trusts
    options.ca_file = path_of("else.pem");
    expect_outage(b, url_of("rediss", "", "127.0.0.1"), &options, "certificate",
                  KVERN_REMOTE_ERROR_CLOSED);
    options.ca_file = path_of("ca.pem");
    expect_outage(b, url_of("rediss", "", "127.0.0.1"), &options, "IP address mismatch",
                  KVERN_REMOTE_ERROR_CLOSED);
    expect_outage(b, url_of("rediss", "", "localhost"), &options, "hostname mismatch",
                  KVERN_REMOTE_ERROR_CLOSED);
    options.ca_file = NULL;
    expect_outage(b, url_of("redis", "", "127.0.0.1"), &options, "127.0.0.1",
                  KVERN_REMOTE_ERROR_CLOSED);
    store_bed_close(b);
}

static void a_server_may_ask_who_we_are(void **state)
{
    (void)state;
    if (!has_tls())
        return;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    make_certificates();
    start_secure("server.pem", "server.key", "yes");
    options.ca_file = path_of("ca.pem");
    expect_outage(b, url_of("rediss", "", "127.0.0.1"), &options, "127.0.0.1", // its word may come
                  KVERN_REMOTE_ERROR_CLOSED); // too late for who writes
    options.certificate_file = path_of("client.pem");
    options.key_file = path_of("client.key");
    expect_works(b, url_of("rediss", "", "127.0.0.1"), &options);
    store_bed_close(b);
}

static void a_server_without_tls_is_an_outage(void **state)
{
    (void)state;
    if (!has_tls())
        return;
    choose_port();
    const char *const plain[] = {"--port", port, NULL};
    store_bed *b = store_bed_small(0);
    const kvern_remote_store_options options = remote_options();
    remote_start(plain);
    expect_outage(b, url_of("rediss", "", "127.0.0.1"), &options, "127.0.0.1",
                  KVERN_REMOTE_ERROR_SILENT); // it waits for the end of a line
    store_bed_close(b);
}

static void expect_refused(const store_bed *b, const char *url,
                           const kvern_remote_store_options *options, kvern_status wanted,
                           const char *part)
{
    kvern_remote_store *r;
    assert_status(wanted, kvern_remote_store_open(b->context, url, options, &r));
    assert_null(r);
    assert_non_null(strstr(kvern_error_detail(), part));
}

static void files_are_refused_by_name(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    kvern_remote_store_options options = remote_options();
    options.ca_file = "/nowhere/ca.pem";
    expect_refused(b, "redis://h", &options, KVERN_ERR_ARGUMENT, "not rediss://");
    if (has_tls()) {
        expect_refused(b, "rediss://h", &options, KVERN_ERR_IO, "/nowhere/ca.pem");
        make_certificates();
        options.ca_file = path_of("ca.pem");
        options.certificate_file = path_of("client.pem");
        expect_refused(b, "rediss://h", &options, KVERN_ERR_ARGUMENT, "without its key");
        options.key_file = path_of("server.key");
        expect_refused(b, "rediss://h", &options, KVERN_ERR_IO, "server.key");
        options.key_file = path_of("ca.pem");
        expect_refused(b, "rediss://h", &options, KVERN_ERR_IO, "ca.pem");
    }
    store_bed_close(b);
}

// ---- Users ----

// What the store needs is what its pages say, and no more; a password has every character.
static void users_are_let_in_by_their_password(void **state)
{
    (void)state;
    choose_port();
    const char *const options[] = {"--port", port, NULL};
    store_bed *b = store_bed_small(0);
    const kvern_remote_store_options o = remote_options();
    remote_start(options);
    freeReplyObject(remote_ask("ACL SETUSER kvern on >a@b:c/d%%e ~kvern1:* +ping +select +get +set "
                               "+pexpire +pttl +hset +hgetall +multi +exec +unlink"));
    freeReplyObject(remote_ask("ACL SETUSER default off"));
    expect_outage(b, url_of("redis", "", "127.0.0.1"), &o, "NOAUTH", KVERN_REMOTE_ERROR_REFUSED);
    expect_outage(b, url_of("redis", "kvern:wrong@", "127.0.0.1"), &o, "WRONGPASS",
                  KVERN_REMOTE_ERROR_REFUSED);
    expect_outage(b, url_of("redis", "nobody:a%40b%3Ac%2fd%25e@", "127.0.0.1"), &o, "WRONGPASS",
                  KVERN_REMOTE_ERROR_REFUSED);
    expect_works(b, url_of("redis", "kvern:a%40b%3Ac%2fd%25e@", "127.0.0.1"), &o);
    store_bed_close(b);
}

static void a_database_that_is_not_there_is_an_outage(void **state)
{
    (void)state;
    choose_port();
    const char *const options[] = {"--port", port, "--databases", "1", NULL};
    store_bed *b = store_bed_small(0);
    const kvern_remote_store_options o = remote_options();
    remote_start(options);
    expect_outage(b, url_of("redis", "", "127.0.0.1"), &o, "ERR DB index",
                  KVERN_REMOTE_ERROR_REFUSED);
    store_bed_close(b);
}

// ---- A cluster ----

static redisContext *connect_second(void)
{
    redisContext *c = redisConnect("127.0.0.1", atoi(second_port));
    if (c && !c->err)
        return c;
    if (c)
        redisFree(c);
    return NULL;
}

static void ask_second(const char *command)
{
    redisContext *c = NULL;
    for (int i = 0; i < 1000 && !(c = connect_second()); i++)
        usleep(10000);
    assert_non_null(c);
    redisReply *reply = redisCommand(c, command);
    assert_true(reply && reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
    redisFree(c);
}

static void start_second(void)
{
    char bus[8];
    choose_port();
    snprintf(bus, sizeof bus, "%s", port);
    choose_port();
    snprintf(second_port, sizeof second_port, "%s", port);
    second = fork();
    assert_true(second >= 0);
    if (second == 0) {
        execlp("redis-server", "redis-server", "--port", second_port, "--cluster-enabled", "yes",
               "--cluster-config-file", "second.conf", "--cluster-port", bus, "--save", "", "--dir",
               folder_path("."), "--logfile", folder_path("second.log"), (char *)NULL);
        _exit(127);
    }
    ask_second("CLUSTER ADDSLOTSRANGE 8192 16383");
    freeReplyObject(remote_ask("CLUSTER MEET 127.0.0.1 %s %s", second_port, bus));
}

static void start_first(const char *last_slot)
{
    char bus[8];
    choose_port();
    snprintf(bus, sizeof bus, "%s", port);
    choose_port();
    const char *const options[] = {"--port", port, "--cluster-enabled", "yes", "--cluster-port",
                                   bus,      NULL};
    remote_start(options);
    freeReplyObject(remote_ask("CLUSTER ADDSLOTSRANGE 0 %s", last_slot));
}

// A node serves when it knows where all slots are.
static void wait_for_cluster(void)
{
    for (int i = 0; i < 2000; i++) {
        redisReply *reply = remote_ask("CLUSTER INFO");
        const bool is_up = strstr(reply->str, "cluster_state:ok");
        freeReplyObject(reply);
        if (is_up)
            return;
        usleep(10000);
    }
    fail_msg("the cluster does not come up");
}

static void a_node_with_all_slots_serves(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    const kvern_remote_store_options options = remote_options();
    start_first("16383");
    wait_for_cluster();
    expect_works(b, remote_url(), &options);
    store_bed_close(b);
}

// One that has half of them is left alone: nothing of what is written there is ever served in part,
// the report says why, and questions whether it is there again find the same, so that it stays the
// only one.
static void a_node_of_a_cluster_is_left_alone_and_named(void **state)
{
    (void)state;
    store_bed *b = store_bed_small(0);
    start_first("8191");
    start_second();
    wait_for_cluster();
    kvern_remote_store *r = remote_open(b, NULL, NULL);
    remote_put(b, r, NULL, tokens, LENGTH);
    assert_int_equal(1, remote_stats(r).errors[KVERN_REMOTE_ERROR_REFUSED]);
    assert_non_null(strstr(remote_reported().why, "one node of a cluster"));
    assert_non_null(strstr(remote_reported().why, "a proxy in front"));
    while (remote_stats(r).probes < 4)
        usleep(1000);
    assert_int_equal(KVERN_STORE_OFFLINE, remote_find(b, r, NULL, tokens, LENGTH).why);
    assert_int_equal(KVERN_REMOTE_OFFLINE, remote_put(b, r, NULL, tokens, LENGTH));
    assert_int_equal(1, remote_reported().events[KVERN_REMOTE_DOWN]);
    assert_int_equal(0, remote_reported().events[KVERN_REMOTE_UP]);
    assert_int_equal(0, remote_stats(r).publications);
    assert_int_equal(0, remote_keys('e') + remote_keys('i'));
    kvern_remote_store_close(r);
    store_bed_close(b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(rows_go_through_tls),
        TEST(who_is_not_the_server_is_refused),
        TEST(a_server_may_ask_who_we_are),
        TEST(a_server_without_tls_is_an_outage),
        TEST(files_are_refused_by_name),
        TEST(users_are_let_in_by_their_password),
        TEST(a_database_that_is_not_there_is_an_outage),
        TEST(a_node_with_all_slots_serves),
        TEST(a_node_of_a_cluster_is_left_alone_and_named),
    };
    return remote_can_test() ? cmocka_run_group_tests(tests, NULL, NULL) : 0;
}
