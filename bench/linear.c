// SPDX-License-Identifier: MIT
// Speed of the matrix products alone: the matrices of a model in one arena, multiplied in the order
// and in the parallel regions of a forward pass. Prints, per thread count and number of tokens, the
// time of a pass, its multiplications per second, and for one token the share of the bandwidth that
// a plain read of the same bytes reaches in the same run.
#include "engine/kernels/linear/linear.h"

#include <kvern/kvern.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPEATS 15

// One region: matrices that read the same activations.
typedef struct region {
    size_t count;
    size_t rows[3];
    size_t cols;
} region;

// The shapes of SmolLM2-135M, and of a model a third wider for types with blocks of 256.
#define REGION_COUNT 4
#define LAYERS 30
#define VOCABULARY 49152

typedef struct geometry {
    size_t width, feed_forward;
    region regions[REGION_COUNT];
} geometry;

static const geometry SMALL = {
    576,
    1536,
    {{3, {576, 192, 192}, 576}, {1, {576}, 576}, {2, {1536, 1536}, 576}, {1, {576}, 1536}}};
static const geometry WIDE = {
    768,
    2048,
    {{3, {768, 256, 256}, 768}, {1, {768}, 768}, {2, {2048, 2048}, 768}, {1, {768}, 2048}}};

typedef struct bench {
    const geometry *geometry;
    uint32_t type, output_type;
    linear_precision precision;
    uint32_t features;
    kvern_executor executor;
    linear_arena *arena;
    size_t arena_bytes, macs_per_token, output_macs;
    linear layers[LAYERS][REGION_COUNT][3];
    linear output;
    const linear *first;
} bench;

// With one thread, the time that this program was running: other programs disturb it less.
static clockid_t clock_in_use = CLOCK_MONOTONIC;

static double now(void)
{
    struct timespec t;
    clock_gettime(clock_in_use, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(kvern_status status)
{
    if (status == KVERN_OK)
        return;
    fprintf(stderr, "bench: %s\n", kvern_status_message(status));
    exit(1);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 32);
}

// Any bytes are a block; exponents of half floats are kept small so that no sum overflows. Float
// matrices: numbers near one.
static void fill(uint32_t type, unsigned char *bytes, size_t size, uint64_t *state)
{
    const size_t element = type == ELEMENT_F32 ? 4 : 2;
    const bool floats = type == ELEMENT_F32 || type == ELEMENT_F16 || type == ELEMENT_BF16;
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char)next_random(state) & 0xb3;
        if (floats && i % element == element - 1)
            bytes[i] = 0x3b | (bytes[i] & 0x80);
    }
}

static weights_tensor make_tensor(uint32_t type, size_t rows, size_t cols, uint64_t *state)
{
    size_t elements, block;
    if (!element_type_block(type, &elements, &block))
        exit(2);
    weights_tensor tensor = {.name = {"bench", 5},
                             .type = type,
                             .known = true,
                             .dims = 2,
                             .shape = {cols, rows, 1, 1},
                             .elements = rows * cols,
                             .bytes = rows * (cols / elements) * block};
    unsigned char *data = malloc(tensor.bytes);
    if (!data)
        exit(1);
    fill(type, data, tensor.bytes, state);
    tensor.data = data;
    return tensor;
}

static size_t packed_bytes(uint32_t type, size_t rows, size_t cols)
{
    size_t elements = 1, block = 0, bytes;
    if (!element_type_block(type, &elements, &block) || cols % elements) {
        fprintf(stderr, "bench: %zu inputs are no multiple of the type's block\n", cols);
        exit(2);
    }
    weights_tensor tensor = {.type = type,
                             .known = true,
                             .dims = 2,
                             .shape = {cols, rows, 1, 1},
                             .bytes = rows * (cols / elements) * block};
    linear_source source;
    check(linear_source_of(&tensor, 0, &source, NULL));
    check(linear_packed_bytes(&source, &bytes, NULL));
    return bytes;
}

static double pack_seconds;

static void make_linear(bench *b, uint32_t type, size_t rows, size_t cols, uint64_t *state,
                        linear *out)
{
    weights_tensor tensor = make_tensor(type, rows, cols, state);
    linear_source source;
    check(linear_source_of(&tensor, 0, &source, NULL));
    const double start = now();
    check(linear_create(b->arena, &source, b->precision, b->features, &b->executor, out, NULL));
    pack_seconds += now() - start;
    free((void *)tensor.data);
}

static void make_model(bench *b)
{
    uint64_t state = 1;
    b->arena_bytes = packed_bytes(b->output_type, VOCABULARY, b->geometry->width);
    b->output_macs = (size_t)VOCABULARY * b->geometry->width;
    for (size_t r = 0; r < REGION_COUNT; r++)
        for (size_t m = 0; m < b->geometry->regions[r].count; m++) {
            b->arena_bytes += LAYERS * packed_bytes(b->type, b->geometry->regions[r].rows[m],
                                                    b->geometry->regions[r].cols);
            b->macs_per_token +=
                LAYERS * b->geometry->regions[r].rows[m] * b->geometry->regions[r].cols;
        }
    check(linear_arena_create(b->arena_bytes, &b->arena, NULL));
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t r = 0; r < REGION_COUNT; r++)
            for (size_t m = 0; m < b->geometry->regions[r].count; m++)
                make_linear(b, b->type, b->geometry->regions[r].rows[m],
                            b->geometry->regions[r].cols, &state, &b->layers[l][r][m]);
    make_linear(b, b->output_type, VOCABULARY, b->geometry->width, &state, &b->output);
    b->first = &b->layers[0][0][0];
}

typedef struct buffers {
    size_t tokens;
    float *x, *y, *logits;
    void *memory[2];
    linear_input input[2], last; // width and feed_forward wide; the last token for the output
    void *last_memory;
} buffers;

static void *take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p)
        exit(1);
    memset(p, 0, bytes);
    return p;
}

static void prepare_input(const bench *b, linear_input *input, void **memory, size_t cols,
                          size_t tokens)
{
    const uint32_t formats =
        LINEAR_FORMAT_BIT(b->first->format) | LINEAR_FORMAT_BIT(b->output.format);
    size_t bytes;
    check(linear_input_bytes(cols, tokens, formats, &bytes));
    *memory = take(bytes);
    linear_input_init(input, *memory, cols, tokens, formats, b->features);
}

static buffers make_buffers(const bench *b, size_t tokens)
{
    buffers s = {.tokens = tokens};
    uint64_t state = 2;
    s.x = take(tokens * b->geometry->feed_forward * sizeof(float));
    s.y = take(3 * tokens * b->geometry->feed_forward * sizeof(float));
    s.logits = take(VOCABULARY * sizeof(float));
    for (size_t i = 0; i < tokens * b->geometry->feed_forward; i++)
        s.x[i] = (float)(int32_t)next_random(&state) * 0x1p-31f;
    prepare_input(b, &s.input[0], &s.memory[0], b->geometry->width, tokens);
    prepare_input(b, &s.input[1], &s.memory[1], b->geometry->feed_forward, tokens);
    prepare_input(b, &s.last, &s.last_memory, b->geometry->width, 1);
    return s;
}

static void free_buffers(buffers *s)
{
    free(s->x);
    free(s->y);
    free(s->logits);
    free(s->memory[0]);
    free(s->memory[1]);
    free(s->last_memory);
}

typedef struct round_work {
    const linear_input *input;
    const float *x;
} round_work;

static void round_token(void *arg, size_t token)
{
    const round_work *work = arg;
    linear_input_row(work->input, token, work->x + token * work->input->cols);
}

static void round_tokens(const bench *b, const linear_input *input, const float *x)
{
    round_work work = {input, x};
    if (input->tokens < 8)
        for (size_t t = 0; t < input->tokens; t++)
            round_token(&work, t);
    else
        b->executor.run(b->executor.user, input->tokens, round_token, &work);
}

static void run_region(const bench *b, buffers *s, size_t layer, size_t r)
{
    linear_job jobs[3];
    const linear_input *input =
        &s->input[b->geometry->regions[r].cols == b->geometry->feed_forward];
    round_tokens(b, input, s->x);
    for (size_t m = 0; m < b->geometry->regions[r].count; m++)
        jobs[m] = (linear_job){&b->layers[layer][r][m],
                               input,
                               s->y + m * s->tokens * b->geometry->feed_forward,
                               b->geometry->regions[r].rows[m],
                               false,
                               NULL};
    check(linear_apply(jobs, b->geometry->regions[r].count, &b->executor));
}

static void run_pass(const bench *b, buffers *s)
{
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t r = 0; r < REGION_COUNT; r++)
            run_region(b, s, l, r);
    linear_input_row(&s->last, 0, s->x);
    const linear_job job = {&b->output, &s->last, s->logits, VOCABULARY, false, NULL};
    check(linear_apply(&job, 1, &b->executor));
}

// Reads a part of the weights and does next to nothing with them.
typedef uint64_t words __attribute__((vector_size(64)));
static words sink[64];

static void read_part(void *arg, size_t index)
{
    const bench *b = arg;
    const size_t part = b->arena_bytes / 64 / 256 * 256;
    const unsigned char *p = b->first->tiles + index * part;
    words sums[4] = {{0}};
    for (size_t i = 0; i < part; i += 256)
        for (int j = 0; j < 4; j++) {
            __builtin_prefetch(p + i + 64 * j + 2048);
            sums[j] += *(const words *)(const void *)(p + i + 64 * j);
        }
    sink[index] = sums[0] + sums[1] + sums[2] + sums[3];
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Medians of interleaved repeats of a read of all weights and of a pass.
static void measure(bench *b, size_t tokens)
{
    double reads[REPEATS], passes[REPEATS];
    buffers s = make_buffers(b, tokens);
    run_pass(b, &s);
    for (int i = 0; i < REPEATS; i++) {
        double start = now();
        b->executor.run(b->executor.user, 64, read_part, b);
        reads[i] = now() - start;
        start = now();
        run_pass(b, &s);
        passes[i] = now() - start;
    }
    qsort(reads, REPEATS, sizeof *reads, compare);
    qsort(passes, REPEATS, sizeof *passes, compare);
    const double pass = passes[REPEATS / 2], read = reads[REPEATS / 2];
    const double macs = (double)(b->macs_per_token * tokens + b->output_macs);
    printf("%7zu %6zu %9.2f %9.2f %9.1f %10.1f %8.1f %9.1f %6.0f%%\n", b->executor.threads, tokens,
           pass * 1e3, passes[0] * 1e3, macs / pass * 1e-9, (double)tokens / pass,
           (double)b->arena_bytes / pass * 1e-9, (double)b->arena_bytes / read * 1e-9,
           read / pass * 100);
    free_buffers(&s);
}

static uint32_t type_by_name(const char *name)
{
    for (uint32_t type = 0; type < 64; type++)
        if (element_type_name(type) && strcmp(element_type_name(type), name) == 0)
            return type;
    fprintf(stderr, "bench: no type %s\n", name);
    exit(2);
}

static void run_threads(bench *b, size_t threads, const char *tokens)
{
    kvern_context_options options = kvern_context_options_default();
    options.threads = threads;
    clock_in_use = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    kvern_context *context;
    check(kvern_context_create(&options, &context));
    b->executor = kvern_context_executor(context);
    b->features = kvern_context_cpu_features(context);
    b->macs_per_token = 0;
    pack_seconds = 0;
    make_model(b);
    printf("packing %zu MB: %.3f s\n", b->arena_bytes >> 20, pack_seconds);
    for (const char *p = tokens; *p;) {
        char *end;
        measure(b, strtoul(p, &end, 10));
        p = *end == ',' ? end + 1 : end;
    }
    linear_arena_destroy(b->arena);
    kvern_context_release(context);
}

int main(int argc, char **argv)
{
    static bench b;
    const char *type = "Q4_1", *output = "Q8_0", *tokens = "1,8,32,512", *threads = "1,2";
    b.precision = LINEAR_INT16;
    for (int option; (option = getopt(argc, argv, "w:o:n:t:8")) != -1;) {
        switch (option) {
        case 'w':
            type = optarg;
            break;
        case 'o':
            output = optarg;
            break;
        case 'n':
            tokens = optarg;
            break;
        case 't':
            threads = optarg;
            break;
        case '8':
            b.precision = LINEAR_INT8;
            break;
        default:
            fprintf(stderr, "usage: bench_linear [-w type] [-o output type] [-n tokens,...] "
                            "[-t threads,...] [-8]\n");
            return 2;
        }
    }
    b.type = type_by_name(type);
    b.output_type = type_by_name(output);
    size_t block = 0, bytes;
    b.geometry = element_type_block(b.type, &block, &bytes) && block == 256 ? &WIDE : &SMALL;
    printf("%s, output %s, %s activations, %s kernels\n", type, output,
           b.precision == LINEAR_INT8 ? "8-bit" : "16-bit", kvern_cpu_name(kvern_cpu_features()));
    printf("threads tokens   ms/pass   fastest    GMAC/s   tokens/s     GB/s read GB/s  share\n");
    for (const char *p = threads; *p;) {
        char *end;
        run_threads(&b, strtoul(p, &end, 10), tokens);
        p = *end == ',' ? end + 1 : end;
    }
    return 0;
}
