// SPDX-License-Identifier: MIT
// The kernels of engine/kernels/ops.h, compiled for the architecture's baseline: the definition,
// and on aarch64, whose baseline has vectors, as fast as a file of their own.

#define OPS(name) name##_plain
#include "engine/kernels/ops_template.h"
