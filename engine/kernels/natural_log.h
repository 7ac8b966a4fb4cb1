// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_NATURAL_LOG_H
#define KVERN_ENGINE_NATURAL_LOG_H

// The natural logarithm of x > 0, to some 1e-16 of it. It is made of operations that IEEE 754
// defines, so it has the same bits everywhere; the C library's log may differ between processors.
double natural_log(double x);

#endif
