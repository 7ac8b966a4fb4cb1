// SPDX-License-Identifier: MIT
// Selections of positions: what is refused, with nothing written, and public faults of other
// systems as scenarios (fault_<letter><number>_...).

#include "src/attend/index_scan.h"
#include "src/codec/codec.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/latent_feed.h"
#include "tests/support/ledger.h"

#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 2
#define HEADS 4
#define DIM 16
#define STRIDE 8
#define QUERIES 4

static const uint64_t sequences[ROWS] = {1, 2};
static const int64_t before[ROWS] = {70, 3}, counts[ROWS] = {3, 1};

typedef struct fixture {
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
    feed last;
    int64_t positions[QUERIES * STRIDE], counts[QUERIES];
    kvern_selection selection;
    uint64_t held_bytes;
} fixture;

static void open_fixture(fixture *f, const kvern_layer *layer)
{
    kvern_context_options options = kvern_context_options_default();
    memset(f, 0, sizeof *f);
    ledger_init(&f->books);
    options.allocator = ledger_allocator(&f->books);
    options.threads = 1;
    assert_ok(kvern_context_create(&options, &f->context));
    assert_ok(kvern_composition_create(f->context, layer, 1, &f->composition));
    assert_ok(kvern_cache_create(f->composition, 0, ROWS, &f->cache));
    feed_run(f->cache, KVERN_PHASE_WINDOW, sequences, before, HEADS, NULL);
    f->last = feed_create(f->cache, sequences, counts, HEADS);
    assert_ok(feed_append(f->cache, KVERN_PHASE_WINDOW, &f->last, &f->read));
    f->selection = kvern_selection_default(f->positions, f->counts, QUERIES, STRIDE);
    f->selection.queries = QUERIES;
    for (size_t n = 0; n < QUERIES; n++)
        f->counts[n] = 1 + (int64_t)n % 2;
    for (size_t n = 0; n < QUERIES; n++)
        f->positions[n * STRIDE + 1] = 2;
    f->held_bytes = f->books.held_bytes;
}

static void close_fixture(fixture *f)
{
    feed_destroy(&f->last);
    kvern_read_release(f->read);
    kvern_cache_destroy(f->cache);
    kvern_composition_release(f->composition);
    kvern_context_release(f->context);
    ledger_finish(&f->books);
}

// The attend is refused, and neither results nor memory show it.
static void refuse(fixture *f, kvern_status wanted)
{
    kvern_queries q = f->last.queries;
    q.selection = &f->selection;
    for (size_t i = 0; i < f->last.out_count; i++)
        f->last.out[i] = 12345;
    assert_status(wanted, kvern_read_attend(f->read, &q));
    assert_true(strlen(kvern_error_detail()) > 0);
    for (size_t i = 0; i < f->last.out_count; i++)
        assert_true(f->last.out[i] == 12345);
    assert_int_equal(f->books.held_bytes, f->held_bytes);
}

static void accept(fixture *f)
{
    kvern_queries q = f->last.queries;
    q.selection = &f->selection;
    assert_ok(kvern_read_attend(f->read, &q));
    (void)kvern_context_trim(f->context);
    f->held_bytes = f->books.held_bytes;
}

static void lists_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_default(2, DIM);
    open_fixture(&f, &layer);
    accept(&f);
    f.positions[0] = -1;
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[0] = 71; // behind the query at 70, though stored
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[0] = 70;
    accept(&f);
    f.positions[STRIDE] = 2; // 2, 2
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[STRIDE] = 3; // 3, 2
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[STRIDE] = 0;
    f.counts[3] = 0;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = -1;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = STRIDE + 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.counts[3] = 2;
    f.positions[3 * STRIDE + 1] = 4; // a position of the other row
    refuse(&f, KVERN_ERR_RANGE);
    f.positions[3 * STRIDE + 1] = 3;
    accept(&f);
    close_fixture(&f);
}

static void selections_that_are_none_are_refused(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_default(2, DIM);
    open_fixture(&f, &layer);
    accept(&f);
    const kvern_selection good = f.selection;
    f.selection.queries = QUERIES - 1; // of fewer queries than the call has
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.queries = QUERIES + 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.queries = 0; // nothing was selected yet
    refuse(&f, KVERN_ERR_RANGE);
    f.selection = good;
    f.selection.capacity = QUERIES - 1;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection = good;
    f.selection.stride = 0;
    refuse(&f, KVERN_ERR_RANGE);
    f.selection.stride = INT64_MAX / 8;
    refuse(&f, KVERN_ERR_OVERFLOW);
    f.selection = good;
    f.selection.positions = NULL;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    f.selection.counts = NULL;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    f.selection.size = 8;
    refuse(&f, KVERN_ERR_ARGUMENT);
    f.selection = good;
    accept(&f);
    close_fixture(&f);
}

// Whatever its window shows: spans of a windowed row begin at absolute positions.
static void a_sliding_window_has_no_selections(void **state)
{
    (void)state;
    fixture f;
    const kvern_layer layer = kvern_layer_window(2, DIM, 1000);
    open_fixture(&f, &layer);
    refuse(&f, KVERN_ERR_UNSUPPORTED);
    assert_non_null(strstr(kvern_error_detail(), "sliding window"));
    close_fixture(&f);
}

// ---- By index keys ----

#define INDEX_HEADS 3
#define INDEX_DIM 32

typedef struct latents {
    ledger books;
    kvern_context *context;
    kvern_layer layer;
    kvern_composition *composition;
    kvern_cache *cache;
    kvern_read *read;
} latents;

static void open_latents(latents *l, size_t rows, size_t index_dim, kvern_codec latent,
                         kvern_codec index)
{
    kvern_context_options options = kvern_context_options_default();
    memset(l, 0, sizeof *l);
    ledger_init(&l->books);
    options.allocator = ledger_allocator(&l->books);
    options.threads = 1;
    l->layer = kvern_layer_latent(64, 32, index_dim);
    l->layer.latent_codec = l->layer.rope_codec = latent;
    if (index_dim)
        l->layer.index_codec = index;
    assert_ok(kvern_context_create(&options, &l->context));
    assert_ok(kvern_composition_create(l->context, &l->layer, 1, &l->composition));
    assert_ok(kvern_cache_create(l->composition, 0, rows, &l->cache));
}

static void close_latents(latents *l)
{
    kvern_read_release(l->read);
    kvern_cache_destroy(l->cache);
    kvern_composition_release(l->composition);
    kvern_context_release(l->context);
    ledger_finish(&l->books);
}

static const kvern_codec f32 = {.kind = KVERN_CODEC_F32}, bf16 = {.kind = KVERN_CODEC_BF16};

// A call that is refused, with nothing written.
static void refuse_select(const latents *l, const kvern_index_queries *q, kvern_selection *s,
                          kvern_status wanted)
{
    const uint64_t held = l->books.held_bytes;
    const size_t queries = s->queries;
    assert_status(wanted, kvern_read_select(l->read, q, s));
    assert_true(strlen(kvern_error_detail()) > 0);
    assert_int_equal(s->queries, queries);
    assert_int_equal(l->books.held_bytes, held);
}

static void index_queries_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    latents l;
    int64_t positions[QUERIES * STRIDE], counted[QUERIES];
    float q[QUERIES * INDEX_HEADS * INDEX_DIM] = {0}, weights[QUERIES * INDEX_HEADS] = {0};
    open_latents(&l, ROWS, INDEX_DIM, f32, f32);
    latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, sequences, before, NULL);
    latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, sequences, counts, &l.read);
    kvern_selection s = kvern_selection_default(positions, counted, QUERIES, STRIDE);
    const kvern_selection good_selection = s;
    kvern_index_queries good = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, STRIDE);
    good.q = q, good.weights = weights;
    kvern_index_queries bad = good;

    assert_status(KVERN_ERR_ARGUMENT, kvern_read_select(NULL, &good, &s));
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_select(l.read, NULL, &s));
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_select(l.read, &good, NULL));
    bad.size = 12, refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.q = NULL, refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.weights = NULL, refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.heads = 0, refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.heads = KVERN_MAX_INDEX_HEADS + 1;
    refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.q_type = (kvern_type)9, refuse_select(&l, &bad, &s, KVERN_ERR_ARGUMENT), bad = good;
    bad.top_k = 0, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.top_k = STRIDE + 1, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.q_head_stride = -1, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.weight_token_stride = -1, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.q_token_stride = INT64_MAX, refuse_select(&l, &bad, &s, KVERN_ERR_OVERFLOW), bad = good;
    bad.weight_token_stride = INT64_MAX;
    refuse_select(&l, &bad, &s, KVERN_ERR_OVERFLOW), bad = good;
    const int64_t many[ROWS] = {4, 1}, negative[ROWS] = {-1, 1}, late[ROWS] = {1, 0};
    bad.counts = many, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.counts = negative, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.first = late, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    bad.start = negative, refuse_select(&l, &bad, &s, KVERN_ERR_RANGE), bad = good;
    s.capacity = QUERIES - 1, refuse_select(&l, &good, &s, KVERN_ERR_RANGE), s = good_selection;
    s.positions = NULL, refuse_select(&l, &good, &s, KVERN_ERR_ARGUMENT), s = good_selection;
    assert_ok(kvern_read_select(l.read, &good, &s));
    assert_int_equal(s.queries, QUERIES);
    close_latents(&l);
}

// Layers without index keys, of either kind.
static void layers_without_an_indexer_select_nothing(void **state)
{
    (void)state;
    latents l;
    fixture f;
    int64_t positions[QUERIES * STRIDE], counted[QUERIES];
    float q[QUERIES * INDEX_HEADS * INDEX_DIM] = {0}, weights[QUERIES * INDEX_HEADS] = {0};
    kvern_selection s = kvern_selection_default(positions, counted, QUERIES, STRIDE);
    kvern_index_queries ask = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, STRIDE);
    ask.q = q, ask.weights = weights;
    open_latents(&l, ROWS, 0, f32, f32);
    latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, sequences, counts, &l.read);
    refuse_select(&l, &ask, &s, KVERN_ERR_UNSUPPORTED);
    close_latents(&l);
    const kvern_layer layer = kvern_layer_default(1, DIM);
    open_fixture(&f, &layer);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_read_select(f.read, &ask, &s));
    close_fixture(&f);
}

// ---- Materialized reads ----

typedef struct refused_weights {
    const latents *l;
    const kvern_queries *queries;
    kvern_latent_weights weights;
} refused_weights;

static void refuse_weights(const refused_weights *r, kvern_status wanted)
{
    float *out = r->queries->out;
    out[0] = 12345;
    assert_status(wanted, kvern_read_attend_materialized(r->l->read, r->queries, &r->weights));
    assert_true(out[0] == 12345);
}

static void weights_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    latents l;
    fixture f;
    float q[4 * HEADS * 64] = {0}, out[4 * HEADS * 64], rows[HEADS * 64 * 64] = {0};
    open_latents(&l, ROWS, 0, f32, f32);
    latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, sequences, counts, &l.read);
    kvern_queries queries = kvern_queries_default(&l.layer, HEADS);
    queries.q_head_stride = queries.out_head_stride = 64;
    queries.q_token_stride = queries.out_token_stride = HEADS * 64;
    queries.q = q, queries.out = out;
    kvern_latent_weights good = kvern_latent_weights_default(&l.layer, 32, 32);
    good.weights = rows;
    refused_weights r = {&l, &queries, good};
    r.weights.size = 16, refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.weights = NULL, refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.nope_dim = 0, refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.nope_dim = 12, refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.nope_dim = KVERN_MAX_HEAD_DIM + 8;
    refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.value_dim = 0, refuse_weights(&r, KVERN_ERR_ARGUMENT), r.weights = good;
    r.weights.head_stride = -1, refuse_weights(&r, KVERN_ERR_RANGE), r.weights = good;
    r.weights.row_stride = -1, refuse_weights(&r, KVERN_ERR_RANGE), r.weights = good;
    r.weights.row_stride = INT64_MAX / 4, refuse_weights(&r, KVERN_ERR_OVERFLOW);
    assert_status(KVERN_ERR_ARGUMENT, kvern_read_attend_materialized(l.read, &queries, NULL));
    assert_ok(kvern_read_attend_materialized(l.read, &queries, &good));
    close_latents(&l);
    const kvern_layer layer = kvern_layer_default(1, DIM);
    open_fixture(&f, &layer);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_read_attend_materialized(f.read, &queries, &good));
    close_fixture(&f);
}

// ---- Public faults ----

static void random_floats(float *x, size_t count, uint64_t sequence)
{
    feed_values(sequence, 0, FEED_K, count, x);
}

// M3: the length after the append served as that of the keys before it. Ten stored positions, an
// append of one token and of three: ten keys were there before, and query i selects from 10 + i
// + 1.
static void fault_M3_positions_of_the_append_and_before(void **state)
{
    (void)state;
    static const uint64_t sequence = 1;
    static const int64_t ten = 10, appends[] = {1, 3};
    float q[3 * INDEX_DIM], weights[3] = {1, 1, 1}, stored[10 * INDEX_DIM], key[INDEX_DIM];
    random_floats(q, 3 * INDEX_DIM, 5);
    for (size_t a = 0; a < 2; a++) {
        latents l;
        int64_t positions[3 * 20], counted[3];
        const int64_t count = appends[a];
        open_latents(&l, 1, INDEX_DIM, f32, f32);
        latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, &sequence, &ten, NULL);
        latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, &sequence, &count, &l.read);
        const int64_t before_append = kvern_read_length(l.read, 0) - count;
        assert_int_equal(before_append, 10);
        assert_ok(kvern_read_export_latent(l.read, 0, 0, before_append, NULL, NULL, stored));
        for (int64_t j = 0; j < 10; j++) {
            latent_feed_values(sequence, j, INDEX_LANE, INDEX_DIM, key);
            check_same_floats(key, stored + j * INDEX_DIM, INDEX_DIM, "stored keys");
        }
        kvern_selection s = kvern_selection_default(positions, counted, 3, 20);
        kvern_index_queries ask = kvern_index_queries_default(1, INDEX_DIM, 20);
        ask.q = q, ask.weights = weights;
        assert_ok(kvern_read_select(l.read, &ask, &s)); // everything, so all that is seen shows
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(counted[i], 10 + i + 1);
            for (int64_t j = 0; j < counted[i]; j++)
                assert_int_equal(positions[i * 20 + j], j);
        }
        ask.top_k = 4; // and with a choice, nothing behind the query is chosen
        assert_ok(kvern_read_select(l.read, &ask, &s));
        for (int64_t i = 0; i < count; i++)
            assert_true(counted[i] == 4 && positions[i * 20 + 3] <= 10 + i);
        close_latents(&l);
    }
}

// One query over 1000 positions in some storage: what it selects, and the result.
static void select_and_attend(kvern_codec latent, kvern_codec index, int64_t *positions, float *out)
{
    static const uint64_t sequence = 1;
    static const int64_t most = 999, one = 1;
    static float q[HEADS * 96], index_q[INDEX_HEADS * INDEX_DIM], weights[INDEX_HEADS];
    int64_t counted;
    latents l;
    open_latents(&l, 1, INDEX_DIM, latent, index);
    latent_feed_rows(l.cache, KVERN_PHASE_WINDOW, &sequence, &most, NULL);
    latent_feed_rows(l.cache, KVERN_PHASE_DECODE, &sequence, &one, &l.read);
    random_floats(q, HEADS * 96, 6);
    random_floats(index_q, INDEX_HEADS * INDEX_DIM, 7);
    for (size_t h = 0; h < INDEX_HEADS; h++)
        weights[h] = 0.5f + (float)h;
    kvern_selection s = kvern_selection_default(positions, &counted, 1, 100);
    kvern_index_queries ask = kvern_index_queries_default(INDEX_HEADS, INDEX_DIM, 100);
    ask.q = index_q, ask.weights = weights;
    assert_ok(kvern_read_select(l.read, &ask, &s));
    assert_int_equal(counted, 100);
    kvern_queries queries = kvern_queries_default(&l.layer, HEADS);
    queries.q = q, queries.out = out, queries.selection = &s;
    assert_ok(kvern_read_attend(l.read, &queries));
    close_latents(&l);
}

static size_t common(const int64_t *a, const int64_t *b, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            found += a[i] == b[j];
    return found;
}

static double difference(const float *a, const float *b, size_t count)
{
    double sums[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        sums[0] += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        sums[1] += (double)a[i] * (double)a[i];
    }
    return sqrt(sums[0] / sums[1]);
}

// M8: quantized storage took a sparse model off its sparse path. How latents are stored changes
// what is read, not which positions; index keys of few bits change places near the threshold only.
static void fault_M8_storage_does_not_change_the_path(void **state)
{
    (void)state;
    int64_t exact[100], other[100];
    float exact_out[HEADS * 64], out[HEADS * 64];
    select_and_attend(f32, f32, exact, exact_out);
    static const struct {
        kvern_codec codec;
        double most;
        size_t least_common;
    } storages[] = {
        {{.kind = KVERN_CODEC_BF16}, 0.01, 97},
        {{.kind = KVERN_CODEC_AFFINE, .bits = 8, .group = 32, .scales = KVERN_BF16}, 0.02, 95},
        {{.kind = KVERN_CODEC_AFFINE, .bits = 4, .group = 32, .scales = KVERN_BF16}, 0.25, 80}};
    for (size_t i = 0; i < sizeof storages / sizeof storages[0]; i++) {
        select_and_attend(storages[i].codec, f32, other, out);
        check_same_bytes(exact, other, sizeof exact, "selected by the same keys");
        assert_true(difference(exact_out, out, HEADS * 64) <= storages[i].most);
        select_and_attend(bf16, storages[i].codec, other, out);
        assert_true(common(exact, other, 100) >= storages[i].least_common);
    }
}

// R4: index scores of positions behind 2 GiB came out as 0. A row whose pages are all one page but
// for two of equal content: the first block and the last one, which lies behind 2 GiB of scores in
// the long form. Both are selected, by equal scores.
static void fault_R4_far_blocks_score_as_near_ones(void **state)
{
    (void)state;
    const size_t pages = check_is_long() ? ((size_t)1 << 29) / 64 + 9 : 5000;
    const size_t block = 8 * KVERN_PAGE_POSITIONS * sizeof(float);
    kvern_stream_plan index = {.name = "index", .role = KVERN_ROLE_INDEX, .heads = 1, .dim = 8};
    index.type = kvern_codec_type_of(&f32);
    index.kernels = *index.type->kernels_of(&f32, kvern_cpu_features());
    index.block_bytes = block;
    const kvern_geometry geometry = {
        .stream_count = 1, .streams = {index}, .kv_heads = 1, .page_bytes = block};
    kvern_page far = {.data = aligned_alloc(64, block)}, other = {.data = aligned_alloc(64, block)};
    kvern_table *table = malloc(kvern_table_bytes(pages));
    assert_true(far.data && other.data && table);
    for (size_t slot = 0; slot < KVERN_PAGE_POSITIONS; slot++) {
        float key[8] = {(float)slot / 64};
        kvern_stream_encode(&index, other.data, 0, slot, KVERN_F32, key);
        key[0] = slot == 5 ? 2 : 0;
        kvern_stream_encode(&index, far.data, 0, slot, KVERN_F32, key);
    }
    memset(table, 0, sizeof *table);
    table->count = table->capacity = pages;
    for (size_t p = 0; p < pages; p++)
        table->pages[p] = p == 0 || p == pages - 1 ? &far : &other;
    const int64_t length = (int64_t)pages * KVERN_PAGE_POSITIONS;
    const kvern_read_row row = {
        .table = table, .geometry = &geometry, .base = length - 1, .length = length};
    const kvern_view view = {.geometry = &geometry,
                             .window = {.recent = KVERN_EVERY_POSITION},
                             .rows = &row,
                             .row_count = 1};
    static const int64_t one = 1, zero = 0;
    const float q[8] = {1}, weight = 1;
    int64_t positions[2], counted;
    kvern_index_queries ask = kvern_index_queries_default(1, 8, 2);
    ask.q = q, ask.weights = &weight, ask.counts = &one, ask.first = &zero, ask.start = &zero;
    const kvern_selection s = kvern_selection_default(positions, &counted, 1, 2);
    kvern_context *context;
    assert_ok(kvern_context_create(NULL, &context));
    assert_ok(kvern_index_scan(context, NULL, &view, &ask, &s));
    assert_int_equal(counted, 2);
    assert_int_equal(positions[0], 5);
    assert_int_equal(positions[1], length - KVERN_PAGE_POSITIONS + 5);
    kvern_context_release(context);
    free(table);
    free(far.data);
    free(other.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_that_do_not_fit_are_refused),
        cmocka_unit_test(selections_that_are_none_are_refused),
        cmocka_unit_test(a_sliding_window_has_no_selections),
        cmocka_unit_test(index_queries_that_do_not_fit_are_refused),
        cmocka_unit_test(layers_without_an_indexer_select_nothing),
        cmocka_unit_test(weights_that_do_not_fit_are_refused),
        cmocka_unit_test(fault_M3_positions_of_the_append_and_before),
        cmocka_unit_test(fault_M8_storage_does_not_change_the_path),
        cmocka_unit_test(fault_R4_far_blocks_score_as_near_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
