// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_INTERNAL_H
#define KVERN_ENGINE_TOKENIZER_INTERNAL_H

// What the parts of the tokenizer share; the rest of the engine includes engine/tokenizer.h only.
//
//   tokenizer.c             creation, special tokens, encoding of a text in parts, access
//   tokenizer_vocabulary.c  token texts, kinds and pieces; text to id
//   tokenizer_special.c     finding special tokens in a text
//   tokenizer_split.c       pre-tokenizers: words of a text
//   tokenizer_bpe.c         byte-level byte-pair encoding
//
// Another kind of vocabulary is one more file with a tokenizer_model, entered in tokenizer.c.

#include "engine/text_buffer.h"
#include "engine/tokenizer.h"

// Numbers are those of tokenizer.ggml.token_type.
typedef enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
} token_type;

// --- tokenizer_vocabulary.c

// Strings one after another; string i is data[starts[i] .. starts[i + 1]).
typedef struct token_strings {
    text_buffer data;
    uint32_t *starts; // count + 1
} token_strings;

typedef struct vocabulary {
    size_t count;
    uint8_t *types;       // token_type of each id
    token_strings texts;  // as the file writes them
    token_strings pieces; // the bytes they stand for
    uint32_t *slots;      // hash table of texts: id + 1, or 0 for a free slot
    size_t slot_mask;
} vocabulary;

// Loads texts and types. Frees nothing on failure: vocabulary_free takes a part-filled one, zeroes
// included.
KVERN_CHECK kvern_status vocabulary_load(vocabulary *v, const gguf_file *file, engine_error *error);

// Fills the pieces: `decode` appends the bytes that an ordinary token's text stands for; special
// tokens stand for their text.
typedef kvern_status (*token_decoder)(tokenizer_text text, text_buffer *out);
KVERN_CHECK kvern_status vocabulary_decode(vocabulary *v, token_decoder decode,
                                           engine_error *error);

void vocabulary_free(vocabulary *v);

tokenizer_text vocabulary_text(const vocabulary *v, int32_t id);
tokenizer_text vocabulary_piece(const vocabulary *v, int32_t id);

// Ordinary tokens take part in the encoding of ordinary text; all others are special.
bool vocabulary_is_ordinary(const vocabulary *v, int32_t id);

// An ordinary token before a special one of the same text, then the lowest id; TOKENIZER_NO_TOKEN.
int32_t vocabulary_find(const vocabulary *v, const char *text, size_t bytes);

// --- tokenizer_special.c

// Special tokens in the order of their texts.
typedef struct special_set {
    int32_t *ids;
    size_t count;
    uint32_t starts[257]; // ids[starts[b] .. starts[b + 1]) begin with byte b
} special_set;

// Collects the tokens whose type has its bit (1 << type) in `types`. *set owns memory on success.
KVERN_CHECK kvern_status special_set_init(special_set *set, const vocabulary *v, unsigned types);
void special_set_free(special_set *set);

// The longest token of the set that text[0 .. size) begins with, and its length;
// TOKENIZER_NO_TOKEN.
int32_t special_set_match(const special_set *set, const vocabulary *v, const char *text,
                          size_t size, size_t *length);

// --- tokenizer_split.c

typedef struct pre_tokenizer {
    const char *name; // tokenizer.ggml.pre
    const char *pattern;
    bool whole_words; // a word that is a token is not built from merges
    bool adds_bos;    // when the file does not say
} pre_tokenizer;

// NULL for an unknown name.
const pre_tokenizer *pre_tokenizer_find(gguf_string name);
// All known names, separated by commas; for error sentences.
void pre_tokenizer_list(char *text, size_t size);

typedef struct word_splitter word_splitter;
typedef struct word_cursor word_cursor;

KVERN_CHECK kvern_status word_splitter_create(const char *pattern, word_splitter **out,
                                              engine_error *error);
void word_splitter_destroy(word_splitter *splitter);

// Walks over the words of a text; together they cover every byte of it. Faulty UTF-8 is a word of
// its own.
KVERN_CHECK kvern_status word_cursor_create(const word_splitter *splitter, const char *text,
                                            size_t bytes, word_cursor **out, engine_error *error);
void word_cursor_destroy(word_cursor *cursor);
// *word->size is 0 at the end of the text.
KVERN_CHECK kvern_status word_cursor_next(word_cursor *cursor, tokenizer_text *word,
                                          engine_error *error);

// --- tokenizer.c

// One kind of vocabulary.
typedef struct tokenizer_model {
    const char *name; // tokenizer.ggml.model
    // Reads what the kind needs besides the vocabulary, fills the pieces, and sets t->state, t->pre
    // and t->adds_bos. On failure `destroy` is still called.
    kvern_status (*create)(tokenizer *t, const gguf_file *file, engine_error *error);
    void (*destroy)(tokenizer *t);
    // Appends the tokens of text[begin .. end), which holds no special token. On failure *out may
    // have grown.
    kvern_status (*encode)(const tokenizer *t, const char *text, size_t begin, size_t end,
                           token_buffer *out, engine_error *error);
} tokenizer_model;

extern const tokenizer_model tokenizer_bpe_model;

#define TOKENIZER_MAX_ENDS 16

struct tokenizer {
    const tokenizer_model *model;
    void *state; // of the model
    vocabulary words;
    special_set user_defined; // recognised in every text
    special_set special;      // recognised where control tokens are allowed; includes the former
    const char *pre;
    bool adds_bos;
    int32_t bos, eos, eot, eom, unknown, padding;
    int32_t ends[TOKENIZER_MAX_ENDS];
    size_t end_count;
};

// A copy of a name from a file that can be printed: cut, and without control bytes.
typedef struct printable {
    char text[64];
} printable;
printable tokenizer_printable(gguf_string name);

#endif
