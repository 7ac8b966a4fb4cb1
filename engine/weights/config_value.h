// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_CONFIG_VALUE_H
#define KVERN_ENGINE_CONFIG_VALUE_H

// One value of a model file's configuration, whatever the format: what GGUF calls metadata, and
// what other formats keep in a config.json.

#include "engine/base/text_view.h"

#include <kvern/status.h>

#include <stdint.h>

typedef enum config_kind {
    CONFIG_ABSENT = 0,  // the file has no such key
    CONFIG_INTEGER = 1, // `integer`
    CONFIG_REAL = 2,    // `real`; also a whole number beyond int64_t
    CONFIG_FLAG = 3,    // `flag`
    CONFIG_TEXT = 4,    // `text`
    CONFIG_LIST = 5,    // `count` elements: config_element
    CONFIG_OTHER = 6    // anything else: an object, a null
} config_kind;

// A value; texts and lists are borrowed from the file.
typedef struct config_value {
    config_kind kind;
    bool flag;
    int64_t integer;
    double real;
    text_view text;
    size_t count; // of a list
    const void *list;
    struct config_value (*at)(const void *list, size_t index);
} config_value;

// An element of a list, in constant time; absent when the value is no list or the index is not in
// it.
config_value config_element(const config_value *value, size_t index);

// A whole number that is not negative. False, with *number unchanged, for everything else.
KVERN_CHECK bool config_size(const config_value *value, uint64_t *number);

// A number, rounded once to float32. False, with *number unchanged, for what is no number and for a
// finite one above FLT_MAX.
KVERN_CHECK bool config_f32(const config_value *value, float *number);

#endif
