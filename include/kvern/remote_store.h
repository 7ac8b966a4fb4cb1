// SPDX-License-Identifier: MIT
#ifndef KVERN_REMOTE_STORE_H
#define KVERN_REMOTE_STORE_H

// A store that machines share: rows that were served, kept in Redis 7 or Valkey, so that another
// process anywhere does not compute their prompts again.
//
//     kvern_remote_store_open(context, "redis://host:6379", NULL, &store);   does not wait
//     kvern_remote_store_begin(store, &key, composition, tokens, count, 0, 0, &fetch);
//     ... the caller does something else
//     if (kvern_remote_store_poll(store, fetch, &found) && found.positions)
//         kvern_remote_store_lend(store, fetch, state, row);     the row has found.positions now
//     kvern_remote_store_end(store, fetch);
//     ... kvern_remote_store_publish(store, &key, tokens, length, state, row, NULL);    queued
//     kvern_remote_store_close(store);                       what is queued is written before
//
// Keys, tokens, floors and reasons are those of a store in memory (kvern/store.h): tokens are
// compared, never only hashed, a prefix is served down to its floor, and the last token of a prompt
// is left to run.
//
// An entry is what a file of the disk store holds (kvern/disk_store.h), in blocks: each page is a
// value of its own under its content's hash, so that rows with the same beginning share the blocks
// of it. docs/formats/remote_store.md says what lies under which key.
//
// What is written appears whole or not at all: blocks first, and last, by one command, what names
// them. What expires, is evicted or is damaged is a miss, never a wrong answer: a block is compared
// with its hash when it arrives, and an entry is checked as a file is when it is loaded. Damaged
// entries are removed there, and reported. Checksums find damage, not malice: whoever can write to
// the server can give rows any content, within what rows can be. Keep it to those who may.
//
// All network traffic is on three threads of the store's own: two look up and fetch, each with a
// connection, so that a short prompt does not wait behind a long one; one writes.
// No call waits for the network but kvern_remote_store_wait, kvern_remote_store_flush and
// kvern_remote_store_close. A server that does not answer in time is left alone: that is reported
// once, calls return at once from then on, what is queued is dropped, and the store asks it again
// in the background until it answers.
//
// Thread rule: a store may be used by several threads at once; a fetch and a state by one at a
// time. Everything that is fetched lies in memory of the context's, under its budget, before it is
// lent: while it arrives, as large as the entry's file, and its pages beside it for the last
// moment, of two fetches at most at a time. hiredis, which speaks with the server, takes its memory
// from the C library: what is in an entry besides its pages, and some KiB; OpenSSL as well, where
// the server speaks TLS. Do not fork a process while it has a store.
//
// These functions are there when the library was built with KVERN_REDIS (docs/building.md), on
// little-endian machines (else KVERN_ERR_UNSUPPORTED).

#include <kvern/store.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_remote_store kvern_remote_store;
typedef struct kvern_remote_fetch kvern_remote_fetch;

// What happened, and why: a sentence, which is there during the call.
typedef enum kvern_remote_event {
    KVERN_REMOTE_DOWN = 0,       // the server does not answer, or refuses; it is left alone
    KVERN_REMOTE_UP = 1,         // it answers again
    KVERN_REMOTE_DAMAGED = 2,    // something under our keys is none of ours, or damaged: removed
    KVERN_REMOTE_NOT_WRITTEN = 3 // the server, the budget or memory refused; the same reason is
                                 // reported once until something is written
} kvern_remote_event;

// What a store is opened with. Zero is the default of every field but size.
typedef struct kvern_remote_store_options {
    size_t size; // sizeof(kvern_remote_store_options); set by kvern_remote_store_options_init

    const char *user;     // of the server (AUTH); NULL: the URL's, or its default user
    const char *password; // NULL: the URL's, or none

    // The most bytes of blocks and entries at the server, of all that write there with a budget:
    // what was unused for the longest goes first. Keys, the index and the server's own overhead are
    // not counted. Needs a server that runs scripts (EVAL); where it does not, nothing is written.
    // 0: no limit but the server's (maxmemory).
    uint64_t budget_bytes;
    uint64_t ttl_seconds; // what nobody uses for so long goes; 0: a day

    // Rows and bytes of them (kvern_state_bytes) that wait to be written at most; one alone may be
    // larger. 0: 16 rows, 1 GiB.
    uint64_t queue_entries, queue_bytes;

    // Milliseconds. 0: the default, which is said behind it.
    uint32_t connect_ms; // to connect: 500
    uint32_t answer_ms;  // from one byte of an answer to the next: 1000
    uint32_t fetch_ms;   // of a fetch, from its beginning to what can be lent: 5000
    uint32_t probe_ms;   // between questions to a server that did not answer, at first; it doubles
                         // with each, up to 32 times: 500

    // Called on a thread of the store's; must not call the store.
    void (*report)(void *user, kvern_remote_event event, const char *why);
    void *report_user;

    uint32_t read_only;     // 1: nothing is written but times of last use
    uint32_t drop_at_close; // 1: what is queued when the store is closed is not written

    // Of a server with TLS (rediss://), files in PEM, read when the store is opened. Its
    // certificate is always verified, and the host's name or address in it.
    const char *ca_file;          // whom to trust; NULL: whom the system trusts
    const char *certificate_file; // the client's own, and its key: both, or NULL
    const char *key_file;
} kvern_remote_store_options;

// Writes the defaults to `size` bytes, sizeof(kvern_remote_store_options) of the caller.
KVERN_API void kvern_remote_store_options_init(kvern_remote_store_options *options, size_t size);

// The same as a value.
static inline kvern_remote_store_options kvern_remote_store_options_default(void)
{
    kvern_remote_store_options options;
    kvern_remote_store_options_init(&options, sizeof options);
    return options;
}

// Opens a store at a server:
//
//     redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]       IPv6 addresses in brackets
//     rediss://...                                           the same with TLS
//     unix:PATH
//
// and does not wait for it: whether it is there is found by the first call that needs it. User and
// password may have bytes as %XX. Everything else in a URL is refused by name (queries and
// fragments, too). A node of a Redis Cluster that has some of the keys only is left alone, and the
// report says why. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT (NULL, another form of URL,
// files of TLS for a server without, a certificate without its key), KVERN_ERR_UNSUPPORTED (TLS in
// a library without KVERN_TLS, docs/building.md; fields that the library does not know; the
// machine), KVERN_ERR_IO (a file of TLS that cannot be read), KVERN_ERR_THREADS, KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET (of the context).
KVERN_API KVERN_CHECK kvern_status
kvern_remote_store_open(kvern_context *context, const char *url,
                        const kvern_remote_store_options *options, kvern_remote_store **out);

// Writes what is queued, or drops it (drop_at_close, or a server that does not answer), and closes;
// rows that were lent live on. Fetches must have been ended. NULL is allowed.
KVERN_API void kvern_remote_store_close(kvern_remote_store *store);

// ---- Publishing ----

// What became of a row that was published.
typedef enum kvern_remote_outcome {
    KVERN_REMOTE_QUEUED = 0,   // it will be written
    KVERN_REMOTE_WAITS = 1,    // one of equal tokens is queued already
    KVERN_REMOTE_FULL = 2,     // dropped: the queue is full
    KVERN_REMOTE_OFFLINE = 3,  // dropped: the server does not answer
    KVERN_REMOTE_READ_ONLY = 4 // dropped: the store only reads
} kvern_remote_outcome;

// Queues a row with the tokens that it has been served, all of them, to be written, and does not
// wait for that: as kvern_disk_store_publish, with its errors and what is kept meanwhile. Blocks
// that are at the server are not sent again. `tokens` is borrowed for the call; *outcome (NULL: not
// wanted) says what became of it.
KVERN_API KVERN_CHECK kvern_status kvern_remote_store_publish(kvern_remote_store *store,
                                                              const kvern_store_key *key,
                                                              const int32_t *tokens, size_t count,
                                                              const kvern_state *state, size_t row,
                                                              kvern_remote_outcome *outcome);

// Drops what is queued, but for the row that is being written, so that its memory comes back: for a
// scheduler that needs room in the context's budget. Does not wait. Returns how many rows went.
KVERN_API uint64_t kvern_remote_store_give_up(kvern_remote_store *store);

// Waits until nothing is queued: all has been written, or could not be.
KVERN_API void kvern_remote_store_flush(kvern_remote_store *store);

// ---- Fetching ----

// What was fetched.
typedef struct kvern_remote_found {
    size_t size;         // sizeof(kvern_remote_found); set by kvern_remote_found_init
    int64_t positions;   // of the prefix that can be lent; 0: nothing was found, or none in time
    int64_t common;      // tokens that the prompt has in common with what was looked at
    uint64_t bytes;      // of blocks that arrived for it
    double seconds;      // from the beginning to the end
    kvern_store_why why; // why `positions` are no more
    uint32_t reserved;
} kvern_remote_found;

// Makes *found ready to be filled: its size, which is `size`, sizeof(kvern_remote_found) of the
// caller, and zeros.
KVERN_API void kvern_remote_found_init(kvern_remote_found *found, size_t size);

// The same as a value.
static inline kvern_remote_found kvern_remote_found_default(void)
{
    kvern_remote_found found;
    kvern_remote_found_init(&found, sizeof found);
    return found;
}

// Begins to look for the longest prefix that serves a prompt of `count` tokens, and to fetch it, if
// it has at least `least` positions and one: what fewer would save is not worth the way, or is
// there from elsewhere. `milliseconds`: how long that may take; 0: as the options say. All
// arguments are copied or retained. On success *out is the caller's, who ends it
// (kvern_remote_store_end). On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT (also a composition
// of another context), KVERN_ERR_RANGE (a key that is too large), KVERN_ERR_MEMORY,
// KVERN_ERR_BUDGET.
KVERN_API KVERN_CHECK kvern_status kvern_remote_store_begin(kvern_remote_store *store,
                                                            const kvern_store_key *key,
                                                            kvern_composition *composition,
                                                            const int32_t *tokens, size_t count,
                                                            int64_t least, uint32_t milliseconds,
                                                            kvern_remote_fetch **out);

// Whether it has come to an end, its time's included; *found (NULL: not wanted) is filled then.
// From then on it stays what it is.
KVERN_API bool kvern_remote_store_poll(kvern_remote_store *store, kvern_remote_fetch *fetch,
                                       kvern_remote_found *found);

// The same after waiting for the end, `milliseconds` at most.
KVERN_API bool kvern_remote_store_wait(kvern_remote_store *store, kvern_remote_fetch *fetch,
                                       uint32_t milliseconds, kvern_remote_found *found);

// The empty row `row` of a state becomes the prefix that was fetched, in all layers. A fetch may be
// lent to any number of rows. Room that was reserved for the row stays, but for room of another
// form than it has then. Takes no memory. On failure nothing changed. Errors: KVERN_ERR_ARGUMENT
// (another context; it has nothing), KVERN_ERR_RANGE (row), KVERN_ERR_UNSUPPORTED (other layers),
// KVERN_ERR_BUSY (the row is not empty; a step or a round is open; it has not come to its end).
KVERN_API KVERN_CHECK kvern_status kvern_remote_store_lend(kvern_remote_store *store,
                                                           kvern_remote_fetch *fetch,
                                                           kvern_state *state, size_t row);

// Lets go of a fetch, at any time; what it still does is given up. NULL is allowed.
KVERN_API void kvern_remote_store_end(kvern_remote_store *store, kvern_remote_fetch *fetch);

// ---- What happened ----

// What went wrong on connections.
typedef enum kvern_remote_error {
    KVERN_REMOTE_ERROR_CONNECT = 0, // there was none within connect_ms
    KVERN_REMOTE_ERROR_CLOSED = 1,  // it ended, was cut off, or failed at TLS
    KVERN_REMOTE_ERROR_SILENT = 2,  // nothing came for answer_ms
    KVERN_REMOTE_ERROR_REFUSED = 3, // the server said no: a password, it loads, is full, a cluster
    KVERN_REMOTE_ERROR_ANSWER = 4,  // it answered what it was not asked, or not in its protocol
    KVERN_REMOTE_ERROR_LATE = 5     // a fetch was ended, or its time, while something was awaited
} kvern_remote_error;
#define KVERN_REMOTE_ERRORS 6

// What a store has done since it was opened.
typedef struct kvern_remote_store_stats {
    size_t size;           // sizeof(kvern_remote_store_stats); set by kvern_remote_store_stats_init
    uint64_t is_reachable; // 0: the server did not answer, and is left alone
    uint64_t outages;      // times that it was
    uint64_t probes;       // questions to a server that did not answer

    kvern_store_lookups lookups; // fetches that came to an end
    uint64_t fetching;           // that have not
    uint64_t round_trips;        // waits for answers, of fetches
    uint64_t fetched_bytes;      // of blocks and entries
    uint64_t gone;               // entries that lacked a block, all of it or behind what served
    uint64_t damaged;            // values that were not what they should be

    uint64_t queued; // rows that wait, or are being written
    uint64_t queued_bytes;
    uint64_t publications;  // entries that were written
    uint64_t blocks;        // of these, all
    uint64_t shared_blocks; // of these, that were there already
    uint64_t written_bytes; // of blocks and entries
    uint64_t dropped;       // rows that were not queued or not written: a full queue, an outage
    uint64_t refused;       // entries that the budget has no room for
    uint64_t failures;      // entries that could not be written otherwise
    uint64_t evictions;     // blocks and entries that were removed for the budget

    uint64_t connections;                 // that were made
    uint64_t received_bytes, sent_bytes;  // on them, everything (in TLS: what is inside)
    uint64_t errors[KVERN_REMOTE_ERRORS]; // by kvern_remote_error
    double fetch_seconds;                 // of all that came to an end (lookups.count), from their
                                          // beginning, the time that they waited included
    double hit_seconds;                   // of those that found something
    double publish_seconds;               // of entries that were written (publications)
    double down_seconds;                  // that the server was left alone, up to now
    double probe_in_seconds;              // until it is asked again; 0: it is reachable
} kvern_remote_store_stats;

// Makes *stats ready to be filled: its size, which is `size`, sizeof(kvern_remote_store_stats) of
// the caller, and zeros.
KVERN_API void kvern_remote_store_stats_init(kvern_remote_store_stats *stats, size_t size);

// The same as a value.
static inline kvern_remote_store_stats kvern_remote_store_stats_default(void)
{
    kvern_remote_store_stats stats;
    kvern_remote_store_stats_init(&stats, sizeof stats);
    return stats;
}

// Fills *stats: all of one moment. On failure it is unchanged. Errors: KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_remote_store_get_stats(kvern_remote_store *store,
                                                                kvern_remote_store_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
