// SPDX-License-Identifier: MIT
// The system's own limits: no more memory, no more threads. Each scenario runs in a child process
// with little address space, so that what it exhausts is its own.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/sanitizer.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define SPACE ((size_t)400 << 20)

// Ways for a child to end.
enum { AS_WANTED = 0, OTHERWISE = 1, NO_LIMIT = 2 };

// Leaves the process SPACE bytes of address space. False where that has no effect (emulators).
static bool limit_space(void)
{
    const struct rlimit limit = {SPACE, SPACE};
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return false;
    void *more = mmap(NULL, 2 * SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (more == MAP_FAILED)
        return true;
    munmap(more, 2 * SPACE);
    return false;
}

// Runs a scenario in a child, which is killed when it hangs.
static void run_limited(int (*scenario)(void))
{
    if (HAS_SANITIZER) {
        print_message("a sanitizer needs more address space than this test leaves\n");
        skip();
    }
    int ended;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        _exit(limit_space() ? scenario() : NO_LIMIT);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    if (WEXITSTATUS(ended) == NO_LIMIT) {
        print_message("not run: the system sets no limit of address space\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(ended), AS_WANTED);
}

// More threads than there is room for their stacks: refused, not waited for.
static int start_many_threads(void)
{
    kvern_context *context = NULL;
    kvern_context_options options = kvern_context_options_default();
    options.threads = 200;
    kvern_status status = kvern_context_create(&options, &context);
    if (status == KVERN_ERR_UNSUPPORTED) // a build without a thread pool
        return AS_WANTED;
    if (status != KVERN_ERR_THREADS || context || !strstr(kvern_error_detail(), "200"))
        return OTHERWISE;
    options.threads = 3; // and nothing is left of them
    status = kvern_context_create(&options, &context);
    kvern_context_release(context);
    return status ? OTHERWISE : AS_WANTED;
}

static void threads_that_cannot_be_started(void **state)
{
    (void)state;
    run_limited(start_many_threads);
}

// Appends until the system has no more memory; the row is intact then, and can go on after a trim.
static int fill_memory(void)
{
    enum { HEADS = 8, DIM = 128, CHUNK = 4096 };
    kvern_context_options options = kvern_context_options_default();
    const kvern_layer layer = kvern_layer_default(HEADS, DIM);
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    static float values[HEADS * DIM], stored[HEADS * DIM];
    int64_t counts = CHUNK;
    options.threads = 1;
    if (kvern_context_create(&options, &context) ||
        kvern_composition_create(context, &layer, 1, &composition) ||
        kvern_cache_create(composition, 0, 1, &cache))
        return OTHERWISE;
    feed_values(1, 0, FEED_K, HEADS * DIM, values);
    for (size_t i = 0; i < HEADS * DIM; i++)
        values[i] = (float)(int)(values[i] * 64); // exact in bf16
    kvern_tokens tokens = kvern_tokens_default(&layer);
    tokens.k = tokens.v = values;
    tokens.k_token_stride = tokens.v_token_stride = 0;
    tokens.counts = &counts;
    kvern_status status = KVERN_OK;
    int64_t length = 0;
    for (; !status && length < 1 << 20; length += CHUNK)
        status = kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL);
    length -= CHUNK; // of the one that failed
    if (status != KVERN_ERR_MEMORY || kvern_cache_length(cache, 0) != length || length < CHUNK)
        return OTHERWISE;
    for (int64_t p = 0; p < length; p += 997) {
        if (kvern_cache_export(cache, 0, p, 1, stored, NULL) ||
            memcmp(stored, values, sizeof values) != 0)
            return OTHERWISE;
    }
    if (kvern_cache_trim(cache, 0, CHUNK) ||
        kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL))
        return OTHERWISE;
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return AS_WANTED;
}

static void memory_that_ends(void **state)
{
    (void)state;
    run_limited(fill_memory);
}

// Large rows in the system's memory, with huge pages and without: what comes back is what went in,
// and the memory goes back to the system.
static void system_memory_is_used_and_given_back(void **state)
{
    (void)state;
    static const struct {
        size_t heads, dim;
    } shapes[] = {{8, 128}, {3, 64}, {5, 64}, {16, 256}, {1, 576}, {1, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const size_t heads = shapes[i].heads, dim = shapes[i].dim;
        const kvern_layer layer = kvern_layer_default(heads, dim);
        kvern_context *context;
        kvern_composition *composition;
        kvern_cache *cache;
        assert_ok(kvern_context_create(NULL, &context));
        assert_ok(kvern_composition_create(context, &layer, 1, &composition));
        assert_ok(kvern_cache_create(composition, 0, 1, &cache));
        kvern_memory before = {.size = sizeof before}, after = before;
        assert_ok(kvern_context_memory(context, &before));
        feed f = feed_create(cache, &(uint64_t){1}, &(int64_t){700}, heads);
        assert_ok(feed_append(cache, KVERN_PHASE_WINDOW, &f, NULL));
        float *k = malloc(700 * heads * dim * sizeof *k);
        assert_non_null(k);
        assert_ok(kvern_cache_export(cache, 0, 0, 700, k, NULL));
        for (size_t j = 0; j < 700 * heads * dim; j++)
            assert_true(k[j] - f.k[j] <= 0x1p-8f && f.k[j] - k[j] <= 0x1p-8f);
        free(k);
        feed_destroy(&f);
        assert_ok(kvern_cache_reset(cache, 0));
        assert_ok(kvern_context_memory(context, &after));
        assert_int_equal(after.held_bytes, before.held_bytes);
        kvern_cache_destroy(cache);
        kvern_composition_release(composition);
        kvern_context_release(context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_cannot_be_started),
        cmocka_unit_test(memory_that_ends),
        cmocka_unit_test(system_memory_is_used_and_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
