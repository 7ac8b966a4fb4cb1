// SPDX-License-Identifier: MIT
// A hybrid state: a layer of full attention, a layer of latents (MLA) whose queries select what
// they attend (DSA), and a recurrent layer (gated DeltaNet). Then a speculative round of which a
// part is taken back, and a checkpoint that the row returns to. All ways give the same bits.
//
//     cc hybrid.c $(pkg-config --cflags --libs kvern) -o hybrid
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 3,
    TOKENS = 20, // of the whole sequence
    HEADS = 2,   // query heads of the first two layers
    DIM = 8,     // head dim of the first one
    LATENT = 16,
    ROPE = 8,
    INDEX = 8,       // of index keys
    INDEX_HEADS = 2, // of the indexer
    TOP_K = 4,
    DELTA_HEADS = 2, // of the recurrent layer, with matrices of DIM times DIM
    TAPS = 4,        // of its convolution
    CHANNELS = 3 * DELTA_HEADS * DIM,
    RESULT = HEADS * DIM + HEADS * LATENT + DELTA_HEADS * DIM
};

static kvern_layer layers[LAYERS];
static kvern_recur_weights weights;

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

// Stands for a projection of the model: `width` numbers for each of `count` tokens.
static const float *project(float *tensor, const int *tokens, int64_t count, int width, int which)
{
    for (int64_t i = 0; i < count; i++)
        for (int d = 0; d < width; d++)
            tensor[i * width + d] = (float)((tokens[i] * 31 + d * 17 + which * 7) % 23 - 11) / 16;
    return tensor;
}

static void attend(kvern_state *state, const int *tokens, int64_t count, float *out)
{
    static float k[TOKENS * DIM], v[TOKENS * DIM], q[TOKENS * HEADS * DIM];
    kvern_read *read;
    kvern_tokens new_tokens = kvern_tokens_default(&layers[0]);
    new_tokens.k = project(k, tokens, count, DIM, 1);
    new_tokens.v = project(v, tokens, count, DIM, 2);
    check(kvern_step_append(state, 0, &new_tokens, &read));
    kvern_queries queries = kvern_queries_default(&layers[0], HEADS);
    queries.q = project(q, tokens, count, HEADS * DIM, 3);
    queries.out = out, queries.out_token_stride = RESULT;
    check(kvern_read_attend(read, &queries));
    kvern_read_release(read);
}

// The absorbed read: a query has the numbers that meet the latent, then those that are rotated.
static void attend_latents(kvern_state *state, const int *tokens, int64_t count, float *out)
{
    static float latent[TOKENS * LATENT], rope[TOKENS * ROPE], key[TOKENS * INDEX];
    static float index_q[TOKENS * INDEX_HEADS * INDEX], index_weights[TOKENS * INDEX_HEADS];
    static float q[TOKENS * HEADS * (LATENT + ROPE)];
    static int64_t positions[TOKENS * TOP_K], counts[TOKENS];
    kvern_read *read;
    kvern_latent_tokens new_tokens = kvern_latent_tokens_default(&layers[1]);
    new_tokens.latent = project(latent, tokens, count, LATENT, 4);
    new_tokens.rope = project(rope, tokens, count, ROPE, 5);
    new_tokens.index = project(key, tokens, count, INDEX, 6);
    check(kvern_step_append_latent(state, 1, &new_tokens, &read));

    kvern_selection selection = kvern_selection_default(positions, counts, TOKENS, TOP_K);
    kvern_index_queries index = kvern_index_queries_default(INDEX_HEADS, INDEX, TOP_K);
    index.q = project(index_q, tokens, count, INDEX_HEADS * INDEX, 7);
    index.weights = project(index_weights, tokens, count, INDEX_HEADS, 8);
    check(kvern_read_select(read, &index, &selection));

    kvern_queries queries = kvern_queries_default(&layers[1], HEADS);
    queries.scale = 0.25f; // of the model's own heads: 1/sqrt(16) if they have 8 + ROPE numbers
    queries.q = project(q, tokens, count, HEADS * (LATENT + ROPE), 9);
    queries.out = out, queries.out_token_stride = RESULT;
    queries.selection = &selection; // without this line each query attends all that it sees
    check(kvern_read_attend(read, &queries));
    kvern_read_release(read);
}

// A recurrent layer has no read: the step takes the tokens in and writes their results.
static void recur(kvern_state *state, const int *tokens, int64_t count, float *out)
{
    static float x[TOKENS * CHANNELS], a[TOKENS * DELTA_HEADS], b[TOKENS * DELTA_HEADS];
    kvern_recur_tokens new_tokens = kvern_recur_tokens_default(&layers[2]);
    new_tokens.x = project(x, tokens, count, CHANNELS, 10);
    new_tokens.a = project(a, tokens, count, DELTA_HEADS, 11);
    new_tokens.b = project(b, tokens, count, DELTA_HEADS, 12);
    new_tokens.y = out, new_tokens.y_token_stride = RESULT;
    new_tokens.weights = &weights;
    check(kvern_step_recur(state, 2, &new_tokens));
}

// A forward pass of `count` tokens in row 0; results go where their positions are.
static void forward(kvern_state *state, const int *tokens, int64_t count, float *results)
{
    check(kvern_step_begin(state, KVERN_PHASE_WINDOW, &count));
    float *out = results + kvern_step_position(state, 0) * RESULT;
    attend(state, tokens, count, out);
    attend_latents(state, tokens, count, out + HEADS * DIM);
    recur(state, tokens, count, out + HEADS * DIM + HEADS * LATENT);
    check(kvern_step_end(state));
}

int main(void)
{
    static float conv[TAPS * CHANNELS], a_log[DELTA_HEADS], expected[TOKENS * RESULT],
        results[TOKENS * RESULT];
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *alone, *state;
    layers[0] = kvern_layer_default(1, DIM);
    layers[1] = kvern_layer_latent(LATENT, ROPE, INDEX);
    layers[1].latent_codec = kvern_codec_dense(KVERN_BF16); // f32 otherwise
    layers[2] = kvern_layer_delta(DELTA_HEADS, DELTA_HEADS, DIM, DIM, TAPS);
    for (int i = 0; i < TAPS * CHANNELS; i++)
        conv[i] = 0.25f;
    weights = kvern_recur_weights_default(&layers[2]);
    weights.conv_weight = conv, weights.a_log = a_log;
    check(kvern_context_create(NULL, &context));
    check(kvern_composition_create(context, layers, LAYERS, &composition));
    check(kvern_state_create(composition, 1, &alone));
    check(kvern_state_create(composition, 1, &state));

    int tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * i % 13;
    for (int i = 0; i < TOKENS; i++) // what is expected: one token at a time, and nothing else
        forward(alone, tokens + i, 1, expected);

    // Where to go back to later: a recurrent state cannot be trimmed.
    check(kvern_state_checkpoint_budget(state, 1 << 20));
    forward(state, tokens, 10, results);
    check(kvern_state_checkpoint(state, 0));

    // A round: the first two of four drafts are right.
    const int drafts[4] = {tokens[10], tokens[11], 99, 98};
    const int64_t most = 4, keep = 2;
    check(kvern_round_begin(state, &most));
    forward(state, drafts, most, results);
    check(kvern_round_rollback(state, &keep));
    forward(state, tokens + 12, TOKENS - 12, results);
    const int round_same = memcmp(results, expected, sizeof results) == 0;
    printf("after a round: %s\n", round_same ? "the same bits" : "other bits");

    // Return as near to position 15 as there is a checkpoint, and serve the rest once more.
    const int64_t position = kvern_state_checkpoint_below(state, 0, 15);
    check(kvern_state_return(state, 0, position));
    memset(results + position * RESULT, 0, (size_t)(TOKENS - position) * RESULT * sizeof *results);
    forward(state, tokens + position, TOKENS - position, results);
    const int return_same = memcmp(results, expected, sizeof results) == 0;
    printf("from the checkpoint at %lld: %s\n", (long long)position,
           return_same ? "the same bits" : "other bits");

    kvern_state_destroy(state);
    kvern_state_destroy(alone);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return round_same && return_same ? 0 : 1;
}
