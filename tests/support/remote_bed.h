// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_REMOTE_BED_H
#define KVERN_TESTS_SUPPORT_REMOTE_BED_H

// A Redis server of a test's own, on a socket in its folder (tests/support/folder.h), and stores at
// it, whose rows are those of a bed (tests/support/store_bed.h).

#include "src/store/remote/remote_store.h"
#include "tests/support/store_bed.h"

#include <sys/types.h>

// Events that were reported, by kind, and the last reason.
typedef struct remote_reports {
    uint64_t events[4];
    char why[512];
} remote_reports;

remote_reports remote_reported(void);
void remote_forget_reports(void);

// For cmocka groups: false, with a printed reason, where there is no redis-server to start.
bool remote_can_test(void);

// Starts a server, which keeps nothing on the disk, and waits until it answers. `options`: further
// arguments of it, up to NULL; NULL: none.
void remote_start(const char *const *options);
void remote_kill(void); // by SIGKILL; nothing happens where there is none

// Its process; whoever kills that calls remote_kill later, which waits for it.
pid_t remote_server(void);

const char *remote_url(void);

// One command to the server, in the words of hiredis (%b: bytes and their number); never an error
// of the connection. The caller frees the answer.
redisReply *remote_ask(const char *format, ...);
long long remote_number(const char *format, ...);

// Keys of a kind ('b': blocks, 'e': entries, 'i': the index) at the server.
size_t remote_keys(char kind);
// The key number `index` of them, in some order.
const char *remote_key(char kind, size_t index);

// Short times, and reports that are counted.
kvern_remote_store_options remote_options(void);

// `options` NULL: those; `url` NULL: the server's.
kvern_remote_store *remote_open(const store_bed *b, const char *url,
                                const kvern_remote_store_options *options);

// Serves a prompt of one row cold, publishes it and waits until it is written, or was not.
kvern_remote_outcome remote_put(const store_bed *b, kvern_remote_store *r,
                                const kvern_store_key *key, const int32_t *tokens, size_t count);

// Fetches what serves a prompt, to the end.
kvern_remote_found remote_find(const store_bed *b, kvern_remote_store *r,
                               const kvern_store_key *key, const int32_t *tokens, size_t count);

// The same, lent to a state of one row, which is the caller's; its positions.
int64_t remote_lend(const store_bed *b, kvern_remote_store *r, const kvern_store_key *key,
                    const int32_t *tokens, size_t count, kvern_state **out);

kvern_remote_store_stats remote_stats(kvern_remote_store *r);

#endif
