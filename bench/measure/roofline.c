// SPDX-License-Identifier: MIT
#include "bench/measure/roofline.h"

#include "bench/measure/clock.h"
#include "engine/base/instruction_sets.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Rounds of the fma kernel per thread: a few milliseconds.
#define FMA_ROUNDS ((size_t)1 << 20)

bool roofline_open(size_t bytes, roofline_buffer *buffer)
{
    void *data = NULL;
    buffer->bytes = bytes & ~(((size_t)2 << 20) - 1);
    if (posix_memalign(&data, (size_t)2 << 20, buffer->bytes) != 0)
        return false;
    (void)madvise(data, buffer->bytes, MADV_HUGEPAGE);
    memset(data, 1, buffer->bytes);
    buffer->data = data;
    return true;
}

void roofline_close(roofline_buffer *buffer)
{
    free(buffer->data);
    buffer->data = NULL;
}

typedef struct task_data {
    roofline_read_fn *read;
    roofline_update_fn *update;
    roofline_fma_fn *fma;
    const roofline_buffer *buffer;
    size_t threads;
    size_t fma_per_round;
    float sink[1024]; // one per thread, so that no result is unused
} task_data;

static size_t part_floats(const task_data *t)
{
    return t->buffer->bytes / sizeof(float) / t->threads & ~(size_t)255;
}

static void read_part(void *arg, size_t index)
{
    task_data *t = arg;
    const size_t count = part_floats(t);
    t->sink[index % 1024] += t->read(t->buffer->data + index * count, count);
}

static void update_part(void *arg, size_t index)
{
    const task_data *t = arg;
    const size_t count = part_floats(t);
    t->update(1, t->buffer->data + index * count, count);
}

static void run_fma(void *arg, size_t index)
{
    task_data *t = arg;
    const size_t per_round = t->fma(FMA_ROUNDS, &t->sink[index % 1024]);
    if (index == 0)
        t->fma_per_round = per_round;
}

static void choose_kernels(uint32_t features, task_data *t)
{
    t->read = roofline_read_plain;
    t->update = roofline_update_plain;
    t->fma = roofline_fma_plain;
#ifdef ENGINE_HAS_AVX2
    if (features & KVERN_CPU_AVX2) {
        t->read = roofline_read_avx2;
        t->update = roofline_update_avx2;
        t->fma = roofline_fma_avx2;
    }
#endif
#ifdef ENGINE_HAS_AVX512
    if (features & KVERN_CPU_AVX512) {
        t->read = roofline_read_avx512;
        t->update = roofline_update_avx512;
        t->fma = roofline_fma_avx512;
    }
#endif
    (void)features;
}

static task_data task_of(const roofline_buffer *buffer, const kvern_executor *executor,
                         uint32_t features)
{
    task_data t;
    memset(&t, 0, sizeof t);
    t.buffer = buffer;
    t.threads = executor->threads;
    choose_kernels(features, &t);
    return t;
}

roofline roofline_measure(const roofline_buffer *buffer, const kvern_executor *executor,
                          uint32_t features)
{
    task_data t = task_of(buffer, executor, features);
    roofline limits;
    double start = clock_seconds();
    executor->run(executor->user, t.threads, read_part, &t);
    limits.bytes_per_s = (double)buffer->bytes / (clock_seconds() - start);
    start = clock_seconds();
    executor->run(executor->user, t.threads, run_fma, &t);
    const double seconds = clock_seconds() - start;
    limits.fma_per_s = (double)(FMA_ROUNDS * t.threads * t.fma_per_round) / seconds;
    return limits;
}

double roofline_measure_updates(const roofline_buffer *buffer, const kvern_executor *executor,
                                uint32_t features)
{
    task_data t = task_of(buffer, executor, features);
    const double start = clock_seconds();
    executor->run(executor->user, t.threads, update_part, &t);
    return 2 * (double)buffer->bytes / (clock_seconds() - start);
}

double roofline_share(const roofline *limits, double bytes, double fma, double seconds)
{
    const double memory = bytes / limits->bytes_per_s, compute = fma / limits->fma_per_s;
    return (memory > compute ? memory : compute) / seconds;
}
