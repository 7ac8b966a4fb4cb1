// SPDX-License-Identifier: MIT
// Members of JSON objects. What nobody knows is refused, with the place where it is.
#include "engine/tokenizer/tokenizer_json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static json_place place_of(const json_place *outer, const json_t *value)
{
    const json_t *object = json_is_object(value) ? value : NULL;
    return (json_place){.file = outer->file, .object = object, .error = outer->error};
}

json_place json_place_in(const json_place *outer, const char *name)
{
    json_place place = place_of(outer, json_object_get(outer->object, name));
    snprintf(place.path, sizeof place.path, "%.60s%s%.30s", outer->path, outer->path[0] ? "." : "",
             name);
    return place;
}

json_place json_place_at(const json_place *outer, const char *name, size_t index)
{
    json_place place = place_of(outer, json_array_get(json_object_get(outer->object, name), index));
    snprintf(place.path, sizeof place.path, "%.50s%s%.20s[%zu]", outer->path,
             outer->path[0] ? "." : "", name, index);
    return place;
}

kvern_status json_place_fail(const json_place *place, kvern_status status, const char *name,
                             const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return engine_fail(place->error, status, "%s: %s%s%s%s%s", place->file, place->path,
                       place->path[0] && name ? "." : "", name ? name : "",
                       place->path[0] || name ? ": " : "", text);
}

// Whether a list of names separated by '|' has this one.
static bool lists(const char *known, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = known; at; at = strchr(at, '|'), at = at ? at + 1 : NULL)
        if (strncmp(at, name, size) == 0 && (at[size] == '|' || at[size] == '\0'))
            return size > 0;
    return false;
}

kvern_status json_place_check(const json_place *place, const char *known)
{
    const char *name;
    json_t *value;
    if (!place->object)
        return json_place_fail(place, KVERN_ERR_FORMAT, NULL, "it is missing, or no JSON object");
    json_object_foreach((json_t *)place->object, name, value)
    {
        if (!lists(known, name)) {
            char shown[48];
            snprintf(shown, sizeof shown, "%s", name);
            return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                                   "it has the key \"%s\", which this engine does not know", shown);
        }
    }
    return KVERN_OK;
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

kvern_status json_place_flag(const json_place *place, const char *name, bool *value)
{
    const json_t *found = json_object_get(place->object, name);
    if (is_absent(found))
        return KVERN_OK;
    if (!json_is_boolean(found))
        return json_place_fail(place, KVERN_ERR_FORMAT, name, "it is no boolean");
    *value = json_is_true(found);
    return KVERN_OK;
}

kvern_status json_place_text(const json_place *place, const char *name, text_view *value)
{
    const json_t *found = json_object_get(place->object, name);
    if (is_absent(found))
        return KVERN_OK;
    if (!json_is_string(found))
        return json_place_fail(place, KVERN_ERR_FORMAT, name, "it is no text");
    *value = (text_view){json_string_value(found), json_string_length(found)};
    return KVERN_OK;
}

kvern_status json_place_require(const json_place *place, const char *name, bool absent, bool value)
{
    bool found = absent;
    const kvern_status status = json_place_flag(place, name, &found);
    if (status == KVERN_OK && found != value)
        return json_place_fail(place, KVERN_ERR_UNSUPPORTED, name, "only %s is supported",
                               value ? "true" : "false");
    return status;
}

bool json_place_is(const json_place *place, const char *type)
{
    const char *found = json_string_value(json_object_get(place->object, "type"));
    return found && strcmp(found, type) == 0;
}

kvern_status json_place_unknown(const json_place *place, const char *what)
{
    const char *found = json_string_value(json_object_get(place->object, "type"));
    return json_place_fail(place, KVERN_ERR_UNSUPPORTED, NULL,
                           "%s of type \"%.40s\" is not supported", what, found ? found : "");
}
