// SPDX-License-Identifier: MIT
#include "bench/measure/roofline.h"

#include <math.h>

float roofline_read_plain(const float *data, size_t count)
{
    float sum[8] = {0};
    for (size_t i = 0; i + 8 <= count; i += 8) {
        for (int j = 0; j < 8; j++)
            sum[j] += data[i + j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

void roofline_update_plain(float factor, float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] *= factor;
}

// The plain kernels call fmaf one by one, so their peak is measured the same way.
size_t roofline_fma_plain(size_t rounds, float *result)
{
    float sum[4] = {1, 2, 3, 4};
    const volatile float factor = 0.5f;
    const float f = factor;
    for (size_t i = 0; i < rounds; i++) {
        for (int j = 0; j < 4; j++)
            sum[j] = fmaf(sum[j], f, f);
    }
    *result += sum[0] + sum[1] + sum[2] + sum[3];
    return 4;
}
