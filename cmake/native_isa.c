// SPDX-License-Identifier: MIT
// Prints the instruction sets of this machine as a CMake list: what KVERN_ISA=native builds.
#include "src/cpu/features.c"

#include <stdio.h>

int main(void)
{
    static const struct {
        uint32_t feature;
        const char *set;
    } sets[] = {
        {KVERN_CPU_AVX2, "avx2"},     {KVERN_CPU_AVX_VNNI, "avxvnni"},
        {KVERN_CPU_AVX512, "avx512"}, {KVERN_CPU_AVX512_VNNI, "avx512vnni"},
        {KVERN_CPU_NEON, "neon"},
    };
    const uint32_t features = detect();
    const char *before = "";
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (features & sets[i].feature) {
            printf("%s%s", before, sets[i].set);
            before = ";";
        }
    }
    return 0;
}
