// SPDX-License-Identifier: MIT
#include "server/worker/snapshot.h"

#include "server/base/json_text.h"
#include "server/worker/snapshot_parts.h"

void snapshot_facts(const schedule *s, const worker_options *options, const measures *m,
                    worker_facts *out)
{
    *out = (worker_facts){.statistics = schedule_get_statistics(s),
                          .measures = *m,
                          .memory = kvern_memory_default(),
                          .store = kvern_store_stats_default(),
                          .disk = kvern_disk_store_stats_default(),
                          .remote = kvern_remote_store_stats_default(),
                          .has_store = options->schedule.store,
                          .has_disk = options->schedule.disk,
                          .has_remote = options->schedule.remote,
                          .most_rows = options->schedule.most_rows,
                          .most_queued = options->most_queued};
    out->queued = out->statistics.queued;
    out->running = out->statistics.running;
    out->kv_bytes = kvern_state_bytes(schedule_state(s));
    // The arguments are right: these cannot fail.
    (void)!kvern_context_memory(model_context(options->model), &out->memory);
    if (out->has_store) {
        (void)!kvern_store_get_stats(options->schedule.store, &out->store);
    }
    if (out->has_disk) {
        (void)!kvern_disk_store_get_stats(options->schedule.disk, &out->disk);
    }
}

// ---- JSON ----

static json_t *memory_json(const worker_facts *facts)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I}", "budget_bytes", (json_int_t)facts->memory.budget_bytes,
        "held_bytes", (json_int_t)facts->memory.held_bytes, "peak_bytes",
        (json_int_t)facts->memory.peak_bytes, "page_bytes", (json_int_t)facts->memory.page_bytes,
        "row_bytes", (json_int_t)facts->kv_bytes);
}

static json_t *queue_json(const worker_facts *facts)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:b}", "running", (json_int_t)facts->running, "waiting",
                     (json_int_t)facts->queued, "rows", (json_int_t)facts->most_rows,
                     "waiting_limit", (json_int_t)facts->most_queued, "draining",
                     (int)facts->draining);
}

// Sums since the server began; who looks twice has rates.
static json_t *totals_json(const worker_facts *facts)
{
    const schedule_statistics *sums = &facts->statistics;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "steps", (json_int_t)sums->steps,
                     "prompt_tokens", (json_int_t)sums->prompt_tokens, "shared_tokens",
                     (json_int_t)sums->shared_tokens, "stored_tokens",
                     (json_int_t)sums->stored_tokens, "generated_tokens",
                     (json_int_t)sums->generated_tokens, "seconds", sums->seconds);
}

static json_t *reasons_json(const uint64_t *why)
{
    json_t *reasons = json_object();
    for (int i = 0; reasons && i < KVERN_STORE_WHY_COUNT; i++) {
        if (why[i] > 0) {
            json_object_set_new(reasons, kvern_store_why_text((kvern_store_why)i),
                                json_integer((json_int_t)why[i]));
        }
    }
    return reasons;
}

static json_t *store_json(const worker_options *options, const worker_facts *facts)
{
    const kvern_store_stats *stats = &facts->store;
    if (!facts->has_store) {
        return json_null();
    }
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "budget_bytes",
        (json_int_t)stats->budget_bytes, "bytes", (json_int_t)stats->bytes, "entries",
        (json_int_t)stats->entries, "pinned", (json_int_t)stats->pinned, "lookups",
        (json_int_t)stats->lookups.count, "full_hits", (json_int_t)stats->lookups.full_hits,
        "partial_hits", (json_int_t)stats->lookups.partial_hits, "misses",
        (json_int_t)stats->lookups.misses, "tokens_asked", (json_int_t)stats->lookups.tokens_asked,
        "tokens_lent", (json_int_t)stats->lookups.tokens_lent, "evictions",
        (json_int_t)stats->evictions, "why", reasons_json(stats->lookups.why), "why_missed",
        reasons_json(stats->lookups.why_missed), "tree", snapshot_tree(options, stats));
}

static json_t *disk_json(const worker_facts *facts)
{
    const kvern_disk_store_stats *stats = &facts->disk;
    if (!facts->has_disk) {
        return json_null();
    }
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "budget_bytes",
                     (json_int_t)stats->budget_bytes, "bytes", (json_int_t)stats->bytes, "entries",
                     (json_int_t)stats->entries, "lookups", (json_int_t)stats->lookups.count,
                     "full_hits", (json_int_t)stats->lookups.full_hits, "partial_hits",
                     (json_int_t)stats->lookups.partial_hits, "misses",
                     (json_int_t)stats->lookups.misses, "tokens_lent",
                     (json_int_t)stats->lookups.tokens_lent, "why",
                     reasons_json(stats->lookups.why));
}

const char *const snapshot_remote_errors[KVERN_REMOTE_ERRORS] = {
    [KVERN_REMOTE_ERROR_CONNECT] = "connect", [KVERN_REMOTE_ERROR_CLOSED] = "closed",
    [KVERN_REMOTE_ERROR_SILENT] = "silent",   [KVERN_REMOTE_ERROR_REFUSED] = "refused",
    [KVERN_REMOTE_ERROR_ANSWER] = "answer",   [KVERN_REMOTE_ERROR_LATE] = "late"};

static json_t *errors_json(const kvern_remote_store_stats *stats)
{
    json_t *errors = json_object();
    for (int i = 0; errors && i < KVERN_REMOTE_ERRORS; i++) {
        json_object_set_new(errors, snapshot_remote_errors[i],
                            json_integer((json_int_t)stats->errors[i]));
    }
    return errors;
}

static json_t *remote_lookups_json(const kvern_remote_store_stats *stats)
{
    const kvern_store_lookups *lookups = &stats->lookups;
    return json_pack(
        "{s:b, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:o}",
        "reachable", (int)(stats->is_reachable != 0), "asked_again_seconds",
        stats->probe_in_seconds, "outages", (json_int_t)stats->outages, "lookups",
        (json_int_t)lookups->count, "full_hits", (json_int_t)lookups->full_hits, "partial_hits",
        (json_int_t)lookups->partial_hits, "misses", (json_int_t)lookups->misses, "tokens_lent",
        (json_int_t)lookups->tokens_lent, "fetching", (json_int_t)stats->fetching, "fetched_bytes",
        (json_int_t)stats->fetched_bytes, "gone", (json_int_t)stats->gone, "damaged",
        (json_int_t)stats->damaged, "fetch_seconds", stats->fetch_seconds, "hit_seconds",
        stats->hit_seconds, "errors", errors_json(stats), "why", reasons_json(lookups->why));
}

static json_t *remote_json(const worker_facts *facts)
{
    const kvern_remote_store_stats *stats = &facts->remote;
    if (!facts->has_remote) {
        return json_null();
    }
    json_t *all = remote_lookups_json(stats);
    json_t *written = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "queued", (json_int_t)stats->queued,
        "queued_bytes", (json_int_t)stats->queued_bytes, "publications",
        (json_int_t)stats->publications, "written_bytes", (json_int_t)stats->written_bytes,
        "blocks", (json_int_t)stats->blocks, "shared_blocks", (json_int_t)stats->shared_blocks,
        "dropped", (json_int_t)stats->dropped, "refused", (json_int_t)stats->refused, "failures",
        (json_int_t)stats->failures, "evictions", (json_int_t)stats->evictions);
    if (!all || !written || json_object_update_new(all, written) != 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

bool snapshot_write(const schedule *s, const worker_options *options, const job *jobs,
                    const worker_facts *facts, text_buffer *out)
{
    json_t *all = json_pack(
        "{s:s, s:b, s:s, s:I, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "model",
        options->model_name, "chats", (int)options->chats, "kv", options->kv, "context_length",
        (json_int_t)options->schedule.context_length, "page_positions", KVERN_PAGE_POSITIONS,
        "memory", memory_json(facts), "queue", queue_json(facts), "totals", totals_json(facts),
        "layers", snapshot_layers(options->composition), "rows",
        snapshot_rows(s, options->composition, jobs), "store", store_json(options, facts), "disk",
        disk_json(facts), "remote", remote_json(facts));
    return server_json_write(all, out);
}
