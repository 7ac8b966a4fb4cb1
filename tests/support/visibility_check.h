// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_VISIBILITY_CHECK_H
#define KVERN_TESTS_SUPPORT_VISIBILITY_CHECK_H

// Which positions each query sees, found out from results alone: a query whose results are NaN sees
// the position that was stored as NaN. One position more or less than layer_sees says fails the
// test, in every query of every append.

#include <kvern/kvern.h>

// `tokens` tokens in one append (KVERN_PHASE_DECODE: in as many), and then a trim by `trim`.
typedef struct visibility_step {
    kvern_phase phase;
    int64_t tokens;
    int64_t trim;
} visibility_step;

// Serves the steps, from an empty cache whose memory is NaN, with the key, and again with the value
// of `position` as NaN.
void visibility_check_position(const kvern_layer *layer, const visibility_step *steps, size_t count,
                               int64_t position);

// The same for every position of a short row; in a long one for those at the borders of pages, of
// windows and of kept positions, each as a key or as a value. Also serves them with values
// whose sums say exactly which positions were taken, where the layer stores values in f32.
void visibility_check(const kvern_layer *layer, const visibility_step *steps, size_t count);

#endif
