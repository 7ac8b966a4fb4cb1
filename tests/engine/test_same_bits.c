// SPDX-License-Identifier: MIT
// Same bits for the logits of small random models of every tensor type: one window of N tokens = N
// decodes = any split into chunks = beside other rows = after a trim = however the work is split =
// any instruction set. And the same on every machine: digests.
//
// More threads: test_same_bits_threads.c; a real model: test_same_bits_model.c.

#include "tests/support/check.h"
#include "tests/support/executors.h"
#include "tests/support/served_sequence.h"
#include "tests/support/tiny_llama.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 150      // more than two pages of positions
#define MANY_TOKENS 300 // enough work to share it out in every part of a forward pass
#define WIDE_TOKENS 70  // more than one, for wide models

static void serve_all_ways(const engine_fixture *f, const served_sequence *s)
{
    serve_window(f, s);
    serve_decodes(f, s);
    serve_known(f, s, 9);
    serve_chunks(f, s, 1);
    serve_random_chunks(f, s, 60, 7);
    serve_after_trim(f, s);
    serve_in_batch(f, s, 8);
}

static void serve_main_ways(const engine_fixture *f, const served_sequence *s)
{
    served_sequence beginning = served_sequence_beginning(s, WIDE_TOKENS);
    serve_window(f, s);
    serve_decodes(f, &beginning);
    serve_random_chunks(f, s, 60, 7);
}

typedef void serving(const engine_fixture *f, const served_sequence *s);

// Every instruction set that this machine has, or that KVERN_CPU leaves of it.
static void on_every_instruction_set(engine_fixture_options options, const served_sequence *s,
                                     serving *serve)
{
    static const uint32_t sets[] = {UINT32_MAX, KVERN_CPU_AVX2 | KVERN_CPU_AVX512,
                                    KVERN_CPU_AVX2 | KVERN_CPU_AVX_VNNI, KVERN_CPU_AVX2, 0};
    uint32_t done[sizeof sets / sizeof sets[0]];
    size_t count = 0;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        uint32_t features = kvern_cpu_features() & sets[i];
        bool again = false;
        for (size_t j = 0; j < count; j++) {
            again = again || done[j] == features;
        }
        if (again) {
            continue;
        }
        done[count++] = options.context.cpu_features = features;
        engine_fixture f = engine_fixture_open(&options);
        serve(&f, s);
        engine_fixture_close(&f);
    }
}

static void on_every_split(engine_fixture_options options, const served_sequence *s, serving *serve)
{
    const kvern_executor executors[] = {executor_shuffled(2), executor_backwards(3),
                                        executor_shuffled(7)};
    for (size_t i = 0; i < sizeof executors / sizeof executors[0]; i++) {
        options.context.executor = executors[i];
        engine_fixture f = engine_fixture_open(&options);
        serve(&f, s);
        engine_fixture_close(&f);
    }
}

// FNV-1a over the logits' bits, the lowest byte first.
static uint64_t digest(const served_sequence *s)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < s->count * s->vocabulary; i++) {
        uint32_t word;
        memcpy(&word, &s->logits[i], sizeof word);
        for (int shift = 0; shift < 32; shift += 8) {
            hash = (hash ^ (word >> shift & 0xff)) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}

// One float and one quantized type are tested the most.
static bool is_main_type(uint32_t type)
{
    return type == GGUF_TYPE_F16 || type == GGUF_TYPE_Q4_1;
}

// Everything for one model. Returns whether its logits have the digest `expected`.
static bool check_model(const tiny_llama *model, kvern_type kv, serving *serve, uint64_t expected)
{
    size_t bytes;
    void *file = tiny_llama_build(model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    options.kv = kv;
    size_t count = model->width > 128 ? WIDE_TOKENS : TOKENS;
    if (is_main_type(model->type)) {
        count = MANY_TOKENS;
    }
    served_sequence s = served_sequence_create(&options, count, model->vocabulary, model->type);
    on_every_instruction_set(options, &s, serve);
    on_every_split(options, &s, serve_main_ways);
    uint64_t got = digest(&s);
    served_sequence_free(&s);
    free(file);
    if (got != expected) {
        printf("%s: the logits have the digest 0x%016" PRIx64 ", not 0x%016" PRIx64 "\n",
               element_type_name(model->type), got, expected);
    }
    return got == expected;
}

// Digests change when the arithmetic of docs/engine.md, docs/linear.md, docs/math.md or
// docs/arithmetic.md does, and at no other time.
static const struct {
    uint32_t type;
    uint64_t digest;
} types[] = {
    {GGUF_TYPE_F32, UINT64_C(0x5ec81ac086bf7432)},  {GGUF_TYPE_F16, UINT64_C(0x1685efd8581a8300)},
    {GGUF_TYPE_BF16, UINT64_C(0x82085144926e2c80)}, {GGUF_TYPE_Q4_0, UINT64_C(0x04c176d8669b9848)},
    {GGUF_TYPE_Q4_1, UINT64_C(0x738dc91711796b95)}, {GGUF_TYPE_Q5_0, UINT64_C(0x81a99989fc12616d)},
    {GGUF_TYPE_Q5_1, UINT64_C(0x0e0fcc871abac2c1)}, {GGUF_TYPE_Q8_0, UINT64_C(0x2ead5e2131eb5c49)},
    {GGUF_TYPE_Q4_K, UINT64_C(0x184a33d4ce6379d9)}, {GGUF_TYPE_Q5_K, UINT64_C(0x66ef025003c0b7b1)},
    {GGUF_TYPE_Q6_K, UINT64_C(0x4da746c179095d21)}, {GGUF_TYPE_Q2_K, UINT64_C(0x4a25607f08e647b3)},
    {GGUF_TYPE_Q3_K, UINT64_C(0xff26ad46851db6f4)}, {GGUF_TYPE_MXFP4, UINT64_C(0x6479308fe7470be2)},
};

static void models_of_every_type(void **state)
{
    (void)state;
    bool same = true;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        tiny_llama model = tiny_llama_default(types[i].type);
        bool thorough =
            check_is_long() || model.type == GGUF_TYPE_F16 || model.type == GGUF_TYPE_Q4_1;
        serving *serve = thorough ? serve_all_ways : serve_main_ways;
        same = check_model(&model, KVERN_BF16, serve, types[i].digest) && same;
    }
    assert_true(same);
}

static void models_of_other_shapes(void **state)
{
    (void)state;
    tiny_llama odd = tiny_llama_default(GGUF_TYPE_F16);
    odd.width = 72;
    odd.heads = 3;
    odd.kv_heads = 1;
    odd.head_dim = 24;
    odd.feed_forward = 100;
    odd.separate_output = true;
    odd.rope_factors = true;
    bool same = check_model(&odd, KVERN_F32, serve_main_ways, UINT64_C(0x2abc3670febc34b8));
    tiny_llama wide = tiny_llama_default(GGUF_TYPE_Q8_0);
    wide.heads = 8;
    wide.kv_heads = 8;
    wide.head_dim = 32; // wider than the residual stream
    wide.rope_linear = 4;
    same = check_model(&wide, KVERN_F16, serve_main_ways, UINT64_C(0xfb005ca3c742608b)) && same;
    assert_true(same);
}

// The context's own pool, in few steps: where it has more threads than there are idle processors,
// every parallel region waits for the system's scheduler.
static void pools_of_threads(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *file = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    served_sequence s = served_sequence_create(&options, MANY_TOKENS, model.vocabulary, 1);
    served_sequence beginning = served_sequence_beginning(&s, 3);
    for (options.context.threads = 2; options.context.threads <= 3; options.context.threads++) {
        engine_fixture f = engine_fixture_open(&options);
        serve_window(&f, &s);
        serve_decodes(&f, &beginning);
        engine_fixture_close(&f);
    }
    served_sequence_free(&s);
    free(file);
}

// Logits that do not depend on their tokens would pass everything above.
static void other_tokens_give_other_logits(void **state)
{
    (void)state;
    tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *file = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(file, bytes);
    engine_fixture f = engine_fixture_open(&options);
    float one[3][100], other[3][100];
    for (int i = 0; i < 2; i++) {
        kvern_state *rows = engine_fixture_state(&f, 1);
        engine_fixture_forward(&f, rows, KVERN_PHASE_WINDOW, (int32_t[]){i, 2, 3}, &(int64_t){3},
                               i ? other[0] : one[0]);
        kvern_state_destroy(rows);
    }
    for (int t = 0; t < 3; t++) {
        assert_memory_not_equal(one[t], other[t], sizeof one[t]);
    }
    engine_fixture_close(&f);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_of_every_type),
        cmocka_unit_test(models_of_other_shapes),
        cmocka_unit_test(pools_of_threads),
        cmocka_unit_test(other_tokens_give_other_logits),
    };
    printf("instruction sets: up to %s\n", kvern_cpu_name(kvern_cpu_features()));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
