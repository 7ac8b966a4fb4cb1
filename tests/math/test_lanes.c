// SPDX-License-Identifier: MIT
// Every operation of the lanes headers against plain C, on each instruction set that the machine
// has.

#include "src/cpu/isa.h"
#include "src/math/sigmoid.h"
#include "src/math/sum.h"
#include "src/math/tanh.h"
#include "tests/math/inputs.h"
#include "tests/math/lanes_check.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const operation_names[] = {
#define OPERATION_NAME(name) #name,
    LANES_FLOAT_OPERATIONS(OPERATION_NAME) LANES_BIT_OPERATIONS(OPERATION_NAME)
#undef OPERATION_NAME
};

// The plain definition for lane l of an operation whose lanes do not meet.
// clang-format off
static void plain_lane(lanes_operation operation, const lanes_words *a, const lanes_words *b,
                       const lanes_words *c, lanes_words *out, int l)
{
    float x = a->f[l], y = b->f[l], z = c->f[l];
    uint32_t u = a->u[l], v = b->u[l];
    bool chosen = c->u[0] >> l & 1;
    uint32_t bit = 0;
    switch (operation) {
    case LANES_add: out->f[l] = x + y; return;
    case LANES_sub: out->f[l] = x - y; return;
    case LANES_mul: out->f[l] = x * y; return;
    case LANES_div: out->f[l] = x / y; return;
    case LANES_fma: out->f[l] = fmaf(x, y, z); return;
    case LANES_sqrt: out->f[l] = sqrtf(x); return;
    case LANES_rint: out->f[l] = rintf(x); return;
    case LANES_exp: case LANES_exp_nonpositive: out->f[l] = plain_exp(x); return;
    case LANES_exp_nonpositive_where: out->f[l] = chosen ? plain_exp(x) : 0; return;
    case LANES_scale: out->f[l] = ldexpf(x, (int)y); return;
    case LANES_tanh: out->f[l] = plain_tanh(x); return;
    case LANES_sigmoid: out->f[l] = plain_sigmoid(x); return;
    case LANES_silu: out->f[l] = plain_silu(x); return;
    case LANES_gelu: out->f[l] = plain_gelu(x); return;
    case LANES_load: out->u[l] = u; return;
    case LANES_set: case LANES_int_set: out->u[l] = a->u[0]; return;
    case LANES_zero: out->u[l] = 0; return;
    case LANES_max: out->u[l] = x > y ? u : v; return;
    case LANES_min: out->u[l] = x < y ? u : v; return;
    case LANES_neg: out->u[l] = u ^ 0x80000000u; return;
    case LANES_abs: out->u[l] = u & 0x7fffffffu; return;
    case LANES_copysign: out->u[l] = (u & 0x7fffffffu) | (v & 0x80000000u); return;
    case LANES_to_int: out->i[l] = (int32_t)x; return;
    case LANES_from_int: out->f[l] = (float)a->i[l]; return;
    case LANES_int_add: out->u[l] = u + v; return;
    case LANES_int_sub: out->u[l] = u - v; return;
    case LANES_int_and: out->u[l] = u & v; return;
    case LANES_int_or: out->u[l] = u | v; return;
    case LANES_int_xor: out->u[l] = u ^ v; return;
    case LANES_int_shl: out->u[l] = u << 23; return;
    case LANES_int_shr: out->u[l] = u >> 5 | (u >> 31 ? 0xf8000000u : 0); return;
    case LANES_int_shr_logical: out->u[l] = u >> 16; return;
    case LANES_select: out->u[l] = chosen ? u : v; return;
    case LANES_swap1: out->u[l] = a->u[l ^ 1]; return;
    case LANES_swap2: out->u[l] = a->u[l ^ 2]; return;
    case LANES_swap4: out->u[l] = a->u[l ^ 4]; return;
    case LANES_swap8: out->u[l] = a->u[l ^ 8]; return;
    case LANES_keep: out->u[l] = chosen ? u : 0; return;
    case LANES_clear: out->u[l] = chosen ? 0 : u; return;
    case LANES_load_bf16: out->f[l] = kvern_f32_from_bf16(a->h[l + 1]); return;
    case LANES_load_f16: out->f[l] = kvern_f32_from_f16(a->h[l + 1]); return;
    case LANES_pairs_even: out->u[l] = u << 16; return;
    case LANES_pairs_odd: out->u[l] = u & 0xffff0000u; return;
    case LANES_store_bf16: out->h[l + 1] = kvern_bf16_from_f32(x); return;
    case LANES_store_f16: out->h[l + 1] = kvern_f16_from_f32(x); return;
    case LANES_int_eq: bit = u == v; break;
    case LANES_lt: bit = x < y; break;
    case LANES_le: bit = x <= y; break;
    case LANES_gt: bit = x > y; break;
    case LANES_ge: bit = x >= y; break;
    case LANES_eq: bit = x == y; break;
    case LANES_not_lt: bit = !(x < y); break;
    case LANES_isnan: bit = x != x; break;
    case LANES_mask_from_bits: bit = a->u[0] >> l & 1; break;
    case LANES_mask_and: bit = x < y && chosen; break;
    case LANES_mask_or: bit = x < y || chosen; break;
    default: fail_msg("no plain definition of %s", operation_names[operation]);
    }
    out->u[0] = (l == 0 ? 0 : out->u[0]) | bit << l;
}
// clang-format on

static void plain(lanes_operation operation, const lanes_words *a, const lanes_words *b,
                  const lanes_words *c, lanes_words *out)
{
    lanes_words four[4] = {*a, *b, *c, *a};
    for (int l = 0; l < 16; l++) {
        four[3].u[l] ^= 0x80000000u;
    }
    *out = *c;
    if (operation == LANES_sum_each || operation == LANES_largest_each) {
        for (int i = 0; i < 4; i++) {
            out->f[i] =
                operation == LANES_sum_each ? kvern_sum16(four[i].f) : kvern_largest16(four[i].f);
        }
    } else {
        for (int l = 0; l < 16; l++) {
            plain_lane(operation, a, b, c, out, l);
        }
    }
}

// Inputs within what the operation is defined for.
static void make_inputs(lanes_operation operation, test_random *random, lanes_words *a,
                        lanes_words *b, lanes_words *c)
{
    for (int l = 0; l < 16; l++) {
        a->f[l] = random_input(random);
        b->f[l] = random_input(random);
        c->f[l] = random_input(random);
        if (test_random_below(random, 4) == 0) {
            b->f[l] = a->f[l];
        }
        if (operation == LANES_exp_nonpositive && a->f[l] > 0.0f) {
            a->f[l] = -a->f[l];
        }
        if (operation == LANES_exp_nonpositive_where && a->f[l] > 0.0f && (c->u[0] >> l & 1)) {
            a->f[l] = -a->f[l];
        }
        if (operation == LANES_scale) {
            const int power = (int)test_random_below(random, 254) - 126;
            a->f[l] = 0.5f + 1.5f * fabsf(test_random_signed(random));
            b->f[l] = (float)power;
            c->f[l] = (float)(power + 127) + 12582912.0f;
        }
        if (operation == LANES_to_int) {
            a->f[l] = (float)(int32_t)((uint32_t)test_random_next(random) & 0xffffff80u);
        }
    }
}

static void check_operation(lanes_operation operation, lanes_check *check)
{
    test_random random = test_random_seed((uint64_t)operation + 1);
    for (int round = 0; round < 20000; round++) {
        lanes_words a, b, c, wanted, got;
        make_inputs(operation, &random, &a, &b, &c);
        plain(operation, &a, &b, &c, &wanted);
        check(operation, &a, &b, &c, &got);
        for (int l = 0; l < 16; l++) {
            bool same = operation < LANES_FIRST_BIT_OPERATION
                            ? same_bits_or_nan(wanted.f[l], got.f[l])
                            : wanted.u[l] == got.u[l];
            if (!same) {
                fail_msg("%s lane %d: %08x %08x %08x gave %08x, not %08x",
                         operation_names[operation], l, a.u[l], b.u[l], c.u[l], got.u[l],
                         wanted.u[l]);
            }
        }
    }
}

// Both arrays end at a page that may not be touched.
static void check_parts(lanes_check_part *check)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + page, page, PROT_NONE), 0);
    assert_int_equal(mprotect(memory + 3 * page, page, PROT_NONE), 0);
    for (int count = 0; count <= 16; count++) {
        float *from = (float *)(void *)(memory + page) - count;
        float *to = (float *)(void *)(memory + 3 * page) - count;
        for (int l = 0; l < count; l++) {
            from[l] = (float)(l + 1);
            to[l] = -1.0f;
        }
        to[-1] = -2.0f;
        lanes_words loaded;
        check(from, to, count, &loaded);
        for (int l = 0; l < 16; l++) {
            assert_true(same_bits(loaded.f[l], l < count ? (float)(l + 1) : 0.0f));
        }
        for (int l = 0; l < count; l++) {
            assert_true(same_bits(to[l], (float)(l + 1)));
        }
        assert_true(same_bits(to[-1], -2.0f));
        // Memory after the part, where there is some, stays.
        float room[17];
        for (int l = 0; l < 17; l++) {
            room[l] = 9.0f;
        }
        check(from, room, count, &loaded);
        for (int l = count; l < 17; l++) {
            assert_true(same_bits(room[l], 9.0f));
        }
    }
    munmap(memory, 4 * page);
}

// The sets of this build.
typedef struct lanes_set_of {
    const char *name;
    uint32_t feature;
    lanes_check *check;
    lanes_check_part *part;
} lanes_set_of;

#define ENTER(set, SET) {#set, KVERN_CPU_##SET, lanes_check_##set, lanes_check_part_##set},
static const lanes_set_of sets[] = {KVERN_VECTOR_ISAS(ENTER){0}};

static void test_sets(void **state)
{
    (void)state;
    size_t checked = 0;
    for (const lanes_set_of *set = sets; set->name; set++) {
        if (!(kvern_cpu_features() & set->feature)) {
            print_message("%s: not on this machine, skipped\n", set->name);
            continue;
        }
        for (int operation = 0; operation < LANES_OPERATION_COUNT; operation++) {
            check_operation((lanes_operation)operation, set->check);
        }
        check_parts(set->part);
        print_message("%s: %d operations checked\n", set->name, LANES_OPERATION_COUNT);
        checked++;
    }
    if (checked == 0) {
        print_message("not run: nothing but plain C in this build, or on this machine\n");
        skip();
    }
}

// The tree itself, by its definition in sum.h's comment: values whose sum depends on the order.
static void test_tree(void **state)
{
    (void)state;
    float v[16];
    test_random random = test_random_seed(7);
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 16; i++) {
            v[i] = test_random_signed(&random) * (float)(1 << (i * 5 % 16));
        }
        float r8[8], r4[4], r2[2];
        for (int i = 0; i < 8; i++) {
            r8[i] = v[i] + v[i + 8];
        }
        for (int i = 0; i < 4; i++) {
            r4[i] = r8[i] + r8[i + 4];
        }
        for (int i = 0; i < 2; i++) {
            r2[i] = r4[i] + r4[i + 2];
        }
        assert_true(same_bits(kvern_sum16(v), r2[0] + r2[1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
