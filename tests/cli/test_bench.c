// SPDX-License-Identifier: MIT
// kvern bench: options, the table, CSV and JSON, and peers. The peer is this program, started by
// the one under test: it computes attention and selections in double (nothing of recurrent layers),
// or misbehaves as KVERN_TEST_PEER says.

#include "tests/support/program.h"
#include "tests/support/program_json.h"
#include "tests/support/small_model.h"
#include "tests/support/tiny_llama.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DIM 8
#define PEER_VARIABLE "KVERN_TEST_PEER"

// What "open", "latent" or "select" said.
typedef struct naive_case {
    char phase[16], storage[16];
    int dim, heads, kv_heads, positions, new_tokens, threads;
    int rope, top_k; // of latents, of selections; else 0
} naive_case;

// A number of a tensor of the protocol: one step of the generator per element.
static double number_at(size_t index, uint32_t seed, double range)
{
    for (size_t i = 0; i <= index; i++)
        seed = seed * 1664525u + 1013904223u;
    return ((double)(seed >> 8) / 8388608.0 - 1) * range;
}

static double score(const naive_case *c, int token, int head, int key)
{
    const int kv_head = head / (c->heads / c->kv_heads), dim = c->dim + c->rope;
    double sum = 0;
    for (int d = 0; d < dim; d++)
        sum += number_at((size_t)((token * c->heads + head) * dim + d), 3, 2) *
               number_at((size_t)((key * c->kv_heads + kv_head) * dim + d), 1, 1);
    return sum / sqrt(dim);
}

// Values of latents are the first numbers of their keys.
static double value(const naive_case *c, int kv_head, int key, int d)
{
    if (c->rope)
        return number_at((size_t)(key * (c->dim + c->rope) + d), 1, 1);
    return number_at((size_t)((key * c->kv_heads + kv_head) * c->dim + d), 2, 1);
}

static void print_output(const naive_case *c, int token, int head)
{
    const int kv_head = head / (c->heads / c->kv_heads), keys = c->positions + token + 1;
    double sums[DIM] = {0}, total = 0;
    for (int key = 0; key < keys; key++) {
        const double weight = exp(score(c, token, head, key));
        total += weight;
        for (int d = 0; d < c->dim; d++)
            sums[d] += weight * value(c, kv_head, key, d);
    }
    for (int d = 0; d < c->dim; d++)
        printf("%s%.9g", d ? " " : "", sums[d] / total);
    printf("\n");
}

static double index_score(const naive_case *c, int position)
{
    double sum = 0;
    for (int h = 0; h < c->heads; h++) {
        double product = 0;
        for (int d = 0; d < c->dim; d++)
            product += number_at((size_t)(h * c->dim + d), 3, 2) *
                       number_at((size_t)(position * c->dim + d), 2, 1);
        sum += number_at((size_t)h, 2, 1) * fmax(product, 0);
    }
    return sum;
}

// The positions that fewer than top_k others have a higher score than.
static void print_selection(const naive_case *c)
{
    for (int p = 0; p < c->positions; p++) {
        const double own = index_score(c, p);
        int better = 0;
        for (int other = 0; other < c->positions; other++)
            better += index_score(c, other) > own;
        if (better < c->top_k)
            printf("%d ", p);
    }
    printf("\n");
}

static void begin(const char *line, naive_case *c)
{
    memset(c, 0, sizeof *c);
    if (sscanf(line, "select %15s %d %d %d %d %d", c->storage, &c->positions, &c->top_k, &c->heads,
               &c->dim, &c->threads) == 6 ||
        sscanf(line, "recurrent %*s %15s %15s", c->phase, c->storage) == 2 ||
        sscanf(line, "open %15s %15s %d %d %d %d %d %d", c->phase, c->storage, &c->dim, &c->heads,
               &c->kv_heads, &c->positions, &c->new_tokens, &c->threads) == 8)
        return;
    c->kv_heads = 1;
    assert_int_equal(sscanf(line, "latent %15s %15s %d %d %d %d %d %d", c->phase, c->storage,
                            &c->dim, &c->rope, &c->heads, &c->positions, &c->new_tokens,
                            &c->threads),
                     8);
}

static bool begins_with(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

static void answer(const char *line, const char *mode, naive_case *c)
{
    int token, head;
    if (strcmp(line, "name\n") == 0) {
        printf("naive 1.0\n");
    } else if (begins_with(line, "open ") || begins_with(line, "latent ") ||
               begins_with(line, "recurrent ") || begins_with(line, "select ")) {
        begin(line, c);
        printf(strcmp(c->storage, "odd") == 0 ? "no such storage here\n" : "ok\n");
    } else if (strcmp(line, "run\n") == 0)
        printf(strcmp(mode, "babble") == 0 ? "soon\n" : "0.25\n");
    else if (sscanf(line, "output %d %d", &token, &head) == 2 && c->top_k)
        print_selection(c);
    else if (sscanf(line, "output %d %d", &token, &head) == 2 && c->kv_heads == 0)
        printf("0 0 0 0 0 0 0 0\n"); // of a recurrence of 8 dims, which it does not know
    else if (sscanf(line, "output %d %d", &token, &head) == 2)
        print_output(c, token, strcmp(mode, "wrong") == 0 ? 0 : head);
    else if (begins_with(line, "model "))
        printf(strstr(line, " odd ") ? "no such storage here\n" : "ok\n");
    else if (begins_with(line, "time "))
        printf("2 0.5\n");
    else if (begins_with(line, "logits ") && strcmp(mode, "mute") == 0)
        printf("no logits are given\n");
    else if (begins_with(line, "logits "))
        for (int i = 0, count = atoi(line + 7); i < count; i++)
            printf("%d%s", i, i + 1 < count ? " " : "\n");
    else
        printf("ok\n");
    fflush(stdout);
}

static int be_peer(const char *mode)
{
    char line[1024];
    naive_case c;
    if (strcmp(mode, "silent") == 0)
        return 0;
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(mode, "leave") == 0 && strcmp(line, "run\n") == 0)
            return 0;
        answer(line, mode, &c);
    }
    return 0;
}

static const char *own_program(void)
{
    static char path[1024];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = 0;
    return path;
}

static void set_mode(const char *mode)
{
    assert_int_equal(setenv(PEER_VARIABLE, mode, 1), 0);
}

#define SMALL                                                                                      \
    "bench", "attention", "--head-dim", "8", "--group", "2", "--kv-heads", "2", "--new", "3",      \
        "--positions", "20", "--runs", "2", "-t", "1"

static void test_attention_json(void **state)
{
    (void)state;
    set_mode("right");
    json_t *run = program_json(
        &(program_call){.arguments = {SMALL, "--storage", "bf16,f32", "--json", "--peer",
                                      own_program(), "--peer-storage", "f16,odd"}},
        0);
    assert_string_equal(json_string_at(run, "peer"), "naive 1.0");
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 4); // 2 phases, 2 storages
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        const bool decode = i < 2, bf16 = i % 2 == 0;
        assert_string_equal(json_string_at(cell, "phase"), decode ? "decode" : "window");
        assert_string_equal(json_string_at(cell, "storage"), bf16 ? "bf16" : "f32");
        const double stored = decode ? 21 : 23;
        assert_true(json_number_at(cell, "bytes") == stored * 2 * 2 * 8 * (bf16 ? 2 : 4));
        // Scores and sums over the keys that each new token sees.
        assert_true(json_number_at(cell, "fma") == 2 * 4 * 8 * (decode ? 21 : 21 + 22 + 23));
        assert_true(json_number_at(cell, "ms") > 0);
        assert_true(json_number_at(cell, "ms_low") <= json_number_at(cell, "ms"));
        assert_true(json_number_at(cell, "ms") <= json_number_at(cell, "ms_high"));
        assert_true(json_number_at(cell, "limit_bytes_per_s") > 0);
        assert_true(json_number_at(cell, "limit_fma_per_s") > 0);
        const json_t *peers = json_object_get(cell, "peers");
        assert_int_equal(json_array_size(peers), 2);
        const json_t *right = json_array_get(peers, 0), *odd = json_array_get(peers, 1);
        assert_string_equal(json_string_at(right, "storage"), "f16");
        assert_true(json_number_at(right, "ms") == 250);
        assert_true(json_number_at(right, "difference") < (bf16 ? 0.01 : 1e-5));
        assert_string_equal(json_string_at(odd, "storage"), "odd");
        assert_string_equal(json_string_at(odd, "refused"), "such storage here");
    }
    json_decref(run);
}

// Appends: bytes are what the caller hands over, whatever it is stored as.
static void test_attention_appends(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "attention", "--phase", "append", "--head-dim",
                                      "64,80", "--kv-heads", "2", "--new", "70", "--positions", "3",
                                      "--runs", "2", "-t", "1", "--storage", "bf16,tq4", "--json"}},
        0);
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 4); // one group
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        const double dim = i < 2 ? 64 : 80;
        assert_string_equal(json_string_at(cell, "phase"), "append");
        assert_string_equal(json_string_at(cell, "storage"), i % 2 ? "tq4" : "bf16");
        assert_true(json_number_at(cell, "bytes") == 70 * 2 * 2 * dim * 2);
        assert_true(json_number_at(cell, "fma") == 0);
        assert_true(json_number_at(cell, "ms") > 0);
        assert_true(json_number_at(cell, "roofline_share") > 0);
    }
    json_decref(run);
    program_expect_usage(&(program_call){.arguments = {"bench", "attention", "--phase", "append",
                                                       "--kind", "latent"}},
                         "--phase append is of keys and values");
    program_expect_usage(&(program_call){.arguments = {"bench", "attention", "--phase", "append",
                                                       "--peer", own_program()}},
                         "has no peer");
}

// Absorbed reads of latents: one KV head, and values that are part of the keys.
static void test_attention_of_latents(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){
            .arguments = {"bench",       "attention", "--kind",  "latent", "--head-dim", "64",
                          "--rope",      "16",        "--group", "5",      "--new",      "3",
                          "--positions", "20",        "--runs",  "2",      "-t",         "1",
                          "--storage",   "f32,bf16",  "--json"}},
        0);
    static const double BYTES[] = {80 * 4, 80 * 2};
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        const bool decode = i < 2;
        const double stored = decode ? 21 : 23;
        assert_int_equal(json_number_at(cell, "kv_heads"), 1);
        assert_int_equal(json_number_at(cell, "q_heads"), 5);
        assert_true(json_number_at(cell, "bytes") == stored * BYTES[i % 2]);
        assert_true(json_number_at(cell, "fma") == 5 * 144 * (decode ? 21 : 21 + 22 + 23));
        assert_true(json_number_at(cell, "ms") > 0);
    }
    json_decref(run);
}

// Latents may be longer than any head.
static void test_attention_of_long_latents(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "attention", "--head-dim", "1024", "--kind",
                                      "latent", "--group", "1", "--new", "1", "--phase", "window",
                                      "--positions", "4", "--runs", "1", "-t", "1", "--json"}},
        0);
    const json_t *cell = json_array_get(json_object_get(run, "cells"), 0);
    assert_true(json_number_at(cell, "fma") == 5 * (2 * 1024 + 64));
    json_decref(run);
}

// The share that a cell of JSON should have, with the bandwidth as a limit or without.
static double share_of(const json_t *cell, bool from_cache)
{
    const double compute = json_number_at(cell, "fma") / json_number_at(cell, "limit_fma_per_s");
    const double memory = json_number_at(cell, "bytes") / json_number_at(cell, "limit_bytes_per_s");
    return (!from_cache && memory > compute ? memory : compute) /
           (1e-3 * json_number_at(cell, "ms"));
}

// Runs the smallest case of a phase until its rows lie in the cache. A run that the system
// interrupts is too long to be followed directly by another, and reads from memory.
static void see_cache(const char *phase)
{
    bool seen = false, known = true;
    for (int i = 0; i < 20 && known && !seen; i++) {
        json_t *run =
            program_json(&(program_call){.arguments = {SMALL, "--phase", phase, "--json"}}, 0);
        const json_t *cell = json_array_get(json_object_get(run, "cells"), 0);
        seen = json_is_true(json_object_get(cell, "from_cache"));
        known = !json_is_null(json_object_get(cell, "from_cache"));
        assert_true(fabs(json_number_at(cell, "roofline_share") / share_of(cell, seen) - 1) < 1e-9);
        json_decref(run);
    }
    assert_true(seen == known);
}

// The share of what lies in the last-level cache, where the system tells its size, is not that of
// the bandwidth of memory: a window, and a decode whose rows are small. (Where none is known,
// shares above 100% may be seen.)
static void test_attention_from_cache(void **state)
{
    (void)state;
    see_cache("window");
    see_cache("decode");
}

static void test_attention_csv(void **state)
{
    (void)state;
    set_mode("right");
    const char *path = program_path("table.csv");
    program_result result = program_run(&(program_call){
        .arguments = {SMALL, "--phase", "decode", "--csv", path, "--peer", own_program()}});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "peer ms");
    program_free(&result);
    char line[512], extra[512];
    double ms, share, peer_ms, ratio;
    int dim, heads, kv_heads, positions, new_tokens, threads;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "phase,storage,head_dim,q_heads,kv_heads,positions,new_tokens,"
                              "threads,ms,roofline_share,from_cache,peer,peer_ms,ratio\n");
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(
        sscanf(line, "decode,bf16,%d,%d,%d,%d,%d,%d,%lf,%lf,%*[01,]naive 1.0 f16,%lf,%lf", &dim,
               &heads, &kv_heads, &positions, &new_tokens, &threads, &ms, &share, &peer_ms, &ratio),
        10);
    assert_null(fgets(extra, sizeof extra, file));
    fclose(file);
    assert_int_equal(dim, 8);
    assert_int_equal(heads, 4);
    assert_int_equal(kv_heads, 2);
    assert_int_equal(positions, 20);
    assert_int_equal(new_tokens, 1);
    assert_int_equal(threads, 1);
    assert_true(peer_ms == 250);
    assert_true(fabs(ratio * ms - peer_ms) < 0.01 * peer_ms + ratio * 1e-6);
}

static void test_bad_peers(void **state)
{
    (void)state;
    static const char *const MODES[][2] = {{"wrong", "does not compute the same thing"},
                                           {"silent", "does not answer"},
                                           {"leave", "stopped answering"},
                                           {"babble", "stopped answering"}};
    for (size_t i = 0; i < sizeof MODES / sizeof MODES[0]; i++) {
        set_mode(MODES[i][0]);
        program_expect_failure(&(program_call){.arguments = {SMALL, "--phase", "window", "--json",
                                                             "--peer", own_program()}},
                               MODES[i][1]);
    }
    program_expect_failure(
        &(program_call){.arguments = {SMALL, "--json", "--peer", program_path("no-such-program")}},
        "does not answer");
}

// Latents, selections and recurrent layers beside a peer: what it says is what the cell says.
static void expect_peer(json_t *run, double most_difference)
{
    assert_string_equal(json_string_at(run, "peer"), "naive 1.0");
    const json_t *cell = json_array_get(json_object_get(run, "cells"), 0);
    const json_t *peers = json_object_get(cell, "peers");
    assert_int_equal(json_array_size(peers), 2);
    assert_true(json_number_at(json_array_get(peers, 0), "ms") == 250);
    assert_true(json_number_at(json_array_get(peers, 0), "difference") <= most_difference);
    assert_string_equal(json_string_at(json_array_get(peers, 1), "refused"), "such storage here");
    json_decref(run);
}

#define LATENT                                                                                     \
    "bench", "attention", "--kind", "latent", "--head-dim", "8", "--rope", "16", "--group", "3",   \
        "--new", "3", "--positions", "20", "--runs", "2", "-t", "1", "--storage", "f32", "--json", \
        "--peer", own_program()
#define SELECT                                                                                     \
    "bench", "select", "--positions", "90", "--top-k", "7", "--index-heads", "9", "--index-dim",   \
        "16", "--heads", "1", "--storage", "f32", "-t", "1", "--runs", "2", "--json", "--peer",    \
        own_program()
#define RECURRENT                                                                                  \
    "bench", "recurrent", "--kind", "delta", "--phase", "window", "--new", "3", "--key-heads",     \
        "1", "--value-heads", "2", "--head-dim", "8", "--runs", "1", "-t", "1", "--peer",          \
        own_program()

static void test_peers_of_other_layers(void **state)
{
    (void)state;
    set_mode("right");
    for (size_t i = 0; i < 2; i++) {
        const char *phase = i ? "window" : "decode";
        expect_peer(program_json(&(program_call){.arguments = {LATENT, "--phase", phase,
                                                               "--peer-storage", "f16,odd"}},
                                 0),
                    1e-5);
    }
    expect_peer(
        program_json(&(program_call){.arguments = {SELECT, "--peer-storage", "f16,odd"}}, 0), 0);
    json_t *run = program_json(
        &(program_call){.arguments = {RECURRENT, "--json", "--peer-storage", "odd"}}, 0);
    const json_t *cell = json_array_get(json_object_get(run, "cells"), 0);
    assert_int_equal(json_array_size(json_object_get(cell, "peers")), 1);
    json_decref(run);
    program_result result =
        program_run(&(program_call){.arguments = {RECURRENT, "--peer-storage", "odd"}});
    program_expect_part(result.out, "odd refuses: such storage here");
    program_free(&result);
}

static void test_bad_peers_of_other_layers(void **state)
{
    (void)state;
    set_mode("right");
    program_expect_failure(&(program_call){.arguments = {RECURRENT}},
                           "does not compute the same thing");
    set_mode("wrong");
    program_expect_failure(&(program_call){.arguments = {LATENT, "--phase", "decode"}},
                           "does not compute the same thing");
    set_mode("leave");
    program_expect_failure(&(program_call){.arguments = {LATENT, "--phase", "decode"}},
                           "stopped answering");
    program_expect_failure(&(program_call){.arguments = {SELECT}}, "stopped answering");
    program_expect_failure(&(program_call){.arguments = {RECURRENT}}, "stopped answering");
}

static void test_model(void **state)
{
    (void)state;
    const char *model = program_path("model.gguf");
    json_t *run =
        program_json(&(program_call){.arguments = {"bench", "model", model, "--ctx", "0,40",
                                                   "--threads", "1,2", "--prompt", "16",
                                                   "--generate", "4", "--runs", "2", "--json"}},
                     0);
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        assert_true(json_number_at(cell, "ctx") == (i % 2 ? 40 : 0));
        assert_true(json_number_at(cell, "threads") == (i < 2 ? 1 : 2));
        assert_true(json_number_at(cell, "batch") == 1);
        assert_true(json_number_at(cell, "prompt_tokens_per_s") > 0);
        assert_true(json_number_at(cell, "generation_tokens_per_s") > 0);
        assert_true(json_number_at(cell, "generation_low") <=
                    json_number_at(cell, "generation_high"));
        assert_int_equal(json_array_size(json_object_get(cell, "peers")), 0);
    }
    json_decref(run);
}

static void test_model_batch(void **state)
{
    (void)state;
    const char *model = program_path("model.gguf");
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "model", model, "--ctx", "0,40", "-t", "1",
                                      "--prompt", "16", "--batch", "5", "--runs", "1", "--json"}},
        0);
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 2);
    assert_true(json_number_at(json_array_get(cells, 1), "batch") == 5);
    assert_true(json_number_at(json_array_get(cells, 1), "generation_tokens_per_s") > 0);
    json_decref(run);
}

// The KV cache is stored as the options say.
static void test_model_storage(void **state)
{
    (void)state;
    tiny_llama options = tiny_llama_default(GGUF_TYPE_F32);
    options.head_dim = 64;
    tiny_llama_save(&options, program_path("tiny.gguf"));
    const char *model = program_path("tiny.gguf");
    json_t *run =
        program_json(&(program_call){.arguments = {"bench", "model", model, "--ctx", "0,40", "-t",
                                                   "1", "--prompt", "16", "--runs", "1", "--json",
                                                   "--kv", "q8/q4", "--kv-start", "20"}},
                     0);
    assert_string_equal(json_string_at(run, "kv"), "q8/q4 from 20 on");
    assert_true(json_number_at(json_array_get(json_object_get(run, "cells"), 1),
                               "generation_tokens_per_s") > 0);
    json_decref(run);
    program_call call = {.arguments = {"bench", "model", model, "--ctx", "200", "-t", "1", "--runs",
                                       "1", "--kv", "bf16"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "\nour KV cache: bf16\n");
    program_free(&result);
    call.arguments[10] = "q4g128";
    program_expect_failure(&call, "layer 0");
}

static void test_model_peers(void **state)
{
    (void)state;
    const char *model = program_path("model.gguf");
    set_mode("right");
    // Its logits are 0, 1, 2, ...: another model's.
    program_expect_failure(
        &(program_call){.arguments = {"bench", "model", model, "--ctx", "8", "-t", "1", "--runs",
                                      "1", "--peer", own_program()}},
        "the peer's logits with f16 are");
}

// A peer that cannot read the file is a line of the table, and one without logits is compared in
// speed alone.
static void test_model_peers_that_refuse(void **state)
{
    (void)state;
    set_mode("mute");
    program_call call = {.arguments = {"bench", "model", program_path("model.gguf"), "--ctx", "8",
                                       "-t", "1", "--runs", "1", "--generate", "4", "--peer",
                                       own_program(), "--peer-storage", "odd,f16"}};
    program_result result = program_run(&call);
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, " odd refuses: such storage here\n");
    program_expect_part(result.out, "x      -\n");
    program_free(&result);
    call.arguments[15] = "--json";
    json_t *run = program_json(&call, 0);
    const json_t *cell = json_array_get(json_object_get(run, "cells"), 0);
    assert_true(json_number_at(cell, "prompt_tokens_per_s") > 0);
    const json_t *peers = json_object_get(cell, "peers"), *odd = json_array_get(peers, 0);
    const json_t *mute = json_array_get(peers, 1);
    assert_string_equal(json_string_at(odd, "refused"), "such storage here");
    assert_null(json_object_get(odd, "prompt_tokens_per_s"));
    assert_true(json_number_at(mute, "prompt_tokens_per_s") == 4); // 8 in 2 s
    assert_true(json_number_at(mute, "generation_tokens_per_s") == 8);
    assert_null(json_object_get(mute, "difference"));
    json_decref(run);
}

static void test_overhead(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "load",  "prompt",  "append",        "append_read", "attend",  "step",
        "trim",  "fork",    "fork_step",     "extract",     "join",    "keep",
        "round", "reserve", "reserve_again", "copy_token",  "copy_row"};
    json_t *run =
        program_json(&(program_call){.arguments = {"bench", "overhead", program_path("model.gguf"),
                                                   "--runs", "3", "--positions", "70", "--json"}},
                     0);
    assert_true(json_number_at(run, "threads") == 1);
    assert_true(json_number_at(run, "positions") == 70);
    const json_t *items = json_object_get(run, "items");
    assert_int_equal(json_array_size(items), sizeof NAMES / sizeof NAMES[0]);
    for (size_t i = 0; i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i);
        assert_string_equal(json_string_at(item, "name"), NAMES[i]);
        assert_true(strlen(json_string_at(item, "what")) > 0);
        assert_true(json_number_at(item, "ns") > 0);
        assert_true(json_number_at(item, "ns_low") <= json_number_at(item, "ns_high"));
    }
    json_decref(run);
}

// Prefixes of one and of three pages, the last one partly filled: the rows' own pages come on top.
static void test_sharing(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "sharing", "--rows", "2,5", "--positions", "64,190",
                                      "--head-dim", "64", "--group", "3", "--kv-heads", "1",
                                      "--storage", "q4", "-t", "2", "--runs", "3", "--json"}},
        0);
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        const double rows = i % 2 ? 5 : 2, positions = i < 2 ? 64 : 190;
        assert_true(json_number_at(cell, "rows") == rows);
        assert_true(json_number_at(cell, "positions") == positions);
        assert_string_equal(json_string_at(cell, "storage"), "q4");
        const json_t *shared = json_object_get(cell, "shared");
        const json_t *apart = json_object_get(cell, "alone");
        assert_true(json_number_at(shared, "ms") > 0);
        assert_true(json_number_at(apart, "ms_low") <= json_number_at(apart, "ms_high"));
        assert_true(json_number_at(cell, "forked_memory") == 1);
        const double pages = i < 2 ? (1 + rows) / 2 : (2 + rows) / 3;
        assert_true(fabs(json_number_at(cell, "decoded_memory") - pages) < 1e-9);
        assert_true(json_number_at(cell, "speed") > 0);
    }
    json_decref(run);
    program_result result = program_run(
        &(program_call){.arguments = {"bench", "sharing", "--positions", "64", "--head-dim", "8",
                                      "--group", "1", "-t", "1", "--runs", "2"}});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "shared ms");
    program_expect_part(result.out, "1.00x-4.50x"); // 1 page and 8 of the rows, over 2 of a row
    program_free(&result);
}

static void test_store(void **state)
{
    (void)state;
    json_t *run =
        program_json(&(program_call){.arguments = {"bench", "store", "lookup", "--entries", "10,70",
                                                   "--common", "5,300", "--runs", "3", "--json"}},
                     0);
    const json_t *cells = json_object_get(run, "lookup");
    assert_int_equal(json_array_size(cells), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *cell = json_array_get(cells, i);
        static const char *const TIMES[] = {"found", "missed", "published"};
        assert_true(json_number_at(cell, "entries") == (i < 2 ? 10 : 70));
        assert_true(json_number_at(cell, "common") == (i % 2 ? 300 : 5));
        assert_true(json_number_at(cell, "index_bytes") > 0);
        for (size_t t = 0; t < 3; t++) {
            const json_t *times = json_object_get(cell, TIMES[t]);
            assert_true(json_number_at(times, "us") > 0);
            assert_true(json_number_at(times, "us_low") <= json_number_at(times, "us_high"));
        }
    }
    json_decref(run);
    program_result result = program_run(&(program_call){
        .arguments = {"bench", "store", "--entries", "3", "--common", "9", "--runs", "2", "--mib",
                      "10", "--files", "3", "--dir", program_folder()}});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "B/entry");
    program_expect_part(result.out, "  unchanged ");
    program_expect_part(result.out, "  first_decode ");
    program_free(&result);
    program_expect_usage(&(program_call){.arguments = {"bench", "store", "lokup"}},
                         "unknown part 'lokup', did you mean 'lookup'?");
    program_expect_usage(&(program_call){.arguments = {"bench", "store", "--entries", "0"}},
                         "--entries takes");
}

static void test_store_file(void **state)
{
    (void)state;
    program_call call = {.arguments = {"bench", "store", "file", "--mib", "20", "--dir",
                                       program_folder(), "--runs", "1", "--json"}};
    json_t *run = program_json(&call, 0);
    const json_t *file = json_object_get(run, "file");
    const json_t *items = json_object_get(file, "items");
    assert_true(json_number_at(file, "bytes") >= 20 << 20);
    // Four of them are of files that are not in memory, which they always are on some systems.
    assert_true(json_array_size(items) == 12 || json_array_size(items) == 8);
    for (size_t i = 0; i < json_array_size(items); i++)
        assert_true(json_number_at(json_array_get(items, i), "ms") > 0);
    assert_string_equal(json_string_at(json_array_get(items, 2), "name"), "load");
    json_decref(run);
    call.arguments[6] = "/nowhere";
    program_expect_failure(&call, "file: in /nowhere: ");
}

static void test_store_directory(void **state)
{
    (void)state;
    program_call call = {.arguments = {"bench", "store", "directory", "--files", "5,130", "--dir",
                                       program_folder(), "--runs", "2", "--json"}};
    static const char *const TIMES[] = {"opened", "found", "missed", "unchanged", "changed"};
    json_t *run = program_json(&call, 0);
    const json_t *cells = json_object_get(run, "directory");
    assert_int_equal(json_array_size(cells), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *cell = json_array_get(cells, i);
        const double entries = i ? 130 : 5;
        assert_true(json_number_at(cell, "entries") == entries);
        assert_true(json_number_at(cell, "file_bytes") > 1000 * entries);
        assert_true(json_number_at(cell, "index_bytes") > 50 * entries);
        for (size_t t = 0; t < sizeof TIMES / sizeof TIMES[0]; t++)
            assert_true(json_number_at(json_object_get(cell, TIMES[t]), "us") > 0);
    }
    json_decref(run);
    call.arguments[6] = "/nowhere";
    program_expect_failure(&call, "directory: in /nowhere: ");
}

// That prefixes are found, on disk and in memory, and that the tokens are the same, is checked
// there.
static void test_store_first_token(void **state)
{
    (void)state;
    program_call call = {.arguments = {"bench", "store", "first-token", program_path("model.gguf"),
                                       "--prefix", "60", "--dir", program_folder(), "--runs", "2",
                                       "--json"}};
    json_t *run = program_json(&call, 0);
    const json_t *token = json_object_get(run, "first-token");
    const json_t *items = json_object_get(token, "items");
    assert_true(json_number_at(token, "prefix") == 60);
    assert_true(json_array_size(items) == 5 || json_array_size(items) == 4); // see test_store_file
    for (size_t i = 0; i < json_array_size(items); i++) {
        assert_true(json_number_at(json_array_get(items, i), "ms") > 0);
        assert_true(json_number_at(json_array_get(items, i), "speed") > 0);
    }
    assert_true(json_number_at(json_array_get(items, 0), "speed") == 1);
    json_decref(run);
    program_expect_usage(&(program_call){.arguments = {"bench", "store", "first-token"}},
                         "no model file given");
    program_expect_usage(&(program_call){.arguments = {"bench", "store", "file", "model.gguf"}},
                         "Too many arguments");
}

static void test_select(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "select", "--positions", "300,900", "--top-k", "40",
                                      "--index-heads", "3", "--index-dim", "64", "--heads", "2",
                                      "--storage", "q4", "-t", "2", "--runs", "2", "--json"}},
        0);
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *cell = json_array_get(cells, i);
        const double positions = i ? 900 : 300;
        assert_true(json_number_at(cell, "positions") == positions);
        assert_true(json_number_at(cell, "fma") == positions * 3 * 64);
        assert_true(json_number_at(cell, "fma_share") > 0);
        assert_true(json_number_at(json_object_get(cell, "select"), "ms") > 0);
        assert_true(json_number_at(json_object_get(cell, "pick"), "ms") > 0);
        assert_true(json_number_at(json_object_get(cell, "attend"), "ms") > 0);
        assert_true(json_number_at(json_object_get(cell, "dense"), "ms") > 0);
    }
    json_decref(run);
    program_result result =
        program_run(&(program_call){.arguments = {"bench", "select", "--positions", "20", "--top-k",
                                                  "64", "--heads", "1", "-t", "1", "--runs", "1"}});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "sparse ms");
    program_expect_part(result.out, "64x128");
    program_free(&result);
}

static void test_recurrent(void **state)
{
    (void)state;
    json_t *run = program_json(
        &(program_call){.arguments = {"bench", "recurrent", "--key-heads", "2", "--value-heads",
                                      "4", "--head-dim", "24", "--new", "5,40", "-t", "2", "--runs",
                                      "2", "--json"}},
        0);
    static const char *const KINDS[] = {"delta", "channels", "ssd"};
    const json_t *cells = json_object_get(run, "cells");
    assert_int_equal(json_array_size(cells), 12);
    for (size_t i = 9; i < 12; i++) {
        const json_t *cell = json_array_get(cells, i);
        assert_string_equal(json_string_value(json_object_get(cell, "phase")), "rollback");
        assert_string_equal(json_string_value(json_object_get(cell, "kind")), KINDS[i - 9]);
        assert_true(json_number_at(cell, "ms") > 0 && json_number_at(cell, "again_ms") > 0);
        assert_true(json_number_at(cell, "new_tokens") == 4);
    }
    for (size_t i = 0; i < 9; i++) {
        static const double TOKENS[] = {1, 5, 40};
        const json_t *cell = json_array_get(cells, i);
        const double numbers = 4 * 24 * 24, each = i / 3 == 2 ? 3 : 4;
        assert_string_equal(json_string_value(json_object_get(cell, "kind")), KINDS[i / 3]);
        assert_string_equal(json_string_value(json_object_get(cell, "phase")),
                            i % 3 ? "window" : "decode");
        assert_true(json_number_at(cell, "new_tokens") == TOKENS[i % 3]);
        assert_true(json_number_at(cell, "fma") == each * TOKENS[i % 3] * numbers);
        assert_true(json_number_at(cell, "bytes") == 8 * numbers);
        assert_true(json_number_at(cell, "ms") > 0 && json_number_at(cell, "loops_ms") > 0);
        assert_true(fabs(json_number_at(cell, "roofline_share") / share_of(cell, false) - 1) <
                    1e-9);
        assert_true(json_number_at(cell, "difference") < 1e-4);
    }
    json_decref(run);
    program_result result = program_run(&(program_call){
        .arguments = {"bench", "recurrent", "--kind", "ssd", "--phase", "window", "--key-heads",
                      "1", "--value-heads", "3", "--head-dim", "16", "-t", "1", "--runs", "1"}});
    assert_int_equal(result.code, 0);
    program_expect_part(result.out, "loops ms");
    program_expect_part(result.out, "window  ssd");
    program_free(&result);
    program_expect_usage(&(program_call){.arguments = {"bench", "recurrent", "--kind", "rwkv"}},
                         "--kind knows delta, channels and ssd, not 'rwkv'");
    program_expect_usage(
        &(program_call){.arguments = {"bench", "recurrent", "--value-heads", "24"}},
        "--value-heads is no multiple of --key-heads");
}

static void test_usage(void **state)
{
    (void)state;
    program_expect_usage(&(program_call){.arguments = {"bench"}}, "no measurement given");
    program_expect_usage(&(program_call){.arguments = {"bench", "luck"}},
                         "unknown measurement 'luck'");
    program_expect_usage(&(program_call){.arguments = {"bench", "model"}}, "no model file given");
    program_expect_usage(&(program_call){.arguments = {"bench", "overhead"}},
                         "no model file given");
    program_expect_usage(&(program_call){.arguments = {"bench", "overhead", "m", "-t", "1,2"}},
                         "-t takes a whole number");
    program_expect_usage(
        &(program_call){.arguments = {"bench", "model", "m", "--batch", "2", "--peer", "p"}},
        "--batch 1");
    program_expect_usage(&(program_call){.arguments = {"bench", "sharing", "--rows", "1"}},
                         "--rows takes");
    program_expect_usage(&(program_call){.arguments = {"bench", "sharing", "--storage", "q7"}},
                         "not 'q7'");
    program_expect_usage(&(program_call){.arguments = {"bench", "sharing", "--head-dim", "584"}},
                         "--head-dim takes at most 576");
    static const char *const CASES[][3] = {
        {"--storage", "bf17", "--storage knows bf16, f16, f32, q8"},
        {"--storage", "bf16,", "--storage takes"},
        {"--storage", "q7", "not 'q7'"},
        {"--storage", "q4g", "not 'q4g'"},
        {"--storage", "q4g48", "not 'q4g48'"},
        {"--storage", "q123456789", "not 'q123456789'"},
        {"--phase", "sleep", "--phase is decode, window, both or append"},
        {"--kind", "sliding", "--kind is full or latent"},
        {"--rope", "64", "--rope needs --kind latent"},
        {"--rope", "0", "--rope takes"},
        {"--head-dim", "7", "--head-dim takes"},
        {"--head-dim", "584", "--head-dim takes at most 576"},
        {"--head-dim", "1032", "--head-dim takes"},
        {"-t", "0", "-t takes"},
        {"-t", "1,x", "-t takes"},
        {"--threads", "1025", "-t takes"},
        {"--runs", "0", "--runs takes"},
        {"--peer-storage", "f16", "--peer-storage needs --peer"},
        {"--peer-storage", "a b", "--peer-storage takes"},
        {"--peer-storage", "a,b,c,d,e,f,g,h,i", "--peer-storage takes at most 8 names"},
        {"--peer-storage", "a-name-that-is-too-long", "--peer-storage takes"}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++)
        program_expect_usage(
            &(program_call){.arguments = {"bench", "attention", CASES[i][0], CASES[i][1]}},
            CASES[i][2]);
}

// kvern alone starts what it finds in PATH, or says what is missing.
static void test_program_of_its_own(void **state)
{
    (void)state;
    size_t bytes;
    char program[512], path[4096], *before = strdup(getenv("PATH"));
    snprintf(program, sizeof program, "%s", getenv("KVERN_PROGRAM"));
    char *binary = program_read(program, &bytes);
    const char *alone = program_write("kvern-alone", binary, bytes);
    free(binary);
    assert_int_equal(chmod(alone, 0700), 0);
    setenv("KVERN_PROGRAM", alone, 1);
    setenv("PATH", "/nonexistent", 1);
    program_expect_failure(&(program_call){.arguments = {"bench", "sharing", "--help"}},
                           "kvern-bench, which is neither beside kvern nor in PATH");
    const char *slash = strrchr(program, '/');
    assert_non_null(slash);
    snprintf(path, sizeof path, "/nonexistent:%.*s", (int)(slash - program), program);
    setenv("PATH", path, 1);
    program_result result =
        program_run_well(&(program_call){.arguments = {"bench", "sharing", "--help"}});
    program_expect_part(result.out, "Usage: kvern bench sharing [OPTION...]\n");
    program_free(&result);
    setenv("KVERN_PROGRAM", program, 1);
    setenv("PATH", before, 1);
    free(before);
}

static void test_help(void **state)
{
    (void)state;
    static const char *const WHAT[] = {"attention", "draft",  "model",   "overhead",
                                       "recurrent", "select", "sharing", "store"};
    for (size_t i = 0; i < sizeof WHAT / sizeof WHAT[0]; i++) {
        program_result result =
            program_run(&(program_call){.arguments = {"bench", WHAT[i], "--help"}});
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: kvern bench %s [OPTION...]", WHAT[i]);
        assert_int_equal(result.code, 0);
        program_expect_part(result.out, usage);
        const bool once = strcmp(WHAT[i], "draft") == 0 || strcmp(WHAT[i], "overhead") == 0 ||
                          strcmp(WHAT[i], "store") == 0;
        program_expect_part(result.out, once ? "-t, --threads=N " : "-t, --threads=LIST ");
        program_free(&result);
    }
}

static int set_up(void **state)
{
    (void)state;
    small_model_save(&(small_model){0}, program_path("model.gguf"));
    return 0;
}

int main(void)
{
    const char *mode = getenv(PEER_VARIABLE);
    if (mode)
        return be_peer(mode);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_json),
        cmocka_unit_test(test_attention_appends),
        cmocka_unit_test(test_attention_of_latents),
        cmocka_unit_test(test_attention_of_long_latents),
        cmocka_unit_test(test_attention_from_cache),
        cmocka_unit_test(test_attention_csv),
        cmocka_unit_test(test_bad_peers),
        cmocka_unit_test(test_peers_of_other_layers),
        cmocka_unit_test(test_bad_peers_of_other_layers),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_batch),
        cmocka_unit_test(test_model_storage),
        cmocka_unit_test(test_model_peers),
        cmocka_unit_test(test_model_peers_that_refuse),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_store_file),
        cmocka_unit_test(test_store_directory),
        cmocka_unit_test(test_store_first_token),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_program_of_its_own),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, set_up, program_tear_down);
}
