// SPDX-License-Identifier: MIT
// Any bytes as a GGUF file with a tokenizer and a chat template: made or refused with a sentence;
// and what is made can be asked for everything, and writes a text that it gives back or refuses.

#include "engine/chat/chat.h"
#include "engine/tokenizer/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_status(kvern_status status, const void *made, const engine_error *error)
{
    if ((status == KVERN_OK) != (made != NULL))
        abort();
    if (status != KVERN_OK && (error->status != status || error->text[0] == '\0'))
        abort();
}

static void ask_everything(const tokenizer *t)
{
    size_t bytes = 0;
    for (int32_t id = -1; id <= (int32_t)tokenizer_size(t); id++) {
        const tokenizer_text piece = tokenizer_piece(t, id);
        const tokenizer_text special = tokenizer_piece_special(t, id);
        if (piece.size > special.size || tokenizer_find(t, special.data, special.size) < -1)
            abort();
        for (size_t i = 0; i < special.size; i++)
            bytes += (unsigned char)special.data[i];
        bytes += tokenizer_is_control(t, id) + tokenizer_is_end(t, id);
    }
    if (bytes == SIZE_MAX || !tokenizer_name(t)[0] || (tokenizer_pre(t) && !tokenizer_pre(t)[0]))
        abort();
    const int32_t ids[] = {tokenizer_bos(t), tokenizer_eos(t), tokenizer_eot(t),
                           tokenizer_unknown(t), tokenizer_padding(t)};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (ids[i] < TOKENIZER_NO_TOKEN || (ids[i] >= 0 && (size_t)ids[i] >= tokenizer_size(t)))
            abort();
}

static size_t skip_spaces(const char *text, size_t size, size_t at)
{
    for (;;) {
        if (size - at >= 3 && memcmp(text + at, "\xe2\x96\x81", 3) == 0)
            at += 3;
        else if (size - at >= 1 && text[at] == ' ')
            at++;
        else
            return at;
    }
}

// Where the text goes on after a piece, which must be what stands at `at`. `spaced`: spaces and
// U+2581 are the same and do not count, because a prefix may be added.
static size_t compare_piece(tokenizer_text piece, bool spaced, const char *text, size_t size,
                            size_t at)
{
    for (size_t i = 0; i < piece.size; i++, at++) {
        if (spaced) {
            i = skip_spaces(piece.data, piece.size, i);
            at = skip_spaces(text, size, at);
            if (i == piece.size)
                return at;
        }
        if (at == size || piece.data[i] != text[at])
            abort();
    }
    return at;
}

static void write_text(const tokenizer *t, const char *text, size_t size, const chat_text *parts)
{
    token_buffer ids = TOKEN_BUFFER_INIT;
    engine_error error = {0};
    const kvern_status status =
        parts ? tokenizer_encode_parts(t, text, parts->parts, parts->part_count, 0, &ids, &error)
              : tokenizer_encode(t, text, size, TOKENIZER_PARSE_SPECIAL, &ids, &error);
    const bool spaced = strcmp(tokenizer_name(t), "llama") == 0;
    size_t at = 0;
    for (size_t i = 0; i < ids.count; i++)
        at = compare_piece(tokenizer_piece_special(t, ids.ids[i]), spaced, text, size, at);
    if (spaced)
        at = skip_spaces(text, size, at);
    if (status == KVERN_OK ? at != size : ids.count != 0)
        abort();
    token_buffer_free(&ids);
}

static void write_conversation(const gguf_file *file, const tokenizer *t)
{
    static const chat_message messages[] = {{"user", "ab a<|im_end|>", 14}, {"assistant", "b", 1}};
    chat_template *chat;
    engine_error error = {0};
    chat_text text = CHAT_TEXT_INIT;
    const kvern_status status = chat_template_detect(file, t, &chat, &error);
    check_status(status, chat, &error);
    const bool rendered = chat && chat_render(chat, messages, 2, true, &text, &error) == KVERN_OK;
    if (rendered && t)
        write_text(t, text.text.data, text.text.size, &text);
    chat_text_free(&text);
    chat_template_destroy(chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    gguf_file *file;
    if (gguf_open_memory(data, size, &file, NULL) != KVERN_OK)
        return 0;
    tokenizer *t;
    engine_error error = {0};
    const kvern_status status = tokenizer_create(file, NULL, &t, &error);
    check_status(status, t, &error);
    if (t) {
        static const char text[] = "ab abab <|im_end|>\n\xff 12";
        ask_everything(t);
        write_text(t, text, sizeof text - 1, NULL);
        write_text(t, (const char *)data, size, NULL);
    }
    write_conversation(file, t);
    tokenizer_destroy(t);
    gguf_close(file);
    return 0;
}
