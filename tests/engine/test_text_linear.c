// SPDX-License-Identifier: MIT
// Whatever a file holds, loading it takes time in proportion to its size: names chosen to collide
// in a hash table are no slower than others, and twice as much takes about twice as long.
//
// The colliding names are made for FNV-1a and for multiplication by 2^64 / phi, the well-known
// functions without a seed: with either, 65,536 names took hundreds of times longer than others.

#include "engine/tokenizer/tokenizer.h"
#include "tests/support/check.h"
#include "tests/support/gguf_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define COUNT 65536u
#define SLOTS (2u * COUNT) // of a table for so many names
#define CROWDED 1024u      // slots that the colliding names belong to
#define PARTS 4096u        // tokens that merges are made of
#define NAME_BYTES 16

typedef char name[NAME_BYTES];

// Processor time, which other programs hardly change.
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static uint32_t fnv_slot(const char *text)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return (uint32_t)(hash ^ (hash >> 32)) % SLOTS;
}

static uint32_t multiplied_slot(uint32_t left, uint32_t right)
{
    const uint64_t key = (uint64_t)left << 32 | right;
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) % SLOTS;
}

static void make_names(name *names, size_t count, bool colliding)
{
    size_t made = 0;
    for (uint32_t i = 0; made < count; i++) {
        snprintf(names[made], NAME_BYTES, "t%08x", i);
        made += !colliding || fnv_slot(names[made]) < CROWDED;
    }
}

static void add_names(gguf_builder *builder, const char *key, name *names, size_t count)
{
    const char **pointers = malloc(count * sizeof *pointers);
    assert_non_null(pointers);
    for (size_t i = 0; i < count; i++)
        pointers[i] = names[i];
    gguf_builder_strings(builder, key, pointers, count);
    free(pointers);
}

// The least of three times that it takes to load the file that a builder, which is used up, makes.
// *out, where it is wanted, is the last tokenizer.
static double time_load(gguf_builder *builder, tokenizer **out)
{
    size_t bytes;
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    double least = 1e9;
    tokenizer *t = NULL;
    for (int i = 0; i < 3; i++) {
        gguf_file *file;
        engine_error error = {0};
        tokenizer_destroy(t);
        const double start = seconds();
        assert_ok(gguf_open_memory(data, bytes, &file, &error));
        if (tokenizer_create(file, NULL, &t, &error) != KVERN_OK)
            fail_msg("%s", error.text);
        const double taken = seconds() - start;
        least = taken < least ? taken : least;
        gguf_close(file);
    }
    free(data);
    if (out)
        *out = t;
    else
        tokenizer_destroy(t);
    return least;
}

static void assert_about(double taken, double other, double factor)
{
    if (taken > factor * other + 0.05)
        fail_msg("%.3f s against %.3f s", taken, other);
}

// --- Tokens

static double time_tokens(const char *model, size_t count, bool colliding)
{
    name *names = calloc(count, sizeof *names);
    float *scores = calloc(count, sizeof *scores);
    assert_non_null(names);
    assert_non_null(scores);
    make_names(names, count, colliding);
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", model);
    gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
    add_names(builder, "tokenizer.ggml.tokens", names, count);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    gguf_builder_array(builder, "tokenizer.ggml.scores", GGUF_FLOAT32, scores, count);
    free(scores);
    free(names);
    return time_load(builder, NULL);
}

static void colliding_tokens_load_like_others(void **state)
{
    (void)state;
    assert_about(time_tokens("gpt2", COUNT, true), time_tokens("gpt2", COUNT, false), 4);
}

static void colliding_pieces_load_like_others(void **state)
{
    (void)state;
    assert_about(time_tokens("llama", COUNT, true), time_tokens("llama", COUNT, false), 4);
}

static void twice_the_tokens_take_twice_the_time(void **state)
{
    (void)state;
    assert_about(time_tokens("gpt2", COUNT, true), time_tokens("gpt2", COUNT / 2, true), 4);
    assert_about(time_tokens("llama", COUNT, true), time_tokens("llama", COUNT / 2, true), 4);
}

// --- Merges

// Tokens are PARTS parts and then the products of `count` merges, which have `merges` as text.
static void make_merges(name *names, name *merges, size_t count, bool colliding)
{
    size_t made = 0;
    for (uint32_t i = 0; i < PARTS; i++)
        snprintf(names[i], NAME_BYTES, "b%03x", i);
    for (uint32_t i = 0; made < count; i++) {
        const uint32_t left = i / PARTS, right = i % PARTS;
        assert_true(left < PARTS);
        if (colliding && multiplied_slot(left, right) >= CROWDED)
            continue;
        snprintf(merges[made], NAME_BYTES, "b%03x b%03x", left, right);
        snprintf(names[PARTS + made], NAME_BYTES, "b%03xb%03x", left, right);
        made++;
    }
}

static double time_merges(size_t count, bool colliding)
{
    name *names = calloc(PARTS + count, sizeof *names);
    name *merges = calloc(count, sizeof *merges);
    assert_non_null(names);
    assert_non_null(merges);
    make_merges(names, merges, count, colliding);
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
    add_names(builder, "tokenizer.ggml.tokens", names, PARTS + count);
    add_names(builder, "tokenizer.ggml.merges", merges, count);
    free(merges);
    free(names);
    return time_load(builder, NULL);
}

static void colliding_merges_load_like_others(void **state)
{
    (void)state;
    assert_about(time_merges(COUNT, true), time_merges(COUNT, false), 4);
    assert_about(time_merges(COUNT, true), time_merges(COUNT / 2, true), 4);
}

// --- Special tokens, which are looked for at every byte of a text

#define ALIKE 200 // bytes that they begin with

// Loads `count` special tokens that begin alike, and then encodes a text that begins like them
// everywhere; the time of both.
static double time_special(size_t count)
{
    char(*texts)[ALIKE + NAME_BYTES] = calloc(count, sizeof *texts);
    const char **pointers = calloc(count + 1, sizeof *pointers);
    int32_t *types = calloc(count + 1, sizeof *types);
    assert_true(texts && pointers && types);
    for (size_t i = 0; i < count; i++) {
        memset(texts[i], 'a', ALIKE);
        snprintf(texts[i] + ALIKE, NAME_BYTES, "%08zx", i);
        pointers[i] = texts[i];
        types[i] = 3;
    }
    pointers[count] = "a";
    types[count] = 1;
    gguf_builder *builder = gguf_builder_create();
    gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
    gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
    gguf_builder_strings(builder, "tokenizer.ggml.tokens", pointers, count + 1);
    gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, types, count + 1);
    gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
    free(texts);
    free(pointers);
    free(types);
    tokenizer *t;
    const double loading = time_load(builder, &t);
    static char text[20000];
    memset(text, 'a', sizeof text);
    token_buffer ids = TOKEN_BUFFER_INIT;
    const double start = seconds();
    assert_ok(tokenizer_encode(t, text, sizeof text, TOKENIZER_PARSE_SPECIAL, &ids, NULL));
    const double encoding = seconds() - start;
    assert_int_equal(ids.count, sizeof text);
    token_buffer_free(&ids);
    tokenizer_destroy(t);
    return loading + encoding;
}

static void special_tokens_that_begin_alike(void **state)
{
    (void)state;
    assert_about(time_special(20000), time_special(10000), 4);
}

// The time that a text takes has the length of the longest special token as a factor.
static void special_tokens_have_a_bound(void **state)
{
    (void)state;
    char text[258];
    for (size_t size = 256; size <= 257; size++) {
        memset(text, 'a', sizeof text);
        text[size] = '\0';
        gguf_builder *builder = gguf_builder_create();
        gguf_builder_string(builder, "tokenizer.ggml.model", "gpt2");
        gguf_builder_string(builder, "tokenizer.ggml.pre", "gpt-2");
        gguf_builder_strings(builder, "tokenizer.ggml.tokens", (const char *[]){"a", text}, 2);
        gguf_builder_array(builder, "tokenizer.ggml.token_type", GGUF_INT32, (int32_t[]){1, 4}, 2);
        gguf_builder_strings(builder, "tokenizer.ggml.merges", NULL, 0);
        gguf_file *file;
        size_t bytes;
        tokenizer *t;
        engine_error error = {0};
        void *data = gguf_builder_finish(builder, &bytes);
        gguf_builder_destroy(builder);
        assert_ok(gguf_open_memory(data, bytes, &file, NULL));
        const kvern_status expected = size == 256 ? KVERN_OK : KVERN_ERR_UNSUPPORTED;
        assert_int_equal(tokenizer_create(file, NULL, &t, &error), expected);
        if (size == 257)
            assert_non_null(strstr(error.text, "token 1 is a special token of 257 bytes"));
        tokenizer_destroy(t);
        gguf_close(file);
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(colliding_tokens_load_like_others),
        cmocka_unit_test(colliding_pieces_load_like_others),
        cmocka_unit_test(twice_the_tokens_take_twice_the_time),
        cmocka_unit_test(colliding_merges_load_like_others),
        cmocka_unit_test(special_tokens_that_begin_alike),
        cmocka_unit_test(special_tokens_have_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
