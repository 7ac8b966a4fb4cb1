// SPDX-License-Identifier: MIT
// Random sequences of steps, row operations and speculative rounds on states of several layers,
// against one naive cache per layer: positions stay fixed through a step, refused calls change
// nothing, abandoned steps and rounds that are rolled back leave no trace, and every read gives
// what the naive cache gives, those of layers that share others and of who borrows rows among them.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/kernel_variants.h"
#include "tests/support/layers.h"
#include "tests/support/ledger.h"
#include "tests/support/naive_cache.h"
#include "tests/support/soundness.h"

#include <kvern/kvern.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 5
#define FIRST_ROWS 3
#define MOST_LAYERS 4
#define MOST_SHARED 2
#define MOST_STATES 3
#define MOST_READS 5
#define MOST_LENGTH 1400

typedef struct pair {
    kvern_state *state; // NULL: the place is free
    size_t rows;
    naive_row naive[MOST_LAYERS][MOST_ROWS];
} pair;

typedef struct world {
    test_random random;
    ledger books;
    kvern_context *context;
    kvern_composition *composition;
    size_t layers; // that keep something; behind them are `shared` ones that read those
    kvern_layer plan[MOST_LAYERS + MOST_SHARED];
    size_t shared;
    pair pairs[MOST_STATES];
    int64_t *drafts_left; // per row, within a round; or NULL
    naive_read reads[MOST_READS];
} world;

static uint64_t below(world *w, uint64_t bound)
{
    return test_random_below(&w->random, bound);
}

// ---- Making a world ----

static kvern_layer random_layer(world *w)
{
    static const size_t heads[] = {1, 2, 4};
    kvern_layer layer = kvern_layer_default(heads[below(w, 3)], 8 * (1 + below(w, 12)));
    if (below(w, 2))
        layer.v_dim = 8 * (1 + below(w, 12));
    layer_choose_storage(&w->random, &layer);
    return layer;
}

static void choose_shared(world *w)
{
    const size_t most = below(w, MOST_SHARED + 1);
    for (size_t s = 0; s < most; s++) {
        const size_t donor = below(w, w->layers);
        if (w->plan[donor].kind != KVERN_LAYER_LATENT)
            w->plan[w->layers + w->shared++] = kvern_layer_shared(w->plan, donor);
    }
}

static void world_init(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_seed(seed);
    ledger_init(&w->books);
    const kernel_variants variants = kernel_variants_here();
    kvern_context_options options = kvern_context_options_default();
    options.allocator = ledger_allocator(&w->books);
    options.executor = executor_shuffled(1 + below(w, 4));
    options.cpu_features = variants.features[below(w, variants.count)];
    assert_ok(kvern_context_create(&options, &w->context));
    w->layers = 1 + below(w, MOST_LAYERS);
    for (size_t l = 0; l < w->layers; l++)
        w->plan[l] = random_layer(w);
    choose_shared(w);
    assert_ok(
        kvern_composition_create(w->context, w->plan, w->layers + w->shared, &w->composition));
    w->pairs[0].rows = 1 + below(w, FIRST_ROWS);
    assert_ok(kvern_state_create(w->composition, w->pairs[0].rows, &w->pairs[0].state));
}

static void drop_pair(world *w, pair *p)
{
    kvern_state_destroy(p->state);
    for (size_t l = 0; l < w->layers; l++) {
        for (size_t r = 0; r < p->rows; r++)
            naive_row_free(&p->naive[l][r]);
    }
    memset(p, 0, sizeof *p);
}

static void world_finish(world *w)
{
    for (size_t i = 0; i < MOST_STATES; i++)
        drop_pair(w, &w->pairs[i]);
    for (size_t i = 0; i < MOST_READS; i++)
        naive_read_drop(&w->reads[i]);
    kvern_composition_release(w->composition);
    kvern_context_release(w->context);
    ledger_finish(&w->books);
}

// ---- Steps ----

typedef struct step {
    kvern_phase phase;
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    bool appended[MOST_LAYERS];
} step;

// Whether the state can have a step of any phase now.
static bool has_every_phase(const world *w)
{
    bool every = !w->drafts_left;
    for (size_t l = 0; l < w->layers; l++)
        every = every && w->plan[l].kind != KVERN_LAYER_LATENT;
    return every;
}

static void choose_step(world *w, const pair *p, step *s)
{
    memset(s, 0, sizeof *s);
    s->phase = (kvern_phase)below(w, has_every_phase(w) && below(w, 2) ? 6 : 3);
    for (size_t r = 0; r < p->rows; r++) {
        s->base[r] = p->naive[0][r].length;
        const uint64_t most = s->phase == KVERN_PHASE_DECODE ? 2 : below(w, 5) ? 20 : 300;
        s->counts[r] = (int64_t)below(w, most);
        if (s->base[r] + s->counts[r] > MOST_LENGTH)
            s->counts[r] = 0;
        if (w->drafts_left && s->counts[r] > w->drafts_left[r])
            s->counts[r] = w->drafts_left[r];
        if (s->phase == KVERN_PHASE_BIDIRECTIONAL && (s->base[r] || s->counts[r] == 1))
            s->counts[r] = 0;
    }
}

// What a step shows, at any time between its beginning and its end.
static void check_positions(const pair *p, const step *s)
{
    for (size_t r = 0; r < p->rows; r++) {
        assert_int_equal(kvern_step_position(p->state, r), s->base[r]);
        assert_int_equal(kvern_step_count(p->state, r), s->counts[r]);
        assert_int_equal(kvern_state_length(p->state, r), s->base[r]);
    }
    assert_int_equal(kvern_step_position(p->state, p->rows), -1);
    assert_int_equal(kvern_step_count(p->state, p->rows), -1);
}

static void check_no_step(const pair *p)
{
    assert_int_equal(kvern_step_position(p->state, 0), -1);
    assert_int_equal(kvern_step_count(p->state, 0), -1);
}

// What an open step forbids.
static void check_refusals(world *w, pair *p, const step *s)
{
    const size_t row = 0;
    kvern_state *fork = p->state;
    kvern_cache *cache_fork = (kvern_cache *)w;
    assert_status(KVERN_ERR_BUSY, kvern_step_begin(p->state, s->phase, s->counts));
    assert_status(KVERN_ERR_BUSY, kvern_state_trim(p->state, 0, 0));
    assert_status(KVERN_ERR_BUSY, kvern_state_reset(p->state, 0));
    assert_status(KVERN_ERR_BUSY, kvern_state_reserve(p->state, 0, 10, 0));
    assert_status(KVERN_ERR_BUSY, kvern_state_fork(p->state, &row, 1, &fork));
    assert_null(fork);
    assert_status(KVERN_ERR_BUSY,
                  kvern_cache_fork(kvern_state_cache(p->state, 0), &row, 1, &cache_fork));
    assert_null(cache_fork);
    bool all = true;
    for (size_t l = 0; l < w->layers; l++)
        all = all && s->appended[l];
    if (!all)
        assert_status(KVERN_ERR_BUSY, kvern_step_end(p->state));
}

static void check_or_keep(world *w, const pair *p, kvern_read *read, size_t layer,
                          const int64_t *base)
{
    if (below(w, 3))
        naive_check_read(&w->random, read, &w->plan[layer], p->naive[layer], base, p->rows);
    if (below(w, 3))
        kvern_read_release(read);
    else
        naive_read_keep(&w->reads[below(w, MOST_READS)], read, &w->plan[layer], p->naive[layer],
                        base, p->rows);
}

static void append_layer(world *w, pair *p, step *s, size_t layer)
{
    const kvern_layer *plan = &w->plan[layer];
    naive_row *rows = p->naive[layer];
    naive_tokens t =
        is_both_ways(s->phase)
            ? naive_append_both_ways(&w->random, plan, rows, p->rows, s->phase, s->counts)
            : naive_append(&w->random, plan, rows, p->rows, s->counts);
    kvern_read *read = NULL;
    if (below(w, 2))
        t.tokens.counts = t.latents.counts = NULL; // the step knows them
    else if (below(w, 4) == 0) {
        t.counts[0]++;
        assert_status(KVERN_ERR_RANGE, naive_step_append(p->state, layer, &t, &read));
        assert_null(read);
        t.counts[0]--;
    }
    assert_ok(naive_step_append(p->state, layer, &t, &read));
    s->appended[layer] = true;
    check_positions(p, s);
    kvern_read *again = read;
    assert_status(KVERN_ERR_BUSY, naive_step_append(p->state, layer, &t, &again));
    assert_null(again);
    naive_tokens_free(&t);
    check_or_keep(w, p, read, layer, s->base);
}

// What layers that share others read in a step: nothing before their donor has appended.
static void read_shared(world *w, const pair *p, const step *s)
{
    for (size_t l = w->layers; l < w->layers + w->shared; l++) {
        const size_t donor = w->plan[l].donor;
        kvern_read *read = (kvern_read *)w;
        if (!s->appended[donor]) {
            assert_status(KVERN_ERR_BUSY, kvern_step_read_donor(p->state, l, &read));
            assert_null(read);
            continue;
        }
        assert_ok(kvern_step_read_donor(p->state, l, &read));
        check_or_keep(w, p, read, donor, s->base);
    }
}

// ---- Borrowed rows ----

// The first position that the newest one sees without a gap by its place alone.
static int64_t seen_from(const kvern_layer *layer, int64_t length)
{
    const int64_t last = length - 1, recent = layer->window - layer->keep;
    if (layer->kind == KVERN_LAYER_CHUNKED && length > 0)
        return last - last % layer->chunk;
    return layer->kind == KVERN_LAYER_WINDOW && length > recent ? length - recent : 0;
}

static void check_range(const kvern_read *read, const kvern_layer *layer, size_t row,
                        const naive_row *naive)
{
    const int64_t length = naive->length;
    int64_t begin = -7, end = -7, kept = -7;
    assert_status(KVERN_ERR_RANGE, kvern_read_range(read, row, length > 0, &begin, &end, &kept));
    assert_true(begin == -7 && end == -7 && kept == -7);
    if (length == 0)
        return;
    assert_ok(kvern_read_range(read, row, 0, &begin, &end, &kept));
    assert_int_equal(end, length);
    assert_int_equal(begin, naive_row_first_seen(naive, layer, length - 1));
    assert_int_equal(kept, layer->keep < length ? layer->keep : length);
}

static void check_columns(const kvern_layer *layer, const naive_row *row, int64_t width,
                          int64_t start, size_t head, const float *k, const float *v)
{
    static const float zeros[1024];
    const int64_t last = row->length - 1;
    for (int64_t c = 0; c < width; c++) {
        const float *wanted_k = zeros, *wanted_v = zeros;
        if (c >= start) {
            const int64_t p = row->length - width + c;
            wanted_k = naive_row_keys(row, layer, last, p) + head * layer->k_dim;
            wanted_v = naive_row_values(row, layer, last, p) + head * layer->v_dim;
        }
        check_same_floats(wanted_k, k + (size_t)c * layer->k_dim, layer->k_dim, "borrowed keys");
        check_same_floats(wanted_v, v + (size_t)c * layer->v_dim, layer->v_dim, "borrowed values");
    }
}

static void check_newest(world *w, const kvern_read *read, const kvern_layer *layer,
                         const naive_row *rows, size_t row_count)
{
    int64_t offsets[MOST_ROWS], starts[MOST_ROWS], ends[MOST_ROWS];
    kvern_newest_planes planes = kvern_newest_planes_default();
    planes.width = (int64_t)below(w, below(w, 2) ? 10 : 300);
    const size_t vectors = row_count * layer->kv_heads * (size_t)planes.width;
    float *k = malloc((vectors * layer->k_dim + 1) * sizeof *k);
    float *v = malloc((vectors * layer->v_dim + 1) * sizeof *v);
    assert_true(k && v);
    planes.k = k;
    planes.v = v;
    planes.offsets = offsets;
    planes.starts = starts;
    planes.ends = ends;
    assert_ok(kvern_read_export_newest(read, &planes));
    for (size_t r = 0; r < row_count; r++) {
        const int64_t seen = rows[r].length - seen_from(layer, rows[r].length);
        const int64_t shown = seen < planes.width ? seen : planes.width;
        assert_int_equal(offsets[r], rows[r].length);
        assert_int_equal(starts[r], planes.width - shown);
        assert_int_equal(ends[r], planes.width);
        for (size_t h = 0; h < layer->kv_heads; h++) {
            const size_t first = (r * layer->kv_heads + h) * (size_t)planes.width;
            check_columns(layer, &rows[r], planes.width, starts[r], h, k + first * layer->k_dim,
                          v + first * layer->v_dim);
        }
    }
    free(k);
    free(v);
}

// A drafter's reads of a layer, whose queries sit at the last position of each row.
static void borrow(world *w, const pair *p)
{
    const size_t layer = below(w, w->layers);
    const kvern_layer *plan = &w->plan[layer];
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    kvern_read *read = (kvern_read *)w;
    bool possible = true;
    for (size_t r = 0; r < p->rows; r++) {
        const naive_row *row = &p->naive[layer][r];
        counts[r] = row->length > 0 && below(w, 8); // without a query it may be copied all the same
        base[r] = row->length - counts[r];
        possible = possible && naive_row_can_read(row, plan, base[r]);
    }
    if (!possible) {
        assert_status(KVERN_ERR_RANGE, kvern_state_read_donors(p->state, &layer, 1, counts, &read));
        assert_null(read);
        return;
    }
    if (plan->kind == KVERN_LAYER_LATENT) {
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_state_read_donors(p->state, &layer, 1, counts, &read));
        assert_null(read);
        return;
    }
    assert_ok(kvern_state_read_donors(p->state, &layer, 1, counts, &read));
    for (size_t r = 0; r < p->rows; r++) {
        if (counts[r] || p->naive[layer][r].length == 0)
            check_range(read, plan, r, &p->naive[layer][r]);
    }
    check_newest(w, read, plan, p->naive[layer], p->rows);
    check_or_keep(w, p, read, layer, base);
}

// ---- The end of a step ----

// Takes back what the layers of an abandoned step have appended.
static void forget_step(world *w, pair *p, const step *s)
{
    for (size_t l = 0; l < w->layers; l++) {
        for (size_t r = 0; r < p->rows; r++)
            p->naive[l][r].length = s->base[r];
    }
}

static void settle(world *w, pair *p, const int64_t *counts)
{
    for (size_t l = 0; l < w->layers; l++) {
        for (size_t r = 0; r < p->rows; r++)
            naive_row_settle(&p->naive[l][r], &w->plan[l], counts[r]);
    }
}

// Rows of a round settle when it ends.
static void take_drafts(world *w, const pair *p, const step *s)
{
    for (size_t r = 0; r < p->rows; r++)
        w->drafts_left[r] -= s->counts[r];
}

static void run_step(world *w, pair *p)
{
    step s;
    choose_step(w, p, &s);
    const uint64_t bytes = kvern_state_bytes(p->state);
    check_no_step(p);
    assert_ok(kvern_step_begin(p->state, s.phase, s.counts));
    check_positions(p, &s);
    const bool abandoned = below(w, 4) == 0;
    size_t appends = abandoned ? below(w, w->layers + 1) : w->layers;
    for (size_t l = below(w, w->layers); appends > 0; l = (l + 1) % w->layers, appends--) {
        append_layer(w, p, &s, l);
        read_shared(w, p, &s);
        if (below(w, 3) == 0)
            check_refusals(w, p, &s);
    }
    if (abandoned) {
        kvern_step_abandon(p->state);
        kvern_step_abandon(p->state); // without a step nothing happens
        forget_step(w, p, &s);
        // What reads of the step still hold goes with the next change; nothing else has come.
        bool held = false;
        for (size_t i = 0; i < MOST_READS; i++)
            held = held || w->reads[i].read;
        assert_true(held || kvern_state_bytes(p->state) <= bytes);
    } else {
        assert_ok(kvern_step_end(p->state));
        if (w->drafts_left)
            take_drafts(w, p, &s);
        else
            settle(w, p, s.counts);
    }
    check_no_step(p);
    assert_status(KVERN_ERR_BUSY, kvern_step_end(p->state));
}

// ---- Rounds ----

// Whether a layer can take `count` tokens of a row back, by the words of kvern/round.h.
static bool can_take_back(const naive_row *row, const kvern_layer *layer, int64_t count)
{
    const int64_t length = row->length + count;
    const int64_t boundary = row->boundary > layer->start ? row->boundary : layer->start;
    if (layer->start != KVERN_NO_START && !row->converted && length > boundary)
        return false;
    naive_row later = *row;
    kvern_layer plain = *layer; // in a round nothing leaves what is precise
    plain.residual = plain.precise_sinks = later.coded = 0;
    later.length = length;
    later.converted = true;
    later.group = calloc((size_t)length + 1, sizeof *later.group);
    assert_non_null(later.group);
    if (row->length)
        memcpy(later.group, row->group, (size_t)row->length * sizeof *later.group);
    naive_row_settle(&later, &plain, count);
    const bool bounded = later.held == 0 || count <= layer->slack; // memory is, by the slack
    const bool can = bounded && naive_row_trimmable(&later, &plain) >= count;
    free(later.group);
    return can;
}

static bool choose_drafts(world *w, const pair *p, int64_t *counts)
{
    bool possible = true;
    for (size_t r = 0; r < p->rows; r++) {
        counts[r] = (int64_t)below(w, below(w, 4) ? 7 : 90);
        if (p->naive[0][r].length + counts[r] > MOST_LENGTH || below(w, 3) == 0)
            counts[r] = 0;
        bool fits = true;
        for (size_t l = 0; l < w->layers && counts[r]; l++)
            fits = fits && can_take_back(&p->naive[l][r], &w->plan[l], counts[r]);
        if (!fits && below(w, 4))
            counts[r] = 0;
        possible = possible && (fits || counts[r] == 0);
    }
    return possible;
}

static void end_round(world *w, pair *p, const int64_t *base)
{
    int64_t keep[MOST_ROWS];
    const bool commit = below(w, 3) == 0;
    for (size_t r = 0; r < p->rows; r++) {
        const int64_t appended = p->naive[0][r].length - base[r];
        assert_int_equal(kvern_round_appended(p->state, r), appended);
        keep[r] = commit ? appended : (int64_t)below(w, (uint64_t)appended + 1);
        for (size_t l = 0; l < w->layers; l++)
            naive_row_trim(&p->naive[l][r], appended - keep[r]);
    }
    assert_ok(commit ? kvern_round_commit(p->state) : kvern_round_rollback(p->state, keep));
    settle(w, p, keep);
}

static void run_round(world *w, pair *p)
{
    int64_t counts[MOST_ROWS], base[MOST_ROWS];
    if (!choose_drafts(w, p, counts)) {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_round_begin(p->state, counts));
        return;
    }
    for (size_t r = 0; r < p->rows; r++)
        base[r] = p->naive[0][r].length;
    assert_ok(kvern_round_begin(p->state, counts));
    w->drafts_left = counts;
    for (uint64_t steps = below(w, 4); steps > 0; steps--)
        run_step(w, p);
    w->drafts_left = NULL;
    end_round(w, p, base);
}

// ---- Row operations ----

static bool may_trim(const world *w, const pair *p, size_t r, int64_t length)
{
    bool may = true;
    for (size_t l = 0; l < w->layers; l++)
        may = may && naive_row_may_trim(&p->naive[l][r], &w->plan[l], length);
    return may;
}

static void trim(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    const uint64_t length = (uint64_t)p->naive[0][r].length;
    const int64_t tokens =
        (int64_t)below(w, below(w, 2) ? length + 1 : (length < 9 ? length : 9) + 1);
    int64_t most = (int64_t)length, least = 0;
    for (size_t l = 0; l < w->layers; l++) {
        const int64_t layer = naive_row_trimmable(&p->naive[l][r], &w->plan[l]);
        const int64_t reusable = naive_row_min_reusable(&p->naive[l][r], &w->plan[l]);
        most = layer < most ? layer : most;
        least = reusable > least ? reusable : least;
    }
    const int64_t wanted = (int64_t)below(w, length + 5);
    int64_t left = wanted < (int64_t)length ? wanted : (int64_t)length;
    while (!may_trim(w, p, r, left))
        left--;
    assert_int_equal(kvern_state_trim_length(p->state, r, wanted), left);
    assert_int_equal(kvern_state_trimmable(p->state, r), most);
    assert_int_equal(kvern_state_min_reusable(p->state, r), least);
    if (may_trim(w, p, r, (int64_t)length - tokens)) {
        assert_ok(kvern_state_trim(p->state, r, tokens));
        for (size_t l = 0; l < w->layers; l++)
            naive_row_trim(&p->naive[l][r], tokens);
    } else {
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_trim(p->state, r, tokens));
    }
    assert_status(KVERN_ERR_RANGE, kvern_state_trim(p->state, r, p->naive[0][r].length + 1));
    assert_status(KVERN_ERR_RANGE, kvern_state_trim(p->state, r, -1));
}

static void plan_boundary(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    const int64_t position = below(w, 3) ? p->naive[0][r].length + (int64_t)below(w, 200) : 0;
    assert_ok(kvern_state_plan_boundary(p->state, r, position));
    for (size_t l = 0; l < w->layers; l++)
        p->naive[l][r].boundary = position;
}

static void reset(world *w, pair *p)
{
    const size_t r = below(w, p->rows);
    assert_ok(kvern_state_reset(p->state, r));
    for (size_t l = 0; l < w->layers; l++)
        naive_row_reset(&p->naive[l][r]);
}

static void fork_pair(world *w, pair *p)
{
    pair *to = &w->pairs[below(w, MOST_STATES)];
    size_t rows[MOST_ROWS];
    if (to == p)
        return;
    drop_pair(w, to);
    to->rows = 1 + below(w, FIRST_ROWS);
    for (size_t i = 0; i < to->rows; i++) {
        rows[i] = below(w, p->rows);
        for (size_t l = 0; l < w->layers; l++)
            naive_row_copy(&p->naive[l][rows[i]], &w->plan[l], &to->naive[l][i]);
    }
    assert_ok(kvern_state_fork(p->state, rows, to->rows, &to->state));
}

static void extract(world *w, pair *p)
{
    pair *to = &w->pairs[below(w, MOST_STATES)];
    const size_t r = below(w, p->rows);
    if (to == p)
        return;
    drop_pair(w, to);
    to->rows = 1;
    for (size_t l = 0; l < w->layers; l++)
        naive_row_copy(&p->naive[l][r], &w->plan[l], &to->naive[l][0]);
    assert_ok(kvern_state_extract(p->state, r, &to->state));
}

// The rows of another state, which is dropped.
static void join(world *w, pair *p)
{
    pair *from = &w->pairs[below(w, MOST_STATES)];
    if (from == p || !from->state || p->rows + from->rows > MOST_ROWS)
        return;
    assert_ok(kvern_state_join(p->state, &from->state, 1));
    for (size_t r = 0; r < from->rows; r++) {
        for (size_t l = 0; l < w->layers; l++)
            p->naive[l][p->rows + r] = from->naive[l][r];
    }
    p->rows += from->rows;
    from->rows = 0;
    drop_pair(w, from);
}

static void add_row(pair *p)
{
    if (p->rows == MOST_ROWS)
        return;
    assert_ok(kvern_state_add_rows(p->state, 1));
    p->rows++;
}

// One row goes to the front, and perhaps another one goes.
static void keep(world *w, pair *p)
{
    naive_row old[MOST_ROWS];
    size_t rows[MOST_ROWS] = {below(w, p->rows)}, count = 1;
    const size_t dropped = below(w, 2 * p->rows);
    for (size_t r = 0; r < p->rows; r++) {
        if (r != rows[0] && r != dropped)
            rows[count++] = r;
    }
    assert_ok(kvern_state_keep(p->state, rows, count));
    for (size_t l = 0; l < w->layers; l++) {
        memcpy(old, p->naive[l], sizeof old);
        memset(p->naive[l], 0, sizeof p->naive[l]);
        for (size_t i = 0; i < count; i++)
            p->naive[l][i] = old[rows[i]];
        if (count < p->rows)
            naive_row_free(&old[dropped]);
    }
    p->rows = count;
}

// The caches of a state are for looking only.
static void check_caches_are_owned(const pair *p)
{
    kvern_cache *cache = (kvern_cache *)kvern_state_cache(p->state, 0);
    int64_t counts[MOST_ROWS] = {0};
    kvern_tokens tokens = kvern_tokens_default(kvern_cache_layer(cache));
    tokens.counts = counts;
    assert_status(KVERN_ERR_BUSY, kvern_cache_append(cache, KVERN_PHASE_WINDOW, &tokens, NULL));
    assert_status(KVERN_ERR_BUSY, kvern_cache_trim(cache, 0, 0));
    assert_status(KVERN_ERR_BUSY, kvern_cache_reset(cache, 0));
    assert_status(KVERN_ERR_BUSY, kvern_cache_reserve(cache, 0, 1, 0));
}

static void check_stored(world *w, const pair *p)
{
    for (size_t l = 0; l < w->layers && p->state; l++) {
        for (size_t r = 0; r < p->rows; r++)
            naive_check_stored(&w->random, kvern_state_cache(p->state, l), r, &p->naive[l][r]);
    }
}

static void operate(world *w)
{
    pair *p;
    do
        p = &w->pairs[below(w, MOST_STATES)];
    while (!p->state);
    switch (below(w, 20)) {
    case 0:
        trim(w, p);
        break;
    case 1:
        fork_pair(w, p);
        break;
    case 2:
        below(w, 4) ? (void)0 : reset(w, p);
        break;
    case 3:
        assert_ok(kvern_state_reserve(p->state, below(w, p->rows), (int64_t)below(w, MOST_LENGTH),
                                      4 * below(w, 3)));
        break;
    case 4:
        naive_read_check(&w->random, &w->reads[below(w, MOST_READS)]);
        break;
    case 11:
        plan_boundary(w, p);
        break;
    case 5:
        check_caches_are_owned(p);
        break;
    case 6:
        extract(w, p);
        break;
    case 7:
        join(w, p);
        break;
    case 8:
        add_row(p);
        break;
    case 9:
        keep(w, p);
        break;
    case 12:
        borrow(w, p);
        break;
    case 10:
    case 13:
        run_round(w, p);
        break;
    default:
        run_step(w, p);
    }
}

static void random_steps_equal_the_naive_caches(void **state)
{
    (void)state;
    const int sequences = check_repetitions(40, 3000);
    for (int s = 0; s < sequences; s++) {
        world *w = malloc(sizeof *w);
        assert_non_null(w);
        world_init(w, check_seed() + (uint64_t)s * 1000003);
        for (int i = 0; i < 40; i++) {
            operate(w);
            for (size_t p = 0; p < MOST_STATES; p++)
                expect_sound_state(w->pairs[p].state);
            check_stored(w, &w->pairs[i % MOST_STATES]);
        }
        world_finish(w);
        free(w);
    }
}

int main(void)
{
    (void)check_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_steps_equal_the_naive_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
