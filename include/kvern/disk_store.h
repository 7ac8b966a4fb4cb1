// SPDX-License-Identifier: MIT
#ifndef KVERN_DISK_STORE_H
#define KVERN_DISK_STORE_H

// A store on disk: rows that were served, in a directory of files (kvern/file.h), one for each
// entry, so that a prompt of tomorrow does not compute again what one of today has.
//
//     options.create = 1;
//     options.budget_bytes = UINT64_C(8) << 30;
//     kvern_disk_store_open(context, "cache", &options, &store);
//     kvern_disk_hit hit = kvern_disk_hit_default();
//     kvern_disk_store_find(store, &key, composition, tokens, count, &hit);
//     if (hit.positions)
//         kvern_disk_store_lend(store, &hit, state, row, &lent);   lent may be 0: the file has gone
//     kvern_disk_store_release(store, &hit);
//     ... kvern_disk_store_publish(store, &key, tokens, length, state, row, NULL);    queued
//     kvern_disk_store_close(store);                           what is queued is written before
//
// Keys, tokens, floors and reasons are those of a store in memory (kvern/store.h): tokens are
// compared, never only hashed, a prefix is served down to its floor, and the last token of a prompt
// is left to run. A caller that has both asks memory first, and the disk for what is longer.
//
// Processes: one of them writes, the one that opened the directory first; it holds a lock until it
// closes the store or ends in whatever way. The others read: what was there when they opened it or
// looked again (kvern_disk_store_rescan); the first one that looks again when the writer has gone
// is the next writer. Entries are mapped, so all processes share their memory.
// Files appear whole, and are replaced or removed but never changed: a row that was lent keeps what
// it has, and a file that has gone is a miss. Space of a file that somebody has mapped comes back
// when its last row has gone.
//
// What a directory has beside entries: temporary files of writers that were killed are removed by
// the next one. A file under an entry's name that is none, is damaged, or is of another version is
// moved to the directory `aside` in it by the writer, in place of an older one of that name, and
// reported; readers pass it over. What lies aside counts in the budget, and goes before any entry
// does, in no order. All other names are left alone, there, too.
//
// A full disk costs old entries, not new ones: what is set aside goes, and then entries, those that
// were unused for the longest first, as many bytes as the file lacks that found no space, and it is
// written again. After the fourth time it is given up and reported; nor is there more than one try
// where nothing can go.
//
// Checksums find damage, not malice: a directory must be its owner's alone, as it is made here.
//
// Thread rule: a store may be used by several threads at once, with states and hits as for
// kvern_store. Lookups take no memory, and wait for no disk. The index is in memory of the
// context's, under its budget: the tokens of all entries, each beginning once. The context's
// functions for memory must not call the store. Do not fork a process while it has a store.
//
// These functions are there when the library was built with KVERN_FILES (docs/building.md).

#include <kvern/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_disk_store kvern_disk_store;
typedef struct kvern_disk_entry kvern_disk_entry;

// What became of a file, and why: a sentence. Both strings are there during the call.
typedef enum kvern_disk_event {
    KVERN_DISK_MOVED_ASIDE = 0, // it is no entry, is damaged, or is of another version
    KVERN_DISK_PASSED_OVER = 1, // likewise, by a reader; or it cannot be read or moved
    KVERN_DISK_NOT_WRITTEN = 2  // an entry was not: a full disk, the budget, memory
} kvern_disk_event;

// What a store is opened with. Zero is the default of every field but size.
typedef struct kvern_disk_store_options {
    size_t size; // sizeof(kvern_disk_store_options); set by kvern_disk_store_options_init

    // The most bytes that entries, the temporary file and what is set aside take in the directory.
    // Room is made before an entry is written. 0: no limit.
    uint64_t budget_bytes;

    // Entries and bytes of them (kvern_state_bytes) that wait to be written at most; one alone may
    // be larger. 0: 16 entries, 1 GiB.
    uint64_t queue_entries, queue_bytes;

    // Called on the thread that finds it, which may be the store's own; must not call the store.
    void (*report)(void *user, kvern_disk_event event, const char *name, const char *why);
    void *user;

    uint32_t create;        // 1: the directory is made where there is none, for its owner alone
    uint32_t read_only;     // 1: never the writer
    uint32_t trust_pages;   // 1: checksums of pages are not compared before a file is lent first
    uint32_t drop_at_close; // 1: what is queued when the store is closed is not written
} kvern_disk_store_options;

// Writes the defaults to `size` bytes, sizeof(kvern_disk_store_options) of the caller.
KVERN_API void kvern_disk_store_options_init(kvern_disk_store_options *options, size_t size);

// The same as a value.
static inline kvern_disk_store_options kvern_disk_store_options_default(void)
{
    kvern_disk_store_options options;
    kvern_disk_store_options_init(&options, sizeof options);
    return options;
}

// Opens a directory, as its writer where nobody else is (kvern_disk_store_stats.is_writer), and
// looks at all files in it: their headers, tokens and checksums, not their pages. A writer evicts
// what is above the budget, and has a thread of its own, which writes. `options` NULL: the
// defaults. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_UNSUPPORTED (fields that
// the library does not know; the machine), KVERN_ERR_IO (no such directory, or no permission),
// KVERN_ERR_THREADS, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (of the context).
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_open(kvern_context *context,
                                                         const char *directory,
                                                         const kvern_disk_store_options *options,
                                                         kvern_disk_store **out);

// Writes what is queued, or drops it (drop_at_close), and closes; rows that were lent live on. Hits
// must have been released. NULL is allowed.
KVERN_API void kvern_disk_store_close(kvern_disk_store *store);

// A reader looks at what others have written and removed since, and becomes the writer, with all
// that one does at its opening, where there is none any more and it was not opened to read only.
// Takes no longer than asking for the lock and the directory's time where nothing changed. A writer
// knows already: nothing happens. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET,
// KVERN_ERR_THREADS; a reader stays one then, and what was found before stays.
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_rescan(kvern_disk_store *store);

// ---- Publishing ----

// What became of a row that was published.
typedef enum kvern_disk_outcome {
    KVERN_DISK_QUEUED = 0,  // it will be written
    KVERN_DISK_STORED = 1,  // what is there or queued serves all that it would
    KVERN_DISK_DROPPED = 2, // the queue is full
    KVERN_DISK_READER = 3   // the store is not the directory's writer
} kvern_disk_outcome;

// Queues a row with the tokens that it has been served, all of them, to be written, and does not
// wait for that. Until it is written it is kept as a fork is: its pages are shared, and count in
// the context's budget (a row that goes on copies those that it writes to), with its checkpoints
// where these serve what the row does not. `tokens` is borrowed for the call; *outcome (NULL: not
// wanted) says what became of it. Whether it could be written is known later, by reports and stats.
//
// Room is made by removing those entries that were unused for the longest. Entries whose tokens
// begin the new one's go when it can serve all that they did; so do those that wait to be written,
// where the queue has room for the new one then.
//
// On failure nothing changed. Errors: KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (row; a count that is not
// the row's length; an empty row; a key that is too large, also when written as text: names of
// fields take 1 to 200 bytes there), KVERN_ERR_UNSUPPORTED (a row below its own floor),
// KVERN_ERR_BUSY (a step or a round is open), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (the context's).
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_publish(kvern_disk_store *store,
                                                            const kvern_store_key *key,
                                                            const int32_t *tokens, size_t count,
                                                            const kvern_state *state, size_t row,
                                                            kvern_disk_outcome *outcome);

// Waits until nothing is queued: all has been written, or could not be.
KVERN_API void kvern_disk_store_flush(kvern_disk_store *store);

// ---- Looking up ----

// What was found. Its entry is pinned until kvern_disk_store_release: this process does not evict
// it. Others may.
typedef struct kvern_disk_hit {
    size_t size;             // sizeof(kvern_disk_hit); set by kvern_disk_hit_init
    int64_t positions;       // of the prefix that can be lent; 0: nothing was found
    int64_t common;          // tokens that the prompt has in common with any entry of its key
    kvern_disk_entry *entry; // NULL: nothing was found
    kvern_store_why why;     // why `positions` are no more
    uint32_t reserved;
} kvern_disk_hit;

// Makes *hit ready to be filled: its size, which is `size`, sizeof(kvern_disk_hit) of the caller,
// and zeros.
KVERN_API void kvern_disk_hit_init(kvern_disk_hit *hit, size_t size);

// The same as a value.
static inline kvern_disk_hit kvern_disk_hit_default(void)
{
    kvern_disk_hit hit;
    kvern_disk_hit_init(&hit, sizeof hit);
    return hit;
}

// Finds the entry with the longest prefix that serves a prompt, in the index: as kvern_store_find,
// with its errors. What is queued is not found yet.
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_find(kvern_disk_store *store,
                                                         const kvern_store_key *key,
                                                         const kvern_composition *composition,
                                                         const int32_t *tokens, size_t count,
                                                         kvern_disk_hit *hit);

// The empty row `row` of a state becomes the prefix that was found, in all layers: its pages are
// mapped, and verified where that has not been done yet. *lent receives its positions: those of the
// hit; or 0, and the row is empty, where the file has gone meanwhile or is damaged, which is
// counted and reported, and the entry with it is found no more. Room that was reserved for the row
// stays, but for room of another form than it has then. On failure nothing changed. Errors:
// KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE, KVERN_ERR_UNSUPPORTED, KVERN_ERR_BUSY as kvern_store_lend;
// KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (tables).
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_lend(kvern_disk_store *store,
                                                         const kvern_disk_hit *hit,
                                                         kvern_state *state, size_t row,
                                                         int64_t *lent);

// Lets go of what was found; the hit may be filled again. Nothing happens where nothing is held.
KVERN_API void kvern_disk_store_release(kvern_disk_store *store, kvern_disk_hit *hit);

// ---- What there is ----

// An entry. The name is there during the call.
typedef struct kvern_disk_entry_facts {
    size_t size;        // sizeof(kvern_disk_entry_facts)
    const char *name;   // of its file, in the directory
    uint64_t bytes;     // of its file
    int64_t used;       // when it was last written or lent, in seconds since 1970
    int64_t positions;  // of its row
    int64_t floor;      // it serves prefixes down to this one
    size_t checkpoints; // of its row
    size_t reserved;
} kvern_disk_entry_facts;

// Calls `visit` for each entry that this process knows of, in no order, until it returns something
// else than 0, which is returned. It must not call the store.
KVERN_API int kvern_disk_store_each(kvern_disk_store *store,
                                    int (*visit)(void *user, const kvern_disk_entry_facts *facts),
                                    void *user);

// Removes what was set aside, and then entries, the one that was unused for the longest first,
// until the rest takes at most `bytes` bytes; those that hits hold stay. Waits for the entry that
// is being written. Errors: KVERN_ERR_BUSY (another process is the writer, or the store was opened
// to read only).
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_prune(kvern_disk_store *store, uint64_t bytes);

// What a store holds, and what it has done since it was opened.
typedef struct kvern_disk_store_stats {
    size_t size;           // sizeof(kvern_disk_store_stats); set by kvern_disk_store_stats_init
    uint64_t budget_bytes; // 0: no limit
    uint64_t is_writer;    // 1: this is the writer; 0: a reader, for now
    uint64_t bytes;        // of files of entries
    uint64_t entries;
    uint64_t pinned;      // of them, or of those that have gone meanwhile
    uint64_t other_bytes; // of files under entries' names that cannot be read, moved or removed
    uint64_t aside_bytes; // of files that were set aside; a reader does not count them

    kvern_store_lookups lookups;
    uint64_t gone;    // files that were not there any more when they were to be lent
    uint64_t damaged; // files that turned out damaged then

    uint64_t queued; // rows that wait, or are being written
    uint64_t queued_bytes;
    uint64_t publications;     // entries that were written
    uint64_t written_bytes;    // by these
    uint64_t stored_already;   // rows that were not queued, for others serve all that they would
    uint64_t dropped;          // that found the queue full, or were dropped when it was closed
    uint64_t refused;          // entries that do not fit the budget
    uint64_t failures;         // entries that could not be written otherwise
    uint64_t replaced;         // by entries of equal tokens
    uint64_t served_by_longer; // beginnings that went because of a longer entry
    uint64_t evictions;        // for room, of the budget or the disk, and by kvern_disk_store_prune

    uint64_t scans;       // of the directory
    uint64_t aside;       // files that were moved aside
    uint64_t passed_over; // files that were not, each time
    uint64_t left_over;   // temporary files of writers that were killed, removed
} kvern_disk_store_stats;

// Makes *stats ready to be filled: its size, which is `size`, sizeof(kvern_disk_store_stats) of the
// caller, and zeros.
KVERN_API void kvern_disk_store_stats_init(kvern_disk_store_stats *stats, size_t size);

// The same as a value.
static inline kvern_disk_store_stats kvern_disk_store_stats_default(void)
{
    kvern_disk_store_stats stats;
    kvern_disk_store_stats_init(&stats, sizeof stats);
    return stats;
}

// Fills *stats: all of one moment. On failure it is unchanged. Errors: KVERN_ERR_ARGUMENT.
KVERN_API KVERN_CHECK kvern_status kvern_disk_store_get_stats(kvern_disk_store *store,
                                                              kvern_disk_store_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
