// SPDX-License-Identifier: MIT
// A state in a file: a prompt is computed once, saved with its tokens and with whose it is, and
// loaded into a state without rows, as another process would do it. What was loaded goes on with
// the bits of what was saved; under another model's name it is refused.
//
//     cc save.c $(pkg-config --cflags --libs kvern) -o save
#include <kvern/kvern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 2
#define HEADS 2
#define DIM 8
#define PROMPT 100
#define FILE_NAME "kvern-example-save.kv"

static void check(kvern_status status)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
        exit(1);
    }
}

// Stands for a forward pass: tokens [begin, begin + count) of a sequence; out: what the last layer
// reads for each.
static void run(kvern_state *state, const int32_t *tokens, int64_t count, float *out)
{
    static float k[PROMPT * HEADS * DIM], v[PROMPT * HEADS * DIM];
    check(kvern_step_begin(state, KVERN_PHASE_WINDOW, &count));
    for (int64_t i = 0; i < count * HEADS * DIM; i++)
        k[i] = v[i] = (float)(tokens[i / (HEADS * DIM)] % 7 + i % DIM) / 16;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        const kvern_layer *shape = kvern_cache_layer(kvern_state_cache(state, layer));
        kvern_tokens stored = kvern_tokens_default(shape);
        kvern_queries queries = kvern_queries_default(shape, HEADS);
        kvern_read *read;
        stored.k = k, stored.v = v;
        check(kvern_step_append(state, layer, &stored, &read));
        queries.q = k, queries.out = out;
        check(kvern_read_attend(read, &queries));
        kvern_read_release(read);
    }
    check(kvern_step_end(state));
}

static void save(const kvern_state *state, const int32_t *tokens,
                 const kvern_file_identity *identity)
{
    const int32_t *rows[] = {tokens}; // of each row as many as it has positions
    kvern_file_content content = kvern_file_content_default();
    content.tokens = rows;
    content.identity = identity;
    check(kvern_file_save(state, &content, FILE_NAME)); // it appears when it is whole
}

int main(void)
{
    kvern_layer layers[LAYERS] = {kvern_layer_default(HEADS, DIM),
                                  kvern_layer_window(HEADS, DIM, 32)};
    kvern_file_identity identity = kvern_file_identity_default();
    kvern_file_load_options options = kvern_file_load_options_default();
    static float ignored[PROMPT * HEADS * DIM], out[2][HEADS * DIM];
    int32_t tokens[PROMPT];
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *first, *second;
    kvern_file *file;
    for (int32_t i = 0; i < PROMPT; i++)
        tokens[i] = i * i;
    check(kvern_context_create(NULL, &context));
    check(kvern_composition_create(context, layers, LAYERS, &composition));
    check(kvern_state_create(composition, 1, &first));
    run(first, tokens, PROMPT, ignored);
    identity.model = "tiny";
    save(first, tokens, &identity);

    check(kvern_file_open(context, FILE_NAME, &file));  // checks all but the pages
    check(kvern_state_create(composition, 0, &second)); // a load adds rows to those that there are
    identity.model = "another";
    options.identity = &identity;
    const kvern_status refused = kvern_file_load(file, &options, second);
    printf("as another model's: %s\n", kvern_error_detail());
    identity.model = "tiny";
    options.verify = 1;
    check(kvern_file_load(file, &options, second)); // maps the pages, and copies those it writes
    const int same = memcmp(tokens, kvern_file_tokens(file, 0), sizeof tokens) == 0;
    kvern_file_close(file); // the rows stay

    run(first, tokens, 1, out[0]);
    run(second, tokens, 1, out[1]);
    const int equal = memcmp(out[0], out[1], sizeof out[0]) == 0;
    printf("%lld positions, the tokens are %s, what follows is %s\n",
           (long long)kvern_state_length(second, 0), same ? "the same" : "others",
           equal ? "the same" : "different");
    kvern_state_destroy(first);
    kvern_state_destroy(second);
    kvern_composition_release(composition);
    kvern_context_release(context);
    remove(FILE_NAME);
    return same && equal && refused == KVERN_ERR_UNSUPPORTED ? 0 : 1;
}
