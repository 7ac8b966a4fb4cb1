// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_REMOTE_REMOTE_STORE_H
#define KVERN_STORE_REMOTE_REMOTE_STORE_H

// The inside of a store that machines share (docs/formats/remote_store.md).
//
//     address.c       URLs
//     wire.c          a connection: commands out, answers in
//     link.c          its bytes, within time; plain, or
//     tls.c           in TLS
//     names.c         keys: hashes of layers, of blocks of tokens, of blocks of bytes
//     manifest.c      the value of an entry: what is in it, and the names of its blocks
//     reader.c        the threads that look up and fetch, and ask a server that is down
//     index.c         which entries begin as a prompt
//     fetch.c         one entry: its blocks, and a row of them
//     writer.c        the thread that writes, and the queue in front of it
//     put.c           one entry: blocks, the entry, the index
//     ledger.c        the budget
//     remote_store.c  opening, closing, outages, what is counted
//
// One lock guards the queue, the list of fetches, whether the server is down, and the stats. It is
// never held while the network is waited for, or memory is taken. Each thread has a connection of
// its own, and nobody else uses it.

#include "src/store/disk/disk_store.h"
#include "src/store/fork.h"
#include "src/store/prompt.h"
#include "src/store/remote/manifest.h"
#include "src/store/remote/wire.h"

#include <kvern/remote_store.h>
#include <pthread.h>

#define KVERN_REMOTE_TOKENS 64 // of a block of tokens
#define KVERN_REMOTE_KEY_BYTES 128
#define KVERN_REMOTE_FETCHES 256 // at once
#define KVERN_REMOTE_READERS 2   // that work on them

// A hash of 128 bits; also 32 digits of text and an end.
typedef struct kvern_remote_hash {
    uint64_t low, high;
} kvern_remote_hash;
#define KVERN_REMOTE_HASH_DIGITS 32

// A row that is to be written.
typedef struct kvern_remote_job {
    struct kvern_remote_job *next;
    kvern_state *state; // one row, with the checkpoints that are written
    uint64_t bytes;     // that it counts with
    size_t block_bytes, token_count;
    char space[KVERN_REMOTE_HASH_DIGITS + 1]; // of its fields and layers
    char name[KVERN_REMOTE_HASH_DIGITS + 1];  // of those and its tokens
    kvern_key_front front;
    int32_t tokens[];
} kvern_remote_job;

typedef struct kvern_remote_queue {
    kvern_remote_job *first, *last; // those that wait
    kvern_remote_job *current;      // that is being written
    uint64_t count, bytes;          // of all
} kvern_remote_queue;

struct kvern_remote_fetch {
    kvern_remote_store *store;
    kvern_remote_fetch *next; // among those that wait
    kvern_composition *composition;
    size_t block_bytes;
    int64_t begun, deadline; // milliseconds
    int64_t least;
    // Under the lock:
    bool is_waiting; // in the list
    bool is_running; // a thread works on it
    bool is_done;    // nothing of it changes any more
    bool is_ended;   // by its caller: whoever works on it frees it
    // Also read without it.
    atomic_bool is_given_up;
    kvern_remote_found found;
    kvern_state *row; // of one row: what was found; or NULL
    kvern_row *sets;  // its rows, by set
    kvern_key_front front;
    size_t count;
    int32_t tokens[];
};

typedef struct kvern_remote_reader {
    kvern_remote_store *store;
    size_t number;
    pthread_t thread;
    bool is_busy; // under the lock
} kvern_remote_reader;

struct kvern_remote_store {
    kvern_context *context;
    kvern_remote_store_options options;
    kvern_remote_address address;
    kvern_tls_trust *trust; // NULL: the server has no TLS
    pthread_mutex_t lock;
    pthread_cond_t changed;
    kvern_remote_reader readers[KVERN_REMOTE_READERS];
    pthread_t writer;
    bool ends;
    atomic_bool is_cut; // at the end: what is being done is given up
    kvern_remote_queue queue;
    kvern_remote_fetch *fetches, **last_fetch; // that wait
    bool is_down;
    int64_t down_since, probe_at, probe_wait; // milliseconds
    bool is_told;                             // that something was not written
    kvern_remote_store_stats stats;
};

static inline kvern_heap *kvern_remote_heap(const kvern_remote_store *store)
{
    return &store->context->heap;
}

// Milliseconds of a clock that nobody sets.
int64_t kvern_remote_now(void);

// ---- Outages ----

// The server did not do what it has to: it is left alone, and everything that waits for it is told.
void kvern_remote_go_down(kvern_remote_store *store, const char *why);
void kvern_remote_come_up(kvern_remote_store *store);
bool kvern_remote_is_down(kvern_remote_store *store);

// Under the lock: waits for a change, until a time (INT64_MAX: for ever).
void kvern_remote_wait_until(kvern_remote_store *store, int64_t until);

static inline void kvern_remote_report(const kvern_remote_store *store, kvern_remote_event event,
                                       const char *why)
{
    if (store->options.report)
        store->options.report(store->options.report_user, event, why);
}

// A value that is none of ours, or damaged: it is removed, counted and reported. Errors: those of
// the wire.
KVERN_CHECK kvern_status kvern_remote_remove_damaged(kvern_remote_store *store, kvern_wire *wire,
                                                     const char *key, const char *why);

void kvern_remote_wire_init(const kvern_remote_store *store, kvern_wire *wire);

// Under the lock: takes over what a wire has counted.
void kvern_remote_count_wire(kvern_remote_store *store, kvern_wire *wire);

// ---- Names ----

// A hash of key and layers, as text: what all keys of such rows have in them.
void kvern_remote_space(const kvern_key_front *front, const kvern_composition *composition,
                        char text[KVERN_REMOTE_HASH_DIGITS + 1]);
// The same with tokens behind: an entry's name.
void kvern_remote_name(const kvern_key_front *front, const kvern_composition *composition,
                       const int32_t *tokens, size_t count,
                       char text[KVERN_REMOTE_HASH_DIGITS + 1]);

// The chain of blocks of tokens: its beginning, and the next link.
kvern_remote_hash kvern_remote_chain(const char *space);
kvern_remote_hash kvern_remote_link(kvern_remote_hash before, const int32_t *tokens);
// Of the tokens behind the last whole block.
uint64_t kvern_remote_tail(kvern_remote_hash before, const int32_t *tokens, size_t count);

// Keys.
void kvern_remote_entry_key(const char *space, const char *name, char key[KVERN_REMOTE_KEY_BYTES]);
void kvern_remote_index_key(const char *space, kvern_remote_hash chain,
                            char key[KVERN_REMOTE_KEY_BYTES]);
void kvern_remote_block_key(const char *space, const kvern_manifest_block *block,
                            char key[KVERN_REMOTE_KEY_BYTES]);

// ---- The index ----

// What a field of the index says of an entry.
typedef struct kvern_remote_hint {
    char name[KVERN_REMOTE_HASH_DIGITS + 1];
    int64_t bound; // no more of the prompt than this can be served
    int64_t floor, positions;
    kvern_store_why why; // why nothing below its floor
    uint64_t tail;       // of its tokens behind the last whole block
    bool is_spent;
} kvern_remote_hint;

#define KVERN_REMOTE_HINTS 16

typedef struct kvern_remote_hints {
    size_t count;
    kvern_remote_hint list[KVERN_REMOTE_HINTS]; // the largest bound first
    int64_t withheld; // the longest that has as much of the prompt, and serves it not; 0: none
    kvern_store_why why_withheld;
} kvern_remote_hints;

// Asks for all beginnings of a prompt, at once. Errors: those of the wire.
KVERN_CHECK kvern_status kvern_remote_find(kvern_wire *wire, kvern_remote_fetch *fetch,
                                           const char *space, kvern_remote_hints *hints);

// Reads the value of a field; `field` "*", or how many tokens are behind the last whole block.
// False: it is none.
bool kvern_remote_hint_read(const char *field, size_t field_bytes, const char *value, size_t bytes,
                            kvern_remote_hint *hint);

// Says in the index what an entry serves. Errors: those of the wire.
KVERN_CHECK kvern_status kvern_remote_index_put(kvern_remote_store *store, kvern_wire *wire,
                                                const kvern_remote_job *job);

// Puts off when the index of these tokens expires. Errors: those of the wire.
KVERN_CHECK kvern_status kvern_remote_index_touch(const kvern_remote_store *store, kvern_wire *wire,
                                                  const char *space, const int32_t *tokens,
                                                  size_t count);

// ---- Fetching ----

// Looks for what serves a prompt, and fetches it. Errors: those of the wire.
KVERN_CHECK kvern_status kvern_remote_serve(kvern_remote_store *store, kvern_wire *wire,
                                            kvern_remote_fetch *fetch);

// It has come to its end: found and row are filled.
void kvern_remote_finish(kvern_remote_store *store, kvern_remote_fetch *fetch);
void kvern_remote_fetch_free(kvern_remote_fetch *fetch);

// Under the lock: fetches that wait come to their end, with this reason.
void kvern_remote_finish_waiting(kvern_remote_store *store, kvern_store_why why);

void *kvern_remote_read(void *reader);

// ---- Writing ----

void *kvern_remote_writer(void *store);
void kvern_remote_job_free(kvern_remote_store *store, kvern_remote_job *job);

// Under the lock: the jobs that wait, taken out and counted as dropped.
kvern_remote_job *kvern_remote_take_jobs(kvern_remote_store *store);
void kvern_remote_free_jobs(kvern_remote_store *store, kvern_remote_job *jobs);

// Writes an entry. Errors: those of the wire; KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (the context's, or
// what may be at the server), KVERN_ERR_UNSUPPORTED, KVERN_ERR_OVERFLOW, KVERN_ERR_RANGE: this
// entry cannot be written.
KVERN_CHECK kvern_status kvern_remote_put(kvern_remote_store *store, kvern_wire *wire,
                                          const kvern_remote_job *job);

// ---- The budget ----

// Blocks and an entry are going to be written or used: makes room for those that are new. Errors:
// KVERN_ERR_BUDGET; those of the wire.
KVERN_CHECK kvern_status kvern_remote_claim(kvern_remote_store *store, kvern_wire *wire,
                                            const char *space, const char *name,
                                            const kvern_manifest *manifest);

// They were used. Errors: those of the wire.
KVERN_CHECK kvern_status kvern_remote_claim_touch(kvern_remote_store *store, kvern_wire *wire,
                                                  const char *space, const char *name,
                                                  const kvern_manifest *manifest);

#endif
