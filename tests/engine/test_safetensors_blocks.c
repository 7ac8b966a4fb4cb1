// SPDX-License-Identifier: MIT
// gpt-oss as OpenAI publishes it, experts in blocks and gates and ups in turn: the same logits, bit
// for bit, as in MLX's form, and those of the same numbers in floats; what contradicts config.json
// is refused.

#include "tests/support/check.h"
#include "tests/support/engine_fixture.h"
#include "tests/support/family_case.h"
#include "tests/support/hf_model.h"

#include <jansson.h>
#include <kvern/math.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPERTS 6
#define MOST_ELEMENTS ((size_t)EXPERTS * 64 * 64)

typedef enum form { FLOATS, MLX, OPENAI, FORMS } form;

// What is wrong with OpenAI's form.
typedef enum fault {
    NO_FAULT,
    NO_SCALES,     // of the first down_proj
    OTHER_SCALES,  // for one group less a row
    WIDE_BLOCKS,   // of 32 bytes, half as many
    WORDS,         // scales of U16
    MISSING_ROWS,  // of a gate_up_proj
    MISSING_BIASES // of a gate_up_proj
} fault;

typedef struct directory {
    char *config;
    void *tensors;
    size_t bytes;
} directory;

// --- Codes

// The elements of code 0 to 15.
static const float values[16] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                 -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

// Codes and exponents of [EXPERTS, rows, cols], made of the floats that a case has there.
typedef struct stack {
    size_t rows, cols;
    uint8_t code[MOST_ELEMENTS];
    uint8_t exponent[MOST_ELEMENTS / 32];
} stack;

static void make_stack(stack *s, size_t rows, size_t cols, const float *numbers)
{
    s->rows = rows;
    s->cols = cols;
    for (size_t i = 0; i < EXPERTS * rows * cols; i++) {
        const int n = (int)(numbers[i] * 4096);
        s->code[i] = (uint8_t)((n / 3 + n / 32) & 15);
        if (i % 32 == 0) {
            s->exponent[i / 32] = (uint8_t)(122 + (n & 3));
        }
    }
}

static float element(const stack *s, size_t i)
{
    return ldexpf(values[s->code[i]], s->exponent[i / 32] - 127);
}

// Rows of codes, two to a byte, the first in the low half.
static void put_codes(const stack *s, size_t row, unsigned char *to)
{
    for (size_t i = 0; i < s->cols / 2; i++) {
        const uint8_t *pair = s->code + row * s->cols + 2 * i;
        to[i] = (unsigned char)(pair[0] | pair[1] << 4);
    }
}

// --- Directories

typedef struct writing {
    safetensors_builder *builder;
    form form;
    fault fault;
    char prefix[64]; // "model.layers.0.mlp.experts."
} writing;

static void add(writing *w, const char *name, const char *dtype, size_t dims, const uint64_t *shape,
                const void *data, size_t element_bytes)
{
    char whole[160];
    size_t bytes = element_bytes;
    for (size_t i = 0; i < dims; i++) {
        bytes *= (size_t)shape[i];
    }
    snprintf(whole, sizeof whole, "%s%s", w->prefix, name);
    safetensors_builder_add(w->builder, whole, dtype, dims, shape, data, bytes);
}

static void add_floats(writing *w, const char *name, const stack *s)
{
    float *numbers = calloc(MOST_ELEMENTS, sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < EXPERTS * s->rows * s->cols; i++) {
        numbers[i] = element(s, i);
    }
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    add(w, part, "F32", 3, (uint64_t[]){EXPERTS, s->rows, s->cols}, numbers, sizeof *numbers);
    free(numbers);
}

// One stack, or two whose rows are in turn, as words (MLX) or as blocks (OpenAI).
static void add_codes(writing *w, const char *name, const stack *const *stacks, size_t count)
{
    static unsigned char codes[MOST_ELEMENTS], exponents[MOST_ELEMENTS / 16];
    const size_t cols = stacks[0]->cols, groups = cols / 32, rows = stacks[0]->rows * count;
    const bool first = strncmp(w->prefix, "model.layers.0.", 15) == 0;
    const fault fault = first ? w->fault : NO_FAULT;
    for (size_t row = 0; row < EXPERTS * rows; row++) {
        const stack *from = stacks[row % count];
        put_codes(from, row / count, codes + row * cols / 2);
        memcpy(exponents + row * groups, from->exponent + row / count * groups, groups);
    }
    char part[2][64];
    snprintf(part[0], sizeof part[0], "%s%s", name, w->form == MLX ? ".weight" : "_blocks");
    snprintf(part[1], sizeof part[1], "%s%s", name, w->form == MLX ? ".scales" : "_scales");
    const bool down = count == 1;
    const size_t written = rows - (fault == MISSING_ROWS && !down ? 2 : 0);
    if (w->form == MLX) {
        add(w, part[0], "U32", 3, (uint64_t[]){EXPERTS, rows, cols / 8}, codes, 4);
    } else if (fault == WIDE_BLOCKS && !down) {
        add(w, part[0], "U8", 4, (uint64_t[]){EXPERTS, rows, groups / 2, 32}, codes, 1);
    } else {
        add(w, part[0], "U8", 4, (uint64_t[]){EXPERTS, written, groups, 16}, codes, 1);
    }
    if (fault == OTHER_SCALES && !down) {
        add(w, part[1], "U8", 3, (uint64_t[]){EXPERTS, rows, groups - 1}, exponents, 1);
    } else if (fault == WORDS && !down) {
        add(w, part[1], "U16", 3, (uint64_t[]){EXPERTS, rows, groups}, codes, 2);
    } else if (fault != NO_SCALES || !down) {
        add(w, part[1], "U8", 3, (uint64_t[]){EXPERTS, written, groups}, exponents, 1);
    }
}

// Vectors of each expert, those of two stacks in turn.
static void add_biases(writing *w, const char *name, const float *const *from, size_t count,
                       size_t n)
{
    float numbers[EXPERTS * 64];
    uint16_t halves[EXPERTS * 64];
    const size_t all = EXPERTS * n * count;
    assert_true(all <= EXPERTS * 64);
    for (size_t i = 0; i < all; i++) {
        numbers[i] = from[i % count][i / count];
    }
    kvern_f32_to_bf16_array(0, all, numbers, halves);
    const bool less = w->fault == MISSING_BIASES && count == 2;
    add(w, name, "BF16", 2, (uint64_t[]){EXPERTS, n * count - (less ? 2 : 0)}, halves, 2);
}

// What a case has as floats.
typedef struct floats {
    const json_t *header;
    const unsigned char *data;
} floats;

static const float *find_floats(const floats *from, const char *prefix, const char *name)
{
    char whole[160];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const json_t *offsets = json_object_get(json_object_get(from->header, whole), "data_offsets");
    assert_non_null(offsets);
    return (const float *)(const void *)(from->data +
                                         json_integer_value(json_array_get(offsets, 0)));
}

static void add_experts(writing *w, const floats *from)
{
    static stack gate, up, down;
    const stack *const both[] = {&gate, &up}, *const one[] = {&down};
    const stack *const alone[] = {&gate, &up, &down};
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    make_stack(&gate, 32, 64, find_floats(from, w->prefix, "gate_proj.weight"));
    make_stack(&up, 32, 64, find_floats(from, w->prefix, "up_proj.weight"));
    make_stack(&down, 64, 32, find_floats(from, w->prefix, "down_proj.weight"));
    const float *const biases[] = {find_floats(from, w->prefix, "gate_proj.bias"),
                                   find_floats(from, w->prefix, "up_proj.bias"),
                                   find_floats(from, w->prefix, "down_proj.bias")};
    if (w->form == OPENAI) {
        add_codes(w, "gate_up_proj", both, 2);
        add_codes(w, "down_proj", one, 1);
        add_biases(w, "gate_up_proj_bias", biases, 2, 32);
        add_biases(w, "down_proj_bias", biases + 2, 1, 64);
        return;
    }
    for (size_t i = 0; i < 3; i++) {
        char bias[32];
        snprintf(bias, sizeof bias, "%s.bias", names[i]);
        add_biases(w, bias, biases + i, 1, alone[i]->rows);
        if (w->form == MLX) {
            add_codes(w, names[i], alone + i, 1);
        } else {
            add_floats(w, names[i], alone[i]);
        }
    }
}

// The rest, in bf16.
static void add_rest(writing *w, const floats *from, const char *name, const json_t *tensor)
{
    static uint16_t halves[MOST_ELEMENTS];
    uint64_t shape[4];
    size_t count = 1;
    const json_t *json = json_object_get(tensor, "shape");
    for (size_t i = 0; i < json_array_size(json); i++) {
        shape[i] = (uint64_t)json_integer_value(json_array_get(json, i));
        count *= (size_t)shape[i];
    }
    assert_true(count <= MOST_ELEMENTS);
    kvern_f32_to_bf16_array(0, count, find_floats(from, "", name), halves);
    w->prefix[0] = '\0';
    add(w, name, "BF16", json_array_size(json), shape, halves, 2);
}

static const char *const QUANTIZATION[FORMS] = {
    [FLOATS] = "",
    [MLX] = ", \"quantization\": {\"group_size\": 32, \"bits\": 4, \"mode\": \"mxfp4\"}",
    [OPENAI] = ", \"quantization_config\": {\"quant_method\": \"mxfp4\", "
               "\"modules_to_not_convert\": [\"model.layers.*.self_attn\", "
               "\"model.layers.*.mlp.router\", \"model.embed_tokens\", \"lm_head\"]}",
};

static directory make_directory(const family_case *c, form form, fault fault, const char *members)
{
    size_t bytes;
    unsigned char *file = family_case_safetensors(c, &bytes);
    const size_t length = file[0] | (size_t)file[1] << 8 | (size_t)file[2] << 16;
    json_t *header = json_loadb((const char *)file + 8, length, 0, NULL), *tensor;
    memmove(file, file + 8 + length, bytes - 8 - length); // so that numbers are aligned
    const floats from = {header, file};
    writing w = {.builder = safetensors_builder_create(), .form = form, .fault = fault};
    const char *name;
    json_object_foreach(header, name, tensor)
    {
        if (strcmp(name, "__metadata__") != 0 && !strstr(name, ".mlp.experts.")) {
            add_rest(&w, &from, name, tensor);
        }
    }
    for (int layer = 0; layer < 3; layer++) {
        snprintf(w.prefix, sizeof w.prefix, "model.layers.%d.mlp.experts.", layer);
        add_experts(&w, &from);
    }
    directory d;
    char *plain = family_case_config(c);
    d.config = malloc(strlen(plain) + strlen(members) + 1);
    assert_non_null(d.config);
    sprintf(d.config, "%.*s%s}", (int)strlen(plain) - 1, plain, members);
    d.tensors = safetensors_builder_finish(w.builder, &d.bytes);
    safetensors_builder_destroy(w.builder);
    json_decref(header);
    free(plain);
    free(file);
    return d;
}

static void free_directory(directory *d)
{
    free(d->config);
    free(d->tensors);
}

// --- The tests

static family_case open_case(void)
{
    return family_case_open(KVERN_TESTS_DIR "/golden/families/gptoss.json");
}

static float *logits_of(const family_case *c, form form)
{
    engine_fixture_options options = engine_fixture_default(NULL, 0);
    engine_error error = {KVERN_OK, ""};
    directory d = make_directory(c, form, NO_FAULT, QUANTIZATION[form]);
    if (model_source_of_safetensors(d.config, strlen(d.config), d.tensors, d.bytes, &options.source,
                                    &error) != KVERN_OK) {
        fail_msg("%s", error.text);
    }
    engine_fixture f = engine_fixture_open(&options);
    float *logits = calloc(c->count * c->vocabulary, sizeof *logits);
    assert_non_null(logits);
    kvern_state *state = engine_fixture_state(&f, 1);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, c->tokens, &(int64_t){(int64_t)c->count},
                           logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
    free_directory(&d);
    return logits;
}

static void blocks_have_the_logits_of_other_forms(void **state)
{
    (void)state;
    family_case c = open_case();
    const size_t count = c.count * c.vocabulary;
    float *logits[FORMS];
    for (size_t i = 0; i < FORMS; i++) {
        logits[i] = logits_of(&c, (form)i);
    }
    assert_memory_equal(logits[OPENAI], logits[MLX], count * sizeof(float));
    double largest = 0, off = 0;
    for (size_t i = 0; i < count; i++) { // activations are rounded with codes
        const double exact = (double)logits[FLOATS][i];
        const double difference = fabs(exact - (double)logits[OPENAI][i]);
        largest = fabs(exact) > largest ? fabs(exact) : largest;
        off = difference > off ? difference : off;
    }
    print_message("off by %.2g of %.2g\n", off, largest);
    assert_true(largest > 1 && off < 1e-3 * largest);
    for (size_t i = 0; i < FORMS; i++) {
        free(logits[i]);
    }
    family_case_close(&c);
}

#define METHOD "\"quant_method\": \"mxfp4\""
#define CONFIG(members) ", \"quantization_config\": {" members "}"
#define KEPT(list) CONFIG(METHOD ", \"modules_to_not_convert\": " list)

static void contradictions_are_refused(void **state)
{
    (void)state;
    static const struct {
        fault fault;
        const char *members;
        kvern_status status;
        const char *text;
    } cases[] = {
        {NO_FAULT, CONFIG(METHOD), KVERN_OK, ""},
        {NO_FAULT, KEPT("null"), KVERN_OK, ""},
        {NO_FAULT, KEPT("[\"model.layers.*.mlp.router\", \"*.self_attn\"]"), KVERN_OK, ""},
        {NO_FAULT, "", KVERN_ERR_FORMAT, "gate_up_proj_blocks"},
        {NO_FAULT, CONFIG("\"quant_method\": \"gptq\""), KVERN_ERR_UNSUPPORTED,
         "quantization_config.quant_method"},
        {NO_FAULT, CONFIG("\"quant_method\": 4"), KVERN_ERR_UNSUPPORTED,
         "quantization_config.quant_method"},
        {NO_FAULT, CONFIG(METHOD ", \"strange\": 1"), KVERN_ERR_UNSUPPORTED,
         "quantization_config.strange"},
        {NO_FAULT, ", \"quantization\": {\"group_size\": 32, \"bits\": 4}" CONFIG(METHOD),
         KVERN_ERR_UNSUPPORTED, "beside quantization"},
        {NO_FAULT, KEPT("\"lm_head\""), KVERN_ERR_FORMAT, "modules_to_not_convert"},
        {NO_FAULT, KEPT("[1]"), KVERN_ERR_FORMAT, "modules_to_not_convert"},
        {NO_FAULT, KEPT("[\"lm_head\", \"model.layers.1.mlp.experts\"]"), KVERN_ERR_FORMAT,
         "has model.layers.1.mlp.experts, but model.layers.1.mlp.experts."},
        {NO_FAULT, KEPT("[\"model.layers.*.mlp\"]"), KVERN_ERR_FORMAT, "model.layers.*.mlp"},
        {NO_FAULT, KEPT("[\"*.down_proj\"]"), KVERN_ERR_FORMAT, "*.down_proj"},
        {NO_FAULT, KEPT("[\"experts\"]"), KVERN_ERR_FORMAT, "experts"},
        {NO_SCALES, CONFIG(METHOD), KVERN_ERR_FORMAT, "layers.0.mlp.experts.down_proj_blocks"},
        {OTHER_SCALES, CONFIG(METHOD), KVERN_ERR_FORMAT, "gate_up_proj_blocks"},
        {WIDE_BLOCKS, CONFIG(METHOD), KVERN_ERR_FORMAT, "gate_up_proj_blocks"},
        {WORDS, CONFIG(METHOD), KVERN_ERR_FORMAT, "gate_up_proj_blocks"},
        {MISSING_ROWS, CONFIG(METHOD), KVERN_ERR_FORMAT,
         "gate_up_proj_blocks is 64 x 62 x 6, but the model needs 64 x 64 x 6"},
        {MISSING_BIASES, CONFIG(METHOD), KVERN_ERR_FORMAT,
         "gate_up_proj_bias is 62 x 6, but the model needs 64 x 6"},
    };
    family_case c = open_case();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        directory d = make_directory(&c, OPENAI, cases[i].fault, cases[i].members);
        model_source *source;
        model_facts facts;
        engine_error error = {KVERN_OK, ""};
        kvern_status status = model_source_of_safetensors(d.config, strlen(d.config), d.tensors,
                                                          d.bytes, &source, &error);
        if (status == KVERN_OK) {
            status = model_read_facts(source, &facts, &error);
            model_source_close(source);
        }
        if (status != cases[i].status || !strstr(error.text, cases[i].text)) {
            fail_msg("%d %s: \"%s\" (%d)", (int)cases[i].fault, cases[i].members, error.text,
                     (int)status);
        }
        free_directory(&d);
    }
    family_case_close(&c);
}

// Floats that claim to be in blocks.
static void blocks_must_be_there(void **state)
{
    (void)state;
    family_case c = open_case();
    directory d = make_directory(&c, FLOATS, NO_FAULT, QUANTIZATION[OPENAI]);
    model_source *source;
    engine_error error = {KVERN_OK, ""};
    assert_int_equal(model_source_of_safetensors(d.config, strlen(d.config), d.tensors, d.bytes,
                                                 &source, &error),
                     KVERN_ERR_FORMAT);
    assert_non_null(strstr(error.text, "quant_method is mxfp4"));
    free_directory(&d);
    family_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_have_the_logits_of_other_forms),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(blocks_must_be_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
