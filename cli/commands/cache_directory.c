// SPDX-License-Identifier: MIT
#include "cli/commands/cache_directory.h"

#include "cli/commands/rows_storage.h"
#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"
#include "cli/session/model_fingerprint.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// One entry, copied while the store is looked at.
typedef struct listed {
    kvern_disk_entry_facts facts;
    char name[64];
    char model[MODEL_FINGERPRINT_TEXT]; // what it says of its model; empty: nothing, or it has gone
    char storage[ROWS_STORAGE_TEXT];
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

// What the entry's own file says. One that has gone meanwhile says nothing.
static void look_inside(kvern_context *context, const char *directory, listed *entry)
{
    char path[PATH_MAX];
    kvern_file *file;
    entry->model[0] = entry->storage[0] = '\0';
    if (snprintf(path, sizeof path, "%s/%s", directory, entry->name) >= (int)sizeof path ||
        kvern_file_open(context, path, &file))
        return;
    const char *model = kvern_file_identity_of(file, "model");
    snprintf(entry->model, sizeof entry->model, "%s", model ? model : "");
    rows_storage(file, entry->storage);
    kvern_file_close(file);
}

// Looks at all, and leaves out those of other models; `model` NULL: none is left out.
static void look_at_all(kvern_context *context, const char *directory, const char *model,
                        listing *list)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        listed *entry = &list->entries[i];
        look_inside(context, directory, entry);
        if (!model || strcmp(model, entry->model) == 0)
            list->entries[kept++] = *entry;
    }
    list->count = kept;
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
        const char *model = list->entries[i].model, *storage = list->entries[i].storage;
        json_array_append_new(
            entries,
            json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:s*, s:s*}", "name", list->entries[i].name,
                      "bytes", (json_int_t)facts->bytes, "positions", (json_int_t)facts->positions,
                      "floor", (json_int_t)facts->floor, "checkpoints",
                      (json_int_t)facts->checkpoints, "used", (json_int_t)facts->used, "model",
                      model[0] ? model : NULL, "storage", storage[0] ? storage : NULL));
    }
    return json_print(json_pack("{s:o}", "entries", entries));
}

static void print_entry(const listed *entry)
{
    const kvern_disk_entry_facts *facts = &entry->facts;
    const time_t used = (time_t)facts->used;
    struct tm parts;
    char when[32] = "-";
    if (gmtime_r(&used, &parts))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    printf("%s  %s  %" PRIu64 " bytes, %" PRId64 " %s, served from %" PRId64 " on, %zu %s, model ",
           entry->name, when, facts->bytes, facts->positions,
           number_noun((uint64_t)facts->positions, "position", "positions"), facts->floor,
           facts->checkpoints, number_noun(facts->checkpoints, "checkpoint", "checkpoints"));
    for (const char *c = entry->model[0] ? entry->model : "unknown"; *c; c++)
        putchar((unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c); // a file's words
    printf(", %s\n", entry->storage[0] ? entry->storage : "unknown storage");
}

static int print_text(const listing *list)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < list->count; i++) {
        print_entry(&list->entries[i]);
        bytes += list->entries[i].facts.bytes;
    }
    printf("%zu %s, %" PRIu64 " bytes\n", list->count, number_noun(list->count, "entry", "entries"),
           bytes);
    return CLI_SUCCESS;
}

static int list_entries(kvern_context *context, const char *directory, const char *model, bool json)
{
    listing list = {0};
    kvern_disk_store *store = open_directory(context, directory, true);
    if (!store)
        return CLI_FAILURE;
    int code;
    if (kvern_disk_store_each(store, take_entry, &list)) {
        code = report_error("no memory for a list of entries");
    } else {
        look_at_all(context, directory, model, &list);
        if (list.count)
            qsort(list.entries, list.count, sizeof list.entries[0], compare);
        code = json ? print_json(&list) : print_text(&list);
    }
    free(list.entries);
    kvern_disk_store_close(store);
    return code;
}

int cache_list(kvern_context *context, const char *directory, const char *model, bool json)
{
    engine_error error;
    char fingerprint[MODEL_FINGERPRINT_TEXT];
    if (model && model_fingerprint_text(model, fingerprint, &error) != KVERN_OK)
        return report_engine_error(&error);
    return list_entries(context, directory, model ? fingerprint : NULL, json);
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
    printf("%" PRIu64 " %s removed; %" PRIu64 " %s left, of %" PRIu64 " bytes\n", stats.evictions,
           number_noun(stats.evictions, "entry", "entries"), stats.entries,
           number_noun(stats.entries, "is", "are"), stats.bytes);
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
