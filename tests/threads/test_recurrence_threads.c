// SPDX-License-Identifier: MIT
// Cuts of the value heads of one row on threads of their own: the state, the outputs and the
// records of one run, and (under ThreadSanitizer) nothing that two of them write.

#include "src/recurrent/recurrence.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <kvern/cpu.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS ((size_t)40)
#define MOST_THREADS 6

typedef struct layer {
    kvern_recurrence_shape shape;
    kvern_recurrence_weights weights;
    kvern_recurrence_tokens tokens;
    float *numbers; // all inputs
} layer;

typedef struct outcome {
    float *state, *y, *records;
    size_t state_floats, y_floats, record_floats;
} outcome;

static layer layer_create(const kvern_recurrence_shape *shape)
{
    const size_t channels = kvern_recurrence_channels(shape), a = kvern_recurrence_a_floats(shape);
    const size_t weights = shape->taps * channels, heads = shape->value_heads;
    const size_t count = weights + 2 * heads + a + TOKENS * (channels + a + heads);
    layer l = {.shape = *shape, .numbers = malloc(count * sizeof(float))};
    test_random random = test_random_seed(check_seed());
    assert_non_null(l.numbers);
    for (size_t i = 0; i < count; i++)
        l.numbers[i] = 2 * test_random_signed(&random);
    const float *at = l.numbers;
    l.weights = (kvern_recurrence_weights){.conv = at,
                                           .a_log = at + weights,
                                           .skip = at + weights + heads,
                                           .dt_bias = at + weights + 2 * heads,
                                           .dt_high = 9,
                                           .q_factor = 0.1f,
                                           .k_factor = 0.25f,
                                           .norm_eps = 1e-6f,
                                           .beta_factor = 1};
    at += weights + 2 * heads + a;
    l.tokens = (kvern_recurrence_tokens){.count = TOKENS,
                                         .x = at,
                                         .a = at + TOKENS * channels,
                                         .b = at + TOKENS * (channels + a),
                                         .x_stride = channels,
                                         .a_stride = a,
                                         .b_stride = heads,
                                         .y_stride = heads * shape->v_dim};
    return l;
}

static outcome outcome_create(const layer *l)
{
    outcome o = {.state_floats = kvern_recurrence_state_floats(&l->shape),
                 .y_floats = TOKENS * l->tokens.y_stride,
                 .record_floats = TOKENS * kvern_recurrence_record_floats(&l->shape)};
    o.state = calloc(o.state_floats, sizeof(float));
    o.y = calloc(o.y_floats, sizeof(float));
    o.records = calloc(o.record_floats, sizeof(float));
    assert_true(o.state && o.y && o.records);
    return o;
}

static void outcome_destroy(outcome *o)
{
    free(o->state);
    free(o->y);
    free(o->records);
}

typedef struct part {
    const layer *layer;
    const outcome *outcome;
    size_t first_head, heads;
} part;

static void *run_part(void *argument)
{
    const part *p = argument;
    kvern_recurrence_tokens tokens = p->layer->tokens;
    tokens.y = p->outcome->y;
    float *scratch = malloc(kvern_recurrence_scratch_floats(&p->layer->shape) * sizeof(float));
    if (scratch)
        kvern_recurrence_run(kvern_cpu_features(), &p->layer->shape, &p->layer->weights,
                             p->outcome->state, p->outcome->state, &tokens, p->outcome->records,
                             p->first_head, p->heads, scratch);
    free(scratch);
    return NULL;
}

static void run_on(const layer *l, size_t threads, const outcome *o)
{
    const size_t heads = l->shape.value_heads;
    pthread_t thread[MOST_THREADS];
    part parts[MOST_THREADS];
    for (size_t i = 0; i < threads; i++) {
        const size_t first = i * heads / threads, end = (i + 1) * heads / threads;
        parts[i] = (part){l, o, first, end - first};
        assert_int_equal(pthread_create(&thread[i], NULL, run_part, &parts[i]), 0);
    }
    for (size_t i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
}

// Cuts fall between heads that share a key head, too.
static void cuts_on_threads_give_the_same_bits(void **state)
{
    (void)state;
    static const kvern_recurrence_shape shapes[] = {
        {KVERN_RULE_DELTA, 4, 2, 6, 16, 24},
        {KVERN_RULE_DELTA_CHANNELS, 3, 2, 6, 8, 16},
        {KVERN_RULE_SSD, 4, 1, 5, 16, 32},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        layer l = layer_create(&shapes[i]);
        outcome wanted = outcome_create(&l);
        run_on(&l, 1, &wanted);
        for (size_t threads = 2; threads <= MOST_THREADS; threads++) {
            outcome got = outcome_create(&l);
            run_on(&l, threads, &got);
            check_same_floats(wanted.state, got.state, got.state_floats, "state");
            check_same_floats(wanted.y, got.y, got.y_floats, "outputs");
            check_same_floats(wanted.records, got.records, got.record_floats, "records");
            outcome_destroy(&got);
        }
        outcome_destroy(&wanted);
        free(l.numbers);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_on_threads_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
