// SPDX-License-Identifier: MIT
// How byte-level vocabularies write bytes. Token texts are written in printable characters: a byte
// that is a printable character of Latin-1 stands for itself, the others follow from U+0100 on in
// their order: 00 to 20, 7F to A0, AD.
#include "engine/tokenizer/tokenizer_internal.h"

#include "engine/base/utf8.h"

static unsigned alphabet_code(unsigned char byte)
{
    if (byte <= 0x20)
        return 0x100u + byte;
    if (byte >= 0x7f && byte <= 0xa0)
        return 0x121u + byte - 0x7f;
    return byte == 0xad ? 0x143 : byte;
}

// The byte that a code stands for, or -1.
static int alphabet_byte(unsigned code)
{
    if (code >= 0x100 && code <= 0x120)
        return (int)(code - 0x100);
    if (code >= 0x121 && code <= 0x142)
        return (int)(code - 0x121 + 0x7f);
    if (code == 0x143)
        return 0xad;
    return code < 0x100 && alphabet_code((unsigned char)code) == code ? (int)code : -1;
}

size_t byte_alphabet_write(unsigned char byte, char *out)
{
    const unsigned code = alphabet_code(byte); // below U+0800
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

void byte_alphabet_write_text(tokenizer_text text, text_buffer *out)
{
    for (size_t i = 0; i < text.size; i++)
        out->size += byte_alphabet_write((unsigned char)text.data[i], out->data + out->size);
}

// Reads the code at the start of `text`, or returns -1 when it is none of the alphabet. At least
// one byte.
static int read_byte(tokenizer_text text, size_t *length)
{
    const unsigned char *bytes = (const unsigned char *)text.data;
    if (utf8_next(text.data, text.size, length) != UTF8_VALID || *length > 2)
        return -1;
    return alphabet_byte(*length == 1 ? bytes[0] : (bytes[0] & 0x1fu) << 6 | (bytes[1] & 0x3fu));
}

kvern_status byte_alphabet_decode(tokenizer_text text, text_buffer *out)
{
    const kvern_status status = text_buffer_reserve(out, text.size);
    if (status != KVERN_OK)
        return status;
    char *piece = out->data + out->size;
    size_t size = 0;
    size_t length;
    for (size_t at = 0; at < text.size; at += length) {
        const int byte = read_byte((tokenizer_text){text.data + at, text.size - at}, &length);
        if (byte < 0)
            return text_buffer_append(out, text.data, text.size);
        piece[size++] = (char)byte;
    }
    out->size += size;
    return KVERN_OK;
}
