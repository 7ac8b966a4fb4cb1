// SPDX-License-Identifier: MIT
#include "engine/kernels/natural_log.h"

#include <math.h>

#define LOG_2 0.6931471805599453

// 2 atanh((m - 1) / (m + 1)) of the mantissa, as a series.
double natural_log(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent);
    if (mantissa < 0.7071067811865476) {
        mantissa *= 2;
        exponent--;
    }
    const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
    double sum = 0;
    for (int n = 23; n >= 1; n -= 2) {
        sum = sum * square + 1.0 / n;
    }
    return 2 * t * sum + exponent * LOG_2;
}
