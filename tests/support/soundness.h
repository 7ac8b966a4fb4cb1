// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SOUNDNESS_H
#define KVERN_TESTS_SUPPORT_SOUNDNESS_H

#include <kvern/state.h>

// Every invariant of src/state/walk.h; NULL is sound. The cache stands alone.
void expect_sound_cache(const kvern_cache *cache);
void expect_sound_state(const kvern_state *state);

#endif
