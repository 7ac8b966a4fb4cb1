// SPDX-License-Identifier: MIT
#ifndef KVERN_BENCH_APPEND_H
#define KVERN_BENCH_APPEND_H

// Timing of what an append costs: keys and values in bf16, encoded into pages that have been
// written before, so that taking memory from the system has no part in it.

#include "bench/measure/attention.h"

// Measures one cell of phase "append", of keys and values: `runs` timed appends of its new tokens
// behind its positions, each of which is trimmed again, with the machine's limits in between.
// result->bytes is what is handed over; there are no multiply-adds.
measure_fault append_measure(const attention_case *cell, size_t runs, const roofline_buffer *buffer,
                             attention_result *result);

#endif
