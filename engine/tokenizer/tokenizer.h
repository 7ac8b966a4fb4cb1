// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_H
#define KVERN_ENGINE_TOKENIZER_H

// Text to token ids and back, from the metadata of a model file.
//
// One interface for every kind of vocabulary: byte-level byte-pair encoding ("gpt2" in GGUF) and
// SentencePiece with scores ("llama"). A tokenizer is immutable after tokenizer_create and
// independent of the file it was made from; several threads may use it at once.
//
// Encoding is a function of bytes, not of valid text: faulty UTF-8 is tokenized byte by byte and
// comes back unchanged. What cannot be represented (a vocabulary may lack tokens for some bytes) is
// refused by name, never dropped. To a SentencePiece vocabulary U+2581 is a space and comes back as
// one; and where the file asks for it, such a text begins with a space that nobody wrote.

#include "engine/gguf/gguf.h"
#include "engine/weights/key_table.h"

typedef struct tokenizer tokenizer;

#define TOKENIZER_NO_TOKEN (-1)

// A growable list of token ids. Start with TOKEN_BUFFER_INIT (all zero).
typedef struct token_buffer {
    int32_t *ids; // owned, NULL while the capacity is 0
    size_t count;
    size_t capacity;
} token_buffer;

// clang-format off
#define TOKEN_BUFFER_INIT {NULL, 0, 0}
// clang-format on

// Makes room for `extra` more ids. On failure (KVERN_ERR_MEMORY, KVERN_ERR_OVERFLOW) nothing
// changed.
KVERN_CHECK kvern_status token_buffer_reserve(token_buffer *buffer, size_t extra);
KVERN_CHECK kvern_status token_buffer_push(token_buffer *buffer, int32_t id);
void token_buffer_free(token_buffer *buffer);

// What is done with each key that begins with "tokenizer.".
extern const key_table tokenizer_keys;

// Reads tokenizer.* of `file`. `pre` names how texts are split into words, in place of
// tokenizer.ggml.pre; NULL: as the file says. On failure *out is NULL and *error says which key is
// at fault: KVERN_ERR_UNSUPPORTED for a kind of vocabulary, a pre-tokenizer or a key that is not
// known (named), or a byte-pair vocabulary that does not say how it is split, KVERN_ERR_ARGUMENT
// for a `pre` that is not known or that the vocabulary has no use for, KVERN_ERR_FORMAT for
// contradictory data, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status tokenizer_create(const gguf_file *file, const char *pre, tokenizer **out,
                                          engine_error *error);

// NULL is allowed.
void tokenizer_destroy(tokenizer *t);

// Flags of encoding.
enum {
    // Put the beginning-of-sequence token first if the file asks for it (tokenizer_adds_bos).
    TOKENIZER_ADD_BOS = 1u << 0,
    // Recognise the text of control tokens ("<|im_end|>"). Without it such text is plain
    // characters, so what a user types cannot act as a control token. User-defined tokens are part
    // of the vocabulary of ordinary text and are recognised in both cases, but for marks
    // (tokenizer_is_mark), which are control tokens here.
    TOKENIZER_PARSE_SPECIAL = 1u << 1
};

// Appends the tokens of text[0 .. bytes) to *out. On failure *out holds what it held before, and
// *error says why: KVERN_ERR_UNSUPPORTED for a byte without a token (its value and offset are
// named), KVERN_ERR_RANGE for more than INT32_MAX bytes, KVERN_ERR_MEMORY.
KVERN_CHECK kvern_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes,
                                          unsigned flags, token_buffer *out, engine_error *error);

// A stretch of a text that is trusted to hold control tokens (a template's own marks) or is not
// (what a user wrote).
typedef struct tokenizer_part {
    size_t bytes;
    bool parse_special;
} tokenizer_part;

// Encodes a text made of consecutive parts that cover it from its start. Ordinary text is split
// into words across the borders of parts, as if it were one text; only control tokens must lie
// within a part that allows them. `flags` takes TOKENIZER_ADD_BOS alone. Same failures.
KVERN_CHECK kvern_status tokenizer_encode_parts(const tokenizer *t, const char *text,
                                                const tokenizer_part *parts, size_t count,
                                                unsigned flags, token_buffer *out,
                                                engine_error *error);

// The bytes that a token stands for, borrowed from the tokenizer. They may be part of a character.
// Empty for an id out of range.
typedef struct tokenizer_text {
    const char *data;
    size_t size;
} tokenizer_text;

// For output: control tokens, unknown and unused ones have no bytes.
tokenizer_text tokenizer_piece(const tokenizer *t, int32_t id);
// For listings: control tokens give their own text ("<|im_end|>").
tokenizer_text tokenizer_piece_special(const tokenizer *t, int32_t id);

// Number of tokens; ids are 0 to size - 1.
size_t tokenizer_size(const tokenizer *t);

// Ids from the file, TOKENIZER_NO_TOKEN when it names none.
int32_t tokenizer_bos(const tokenizer *t);
int32_t tokenizer_eos(const tokenizer *t);
int32_t tokenizer_eot(const tokenizer *t);
int32_t tokenizer_unknown(const tokenizer *t);
int32_t tokenizer_padding(const tokenizer *t);
bool tokenizer_adds_bos(const tokenizer *t);

// The token whose text this is, of any kind; the lowest id if there are several. TOKENIZER_NO_TOKEN
// when absent. Text of ordinary tokens is meant as the file writes it ("Ġthe").
int32_t tokenizer_find(const tokenizer *t, const char *text, size_t bytes);

// As the file types it.
bool tokenizer_is_control(const tokenizer *t, int32_t id);
// Marks of chat templates that the file types otherwise than control: "<|im_end|>" as a
// user-defined token, for example. Tokens that look like a mark and that the file's template has,
// and those that every template of that kind has.
bool tokenizer_is_mark(const tokenizer *t, int32_t id);
// Everything that is not made of ordinary text: control tokens, marks, user-defined tokens, ...
bool tokenizer_is_special(const tokenizer *t, int32_t id);
// True for tokens that end a generation: end of sequence, of turn and of message as the file names
// them, control tokens and marks whose text is known to mean that ("<|im_end|>", "<|eot_id|>",
// ...), and those of tokenizer_add_end.
bool tokenizer_is_end(const tokenizer *t, int32_t id);
// Adds a token that ends a generation, the one that a chat template ends turns with. Does nothing
// for TOKENIZER_NO_TOKEN. Not while other threads use the tokenizer.
void tokenizer_add_end(tokenizer *t, int32_t id);

// For inspect: the kind of vocabulary as the file writes it ("gpt2"), and the name of the
// pre-tokenizer in use ("smollm"), NULL for a kind that has none. Static strings or owned by the
// tokenizer.
const char *tokenizer_name(const tokenizer *t);
const char *tokenizer_pre(const tokenizer *t);

#endif
