// SPDX-License-Identifier: MIT
// A state of two layers and two rows: prompts of different lengths in one step, decodes, a step
// that is abandoned, and a fork. What an engine does for each forward pass.
//
//     cc steps.c $(pkg-config --cflags --libs kvern) -o steps
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>

#define LAYERS 2
#define ROWS 2
#define HEADS 2 // query heads and KV heads alike
#define DIM 8
#define MOST_TOKENS 8 // of all rows in one step

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

// Stands for the projections of a model: the keys are all 0, so that every position has the same
// weight, and the values of a token are its position.
static void project(const kvern_state *state, const int64_t *counts, float *k, float *v)
{
    size_t at = 0;
    for (size_t row = 0; row < kvern_state_rows(state); row++)
        for (int64_t i = 0; i < counts[row]; i++)
            for (int d = 0; d < HEADS * DIM; d++, at++) {
                k[at] = 0;
                v[at] = (float)(kvern_step_position(state, row) + i);
            }
}

// The appends and attends of one forward pass. Rows lie behind each other in the tensors, without
// padding; out gets a vector for each token.
static void run_layers(kvern_state *state, const int64_t *counts, float *out)
{
    static const float q[MOST_TOKENS * HEADS * DIM];
    float k[MOST_TOKENS * HEADS * DIM], v[MOST_TOKENS * HEADS * DIM];
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const kvern_layer *shape = kvern_cache_layer(kvern_state_cache(state, layer));
        kvern_tokens tokens = kvern_tokens_default(shape);
        kvern_queries queries = kvern_queries_default(shape, HEADS);
        kvern_read *read;
        project(state, counts, k, v);
        tokens.k = k, tokens.v = v; // tokens.counts stays NULL: those of the step
        check(kvern_step_append(state, layer, &tokens, &read));
        queries.q = q, queries.out = out;
        check(kvern_read_attend(read, &queries));
        kvern_read_release(read);
    }
}

static void forward(kvern_state *state, kvern_phase phase, const int64_t *counts, float *out)
{
    check(kvern_step_begin(state, phase, counts)); // takes the room for all layers, or fails
    run_layers(state, counts, out);
    check(kvern_step_end(state));
}

int main(void)
{
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state, *fork;
    float out[MOST_TOKENS * HEADS * DIM], other[MOST_TOKENS * HEADS * DIM];
    kvern_layer layers[LAYERS];
    for (size_t l = 0; l < LAYERS; l++)
        layers[l] = kvern_layer_default(HEADS, DIM);
    check(kvern_context_create(NULL, &context));
    check(kvern_composition_create(context, layers, LAYERS, &composition));
    check(kvern_state_create(composition, ROWS, &state));

    const int64_t prompt[ROWS] = {3, 5}, one_each[ROWS] = {1, 1}, first_alone[ROWS] = {1, 0};
    forward(state, KVERN_PHASE_WINDOW, prompt, out);
    printf("prompts of 3 and 5 tokens: means %g and %g\n", out[2 * HEADS * DIM],
           out[7 * HEADS * DIM]);
    forward(state, KVERN_PHASE_DECODE, one_each, out);
    printf("a decode of both: means %g and %g\n", out[0], out[HEADS * DIM]);

    check(kvern_step_begin(state, KVERN_PHASE_DECODE, first_alone));
    run_layers(state, first_alone, other);
    kvern_step_abandon(state); // as if it had never begun

    // The fork continues row 0 beside it; their pages are shared until one of them writes.
    check(kvern_state_fork(state, &(size_t){0}, 1, &fork));
    forward(state, KVERN_PHASE_DECODE, first_alone, out);
    forward(fork, KVERN_PHASE_DECODE, one_each, other);
    printf("row 0 and its fork: means %g and %g at length %lld\n", out[0], other[0],
           (long long)kvern_state_length(fork, 0));
    const int right = out[0] == 2 && other[0] == 2 && kvern_state_length(state, 0) == 5;

    kvern_state_destroy(fork);
    kvern_state_destroy(state);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return right ? 0 : 1;
}
