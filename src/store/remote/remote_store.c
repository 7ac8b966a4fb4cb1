// SPDX-License-Identifier: MIT
#include "src/store/remote/remote_store.h"

#include "src/base/fail.h"
#include "src/base/sized.h"
#include "src/base/thread_pool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define QUEUE_ENTRIES 16
#define QUEUE_BYTES (UINT64_C(1) << 30)
#define TTL_SECONDS 86400
#define MOST_TTL_SECONDS (UINT64_C(3650) * 86400)
#define CONNECT_MS 500
#define ANSWER_MS 1000
#define FETCH_MS 5000
#define PROBE_MS 500
#define MOST_PROBE 32 // times the first

static const kvern_sized OPTIONS_SIZES = KVERN_SIZED(
    kvern_remote_store_options, KVERN_SIZE_TO(kvern_remote_store_options, drop_at_close));
static const kvern_sized STATS_SIZES =
    KVERN_SIZED(kvern_remote_store_stats, KVERN_SIZE_TO(kvern_remote_store_stats, evictions));

void kvern_remote_store_options_init(kvern_remote_store_options *options, size_t size)
{
    const kvern_remote_store_options defaults = {.size = size};
    kvern_sized_init(&OPTIONS_SIZES, &defaults, options, size);
}

void kvern_remote_store_stats_init(kvern_remote_store_stats *stats, size_t size)
{
    const kvern_remote_store_stats none = {.size = size};
    kvern_sized_init(&STATS_SIZES, &none, stats, size);
}

int64_t kvern_remote_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static double seconds_since(int64_t then)
{
    return (double)(kvern_remote_now() - then) / 1000;
}

// ---- Outages ----

void kvern_remote_go_down(kvern_remote_store *store, const char *why)
{
    pthread_mutex_lock(&store->lock);
    const bool is_new = !store->is_down;
    kvern_remote_job *jobs = kvern_remote_take_jobs(store);
    if (is_new) {
        store->is_down = true;
        store->down_since = kvern_remote_now();
        store->stats.outages++;
        store->probe_wait = store->options.probe_ms;
        store->probe_at = kvern_remote_now() + store->probe_wait;
    }
    kvern_remote_finish_waiting(store, KVERN_STORE_OFFLINE);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    kvern_remote_free_jobs(store, jobs);
    if (is_new)
        kvern_remote_report(store, KVERN_REMOTE_DOWN, why);
}

void kvern_remote_come_up(kvern_remote_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->is_down = false;
    store->stats.down_seconds += seconds_since(store->down_since);
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    kvern_remote_report(store, KVERN_REMOTE_UP, "the shared store answers again");
}

bool kvern_remote_is_down(kvern_remote_store *store)
{
    pthread_mutex_lock(&store->lock);
    const bool is_down = store->is_down;
    pthread_mutex_unlock(&store->lock);
    return is_down;
}

void kvern_remote_wait_until(kvern_remote_store *store, int64_t until)
{
    if (until == INT64_MAX) {
        pthread_cond_wait(&store->changed, &store->lock);
        return;
    }
    const struct timespec at = {.tv_sec = until / 1000, .tv_nsec = until % 1000 * 1000000};
    pthread_cond_timedwait(&store->changed, &store->lock, &at);
}

kvern_status kvern_remote_remove_damaged(kvern_remote_store *store, kvern_wire *wire,
                                         const char *key, const char *why)
{
    char text[512];
    const char *remove[] = {"UNLINK", key};
    snprintf(text, sizeof text, "%s: %s", key, why);
    pthread_mutex_lock(&store->lock);
    store->stats.damaged++;
    pthread_mutex_unlock(&store->lock);
    kvern_remote_report(store, KVERN_REMOTE_DAMAGED, text);
    kvern_status status = kvern_wire_add(wire, 2, remove, NULL);
    return status ? status : kvern_wire_skip(wire, 1);
}

void kvern_remote_wire_init(const kvern_remote_store *store, kvern_wire *wire)
{
    *wire = (kvern_wire){
        .address = &store->address,
        .trust = store->trust,
        .connect_ms = store->options.connect_ms,
        .answer_ms = store->options.answer_ms,
        .deadline = INT64_MAX,
        .given_up = {&store->is_cut, NULL},
        .is_sent = true,
    };
}

void kvern_remote_count_wire(kvern_remote_store *store, kvern_wire *wire)
{
    kvern_remote_store_stats *stats = &store->stats;
    stats->connections += wire->counts.connections;
    stats->received_bytes += wire->counts.received;
    stats->sent_bytes += wire->counts.sent;
    for (size_t i = 0; i < KVERN_REMOTE_ERRORS; i++)
        stats->errors[i] += wire->counts.errors[i];
    wire->counts = (kvern_wire_counts){.connections = 0};
}

// ---- Opening ----

static void set_default(uint32_t *value, uint32_t to)
{
    if (*value == 0)
        *value = to;
}

static kvern_status read_options(const kvern_remote_store_options *given,
                                 kvern_remote_store_options *out)
{
    *out = kvern_remote_store_options_default();
    kvern_status status = given ? kvern_sized_read(&OPTIONS_SIZES, given, out) : KVERN_OK;
    if (status)
        return status;
    if (out->read_only > 1 || out->drop_at_close > 1)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "a flag of the options is neither 0 nor 1");
    if (!out->queue_entries)
        out->queue_entries = QUEUE_ENTRIES;
    if (!out->queue_bytes)
        out->queue_bytes = QUEUE_BYTES;
    if (!out->ttl_seconds)
        out->ttl_seconds = TTL_SECONDS;
    if (out->ttl_seconds > MOST_TTL_SECONDS)
        return kvern_fail(KVERN_ERR_ARGUMENT, "entries that stay for more than ten years");
    set_default(&out->connect_ms, CONNECT_MS);
    set_default(&out->answer_ms, ANSWER_MS);
    set_default(&out->fetch_ms, FETCH_MS);
    set_default(&out->probe_ms, PROBE_MS);
    // A server that is silent for all of a fetch does not answer.
    out->answer_ms = out->answer_ms < out->fetch_ms ? out->answer_ms : out->fetch_ms;
    return KVERN_OK;
}

static kvern_status take_text(const char *given, char to[KVERN_REMOTE_NAME_BYTES])
{
    if (!given)
        return KVERN_OK;
    if (strlen(given) >= KVERN_REMOTE_NAME_BYTES)
        return kvern_fail(KVERN_ERR_ARGUMENT, "a user or a password that is too long");
    snprintf(to, KVERN_REMOTE_NAME_BYTES, "%s", given);
    return KVERN_OK;
}

static kvern_status read_address(const char *url, kvern_remote_store_options *options,
                                 kvern_remote_address *out)
{
    kvern_status status = kvern_remote_address_read(url, out);
    if (!status)
        status = take_text(options->user, out->user);
    if (!status)
        status = take_text(options->password, out->password);
    options->user = options->password = NULL; // the caller's
    if (!status && out->user[0] && !out->password[0])
        status = kvern_fail(KVERN_ERR_ARGUMENT, "a user without a password");
    return status;
}

static void make_locks(kvern_remote_store *store)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&store->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static kvern_status make_trust(const kvern_remote_store_options *o,
                               const kvern_remote_address *address, kvern_tls_trust **out)
{
    *out = NULL;
    if (address->is_secure)
        return kvern_tls_trust_make(o->ca_file, o->certificate_file, o->key_file, out);
    if (o->ca_file || o->certificate_file || o->key_file)
        return kvern_fail(KVERN_ERR_ARGUMENT,
                          "files of TLS for a server without (the URL is not rediss://)");
    return KVERN_OK;
}

static kvern_status make_store(kvern_context *context, kvern_remote_store_options *options,
                               const kvern_remote_address *address, kvern_remote_store **out)
{
    kvern_tls_trust *trust;
    void *block;
    kvern_status status = make_trust(options, address, &trust);
    if (status)
        return status;
    options->ca_file = options->certificate_file = options->key_file = NULL; // the caller's
    if ((status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &block))) {
        kvern_tls_trust_free(trust);
        return status;
    }
    kvern_remote_store *store = *out = block;
    store->trust = trust;
    store->context = context;
    store->options = *options;
    store->address = *address;
    store->last_fetch = &store->fetches;
    store->stats.size = sizeof store->stats;
    kvern_context_retain(context);
    make_locks(store);
    return KVERN_OK;
}

static void free_store(kvern_remote_store *store)
{
    kvern_context *context = store->context;
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    memset(store->address.password, 0, sizeof store->address.password);
    kvern_tls_trust_free(store->trust);
    kvern_heap_give(&context->heap, store, sizeof *store, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

static void end_threads(kvern_remote_store *store, size_t readers)
{
    pthread_mutex_lock(&store->lock);
    store->ends = true;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    pthread_join(store->writer, NULL);
    for (size_t i = 0; i < readers; i++)
        pthread_join(store->readers[i].thread, NULL);
}

static int start_readers(kvern_remote_store *store)
{
    for (size_t i = 0; i < KVERN_REMOTE_READERS; i++) {
        kvern_remote_reader *reader = &store->readers[i];
        *reader = (kvern_remote_reader){.store = store, .number = i};
        const int failed = pthread_create(&reader->thread, NULL, kvern_remote_read, reader);
        if (!failed)
            continue;
        end_threads(store, i);
        return failed;
    }
    return 0;
}

// A connection that the server has closed is no reason for a signal: it is blocked, too.
static kvern_status start_threads(kvern_remote_store *store)
{
    sigset_t left, own;
    kvern_left_signals(&left);
    sigaddset(&left, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &left, &own);
    int failed = pthread_create(&store->writer, NULL, kvern_remote_writer, store);
    if (!failed)
        failed = start_readers(store);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    if (!failed)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_THREADS, "no thread for a store: %s", strerror(failed));
}

kvern_status kvern_remote_store_open(kvern_context *context, const char *url,
                                     const kvern_remote_store_options *given,
                                     kvern_remote_store **out)
{
    kvern_remote_store_options options;
    kvern_remote_address address;
    kvern_remote_store *store;
    if (out)
        *out = NULL;
    if (!context || !url || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context, url or out is NULL");
    kvern_status status = kvern_container_check_machine();
    if (!status)
        status = read_options(given, &options);
    if (!status)
        status = read_address(url, &options, &address);
    if (!status)
        status = make_store(context, &options, &address, &store);
    if (status)
        return status;
    if ((status = start_threads(store))) {
        free_store(store);
        return status;
    }
    *out = store;
    return KVERN_OK;
}

void kvern_remote_store_close(kvern_remote_store *store)
{
    if (!store)
        return;
    if (store->options.drop_at_close) {
        pthread_mutex_lock(&store->lock);
        kvern_remote_job *jobs = kvern_remote_take_jobs(store);
        atomic_store(&store->is_cut, true);
        pthread_mutex_unlock(&store->lock);
        kvern_remote_free_jobs(store, jobs);
    }
    end_threads(store, KVERN_REMOTE_READERS);
    free_store(store);
}

kvern_status kvern_remote_store_get_stats(kvern_remote_store *store,
                                          kvern_remote_store_stats *stats)
{
    if (!store || !stats)
        return kvern_fail(KVERN_ERR_ARGUMENT, "store or stats is NULL");
    kvern_status status = kvern_sized_check_output(&STATS_SIZES, stats);
    if (status)
        return status;
    pthread_mutex_lock(&store->lock);
    kvern_remote_store_stats known = store->stats;
    known.is_reachable = !store->is_down;
    if (store->is_down) {
        known.down_seconds += seconds_since(store->down_since);
        known.probe_in_seconds = -seconds_since(store->probe_at);
        known.probe_in_seconds = known.probe_in_seconds > 0 ? known.probe_in_seconds : 0;
    }
    known.queued = store->queue.count;
    known.queued_bytes = store->queue.bytes;
    pthread_mutex_unlock(&store->lock);
    kvern_sized_write(&STATS_SIZES, &known, stats);
    return KVERN_OK;
}
