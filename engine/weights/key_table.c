// SPDX-License-Identifier: MIT
#include "engine/weights/key_table.h"

#define SHOWN_KEY_BYTES 100

const char *key_verdict_name(key_verdict verdict)
{
    static const char *const NAMES[] = {"used", "neutral", "no effect", "refused", "unknown"};
    return NAMES[verdict];
}

// What of a key is behind a table's prefix. False when it begins otherwise.
static bool strip_prefix(const key_table *table, text_view architecture, text_view *key)
{
    size_t size = 0;
    if (table->prefix) {
        size = strlen(table->prefix);
        if (!text_view_starts(*key, table->prefix)) {
            return false;
        }
    } else {
        size = architecture.size + 1;
        if (key->size < size || memcmp(key->data, architecture.data, size - 1) != 0 ||
            key->data[size - 1] != '.') {
            return false;
        }
    }
    *key = (text_view){key->data + size, key->size - size};
    return true;
}

static bool row_names(const key_row *row, text_view name)
{
    size_t size = strlen(row->name);
    if (size > 0 && row->name[size - 1] == '*') {
        return name.size >= size - 1 && memcmp(name.data, row->name, size - 1) == 0;
    }
    return text_view_is(name, row->name);
}

static const key_row *find_in(const key_table *table, text_view name)
{
    for (size_t i = 0; i < table->count; i++) {
        if (row_names(&table->rows[i], name)) {
            return &table->rows[i];
        }
    }
    return NULL;
}

const key_row *key_find(const key_table *const *tables, size_t count, text_view architecture,
                        text_view key, bool *open)
{
    bool prefixed = false, known = false;
    *open = false;
    for (size_t i = 0; i < count; i++) {
        text_view name = key;
        bool rest = tables[i]->prefix && tables[i]->prefix[0] == '\0'; // keys of no other table
        if ((rest && prefixed) || !strip_prefix(tables[i], architecture, &name)) {
            continue;
        }
        const key_row *row = find_in(tables[i], name);
        if (row) {
            return row;
        }
        prefixed = prefixed || !rest;
        known = true;
        *open = *open || tables[i]->open;
    }
    *open = *open || !known;
    return NULL;
}

static bool is_neutral(const key_row *row, const config_value *value)
{
    float number = 0;
    switch (value->kind) {
    case CONFIG_FLAG:
        return row->neutral & (value->flag ? KEY_TRUE : KEY_ZERO);
    case CONFIG_TEXT:
        return row->text && text_view_is(value->text, row->text);
    case CONFIG_OTHER:
        return row->neutral & KEY_NULL;
    default:
        return config_f32(value, &number) && ((row->neutral & KEY_ZERO && number == 0) ||
                                              (row->neutral & KEY_ONE && number == 1) ||
                                              (row->neutral & KEY_NEGATIVE && number < 0));
    }
}

// A list is neutral when all its elements are.
static bool changes_nothing(const key_row *row, const config_value *value)
{
    if (value->kind != CONFIG_LIST) {
        return is_neutral(row, value);
    }
    for (size_t i = 0; i < value->count; i++) {
        config_value element = config_element(value, i);
        if (!is_neutral(row, &element)) {
            return false;
        }
    }
    return value->count > 0 || row->neutral & KEY_ZERO;
}

key_verdict key_judge(const key_table *const *tables, size_t count, text_view architecture,
                      text_view key, const config_value *value, const key_row **row)
{
    bool open;
    *row = key_find(tables, count, architecture, key, &open);
    if (!*row) {
        return open ? KEY_IS_WITHOUT_EFFECT : KEY_IS_UNKNOWN;
    }
    switch ((*row)->rule) {
    case KEY_USED:
        return KEY_IS_USED;
    case KEY_NEUTRAL:
        return changes_nothing(*row, value) ? KEY_IS_NEUTRAL : KEY_IS_REFUSED;
    case KEY_WITHOUT_EFFECT:
        return KEY_IS_WITHOUT_EFFECT;
    default:
        return KEY_IS_REFUSED;
    }
}

kvern_status key_check(const key_table *const *tables, size_t count, text_view architecture,
                       text_view key, const config_value *value, engine_error *error)
{
    const key_row *row;
    key_verdict verdict = key_judge(tables, count, architecture, key, value, &row);
    int shown = text_view_shown(key, SHOWN_KEY_BYTES);
    if (verdict == KEY_IS_UNKNOWN) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the model has the key %.*s, which this engine does not know", shown,
                           key.data);
    }
    if (verdict == KEY_IS_REFUSED) {
        return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                           "the model needs %.*s, which this engine does not support%s%s%s", shown,
                           key.data, row->why ? " (" : "", row->why ? row->why : "",
                           row->why ? ")" : "");
    }
    return KVERN_OK;
}
