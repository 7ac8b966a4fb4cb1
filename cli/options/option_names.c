// SPDX-License-Identifier: MIT
#include "cli/options/option_names.h"

#include "cli/io/nearest.h"

#include <stdio.h>
#include <string.h>

// Of a command with its groups; what is beyond them would be refused as unknown.
#define MOST_NAMES 160

typedef struct known_option {
    const char *name; // NULL: a letter alone
    int key;
    bool has_value;
} known_option;

typedef struct known_options {
    known_option list[MOST_NAMES];
    size_t count;
} known_options;

static void add_options(known_options *known, const struct argp_option *options)
{
    const struct argp_option *meant = options;
    for (const struct argp_option *o = options; o && (o->name || o->key); o++) {
        if (!(o->flags & OPTION_ALIAS)) {
            meant = o;
        }
        if (known->count < MOST_NAMES) {
            known->list[known->count++] = (known_option){o->name, meant->key, meant->arg != NULL};
        }
    }
}

static void collect(known_options *known, const struct argp *command)
{
    known->count = 0;
    add_options(known, command->options);
    for (const struct argp_child *c = command->children; c && c->argp; c++) {
        add_options(known, c->argp->options);
    }
}

static const known_option *find_letter(const known_options *known, char letter)
{
    for (size_t i = 0; i < known->count; i++) {
        if (known->list[i].key == letter) {
            return &known->list[i];
        }
    }
    return NULL;
}

static const known_option *find_name(const known_options *known, const char *name, size_t bytes)
{
    for (size_t i = 0; i < known->count; i++) {
        const known_option *k = &known->list[i];
        if (k->name && strlen(k->name) == bytes && memcmp(k->name, name, bytes) == 0) {
            return k;
        }
    }
    return NULL;
}

// The option whose name begins like this; *count: how many different ones do.
static const known_option *find_beginning(const known_options *known, const char *name,
                                          size_t bytes, size_t *count)
{
    const known_option *first = NULL;
    *count = 0;
    for (size_t i = 0; i < known->count && bytes > 0; i++) {
        const known_option *k = &known->list[i];
        if (!k->name || strncmp(k->name, name, bytes) != 0 || (first && k->key == first->key)) {
            continue;
        }
        first = first ? first : k;
        ++*count;
    }
    return first;
}

// What a name may have been meant to be, with at most so many letters wrong; NULL: nothing comes
// near.
static const char *find_meant(const known_options *known, const char *name, size_t bytes,
                              size_t most)
{
    const char *names[MOST_NAMES];
    char typed[32];
    size_t count = 0, beginnings;
    const known_option *begun = find_beginning(known, name, bytes, &beginnings);
    if (beginnings == 1 && bytes > 1) {
        return begun->name;
    }
    if (bytes < 2 || bytes >= sizeof typed) {
        return NULL; // one letter is like anything
    }
    memcpy(typed, name, bytes);
    typed[bytes] = 0;
    for (size_t i = 0; i < known->count; i++) {
        if (known->list[i].name) {
            names[count++] = known->list[i].name;
        }
    }
    const char *meant = nearest_name(typed, names, count);
    return meant && nearest_distance(typed, meant) <= most ? meant : NULL;
}

static bool begins_number(const char *text)
{
    text += *text == '-' || *text == '+';
    text += *text == '.';
    return *text >= '0' && *text <= '9';
}

static void say_unknown(const known_options *known, const char *word, size_t dashes,
                        char text[OPTION_NAMES_TEXT])
{
    const char *name = word + dashes;
    const size_t bytes = strcspn(name, "=");
    const known_option *letter = dashes == 1 && name[1] ? find_letter(known, name[0]) : NULL;
    const char *meant = find_meant(known, name, bytes, letter ? 1 : bytes);
    const int shown = (int)(dashes + bytes > 60 ? 60 : dashes + bytes);
    if (meant) {
        snprintf(text, OPTION_NAMES_TEXT, "unknown option '%.*s', did you mean '--%s'?", shown,
                 word, meant);
    } else if (letter && letter->has_value) {
        const char *value = name + 1 + (name[1] == '=');
        snprintf(text, OPTION_NAMES_TEXT,
                 "unknown option '%.*s' (the value of -%c is written apart: -%c %.60s)", shown,
                 word, name[0], name[0], value);
    } else {
        snprintf(text, OPTION_NAMES_TEXT, "unknown option '%.*s'", shown, word);
    }
}

static void say_ambiguous(const known_options *known, const char *word, size_t bytes,
                          char text[OPTION_NAMES_TEXT])
{
    int length =
        snprintf(text, OPTION_NAMES_TEXT, "'--%.*s' is short for several:", (int)bytes, word + 2);
    for (size_t i = 0; i < known->count && length < OPTION_NAMES_TEXT; i++) {
        const char *name = known->list[i].name;
        if (name && strncmp(name, word + 2, bytes) == 0) {
            length += snprintf(text + length, (size_t)(OPTION_NAMES_TEXT - length), " --%s", name);
        }
    }
}

// *value: whether the next word is this one's.
static bool know_long(const known_options *known, const char *word, bool *value,
                      char text[OPTION_NAMES_TEXT])
{
    const size_t bytes = strcspn(word + 2, "=");
    size_t count = 1;
    const known_option *found = find_name(known, word + 2, bytes);
    if (!found) {
        found = find_beginning(known, word + 2, bytes, &count);
    }
    if (count > 1) {
        say_ambiguous(known, word, bytes, text);
        return false;
    }
    if (!found) {
        say_unknown(known, word, 2, text);
        return false;
    }
    *value = found->has_value && word[2 + bytes] != '=';
    return true;
}

static bool know_short(const known_options *known, const char *word, bool *value,
                       char text[OPTION_NAMES_TEXT])
{
    const size_t bytes = strcspn(word + 1, "=");
    const known_option *letter = find_letter(known, word[1]);
    const known_option *found = find_name(known, word + 1, bytes);
    if (found) {
        *value = found->has_value && word[1 + bytes] != '=';
        return true;
    }
    if (letter && !word[2]) {
        *value = letter->has_value;
        return true;
    }
    if (letter && letter->has_value && begins_number(word + 2)) {
        return true;
    }
    say_unknown(known, word, 1, text);
    return false;
}

bool option_names_known(const struct argp *command, int argc, char **argv,
                        char text[OPTION_NAMES_TEXT])
{
    known_options known;
    collect(&known, command);
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool value = false;
        if (word[0] != '-' || !word[1]) {
            continue;
        }
        if (strcmp(word, "--") == 0) {
            break;
        }
        if (!(word[1] == '-' ? know_long : know_short)(&known, word, &value, text)) {
            return false;
        }
        i += value;
    }
    return true;
}
