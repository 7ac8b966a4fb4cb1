// SPDX-License-Identifier: MIT
#include "tests/support/check.h"

#include "tests/support/sanitizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void check_status(kvern_status wanted, kvern_status got, const char *call, const char *file,
                  int line)
{
    if (got == wanted)
        return;
    print_error("%s\n  gave %s, not %s\n  detail: %s\n", call, kvern_status_name(got),
                kvern_status_name(wanted), kvern_error_detail());
    _fail(file, line);
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

void check_same_floats(const float *wanted, const float *got, size_t count, const char *what)
{
    if (count == 0 || memcmp(wanted, got, count * sizeof *wanted) == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        if (!same_float(wanted[i], got[i]))
            fail_msg("%s: element %zu of %zu is %a, not %a", what, i, count, (double)got[i],
                     (double)wanted[i]);
    }
}

void check_same_bytes(const void *wanted, const void *got, size_t bytes, const char *what)
{
    const unsigned char *a = wanted, *b = got;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i])
            fail_msg("%s: byte %zu of %zu is %02x, not %02x", what, i, bytes, b[i], a[i]);
    }
}

static uint64_t choose_seed(void)
{
    const char *wish = getenv("KVERN_TEST_SEED");
    if (wish && wish[0])
        return strtoull(wish, NULL, 0);
    return check_is_long() ? (uint64_t)time(NULL) : 1;
}

uint64_t check_seed(void)
{
    static uint64_t seed;
    static bool chosen;
    if (!chosen) {
        seed = choose_seed();
        chosen = true;
        print_message("seed %" PRIu64 " (KVERN_TEST_SEED repeats it)\n", seed);
    }
    return seed;
}

int check_is_long(void)
{
    const char *wish = getenv("KVERN_TEST_LONG");
    return wish && wish[0] && wish[0] != '0';
}

int check_repetitions(int usually, int most)
{
    if (check_is_long())
        return most;
    return HAS_SANITIZER ? (usually + 2) / 3 : usually;
}
