// SPDX-License-Identifier: MIT
// /metrics: Prometheus' text format. Names and meanings are vLLM's where there is the same.

#include "server/api/api.h"
#include "server/worker/snapshot.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

// A text that is being written; `failed`: there was no memory.
typedef struct page {
    text_buffer text;
    bool failed;
} page;

static void put(page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(page *p, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    const int bytes = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    p->failed = p->failed || bytes < 0 || (size_t)bytes >= sizeof line ||
                text_buffer_append(&p->text, line, (size_t)bytes) != KVERN_OK;
}

static void put_head(page *p, const char *name, const char *type, const char *help)
{
    put(p, "# HELP kvern_%s %s\n# TYPE kvern_%s %s\n", name, help, name, type);
}

static void put_gauge(page *p, const char *name, double value, const char *help)
{
    put_head(p, name, "gauge", help);
    put(p, "kvern_%s %.17g\n", name, value);
}

static void put_counter(page *p, const char *name, uint64_t value, const char *help)
{
    put_head(p, name, "counter", help);
    put(p, "kvern_%s %" PRIu64 "\n", name, value);
}

static void put_histogram(page *p, const char *name, const histogram *h, const char *help)
{
    uint64_t below = 0;
    put_head(p, name, "histogram", help);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += h->counts[i];
        put(p, "kvern_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, histogram_bounds[i], below);
    }
    put(p, "kvern_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, h->count);
    put(p, "kvern_%s_sum %.17g\nkvern_%s_count %" PRIu64 "\n", name, h->sum, name, h->count);
}

// ---- Groups ----

static void put_now(page *p, const worker_facts *f)
{
    const uint64_t budget = f->memory.budget_bytes;
    put_gauge(p, "num_requests_running", (double)f->running, "Answers that have a row.");
    put_gauge(p, "num_requests_waiting", (double)f->queued, "Answers that wait for a row.");
    if (budget) {
        put_gauge(p, "kv_cache_usage_perc", (double)f->memory.held_bytes / (double)budget,
                  "Part of the byte budget that is held; 1 is all.");
    }
    put_gauge(p, "kv_cache_bytes", (double)f->kv_bytes,
              "Bytes of the pages of all rows; a shared page counts for each.");
    put_gauge(p, "memory_held_bytes", (double)f->memory.held_bytes,
              "Bytes that the library has taken.");
    put_gauge(p, "memory_budget_bytes", (double)budget, "Its budget; 0 is none.");
}

static void put_tokens(page *p, const worker_facts *f)
{
    const schedule_statistics *sums = &f->statistics;
    put_counter(p, "prompt_tokens_total", sums->prompt_tokens + sums->shared_tokens,
                "Tokens of prompts, those that were there before included.");
    put_counter(p, "generation_tokens_total", sums->generated_tokens, "Tokens of answers.");
    put_counter(p, "prefix_cache_queries_total", sums->prompt_tokens + sums->shared_tokens,
                "Tokens of prompts that were looked for in rows and stores.");
    put_counter(p, "prefix_cache_hits_total", sums->shared_tokens, "Of these, that were there.");
    put_counter(p, "stored_tokens_total", sums->stored_tokens, "Of these, that a store had.");
    put_counter(p, "iterations_total", sums->steps, "Forward passes.");
    put_counter(p, "spec_decode_num_draft_tokens_total", sums->drafted,
                "Tokens that were guessed and checked.");
    put_counter(p, "spec_decode_num_accepted_tokens_total", sums->accepted,
                "Of these, that were right.");
}

static void put_ends(page *p, const measures *m)
{
    static const struct {
        const char *name;
        generate_reason first, second;
    } REASONS[] = {{"stop", GENERATE_END, GENERATE_STOP_STRING},
                   {"length", GENERATE_MAX_TOKENS, GENERATE_CONTEXT},
                   {"abort", GENERATE_CANCELLED, GENERATE_CANCELLED}};
    put_head(p, "request_success_total", "counter", "Answers that ended, by how.");
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++) {
        const uint64_t second =
            REASONS[i].first == REASONS[i].second ? 0 : m->ends[REASONS[i].second];
        put(p, "kvern_request_success_total{finished_reason=\"%s\"} %" PRIu64 "\n", REASONS[i].name,
            m->ends[REASONS[i].first] + second);
    }
    put_counter(p, "request_failures_total", m->failed, "Answers that failed.");
}

static void put_times(page *p, const measures *m)
{
    put_histogram(p, "time_to_first_token_seconds", &m->first_token,
                  "From the arrival of a request to its first token.");
    put_histogram(p, "inter_token_latency_seconds", &m->inter_token,
                  "From a token to the next one of the same answer.");
    put_histogram(p, "e2e_request_latency_seconds", &m->request,
                  "From the arrival of a request to the end of an answer.");
    put_histogram(p, "request_queue_time_seconds", &m->queue, "Without a forward pass.");
    put_histogram(p, "request_prefill_time_seconds", &m->prompt,
                  "From the first forward pass to the first token.");
    put_histogram(p, "request_decode_time_seconds", &m->decode, "From there to the end.");
}

static void put_store(page *p, const worker_facts *f)
{
    if (f->has_store) {
        put_gauge(p, "store_bytes", (double)f->store.bytes, "Bytes of prefixes in memory.");
        put_gauge(p, "store_entries", (double)f->store.entries, "Prefixes in memory.");
        put_counter(p, "store_evictions_total", f->store.evictions, "Prefixes that went for room.");
    }
    if (f->has_disk) {
        put_gauge(p, "disk_store_bytes", (double)f->disk.bytes, "Bytes of prefixes on disk.");
        put_gauge(p, "disk_store_entries", (double)f->disk.entries, "Prefixes on disk.");
    }
}

static void put_remote_lookups(page *p, const kvern_store_lookups *lookups)
{
    const struct {
        const char *name;
        uint64_t count;
    } results[] = {{"full", lookups->full_hits},
                   {"partial", lookups->partial_hits},
                   {"miss", lookups->misses}};
    put_head(p, "remote_store_lookups_total", "counter",
             "Prompts that were looked for, by result.");
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        put(p, "kvern_remote_store_lookups_total{result=\"%s\"} %" PRIu64 "\n", results[i].name,
            results[i].count);
    }
    put_counter(p, "remote_store_hit_tokens_total", lookups->tokens_lent,
                "Tokens that came of them.");
}

static void put_seconds(page *p, const char *name, double seconds, const char *help)
{
    put_head(p, name, "counter", help);
    put(p, "kvern_%s %.17g\n", name, seconds);
}

// The store that machines share.
static void put_remote(page *p, const worker_facts *f)
{
    const kvern_remote_store_stats *stats = &f->remote;
    if (!f->has_remote) {
        return;
    }
    put_gauge(p, "remote_store_up", (double)stats->is_reachable, "Its server answers.");
    put_counter(p, "remote_store_outages_total", stats->outages, "Times that it did not.");
    put_seconds(p, "remote_store_down_seconds_total", stats->down_seconds,
                "How long it was left alone.");
    put_remote_lookups(p, &stats->lookups);
    put_seconds(p, "remote_store_fetch_seconds_total", stats->fetch_seconds, "Of lookups.");
    put_counter(p, "remote_store_fetched_bytes_total", stats->fetched_bytes, "Bytes fetched.");
    put_counter(p, "remote_store_damaged_total", stats->damaged,
                "Values that were not what they should be.");
    put_gauge(p, "remote_store_queued", (double)stats->queued, "Prefixes that wait to be written.");
    put_counter(p, "remote_store_publications_total", stats->publications,
                "Prefixes that were written.");
    put_counter(p, "remote_store_written_bytes_total", stats->written_bytes, "Bytes of them.");
    put_counter(p, "remote_store_dropped_total", stats->dropped,
                "Prefixes that were not, since the queue was full or the server did not answer.");
    put_counter(p, "remote_store_failures_total", stats->failures + stats->refused,
                "Prefixes that were not for another reason, or lack of room.");
    put_counter(p, "remote_store_evictions_total", stats->evictions, "Values that went for room.");
    put_head(p, "remote_store_errors_total", "counter", "What went wrong on connections.");
    for (int i = 0; i < KVERN_REMOTE_ERRORS; i++) {
        put(p, "kvern_remote_store_errors_total{kind=\"%s\"} %" PRIu64 "\n",
            snapshot_remote_errors[i], stats->errors[i]);
    }
}

static void put_http(page *p, api *a)
{
    const http_server *http = atomic_load(&a->http);
    const connection_counts counts = http ? http_server_connections(http) : (connection_counts){0};
    put_head(p, "http_requests_total", "counter", "Requests that were answered, by status.");
    for (unsigned i = 0; i < sizeof a->statuses / sizeof a->statuses[0]; i++) {
        const uint64_t count = atomic_load(&a->statuses[i]);
        if (count > 0) {
            put(p, "kvern_http_requests_total{status=\"%u\"} %" PRIu64 "\n", i, count);
        }
    }
    put_gauge(p, "http_connections", (double)counts.open, "Connections.");
    put_counter(p, "http_connections_refused_total", counts.refused, "That were turned away.");
    put_counter(p, "http_connections_evicted_total", counts.evicted,
                "Idle ones that made room for others.");
    put_counter(p, "http_timeouts_total", counts.timed_out, "That took too long.");
    put_counter(p, "http_disconnects_total", atomic_load(&a->disconnects),
                "Clients that left before their answer.");
    put_counter(p, "http_slow_readers_total", atomic_load(&a->slow_readers),
                "Answers that ended since nobody read them.");
}

void api_metrics(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    page p = {.text = TEXT_BUFFER_INIT};
    worker_facts facts;
    (void)request, (void)task;
    worker_look(a->worker, &facts);
    put_now(&p, &facts);
    put_tokens(&p, &facts);
    put_ends(&p, &facts.measures);
    put_times(&p, &facts.measures);
    put_store(&p, &facts);
    put_remote(&p, &facts);
    put_http(&p, a);
    *reply = (http_reply){.status = p.failed ? 503 : 200, .type = METRICS_TYPE, .body = p.text};
}
