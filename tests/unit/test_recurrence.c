// SPDX-License-Identifier: MIT
// The recurrence of one row: chunks, cuts of the heads, instruction sets and replays change no bit;
// the tail is exact; and float64 agrees.

#include "src/recurrent/recurrence.h"
#include "tests/support/check.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/random.h"
#include "tests/unit/recurrence_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT ((size_t)75) // tokens: more than two tiles of the run

// A layer, its tokens, and room for what they give.
typedef struct layer {
    kvern_recurrence_shape shape;
    kvern_recurrence_weights weights;
    kvern_recurrence_tokens tokens;
    size_t channels, state_floats, y_floats, record_floats;
    float *memory[10];
    size_t blocks;
} layer;

static float *take(layer *l, size_t floats)
{
    float *block = calloc(floats + 1, sizeof(float));
    assert_non_null(block);
    assert_true(l->blocks < sizeof l->memory / sizeof l->memory[0]);
    l->memory[l->blocks++] = block;
    return block;
}

static float *random_floats(layer *l, test_random *random, size_t floats, float size)
{
    float *x = take(l, floats);
    for (size_t i = 0; i < floats; i++)
        x[i] = size * test_random_signed(random);
    return x;
}

static layer make(const kvern_recurrence_shape *shape, uint64_t seed)
{
    layer l = {.shape = *shape};
    test_random random = test_random_seed(check_seed() * 1000 + seed);
    l.channels = kvern_recurrence_channels(shape);
    l.state_floats = kvern_recurrence_state_floats(shape);
    l.y_floats = shape->value_heads * shape->v_dim;
    l.record_floats = kvern_recurrence_record_floats(shape);
    const size_t a = kvern_recurrence_a_floats(shape), b = kvern_recurrence_b_floats(shape);
    l.weights = (kvern_recurrence_weights){
        .conv = random_floats(&l, &random, shape->taps * l.channels, 1),
        .conv_bias = random_floats(&l, &random, l.channels, 0.25f),
        .a_log = random_floats(&l, &random, shape->value_heads, 2),
        .dt_bias = random_floats(&l, &random, a, 1),
        .skip = random_floats(&l, &random, shape->value_heads, 1),
        .dt_low = 0.001f,
        .dt_high = 100,
        .q_factor = 1 / (float)shape->k_dim,
        .k_factor = 1 / sqrtf((float)shape->k_dim),
        .norm_eps = 1e-6f,
        .beta_factor = 1,
    };
    l.tokens = (kvern_recurrence_tokens){
        .count = COUNT,
        .x = random_floats(&l, &random, COUNT * l.channels, 2),
        .a = random_floats(&l, &random, COUNT * a, 2),
        .b = random_floats(&l, &random, COUNT * b, 2),
        .x_stride = l.channels,
        .a_stride = a,
        .b_stride = b,
        .y_stride = l.y_floats,
    };
    return l;
}

static void unmake(layer *l)
{
    for (size_t i = 0; i < l->blocks; i++)
        free(l->memory[i]);
}

// The tokens first to first + count - 1.
static kvern_recurrence_tokens part(const layer *l, size_t first, size_t count, float *y)
{
    kvern_recurrence_tokens tokens = l->tokens;
    tokens.count = count;
    tokens.x += first * tokens.x_stride;
    tokens.a += first * tokens.a_stride;
    tokens.b += first * tokens.b_stride;
    tokens.y = y ? y + first * tokens.y_stride : NULL;
    return tokens;
}

// What a sequence of tokens gives: the state after them, all outputs, all records.
typedef struct outcome {
    float *state, *y, *records;
} outcome;

static outcome outcome_create(const layer *l)
{
    return (outcome){calloc(l->state_floats, sizeof(float)),
                     calloc(COUNT * l->y_floats, sizeof(float)),
                     calloc(COUNT * l->record_floats, sizeof(float))};
}

static void outcome_destroy(outcome *o)
{
    free(o->state);
    free(o->y);
    free(o->records);
}

static void check_same_outcomes(const layer *l, const outcome *wanted, const outcome *got,
                                const char *what)
{
    check_same_floats(wanted->state, got->state, l->state_floats, what);
    check_same_floats(wanted->y, got->y, COUNT * l->y_floats, what);
    check_same_floats(wanted->records, got->records, COUNT * l->record_floats, what);
}

// A copy of a state whose S is going to be made anew, and is spoiled until then.
static float *take_before(const layer *l, float *state)
{
    const size_t at = kvern_recurrence_s_offset(&l->shape), bytes = l->state_floats * sizeof(float);
    float *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, state, bytes);
    memset(state + at, 0x55, bytes - at * sizeof(float));
    return before;
}

// Runs tokens first to first + count - 1; `cut` heads at a time. An even `first` changes S in
// place, an odd one makes it from another state.
static void run(const layer *l, uint32_t features, size_t first, size_t count, size_t cut,
                outcome *o)
{
    float *scratch = malloc(kvern_recurrence_scratch_floats(&l->shape) * sizeof(float));
    const kvern_recurrence_tokens tokens = part(l, first, count, o->y);
    float *before = first % 2 && count ? take_before(l, o->state) : NULL;
    assert_non_null(scratch);
    for (size_t head = 0; head < l->shape.value_heads; head += cut) {
        const size_t left = l->shape.value_heads - head;
        kvern_recurrence_run(features, &l->shape, &l->weights, before ? before : o->state, o->state,
                             &tokens, o->records + first * l->record_floats, head,
                             left < cut ? left : cut, scratch);
    }
    kvern_recurrence_move_tail(&l->shape, o->state, count, tokens.x, tokens.x_stride);
    free(before);
    free(scratch);
}

static const kvern_recurrence_shape SHAPES[] = {
    {KVERN_RULE_DELTA, 4, 2, 6, 16, 24},        {KVERN_RULE_DELTA, 0, 1, 1, 8, 40},
    {KVERN_RULE_DELTA, 1, 2, 2, 32, 32},        {KVERN_RULE_DELTA_CHANNELS, 4, 3, 3, 24, 16},
    {KVERN_RULE_DELTA_CHANNELS, 2, 2, 4, 8, 8}, {KVERN_RULE_SSD, 4, 1, 5, 16, 64},
    {KVERN_RULE_SSD, 3, 2, 6, 40, 8},
};
#define SHAPE_COUNT (sizeof SHAPES / sizeof SHAPES[0])

static void for_each_shape(void (*test)(const layer *))
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        layer l = make(&SHAPES[i], i);
        test(&l);
        unmake(&l);
    }
}

// ---- Same bits ----

static void check_chunks(const layer *l)
{
    static const size_t sizes[] = {1, 2, 3, 7, 32, 33, 64};
    outcome wanted = outcome_create(l);
    run(l, 0, 0, COUNT, l->shape.value_heads, &wanted);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        outcome got = outcome_create(l);
        for (size_t first = 0; first < COUNT; first += sizes[i]) {
            const size_t left = COUNT - first;
            run(l, kvern_cpu_features(), first, left < sizes[i] ? left : sizes[i],
                l->shape.value_heads, &got);
            run(l, kvern_cpu_features(), first, 0, 1, &got); // no token: nothing changes
        }
        check_same_outcomes(l, &wanted, &got, "chunks");
        outcome_destroy(&got);
    }
    outcome_destroy(&wanted);
}

static void chunks_give_the_same_bits(void **state)
{
    (void)state;
    for_each_shape(check_chunks);
}

static void check_cuts(const layer *l)
{
    const kernel_variants variants = kernel_variants_here();
    outcome wanted = outcome_create(l);
    run(l, 0, 0, COUNT, l->shape.value_heads, &wanted);
    for (size_t v = 0; v < variants.count; v++) {
        for (size_t cut = 1; cut <= l->shape.value_heads; cut++) {
            outcome got = outcome_create(l);
            run(l, variants.features[v], 0, COUNT, cut, &got);
            check_same_outcomes(l, &wanted, &got, kvern_cpu_name(variants.features[v]));
            outcome_destroy(&got);
        }
    }
    outcome_destroy(&wanted);
}

static void cuts_of_the_heads_give_the_same_bits(void **state)
{
    (void)state;
    for_each_shape(check_cuts);
}

// A run that wants no outputs leaves the same state and the same records.
static void check_silent_run(const layer *l)
{
    outcome wanted = outcome_create(l), got = outcome_create(l);
    run(l, kvern_cpu_features(), 0, COUNT, 1, &wanted);
    free(got.y);
    got.y = NULL;
    run(l, kvern_cpu_features(), 0, COUNT, 1, &got);
    check_same_floats(wanted.state, got.state, l->state_floats, "state");
    check_same_floats(wanted.records, got.records, COUNT * l->record_floats, "records");
    outcome_destroy(&wanted);
    outcome_destroy(&got);
}

static void outputs_may_be_left_out(void **state)
{
    (void)state;
    for_each_shape(check_silent_run);
}

// ---- Replay ----

// From the state before a window, its first `kept` records give the state that those tokens alone
// would have given.
static void check_replay(const layer *l)
{
    const size_t before = 9, s = kvern_recurrence_s_offset(&l->shape);
    outcome base = outcome_create(l), window = outcome_create(l);
    run(l, 0, 0, before, l->shape.value_heads, &base);
    memcpy(window.state, base.state, l->state_floats * sizeof(float));
    run(l, kvern_cpu_features(), before, 40, l->shape.value_heads, &window);
    for (size_t kept = 0; kept <= 40; kept += 1 + kept % 13) {
        outcome wanted = outcome_create(l), got = outcome_create(l);
        memcpy(wanted.state, base.state, l->state_floats * sizeof(float));
        memcpy(got.state, base.state, l->state_floats * sizeof(float));
        run(l, 0, before, kept, l->shape.value_heads, &wanted);
        const float *records = window.records + before * l->record_floats;
        float *other = kept % 2 ? take_before(l, got.state) : NULL;
        for (size_t head = 0; head < l->shape.value_heads; head++)
            kvern_recurrence_replay(kvern_cpu_features(), &l->shape, other ? other : got.state,
                                    got.state, records, kept, head, 1);
        free(other);
        check_same_floats(wanted.state + s, got.state + s, l->state_floats - s, "replay");
        outcome_destroy(&wanted);
        outcome_destroy(&got);
    }
    outcome_destroy(&base);
    outcome_destroy(&window);
}

static void a_replay_gives_the_same_bits(void **state)
{
    (void)state;
    for_each_shape(check_replay);
}

// ---- Layout ----

static void check_tail(const layer *l)
{
    const size_t rows = l->shape.taps ? l->shape.taps - 1 : 0;
    outcome o = outcome_create(l);
    size_t seen = 0;
    for (size_t count = 0; seen + count <= COUNT; seen += count, count = (count + 1) % 6) {
        run(l, kvern_cpu_features(), seen, count, 1, &o);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = 0; c < l->channels; c++) {
                const size_t at = seen + count + r;
                const float wanted = at < rows ? 0 : l->tokens.x[(at - rows) * l->channels + c];
                assert_true(o.state[r * l->channels + c] == wanted);
            }
        }
    }
    outcome_destroy(&o);
}

// Also after fewer tokens than the tail has rows: it keeps what it needs of the old ones.
static void the_tail_is_the_last_inputs(void **state)
{
    (void)state;
    for_each_shape(check_tail);
}

static void check_layout(const layer *l)
{
    const size_t floats = l->shape.value_heads * l->shape.v_dim * l->shape.k_dim;
    const size_t offset = kvern_recurrence_s_offset(&l->shape);
    assert_true(offset % 16 == 0 && offset >= kvern_recurrence_tail_floats(&l->shape));
    outcome o = outcome_create(l);
    float *s = malloc(floats * sizeof(float)), *back = malloc(floats * sizeof(float));
    for (size_t i = 0; i < floats; i++)
        s[i] = (float)i;
    kvern_recurrence_import_s(&l->shape, s, o.state);
    kvern_recurrence_export_s(&l->shape, o.state, back);
    check_same_floats(s, back, floats, "S");
    // Value 1, key channel 2 of head 0 is in the first block.
    assert_true(o.state[offset + 2 * 32 + 1] == (float)(l->shape.k_dim + 2));
    free(s);
    free(back);
    outcome_destroy(&o);
}

static void s_is_exported_and_imported_exactly(void **state)
{
    (void)state;
    for_each_shape(check_layout);
}

// ---- Float64 ----

// Each number is within its own bound; and the bounds are worth something.
static void check_near(const approximate *wanted, const float *got, size_t count)
{
    double bounds = 0, sizes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - wanted[i].value) <= wanted[i].error))
            fail_msg("number %zu is %.9g, not within %.2g of %.9g", i, got[i], wanted[i].error,
                     wanted[i].value);
        bounds += wanted[i].error;
        sizes += fabs(wanted[i].value);
    }
    assert_true(bounds < 1e-3 * sizes);
}

// Few tokens: the bound of an error that goes round through S, beta and v - m grows by a factor
// with every one, though the error itself does not.
#define NEAR_COUNT ((size_t)24)

static void check_reference(const layer *l)
{
    kvern_recurrence_tokens tokens = l->tokens;
    tokens.count = NEAR_COUNT;
    const size_t values = NEAR_COUNT * l->y_floats, elements = l->y_floats * l->shape.k_dim;
    outcome o = outcome_create(l);
    approximate *y = calloc(values, sizeof *y), *s = calloc(elements, sizeof *s);
    float *exported = calloc(elements, sizeof *exported);
    assert_true(y && s && exported);
    run(l, kvern_cpu_features(), 0, NEAR_COUNT, l->shape.value_heads, &o);
    recurrence_reference(&l->shape, &l->weights, &tokens, y, s);
    kvern_recurrence_export_s(&l->shape, o.state, exported);
    check_near(y, o.y, values);
    check_near(s, exported, elements);
    free(y);
    free(s);
    free(exported);
    outcome_destroy(&o);
}

static void float64_agrees(void **state)
{
    (void)state;
    for_each_shape(check_reference);
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_same_bits),
        cmocka_unit_test(cuts_of_the_heads_give_the_same_bits),
        cmocka_unit_test(outputs_may_be_left_out),
        cmocka_unit_test(a_replay_gives_the_same_bits),
        cmocka_unit_test(the_tail_is_the_last_inputs),
        cmocka_unit_test(s_is_exported_and_imported_exactly),
        cmocka_unit_test(float64_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
