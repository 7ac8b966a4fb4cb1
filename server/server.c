// SPDX-License-Identifier: MIT
#include "server/server.h"

#include "server/api/api.h"
#include "server/api/completion_request.h"

#include <stdlib.h>
#include <time.h>

#define MOST_HEAD 16384
// Bodies at once: so many of the largest size.
#define MOST_BODIES 16

struct server {
    api api;
    http_server *http;
};

static void fill_api(server *s, const server_options *options)
{
    s->api.created = (int64_t)time(NULL);
    s->api.options =
        (api_options){.model_name = options->model_name,
                      .tokens = model_tokenizer(options->worker.model),
                      .chat = options->chat,
                      .defaults = options->defaults,
                      .fixed_seed = options->fixed_seed,
                      .context_length = options->worker.schedule.context_length,
                      .most_text = completion_most_text(model_tokenizer(options->worker.model),
                                                        options->worker.schedule.context_length),
                      .most_choices = options->most_choices,
                      .most_waiting = options->most_waiting,
                      .keys = options->keys};
}

static kvern_status start_http(server *s, const server_options *options, engine_error *error)
{
    const http_options wanted = {.connections = {.host = options->host,
                                                 .port = options->port,
                                                 .most = options->connections,
                                                 .most_each = options->connections_each,
                                                 .read_seconds = options->read_seconds,
                                                 .request_seconds = options->request_seconds},
                                 .most_body = options->most_body,
                                 .most_bodies = MOST_BODIES * options->most_body,
                                 .most_head = MOST_HEAD,
                                 .local_host = options->is_private ? options->host : NULL,
                                 .handler = api_handler(&s->api)};
    const kvern_status status = http_server_start(&wanted, &s->http, error);
    atomic_store(&s->api.http, s->http);
    return status;
}

kvern_status server_start(const server_options *options, server **out, engine_error *error)
{
    server *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) {
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the server");
    }
    fill_api(s, options);
    // Else each request would be told so.
    const sampler_options *sampling = &options->defaults.sampling;
    kvern_status status = biases_check(sampling->biases, sampling->bias_count,
                                       model_get_facts(options->worker.model)->vocabulary, error);
    if (status == KVERN_OK) {
        status = worker_create(&options->worker, &s->api.worker, error);
    }
    if (status == KVERN_OK) {
        status = start_http(s, options, error);
    }
    if (status != KVERN_OK) {
        server_stop(s);
        return status;
    }
    *out = s;
    return KVERN_OK;
}

uint16_t server_port(const server *s)
{
    return http_server_port(s->http);
}

bool server_drain(server *s, double seconds)
{
    worker_drain(s->api.worker);
    return worker_finish(s->api.worker, seconds);
}

void server_stop(server *s)
{
    if (!s) {
        return;
    }
    if (s->api.worker) {
        (void)server_drain(s, 0);
    }
    http_server_stop(s->http);
    worker_destroy(s->api.worker);
    free(s);
}
