// SPDX-License-Identifier: MIT
#include "cli/io/number.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

// Parses leading digits; *end is the rest. False without digits or when the number does not fit.
static bool parse_digits(const char *text, uint64_t *value, char **end)
{
    if (!isdigit((unsigned char)text[0])) {
        return false; // strtoull would skip white space and negate
    }
    errno = 0;
    unsigned long long parsed = strtoull(text, end, 10);
    if (errno) {
        return false;
    }
    *value = parsed;
    return true;
}

bool number_parse(const char *text, uint64_t highest, uint64_t *value)
{
    uint64_t parsed;
    char *end;
    if (!parse_digits(text, &parsed, &end) || *end || parsed > highest) {
        return false;
    }
    *value = parsed;
    return true;
}

bool number_parse_real(const char *text, double lowest, double highest, float *value)
{
    if (!text[0] || text[strspn(text, "+-.0123456789eE")]) {
        return false; // no white space, hexadecimal, infinity or NaN
    }
    char *end;
    double parsed = strtod(text, &end);
    if (*end || end == text || !isfinite(parsed) || parsed < lowest || parsed > highest) {
        return false;
    }
    *value = (float)parsed;
    return true;
}

// 0 for an unknown unit.
static uint64_t unit_bytes(const char *unit)
{
    static const char LETTERS[] = "KMGT";
    if (!unit[0] || strcasecmp(unit, "B") == 0) {
        return 1;
    }
    const char *letter = strchr(LETTERS, toupper((unsigned char)unit[0]));
    bool decimal = strcasecmp(unit + 1, "B") == 0;
    if (!letter || (unit[1] && !decimal && strcasecmp(unit + 1, "iB") != 0)) {
        return 0;
    }
    uint64_t bytes = 1;
    for (const char *power = LETTERS; power <= letter; power++) {
        bytes *= decimal ? 1000 : 1024;
    }
    return bytes;
}

bool number_parse_bytes(const char *text, uint64_t *value)
{
    uint64_t count;
    char *end;
    if (!parse_digits(text, &count, &end)) {
        return false;
    }
    uint64_t unit = unit_bytes(end);
    if (unit == 0 || count > UINT64_MAX / unit) {
        return false;
    }
    *value = count * unit;
    return true;
}

const char *number_format_bytes(uint64_t bytes, char text[NUMBER_BYTES_TEXT])
{
    static const char *const UNITS[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (bytes < 1000) {
        snprintf(text, NUMBER_BYTES_TEXT, "%" PRIu64 " bytes", bytes);
        return text;
    }
    double scaled = (double)bytes / 1000;
    size_t unit = 0;
    while (scaled >= 999.95 && unit + 1 < sizeof UNITS / sizeof UNITS[0]) {
        scaled /= 1000;
        unit++;
    }
    snprintf(text, NUMBER_BYTES_TEXT, "%.1f %s", scaled, UNITS[unit]);
    return text;
}

const char *number_format_real(double value, char text[NUMBER_REAL_TEXT])
{
    int digits = 1;
    do {
        snprintf(text, NUMBER_REAL_TEXT, "%.*e", digits - 1, value);
    } while (strtod(text, NULL) != value && ++digits <= 17);
    char *power = strchr(text, 'e');
    const int exponent = atoi(power + 1);
    if (exponent >= -4 && exponent < 17) {
        const int decimals = digits - 1 > exponent ? digits - 1 - exponent : 0;
        snprintf(text, NUMBER_REAL_TEXT, "%.*f", decimals, value);
    } else {
        snprintf(power, (size_t)(text + NUMBER_REAL_TEXT - power), "e%d", exponent);
    }
    return text;
}

double number_of_float(float value)
{
    char text[NUMBER_REAL_TEXT];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) {
            break;
        }
    }
    return strtod(text, NULL);
}

const char *number_noun(uint64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

double number_per_second(uint64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

double number_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
