// SPDX-License-Identifier: MIT
// A caller with another rounding mode, with subnormals flushed and (on x86) with traps enabled: the
// results are the same bits, and the caller's environment is as it was.

#include "src/math/exp.h"
#include "src/math/fpenv.h"
#include "tests/math/inputs.h"

#include <kvern/cpu.h>
#include <kvern/math.h>

#include <fenv.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define COUNT 1000

typedef struct {
    float exp[COUNT], tanh[COUNT], sigmoid[COUNT], silu[COUNT], gelu[COUNT];
    float one[7][COUNT];
    uint16_t bf16[COUNT], f16[COUNT];
    float from_bf16[COUNT], from_f16[COUNT];
} results;

static void compute(uint32_t features, const float *x, results *r)
{
    kvern_exp_array(features, COUNT, x, r->exp);
    kvern_tanh_array(features, COUNT, x, r->tanh);
    kvern_sigmoid_array(features, COUNT, x, r->sigmoid);
    kvern_silu_array(features, COUNT, x, r->silu);
    kvern_gelu_array(features, COUNT, x, r->gelu);
    kvern_f32_to_bf16_array(features, COUNT, x, r->bf16);
    kvern_f32_to_f16_array(features, COUNT, x, r->f16);
    kvern_bf16_to_f32_array(features, COUNT, r->bf16, r->from_bf16);
    kvern_f16_to_f32_array(features, COUNT, r->f16, r->from_f16);
    for (int i = 0; i < COUNT; i++) {
        r->one[0][i] = kvern_exp(x[i]);
        r->one[1][i] = kvern_tanh(x[i]);
        r->one[2][i] = kvern_sigmoid(x[i]);
        r->one[3][i] = kvern_log1p(x[i]);
        r->one[4][i] = kvern_sin(x[i]);
        r->one[5][i] = kvern_cos(x[i]);
        r->one[6][i] = kvern_pow(x[i], x[(i + 1) % COUNT]);
    }
}

// What the control register is, and a way to set it.
#if defined(__x86_64__)
#define HOSTILE_COUNT 4
// Round up + flush both ways; round down; toward zero + flush; nearest with every exception
// trapped.
static const uint64_t hostile[HOSTILE_COUNT] = {0x1f80 | 0x4000 | 0x8040, 0x1f80 | 0x2000,
                                                0x1f80 | 0x6000 | 0x8000, 0x0000};

static uint64_t read_control(void)
{
    uint32_t value;
    __asm__ volatile("stmxcsr %0" : "=m"(value) : : "memory");
    return value & 0xffc0; // without the sticky flags
}

static void write_control(uint64_t value)
{
    uint32_t word = (uint32_t)value;
    __asm__ volatile("ldmxcsr %0" : : "m"(word) : "memory");
}
#elif defined(__aarch64__)
#define HOSTILE_COUNT 3
static const uint64_t hostile[HOSTILE_COUNT] = {1u << 22 | 1u << 24, 2u << 22, 3u << 22 | 1u << 25};

static uint64_t read_control(void)
{
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value) : : "memory");
    return value;
}

static void write_control(uint64_t value)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory");
}
#else
#define HOSTILE_COUNT 2
static const uint64_t hostile[HOSTILE_COUNT] = {FE_UPWARD, FE_DOWNWARD};

static uint64_t read_control(void)
{
    return (uint64_t)fegetround();
}

static void write_control(uint64_t value)
{
    fesetround((int)value);
}
#endif

static void make_inputs(float *x)
{
    test_random random = test_random_seed(99);
    for (int i = 0; i < COUNT; i++) {
        x[i] = i % 8 == 0 ? kvern_f32_from_bits((uint32_t)test_random_below(&random, 0x800000))
                          : random_input(&random);
        if (x[i] != x[i]) {
            x[i] = 0.25f; // the payload of a NaN would not be comparable by memcmp
        }
    }
}

static void check_features(uint32_t features)
{
    static float x[COUNT];
    static results wanted, got;
    make_inputs(x);
    memset(&wanted, 0, sizeof(wanted));
    compute(features, x, &wanted);
    uint64_t usual = read_control();
    for (int h = 0; h < HOSTILE_COUNT; h++) {
        memset(&got, 0xee, sizeof(got));
        write_control(hostile[h]);
        compute(features, x, &got);
        uint64_t after = read_control();
        write_control(usual);
        assert_int_equal(after, hostile[h]);
        assert_memory_equal(&got, &wanted, sizeof(got));
    }
}

static void test_results(void **state)
{
    (void)state;
    const uint32_t sets[] = {0, KVERN_CPU_AVX2, KVERN_CPU_AVX512, KVERN_CPU_NEON};
    for (size_t s = 0; s < 4; s++) {
        if ((kvern_cpu_features() & sets[s]) == sets[s]) {
            check_features(sets[s]);
        }
    }
}

// Without kvern_fp_enter the first environment does change results, so that test_results can fail.
static void test_hostile_is_hostile(void **state)
{
    (void)state;
    static float x[COUNT], inside[COUNT], outside[COUNT];
    make_inputs(x);
    uint64_t usual = read_control();
    for (int i = 0; i < COUNT; i++) {
        outside[i] = plain_exp(x[i]);
    }
    write_control(hostile[0]);
    for (int i = 0; i < COUNT; i++) {
        inside[i] = plain_exp(x[i]);
    }
    write_control(usual);
    assert_true(memcmp(inside, outside, sizeof(inside)) != 0);
}

static void test_nesting(void **state)
{
    (void)state;
    uint64_t usual = read_control();
    write_control(hostile[0]);
    kvern_fp_saved outer = kvern_fp_enter();
    uint64_t within = read_control();
    kvern_fp_saved inner = kvern_fp_enter();
    kvern_fp_leave(inner);
    uint64_t still = read_control();
    kvern_fp_leave(outer);
    uint64_t after = read_control();
    write_control(usual);
    assert_int_equal(within, still);
    assert_int_not_equal(within, hostile[0]);
    assert_int_equal(after, hostile[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_hostile_is_hostile),
        cmocka_unit_test(test_nesting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
