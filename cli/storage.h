// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_STORAGE_H
#define KVERN_CLI_STORAGE_H

// Names of what K and V can be stored as: bf16, f16, f32, and qB or qBgG for affine codes of B bits
// in groups of G values (64 when it is not given), such as q8 or q4g32.

#include <kvern/kvern.h>

#include <stdbool.h>

// What messages call the names that there are.
#define STORAGE_NAMES "bf16, f16, f32, q8, q6, q5, q4, q3, q2 (or q4g32: groups of 32, 64 or 128)"

// False: it is no such name. Whether a codec suits a head dim is for the library to say.
bool storage_parse(const char *name, kvern_codec *codec);

#endif
