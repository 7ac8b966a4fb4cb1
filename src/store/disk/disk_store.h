// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_DISK_STORE_H
#define KVERN_STORE_DISK_STORE_H

// The inside of a store on disk.
//
//     entry_file.c    what a file says of its entry, and its name: both from key, layers and tokens
//     index.c         which entries there are: a trie of their tokens, and a table of their names
//     directory.c     the directory: its lock, what lies in it, what is removed and moved aside
//     lookup.c        finding and lending
//     publish.c       rows that are to be written, in a queue
//     writer.c        the thread that writes them
//     disk_store.c    opening, closing, and what is counted
//
// Two locks. `lock` guards index, queue and stats, and is never held while the disk is waited for,
// but to give files another name (a reader's rescan changes the index only). `disk_lock` is held by
// whoever changes the directory, from the first look at what there is to the end; it is taken
// before the other one. Every file of an entry is in the index, or counts in other_bytes or
// aside_bytes, so that the budget is that of the directory.

#include "src/file/container/container.h"
#include "src/state/checkpoint.h"
#include "src/state/kept_row.h"
#include "src/store/prompt.h"
#include "src/store/why.h"

#include <kvern/disk_store.h>
#include <pthread.h>
#include <sys/stat.h>

#define KVERN_DISK_SUFFIX ".kvern"
#define KVERN_DISK_HASH_DIGITS 32
// A name with its suffix and what temporary files have behind it.
#define KVERN_DISK_NAME_BYTES 64
#define KVERN_DISK_PATH_BYTES 4096
#define KVERN_DISK_ASIDE "aside"
#define KVERN_DISK_LOCK "writer.lock"
#define KVERN_DISK_BUCKETS 4096 // of names; their first digits say which

// The signatures of all layers, which entries of one kind have in common.
typedef struct kvern_disk_layout {
    uint64_t number; // in keys
    size_t references;
    struct kvern_disk_layout *next;
    size_t layers, bytes; // bytes of the signatures
    char signatures[];    // each with its end
} kvern_disk_layout;

// What an entry serves: the row of its file, or a checkpoint of that.
typedef struct kvern_disk_item {
    kvern_trie_item item;           // its node also where another item is in front
    struct kvern_disk_item *behind; // items of other files at equal tokens, of no lower floors
    kvern_disk_entry *entry;
    int64_t positions, floor;
    kvern_store_why why_floor; // why it does not serve less
} kvern_disk_item;

struct kvern_disk_entry {
    char name[KVERN_DISK_NAME_BYTES];
    uint64_t bytes;
    ino_t inode;
    int64_t used; // nanoseconds since 1970: the file's time of change
    kvern_disk_layout *layout;
    kvern_disk_entry *next_named; // in its bucket
    kvern_disk_entry *next;       // among those that go
    size_t pins;
    bool is_listed;   // else it has gone, and stays for who has it
    bool is_verified; // its pages, by this process
    bool is_seen;     // by the present scan
    size_t item_count;
    kvern_disk_item items[]; // its row's, and those of checkpoints, the largest first
};

// What was taken out of the index, to be freed without the lock.
typedef struct kvern_disk_rest {
    kvern_disk_entry *entries; // through next
    kvern_disk_layout *layouts;
    kvern_trie_rest trie;
} kvern_disk_rest;

// A row that is to be written.
typedef struct kvern_disk_job {
    struct kvern_disk_job *next;
    kvern_state *state; // one row, with the checkpoints that are saved
    uint64_t bytes;     // that it counts with
    int64_t floor;
    kvern_store_why why;
    char name[KVERN_DISK_NAME_BYTES];
    size_t block_bytes, token_count;
    kvern_key_front front;
    int32_t tokens[];
} kvern_disk_job;

typedef struct kvern_disk_queue {
    kvern_disk_job *first, *last; // those that wait
    kvern_disk_job *current;      // that is being written
    uint64_t count, bytes;        // of all
    bool ends;
    pthread_cond_t changed;
} kvern_disk_queue;

struct kvern_disk_store {
    kvern_context *context;
    kvern_disk_store_options options;
    pthread_mutex_t disk_lock, lock;
    char directory[KVERN_DISK_PATH_BYTES];
    size_t directory_bytes;
    int lock_file; // -1: a reader; under disk_lock. Others ask stats.is_writer, which is later
    pthread_t thread;
    kvern_disk_queue queue;
    kvern_disk_calls calls; // of the system; tests bring others

    kvern_trie trie;
    kvern_disk_layout *layouts;
    uint64_t layouts_made;
    kvern_disk_entry *buckets[KVERN_DISK_BUCKETS];
    kvern_disk_store_stats stats;

    struct timespec scanned; // the directory's time at the last scan; unsure: all zero
};

static inline kvern_heap *kvern_disk_heap(const kvern_disk_store *store)
{
    return &store->context->heap;
}

// Whether the thread that writes has begun. Without the lock.
static inline bool kvern_disk_is_writer(kvern_disk_store *store)
{
    pthread_mutex_lock(&store->lock);
    const bool is = store->stats.is_writer;
    pthread_mutex_unlock(&store->lock);
    return is;
}

// Nanoseconds since 1970.
static inline int64_t kvern_disk_time(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

// ---- Files of entries ----

// What a file says of its entry.
typedef struct kvern_disk_facts {
    kvern_key_front front; // its fields
    const int32_t *tokens; // in the file
    int64_t positions;
    size_t snapshots; // the row and its checkpoints
    const char *note; // what of them is served: kvern_disk_snapshot_read
    char name[KVERN_DISK_NAME_BYTES];
} kvern_disk_facts;

// One snapshot in the note of a file.
typedef struct kvern_disk_snapshot {
    int64_t positions, floor;
    kvern_store_why why;
} kvern_disk_snapshot;

// Reads it. Errors: KVERN_ERR_FORMAT (it is not an entry's), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_disk_facts_read(const kvern_file *file, kvern_disk_facts *out);

// Reads the next snapshot of a note: the row, then its checkpoints, the largest first. False: there
// is none, or what is there is none.
bool kvern_disk_snapshot_read(const char **note, kvern_disk_snapshot *out);

// The name of an entry's file: XXH3 of its fields, signatures and tokens.
void kvern_disk_name(const kvern_key_front *front, size_t layers,
                     const char *(*signature)(const void *of, size_t layer), const void *of,
                     const int32_t *tokens, size_t count, char name[KVERN_DISK_NAME_BYTES]);

// Whether a name is one of an entry's file, or of a temporary one of it.
bool kvern_disk_is_name(const char *name);
bool kvern_disk_is_temporary(const char *name);

// Whether the fields can be written: KVERN_ERR_RANGE.
KVERN_CHECK kvern_status kvern_disk_check_fields(const kvern_key_front *front);

// Writes a job's row. `calls`: with the question for room. Errors: of kvern_file_save.
KVERN_CHECK kvern_status kvern_disk_write(const kvern_disk_calls *calls, const kvern_disk_job *job,
                                          const char *path);

// The same file to a sink, of the only row of a state.
KVERN_CHECK kvern_status kvern_disk_write_to(const kvern_container_sink *sink,
                                             const kvern_state *state, const kvern_key_front *front,
                                             const int32_t *tokens);

// ---- The index: under the lock ----

kvern_disk_layout *kvern_disk_find_layout(const kvern_disk_store *store, size_t layers,
                                          const char *(*signature)(const void *of, size_t layer),
                                          const void *of);
const char *kvern_disk_file_signature(const void *file, size_t layer);

kvern_disk_entry *kvern_disk_find_name(const kvern_disk_store *store, const char *name);

// Puts the entry of an open file in; takes memory, and changes nothing when
// there is none. None of its name is there.
KVERN_CHECK kvern_status kvern_disk_index_add(kvern_disk_store *store, const kvern_file *file,
                                              const kvern_disk_facts *facts,
                                              const struct stat *file_facts,
                                              kvern_disk_entry **out);

// The entry goes; a pinned one stays for who has it.
void kvern_disk_index_drop(kvern_disk_store *store, kvern_disk_entry *entry, kvern_disk_rest *rest);
void kvern_disk_unpin(kvern_disk_store *store, kvern_disk_entry *entry, kvern_disk_rest *rest);

// Entries that the new one serves whole go, but for pinned ones.
void kvern_disk_index_drop_beginnings(kvern_disk_store *store, kvern_disk_entry *entry,
                                      kvern_disk_rest *rest);

// Whether what is stored serves all that a row with these tokens and this floor would.
bool kvern_disk_serves(kvern_disk_store *store, const kvern_key *key, int64_t floor);

// The first thing about the index that does not hold, in words; NULL: all is well. For tests.
const char *kvern_disk_walk(kvern_disk_store *store);

// ---- Without the lock ----

void kvern_disk_rest_free(kvern_disk_store *store, kvern_disk_rest *rest);
size_t kvern_disk_entry_bytes(size_t items);

// ---- The directory ----

// The path of a name in the directory, or in a folder of it (NULL: the directory).
void kvern_disk_path(const kvern_disk_store *store, const char *folder, const char *name,
                     char path[KVERN_DISK_PATH_BYTES]);

// Finds the directory. Errors: KVERN_ERR_IO.
KVERN_CHECK kvern_status kvern_disk_directory_open(kvern_disk_store *store, const char *directory);

// Takes the writer's lock where that is free. False: this stays a reader. Under disk_lock.
bool kvern_disk_directory_lock(kvern_disk_store *store);
void kvern_disk_directory_unlock(kvern_disk_store *store);

// Looks at all files that the index does not know, and forgets those that have gone. Under
// disk_lock. Errors: KVERN_ERR_IO, KVERN_ERR_MEMORY, KVERN_ERR_BUDGET.
KVERN_CHECK kvern_status kvern_disk_scan(kvern_disk_store *store);

// Looks at one file. *added is NULL where it has gone, was moved aside or passed over, with a
// report. Under disk_lock.
KVERN_CHECK kvern_status kvern_disk_look(kvern_disk_store *store, const char *name,
                                         kvern_disk_entry **added);

// A file that is no entry: moved aside by a writer, passed over by a reader, and reported. Under
// disk_lock.
void kvern_disk_set_aside(kvern_disk_store *store, const char *name, const char *why);

// Counts what has been set aside. Under disk_lock.
void kvern_disk_count_aside(kvern_disk_store *store);

// Removes what was set aside, and then entries, the longest unused first, until what stays and
// `more` take at most `most` bytes. False: they cannot, and all stays unless `more` is 0. Under
// disk_lock.
bool kvern_disk_make_room(kvern_disk_store *store, uint64_t more, uint64_t most);

// Removes as much, in the same order, until `bytes` bytes or more have gone. False: nothing could
// go. Under disk_lock.
bool kvern_disk_give_up(kvern_disk_store *store, uint64_t bytes);

// Removes the files of entries that are no longer in the index, and frees them. Under disk_lock.
void kvern_disk_remove(kvern_disk_store *store, kvern_disk_rest *rest);

// ---- The writer ----

// Begins the thread. Errors: KVERN_ERR_THREADS.
KVERN_CHECK kvern_status kvern_disk_writer_start(kvern_disk_store *store);
void kvern_disk_writer_end(kvern_disk_store *store);
void kvern_disk_job_free(kvern_disk_store *store, kvern_disk_job *job);

static inline void kvern_disk_report(const kvern_disk_store *store, kvern_disk_event event,
                                     const char *name, const char *why)
{
    if (store->options.report)
        store->options.report(store->options.user, event, name, why);
}

// The same as kvern_disk_store_open by other calls of the system; NULL: its own.
KVERN_CHECK kvern_status kvern_disk_store_open_by(const kvern_disk_calls *calls,
                                                  kvern_context *context, const char *directory,
                                                  const kvern_disk_store_options *options,
                                                  kvern_disk_store **out);

#endif
