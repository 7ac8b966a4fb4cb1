// SPDX-License-Identifier: MIT
// Same bits for the logits of a real model, the file that KVERN_TEST_MODEL names: every way of
// serving a sequence on the best kernels of this machine, and the main ones on the others.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/real_model.h"
#include "tests/support/served_sequence.h"

#define TOKENS 80      // more than a page of positions
#define PLAIN_TOKENS 4 // the plain kernels take their time

static engine_fixture_options model_options(void)
{
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    options.path = real_model_path("KVERN_TEST_MODEL");
    options.kv = KVERN_BF16;
    return options;
}

static size_t token_count(void)
{
    return kvern_cpu_features() == 0 && !check_is_long() ? PLAIN_TOKENS : TOKENS;
}

static void every_way(void **state)
{
    (void)state;
    engine_fixture_options options = model_options();
    served_sequence s = served_sequence_create(&options, token_count(), 20000, 3);
    options.context.executor = executor_shuffled(5);
    engine_fixture f = engine_fixture_open(&options);
    serve_window(&f, &s);
    serve_decodes(&f, &s);
    serve_known(&f, &s, 9);
    serve_random_chunks(&f, &s, 30, 7);
    serve_after_trim(&f, &s);
    serve_in_batch(&f, &s, 8);
    engine_fixture_close(&f);
    served_sequence_free(&s);
}

static void every_instruction_set(void **state)
{
    (void)state;
    static const uint32_t sets[] = {KVERN_CPU_AVX2 | KVERN_CPU_AVX512,
                                    KVERN_CPU_AVX2 | KVERN_CPU_AVX_VNNI, KVERN_CPU_AVX2, 0};
    engine_fixture_options options = model_options();
    served_sequence s = served_sequence_create(&options, token_count(), 20000, 3);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        options.context.cpu_features = sets[i];
        engine_fixture f = engine_fixture_open(&options);
        uint32_t features = kvern_context_cpu_features(f.context);
        served_sequence part = features ? s : served_sequence_beginning(&s, PLAIN_TOKENS);
        serve_random_chunks(&f, &part, 30, 7);
        served_sequence beginning = served_sequence_beginning(&s, PLAIN_TOKENS);
        serve_decodes(&f, &beginning);
        engine_fixture_close(&f);
    }
    served_sequence_free(&s);
}

static void a_pool_of_threads(void **state)
{
    (void)state;
    engine_fixture_options options = model_options();
    served_sequence s = served_sequence_create(&options, PLAIN_TOKENS, 20000, 3);
    options.context.threads = 2;
    engine_fixture f = engine_fixture_open(&options);
    serve_window(&f, &s);
    engine_fixture_close(&f);
    served_sequence_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way),
        cmocka_unit_test(every_instruction_set),
        cmocka_unit_test(a_pool_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
