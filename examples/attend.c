// SPDX-License-Identifier: MIT
// One layer, one row: append keys and values, attend a query.
//
//     cc attend.c $(pkg-config --cflags --libs kvern) -o attend
#include <kvern/kvern.h>
#include <stdio.h>

#define HEADS 2
#define DIM 8

static int failed(kvern_status status)
{
    if (status)
        fprintf(stderr, "%s: %s\n", kvern_status_message(status), kvern_error_detail());
    return status != KVERN_OK;
}

int main(void)
{
    kvern_context *context = NULL;
    kvern_composition *composition = NULL;
    kvern_cache *cache = NULL;
    kvern_read *read = NULL;
    const kvern_layer layer = kvern_layer_default(HEADS, DIM);
    if (failed(kvern_context_create(NULL, &context)) ||
        failed(kvern_composition_create(context, &layer, 1, &composition)) ||
        failed(kvern_cache_create(composition, 0, 1, &cache)))
        return 1;

    float k[3 * HEADS * DIM] = {0}, v[3 * HEADS * DIM], q[HEADS * DIM] = {0}, out[HEADS * DIM];
    for (int i = 0; i < 3 * HEADS * DIM; i++)
        v[i] = (float)(i / (HEADS * DIM)); // token t has the value t everywhere

    kvern_tokens tokens = kvern_tokens_default(&layer); // packed [token, head, dim]
    const int64_t counts[1] = {3};
    tokens.k = k, tokens.v = v, tokens.counts = counts;
    if (failed(kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, &read)))
        return 1;

    kvern_queries queries = kvern_queries_default(&layer, HEADS);
    const int64_t one[1] = {1}, last[1] = {2}; // one query, at the last of the three tokens
    queries.q = q, queries.out = out, queries.counts = one, queries.first = last;
    if (failed(kvern_read_attend(read, &queries)))
        return 1;
    printf("equal scores give the mean of 0, 1 and 2: %g\n", out[0]);

    kvern_read_release(read);
    kvern_cache_destroy(cache);
    kvern_composition_release(composition);
    kvern_context_release(context);
    return out[0] == 1 ? 0 : 1;
}
