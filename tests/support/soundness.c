// SPDX-License-Identifier: MIT
#include "tests/support/soundness.h"

#include "src/state/walk.h"
#include "tests/support/check.h"

static void expect_nothing(const char *wrong)
{
    if (wrong)
        fail_msg("%s", wrong);
}

void expect_sound_cache(const kvern_cache *cache)
{
    expect_nothing(cache ? kvern_caches_walk(cache) : NULL);
}

void expect_sound_state(const kvern_state *state)
{
    expect_nothing(state ? kvern_state_walk(state) : NULL);
}
