// SPDX-License-Identifier: MIT
// Prompts that begin as something that was served before: stores (kvern/store.h,
// kvern/disk_store.h) have the rows of prompts and answers that ended, and lend them. What they
// lend is what the row would have been, so the answer has the same bits.

#include "engine/base/clock.h"
#include "engine/generation/schedule_internal.h"

// Of the time that looking took.
#define LOOKING_PAUSE 9

// A directory of many entries takes long to read while somebody writes there, and many requests may
// come at once.
void schedule_stored_look_again(schedule *s)
{
    const double now = engine_seconds();
    if (!s->options.disk || now < s->next_look) {
        return;
    }
    (void)!kvern_disk_store_rescan(s->options.disk); // where that fails, what was known before is
    const double after = engine_seconds();
    s->next_look = after + LOOKING_PAUSE * (after - now);
}

// Of the stores the one that has more is asked for it; the nearer one, where it has as much.
static bool disk_has_more(const schedule_hit *hit)
{
    return hit->disk.positions > hit->memory.positions;
}

static bool remote_has_more(const schedule_hit *hit)
{
    return hit->remote.positions > hit->disk.positions &&
           hit->remote.positions > hit->memory.positions;
}

// Finding fails for wrong arguments alone: these are right.
static void find_in_memory(const schedule *s, const schedule_sequence *q, schedule_hit *hit)
{
    if (s->options.store) {
        (void)!kvern_store_find(s->options.store, &s->options.store_key,
                                kvern_state_composition(s->state), q->tokens, q->count,
                                &hit->memory);
    }
}

static void find_on_disk(const schedule *s, const schedule_sequence *q, schedule_hit *hit)
{
    if (s->options.disk) {
        (void)!kvern_disk_store_find(s->options.disk, &s->options.store_key,
                                     kvern_state_composition(s->state), q->tokens, q->count,
                                     &hit->disk);
    }
}

// Of what the request can be given, for its owner and for the scheduler. The disk has all that was
// ever kept, so its reason is the one that counts; and what is further away, all that others kept.
static int64_t judge(const schedule *s, schedule_sequence *q, const schedule_hit *hit)
{
    if (remote_has_more(hit) || (q->fetch && hit->disk.positions + hit->memory.positions == 0)) {
        q->result.why = kvern_store_why_text(hit->remote.why);
        return hit->remote.positions;
    }
    const bool disk = s->options.disk && hit->disk.positions >= hit->memory.positions;
    q->result.why = kvern_store_why_text(disk ? hit->disk.why : hit->memory.why);
    return disk ? hit->disk.positions : hit->memory.positions;
}

size_t schedule_stored_find(const schedule *s, schedule_sequence *q, schedule_hit *hit)
{
    *hit = (schedule_hit){kvern_store_hit_default(), kvern_disk_hit_default(),
                          kvern_remote_found_default()};
    if ((!s->options.store && !s->options.disk && !s->options.remote) || !s->shares) {
        return 0;
    }
    find_in_memory(s, q, hit);
    find_on_disk(s, q, hit);
    schedule_fetched_find(s, q, &hit->remote);
    const int64_t positions = judge(s, q, hit);
    return positions >= SCHEDULE_LEAST_SHARED ? (size_t)positions : 0;
}

size_t schedule_stored_have(const schedule *s, const schedule_sequence *q)
{
    schedule_hit hit = {kvern_store_hit_default(), kvern_disk_hit_default(),
                        kvern_remote_found_default()};
    find_in_memory(s, q, &hit);
    find_on_disk(s, q, &hit);
    const bool disk = disk_has_more(&hit);
    const size_t positions = (size_t)(disk ? hit.disk.positions : hit.memory.positions);
    schedule_stored_release(s, &hit);
    return positions;
}

// Files may have gone, or turn out damaged, and are found no more then: what is the longest without
// them?
static int64_t lend_from_disk(schedule *s, schedule_sequence *q, size_t row, schedule_hit *hit)
{
    int64_t lent = 0;
    while (disk_has_more(hit) && lent == 0 &&
           kvern_disk_store_lend(s->options.disk, &hit->disk, s->state, row, &lent) == KVERN_OK &&
           lent == 0) {
        kvern_disk_store_release(s->options.disk, &hit->disk);
        find_on_disk(s, q, hit);
        (void)judge(s, q, hit);
    }
    return lent;
}

static int64_t lend_from_memory(schedule *s, size_t row, schedule_hit *hit)
{
    return hit->memory.positions > 0 &&
                   kvern_store_lend(s->options.store, &hit->memory, s->state, row) == KVERN_OK
               ? hit->memory.positions
               : 0;
}

bool schedule_stored_take(schedule *s, schedule_sequence *q, size_t row, schedule_hit *hit)
{
    q->result.from_disk = false;
    int64_t lent = remote_has_more(hit) ? schedule_fetched_lend(s, q, row, &hit->remote) : 0;
    q->result.from_remote = lent > 0;
    if (lent == 0 && disk_has_more(hit)) {
        lent = lend_from_disk(s, q, row, hit);
        q->result.from_disk = lent > 0;
    }
    if (lent == 0) {
        lent = lend_from_memory(s, row, hit);
    }
    if (lent > 0) {
        q->forwarded = q->result.shared_tokens = q->result.stored_tokens = (size_t)lent;
    }
    return lent > 0;
}

void schedule_stored_release(const schedule *s, schedule_hit *hit)
{
    if (s->options.store) {
        kvern_store_release(s->options.store, &hit->memory);
    }
    if (s->options.disk) {
        kvern_disk_store_release(s->options.disk, &hit->disk);
    }
}

// What cannot be kept is served anew when it is asked for again.
static bool publish(schedule *s, size_t row, const int32_t *tokens, kvern_store_retention retention)
{
    const int64_t length = kvern_state_length(s->state, row);
    const kvern_store_key *key = &s->options.store_key;
    kvern_store_publication publication = kvern_store_publication_default();
    publication.retention = retention;
    if (!s->shares || length < SCHEDULE_LEAST_SHARED) {
        return false;
    }
    bool kept =
        s->options.store && kvern_store_publish(s->options.store, key, tokens, (size_t)length,
                                                s->state, row, &publication) == KVERN_OK;
    if (s->options.disk) {
        kept |= kvern_disk_store_publish(s->options.disk, key, tokens, (size_t)length, s->state,
                                         row, NULL) == KVERN_OK;
    }
    if (s->options.remote) {
        kept |= kvern_remote_store_publish(s->options.remote, key, tokens, (size_t)length, s->state,
                                           row, NULL) == KVERN_OK;
    }
    return kept;
}

// Whether an entry of a longer row serves all its beginnings.
static bool any_prefix_serves(const schedule *s, size_t row)
{
    return kvern_state_min_reusable(s->state, row) == 0;
}

// Whoever asks another machine for the same need not wait for this answer's end. What was fetched
// is at the server already; a row that served it here has been published by its own request.
static bool publish_for_others(schedule *s, size_t row)
{
    const schedule_sequence *q = s->rows[row];
    const int64_t length = kvern_state_length(s->state, row);
    if (!s->options.remote || !s->shares ||
        length < (int64_t)q->result.shared_tokens + SCHEDULE_LEAST_FETCHED) {
        return false;
    }
    return kvern_remote_store_publish(s->options.remote, &s->options.store_key, q->tokens,
                                      (size_t)length, s->state, row, NULL) == KVERN_OK;
}

void schedule_stored_prompt(schedule *s, size_t row)
{
    // Another prompt may go on behind this one otherwise than the answer does.
    const bool published = any_prefix_serves(s, row)
                               ? publish_for_others(s, row)
                               : publish(s, row, s->rows[row]->tokens, KVERN_STORE_NORMAL);
    if (published) {
        (void)!schedule_room_renew(s, row); // gives the entry up where that takes the row's room
    }
}

void schedule_stored_end(schedule *s, const schedule_sequence *q, size_t row)
{
    const bool serves = any_prefix_serves(s, row); // its prompt, too
    (void)publish(s, row, q->tokens, serves ? KVERN_STORE_NORMAL : KVERN_STORE_SHORT);
}

uint64_t schedule_stored_forget(schedule *s, uint64_t bytes)
{
    if (s->options.disk) { // what waits to be written holds its pages
        kvern_disk_store_flush(s->options.disk);
    }
    const uint64_t fetched = s->options.remote ? schedule_fetched_forget(s) : 0;
    return fetched + (s->options.store ? kvern_store_give_up(s->options.store, bytes) : 0);
}

uint64_t schedule_stored_bytes(const schedule *s)
{
    kvern_store_stats stats = kvern_store_stats_default();
    // The arguments are right: this cannot fail.
    if (s->options.store) {
        (void)!kvern_store_get_stats(s->options.store, &stats);
    }
    return stats.bytes;
}
