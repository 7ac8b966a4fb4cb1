// SPDX-License-Identifier: MIT
#include "server/api/api.h"

#include "server/base/json_text.h"
#include "server/page/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef void route_answer(api *a, const http_request *request, http_task *task, http_reply *reply);

typedef struct route {
    const char *method, *path;
    route_answer *answer;
    bool open; // no key is asked for
} route;

static const route ROUTES[] = {
    {"POST", "/v1/chat/completions", api_complete_chat, false},
    {"POST", "/v1/completions", api_complete_text, false},
    {"GET", "/v1/models", api_list_models, false},
    {"POST", "/tokenize", api_tokenize, false},
    {"POST", "/detokenize", api_detokenize, false},
    {"GET", "/metrics", api_metrics, false},
    {"GET", "/cache", api_cache, false},
    {"GET", "/health", api_health, true},
    {"GET", "/", api_page, true},
};

// ---- Replies ----

static void no_memory(http_reply *reply)
{
    *reply = (http_reply){.status = 503, .type = API_JSON};
}

void api_reply_error(const api_error *error, http_reply *reply)
{
    *reply = (http_reply){.status = error->http, .type = API_JSON};
    if (error->retry_seconds) {
        reply->names[0] = "Retry-After";
        snprintf(reply->number, sizeof reply->number, "%u", error->retry_seconds);
        reply->values[0] = reply->number;
    }
    if (error->allow) {
        reply->names[0] = "Allow";
        reply->values[0] = error->allow;
    }
    if (error->http == 401) {
        reply->names[0] = "WWW-Authenticate";
        reply->values[0] = "Bearer";
    }
    if (!server_json_write(api_error_json(error), &reply->body)) {
        text_buffer_free(&reply->body);
        no_memory(reply);
    }
}

void api_reply_json(json_t *value, http_reply *reply)
{
    *reply = (http_reply){.status = 200, .type = API_JSON};
    if (!server_json_write(value, &reply->body)) {
        text_buffer_free(&reply->body);
        no_memory(reply);
    }
}

json_t *api_read_object(const http_request *request, api_error *error)
{
    json_error_t fault;
    json_t *object = json_loadb(request->body, request->body_bytes,
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    if (!object && json_error_code(&fault) == json_error_duplicate_key) {
        api_error_set(error, 400, API_INVALID, "invalid_json", NULL,
                      "the body has a key twice, line %d, column %d", fault.line, fault.column);
    } else if (!object) {
        api_error_set(error, 400, API_INVALID, "invalid_json", NULL,
                      "the body is no JSON: %s, line %d, column %d", fault.text, fault.line,
                      fault.column);
    } else if (!json_is_object(object)) {
        api_error_set(error, 400, API_INVALID, "invalid_json", NULL,
                      "the body is not a JSON object");
        json_decref(object);
        object = NULL;
    }
    return object;
}

// ---- Who may ask what ----

// "/v1/models/NAME" is the list's, too.
static bool is_path(const route *r, const char *path)
{
    const size_t bytes = strlen(r->path);
    return strcmp(r->path, path) == 0 || (r->answer == api_list_models &&
                                          strncmp(r->path, path, bytes) == 0 && path[bytes] == '/');
}

static bool is_method(const route *r, const char *method)
{
    return strcmp(r->method, method) == 0 ||
           (strcmp(r->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static const route *find_route(const http_request *request, api_error *error)
{
    const route *found = NULL;
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0] && !found; i++) {
        found = is_path(&ROUTES[i], request->path) ? &ROUTES[i] : NULL;
    }
    if (!found) {
        api_error_set(error, 404, API_INVALID, "not_found", NULL, "there is no %.200s",
                      request->path);
    } else if (!is_method(found, request->method)) {
        api_error_set(error, 405, API_INVALID, "method_not_allowed", NULL, "%s takes %s",
                      found->path, found->method);
        error->allow = strcmp(found->method, "GET") == 0 ? "GET, HEAD" : found->method;
        found = NULL;
    }
    return found;
}

// Browsers say which page a request comes from. One of another place has no business here: it could
// ask a server of the machine that it is shown on, whose answers it may not see.
static bool foreign_page(const http_request *request)
{
    const char *origin = request->header(request, "Origin");
    const char *host = request->header(request, "Host");
    const char *place = origin ? strstr(origin, "://") : NULL;
    return origin && (!place || !host || strcasecmp(place + 3, host) != 0);
}

// No coding is decoded: its bytes would be read as JSON.
static bool is_coded(const http_request *request)
{
    const char *coding = request->header(request, "Content-Encoding");
    return coding && coding[0] && strcasecmp(coding, "identity") != 0;
}

static bool admit(void *user, const http_request *request, http_reply *reply)
{
    const api *a = user;
    api_error error = {0};
    const route *r = find_route(request, &error);
    if (r && a->options.keys && !r->open &&
        !api_keys_permit(a->options.keys, request->header(request, "Authorization"))) {
        api_error_set(&error, 401, API_INVALID, "invalid_api_key", NULL,
                      "the request has no key, or one that is not known (Authorization: Bearer "
                      "KEY)");
    } else if (r && foreign_page(request)) {
        api_error_set(&error, 403, API_INVALID, "foreign_origin", NULL,
                      "requests of pages from other places are refused");
    } else if (r && is_coded(request)) {
        api_error_set(&error, 415, API_INVALID, "unsupported", NULL,
                      "bodies with a Content-Encoding are not supported");
    }
    if (error.http) {
        api_reply_error(&error, reply);
    }
    return error.http == 0;
}

static void answer_request(void *user, const http_request *request, http_task *task,
                           http_reply *reply)
{
    api_error error = {0};
    const route *r = find_route(request, &error);
    if (r) {
        r->answer(user, request, task, reply);
    } else {
        api_reply_error(&error, reply);
    }
}

static void refuse(void *user, const http_fault *fault, http_reply *reply)
{
    api_error error;
    (void)user;
    api_error_set(&error, fault->status, fault->status < 500 ? API_INVALID : API_SERVER,
                  fault->code, NULL, "%s", fault->message);
    api_reply_error(&error, reply);
}

static void note(void *user, unsigned status)
{
    api *a = user;
    if (status < sizeof a->statuses / sizeof a->statuses[0]) {
        atomic_fetch_add(&a->statuses[status], 1);
    }
}

http_handler api_handler(api *a)
{
    return (http_handler){
        .user = a, .admit = admit, .answer = answer_request, .refuse = refuse, .note = note};
}

// ---- Small answers ----

void api_health(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    worker_facts facts;
    (void)request, (void)task;
    worker_look(a->worker, &facts);
    api_reply_json(json_pack("{s:s}", "status", facts.draining ? "draining" : "ok"), reply);
    reply->status = facts.draining ? 503 : 200;
}

static json_t *model_json(const api *a)
{
    return json_pack("{s:o, s:s, s:I, s:s, s:I}", "id",
                     server_json_text(a->options.model_name, strlen(a->options.model_name)),
                     "object", "model", "created", (json_int_t)a->created, "owned_by", "kvern",
                     "max_model_len", (json_int_t)a->options.context_length);
}

void api_list_models(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    static const char LIST[] = "/v1/models";
    (void)task;
    if (strcmp(request->path, LIST) == 0) {
        api_reply_json(json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(a)), reply);
    } else if (strcmp(request->path + sizeof LIST, a->options.model_name) == 0) {
        api_reply_json(model_json(a), reply);
    } else {
        api_error error;
        api_error_set(&error, 404, API_INVALID, "model_not_found", "model",
                      "there is no model %.200s here", request->path + sizeof LIST);
        api_reply_error(&error, reply);
    }
}

void api_page(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    (void)a, (void)request, (void)task;
    *reply = (http_reply){.status = 200,
                          .type = "text/html; charset=utf-8",
                          .names = {"Content-Security-Policy", "X-Content-Type-Options",
                                    "Referrer-Policy", "Cache-Control"},
                          .values = {server_page_policy, "nosniff", "no-referrer", "no-cache"}};
    if (text_buffer_append(&reply->body, (const char *)server_page, server_page_bytes) !=
        KVERN_OK) {
        no_memory(reply);
    }
}

// ---- /cache: asked of the worker ----

static http_progress look_at_cache(void *state, const waker *who, http_reply *reply)
{
    worker_question *q = state;
    http_progress progress = HTTP_WHOLE;
    pthread_mutex_lock(&q->lock);
    if (!q->done) {
        waker_sleep(&q->waker, who);
        progress = HTTP_WAIT;
    } else if (q->failed) {
        no_memory(reply);
    } else {
        *reply = (http_reply){.status = 200, .type = API_JSON, .body = q->text};
        q->text = (text_buffer)TEXT_BUFFER_INIT;
    }
    pthread_mutex_unlock(&q->lock);
    return progress;
}

static void note_nothing(void *state)
{
    (void)state;
}

static void free_question(void *state)
{
    worker_question_release(state);
}

void api_cache(api *a, const http_request *request, http_task *task, http_reply *reply)
{
    worker_question *q = worker_ask(a->worker);
    (void)request;
    if (!q) {
        no_memory(reply);
        return;
    }
    *task = (http_task){.state = q,
                        .look = look_at_cache,
                        .gone = note_nothing,
                        .expired = note_nothing,
                        .free = free_question};
}
