// SPDX-License-Identifier: MIT
// Prompt caches of mlx-lm under every kind of bad luck: files cut at each byte, each byte turned
// into others, and each allocation of reading and writing one refused once. What is refused leaves
// nothing behind. Faults F1, F2, F4 and T3 of other systems.
#include "tests/support/check.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"
#include "tests/support/mlx_case.h"
#include "tests/support/mlx_forge.h"

#include <kvern/mlx_cache.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Files that were damaged ----

// Opens a file and reads its rows, as far as it goes; says whether all of it went well.
static bool try_file(const mlx_case *c, const char *path)
{
    kvern_composition *composition = mlx_case_composition(file_context, c);
    kvern_mlx_file *file;
    kvern_state *state = NULL;
    kvern_status status = kvern_mlx_open(file_context, path, &file);
    if (!status)
        status = kvern_mlx_import(file, composition, NULL, &state);
    assert_true((state != NULL) == !status);
    kvern_state_destroy(state);
    kvern_mlx_close(file);
    kvern_composition_release(composition);
    return !status;
}

static void cut_at_every_byte(const char *golden, const char *name)
{
    const mlx_case c = mlx_case_named(name);
    mlx_forgery whole = mlx_forge(golden);
    for (size_t bytes = 1; bytes < whole.bytes; bytes += bytes < 2000 ? 1 : 101) {
        folder_write("cut", whole.data, bytes);
        assert_false(try_file(&c, folder_path("cut")));
    }
    folder_write("cut", whole.data, whole.bytes);
    assert_true(try_file(&c, folder_path("cut")));
    mlx_forgery_free(&whole);
}

static void fault_f2_files_that_are_cut(void **unused)
{
    (void)unused;
    cut_at_every_byte("infos-concatenate.safetensors", "concatenate");
    cut_at_every_byte("infos-batch.safetensors", "batch");
    cut_at_every_byte("states-merged.safetensors", "merged");
}

// Whatever becomes of the header, reading it ends well or with an error.
static void bytes_that_are_turned(void **unused)
{
    (void)unused;
    static const char *const names[] = {"batch", "merged", "hybrid"};
    for (size_t i = 0; i < 3; i++) {
        const mlx_case c = mlx_case_named(names[i]);
        char golden[80];
        snprintf(golden, sizeof golden, "infos-%s.safetensors", names[i]);
        mlx_forgery whole = mlx_forge(golden);
        uint64_t header;
        memcpy(&header, whole.data, sizeof header);
        for (size_t at = 0; at < 8 + header; at++) {
            const unsigned char was = whole.data[at];
            whole.data[at] = (unsigned char)(was ^ (1u << at % 7));
            folder_write("turned", whole.data, whole.bytes);
            (void)try_file(&c, folder_path("turned"));
            whole.data[at] = was;
        }
        mlx_forgery_free(&whole);
    }
}

// The numbers in the newer layout are tensors.
static void numbers_that_are_anything(void **unused)
{
    (void)unused;
    static const int32_t numbers[] = {0, 1, -1, 7, 8, 9, 255, 256, 257, INT32_MAX, INT32_MIN};
    static const char *const tensors[] = {"0.2", "0.3", "0.4", "1.2", "1.3",
                                          "1.4", "1.5", "1.6", "3.6"};
    const mlx_case c = mlx_case_named("batch");
    for (size_t t = 0; t < sizeof tensors / sizeof tensors[0]; t++) {
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            mlx_forgery forgery = mlx_forge("states-batch.safetensors");
            mlx_forge_number(&forgery, tensors[t], 0, numbers[i]);
            (void)try_file(&c, mlx_forge_write(&forgery));
        }
    }
}

// ---- Memory that is refused ----

static kvern_status read_all(kvern_composition *composition, const char *path)
{
    kvern_mlx_file *file;
    kvern_state *state = NULL;
    kvern_cache *cache = NULL;
    kvern_status status = kvern_mlx_open(file_context, path, &file);
    if (!status)
        status = kvern_mlx_import(file, composition, NULL, &state);
    if (!status)
        status = kvern_cache_create(composition, 0, kvern_mlx_rows(file), &cache);
    if (!status) {
        int64_t lengths[MLX_MOST_ROWS];
        kvern_mlx_import_options options = kvern_mlx_import_options_default();
        options.lengths = lengths;
        for (size_t r = 0; r < kvern_mlx_rows(file); r++)
            lengths[r] = kvern_mlx_length(file, r);
        status = kvern_mlx_import_cache(file, 0, &options, cache);
    }
    for (size_t r = 0; cache && status && r < kvern_cache_rows(cache); r++)
        assert_int_equal(0, kvern_cache_length(cache, r));
    kvern_cache_destroy(cache);
    kvern_state_destroy(state);
    kvern_mlx_close(file);
    return status;
}

static kvern_status write_all(const mlx_case *c, const kvern_state *state, const char *path)
{
    kvern_mlx_export_options options = kvern_mlx_export_options_default();
    options.lists = c->lists;
    options.list_count = c->list_count;
    return kvern_mlx_export(state, NULL, 0, path, &options);
}

// Refuses one allocation after the other until the call goes through.
static void each_allocation_is_refused_once(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < mlx_case_count; i++) {
        const mlx_case c = mlx_case_at(i);
        char path[300];
        snprintf(path, sizeof path, "%s/golden/mlx/states-%s.safetensors", KVERN_TESTS_DIR, c.name);
        kvern_composition *composition = mlx_case_composition(file_context, &c);
        kvern_status status = KVERN_ERR_MEMORY;
        for (int64_t granted = 0; status; granted++) {
            kvern_context_trim(file_context);
            const uint64_t held = file_books.held_bytes;
            ledger_refuse(&file_books, granted);
            status = read_all(composition, path);
            (void)ledger_relent(&file_books);
            assert_true(status == KVERN_OK || status == KVERN_ERR_MEMORY);
            kvern_context_trim(file_context);
            assert_true(file_books.held_bytes == held);
        }
        kvern_mlx_file *file;
        kvern_state *state;
        assert_ok(kvern_mlx_open(file_context, path, &file));
        assert_ok(kvern_mlx_import(file, composition, NULL, &state));
        kvern_mlx_close(file);
        status = KVERN_ERR_MEMORY;
        for (int64_t granted = 0; status; granted++) {
            ledger_refuse(&file_books, granted);
            status = write_all(&c, state, folder_path("refused.safetensors"));
            (void)ledger_relent(&file_books);
            assert_true(status == KVERN_OK || status == KVERN_ERR_MEMORY);
            assert_int_equal(status == KVERN_OK, folder_has("refused.safetensors"));
        }
        mlx_case_check(&c, 1, state);
        remove(folder_path("refused.safetensors"));
        folder_expect_files(folder_files());
        kvern_state_destroy(state);
        kvern_composition_release(composition);
    }
}

// ---- A file that is read while it is written anew ----

enum { TURNS = 25 };

static void *write_again(void *user)
{
    const kvern_state *const *states = user;
    for (int i = 0; i < TURNS; i++)
        assert_ok(kvern_mlx_export(states[i % 2], NULL, 0, folder_path("shared"), NULL));
    return NULL;
}

// T3: the old rows or the new ones, never some of each.
static void fault_t3_read_while_written(void **unused)
{
    (void)unused;
    const mlx_case c = mlx_case_named("kv");
    kvern_composition *composition = mlx_case_composition(file_context, &c);
    kvern_state *states[2];
    pthread_t writer;
    for (size_t i = 0; i < 2; i++) {
        assert_ok(kvern_state_create(composition, 1, &states[i]));
        mlx_case_fill(&c, i + 1, states[i], 11);
    }
    assert_ok(kvern_mlx_export(states[0], NULL, 0, folder_path("shared"), NULL));
    assert_int_equal(0, pthread_create(&writer, NULL, write_again, states));
    for (int i = 0; i < TURNS; i++) {
        kvern_mlx_file *file;
        kvern_state *state;
        float k[16], v[16];
        assert_ok(kvern_mlx_open(file_context, folder_path("shared"), &file));
        assert_ok(kvern_mlx_import(file, composition, NULL, &state));
        assert_ok(kvern_cache_export(kvern_state_cache(state, 0), 0, 0, 1, k, v));
        const bool first = k[0] == mlx_number(1, 0, MLX_KEYS, 0, 0, 0, 0);
        mlx_case_check(&c, first ? 1 : 2, state);
        kvern_state_destroy(state);
        kvern_mlx_close(file);
    }
    assert_int_equal(0, pthread_join(writer, NULL));
    for (size_t i = 0; i < 2; i++)
        kvern_state_destroy(states[i]);
    kvern_composition_release(composition);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_f2_files_that_are_cut),
        cmocka_unit_test(bytes_that_are_turned),
        cmocka_unit_test(numbers_that_are_anything),
        cmocka_unit_test(each_allocation_is_refused_once),
        cmocka_unit_test(fault_t3_read_while_written),
    };
    return cmocka_run_group_tests(tests, file_bed_set_up, file_bed_tear_down);
}
