// SPDX-License-Identifier: MIT
// Which entries begin as a prompt. The tokens of a prompt are cut into blocks, and the hash of a
// block has the one before in it; under each hash is a small table of entries that serve a length
// within the block behind. All hashes of a prompt are asked for at once. What the index says is a
// hint: tokens are compared from the entry.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES 120
#define MOST_PENDING 256 // commands
#define COMMANDS 4       // of a change
#define MOST_FIELDS (KVERN_REMOTE_TOKENS + 1)

// A key that holds something else, found while answers are on their way.
typedef struct wrong_key {
    bool is_there;
    char key[KVERN_REMOTE_KEY_BYTES];
} wrong_key;

static void note_wrong(wrong_key *wrong, const char *key)
{
    if (!wrong->is_there)
        snprintf(wrong->key, sizeof wrong->key, "%s", key);
    wrong->is_there = true;
}

static kvern_status remove_wrong(kvern_remote_store *store, kvern_wire *wire,
                                 const wrong_key *wrong)
{
    if (!wrong->is_there)
        return KVERN_OK;
    return kvern_remote_remove_damaged(store, wire, wrong->key, "it is no index of entries");
}

// ---- Fields ----

// A decimal number and the character behind it.
static bool read_number(const char **at, const char *end, char behind, int64_t *out)
{
    int64_t number = 0;
    const char *begin = *at;
    while (*at < end && **at >= '0' && **at <= '9' && number < INT64_MAX / 32)
        number = 10 * number + (*(*at)++ - '0');
    if (*at == begin || *at == end || *(*at)++ != behind)
        return false;
    *out = number;
    return true;
}

static bool read_tail(const char *at, const char *end, uint64_t *out)
{
    *out = 0;
    if (end - at != 16)
        return false;
    for (; at < end; at++) {
        const char *digits = "0123456789abcdef", *digit = *at ? strchr(digits, *at) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

static bool is_name(const char *at)
{
    for (size_t i = 0; i < KVERN_REMOTE_HASH_DIGITS; i++) {
        if (!at[i] || !strchr("0123456789abcdef", at[i]))
            return false;
    }
    return true;
}

// "*", or 0 to 63.
static bool is_field(const char *field, size_t bytes)
{
    if (bytes == 1 && *field == '*')
        return true;
    if (bytes < 1 || bytes > 2)
        return false;
    int number = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (field[i] < '0' || field[i] > '9')
            return false;
        number = 10 * number + (field[i] - '0');
    }
    return number < KVERN_REMOTE_TOKENS;
}

bool kvern_remote_hint_read(const char *field, size_t field_bytes, const char *value, size_t bytes,
                            kvern_remote_hint *hint)
{
    const char *at = value + KVERN_REMOTE_HASH_DIGITS + 1, *end = value + bytes;
    int64_t why;
    *hint = (kvern_remote_hint){.bound = 0};
    if (!is_field(field, field_bytes) || bytes >= VALUE_BYTES ||
        bytes <= KVERN_REMOTE_HASH_DIGITS || !is_name(value) || at[-1] != ' ' ||
        !read_number(&at, end, ' ', &hint->floor) ||
        !read_number(&at, end, ' ', &hint->positions) || !read_number(&at, end, ' ', &why) ||
        why >= KVERN_STORE_WHY_COUNT || !read_tail(at, end, &hint->tail))
        return false;
    memcpy(hint->name, value, KVERN_REMOTE_HASH_DIGITS);
    hint->why = (kvern_store_why)why;
    return hint->positions > 0 && hint->floor <= hint->positions;
}

// ---- Looking up ----

typedef struct finding {
    kvern_remote_fetch *fetch;
    kvern_remote_hints *hints;
    kvern_remote_hash chain; // at `block`
    size_t block;
} finding;

// How much of the prompt an entry serves at most that lies in the index at this block: it has the
// tokens in front, and those behind if the hash of the tail is the prompt's.
static int64_t bound_of(const finding *f, bool goes_on, const kvern_remote_hint *hint)
{
    const int64_t begin = (int64_t)f->block * KVERN_REMOTE_TOKENS;
    const int64_t last = (int64_t)f->fetch->count - 1;
    int64_t bound = kvern_min_i64(begin + KVERN_REMOTE_TOKENS - 1, last);
    if (!goes_on && hint->positions < begin)
        return 0;
    if (!goes_on && hint->positions <= last) {
        const bool same = hint->tail == kvern_remote_tail(f->chain, f->fetch->tokens + begin,
                                                          (size_t)(hint->positions - begin));
        bound = kvern_min_i64(bound, same ? hint->positions : hint->positions - 1);
    }
    return kvern_min_i64(bound, hint->positions);
}

static void add_hint(kvern_remote_hints *hints, const kvern_remote_hint *hint)
{
    size_t at = 0;
    for (size_t i = 0; i < hints->count; i++) { // one of each entry: the one that says more
        if (strcmp(hints->list[i].name, hint->name) != 0)
            continue;
        if (hints->list[i].bound >= hint->bound)
            return;
        memmove(&hints->list[i], &hints->list[i + 1],
                (hints->count - i - 1) * sizeof hints->list[0]);
        hints->count--;
    }
    while (at < hints->count && hints->list[at].bound >= hint->bound)
        at++;
    if (at == KVERN_REMOTE_HINTS)
        return;
    if (hints->count == KVERN_REMOTE_HINTS)
        hints->count--;
    memmove(&hints->list[at + 1], &hints->list[at], (hints->count - at) * sizeof hints->list[0]);
    hints->list[at] = *hint;
    hints->count++;
}

static void take_hint(kvern_remote_hints *hints, const kvern_remote_hint *hint)
{
    if (hint->floor <= hint->bound) {
        add_hint(hints, hint);
    } else if (hint->bound > hints->withheld) {
        hints->withheld = hint->bound;
        hints->why_withheld = hint->why;
    }
}

// False: it is no index.
static bool read_fields(finding *f, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 0 ||
        reply->elements / 2 > MOST_FIELDS)
        return false;
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *field = reply->element[i], *value = reply->element[i + 1];
        kvern_remote_hint hint;
        if (!field || !value || field->type != REDIS_REPLY_STRING ||
            value->type != REDIS_REPLY_STRING ||
            !kvern_remote_hint_read(field->str, field->len, value->str, value->len, &hint))
            return false;
        hint.bound = bound_of(f, field->str[0] == '*', &hint);
        if (hint.bound > 0)
            take_hint(f->hints, &hint);
    }
    return true;
}

static kvern_status read_block(finding *f, kvern_wire *wire, const char *space, wrong_key *wrong)
{
    redisReply *reply;
    kvern_status status = kvern_wire_next(wire, &reply);
    if (status)
        return status;
    if (reply->type == REDIS_REPLY_ERROR && !kvern_wire_is_wrong_type(reply)) {
        (void)kvern_wire_refused(wire, reply);
        status = KVERN_ERR_IO;
    } else if (!read_fields(f, reply)) {
        char key[KVERN_REMOTE_KEY_BYTES];
        kvern_remote_index_key(space, f->chain, key);
        note_wrong(wrong, key);
    }
    freeReplyObject(reply);
    return status;
}

static kvern_remote_hash next_link(const finding *f, size_t blocks)
{
    const size_t begin = f->block * KVERN_REMOTE_TOKENS;
    return f->block + 1 < blocks ? kvern_remote_link(f->chain, f->fetch->tokens + begin) : f->chain;
}

// Asks about up to MOST_PENDING blocks, and reads the answers.
static kvern_status find_some(finding *f, kvern_wire *wire, const char *space, size_t blocks,
                              wrong_key *wrong)
{
    const size_t end = kvern_min_size(blocks, f->block + MOST_PENDING);
    finding asked = *f;
    kvern_status status = KVERN_OK;
    for (; asked.block < end && !status; asked.block++) {
        char key[KVERN_REMOTE_KEY_BYTES];
        const char *parts[] = {"HGETALL", key};
        kvern_remote_index_key(space, asked.chain, key);
        status = kvern_wire_add(wire, 2, parts, NULL);
        asked.chain = next_link(&asked, blocks);
    }
    for (; f->block < end && !status; f->block++) {
        status = read_block(f, wire, space, wrong);
        f->chain = next_link(f, blocks);
    }
    return status;
}

kvern_status kvern_remote_find(kvern_wire *wire, kvern_remote_fetch *fetch, const char *space,
                               kvern_remote_hints *hints)
{
    const size_t blocks = (fetch->count - 1) / KVERN_REMOTE_TOKENS + 1;
    finding f = {.fetch = fetch, .hints = hints, .chain = kvern_remote_chain(space)};
    wrong_key wrong = {.is_there = false};
    kvern_status status = KVERN_OK;
    hints->count = 0;
    hints->withheld = 0;
    while (f.block < blocks && !status)
        status = find_some(&f, wire, space, blocks, &wrong);
    return status ? status : remove_wrong(fetch->store, wire, &wrong);
}

// ---- Writing ----

// Hashes of all whole blocks of tokens, and the beginning.
static kvern_status make_chain(kvern_remote_store *store, const char *space, const int32_t *tokens,
                               size_t count, kvern_remote_hash **out)
{
    void *block;
    kvern_status status =
        kvern_heap_take(kvern_remote_heap(store), (count / KVERN_REMOTE_TOKENS + 1) * sizeof **out,
                        KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    kvern_remote_hash *chain = *out = block;
    chain[0] = kvern_remote_chain(space);
    for (size_t i = 1; i <= count / KVERN_REMOTE_TOKENS; i++)
        chain[i] = kvern_remote_link(chain[i - 1], tokens + (i - 1) * KVERN_REMOTE_TOKENS);
    return KVERN_OK;
}

typedef struct indexing {
    kvern_remote_store *store;
    kvern_wire *wire;
    const kvern_remote_job *job;
    const kvern_remote_hash *chain;
    wrong_key wrong;
    char ttl[24];
    size_t asked[MOST_PENDING]; // blocks whose answers are to come
    size_t count;
} indexing;

static kvern_status read_change(indexing *x, size_t block)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < COMMANDS && !status; i++) {
        redisReply *reply;
        if ((status = kvern_wire_next(x->wire, &reply)))
            return status;
        const bool is_last = i + 1 == COMMANDS;
        if (is_last ? reply->type != REDIS_REPLY_ARRAY || reply->elements != 2
                    : reply->type == REDIS_REPLY_ERROR) {
            status = kvern_wire_refused(x->wire, reply);
        } else if (is_last && kvern_wire_is_wrong_type(reply->element[0])) {
            char key[KVERN_REMOTE_KEY_BYTES];
            kvern_remote_index_key(x->job->space, x->chain[block], key);
            note_wrong(&x->wrong, key);
        }
        freeReplyObject(reply);
    }
    return status;
}

static kvern_status read_changes(indexing *x)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < x->count && !status; i++)
        status = read_change(x, x->asked[i]);
    x->count = 0;
    return status;
}

// A field and the time that the table stays, both or neither.
static kvern_status put_field(indexing *x, size_t block, const char *field, const char *value)
{
    char key[KVERN_REMOTE_KEY_BYTES];
    const char *multi[] = {"MULTI"}, *exec[] = {"EXEC"};
    const char *set[] = {"HSET", key, field, value}, *stay[] = {"PEXPIRE", key, x->ttl};
    kvern_remote_index_key(x->job->space, x->chain[block], key);
    kvern_status status = kvern_wire_add(x->wire, 1, multi, NULL);
    if (!status)
        status = kvern_wire_add(x->wire, 4, set, NULL);
    if (!status)
        status = kvern_wire_add(x->wire, 3, stay, NULL);
    if (!status)
        status = kvern_wire_add(x->wire, 1, exec, NULL);
    if (status)
        return status;
    x->asked[x->count++] = block;
    return x->count == MOST_PENDING ? read_changes(x) : KVERN_OK;
}

// What one snapshot serves: a field in each table from its floor to its end.
static kvern_status put_snapshot(indexing *x, const kvern_row_source *source, int64_t positions)
{
    const kvern_planned_layer *layer;
    const int64_t floor = kvern_row_source_floor(x->job->state->composition, source, &layer);
    const kvern_store_why why = kvern_store_why_floor(source, layer, floor);
    const int64_t last = positions / KVERN_REMOTE_TOKENS;
    kvern_status status = KVERN_OK;
    for (int64_t block = floor / KVERN_REMOTE_TOKENS; block <= last && !status; block++) {
        const int64_t begin = block * KVERN_REMOTE_TOKENS;
        char field[24] = "*", value[VALUE_BYTES];
        uint64_t tail = 0;
        if (block == last) {
            snprintf(field, sizeof field, "%" PRId64, positions - begin);
            tail = kvern_remote_tail(x->chain[block], x->job->tokens + begin,
                                     (size_t)(positions - begin));
        }
        snprintf(value, sizeof value, "%s %" PRId64 " %" PRId64 " %d %016" PRIx64, x->job->name,
                 floor, positions, (int)why, tail);
        status = put_field(x, (size_t)block, field, value);
    }
    return status;
}

static kvern_status put_snapshots(indexing *x)
{
    const kvern_state *state = x->job->state;
    const kvern_row_source row = {.batch = &state->batch};
    kvern_status status = put_snapshot(x, &row, state->batch.lengths[0]);
    const kvern_checkpoint *c = state->batch.checkpoints[0];
    for (; c && !status; c = c->below) {
        const kvern_row_source kept = {.kept = c->sets};
        status = put_snapshot(x, &kept, c->position);
    }
    return status;
}

kvern_status kvern_remote_index_put(kvern_remote_store *store, kvern_wire *wire,
                                    const kvern_remote_job *job)
{
    indexing x = {.store = store, .wire = wire, .job = job};
    kvern_remote_hash *chain;
    kvern_status status = make_chain(store, job->space, job->tokens, job->token_count, &chain);
    if (status)
        return status;
    x.chain = chain;
    snprintf(x.ttl, sizeof x.ttl, "%" PRIu64, 1000 * store->options.ttl_seconds);
    status = put_snapshots(&x);
    if (!status)
        status = read_changes(&x);
    if (!status)
        status = remove_wrong(store, wire, &x.wrong);
    kvern_heap_give(kvern_remote_heap(store), chain,
                    (job->token_count / KVERN_REMOTE_TOKENS + 1) * sizeof chain[0],
                    KVERN_HEAP_ALIGNMENT);
    return status;
}

kvern_status kvern_remote_index_touch(const kvern_remote_store *store, kvern_wire *wire,
                                      const char *space, const int32_t *tokens, size_t count)
{
    char ttl[24], key[KVERN_REMOTE_KEY_BYTES];
    const char *parts[] = {"PEXPIRE", key, ttl};
    kvern_remote_hash chain = kvern_remote_chain(space);
    kvern_status status = KVERN_OK;
    snprintf(ttl, sizeof ttl, "%" PRIu64, 1000 * store->options.ttl_seconds);
    for (size_t i = 0; i <= count / KVERN_REMOTE_TOKENS && !status; i++) {
        kvern_remote_index_key(space, chain, key);
        status = kvern_wire_add(wire, 3, parts, NULL);
        if (!status && wire->pending == MOST_PENDING)
            status = kvern_wire_skip(wire, wire->pending);
        if (i < count / KVERN_REMOTE_TOKENS)
            chain = kvern_remote_link(chain, tokens + i * KVERN_REMOTE_TOKENS);
    }
    return status ? status : kvern_wire_skip(wire, wire->pending);
}
