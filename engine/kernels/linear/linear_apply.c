// SPDX-License-Identifier: MIT
// Splits products into tasks: a range of tiles of one job, and of its groups of tokens. How they
// are split changes no bit.
#include "engine/kernels/linear/linear_layout.h"

// A task is about this many multiplications at least: below it, handing it to another thread costs
// as much as it saves.
#define LEAST_WORK ((size_t)1 << 15)
// Tasks of this size are not cut finer than one per thread: reading weights in one piece is faster
// than sharing them out evenly to the last, and so is handing out fewer tasks. It takes some ten
// microseconds, the most that a thread waits for another.
#define COARSE_WORK ((size_t)1 << 21)
// What a task of several groups of tokens goes over again and again should stay in a core's cache:
// this much of activations, and of weights.
#define CACHED_BYTES ((size_t)256 << 10)
#define TASKS_PER_THREAD 8

typedef struct split {
    const linear_job *jobs;
    size_t count;
    size_t work_per_task;
} split;

// How one job is cut.
typedef struct pieces {
    size_t tiles, groups;           // in all
    size_t tile_step, group_step;   // per task
    size_t tile_tasks, group_tasks; // tasks = tile_tasks * group_tasks
} pieces;

static size_t divide_up(size_t a, size_t b)
{
    return a / b + (a % b != 0);
}

static size_t at_least_1(size_t a)
{
    return a ? a : 1;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t tile_work(const linear_job *job, size_t tokens)
{
    return job->weights->cols * LINEAR_ROWS * tokens;
}

static pieces cut(const split *split, const linear_job *job)
{
    const linear *weights = job->weights;
    const size_t tokens = job->input->tokens, cols = weights->cols;
    const size_t tiles = divide_up(weights->rows, LINEAR_ROWS);
    const size_t groups = divide_up(tokens, LINEAR_GROUP);
    const size_t group_bytes =
        linear_units(cols) * linear_record_bytes(weights->format) * LINEAR_GROUP;
    const size_t group_work = tile_work(job, LINEAR_GROUP);
    const size_t most_groups =
        smaller(CACHED_BYTES / group_bytes, split->work_per_task / group_work);
    const size_t group_step = at_least_1(smaller(groups, most_groups));
    const size_t work = tile_work(job, smaller(tokens, group_step * LINEAR_GROUP));
    size_t tile_step = at_least_1(split->work_per_task / at_least_1(work));
    if (groups > 1)
        tile_step = smaller(tile_step, at_least_1(CACHED_BYTES / weights->tile_bytes));
    return (pieces){tiles,
                    groups,
                    tile_step,
                    group_step,
                    divide_up(tiles, tile_step),
                    divide_up(groups, group_step)};
}

static size_t task_count(const split *split, const linear_job *job)
{
    const pieces pieces = cut(split, job);
    return pieces.tile_tasks * pieces.group_tasks;
}

static void add_bias(const linear_tile *tile, const float *bias)
{
    for (size_t t = 0; t < tile->tokens; t++)
        for (size_t row = 0; row < tile->rows; row++)
            tile->y[t * tile->y_stride + row] += bias[row];
}

static void run_tile(const linear_job *job, size_t tile, size_t group)
{
    const linear *weights = job->weights;
    const size_t row = tile * LINEAR_ROWS, token = group * LINEAR_GROUP;
    const size_t record = linear_record_bytes(weights->format);
    const linear_tile work = {
        .type = weights->type,
        .scale_type = weights->scale_type,
        .group = weights->group,
        .format = weights->format,
        .weights = weights->tiles + tile * weights->tile_bytes,
        .cols = weights->cols,
        .records =
            job->input->records[weights->format] + record * token * linear_units(weights->cols),
        .tokens = smaller(job->input->tokens - token, LINEAR_GROUP),
        .y = job->y + token * job->y_stride + row,
        .y_stride = job->y_stride,
        .rows = smaller(weights->rows - row, LINEAR_ROWS),
        .add = job->add,
    };
    weights->kernel(&work);
    if (job->bias)
        add_bias(&work, job->bias + row);
}

static void run_piece(const linear_job *job, const pieces *pieces, size_t index)
{
    const size_t tile = index / pieces->group_tasks * pieces->tile_step;
    const size_t group = index % pieces->group_tasks * pieces->group_step;
    const size_t tile_end = smaller(tile + pieces->tile_step, pieces->tiles);
    const size_t group_end = smaller(group + pieces->group_step, pieces->groups);
    for (size_t g = group; g < group_end; g++)
        for (size_t t = tile; t < tile_end; t++)
            run_tile(job, t, g);
}

static void run_task(void *arg, size_t index)
{
    const split *split = arg;
    for (size_t i = 0; i < split->count; i++) {
        const pieces pieces = cut(split, &split->jobs[i]);
        const size_t tasks = pieces.tile_tasks * pieces.group_tasks;
        if (index < tasks) {
            run_piece(&split->jobs[i], &pieces, index);
            return;
        }
        index -= tasks;
    }
}

static bool fits(const linear_job *job)
{
    const linear *weights = job->weights;
    const linear_input *input = job->input;
    return input->cols == weights->cols && input->records[weights->format] &&
           (job->y_stride >= weights->rows || input->tokens <= 1);
}

// Multiplications of a task, of those that a thread has on average.
static size_t task_work(size_t per_thread)
{
    const size_t fine = per_thread / TASKS_PER_THREAD;
    const size_t share = fine > COARSE_WORK ? fine : smaller(per_thread, COARSE_WORK);
    return share > LEAST_WORK ? share : LEAST_WORK;
}

kvern_status linear_apply(const linear_job *jobs, size_t count, const kvern_executor *executor)
{
    size_t work = 0, tasks = 0;
    for (size_t i = 0; i < count; i++) {
        if (!fits(&jobs[i]))
            return KVERN_ERR_ARGUMENT;
        work += tile_work(&jobs[i], jobs[i].input->tokens) *
                divide_up(jobs[i].weights->rows, LINEAR_ROWS);
    }
    const size_t threads = executor ? executor->threads : 1;
    split split = {jobs, count, task_work(work / threads)};
    for (size_t i = 0; i < count; i++)
        tasks += task_count(&split, &jobs[i]);
    if (executor && executor->threads > 1 && tasks > 1) {
        executor->run(executor->user, tasks, run_task, &split);
        return KVERN_OK;
    }
    for (size_t i = 0; i < tasks; i++)
        run_task(&split, i);
    return KVERN_OK;
}
