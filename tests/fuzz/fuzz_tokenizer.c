// SPDX-License-Identifier: MIT
// Any bytes as a text: its tokens, put together, are the text again, with every pre-tokenizer, with
// and without control tokens, whole or in two parts.
//
// The first byte chooses the pre-tokenizer and the flags, the second where the parts meet; the rest
// is the text.

#include "tests/support/tiny_tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static tokenizer *tokenizers[4];

static void create_tokenizers(void)
{
    static const char *const names[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    for (size_t i = 0; i < 4 && !tokenizers[i]; i++)
        tokenizers[i] = tiny_tokenizer_create(names[i]);
}

// A control token may only come out of a part that allows it.
static void check(const tokenizer *t, const token_buffer *ids, const char *text, size_t size,
                  const tokenizer_part *parts)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        const tokenizer_text piece = tokenizer_piece_special(t, ids->ids[i]);
        if (piece.size == 0 || piece.size > size - at ||
            memcmp(piece.data, text + at, piece.size) != 0)
            abort();
        const bool control =
            ids->ids[i] < TINY_BYTE && ids->ids[i] != TINY_TOOL && ids->ids[i] != TINY_TOOL_CALL;
        const bool in_first = at + piece.size <= parts[0].bytes;
        const bool in_second = at >= parts[0].bytes;
        if (control && !(in_first && parts[0].parse_special) &&
            !(in_second && parts[1].parse_special))
            abort();
        at += piece.size;
    }
    if (at != size)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    create_tokenizers();
    if (size < 2)
        return 0;
    const tokenizer *t = tokenizers[data[0] & 3];
    const char *text = (const char *)data + 2;
    size -= 2;
    const size_t first = size * data[1] / 255;
    const tokenizer_part parts[] = {{first, (data[0] & 4) != 0},
                                    {size - first, (data[0] & 8) != 0}};
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    if (tokenizer_encode_parts(t, text, parts, 2, 0, &ids, &error) != KVERN_OK)
        abort(); // this vocabulary has every byte
    check(t, &ids, text, size, parts);
    token_buffer_free(&ids);
    return 0;
}
