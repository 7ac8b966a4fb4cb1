// SPDX-License-Identifier: MIT
// The kernels of engine/ops.h, compiled for this file's instruction set.

#define OPS(name) name##_plain
#include "engine/ops_template.h"
