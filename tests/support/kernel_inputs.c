// SPDX-License-Identifier: MIT
#include "tests/support/kernel_inputs.h"

#include <math.h>

static float random_value(test_random *random, mixture kind)
{
    if (kind == ORDINARY)
        return test_random_signed(random) * 4;
    const uint64_t choice = test_random_below(random, 16);
    if (choice == 0)
        return test_random_next(random) & 1 ? 0.0f : -0.0f;
    if (choice < 3)
        return ldexpf(test_random_signed(random), -(int)test_random_below(random, 150));
    return ldexpf(test_random_signed(random), (int)test_random_below(random, 80) - 40);
}

void kernel_inputs_fill(test_random *random, mixture kind, float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] = random_value(random, kind);
}

float kernel_inputs_special(test_random *random)
{
    static const float special[] = {INFINITY, -INFINITY, NAN, 3.4e38f, -65519.9f, 1e-45f};
    return special[test_random_below(random, sizeof special / sizeof special[0])];
}

const void *kernel_inputs_next(const guarded *buffer, test_random *random)
{
    switch (test_random_below(random, 3)) {
    case 0:
        return NULL;
    case 1:
        return buffer->data + buffer->bytes;
    default:
        return buffer->data;
    }
}
