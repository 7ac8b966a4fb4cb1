// SPDX-License-Identifier: MIT
// Speculative decoding changes nothing but the speed: conversations with drafts of every kind, some
// of them hostile, beside the same conversations without, token for token, and at every end of a
// turn the same sequence in the same state.

#include "engine/generation/generate.h"
#include "engine/speculation/draft_model.h"
#include "engine/speculation/draft_ngram.h"
#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/ledger.h"
#include "tests/support/random.h"
#include "tests/support/sanitizer.h"
#include "tests/support/storages.h"
#include "tests/support/tiny_gemma3.h"
#include "tests/support/tiny_llama.h"
#include "tests/support/tiny_sentencepiece.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define CONTEXT 300
#define MOST_TURNS 8
#define LLAMA_VOCABULARY 260
#define MOST_VOCABULARY 320
#define PROBE 3    // tokens
#define WRAPPED 40 // positions beyond which the windows of 12 have wrapped

// ---- Models ----

typedef enum family { LLAMA, GEMMA3, FAMILIES } family;

typedef struct world {
    void *data;
    engine_fixture engine;
    int32_t end; // a token that ends a turn
} world;

static void *build_model(family kind, uint64_t seed, uint32_t end_token, size_t *bytes)
{
    if (kind == LLAMA) {
        tiny_llama llama = tiny_llama_default(GGUF_TYPE_Q4_1);
        llama.vocabulary = LLAMA_VOCABULARY;
        llama.byte_tokenizer = llama.separate_output = true;
        llama.end_token = end_token;
        llama.head_dim = 64; // which every storage can have
        llama.context_length = 512;
        llama.seed += seed;
        return tiny_llama_build(&llama, bytes);
    }
    tiny_gemma3 gemma = tiny_gemma3_default(GGUF_TYPE_F32);
    gemma.head_dim = 64;
    gemma.seed += seed;
    return tiny_gemma3_build(&gemma, bytes);
}

static world open_world(family kind, uint64_t seed, uint32_t end_token, kvern_allocator *allocator)
{
    world w = {.end = kind == LLAMA ? (int32_t)end_token : TINY_SP_END};
    size_t bytes;
    w.data = build_model(kind, seed, end_token, &bytes);
    engine_fixture_options options = engine_fixture_default(w.data, bytes);
    options.max_tokens = 64;
    options.max_rows = 1;
    if (allocator) {
        options.context.allocator = *allocator;
    }
    w.engine = engine_fixture_open(&options);
    assert_true(w.engine.facts->vocabulary <= MOST_VOCABULARY);
    return w;
}

static void close_world(world *w)
{
    engine_fixture_close(&w->engine);
    free(w->data);
}

// A plan in which windows can take back `slack` positions; negative: what the engine plans.
static kvern_composition *make_plan(const world *w, const storage *s, int64_t slack)
{
    kvern_storage wanted = kvern_storage_default();
    kvern_composition *plan, *changed;
    kvern_layer layers[16];
    wanted.k = s->k_codec;
    wanted.v = s->v_codec;
    wanted.start = s->start;
    assert_ok(model_composition(w->engine.facts, w->engine.context, &wanted, &plan, NULL));
    if (slack < 0) {
        return plan;
    }
    const size_t count = kvern_composition_layers(plan);
    assert_true(count <= COUNT(layers));
    for (size_t i = 0; i < count; i++) {
        layers[i] = *kvern_composition_layer(plan, i);
        layers[i].slack = layers[i].kind == KVERN_LAYER_WINDOW ? slack : 0;
    }
    assert_ok(kvern_composition_create(w->engine.context, layers, count, &changed));
    kvern_composition_release(plan);
    return changed;
}

// ---- Conversations ----

typedef struct turn {
    int32_t tokens[CONTEXT + 1]; // sampled, one that ends the turn included
    size_t count;
    text_buffer text;
    generate_reason reason;
    size_t generated;
    int64_t length;
    bool pending;
    float probe[PROBE * MOST_VOCABULARY]; // logits of the same tokens behind the sequence
    uint64_t bytes;                       // of the state's pages
    int64_t trimmable, min_reusable, max_append;
    size_t sequence_count; // and what was sampled, whatever ended the turn
    int32_t sequence[2 * CONTEXT];
    draft_counts drafts;
} turn;

typedef struct conversation {
    turn turns[MOST_TURNS];
    size_t count;
} conversation;

// How one turn goes.
typedef struct turn_plan {
    int32_t prompt[64];
    size_t prompt_count;
    int64_t max_tokens;
    bool stop;
    size_t cancel_after; // tokens; 0: never
} turn_plan;

typedef struct listener {
    turn *turn;
    size_t cancel_after;
    atomic_bool cancel;
} listener;

static void on_token(void *user, int32_t token)
{
    listener *l = user;
    assert_true(l->turn->count < COUNT(l->turn->tokens));
    l->turn->tokens[l->turn->count++] = token;
    if (l->turn->count == l->cancel_after) {
        atomic_store(&l->cancel, true);
    }
}

static void on_text(void *user, const char *text, size_t bytes)
{
    listener *l = user;
    assert_ok(text_buffer_append(&l->turn->text, text, bytes));
}

// Prompts with stretches that come again, so that there is something to find in them.
static void random_prompt(test_random *random, turn_plan *plan)
{
    int32_t piece[8];
    const size_t length = 2 + test_random_below(random, 6);
    for (size_t i = 0; i < length; i++) {
        piece[i] = 20 + (int32_t)test_random_below(random, 200);
    }
    plan->prompt_count = 1 + test_random_below(random, COUNT(plan->prompt));
    for (size_t i = 0; i < plan->prompt_count; i++) {
        plan->prompt[i] = test_random_below(random, 10)
                              ? piece[i % length]
                              : 20 + (int32_t)test_random_below(random, 9);
    }
}

static turn_plan random_turn(test_random *random, bool pending)
{
    turn_plan plan = {.stop = test_random_below(random, 3) == 0};
    random_prompt(random, &plan);
    if (pending && test_random_below(random, 3) == 0) {
        plan.prompt_count = 0; // and on
    }
    plan.max_tokens = (int64_t)test_random_below(random, 50);
    if (test_random_below(random, 8) == 0) {
        plan.max_tokens = -1;
    }
    if (test_random_below(random, 4) == 0) {
        plan.cancel_after = 1 + test_random_below(random, 20);
    }
    return plan;
}

// What the sequence would go on with, and what its state holds and allows.
static void probe(const world *w, const generator *g, turn *t)
{
    static const int32_t tokens[PROBE] = {21, 33, 21};
    kvern_state *copy;
    assert_ok(kvern_state_fork(generator_state(g), &(size_t){0}, 1, &copy));
    engine_fixture_forward(&w->engine, copy, KVERN_PHASE_WINDOW, tokens, &(int64_t){PROBE},
                           t->probe);
    kvern_state_destroy(copy);
    t->bytes = kvern_state_bytes(generator_state(g));
    t->trimmable = kvern_state_trimmable(generator_state(g), 0);
    t->min_reusable = kvern_state_min_reusable(generator_state(g), 0);
    t->max_append = kvern_state_max_append(generator_state(g), 0);
}

// The sequence before a turn.
static size_t sequence_before(const conversation *c, int32_t *out)
{
    if (c->count == 0) {
        return 0;
    }
    const turn *last = &c->turns[c->count - 1];
    const size_t kept = (size_t)last->length + last->pending;
    memcpy(out, last->sequence, kept * sizeof *out);
    return kept;
}

static kvern_status try_turn(const world *w, generator *g, sampler *s, const turn_plan *plan,
                             conversation *c)
{
    static const char *const stops[] = {"e", "ab", "\n", "Qx", "7", " a", "z!", "m"};
    turn *t = &c->turns[c->count];
    listener l = {.turn = t, .cancel_after = plan->cancel_after};
    generate_result result;
    generate_request request = {.tokens = plan->prompt,
                                .count = plan->prompt_count,
                                .max_tokens = plan->max_tokens,
                                .sampler = s,
                                .cancel = &l.cancel,
                                .user = &l,
                                .on_token = on_token,
                                .on_text = on_text};
    if (plan->stop) {
        assert_ok(stop_matcher_create(stops, COUNT(stops), &request.stop, NULL));
    }
    const kvern_status status = generator_run(g, &request, &result, NULL);
    stop_matcher_destroy(request.stop);
    t->sequence_count = sequence_before(c, t->sequence);
    memcpy(t->sequence + t->sequence_count, plan->prompt, plan->prompt_count * sizeof(int32_t));
    t->sequence_count += plan->prompt_count;
    memcpy(t->sequence + t->sequence_count, t->tokens, t->count * sizeof(int32_t));
    t->sequence_count += t->count;
    t->reason = result.reason;
    t->generated = result.generated_tokens;
    t->drafts = result.drafts;
    t->length = generator_length(g);
    t->pending = generator_pending(g);
    assert_int_equal(kvern_state_length(generator_state(g), 0), t->length);
    probe(w, g, t);
    c->count++;
    return status;
}

static void check_same_turn(const turn *wanted, const turn *got)
{
    assert_int_equal(got->count, wanted->count);
    assert_memory_equal(got->tokens, wanted->tokens, wanted->count * sizeof *wanted->tokens);
    assert_int_equal(got->reason, wanted->reason);
    assert_int_equal(got->generated, wanted->generated);
    assert_int_equal(got->length, wanted->length);
    assert_int_equal(got->pending, wanted->pending);
    assert_int_equal(got->text.size, wanted->text.size);
    if (wanted->text.size > 0) {
        assert_memory_equal(got->text.data, wanted->text.data, wanted->text.size);
    }
    check_same_bytes(wanted->probe, got->probe, sizeof wanted->probe, "the state");
    assert_int_equal(got->bytes, wanted->bytes);
    assert_int_equal(got->trimmable, wanted->trimmable);
    assert_int_equal(got->min_reusable, wanted->min_reusable);
    assert_int_equal(got->max_append, wanted->max_append);
}

static void clear_conversation(conversation *c)
{
    for (size_t i = 0; i < c->count; i++) {
        text_buffer_free(&c->turns[i].text);
    }
    memset(c, 0, sizeof *c);
}

// ---- Drafts that a test scripts ----

typedef enum script_mode {
    SCRIPT_RIGHT, // what the model will say, as long as that is known
    SCRIPT_WRONG,
    SCRIPT_ENDING, // a token that ends the turn
    SCRIPT_MIXED,
    SCRIPT_MODES
} script_mode;

// Memory that can be had at some times and not at others.
typedef struct gate {
    kvern_allocator allocator;
    bool closed;
    bool refused;
} gate;

static void *gate_allocate(void *user, size_t bytes, size_t alignment)
{
    gate *g = user;
    g->refused = g->refused || g->closed;
    return g->closed ? NULL : g->allocator.allocate(g->allocator.user, bytes, alignment);
}

static void gate_release(void *user, void *block, size_t bytes, size_t alignment)
{
    const gate *g = user;
    g->allocator.release(g->allocator.user, block, bytes, alignment);
}

// Besides proposing, these check that they are called as engine/speculation/draft.h says.
typedef struct script_drafts {
    drafts base;
    script_mode mode;
    const turn *truth; // of the conversation without drafts, the same turn
    int32_t end;
    test_random random;
    int32_t seen[2 * CONTEXT];
    size_t seen_count;
    int32_t proposed[64];
    size_t proposed_count;
    gate *gate;  // not NULL: closed while a proposal is being checked
    size_t lost; // proposals, by that
} script_drafts;

static void script_see(script_drafts *s, const int32_t *tokens, size_t count)
{
    const size_t common = count < s->seen_count ? count : s->seen_count;
    assert_int_equal(s->proposed_count, 0);
    assert_memory_equal(tokens, s->seen, common * sizeof *tokens);
    if (count > s->seen_count) {
        memcpy(s->seen, tokens, count * sizeof *tokens);
        s->seen_count = count;
    }
}

static kvern_status script_begin(drafts *d, size_t row, const draft_sequence *sequence,
                                 engine_error *error)
{
    (void)error;
    script_drafts *s = (script_drafts *)d;
    assert_int_equal(row, 0);
    assert_true(sequence->room <= sequence->length && sequence->like == DRAFT_NO_ROW);
    assert_int_equal(s->seen_count + s->proposed_count, 0);
    return KVERN_OK;
}

static void script_end(drafts *d, size_t row)
{
    script_drafts *s = (script_drafts *)d;
    assert_int_equal(row, 0);
    s->seen_count = s->proposed_count = 0;
}

static uint64_t script_row_bytes(const drafts *d, size_t length)
{
    (void)d;
    (void)length;
    return 0;
}

static kvern_status script_read(drafts *d, draft_request *requests, size_t count,
                                engine_error *error)
{
    (void)error;
    assert_true(count == 1 && requests->row == 0);
    script_see((script_drafts *)d, requests->tokens, requests->count);
    return KVERN_OK;
}

static int32_t script_token(script_drafts *s, size_t at)
{
    const bool known = at < s->truth->sequence_count;
    const int32_t truth = known ? s->truth->sequence[at] : 25;
    const int32_t other = (truth + 1 + (int32_t)test_random_below(&s->random, 200)) % 250;
    switch (s->mode) {
    case SCRIPT_RIGHT:
        return truth;
    case SCRIPT_WRONG:
        return other;
    case SCRIPT_ENDING:
        return s->end;
    default:
        return test_random_below(&s->random, 4) ? truth : other;
    }
}

static kvern_status script_propose(drafts *d, draft_request *request, size_t requests,
                                   engine_error *error)
{
    (void)error;
    size_t *count = &request->proposed;
    assert_true(requests == 1 && request->row == 0 && *count == 0);
    script_drafts *s = (script_drafts *)d;
    assert_true(request->count > 0 && request->most > 0 && request->sampler);
    assert_true(request->count + request->most < CONTEXT); // a token of the model's own follows
    assert_true(s->seen_count < request->count);
    script_see(s, request->tokens, request->count);
    while (*count < request->most && *count < COUNT(s->proposed)) {
        const size_t at = request->count + *count;
        if (s->mode == SCRIPT_RIGHT && at >= s->truth->sequence_count) {
            break;
        }
        request->out[(*count)++] = script_token(s, at);
    }
    memcpy(s->proposed, request->out, *count * sizeof *s->proposed);
    s->proposed_count = *count;
    if (s->gate) {
        s->gate->closed = *count > 0;
    }
    return KVERN_OK;
}

static kvern_status script_accept(drafts *d, size_t row, size_t accepted, engine_error *error)
{
    (void)error;
    assert_int_equal(row, 0);
    script_drafts *s = (script_drafts *)d;
    assert_true(s->proposed_count > 0 && accepted <= s->proposed_count);
    if (s->gate) {
        s->lost += s->gate->refused && accepted == 0;
        *s->gate = (gate){s->gate->allocator, false, false};
    }
    memcpy(s->seen + s->seen_count, s->proposed, accepted * sizeof *s->seen);
    s->seen_count += accepted;
    s->proposed_count = 0;
    return KVERN_OK;
}

static kvern_status script_trim(drafts *d, size_t row, size_t length, engine_error *error)
{
    (void)error;
    assert_int_equal(row, 0);
    script_drafts *s = (script_drafts *)d;
    assert_int_equal(s->proposed_count, 0);
    s->seen_count = length < s->seen_count ? length : s->seen_count;
    return KVERN_OK;
}

static void script_destroy(drafts *d)
{
    free(d);
}

static const drafts_kind SCRIPT = {.begin = script_begin,
                                   .end = script_end,
                                   .read = script_read,
                                   .propose = script_propose,
                                   .accept = script_accept,
                                   .trim = script_trim,
                                   .row_bytes = script_row_bytes,
                                   .destroy = script_destroy};

static drafts *create_script(script_mode mode, int32_t end)
{
    script_drafts *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->base.kind = &SCRIPT;
    s->mode = mode;
    s->end = end;
    s->random = test_random_seed(check_seed() + 99);
    return &s->base;
}

// ---- Kinds of drafts ----

typedef enum source { NGRAM, SELF, OTHER, SCRIPTED, SOURCES = SCRIPTED + SCRIPT_MODES } source;

typedef struct setting {
    const world *w;
    kvern_composition *plan;
    kvern_composition *drafter; // of a model that drafts for itself; NULL: the fixture's
    bool greedy;
    size_t draft_tokens;
    uint64_t seed;
    const size_t *most_wrapped; // drafts of a pass once windows have wrapped; NULL: not bounded
} setting;

// Drafts of a kind; models draft for themselves, or one of the same shape with other weights does.
static drafts *create_drafts(source from, const setting *x, const world *other)
{
    drafts *d;
    if (from == NGRAM) {
        assert_ok(draft_ngram_create(1, CONTEXT, &d, NULL));
    } else if (from == SELF || from == OTHER) {
        const world *drafter = from == SELF ? x->w : other;
        kvern_composition *plan = from == SELF ? x->drafter : NULL;
        // Cheap as if they were small. Sequences grow longer than the other can follow.
        const draft_model_options options = {.context_length = from == SELF ? CONTEXT : CONTEXT / 2,
                                             .cost = 0.01f};
        assert_ok(draft_model_create(drafter->engine.model,
                                     plan ? plan : drafter->engine.composition, x->w->engine.model,
                                     &options, &d, NULL));
    } else {
        d = create_script((script_mode)(from - SCRIPTED), x->w->end);
    }
    return d;
}

static sampler *create_sampler(const setting *x)
{
    sampler_options options = sampler_default_options();
    if (!x->greedy) {
        options = (sampler_options){
            .temperature = 1.5f, .top_k = 30, .top_p = 0.9f, .min_p = 0.01f, .seed = x->seed};
    }
    if (x->seed % 2 == 1) {
        options.penalties =
            (penalty_options){.repeat = 1.2f, .presence = 0.3f, .frequency = 0.1f, .window = 20};
    }
    sampler *s;
    assert_ok(sampler_create(&options, x->w->engine.facts->vocabulary, &s, NULL));
    return s;
}

static generator *create_generator(const setting *x, drafts *d)
{
    const generator_options options = {
        .context_length = CONTEXT, .chunk = 7, .drafts = d, .draft_tokens = x->draft_tokens};
    generator *g;
    assert_ok(generator_create(x->w->engine.model, x->plan, &options, &g, NULL));
    return g;
}

// The turns of a random conversation; with drafts (d) beside `plain`, the one without.
static void converse(const setting *x, drafts *d, const conversation *plain, conversation *c)
{
    test_random random = test_random_seed(x->seed);
    sampler *s = create_sampler(x);
    generator *g = create_generator(x, d);
    while (c->count < MOST_TURNS) {
        const turn_plan plan = random_turn(&random, generator_pending(g));
        if (generator_length(g) + (int64_t)plan.prompt_count + 1 > CONTEXT) {
            break;
        }
        if (d && d->kind == &SCRIPT) {
            ((script_drafts *)d)->truth = &plain->turns[c->count];
        }
        assert_ok(try_turn(x->w, g, s, &plan, c));
        if (plain) {
            check_same_turn(&plain->turns[c->count - 1], &c->turns[c->count - 1]);
        }
    }
    assert_true(!plain || c->count == plain->count);
    generator_destroy(g);
    sampler_destroy(s);
}

static size_t wrapped_rounds; // that were held to a bound

// A conversation with drafts beside the one without. Adds up what became of them.
static void compare(const setting *x, source from, const world *other, const conversation *plain,
                    draft_counts *counts)
{
    static conversation drafted;
    drafts *d = create_drafts(from, x, other);
    converse(x, d, plain, &drafted);
    for (size_t i = 0; i < drafted.count; i++) {
        counts->rounds += drafted.turns[i].drafts.rounds;
        counts->drafted += drafted.turns[i].drafts.drafted;
        counts->accepted += drafted.turns[i].drafts.accepted;
        assert_int_equal(plain->turns[i].drafts.drafted, 0);
        if (i > 0 && x->most_wrapped && drafted.turns[i - 1].length > WRAPPED) {
            const draft_counts *of = &drafted.turns[i].drafts;
            assert_true(of->drafted <= of->rounds * *x->most_wrapped);
            wrapped_rounds += of->rounds;
        }
    }
    drafts_destroy(d);
    clear_conversation(&drafted);
}

// ---- Tests ----

// What each kind of drafts must have come to, over all conversations.
static void check_counts(source from, draft_counts counts)
{
    assert_true(counts.accepted <= counts.drafted && counts.rounds <= counts.drafted);
    assert_true(counts.rounds > 0);
    switch ((int)from) {
    case SCRIPTED + SCRIPT_RIGHT: // ends of turns, and cancelled ones, leave some over
        assert_true(counts.accepted * 2 > counts.drafted);
        assert_true(counts.drafted > 2 * counts.rounds);
        break;
    case SELF:
        assert_true(counts.accepted * 2 > counts.drafted);
        break;
    case SCRIPTED + SCRIPT_WRONG:
    case SCRIPTED + SCRIPT_ENDING:
        assert_int_equal(counts.accepted, 0);
        break;
    case SCRIPTED + SCRIPT_MIXED:
    case NGRAM:
        assert_true(counts.accepted > 0 && counts.accepted < counts.drafted);
        break;
    default:
        break;
    }
}

// Every kind of drafts, in one storage.
static void compare_all(const setting *x, const world *other, draft_counts sums[SOURCES])
{
    static conversation plain;
    converse(x, NULL, NULL, &plain);
    for (source from = 0; from < SOURCES; from++) {
        setting y = *x;
        y.draft_tokens = 1 + (x->draft_tokens + from) % 11;
        compare(&y, from, other, &plain, &sums[from]);
    }
    clear_conversation(&plain);
}

// Both families and every storage, greedily and not: in turns, or both when there is time.
static void every_draft_gives_the_plain_text(void **state)
{
    (void)state;
    draft_counts sums[SOURCES] = {0};
    for (family kind = 0; kind < FAMILIES; kind++) {
        world w = open_world(kind, 0, 'k', NULL), other = open_world(kind, 1, 'k', NULL);
        for (size_t i = 0; i < 2 * storage_count; i++) {
            const size_t s = i / 2;
            const bool greedy = i % 2;
            if (!check_is_long() && ((s + kind + greedy) % 2 || (HAS_SANITIZER && s % 3))) {
                continue;
            }
            const setting x = {.w = &w,
                               .plan = make_plan(&w, &storages[s], -1),
                               .greedy = greedy,
                               .draft_tokens = s,
                               .seed = check_seed() + 31 * i};
            compare_all(&x, &other, sums);
            kvern_composition_release(x.plan);
        }
        close_world(&other);
        close_world(&w);
    }
    for (source from = 0; from < SOURCES; from++) {
        check_counts(from, sums[from]);
    }
}

// Windows that can take back few positions get few drafts, and without slack none.
static void windows_bound_the_drafts(void **state)
{
    (void)state;
    world w = open_world(GEMMA3, 0, 0, NULL);
    static const int64_t slacks[] = {0, 1, 2, 5};
    for (size_t i = 0; i < COUNT(slacks); i++) {
        draft_counts counts = {0};
        kvern_composition *plan = make_plan(&w, &storages[i], slacks[i]);
        const size_t most = slacks[i] > 1 ? (size_t)slacks[i] - 1 : 0;
        const setting x = {.w = &w,
                           .plan = plan,
                           .draft_tokens = 9,
                           .seed = check_seed() + i,
                           .most_wrapped = &most};
        static conversation plain;
        wrapped_rounds = 0;
        converse(&x, NULL, NULL, &plain);
        for (source from = NGRAM; from < SOURCES; from++) {
            if (from != OTHER) {
                compare(&x, from, NULL, &plain, &counts);
            }
        }
        clear_conversation(&plain);
        assert_true(most == 0 || wrapped_rounds > 0);
        kvern_composition_release(plan);
    }
    close_world(&w);
}

// The same for a model that drafts: in its windows, and where its precision changes.
static void a_draft_model_bounds_the_drafts(void **state)
{
    (void)state;
    world w = open_world(GEMMA3, 0, 0, NULL);
    kvern_composition *plan = make_plan(&w, &storages[0], -1);
    for (int64_t slack = 0; slack < 5; slack++) {
        draft_counts counts = {0};
        const size_t most = (size_t)slack + 1;
        const setting x = {.w = &w,
                           .plan = plan,
                           .most_wrapped = &most,
                           .drafter = make_plan(&w, &storages[slack % 2 ? 0 : 10], slack),
                           .draft_tokens = 9,
                           .seed = check_seed() + (uint64_t)slack};
        static conversation plain;
        converse(&x, NULL, NULL, &plain);
        compare(&x, SELF, NULL, &plain, &counts);
        clear_conversation(&plain);
        assert_true(counts.rounds > 0);
        kvern_composition_release(x.drafter);
    }
    kvern_composition_release(plan);
    close_world(&w);
}

// The greedy model says the same few tokens over and over; each of them is made the one that ends a
// turn, and drafts run past it.
static void turns_end_within_accepted_drafts(void **state)
{
    (void)state;
    size_t ended = 0;
    for (int32_t token = 0; token < 256; token += 5) {
        static conversation plain, drafted;
        world w = open_world(LLAMA, 0, (uint32_t)token, NULL);
        kvern_composition *plan = make_plan(&w, &storages[0], -1);
        const setting x = {
            .w = &w, .plan = plan, .draft_tokens = 8, .seed = check_seed() + (uint64_t)token};
        drafts *d = create_script(SCRIPT_RIGHT, token);
        converse(&x, NULL, NULL, &plain);
        converse(&x, d, &plain, &drafted);
        for (size_t i = 0; i < plain.count; i++) {
            ended += plain.turns[i].reason == GENERATE_END && plain.turns[i].count > 2;
        }
        drafts_destroy(d);
        clear_conversation(&plain);
        clear_conversation(&drafted);
        kvern_composition_release(plan);
        close_world(&w);
    }
    assert_true(ended > 5);
}

// A model that drafts for itself is right about everything, sampled tokens too: it uses the same
// random numbers.
static void a_model_knows_itself(void **state)
{
    (void)state;
    size_t drafted = 0;
    for (family kind = 0; kind < FAMILIES; kind++) {
        world w = open_world(kind, 0, TINY_LLAMA_END, NULL);
        for (int greedy = 0; greedy < 2; greedy++) {
            static conversation c;
            kvern_composition *plan = make_plan(&w, &storages[1], -1); // f32, as w.engine's own
            const setting x = {.w = &w, .plan = plan, .greedy = greedy, .seed = check_seed()};
            drafts *d = create_drafts(SELF, &x, NULL);
            sampler *s = create_sampler(&x);
            generator *g = create_generator(&x, d);
            const turn_plan turn = {.prompt = {30, 31, 32}, .prompt_count = 3, .max_tokens = 100};
            assert_ok(try_turn(&w, g, s, &turn, &c));
            const draft_counts counts = c.turns[0].drafts;
            // Behind the end of a turn nothing is accepted.
            const bool ended = c.turns[0].reason == GENERATE_END;
            assert_true(counts.accepted + (ended ? GENERATOR_DRAFT_TOKENS : 0) >= counts.drafted);
            assert_true(counts.drafted > 2 * counts.rounds);
            drafted += counts.drafted;
            generator_destroy(g);
            sampler_destroy(s);
            drafts_destroy(d);
            kvern_composition_release(plan);
            clear_conversation(&c);
        }
        close_world(&w);
    }
    assert_true(drafted > 100);
}

// ---- Failures ----

// A generation during which the allocation after the next `granted` ones is refused. Whatever it
// gave is right. Says whether it succeeded all the same; *refused: whether it came to that.
static bool run_refused(const setting *x, generator *g, const turn_plan *plan, const turn *plain,
                        ledger *books, int64_t granted, bool *refused)
{
    static turn t;
    listener l = {.turn = &t};
    generate_result result;
    sampler *s = create_sampler(x);
    const generate_request request = {.tokens = plan->prompt,
                                      .count = plan->prompt_count,
                                      .max_tokens = plan->max_tokens,
                                      .sampler = s,
                                      .user = &l,
                                      .on_token = on_token};
    t.count = 0;
    ledger_refuse(books, granted);
    const kvern_status status = generator_run(g, &request, &result, NULL);
    *refused = ledger_relent(books);
    assert_true(status == KVERN_OK || (status == KVERN_ERR_MEMORY && *refused));
    assert_true(t.count == plain->count || (status != KVERN_OK && t.count < plain->count));
    assert_memory_equal(t.tokens, plain->tokens, t.count * sizeof *t.tokens);
    assert_int_equal(kvern_state_length(generator_state(g), 0), generator_length(g));
    sampler_destroy(s);
    return status == KVERN_OK;
}

static void run_whole(const setting *x, generator *g, const turn_plan *plan, conversation *c)
{
    sampler *s = create_sampler(x);
    assert_ok(try_turn(x->w, g, s, plan, c));
    sampler_destroy(s);
}

// Every allocation of the library refused once: where a generation fails, what came before is
// right, and it can begin anew.
static void refused_memory_changes_no_token(void **state)
{
    (void)state;
    static conversation plain, drafted;
    const turn_plan plan = {.prompt = {30, 31, 32, 30, 31}, .prompt_count = 5, .max_tokens = 90};
    size_t failed = 0;
    ledger books;
    ledger_init(&books);
    kvern_allocator allocator = ledger_allocator(&books);
    world w = open_world(LLAMA, 0, TINY_LLAMA_END, &allocator);
    setting x = {.w = &w, .plan = make_plan(&w, &storages[10], -1), .draft_tokens = 6, .seed = 3};
    generator *g = create_generator(&x, NULL);
    run_whole(&x, g, &plan, &plain);
    generator_destroy(g);
    bool refused = true;
    for (int64_t granted = 0; granted < 40 || refused; granted++) {
        const source from = granted % SOURCES == OTHER ? SELF : (source)(granted % SOURCES);
        drafts *d = create_drafts(from, &x, NULL);
        if (d->kind == &SCRIPT) {
            ((script_drafts *)d)->truth = &plain.turns[0];
        }
        g = create_generator(&x, d);
        const bool succeeded =
            run_refused(&x, g, &plan, &plain.turns[0], &books, granted, &refused);
        failed += !succeeded;
        assert_ok(generator_reset(g, NULL));
        run_whole(&x, g, &plan, &drafted);
        check_same_turn(&plain.turns[0], &drafted.turns[0]);
        clear_conversation(&drafted);
        generator_destroy(g);
        drafts_destroy(d);
    }
    assert_true(failed > 3);
    clear_conversation(&plain);
    kvern_composition_release(x.plan);
    close_world(&w);
    ledger_finish(&books);
}

// Passes that check drafts never get memory that they do not have yet: these drafts are lost, and
// nothing else.
static void refused_memory_costs_drafts_alone(void **state)
{
    (void)state;
    static conversation plain, drafted;
    const turn_plan plan = {.prompt = {30, 31, 32, 30, 31}, .prompt_count = 5, .max_tokens = 250};
    ledger books;
    ledger_init(&books);
    gate door = {.allocator = ledger_allocator(&books)};
    kvern_allocator allocator = {.user = &door, .allocate = gate_allocate, .release = gate_release};
    for (family kind = 0; kind < FAMILIES; kind++) {
        world w = open_world(kind, 0, TINY_LLAMA_END, &allocator);
        const setting x = {
            .w = &w, .plan = make_plan(&w, &storages[10], -1), .draft_tokens = 6, .seed = 3};
        generator *g = create_generator(&x, NULL);
        run_whole(&x, g, &plan, &plain);
        generator_destroy(g);
        drafts *d = create_script(SCRIPT_RIGHT, w.end);
        script_drafts *script = (script_drafts *)d;
        script->truth = &plain.turns[0];
        script->gate = &door;
        g = create_generator(&x, d);
        run_whole(&x, g, &plan, &drafted);
        check_same_turn(&plain.turns[0], &drafted.turns[0]);
        assert_true(script->lost > 0);
        assert_true(drafted.turns[0].drafts.accepted > 0);
        generator_destroy(g);
        drafts_destroy(d);
        clear_conversation(&plain);
        clear_conversation(&drafted);
        kvern_composition_release(x.plan);
        close_world(&w);
    }
    ledger_finish(&books);
}

static atomic_bool cancel_midway;

static void cancel_in_prompt(void *user, size_t done, size_t total)
{
    (void)user;
    (void)total;
    atomic_store(&cancel_midway, done >= 14);
}

// A turn, a prompt that is cancelled between two of its chunks, and another turn.
static void converse_around_a_cancelled_prompt(const setting *x, drafts *d, conversation *c)
{
    const turn_plan first = {.prompt = {30, 31, 32}, .prompt_count = 3, .max_tokens = 6};
    const turn_plan second = {.prompt = {40, 41}, .prompt_count = 2, .max_tokens = 40};
    int32_t cancelled[40];
    for (int32_t i = 0; i < 40; i++) {
        cancelled[i] = 100 + i % 3;
    }
    sampler *s = create_sampler(x);
    generator *g = create_generator(x, d);
    assert_ok(try_turn(x->w, g, s, &first, c));
    const generate_request request = {.tokens = cancelled,
                                      .count = COUNT(cancelled),
                                      .max_tokens = 10,
                                      .sampler = s,
                                      .cancel = &cancel_midway,
                                      .on_prompt = cancel_in_prompt};
    generate_result result;
    atomic_store(&cancel_midway, false);
    assert_ok(generator_run(g, &request, &result, NULL));
    assert_int_equal(result.reason, GENERATE_CANCELLED);
    assert_int_equal(generator_length(g), c->turns[0].length);
    assert_ok(try_turn(x->w, g, s, &second, c));
    generator_destroy(g);
    sampler_destroy(s);
}

// Drafts have read a part of it, and must forget that.
static void a_cancelled_prompt_is_forgotten(void **state)
{
    (void)state;
    static conversation plain, drafted;
    for (family kind = 0; kind < FAMILIES; kind++) {
        world w = open_world(kind, 0, TINY_LLAMA_END, NULL);
        world other = open_world(kind, 1, TINY_LLAMA_END, NULL);
        kvern_composition *plan = make_plan(&w, &storages[0], -1);
        const setting x = {.w = &w, .plan = plan, .draft_tokens = 5, .seed = 8};
        converse_around_a_cancelled_prompt(&x, NULL, &plain);
        for (source from = NGRAM; from < SOURCES; from++) {
            drafts *d = create_drafts(from, &x, &other);
            if (d->kind == &SCRIPT) {
                ((script_drafts *)d)->truth = &plain.turns[1];
            }
            converse_around_a_cancelled_prompt(&x, d, &drafted);
            check_same_turn(&plain.turns[1], &drafted.turns[1]);
            drafts_destroy(d);
            clear_conversation(&drafted);
        }
        clear_conversation(&plain);
        kvern_composition_release(plan);
        close_world(&other);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_draft_gives_the_plain_text),
        cmocka_unit_test(windows_bound_the_drafts),
        cmocka_unit_test(a_draft_model_bounds_the_drafts),
        cmocka_unit_test(turns_end_within_accepted_drafts),
        cmocka_unit_test(a_model_knows_itself),
        cmocka_unit_test(refused_memory_changes_no_token),
        cmocka_unit_test(refused_memory_costs_drafts_alone),
        cmocka_unit_test(a_cancelled_prompt_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
