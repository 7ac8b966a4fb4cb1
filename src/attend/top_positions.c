// SPDX-License-Identifier: MIT
#include "src/attend/top_positions.h"

#include "src/base/assert.h"

#include <string.h>

// Digits of a key, the highest one first.
#define DIGITS 3
#define DIGIT_VALUES 2048
#define STRETCH 1024 // keys that are looked through before those that matter are counted
static const int shifts[DIGITS] = {21, 10, 0};
static const uint32_t masks[DIGITS] = {2047, 2047, 1023};

// How often each value of a digit occurs among the keys that begin with `prefix` (all digits above
// this one, where they belong).
static void count_digits(const uint32_t *keys, int64_t count, int digit, uint32_t prefix,
                         int64_t *counts)
{
    const int shift = shifts[digit];
    const uint32_t mask = masks[digit], above = ~(((mask << shift) | ((1u << shift) - 1)));
    memset(counts, 0, DIGIT_VALUES * sizeof counts[0]);
    if (digit == 0) {
        for (int64_t p = 0; p < count; p++)
            counts[keys[p] >> shift]++;
        return;
    }
    for (int64_t p = 0; p < count; p += STRETCH) {
        // Each is written, and the next one over it unless it belongs: no jump depends on a key.
        uint32_t digits[STRETCH];
        const int64_t end = count - p < STRETCH ? count : p + STRETCH;
        size_t found = 0;
        for (int64_t i = p; i < end; i++) {
            digits[found] = keys[i] >> shift & mask;
            found += (keys[i] & above) == prefix;
        }
        for (size_t i = 0; i < found; i++)
            counts[digits[i]]++;
    }
}

// The value of the digit in the key of rank *rank (from 1 on, among the keys that were counted);
// *rank becomes its rank among those with that value.
static uint32_t digit_of_rank(const int64_t *counts, int64_t *rank)
{
    uint32_t value = DIGIT_VALUES - 1;
    for (; *rank > counts[value]; value--) {
        *rank -= counts[value];
        KVERN_ASSERT(value > 0);
    }
    return value;
}

void kvern_top_positions(const uint32_t *keys, int64_t count, int64_t wanted, int64_t *positions)
{
    int64_t counts[DIGIT_VALUES], ties = wanted, found = 0;
    uint32_t threshold = 0;
    KVERN_ASSERT(wanted >= 1 && wanted <= count);
    for (int digit = 0; digit < DIGITS; digit++) {
        count_digits(keys, count, digit, threshold, counts);
        threshold |= digit_of_rank(counts, &ties) << shifts[digit];
    }
    // All keys above the threshold, and the first `ties` of those that equal it.
    for (int64_t p = 0; found < wanted; p++) {
        KVERN_ASSERT(p < count);
        if (keys[p] < threshold || (keys[p] == threshold && ties-- <= 0))
            continue;
        positions[found++] = p;
    }
}
