// SPDX-License-Identifier: MIT
// A library without KVERN_REDIS: the store that machines share is refused by name. There never is
// one, so that the other calls have nothing to do.
#include "src/base/fail.h"

#include <kvern/remote_store.h>

static kvern_status refuse(void)
{
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "the library was built without KVERN_REDIS");
}

void kvern_remote_store_options_init(kvern_remote_store_options *options, size_t size)
{
    *options = (kvern_remote_store_options){.size = size};
}

void kvern_remote_store_stats_init(kvern_remote_store_stats *stats, size_t size)
{
    *stats = (kvern_remote_store_stats){.size = size};
}

void kvern_remote_found_init(kvern_remote_found *found, size_t size)
{
    *found = (kvern_remote_found){.size = size};
}

kvern_status kvern_remote_store_open(kvern_context *context, const char *url,
                                     const kvern_remote_store_options *options,
                                     kvern_remote_store **out)
{
    (void)context, (void)url, (void)options;
    if (out)
        *out = NULL;
    return refuse();
}

void kvern_remote_store_close(kvern_remote_store *store)
{
    (void)store;
}

kvern_status kvern_remote_store_publish(kvern_remote_store *store, const kvern_store_key *key,
                                        const int32_t *tokens, size_t count,
                                        const kvern_state *state, size_t row,
                                        kvern_remote_outcome *outcome)
{
    (void)store, (void)key, (void)tokens, (void)count, (void)state, (void)row, (void)outcome;
    return refuse();
}

uint64_t kvern_remote_store_give_up(kvern_remote_store *store)
{
    (void)store;
    return 0;
}

void kvern_remote_store_flush(kvern_remote_store *store)
{
    (void)store;
}

kvern_status kvern_remote_store_begin(kvern_remote_store *store, const kvern_store_key *key,
                                      kvern_composition *composition, const int32_t *tokens,
                                      size_t count, int64_t least, uint32_t milliseconds,
                                      kvern_remote_fetch **out)
{
    (void)store, (void)key, (void)composition, (void)tokens, (void)count, (void)least;
    (void)milliseconds;
    if (out)
        *out = NULL;
    return refuse();
}

bool kvern_remote_store_poll(kvern_remote_store *store, kvern_remote_fetch *fetch,
                             kvern_remote_found *found)
{
    (void)store, (void)fetch, (void)found;
    return true;
}

bool kvern_remote_store_wait(kvern_remote_store *store, kvern_remote_fetch *fetch,
                             uint32_t milliseconds, kvern_remote_found *found)
{
    (void)milliseconds;
    return kvern_remote_store_poll(store, fetch, found);
}

kvern_status kvern_remote_store_lend(kvern_remote_store *store, kvern_remote_fetch *fetch,
                                     kvern_state *state, size_t row)
{
    (void)store, (void)fetch, (void)state, (void)row;
    return refuse();
}

void kvern_remote_store_end(kvern_remote_store *store, kvern_remote_fetch *fetch)
{
    (void)store, (void)fetch;
}

kvern_status kvern_remote_store_get_stats(kvern_remote_store *store,
                                          kvern_remote_store_stats *stats)
{
    (void)store, (void)stats;
    return refuse();
}
