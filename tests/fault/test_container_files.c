// SPDX-License-Identifier: MIT
// Files of rows that cannot be written, and files that are not what was written: cut, changed in
// every byte, or with other headers and right checksums (forged_tables has their tables). A load
// that is refused leaves the live state as it was. Faults E3, E10, F1, F2 and F12 of other systems.
#include "src/file/container/container.h"
#include "tests/support/bad_disk.h"
#include "tests/support/check.h"
#include "tests/support/container_forge.h"
#include "tests/support/feed.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/small_rows.h"
#include "tests/support/soundness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- A small state of many kinds ----

#define ROWS 2

static kvern_composition *composition;
static const uint64_t sequences[ROWS] = {3, 4};

static int set_up(void **state)
{
    kvern_layer layers[SMALL_ROWS_LAYERS];
    small_rows_layers(layers);
    file_bed_set_up(state);
    assert_ok(kvern_composition_create(file_context, layers, SMALL_ROWS_LAYERS, &composition));
    return 0;
}

static int tear_down(void **state)
{
    kvern_composition_release(composition);
    return file_bed_tear_down(state);
}

static kvern_state *new_state(size_t rows)
{
    kvern_state *s;
    assert_ok(kvern_state_create(composition, rows, &s));
    assert_ok(kvern_state_checkpoint_budget(s, UINT64_C(1) << 24));
    return s;
}

static kvern_state *filled_state(void)
{
    kvern_state *s = new_state(ROWS);
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){30, 66}, NULL);
    assert_ok(kvern_state_checkpoint(s, 1));
    hybrid_step(s, KVERN_PHASE_WINDOW, sequences, (int64_t[]){3, 90}, NULL);
    return s;
}

static void expect_same_rows(const kvern_state *wanted, const kvern_state *got, const char *what)
{
    assert_int_equal(kvern_state_rows(wanted), kvern_state_rows(got));
    for (size_t r = 0; r < kvern_state_rows(wanted); r++)
        hybrid_expect_row(wanted, r, got, r, what);
}

// ---- Disk calls that fail, or kill ----

// Calls that a whole save makes; the last two are the rename and the directory's sync.
static int save_calls(const kvern_state *s, const char *name)
{
    bad_disk disk = {.fail_at = -1, .most = 4096};
    const kvern_disk_calls calls = bad_disk_calls(&disk);
    assert_ok(kvern_file_save_by(&calls, s, NULL, folder_path(name)));
    return disk.call;
}

static bool are_same(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    unsigned char *x = folder_read(a, &a_bytes), *y = folder_read(b, &b_bytes);
    const bool same = a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    free(x);
    free(y);
    return same;
}

static void each_disk_call_may_fail_or_kill(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *old = new_state(1);
    (void)save_calls(old, "old");
    const int calls = save_calls(s, "new");
    assert_true(calls > 8);
    for (int i = 0; i < 2 * calls; i++) {
        bad_disk disk = {.fail_at = i % calls, .kills = i >= calls, .most = 4096};
        const bool renamed = i % calls == calls - 1;
        const kvern_disk_calls bad = bad_disk_calls(&disk);
        (void)save_calls(old, "f");
        if (disk.kills) {
            const pid_t child = fork();
            if (child == 0)
                _exit(kvern_file_save_by(&bad, s, NULL, folder_path("f")) ? 1 : 0);
            int code;
            assert_int_equal(child, waitpid(child, &code, 0));
            assert_true(WIFSIGNALED(code));
        } else {
            assert_status(KVERN_ERR_IO, kvern_file_save_by(&bad, s, NULL, folder_path("f")));
            folder_expect_files(3);
        }
        assert_true(are_same("f", renamed ? "new" : "old"));
    }
    expect_sound_state(s);
    kvern_state_destroy(old);
    kvern_state_destroy(s);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *old = new_state(1);
    (void)save_calls(old, "old");
    (void)save_calls(old, "f");
    for (rlim_t bytes = 1; bytes < 30000; bytes += 5000) {
        const pid_t child = fork();
        if (child == 0) {
            const struct rlimit limit = {bytes, bytes};
            signal(SIGXFSZ, SIG_IGN);
            if (setrlimit(RLIMIT_FSIZE, &limit))
                _exit(3);
            _exit(kvern_file_save(s, NULL, folder_path("f")) == KVERN_ERR_IO ? 0 : 1);
        }
        int code;
        assert_int_equal(child, waitpid(child, &code, 0));
        assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
        assert_true(are_same("f", "old"));
        folder_expect_files(2);
    }
    kvern_state_destroy(old);
    kvern_state_destroy(s);
}

// ---- Memory ----

static void each_allocation_of_a_save_may_fail(void **state)
{
    (void)state;
    kvern_state *s = filled_state();
    kvern_status status = KVERN_ERR_MEMORY;
    for (int64_t granted = 0; status; granted++) {
        const uint64_t held = file_books.held_bytes;
        ledger_refuse(&file_books, granted);
        bad_disk disk = {.fail_at = -1, .most = 4096};
        const kvern_disk_calls calls = bad_disk_calls(&disk);
        status = kvern_file_save_by(&calls, s, NULL, folder_path("f"));
        ledger_relent(&file_books);
        assert_true(!status || status == KVERN_ERR_MEMORY);
        assert_true(file_books.held_bytes == held);
        folder_expect_files(status ? 0 : 1);
    }
    kvern_state_destroy(s);
}

static void each_allocation_of_a_load_may_fail(void **state)
{
    (void)state;
    kvern_state *s = filled_state();
    (void)save_calls(s, "f");
    for (int copy = 0; copy < 2; copy++) {
        kvern_state *t = filled_state(), *twin;
        kvern_file_load_options options = kvern_file_load_options_default();
        options.copy = copy;
        assert_ok(kvern_state_fork(t, (size_t[]){0, 1}, 2, &twin));
        kvern_status status = KVERN_ERR_MEMORY;
        for (int64_t granted = 0; status; granted++) {
            kvern_file *file = NULL;
            const uint64_t held = file_books.held_bytes;
            ledger_refuse(&file_books, granted);
            status = kvern_file_open(file_context, folder_path("f"), &file);
            if (!status)
                status = kvern_file_load(file, &options, t);
            ledger_relent(&file_books);
            kvern_file_close(file);
            assert_true(!status || status == KVERN_ERR_MEMORY);
            if (!status)
                break;
            assert_true(file_books.held_bytes == held);
            expect_same_rows(twin, t, "refused memory");
        }
        assert_int_equal(4, kvern_state_rows(t));
        kvern_state_destroy(t);
        kvern_state_destroy(twin);
    }
    kvern_state_destroy(s);
}

static void budgets_hold_copies_but_not_what_is_mapped(void **state)
{
    (void)state;
    kvern_state *s = filled_state();
    (void)save_calls(s, "f");
    kvern_file_facts facts = kvern_file_facts_default();
    kvern_file *file;
    assert_ok(kvern_file_open(file_context, folder_path("f"), &file));
    assert_ok(kvern_file_get_facts(file, &facts));
    kvern_memory before = kvern_memory_default(), after = kvern_memory_default();
    assert_ok(kvern_context_memory(file_context, &before));
    kvern_file_load_options options = kvern_file_load_options_default();
    for (uint32_t copy = 0; copy < 2; copy++) {
        kvern_state *t = new_state(0);
        options.copy = copy;
        assert_ok(kvern_file_load(file, &options, t));
        assert_ok(kvern_context_memory(file_context, &after));
        assert_true(after.page_bytes - before.page_bytes == (copy ? facts.page_bytes : 0));
        kvern_state_destroy(t);
    }
    kvern_file_close(file);
    kvern_state_destroy(s);
}

// ---- Files that were damaged ----

static kvern_status use_file(const forgery *f, bool copy, kvern_state *t)
{
    return forgery_use(f, file_context, copy, t);
}

// The byte behind `at` that is tried: every one, but in pages, which are all alike, one of 61 where
// the test is to be short.
static size_t next_byte(forgery *f, size_t at)
{
    size_t bytes;
    const size_t pages = 4096; // the header's
    const size_t rest = (size_t)(forgery_tensor(f, file_context, "snapshots", &bytes) - f->data);
    return at < pages || at + 61 >= rest || check_is_long() ? at + 1 : at + 61;
}

static bool is_refusal(kvern_status status)
{
    return status == KVERN_ERR_FORMAT || status == KVERN_ERR_UNSUPPORTED;
}

static void fault_f2_files_cut_at_every_byte_are_refused(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *t = filled_state();
    (void)save_calls(s, "f");
    forgery whole = forgery_read("f");
    const uint64_t held = file_books.held_bytes;
    for (size_t bytes = 0; bytes < whole.bytes; bytes = next_byte(&whole, bytes)) {
        forgery cut = forgery_of(whole.data, bytes);
        assert_status(KVERN_ERR_FORMAT, use_file(&cut, false, t));
        assert_true(file_books.held_bytes == held);
        forgery_free(&cut);
    }
    expect_same_rows(s, t, "live");
    forgery_free(&whole);
    kvern_state_destroy(s);
    kvern_state_destroy(t);
}

static void a_change_of_any_byte_is_found(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *t = filled_state();
    (void)save_calls(s, "f");
    forgery f = forgery_read("f");
    for (size_t i = 0; i < f.bytes; i = next_byte(&f, i)) {
        const unsigned char mask = (unsigned char)(1u << i % 8);
        f.data[i] ^= mask;
        const kvern_status status = use_file(&f, false, t);
        if (!is_refusal(status) || !*kvern_error_detail())
            fail_msg("byte %zu of %zu was changed: %s", i, f.bytes, kvern_status_name(status));
        f.data[i] ^= mask;
    }
    expect_same_rows(s, t, "live");
    assert_ok(use_file(&f, true, t));
    kvern_state_destroy(s);
    kvern_state_destroy(t);
    forgery_free(&f);
}

// ggml-org/llama.cpp#27068: a load that was refused had written a part already, and what followed
// stayed broken. Refused before anything is read, after all tables were, and in the middle of its
// pages, a load leaves a live state that goes on as its twin does.
static void fault_f1_a_refused_load_leaves_the_live_state(void **state)
{
    (void)state;
    kvern_state *other = filled_state(), *live = new_state(1), *twin;
    (void)save_calls(other, "f");
    hybrid_step(live, KVERN_PHASE_WINDOW, sequences, (int64_t[]){30}, NULL);
    assert_ok(kvern_state_fork(live, (size_t[]){0}, 1, &twin));
    (void)save_calls(live, "before");
    forgery whole = forgery_read("f"), cut = forgery_of(whole.data, whole.bytes - 4);
    forgery damaged = forgery_of(whole.data, whole.bytes);
    kvern_file *file;
    size_t bytes;
    forgery_tensor(&damaged, file_context, "pages.4", &bytes)[bytes - 1] ^= 1; // of the last layer
    assert_status(KVERN_ERR_FORMAT, use_file(&cut, false, live));
    for (uint32_t copy = 0; copy < 2; copy++) {
        kvern_file_load_options options = kvern_file_load_options_default();
        options.copy = copy;
        options.verify = !copy;
        assert_ok(kvern_file_open_memory(file_context, damaged.data, damaged.bytes, &file));
        assert_status(KVERN_ERR_FORMAT, kvern_file_load(file, &options, live));
        kvern_file_close(file);
    }
    (void)save_calls(live, "after");
    assert_true(are_same("before", "after"));
    for (int i = 0; i < 40; i++) {
        float wanted[4096], got[4096];
        const size_t floats = hybrid_outputs(live, 1);
        assert_true(floats <= 4096);
        hybrid_step(twin, KVERN_PHASE_DECODE, sequences, (int64_t[]){1}, wanted);
        hybrid_step(live, KVERN_PHASE_DECODE, sequences, (int64_t[]){1}, got);
        check_same_floats(wanted, got, floats, "behind a refused load");
    }
    forgery_free(&whole);
    forgery_free(&cut);
    forgery_free(&damaged);
    kvern_state_destroy(other);
    kvern_state_destroy(live);
    kvern_state_destroy(twin);
}

static void damaged_pages_are_named(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *t = new_state(0);
    (void)save_calls(s, "f");
    forgery f = forgery_read("f");
    size_t bytes;
    kvern_file *file;
    forgery_tensor(&f, file_context, "pages.3.first", &bytes)[100] ^= 1;
    assert_ok(kvern_file_open_memory(file_context, f.data, f.bytes, &file)); // pages on demand
    assert_status(KVERN_ERR_FORMAT, kvern_file_verify(file));
    assert_non_null(strstr(kvern_error_detail(), "layer 3: page 0 of the first form"));
    kvern_file_load_options options = kvern_file_load_options_default();
    options.copy = 1;
    assert_status(KVERN_ERR_FORMAT, kvern_file_load(file, &options, t));
    options.copy = 0;
    options.verify = 1;
    assert_status(KVERN_ERR_FORMAT, kvern_file_load(file, &options, t));
    assert_int_equal(0, kvern_state_rows(t));
    options.verify = 0;
    assert_ok(kvern_file_load(file, &options, t)); // wrong numbers, for who does not ask
    kvern_state_destroy(t);
    kvern_file_close(file);
    kvern_state_destroy(s);
    forgery_free(&f);
}

// ---- Files that are forged ----

// Fails the test unless a file whose header has `to` in place of `from` is refused so.
static void expect_forged_header(const char *from, const char *to, kvern_status wanted,
                                 const char *part)
{
    kvern_state *t = new_state(0);
    forgery f = forgery_read("f");
    assert_true(forgery_replace(&f, from, to));
    forgery_sum(&f, file_context, false);
    const kvern_status status = use_file(&f, false, t);
    if (status != wanted || !strstr(kvern_error_detail(), part))
        fail_msg("%s: %s '%s', not '%s'", to, kvern_status_name(status), kvern_error_detail(),
                 part);
    assert_int_equal(0, kvern_state_rows(t));
    forgery_free(&f);
    kvern_state_destroy(t);
}

static void forged_headers_are_refused_by_name(void **state)
{
    (void)state;
    kvern_state *s = filled_state();
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_content content = kvern_file_content_default();
    identity.model = "m";
    content.identity = &identity;
    assert_ok(kvern_file_save(s, &content, folder_path("f")));
    expect_forged_header("\"version\":\"1\"", "\"version\":\"7\"", KVERN_ERR_UNSUPPORTED,
                         "version 7 of the format; this library knows version 1");
    expect_forged_header("\"version\":\"1\"", "\"version\":\"0\"", KVERN_ERR_UNSUPPORTED,
                         "version 0");
    expect_forged_header("\"version\":\"1\"", "\"version\":\"x\"", KVERN_ERR_FORMAT,
                         "metadata version is x");
    expect_forged_header("kvern-cache", "other-cache", KVERN_ERR_FORMAT, "format is other-cache");
    expect_forged_header("\"page_positions\":\"64\"", "\"page_positions\":\"32\"",
                         KVERN_ERR_UNSUPPORTED, "pages of 32 positions");
    expect_forged_header("\"layers\":\"5\"", "\"layers\":\"0\"", KVERN_ERR_FORMAT, "no layers");
    expect_forged_header("\"layers\":\"5\"", "\"layers\":\"6\"", KVERN_ERR_FORMAT,
                         "layer 5 has no signature");
    expect_forged_header("\"layers\":\"5\"", "\"layers\":\"4\"", KVERN_ERR_UNSUPPORTED,
                         "metadata layer.4 is not known");
    expect_forged_header("\"rows\":\"2\"", "\"rows\":\"9\"", KVERN_ERR_FORMAT, "snapshot");
    expect_forged_header("identity.model", "identity.moder", KVERN_ERR_UNSUPPORTED,
                         "metadata identity.moder is not known");
    expect_forged_header("\"snapshots\":", "\"snapshotz\":", KVERN_ERR_UNSUPPORTED,
                         "tensor snapshotz is not known");
    expect_forged_header("\"pages.4\":", "\"pages.5\":", KVERN_ERR_UNSUPPORTED,
                         "tensor pages.5 is not known");
    // E3: a kind of layer that nobody knows.
    expect_forged_header("\"window", "\"wimdow", KVERN_ERR_UNSUPPORTED, "layer 0: rows of wimdow");
    kvern_state_destroy(s);
}

// A signature that is no layer's, in place of the first one, `window20+2+4:h1:k8=bf16:v8=bf16`.
static void expect_no_composition(const char *signature)
{
    static const char own[] = "window20+2+4:h1:k8=bf16:v8=bf16";
    kvern_file *file;
    kvern_composition *made;
    forgery f = forgery_read("f");
    assert_int_equal(strlen(own), strlen(signature));
    assert_true(forgery_replace(&f, own, signature));
    forgery_sum(&f, file_context, false);
    const uint64_t held = file_books.held_bytes;
    assert_ok(kvern_file_open_memory(file_context, f.data, f.bytes, &file));
    const kvern_status status = kvern_file_composition(file, &made);
    if (!status || made || !strstr(kvern_error_detail(), "layer 0"))
        fail_msg("%s: %s", signature, kvern_error_detail());
    kvern_file_close(file);
    assert_true(file_books.held_bytes == held);
    forgery_free(&f);
}

static void signatures_of_no_layer_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "wimdow20+2+4:h1:k8=bf16:v8=bf16", "window20+2+4:h1:k8=bf16:v8=bf17",
        "window20+2+4:h1:k8=bf16:v8=bf1 ", "window-1+2+4:h1:k8=bf16:v8=bf16",
        "window20+2+4:h1:k8=bf16-v8=bf16", "window20+2+4:h1:k8=bf16:w8=bf16",
        "window20+2+4:h0:k8=bf16:v8=bf16", "window02+2+4:h1:k8=bf16:v8=bf16",
        "full:h1:k128=turbo4r9c9:v8=bf16", "full:h4294967297:k16=f32:v8=f32",
        "full:h99999999999999:k8=f32:v8=", "full:h1234567890123456789012345",
        "shared:0:full:h01:k16=f32:v8=f3", "shared:99999999999:full:h1:k8=f",
        "latent:latent8=f32:rope8=f32:in", "delta:h1/2:k8:v8:conv3:start123",
        "ssd:h999999999999/9:k8:v8:conv3", "lane:bytes999999999999999999999",
        "full:h1:k64=affine4g48f16:v8=f3", "full:h1:k64=affineg64bf16:v8=f1",
        "full:h1:k16=f32:v16=f32:start00", "full:h1:k8=f32:v8=f32:precise4+",
        "latent:latent12=bf16:rope08=f16", "full:h1:k64=rotated4g64bf16:v8=",
        "delta:h1/2:k8:v8:conv4294967299"};
    kvern_state *s = filled_state();
    (void)save_calls(s, "f");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_no_composition(bad[i]);
    kvern_state_destroy(s);
}

static void notes_bear_on_nothing(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *t = new_state(0);
    kvern_file_key keys[] = {{"abcdef", "x"}};
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_content content = kvern_file_content_default();
    identity.keys = keys;
    identity.key_count = 1;
    content.identity = &identity;
    assert_ok(kvern_file_save(s, &content, folder_path("f")));
    forgery f = forgery_read("f");
    assert_true(forgery_replace(&f, "identity.user.abcdef", "note.5678901234567.x"));
    forgery_sum(&f, file_context, false);
    assert_ok(use_file(&f, false, t));
    expect_same_rows(s, t, "with a note");
    kvern_state_destroy(t);
    kvern_state_destroy(s);
    forgery_free(&f);
}

static void fault_e10_parts_that_disagree_are_refused(void **state)
{
    (void)state;
    kvern_state *s = filled_state(), *t = new_state(0);
    (void)save_calls(s, "f");
    forgery f = forgery_read("f");
    size_t bytes;
    int64_t *records = (int64_t *)forgery_tensor(&f, file_context, "records", &bytes);
    // Layer 2, the recurrent one, row 0: 33 positions in all others.
    int64_t *length = records + (2 * 3 + 0) * KVERN_RECORD_FIELDS;
    assert_int_equal(33, *length);
    *length = 32;
    forgery_sum(&f, file_context, false);
    assert_status(KVERN_ERR_FORMAT, use_file(&f, false, t));
    assert_non_null(strstr(kvern_error_detail(), "layer 2, row 0: 32 positions, not 33"));
    kvern_state_destroy(t);
    kvern_state_destroy(s);
    forgery_free(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(each_disk_call_may_fail_or_kill),
        TEST(a_full_disk_leaves_the_old_file),
        TEST(each_allocation_of_a_save_may_fail),
        TEST(each_allocation_of_a_load_may_fail),
        TEST(budgets_hold_copies_but_not_what_is_mapped),
        TEST(fault_f2_files_cut_at_every_byte_are_refused),
        TEST(a_change_of_any_byte_is_found),
        TEST(fault_f1_a_refused_load_leaves_the_live_state),
        TEST(damaged_pages_are_named),
        TEST(forged_headers_are_refused_by_name),
        TEST(signatures_of_no_layer_are_refused),
        TEST(notes_bear_on_nothing),
        TEST(fault_e10_parts_that_disagree_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
