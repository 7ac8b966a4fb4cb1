// SPDX-License-Identifier: MIT
// Files that appear whole: whatever fails or is killed, a name stands for the old file or the new
// one. Faults F12 and F13 of other systems.
#include "src/file/disk/atomic_file.h"
#include "tests/support/bad_disk.h"
#include "tests/support/check.h"
#include "tests/support/file_bed.h"
#include "tests/support/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <kvern/kvern.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART ((size_t)3000)
#define PARTS 5

// Writes PARTS parts that consist of one letter.
static kvern_status save(const kvern_disk_calls *calls, const char *path, char letter)
{
    kvern_atomic_file file;
    char part[PART];
    memset(part, letter, sizeof part);
    kvern_status status = kvern_atomic_file_begin(&file_context->heap, calls, path, &file);
    if (status)
        return status;
    status = kvern_atomic_file_expect(&file, PARTS * PART);
    for (int i = 0; i < PARTS && !status; i++)
        status = kvern_atomic_file_write(&file, part, sizeof part);
    if (!status)
        return kvern_atomic_file_commit(&file);
    kvern_atomic_file_abandon(&file);
    return status;
}

// The letter that the file consists of; 0: it is not there. Fails the test when it is not whole.
static char letter_of(const char *name)
{
    size_t bytes;
    if (!folder_has(name))
        return 0;
    unsigned char *data = folder_read(name, &bytes);
    const char letter = (char)data[0];
    assert_int_equal(PARTS * PART, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(letter, data[i]);
    free(data);
    return letter;
}

static void each_call_that_fails_leaves_the_old_file(void **state)
{
    (void)state;
    assert_ok(save(NULL, folder_path("f"), 'a'));
    // Five writes, a sync, a rename, and the directory's sync.
    for (int fail_at = 0; fail_at < PARTS + 3; fail_at++) {
        bad_disk disk = {.fail_at = fail_at};
        const kvern_disk_calls calls = bad_disk_calls(&disk);
        assert_status(KVERN_ERR_IO, save(&calls, folder_path("f"), 'b'));
        const bool renamed = fail_at == PARTS + 2;
        assert_int_equal(renamed ? 'b' : 'a', letter_of("f"));
        assert_true(!renamed || strstr(kvern_error_detail(), "is new, but its directory"));
        folder_expect_files(1);
    }
}

static void short_writes_go_on(void **state)
{
    (void)state;
    bad_disk disk = {.fail_at = -1, .shortens = true};
    const kvern_disk_calls calls = bad_disk_calls(&disk);
    assert_ok(save(&calls, folder_path("f"), 'c'));
    assert_int_equal('c', letter_of("f"));
    assert_true(disk.call > PARTS + 3);
}

static void fault_f12_a_kill_at_any_call_leaves_a_whole_file(void **state)
{
    (void)state;
    assert_ok(save(NULL, folder_path("f"), 'a'));
    for (int fail_at = 0; fail_at < PARTS + 3; fail_at++) {
        const pid_t child = fork();
        if (child == 0) {
            bad_disk disk = {.fail_at = fail_at, .kills = true};
            const kvern_disk_calls calls = bad_disk_calls(&disk);
            _exit(save(&calls, folder_path("f"), 'b') ? 1 : 0);
        }
        int code;
        assert_int_equal(child, waitpid(child, &code, 0));
        assert_true(WIFSIGNALED(code) && WTERMSIG(code) == SIGKILL);
        assert_int_equal(fail_at == PARTS + 2 ? 'b' : 'a', letter_of("f"));
        // What it left is used by the next one.
        assert_true(folder_files() <= 2);
        assert_ok(save(NULL, folder_path("f"), 'a'));
        folder_expect_files(1);
    }
}

static void fault_f12_a_smaller_file_replaces_all_of_a_larger_one(void **state)
{
    (void)state;
    kvern_atomic_file file;
    assert_ok(save(NULL, folder_path("f"), 'a'));
    assert_ok(kvern_atomic_file_begin(&file_context->heap, NULL, folder_path("f"), &file));
    assert_ok(kvern_atomic_file_write(&file, "x", 1));
    assert_ok(kvern_atomic_file_commit(&file));
    size_t bytes;
    free(folder_read("f", &bytes));
    assert_int_equal(1, bytes);
}

static void fault_f13_two_writers_of_one_path_do_not_meet(void **state)
{
    (void)state;
    kvern_atomic_file one, two;
    const char *path = folder_path("f");
    assert_ok(save(NULL, path, 'a'));
    assert_ok(kvern_atomic_file_begin(&file_context->heap, NULL, path, &one));
    assert_ok(kvern_atomic_file_begin(&file_context->heap, NULL, path, &two));
    assert_true(folder_has("f.tmp-0") && folder_has("f.tmp-1"));
    char part[PART * PARTS];
    memset(part, '1', sizeof part);
    assert_ok(kvern_atomic_file_write(&one, part, sizeof part));
    assert_ok(kvern_atomic_file_write(&two, part, 7));
    assert_ok(kvern_atomic_file_commit(&one));
    assert_int_equal('1', letter_of("f"));
    kvern_atomic_file_abandon(&two);
    assert_int_equal('1', letter_of("f"));
    folder_expect_files(1);
}

typedef struct saver {
    pthread_t thread;
    const char *path;
    char letter;
} saver;

static void *save_often(void *arg)
{
    const saver *s = arg;
    for (int i = 0; i < 100; i++) {
        if (save(NULL, s->path, s->letter))
            return arg;
    }
    return NULL;
}

static void fault_f13_many_threads_save_one_path(void **state)
{
    (void)state;
    saver savers[4];
    const char *path = folder_path("f");
    assert_ok(save(NULL, path, 'a'));
    for (int i = 0; i < 4; i++) {
        savers[i] = (saver){.path = path, .letter = (char)('a' + i)};
        assert_int_equal(0, pthread_create(&savers[i].thread, NULL, save_often, &savers[i]));
    }
    // The helper hands out a path 16 times before it uses its memory again.
    for (int i = 0; i < 7; i++)
        assert_true(letter_of("f"));
    for (int i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(0, pthread_join(savers[i].thread, &failed));
        assert_null(failed);
    }
    assert_true(letter_of("f"));
    folder_expect_files(1);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    assert_ok(save(NULL, folder_path("f"), 'a'));
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit limit = {PART * 2, PART * 2};
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit))
            _exit(3);
        _exit(save(NULL, folder_path("f"), 'b') == KVERN_ERR_IO ? 0 : 1);
    }
    int code;
    assert_int_equal(child, waitpid(child, &code, 0));
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    assert_int_equal('a', letter_of("f"));
    folder_expect_files(1);
}

static void names_of_others_are_left_alone(void **state)
{
    (void)state;
    // A link that leads elsewhere, and a file that somebody holds.
    folder_write("other", "other", 5);
    assert_int_equal(0, symlink(folder_path("other"), folder_path("g.tmp-0")));
    folder_write("g.tmp-1", "held", 4);
    const int held = open(folder_path("g.tmp-1"), O_RDONLY);
    assert_int_equal(0, flock(held, LOCK_EX));
    assert_ok(save(NULL, folder_path("g"), 'g'));
    assert_int_equal('g', letter_of("g"));
    size_t bytes;
    free(folder_read("g.tmp-1", &bytes));
    assert_int_equal(4, bytes);
    free(folder_read("other", &bytes));
    assert_int_equal(5, bytes);
    close(held);
    struct stat facts;
    assert_int_equal(0, stat(folder_path("g"), &facts));
    assert_int_equal(0600, facts.st_mode & 0777);
}

static void places_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    assert_status(KVERN_ERR_IO, save(NULL, folder_path("absent/f"), 'a'));
    assert_status(KVERN_ERR_IO, save(NULL, "/proc/f", 'a'));
    assert_status(KVERN_ERR_IO, save(NULL, "", 'a'));
    char name[300];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_status(KVERN_ERR_IO, save(NULL, folder_path(name), 'a'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_call_that_fails_leaves_the_old_file, file_bed_set_up,
                                        file_bed_tear_down),
        cmocka_unit_test_setup_teardown(short_writes_go_on, file_bed_set_up, file_bed_tear_down),
        cmocka_unit_test_setup_teardown(fault_f12_a_kill_at_any_call_leaves_a_whole_file,
                                        file_bed_set_up, file_bed_tear_down),
        cmocka_unit_test_setup_teardown(fault_f12_a_smaller_file_replaces_all_of_a_larger_one,
                                        file_bed_set_up, file_bed_tear_down),
        cmocka_unit_test_setup_teardown(fault_f13_two_writers_of_one_path_do_not_meet,
                                        file_bed_set_up, file_bed_tear_down),
        cmocka_unit_test_setup_teardown(fault_f13_many_threads_save_one_path, file_bed_set_up,
                                        file_bed_tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_the_old_file, file_bed_set_up,
                                        file_bed_tear_down),
        cmocka_unit_test_setup_teardown(names_of_others_are_left_alone, file_bed_set_up,
                                        file_bed_tear_down),
        cmocka_unit_test_setup_teardown(places_that_cannot_be_written_are_refused, file_bed_set_up,
                                        file_bed_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
