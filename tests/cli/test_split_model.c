// SPDX-License-Identifier: MIT
// Models that are split over several GGUF files: the parts are one model, or the fault is named.

#include "tests/support/engine_fixture.h"
#include "tests/support/program.h"
#include "tests/support/tiny_llama.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PARTS 3
#define TOKENS 12

// What is wrong with the parts of a case; all zero: nothing.
typedef struct parts_fault {
    int count_of_second;   // split.count in the second part
    int number_of_second;  // split.no, from 0
    int stated_tensors;    // split.tensors.count
    const char *extra_key; // in the second part
    bool repeated;         // a tensor of the first part in the second
    bool no_number;        // the second part has no split.no
} parts_fault;

static const char *part_name(size_t i)
{
    static char name[64];
    snprintf(name, sizeof name, "tiny-%05zu-of-%05d.gguf", i + 1, PARTS);
    return program_path(name);
}

static void add_tensor(gguf_builder *builder, const gguf_tensor *tensor)
{
    char name[80];
    snprintf(name, sizeof name, "%.*s", (int)tensor->name.size, tensor->name.data);
    gguf_builder_tensor(builder, name, tensor->type, tensor->dims, tensor->shape, tensor->data,
                        tensor->bytes);
}

static void add_split(gguf_builder *builder, size_t part, size_t tensors, const parts_fault *fault)
{
    const bool second = part == 1;
    const int number = second && fault->number_of_second ? fault->number_of_second : (int)part;
    const int count = second && fault->count_of_second ? fault->count_of_second : PARTS;
    if (!(second && fault->no_number)) {
        gguf_builder_u16(builder, "split.no", (uint16_t)number);
    }
    gguf_builder_u16(builder, "split.count", (uint16_t)count);
    gguf_builder_i32(builder, "split.tensors.count",
                     fault->stated_tensors ? fault->stated_tensors : (int32_t)tensors);
    if (second && fault->extra_key) {
        gguf_builder_u32(builder, fault->extra_key, 1);
    }
}

// Writes a model in three files, its tensors dealt out in turn.
static void save_parts(const tiny_llama *model, const parts_fault *fault)
{
    size_t bytes;
    void *data = tiny_llama_build(model, &bytes);
    gguf_file *whole;
    assert_int_equal(gguf_open_memory(data, bytes, &whole, NULL), KVERN_OK);
    for (size_t part = 0; part < PARTS; part++) {
        gguf_builder *builder = gguf_builder_create();
        if (part == 0) {
            tiny_llama_add_metadata(model, builder);
        }
        add_split(builder, part, gguf_tensor_count(whole), fault);
        for (size_t i = part; i < gguf_tensor_count(whole); i += PARTS) {
            add_tensor(builder, gguf_tensor_at(whole, i));
        }
        if (part == 1 && fault->repeated) {
            add_tensor(builder, gguf_tensor_at(whole, 0));
        }
        gguf_builder_save(builder, part_name(part));
        gguf_builder_destroy(builder);
    }
    gguf_close(whole);
    free(data);
}

static void forward(const engine_fixture_options *options, float *logits)
{
    engine_fixture f = engine_fixture_open(options);
    int32_t tokens[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 31 % 100;
    }
    kvern_state *state = engine_fixture_state(&f, 1);
    engine_fixture_forward(&f, state, KVERN_PHASE_WINDOW, tokens, &(int64_t){TOKENS}, logits);
    kvern_state_destroy(state);
    engine_fixture_close(&f);
}

static void the_parts_are_one_model(void **state)
{
    (void)state;
    static float right[TOKENS * 100], other[TOKENS * 100];
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_Q4_1);
    size_t bytes;
    void *data = tiny_llama_build(&model, &bytes);
    engine_fixture_options options = engine_fixture_default(data, bytes);
    forward(&options, right);
    save_parts(&model, &(parts_fault){0});
    options.path = part_name(0);
    forward(&options, other);
    assert_memory_equal(other, right, sizeof right);
    free(data);

    gguf_file *file;
    size_t sum = 0;
    assert_int_equal(gguf_open(part_name(0), &file, NULL), KVERN_OK);
    assert_int_equal(gguf_file_parts(file), PARTS);
    assert_int_equal(gguf_tensor_count(file), 20);
    for (size_t i = 0; i < PARTS; i++) {
        FILE *part = fopen(part_name(i), "rb");
        assert_non_null(part);
        assert_int_equal(fseek(part, 0, SEEK_END), 0);
        sum += (size_t)ftell(part);
        fclose(part);
    }
    assert_int_equal(gguf_file_bytes(file), sum);
    gguf_close(file);
}

static void expect(const char *path, kvern_status status, const char *text)
{
    gguf_file *file;
    engine_error error = {KVERN_OK, ""};
    if (gguf_open(path, &file, &error) != status || !strstr(error.text, text)) {
        fail_msg("\"%s\" where \"%s\" was expected", error.text, text);
    }
    assert_null(file);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const struct {
        parts_fault fault;
        const char *text;
    } cases[] = {
        {{.count_of_second = 4}, "it is part 2 of 4, not part 2 of 3"},
        {{.number_of_second = 2}, "it is part 3 of 3, not part 2 of 3"},
        {{.no_number = true}, "it is part 1 of 3, not part 2 of 3"},
        {{.stated_tensors = 19}, "its parts have 20 tensors, but it states 19"},
        {{.stated_tensors = -1}, "split.tensors.count must be"},
        {{.extra_key = "llama.expert_count"}, "has the key llama.expert_count"},
        {{.repeated = true, .stated_tensors = 21}, "two parts have the tensor token_embd.weight"},
    };
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_parts(&model, &cases[i].fault);
        expect(part_name(0), KVERN_ERR_FORMAT, cases[i].text);
    }
}

static void a_part_alone_is_called_one(void **state)
{
    (void)state;
    const tiny_llama model = tiny_llama_default(GGUF_TYPE_F32);
    save_parts(&model, &(parts_fault){0});
    expect(part_name(1), KVERN_ERR_UNSUPPORTED, "part 2 of 3 of a split model; name the first");
    const char *other = program_path("other.gguf");
    assert_int_equal(rename(part_name(0), other), 0);
    expect(other, KVERN_ERR_UNSUPPORTED, "part 1 of 3 of a split model");
    assert_int_equal(rename(other, part_name(0)), 0);
    assert_int_equal(remove(part_name(2)), 0);
    expect(part_name(0), KVERN_ERR_IO, "part 1 of 3 of a split model, and part 3 cannot be opened");

    static const char *const commands[] = {"inspect", "fit", "tokenize"};
    for (size_t i = 0; i < 3; i++) {
        program_expect_failure(&(program_call){.arguments = {commands[i], part_name(0)}},
                               "part 1 of 3 of a split model");
    }
    program_expect_failure(&(program_call){.arguments = {"run", part_name(0), "-p", "x"}},
                           "part 1 of 3 of a split model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parts_are_one_model),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(a_part_alone_is_called_one),
    };
    return cmocka_run_group_tests(tests, NULL, program_tear_down);
}
