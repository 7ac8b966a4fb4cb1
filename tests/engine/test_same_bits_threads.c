// SPDX-License-Identifier: MIT
// Same bits for logits from a thread for every task, all at once: more mixing than a pool gives,
// and nothing that ThreadSanitizer, which runs this program, cannot see into.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/served_sequence.h"
#include "tests/support/tiny_llama.h"

#include <stdlib.h>

#define TOKENS 300 // enough work to share it out in every part of a forward pass

static void check_tiny(uint32_t type)
{
    tiny_llama model = tiny_llama_default(type);
    size_t bytes;
    void *file = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    options.kv = KVERN_BF16;
    served_sequence s = served_sequence_create(&options, TOKENS, model.vocabulary, type);
    options.context.executor = executor_threads(3);
    engine_fixture f = engine_fixture_open(&options);
    serve_window(&f, &s);
    serve_random_chunks(&f, &s, 30, 7);
    serve_in_batch(&f, &s, 8);
    engine_fixture_close(&f);
    served_sequence_free(&s);
    free(file);
}

static void tiny_models(void **state)
{
    (void)state;
    check_tiny(GGUF_TYPE_F16);
    check_tiny(GGUF_TYPE_Q4_1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
