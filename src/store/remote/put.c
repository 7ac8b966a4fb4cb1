// SPDX-License-Identifier: MIT
// Writing an entry: its row is gone through twice. First for the names of its blocks, so that those
// that are there need not be sent; then those that are not are sent as they come. So it takes no
// memory but the answers' and that of what is on its way.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_PENDING_BYTES ((size_t)4 << 20)
#define MOST_PENDING 512 // commands

typedef struct putting {
    kvern_remote_store *store;
    kvern_wire *wire;
    const kvern_remote_job *job;
    char ttl[24]; // milliseconds
    kvern_manifest manifest;
    bool *is_there; // of each block
    size_t next;    // block, on the second way
    size_t pending_bytes;
    uint64_t shared, written;
} putting;

// ---- The first way ----

static kvern_status note(void *user, const void *data, size_t bytes, bool page)
{
    putting *p = user;
    return kvern_manifest_add(&p->manifest, data, bytes, page);
}

static kvern_status take_flags(putting *p)
{
    void *block;
    kvern_status status =
        kvern_heap_take_zeroed(kvern_remote_heap(p->store), p->manifest.block_count + 1, &block);
    if (!status)
        p->is_there = block;
    return status;
}

// ---- What is there ----

// One answer: 1 where the block is there, which then stays for its time.
static kvern_status read_there(putting *p, size_t block)
{
    redisReply *reply;
    kvern_status status = kvern_wire_next(p->wire, &reply);
    if (status)
        return status;
    if (reply->type == REDIS_REPLY_INTEGER)
        p->is_there[block] = reply->integer == 1;
    else
        status = kvern_wire_refused(p->wire, reply);
    freeReplyObject(reply);
    return status;
}

static kvern_status ask_what_is_there(putting *p)
{
    const kvern_manifest *m = &p->manifest;
    kvern_status status = KVERN_OK;
    for (size_t begin = 0; begin < m->block_count && !status; begin += MOST_PENDING) {
        const size_t left = m->block_count - begin;
        const size_t count = left < MOST_PENDING ? left : MOST_PENDING;
        for (size_t i = 0; i < count && !status; i++) {
            char key[KVERN_REMOTE_KEY_BYTES];
            const char *ask[] = {"PEXPIRE", key, p->ttl};
            kvern_remote_block_key(p->job->space, &m->blocks[begin + i], key);
            status = kvern_wire_add(p->wire, 3, ask, NULL);
        }
        for (size_t i = 0; i < count && !status; i++)
            status = read_there(p, begin + i);
    }
    return status;
}

// ---- The second way ----

static kvern_status drain(putting *p)
{
    kvern_status status = KVERN_OK;
    p->pending_bytes = 0;
    while (p->wire->pending && !status) {
        redisReply *reply;
        status = kvern_wire_next(p->wire, &reply);
        if (!status && reply->type == REDIS_REPLY_ERROR)
            status = kvern_wire_refused(p->wire, reply);
        freeReplyObject(reply);
    }
    return status;
}

static kvern_status set(putting *p, const char *key, const void *data, size_t bytes)
{
    const char *parts[] = {"SET", key, data, "PX", p->ttl};
    const size_t sizes[] = {3, strlen(key), bytes, 2, strlen(p->ttl)};
    kvern_status status = kvern_wire_add(p->wire, 5, parts, sizes);
    p->written += bytes;
    p->pending_bytes += bytes;
    if (!status && (p->pending_bytes >= MOST_PENDING_BYTES || p->wire->pending >= MOST_PENDING))
        status = drain(p);
    return status;
}

static kvern_status send_page(void *user, const void *data, size_t bytes, bool page)
{
    putting *p = user;
    char key[KVERN_REMOTE_KEY_BYTES];
    if (!page)
        return KVERN_OK;
    const size_t block = p->next++;
    if (p->is_there[block]) {
        p->shared++;
        return KVERN_OK;
    }
    kvern_remote_block_key(p->job->space, &p->manifest.blocks[block], key);
    return set(p, key, data, bytes);
}

// ---- The entry ----

static kvern_status set_entry(putting *p)
{
    char key[KVERN_REMOTE_KEY_BYTES];
    void *value;
    size_t bytes;
    kvern_status status = kvern_manifest_write(&p->manifest, &value, &bytes);
    if (status)
        return status;
    kvern_remote_entry_key(p->job->space, p->job->name, key);
    status = set(p, key, value, bytes);
    kvern_heap_give(kvern_remote_heap(p->store), value, bytes, KVERN_HEAP_ALIGNMENT);
    return status ? status : drain(p);
}

static kvern_status walk(putting *p, kvern_status (*put)(void *, const void *, size_t, bool))
{
    const kvern_container_sink sink = {p, put};
    return kvern_disk_write_to(&sink, p->job->state, &p->job->front, p->job->tokens);
}

static void count(const putting *p)
{
    kvern_remote_store_stats *stats = &p->store->stats;
    pthread_mutex_lock(&p->store->lock);
    stats->blocks += p->manifest.block_count;
    stats->shared_blocks += p->shared;
    stats->written_bytes += p->written;
    pthread_mutex_unlock(&p->store->lock);
}

// Blocks first, then the entry, by one command; it is complete when it is there. Last the index.
static kvern_status write_entry(putting *p)
{
    kvern_status status = ask_what_is_there(p);
    if (!status)
        status = walk(p, send_page);
    if (!status)
        status = drain(p);
    if (!status)
        status = set_entry(p);
    if (!status)
        status = kvern_remote_index_put(p->store, p->wire, p->job);
    return status;
}

kvern_status kvern_remote_put(kvern_remote_store *store, kvern_wire *wire,
                              const kvern_remote_job *job)
{
    putting p = {.store = store, .wire = wire, .job = job};
    snprintf(p.ttl, sizeof p.ttl, "%" PRIu64, store->options.ttl_seconds * 1000);
    kvern_manifest_begin(kvern_remote_heap(store), &p.manifest);
    kvern_status status = walk(&p, note);
    if (!status)
        status = take_flags(&p);
    if (!status)
        status = kvern_remote_claim(store, wire, job->space, job->name, &p.manifest);
    if (!status)
        status = write_entry(&p);
    if (!status)
        count(&p);
    kvern_heap_give(kvern_remote_heap(store), p.is_there, p.manifest.block_count + 1,
                    KVERN_HEAP_ALIGNMENT);
    kvern_manifest_free(&p.manifest);
    return status;
}
