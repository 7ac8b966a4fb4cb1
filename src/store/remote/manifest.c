// SPDX-License-Identifier: MIT
#include "src/store/remote/manifest.h"

#include "src/base/fail.h"
#include "src/base/size.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

// Of blocks: another one than that of the sums in a container, so that the two have little in
// common.
#define BLOCK_SEED UINT64_C(0x6b7665726e626c6b)
#define HEAD_BYTES 40
#define PIECE_BYTES 16
#define BLOCK_BYTES 32
#define SUM_BYTES 8
#define FIRST_ROOM 16

static const char magic[8] = {'k', 'v', 'e', 'r', 'n', 'r', '0', '1'};

// The head of a value.
typedef struct head {
    uint64_t container_bytes, literal_bytes, pieces, blocks;
} head;

void kvern_manifest_hash(const void *data, size_t bytes, kvern_manifest_block *block)
{
    const XXH128_hash_t hash = XXH3_128bits_withSeed(data, bytes, BLOCK_SEED);
    block->bytes = bytes;
    block->low = hash.low64;
    block->high = hash.high64;
}

uint64_t kvern_manifest_block_bytes(const kvern_manifest *manifest)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < manifest->block_count; i++)
        bytes += manifest->blocks[i].bytes;
    return bytes;
}

// ---- Making ----

void kvern_manifest_begin(kvern_heap *heap, kvern_manifest *out)
{
    *out = (kvern_manifest){.heap = heap};
}

static void give(const kvern_manifest *m, void *block, size_t room, size_t bytes)
{
    if (block)
        kvern_heap_give(m->heap, block, room * bytes, KVERN_HEAP_ALIGNMENT);
}

void kvern_manifest_free(kvern_manifest *manifest)
{
    give(manifest, manifest->pieces, manifest->piece_room, sizeof manifest->pieces[0]);
    give(manifest, manifest->blocks, manifest->block_room, sizeof manifest->blocks[0]);
    give(manifest, manifest->literals, manifest->literal_room, 1);
    *manifest = (kvern_manifest){.heap = manifest->heap};
}

// Room for `wanted` elements at least, of which there are `count`.
static kvern_status grow(const kvern_manifest *m, void **list, size_t *room, size_t count,
                         size_t wanted, size_t bytes)
{
    void *block;
    size_t all, more = kvern_max_size(kvern_max_size(FIRST_ROOM, 2 * *room), wanted);
    if (wanted <= *room)
        return KVERN_OK;
    if (!kvern_size_mul(more, bytes, &all))
        return kvern_fail(KVERN_ERR_OVERFLOW, "an entry does not fit memory");
    kvern_status status = kvern_heap_take(m->heap, all, KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    if (count)
        memcpy(block, *list, count * bytes);
    give(m, *list, *room, bytes);
    *list = block;
    *room = more;
    return KVERN_OK;
}

static kvern_status add_piece(kvern_manifest *m, uint64_t bytes)
{
    kvern_manifest_piece *last = m->piece_count ? &m->pieces[m->piece_count - 1] : NULL;
    if (last && last->offset + last->bytes == m->container_bytes) {
        last->bytes += bytes;
        return KVERN_OK;
    }
    void *list = m->pieces;
    kvern_status status =
        grow(m, &list, &m->piece_room, m->piece_count, m->piece_count + 1, sizeof m->pieces[0]);
    m->pieces = list;
    if (!status)
        m->pieces[m->piece_count++] = (kvern_manifest_piece){m->container_bytes, bytes};
    return status;
}

static kvern_status add_literal(kvern_manifest *m, const void *data, size_t bytes)
{
    void *list = m->literals;
    kvern_status status =
        grow(m, &list, &m->literal_room, m->literal_bytes, m->literal_bytes + bytes, 1);
    m->literals = list;
    if (!status)
        status = add_piece(m, bytes);
    if (status)
        return status;
    memcpy(m->literals + m->literal_bytes, data, bytes);
    m->literal_bytes += bytes;
    return KVERN_OK;
}

static kvern_status add_block(kvern_manifest *m, const void *data, size_t bytes)
{
    if (bytes > KVERN_MANIFEST_MOST_BLOCK)
        return kvern_fail(KVERN_ERR_RANGE, "a page of %zu bytes, above %zu", bytes,
                          KVERN_MANIFEST_MOST_BLOCK);
    void *list = m->blocks;
    kvern_status status =
        grow(m, &list, &m->block_room, m->block_count, m->block_count + 1, sizeof m->blocks[0]);
    m->blocks = list;
    if (status)
        return status;
    kvern_manifest_block *block = &m->blocks[m->block_count++];
    kvern_manifest_hash(data, bytes, block);
    block->offset = m->container_bytes;
    return KVERN_OK;
}

kvern_status kvern_manifest_add(kvern_manifest *manifest, const void *data, size_t bytes, bool page)
{
    kvern_status status = KVERN_OK;
    if (bytes == 0)
        return KVERN_OK;
    if (bytes > KVERN_MANIFEST_MOST_BYTES - manifest->container_bytes)
        return kvern_fail(KVERN_ERR_RANGE, "an entry that is too large");
    if (data)
        status = page ? add_block(manifest, data, bytes) : add_literal(manifest, data, bytes);
    if (!status)
        manifest->container_bytes += bytes;
    return status;
}

// ---- Writing: the machine's numbers are little-endian, or there is no store ----

static bool size_of(const head *h, size_t *bytes)
{
    size_t pieces, blocks;
    return h->pieces <= SIZE_MAX && h->blocks <= SIZE_MAX && h->literal_bytes <= SIZE_MAX &&
           kvern_size_mul((size_t)h->pieces, PIECE_BYTES, &pieces) &&
           kvern_size_mul((size_t)h->blocks, BLOCK_BYTES, &blocks) &&
           kvern_size_add(HEAD_BYTES + SUM_BYTES, pieces, bytes) &&
           kvern_size_add(*bytes, blocks, bytes) &&
           kvern_size_add(*bytes, (size_t)h->literal_bytes, bytes);
}

static head head_of(const kvern_manifest *m)
{
    return (head){m->container_bytes, m->literal_bytes, m->piece_count, m->block_count};
}

bool kvern_manifest_value_bytes(const kvern_manifest *manifest, size_t *bytes)
{
    const head h = head_of(manifest);
    return size_of(&h, bytes);
}

kvern_status kvern_manifest_write(const kvern_manifest *m, void **value, size_t *bytes)
{
    const head h = head_of(m);
    if (!size_of(&h, bytes))
        return kvern_fail(KVERN_ERR_OVERFLOW, "an entry does not fit memory");
    kvern_status status = kvern_heap_take(m->heap, *bytes, KVERN_HEAP_ALIGNMENT, value);
    if (status)
        return status;
    unsigned char *at = *value;
    memcpy(at, magic, sizeof magic);
    memcpy(at + sizeof magic, &h, sizeof h);
    at += HEAD_BYTES;
    memcpy(at, m->pieces, m->piece_count * PIECE_BYTES);
    at += m->piece_count * PIECE_BYTES;
    if (m->block_count)
        memcpy(at, m->blocks, m->block_count * BLOCK_BYTES);
    at += m->block_count * BLOCK_BYTES;
    memcpy(at, m->literals, m->literal_bytes);
    const uint64_t sum = XXH3_64bits(*value, *bytes - SUM_BYTES);
    memcpy(at + m->literal_bytes, &sum, SUM_BYTES);
    return KVERN_OK;
}

// ---- Reading ----

static kvern_status refuse(const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "it is no entry: %s", what);
}

static kvern_status read_head(const unsigned char *value, size_t bytes, head *h)
{
    size_t wanted;
    uint64_t sum;
    if (bytes < HEAD_BYTES + SUM_BYTES || memcmp(value, magic, sizeof magic) != 0)
        return refuse("it does not begin as one");
    memcpy(h, value + sizeof magic, sizeof *h);
    if (h->container_bytes == 0 || h->container_bytes > KVERN_MANIFEST_MOST_BYTES ||
        h->container_bytes > SIZE_MAX / 2 || !size_of(h, &wanted) || wanted != bytes ||
        h->pieces == 0)
        return refuse("its sizes contradict each other");
    memcpy(&sum, value + bytes - SUM_BYTES, SUM_BYTES);
    return sum == XXH3_64bits(value, bytes - SUM_BYTES) ? KVERN_OK : refuse("a wrong sum");
}

static kvern_status take_lists(const unsigned char *value, const head *h, kvern_manifest *m)
{
    void *pieces = NULL, *blocks = NULL, *literals = NULL;
    kvern_status status = grow(m, &pieces, &m->piece_room, 0, (size_t)h->pieces, PIECE_BYTES);
    m->pieces = pieces;
    if (!status)
        status = grow(m, &blocks, &m->block_room, 0, (size_t)h->blocks, BLOCK_BYTES);
    m->blocks = blocks;
    if (!status)
        status = grow(m, &literals, &m->literal_room, 0, (size_t)h->literal_bytes, 1);
    m->literals = literals;
    if (status)
        return status;
    m->container_bytes = h->container_bytes;
    m->piece_count = (size_t)h->pieces;
    m->block_count = (size_t)h->blocks;
    m->literal_bytes = (size_t)h->literal_bytes;
    value += HEAD_BYTES;
    memcpy(pieces, value, m->piece_count * PIECE_BYTES);
    value += m->piece_count * PIECE_BYTES;
    if (m->block_count)
        memcpy(blocks, value, m->block_count * BLOCK_BYTES);
    value += m->block_count * BLOCK_BYTES;
    if (m->literal_bytes)
        memcpy(literals, value, m->literal_bytes);
    return KVERN_OK;
}

// The next piece or block, whichever comes first, begins where the one before has ended or behind.
static bool next_extent(const kvern_manifest *m, size_t *piece, size_t *block, uint64_t *offset,
                        uint64_t *bytes)
{
    const kvern_manifest_piece *p = *piece < m->piece_count ? &m->pieces[*piece] : NULL;
    const kvern_manifest_block *b = *block < m->block_count ? &m->blocks[*block] : NULL;
    if (!p && !b)
        return false;
    const bool is_piece = p && (!b || p->offset <= b->offset);
    *offset = is_piece ? p->offset : b->offset;
    *bytes = is_piece ? p->bytes : b->bytes;
    if (is_piece)
        ++*piece;
    else
        ++*block;
    return true;
}

static kvern_status check_extents(const kvern_manifest *m)
{
    size_t piece = 0, block = 0;
    uint64_t end = 0, offset, bytes, literals = 0;
    for (size_t i = 0; i < m->piece_count; i++) {
        if (m->pieces[i].bytes > m->literal_bytes - literals)
            return refuse("its pieces have more than it has");
        literals += m->pieces[i].bytes;
    }
    if (literals != m->literal_bytes)
        return refuse("its pieces have less than it has");
    while (next_extent(m, &piece, &block, &offset, &bytes)) {
        if (offset < end || bytes == 0 || offset > m->container_bytes ||
            bytes > m->container_bytes - offset)
            return refuse("its parts overlap, or lie outside");
        end = offset + bytes;
    }
    for (size_t i = 0; i < m->block_count; i++) {
        if (m->blocks[i].bytes > KVERN_MANIFEST_MOST_BLOCK)
            return refuse("a block is too large");
    }
    return KVERN_OK;
}

kvern_status kvern_manifest_read(kvern_heap *heap, const void *value, size_t bytes,
                                 kvern_manifest *out)
{
    head h;
    *out = (kvern_manifest){.heap = heap};
    kvern_status status = read_head(value, bytes, &h);
    if (!status)
        status = take_lists(value, &h, out);
    if (!status)
        status = check_extents(out);
    if (status)
        kvern_manifest_free(out);
    return status;
}

void kvern_manifest_spread(const kvern_manifest *m, unsigned char *container)
{
    const unsigned char *from = m->literals;
    size_t piece = 0, block = 0;
    uint64_t end = 0, offset, bytes;
    for (;;) {
        const size_t before = piece;
        const bool more = next_extent(m, &piece, &block, &offset, &bytes);
        const uint64_t until = more ? offset : m->container_bytes;
        memset(container + end, 0, (size_t)(until - end));
        if (!more)
            return;
        if (piece > before) {
            memcpy(container + offset, from, (size_t)bytes);
            from += bytes;
        }
        end = offset + bytes;
    }
}
