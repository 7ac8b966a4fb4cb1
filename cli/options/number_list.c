// SPDX-License-Identifier: MIT
#include "cli/options/number_list.h"

#include <string.h>

// Longer than any number that fits 64 bits.
#define MOST_DIGITS 24

void options_list(const struct argp_state *state, const char *name, const char *text,
                  uint64_t lowest, uint64_t highest, number_list *list)
{
    list->count = 0;
    while (true) {
        const size_t length = strcspn(text, ",");
        char number[MOST_DIGITS + 1] = "";
        if (length > MOST_DIGITS || list->count == NUMBER_LIST_MOST)
            options_fail(state, "%s takes at most %d numbers, separated by commas", name,
                         NUMBER_LIST_MOST);
        memcpy(number, text, length);
        list->value[list->count++] = options_number(state, name, number, lowest, highest);
        if (!text[length])
            return;
        text += length + 1;
    }
}
