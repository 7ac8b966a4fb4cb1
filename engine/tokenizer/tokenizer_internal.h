// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_TOKENIZER_INTERNAL_H
#define KVERN_ENGINE_TOKENIZER_INTERNAL_H

// What the parts of the tokenizer share; the rest of the engine includes
// engine/tokenizer/tokenizer.h only.
//
//   tokenizer.c             creation, special tokens, encoding of a text in parts, access
//   tokenizer_keys.c         what is done with every key
//   tokenizer_vocabulary.c  token texts, kinds and pieces; text to id
//   tokenizer_marks.c        marks of chat templates
//   tokenizer_special.c     finding special tokens in a text
//   tokenizer_alphabet.c    how byte-level vocabularies write bytes
//   tokenizer_piece.c       how vocabularies of pieces write spaces and bytes
//   tokenizer_split.c       pre-tokenizers: words of a text
//   tokenizer_merge.c       greedy merging of pairs
//   tokenizer_merge_table.c the merges of a vocabulary
//   tokenizer_bpe.c         byte-level byte-pair encoding, from GGUF
//   tokenizer_spm.c         SentencePiece: pieces with scores, from GGUF
//   tokenizer_json*.c       byte-pair encoding from a tokenizer.json: tokenizer_json.h
//
// Another kind of vocabulary is one more file with a tokenizer_model, entered in tokenizer.c.

#include "engine/base/text_buffer.h"
#include "engine/tokenizer/tokenizer.h"

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

tokenizer_text token_string(const token_strings *strings, size_t index);

// Room for `count` strings, none of which is there yet; token_strings_free.
KVERN_CHECK kvern_status token_strings_reserve(token_strings *strings, size_t count);
// Ends string `index`, which was appended to strings->data.
KVERN_CHECK kvern_status token_strings_close(token_strings *strings, size_t index);
void token_strings_free(token_strings *strings);

// From strings to ids: a hash table that is never more than half full. All zero: empty.
typedef struct token_index {
    uint32_t *slots; // id + 1, or 0 for a free slot
    size_t mask;
    uint64_t seed;
} token_index;

// Room for `count` strings. On failure nothing is owned.
KVERN_CHECK kvern_status token_index_init(token_index *index, size_t count);
void token_index_free(token_index *index);

// Enters string `id`; empty strings, and those that are there already, are left out.
void token_index_add(token_index *index, const token_strings *strings, int32_t id);

// The id of a string of at least one byte, or TOKENIZER_NO_TOKEN.
int32_t token_index_find(const token_index *index, const token_strings *strings, const char *text,
                         size_t size);

typedef struct vocabulary {
    size_t count;
    uint8_t *types;       // token_type of each id
    bool *marks;          // of each id whether it is a mark of a chat template: tokenizer_marks.c
    token_strings texts;  // as the file writes them
    token_strings pieces; // the bytes they stand for
    token_index by_text;
} vocabulary;

// Loads texts and types. Frees nothing on failure: vocabulary_free takes a part-filled one, zeroes
// included.
KVERN_CHECK kvern_status vocabulary_load(vocabulary *v, const gguf_file *file, engine_error *error);

// The same from lists of `count` texts and types.
KVERN_CHECK kvern_status vocabulary_fill(vocabulary *v, size_t count, const tokenizer_text *texts,
                                         const uint8_t *types, engine_error *error);

// Fills the pieces: `decode` appends the bytes that a token's text stands for.
typedef kvern_status (*token_decoder)(const void *arg, token_type type, tokenizer_text text,
                                      text_buffer *out);
KVERN_CHECK kvern_status vocabulary_decode(vocabulary *v, token_decoder decode, const void *arg,
                                           engine_error *error);

void vocabulary_free(vocabulary *v);

tokenizer_text vocabulary_text(const vocabulary *v, int32_t id);
tokenizer_text vocabulary_piece(const vocabulary *v, int32_t id);

// Ordinary tokens take part in the encoding of ordinary text; all others, and marks, are special.
bool vocabulary_is_ordinary(const vocabulary *v, int32_t id);

// An ordinary token before a special one of the same text, then the lowest id; TOKENIZER_NO_TOKEN.
int32_t vocabulary_find(const vocabulary *v, const char *text, size_t bytes);

// --- tokenizer_special.c

// Bytes that a special token may have.
#define TOKENIZER_MAX_SPECIAL 256

// Special tokens in the order of their texts.
typedef struct special_set {
    const token_strings *strings; // what they are found by
    int32_t *ids;
    size_t count;
    uint32_t starts[257]; // ids[starts[b] .. starts[b + 1]) begin with byte b
} special_set;

// Collects the tokens that are `wanted` and whose string, which must outlive the set, is not empty.
// *set owns memory on success.
KVERN_CHECK kvern_status special_set_init(special_set *set, const token_strings *strings,
                                          const uint8_t *wanted, size_t count);
// The same of a vocabulary's pieces: the tokens whose type has its bit (1 << type) in `types`, but
// for marks, and with `marks` those.
KVERN_CHECK kvern_status special_set_of_types(special_set *set, const vocabulary *v, unsigned types,
                                              bool marks);
void special_set_free(special_set *set);

// The longest token of the set that text[0 .. size) begins with, and its length;
// TOKENIZER_NO_TOKEN.
int32_t special_set_match(const special_set *set, const char *text, size_t size, size_t *length);

// What belongs to a special token besides its text, as bits.
#define TOKEN_EDGE_WORD 1u  // it counts only where no letters, digits or the like are beside it
#define TOKEN_EDGE_LEFT 2u  // white space in front of it goes with it
#define TOKEN_EDGE_RIGHT 4u // and behind it

// A special token in a text.
typedef struct special_place {
    int32_t id;
    size_t begin, end; // with the white space that goes with it
    size_t next;       // the search goes on here
} special_place;

// The first special token of text[0 .. size) in [from, limit). Text before `taken` belongs to
// others. `edges` has TOKEN_EDGE_ bits of every token; NULL: none.
bool special_set_next(const special_set *set, const uint8_t *edges, const char *text, size_t size,
                      size_t from, size_t limit, size_t taken, special_place *place);

// --- tokenizer_marks.c

// Types of tokens that may be marks, as bits.
#define TOKENIZER_MARK_TYPES (1u << TOKEN_NORMAL | 1u << TOKEN_USER_DEFINED)

// Fills v->marks, from a chat template that may be empty; before special sets are made and merges
// are loaded.
KVERN_CHECK kvern_status vocabulary_find_marks(vocabulary *v, text_view template, unsigned types,
                                               engine_error *error);

// --- tokenizer_alphabet.c

// The character that stands for a byte, one or two bytes of UTF-8: out[2]. Returns its length.
size_t byte_alphabet_write(unsigned char byte, char *out);
// Appends the characters that stand for a text's bytes; `out` has room for twice as many.
void byte_alphabet_write_text(tokenizer_text text, text_buffer *out);
// Appends the bytes that a text stands for. One that is not written in the alphabet throughout
// stands for itself.
KVERN_CHECK kvern_status byte_alphabet_decode(tokenizer_text text, text_buffer *out);

// --- tokenizer_piece.c

// Appends a text with spaces for U+2581.
KVERN_CHECK kvern_status token_append_spaced(const char *text, size_t size, text_buffer *out);
// The byte that a byte token's text "<0x0A>" names, or -1.
int token_named_byte(tokenizer_text text);

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

// --- tokenizer_merge.c

#define NO_SYMBOL UINT32_MAX
#define NO_RANK UINT32_MAX

// A stretch of a text that is or may become a token. It is known by the byte where it begins.
typedef struct symbol {
    int32_t id;
    uint32_t previous, next; // NO_SYMBOL at the ends
    uint32_t rank;   // of the pair with `next`; NO_RANK when it has none or the symbol is gone
    int32_t product; // the token that this pair makes
} symbol;

// A pair in the heap: its rank above its left symbol, so that comparing the numbers compares rank
// and then position. An entry whose rank is no longer that of the symbol is stale.
typedef uint64_t ranked_pair;

// All zero at first; merge_workspace_free.
typedef struct merge_workspace {
    symbol *symbols; // [capacity]
    ranked_pair *heap;
    size_t heap_count;
    size_t capacity;
} merge_workspace;

void merge_workspace_free(merge_workspace *w);

// Room for the symbols of a text of so many bytes (at most INT32_MAX).
KVERN_CHECK kvern_status merge_workspace_reserve(merge_workspace *w, size_t bytes);

// The rank of the pair of symbol `at` and its next one, which exists, and the token that it makes.
// The lowest rank is merged first; NO_RANK: it makes none.
typedef uint32_t (*pair_ranker)(const void *arg, const merge_workspace *w, uint32_t at,
                                int32_t *product);

// Merges until no pair has a rank. The symbols begin with symbols[0]; their ids, which a ranker may
// use, and links are set.
void merge_symbols(merge_workspace *w, pair_ranker rank, const void *arg);

// --- tokenizer_merge_table.c

// A slot of a table of merges; free when rank is NO_RANK.
typedef struct merge {
    int32_t left, right;
    uint32_t rank;
    int32_t product;
} merge;

// A hash table on (left, right), never more than half full. All zero: merge_table_free may take it.
typedef struct merge_table {
    merge *slots;
    size_t mask;
    uint64_t seed;
} merge_table;

KVERN_CHECK kvern_status merge_table_init(merge_table *table, size_t count, engine_error *error);
void merge_table_free(merge_table *table);

// The slot of a pair, or the free one where it belongs.
merge *merge_table_find(const merge_table *table, int32_t left, int32_t right);

// What a pair_ranker gives.
uint32_t merge_table_rank(const merge_table *table, const merge_workspace *w, uint32_t at,
                          int32_t *product);

// --- tokenizer.c

// One kind of vocabulary.
typedef struct tokenizer_model {
    const char *name;        // tokenizer.ggml.model
    bool finds_user_defined; // `encode` recognises user-defined tokens itself
    // Reads what the kind needs besides the vocabulary, fills the pieces, and sets t->state, t->pre
    // (NULL for a kind without) and t->adds_bos. `pre` as for tokenizer_create. On failure
    // `destroy` is still called.
    kvern_status (*create)(tokenizer *t, const gguf_file *file, const char *pre,
                           engine_error *error);
    void (*destroy)(tokenizer *t);
    // Appends the tokens of text[begin .. end), at least one byte, which holds no special token
    // but those that `encode` finds itself. On failure *out may have grown.
    kvern_status (*encode)(const tokenizer *t, const char *text, size_t begin, size_t end,
                           token_buffer *out, engine_error *error);
} tokenizer_model;

extern const tokenizer_model tokenizer_bpe_model;
extern const tokenizer_model tokenizer_spm_model;

#define TOKENIZER_MAX_ENDS 24

struct tokenizer {
    const tokenizer_model *model;
    void *state; // of the model
    vocabulary words;
    uint8_t *edges;           // of each id TOKEN_EDGE_ bits and what its kind adds; NULL: none
    special_set user_defined; // recognised in every text
    special_set special;      // recognised where control tokens are allowed; includes the former
    const char *pre;
    bool adds_bos;
    int32_t bos, eos, eot, eom, unknown, padding, fim_pad, fim_rep, fim_sep;
    int32_t ends[TOKENIZER_MAX_ENDS];
    size_t end_count;
};

// What every kind does at last: refuses special tokens that are too long, and finds the tokens that
// end a generation.
KVERN_CHECK kvern_status tokenizer_finish(tokenizer *t, engine_error *error);

// A copy of a name from a file that can be printed: cut, and without control bytes.
typedef struct printable {
    char text[64];
} printable;
printable tokenizer_printable(gguf_string name);

#endif
