// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_KEY_TABLE_H
#define KVERN_ENGINE_KEY_TABLE_H

// What is done with every key of a model file's configuration. A key that changes the numbers, the
// tokens or the prompt is honoured or refused by its name; none is passed over in silence.
//
// A module has a table of the keys of its prefix and names each of them once: keys that it reads
// (whose values it checks itself), keys that it accepts as long as their value changes nothing,
// keys that change nothing whatever they say, and keys that it refuses. What no row names is
// refused, unless the table says that such keys are remarks.
//
//     static const key_row ROWS[] = {
//         {"rope.freq_base", .rule = KEY_USED},
//         {"attention.causal", .rule = KEY_NEUTRAL, .neutral = KEY_TRUE},
//         {"name", .rule = KEY_WITHOUT_EFFECT, .why = "a description"},
//     };
//
// `kvern inspect` shows the verdict on each key of a file.

#include "engine/base/error.h"
#include "engine/weights/config_value.h"

typedef enum key_rule {
    KEY_USED,           // it is read, and its value checked, by the code that the row speaks of
    KEY_NEUTRAL,        // accepted with a value that changes nothing, refused with any other
    KEY_WITHOUT_EFFECT, // changes nothing of what is computed here
    KEY_REFUSED         // not supported, whatever its value
} key_rule;

// Values that change nothing: a set of these.
#define KEY_ZERO 1u // the number 0, false, an empty list
#define KEY_ONE 2u  // the number 1
#define KEY_TRUE 4u
#define KEY_NEGATIVE 8u // a number below 0, which some writers use for "not set"
#define KEY_NULL 16u    // a null

typedef struct key_row {
    const char *name; // behind the table's prefix; a '*' at its end stands for anything
    key_rule rule;
    unsigned neutral;      // of KEY_NEUTRAL: a set of KEY_ZERO ...; of a list, all its elements
    const char *text;      // of KEY_NEUTRAL: a text that changes nothing as well, or NULL
    const char *why;       // one short phrase for a reader of `kvern inspect`, or NULL
    const char *canonical; // what the engine calls it, where that is another name; or NULL
} key_row;

typedef struct key_table {
    const char *prefix; // "general."; NULL: "<architecture>."; "": what no table before it has
    const key_row *rows;
    size_t count;
    bool open; // keys that no row names are without effect; otherwise they are unknown
} key_table;

// What a row says of a key with its value.
typedef enum key_verdict {
    KEY_IS_USED,
    KEY_IS_NEUTRAL,
    KEY_IS_WITHOUT_EFFECT,
    KEY_IS_REFUSED,
    KEY_IS_UNKNOWN // refused as well
} key_verdict;

const char *key_verdict_name(key_verdict verdict); // "used", "neutral", "no effect", ...

// The row that names a key: of the first table with its prefix that has one. NULL when none does;
// *open then says whether a table of this prefix lets such keys pass.
const key_row *key_find(const key_table *const *tables, size_t count, text_view architecture,
                        text_view key, bool *open);

// The verdict on a key; *row is its row, or NULL. A key of a prefix that no table has is without
// effect: it is another program's remark.
key_verdict key_judge(const key_table *const *tables, size_t count, text_view architecture,
                      text_view key, const config_value *value, const key_row **row);

// Fails when the verdict is one of the last two: KVERN_ERR_UNSUPPORTED, with the key's name.
KVERN_CHECK kvern_status key_check(const key_table *const *tables, size_t count,
                                   text_view architecture, text_view key, const config_value *value,
                                   engine_error *error);

#endif
