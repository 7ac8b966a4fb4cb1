// SPDX-License-Identifier: MIT
// Same bits for logits from several threads. ThreadSanitizer runs this program.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/served_sequence.h"
#include "tests/support/tiny_llama.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKENS 80
// Steps for a pool. Where it has more threads than there are idle processors, every parallel region
// waits for the system's scheduler.
#define POOL_DECODES 3

// A thread for every task, all at once: more mixing than a pool gives.
static void one_thread_per_task(engine_fixture_options options, const served_sequence *s)
{
    options.context.executor = executor_threads(3);
    engine_fixture f = engine_fixture_open(&options);
    serve_window(&f, s);
    serve_in_batch(&f, s, 8);
    engine_fixture_close(&f);
}

static void pool(engine_fixture_options options, size_t threads, const served_sequence *s)
{
    options.context.threads = threads;
    engine_fixture f = engine_fixture_open(&options);
    served_sequence beginning = served_sequence_beginning(s, POOL_DECODES);
    serve_window(&f, s);
    serve_decodes(&f, &beginning);
    engine_fixture_close(&f);
}

static void check_tiny(uint32_t type)
{
    tiny_llama model = tiny_llama_default(type);
    size_t bytes;
    void *file = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    options.kv = KVERN_BF16;
    served_sequence s = served_sequence_create(&options, TOKENS, model.vocabulary, type);
    one_thread_per_task(options, &s);
    pool(options, 2, &s);
    pool(options, 3, &s);
    served_sequence_free(&s);
    free(file);
}

static void tiny_models(void **state)
{
    (void)state;
    check_tiny(GGUF_TYPE_F16);
    check_tiny(GGUF_TYPE_Q4_1);
}

static void a_real_model(void **state)
{
    (void)state;
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    options.path = getenv("KVERN_TEST_MODEL");
    options.kv = KVERN_BF16;
    if (!options.path) {
        printf("not run: KVERN_TEST_MODEL names no model file\n");
        skip();
    }
    served_sequence s = served_sequence_create(&options, 20, 20000, 3);
    pool(options, 2, &s);
    served_sequence_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models),
        cmocka_unit_test(a_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
