// SPDX-License-Identifier: MIT
// Recurrent layers: what they say about themselves, what they refuse, their rows as data, padded
// views, and that a failed call changes nothing.

#include "tests/support/bed.h"
#include "tests/support/check.h"
#include "tests/support/feed.h"
#include "tests/support/hybrid_state.h"
#include "tests/support/padded_tensors.h"
#include "tests/support/recur_feed.h"
#include "tests/support/soundness.h"

#include <kvern/experimental/padded.h>
#include <kvern/experimental/slot.h>
#include <kvern/kvern.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t sequences[3] = {11, 12, 13};

static kvern_layer delta_layer(void)
{
    return kvern_layer_delta(2, 4, 16, 24, 4);
}

static kvern_layer rules[4];

static int set_up_rules(void **state)
{
    (void)state;
    rules[0] = delta_layer();
    rules[1] = kvern_layer_recurrent(KVERN_RECURRENCE_DELTA_CHANNELS, 2, 2, 24, 16, 2);
    rules[2] = kvern_layer_ssd(1, 3, 16, 8, 3);
    rules[3] = kvern_layer_lane(40);
    return 0;
}

// ---- Facts ----

static void signatures_and_sizes(void **state)
{
    (void)state;
    static const char *const wanted[] = {"delta:h2/4:k16:v24:conv4",
                                         "delta-channels:h2/2:k24:v16:conv2",
                                         "ssd:h1/3:k16:v8:conv3", "lane:bytes40"};
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(rules[i], 1);
        assert_string_equal(kvern_composition_signature(b->composition, 0), wanted[i]);
        assert_int_equal(kvern_composition_bytes_per_token(b->composition), 0);
        assert_int_equal(kvern_composition_row_bytes(b->composition, 0), 0);
        assert_int_equal(kvern_composition_row_bytes(b->composition, 1),
                         kvern_composition_row_bytes(b->composition, UINT64_C(1) << 40));
        bed_destroy(b);
    }
    // A tail of 3 rows of 160 channels, padded to whole lines, then S: 4 heads of 32 (24 and
    // padding) times 16. Three such pages in a round, and one with 16 records of k, v, decay, beta
    // and the inputs of the convolution.
    bed *b = bed_create(rules[0], 1);
    assert_int_equal(kvern_composition_row_bytes(b->composition, 1),
                     3 * (4 * (3 * 160 + 4 * 32 * 16)) + 4 * 16 * (32 + 96 + 8 + 160));
    bed_destroy(b);
    kvern_layer still = rules[0];
    still.slack = 0;
    b = bed_create(still, 1);
    assert_int_equal(kvern_composition_row_bytes(b->composition, 1),
                     2 * (4 * (3 * 160 + 4 * 32 * 16)));
    bed_destroy(b);
}

static void capabilities(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(rules[i], 1);
        static const bool can[] = {true, true, true, false, true, false, false, false, true};
        for (int c = 0; c < 9; c++)
            assert_int_equal(kvern_cache_can(b->cache, (kvern_capability)c), can[c]);
        assert_true(kvern_cache_converted(b->cache, 0));
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), 0);
        recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 9, NULL);
        assert_int_equal(kvern_cache_length(b->cache, 0), 9);
        assert_int_equal(kvern_cache_trimmable(b->cache, 0), 0);
        assert_int_equal(kvern_cache_min_reusable(b->cache, 0), 9);
        assert_int_equal(kvern_cache_max_append(b->cache, 0), (INT64_C(1) << 40) - 9);
        bed_destroy(b);
    }
}

// ---- Plans that are refused ----

static void expect_plan(kvern_status wanted, kvern_layer layer, const char *names)
{
    kvern_context *context;
    kvern_composition *composition;
    assert_ok(kvern_context_create(NULL, &context));
    assert_status(wanted, kvern_composition_create(context, &layer, 1, &composition));
    assert_null(composition);
    if (!strstr(kvern_error_detail(), names))
        fail_msg("\"%s\" does not name %s", kvern_error_detail(), names);
    kvern_context_release(context);
}

#define EXPECT_PLAN(status, base, field, value)                                                    \
    do {                                                                                           \
        kvern_layer layer_ = (base);                                                               \
        layer_.field = (value);                                                                    \
        expect_plan((status), layer_, #field);                                                     \
    } while (0)

static void plans_that_make_no_sense(void **state)
{
    (void)state;
    const kvern_layer delta = delta_layer(), lane = kvern_layer_lane(64);
    EXPECT_PLAN(KVERN_ERR_UNSUPPORTED, delta, recurrence, (kvern_recurrence)4);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, key_heads, 0);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, key_heads, 4097);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, value_heads, 0);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, value_heads, 5);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, k_dim, 12);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, v_dim, 584);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, conv_kernel, 1);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, conv_kernel, 17);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, conv_dim, 159);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, lane_bytes, 1);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, kv_heads, 1);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, delta, window, 1);
    EXPECT_PLAN(KVERN_ERR_UNSUPPORTED, delta, start, 0);
    EXPECT_PLAN(KVERN_ERR_RANGE, delta, slack, -1);
    EXPECT_PLAN(KVERN_ERR_RANGE, delta, slack, 1025);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, lane, lane_bytes, 0);
    EXPECT_PLAN(KVERN_ERR_ARGUMENT, lane, lane_bytes, KVERN_MAX_LANE_BYTES + 1);
    EXPECT_PLAN(KVERN_ERR_UNSUPPORTED, lane, slack, 2);
    kvern_layer other = delta;
    other.k_codec = kvern_codec_dense(KVERN_BF16);
    expect_plan(KVERN_ERR_UNSUPPORTED, other, "f32");
    other = kvern_layer_default(1, 64);
    other.key_heads = 1;
    expect_plan(KVERN_ERR_ARGUMENT, other, "recurrent");
    other = kvern_layer_delta(4096, 4096, 576, 576, 4);
    expect_plan(KVERN_ERR_OVERFLOW, other, "1 GiB");
}

// Codecs that a user wants are for keys and values; what is recurrent stays as it is.
static void storages_leave_recurrent_layers_alone(void **state)
{
    (void)state;
    kvern_layer layers[2] = {kvern_layer_default(1, 64), delta_layer()};
    const kvern_layer before = layers[1];
    kvern_storage storage = kvern_storage_default();
    storage.k = storage.v = kvern_codec_affine(4, 64);
    storage.start = 100;
    assert_ok(kvern_storage_apply(&storage, layers, 2));
    assert_int_equal(layers[0].k_codec.kind, KVERN_CODEC_AFFINE);
    check_same_bytes(&before, &layers[1], sizeof before, "a recurrent layer");
    const kvern_layer_storage exception = {.layer = 1, .k = storage.k, .v = storage.v};
    storage.layers = &exception;
    storage.layer_count = 1;
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_storage_apply(&storage, layers, 2));
    assert_non_null(strstr(kvern_error_detail(), "layer 1"));
}

// ---- What other kinds have, and these have not ----

#define assert_refused(call)                                                                       \
    do {                                                                                           \
        assert_status(KVERN_ERR_UNSUPPORTED, call);                                                \
        if (!strstr(kvern_error_detail(), "layer 0: of kind 3, delta:h2/4"))                       \
            fail_msg("%s: \"%s\"", #call, kvern_error_detail());                                   \
    } while (0)

static void keys_and_values_are_refused(void **state)
{
    (void)state;
    bed *b = bed_create(rules[0], 1), *known = bed_create(kvern_layer_default(1, 64), 1);
    float values[64] = {0};
    const int64_t one = 1;
    kvern_tokens tokens = kvern_tokens_default(&rules[0]);
    kvern_read *read;
    kvern_state *s;
    tokens.k = tokens.v = values;
    tokens.counts = &one;
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 5, NULL);
    assert_refused(kvern_cache_append(b->cache, KVERN_PHASE_DECODE, &tokens, &read));
    assert_non_null(strstr(kvern_error_detail(), "kvern_step_recur and kvern_cache_recur"));
    assert_null(read);
    assert_refused(kvern_cache_read_donor(b->cache, &one, &read));
    assert_refused(kvern_cache_export(b->cache, 0, 0, 1, values, values));
    assert_refused(kvern_cache_export_affine(b->cache, 0, 0, 1, NULL, NULL));
    assert_int_equal(kvern_cache_length(b->cache, 0), 5);
    assert_ok(kvern_state_create(b->composition, 1, &s));
    assert_ok(kvern_step_begin(s, KVERN_PHASE_DECODE, &one));
    assert_refused(kvern_step_append(s, 0, &tokens, &read));
    assert_refused(kvern_step_write(s, 0, 0, KVERN_F32, values, values));
    assert_status(KVERN_ERR_BUSY, kvern_step_end(s)); // the layer has had no tokens
    kvern_step_abandon(s);
    kvern_state_destroy(s);
    bed_destroy(b);
    bed_destroy(known);
}

// Of all layers or of none: the layer of keys and values beside it stays empty.
static void padded_planes_are_refused(void **state)
{
    (void)state;
    bed *known = bed_create(kvern_layer_default(2, 64), 1), *b = bed_create(rules[0], 1);
    const kvern_layer both[2] = {kvern_layer_default(2, 64), rules[0]};
    kvern_composition *composition;
    kvern_state *s;
    feed_one(known->cache, KVERN_PHASE_WINDOW, 1, 9, 2, NULL);
    padded_tensors t = padded_export(known->cache);
    const kvern_padded_planes layers[2] = {t.planes, t.planes};
    assert_refused(kvern_cache_export_padded(b->cache, &t.planes));
    assert_refused(kvern_cache_import_padded(b->cache, &t.planes));
    assert_ok(kvern_composition_create(b->context, both, 2, &composition));
    assert_ok(kvern_state_create(composition, 1, &s));
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_state_import_padded(s, layers));
    assert_non_null(strstr(kvern_error_detail(), "layer 1: of kind 3"));
    assert_int_equal(kvern_state_length(s, 0), 0);
    assert_int_equal(kvern_state_bytes(s), 0);
    expect_sound_state(s);
    padded_destroy(&t);
    kvern_state_destroy(s);
    kvern_composition_release(composition);
    bed_destroy(known);
    bed_destroy(b);
}

static void other_kinds_refuse_recurrent_tokens(void **state)
{
    (void)state;
    bed *attention = bed_create(kvern_layer_default(1, 64), 1), *lane = bed_create(rules[3], 1),
        *delta = bed_create(rules[0], 1);
    const int64_t one = 1;
    void *address = NULL;
    recur_feed f;
    recur_feed_create(&f, delta->cache, sequences, &one);
    const kvern_recur_state content = {.size = sizeof content};
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_recur(attention->cache, KVERN_PHASE_DECODE, &f.tokens));
    assert_non_null(strstr(kvern_error_detail(), "full:h1"));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_export_recurrent(attention->cache, 0, &content));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_import_recurrent(attention->cache, 0, 1, &content));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_lanes(attention->cache, KVERN_PHASE_DECODE, &one, &address));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_lanes(delta->cache, KVERN_PHASE_DECODE, &one, &address));
    assert_status(KVERN_ERR_UNSUPPORTED,
                  kvern_cache_recur(lane->cache, KVERN_PHASE_DECODE, &f.tokens));
    assert_null(address);
    recur_feed_destroy(&f);
    bed_destroy(attention);
    bed_destroy(lane);
    bed_destroy(delta);
}

// ---- Arguments ----

// The call is refused, and the row is what it was.
static void expect_refusal(bed *b, kvern_status wanted, const kvern_recur_tokens *tokens,
                           const char *names)
{
    size_t bytes, after_bytes;
    unsigned char *before = recur_content(b->cache, 0, &bytes);
    assert_status(wanted, kvern_cache_recur(b->cache, KVERN_PHASE_WINDOW, tokens));
    if (!strstr(kvern_error_detail(), names))
        fail_msg("\"%s\" does not name %s", kvern_error_detail(), names);
    unsigned char *after = recur_content(b->cache, 0, &after_bytes);
    assert_int_equal(kvern_cache_length(b->cache, 0), 5);
    check_same_bytes(before, after, bytes, "after a refused call");
    free(before);
    free(after);
}

static void arguments_are_checked_before_anything_changes(void **state)
{
    (void)state;
    bed *b = bed_create(rules[0], 1);
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 5, NULL);
    recur_feed f;
    const int64_t three = 3, negative = -1, far = INT64_MAX / 8;
    recur_feed_create(&f, b->cache, sequences, &three);
#define REFUSE(status, field, value, names)                                                        \
    do {                                                                                           \
        kvern_recur_tokens t_ = f.tokens;                                                          \
        t_.field = (value);                                                                        \
        expect_refusal(b, (status), &t_, (names));                                                 \
    } while (0)
#define REFUSE_WEIGHT(field, value, names)                                                         \
    do {                                                                                           \
        kvern_recur_weights w_ = f.weights;                                                        \
        kvern_recur_tokens t_ = f.tokens;                                                          \
        w_.field = (value);                                                                        \
        t_.weights = &w_;                                                                          \
        expect_refusal(b, KVERN_ERR_ARGUMENT, &t_, (names));                                       \
    } while (0)
    REFUSE(KVERN_ERR_ARGUMENT, x, NULL, "layer 0: x is NULL");
    REFUSE(KVERN_ERR_ARGUMENT, a, NULL, "a is NULL");
    REFUSE(KVERN_ERR_ARGUMENT, b, NULL, "b is NULL");
    REFUSE(KVERN_ERR_ARGUMENT, weights, NULL, "weights");
    REFUSE(KVERN_ERR_ARGUMENT, counts, NULL, "counts");
    REFUSE(KVERN_ERR_ARGUMENT, size, 3, "size");
    REFUSE(KVERN_ERR_RANGE, counts, &negative, "tokens");
    REFUSE(KVERN_ERR_RANGE, start, &negative, "starts");
    REFUSE(KVERN_ERR_OVERFLOW, start, &far, "index");
    REFUSE(KVERN_ERR_RANGE, a_token_stride, -1, "layer 0: a:");
    REFUSE(KVERN_ERR_RANGE, y_token_stride, 95, "y:");
    REFUSE_WEIGHT(a_log, NULL, "a_log");
    REFUSE_WEIGHT(conv_weight, NULL, "convolution");
    REFUSE_WEIGHT(d, f.x, "d in a layer");
    REFUSE_WEIGHT(size, 5, "size");
    assert_status(KVERN_ERR_RANGE, kvern_cache_recur(b->cache, KVERN_PHASE_DECODE, &f.tokens));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_recur(b->cache, KVERN_PHASE_DECODE, NULL));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_recur(NULL, KVERN_PHASE_DECODE, &f.tokens));
    assert_ok(kvern_cache_recur(b->cache, KVERN_PHASE_WINDOW, &f.tokens));
    recur_feed_destroy(&f);
    bed_destroy(b);
}

// Every allocation of an append and of an import is refused once.
static void without_memory_nothing_changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(rules[i], 2), *wanted = bed_create(rules[i], 2);
        const int64_t counts[2] = {3, 4};
        kvern_status status = KVERN_ERR_MEMORY;
        int64_t granted = 0;
        recur_run(wanted->cache, KVERN_PHASE_WINDOW, sequences, counts, NULL);
        for (; status; granted++) {
            recur_feed f;
            void *lanes[2];
            recur_feed_create(&f, b->cache, sequences, counts);
            (void)kvern_context_trim(b->context);
            ledger_refuse(&b->books, granted);
            if (i == 3)
                status = kvern_cache_lanes(b->cache, KVERN_PHASE_WINDOW, counts, lanes);
            else
                status = kvern_cache_recur(b->cache, KVERN_PHASE_WINDOW, &f.tokens);
            (void)ledger_relent(&b->books);
            if (!status && i == 3)
                for (size_t r = 0; r < 2; r++)
                    lane_take(lanes[r], 40, sequences[r], 0, counts[r]);
            recur_feed_destroy(&f);
            if (!status)
                break;
            assert_status(KVERN_ERR_MEMORY, status);
            assert_int_equal(kvern_cache_length(b->cache, 0), 0);
            assert_int_equal(kvern_cache_length(b->cache, 1), 0);
            assert_int_equal(kvern_cache_bytes(b->cache), 0);
            expect_sound_cache(b->cache);
        }
        assert_true(granted >= 3); // tables and pages
        for (size_t r = 0; r < 2; r++)
            recur_expect_row(wanted->cache, r, b->cache, r, "after refusals");
        bed_destroy(b);
        bed_destroy(wanted);
    }
}

// ---- Rows as data ----

static void rows_go_out_and_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(rules[i], 1), *other = bed_create(rules[i], 2);
        size_t bytes;
        recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 7, NULL);
        unsigned char *content = recur_content(b->cache, 0, &bytes);
        const size_t conv = rules[i].conv_kernel
                                ? (rules[i].conv_kernel - 1) * rules[i].conv_dim * sizeof(float)
                                : 0;
        kvern_recur_state in = {.size = sizeof in};
        if (i == 3)
            in.lane = content;
        else {
            in.conv = (float *)content;
            in.s = (float *)(content + conv);
        }
        assert_ok(kvern_cache_import_recurrent(other->cache, 1, 7, &in));
        expect_sound_cache(other->cache);
        recur_expect_row(b->cache, 0, other->cache, 1, "an imported row");
        assert_int_equal(kvern_cache_length(other->cache, 0), 0);
        recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 3, NULL);
        recur_run(other->cache, KVERN_PHASE_WINDOW, (uint64_t[]){2, 1}, (int64_t[]){1, 3}, NULL);
        recur_expect_row(b->cache, 0, other->cache, 1, "what follows an import");
        free(content);
        bed_destroy(b);
        bed_destroy(other);
    }
}

static void imports_are_checked(void **state)
{
    (void)state;
    bed *b = bed_create(rules[0], 1);
    float conv[3 * 160] = {0}, s[4 * 24 * 16] = {0};
    const kvern_recur_state whole = {.size = sizeof whole, .conv = conv, .s = s};
    kvern_recur_state part = whole;
    part.s = NULL;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_import_recurrent(b->cache, 0, 1, &part));
    part = whole;
    part.lane = s;
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_import_recurrent(b->cache, 0, 1, &part));
    assert_status(KVERN_ERR_ARGUMENT, kvern_cache_export_recurrent(b->cache, 0, &part));
    assert_status(KVERN_ERR_RANGE, kvern_cache_import_recurrent(b->cache, 1, 1, &whole));
    assert_status(KVERN_ERR_RANGE, kvern_cache_import_recurrent(b->cache, 0, 0, &whole));
    assert_status(KVERN_ERR_RANGE, kvern_cache_export_recurrent(b->cache, 1, &whole));
    s[0] = 1;
    assert_ok(kvern_cache_export_recurrent(b->cache, 0, &whole)); // an empty row's is zero
    assert_true(s[0] == 0);
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 2, NULL);
    assert_status(KVERN_ERR_BUSY, kvern_cache_import_recurrent(b->cache, 0, 1, &whole));
    assert_int_equal(kvern_cache_length(b->cache, 0), 2);
    bed_destroy(b);
}

static void adopted_rows_share_their_page(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bed *b = bed_create(rules[i], 1);
        kvern_cache *to;
        assert_ok(kvern_cache_create(b->composition, 0, 2, &to));
        recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 7, NULL);
        assert_ok(kvern_cache_adopt(to, 1, b->cache, 0));
        assert_int_equal(kvern_cache_length(to, 0), 0);
        recur_expect_row(b->cache, 0, to, 1, "an adopted row");
        recur_one(b->cache, KVERN_PHASE_DECODE, 1, 1, NULL);
        assert_int_equal(kvern_cache_length(to, 1), 7);
        recur_run(to, KVERN_PHASE_WINDOW, (uint64_t[]){2, 1}, (int64_t[]){0, 1}, NULL);
        recur_expect_row(b->cache, 0, to, 1, "an adopted row that goes on");
        assert_status(KVERN_ERR_BUSY, kvern_cache_adopt(to, 1, b->cache, 0));
        expect_sound_cache(to);
        kvern_cache_destroy(to);
        bed_destroy(b);
    }
    bed *b = bed_create(rules[0], 1);
    kvern_layer other = rules[0];
    kvern_composition *composition;
    kvern_cache *to;
    other.conv_kernel = 3;
    assert_ok(kvern_composition_create(b->context, &other, 1, &composition));
    assert_ok(kvern_cache_create(composition, 0, 1, &to));
    recur_one(b->cache, KVERN_PHASE_WINDOW, 1, 7, NULL);
    assert_status(KVERN_ERR_UNSUPPORTED, kvern_cache_adopt(to, 0, b->cache, 0));
    kvern_cache_destroy(to);
    kvern_composition_release(composition);
    bed_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_and_sizes),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(plans_that_make_no_sense),
        cmocka_unit_test(storages_leave_recurrent_layers_alone),
        cmocka_unit_test(keys_and_values_are_refused),
        cmocka_unit_test(padded_planes_are_refused),
        cmocka_unit_test(other_kinds_refuse_recurrent_tokens),
        cmocka_unit_test(arguments_are_checked_before_anything_changes),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(rows_go_out_and_in),
        cmocka_unit_test(imports_are_checked),
        cmocka_unit_test(adopted_rows_share_their_page),
    };
    return cmocka_run_group_tests(tests, set_up_rules, NULL);
}
