// SPDX-License-Identifier: MIT
// Every operation of the library with its first, second, ... last allocation refused: the status
// says so, nothing that the caller can see has changed, the same call succeeds afterwards with the
// results that it always has, and in the end everything has been given back.

#include "tests/support/check.h"
#include "tests/support/fault_world.h"

#include <stdbool.h>
#include <stdlib.h>

static fault_sight perfect_result(const fault_operation *operation)
{
    fault_world *w = fault_world_create(0);
    if (operation->before)
        assert_ok(operation->before(w));
    assert_ok(operation->act(w));
    fault_sight result = fault_look_at_result(w);
    fault_world_destroy(w);
    return result;
}

// Refuses the allocation after the next k ones. Returns whether there was one to refuse.
static bool try_refusal(const fault_operation *operation, int64_t k, const fault_sight *wanted)
{
    fault_world *w = fault_world_create(0);
    if (operation->before)
        assert_ok(operation->before(w));
    fault_sight was = fault_look(w);
    ledger_refuse(&w->books, k);
    kvern_status status = operation->act(w);
    const bool refused = ledger_relent(&w->books);
    if (status) { // not always: a refused arena is replaced by a smaller one
        assert_true(refused);
        assert_status(KVERN_ERR_MEMORY, status);
        assert_true(kvern_error_detail()[0]);
        fault_expect_nothing_made(w);
        fault_sight is = fault_look(w);
        fault_expect_equal(&was, &is, operation->name);
        free(is.bytes);
        assert_ok(operation->act(w));
    }
    fault_sight result = fault_look_at_result(w);
    fault_expect_equal(wanted, &result, operation->name);
    free(result.bytes);
    free(was.bytes);
    fault_world_destroy(w);
    return refused;
}

static void every_allocation_may_be_refused(void **state)
{
    const fault_operation *operation = *state;
    fault_sight wanted = perfect_result(operation);
    int64_t k = 0;
    while (try_refusal(operation, k, &wanted))
        k++;
    assert_true(k > 0);
    free(wanted.bytes);
}

int main(void)
{
    struct CMUnitTest tests[64];
    assert_true(fault_operation_count <= sizeof tests / sizeof tests[0]);
    for (size_t i = 0; i < fault_operation_count; i++)
        tests[i] = (struct CMUnitTest){.name = fault_operations[i].name,
                                       .test_func = every_allocation_may_be_refused,
                                       .initial_state = (void *)&fault_operations[i]};
    return _cmocka_run_group_tests("allocation_failures", tests, fault_operation_count, NULL, NULL);
}
