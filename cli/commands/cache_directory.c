// SPDX-License-Identifier: MIT
#include "cli/commands/cache_directory.h"

#include "cli/io/json.h"
#include "cli/io/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// One entry, copied while the store is looked at.
typedef struct listed {
    kvern_disk_entry_facts facts;
    char name[64];
} listed;

typedef struct listing {
    listed *entries;
    size_t count, capacity;
} listing;

static void report_file(void *user, kvern_disk_event event, const char *name, const char *why)
{
    (void)user;
    (void)report_error("%s %s: %s", name,
                       event == KVERN_DISK_MOVED_ASIDE ? "is moved aside" : "is passed over", why);
}

static kvern_disk_store *open_directory(kvern_context *context, const char *directory, bool reads)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    kvern_disk_store *store;
    options.read_only = reads;
    options.report = report_file;
    if (kvern_disk_store_open(context, directory, &options, &store))
        (void)report_error("%s", kvern_error_detail());
    return store;
}

// ---- Listing ----

static int take_entry(void *user, const kvern_disk_entry_facts *facts)
{
    listing *list = user;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        listed *entries = realloc(list->entries, capacity * sizeof *entries);
        if (!entries)
            return 1;
        list->entries = entries;
        list->capacity = capacity;
    }
    listed *entry = &list->entries[list->count++];
    entry->facts = *facts;
    snprintf(entry->name, sizeof entry->name, "%s", facts->name);
    return 0;
}

// The one that was used last first.
static int compare(const void *a, const void *b)
{
    const listed *one = a, *other = b;
    if (one->facts.used != other->facts.used)
        return one->facts.used < other->facts.used ? 1 : -1;
    return strcmp(one->name, other->name);
}

static int print_json(const listing *list)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const kvern_disk_entry_facts *facts = &list->entries[i].facts;
        json_array_append_new(
            entries,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", list->entries[i].name, "bytes",
                      (json_int_t)facts->bytes, "positions", (json_int_t)facts->positions, "floor",
                      (json_int_t)facts->floor, "checkpoints", (json_int_t)facts->checkpoints,
                      "used", (json_int_t)facts->used));
    }
    return json_print(json_pack("{s:o}", "entries", entries));
}

static int print_text(const listing *list)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        const kvern_disk_entry_facts *facts = &list->entries[i].facts;
        const time_t used = (time_t)facts->used;
        struct tm parts;
        char when[32] = "-";
        if (gmtime_r(&used, &parts))
            strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
        printf("%s  %s  %" PRIu64 " bytes, %" PRId64 " positions, served from %" PRId64
               " on, %zu checkpoints\n",
               list->entries[i].name, when, facts->bytes, facts->positions, facts->floor,
               facts->checkpoints);
        bytes += facts->bytes;
    }
    printf("%zu entries, %" PRIu64 " bytes\n", list->count, bytes);
    return CLI_SUCCESS;
}

int cache_list(kvern_context *context, const char *directory, bool json)
{
    listing list = {0};
    kvern_disk_store *store = open_directory(context, directory, true);
    if (!store)
        return CLI_FAILURE;
    int code;
    if (kvern_disk_store_each(store, take_entry, &list)) {
        code = report_error("no memory for a list of entries");
    } else {
        if (list.count)
            qsort(list.entries, list.count, sizeof list.entries[0], compare);
        code = json ? print_json(&list) : print_text(&list);
    }
    free(list.entries);
    kvern_disk_store_close(store);
    return code;
}

// ---- Pruning ----

static int print_pruned(kvern_disk_store *store, bool json)
{
    kvern_disk_store_stats stats = kvern_disk_store_stats_default();
    if (kvern_disk_store_get_stats(store, &stats))
        return report_error("%s", kvern_error_detail());
    if (json)
        return json_print(json_pack("{s:I, s:I, s:I}", "removed", (json_int_t)stats.evictions,
                                    "entries", (json_int_t)stats.entries, "bytes",
                                    (json_int_t)stats.bytes));
    printf("%" PRIu64 " entries removed; %" PRIu64 " are left, of %" PRIu64 " bytes\n",
           stats.evictions, stats.entries, stats.bytes);
    return CLI_SUCCESS;
}

int cache_prune(kvern_context *context, const char *directory, uint64_t bytes, bool json)
{
    kvern_disk_store *store = open_directory(context, directory, false);
    if (!store)
        return CLI_FAILURE;
    int code;
    if (kvern_disk_store_prune(store, bytes))
        code = report_error("%s", kvern_error_detail());
    else
        code = print_pruned(store, json);
    kvern_disk_store_close(store);
    return code;
}
