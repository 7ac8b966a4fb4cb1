// SPDX-License-Identifier: MIT
// Files of rows whose tables are forged and whose checksums are right: every word of each table in
// turn, for layers of every kind. Such a file is refused with nothing changed, or loaded into a
// state that is sound and bears whatever is done to it.
#include "tests/support/check.h"
#include "tests/support/container_forge.h"
#include "tests/support/feed.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/small_rows.h"
#include "tests/support/soundness.h"
#include "tests/support/storages.h"

#include <string.h>

#define ROWS 2
#define MOST_LAYERS 6
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const uint64_t sequences[ROWS] = {3, 4};
static const storage bf16 = {"bf16", STORAGE_BF16, STORAGE_BF16, KVERN_NO_START, 0, 0};
static const storage later = {"later", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), 70, 0, 0};
static const storage split = {
    "precise", STORAGE_AFFINE(2, 32), STORAGE_AFFINE(2, 32), KVERN_NO_START, 8, 4};
static const storage both = {
    "precise later", STORAGE_AFFINE(4, 32), STORAGE_AFFINE(4, 32), 70, 8, 4};

static kvern_composition *composition;

static void open_world(const kvern_layer *layers, size_t count)
{
    file_bed_set_up(NULL);
    assert_ok(kvern_composition_create(file_context, layers, count, &composition));
}

static void close_world(void)
{
    kvern_composition_release(composition);
    file_bed_tear_down(NULL);
}

static kvern_state *new_state(size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(composition, rows, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_C(1) << 24));
    return s;
}

static void save(const kvern_state *s)
{
    assert_ok(kvern_file_save(s, NULL, folder_path("f")));
}

// ---- What is done to a state that was loaded ----

static void trim_rows(kvern_state *t)
{
    for (size_t r = 0; r < kvern_state_rows(t); r++) {
        const int64_t length = kvern_state_length(t, r);
        const int64_t to = kvern_state_trim_length(t, r, length - length / 3);
        if (to >= 0 && to < length)
            (void)!kvern_state_trim(t, r, length - to);
    }
    expect_sound_state(t);
}

static void return_rows(kvern_state *t)
{
    for (size_t r = 0; r < kvern_state_rows(t); r++) {
        const int64_t below = kvern_state_checkpoint_below(t, r, 80);
        if (below >= 0)
            assert_ok(kvern_state_return(t, r, below));
    }
    expect_sound_state(t);
}

static void go_on(kvern_state *t)
{
    kvern_state *fork;
    expect_sound_state(t);
    if (kvern_step_begin(t, KVERN_PHASE_DECODE, (int64_t[]){1, 1}))
        return; // full
    kvern_step_abandon(t);
    assert_ok(kvern_state_fork(t, (size_t[]){1, 0}, ROWS, &fork));
    hybrid_step(t, KVERN_PHASE_WINDOW, sequences, (int64_t[]){70, 3}, NULL);
    expect_sound_state(t);
    trim_rows(fork);
    kvern_state_destroy(fork);
    trim_rows(t);
    return_rows(t);
}

// ---- Forging ----

// Loads what was forged; whether it was taken.
static bool try_forgery(forgery *f, bool copy, const char *what)
{
    kvern_state *t = new_state(0);
    forgery_sum(f, file_context, false);
    const kvern_status status = forgery_use(f, file_context, copy, t);
    const bool refused = status == KVERN_ERR_FORMAT || status == KVERN_ERR_UNSUPPORTED;
    if (status && (!refused || kvern_state_rows(t) || !*kvern_error_detail()))
        fail_msg("%s: %s", what, kvern_status_name(status));
    if (!status)
        go_on(t);
    kvern_state_destroy(t);
    return !status;
}

// Every word of a table becomes each of these.
static void forge_words(const char *name, size_t word)
{
    static const int64_t values[] = {
        -1,        0,        1, 2, 63, 64, 65, 96, 156, 1000, INT64_C(1) << 32, INT64_C(1) << 40,
        INT64_MAX, INT64_MIN};
    forgery f = forgery_read("f");
    size_t bytes, loaded = 0, refused = 0;
    unsigned char *data = forgery_tensor(&f, file_context, name, &bytes);
    for (size_t at = 0; at < bytes; at += word) {
        for (size_t i = 0; i < COUNT(values); i++) {
            unsigned char old[8];
            memcpy(old, data + at, word);
            memcpy(data + at, &values[i], word);
            const bool taken = try_forgery(&f, i % 2, name);
            loaded += taken;
            refused += !taken;
            memcpy(data + at, old, word);
        }
    }
    assert_true(loaded > 0); // the words that were there already, at least
    assert_true(refused > loaded);
    forgery_free(&f);
}

// Every bit of a table is turned.
static void forge_bits(const char *name)
{
    forgery f = forgery_read("f");
    size_t bytes, refused = 0;
    unsigned char *data = forgery_tensor(&f, file_context, name, &bytes);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        refused += !try_forgery(&f, bit % 2, name);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(refused > 0);
    assert_true(try_forgery(&f, false, name)); // as it was
    forgery_free(&f);
}

static void forge_tables(void)
{
    forge_words("records", 8);
    forge_words("snapshots", 8);
    forge_words("tables", 4);
}

// ---- Layers of every kind ----

static void fill(kvern_state *s)
{
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){30, 66}, NULL);
    assert_ok(kvern_state_checkpoint(s, 1));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){3, 90}, NULL);
}

static void forge_world(const kvern_layer *layers, size_t count, int64_t boundary)
{
    open_world(layers, count);
    kvern_state *s = new_state(ROWS);
    assert_ok(kvern_state_plan_boundary(s, 0, boundary));
    fill(s);
    save(s);
    forge_tables();
    kvern_state_destroy(s);
    close_world();
}

static void small_rows_of_five_kinds(void **state)
{
    (void)state;
    kvern_layer layers[SMALL_ROWS_LAYERS];
    small_rows_layers(layers);
    forge_world(layers, SMALL_ROWS_LAYERS, 0);
}

static void windows_and_chunks(void **state)
{
    (void)state;
    kvern_layer chunked = kvern_layer_chunked(1, 32, 40);
    chunked.slack = 5;
    const kvern_layer layers[] = {storage_window(&bf16, 1, 8, 20, 0, 0),
                                  storage_window(&later, 1, 32, 90, 70, 9),
                                  storage_window(&split, 1, 32, 70, 3, 4), chunked};
    forge_world(layers, COUNT(layers), 0);
}

static void starts_with_a_boundary_and_what_is_precise(void **state)
{
    (void)state;
    const kvern_layer layers[] = {storage_layer(&later, 1, 32), storage_layer(&both, 1, 32),
                                  storage_layer(&split, 2, 32)};
    forge_world(layers, COUNT(layers), 100);
}

static void latents_with_all_parts(void **state)
{
    (void)state;
    kvern_layer layers[] = {kvern_layer_latent(24, 8, 8), kvern_layer_latent(32, 0, 0),
                            kvern_layer_latent(32, 8, 0)};
    layers[1].latent_codec = kvern_codec_affine(4, 32);
    layers[2].rope_codec = kvern_codec_dense(KVERN_BF16);
    forge_world(layers, COUNT(layers), 0);
}

static void recurrent_layers_with_checkpoints(void **state)
{
    (void)state;
    const kvern_layer layers[] = {
        kvern_layer_delta(1, 2, 8, 8, 3), storage_layer(&bf16, 1, 8),
        kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 1, 1, 8, 16, 0),
        kvern_layer_ssd(1, 3, 16, 8, 4), kvern_layer_lane(40)};
    forge_world(layers, COUNT(layers), 0);
}

static void layers_that_read_others(void **state)
{
    (void)state;
    kvern_layer layers[3] = {storage_window(&bf16, 1, 32, 24, 3, 8), storage_layer(&later, 1, 32)};
    layers[2] = kvern_layer_shared(layers, 0);
    forge_world(layers, 3, 0);
}

// ---- Images ----

// Two images in one row and one at the beginning of the other, or flagged tokens in both.
static void feed_images(kvern_state *s, kvern_phase phase)
{
    static const int64_t counts[ROWS] = {100, 40};
    const kvern_range ranges[] = {{3, 9}, {62, 71}, {0, 12}};
    const size_t range_counts[ROWS] = {2, 1};
    uint8_t flags[140] = {0};
    flags[3] = flags[4] = flags[70] = flags[101] = flags[139] = 1;
    assert_ok(kvern_step_begin(s, phase, counts));
    for (size_t l = 0; l < kvern_composition_layers(composition); l++) {
        feed f = feed_create(kvern_state_cache(s, l), sequences, counts, 1);
        f.tokens.ranges = phase == KVERN_PHASE_RANGES ? ranges : NULL;
        f.tokens.range_counts = phase == KVERN_PHASE_RANGES ? range_counts : NULL;
        f.tokens.flags = phase == KVERN_PHASE_BIDIRECTIONAL ? flags : NULL;
        assert_ok(kvern_step_append(s, l, &f.tokens, NULL));
        feed_destroy(&f);
    }
    assert_ok(kvern_step_end(s));
}

static void forge_images(kvern_phase phase)
{
    kvern_layer chunked = kvern_layer_chunked(1, 8, 40);
    chunked.slack = 5;
    const kvern_layer layers[] = {storage_layer(&bf16, 1, 8), storage_window(&bf16, 1, 8, 20, 2, 4),
                                  chunked, storage_layer(&later, 1, 32),
                                  storage_layer(&split, 1, 32)};
    open_world(layers, COUNT(layers));
    kvern_state *s = new_state(ROWS);
    feed_images(s, phase);
    save(s);
    forge_bits("ranges");
    forge_words("ranges", 8);
    if (phase == KVERN_PHASE_BIDIRECTIONAL) {
        forge_bits("flags");
        forge_words("flags", 8);
    }
    forge_tables();
    kvern_state_destroy(s);
    close_world();
}

static void images_in_all_layers(void **state)
{
    (void)state;
    forge_images(KVERN_PHASE_RANGES);
}

static void flags_in_all_layers(void **state)
{
    (void)state;
    forge_images(KVERN_PHASE_BIDIRECTIONAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_rows_of_five_kinds),
        cmocka_unit_test(windows_and_chunks),
        cmocka_unit_test(starts_with_a_boundary_and_what_is_precise),
        cmocka_unit_test(latents_with_all_parts),
        cmocka_unit_test(recurrent_layers_with_checkpoints),
        cmocka_unit_test(layers_that_read_others),
        cmocka_unit_test(images_in_all_layers),
        cmocka_unit_test(flags_in_all_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
