// SPDX-License-Identifier: MIT
#ifndef KVERN_CLI_NUMBER_H
#define KVERN_CLI_NUMBER_H

// Numbers on the command line, and numbers shown to people. Parsing is strict: the whole text is
// one number in range, or the result is false and *value is unchanged.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decimal digits only; at most `highest`.
bool number_parse(const char *text, uint64_t highest, uint64_t *value);

// A finite decimal number from `lowest` to `highest`.
bool number_parse_real(const char *text, double lowest, double highest, float *value);

// Bytes: digits, then a unit in upper or lower case: none, K, M, G, T or KiB, MiB, GiB, TiB (powers
// of 1024), or kB, MB, GB, TB (powers of 1000).
bool number_parse_bytes(const char *text, uint64_t *value);

#define NUMBER_BYTES_TEXT 48

// "184.3 MB": three or four significant digits, powers of 1000. Returns `text`.
const char *number_format_bytes(uint64_t bytes, char text[NUMBER_BYTES_TEXT]);

#define NUMBER_REAL_TEXT 32

// The shortest decimal that reads back as this double: "0.1", "20", "1e30". Finite. Returns `text`.
const char *number_format_real(double value, char text[NUMBER_REAL_TEXT]);

// The double that people mean by this float: the shortest decimal that reads back as it, so that
// 0.7f is 0.7 and not 0.699999988.
double number_of_float(float value);

// What is counted: `one` for 1, else `many`.
const char *number_noun(uint64_t count, const char *one, const char *many);

// A rate, to be shown: 0 when no time has passed.
double number_per_second(uint64_t count, double seconds);

// Seconds on a clock that never goes back.
double number_seconds(void);

#endif
