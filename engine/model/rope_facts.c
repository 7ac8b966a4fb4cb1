// SPDX-License-Identifier: MIT
// Which kind of rotary scaling a file asks for, and the divisors of the frequencies that follow.
// Everything is made of operations that IEEE 754 defines and of the library's pow, so that a file
// gives the same table everywhere.
#include "engine/model/rope_facts.h"

#include "engine/kernels/natural_log.h"

#include <kvern/math.h>
#include <math.h>

#define TWO_PI 6.283185307179586
#define YARN_BETA_FAST 32
#define YARN_BETA_SLOW 1

// The frequencies are those that engine_rope_create makes.
static double frequency_of(const model_rope *rope, size_t pair)
{
    return kvern_pow(rope->base, -(float)(2 * pair) / (float)rope->dim);
}

static kvern_status fail_ramp(const facts_reader *reader)
{
    return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is not above that of low ones",
                       reader->key);
}

// --- The kind

// The factor by which positions are divided, or 0. rope.scale_linear is what files of 2023 call it.
static kvern_status read_factor(facts_reader *reader, float *factor)
{
    float older = 0;
    kvern_status status = facts_read_optional(reader, "rope.scale_linear", &older);
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "rope.scaling.factor", factor);
    }
    if (status == KVERN_OK && older != 0 && *factor != 0 && older != *factor) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is %g, but rope.scale_linear is %g",
                           reader->key, (double)*factor, (double)older);
    }
    *factor = *factor != 0 ? *factor : older;
    return status;
}

// A factor without a type scales linearly in GGUF; in a config.json readers think differently.
static kvern_status read_type(facts_reader *reader, float factor, text_view *type)
{
    bool scaled = factor != 0 && factor != 1;
    config_value found = facts_find(reader, "rope.scaling.type");
    if (found.kind != CONFIG_ABSENT && found.kind != CONFIG_TEXT) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s must be a text", reader->key);
    }
    if (scaled && found.kind == CONFIG_ABSENT && reader->source->format->hf_names) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "there is a factor of %g, but no %s",
                           (double)factor, reader->key);
    }
    *type = text_view_of(scaled ? "linear" : "none");
    if (found.kind == CONFIG_TEXT) {
        bool none = reader->source->format->hf_names && text_view_is(found.text, "default");
        *type = none ? text_view_of("none") : found.text;
    }
    if (scaled && text_view_is(*type, "none")) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT,
                           "%s is none, but there is a factor of %g", reader->key, (double)factor);
    }
    return KVERN_OK;
}

// --- linear

static kvern_status read_linear(facts_reader *reader, float factor, model_rope *rope)
{
    rope->scaling = MODEL_ROPE_LINEAR;
    rope->factor = factor;
    return factor != 0 ? KVERN_OK
                       : facts_read_positive(reader, "rope.scaling.factor", &rope->factor);
}

// --- llama3

// Pairs that turned more often than `high` in the original context keep their frequency, those
// below `low` turns are divided by `factor`, and in between it is something in between.
typedef struct llama3_ramp {
    float factor;
    float low;
    float high;
    float original;
} llama3_ramp;

static float llama3_divisor(const model_rope *rope, const llama3_ramp *ramp, size_t pair)
{
    const double turns = ramp->original * frequency_of(rope, pair) / TWO_PI;
    if (turns >= ramp->high) {
        return 1;
    }
    if (turns < ramp->low) {
        return ramp->factor;
    }
    const double smooth = (turns - ramp->low) / ((double)ramp->high - ramp->low);
    return (float)(1 / ((1 - smooth) / ramp->factor + smooth));
}

// The numbers that Hugging Face states where GGUF has a tensor.
static kvern_status read_llama3(facts_reader *reader, float factor, model_rope *rope)
{
    llama3_ramp ramp = {.factor = factor};
    rope->scaling = MODEL_ROPE_LLAMA3;
    rope->divided = true;
    kvern_status status = KVERN_OK;
    if (factor == 0) {
        status = facts_read_positive(reader, "rope.scaling.factor", &ramp.factor);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.low_freq_factor", &ramp.low);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.high_freq_factor", &ramp.high);
    }
    if (status == KVERN_OK && ramp.high < ramp.low) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "%s is below that of low ones",
                           reader->key);
    }
    if (status == KVERN_OK) {
        status =
            facts_read_positive(reader, "rope.scaling.original_context_length", &ramp.original);
    }
    for (size_t i = 0; i < rope->dim / 2 && status == KVERN_OK; i++) {
        rope->divisor[i] = llama3_divisor(rope, &ramp, i);
    }
    return status;
}

// --- yarn

typedef struct yarn_ramp {
    float factor;
    float fast; // pairs that turned more often in the original context keep their frequency
    float slow; // pairs that turned less often are divided by `factor`
    float original;
    bool truncate; // the ends of the ramp are whole pairs
} yarn_ramp;

// The pair, counted with fractions, that turned so often in the original context.
static double yarn_pair(const model_rope *rope, const yarn_ramp *ramp, double turns)
{
    return (double)rope->dim * natural_log(ramp->original / (turns * TWO_PI)) /
           (2 * natural_log(rope->base));
}

static void make_yarn_divisors(model_rope *rope, const yarn_ramp *ramp)
{
    double low = yarn_pair(rope, ramp, ramp->fast), high = yarn_pair(rope, ramp, ramp->slow);
    if (ramp->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    const double last = (double)rope->dim - 1;
    low = low > 0 ? low : 0;
    high = high < last ? high : last;
    high = high == low ? low + 0.001 : high;
    for (size_t i = 0; i < rope->dim / 2; i++) {
        double slowed = ((double)i - low) / (high - low);
        slowed = slowed < 0 ? 0 : slowed > 1 ? 1 : slowed;
        rope->divisor[i] = (float)(1 / (slowed / ramp->factor + (1 - slowed)));
    }
}

double facts_yarn_magnitude(double factor, double multiplier)
{
    return factor > 1 ? 0.1 * multiplier * natural_log(factor) + 1 : 1;
}

// attention_factor, or what follows from the factor and from mscale and mscale_all_dim, which
// count when both are there.
static kvern_status read_yarn_magnitude(facts_reader *reader, float factor, model_rope *rope)
{
    float stated = 0, scale = 0, all_dim = 0;
    kvern_status status = facts_read_optional(reader, "rope.scaling.attention_factor", &stated);
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "rope.scaling.mscale", &scale);
    }
    if (status == KVERN_OK) {
        status = facts_read_optional(reader, "rope.scaling.mscale_all_dim", &all_dim);
    }
    if (status == KVERN_OK && stated == 0 && (scale > 0) != (all_dim > 0) && scale != 1) {
        return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                           "rope_scaling has one of mscale and mscale_all_dim, which readers take "
                           "differently without the other");
    }
    double made = facts_yarn_magnitude(factor, 1);
    if (scale > 0 && all_dim > 0) {
        made = facts_yarn_magnitude(factor, scale) / facts_yarn_magnitude(factor, all_dim);
    }
    rope->magnitude = stated > 0 ? stated : (float)made;
    return status;
}

static kvern_status read_yarn_ends(facts_reader *reader, const model_facts *facts, yarn_ramp *ramp)
{
    // A GGUF file that does not say means all of its context.
    ramp->original = reader->source->format->hf_names ? 0 : (float)facts->context_length;
    kvern_status status =
        facts_read_positive(reader, "rope.scaling.original_context_length", &ramp->original);
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.yarn_beta_slow", &ramp->slow);
    }
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.yarn_beta_fast", &ramp->fast);
    }
    if (status == KVERN_OK && ramp->fast <= ramp->slow) {
        return fail_ramp(reader);
    }
    ramp->truncate = true;
    return status == KVERN_OK ? facts_read_flag(reader, "rope.scaling.truncate", &ramp->truncate)
                              : status;
}

static kvern_status read_yarn(facts_reader *reader, const model_facts *facts, float factor,
                              model_rope *rope)
{
    yarn_ramp ramp = {.factor = factor, .fast = YARN_BETA_FAST, .slow = YARN_BETA_SLOW};
    rope->scaling = MODEL_ROPE_YARN;
    rope->divided = true;
    kvern_status status = read_yarn_ends(reader, facts, &ramp);
    if (status == KVERN_OK && factor == 0) {
        status = facts_read_positive(reader, "rope.scaling.factor", &ramp.factor);
    }
    if (status == KVERN_OK && !(rope->base > 1)) {
        return engine_fail(reader->error, KVERN_ERR_FORMAT, "yarn needs a rotary base above 1");
    }
    if (status == KVERN_OK) {
        status = read_yarn_magnitude(reader, ramp.factor, rope);
        make_yarn_divisors(rope, &ramp);
    }
    return status;
}

// A part of yarn's mixture, which is all of it wherever it is used.
static kvern_status check_yarn_part(facts_reader *reader, const model_rope *rope)
{
    float part = 0;
    const float wanted = rope->scaling == MODEL_ROPE_YARN;
    config_value found = facts_find(reader, "rope.scaling.yarn_ext_factor");
    if (found.kind == CONFIG_ABSENT ||
        (config_f32(&found, &part) && (part < 0 || part == wanted))) {
        return KVERN_OK;
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "%s is supported only with the value %g here", reader->key, (double)wanted);
}

// --- longrope

static kvern_status read_divisors(facts_reader *reader, const char *name, model_rope *rope)
{
    config_value list = facts_find(reader, name);
    bool right = list.kind == CONFIG_LIST && list.count == rope->dim / 2;
    for (size_t i = 0; i < rope->dim / 2 && right; i++) {
        config_value element = config_element(&list, i);
        right = config_f32(&element, &rope->divisor[i]) && rope->divisor[i] > 0 &&
                !isinf(rope->divisor[i]);
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a list of %zu numbers above 0", reader->key,
                               rope->dim / 2);
}

// Hugging Face states how much longer the vectors get, or leaves it to a formula.
static kvern_status read_longrope_magnitude(facts_reader *reader, const model_facts *facts,
                                            float factor, float original, model_rope *rope)
{
    float stated = 0;
    kvern_status status = facts_read_optional(reader, "rope.scaling.attention_factor", &stated);
    const double stretch = (double)facts->context_length / original;
    if (status == KVERN_OK && factor != 0 && factor != (float)stretch) { // readers differ
        return engine_fail(
            reader->error, KVERN_ERR_FORMAT,
            "the longrope factor is %g, but the context is %g times the original one",
            (double)factor, stretch);
    }
    double made = 1;
    if (stretch > 1 && original > 1) {
        made = sqrt(1 + natural_log(stretch) / natural_log(original));
    }
    rope->magnitude = stated > 0 ? stated : (float)made;
    return status;
}

// There are two lists of divisors: for sequences within the original context, and for longer ones.
// All positions of a sequence must have the same, whatever it grows to, so the model's context
// decides.
static kvern_status read_longrope(facts_reader *reader, const model_facts *facts, float factor,
                                  model_rope *rope)
{
    float original = 0;
    kvern_status status =
        facts_read_positive(reader, "rope.scaling.original_context_length", &original);
    const bool extended = (float)facts->context_length > original;
    rope->scaling = MODEL_ROPE_LONGROPE;
    rope->divided = true;
    if (status != KVERN_OK) {
        return status;
    }
    if (!reader->source->format->hf_names) {
        static const char *const names[] = {"rope_factors_short.weight",
                                            "rope_factors_long.weight"};
        rope->tensor = names[extended];
        rope->unused_tensor = names[!extended];
        return KVERN_OK;
    }
    status = read_longrope_magnitude(reader, facts, factor, original, rope);
    return status == KVERN_OK
               ? read_divisors(reader,
                               extended ? "rope.scaling.long_factor" : "rope.scaling.short_factor",
                               rope)
               : status;
}

static bool has_longrope(facts_reader *reader)
{
    return facts_find(reader, "rope.scaling.long_factor").kind != CONFIG_ABSENT ||
           weights_find_tensor(reader->source, "rope_factors_long.weight") != NULL;
}

// --- All of them

// What some GGUF files multiply the vectors by besides.
static kvern_status read_attention_factors(facts_reader *reader, model_rope *rope)
{
    float first = 1, second = 1;
    kvern_status status = facts_read_positive(reader, "rope.scaling.attn_factor", &first);
    if (status == KVERN_OK) {
        status = facts_read_positive(reader, "rope.scaling.yarn_attn_factor", &second);
    }
    rope->magnitude *= first * second;
    return status;
}

static kvern_status read_kind(facts_reader *reader, const model_facts *facts, text_view type,
                              float factor, model_rope *rope)
{
    const bool hf = reader->source->format->hf_names;
    const bool tensor = weights_find_tensor(reader->source, "rope_freqs.weight") != NULL;
    const bool none = text_view_is(type, "none");
    if (has_longrope(reader)) {
        const bool named = text_view_is(type, "longrope") || text_view_is(type, "su");
        if (!tensor && (named || (none && !hf))) {
            return read_longrope(reader, facts, factor, rope);
        }
    } else if (tensor && (none || text_view_is(type, "llama3"))) {
        rope->scaling = MODEL_ROPE_LLAMA3;
        rope->divided = true;
        rope->tensor = "rope_freqs.weight";
        return KVERN_OK;
    } else if (!tensor && none) {
        return KVERN_OK;
    } else if (!tensor && text_view_is(type, "linear")) {
        return read_linear(reader, factor, rope);
    } else if (!tensor && text_view_is(type, "yarn")) {
        return read_yarn(reader, facts, factor, rope);
    } else if (hf && text_view_is(type, "llama3")) {
        return read_llama3(reader, factor, rope);
    }
    return engine_fail(reader->error, KVERN_ERR_UNSUPPORTED,
                       "rope scaling \"%.*s\" %s a rope_freqs.weight tensor is not supported; "
                       "supported are none, linear and yarn without the tensor, llama3 with it, "
                       "and longrope with its factors",
                       text_view_shown(type, 40), type.data, tensor ? "with" : "without");
}

kvern_status facts_read_rope_scaling(facts_reader *reader, const model_facts *facts,
                                     model_rope *rope)
{
    float factor = 0;
    text_view type = {"", 0};
    kvern_status status = read_factor(reader, &factor);
    if (status == KVERN_OK) {
        status = read_type(reader, factor, &type);
    }
    if (status == KVERN_OK) {
        status = read_kind(reader, facts, type, factor, rope);
    }
    if (status == KVERN_OK) {
        status = check_yarn_part(reader, rope);
    }
    return status == KVERN_OK ? read_attention_factors(reader, rope) : status;
}
