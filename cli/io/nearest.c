// SPDX-License-Identifier: MIT
#include "cli/io/nearest.h"

#include <string.h>

#define MOST_BYTES 31

static size_t smaller_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t nearest_distance(const char *a, const char *b)
{
    // cost[i][j]: from the first i bytes of a to the first j of b.
    size_t cost[MOST_BYTES + 1][MOST_BYTES + 1];
    const size_t m = strlen(a), n = strlen(b);
    if (m > MOST_BYTES || n > MOST_BYTES) {
        return m > n ? m : n;
    }
    for (size_t i = 0; i <= m; i++) {
        for (size_t j = 0; j <= n; j++) {
            if (i == 0 || j == 0) {
                cost[i][j] = i + j;
                continue;
            }
            const size_t changed = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = smaller_of(changed, 1 + smaller_of(cost[i - 1][j], cost[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                cost[i][j] = smaller_of(cost[i][j], 1 + cost[i - 2][j - 2]);
            }
        }
    }
    return cost[m][n];
}

const char *nearest_name(const char *word, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t distance = nearest_distance(word, names[i]);
        const size_t allowed = (strlen(names[i]) + 2) / 3;
        if (distance <= allowed && (!best || distance < best_distance)) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
