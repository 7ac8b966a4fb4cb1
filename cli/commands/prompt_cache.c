// SPDX-License-Identifier: MIT
#include "cli/commands/prompt_cache.h"

#include "cli/io/json.h"
#include "cli/io/number.h"
#include "cli/io/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *format_name(const kvern_mlx_file *file)
{
    static const char *const names[] = {[KVERN_MLX_STATES] = "mlx-lm prompt cache, 0.32 and later",
                                        [KVERN_MLX_INFOS] = "mlx-lm prompt cache, up to 0.31",
                                        [KVERN_MLX_BUN] = "MLXBUNKV1"};
    return names[kvern_mlx_file_layout(file)];
}

static kvern_mlx_cache facts_of(const kvern_mlx_file *file, size_t index)
{
    kvern_mlx_cache facts = {.size = sizeof facts};
    kvern_status status = kvern_mlx_cache_facts(file, index, &facts);
    (void)status; // the index is one of the file's
    return facts;
}

// ---- JSON ----

static json_t *cache_json(const kvern_mlx_file *file, size_t index)
{
    const kvern_mlx_cache c = facts_of(file, index);
    json_t *positions = json_array();
    for (size_t r = 0; r < c.rows; r++) {
        const int64_t length = kvern_mlx_cache_length(file, index, r);
        json_array_append_new(positions, length < 0 ? json_null() : json_integer(length));
    }
    return json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "class",
        c.class_name, "entry", (json_int_t)c.entry, "members", (json_int_t)c.members, "rows",
        (json_int_t)c.rows, "kv_heads", (json_int_t)c.kv_heads, "k_dim", (json_int_t)c.k_dim,
        "v_dim", (json_int_t)c.v_dim, "dtype", c.dtype, "max_size", (json_int_t)c.max_size, "keep",
        (json_int_t)c.keep, "chunk", (json_int_t)c.chunk, "bits", (json_int_t)c.bits, "group",
        (json_int_t)c.group, "slots", (json_int_t)c.slots, "positions", positions);
}

static int inspect_json(const kvern_mlx_file *file)
{
    json_t *metadata = json_object(), *caches = json_array(), *rows = json_array();
    size_t tokens;
    kvern_mlx_tokens(file, &tokens);
    for (size_t i = 0; kvern_mlx_file_note(file, i).key; i++) {
        const kvern_mlx_note note = kvern_mlx_file_note(file, i);
        json_put_text(&metadata, note.key, note.value);
    }
    for (size_t i = 0; i < kvern_mlx_caches(file); i++)
        json_array_append_new(caches, cache_json(file, i));
    for (size_t r = 0; r < kvern_mlx_rows(file); r++) {
        const int64_t length = kvern_mlx_length(file, r);
        json_array_append_new(rows, length < 0 ? json_null() : json_integer(length));
    }
    return json_print(json_pack("{s:s, s:o, s:I, s:o, s:o}", "format", format_name(file),
                                "metadata", metadata, "tokens", (json_int_t)tokens, "rows", rows,
                                "caches", caches));
}

// ---- Text ----

#define MOST_SHOWN 200 // bytes of a value: lists of tokens have thousands

static void print_text(const char *name, const char *value)
{
    const size_t bytes = strlen(value);
    const size_t shown = bytes > MOST_SHOWN ? MOST_SHOWN : bytes;
    printf("%-12s ", name);
    for (size_t i = 0; i < shown; i++) // a file's words may be anything
        putchar((unsigned char)value[i] < 0x20 || value[i] == 0x7f ? '?' : value[i]);
    if (shown < bytes)
        printf("... (%zu bytes; --json has all)", bytes);
    putchar('\n');
}

static void print_cache(const kvern_mlx_file *file, size_t index)
{
    const kvern_mlx_cache c = facts_of(file, index);
    const int64_t length = kvern_mlx_cache_length(file, index, 0);
    printf("cache %-6zu %s", index, c.class_name);
    if (c.members)
        printf(", %zu of %zu in list %zu", c.member + 1, c.members, c.entry);
    if (c.kv_heads)
        printf(", %zu heads of %zu and %zu, %s", c.kv_heads, c.k_dim, c.v_dim, c.dtype);
    if (c.slots)
        printf(", %zu slots, %s", c.slots, c.dtype);
    if (c.bits)
        printf(", %" PRIu32 " bits in groups of %" PRIu32, c.bits, c.group);
    if (c.max_size)
        printf(", a window of %" PRId64 " that keeps %" PRId64, c.max_size, c.keep);
    if (c.chunk)
        printf(", chunks of %" PRId64, c.chunk);
    if (c.rows > 1)
        printf(", %zu rows\n", c.rows);
    else if (c.rows == 0)
        printf(", empty\n");
    else if (length >= 0)
        printf(", %" PRId64 " %s\n", length,
               number_noun((uint64_t)length, "position", "positions"));
    else
        printf("\n");
}

static int inspect_text(const kvern_mlx_file *file)
{
    size_t tokens;
    print_text("format", format_name(file));
    for (size_t i = 0; kvern_mlx_file_note(file, i).key; i++)
        print_text(kvern_mlx_file_note(file, i).key, kvern_mlx_file_note(file, i).value);
    if (kvern_mlx_tokens(file, &tokens))
        printf("%-12s %zu\n", "tokens", tokens);
    for (size_t r = 0; r < kvern_mlx_rows(file); r++) {
        const int64_t length = kvern_mlx_length(file, r);
        if (length >= 0)
            printf("row %-8zu %" PRId64 " %s\n", r, length,
                   number_noun((uint64_t)length, "position", "positions"));
        else
            printf("row %-8zu no cache says how many positions, or they disagree\n", r);
    }
    for (size_t i = 0; i < kvern_mlx_caches(file); i++)
        print_cache(file, i);
    return CLI_SUCCESS;
}

int prompt_cache_inspect(const kvern_mlx_file *file, bool json)
{
    return json ? inspect_json(file) : inspect_text(file);
}
