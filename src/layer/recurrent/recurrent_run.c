// SPDX-License-Identifier: MIT
// Tokens of recurrent layers, and those of a round once more. Work is cut over rows and value
// heads, which changes no bit.
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/layer/recurrent/recurrent.h"
#include "src/math/fpenv.h"
#include "src/rows/whole_row.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

// Numbers of S times tokens for which more threads are asked: some tens of microseconds for one.
#define LEAST_PARALLEL_NUMBERS ((uint64_t)1 << 17)

// Cuts per thread, so that one that is held up does not hold up all.
#define CUTS_PER_THREAD 4

// ---- The caller's view ----

typedef struct tensor {
    const char *name;
    const float *data;
    int64_t stride;
    size_t floats; // of a token
} tensor;

// Every index that will be formed must fit; the pointers are the caller's word.
static kvern_status check_tensor(size_t layer, const tensor *t, const kvern_recur_tokens *tokens,
                                 const int64_t *counts, size_t rows)
{
    int64_t packed = 0;
    if (t->stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %s: a stride is negative", layer, t->name);
    for (size_t r = 0; r < rows; r++) {
        if (counts[r] == 0)
            continue;
        const int64_t start = tokens->start ? tokens->start[r] : packed;
        int64_t end, at;
        if (!t->data)
            return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: %s is NULL", layer, t->name);
        if (start < 0)
            return kvern_fail(KVERN_ERR_RANGE, "layer %zu: %s: row %zu starts at %" PRId64, layer,
                              t->name, r, start);
        if (!kvern_i64_add(start, counts[r], &end) || !kvern_i64_mul(end, t->stride, &at) ||
            !kvern_i64_add(at, (int64_t)t->floats, &at) ||
            !kvern_i64_mul(at, (int64_t)sizeof(float), &at))
            return kvern_fail(KVERN_ERR_OVERFLOW, "layer %zu: %s: an index of row %zu does not fit",
                              layer, t->name, r);
        if (!tokens->start)
            packed = end;
    }
    return KVERN_OK;
}

// Results of two tokens must not lie in each other.
static kvern_status check_results(const tensor *y)
{
    if (y->stride >= (int64_t)y->floats)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_RANGE, "y: tokens are %" PRId64 " apart and have %zu numbers",
                      y->stride, y->floats);
}

static kvern_status check_weights(const kvern_planned_layer *layer,
                                  const kvern_recur_weights *weights)
{
    const kvern_layer *plan = &layer->plan;
    const bool ssd = plan->recurrence == KVERN_RECURRENCE_SSD;
    if (!weights->a_log)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: a_log is NULL", layer->index);
    if (!weights->conv_weight != !plan->conv_kernel || (weights->conv_bias && !plan->conv_kernel))
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: weights of a convolution %s",
                          layer->index,
                          plan->conv_kernel ? "are missing" : "that it does not have");
    if (weights->d && !ssd)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: d in a layer that has none",
                          layer->index);
    return KVERN_OK;
}

kvern_status kvern_recurrent_check_tokens(const kvern_planned_layer *layer,
                                          const kvern_recur_tokens *tokens, const int64_t *counts,
                                          size_t rows)
{
    const kvern_layer *plan = &layer->plan;
    const kvern_recurrence_shape shape = kvern_recurrent_shape(plan);
    const bool ssd = plan->recurrence == KVERN_RECURRENCE_SSD;
    const tensor x = {"x", tokens->x, tokens->x_token_stride, kvern_recurrence_channels(&shape)};
    const tensor a = {"a", tokens->a, tokens->a_token_stride, kvern_recurrence_a_floats(&shape)};
    const tensor b = {"b", tokens->b, tokens->b_token_stride, kvern_recurrence_b_floats(&shape)};
    const tensor y = {"y", tokens->y, tokens->y_token_stride, plan->value_heads * plan->v_dim};
    if (ssd && b.data)
        return kvern_fail(KVERN_ERR_ARGUMENT, "layer %zu: b, which it does not have", layer->index);
    kvern_status status = check_weights(layer, tokens->weights);
    if (!status)
        status = check_tensor(layer->index, &x, tokens, counts, rows);
    if (!status)
        status = check_tensor(layer->index, &a, tokens, counts, rows);
    if (!status && !ssd)
        status = check_tensor(layer->index, &b, tokens, counts, rows);
    if (!status && y.data && !(status = check_results(&y)))
        status = check_tensor(layer->index, &y, tokens, counts, rows);
    return status;
}

static kvern_recurrence_weights weights_of(const kvern_recur_weights *w)
{
    return (kvern_recurrence_weights){
        .conv = w->conv_weight,
        .conv_bias = w->conv_bias,
        .a_log = w->a_log,
        .dt_bias = w->dt_bias,
        .skip = w->d,
        .dt_low = w->dt_low,
        .dt_high = w->dt_high,
        .q_factor = w->q_factor,
        .k_factor = w->k_factor,
        .norm_eps = w->norm_eps,
        .beta_factor = w->beta_factor,
    };
}

// ---- Cutting ----

// Work of a call, cut into items: a few value heads of one row. Neither rows nor value heads depend
// on each other.
typedef struct work {
    const kvern_planned_layer *layer;
    const kvern_layer_rows *rows;
    kvern_recurrence_shape shape;
    size_t heads, row_items; // value heads of an item; items of a row
    size_t tasks;
    _Atomic size_t next;

    // For tokens; without them a round's records are replayed.
    const kvern_recur_tokens *tokens;
    const kvern_recurrence_weights *weights;
    const int64_t *counts;
    float *scratch;
    size_t scratch_floats; // of a task
} work;

// Tokens of a row in this call.
static int64_t count_of(const work *w, size_t row)
{
    return w->tokens ? w->counts[row] : w->rows->undos[row].replayed;
}

// The value heads of a key head stay together where there are enough others.
static size_t choose_heads(const kvern_recurrence_shape *shape, size_t items)
{
    const size_t share = shape->value_heads / shape->key_heads;
    const size_t heads = (shape->value_heads + items - 1) / items;
    return heads < share ? heads : (heads + share - 1) / share * share;
}

static void cut(work *w)
{
    const size_t threads = w->layer->context->executor.threads;
    uint64_t numbers = (uint64_t)w->shape.value_heads * w->shape.k_dim * w->shape.v_dim, tokens = 0;
    size_t active = 0, items = 1;
    for (size_t r = 0; r < w->rows->count; r++) {
        tokens += (uint64_t)count_of(w, r);
        active += count_of(w, r) > 0;
    }
    w->tasks = 1;
    if (threads > 1 && active > 0 && numbers * tokens >= LEAST_PARALLEL_NUMBERS) {
        items = kvern_min_size((CUTS_PER_THREAD * threads - 1) / active + 1, w->shape.value_heads);
        w->tasks = threads;
    }
    w->heads = choose_heads(&w->shape, items);
    w->row_items = (w->shape.value_heads - 1) / w->heads + 1;
    w->tasks = kvern_min_size(w->tasks, kvern_max_size(active * w->row_items, 1));
}

static void run_tasks(work *w, void (*task)(void *arg, size_t index))
{
    const kvern_executor *executor = &w->layer->context->executor;
    if (w->tasks > 1)
        executor->run(executor->user, w->tasks, task, w);
    else
        task(w, 0);
}

// The next item of a row that has tokens; false when there are none left.
static bool next_item(work *w, size_t *row, size_t *first_head, size_t *heads)
{
    do {
        const size_t item = atomic_fetch_add(&w->next, 1);
        *row = item / w->row_items;
        *first_head = item % w->row_items * w->heads;
        *heads = kvern_min_size(w->heads, w->shape.value_heads - *first_head);
        if (*row >= w->rows->count)
            return false;
    } while (count_of(w, *row) == 0);
    return true;
}

// ---- States ----

// A row that has been turned has another page than before, but where it changes in place; an empty
// one had none.
static float *state_of(const work *w, size_t row)
{
    return kvern_whole_row_page(&w->rows->rows[row])->data;
}

static const float *state_before(const work *w, size_t row)
{
    const kvern_row *r = &w->rows->rows[row];
    if (r->before)
        return r->before->data;
    return r->length > count_of(w, row) ? state_of(w, row) : NULL;
}

static void copy_tail(const work *w, size_t row)
{
    const float *from = state_before(w, row);
    float *to = state_of(w, row);
    const size_t bytes = kvern_recurrence_s_offset(&w->shape) * sizeof *to;
    if (!from)
        memset(to, 0, bytes);
    else if (from != to)
        memcpy(to, from, bytes);
}

// ---- Records: a page of them holds those of a round's tokens, then their convolution's inputs
// ----

static float *records_of(const work *w, size_t row)
{
    return w->rows->undos && w->rows->undos[row].records ? w->rows->undos[row].records->data : NULL;
}

static float *inputs_of(const work *w, size_t row)
{
    return records_of(w, row) +
           (size_t)w->layer->plan.slack * kvern_recurrence_record_floats(&w->shape);
}

// Number of the call's first token in the round.
static size_t round_token(const work *w, size_t row)
{
    const int64_t begin = w->rows->rows[row].length - count_of(w, row);
    KVERN_ASSERT(begin >= w->rows->undos[row].begin);
    KVERN_ASSERT(begin - w->rows->undos[row].begin + count_of(w, row) <= w->layer->plan.slack);
    return (size_t)(begin - w->rows->undos[row].begin);
}

static float *new_records_of(const work *w, size_t row)
{
    if (!w->rows->undos)
        return NULL;
    return records_of(w, row) + round_token(w, row) * kvern_recurrence_record_floats(&w->shape);
}

static void note_inputs(const work *w, size_t row, const kvern_recurrence_tokens *tokens)
{
    const size_t floats = kvern_recurrent_input_floats(&w->layer->plan);
    float *to = inputs_of(w, row) + round_token(w, row) * floats;
    for (size_t i = 0; i < tokens->count && floats; i++)
        memcpy(to + i * floats, tokens->x + i * tokens->x_stride, floats * sizeof *to);
}

// ---- Tokens ----

// A row's tokens in the caller's view.
static kvern_recurrence_tokens tokens_of(const work *w, size_t row)
{
    const kvern_recur_tokens *t = w->tokens;
    int64_t first = 0;
    for (size_t r = 0; r < row && !t->start; r++)
        first += w->counts[r];
    if (t->start)
        first = t->start[row];
    return (kvern_recurrence_tokens){
        .count = (size_t)w->counts[row],
        .x = t->x + first * t->x_token_stride,
        .a = t->a + first * t->a_token_stride,
        .b = t->b ? t->b + first * t->b_token_stride : NULL,
        .x_stride = (size_t)t->x_token_stride,
        .a_stride = (size_t)t->a_token_stride,
        .b_stride = (size_t)t->b_token_stride,
        .y = t->y ? t->y + first * t->y_token_stride : NULL,
        .y_stride = (size_t)t->y_token_stride,
    };
}

static void token_task(void *arg, size_t index)
{
    work *w = arg;
    const kvern_fp_saved saved = kvern_fp_enter();
    float *scratch = w->scratch + index * w->scratch_floats;
    size_t row, first_head, heads;
    KVERN_ASSERT(index < w->tasks);
    while (next_item(w, &row, &first_head, &heads)) {
        const kvern_recurrence_tokens tokens = tokens_of(w, row);
        kvern_recurrence_run(w->layer->context->cpu_features, &w->shape, w->weights,
                             state_before(w, row), state_of(w, row), &tokens,
                             new_records_of(w, row), first_head, heads, scratch);
    }
    kvern_fp_leave(saved);
}

static void open_row(const work *w, size_t row)
{
    kvern_row *r = &w->rows->rows[row];
    kvern_recurrent_turn(w->rows, row, w->counts[row]);
    if (w->rows->undos && !w->rows->undos[row].records)
        w->rows->undos[row].records = kvern_row_take_later(r);
    copy_tail(w, row);
}

static void close_row(const work *w, size_t row)
{
    const kvern_recurrence_tokens tokens = tokens_of(w, row);
    if (w->rows->undos)
        note_inputs(w, row, &tokens);
    kvern_recurrence_move_tail(&w->shape, state_of(w, row), tokens.count, tokens.x,
                               tokens.x_stride);
    kvern_recurrent_close(w->rows, row);
}

void kvern_recurrent_run(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                         const kvern_recur_tokens *tokens, const int64_t *counts, float *scratch)
{
    const kvern_recurrence_weights known = weights_of(tokens->weights);
    work w = {.layer = layer, .rows = rows, .shape = kvern_recurrent_shape(&layer->plan)};
    w.tokens = tokens;
    w.weights = &known;
    w.counts = counts;
    w.scratch = scratch;
    w.scratch_floats = kvern_recurrent_scratch_bytes(layer) / sizeof(float);
    cut(&w);
    for (size_t r = 0; r < rows->count; r++) {
        if (counts[r])
            open_row(&w, r);
    }
    run_tasks(&w, token_task);
    for (size_t r = 0; r < rows->count; r++) {
        if (counts[r])
            close_row(&w, r);
    }
}

// ---- Replay ----

static void replay_task(void *arg, size_t index)
{
    work *w = arg;
    const kvern_fp_saved saved = kvern_fp_enter();
    size_t row, first_head, heads;
    (void)index;
    while (next_item(w, &row, &first_head, &heads)) {
        kvern_recurrence_replay(w->layer->context->cpu_features, &w->shape, state_before(w, row),
                                state_of(w, row), records_of(w, row), (size_t)count_of(w, row),
                                first_head, heads);
    }
    kvern_fp_leave(saved);
}

void kvern_recurrent_replay(const kvern_planned_layer *layer, const kvern_layer_rows *rows)
{
    work w = {.layer = layer, .rows = rows, .shape = kvern_recurrent_shape(&layer->plan)};
    cut(&w);
    run_tasks(&w, replay_task);
    for (size_t r = 0; r < rows->count; r++) {
        const int64_t count = count_of(&w, r);
        if (count == 0)
            continue;
        copy_tail(&w, r);
        kvern_recurrence_move_tail(&w.shape, state_of(&w, r), (size_t)count, inputs_of(&w, r),
                                   kvern_recurrent_input_floats(&layer->plan));
    }
}

// ---- Lanes ----

void kvern_recurrent_open_lanes(const kvern_planned_layer *layer, const kvern_layer_rows *rows,
                                const int64_t *counts, void **lanes)
{
    for (size_t r = 0; r < rows->count; r++) {
        kvern_row *row = &rows->rows[r];
        lanes[r] = NULL;
        if (counts[r] == 0)
            continue;
        kvern_recurrent_turn(rows, r, counts[r]);
        kvern_page *page = kvern_whole_row_page(row);
        if (row->before)
            memcpy(page->data, row->before->data, layer->geometry.page_bytes);
        else if (row->length == counts[r])
            memset(page->data, 0, layer->geometry.page_bytes);
        lanes[r] = page->data;
        kvern_recurrent_close(rows, r);
    }
}
