// SPDX-License-Identifier: MIT
// Any bytes as the files of a tokenizer: two bytes with the length of a tokenizer_config.json, that
// text, and a tokenizer.json. Made or refused with a sentence; what is made can be asked for
// everything, and writes texts or refuses them.

#include "engine/tokenizer/tokenizer_files.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask_everything(const tokenizer *t)
{
    size_t bytes = 0;
    const size_t count = tokenizer_size(t) < 100000 ? tokenizer_size(t) : 100000;
    for (int32_t id = -1; id <= (int32_t)count; id++) {
        const tokenizer_text piece = tokenizer_piece(t, id);
        const tokenizer_text special = tokenizer_piece_special(t, id);
        for (size_t i = 0; i < special.size; i++)
            bytes += (unsigned char)special.data[i];
        if (piece.size > special.size || bytes == SIZE_MAX)
            abort();
        bytes += tokenizer_is_control(t, id) + tokenizer_is_end(t, id);
    }
    if (tokenizer_bos(t) < -1 || tokenizer_bos(t) >= (int32_t)tokenizer_size(t))
        abort();
}

// No text that is not trusted has a control token or a mark in it.
static void write_text(const tokenizer *t, const char *text, size_t size, unsigned flags)
{
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    const kvern_status status = tokenizer_encode(t, text, size, flags, &ids, &error);
    if (status != KVERN_OK && (ids.count > 0 || error.status != status || !error.text[0]))
        abort();
    for (size_t i = 0; i < ids.count; i++) {
        if (ids.ids[i] < 0 || (size_t)ids.ids[i] >= tokenizer_size(t))
            abort();
        // The unknown token may be a control token.
        if (!(flags & TOKENIZER_PARSE_SPECIAL) && ids.ids[i] != tokenizer_unknown(t) &&
            (tokenizer_is_control(t, ids.ids[i]) || tokenizer_is_mark(t, ids.ids[i])))
            abort();
    }
    token_buffer_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "ab abab <|im_end|>\n\xff 12 <s>A\xcc\x8a  \xe2\x96\x81x";
    const size_t config = size < 2 ? 0 : (size_t)(data[0] | data[1] << 8);
    if (size < 2 || config > size - 2)
        return 0;
    const tokenizer_texts texts = {
        .config = {config ? (const char *)data + 2 : NULL, config},
        .tokenizer = {(const char *)data + 2 + config, size - 2 - config},
    };
    tokenizer_files *files;
    tokenizer *t = NULL;
    engine_error error = {0};
    kvern_status status = tokenizer_files_read(&texts, &files, &error);
    if (status == KVERN_OK)
        status = tokenizer_create_from_files(files, NULL, &t, &error);
    if ((status == KVERN_OK) != (t != NULL))
        abort();
    if (status != KVERN_OK && (error.status != status || error.text[0] == '\0'))
        abort();
    tokenizer_files_close(files);
    if (t) {
        ask_everything(t);
        write_text(t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL);
        write_text(t, text, sizeof text - 1, 0);
        write_text(t, (const char *)data, size < 2000 ? size : 2000, 0);
    }
    tokenizer_destroy(t);
    return 0;
}
