// SPDX-License-Identifier: MIT
#ifndef KVERN_STORE_H
#define KVERN_STORE_H

// A store: rows that were served, kept at their tokens, so that another prompt with the same
// beginning does not compute it again (a prefix cache).
//
//     kvern_store_hit hit = kvern_store_hit_default();
//     kvern_store_find(store, &key, composition, tokens, count, &hit);   takes no memory
//     if (hit.positions)
//         kvern_store_lend(store, &hit, state, row);        the row has hit.positions positions now
//     kvern_store_release(store, &hit);
//     ... steps for the tokens from hit.positions on: they give the bits of a row that was empty
//     ... kvern_store_publish(store, &key, tokens, length, state, row, NULL);
//
// An entry is a row of all layers at the tokens whose positions it holds. It shares the row's
// pages, as a fork does: publishing and lending copy nothing, and a page is given back when the
// last of those that share it has gone. Tokens are compared, one by one, never only hashed.
//
// What an entry can serve: its whole length, and every shorter prefix down to its floor. That is
// kvern_state_min_reusable of the row: the length at which it was converted, the positions that a
// window has to hold, those that a residual keeps precise, the length itself where a layer is
// recurrent; and no less than the end of its
// last tokens that see each other both ways (KVERN_PHASE_RANGES). So a recurrent row is served at
// the positions where it was published, and at those of its checkpoints (kvern/checkpoint.h), which
// become entries with it, and what lies in front of an image where it was published or kept; the
// caller serves the tokens behind again. Of a prompt the last token is always left to run, for a
// model's answer comes out of a step.
//
// Thread rule: a store may be used by several threads at once. Calls that look (find, stats) and
// those that change it exclude each other for as long as they work on the index, which is never
// while memory is taken or given back, nor while rows are lent. States are the caller's: a state is
// used by one thread at a time, these calls included, and a hit by one thread at a time. States
// need not know of each other, whatever pages they share through the store.

#include <kvern/state.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvern_store kvern_store;
typedef struct kvern_store_entry kvern_store_entry;

// What a store is made with. Zero is the default of every field but size.
typedef struct kvern_store_options {
    size_t size; // sizeof(kvern_store_options); set by kvern_store_options_init

    // The most bytes that the store holds: the pages of its entries, each once, whoever shares it
    // besides, their tables and the index. It makes room before it takes anything. 0: no limit but
    // the context's.
    uint64_t budget_bytes;
} kvern_store_options;

// Writes the defaults to `size` bytes, sizeof(kvern_store_options) of the caller.
KVERN_API void kvern_store_options_init(kvern_store_options *options, size_t size);

// The same as a value.
static inline kvern_store_options kvern_store_options_default(void)
{
    kvern_store_options options;
    kvern_store_options_init(&options, sizeof options);
    return options;
}

// Makes an empty store of rows of this context, which it keeps alive. A context has one store at a
// time, for all its models: their entries are kept apart by keys and signatures, and its pages are
// counted once. `options` NULL: the defaults. On failure *out is NULL. Errors: KVERN_ERR_ARGUMENT,
// KVERN_ERR_UNSUPPORTED (fields that the library does not know), KVERN_ERR_BUSY (the context has a
// store), KVERN_ERR_MEMORY, KVERN_ERR_BUDGET (of the context, or less than an empty store takes).
KVERN_API KVERN_CHECK kvern_status kvern_store_create(kvern_context *context,
                                                      const kvern_store_options *options,
                                                      kvern_store **out);

// Ends a store; rows that were lent live on. Hits must have been released. NULL is allowed.
KVERN_API void kvern_store_destroy(kvern_store *store);

// ---- Keys ----

// What besides the tokens must be the same for a prefix to be: the model, an adapter, the identity
// of images, a salt that keeps users apart. Names are the caller's. Names and values are compared
// with their lengths, byte by byte, so no field can be taken for another one, or for two; an empty
// value is not an absent one. The identity of a large value is a digest of it, all of it.
typedef struct kvern_store_field {
    const char *name;
    const void *value; // may be NULL when bytes is 0
    size_t bytes;
} kvern_store_field;

// Fields in any order, each name once. No fields: a key too. Entries of another key are not found,
// nor are those whose layers have other signatures (kvern_composition_signature).
typedef struct kvern_store_key {
    const kvern_store_field *fields;
    size_t count; // KVERN_STORE_MOST_FIELDS at most
} kvern_store_key;

#define KVERN_STORE_MOST_FIELDS 16
// Names and values together; 8 bytes are counted besides for each of them.
#define KVERN_STORE_MOST_KEY_BYTES 4096

// ---- Publishing ----

// How long an entry stays that nobody uses. The one goes first that has been unused for the
// longest; time is counted in uses of the store, and passes at a quarter of the speed for NORMAL
// entries, a sixteenth for LONG ones.
typedef enum kvern_store_retention {
    KVERN_STORE_NORMAL = 0, // prompts
    KVERN_STORE_SHORT = 1,  // answers that will hardly be continued
    KVERN_STORE_LONG = 2    // a system prompt that many share
} kvern_store_retention;

typedef struct kvern_store_publication {
    size_t size; // sizeof(kvern_store_publication); set by kvern_store_publication_init
    kvern_store_retention retention;
    uint32_t without_checkpoints; // 1: the row's checkpoints do not become entries
} kvern_store_publication;

// Writes the defaults to `size` bytes, sizeof(kvern_store_publication) of the caller.
KVERN_API void kvern_store_publication_init(kvern_store_publication *publication, size_t size);

// The same as a value.
static inline kvern_store_publication kvern_store_publication_default(void)
{
    kvern_store_publication publication;
    kvern_store_publication_init(&publication, sizeof publication);
    return publication;
}

// Keeps a row of a state under the tokens that it has been served: all of them, one for each
// position. `tokens` is borrowed for the call, `publication` NULL: the defaults. The row shares its
// pages with the entry from now on, as with a fork, so reserve again what is to last
// (kvern_state_reserve).
//
// An entry of equal tokens is replaced. Those of their beginnings go where the new one can serve
// all that they served. Others are evicted, the one that goes first by its retention, until the new
// one fits; pinned ones stay. The row's checkpoints become entries, too, as far as there is room
// and memory (kvern_store_stats.checkpoints_left_out), where the row's own does not serve them.
//
// On failure nothing changed, but that entries may have gone that were evicted for it. Errors:
// KVERN_ERR_ARGUMENT (another context, a key with a name twice or NULL), KVERN_ERR_RANGE (row; a
// count that is not the row's length; an empty row; a key that is too large), KVERN_ERR_UNSUPPORTED
// (a row below its own floor, which nobody may reuse; an unknown retention), KVERN_ERR_BUSY (a step
// or a round is open), KVERN_ERR_BUDGET (it does not fit, pinned entries considered: nothing has
// been evicted; or the context's), KVERN_ERR_MEMORY.
KVERN_API KVERN_CHECK kvern_status kvern_store_publish(kvern_store *store,
                                                       const kvern_store_key *key,
                                                       const int32_t *tokens, size_t count,
                                                       const kvern_state *state, size_t row,
                                                       const kvern_store_publication *publication);

// ---- Looking up ----

// Why no more was found. X(symbol, value, text), for the user of a program whose keys are models.
#define KVERN_STORE_WHY_LIST(X)                                                                    \
    X(KVERN_STORE_ALL, 0, "all but the last token, which is always computed")                      \
    X(KVERN_STORE_SHORT_PROMPT, 1, "a prompt of one token has nothing to reuse")                   \
    X(KVERN_STORE_NO_KEY, 2, "nothing is kept of this model yet")                                  \
    X(KVERN_STORE_SIGNATURE, 3, "what is kept of this model stores its KV cache otherwise")        \
    X(KVERN_STORE_TOKENS, 4, "nothing that is kept begins the same for longer")                    \
    X(KVERN_STORE_FLOOR, 5, "what is kept was quantized behind the common beginning")              \
    X(KVERN_STORE_WINDOW, 6, "a sliding window has passed the end of the common beginning")        \
    X(KVERN_STORE_PRECISE, 7, "the end of the common beginning has been quantized since")          \
    X(KVERN_STORE_CHECKPOINT, 8, "a recurrent layer cannot go back to the common beginning")       \
    X(KVERN_STORE_BOTH_WAYS, 9, "the common beginning ends within an image")                       \
    X(KVERN_STORE_OFFLINE, 10, "the shared store is not reachable")                                \
    X(KVERN_STORE_LATE, 11, "the shared store did not deliver in time")                            \
    X(KVERN_STORE_GONE, 12, "a part of what is stored has gone")                                   \
    X(KVERN_STORE_DAMAGED, 13, "what is stored is damaged")                                        \
    X(KVERN_STORE_NO_ROOM, 14, "there is no memory for what is stored")

typedef enum kvern_store_why {
#define KVERN_STORE_WHY_ENUM(symbol, value, text) symbol = value,
    KVERN_STORE_WHY_LIST(KVERN_STORE_WHY_ENUM)
#undef KVERN_STORE_WHY_ENUM
} kvern_store_why;

#define KVERN_STORE_WHY_COUNT 16 // room for later ones

// The text of a reason, a static string; "unknown reason" for an unknown one. Never NULL.
KVERN_API const char *kvern_store_why_text(kvern_store_why why);

// What was found. Its entry is pinned until kvern_store_release: it is not evicted, and what it
// can be lent for stays, also when it is replaced.
typedef struct kvern_store_hit {
    size_t size;              // sizeof(kvern_store_hit); set by kvern_store_hit_init
    int64_t positions;        // of the prefix that can be lent; 0: nothing was found
    int64_t common;           // tokens that the prompt has in common with any entry of its key
    kvern_store_entry *entry; // NULL: nothing was found
    kvern_store_why why;      // why `positions` are no more
    uint32_t reserved;
} kvern_store_hit;

// Makes *hit ready to be filled: its size, which is `size`, sizeof(kvern_store_hit) of the caller,
// and zeros.
KVERN_API void kvern_store_hit_init(kvern_store_hit *hit, size_t size);

// The same as a value.
static inline kvern_store_hit kvern_store_hit_default(void)
{
    kvern_store_hit hit;
    kvern_store_hit_init(&hit, sizeof hit);
    return hit;
}

// Finds the entry with the longest prefix that serves a prompt of `count` tokens: at most count - 1
// of them. Finding nothing is no error. `composition` is that of the state that is to go on. Takes
// no memory. *hit holds nothing that has not been released. On failure *hit is unchanged. Errors:
// KVERN_ERR_ARGUMENT, KVERN_ERR_RANGE (a key that is too large).
KVERN_API KVERN_CHECK kvern_status kvern_store_find(kvern_store *store, const kvern_store_key *key,
                                                    const kvern_composition *composition,
                                                    const int32_t *tokens, size_t count,
                                                    kvern_store_hit *hit);

// The empty row `row` of a state becomes the prefix that was found, in all layers: it shares the
// entry's pages until one of them writes. The entry stays; a hit may be lent to any number of rows.
// Room that was reserved for the row stays, but for room of another form than it has then
// (kvern_cache_adopt). On failure nothing changed. Errors: KVERN_ERR_ARGUMENT (another context, a
// hit without an entry), KVERN_ERR_RANGE (row), KVERN_ERR_UNSUPPORTED (other layers: the detail
// names the layer and both signatures), KVERN_ERR_BUSY (the row is not empty; a step or a round is
// open).
KVERN_API KVERN_CHECK kvern_status kvern_store_lend(kvern_store *store, const kvern_store_hit *hit,
                                                    kvern_state *state, size_t row);

// Lets go of what was found; the hit may be filled again. Nothing happens where nothing is held.
KVERN_API void kvern_store_release(kvern_store *store, kvern_store_hit *hit);

// ---- Memory ----

// Evicts entries until at least that many bytes have gone back to the pool and the allocator, or
// none is left but pinned ones: for a scheduler that needs room in the context's budget. Bytes that
// a row still shares do not count. Returns how many went back.
KVERN_API uint64_t kvern_store_give_up(kvern_store *store, uint64_t bytes);

// What was looked up and lent, in the stats of a store in memory or on disk. Of a fixed size: later
// counters stand in the stats themselves.
typedef struct kvern_store_lookups {
    uint64_t count;
    uint64_t full_hits;    // all but the last token was found
    uint64_t partial_hits; // some was found
    uint64_t misses;       // nothing was found
    uint64_t tokens_asked; // tokens of the prompts of all lookups
    uint64_t tokens_lent;  // positions of rows that were lent
    uint64_t loans;        // calls that lent something
    // Lookups by the reason why no more was found (kvern_store_why), and of them those that found
    // nothing.
    uint64_t why[KVERN_STORE_WHY_COUNT];
    uint64_t why_missed[KVERN_STORE_WHY_COUNT];
} kvern_store_lookups;

// What a store holds, and what it has done since it was made.
typedef struct kvern_store_stats {
    size_t size;           // sizeof(kvern_store_stats); set by kvern_store_stats_init
    uint64_t budget_bytes; // 0: no limit
    uint64_t bytes;        // held now, never above the budget
    uint64_t page_bytes;   // of them pages of entries, each once
    uint64_t entries;
    uint64_t pinned; // of them, or of those that were replaced meanwhile

    kvern_store_lookups lookups;

    uint64_t publications;         // entries that were stored
    uint64_t refused;              // that did not fit, or found no memory
    uint64_t checkpoints_left_out; // likewise, of checkpoints
    uint64_t replaced;             // by entries of equal tokens
    uint64_t served_by_longer;     // beginnings that went because of a longer entry
    uint64_t evictions;
} kvern_store_stats;

// Makes *stats ready to be filled: its size, which is `size`, sizeof(kvern_store_stats) of the
// caller, and zeros.
KVERN_API void kvern_store_stats_init(kvern_store_stats *stats, size_t size);

// The same as a value.
static inline kvern_store_stats kvern_store_stats_default(void)
{
    kvern_store_stats stats;
    kvern_store_stats_init(&stats, sizeof stats);
    return stats;
}

// Fills *stats: all of one moment. On failure it is unchanged. Errors: KVERN_ERR_ARGUMENT (NULL, or
// a size that no release had).
KVERN_API KVERN_CHECK kvern_status kvern_store_get_stats(kvern_store *store,
                                                         kvern_store_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
