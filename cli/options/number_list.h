// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_NUMBER_LIST_H
#define KVERN_CLI_NUMBER_LIST_H

// Option arguments that are lists: "1,2,4".

#include "cli/options/options.h"

#define NUMBER_LIST_MOST 16

typedef struct number_list {
    size_t count;
    uint64_t value[NUMBER_LIST_MOST];
} number_list;

// For parsers: a list of 1 to NUMBER_LIST_MOST numbers in range; anything else is wrong usage.
void options_list(const struct argp_state *state, const char *name, const char *text,
                  uint64_t lowest, uint64_t highest, number_list *list);

#endif
