// SPDX-License-Identifier: MIT
#ifndef KVERN_BASE_RELAX_H
#define KVERN_BASE_RELAX_H

// Tells the processor that the thread looks again and again for what another thread will do.
static inline void kvern_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
