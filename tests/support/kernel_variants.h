// SPDX-License-Identifier: MIT
#ifndef KVERN_TESTS_SUPPORT_KERNEL_VARIANTS_H
#define KVERN_TESTS_SUPPORT_KERNEL_VARIANTS_H

// The sets of features of this machine that may bring kernels of their own.

#include <kvern/cpu.h>

#include <stddef.h>
#include <stdio.h>

#define MOST_KERNEL_VARIANTS 4

typedef struct kernel_variants {
    size_t count;
    uint32_t features[MOST_KERNEL_VARIANTS];
} kernel_variants;

// Plain C comes first.
static inline kernel_variants kernel_variants_here(void)
{
    static const uint32_t sets[] = {0, KVERN_CPU_AVX2, KVERN_CPU_AVX2 | KVERN_CPU_AVX512,
                                    KVERN_CPU_NEON};
    const uint32_t here = kvern_cpu_features();
    kernel_variants found = {0, {0}};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if ((here & sets[i]) == sets[i])
            found.features[found.count++] = sets[i];
    }
    return found;
}

// Says which kernels of a kind are tested here.
static inline void kernel_variants_print(const char *kind)
{
    const kernel_variants variants = kernel_variants_here();
    printf("%s kernels:", kind);
    for (size_t v = 0; v < variants.count; v++)
        printf(" %s", kvern_cpu_name(variants.features[v]));
    printf("\n");
}

#endif
