// SPDX-License-Identifier: MIT
#include "bench/measure/remote_raw.h"

#include "bench/measure/clock.h"

#ifdef KVERN_BENCH_HIREDIS

#include <hiredis/hiredis.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPIRES "600"

struct remote_raw {
    redisContext *redis;
    size_t count, bytes;
};

static redisContext *connect_to(const char *url)
{
    char host[256];
    int port = 6379;
    if (strncmp(url, "unix:", 5) == 0)
        return redisConnectUnix(url + 5);
    if (strchr(url, '@') || sscanf(url, "redis://%255[^:/]:%d", host, &port) < 1)
        return NULL;
    return redisConnect(host, port);
}

static kvern_status write_values(const remote_raw *raw)
{
    unsigned *value = malloc(raw->bytes);
    kvern_status status = value ? KVERN_OK : KVERN_ERR_MEMORY;
    for (size_t i = 0; i < raw->count && !status; i++) {
        for (size_t j = 0; j < raw->bytes / sizeof *value; j++)
            value[j] = (unsigned)(i * raw->bytes + j) * 2654435761u;
        redisReply *reply = redisCommand(raw->redis, "SET kvern1:bench:raw:%d %b EX " EXPIRES,
                                         (int)i, value, raw->bytes);
        status = reply && reply->type == REDIS_REPLY_STATUS ? KVERN_OK : KVERN_ERR_IO;
        freeReplyObject(reply);
    }
    free(value);
    return status;
}

kvern_status remote_raw_open(const char *url, size_t count, size_t bytes, remote_raw **out)
{
    *out = NULL;
    redisContext *redis = connect_to(url);
    if (!redis)
        return KVERN_OK;
    remote_raw *raw = calloc(1, sizeof *raw);
    if (!raw) {
        redisFree(redis);
        return KVERN_ERR_MEMORY;
    }
    *raw = (remote_raw){redis, count, bytes};
    const kvern_status status = redis->err ? KVERN_ERR_IO : write_values(raw);
    if (status)
        remote_raw_close(raw);
    else
        *out = raw;
    return status;
}

void remote_raw_close(remote_raw *raw)
{
    if (!raw)
        return;
    redisFree(raw->redis);
    free(raw);
}

static kvern_status take_value(const remote_raw *raw)
{
    void *given = NULL;
    if (redisGetReply(raw->redis, &given) != REDIS_OK)
        return KVERN_ERR_IO;
    const redisReply *reply = given;
    const bool good = reply->type == REDIS_REPLY_STRING && reply->len == raw->bytes;
    freeReplyObject(given);
    return good ? KVERN_OK : KVERN_ERR_IO;
}

kvern_status remote_raw_get(remote_raw *raw, double *seconds)
{
    kvern_status status = KVERN_OK;
    const double begun = clock_seconds();
    for (size_t i = 0; i < raw->count && !status; i++)
        status = redisAppendCommand(raw->redis, "GET kvern1:bench:raw:%d", (int)i) == REDIS_OK
                     ? KVERN_OK
                     : KVERN_ERR_MEMORY;
    for (size_t i = 0; i < raw->count && !status; i++)
        status = take_value(raw);
    *seconds = clock_seconds() - begun;
    return status;
}

#else

kvern_status remote_raw_open(const char *url, size_t count, size_t bytes, remote_raw **out)
{
    (void)url, (void)count, (void)bytes;
    *out = NULL;
    return KVERN_OK;
}

void remote_raw_close(remote_raw *raw)
{
    (void)raw;
}

kvern_status remote_raw_get(remote_raw *raw, double *seconds)
{
    (void)raw;
    *seconds = 0;
    return KVERN_ERR_UNSUPPORTED;
}

#endif
