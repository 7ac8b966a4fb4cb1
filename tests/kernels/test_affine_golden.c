// SPDX-License-Identifier: MIT
// Affine encoding against mx.quantize, bit for bit: packed words, scales and biases of the golden
// file, or of another one of its kind that is named as the argument (tests/golden/affine).

#include "src/codec/affine/affine.h"
#include "src/codec/codec.h"
#include "tests/support/check.h"
#include "tests/support/guarded.h"
#include "tests/support/kernel_variants.h"

#include <kvern/cache.h>
#include <stdio.h>
#include <stdlib.h>

static const uint32_t all_bits[] = {2, 3, 4, 5, 6, 8};
static const uint32_t all_groups[] = {32, 64, 128};
static const kvern_type all_types[] = {KVERN_F32, KVERN_BF16, KVERN_F16};

static const char *path = KVERN_TESTS_DIR "/golden/affine/affine.bin";

// ---- The file ----

typedef struct golden {
    unsigned char *bytes;
    size_t size, at;
} golden;

static golden golden_open(void)
{
    golden g = {0};
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be read", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    g.size = (size_t)ftell(file);
    rewind(file);
    g.bytes = malloc(g.size + 1);
    assert_non_null(g.bytes);
    assert_int_equal(fread(g.bytes, 1, g.size, file), g.size);
    fclose(file);
    return g;
}

static const void *golden_take(golden *g, size_t bytes)
{
    if (bytes > g->size - g->at)
        fail_msg("%s ends early", path);
    g->at += bytes;
    return g->bytes + g->at - bytes;
}

static uint32_t golden_number(golden *g)
{
    uint32_t number;
    memcpy(&number, golden_take(g, sizeof number), sizeof number);
    return number;
}

// ---- Comparing ----

// One codec's part of the file.
typedef struct part {
    kvern_codec codec;
    size_t rows, dim;
    const unsigned char *values, *words, *scales, *biases;
    size_t value_bytes, word_bytes, side_bytes; // per row
} part;

static part take_part(golden *g, size_t rows, size_t dim, const void *values, kvern_type type,
                      uint32_t bits, uint32_t group)
{
    part p = {.codec = kvern_codec_affine(bits, group), .rows = rows, .dim = dim, .values = values};
    p.codec.scales = type;
    p.value_bytes = dim * kvern_type_bytes(type);
    p.word_bytes = dim * bits / 8;
    p.side_bytes = dim / group * kvern_type_bytes(type);
    p.words = golden_take(g, rows * p.word_bytes);
    p.scales = golden_take(g, rows * p.side_bytes);
    p.biases = golden_take(g, rows * p.side_bytes);
    return p;
}

static void check_row(const part *p, kvern_stream stream, const void *block, size_t row,
                      size_t slot, const char *variant)
{
    uint32_t words[KVERN_MAX_HEAD_DIM / 4];
    float scales[KVERN_AFFINE_MOST_GROUPS], biases[KVERN_AFFINE_MOST_GROUPS];
    char what[128];
    const kvern_affine_arrays to = {.words = words, .scales = scales, .biases = biases};
    kvern_codec_type_of(&p->codec)->affine->export(&p->codec, stream, block, p->dim, slot, &to, 0);
    snprintf(what, sizeof what, "%s: %u bits, group %u, type %d, stream %d, row %zu", variant,
             (unsigned)p->codec.bits, (unsigned)p->codec.group, p->codec.scales, stream, row);
    check_same_bytes(p->scales + row * p->side_bytes, scales, p->side_bytes, what);
    check_same_bytes(p->biases + row * p->side_bytes, biases, p->side_bytes, what);
    check_same_bytes(p->words + row * p->word_bytes, words, p->word_bytes, what);
}

// All rows in slots of a block, which hold another row each first: what a slot holds does not
// depend on what was there, nor on its neighbours.
static void check_part(const part *p, kvern_stream stream, uint32_t features)
{
    kvern_encode_fn *encode =
        kvern_codec_type_of(&p->codec)->kernels_of(&p->codec, features)->encode;
    const size_t bytes = kvern_codec_type_of(&p->codec)->block_bytes(&p->codec, p->dim);
    guarded block = guarded_at_end(bytes);
    memset(block.data, 0xa5, bytes);
    for (size_t pass = 0; pass < 2; pass++) {
        for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot++)
            encode(&p->codec, stream, block.data, p->dim, slot, p->codec.scales,
                   p->values + (slot + 1 - pass) % p->rows * p->value_bytes);
    }
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot++)
        check_row(p, stream, block.data, slot % p->rows, slot, kvern_cpu_name(features));
    guarded_free(&block);
}

static void stored_codes_scales_and_biases_are_those_of_mlx(void **state)
{
    (void)state;
    golden g = golden_open();
    const kernel_variants variants = kernel_variants_here();
    const size_t rows = golden_number(&g), dim = golden_number(&g);
    assert_true(rows > 0 && dim == 128);
    for (size_t t = 0; t < 3; t++) {
        const void *values = golden_take(&g, rows * dim * kvern_type_bytes(all_types[t]));
        for (size_t i = 0; i < 6 * 3; i++) {
            const part p =
                take_part(&g, rows, dim, values, all_types[t], all_bits[i / 3], all_groups[i % 3]);
            for (size_t v = 0; v < variants.count; v++) {
                check_part(&p, KVERN_STREAM_K, variants.features[v]);
                check_part(&p, KVERN_STREAM_V, variants.features[v]);
            }
        }
    }
    assert_int_equal(g.at, g.size);
    free(g.bytes);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        path = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_codes_scales_and_biases_are_those_of_mlx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
