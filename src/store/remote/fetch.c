// SPDX-License-Identifier: MIT
// One entry: what it is, the blocks that a prompt needs of it, and a row of these. The container is
// put together in memory as it was saved, but for its pages, and loaded as a file is, with all its
// checks; blocks arrive in pages of the context's own, which then take the places of the
// container's in the row. The container's pages are never touched, so that they take no memory of
// the machine.
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/container/page_sum.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_PENDING_BYTES ((size_t)4 << 20)
#define MOST_PENDING 256 // commands
#define ALIGNMENT 4096   // of a container
#define MOST_TRIES 6     // entries that turn out gone or damaged, or have less than they might

// An entry that is looked at.
typedef struct opened {
    bool is_open;
    char name[KVERN_REMOTE_HASH_DIGITS + 1];
    kvern_manifest manifest;
    void *container;
    kvern_file *file;
    kvern_page **pages; // of each block; NULL: it is not needed, or has not been asked for
    int64_t common;
    int64_t positions;   // that it serves; 0: none
    int64_t from, floor; // positions of the snapshot that serves them, and its floor
    kvern_store_why why; // why no more
    bool is_old;         // it is to be used again before it expires
} opened;

typedef struct serving {
    kvern_remote_store *store;
    kvern_wire *wire;
    kvern_remote_fetch *fetch;
    char space[KVERN_REMOTE_HASH_DIGITS + 1];
    kvern_remote_hints hints;
    opened best;
    int64_t left;                  // the first position of the best one's pages that has gone
    uint64_t bytes, counted_bytes; // that came, and of these in the store's counts
    uint64_t counted_trips;        // of the wire
} serving;

// What becomes of an entry that does not serve: its reason, and the entry goes.
typedef enum verdict { GOOD, GONE, DAMAGED, NO_ROOM } verdict;

static void close_entry(serving *s, opened *o)
{
    kvern_heap *heap = kvern_remote_heap(s->store);
    const size_t blocks = o->manifest.block_count;
    if (!o->is_open)
        return;
    for (size_t i = 0; o->pages && i < blocks; i++) {
        if (o->pages[i])
            kvern_page_release(o->pages[i]);
    }
    kvern_heap_give(heap, o->pages, (blocks + 1) * sizeof(kvern_page *), KVERN_HEAP_ALIGNMENT);
    kvern_file_close(o->file);
    kvern_heap_give(heap, o->container, (size_t)o->manifest.container_bytes, ALIGNMENT);
    kvern_manifest_free(&o->manifest);
    *o = (opened){.is_open = false};
}

// Memory is not the entry's fault.
static verdict judge(kvern_status status)
{
    if (!status)
        return GOOD;
    return status == KVERN_ERR_MEMORY || status == KVERN_ERR_BUDGET ? NO_ROOM : DAMAGED;
}

// ---- What it is ----

static verdict open_container(serving *s, const redisReply *value, opened *o)
{
    kvern_heap *heap = kvern_remote_heap(s->store);
    kvern_status status = kvern_manifest_read(heap, value->str, value->len, &o->manifest);
    if (status)
        return judge(status);
    o->is_open = true;
    status = kvern_heap_take(heap, (size_t)o->manifest.container_bytes, ALIGNMENT, &o->container);
    if (status)
        return judge(status);
    kvern_manifest_spread(&o->manifest, o->container);
    return judge(kvern_file_open_memory(s->store->context, o->container,
                                        (size_t)o->manifest.container_bytes, &o->file));
}

static bool is_of_key(const serving *s, const kvern_disk_facts *facts)
{
    const kvern_key_front *front = &s->fetch->front;
    return facts->front.fields == front->fields &&
           memcmp(facts->front.words, front->words, front->fields * sizeof front->words[0]) == 0;
}

static int64_t common_of(const serving *s, const kvern_disk_facts *facts)
{
    const int64_t most = kvern_min_i64(facts->positions, (int64_t)s->fetch->count);
    int64_t common = 0;
    while (common < most && facts->tokens[common] == s->fetch->tokens[common])
        common++;
    return common;
}

// What of it serves most of the prompt; of snapshots that serve as much, the shortest.
static void choose_snapshot(const serving *s, const kvern_disk_facts *facts, opened *o)
{
    const int64_t most = kvern_min_i64(o->common, (int64_t)s->fetch->count - 1);
    const char *note = facts->note;
    kvern_disk_snapshot shot;
    o->why = KVERN_STORE_TOKENS;
    while (kvern_disk_snapshot_read(&note, &shot)) {
        const int64_t serves = kvern_min_i64(shot.positions, most);
        if (serves < shot.floor) {
            o->why = shot.why;
        } else if (serves >= o->positions) {
            o->positions = serves;
            o->from = shot.positions;
            o->floor = shot.floor;
        }
    }
    if (o->positions == (int64_t)s->fetch->count - 1)
        o->why = KVERN_STORE_ALL;
    else if (o->positions == most)
        o->why = KVERN_STORE_TOKENS;
}

// Of the pages of a layer's form; NULL: it has none of that form.
static kvern_pool *pool_of(const serving *s, size_t group)
{
    const kvern_planned_layer *layer = &s->fetch->composition->layers[group / 2];
    return group % 2 ? layer->first_pool : layer->pool;
}

// Blocks are pages: one each, in their order, as large as the layers' are.
static bool are_blocks_pages(const serving *s, const opened *o)
{
    const unsigned char *begin = o->container;
    size_t block = 0;
    for (size_t g = 0; g < 2 * o->file->layers; g++) {
        const kvern_file_pages *pages = &o->file->pages[g];
        const kvern_pool *pool = pool_of(s, g);
        if (pages->count && (!pool || kvern_pool_page_bytes(pool) != pages->page_bytes))
            return false;
        for (size_t i = 0; i < pages->count; i++, block++) {
            if (block == o->manifest.block_count ||
                o->manifest.blocks[block].bytes != pages->page_bytes ||
                begin + o->manifest.blocks[block].offset != pages->data + i * pages->page_bytes)
                return false;
        }
    }
    return block == o->manifest.block_count;
}

static verdict read_entry(serving *s, const redisReply *value, opened *o)
{
    kvern_disk_facts facts;
    verdict v = open_container(s, value, o);
    if (v == GOOD)
        v = judge(kvern_disk_facts_read(o->file, &facts));
    if (v != GOOD)
        return v;
    if (!is_of_key(s, &facts) || kvern_loan_check_layers(o->file->layers, kvern_disk_file_signature,
                                                         o->file, s->fetch->composition))
        return judge(kvern_fail(KVERN_ERR_FORMAT, "an entry of another key or of other layers"));
    if (!are_blocks_pages(s, o))
        return judge(kvern_fail(KVERN_ERR_FORMAT, "its blocks are not its pages"));
    o->common = common_of(s, &facts);
    choose_snapshot(s, &facts, o);
    return GOOD;
}

// ---- Entries that do not serve ----

static kvern_status condemn(serving *s, verdict v, const char *name)
{
    char key[KVERN_REMOTE_KEY_BYTES];
    const char *remove[] = {"UNLINK", key};
    kvern_remote_entry_key(s->space, name, key);
    if (v == DAMAGED) {
        s->fetch->found.why = KVERN_STORE_DAMAGED;
        return kvern_remote_remove_damaged(s->store, s->wire, key, kvern_error_detail());
    }
    if (v == NO_ROOM) {
        s->fetch->found.why = KVERN_STORE_NO_ROOM;
        return KVERN_OK;
    }
    s->fetch->found.why = KVERN_STORE_GONE;
    pthread_mutex_lock(&s->store->lock);
    s->store->stats.gone++;
    pthread_mutex_unlock(&s->store->lock);
    kvern_status status = kvern_wire_add(s->wire, 2, remove, NULL);
    return status ? status : kvern_wire_skip(s->wire, 1);
}

// The entry's value, and whether its time is half over.
static kvern_status ask_entry(serving *s, const char *name, redisReply **value, bool *is_old)
{
    char key[KVERN_REMOTE_KEY_BYTES];
    const char *get[] = {"GET", key}, *left[] = {"PTTL", key};
    redisReply *time = NULL;
    kvern_remote_entry_key(s->space, name, key);
    kvern_status status = kvern_wire_add(s->wire, 2, get, NULL);
    if (!status)
        status = kvern_wire_add(s->wire, 2, left, NULL);
    if (!status)
        status = kvern_wire_next(s->wire, value);
    if (!status)
        status = kvern_wire_next(s->wire, &time);
    *is_old = !status && time->type == REDIS_REPLY_INTEGER && time->integer >= 0 &&
              (uint64_t)time->integer < 500 * s->store->options.ttl_seconds;
    freeReplyObject(time);
    return status;
}

// *v is GONE, and nothing is counted, where the index is behind.
static kvern_status open_entry(serving *s, const char *name, opened *o, verdict *v)
{
    redisReply *value = NULL;
    *o = (opened){.is_open = false};
    kvern_status status = ask_entry(s, name, &value, &o->is_old);
    const bool is_old = o->is_old;
    if (!status && value->type == REDIS_REPLY_STRING) {
        s->bytes += value->len;
        *v = read_entry(s, value, o);
        snprintf(o->name, sizeof o->name, "%s", name);
        o->is_old = is_old;
        if (*v != GOOD) {
            status = condemn(s, *v, name);
            close_entry(s, o);
        }
    } else if (!status && value->type == REDIS_REPLY_NIL) {
        *v = GONE;
    } else if (!status && kvern_wire_is_wrong_type(value)) {
        *v = judge(kvern_fail(KVERN_ERR_FORMAT, "it is no entry: a value of another type"));
        status = condemn(s, *v, name);
    } else if (!status) {
        (void)kvern_wire_refused(s->wire, value);
        status = KVERN_ERR_IO;
    }
    freeReplyObject(value);
    return status;
}

// Opens entries until none that is left can have more than the best.
static kvern_status choose_entry(serving *s)
{
    kvern_status status = KVERN_OK;
    int tries = 0;
    for (size_t i = 0; i < s->hints.count && tries < MOST_TRIES && !status; i++) {
        kvern_remote_hint *hint = &s->hints.list[i];
        if (hint->is_spent || hint->bound < s->fetch->least || hint->bound <= s->best.positions)
            continue;
        opened o;
        verdict v = GONE;
        status = open_entry(s, hint->name, &o, &v);
        hint->is_spent = true;
        tries++;
        if (status || v != GOOD)
            continue;
        s->fetch->found.common = kvern_max_i64(s->fetch->found.common, o.common);
        if (o.positions > s->best.positions) {
            close_entry(s, &s->best);
            s->best = o;
            continue;
        }
        if (s->best.positions == 0)
            s->fetch->found.why = o.why;
        close_entry(s, &o);
    }
    return status;
}

// ---- Blocks ----

// The snapshot that serves.
static size_t snapshot_of(const opened *o)
{
    size_t i = 0;
    while (i + 1 < o->file->snapshot_count && kvern_file_snapshot(o->file, i)[1] != o->from)
        i++;
    return i;
}

// The number of the first block that is a page of a layer's form.
static size_t first_block(const opened *o, size_t layer, bool first)
{
    return o->file->pages[2 * layer + first].first_sum;
}

// Of a block that nobody needs.
#define NOT_NEEDED INT64_MAX

// The blocks that are pages of the snapshot, by their first position; 0 for what is no list of
// positions.
static void need_set(const serving *s, const opened *o, size_t set, int64_t *needed)
{
    const kvern_row_set of = kvern_row_set_of(s->fetch->composition, set);
    const kvern_file_record *record = kvern_file_record_of(o->file, set, snapshot_of(o));
    const int64_t *fields = record->fields;
    const bool first = kvern_row_set_is_first(&of, fields[KVERN_RECORD_CONVERTED]);
    const kvern_page_span span =
        kvern_row_set_span(&of, fields[KVERN_RECORD_LENGTH], fields[KVERN_RECORD_HELD]);
    for (size_t i = 0; i < (size_t)fields[KVERN_RECORD_PAGES]; i++) {
        const size_t at = kvern_page_span_at(&span, i);
        const uint32_t number = o->file->tables[record->table + i];
        if (number >= o->file->pages[2 * of.layer->index + first].count)
            continue; // the load refuses it
        needed[first_block(o, of.layer->index, first) + number] =
            of.layer->geometry.whole ? 0 : (int64_t)at * KVERN_PAGE_POSITIONS;
    }
}

// The tensor of pages that has a block.
static size_t group_of(const opened *o, size_t number)
{
    size_t g = 0;
    while (number >= first_block(o, g / 2, g % 2) + o->file->pages[g].count)
        g++;
    return g;
}

// Room for the blocks of a tensor that are needed: their pages are taken first, all at once, and
// then spread from the last one on.
static verdict take_pages(serving *s, const int64_t *needed, size_t group)
{
    const size_t begin = first_block(&s->best, group / 2, group % 2);
    kvern_page **pages = s->best.pages + begin;
    size_t count = 0;
    for (size_t i = 0; i < s->best.file->pages[group].count; i++)
        count += needed[begin + i] < s->left;
    kvern_status status = kvern_pool_take(pool_of(s, group), count, pages);
    if (status)
        return judge(status);
    for (size_t i = s->best.file->pages[group].count; i-- > 0;) {
        if (needed[begin + i] >= s->left)
            continue;
        kvern_page *page = pages[--count];
        pages[count] = NULL;
        pages[i] = page;
    }
    return GOOD;
}

// The container's own sum of a page, while it is at hand.
static verdict check_page(const serving *s, size_t number)
{
    const kvern_file *file = s->best.file;
    kvern_page_sum_fn *sum = kvern_page_sum_of(file->context->cpu_features);
    if (sum(s->best.pages[number]->data, (size_t)s->best.manifest.blocks[number].bytes) ==
        file->sums[number])
        return GOOD;
    return judge(kvern_fail(KVERN_ERR_FORMAT, "page %zu has another checksum", number));
}

// A block that lies in its page now, or an answer of another kind or length.
static verdict read_block(serving *s, size_t number, const redisReply *reply)
{
    const kvern_manifest_block *block = &s->best.manifest.blocks[number];
    kvern_manifest_block arrived;
    if (reply && reply->type == REDIS_REPLY_NIL)
        return GONE;
    if (reply && reply->type != REDIS_REPLY_STRING)
        return judge(kvern_fail(KVERN_ERR_FORMAT, "a block is a value of another type"));
    if (reply)
        return judge(kvern_fail(KVERN_ERR_FORMAT, "a block has another length"));
    kvern_manifest_hash(s->best.pages[number]->data, (size_t)block->bytes, &arrived);
    if (arrived.low != block->low || arrived.high != block->high)
        return judge(kvern_fail(KVERN_ERR_FORMAT, "a block has another hash"));
    s->bytes += block->bytes;
    return GOOD;
}

static kvern_status ask_block(serving *s, size_t number)
{
    char key[KVERN_REMOTE_KEY_BYTES];
    const char *get[] = {"GET", key};
    kvern_remote_block_key(s->space, &s->best.manifest.blocks[number], key);
    return kvern_wire_add(s->wire, 2, get, NULL);
}

// What goes on behind a page that has gone is not needed any more.
static void note_gone(serving *s, const int64_t *needed, size_t number)
{
    s->left = kvern_min_i64(s->left, needed[number]);
}

static kvern_status take_block(serving *s, const int64_t *needed, size_t number, verdict *v)
{
    const kvern_manifest_block *block = &s->best.manifest.blocks[number];
    char key[KVERN_REMOTE_KEY_BYTES];
    const char *remove[] = {"UNLINK", key};
    redisReply *reply;
    kvern_status status =
        kvern_wire_next_into(s->wire, s->best.pages[number]->data, (size_t)block->bytes, &reply);
    if (status)
        return status;
    if (reply && reply->type == REDIS_REPLY_ERROR && !kvern_wire_is_wrong_type(reply)) {
        (void)kvern_wire_refused(s->wire, reply);
        status = KVERN_ERR_IO;
    } else {
        const verdict one = read_block(s, number, reply);
        kvern_remote_block_key(s->space, block, key);
        if (one == DAMAGED) // behind the answers that are on their way
            status = kvern_wire_add(s->wire, 2, remove, NULL);
        if (one == GONE)
            note_gone(s, needed, number);
        else if (one == DAMAGED || check_page(s, number) != GOOD)
            *v = DAMAGED;
    }
    freeReplyObject(reply);
    return status;
}

// Blocks that were asked for and have not come, in a ring.
typedef struct window {
    size_t numbers[MOST_PENDING], first, count, bytes;
} window;

static bool has_room(const window *w, size_t bytes)
{
    return w->count == 0 || (w->count < MOST_PENDING && w->bytes + bytes <= MOST_PENDING_BYTES);
}

// Asks for blocks from `next` on, as long as there is room for their answers.
static kvern_status fill_window(serving *s, const int64_t *needed, window *w, size_t *next,
                                verdict *v)
{
    const kvern_manifest *m = &s->best.manifest;
    kvern_status status = KVERN_OK;
    for (; *next < m->block_count && !status; ++*next) {
        const size_t bytes = (size_t)m->blocks[*next].bytes;
        if (needed[*next] >= s->left)
            continue;
        if (!has_room(w, bytes))
            return KVERN_OK;
        if (!s->best.pages[*next])
            *v = take_pages(s, needed, group_of(&s->best, *next));
        if (*v != GOOD)
            return KVERN_OK;
        status = ask_block(s, *next);
        w->numbers[(w->first + w->count++) % MOST_PENDING] = *next;
        w->bytes += bytes;
    }
    return status;
}

// The server has always something to send while what came is looked at: more is asked for when half
// of it has come.
static kvern_status take_blocks(serving *s, const int64_t *needed, verdict *v)
{
    window w = {.count = 0};
    size_t next = 0;
    kvern_status status = fill_window(s, needed, &w, &next, v);
    while (w.count && !status) {
        const size_t number = w.numbers[w.first];
        status = take_block(s, needed, number, v);
        w.first = (w.first + 1) % MOST_PENDING;
        w.count--;
        w.bytes -= (size_t)s->best.manifest.blocks[number].bytes;
        if (!status && *v == GOOD && w.bytes < MOST_PENDING_BYTES / 2 && w.count < MOST_PENDING / 2)
            status = fill_window(s, needed, &w, &next, v);
    }
    if (!status && s->wire->pending)
        status = kvern_wire_skip(s->wire, s->wire->pending);
    return status;
}

// Some of it has gone: what is in front of that may serve.
static verdict make_do(serving *s)
{
    opened *o = &s->best;
    if (s->left >= o->positions)
        return GOOD;
    if (s->left < o->floor || s->left < s->fetch->least)
        return GONE;
    o->positions = s->left;
    o->why = KVERN_STORE_GONE;
    pthread_mutex_lock(&s->store->lock);
    s->store->stats.gone++;
    pthread_mutex_unlock(&s->store->lock);
    return GOOD;
}

// ---- The row ----

// The block that lies at an offset of the container; block_count: none.
static size_t block_at(const kvern_manifest *m, uint64_t offset)
{
    size_t begin = 0, end = m->block_count;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        if (m->blocks[middle].offset < offset)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin < m->block_count && m->blocks[begin].offset == offset ? begin : m->block_count;
}

// In place of the container's pages the row has those that arrived. Its table is its own, or has
// been left by all others.
static kvern_status own_table(const opened *o, kvern_table *table)
{
    const unsigned char *begin = o->container;
    for (size_t i = 0; table && i < table->count; i++) {
        const unsigned char *data = table->pages[i]->data;
        const size_t number = block_at(&o->manifest, (uint64_t)(data - begin));
        if (number == o->manifest.block_count || !o->pages[number])
            return kvern_fail(KVERN_ERR_FORMAT, "the row has a page that it does not need");
        kvern_page_retain(o->pages[number]);
        kvern_page_release(table->pages[i]);
        table->pages[i] = o->pages[number];
    }
    return KVERN_OK;
}

static kvern_status own_pages(const opened *o, kvern_state *state)
{
    kvern_status status = KVERN_OK;
    for (size_t set = 0; set < state->batch.sets && !status; set++)
        status = own_table(o, kvern_batch_rows(&state->batch, set).rows[0].table);
    return status;
}

// The rows of the snapshot in a loaded state; `kept` has room for them.
static const kvern_row *kept_rows(const kvern_state *loaded, int64_t positions, kvern_row *kept)
{
    const kvern_batch *batch = &loaded->batch;
    const kvern_checkpoint *at = batch->checkpoints[0];
    if (batch->lengths[0] == positions) {
        for (size_t s = 0; s < batch->sets; s++)
            kept[s] = kvern_batch_rows(batch, s).rows[0];
        return kept;
    }
    while (at && at->position != positions)
        at = at->below;
    return at ? at->sets : NULL;
}

// The note is no more than a word: the row itself says what may be cut off it.
static kvern_status cut_row(const opened *o, const kvern_state *loaded, kvern_row *kept,
                            kvern_state *row)
{
    const kvern_planned_layer *layer;
    const kvern_row_source source = {.kept = kept_rows(loaded, o->from, kept)};
    if (!source.kept || kvern_row_source_floor(row->composition, &source, &layer) > o->positions)
        return kvern_fail(KVERN_ERR_FORMAT, "it does not serve what it says");
    kvern_kept_row_lend(row, 0, source.kept, o->from, o->positions);
    return KVERN_OK;
}

static kvern_status load(const serving *s, kvern_state *loaded, kvern_state *row)
{
    const opened *o = &s->best;
    kvern_heap *heap = kvern_remote_heap(s->store);
    const size_t bytes = loaded->composition->sets * sizeof(kvern_row);
    void *kept;
    loaded->batch.checkpoint_budget = UINT64_MAX;
    kvern_status status = kvern_file_load(o->file, NULL, loaded);
    if (!status)
        status = kvern_heap_take_zeroed(heap, bytes, &kept);
    if (status)
        return status;
    status = cut_row(o, loaded, kept, row);
    kvern_heap_give(heap, kept, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

static kvern_status list_sets(kvern_remote_fetch *fetch)
{
    const size_t sets = fetch->composition->sets;
    void *block;
    kvern_status status =
        kvern_heap_take(kvern_remote_heap(fetch->store), sets * sizeof fetch->sets[0],
                        KVERN_HEAP_ALIGNMENT, &block);
    if (status)
        return status;
    fetch->sets = block;
    for (size_t set = 0; set < sets; set++)
        fetch->sets[set] = kvern_batch_rows(&fetch->row->batch, set).rows[0];
    return KVERN_OK;
}

static kvern_status make_row(const serving *s)
{
    kvern_remote_fetch *fetch = s->fetch;
    kvern_state *loaded = NULL;
    kvern_status status = kvern_state_make(fetch->composition, 0, &loaded);
    if (!status)
        status = kvern_state_make(fetch->composition, 1, &fetch->row);
    if (!status)
        status = load(s, loaded, fetch->row);
    kvern_state_destroy(loaded); // what the row has is its own now
    if (!status)
        status = own_pages(&s->best, fetch->row);
    if (!status)
        status = list_sets(fetch);
    if (!status)
        return KVERN_OK;
    kvern_state_destroy(fetch->row);
    fetch->row = NULL;
    return status;
}

// ---- All of it ----

static kvern_status fetch_needed(serving *s, int64_t *needed, verdict *v)
{
    opened *o = &s->best;
    s->left = o->positions;
    for (size_t i = 0; i < o->manifest.block_count; i++)
        needed[i] = NOT_NEEDED;
    for (size_t set = 0; set < o->file->sets; set++)
        need_set(s, o, set, needed);
    kvern_status status = take_blocks(s, needed, v);
    if (!status && *v == GOOD)
        *v = make_do(s);
    if (!status && *v == GOOD)
        *v = judge(make_row(s));
    return status;
}

static kvern_status fetch_best(serving *s, verdict *v)
{
    const size_t bytes = (s->best.manifest.block_count + 1) * sizeof(int64_t);
    void *block;
    kvern_heap *heap = kvern_remote_heap(s->store);
    void *pages;
    *v = judge(kvern_heap_take_zeroed(
        heap, (s->best.manifest.block_count + 1) * sizeof(kvern_page *), &pages));
    if (*v != GOOD)
        return KVERN_OK;
    s->best.pages = pages;
    *v = judge(kvern_heap_take(heap, bytes, KVERN_HEAP_ALIGNMENT, &block));
    if (*v != GOOD)
        return KVERN_OK;
    kvern_status status = fetch_needed(s, block, v);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}

// It was used: everything of it stays for its time once more. The prompt does not wait for that,
// and an error matters to nobody but the wire.
static void touch(serving *s)
{
    const opened *o = &s->best;
    char key[KVERN_REMOTE_KEY_BYTES], ttl[24];
    const char *parts[] = {"PEXPIRE", key, ttl};
    snprintf(ttl, sizeof ttl, "%" PRIu64, 1000 * s->store->options.ttl_seconds);
    kvern_remote_entry_key(s->space, o->name, key);
    kvern_status status = kvern_wire_add(s->wire, 3, parts, NULL);
    for (size_t i = 0; i < o->manifest.block_count && !status; i++) {
        kvern_remote_block_key(s->space, &o->manifest.blocks[i], key);
        status = kvern_wire_add(s->wire, 3, parts, NULL);
        if (!status && s->wire->pending == MOST_PENDING)
            status = kvern_wire_skip(s->wire, s->wire->pending);
    }
    if (!status)
        status = kvern_wire_skip(s->wire, s->wire->pending);
    if (!status)
        status =
            kvern_remote_index_touch(s->store, s->wire, s->space, kvern_file_tokens(o->file, 0),
                                     (size_t)kvern_file_length(o->file, 0));
    if (!status)
        status = kvern_remote_claim_touch(s->store, s->wire, s->space, o->name, &o->manifest);
    if (status)
        kvern_wire_close(s->wire);
}

// Before the fetch comes to its end, which its owner may see at once.
static void count_so_far(serving *s)
{
    kvern_remote_store *store = s->store;
    pthread_mutex_lock(&store->lock);
    store->stats.round_trips += s->wire->round_trips - s->counted_trips;
    store->stats.fetched_bytes += s->bytes - s->counted_bytes;
    kvern_remote_count_wire(store, s->wire);
    pthread_mutex_unlock(&store->lock);
    s->counted_trips = s->wire->round_trips;
    s->counted_bytes = s->bytes;
}

static void take_best(serving *s)
{
    kvern_remote_found *found = &s->fetch->found;
    found->positions = s->best.positions;
    found->why = s->best.why;
    if (found->why == KVERN_STORE_TOKENS && s->hints.withheld > found->positions)
        found->why = s->hints.why_withheld;
    found->bytes = s->bytes;
    count_so_far(s);
    kvern_remote_finish(s->store, s->fetch);
    s->wire->deadline = kvern_remote_now() + s->wire->answer_ms;
    s->wire->given_up[1] = NULL; // the fetch may have been ended
    if (s->best.is_old || s->store->options.budget_bytes)
        touch(s);
}

static bool is_worth_it(const serving *s)
{
    return s->best.positions > 0 && s->best.positions >= s->fetch->least;
}

static kvern_status serve(serving *s)
{
    kvern_status status = kvern_remote_find(s->wire, s->fetch, s->space, &s->hints);
    if (!status && s->hints.withheld)
        s->fetch->found.why = s->hints.why_withheld; // unless something serves
    for (int tries = 0; tries < MOST_TRIES && !status; tries++) {
        verdict v = GOOD;
        status = choose_entry(s);
        if (status || !is_worth_it(s))
            return status;
        status = fetch_best(s, &v);
        if (!status && v == GOOD) {
            take_best(s);
            return KVERN_OK;
        }
        if (!status)
            status = condemn(s, v, s->best.name);
        close_entry(s, &s->best);
        if (v == NO_ROOM)
            return status;
    }
    return status;
}

kvern_status kvern_remote_serve(kvern_remote_store *store, kvern_wire *wire,
                                kvern_remote_fetch *fetch)
{
    serving s = {.store = store, .wire = wire, .fetch = fetch, .counted_trips = wire->round_trips};
    fetch->found.why = fetch->count < 2 ? KVERN_STORE_SHORT_PROMPT : KVERN_STORE_TOKENS;
    kvern_remote_space(&fetch->front, fetch->composition, s.space);
    kvern_status status = fetch->count < 2 ? KVERN_OK : serve(&s);
    close_entry(&s, &s.best);
    count_so_far(&s);
    return status;
}
