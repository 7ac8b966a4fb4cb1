// SPDX-License-Identifier: MIT
#include "cli/session/prefix_cache.h"

#include "cli/io/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A model in another file is another one if any byte of it differs. Without a directory nothing is
// kept longer than the process, which has one model.
static kvern_status digest_model(const cli_options *options, prefix_cache *cache,
                                 engine_error *error)
{
    strcpy(cache->model, "the model");
    return options->cache || options->store
               ? model_fingerprint_text(options->model, cache->model, error)
               : KVERN_OK;
}

// Another version may compute other bits, and so may one that is not released yet.
static void make_key(prefix_cache *cache)
{
    const char *version = kvern_version();
    cache->fields[0] = (kvern_store_field){"model", cache->model, strlen(cache->model)};
    cache->fields[1] = (kvern_store_field){"kvern", version, strlen(version)};
    cache->fields[2] =
        (kvern_store_field){"arithmetic", MODEL_ARITHMETIC, strlen(MODEL_ARITHMETIC)};
    cache->key = (kvern_store_key){cache->fields, 3};
}

static void report_file(void *user, kvern_disk_event event, const char *name, const char *why)
{
    const cli_options *options = user;
    static const char *const texts[] = {"moved aside", "passed over", "not written"};
    report_error("--cache %s: %s was %s: %s", options->cache, name, texts[event], why);
}

// Why this process does not write the directory.
static void report_reader(const cli_options *options)
{
    if (access(options->cache, W_OK) == 0) {
        report_error("--cache %s: another process writes there: what this one computes is not kept "
                     "until that ends",
                     options->cache);
    } else {
        report_error("--cache %s: this process may not write there (%s): what it computes is not "
                     "kept",
                     options->cache, strerror(errno));
    }
}

static kvern_status open_directory(const cli_options *options, kvern_context *context,
                                   prefix_cache *cache)
{
    kvern_disk_store_options wanted = kvern_disk_store_options_default();
    wanted.budget_bytes = options->cache_bytes ? options->cache_bytes : PREFIX_CACHE_DISK_BYTES;
    wanted.report = report_file;
    wanted.user = (void *)options;
    wanted.create = 1;
    kvern_status status = kvern_disk_store_open(context, options->cache, &wanted, &cache->disk);
    kvern_disk_store_stats stats = kvern_disk_store_stats_default();
    if (status == KVERN_OK && kvern_disk_store_get_stats(cache->disk, &stats) == KVERN_OK &&
        !stats.is_writer && !options->quiet) {
        report_reader(options);
    }
    return status;
}

static void report_server(void *user, kvern_remote_event event, const char *why)
{
    const cli_options *options = user;
    static const char *const texts[] = {
        "the server is left alone for now, answers go on without it and it is asked again",
        "prompts are shared again", "a damaged value is removed", "not written"};
    if (!options->quiet || event != KVERN_REMOTE_UP) {
        report_error("--store: %s: %s", texts[event], why);
    }
}

static kvern_status open_server(const cli_options *options, kvern_context *context,
                                prefix_cache *cache)
{
    kvern_remote_store_options wanted = kvern_remote_store_options_default();
    wanted.budget_bytes = options->store_bytes;
    wanted.ttl_seconds = 3600 * options->store_hours;
    wanted.fetch_ms = (uint32_t)(1000 * options->store_seconds);
    wanted.password = getenv("KVERN_STORE_PASSWORD");
    wanted.ca_file = options->store_ca;
    wanted.certificate_file = options->store_cert;
    wanted.key_file = options->store_key;
    wanted.report = report_server;
    wanted.report_user = (void *)options;
    return kvern_remote_store_open(context, options->store, &wanted, &cache->remote);
}

kvern_status prefix_cache_open(const cli_options *options, const loaded_model *loaded,
                               prefix_cache *out, engine_error *error)
{
    kvern_context *context = model_context(loaded->model);
    *out = (prefix_cache){0};
    if (options->no_cache) {
        return KVERN_OK;
    }
    kvern_status status = digest_model(options, out, error);
    if (status != KVERN_OK) {
        return status;
    }
    make_key(out);
    kvern_store_options wanted = kvern_store_options_default();
    wanted.budget_bytes = PREFIX_CACHE_BYTES;
    status = kvern_store_create(context, &wanted, &out->store);
    if (status == KVERN_OK && options->cache) {
        status = open_directory(options, context, out);
    }
    if (status == KVERN_OK && options->store) {
        status = open_server(options, context, out);
    }
    if (status != KVERN_OK) {
        status = engine_fail_kvern(error, status, "keeping prompts and answers");
        prefix_cache_close(out);
    }
    return status;
}

// A prompt that hardly anybody has: what comes of it is not used.
bool prefix_cache_reaches_server(prefix_cache *cache, kvern_composition *composition)
{
    static const int32_t tokens[2] = {0};
    kvern_remote_fetch *fetch;
    kvern_remote_store_stats stats = kvern_remote_store_stats_default();
    if (kvern_remote_store_begin(cache->remote, &cache->key, composition, tokens, 2, 1, 0,
                                 &fetch)) {
        return false;
    }
    while (!kvern_remote_store_wait(cache->remote, fetch, 1000, NULL)) {
    }
    kvern_remote_store_end(cache->remote, fetch);
    return kvern_remote_store_get_stats(cache->remote, &stats) == KVERN_OK && stats.is_reachable;
}

void prefix_cache_close(prefix_cache *cache)
{
    kvern_remote_store_close(cache->remote);
    kvern_disk_store_close(cache->disk);
    kvern_store_destroy(cache->store);
    *cache = (prefix_cache){0};
}
