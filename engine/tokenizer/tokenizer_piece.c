// SPDX-License-Identifier: MIT
// How vocabularies of pieces write spaces and bytes.
#include "engine/tokenizer/tokenizer_internal.h"

#include <string.h>

#define SPACE "\xe2\x96\x81" // U+2581
#define SPACE_BYTES 3

kvern_status token_append_spaced(const char *text, size_t size, text_buffer *out)
{
    const kvern_status status = text_buffer_reserve(out, size);
    if (status != KVERN_OK)
        return status;
    for (size_t at = 0; at < size;) {
        const bool is_space =
            size - at >= SPACE_BYTES && memcmp(text + at, SPACE, SPACE_BYTES) == 0;
        out->data[out->size++] = is_space ? ' ' : text[at];
        at += is_space ? SPACE_BYTES : 1;
    }
    return KVERN_OK;
}

static int hex_digit(char character)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *found = character ? strchr(digits, character) : NULL;
    return found ? (int)(found - digits) : -1;
}

int token_named_byte(tokenizer_text text)
{
    if (text.size != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    const int high = hex_digit(text.data[3]), low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}
