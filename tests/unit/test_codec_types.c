// SPDX-License-Identifier: MIT
// The codecs that there are (src/codec/codec.h): names, equality, and what each of them offers.

#include "src/codec/codec.h"
#include "tests/support/check.h"

#include <kvern/kvern.h>
#include <stdio.h>
#include <string.h>

#define MOST_CODECS 128

// Every codec there is, with every parameter.
static size_t all_codecs(kvern_codec codecs[MOST_CODECS])
{
    static const kvern_type types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};
    size_t count = 0;
    for (size_t t = 0; t < 3; t++) {
        codecs[count++] = kvern_codec_dense(types[t]);
        for (uint32_t bits = 2; bits <= 8; bits += bits == 6 ? 2 : 1) {
            for (uint32_t group = 32; group <= 128; group *= 2) {
                codecs[count] = kvern_codec_affine(bits, group);
                codecs[count++].scales = types[t];
                codecs[count] = codecs[count - 1];
                codecs[count++].kind = KVERN_CODEC_ROTATED;
            }
        }
    }
    for (uint32_t bits = 1; bits <= 6; bits++)
        codecs[count++] = kvern_codec_turbo(bits);
    return count;
}

static void test_names_and_equality_agree(void **state)
{
    (void)state;
    kvern_codec codecs[MOST_CODECS];
    char names[MOST_CODECS][KVERN_CODEC_NAME_BYTES];
    const size_t count = all_codecs(codecs);
    assert_int_equal(count, 3 * (1 + 2 * 6 * 3) + 6);
    for (size_t i = 0; i < count; i++) {
        memset(names[i], 'x', sizeof names[i]);
        assert_non_null(kvern_codec_type_of(&codecs[i]));
        kvern_codec_type_of(&codecs[i])->name(&codecs[i], names[i]);
        assert_non_null(memchr(names[i], '\0', sizeof names[i]));
        for (size_t j = 0; j <= i; j++) {
            assert_int_equal(kvern_codec_equal(&codecs[i], &codecs[j]), i == j);
            assert_int_equal(strcmp(names[i], names[j]) == 0, i == j);
        }
    }
    assert_string_equal(names[0], "f32");
    assert_string_equal(names[1], "affine2g32f32");
}

// Fields that a kind does not have make no difference; what does not exist is equal to nothing.
static void test_equality_at_the_edges(void **state)
{
    (void)state;
    const kvern_codec plain = kvern_codec_dense(KVERN_F16);
    kvern_codec dense = plain;
    dense.bits = 7;
    dense.group = 9;
    dense.scales = KVERN_F16;
    assert_true(kvern_codec_equal(&dense, &plain));
    const kvern_codec odd = kvern_codec_affine(7, 64), unknown = {.kind = (kvern_codec_kind)99},
                      negative = {.kind = (kvern_codec_kind)-1};
    assert_null(kvern_codec_type_of(&odd));
    assert_null(kvern_codec_type_of(&unknown));
    assert_null(kvern_codec_type_of(&negative));
    assert_false(kvern_codec_equal(&odd, &odd));
    assert_false(kvern_codec_equal(&unknown, &unknown));
    assert_false(kvern_codec_equal(&plain, &odd));
    assert_false(kvern_codec_equal(&odd, &plain));
}

// What the message about an unknown name lists are names.
static void test_listed_names_are_names(void **state)
{
    (void)state;
    kvern_codec codec;
    assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse("q7", 64, &codec));
    static const char *const names[] = {"f32", "bf16",  "f16", "q8",  "q6",  "q5",  "q4",  "q3",
                                        "q2",  "q4g32", "rq8", "rq6", "rq5", "rq4", "rq3", "rq2",
                                        "tq6", "tq5",   "tq4", "tq3", "tq2", "tq1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_non_null(strstr(kvern_error_detail(), names[i]));
        assert_ok(kvern_codec_parse(names[i], 64, &codec));
        assert_non_null(kvern_codec_type_of(&codec));
    }
    assert_status(KVERN_ERR_ARGUMENT, kvern_codec_parse("q4", 48, &codec));
    assert_string_equal(kvern_error_detail(), "there is no q4 with a group of 48");
}

static void test_what_codecs_offer(void **state)
{
    (void)state;
    kvern_codec codecs[MOST_CODECS];
    const size_t count = all_codecs(codecs);
    for (size_t i = 0; i < count; i++) {
        const kvern_codec_type *type = kvern_codec_type_of(&codecs[i]);
        const bool turbo = codecs[i].kind == KVERN_CODEC_TURBO;
        const bool rotated = turbo || codecs[i].kind == KVERN_CODEC_ROTATED;
        const bool affine = codecs[i].kind == KVERN_CODEC_AFFINE || (rotated && !turbo);
        const kvern_codec_kernels *kernels = type->kernels_of(&codecs[i], 0);
        assert_int_equal(type->place != NULL, !affine && !turbo);
        assert_int_equal(type->affine != NULL, affine || turbo);
        assert_int_equal(kernels->prepare != NULL, affine || turbo);
        assert_int_equal(kernels->finish != NULL, rotated);
        assert_int_equal(kernels->rotate != NULL, rotated);
        assert_non_null(kernels->decode_block);
        assert_int_equal(type->dim_unit(&codecs[i]), turbo ? 16 : affine ? codecs[i].group : 1);
        assert_int_equal(type->block_bytes(&codecs[i], 128) % 64, 0);
    }
}

// A head dim that the codec cannot store is refused by the names of both.
static void test_head_dims_are_refused_by_name(void **state)
{
    (void)state;
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    kvern_layer layer = kvern_layer_default(1, 64);
    layer.v_dim = 96;
    layer.v_codec = kvern_codec_affine(4, 64);
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_string_equal(kvern_error_detail(),
                        "layer 0: v_dim is 96, not a multiple of 64, as affine4g64bf16 needs it");
    kvern_context_release(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_and_equality_agree),
        cmocka_unit_test(test_equality_at_the_edges),
        cmocka_unit_test(test_listed_names_are_names),
        cmocka_unit_test(test_what_codecs_offer),
        cmocka_unit_test(test_head_dims_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
