// SPDX-License-Identifier: MIT
// Digests of the library's results, one line per scenario: the same numbers from every compiler,
// build, instruction set and architecture.
//
//     digest             prints them
//     digest FILE        compares them with a file of such lines; 1 when one differs
//
// Inputs come from integers, so that no library of the machine has a part in them. Only the public
// headers are used.

#include <kvern/kvern.h>
#include <kvern/math.h>
#include <kvern/recurrent_math.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Digest ----

// FNV-1a over the bytes of 32-bit words, the lowest first.
typedef struct digest {
    uint64_t hash;
} digest;

static digest digest_begin(void)
{
    return (digest){UINT64_C(0xcbf29ce484222325)};
}

static void add_word(digest *d, uint32_t word)
{
    for (int i = 0; i < 4; i++) {
        d->hash ^= word >> (8 * i) & 0xff;
        d->hash *= UINT64_C(0x100000001b3);
    }
}

// Every NaN counts as the same one: payloads are not part of the promise.
static void add_float(digest *d, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_word(d, x != x ? 0x7fc00000 : bits);
}

static void add_text(digest *d, const char *text)
{
    for (; *text; text++)
        add_word(d, (unsigned char)*text);
}

// ---- Reporting ----

static FILE *expected; // NULL: print
static int differences;

static void report(const char *name, digest d)
{
    char line[128], wanted[128];
    snprintf(line, sizeof line, "%016" PRIx64 " %s\n", d.hash, name);
    if (!expected) {
        fputs(line, stdout);
        return;
    }
    if (!fgets(wanted, sizeof wanted, expected))
        strcpy(wanted, "nothing\n");
    if (strcmp(line, wanted) != 0) {
        printf("got      %sexpected %s", line, wanted);
        differences++;
    }
}

static void check(kvern_status status, int line)
{
    if (!status)
        return;
    printf("digest.c:%d: %s: %s\n", line, kvern_status_name(status), kvern_error_detail());
    exit(2);
}
#define CHECK(call) check((call), __LINE__)

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) {
        puts("out of memory");
        exit(2);
    }
    return memory;
}

// ---- Inputs ----

// A hash of up to four numbers (the mixing of splitmix64).
static uint64_t mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b * UINT64_C(0xd1b54a32d192ed03) +
                 c * UINT64_C(0x8cb92ba72f3d8dd7) + d * UINT64_C(0xaaaaaaaaaaaaaaab) + 1;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

// In [-1, 1), a multiple of 2^-23: exact in float.
static float value(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    return (float)((int32_t)(mix(a, b, c, d) >> 40) - (1 << 23)) * 0x1p-23f;
}

static uint64_t sequence = 1; // tokens of a row follow from it, the row and the position

static void fill(float *x, uint64_t stream, size_t row, int64_t position, size_t count, float size)
{
    for (size_t i = 0; i < count; i++)
        x[i] = size * value(sequence * 4 + stream, row, (uint64_t)position, i);
}

// ---- Serving ----

#define MOST_ROWS 8

typedef struct options {
    kvern_layer layer;
    size_t query_heads, rows;
    kvern_type in_type, out_type;
    float scale, softcap; // scale 0: the default one
    float k_size, q_size;
    const float *sinks;
    size_t threads; // that the executor claims to have
} options;

static options options_default(size_t kv_heads, size_t dim, size_t query_heads)
{
    return (options){.layer = kvern_layer_default(kv_heads, dim),
                     .query_heads = query_heads,
                     .rows = 1,
                     .in_type = KVERN_F32,
                     .out_type = KVERN_F32,
                     .k_size = 1,
                     .q_size = 4,
                     .threads = 1};
}

typedef struct server {
    options o;
    kvern_context *context;
    kvern_composition *composition;
    kvern_cache *cache;
} server;

// Runs tasks backwards, on this thread.
static void run_backwards(void *user, size_t tasks, void (*task)(void *arg, size_t index),
                          void *arg)
{
    (void)user;
    while (tasks > 0)
        task(arg, --tasks);
}

static server server_create(const options *o)
{
    server s = {.o = *o};
    kvern_context_options context = kvern_context_options_default();
    context.executor = (kvern_executor){.run = run_backwards, .threads = o->threads};
    CHECK(kvern_context_create(&context, &s.context));
    CHECK(kvern_composition_create(s.context, &o->layer, 1, &s.composition));
    CHECK(kvern_cache_create(s.composition, 0, o->rows, &s.cache));
    return s;
}

static void server_destroy(server *s)
{
    kvern_cache_destroy(s->cache);
    kvern_composition_release(s->composition);
    kvern_context_release(s->context);
}

static size_t in_bytes(const options *o)
{
    return o->in_type == KVERN_F32 ? 4 : 2;
}

static void store(const options *o, void *tensor, size_t at, const float *x, size_t count)
{
    char *to = (char *)tensor + at * in_bytes(o);
    if (o->in_type == KVERN_F32)
        memcpy(to, x, count * sizeof *x);
    else if (o->in_type == KVERN_BF16)
        kvern_f32_to_bf16_array(0, count, x, (uint16_t *)to);
    else
        kvern_f32_to_f16_array(0, count, x, (uint16_t *)to);
}

// The tensors of an append: packed, rows behind each other.
typedef struct tensors {
    void *k, *v, *q, *out;
    size_t out_count;
} tensors;

static tensors make_tensors(const server *s, const int64_t *counts)
{
    const options *o = &s->o;
    const size_t k = o->layer.kv_heads * o->layer.k_dim, v = o->layer.kv_heads * o->layer.v_dim;
    const size_t q = o->query_heads * o->layer.k_dim;
    size_t total = 0, token = 0;
    for (size_t r = 0; r < o->rows; r++)
        total += (size_t)counts[r];
    tensors t = {take(total * k, 4), take(total * v, 4), take(total * q, 4),
                 take(total * o->query_heads * o->layer.v_dim, 4),
                 total * o->query_heads * o->layer.v_dim};
    float *x = take(k + v + q, sizeof *x);
    for (size_t r = 0; r < o->rows; r++) {
        for (int64_t i = 0; i < counts[r]; i++, token++) {
            const int64_t position = kvern_cache_length(s->cache, r) + i;
            fill(x, 0, r, position, k, o->k_size);
            store(o, t.k, token * k, x, k);
            fill(x, 1, r, position, v, 1);
            store(o, t.v, token * v, x, v);
            fill(x, 2, r, position, q, o->q_size);
            store(o, t.q, token * q, x, q);
        }
    }
    free(x);
    return t;
}

static void free_tensors(tensors *t)
{
    free(t->k);
    free(t->v);
    free(t->q);
    free(t->out);
}

static void add_output(digest *d, const options *o, const tensors *t)
{
    for (size_t i = 0; i < t->out_count; i++) {
        if (o->out_type == KVERN_F32)
            add_float(d, ((const float *)t->out)[i]);
        else
            add_word(d, ((const uint16_t *)t->out)[i]);
    }
}

// Latents and the rotated keys behind them are what others have for keys.
static void append_latents(const server *s, const kvern_tokens *tokens, kvern_read **read)
{
    const kvern_layer *layer = &s->o.layer;
    kvern_latent_tokens t = kvern_latent_tokens_default(layer);
    t.latent = tokens->k;
    if (layer->rope_dim)
        t.rope = (const char *)tokens->k + layer->latent_dim * in_bytes(&s->o);
    t.index = layer->index_dim ? tokens->v : NULL;
    t.latent_type = t.rope_type = t.index_type = tokens->k_type;
    t.latent_token_stride = t.rope_token_stride = (int64_t)layer->k_dim;
    t.index_token_stride = (int64_t)layer->v_dim;
    t.counts = tokens->counts;
    CHECK(kvern_cache_append_latent(s->cache, KVERN_PHASE_WINDOW, &t, read));
}

// Appends counts[r] tokens to each row and, when d is not NULL, adds what they attend to it.
static void serve(server *s, const int64_t *counts, digest *d)
{
    const options *o = &s->o;
    tensors t = make_tensors(s, counts);
    kvern_tokens tokens = kvern_tokens_default(&o->layer);
    kvern_queries queries = kvern_queries_default(&o->layer, o->query_heads);
    kvern_read *read = NULL;
    tokens.k = t.k;
    tokens.v = t.v;
    tokens.counts = counts;
    tokens.k_type = tokens.v_type = queries.q_type = o->in_type;
    queries.q = t.q;
    queries.out = t.out;
    queries.out_type = o->out_type;
    queries.softcap = o->softcap;
    queries.sinks = o->sinks;
    queries.scale = o->scale != 0 ? o->scale : queries.scale;
    if (o->layer.kind == KVERN_LAYER_LATENT)
        append_latents(s, &tokens, d ? &read : NULL);
    else
        CHECK(kvern_cache_append(s->cache, KVERN_PHASE_WINDOW, &tokens, d ? &read : NULL));
    if (d) {
        CHECK(kvern_read_attend(read, &queries));
        add_output(d, o, &t);
        kvern_read_release(read);
    }
    free_tensors(&t);
}

// A new cache of one row, `before` tokens that nobody looks at, and then `count` that are attended.
static void serve_once(const options *o, int64_t before, int64_t count, digest *d)
{
    server s = server_create(o);
    serve(&s, &before, NULL);
    serve(&s, &count, d);
    server_destroy(&s);
}

// ---- Scenarios ----

static void every_dim(void)
{
    static const char *const names[] = {"dims f32", "dims bf16", "dims f16"};
    for (int type = 0; type < 3; type++) {
        digest d = digest_begin();
        for (size_t dim = 8; dim <= KVERN_MAX_HEAD_DIM; dim += 8) {
            options o = options_default(1, dim, 1);
            o.layer.k_codec = o.layer.v_codec = kvern_codec_dense((kvern_type)type);
            o.layer.v_dim = KVERN_MAX_HEAD_DIM + 8 - dim;
            serve_once(&o, 13, 7, &d);
        }
        report(names[type], d);
    }
}

static void every_group(void)
{
    static const size_t groups[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 31, 32, 33, 40, 64};
    for (int type = 0; type < 3; type++) {
        digest d = digest_begin();
        for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
            options o = options_default(2, 24, 2 * groups[i]);
            o.layer.k_codec = kvern_codec_dense((kvern_type)type);
            o.layer.v_codec = kvern_codec_dense((kvern_type)((type + 1) % 3));
            serve_once(&o, 60, 9, &d);
        }
        report(type == 0 ? "groups f32 bf16" : type == 1 ? "groups bf16 f16" : "groups f16 f32", d);
    }
}

static void every_length(void)
{
    static const int64_t lengths[] = {1,  2,   15,  16,  17,   31,   32,   48,   63,  64,
                                      65, 127, 128, 129, 1000, 1023, 1024, 1025, 1088};
    digest d = digest_begin();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        options o = options_default(1, 32, 3);
        serve_once(&o, lengths[i] - 1, 1, &d);
    }
    report("lengths", d);
}

// Cut by spans when the executor has threads, and not: the two lines are the same number.
static void long_row(size_t threads, const char *name)
{
    digest d = digest_begin();
    options o = options_default(1, 64, 4);
    o.threads = threads;
    serve_once(&o, 4500, 2, &d);
    report(name, d);
}

// One window, and the same tokens by chunks: the two lines are the same number.
static void chunks(int64_t chunk, const char *name)
{
    digest d = digest_begin();
    options o = options_default(3, 64, 9);
    server s = server_create(&o);
    for (int64_t done = 0, count; done < 100; done += count) {
        count = chunk < 100 - done ? chunk : 100 - done;
        serve(&s, &count, &d);
    }
    server_destroy(&s);
    report(name, d);
}

static void element_types(void)
{
    for (int in = 0; in < 3; in++) {
        for (int out = 0; out < 3; out++) {
            static const char *const names[3] = {"f32", "bf16", "f16"};
            char name[64];
            digest d = digest_begin();
            options o = options_default(2, 40, 4);
            o.in_type = (kvern_type)in;
            o.out_type = (kvern_type)out;
            serve_once(&o, 70, 5, &d);
            snprintf(name, sizeof name, "from %s to %s", names[in], names[out]);
            report(name, d);
        }
    }
}

static void softcap_and_sinks(void)
{
    static const float sinks[4] = {0, 5, -20, 0.5f};
    digest d = digest_begin();
    options o = options_default(2, 64, 4);
    for (int i = 0; i < 4; i++) {
        o.softcap = (float)(i * 25) * 0.5f;
        o.scale = i % 2 ? 0.3f : 0;
        o.sinks = i > 1 ? sinks : NULL;
        serve_once(&o, 65, 4, &d);
    }
    report("softcap, scale, sinks", d);
}

// Rows of different lengths that come and go.
static void batches(void)
{
    digest d = digest_begin();
    options o = options_default(2, 32, 6);
    o.rows = MOST_ROWS;
    server s = server_create(&o);
    for (uint64_t round = 0; round < 6; round++) {
        int64_t counts[MOST_ROWS];
        for (size_t r = 0; r < MOST_ROWS; r++)
            counts[r] = (int64_t)(mix(1, round, r, 0) % 24);
        serve(&s, counts, &d);
        for (size_t r = 0; r < MOST_ROWS; r++)
            CHECK(
                kvern_cache_trim(s.cache, r, (int64_t)(mix(2, round, r, 0) % 9) % (counts[r] + 1)));
    }
    CHECK(kvern_cache_reset(s.cache, 3));
    serve(&s, (int64_t[MOST_ROWS]){1, 1, 0, 1, 1, 0, 1, 1}, &d);
    server_destroy(&s);
    report("batches", d);
}

static void forks(void)
{
    static const size_t rows[2] = {0, 0};
    digest d = digest_begin();
    options o = options_default(1, 48, 4);
    server s = server_create(&o), fork;
    serve(&s, (int64_t[]){100}, NULL);
    fork = s;
    fork.o.rows = 2;
    CHECK(kvern_cache_fork(s.cache, rows, 2, &fork.cache));
    sequence = 2;
    serve(&fork, (int64_t[]){30, 5}, &d);
    sequence = 3;
    serve(&s, (int64_t[]){40}, &d);
    sequence = 1;
    kvern_cache_destroy(fork.cache);
    server_destroy(&s);
    report("forks", d);
}

// Scores from far below the smallest weight to overflow; subnormal keys; results stay defined.
static void extremes(void)
{
    static const float sizes[] = {1e-30f, 1e-6f, 100, 1e4f, 1e18f, 3e38f};
    for (int type = 0; type < 3; type++) {
        digest d = digest_begin();
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            options o = options_default(1, 16, 2);
            o.layer.k_codec = kvern_codec_dense((kvern_type)type);
            o.k_size = sizes[i];
            serve_once(&o, 70, 4, &d);
            o.q_size = 1e-20f;
            serve_once(&o, 70, 4, &d);
        }
        report(type == 0 ? "extremes f32" : type == 1 ? "extremes bf16" : "extremes f16", d);
    }
}

static void stored_values(void)
{
    for (int type = 0; type < 3; type++) {
        float k[130 * 2 * 24], v[130 * 2 * 72];
        digest d = digest_begin();
        options o = options_default(2, 24, 2);
        o.layer.v_dim = 72;
        o.layer.k_codec = o.layer.v_codec = kvern_codec_dense((kvern_type)type);
        o.k_size = 1e-5f; // partly below the normal numbers of f16
        server s = server_create(&o);
        serve(&s, (int64_t[]){130}, NULL);
        CHECK(kvern_cache_export(s.cache, 0, 0, 130, k, v));
        for (size_t i = 0; i < sizeof k / sizeof k[0]; i++)
            add_float(&d, k[i]);
        for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
            add_float(&d, v[i]);
        server_destroy(&s);
        report(type == 0 ? "stored f32" : type == 1 ? "stored bf16" : "stored f16", d);
    }
}

// One line per number of bits, so that a difference says which kernels it comes from.
static void affine(void)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    for (size_t i = 0; i < 6; i++) {
        char name[64];
        digest d = digest_begin();
        for (size_t j = 0; j < 9; j++) {
            options o = options_default(2, 128, j == 8 ? 16 : 2 * (j % 3 + 1));
            o.layer.k_codec = kvern_codec_affine(bits[i], groups[j % 3]);
            o.layer.v_codec = kvern_codec_affine(bits[(i + j / 3) % 6], groups[(j + j / 3) % 3]);
            o.layer.k_codec.scales = (kvern_type)((j + 1) % 3);
            o.in_type = (kvern_type)(j / 3);
            serve_once(&o, 70, j == 8 ? 40 : 5, &d);
        }
        snprintf(name, sizeof name, "affine, keys of %u bits", (unsigned)bits[i]);
        report(name, d);
    }
}

// Rotated vectors: one line for each number of bits of both codecs, keys and values of different
// ones, windows and rows that begin in bf16 among them. Dims are such that fit both, and others.
static void rotated_as(kvern_codec k_codec, uint32_t v_bits, const char *name)
{
    static const size_t dims[] = {64, 96, 128, 192, 256, 64};
    digest d = digest_begin();
    for (size_t j = 0; j < 6; j++) {
        options o = options_default(2, dims[j], j == 5 ? 16 : 2 * (j % 3 + 1));
        o.layer.k_codec = k_codec;
        o.layer.v_codec = j % 2 ? kvern_codec_turbo(v_bits) : kvern_codec_rotated(v_bits, 32);
        o.layer.k_codec.scales = o.layer.k_codec.group ? (kvern_type)(j % 3) : KVERN_F32;
        o.layer.start = j == 2 ? 40 : KVERN_NO_START;
        o.in_type = (kvern_type)((j + 1) % 3);
        if (!o.layer.k_codec.group && j > 2) // no multiple of 32
            o.layer.k_dim = dims[j] + 16;
        serve_once(&o, 70, j == 5 ? 40 : 5, &d);
    }
    report(name, d);
}

static void rotated(void)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
    char name[64];
    for (uint32_t i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "rotated, keys of %u bits", (unsigned)bits[i]);
        rotated_as(kvern_codec_rotated(bits[i], 32), 2 + i % 3, name);
    }
    for (uint32_t i = 1; i <= 6; i++) {
        snprintf(name, sizeof name, "turbo, keys of %u bits", (unsigned)i);
        rotated_as(kvern_codec_turbo(i), i == 1 ? 4 : i, name);
    }
}

static void windows(void)
{
    static const int64_t list[][2] = {{1, 0},    {8, 0},    {60, 5}, {64, 0},
                                      {100, 99}, {129, 64}, {512, 4}};
    digest d = digest_begin();
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        options o = options_default(2, 32, 4);
        o.layer.kind = KVERN_LAYER_WINDOW;
        o.layer.window = list[i][0];
        o.layer.keep = list[i][1];
        o.layer.slack = 3;
        if (i % 2)
            o.layer.k_codec = o.layer.v_codec = kvern_codec_affine(i % 4 == 1 ? 4 : 8, 32);
        server s = server_create(&o);
        serve(&s, (int64_t[]){700}, NULL);
        serve(&s, (int64_t[]){70}, &d);
        CHECK(kvern_cache_trim(s.cache, 0, 3));
        serve(&s, (int64_t[]){1}, &d);
        serve(&s, (int64_t[]){9}, &d);
        server_destroy(&s);
    }
    report("windows", d);
}

// A kept position that is more than a span away from the window.
static void far_window(size_t threads, const char *name)
{
    digest d = digest_begin();
    options o = options_default(1, 64, 4);
    o.threads = threads;
    o.layer.kind = KVERN_LAYER_WINDOW;
    o.layer.window = 2500;
    o.layer.keep = 70;
    serve_once(&o, 6000, 2, &d);
    report(name, d);
}

// Rows that convert at ends of appends of their own.
static void starts(void)
{
    digest d = digest_begin();
    options o = options_default(2, 64, 4);
    o.rows = MOST_ROWS;
    o.layer.k_codec = kvern_codec_affine(4, 64);
    o.layer.v_codec = kvern_codec_affine(6, 32);
    o.layer.start = 40;
    server s = server_create(&o);
    for (uint64_t round = 0; round < 8; round++) {
        int64_t counts[MOST_ROWS];
        for (size_t r = 0; r < MOST_ROWS; r++)
            counts[r] = (int64_t)(mix(3, round, r, 0) % 24);
        serve(&s, counts, &d);
        for (size_t r = 0; r < MOST_ROWS; r++)
            add_word(&d, kvern_cache_converted(s.cache, r));
    }
    server_destroy(&s);
    report("starts", d);
}

static void facts(void)
{
    static const size_t shapes[][3] = {{3, 64, 64}, {5, 64, 64}, {8, 128, 128}, {1, 576, 512}};
    digest d = digest_begin();
    kvern_context *context;
    CHECK(kvern_context_create(NULL, &context));
    for (size_t i = 0; i < 12; i++) {
        kvern_composition *composition;
        kvern_layer layer = kvern_layer_default(shapes[i % 4][0], shapes[i % 4][1]);
        layer.v_dim = shapes[i % 4][2];
        layer.k_codec = kvern_codec_dense((kvern_type)(i % 3));
        CHECK(kvern_composition_create(context, &layer, 1, &composition));
        add_text(&d, kvern_composition_signature(composition, 0));
        add_word(&d, (uint32_t)kvern_composition_bytes_per_token(composition));
        add_word(&d, (uint32_t)kvern_composition_row_bytes(composition, 1000));
        kvern_composition_release(composition);
    }
    kvern_context_release(context);
    report("signatures and sizes", d);
}

// ---- Functions of kvern/math.h ----

#define SAMPLES 4000

static float base_to_half(float x)
{
    return kvern_pow(x < 0 ? -x : x, 0.5f);
}

static void functions(void)
{
    static const struct {
        const char *name;
        float (*function)(float);
        float size;
    } list[] = {{"exp", kvern_exp, 90},          {"tanh", kvern_tanh, 10},
                {"sigmoid", kvern_sigmoid, 100}, {"log1p", kvern_log1p, 1},
                {"sin", kvern_sin, 1e4f},        {"cos", kvern_cos, 1e4f},
                {"pow 1/2", base_to_half, 1e3f}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        digest d = digest_begin();
        for (uint64_t j = 0; j < SAMPLES; j++)
            add_float(&d, list[i].function(list[i].size * value(7, i, j, 0)));
        report(list[i].name, d);
    }
}

static void arrays(void)
{
    static float x[SAMPLES], y[SAMPLES];
    static uint16_t half[SAMPLES];
    const uint32_t features = kvern_cpu_features();
    digest d = digest_begin();
    for (uint64_t i = 0; i < SAMPLES; i++)
        x[i] = 30 * value(8, i, 0, 0);
    kvern_silu_array(features, SAMPLES, x, y);
    for (size_t i = 0; i < SAMPLES; i++)
        add_float(&d, y[i]);
    kvern_gelu_array(features, SAMPLES, x, y);
    for (size_t i = 0; i < SAMPLES; i++)
        add_float(&d, y[i]);
    kvern_f32_to_f16_array(features, SAMPLES, x, half);
    for (size_t i = 0; i < SAMPLES; i++)
        add_word(&d, half[i]);
    kvern_f32_to_bf16_array(features, SAMPLES, x, half);
    for (size_t i = 0; i < SAMPLES; i++)
        add_word(&d, half[i]);
    report("arrays", d);
}

// ---- Recurrent layers ----

#define CHANNELS ((size_t)328)
#define INPUTS ((size_t)37)

// Tokens first to first + count - 1 of two rows, the second one a token behind.
static void take_tokens(server *s, const kvern_recur_weights *weights, size_t first, int64_t count,
                        digest *d)
{
    const kvern_layer *layer = &s->o.layer;
    const size_t heads = layer->value_heads, y_floats = heads * layer->v_dim;
    const size_t a =
        layer->recurrence == KVERN_RECURRENCE_DELTA_CHANNELS ? heads * layer->k_dim : heads;
    const int64_t counts[2] = {count, count - (first == 0)};
    float *x[3], *y = take(2 * (size_t)count * y_floats, sizeof *y);
    const size_t dims[3] = {layer->conv_dim, a, heads};
    for (int i = 0; i < 3; i++) {
        x[i] = take(2 * (size_t)count * dims[i], sizeof(float));
        for (int64_t t = 0; t < 2 * count; t++) {
            const int64_t row = t / count, at = (int64_t)first + t % count - (first && row);
            fill(x[i] + (size_t)t * dims[i], 40 + (uint64_t)i, (size_t)row, at, dims[i], 3);
        }
    }
    kvern_recur_tokens tokens = kvern_recur_tokens_default(layer);
    tokens.x = x[0], tokens.a = x[1];
    tokens.b = layer->recurrence == KVERN_RECURRENCE_SSD ? NULL : x[2];
    tokens.y = y, tokens.counts = counts, tokens.weights = weights;
    tokens.start = (int64_t[]){0, count};
    CHECK(kvern_cache_recur(s->cache, KVERN_PHASE_WINDOW, &tokens));
    for (size_t i = 0; i < 2 * (size_t)count * y_floats; i++)
        add_float(d, y[i]);
    free(x[0]), free(x[1]), free(x[2]), free(y);
}

// Outputs of windows and decodes, and the matrices behind them.
static void recurrence(kvern_recurrence rule, size_t threads, const char *name)
{
    static const int64_t counts[] = {70, 1, 1, 9};
    options o = {
        .layer = kvern_layer_recurrent(rule, 2, 6, 40, 72, 4), .rows = 2, .threads = threads};
    server s = server_create(&o);
    const size_t channels = o.layer.conv_dim, numbers = 6 * 40 * 72;
    float *learned = take(4 * channels + 600, sizeof *learned),
          *matrices = take(numbers, sizeof(float));
    digest d = digest_begin();
    fill(learned, 43, 0, 0, 4 * channels + 600, 1);
    kvern_recur_weights weights = kvern_recur_weights_default(&o.layer);
    weights.conv_weight = learned, weights.a_log = learned + 4 * channels;
    weights.dt_bias = weights.a_log + 6;
    if (rule == KVERN_RECURRENCE_SSD)
        weights.d = weights.a_log + 300, weights.dt_low = 0.01f, weights.dt_high = 2;
    size_t first = 0;
    for (size_t i = 0; i < 4; first += (size_t)counts[i++])
        take_tokens(&s, &weights, first, counts[i], &d);
    kvern_recur_state state = {.size = sizeof state, .s = matrices};
    for (size_t row = 0; row < 2; row++) {
        CHECK(kvern_cache_export_recurrent(s.cache, row, &state));
        for (size_t i = 0; i < numbers; i++)
            add_float(&d, matrices[i]);
    }
    report(name, d);
    server_destroy(&s);
    free(learned), free(matrices);
}

static void recurrences(void)
{
    recurrence(KVERN_RECURRENCE_DELTA, 1, "gated delta");
    recurrence(KVERN_RECURRENCE_DELTA, 5, "gated delta, by heads");
    recurrence(KVERN_RECURRENCE_DELTA_CHANNELS, 5, "gated delta, decays of channels");
    recurrence(KVERN_RECURRENCE_SSD, 5, "state space duality");
}

// What surrounds a recurrence: convolution, gates, norms.
static void recurrent_math(void)
{
    static float x[INPUTS * CHANNELS], z[INPUTS * CHANNELS], y[INPUTS * CHANNELS];
    static float weight[4 * CHANNELS], tail[3 * CHANNELS], dt[CHANNELS], decay[CHANNELS];
    const uint32_t features = kvern_cpu_features();
    digest d = digest_begin();
    for (size_t i = 0; i < INPUTS * CHANNELS; i++) {
        x[i] = 8 * value(20, i, 0, 0);
        z[i] = 8 * value(21, i, 0, 0);
    }
    for (size_t i = 0; i < 4 * CHANNELS; i++)
        weight[i] = value(22, i, 0, 0);
    kvern_convolution c = kvern_convolution_default(CHANNELS, 4);
    c.count = INPUTS;
    c.weight = weight;
    c.bias = z;
    c.x = x;
    c.y = y;
    c.tail = tail;
    CHECK(kvern_convolve(features, &c));
    for (size_t i = 0; i < INPUTS * CHANNELS; i++)
        add_float(&d, y[i]);
    kvern_step_size_array(features, CHANNELS, x, z, 0.001f, 4, 0.5f, dt, decay);
    for (size_t i = 0; i < CHANNELS; i++) {
        add_float(&d, dt[i]);
        add_float(&d, decay[i]);
    }
    for (int form = 0; form < 4; form++) {
        kvern_gated_norm n = kvern_gated_norm_default(CHANNELS / 8, 8);
        n.count = INPUTS;
        n.x = x;
        n.z = z;
        n.weight = weight;
        n.out = y;
        n.gate_first = form & 1;
        n.activation = form & 2 ? KVERN_ACTIVATION_SIGMOID : KVERN_ACTIVATION_SILU;
        CHECK(kvern_normalize_gated(features, &n));
        for (size_t i = 0; i < INPUTS * CHANNELS; i++)
            add_float(&d, y[i]);
    }
    report("convolution, gates, gated norms", d);
}

#define SPARSE_LENGTH 1300
#define SPARSE_QUERIES 3
#define SPARSE_HEADS 5
#define SPARSE_TOP_K 1100

// What positions are selected by index keys, and reads of them: absorbed and materialized.
static void sparse_latents(kvern_codec codec, size_t threads, const char *name)
{
    const size_t latent = 64, rope = 32, index = 64, nope = 24, made = 40, query = latent + rope;
    options o = {.layer = kvern_layer_latent(latent, rope, index), .rows = 1, .threads = threads};
    o.layer.latent_codec = o.layer.rope_codec = o.layer.index_codec = codec;
    server s = server_create(&o);
    digest d = digest_begin();
    float *x[3], *q = take(SPARSE_QUERIES * SPARSE_HEADS * query, sizeof *q);
    float *out = take(SPARSE_QUERIES * SPARSE_HEADS * latent, sizeof *out);
    float *rows = take(SPARSE_HEADS * (nope + made) * latent, sizeof *rows);
    int64_t *positions = take(SPARSE_QUERIES * SPARSE_TOP_K, sizeof *positions);
    int64_t counted[SPARSE_QUERIES], counts[2] = {SPARSE_LENGTH - SPARSE_QUERIES, SPARSE_QUERIES};
    const size_t dims[3] = {latent, rope, index};
    kvern_read *read = NULL;
    for (int lane = 0; lane < 3; lane++) {
        x[lane] = take(SPARSE_LENGTH * dims[lane], sizeof(float));
        fill(x[lane], 30 + (uint64_t)lane, 0, 0, SPARSE_LENGTH * dims[lane], 1);
    }
    for (int append = 0; append < 2; append++) {
        kvern_latent_tokens t = kvern_latent_tokens_default(&o.layer);
        const size_t at = append ? (size_t)counts[0] : 0;
        t.latent = x[0] + at * latent, t.rope = x[1] + at * rope, t.index = x[2] + at * index;
        t.counts = counts + append;
        CHECK(kvern_cache_append_latent(s.cache, KVERN_PHASE_WINDOW, &t, append ? &read : NULL));
    }
    fill(q, 33, 0, 0, SPARSE_QUERIES * SPARSE_HEADS * query, 2);
    fill(rows, 34, 0, 0, SPARSE_HEADS * (nope + made) * latent, 0.5f);
    kvern_selection selection =
        kvern_selection_default(positions, counted, SPARSE_QUERIES, SPARSE_TOP_K);
    kvern_index_queries ask = kvern_index_queries_default(3, index, SPARSE_TOP_K);
    ask.q = q, ask.weights = rows;
    CHECK(kvern_read_select(read, &ask, &selection));
    for (size_t i = 0; i < SPARSE_QUERIES; i++)
        for (int64_t j = 0; j < counted[i]; j++)
            add_word(&d, (uint32_t)positions[i * SPARSE_TOP_K + (size_t)j]);
    kvern_queries queries = kvern_queries_default(&o.layer, SPARSE_HEADS);
    queries.q = q, queries.out = out, queries.selection = &selection;
    CHECK(kvern_read_attend(read, &queries));
    for (size_t i = 0; i < SPARSE_QUERIES * SPARSE_HEADS * latent; i++)
        add_float(&d, out[i]);
    kvern_latent_weights weights = kvern_latent_weights_default(&o.layer, nope, made);
    weights.weights = rows;
    queries.q_head_stride = (int64_t)(nope + rope), queries.out_head_stride = (int64_t)made;
    queries.q_token_stride = SPARSE_HEADS * queries.q_head_stride;
    queries.out_token_stride = SPARSE_HEADS * queries.out_head_stride;
    for (int sparse = 0; sparse < 2; sparse++) {
        queries.selection = sparse ? &selection : NULL;
        CHECK(kvern_read_attend_materialized(read, &queries, &weights));
        for (size_t i = 0; i < SPARSE_QUERIES * SPARSE_HEADS * made; i++)
            add_float(&d, out[i]);
    }
    report(name, d);
    kvern_read_release(read);
    server_destroy(&s);
    free(x[0]), free(x[1]), free(x[2]);
    free(q), free(out), free(rows), free(positions);
}

// One line per codec of the latents; heads that fill a tile, half of one, and neither.
static void latents(void)
{
    static const size_t heads[] = {1, 16, 20, 32, 40};
    for (size_t i = 0; i < 9; i++) {
        static const uint32_t bits[] = {2, 3, 4, 5, 6, 8};
        const kvern_codec codec = i < 3 ? kvern_codec_dense((kvern_type)i)
                                        : kvern_codec_affine(bits[i - 3], i % 2 ? 64 : 32);
        char name[64];
        digest d = digest_begin();
        for (size_t j = 0; j < 5; j++) {
            options o = options_default(1, 8, heads[j]);
            o.layer = kvern_layer_latent(j == 4 ? 512 : 64 * (j + 1), 32 * (j % 3), 8 * (j % 2));
            o.layer.latent_codec = codec;
            if (j % 3)
                o.layer.rope_codec = kvern_codec_dense((kvern_type)(j % 3));
            o.in_type = (kvern_type)(j % 3);
            o.softcap = j == 1 ? 20 : 0;
            serve_once(&o, 70, j == 4 ? 2 : 9, &d);
        }
        if (i < 3)
            snprintf(name, sizeof name, "latents, dense %zu", i);
        else
            snprintf(name, sizeof name, "latents of %u bits", (unsigned)bits[i - 3]);
        report(name, d);
    }
}

// A long row, one append and decodes, cut by spans and not: the same number each time.
static void latent_rows(void)
{
    for (int how = 0; how < 4; how++) {
        digest d = digest_begin();
        options o = options_default(1, 8, 16);
        o.layer = kvern_layer_latent(64, 8, 0);
        o.threads = how % 2 ? 5 : 1;
        server s = server_create(&o);
        serve(&s, (int64_t[]){3000}, NULL);
        for (int i = 0; i < (how < 2 ? 1 : 4); i++)
            serve(&s, (int64_t[]){how < 2 ? 4 : 1}, &d);
        server_destroy(&s);
        report(how < 2 ? "latents, a long row" : "latents, a long row by decodes", d);
    }
}

static void run_all(void)
{
    facts();
    functions();
    arrays();
    stored_values();
    every_dim();
    every_group();
    every_length();
    long_row(1, "long row");
    long_row(5, "long row, by spans");
    chunks(100, "one window");
    chunks(1, "decodes");
    chunks(7, "chunks of 7");
    element_types();
    softcap_and_sinks();
    batches();
    forks();
    extremes();
    affine();
    rotated();
    windows();
    far_window(1, "window and kept positions");
    far_window(5, "window and kept positions, by spans");
    starts();
    recurrent_math();
    recurrences();
    sparse_latents(kvern_codec_dense(KVERN_F32), 1, "sparse latents, f32");
    sparse_latents(kvern_codec_dense(KVERN_BF16), 5, "sparse latents, bf16");
    sparse_latents(kvern_codec_affine(8, 32), 3, "sparse latents, 8 bits");
    latents();
    latent_rows();
}

int main(int count, char **arguments)
{
    if (count > 1 && !(expected = fopen(arguments[1], "r"))) {
        printf("%s cannot be read\n", arguments[1]);
        return 2;
    }
    run_all();
    if (!expected)
        return 0;
    if (fgetc(expected) != EOF) {
        puts("the file has more lines");
        differences++;
    }
    fclose(expected);
    return differences != 0;
}
