// SPDX-License-Identifier: MIT
// The rotation and turbo codes against a second implementation in NumPy, bit for bit: the golden
// file, or another one of its kind that is named as the argument (tests/golden/rotated).

#include "src/codec/codec.h"
#include "src/codec/rotation/rotation.h"
#include "tests/support/check.h"
#include "tests/support/kernel_variants.h"

#include <kvern/cache.h>
#include <stdio.h>
#include <string.h>

#define MOST_DIM KVERN_MAX_HEAD_DIM

static const char *path = KVERN_TESTS_DIR "/golden/rotated/rotated.bin";

static void take(FILE *file, void *to, size_t bytes)
{
    if (fread(to, 1, bytes, file) != bytes)
        fail_msg("%s ends early", path);
}

// What every variant stores for a vector, as a key or as a value.
static void check_codes(uint32_t bits, size_t dim, const float *x, kvern_stream stream,
                        const uint32_t *words, uint16_t scale)
{
    static _Alignas(64) char block[MOST_DIM * 64];
    const kvern_codec codec = kvern_codec_turbo(bits);
    const kvern_codec_type *type = kvern_codec_type_of(&codec);
    const kernel_variants variants = kernel_variants_here();
    assert_true(type->block_bytes(&codec, dim) <= sizeof block);
    for (size_t v = 0; v < variants.count; v++) {
        uint32_t got[MOST_DIM * 6 / 32];
        uint16_t got_scale;
        const kvern_affine_arrays to = {.words = got, .scales = &got_scale};
        char what[96];
        const size_t slot = (dim + v) % KVERN_PAGE_POSITIONS;
        memset(block, 0xa5, sizeof block);
        type->kernels_of(&codec, variants.features[v])
            ->encode(&codec, stream, block, dim, slot, KVERN_F32, x);
        type->affine->export(&codec, stream, block, dim, slot, &to, 0);
        snprintf(what, sizeof what, "%s: %u bits, dim %zu, stream %d",
                 kvern_cpu_name(variants.features[v]), (unsigned)bits, dim, (int)stream);
        check_same_bytes(words, got, (dim * bits + 31) / 32 * sizeof *got, what);
        check_same_bytes(&scale, &got_scale, sizeof scale, what);
        memset(block, 0x5a, sizeof block);
        type->affine->import(&codec, stream, block, dim, slot, &to, 0);
        memset(got, 0, sizeof got);
        type->affine->export(&codec, stream, block, dim, slot, &to, 0);
        check_same_bytes(words, got, (dim * bits + 31) / 32 * sizeof *got, "imported again");
    }
}

static void rotations_and_codes_are_those_of_numpy(void **state)
{
    (void)state;
    uint32_t vectors, dim;
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    take(file, &vectors, sizeof vectors);
    assert_true(vectors > 0);
    for (uint32_t i = 0; i < vectors; i++) {
        float x[MOST_DIM], rotated[MOST_DIM], got[MOST_DIM];
        take(file, &dim, sizeof dim);
        assert_true(dim <= MOST_DIM);
        take(file, x, dim * sizeof *x);
        take(file, rotated, dim * sizeof *x);
        memcpy(got, x, sizeof got);
        kvern_rotate_plain(dim, got);
        check_same_floats(rotated, got, dim, "rotated");
        for (uint32_t bits = 1; bits <= 6; bits++) {
            uint32_t words[MOST_DIM * 6 / 32];
            uint16_t scales[2];
            take(file, words, (dim * bits + 31) / 32 * sizeof *words);
            take(file, scales, sizeof scales);
            check_codes(bits, dim, x, KVERN_STREAM_K, words, scales[0]);
            check_codes(bits, dim, x, KVERN_STREAM_V, words, scales[1]);
        }
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotations_and_codes_are_those_of_numpy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
