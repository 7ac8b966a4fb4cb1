// SPDX-License-Identifier: MIT
#include "tests/support/real_model.h"

#include "tests/support/check.h"
#include "tests/support/token_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_LOAD_SECONDS 2.0
#define MOST_ENCODE_SECONDS 10.0

bool real_model_is_missing(const char *variable)
{
    if (!getenv(variable))
        printf("skipped: %s names no model file\n", variable);
    return !getenv(variable);
}

const char *real_model_path(const char *variable)
{
    if (real_model_is_missing(variable))
        skip();
    return getenv(variable);
}

int real_tokenizer_open(const char *variable, real_tokenizer *out)
{
    engine_error error = {0};
    *out = (real_tokenizer){0};
    if (gguf_open(getenv(variable), &out->file, &error) == KVERN_OK &&
        tokenizer_create(out->file, NULL, &out->tokens, &error) == KVERN_OK)
        return 0;
    fprintf(stderr, "%s\n", error.text);
    return -1;
}

int real_tokenizer_close(real_tokenizer *t)
{
    tokenizer_destroy(t->tokens);
    gguf_close(t->file);
    return 0;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void real_tokenizer_expect_load_in_time(const real_tokenizer *t)
{
    tokenizer *again;
    const double start = seconds();
    assert_ok(tokenizer_create(t->file, NULL, &again, NULL));
    const double taken = seconds() - start;
    print_message("loaded in %.0f ms\n", taken * 1e3);
    assert_true(taken < MOST_LOAD_SECONDS);
    tokenizer_destroy(again);
}

void real_tokenizer_expect_encode_in_time(const real_tokenizer *t, const char *name,
                                          const char *unit)
{
    enum { BYTES = 1 << 20 };
    char *text = malloc(BYTES);
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++)
        text[i] = unit[i % strlen(unit)];
    const double start = seconds();
    token_buffer ids = TOKEN_BUFFER_INIT;
    assert_ok(tokenizer_encode(t->tokens, text, BYTES, 0, &ids, NULL));
    const double taken = seconds() - start;
    print_message("1 MB of %s encoded in %.0f ms\n", name, taken * 1e3);
    assert_true(taken < MOST_ENCODE_SECONDS);
    token_check_text(t->tokens, &ids, text, BYTES, 0);
    token_buffer_free(&ids);
    free(text);
}
