// SPDX-License-Identifier: MIT
#include "cli/session/memory_fit.h"

#include "cli/options/storage_options.h"
#include "cli/session/model_loading.h"

#include "engine/generation/generate.h"

#include <stdlib.h>

// Tokens of a prompt that are computed together. Each has query heads of its own.
static int64_t chunk_of(size_t tokens)
{
    return (int64_t)(tokens < SCHEDULE_CHUNK ? tokens : SCHEDULE_CHUNK);
}

// Whether a layer belongs to a part of a composition, in which it is *out.
typedef bool layer_part(const kvern_layer *layer, kvern_layer *out);

static bool with_window(const kvern_layer *layer, kvern_layer *out)
{
    *out = *layer;
    return layer->kind == KVERN_LAYER_WINDOW;
}

// In the form that it is converted to.
static bool with_start(const kvern_layer *layer, kvern_layer *out)
{
    *out = *layer;
    out->start = KVERN_NO_START;
    return layer->start != KVERN_NO_START;
}

static kvern_status create_part(kvern_context *context, const kvern_composition *plan,
                                layer_part *part, kvern_state **out)
{
    kvern_composition *composition;
    kvern_status status = KVERN_OK;
    size_t count = 0;
    kvern_layer *layers = calloc(kvern_composition_layers(plan), sizeof *layers);
    if (!layers) {
        return KVERN_ERR_MEMORY;
    }
    for (size_t l = 0; l < kvern_composition_layers(plan); l++) {
        count += part(kvern_composition_layer(plan, l), &layers[count]) ? 1 : 0;
    }
    if (count > 0) {
        status = kvern_composition_create(context, layers, count, &composition);
    }
    if (count > 0 && status == KVERN_OK) {
        status = kvern_state_create(composition, 1, out);
        kvern_composition_release(composition);
    }
    free(layers);
    return status;
}

// The room of `tokens` positions in a part of the layers, in *out; NULL when it has none, and on
// failure.
static kvern_status take_part(kvern_context *context, const kvern_composition *plan,
                              layer_part *part, int64_t tokens, kvern_state **out)
{
    *out = NULL;
    kvern_status status = create_part(context, plan, part, out);
    if (*out) {
        status = kvern_state_reserve(*out, 0, tokens, 0);
    }
    if (status != KVERN_OK) {
        kvern_state_destroy(*out);
        *out = NULL;
    }
    return status;
}

// A row with a window holds a prompt's chunk beside the window while it is appended.
static kvern_status try_chunk(kvern_context *context, const kvern_composition *composition,
                              size_t tokens)
{
    kvern_state *chunk;
    kvern_status status = take_part(context, composition, with_window,
                                    chunk_of(tokens) + KVERN_PAGE_POSITIONS, &chunk);
    kvern_state_destroy(chunk);
    return status;
}

static kvern_status try_composition(kvern_context *context, kvern_composition *composition,
                                    size_t query_heads, size_t tokens)
{
    kvern_state *state;
    kvern_status status = kvern_state_create(composition, 1, &state);
    if (status == KVERN_OK) {
        status =
            kvern_state_reserve(state, 0, (int64_t)tokens, query_heads * (size_t)chunk_of(tokens));
    }
    if (status == KVERN_OK) {
        status = try_chunk(context, composition, tokens);
    }
    kvern_state_destroy(state);
    return status;
}

static kvern_status try_storage(const cli_options *options, const model_facts *facts,
                                kvern_context *context, bool start, size_t tokens,
                                engine_error *error)
{
    kvern_composition *composition;
    kvern_status status =
        storage_composition(&options->storage, facts, context, start, &composition, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = try_composition(context, composition, facts->heads, tokens);
    kvern_composition_release(composition);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "reserving the KV cache");
}

// What a conversion holds beside the row in bf16: a page of each layer that is converted.
static kvern_status take_fresh(const cli_options *options, const model_facts *facts,
                               kvern_context *context, kvern_state **out, engine_error *error)
{
    kvern_composition *composition;
    *out = NULL;
    kvern_status status =
        storage_composition(&options->storage, facts, context, true, &composition, error);
    if (status != KVERN_OK) {
        return status;
    }
    status = take_part(context, composition, with_start, KVERN_PAGE_POSITIONS, out);
    kvern_composition_release(composition);
    return status == KVERN_OK ? status : engine_fail_kvern(error, status, "room for a conversion");
}

kvern_status memory_fit_take(const cli_options *options, const model_facts *facts,
                             kvern_context *context, size_t tokens, engine_error *error)
{
    const storage_options *storage = &options->storage;
    kvern_state *fresh = NULL;
    kvern_status status = try_storage(options, facts, context, false, tokens, error);
    if (status == KVERN_OK && storage->has_start && (int64_t)tokens >= storage->start) {
        status = take_fresh(options, facts, context, &fresh, error);
    }
    if (status == KVERN_OK && storage->has_start) {
        status = try_storage(options, facts, context, true, tokens, error);
    }
    kvern_state_destroy(fresh);
    return status;
}

// ---- Arithmetic ----

// The plans of a storage, which say what the pages of a row take and reserve nothing.
typedef struct fit_plans {
    kvern_context *context;
    kvern_composition *now, *before; // as rows are stored in the end, and up to a start; NULL: none
} fit_plans;

static void close_plans(fit_plans *plans)
{
    kvern_composition_release(plans->now);
    kvern_composition_release(plans->before);
    kvern_context_release(plans->context);
    *plans = (fit_plans){0};
}

static kvern_status open_plans(const cli_options *options, const model_facts *facts,
                               fit_plans *plans, engine_error *error)
{
    const cli_options unlimited = {.threads = 1, .storage = options->storage};
    *plans = (fit_plans){0};
    kvern_status status = load_context(&unlimited, &plans->context, error);
    if (status == KVERN_OK) {
        status = storage_composition(&options->storage, facts, plans->context, false, &plans->now,
                                     error);
    }
    if (status == KVERN_OK && options->storage.has_start) {
        status = storage_composition(&options->storage, facts, plans->context, true, &plans->before,
                                     error);
    }
    if (status != KVERN_OK) {
        close_plans(plans);
    }
    return status;
}

// Bytes of the pages of a row: no context takes less.
static uint64_t page_bytes(const fit_plans *plans, size_t tokens)
{
    const uint64_t now = kvern_composition_row_bytes(plans->now, tokens);
    const uint64_t before = plans->before ? kvern_composition_row_bytes(plans->before, tokens) : 0;
    return now > before ? now : before;
}

// The longest context below `tokens` whose pages alone are at most `bytes`.
static size_t longest_in_pages(const fit_plans *plans, size_t tokens, uint64_t bytes)
{
    size_t fits = 0;
    while (tokens - fits > 1) {
        const size_t middle = fits + (tokens - fits) / 2;
        if (page_bytes(plans, middle) <= bytes) {
            fits = middle;
        } else {
            tokens = middle;
        }
    }
    return fits;
}

// ---- Trying ----

static kvern_status reserve(const cli_options *options, const model_facts *facts, size_t tokens,
                            engine_error *error)
{
    kvern_context *context;
    kvern_status status = load_context(options, &context, error);
    if (status == KVERN_OK) {
        status = memory_fit_take(options, facts, context, tokens, error);
        kvern_context_release(context);
    }
    return status;
}

static bool exceeds(const cli_options *options, const fit_plans *plans, size_t tokens)
{
    return options->budget > 0 && page_bytes(plans, tokens) > options->budget;
}

kvern_status memory_fit_try(const cli_options *options, const model_facts *facts, size_t tokens,
                            engine_error *error)
{
    fit_plans plans;
    kvern_status status = open_plans(options, facts, &plans, error);
    if (status != KVERN_OK) {
        return status;
    }
    const bool beyond = exceeds(options, &plans, tokens);
    close_plans(&plans);
    return beyond ? engine_fail(error, KVERN_ERR_BUDGET,
                                "a context of %zu tokens does not fit the budget", tokens)
                  : reserve(options, facts, tokens, error);
}

// The largest multiple of `unit` between one that fits and one that does not.
static size_t bisect(const cli_options *options, const model_facts *facts, size_t fits,
                     size_t above, size_t unit)
{
    while (above - fits > 1) {
        const size_t middle = fits + (above - fits) / 2;
        if (reserve(options, facts, middle * unit, NULL) == KVERN_OK) {
            fits = middle;
        } else {
            above = middle;
        }
    }
    return fits * unit;
}

// Pages alone bound the answer from above, closely: only what is left is tried, from there down.
size_t memory_fit_longest(const cli_options *options, const model_facts *facts, size_t tokens)
{
    const size_t page = KVERN_PAGE_POSITIONS;
    fit_plans plans;
    if (open_plans(options, facts, &plans, NULL) != KVERN_OK) {
        return 0;
    }
    size_t fits = longest_in_pages(&plans, tokens, options->budget), step = page;
    size_t above = fits + 1;
    close_plans(&plans);
    while (fits > 0 && reserve(options, facts, fits, NULL) != KVERN_OK) {
        above = fits;
        fits = fits > step ? fits - step : 0;
        step *= 2;
    }
    // Whole pages are taken: a row has room for the last token of one if it has for the first. Not
    // so where a start lies within it, and where a context is shorter than a chunk.
    const bool by_page = !options->storage.has_start && fits >= SCHEDULE_CHUNK && above < tokens;
    return by_page
               ? bisect(options, facts, (fits + page - 1) / page, (above + page - 1) / page, page)
               : bisect(options, facts, fits, above, 1);
}

// ---- Bytes ----

static uint64_t measure(const cli_options *options, const model_facts *facts, size_t tokens)
{
    const cli_options unlimited = {.threads = options->threads, .storage = options->storage};
    kvern_context *context;
    kvern_memory memory = {.size = sizeof memory};
    if (load_context(&unlimited, &context, NULL) != KVERN_OK) {
        return 0;
    }
    kvern_status status = memory_fit_take(&unlimited, facts, context, tokens, NULL);
    if (status == KVERN_OK) {
        status = kvern_context_memory(context, &memory);
    }
    kvern_context_release(context);
    return status == KVERN_OK ? memory.peak_bytes : 0;
}

// Beyond this a context is not reserved to see what it takes.
#define MOST_MEASURED (UINT64_C(1) << 30)

// What a long context takes grows evenly: measured at two shorter ones.
static uint64_t extrapolate(const cli_options *options, const model_facts *facts,
                            const fit_plans *plans, size_t tokens)
{
    const size_t far = longest_in_pages(plans, tokens, MOST_MEASURED), near = far / 2;
    const uint64_t long_one = measure(options, facts, far),
                   short_one = measure(options, facts, near);
    if (near == 0 || long_one == 0 || short_one == 0 || long_one < short_one) {
        return 0;
    }
    const double slope = (double)(long_one - short_one) / (double)(far - near);
    const uint64_t bytes = long_one + (uint64_t)(slope * (double)(tokens - far));
    const uint64_t least = page_bytes(plans, tokens);
    return bytes > least ? bytes : least;
}

uint64_t memory_fit_bytes(const cli_options *options, const model_facts *facts, size_t tokens)
{
    fit_plans plans;
    if (open_plans(options, facts, &plans, NULL) != KVERN_OK) {
        return 0;
    }
    const bool measurable = page_bytes(&plans, tokens) <= MOST_MEASURED;
    const uint64_t bytes =
        measurable ? measure(options, facts, tokens) : extrapolate(options, facts, &plans, tokens);
    close_plans(&plans);
    return bytes;
}
