// SPDX-License-Identifier: MIT
// Structs that begin with their size: what an older, a newer and a careless program passes. Old
// programs for real are check/abi.

#include "src/base/sized.h"
#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/guarded.h"
#include "tests/support/padded_tensors.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SURPLUS 24
#define HEADS 2
#define DIM 32

// ---- The helper, with a struct that has grown twice ----

typedef struct grown {
    size_t size;
    uint64_t first;
    uint64_t second; // since the second release
    uint64_t third;  // not released yet
} grown;

static const kvern_sized GROWN =
    KVERN_SIZED(grown, KVERN_SIZE_TO(grown, first), KVERN_SIZE_TO(grown, second));

static void known_sizes(void **state)
{
    (void)state;
    struct {
        grown known;
        uint64_t surplus[2];
    } given = {{0, 1, 2, 3}, {0, 0}};
    for (size_t size = 0; size <= sizeof given; size++) {
        const bool released = size == 16 || size == 24 || size >= sizeof(grown);
        grown read;
        given.known.size = size;
        assert_status(released ? KVERN_OK : KVERN_ERR_ARGUMENT,
                      kvern_sized_read(&GROWN, &given, &read));
        assert_status(released ? KVERN_OK : KVERN_ERR_ARGUMENT,
                      kvern_sized_check_output(&GROWN, &given));
        if (!released)
            continue;
        const grown wanted = {sizeof(grown), 1, size >= 24 ? 2 : 0, size >= 32 ? 3 : 0};
        check_same_bytes(&wanted, &read, sizeof wanted, "what was read");
    }
    given.known.size = sizeof given;
    for (size_t i = 0; i < 2; i++) {
        grown read;
        given.surplus[i] = UINT64_C(1) << 63;
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_sized_read(&GROWN, &given, &read));
        assert_non_null(strstr(kvern_error_detail(), "grown.size is 48"));
        given.surplus[i] = 0;
    }
}

static void output_sizes(void **state)
{
    (void)state;
    const grown found = {0, 1, 2, 3};
    for (size_t size = 16; size <= 48; size += 8) {
        uint64_t given[7];
        memset(given, 0xaa, sizeof given);
        given[0] = size;
        kvern_sized_write(&GROWN, &found, given);
        const uint64_t wanted[7] = {size, 1, 2, 3, 0, 0, 0};
        check_same_bytes(wanted, given, size, "what was written");
        assert_true(size == 56 || given[size / 8] == UINT64_C(0xaaaaaaaaaaaaaaaa));
    }
}

// ---- Every call that takes such a struct ----

typedef struct fixture {
    bed *bed;
    kvern_composition *composition;
    kvern_state *state;
    kvern_cache *empty;
    kvern_read *read;
    feed feed;
    padded_tensors tensors;
    kvern_layer layer;
} fixture;

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    const uint64_t sequence = 3;
    const int64_t count = 1;
    f->layer = layer_of(HEADS, DIM, KVERN_BF16);
    f->bed = bed_create(f->layer, 1);
    f->feed = feed_create(f->bed->cache, &sequence, &count, HEADS);
    assert_ok(kvern_cache_append(f->bed->cache, KVERN_PHASE_WINDOW, &f->feed.tokens, &f->read));
    f->tensors = padded_export(f->bed->cache);
    assert_ok(kvern_composition_create(f->bed->context, &f->layer, 1, &f->composition));
    assert_ok(kvern_cache_create(f->composition, 0, 1, &f->empty));
    assert_ok(kvern_state_create(f->composition, 1, &f->state));
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    kvern_state_destroy(f->state);
    kvern_cache_destroy(f->empty);
    kvern_composition_release(f->composition);
    kvern_read_release(f->read);
    padded_destroy(&f->tensors);
    feed_destroy(&f->feed);
    bed_destroy(f->bed);
    free(f);
    return 0;
}

static kvern_status create_context(fixture *f, void *given)
{
    (void)f;
    kvern_context *context;
    kvern_status status = kvern_context_create(given, &context);
    assert_true(!status == !!context);
    kvern_context_release(context);
    return status;
}

static kvern_status create_composition(fixture *f, void *given)
{
    kvern_composition *composition;
    kvern_status status = kvern_composition_create(f->bed->context, given, 1, &composition);
    assert_true(!status == !!composition);
    kvern_composition_release(composition);
    return status;
}

static kvern_status apply_to_layer(fixture *f, void *given)
{
    (void)f;
    const kvern_storage storage = kvern_storage_default();
    return kvern_storage_apply(&storage, given, 1);
}

static kvern_status apply_storage(fixture *f, void *given)
{
    return kvern_storage_apply(given, &f->layer, 1);
}

static kvern_status append(fixture *f, void *given)
{
    kvern_status status = kvern_cache_append(f->bed->cache, KVERN_PHASE_DECODE, given, NULL);
    if (!status)
        assert_ok(kvern_cache_trim(f->bed->cache, 0, 1));
    return status;
}

static kvern_status append_in_step(fixture *f, void *given)
{
    const int64_t count = 1;
    assert_ok(kvern_step_begin(f->state, KVERN_PHASE_DECODE, &count));
    kvern_status status = kvern_step_append(f->state, 0, given, NULL);
    kvern_step_abandon(f->state);
    return status;
}

static kvern_status attend(fixture *f, void *given)
{
    return kvern_read_attend(f->read, given);
}

static kvern_status export_padded(fixture *f, void *given)
{
    return kvern_cache_export_padded(f->bed->cache, given);
}

static kvern_status import_padded(fixture *f, void *given)
{
    kvern_status status = kvern_cache_import_padded(f->empty, given);
    assert_ok(kvern_cache_reset(f->empty, 0));
    return status;
}

static kvern_status import_state(fixture *f, void *given)
{
    kvern_status status = kvern_state_import_padded(f->state, given);
    assert_ok(kvern_state_reset(f->state, 0));
    return status;
}

static kvern_status ask_memory(fixture *f, void *given)
{
    return kvern_context_memory(f->bed->context, given);
}

static kvern_status plan_slot(fixture *f, void *given)
{
    return kvern_slot_plan(f->state, 0, 0, given);
}

static kvern_status take_slot(fixture *f, void *given)
{
    const int64_t count = 1;
    assert_ok(kvern_step_begin(f->state, KVERN_PHASE_DECODE, &count));
    kvern_status status = kvern_step_slot(f->state, 0, 0, given);
    kvern_step_abandon(f->state);
    return status;
}

static kvern_status reserve_state(fixture *f, void *given)
{
    kvern_status status = kvern_state_reserve_plan(f->state, 0, given);
    assert_ok(kvern_state_reset(f->state, 0));
    return status;
}

static kvern_status reserve_cache(fixture *f, void *given)
{
    kvern_status status = kvern_cache_reserve_plan(f->empty, 0, given);
    assert_ok(kvern_cache_reset(f->empty, 0));
    return status;
}

static kvern_status plan_bytes(fixture *f, void *given)
{
    uint64_t bytes;
    return kvern_composition_plan_bytes(f->composition, given, &bytes);
}

typedef struct sized_call {
    const char *name; // of the struct
    kvern_status (*call)(fixture *f, void *given);
    size_t size;
    bool output;
} sized_call;

static const sized_call CALLS[] = {
    {"kvern_context_options", create_context, sizeof(kvern_context_options), false},
    {"kvern_layer", create_composition, sizeof(kvern_layer), false},
    {"kvern_layer", apply_to_layer, sizeof(kvern_layer), false},
    {"kvern_storage", apply_storage, sizeof(kvern_storage), false},
    {"kvern_tokens", append, sizeof(kvern_tokens), false},
    {"kvern_tokens", append_in_step, sizeof(kvern_tokens), false},
    {"kvern_queries", attend, sizeof(kvern_queries), false},
    {"kvern_padded_planes", export_padded, sizeof(kvern_padded_planes), false},
    {"kvern_padded_planes", import_padded, sizeof(kvern_padded_planes), false},
    {"kvern_padded_planes", import_state, sizeof(kvern_padded_planes), false},
    {"kvern_plan", plan_bytes, sizeof(kvern_plan), false},
    {"kvern_plan", reserve_state, sizeof(kvern_plan), false},
    {"kvern_plan", reserve_cache, sizeof(kvern_plan), false},
    {"kvern_memory", ask_memory, sizeof(kvern_memory), true},
    {"kvern_planned_slot", plan_slot, sizeof(kvern_planned_slot), true},
    {"kvern_slot", take_slot, sizeof(kvern_slot), true},
};
#define CALL_COUNT (sizeof CALLS / sizeof CALLS[0])

// What a call of the table succeeds with: a struct of `size` bytes by malloc.
static void *given_for(fixture *f, const sized_call *call, size_t size)
{
    unsigned char *given = malloc(size);
    assert_non_null(given);
    memset(given, 0xaa, size);
    if (strcmp(call->name, "kvern_context_options") == 0) {
        kvern_context_options_init((kvern_context_options *)given, size);
        ((kvern_context_options *)given)->threads = 1;
    } else if (strcmp(call->name, "kvern_layer") == 0)
        kvern_layer_init((kvern_layer *)given, size, HEADS, DIM);
    else if (strcmp(call->name, "kvern_storage") == 0)
        kvern_storage_init((kvern_storage *)given, size);
    else if (strcmp(call->name, "kvern_plan") == 0)
        kvern_plan_init((kvern_plan *)given, size);
    else if (strcmp(call->name, "kvern_tokens") == 0) {
        kvern_tokens_init((kvern_tokens *)given, size, &f->layer);
        ((kvern_tokens *)given)->k = f->feed.k;
        ((kvern_tokens *)given)->v = f->feed.v;
        ((kvern_tokens *)given)->counts = f->feed.counts;
    } else if (strcmp(call->name, "kvern_queries") == 0) {
        kvern_queries_init((kvern_queries *)given, size, &f->layer, HEADS);
        ((kvern_queries *)given)->q = f->feed.q;
        ((kvern_queries *)given)->out = f->feed.out;
    } else if (strcmp(call->name, "kvern_padded_planes") == 0) {
        kvern_padded_planes_init((kvern_padded_planes *)given, size);
        memcpy(given + sizeof size, (const char *)&f->tensors.planes + sizeof size,
               sizeof(kvern_padded_planes) - sizeof size);
    } else
        memcpy(given, &size, sizeof size);
    return given;
}

// Only the size itself can be read: what lies behind is looked at after it.
static void wrong_sizes(void **state)
{
    fixture *f = *state;
    guarded buffer = guarded_at_end(sizeof(size_t));
    size_t *size = guarded_last(&buffer, sizeof *size);
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const sized_call *call = &CALLS[i];
        const size_t wrong[] = {0, 1, sizeof(size_t), call->size - 1, 4097, SIZE_MAX};
        for (size_t w = 0; w < sizeof wrong / sizeof wrong[0]; w++) {
            *size = wrong[w];
            assert_status(KVERN_ERR_ARGUMENT, call->call(f, size));
            char named[64];
            snprintf(named, sizeof named, "%s.size", call->name);
            assert_non_null(strstr(kvern_error_detail(), named));
        }
    }
    guarded_free(&buffer);
}

static void longer_structs(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const sized_call *call = &CALLS[i];
        const size_t size = call->size + SURPLUS;
        unsigned char *given = given_for(f, call, size);
        const unsigned char zeros[SURPLUS] = {0};
        assert_ok(call->call(f, given));
        check_same_bytes(zeros, given + call->size, SURPLUS, call->name);
        given[size - 1] = 1;
        assert_status(call->output ? KVERN_OK : KVERN_ERR_UNSUPPORTED, call->call(f, given));
        if (call->output)
            check_same_bytes(zeros, given + call->size, SURPLUS, call->name);
        else
            assert_non_null(strstr(kvern_error_detail(), call->name));
        free(given);
    }
}

// Defaults go exactly where the caller has room for them.
static void defaults_fit(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const sized_call *call = &CALLS[i];
        if (call->output || call->call == apply_to_layer)
            continue;
        unsigned char *whole = given_for(f, call, call->size);
        unsigned char *longer = given_for(f, call, call->size + SURPLUS);
        const unsigned char zeros[SURPLUS] = {0};
        check_same_bytes(whole + sizeof(size_t), longer + sizeof(size_t),
                         call->size - sizeof(size_t), call->name);
        check_same_bytes(zeros, longer + call->size, SURPLUS, call->name);
        free(whole);
        free(longer);
    }
    guarded buffer = guarded_at_end(40);
    kvern_layer_init(guarded_last(&buffer, 40), 40, HEADS, DIM);
    kvern_layer wanted = kvern_layer_default(HEADS, DIM);
    wanted.size = 40;
    check_same_bytes(&wanted, guarded_last(&buffer, 40), 40, "a short layer");
    kvern_queries_init(guarded_last(&buffer, 16), 16, &f->layer, HEADS);
    kvern_tokens_init(guarded_last(&buffer, 4), 4, &f->layer);
    guarded_free(&buffer);
}

// ---- Arrays: entries are as far apart as the caller's are long ----

typedef struct longer_layer {
    kvern_layer layer;
    uint64_t surplus[3];
} longer_layer;

static void arrays_of_longer_layers(void **state)
{
    fixture *f = *state;
    const kvern_codec q4 = kvern_codec_affine(4, 32);
    longer_layer layers[3];
    for (size_t i = 0; i < 3; i++) {
        memset(&layers[i], 0, sizeof layers[i]);
        kvern_layer_init(&layers[i].layer, sizeof layers[i], HEADS + i, DIM);
    }
    kvern_storage storage = kvern_storage_default();
    const kvern_layer_storage exception = {.layer = 1, .k = q4, .v = q4};
    storage.layers = &exception;
    storage.layer_count = 1;
    assert_ok(kvern_storage_apply(&storage, &layers[0].layer, 3));
    kvern_composition *composition;
    assert_ok(kvern_composition_create(f->bed->context, &layers[0].layer, 3, &composition));
    const char *const wanted[] = {"full:h2:k32=bf16:v32=bf16",
                                  "full:h3:k32=affine4g32bf16:v32=affine4g32bf16",
                                  "full:h4:k32=bf16:v32=bf16"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(wanted[i], kvern_composition_signature(composition, i));
        assert_int_equal(kvern_composition_layer(composition, i)->size, sizeof(kvern_layer));
    }
    kvern_composition_release(composition);

    layers[2].layer.size = sizeof(kvern_layer); // not as far apart as the others
    const kvern_status statuses[] = {
        kvern_storage_apply(&storage, &layers[0].layer, 3),
        kvern_composition_create(f->bed->context, &layers[0].layer, 3, &composition)};
    assert_status(KVERN_ERR_ARGUMENT, statuses[0]);
    assert_status(KVERN_ERR_ARGUMENT, statuses[1]);
    assert_non_null(strstr(kvern_error_detail(), "layer 2"));
    layers[2].layer.size = sizeof layers[2];
    layers[2].surplus[0] = 1;
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_composition_create(f->bed->context, &layers[0].layer, 3, &composition));
    assert_non_null(strstr(kvern_error_detail(), "layer 2"));
}

typedef struct longer_planes {
    kvern_padded_planes planes;
    uint64_t surplus[3];
} longer_planes;

static void arrays_of_longer_planes(void **state)
{
    fixture *f = *state;
    const kvern_layer layers[2] = {f->layer, f->layer};
    kvern_composition *composition;
    kvern_state *imported;
    assert_ok(kvern_composition_create(f->bed->context, layers, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &imported));
    longer_planes planes[2];
    memset(planes, 0, sizeof planes);
    for (size_t i = 0; i < 2; i++) {
        planes[i].planes = f->tensors.planes;
        planes[i].planes.size = sizeof planes[i];
    }
    assert_ok(kvern_state_import_padded(imported, &planes[0].planes));
    for (size_t i = 0; i < 2; i++) {
        padded_tensors again = padded_export(kvern_state_cache(imported, i));
        padded_expect_same(&f->tensors, &again, "planes of two layers");
        padded_destroy(&again);
    }
    kvern_state_destroy(imported);
    kvern_composition_release(composition);
}

// ---- Words that have no use yet ----

static void reserved_words(void **state)
{
    fixture *f = *state;
    kvern_context *context;
    kvern_context_options options = kvern_context_options_default();
    options.reserved = 1;
    assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&options, &context));
    for (size_t i = 0; i < 2; i++) {
        options = kvern_context_options_default();
        options.allocator.reserved[i] = 1;
        assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&options, &context));
        options = kvern_context_options_default();
        options.executor.reserved[i] = 1;
        assert_status(KVERN_ERR_ARGUMENT, kvern_context_create(&options, &context));

        kvern_composition *composition;
        kvern_layer layer = f->layer;
        layer.k_codec.reserved[i] = 1;
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_composition_create(f->bed->context, &layer, 1, &composition));
        assert_non_null(strstr(kvern_error_detail(), "k_codec"));
        layer = f->layer;
        layer.v_codec.reserved[i] = 1;
        assert_status(KVERN_ERR_UNSUPPORTED,
                      kvern_composition_create(f->bed->context, &layer, 1, &composition));
        assert_non_null(strstr(kvern_error_detail(), "v_codec"));

        const kvern_codec bf16 = kvern_codec_dense(KVERN_BF16);
        kvern_layer_storage exception = {.layer = 0, .k = bf16, .v = bf16};
        kvern_storage storage = kvern_storage_default();
        storage.layers = &exception;
        storage.layer_count = 1;
        assert_ok(kvern_storage_apply(&storage, &layer, 1));
        exception.v.reserved[i] = 1;
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, &layer, 1));
        storage = kvern_storage_default();
        storage.k.reserved[i] = 1;
        assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, &layer, 1));

        kvern_padded_planes planes = f->tensors.planes;
        int something;
        planes.k_codes.reserved[i] = &something;
        assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_padded(f->bed->cache, &planes));
    }
}

static void reserved_pointers_of_affine_arrays(void **state)
{
    (void)state;
    kvern_layer layer = kvern_layer_default(1, DIM);
    layer.k_codec = layer.v_codec = kvern_codec_affine(4, 32);
    bed *b = bed_create(layer, 1);
    uint32_t words[DIM / 8];
    uint16_t scales[1], biases[1];
    kvern_affine_arrays to = {.words = words, .scales = scales, .biases = biases};
    append_values(b->cache, 1, (const float[DIM]){1}, (const float[DIM]){2}, 1, NULL, NULL, NULL);
    assert_ok(kvern_cache_export_affine(b->cache, 0, 0, 1, &to, &to));
    to.reserved[1] = words;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(b->cache, 0, 0, 1, &to, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_affine(b->cache, 0, 0, 1, NULL, &to));
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sizes),
        cmocka_unit_test(output_sizes),
        cmocka_unit_test_setup_teardown(wrong_sizes, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(longer_structs, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(defaults_fit, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(arrays_of_longer_layers, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(arrays_of_longer_planes, open_fixture, close_fixture),
        cmocka_unit_test_setup_teardown(reserved_words, open_fixture, close_fixture),
        cmocka_unit_test(reserved_pointers_of_affine_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
