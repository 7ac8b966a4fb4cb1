// SPDX-License-Identifier: MIT
// The text side of the engine when memory runs out: every allocation of every call fails once; the
// call says so, leaves nothing behind, and what it was given is as it was. And: sampling allocates
// nothing.
//
// The allocator of the C library is replaced in this program, which works where it lets itself be
// replaced (glibc) and no sanitizer has done so before.

#include "engine/base/utf8.h"
#include "engine/chat/chat.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/stop.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/json_tokenizer.h"
#include "tests/support/sanitizer.h"
#include "tests/support/tiny_sentencepiece.h"
#include "tests/support/tiny_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if !defined(__GLIBC__) || HAS_SANITIZER

int main(void)
{
    printf("skipped: the allocator cannot be replaced here\n");
    return 0;
}

#else

// --- The allocator

static bool armed;
static long countdown; // allocations until one fails; negative: none does
static long allocations;
static long live; // allocated and not freed while armed
static bool failed;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);

static bool must_fail(void)
{
    if (!armed)
        return false;
    allocations++;
    const bool now = countdown-- == 0;
    failed = failed || now;
    return now;
}

#define REPLACES_LIBC __attribute__((visibility("default")))

REPLACES_LIBC void *malloc(size_t size)
{
    if (must_fail())
        return NULL;
    live += armed;
    return __libc_malloc(size);
}

REPLACES_LIBC void *calloc(size_t count, size_t size)
{
    if (must_fail())
        return NULL;
    live += armed;
    return __libc_calloc(count, size);
}

REPLACES_LIBC void *realloc(void *block, size_t size)
{
    if (must_fail())
        return NULL;
    live += armed && !block;
    return __libc_realloc(block, size);
}

REPLACES_LIBC void free(void *block)
{
    live -= armed && block;
    __libc_free(block);
}

static void arm(long fail_at)
{
    countdown = fail_at;
    allocations = live = 0;
    failed = false;
    armed = true;
}

static void disarm(void)
{
    armed = false;
}

// --- What is called. Each returns its status after checking that a failure changed nothing, and
// frees what it made, all while armed.

static gguf_file *file;
static tokenizer *shared_tokenizer;
static gguf_file *pieces_file; // of a SentencePiece vocabulary
static tokenizer *pieces_tokenizer;
static const chat_message messages[] = {
    {"user", "hello", 5}, {"assistant", "the", 3}, {"user", "x", 1}};

static kvern_status create_from(const gguf_file *source)
{
    tokenizer *t;
    const kvern_status status = tokenizer_create(source, NULL, &t, NULL);
    if ((status == KVERN_OK) != (t != NULL))
        return KVERN_ERR_BUSY;
    tokenizer_destroy(t);
    return status;
}

static kvern_status create_tokenizer(void)
{
    return create_from(file);
}

static kvern_status create_pieces_tokenizer(void)
{
    return create_from(pieces_file);
}

// The files of a tokenizer with every part that takes memory.
static const char json_config[] =
    "{\"bos_token\": \"<s>\", \"chat_template\": \"{{ x }}<tool>\", \"added_tokens_decoder\": "
    "{\"6\": {\"content\": \"<s>\", \"special\": true}}}";
static const char json_tokenizer[] =
    "{\"added_tokens\": [{\"id\": 6, \"content\": \"<s>\", \"special\": true}, {\"id\": 7, "
    "\"content\": \"he \", \"normalized\": true}], \"normalizer\": {\"type\": \"Sequence\", "
    "\"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Replace\", \"pattern\": {\"Regex\": "
    "\"x+\"}, \"content\": \"a\"}]}, \"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": "
    "\"\u2581\", \"prepend_scheme\": \"always\"}, \"decoder\": {\"type\": \"Metaspace\", "
    "\"replacement\": \"\u2581\"}, \"model\": {\"type\": \"BPE\", \"unk_token\": \"u\", "
    "\"ignore_merges\": true, \"vocab\": {\"a\": 0, \"aa\": 1, \"\u2581\": 2, \"h\": 3, \"ha\": 4, "
    "\"u\": 5}, \"merges\": [\"a a\", [\"h\", \"a\"]]}}";
static tokenizer *json_shared;

static kvern_status create_json_tokenizer(void)
{
    const tokenizer_texts texts = {.tokenizer = {json_tokenizer, sizeof json_tokenizer - 1},
                                   .config = {json_config, sizeof json_config - 1}};
    tokenizer *t;
    const kvern_status status = json_tokenizer_try(&texts, NULL, &t, NULL);
    if ((status == KVERN_OK) != (t != NULL))
        return KVERN_ERR_BUSY;
    tokenizer_destroy(t);
    return status;
}

static kvern_status encode_with(const tokenizer *t)
{
    static const char text[] =
        "hello the <|im_end|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \xff caf\u00e9 1234";
    token_buffer ids = TOKEN_BUFFER_INIT;
    kvern_status status = token_buffer_push(&ids, 77);
    if (status == KVERN_OK) {
        status = tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL, &ids, NULL);
        if (ids.ids[0] != 77 || (status == KVERN_OK) != (ids.count > 1))
            status = KVERN_ERR_BUSY;
    }
    token_buffer_free(&ids);
    return status;
}

static kvern_status encode_text(void)
{
    return encode_with(shared_tokenizer);
}

static kvern_status encode_pieces(void)
{
    return encode_with(pieces_tokenizer);
}

static kvern_status encode_json(void)
{
    return encode_with(json_shared);
}

static kvern_status detect_template(void)
{
    chat_template *chat;
    const kvern_status status = chat_template_detect(file, shared_tokenizer, &chat, NULL);
    if ((status == KVERN_OK) != (chat != NULL))
        return KVERN_ERR_BUSY;
    chat_template_destroy(chat);
    return status;
}

static kvern_status render_chat(void)
{
    chat_template *chat;
    chat_text text = CHAT_TEXT_INIT;
    kvern_status status = chat_template_find("llama3", shared_tokenizer, &chat, NULL);
    for (size_t i = 0; status == KVERN_OK && i < 8; i++) {
        const size_t size = text.text.size;
        const size_t parts = text.part_count;
        status = chat_render(chat, messages, 3, true, &text, NULL);
        if (status != KVERN_OK && (text.text.size != size || text.part_count != parts))
            status = KVERN_ERR_BUSY;
    }
    chat_text_free(&text);
    chat_template_destroy(chat);
    return status;
}

static kvern_status create_sampler(void)
{
    sampler *s;
    const sampler_options options = {.temperature = 1.0f, .top_k = 5, .top_p = 0.9f};
    const kvern_status status = sampler_create(&options, 100, &s, NULL);
    if ((status == KVERN_OK) != (s != NULL))
        return KVERN_ERR_BUSY;
    sampler_destroy(s);
    return status;
}

static kvern_status stop_and_stream(void)
{
    const char *const strings[] = {"stop", "halt"};
    stop_matcher *m;
    text_buffer passed = TEXT_BUFFER_INIT;
    text_buffer shown = TEXT_BUFFER_INIT;
    utf8_stream stream = {{0}, 0};
    bool stopped = false;
    kvern_status status = stop_matcher_create(strings, 2, &m, NULL);
    if (status == KVERN_OK)
        status = stop_matcher_push(m, "some text\xc3 sto", 14, &passed, &stopped);
    if (status == KVERN_OK)
        status = stop_matcher_flush(m, &passed);
    if (status == KVERN_OK && passed.size != 14)
        status = KVERN_ERR_BUSY;
    if (status == KVERN_OK)
        status = utf8_stream_push(&stream, passed.data, passed.size, &shown);
    if (status == KVERN_OK)
        status = utf8_stream_flush(&stream, &shown);
    stop_matcher_destroy(m);
    text_buffer_free(&passed);
    text_buffer_free(&shown);
    return status;
}

// --- The tests

static void fail_each_allocation(kvern_status (*call)(void), long least)
{
    arm(-1);
    const kvern_status status = call();
    const long total = allocations;
    const long left = live;
    disarm();
    assert_int_equal(status, KVERN_OK);
    assert_int_equal(left, 0);
    assert_true(total >= least);
    long refused = 0;
    for (long at = 0; at < total; at++) {
        arm(at);
        const kvern_status outcome = call();
        const long kept = live;
        disarm();
        assert_true(failed);
        assert_int_equal(kept, 0);
        // Without memory for generated code, PCRE2 interprets its pattern: that is no failure.
        assert_true(outcome == KVERN_ERR_MEMORY || outcome == KVERN_OK);
        refused += outcome == KVERN_ERR_MEMORY;
    }
    assert_true(refused >= least);
}

static void creating_a_tokenizer(void **state)
{
    (void)state;
    fail_each_allocation(create_tokenizer, 14);
    fail_each_allocation(create_pieces_tokenizer, 14);
    fail_each_allocation(create_json_tokenizer, 50);
}

static void encoding(void **state)
{
    (void)state;
    fail_each_allocation(encode_text, 5);
    fail_each_allocation(encode_pieces, 5);
    fail_each_allocation(encode_json, 20);
}

static void recognising_a_template(void **state)
{
    (void)state;
    fail_each_allocation(detect_template, 2);
}

static void rendering(void **state)
{
    (void)state;
    fail_each_allocation(render_chat, 5);
}

static void creating_a_sampler(void **state)
{
    (void)state;
    fail_each_allocation(create_sampler, 4);
}

static void stopping_and_streaming(void **state)
{
    (void)state;
    fail_each_allocation(stop_and_stream, 8);
}

static void sampling_allocates_nothing(void **state)
{
    (void)state;
    float logits[1000];
    for (size_t i = 0; i < 1000; i++)
        logits[i] = (float)(i * 7919 % 1000) * 0.01f;
    const sampler_options all[] = {
        {.temperature = 0.0f, .top_p = 1.0f},
        {.temperature = 1.0f, .top_p = 1.0f},
        {.temperature = 1.0f, .top_k = 40, .top_p = 0.9f, .min_p = 0.1f}};
    for (size_t i = 0; i < 3; i++) {
        sampler *s;
        int32_t token;
        assert_int_equal(sampler_create(&all[i], 1000, &s, NULL), KVERN_OK);
        arm(0);
        for (int draw = 0; draw < 100; draw++)
            if (sampler_next(s, logits, NULL, &token, NULL) != KVERN_OK)
                break;
        disarm();
        assert_false(failed);
        assert_int_equal(allocations, 0);
        sampler_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creating_a_tokenizer),       cmocka_unit_test(encoding),
        cmocka_unit_test(recognising_a_template),     cmocka_unit_test(rendering),
        cmocka_unit_test(creating_a_sampler),         cmocka_unit_test(stopping_and_streaming),
        cmocka_unit_test(sampling_allocates_nothing),
    };
    size_t bytes, pieces_bytes;
    gguf_builder *builder = gguf_builder_create();
    tiny_sp_metadata(builder);
    void *pieces_data = gguf_builder_finish(builder, &pieces_bytes);
    gguf_builder_destroy(builder);
    builder = gguf_builder_create();
    tiny_tokenizer_metadata(builder, "llama-bpe");
    gguf_builder_string(builder, "tokenizer.chat_template",
                        "{{ '<|im_start|>system\nhelp<|im_end|>\n' }}");
    void *data = gguf_builder_finish(builder, &bytes);
    gguf_builder_destroy(builder);
    if (gguf_open_memory(data, bytes, &file, NULL) != KVERN_OK ||
        gguf_open_memory(pieces_data, pieces_bytes, &pieces_file, NULL) != KVERN_OK ||
        tokenizer_create(pieces_file, NULL, &pieces_tokenizer, NULL) != KVERN_OK)
        return 1;
    const tokenizer_texts texts = {.tokenizer = {json_tokenizer, sizeof json_tokenizer - 1}};
    // jansson's reader goes on where its buffer could not grow, and writes behind it.
    json_set_alloc_funcs(__libc_malloc, __libc_free);
    shared_tokenizer = tiny_tokenizer_create("llama-bpe");
    if (json_tokenizer_try(&texts, NULL, &json_shared, NULL) != KVERN_OK)
        return 1;
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tokenizer_destroy(shared_tokenizer);
    tokenizer_destroy(pieces_tokenizer);
    tokenizer_destroy(json_shared);
    gguf_close(file);
    gguf_close(pieces_file);
    free(data);
    free(pieces_data);
    return failures;
}

#endif
