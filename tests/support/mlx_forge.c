// SPDX-License-Identifier: MIT
#include "tests/support/mlx_forge.h"

#include "tests/support/check.h"
#include "tests/support/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

mlx_forgery mlx_forge(const char *golden)
{
    char path[300];
    mlx_forgery forgery = {0};
    snprintf(path, sizeof path, "%s/golden/mlx/%s", KVERN_TESTS_DIR, golden);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(0, fseek(file, 0, SEEK_END));
    forgery.bytes = (size_t)ftell(file);
    rewind(file);
    forgery.data = malloc(forgery.bytes + 1);
    assert_non_null(forgery.data);
    assert_int_equal(forgery.bytes, fread(forgery.data, 1, forgery.bytes, file));
    fclose(file);
    return forgery;
}

void mlx_forgery_free(mlx_forgery *forgery)
{
    free(forgery->data);
    *forgery = (mlx_forgery){0};
}

static uint64_t header_bytes(const mlx_forgery *forgery)
{
    uint64_t length;
    memcpy(&length, forgery->data, sizeof length);
    return length;
}

// Where the header has a text; fails the test where it has not.
static char *find_text(const mlx_forgery *forgery, const char *text)
{
    char *at =
        memmem(forgery->data + LENGTH_BYTES, (size_t)header_bytes(forgery), text, strlen(text));
    if (!at)
        fail_msg("the header has no %s", text);
    return at;
}

void mlx_forge_text(mlx_forgery *forgery, const char *old, const char *new)
{
    const size_t before = (size_t)((unsigned char *)find_text(forgery, old) - forgery->data);
    const size_t behind = before + strlen(old);
    const uint64_t length = header_bytes(forgery) + strlen(new) - strlen(old);
    mlx_forgery made = {.bytes = forgery->bytes + strlen(new) - strlen(old)};
    made.data = malloc(made.bytes + 1);
    assert_non_null(made.data);
    memcpy(made.data, forgery->data, before);
    memcpy(made.data + before, new, strlen(new));
    memcpy(made.data + before + strlen(new), forgery->data + behind, forgery->bytes - behind);
    memcpy(made.data, &length, sizeof length);
    free(forgery->data);
    *forgery = made;
}

void mlx_forge_number(mlx_forgery *forgery, const char *tensor, size_t at, int32_t value)
{
    char key[80];
    uint64_t begin;
    snprintf(key, sizeof key, "\"%s\":{", tensor);
    const char *entry = strstr(find_text(forgery, key), "\"data_offsets\":[");
    assert_non_null(entry);
    assert_int_equal(1, sscanf(entry, "\"data_offsets\":[%" SCNu64, &begin));
    memcpy(forgery->data + LENGTH_BYTES + header_bytes(forgery) + begin + at * sizeof value, &value,
           sizeof value);
}

const char *mlx_forge_write(mlx_forgery *forgery)
{
    folder_write("forged.safetensors", forgery->data, forgery->bytes);
    mlx_forgery_free(forgery);
    return folder_path("forged.safetensors");
}
