// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_LAYERS_H
#define KVERN_TESTS_SUPPORT_LAYERS_H

// Random plans of a layer.

#include "tests/support/random.h"

#include <kvern/composition.h>
#include <stdbool.h>

// Chooses codecs that fit the layer's head dims, in a third of all cases affine ones (dims are made
// multiples of their groups), and perhaps a sliding window, kept positions, chunks, a start, and
// positions that are kept precise.
void layer_choose_storage(test_random *random, kvern_layer *layer);

// Chooses which positions a layer keeps precise, as a rule some.
void layer_choose_precise(test_random *random, kvern_layer *layer);

// A layer of latents of any dims and codecs; `large`: up to the largest dims that there are.
kvern_layer layer_choose_latents(test_random *random, bool large);

#endif
