// SPDX-License-Identifier: MIT
#include "tests/support/token_check.h"

#include "tests/support/check.h"

void token_check_text(const tokenizer *t, const token_buffer *ids, const char *text, size_t bytes,
                      unsigned flags)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->count; i++) {
        const tokenizer_text listed = tokenizer_piece_special(t, ids->ids[i]);
        const tokenizer_text piece = tokenizer_piece(t, ids->ids[i]);
        assert_true(listed.size > 0 && listed.size <= bytes - at);
        assert_memory_equal(listed.data, text + at, listed.size);
        if (!(flags & TOKENIZER_PARSE_SPECIAL)) {
            assert_int_equal(piece.size, listed.size);
            assert_memory_equal(piece.data, text + at, piece.size);
        }
        at += listed.size;
    }
    assert_int_equal(at, bytes);
}

static bool equals(const token_buffer *ids, const json_t *expected)
{
    bool same = ids->count == json_array_size(expected);
    for (size_t i = 0; same && i < ids->count; i++)
        same = ids->ids[i] == json_integer_value(json_array_get(expected, i));
    return same;
}

void token_check_golden(const tokenizer *t, const json_t *cases, bool comes_back)
{
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *entry = json_array_get(cases, i);
        const json_t *text = json_object_get(entry, "text");
        const unsigned flags =
            json_is_true(json_object_get(entry, "special")) ? TOKENIZER_PARSE_SPECIAL : 0;
        token_buffer ids = TOKEN_BUFFER_INIT;
        engine_error error = {0};
        if (tokenizer_encode(t, json_string_value(text), json_string_length(text), flags, &ids,
                             &error) != KVERN_OK)
            fail_msg("case %zu: %s", i, error.text);
        if (!equals(&ids, json_object_get(entry, "ids")))
            fail_msg("case %zu (\"%s\") differs", i, json_string_value(text));
        if (comes_back)
            token_check_text(t, &ids, json_string_value(text), json_string_length(text), flags);
        token_buffer_free(&ids);
    }
}
