// SPDX-License-Identifier: MIT
// A read is attended on another thread while tokens of its row are handed over again and again. The
// read keeps its pages, so nothing that it looks at is written; ThreadSanitizer runs this program.

#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/storages.h"

#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define HEADS 4
#define DIM 64
#define LENGTH 100
#define WRITES 300

static const uint64_t sequence = 5;
static const int64_t one = 1;

typedef struct reader {
    pthread_t thread;
    const kvern_read *read;
    kvern_queries queries;
    float first[HEADS * DIM], out[HEADS * DIM];
    _Atomic bool stop;
    int errors;
} reader;

// Away from cmocka's thread: counted, not asserted.
static void *attend_often(void *argument)
{
    reader *r = argument;
    do {
        memset(r->out, 0, sizeof r->out);
        r->errors += kvern_read_attend(r->read, &r->queries) != KVERN_OK;
        r->errors += memcmp(r->first, r->out, sizeof r->out) != 0;
    } while (!atomic_load(&r->stop));
    return NULL;
}

static void write_token(kvern_state *s, int64_t number)
{
    float k[HEADS * DIM], v[HEADS * DIM];
    feed_values(sequence, number, FEED_K, HEADS * DIM, k);
    feed_values(sequence, number, FEED_V, HEADS * DIM, v);
    assert_ok(kvern_step_write(s, 0, 0, KVERN_F32, k, v));
}

static void read_between_writes(kvern_codec codec)
{
    kvern_layer layer = kvern_layer_default(HEADS, DIM);
    layer.k_codec = layer.v_codec = codec;
    kvern_context *context;
    kvern_composition *composition;
    kvern_state *s;
    kvern_read *read;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_composition_create(context, &layer, 1, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    const int64_t length = LENGTH;
    feed f = feed_create(kvern_state_cache(s, 0), &sequence, &length, HEADS);
    assert_ok(kvern_step_begin(s, KVERN_PHASE_WINDOW, &length));
    assert_ok(kvern_step_append(s, 0, &f.tokens, NULL));
    assert_ok(kvern_step_end(s));
    feed_destroy(&f);

    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, &one));
    write_token(s, 0);
    assert_ok(kvern_cache_read_donor(kvern_state_cache(s, 0), &one, &read));
    float q[HEADS * DIM];
    feed_values(sequence, 7, FEED_Q, HEADS * DIM, q);
    reader r = {.read = read, .queries = kvern_queries_default(&layer, HEADS)};
    r.queries.q = q;
    r.queries.out = r.first;
    assert_ok(kvern_read_attend(read, &r.queries));
    r.queries.out = r.out;
    assert_int_equal(pthread_create(&r.thread, NULL, attend_often, &r), 0);
    for (int64_t i = 1; i <= WRITES; i++)
        write_token(s, i);
    atomic_store(&r.stop, true);
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    assert_int_equal(r.errors, 0);
    kvern_step_abandon(s);
    kvern_read_release(read);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    kvern_context_release(context);
}

static void a_read_never_meets_a_writer(void **state)
{
    (void)state;
    read_between_writes((kvern_codec)STORAGE_BF16);
    read_between_writes((kvern_codec)STORAGE_AFFINE(4, 64)); // values of several slots share words
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_read_never_meets_a_writer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
