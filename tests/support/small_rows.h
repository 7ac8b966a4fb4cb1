// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_SMALL_ROWS_H
#define KVERN_TESTS_SUPPORT_SMALL_ROWS_H

// Layers of many kinds whose pages are small, for files of rows that are changed byte by byte.

#include <kvern/kvern.h>

#define SMALL_ROWS_LAYERS 5

// A window, a start, a recurrent layer, precise positions, a lane.
void small_rows_layers(kvern_layer layers[SMALL_ROWS_LAYERS]);

// One thread; and those layers in it. Whatever fails ends the program.
kvern_context *small_rows_context(void);
kvern_composition *small_rows_composition(kvern_context *context);

#endif
