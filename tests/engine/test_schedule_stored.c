// SPDX-License-Identifier: MIT
// A scheduler with a store: prompts that begin as one that ended take that from it, and every
// answer is the one that its request gives alone, bit for bit, whatever is lent, evicted or given
// up.

#include "tests/support/asked.h"
#include "tests/support/check.h"
#include "tests/support/family_case.h"
#include "tests/support/folder.h"
#include "tests/support/schedule_bed.h"
#include "tests/support/storages.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT 512
#define WAVE 5
#define WAVES 3

// What is served: see schedule_bed_file; layers that recur beside others; latents.
typedef enum served { LLAMA, GEMMA, HYBRID, LATENTS, SERVED } served;

static void *served_file(served kind, size_t *bytes)
{
    if (kind == LLAMA || kind == GEMMA) {
        return schedule_bed_file(kind == GEMMA, 0, 2, bytes);
    }
    family_case model =
        family_case_open(kind == HYBRID ? KVERN_TESTS_DIR "/golden/families/qwen3next.json"
                                        : KVERN_TESTS_DIR "/golden/families/deepseek-v3-gguf.json");
    void *data = family_case_gguf(&model, bytes);
    family_case_close(&model);
    return data;
}

typedef struct bed {
    void *data;
    engine_fixture engine;
    engine_fixture alone; // says what a request gives alone
    kvern_store *store;
    kvern_store_field field;
    schedule_options options;
    schedule *schedule;
} bed;

typedef struct bed_options {
    served kind;
    const storage *storage;
    uint64_t budget, store_budget; // 0: none
    size_t draft_tokens;
} bed_options;

static bed open_bed(const bed_options *o)
{
    bed b = {.field = {.name = "model", .value = "m", .bytes = 1}};
    size_t bytes;
    const kvern_storage wishes = schedule_bed_wishes(o->storage);
    kvern_store_options store = kvern_store_options_default();
    store.budget_bytes = o->store_budget;
    b.data = served_file(o->kind, &bytes);
    engine_fixture_options options = engine_fixture_default(b.data, bytes);
    b.alone = engine_fixture_open(&options);
    schedule_bed_store(&b.alone, &wishes);
    options.context.threads = 1;
    options.context.budget_bytes = o->budget;
    b.engine = engine_fixture_open(&options);
    schedule_bed_store(&b.engine, &wishes);
    assert_ok(kvern_store_create(b.engine.context, &store, &b.store));
    b.options = (schedule_options){.context_length = CONTEXT,
                                   .chunk = 16,
                                   .most_rows = 2,
                                   .most_kept = 1,
                                   .draft_tokens = o->draft_tokens,
                                   .store = b.store};
    return b;
}

// The key points into the bed, which must have its place.
static void open_schedule(bed *b)
{
    b->options.store_key = (kvern_store_key){&b->field, 1};
    assert_ok(
        schedule_create(b->engine.model, b->engine.composition, &b->options, &b->schedule, NULL));
}

static void close_bed(bed *b)
{
    schedule_destroy(b->schedule);
    kvern_store_destroy(b->store);
    assert_int_equal(schedule_bed_memory(&b->engine).page_bytes, 0);
    engine_fixture_close(&b->engine);
    engine_fixture_close(&b->alone);
    free(b->data);
}

static kvern_store_stats stats_of(const bed *b)
{
    kvern_store_stats stats = kvern_store_stats_default();
    assert_ok(kvern_store_get_stats(b->store, &stats));
    return stats;
}

// ---- Random requests ----

// Requests that begin alike, at random times. Refused for the budget: none is expected then.
static void serve_wave(const bed *b, test_random *random)
{
    asked *requests = calloc(WAVE, sizeof *requests);
    assert_non_null(requests);
    asked_serve(requests, WAVE, b->engine.model, b->schedule, random);
    for (size_t i = 0; i < WAVE; i++) {
        asked_expect_alone(&requests[i], &b->alone, CONTEXT, b->options.chunk);
        assert_true(requests[i].result.stored_tokens <= requests[i].result.shared_tokens);
        asked_free(&requests[i]);
    }
    free(requests);
}

// Waves of them; the later ones in a scheduler of their own. Returns the tokens that were lent.
static uint64_t serve(const bed_options *o, uint64_t seed)
{
    bed b = open_bed(o);
    uint64_t stored = 0;
    test_random random = test_random_seed(seed);
    for (size_t w = 0; w < WAVES; w++) {
        open_schedule(&b);
        serve_wave(&b, &random);
        serve_wave(&b, &random);
        stored += schedule_get_statistics(b.schedule).stored_tokens;
        assert_true(o->store_budget == 0 || stats_of(&b).bytes <= o->store_budget);
        schedule_destroy(b.schedule);
        b.schedule = NULL;
    }
    assert_int_equal(stats_of(&b).pinned, 0);
    close_bed(&b);
    return stored;
}

static void answers_are_those_without_a_store(void **state)
{
    (void)state;
    const size_t stride = check_is_long() ? 1 : 5;
    uint64_t stored[SERVED] = {0};
    for (size_t i = 0; i < storage_count; i++) {
        if (storages[i].start < 0 && i % stride) {
            continue;
        }
        for (served kind = LLAMA; kind <= GEMMA; kind++) {
            const bed_options o = {
                .kind = kind, .storage = &storages[i], .draft_tokens = i % 2 ? 4 : 0};
            const uint64_t lent = serve(&o, check_seed() + 10 * i + kind);
            assert_true(storages[i].start != 0 || lent == 0); // see schedule_prefix_possible
            stored[kind] += lent;
        }
    }
    for (uint64_t i = 0; i < (check_is_long() ? 12 : 4); i++) {
        const bed_options o = {.kind = i % 2 ? LATENTS : HYBRID, .storage = &storages[0]};
        stored[o.kind] += serve(&o, check_seed() + 100 * i);
    }
    print_message("lent: %d, %d, %d, %d tokens\n", (int)stored[LLAMA], (int)stored[GEMMA],
                  (int)stored[HYBRID], (int)stored[LATENTS]);
    assert_true(stored[LLAMA] && stored[GEMMA] && stored[LATENTS]);
}

// A store that holds little evicts; one in a small budget gives up what a request needs.
static void so_they_are_where_memory_is_short(void **state)
{
    (void)state;
    uint64_t stored = 0;
    for (served kind = LLAMA; kind <= GEMMA; kind++) {
        const bed_options o = {.kind = kind, .storage = &storages[0], .store_budget = 200000};
        stored += serve(&o, check_seed() + kind);
    }
    assert_true(stored > 0);
}

// ---- Chosen ones ----

static void ask(const bed *b, asked *a, const int32_t *tokens, size_t count, kept_sequence *kept)
{
    a->vocabulary = model_get_facts(b->engine.model)->vocabulary;
    a->max_tokens = 4;
    a->sampling = sampler_default_options();
    a->sampling.temperature = 0;
    a->count = count;
    memcpy(a->prompt, tokens, count * sizeof *tokens);
    schedule_request request = asked_request(a);
    request.kept = kept;
    assert_ok(schedule_submit(b->schedule, &request, &a->id, NULL));
    while (schedule_step(b->schedule)) {
    }
    assert_int_equal(a->ends, 1);
}

static void fill(int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)(5 + i % 40);
    }
}

// Of the same prompt all but its last token is there, in a recurrent model too, where that is what
// it ended with; and a kept sequence begins with what is stored.
static void what_ended_is_not_forwarded_again(void **state)
{
    (void)state;
    int32_t tokens[120];
    fill(tokens, 120);
    for (served kind = LLAMA; kind < SERVED; kind++) {
        static asked first, longer, kept_one;
        first = longer = kept_one = (asked){0};
        const bed_options o = {.kind = kind, .storage = &storages[0]};
        bed b = open_bed(&o);
        open_schedule(&b);
        ask(&b, &first, tokens, 100, NULL);
        assert_int_equal(first.result.stored_tokens, 0);
        assert_string_equal(first.result.why, kvern_store_why_text(KVERN_STORE_NO_KEY));
        ask(&b, &longer, tokens, 110, NULL);
        assert_int_equal(longer.result.stored_tokens, 100);
        kept_sequence *kept;
        assert_ok(schedule_keep(b.schedule, &kept, NULL));
        ask(&b, &kept_one, tokens, 120, kept);
        assert_int_equal(kept_one.result.stored_tokens, 110);
        assert_int_equal(kept_sequence_length(kept), 120 + 3);
        asked_expect_alone(&longer, &b.alone, CONTEXT, b.options.chunk);
        asked_expect_alone(&kept_one, &b.alone, CONTEXT, b.options.chunk);
        asked_free(&first);
        asked_free(&longer);
        asked_free(&kept_one);
        close_bed(&b);
    }
}

// What a row is, step by step; behind what is stored in the second round.
static void rows_tell_what_they_hold(void **state)
{
    (void)state;
    static asked a;
    const bed_options o = {.kind = LLAMA, .storage = &storages[0]};
    bed b = open_bed(&o);
    open_schedule(&b);
    schedule_row row;
    assert_false(schedule_get_row(b.schedule, 0, &row));
    for (size_t round = 0; round < 2; round++) {
        const size_t there = round ? 100 : 0;
        a = (asked){.vocabulary = SCHEDULE_BED_VOCABULARY, .count = 110, .max_tokens = 5};
        a.sampling = sampler_default_options();
        fill(a.prompt, 110);
        a.count = round ? 110 : 100;
        const schedule_request request = asked_request(&a);
        assert_ok(schedule_submit(b.schedule, &request, &a.id, NULL));
        for (size_t step = 1; schedule_step(b.schedule) && a.ends == 0; step++) {
            const size_t read = there + 16 * step;
            assert_true(schedule_get_row(b.schedule, 0, &row));
            assert_int_equal(row.id, a.id);
            assert_int_equal(row.prompt_tokens, a.count);
            assert_int_equal(row.final_length, a.count + 5);
            assert_int_equal(row.forwarded, read < a.count ? read : a.count);
            assert_int_equal(row.generated_tokens, a.taken);
            assert_int_equal(row.length, row.forwarded + (a.taken ? a.taken - 1 : 0));
            assert_int_equal(row.shared_tokens, there);
            assert_int_equal(row.stored_tokens, there);
            assert_false(row.from_disk);
            assert_string_equal(
                row.why, kvern_store_why_text(round ? KVERN_STORE_TOKENS : KVERN_STORE_NO_KEY));
        }
        assert_false(schedule_get_row(b.schedule, 0, &row));
        assert_int_equal(a.ends, 1);
        asked_free(&a);
    }
    close_bed(&b);
}

// A turn that is cancelled in its prompt leaves an empty sequence empty, also one that began with
// what is stored.
static void an_undone_turn_leaves_nothing(void **state)
{
    (void)state;
    int32_t tokens[200];
    static asked first, undone;
    first = undone = (asked){0};
    const bed_options o = {.kind = LLAMA, .storage = &storages[0]};
    bed b = open_bed(&o);
    fill(tokens, 200);
    open_schedule(&b);
    ask(&b, &first, tokens, 60, NULL);
    kept_sequence *kept;
    assert_ok(schedule_keep(b.schedule, &kept, NULL));
    undone.count = 200;
    undone.vocabulary = SCHEDULE_BED_VOCABULARY;
    memcpy(undone.prompt, tokens, sizeof tokens);
    schedule_request request = asked_request(&undone);
    request.kept = kept;
    assert_ok(schedule_submit(b.schedule, &request, &undone.id, NULL));
    schedule_step(b.schedule);
    assert_int_equal(kept_sequence_length(kept), 60 + 16);
    assert_true(schedule_cancel(b.schedule, undone.id));
    while (schedule_step(b.schedule)) {
    }
    assert_int_equal(kept_sequence_length(kept), 0);
    assert_false(kept_sequence_pending(kept));
    asked_free(&first);
    asked_free(&undone);
    close_bed(&b);
}

// Under a budget that holds little more than one row the store is there, and gives up for every
// request what it needs: none is refused that would not be without a store.
static void the_store_gives_way_to_requests(void **state)
{
    (void)state;
    int32_t tokens[300];
    fill(tokens, 300);
    bed_options o = {.kind = LLAMA, .storage = &storages[0]};
    bed empty = open_bed(&o);
    open_schedule(&empty);
    const uint64_t held = schedule_bed_memory(&empty.engine).held_bytes;
    const uint64_t row = kvern_composition_row_bytes(empty.engine.composition, 300);
    close_bed(&empty);

    o.budget = held + row + row / 2;
    bed b = open_bed(&o);
    open_schedule(&b);
    for (int32_t i = 0; i < 6; i++) {
        static asked a;
        a = (asked){0};
        tokens[0] = 5 + i; // nothing in common
        ask(&b, &a, tokens, 290, NULL);
        assert_ok(a.result.status);
        asked_expect_alone(&a, &b.alone, CONTEXT, b.options.chunk);
        asked_free(&a);
    }
    assert_true(stats_of(&b).evictions > 0);
    close_bed(&b);
}

static kvern_disk_store *open_disk(bed *b)
{
    kvern_disk_store_options options = kvern_disk_store_options_default();
    options.create = 1;
    assert_ok(
        kvern_disk_store_open(b->engine.context, folder_path("d"), &options, &b->options.disk));
    open_schedule(b);
    return b->options.disk;
}

static size_t stored_of(const bed *b, const int32_t *tokens, size_t count)
{
    static asked a;
    a = (asked){0};
    ask(b, &a, tokens, count, NULL);
    asked_expect_alone(&a, &b->alone, CONTEXT, b->options.chunk);
    asked_free(&a);
    kvern_disk_store_flush(b->options.disk);
    return a.result.stored_tokens;
}

// Who reads a directory finds what its writer puts there meanwhile, and writes when that has gone.
static void a_request_looks_again_at_the_disk(void **state)
{
    (void)state;
    int32_t tokens[120];
    const bed_options o = {.kind = LLAMA, .storage = &storages[0]};
    bed writer = open_bed(&o), reader = open_bed(&o), third = open_bed(&o);
    kvern_disk_store_stats stats = kvern_disk_store_stats_default();
    folder_make();
    fill(tokens, 120);
    open_disk(&writer);
    kvern_disk_store *disk = open_disk(&reader);
    assert_int_equal(stored_of(&writer, tokens, 100), 0);
    assert_true(stored_of(&reader, tokens, 110) >= 100);
    kvern_disk_store_close(writer.options.disk);
    // It does not look at each request where looking took long.
    for (int32_t i = 0; i < 900 && !stats.is_writer; i++) {
        tokens[0] = 6 + i / 30; // nothing in common that is worth it
        tokens[1] = 7 + i % 30;
        assert_int_equal(stored_of(&reader, tokens, 100), 0);
        assert_ok(kvern_disk_store_get_stats(disk, &stats));
    }
    assert_int_equal(stats.is_writer, 1);
    open_disk(&third);
    assert_true(stored_of(&third, tokens, 110) >= 100);
    kvern_disk_store_close(third.options.disk);
    kvern_disk_store_close(disk);
    close_bed(&third);
    close_bed(&reader);
    close_bed(&writer);
    folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_without_a_store),
        cmocka_unit_test(so_they_are_where_memory_is_short),
        cmocka_unit_test(what_ended_is_not_forwarded_again),
        cmocka_unit_test(rows_tell_what_they_hold),
        cmocka_unit_test(an_undone_turn_leaves_nothing),
        cmocka_unit_test(the_store_gives_way_to_requests),
        cmocka_unit_test(a_request_looks_again_at_the_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
