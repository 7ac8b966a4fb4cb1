// SPDX-License-Identifier: MIT
// Block diffusion: an answer is made block by block. A block begins as masks; in every iteration
// the model looks at the whole block and at all that is stored, both ways, and the tokens that it
// is sure of replace masks. Only the finished block is appended. The model here is a toy of random
// projections, so what it says means nothing; how it is served is how a real one would be.
//
//     cc diffusion.c $(pkg-config --cflags --libs kvern) -lm -o diffusion
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 2
#define HEADS 2 // query heads and KV heads alike
#define DIM 32
#define WIDTH (HEADS * DIM) // of a token between layers
#define VOCABULARY 50
#define MASK VOCABULARY // stands for a token that is not decided yet
#define PROMPT 12
#define BLOCK 8
#define BLOCKS 3
#define ITERATIONS 4 // BLOCK / ITERATIONS tokens are decided in each

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

// ---- The toy model ----

typedef struct model {
    float embedding[VOCABULARY + 1][WIDTH];
    float project[LAYERS][3][WIDTH][WIDTH]; // queries, keys, values
} model;

static void fill(float *numbers, size_t count, float size)
{
    static unsigned seed = 1;
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        numbers[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static void multiply(const float (*weights)[WIDTH], const float *x, float *y)
{
    for (int i = 0; i < WIDTH; i++) {
        y[i] = 0;
        for (int j = 0; j < WIDTH; j++)
            y[i] += weights[i][j] * x[j];
    }
}

// ---- Forward passes ----

// One pass over `count` tokens, which leaves what the last layer says of them in x. A pass of a
// step appends them to every layer; without a step (`revises`) it only reads.
static void forward(const model *m, kvern_state *state, const int *tokens, int64_t count,
                    bool revises, float (*x)[WIDTH])
{
    static float q[PROMPT + BLOCK][WIDTH], k[PROMPT + BLOCK][WIDTH], v[PROMPT + BLOCK][WIDTH];
    static float out[PROMPT + BLOCK][WIDTH];
    for (int64_t i = 0; i < count; i++)
        memcpy(x[i], m->embedding[tokens[i]], sizeof x[i]);
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const kvern_cache *cache = kvern_state_cache(state, layer);
        kvern_tokens view = kvern_tokens_default(kvern_cache_layer(cache));
        kvern_queries queries = kvern_queries_default(kvern_cache_layer(cache), HEADS);
        kvern_read *read;
        for (int64_t i = 0; i < count; i++) { // a real model rotates q and k by their positions
            multiply(m->project[layer][0], x[i], q[i]);
            multiply(m->project[layer][1], x[i], k[i]);
            multiply(m->project[layer][2], x[i], v[i]);
        }
        view.k = k, view.v = v, view.counts = &count;
        if (revises)
            check(kvern_cache_read_block(cache, &view, &read));
        else
            check(kvern_step_append(state, layer, &view, &read));
        queries.q = q, queries.out = out;
        check(kvern_read_attend(read, &queries));
        kvern_read_release(read); // gives the block's pages back
        for (int64_t i = 0; i < count; i++)
            for (int d = 0; d < WIDTH; d++)
                x[i][d] += out[i][d];
    }
}

// Appends tokens that are decided, the prompt or a finished block, as an ordinary window. (In a
// model whose finished blocks go on seeing themselves both ways, KVERN_PHASE_ENCODER does that.)
static void append(const model *m, kvern_state *state, const int *tokens, int64_t count)
{
    float x[PROMPT + BLOCK][WIDTH];
    check(kvern_step_begin(state, KVERN_PHASE_WINDOW, &count));
    forward(m, state, tokens, count, false, x);
    check(kvern_step_end(state));
}

// The best token for a vector, and how much better than nothing it is.
static int choose(const model *m, const float *x, float *score)
{
    int best = 0;
    *score = 0;
    for (int token = 0; token < VOCABULARY; token++) {
        float s = 0;
        for (int d = 0; d < WIDTH; d++)
            s += m->embedding[token][d] * x[d];
        if (token == 0 || s > *score)
            best = token, *score = s;
    }
    return best;
}

// Decides the tokens of the block that the model is surest of.
static void revise(const model *m, kvern_state *state, int *block)
{
    float x[PROMPT + BLOCK][WIDTH], scores[BLOCK];
    int tokens[BLOCK];
    forward(m, state, block, BLOCK, true, x);
    for (int i = 0; i < BLOCK; i++)
        tokens[i] = choose(m, x[i], &scores[i]);
    for (int n = 0; n < BLOCK / ITERATIONS; n++) {
        int surest = -1;
        for (int i = 0; i < BLOCK; i++)
            if (block[i] == MASK && (surest < 0 || scores[i] > scores[surest]))
                surest = i;
        block[surest] = tokens[surest];
    }
}

int main(void)
{
    static model m;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *state;
    const kvern_layer layers[LAYERS] = {kvern_layer_default(HEADS, DIM),
                                        kvern_layer_window(HEADS, DIM, 16)};
    int prompt[PROMPT];
    fill(&m.embedding[0][0], sizeof m.embedding / sizeof(float), 1);
    fill(&m.project[0][0][0][0], sizeof m.project / sizeof(float), 0.2f);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = (i * 7 + 3) % VOCABULARY;
    check(kvern_context_create(NULL, &context));
    check(kvern_composition_create(context, layers, LAYERS, &composition));
    check(kvern_state_create(composition, 1, &state));
    append(&m, state, prompt, PROMPT);

    int right = 1;
    for (int b = 0; b < BLOCKS; b++) {
        int block[BLOCK];
        const int64_t length = kvern_state_length(state, 0);
        const uint64_t bytes = kvern_state_bytes(state);
        for (int i = 0; i < BLOCK; i++)
            block[i] = MASK;
        for (int i = 0; i < ITERATIONS; i++)
            revise(&m, state, block);
        right = right && kvern_state_length(state, 0) == length; // nothing was appended
        right = right && kvern_state_bytes(state) == bytes;
        append(&m, state, block, BLOCK);
        printf("block at %lld:", (long long)length);
        for (int i = 0; i < BLOCK; i++) {
            printf(" %d", block[i]);
            right = right && block[i] != MASK;
        }
        printf("\n");
    }
    right = right && kvern_state_length(state, 0) == PROMPT + BLOCKS * BLOCK;
    kvern_state_destroy(state);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return right ? 0 : 1;
}
