// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_DRAFT_ROUND_H
#define KVERN_ENGINE_DRAFT_ROUND_H

// Tokens that are forwarded on trial, of which the first stay (kvern/round.h): how many a row can
// take.

#include <kvern/kvern.h>

// The most tokens that a row may be given on trial now: windows must be able to take all of them
// back, and a layer that changes its precision does so in a step that is not on trial, so that a
// lack of room for that is noticed before a token is shown. 0: none.
size_t round_room(const kvern_state *state, size_t row);

#endif
