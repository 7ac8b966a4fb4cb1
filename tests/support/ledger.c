// SPDX-License-Identifier: MIT
#include "tests/support/ledger.h"

#include "tests/support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Behind the bytes that are asked for, a fence that nobody may change.
#define FENCE_BYTES 64
#define FENCE 0x5a
#define POISON 0xff

#define BUCKETS 4096

struct ledger_block {
    ledger_block *next;
    char *data;
    size_t bytes, alignment;
};

void ledger_init(ledger *books)
{
    memset(books, 0, sizeof *books);
    pthread_mutex_init(&books->lock, NULL);
    books->refuse_in = -1;
    books->buckets = calloc(BUCKETS, sizeof *books->buckets);
    assert_non_null(books->buckets);
}

void ledger_finish(ledger *books)
{
    if (books->held_bytes || books->blocks_held)
        fail_msg("%llu bytes in %llu blocks were never given back",
                 (unsigned long long)books->held_bytes, (unsigned long long)books->blocks_held);
    free(books->buckets);
    pthread_mutex_destroy(&books->lock);
}

static ledger_block **bucket_of(ledger *books, const void *data)
{
    return &books->buckets[((uintptr_t)data >> 6) % BUCKETS];
}

// Whether this allocation is to be refused; the caller holds the lock.
static bool is_refused(ledger *books)
{
    if (books->one_in && test_random_below(&books->random, books->one_in) == 0) {
        books->refused = true;
        return true;
    }
    if (books->refuse_in < 0)
        return false;
    if (books->refuse_in > 0) {
        books->refuse_in--;
        return false;
    }
    books->refuse_in = books->refuse_rest ? 0 : -1;
    books->refused = true;
    return true;
}

static void *take(ledger *books, size_t bytes, size_t alignment)
{
    void *data = NULL;
    if (alignment > ((size_t)2 << 20) || (alignment & (alignment - 1)) || bytes == 0 ||
        bytes > SIZE_MAX - FENCE_BYTES || is_refused(books))
        return NULL;
    ledger_block *block = malloc(sizeof *block);
    const size_t least = alignment < sizeof(void *) ? sizeof(void *) : alignment;
    if (!block || posix_memalign(&data, least, bytes + FENCE_BYTES) != 0) {
        free(block);
        return NULL;
    }
    memset(data, POISON, bytes);
    memset((char *)data + bytes, FENCE, FENCE_BYTES);
    ledger_block **bucket = bucket_of(books, data);
    *block = (ledger_block){*bucket, data, bytes, alignment};
    *bucket = block;
    books->blocks_held++;
    books->allocations++;
    books->held_bytes += bytes;
    if (books->held_bytes > books->most_bytes)
        books->most_bytes = books->held_bytes;
    return data;
}

static void *allocate(void *user, size_t bytes, size_t alignment)
{
    ledger *books = user;
    pthread_mutex_lock(&books->lock);
    void *data = take(books, bytes, alignment);
    pthread_mutex_unlock(&books->lock);
    return data;
}

// Takes a block off the books; the caller holds the lock. NULL: it is not on them.
static ledger_block *strike(ledger *books, const void *data)
{
    for (ledger_block **at = bucket_of(books, data); *at; at = &(*at)->next) {
        if ((*at)->data == data) {
            ledger_block *found = *at;
            *at = found->next;
            books->held_bytes -= found->bytes;
            books->blocks_held--;
            return found;
        }
    }
    return NULL;
}

// The library may be on any thread here, where a test cannot be ended by cmocka's jump.
static void stop(const char *fault, const ledger_block *block, size_t bytes, size_t alignment)
{
    fprintf(stderr, "allocator: %s: %zu bytes aligned to %zu", fault, bytes, alignment);
    if (block)
        fprintf(stderr, " (taken as %zu, %zu)", block->bytes, block->alignment);
    fputc('\n', stderr);
    abort();
}

static bool is_fence_whole(const ledger_block *block)
{
    for (size_t i = 0; i < FENCE_BYTES; i++) {
        if ((unsigned char)block->data[block->bytes + i] != FENCE)
            return false;
    }
    return true;
}

static void release(void *user, void *data, size_t bytes, size_t alignment)
{
    ledger *books = user;
    pthread_mutex_lock(&books->lock);
    ledger_block *block = strike(books, data);
    pthread_mutex_unlock(&books->lock);
    if (!block) {
        stop("given back, but not held", NULL, bytes, alignment);
        return;
    }
    if (block->bytes != bytes || block->alignment != alignment)
        stop("given back with another size or alignment", block, bytes, alignment);
    if (!is_fence_whole(block))
        stop("written behind its end", block, bytes, alignment);
    memset(data, POISON, bytes); // who still reads it reads NaN
    free(data);
    free(block);
}

kvern_allocator ledger_allocator(ledger *books)
{
    return (kvern_allocator){.user = books, .allocate = allocate, .release = release};
}

void ledger_refuse(ledger *books, int64_t granted)
{
    books->refused = books->refuse_rest = false;
    books->refuse_in = granted;
}

void ledger_refuse_often(ledger *books, uint64_t seed, uint64_t one_in)
{
    books->refused = false;
    books->random = test_random_seed(seed);
    books->one_in = one_in;
}

void ledger_refuse_rest(ledger *books, int64_t granted)
{
    ledger_refuse(books, granted);
    books->refuse_rest = true;
}

bool ledger_relent(ledger *books)
{
    books->refuse_in = -1;
    books->one_in = 0;
    const bool refused = books->refused;
    books->refused = false;
    return refused;
}
