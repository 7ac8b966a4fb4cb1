// SPDX-License-Identifier: MIT
// The budget. One sorted set at the server has all blocks and entries of those that write with a
// budget, by the time of their last use, and the sum of their bytes, negative, as the score of the
// empty member: so it is lost whole or not at all. Whoever writes notes first what is going to be
// there, and removes what must go before that is taken off: what is killed in between leaves it
// with too much, which goes when it is the oldest.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER "kvern1:ledger"
#define PREFIX_BYTES 7 // of "kvern1:"
#define MEMBERS 128    // of a command
#define MEMBER_BYTES (KVERN_REMOTE_KEY_BYTES + 24)

// Notes members with the time. Returns the sum, the time, and the numbers of those that are new.
static const char claim_script[] =
    "local t=redis.call('TIME') local now=t[1]*1000+math.floor(t[2]/1000) "
    "local new={} local added=0 "
    "for i=2,#ARGV do if redis.call('ZADD',KEYS[1],now,ARGV[i])==1 then "
    "added=added+tonumber(string.match(ARGV[i],'%-(%d+)$')) new[#new+1]=i-2 end end "
    "redis.call('ZINCRBY',KEYS[1],-added,'') redis.call('PEXPIRE',KEYS[1],ARGV[1]) "
    "local r={-tonumber(redis.call('ZSCORE',KEYS[1],'')),now} "
    "for i=1,#new do r[#r+1]=new[i] end return r";

// The oldest members that were used before a time and have so many bytes.
static const char oldest_script[] =
    "local need=tonumber(ARGV[1]) local r={} "
    "for _,m in ipairs(redis.call('ZRANGEBYSCORE',KEYS[1],0,'('..ARGV[2],'LIMIT',0,128)) do "
    "if need<=0 then break end r[#r+1]=m need=need-tonumber(string.match(m,'%-(%d+)$')) end "
    "return r";

// Takes members off. Returns the sum.
static const char release_script[] =
    "local freed=0 for i=1,#ARGV do if redis.call('ZREM',KEYS[1],ARGV[i])==1 then "
    "freed=freed+tonumber(string.match(ARGV[i],'%-(%d+)$')) end end "
    "return -tonumber(redis.call('ZINCRBY',KEYS[1],freed,''))";

static const char touch_script[] =
    "local t=redis.call('TIME') local now=t[1]*1000+math.floor(t[2]/1000) "
    "for i=2,#ARGV do redis.call('ZADD',KEYS[1],'XX',now,ARGV[i]) end "
    "redis.call('PEXPIRE',KEYS[1],ARGV[1]) return 0";

typedef struct ledger {
    kvern_remote_store *store;
    kvern_wire *wire;
    const char *space, *name;
    const kvern_manifest *manifest;
    size_t entry_bytes;
    bool *is_new; // of each block, and the entry
    uint64_t sum, since;
} ledger;

// ---- Commands ----

static size_t member_count(const ledger *l)
{
    return l->manifest->block_count + 1;
}

// The last one is the entry.
static void write_member(const ledger *l, size_t index, char text[MEMBER_BYTES])
{
    char key[KVERN_REMOTE_KEY_BYTES];
    if (index < l->manifest->block_count) {
        kvern_remote_block_key(l->space, &l->manifest->blocks[index], key);
        snprintf(text, MEMBER_BYTES, "%s", key + PREFIX_BYTES);
    } else {
        kvern_remote_entry_key(l->space, l->name, key);
        snprintf(text, MEMBER_BYTES, "%s-%zu", key + PREFIX_BYTES, l->entry_bytes);
    }
}

// Runs a script over texts. The caller frees the answer.
static kvern_status run(ledger *l, const char *script, size_t count, const char *const *texts,
                        redisReply **out)
{
    const char *parts[4 + MEMBERS + 2] = {"EVAL", script, "1", LEDGER};
    for (size_t i = 0; i < count; i++)
        parts[4 + i] = texts[i];
    kvern_status status = kvern_wire_add(l->wire, (int)(4 + count), parts, NULL);
    if (!status)
        status = kvern_wire_next(l->wire, out);
    if (status || (*out)->type != REDIS_REPLY_ERROR)
        return status;
    redisReply *reply = *out;
    *out = NULL;
    if (kvern_wire_is_wrong_type(reply)) {
        status = kvern_remote_remove_damaged(l->store, l->wire, LEDGER, reply->str);
        if (!status)
            status = kvern_fail(KVERN_ERR_UNSUPPORTED, "the list of what counts was another value");
    } else {
        status = kvern_wire_refused(l->wire, reply);
    }
    freeReplyObject(reply);
    return status;
}

static kvern_status strange(void)
{
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "a script's answer is of another kind");
}

// ---- Claiming ----

// Reads the answer about the members from `begin` on.
static kvern_status read_claim(ledger *l, size_t begin, size_t count, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return strange();
    for (size_t i = 0; i < reply->elements; i++) {
        if (!reply->element[i] || reply->element[i]->type != REDIS_REPLY_INTEGER ||
            reply->element[i]->integer < 0)
            return strange();
        if (i < 2)
            continue;
        if ((size_t)reply->element[i]->integer >= count)
            return strange();
        l->is_new[begin + (size_t)reply->element[i]->integer] = true;
    }
    l->sum = (uint64_t)reply->element[0]->integer;
    if (begin == 0)
        l->since = (uint64_t)reply->element[1]->integer;
    return KVERN_OK;
}

// Runs a script over members from `begin` on, behind the time that the list stays.
static kvern_status run_members(ledger *l, const char *script, size_t begin, size_t count,
                                redisReply **out)
{
    char members[MEMBERS][MEMBER_BYTES], ttl[24];
    const char *texts[1 + MEMBERS] = {ttl};
    snprintf(ttl, sizeof ttl, "%" PRIu64, 2000 * l->store->options.ttl_seconds);
    for (size_t i = 0; i < count; i++) {
        write_member(l, begin + i, members[i]);
        texts[1 + i] = members[i];
    }
    return run(l, script, 1 + count, texts, out);
}

static size_t part_of(size_t begin, size_t count)
{
    return count - begin < MEMBERS ? count - begin : MEMBERS;
}

static kvern_status claim_all(ledger *l)
{
    const size_t count = member_count(l);
    kvern_status status = KVERN_OK;
    for (size_t begin = 0; begin < count && !status; begin += MEMBERS) {
        redisReply *reply = NULL;
        const size_t part = part_of(begin, count);
        status = run_members(l, claim_script, begin, part, &reply);
        if (!status)
            status = read_claim(l, begin, part, reply);
        freeReplyObject(reply);
    }
    return status;
}

// ---- Making room ----

static kvern_status release(ledger *l, size_t count, const char *const *members)
{
    redisReply *reply = NULL;
    kvern_status status = run(l, release_script, count, members, &reply);
    if (!status && reply->type != REDIS_REPLY_INTEGER)
        status = strange();
    if (!status)
        l->sum = reply->integer > 0 ? (uint64_t)reply->integer : 0;
    freeReplyObject(reply);
    return status;
}

// What was claimed and is not going to be written.
static kvern_status release_new(ledger *l)
{
    char members[MEMBERS][MEMBER_BYTES];
    const char *texts[MEMBERS];
    size_t count = 0;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < member_count(l) && !status; i++) {
        if (l->is_new[i]) {
            write_member(l, i, members[count]);
            texts[count] = members[count];
            count++;
        }
        if (count == MEMBERS || (count && i + 1 == member_count(l))) {
            status = release(l, count, texts);
            count = 0;
        }
    }
    return status;
}

// The key of a member: without the bytes, where it is an entry.
static bool key_of(const char *member, char key[KVERN_REMOTE_KEY_BYTES])
{
    const char *dash = strrchr(member, '-'), *kind = strchr(member, ':');
    if (!dash || !kind || strlen(member) + PREFIX_BYTES >= KVERN_REMOTE_KEY_BYTES)
        return false;
    const size_t bytes = kind[1] == 'e' ? (size_t)(dash - member) : strlen(member);
    snprintf(key, KVERN_REMOTE_KEY_BYTES, "kvern1:%.*s", (int)bytes, member);
    return true;
}

static kvern_status remove_keys(ledger *l, const redisReply *members)
{
    kvern_status status = KVERN_OK;
    size_t asked = 0;
    for (size_t i = 0; i < members->elements && !status; i++) {
        char key[KVERN_REMOTE_KEY_BYTES];
        const char *parts[] = {"UNLINK", key};
        if (!key_of(members->element[i]->str, key))
            continue;
        status = kvern_wire_add(l->wire, 2, parts, NULL);
        asked++;
    }
    return status ? status : kvern_wire_skip(l->wire, asked);
}

static kvern_status evict(ledger *l, const redisReply *members)
{
    const char *texts[MEMBERS];
    const size_t count = members->elements;
    if (count > MEMBERS)
        return strange();
    for (size_t i = 0; i < count; i++) {
        if (!members->element[i] || members->element[i]->type != REDIS_REPLY_STRING)
            return strange();
        texts[i] = members->element[i]->str;
    }
    kvern_status status = remove_keys(l, members);
    if (!status)
        status = release(l, count, texts);
    pthread_mutex_lock(&l->store->lock);
    l->store->stats.evictions += count;
    pthread_mutex_unlock(&l->store->lock);
    return status;
}

// One command's worth of the oldest. *more: there were any.
static kvern_status evict_some(ledger *l, bool *more)
{
    char need[24], since[24];
    const char *texts[] = {need, since};
    redisReply *reply = NULL;
    snprintf(need, sizeof need, "%" PRIu64, l->sum - l->store->options.budget_bytes);
    snprintf(since, sizeof since, "%" PRIu64, l->since);
    *more = false;
    kvern_status status = run(l, oldest_script, 2, texts, &reply);
    if (!status && reply->type != REDIS_REPLY_ARRAY)
        status = strange();
    if (!status && reply->elements) {
        *more = true;
        status = evict(l, reply);
    }
    freeReplyObject(reply);
    return status;
}

static kvern_status make_room(ledger *l)
{
    bool more = true;
    kvern_status status = KVERN_OK;
    while (!status && more && l->sum > l->store->options.budget_bytes)
        status = evict_some(l, &more);
    if (status || more)
        return status;
    if ((status = release_new(l)))
        return status;
    return kvern_fail(KVERN_ERR_BUDGET, "the store's budget has no room for an entry");
}

// ---- The calls ----

static kvern_status open_ledger(ledger *l)
{
    void *block;
    if (!kvern_manifest_value_bytes(l->manifest, &l->entry_bytes))
        return kvern_fail(KVERN_ERR_OVERFLOW, "an entry does not fit memory");
    kvern_status status =
        kvern_heap_take_zeroed(kvern_remote_heap(l->store), member_count(l), &block);
    if (!status)
        l->is_new = block;
    return status;
}

kvern_status kvern_remote_claim(kvern_remote_store *store, kvern_wire *wire, const char *space,
                                const char *name, const kvern_manifest *manifest)
{
    ledger l = {.store = store, .wire = wire, .space = space, .name = name, .manifest = manifest};
    if (!store->options.budget_bytes)
        return KVERN_OK;
    kvern_status status = open_ledger(&l);
    if (status)
        return status;
    if (kvern_manifest_block_bytes(manifest) + l.entry_bytes > store->options.budget_bytes)
        status = kvern_fail(KVERN_ERR_BUDGET, "an entry is larger than the store's budget");
    if (!status)
        status = claim_all(&l);
    if (!status)
        status = make_room(&l);
    kvern_heap_give(kvern_remote_heap(store), l.is_new, member_count(&l), KVERN_HEAP_ALIGNMENT);
    return status;
}

kvern_status kvern_remote_claim_touch(kvern_remote_store *store, kvern_wire *wire,
                                      const char *space, const char *name,
                                      const kvern_manifest *manifest)
{
    ledger l = {.store = store, .wire = wire, .space = space, .name = name, .manifest = manifest};
    if (!store->options.budget_bytes || !kvern_manifest_value_bytes(manifest, &l.entry_bytes))
        return KVERN_OK;
    const size_t count = member_count(&l);
    kvern_status status = KVERN_OK;
    for (size_t begin = 0; begin < count && !status; begin += MEMBERS) {
        redisReply *reply = NULL;
        status = run_members(&l, touch_script, begin, part_of(begin, count), &reply);
        freeReplyObject(reply);
    }
    return status;
}
