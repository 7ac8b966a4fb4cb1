// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_ROUND_H
#define KVERN_ENGINE_DRAFT_ROUND_H

// Tokens that are forwarded on trial, of which the first stay: how many a row can take, and rounds
// of kvern/round.h on a state of one row.

#include "engine/base/error.h"

#include <kvern/kvern.h>

// The most tokens that a row may be given on trial now: windows must be able to take all of them
// back, and a layer that changes its precision does so in a step that is not on trial, so that a
// lack of room for that is noticed before a token is shown. 0: none.
size_t round_room(const kvern_state *state, size_t row);

// Opens a round of up to `count` tokens.
KVERN_CHECK kvern_status round_begin(kvern_state *state, size_t count, engine_error *error);

// Ends the open round: the first `keep` of its tokens stay.
KVERN_CHECK kvern_status round_end(kvern_state *state, size_t keep, engine_error *error);

#endif
