// SPDX-License-Identifier: MIT
#include "cli/conversation/conversation_file.h"

#include "cli/io/atomic_file.h"
#include "cli/io/json.h"
#include "cli/io/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- Writing ----

static json_t *messages_json(const chat_message *messages, size_t count)
{
    json_t *object = json_object(), *list = json_array();
    for (size_t i = 0; list && i < count; i++) {
        json_t *message = json_object();
        json_put_text(&message, "role", messages[i].role);
        json_put(&message, "content", json_text(messages[i].content, messages[i].content_bytes));
        if (!message || json_array_append_new(list, message) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    json_put(&object, "messages", list);
    return object;
}

static kvern_status write_text(const char *path, const char *text, engine_error *error)
{
    atomic_file *file;
    kvern_status status = atomic_file_create(path, &file, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = atomic_file_write(file, text, strlen(text), error);
    if (status == KVERN_OK) {
        status = atomic_file_write(file, "\n", 1, error);
    }
    if (status != KVERN_OK) {
        atomic_file_abandon(file);
        return status;
    }
    return atomic_file_finish(file, error);
}

// ---- Reading ----

// The role that message number `index` must have, if it is not a system's at the beginning.
static const char *role_of(const json_t *message, size_t index, size_t opening)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    if (role && index == 0 && strcmp(role, "system") == 0) {
        return "system";
    }
    const char *wanted = (index - opening) % 2 ? "assistant" : "user";
    return role && strcmp(role, wanted) == 0 ? wanted : NULL;
}

static bool has_system(const json_t *messages)
{
    const json_t *role = json_object_get(json_array_get(messages, 0), "role");
    return json_is_string(role) && strcmp(json_string_value(role), "system") == 0;
}

static kvern_status check_messages(const char *path, const json_t *root, engine_error *error)
{
    const json_t *messages = json_object_get(root, "messages");
    const size_t count = json_array_size(messages), opening = has_system(messages);
    if (!json_is_array(messages) || json_object_size(root) != 1) {
        return engine_fail(error, KVERN_ERR_FORMAT, "%s: it is no {\"messages\": [...]}", path);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *message = json_array_get(messages, i);
        if (json_object_size(message) != 2 || !role_of(message, i, opening) ||
            !json_is_string(json_object_get(message, "content"))) {
            return engine_fail(error, KVERN_ERR_FORMAT,
                               "%s: message %zu is not {\"role\", \"content\"} of a system at the "
                               "beginning, or of user and assistant in turns",
                               path, i + 1);
        }
    }
    return (count - opening) % 2 == 0
               ? KVERN_OK
               : engine_fail(error, KVERN_ERR_FORMAT, "%s: the last message has no answer", path);
}

static kvern_status add_all(const char *path, const json_t *messages,
                            bool (*add)(void *user, const char *role, const char *content,
                                        size_t bytes),
                            void *user, engine_error *error)
{
    const size_t opening = has_system(messages);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const json_t *content = json_object_get(message, "content");
        if (!add(user, role_of(message, i, opening), json_string_value(content),
                 json_string_length(content))) {
            return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %s", path);
        }
    }
    return KVERN_OK;
}

kvern_status conversation_load(const char *path,
                               bool (*add)(void *user, const char *role, const char *content,
                                           size_t bytes),
                               void *user, engine_error *error)
{
    text_buffer text = TEXT_BUFFER_INIT;
    json_error_t where;
    kvern_status status = text_read_file(path, &text, error);
    if (status != KVERN_OK) {
        return status;
    }
    if (text.size == 0) {
        text_buffer_free(&text);
        return engine_fail(error, KVERN_ERR_FORMAT, "%s is empty", path);
    }
    json_t *root =
        json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    text_buffer_free(&text);
    status = root ? check_messages(path, root, error)
                  : engine_fail(error, KVERN_ERR_FORMAT, "%s, line %d: %s", path, where.line,
                                where.text);
    if (status == KVERN_OK) {
        status = add_all(path, json_object_get(root, "messages"), add, user, error);
    }
    json_decref(root);
    return status;
}

// ---- Replacing ----

static bool add_nothing(void *user, const char *role, const char *content, size_t bytes)
{
    (void)user;
    (void)role;
    (void)content;
    (void)bytes;
    return true;
}

// A slip of the pen must not cost another file.
static kvern_status check_replaced(const char *path, engine_error *error)
{
    struct stat facts;
    if (stat(path, &facts) != 0 || facts.st_size == 0 ||
        conversation_load(path, add_nothing, NULL, NULL) == KVERN_OK) {
        return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_ARGUMENT, "%s is there, and is no conversation", path);
}

kvern_status conversation_save(const char *path, const chat_message *messages, size_t count,
                               engine_error *error)
{
    kvern_status status = check_replaced(path, error);
    if (status != KVERN_OK) {
        return status;
    }
    json_t *object = messages_json(messages, count);
    char *text = object ? json_compact(object) : NULL;
    status = text ? write_text(path, text, error)
                  : engine_fail(error, KVERN_ERR_MEMORY, "no memory for %s", path);
    free(text);
    json_decref(object);
    return status;
}
