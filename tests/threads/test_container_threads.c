// SPDX-License-Identifier: MIT
// Files of rows and threads: savers and loaders of one path, and states that share mapped pages on
// several threads. Faults F13 and T3 of other systems.
#include "src/file/container/container.h"
#include "tests/support/feed.h"
#include "tests/support/folder.h"
#include "tests/support/mixed_state.h"

#include <kvern/kvern.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check.h"

#define SAVES 60

typedef struct world {
    kvern_context *context;
    kvern_composition *composition;
    char path[600];
    _Atomic int saving;
    _Atomic int loads[2]; // of each content
} world;

static world w;

// One row of 64 (content 0) or 130 positions (content 1) in every layer.
static int64_t length_of(int content)
{
    return content ? 130 : 64;
}

static int no_sync(void *user, int file)
{
    (void)user;
    (void)file;
    return 0;
}

typedef struct saver {
    pthread_t thread;
    kvern_state *state;
} saver;

static void *save_often(void *arg)
{
    const saver *s = arg;
    kvern_disk_calls calls = kvern_system_disk;
    calls.sync = no_sync; // files appear in the same order without
    for (int i = 0; i < SAVES; i++) {
        if (kvern_file_save_by(&calls, s->state, NULL, w.path))
            return arg;
    }
    atomic_fetch_sub(&w.saving, 1);
    return NULL;
}

// Loads until nobody saves any more; what there is must be whole, and one content or the other.
static void *load_often(void *arg)
{
    do {
        kvern_file *file;
        kvern_state *s;
        kvern_file_load_options options = kvern_file_load_options_default();
        options.verify = 1;
        if (kvern_state_create(w.composition, 0, &s))
            return arg;
        kvern_status status = kvern_file_open(w.context, w.path, &file);
        if (!status)
            status = kvern_file_load(file, &options, s);
        kvern_file_close(file);
        const int64_t length = status ? 0 : kvern_state_length(s, 0);
        kvern_state_destroy(s);
        if (status || (length != length_of(0) && length != length_of(1)))
            return arg;
        atomic_fetch_add(&w.loads[length == length_of(1)], 1);
    } while (atomic_load(&w.saving) > 0);
    return NULL;
}

static void open_world(void)
{
    kvern_layer layers[MIXED_LAYERS];
    kvern_context_options options = kvern_context_options_default();
    mixed_plan(layers);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &w.context));
    assert_ok(kvern_composition_create(w.context, layers, MIXED_LAYERS, &w.composition));
    strcpy(w.path, folder_path("f"));
}

static void close_world(void)
{
    kvern_composition_release(w.composition);
    kvern_context_release(w.context);
}

static kvern_state *new_state(int content)
{
    kvern_state *s;
    assert_ok(kvern_state_create(w.composition, 1, &s));
    mixed_feed(s, KVERN_PHASE_WINDOW, 5 + (uint64_t)content, length_of(content), NULL);
    return s;
}

static void fault_t3_loads_beside_saves_find_whole_files(void **state)
{
    (void)state;
    saver savers[2];
    pthread_t loaders[2];
    open_world();
    atomic_store(&w.saving, 2);
    for (int i = 0; i < 2; i++)
        savers[i].state = new_state(i);
    assert_ok(kvern_file_save(savers[0].state, NULL, w.path));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(0, pthread_create(&savers[i].thread, NULL, save_often, &savers[i]));
        assert_int_equal(0, pthread_create(&loaders[i], NULL, load_often, &w));
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        assert_int_equal(0, pthread_join(savers[i].thread, &failed));
        assert_null(failed);
        assert_int_equal(0, pthread_join(loaders[i], &failed));
        assert_null(failed);
        kvern_state_destroy(savers[i].state);
    }
    assert_true(atomic_load(&w.loads[0]) + atomic_load(&w.loads[1]) >= 2);
    folder_expect_files(1);
    close_world();
}

// ---- One mapping on several threads ----

typedef struct user {
    pthread_t thread;
    const kvern_file *file;
    float *out; // of some decodes
    size_t floats;
} user;

#define DECODES 20

static void *use_rows(void *arg)
{
    user *u = arg;
    kvern_state *s;
    if (kvern_state_create(w.composition, 0, &s) || kvern_file_load(u->file, NULL, s))
        return arg;
    for (int i = 0; i < DECODES; i++)
        mixed_feed(s, KVERN_PHASE_DECODE, 6, 1, u->out + (size_t)i * mixed_outputs(1));
    kvern_state_destroy(s);
    return NULL;
}

static void threads_share_what_one_file_maps(void **state)
{
    (void)state;
    user users[4];
    kvern_file *file;
    open_world();
    kvern_state *s = new_state(1);
    assert_ok(kvern_file_save(s, NULL, w.path));
    assert_ok(kvern_file_open(w.context, w.path, &file));
    for (int i = 0; i < 4; i++) {
        users[i].file = file;
        users[i].floats = DECODES * mixed_outputs(1);
        users[i].out = malloc(users[i].floats * sizeof(float));
        assert_non_null(users[i].out);
        assert_int_equal(0, pthread_create(&users[i].thread, NULL, use_rows, &users[i]));
    }
    float *wanted = malloc(users[0].floats * sizeof *wanted);
    assert_non_null(wanted);
    for (int i = 0; i < DECODES; i++)
        mixed_feed(s, KVERN_PHASE_DECODE, 6, 1, wanted + (size_t)i * mixed_outputs(1));
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(0, pthread_join(users[i].thread, &failed));
        assert_null(failed);
        check_same_floats(wanted, users[i].out, users[i].floats, "on another thread");
        free(users[i].out);
    }
    free(wanted);
    kvern_file_close(file);
    kvern_state_destroy(s);
    close_world();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fault_t3_loads_beside_saves_find_whole_files),
        cmocka_unit_test(threads_share_what_one_file_maps),
    };
    folder_make();
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove();
    return failed;
}
