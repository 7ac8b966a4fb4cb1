// SPDX-License-Identifier: MIT
// Prompt caches of mlx-lm that are refused, each for its own reason and with nothing left behind,
// and what is done about storages that differ. Faults E1 to E10 and F1 of other systems.
#include "tests/support/check.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"
#include "tests/support/mlx_case.h"
#include "tests/support/mlx_forge.h"

#include <kvern/mlx_cache.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *golden_path(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/golden/mlx/%s.safetensors", KVERN_TESTS_DIR, name);
    return path;
}

static void expect_sentence(kvern_status wanted, kvern_status got, const char *part)
{
    if (got != wanted || (wanted && !strstr(kvern_error_detail(), part)))
        fail_msg("%s '%s', not %s '%s'", kvern_status_name(got), kvern_error_detail(),
                 kvern_status_name(wanted), part);
}

// ---- Files ----

static void expect_refusal(mlx_forgery forgery, kvern_status wanted, const char *part)
{
    const uint64_t held = file_books.held_bytes;
    kvern_mlx_file *file;
    expect_sentence(wanted, kvern_mlx_open(file_context, mlx_forge_write(&forgery), &file), part);
    assert_null(file);
    assert_true(file_books.held_bytes == held);
}

static void expect_text(const char *golden, const char *old, const char *new, kvern_status wanted,
                        const char *part)
{
    mlx_forgery forgery = mlx_forge(golden);
    mlx_forge_text(&forgery, old, new);
    expect_refusal(forgery, wanted, part);
}

static void expect_number(const char *golden, const char *tensor, size_t at, int32_t value,
                          const char *part)
{
    mlx_forgery forgery = mlx_forge(golden);
    mlx_forge_number(&forgery, tensor, at, value);
    expect_refusal(forgery, KVERN_ERR_FORMAT, part);
}

// E3: a kind that is not known is named.
static void fault_e3_unknown_classes_are_named(void **unused)
{
    (void)unused;
    const kvern_status no = KVERN_ERR_UNSUPPORTED;
    expect_text("states-rotating.safetensors", "\"1.0\":\"RotatingKVCache\"",
                "\"1.0\":\"RotatedKVCache\"", no, "RotatedKVCache");
    expect_text("infos-kv.safetensors", "\"2.2\":\"KVCache\"", "\"2.2\":\"PagedKVCache\"", no,
                "PagedKVCache");
    expect_text("infos-hybrid.safetensors", "\"0.0.0.1\":\"KVCache\"", "\"0.0.0.1\":\"CacheList\"",
                no, "CacheList in a CacheList");
    expect_text("states-kv.safetensors", "\"scalar\"", "\"object\"", no, "object");
    expect_text("states-kv.safetensors", "\"dtype\":\"BF16\"", "\"dtype\":\"I16\"", no, "I16");
}

static void tensors_that_are_missing_or_do_not_fit(void **unused)
{
    (void)unused;
    const kvern_status bad = KVERN_ERR_FORMAT;
    expect_text("infos-kv.safetensors", "\"1.1\":{", "\"1.7\":{", bad, "1.1 is missing");
    expect_text("infos-kv.safetensors", "\"2.1\":\"KV", "\"2.5\":\"KV", bad, "2.1 is missing");
    expect_text("infos-kv.safetensors", "\"2.2\":\"KVCache\"", "\"9.2\":\"KVCache\"", bad,
                "belongs to no cache");
    expect_text("infos-kv.safetensors", "[1,2,11,8]", "[1,2,8,11]", bad, "do not fit");
    expect_text("infos-quantized.safetensors", "[1,2,284,8]", "[1,2,568,4]", bad, "do not fit");
    expect_text("states-batch.safetensors", "\"2.0\":\"\"", "\"3.0\":\"\"", bad,
                "no prompt cache of mlx-lm");
    expect_text("states-kv.safetensors", "\"2.1.0\":\"0.2\"", "\"2.1.0\":\"0.0\"", bad,
                "no scalar");
}

// Numbers that disagree with the shapes of tensors.
static void numbers_that_do_not_fit(void **unused)
{
    (void)unused;
    expect_number("states-kv.safetensors", "0.2", 0, 257, "offset 257 with 256 columns");
    expect_number("states-kv.safetensors", "0.2", 0, -1, "offset -1");
    expect_number("states-rotating.safetensors", "0.2", 0, -5, "offset -5");
    expect_number("states-rotating.safetensors", "0.5", 0, 9, "index 9");
    expect_number("states-rotating.safetensors", "0.5", 0, -1, "index -1");
    expect_number("states-rotating.safetensors", "0.3", 0, 8, "a window of 8 that keeps 8");
    expect_number("states-rotating.safetensors", "0.4", 0, 0, "a window of 0");
    expect_number("states-rotating.safetensors", "0.4", 0, 9, "with a window of 9");
    expect_number("states-rotating.safetensors", "3.2", 0, 9, "at offset 9");
    expect_number("states-chunked.safetensors", "0.4", 0, 306, "start 306");
    expect_number("states-chunked.safetensors", "0.2", 0, 600, "offset 600 and start 44");
    expect_number("states-chunked.safetensors", "0.3", 0, 0, "chunks of 0");
    expect_number("states-batch.safetensors", "0.4", 0, 257, "index 257");
    expect_number("states-batch.safetensors", "0.3", 1, -1, "row 1");
    expect_number("states-batch.safetensors", "0.3", 2, INT32_MAX, "row 2");
    expect_number("states-batch.safetensors", "0.2", 0, 11, "row 0: offset 11");
    expect_number("states-batch.safetensors", "1.6", 0, 9, "index 9");
    expect_number("states-batch.safetensors", "1.4", 0, 9, "a window of 9 that has turned");
    expect_number("states-batch.safetensors", "1.5", 0, 3, "of 3 columns in all");
    expect_number("states-batch.safetensors", "1.2", 0, 2, "row 0: offset 2");
    expect_text("infos-rotating.safetensors", "\"0.0.2\":\"13\"", "\"0.0.2\":\"1e1\"",
                KVERN_ERR_FORMAT, "is no number: 1e1");
    expect_text("infos-rotating.safetensors", "\"0.0.2\":\"13\"",
                "\"0.0.2\":\"99999999999999999999\"", KVERN_ERR_FORMAT, "is no number");
    expect_text("infos-batch.safetensors", "\"False\"", "\"maybe\"", KVERN_ERR_FORMAT,
                "neither True nor False");
}

static void bits_and_groups(void **unused)
{
    (void)unused;
    const char *name = "infos-quantized.safetensors";
    expect_text(name, "\"0.0.2\":\"8\"", "\"0.0.2\":\"7\"", KVERN_ERR_UNSUPPORTED, "7 bits");
    expect_text(name, "\"0.0.1\":\"32\"", "\"0.0.1\":\"48\"", KVERN_ERR_UNSUPPORTED,
                "groups of 48");
    expect_text(name, "\"0.0.2\":\"8\"", "\"0.0.2\":\"4\"", KVERN_ERR_FORMAT, "not of 4 bits");
    expect_text(name, "\"0.0.1\":\"32\"", "\"0.0.1\":\"64\"", KVERN_ERR_FORMAT, "groups of 64");
    expect_text(name, "\"0.0.0\":\"284\"", "\"0.0.0\":\"285\"", KVERN_ERR_FORMAT, "offset 285");
}

// E10: parts that report other lengths, and other rows.
static void fault_e10_parts_that_disagree(void **unused)
{
    (void)unused;
    const mlx_case c = mlx_case_named("kv");
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    mlx_forgery forgery = mlx_forge("states-kv.safetensors");
    mlx_forge_number(&forgery, "1.2", 0, 10);
    kvern_mlx_file *file;
    kvern_state *state;
    assert_ok(kvern_mlx_open(file_context, mlx_forge_write(&forgery), &file));
    assert_int_equal(-1, kvern_mlx_length(file, 0));
    assert_int_equal(10, kvern_mlx_cache_length(file, 1, 0));
    expect_sentence(KVERN_ERR_FORMAT, kvern_mlx_import(file, composition, NULL, &state),
                    "10 positions here, 11 elsewhere");
    assert_null(state);
    kvern_mlx_close(file);
    kvern_composition_release(composition);
}

// A chunked cache of which nothing is left, or of an offset that is none, made a row without pages
// that said it had positions.
static void fault_chunks_that_have_gone(void **unused)
{
    (void)unused;
    expect_number("states-chunked.safetensors", "0.2", 0, -1, "offset -1");
    expect_number("states-chunked.safetensors", "0.4", 0, 305, "offset 305 and start 305");
    const mlx_case c = mlx_case_named("chunked");
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    mlx_forgery forgery = mlx_forge("infos-chunked.safetensors");
    mlx_forge_text(&forgery, "\"0.0.1\":\"256\"", "\"0.0.1\":\"305\"");
    kvern_mlx_file *file;
    kvern_state *state;
    assert_ok(kvern_mlx_open(file_context, mlx_forge_write(&forgery), &file));
    expect_sentence(KVERN_ERR_FORMAT, kvern_mlx_import(file, composition, NULL, &state),
                    "a row of 305 from 305 on has none");
    assert_null(state);
    kvern_mlx_close(file);
    kvern_composition_release(composition);
}

// ---- Layers ----

static void expect_misfit(const char *name, size_t layer, const kvern_layer *other,
                          const char *part)
{
    mlx_case c = mlx_case_named(name);
    char file_name[80];
    snprintf(file_name, sizeof file_name, "states-%s", name);
    c.layer[layer] = *other;
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_mlx_file *file;
    kvern_state *state;
    assert_ok(kvern_mlx_open(file_context, golden_path(file_name), &file));
    const uint64_t held = file_books.held_bytes;
    expect_sentence(KVERN_ERR_UNSUPPORTED, kvern_mlx_import(file, composition, NULL, &state), part);
    assert_null(state);
    kvern_context_trim(file_context);
    assert_true(file_books.held_bytes <= held);
    kvern_mlx_close(file);
    kvern_composition_release(composition);
}

static void layers_that_the_file_is_not_for(void **unused)
{
    (void)unused;
    kvern_layer layer = kvern_layer_default(4, 8);
    expect_misfit("kv", 0, &layer, "4 heads of 8, in the file 2 of 8");
    layer = kvern_layer_default(2, 16);
    expect_misfit("kv", 0, &layer, "2 heads of 16, in the file 2 of 8");
    layer = kvern_layer_default(2, 8);
    expect_misfit("kv", 1, &layer, "layer 1, full:h2:k8=bf16:v8=bf16");
    expect_misfit("rotating", 4, &layer, "a window of 8 that keeps 0");
    expect_misfit("chunked", 0, &layer, "chunks of 256");
    expect_misfit("arrays", 0, &layer, "arrays, where the layer has positions");
    layer = kvern_layer_window(2, 8, 9);
    expect_misfit("rotating", 4, &layer, "a window of 8 that keeps 0");
    layer = kvern_layer_window(2, 8, 8);
    expect_misfit("rotating", 0, &layer, "that keeps 2");
    layer = kvern_layer_default(2, 32);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 32);
    expect_misfit("quantized", 0, &layer, "affine4g32bf16, in the file in affine8g32bf16");
    layer = kvern_layer_recurrent(KVERN_RECURRENCE_DELTA, 2, 4, 16, 16, 4);
    expect_misfit("arrays", 0, &layer, "slot 0 is not of the layer's dims");
    expect_misfit("arrays", 1, &layer, "is in an ArraysCache");
    layer = kvern_layer_latent(16, 8, 16);
    expect_misfit("concatenate", 0, &layer, "caches, and 1 layers are 2");
    layer = kvern_layer_latent(16, 8, 0);
    expect_misfit("split", 1, &layer, "stored in f32, in the file in bf16");
}

// ---- Lengths ----

// A file of recurrent layers alone says no position: whoever saved it knows them.
static void lengths_that_no_cache_says(void **unused)
{
    (void)unused;
    mlx_case c = mlx_case_named("arrays");
    kvern_mlx_file *file;
    kvern_state *state;
    kvern_cache *cache;
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    assert_ok(kvern_mlx_open(file_context, golden_path("states-arrays"), &file));
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    int64_t length = 12;
    options.lengths = &length;
    expect_sentence(KVERN_ERR_RANGE, kvern_mlx_import(file, composition, &options, &state),
                    "a length of 12 is given");
    assert_ok(kvern_cache_create(composition, 0, 1, &cache));
    expect_sentence(KVERN_ERR_FORMAT, kvern_mlx_import_cache(file, 0, NULL, cache), "give lengths");
    assert_ok(kvern_mlx_import_cache(file, 0, &options, cache));
    assert_int_equal(12, kvern_cache_length(cache, 0));
    kvern_cache_destroy(cache);
    kvern_mlx_close(file);
    kvern_composition_release(composition);
}

// ---- Conversions ----

// Bf16 in the file, another storage in the layer: what an append of the values gives, also
// where the layer keeps positions precise.
static void conversions_are_appends(void **unused)
{
    (void)unused;
    static const char *const names[] = {"f32", "f16", "q8", "q4", "rq4", "tq3", "q4", "tq3"};
    static const int64_t residuals[] = {0, 0, 0, 0, 0, 0, 64, 30};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        mlx_case c = {.name = "wide", .rows = 1, .lengths = {200}, .layers = 1};
        c.layer[0] = kvern_layer_default(2, 32);
        kvern_composition *plain = mlx_case_composition(file_context, &c), *other;
        kvern_state *state, *imported, *appended;
        const char *path = folder_path("wide.safetensors");
        assert_ok(kvern_state_create(plain, 1, &state));
        mlx_case_fill(&c, 1, state, 40);
        assert_ok(kvern_mlx_export(state, NULL, 0, path, NULL));
        assert_ok(kvern_codec_parse(names[i], 32, &c.layer[0].k_codec));
        c.layer[0].v_codec = c.layer[0].k_codec;
        c.layer[0].residual = residuals[i];
        other = mlx_case_composition(file_context, &c);
        kvern_mlx_file *file;
        assert_ok(kvern_mlx_open(file_context, path, &file));
        kvern_mlx_import_options options = kvern_mlx_import_options_default();
        expect_sentence(KVERN_ERR_UNSUPPORTED, kvern_mlx_import(file, other, &options, &imported),
                        "a conversion can be asked for");
        options.conversion = KVERN_MLX_CONVERT;
        assert_ok(kvern_mlx_import(file, other, &options, &imported));
        assert_ok(kvern_state_create(other, 1, &appended));
        mlx_case_fill(&c, 1, appended, 40);
        float wanted[2][2 * 32], got[2][2 * 32];
        for (int64_t p = 0; p < 200; p++) {
            assert_ok(
                kvern_cache_export(kvern_state_cache(appended, 0), 0, p, 1, wanted[0], wanted[1]));
            assert_ok(kvern_cache_export(kvern_state_cache(imported, 0), 0, p, 1, got[0], got[1]));
            check_same_floats(wanted[0], got[0], 4 * 32, names[i]);
        }
        kvern_mlx_close(file);
        kvern_state_destroy(state);
        kvern_state_destroy(imported);
        kvern_state_destroy(appended);
        kvern_composition_release(plain);
        kvern_composition_release(other);
    }
}

// Codes of other bits: their values, as scale and bias say.
static void codes_become_values(void **unused)
{
    (void)unused;
    mlx_case c = mlx_case_named("quantized"), dense = c;
    for (size_t l = 0; l < c.layers; l++)
        dense.layer[l].k_codec = dense.layer[l].v_codec = kvern_codec_dense(KVERN_F32);
    kvern_composition *stored = mlx_case_composition(file_context, &c);
    kvern_composition *wanted = mlx_case_composition(file_context, &dense);
    kvern_mlx_file *file;
    kvern_state *codes, *values;
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    options.conversion = KVERN_MLX_CONVERT;
    assert_ok(kvern_mlx_open(file_context, golden_path("infos-quantized"), &file));
    assert_ok(kvern_mlx_import(file, stored, NULL, &codes));
    assert_ok(kvern_mlx_import(file, wanted, &options, &values));
    for (size_t l = 0; l < c.layers; l++) {
        float a[4 * 32], b[4 * 32];
        for (int64_t p = 0; p < 284; p++) {
            assert_ok(kvern_cache_export(kvern_state_cache(codes, l), 0, p, 1, a, &a[64]));
            assert_ok(kvern_cache_export(kvern_state_cache(values, l), 0, p, 1, b, &b[64]));
            for (size_t i = 0; i < 4 * 32; i++) // a product and a sum, each rounded, or one fma
                assert_true(fabsf(a[i] - b[i]) <= 16 * 0x1p-23f);
        }
    }
    kvern_mlx_close(file);
    kvern_state_destroy(codes);
    kvern_state_destroy(values);
    kvern_composition_release(stored);
    kvern_composition_release(wanted);
}

// Codes are of groups of dims: reordered keys need their values.
static void codes_are_not_reordered(void **unused)
{
    (void)unused;
    const mlx_case c = mlx_case_named("quantized");
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_mlx_file *file;
    kvern_state *state;
    kvern_mlx_import_options options = kvern_mlx_import_options_default();
    options.k_pairs = 32;
    assert_ok(kvern_mlx_open(file_context, golden_path("infos-quantized"), &file));
    expect_sentence(KVERN_ERR_UNSUPPORTED, kvern_mlx_import(file, composition, &options, &state),
                    "a conversion can be asked for");
    options.conversion = KVERN_MLX_CONVERT;
    assert_ok(kvern_mlx_import(file, composition, &options, &state));
    kvern_state_destroy(state);
    options.k_pairs = 34;
    assert_status(KVERN_ERR_RANGE, kvern_mlx_import(file, composition, &options, &state));
    kvern_mlx_close(file);
    kvern_composition_release(composition);
}

// ---- Exports ----

static kvern_layer coded(kvern_layer layer, const char *codec)
{
    assert_ok(kvern_codec_parse(codec, 32, &layer.k_codec));
    layer.v_codec = layer.k_codec;
    return layer;
}

// Refused as it is and written as values where that is asked for; or refused always.
static void expect_export(const kvern_layer *layer, size_t rows, bool converts, const char *part)
{
    mlx_case c = {.name = "export", .rows = rows, .lengths = {40, 7, 3}, .layers = 1};
    c.layer[0] = *layer;
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_state *state;
    const char *path = folder_path("values.safetensors");
    assert_ok(kvern_state_create(composition, rows, &state));
    mlx_case_fill(&c, 1, state, 40);
    expect_sentence(KVERN_ERR_UNSUPPORTED, kvern_mlx_export(state, NULL, 0, path, NULL), part);
    assert_false(folder_has("values.safetensors"));
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.conversion = KVERN_MLX_CONVERT;
    options.values = KVERN_F32;
    assert_status(converts ? KVERN_OK : KVERN_ERR_UNSUPPORTED,
                  kvern_mlx_export(state, NULL, 0, path, &options));
    if (converts) {
        kvern_mlx_file *file;
        kvern_mlx_cache facts = {.size = sizeof facts};
        assert_ok(kvern_mlx_open(file_context, path, &file));
        assert_ok(kvern_mlx_cache_facts(file, 0, &facts));
        assert_string_equal("F32", facts.dtype);
        assert_int_equal(40, kvern_mlx_length(file, 0));
        kvern_mlx_close(file);
        remove(path);
    }
    kvern_state_destroy(state);
    kvern_composition_release(composition);
}

static void storages_without_a_class(void **unused)
{
    (void)unused;
    const kvern_layer full = kvern_layer_default(2, 32), window = kvern_layer_window(2, 32, 16);
    const kvern_layer chunks = kvern_layer_chunked(2, 32, 16);
    kvern_layer layer = coded(full, "tq3");
    expect_export(&layer, 1, true, "layer 0, full:h2:k32=turbo3");
    layer = coded(full, "rq4");
    expect_export(&layer, 1, true, "for such codes");
    layer = coded(window, "q8");
    expect_export(&layer, 1, true, "for such codes");
    layer = coded(chunks, "q4");
    expect_export(&layer, 1, true, "for such codes");
    layer = coded(full, "q8");
    expect_export(&layer, 3, true, "for such codes");
    layer.v_codec = kvern_codec_affine(4, 32);
    expect_export(&layer, 1, true, "for such codes");
    layer = coded(full, "q8");
    layer.residual = 8;
    expect_export(&layer, 1, true, "for such codes");
    expect_export(&chunks, 2, false, "for several rows of chunks");
    layer = window;
    layer.keep = 4;
    expect_export(&layer, 2, false, "for several rows that keep positions");
    layer = kvern_layer_latent(32, 32, 0);
    layer.latent_codec = kvern_codec_affine(8, 32);
    expect_export(&layer, 1, true, "for such codes");
}

// Bf16 first: a KVCache before the start, a QuantizedKVCache behind it, and both come back.
static void rows_before_and_behind_their_start(void **unused)
{
    (void)unused;
    for (int64_t length = 7; length <= 40; length += 33) {
        mlx_case c = {.name = "start", .rows = 1, .lengths = {length}, .layers = 1};
        c.layer[0] = coded(kvern_layer_default(2, 32), "q4");
        c.layer[0].start = 32;
        kvern_composition *composition = mlx_case_composition(file_context, &c);
        kvern_state *state, *again;
        kvern_mlx_file *file;
        kvern_mlx_cache facts = {.size = sizeof facts};
        const char *path = folder_path("start.safetensors");
        assert_ok(kvern_state_create(composition, 1, &state));
        mlx_case_fill(&c, 1, state, 64);
        assert_ok(kvern_mlx_export(state, NULL, 0, path, NULL));
        assert_ok(kvern_mlx_open(file_context, path, &file));
        assert_ok(kvern_mlx_cache_facts(file, 0, &facts));
        assert_string_equal(length < 32 ? "KVCache" : "QuantizedKVCache", facts.class_name);
        assert_ok(kvern_mlx_import(file, composition, NULL, &again));
        assert_int_equal(length >= 32, kvern_cache_converted(kvern_state_cache(again, 0), 0));
        float a[2][2 * 32], b[2][2 * 32];
        for (int64_t p = 0; p < length; p++) {
            assert_ok(kvern_cache_export(kvern_state_cache(state, 0), 0, p, 1, a[0], a[1]));
            assert_ok(kvern_cache_export(kvern_state_cache(again, 0), 0, p, 1, b[0], b[1]));
            check_same_floats(a[0], b[0], 4 * 32, "start");
        }
        kvern_mlx_close(file);
        kvern_state_destroy(state);
        kvern_state_destroy(again);
        kvern_composition_release(composition);
    }
}

static void exports_that_are_refused(void **unused)
{
    (void)unused;
    const mlx_case c = mlx_case_named("kv");
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_state *state;
    const char *path = folder_path("refused.safetensors");
    const size_t two[] = {0, 0}, far = 1, lists[] = {2, 2}, before = folder_files();
    assert_ok(kvern_state_create(composition, 1, &state));
    expect_sentence(KVERN_ERR_RANGE, kvern_mlx_export(state, NULL, 0, path, NULL), "empty");
    mlx_case_fill(&c, 1, state, 8);
    assert_status(KVERN_ERR_RANGE, kvern_mlx_export(state, &far, 1, path, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_mlx_export(state, NULL, 1, path, NULL));
    assert_status(KVERN_ERR_IO, kvern_mlx_export(state, NULL, 0, "/no/such/folder/x", NULL));
    static const char *const keys[] = {"a.b", "1", "", "-1"};
    for (size_t i = 0; i < 4; i++) {
        const kvern_mlx_note note = {keys[i], "x"};
        kvern_mlx_export_options options = kvern_mlx_export_options_default();
        options.notes = &note;
        options.note_count = 1;
        assert_status(KVERN_ERR_ARGUMENT, kvern_mlx_export(state, NULL, 0, path, &options));
    }
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.layout = KVERN_MLX_BUN;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_mlx_export(state, NULL, 0, path, &options));
    for (size_t pairs = 3; pairs <= 10; pairs += 7) {
        options = kvern_mlx_export_options_default();
        options.k_pairs = pairs;
        expect_sentence(KVERN_ERR_RANGE, kvern_mlx_export(state, NULL, 0, path, &options),
                        "in pairs of keys of 8");
    }
    options = kvern_mlx_export_options_default();
    options.lists = lists;
    options.list_count = 1;
    expect_sentence(KVERN_ERR_ARGUMENT, kvern_mlx_export(state, NULL, 0, path, &options),
                    "before layer 2");
    options.list_count = 2;
    expect_sentence(KVERN_ERR_ARGUMENT, kvern_mlx_export(state, NULL, 0, path, &options),
                    "entry 1");
    const int64_t count = 1;
    assert_ok(kvern_step_begin(state, KVERN_PHASE_DECODE, &count));
    assert_status(KVERN_ERR_BUSY, kvern_mlx_export(state, NULL, 0, path, NULL));
    kvern_step_abandon(state);
    folder_expect_files(before); // nor did a temporary one stay
    assert_ok(kvern_mlx_export(state, two, 2, path, NULL));
    folder_expect_files(before + 1);
    kvern_state_destroy(state);
    kvern_composition_release(composition);
    remove(path);
}

// ---- Values ----

// E6, E7: bf16 stays bf16, its odd values included, and a file has the positions that there are.
static void fault_e6_odd_values(void **unused)
{
    (void)unused;
    static const uint16_t odd[8] = {0x7f62, 0x0da2, 0x3f81, 0x8000, 0x7fc5, 0xffd1, 0x7f80, 0x0001};
    mlx_case c = {.name = "odd", .rows = 1, .lengths = {2}, .layers = 1};
    c.layer[0] = kvern_layer_default(1, 8);
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_state *state, *again;
    kvern_mlx_file *file;
    uint16_t values[2][8];
    const int64_t count = 2;
    memcpy(values[0], odd, sizeof odd);
    memcpy(values[1], odd, sizeof odd);
    kvern_tokens tokens = kvern_tokens_default(&c.layer[0]);
    tokens.k = tokens.v = values;
    tokens.k_type = tokens.v_type = KVERN_BF16;
    assert_ok(kvern_state_create(composition, 1, &state));
    assert_ok(kvern_step_begin(state, KVERN_PHASE_WINDOW, &count));
    assert_ok(kvern_step_append(state, 0, &tokens, NULL));
    assert_ok(kvern_step_end(state));
    const char *path = folder_path("odd.safetensors");
    size_t bytes, first, second;
    assert_ok(kvern_mlx_export(state, NULL, 0, path, NULL));
    unsigned char *data = folder_read("odd.safetensors", &first);
    // Two tensors of 2 positions, and the number 2.
    assert_true(memcmp(data + first - 4 - 64, values, 32) == 0);
    assert_true(memcmp(data + first - 4 - 32, values, 32) == 0);
    assert_ok(kvern_mlx_open(file_context, path, &file));
    assert_ok(kvern_mlx_import(file, composition, NULL, &again));
    kvern_mlx_close(file);
    assert_ok(kvern_mlx_export(again, NULL, 0, path, NULL));
    unsigned char *twice = folder_read("odd.safetensors", &second);
    bytes = first < second ? first : second;
    assert_int_equal(first, second);
    check_same_bytes(data, twice, bytes, "the file");
    free(data);
    free(twice);
    kvern_state_destroy(state);
    kvern_state_destroy(again);
    kvern_composition_release(composition);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_e3_unknown_classes_are_named),
        cmocka_unit_test(tensors_that_are_missing_or_do_not_fit),
        cmocka_unit_test(numbers_that_do_not_fit),
        cmocka_unit_test(bits_and_groups),
        cmocka_unit_test(fault_e10_parts_that_disagree),
        cmocka_unit_test(fault_chunks_that_have_gone),
        cmocka_unit_test(layers_that_the_file_is_not_for),
        cmocka_unit_test(lengths_that_no_cache_says),
        cmocka_unit_test(conversions_are_appends),
        cmocka_unit_test(codes_become_values),
        cmocka_unit_test(codes_are_not_reordered),
        cmocka_unit_test(storages_without_a_class),
        cmocka_unit_test(rows_before_and_behind_their_start),
        cmocka_unit_test(exports_that_are_refused),
        cmocka_unit_test(fault_e6_odd_values),
    };
    return cmocka_run_group_tests(tests, file_bed_set_up, file_bed_tear_down);
}
