// SPDX-License-Identifier: MIT
// Random programs of calls with a small budget and an allocator that refuses now and then (see
// twins.h): whatever is refused has changed nothing.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/support/twins.h"

static void open_side(test_random *random, twin_side *side, uint64_t budget)
{
    const kernel_variants variants = kernel_variants_here();
    kvern_context_options options = kvern_context_options_default();
    options.budget_bytes = budget;
    options.executor = executor_shuffled(1 + test_random_below(random, 3));
    options.cpu_features = variants.features[test_random_below(random, variants.count)];
    twin_side_open(side, &options);
}

static void refused_calls_change_nothing(void **state)
{
    (void)state;
    const int programs = check_repetitions(40, 3000);
    uint64_t calls = 0, refused = 0;
    for (int i = 0; i < programs; i++) {
        const uint64_t seed = check_seed() + (uint64_t)i * 1000003;
        test_random random = test_random_seed(seed);
        twin_side poor, rich;
        open_side(&random, &poor, 500000 + test_random_below(&random, 4000000));
        open_side(&random, &rich, 0);
        twins *w = twins_create(test_random_next(&random), &poor, &rich, true);
        twins_run(w, 400);
        calls += twins_calls(w);
        refused += twins_refused(w);
        twins_destroy(w);
        twin_side_close(&poor);
        twin_side_close(&rich);
    }
    print_message("%llu of %llu calls were refused memory\n", (unsigned long long)refused,
                  (unsigned long long)calls);
    assert_true(refused * 60 > calls && refused * 2 < calls);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_calls_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
