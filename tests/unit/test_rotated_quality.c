// SPDX-License-Identifier: MIT
// What codecs of rotated vectors lose: squared error, bias and spread of scores, softmax and result
// of a read, against expectations that are computed here in float64, for ordinary vectors and for
// those with channels that stand out.

#include "src/codec/codec.h"
#include "tests/support/check.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"

#include <kvern/kvern.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DIM KVERN_MAX_HEAD_DIM

static const size_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512, 576};
#define DIMS (sizeof dims / sizeof dims[0])
// Means of so many vectors say no more with a sanitizer: it sees three dims of them.
#define NEXT (HAS_SANITIZER && !check_is_long() ? 4 : 1)

// ---- Vectors ----

static double uniform(test_random *random)
{
    return ((double)(test_random_next(random) >> 11) + 0.5) * 0x1p-53;
}

static double normal(test_random *random)
{
    return sqrt(-2 * log(uniform(random))) * cos(2 * 3.14159265358979323846 * uniform(random));
}

typedef enum shape { NORMAL, OUTLIERS, TAIL, ONE, CONSTANT, SHAPES } shape;

// Four channels that stand out, or the last eight, or one; or all alike.
static void fill(test_random *random, shape kind, size_t dim, float *x)
{
    const double all = normal(random);
    for (size_t d = 0; d < dim; d++) {
        double factor = 1;
        if (kind == OUTLIERS && (d == 3 || d == 17 || d == dim / 2 || d == dim - 2))
            factor = 20;
        if (kind == TAIL && d >= dim - 8)
            factor = 20;
        if (kind == ONE && d == dim / 3)
            factor = 200;
        x[d] = (float)(kind == CONSTANT ? all : factor * normal(random));
    }
}

static void stored(kvern_codec codec, kvern_stream stream, size_t dim, const float *x, float *out)
{
    static _Alignas(64) char block[64 * 1024 * 4];
    const kvern_codec_type *type = kvern_codec_type_of(&codec);
    assert_true(type->block_bytes(&codec, dim) <= sizeof block);
    type->kernels_of(&codec, kvern_cpu_features())
        ->encode(&codec, stream, block, dim, 5, KVERN_F32, x);
    type->decode(&codec, stream, block, dim, 5, out);
}

static double dot(size_t dim, const float *a, const float *b)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++)
        sum += (double)a[d] * (double)b[d];
    return sum;
}

static double squared_error(size_t dim, const float *a, const float *b)
{
    double sum = 0;
    for (size_t d = 0; d < dim; d++)
        sum += ((double)a[d] - (double)b[d]) * ((double)a[d] - (double)b[d]);
    return sum;
}

// The mean of squared error over squared length.
static double distortion(kvern_codec codec, shape kind, size_t dim, int count, uint64_t seed)
{
    test_random random = test_random_seed(seed);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        float x[MOST_DIM], y[MOST_DIM];
        fill(&random, kind, dim, x);
        stored(codec, KVERN_STREAM_V, dim, x, y);
        sum += squared_error(dim, x, y) / dot(dim, x, x);
    }
    return sum / count;
}

// ---- Squared error of turbo codes ----

static const double levels[6][32] = {
    {0.797884560803},
    {0.452780034636, 1.510417608500},
    {0.245094178944, 0.756005281206, 1.343909278500, 2.151945704540},
    {0.128395029851, 0.388048299490, 0.656759118532, 0.942340456487, 1.256231197350, 1.618046386020,
     2.069017226530, 2.732589571000},
    {0.065889659771, 0.198051829669, 0.331378305760, 0.466699522977, 0.604933624009, 0.747135703688,
     0.894565117388, 1.048783319923, 1.211804380609, 1.386340339587, 1.576228078612, 1.787233217703,
     2.028728399396, 2.317739404195, 2.691119577377, 3.260732493401},
    {0.033447265625, 0.100097656250, 0.166992187500, 0.234375000000, 0.302734375000, 0.371093750000,
     0.439453125000, 0.507812500000, 0.578125000000, 0.648437500000, 0.722656250000, 0.796875000000,
     0.871093750000, 0.945312500000, 1.023437500000, 1.109375000000, 1.187500000000, 1.273437500000,
     1.367187500000, 1.460937500000, 1.554687500000, 1.656250000000, 1.765625000000, 1.882812500000,
     2.015625000000, 2.140625000000, 2.296875000000, 2.468750000000, 2.671875000000, 2.921875000000,
     3.234375000000, 3.750000000000}};

// The same of directions that are drawn at random instead of rotated, in float64, with the scale of
// the least error.
static double expected(uint32_t bits, size_t dim, int count, uint64_t seed)
{
    test_random random = test_random_seed(seed);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double y[MOST_DIM], yy = 0, yc = 0, cc = 0;
        for (size_t d = 0; d < dim; d++) {
            y[d] = normal(&random);
            yy += y[d] * y[d];
        }
        const double unit = sqrt((double)dim / yy);
        for (size_t d = 0; d < dim; d++) {
            const double *level = levels[bits - 1];
            double best = level[0];
            for (size_t k = 1; k < (size_t)1 << (bits - 1); k++)
                if (fabs(level[k] - fabs(y[d]) * unit) < fabs(best - fabs(y[d]) * unit))
                    best = level[k];
            yc += fabs(y[d]) * best;
            cc += best * best;
        }
        sum += 1 - yc * yc / (yy * cc);
    }
    return sum / count;
}

// Means of 6000 vectors, whose errors vary by a fifth at 64 dims: 0.3% each, so that 1.5% is a
// bound of more than three deviations there, and the scale in f16 adds 2^-24 of the square. The
// codebook's own error is that of an infinite dim: directions of fewer have shorter tails.
static void squared_errors_are_those_of_the_codebook(void **state)
{
    (void)state;
    static const double exact[] = {0.3633802, 0.1174818, 0.0345478,
                                   0.0095010, 0.0025047, 0.0006442};
    const int count = 6000;
    for (uint32_t bits = 1; bits <= 6; bits++) {
        for (size_t i = 0; i < DIMS; i += NEXT) {
            const double wanted = expected(bits, dims[i], count, 100 + i);
            const double got = distortion(kvern_codec_turbo(bits), NORMAL, dims[i], count, 200 + i);
            if (!(fabs(got / wanted - 1) <= 0.015) ||
                !(fabs(got / exact[bits - 1] - 1) <= 0.01 + 5.0 / (double)dims[i]))
                fail_msg("%u bits, dim %zu: %g instead of %g", (unsigned)bits, dims[i], got,
                         wanted);
        }
    }
}

// Whatever the vectors: the rotation leaves a distribution that is not quite normal, with errors of
// at most 1.7 times those above (dims that are no power of two and few bits are the worst).
static void no_vector_degenerates(void **state)
{
    (void)state;
    static const double exact[] = {0.3633802, 0.1174818, 0.0345478,
                                   0.0095010, 0.0025047, 0.0006442};
    for (uint32_t bits = 1; bits <= 6; bits++)
        for (size_t i = 0; i < DIMS; i += NEXT)
            for (shape kind = OUTLIERS; kind < SHAPES; kind++) {
                const double got = distortion(kvern_codec_turbo(bits), kind, dims[i], 500, 300 + i);
                if (!(got <= 1.7 * exact[bits - 1]))
                    fail_msg("%u bits, dim %zu, shape %d: %g", (unsigned)bits, dims[i], (int)kind,
                             got);
            }
}

// ---- Scores ----

typedef struct spread {
    double bias, deviation; // of <q, k'> - <q, k>, for vectors of length 1
} spread;

static spread score_errors(kvern_codec codec, size_t dim, int count)
{
    test_random random = test_random_seed(77);
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) {
        float k[MOST_DIM], q[MOST_DIM], y[MOST_DIM];
        fill(&random, NORMAL, dim, k);
        fill(&random, NORMAL, dim, q);
        const double kk = sqrt(dot(dim, k, k)), along = dot(dim, q, k) / (kk * kk);
        for (size_t d = 0; d < dim; d++) // a cosine of 0.5
            q[d] -= (float)(along * (double)k[d]);
        const double across = sqrt(dot(dim, q, q));
        for (size_t d = 0; d < dim; d++)
            q[d] = (float)(sqrt(0.75) * (double)q[d] / across + 0.5 * (double)k[d] / kk);
        stored(codec, KVERN_STREAM_K, dim, k, y);
        const double error = (dot(dim, q, y) - dot(dim, q, k)) / kk;
        sum += error;
        squares += error * error;
    }
    return (spread){sum / count, sqrt(squares / count)};
}

static void scores_of_turbo_keys_have_no_bias(void **state)
{
    (void)state;
    static const double wanted[] = {0, 0.311, 0.164, 0.084, 0.0433, 0.0220}; // times sqrt(dim)
    const int count = 8000;
    for (uint32_t bits = 1; bits <= 6; bits++) {
        const spread s = score_errors(kvern_codec_turbo(bits), 128, count);
        assert_true(fabs(s.bias) <= 4 * s.deviation / sqrt((double)count));
        if (bits > 1)
            assert_true(fabs(s.deviation * sqrt(128) / wanted[bits - 1] - 1) <= 0.04);
    }
}

// ---- Channels that stand out ----

// The error of scores relative to their size, keys with four such channels, which queries have less
// of, as models have it.
static double outlier_error(kvern_codec codec)
{
    enum { DIM = 128 };
    test_random random = test_random_seed(5);
    double errors = 0, sizes = 0;
    for (int i = 0; i < 3000; i++) {
        float k[DIM], q[DIM], y[DIM];
        fill(&random, OUTLIERS, DIM, k);
        fill(&random, NORMAL, DIM, q);
        q[3] /= 5, q[17] /= 5, q[DIM / 2] /= 5, q[DIM - 2] /= 5;
        stored(codec, KVERN_STREAM_K, DIM, k, y);
        errors += pow(dot(DIM, q, y) - dot(DIM, q, k), 2);
        sizes += pow(dot(DIM, q, k), 2);
    }
    return sqrt(errors / sizes);
}

static void rotated_codes_bear_channels_that_stand_out(void **state)
{
    (void)state;
    const double four = outlier_error(kvern_codec_affine(4, 64));
    assert_true(outlier_error(kvern_codec_rotated(4, 64)) <= 0.6 * four);
    assert_true(outlier_error(kvern_codec_turbo(4)) <= 0.7 * four);
    const double three = outlier_error(kvern_codec_affine(3, 64));
    assert_true(outlier_error(kvern_codec_rotated(3, 64)) <= 0.75 * three);
    assert_true(outlier_error(kvern_codec_turbo(3)) <= 0.85 * three);
}

// ---- A read ----

typedef struct loss {
    double divergence; // of the softmax
    double error;      // of the result, relative
} loss;

static loss read_loss(kvern_codec codec)
{
    enum { DIM = 128, TOKENS = 400 };
    test_random random = test_random_seed(9);
    static float k[TOKENS][DIM], v[TOKENS][DIM], k2[TOKENS][DIM], v2[TOKENS][DIM];
    loss sum = {0, 0};
    for (int p = 0; p < TOKENS; p++) {
        fill(&random, OUTLIERS, DIM, k[p]);
        fill(&random, NORMAL, DIM, v[p]);
        stored(codec, KVERN_STREAM_K, DIM, k[p], k2[p]);
        stored(codec, KVERN_STREAM_V, DIM, v[p], v2[p]);
    }
    for (int i = 0; i < 40; i++) {
        float q[DIM];
        double w[2][TOKENS], l[2] = {0, 0}, errors = 0, sizes = 0;
        fill(&random, NORMAL, DIM, q);
        for (int p = 0; p < TOKENS; p++) {
            w[0][p] = exp(dot(DIM, q, k[p]) / 16);
            w[1][p] = exp(dot(DIM, q, k2[p]) / 16);
            l[0] += w[0][p];
            l[1] += w[1][p];
        }
        for (int p = 0; p < TOKENS; p++)
            sum.divergence += w[0][p] / l[0] * log(w[0][p] / l[0] / (w[1][p] / l[1])) / 40;
        for (int d = 0; d < DIM; d++) {
            double out[2] = {0, 0};
            for (int p = 0; p < TOKENS; p++) {
                out[0] += w[0][p] / l[0] * (double)v[p][d];
                out[1] += w[1][p] / l[1] * (double)v2[p][d];
            }
            errors += (out[0] - out[1]) * (out[0] - out[1]);
            sizes += out[0] * out[0];
        }
        sum.error += sqrt(errors / sizes) / 40;
    }
    return sum;
}

static void more_bits_lose_less(void **state)
{
    (void)state;
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    loss before = read_loss(kvern_codec_turbo(1));
    for (uint32_t b = 2; b <= 6; b++) {
        const loss now = read_loss(kvern_codec_turbo(b));
        assert_true(now.divergence < 0.6 * before.divergence && now.error < 0.75 * before.error);
        before = now;
    }
    before = read_loss(kvern_codec_rotated(2, 64));
    for (size_t i = 1; i < 6; i++) {
        const loss now = read_loss(kvern_codec_rotated(bits[i], 64));
        assert_true(now.divergence < 0.6 * before.divergence && now.error < 0.75 * before.error);
        before = now;
    }
    assert_true(before.divergence < 1e-3 && before.error < 0.03); // 8 bits
}

// ---- Edges ----

static void zeros_nan_and_sizes_beyond_f16(void **state)
{
    (void)state;
    static const kvern_stream streams[] = {KVERN_STREAM_K, KVERN_STREAM_V};
    test_random random = test_random_seed(3);
    for (uint32_t i = 0; i < 8; i++) {
        const kvern_codec codec = kvern_codec_turbo(1 + i % 6);
        const size_t dim = dims[i];
        float x[MOST_DIM] = {0}, y[MOST_DIM], z[MOST_DIM];
        stored(codec, streams[i % 2], dim, x, y);
        for (size_t d = 0; d < dim; d++)
            assert_true(y[d] == 0);
        fill(&random, NORMAL, dim, x);
        stored(codec, streams[i % 2], dim, x, y);
        for (size_t d = 0; d < dim; d++) // a power of two is taken out exactly
            x[d] = ldexpf(x[d], 6);
        stored(codec, streams[i % 2], dim, x, z);
        for (size_t d = 0; d < dim; d++)
            assert_true(z[d] == ldexpf(y[d], 6));
        for (size_t d = 0; d < dim; d++) // as large as a scale may be, in the same direction
            x[d] = ldexpf(x[d], 110);
        stored(codec, streams[i % 2], dim, x, z);
        const double cosine = dot(dim, y, z) / sqrt(dot(dim, y, y) * dot(dim, z, z));
        assert_true(cosine > 1 - 1e-6);
        x[dim / 2] = i % 3 ? INFINITY : NAN;
        stored(codec, streams[i % 2], dim, x, y);
        for (size_t d = 0; d < dim; d++)
            assert_true(isnan(y[d]));
    }
}

static void latents_need_leave(void **state)
{
    (void)state;
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    kvern_layer layer = kvern_layer_latent(64, 64, 64);
    layer.latent_codec = kvern_codec_turbo(4);
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_string_equal(kvern_error_detail(), "layer 0: latent_codec is turbo4r1c1, of rotated "
                                              "vectors, and rotated_latents is 0");
    layer = kvern_layer_latent(64, 64, 64);
    layer.rope_codec = kvern_codec_rotated(4, 64);
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_string_equal(kvern_error_detail(),
                        "layer 0: rope_codec is rotated4g64bf16r1, of rotated "
                        "vectors, and rotated_latents is 0");
    layer.rotated_latents = 1;
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    kvern_composition_release(composition);
    layer.rotated_latents = 2;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_string_equal(kvern_error_detail(), "layer 0: rotated_latents is 2, neither 0 nor 1");
    layer = kvern_layer_default(1, 64);
    layer.rotated_latents = 1;
    assert_status(KVERN_ERR_ARGUMENT, kvern_composition_create(context, &layer, 1, &composition));
    layer = kvern_layer_default(1, 72);
    layer.k_codec = kvern_codec_turbo(4);
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(context, &layer, 1, &composition));
    assert_string_equal(kvern_error_detail(),
                        "layer 0: k_dim is 72, not a multiple of 16, as turbo4r1c1 needs it");
    kvern_context_release(context);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squared_errors_are_those_of_the_codebook),
        cmocka_unit_test(no_vector_degenerates),
        cmocka_unit_test(scores_of_turbo_keys_have_no_bias),
        cmocka_unit_test(rotated_codes_bear_channels_that_stand_out),
        cmocka_unit_test(more_bits_lose_less),
        cmocka_unit_test(zeros_nan_and_sizes_beyond_f16),
        cmocka_unit_test(latents_need_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
