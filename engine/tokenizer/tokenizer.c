// SPDX-License-Identifier: MIT
#include "engine/tokenizer/tokenizer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const tokenizer_model *const models[] = {&tokenizer_bpe_model, &tokenizer_spm_model};

#define MODEL_COUNT (sizeof models / sizeof *models)

// Control tokens and marks that end a generation in every model that has them, whether or not the
// file names them: many files name one end token and their chat template uses another.
static const char *const end_texts[] = {
    "<|im_end|>",      "<|endoftext|>", "<|eot_id|>",      "<|eom_id|>",
    "<|end_of_text|>", "<end_of_turn>", "<|end_of_turn|>", "</s>",
};

// --- Token buffer

kvern_status token_buffer_reserve(token_buffer *buffer, size_t extra)
{
    if (extra <= buffer->capacity - buffer->count)
        return KVERN_OK;
    if (extra > SIZE_MAX / 2 / sizeof *buffer->ids - buffer->count)
        return KVERN_ERR_OVERFLOW;
    size_t capacity = buffer->count + extra;
    if (capacity < 2 * buffer->capacity + 16)
        capacity = 2 * buffer->capacity + 16;
    int32_t *ids = realloc(buffer->ids, capacity * sizeof *ids);
    if (!ids)
        return KVERN_ERR_MEMORY;
    buffer->ids = ids;
    buffer->capacity = capacity;
    return KVERN_OK;
}

kvern_status token_buffer_push(token_buffer *buffer, int32_t id)
{
    const kvern_status status = token_buffer_reserve(buffer, 1);
    if (status == KVERN_OK)
        buffer->ids[buffer->count++] = id;
    return status;
}

void token_buffer_free(token_buffer *buffer)
{
    free(buffer->ids);
    *buffer = (token_buffer)TOKEN_BUFFER_INIT;
}

// --- Creation

printable tokenizer_printable(gguf_string name)
{
    printable copy = {{0}};
    const size_t size = name.size < sizeof copy.text ? name.size : sizeof copy.text - 1;
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)name.data[i];
        copy.text[i] = byte < 0x20 || byte == 0x7f ? '?' : name.data[i];
    }
    return copy;
}

static kvern_status find_model(const gguf_file *file, const tokenizer_model **model,
                               engine_error *error)
{
    gguf_string name;
    if (!gguf_get_string(gguf_find(file, "tokenizer.ggml.model"), &name))
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "the file has no tokenizer (tokenizer.ggml.model)");
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        *model = models[i];
        if (text_view_is(name, (*model)->name))
            return KVERN_OK;
    }
    return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                       "vocabularies of kind \"%s\" (tokenizer.ggml.model) are not supported",
                       tokenizer_printable(name).text);
}

static kvern_status load_id(const tokenizer *t, const gguf_file *file, const char *key, int32_t *id,
                            engine_error *error)
{
    const gguf_entry *entry = gguf_find(file, key);
    uint64_t value = 0;
    *id = TOKENIZER_NO_TOKEN;
    if (!entry)
        return KVERN_OK;
    if (!gguf_get_u64(entry, &value) || value >= t->words.count)
        return engine_fail(error, KVERN_ERR_FORMAT, "%s is none of the %zu tokens", key,
                           t->words.count);
    *id = (int32_t)value;
    return KVERN_OK;
}

static kvern_status load_ids(tokenizer *t, const gguf_file *file, engine_error *error)
{
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &t->bos},
        {"tokenizer.ggml.eos_token_id", &t->eos},
        {"tokenizer.ggml.eot_token_id", &t->eot},
        {"tokenizer.ggml.eom_token_id", &t->eom},
        {"tokenizer.ggml.unknown_token_id", &t->unknown},
        {"tokenizer.ggml.padding_token_id", &t->padding},
        {"tokenizer.ggml.fim_pad_token_id", &t->fim_pad},
        {"tokenizer.ggml.fim_rep_token_id", &t->fim_rep},
        {"tokenizer.ggml.fim_sep_token_id", &t->fim_sep},
    };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const kvern_status status = load_id(t, file, ids[i].key, ids[i].id, error);
        if (status != KVERN_OK)
            return status;
    }
    return KVERN_OK;
}

static void add_end(tokenizer *t, int32_t id)
{
    if (id != TOKENIZER_NO_TOKEN && !tokenizer_is_end(t, id) && t->end_count < TOKENIZER_MAX_ENDS)
        t->ends[t->end_count++] = id;
}

static void find_ends(tokenizer *t)
{
    add_end(t, t->eos);
    add_end(t, t->eot);
    add_end(t, t->eom);
    add_end(t, t->fim_pad);
    add_end(t, t->fim_rep);
    add_end(t, t->fim_sep);
    for (size_t i = 0; i < sizeof end_texts / sizeof *end_texts; i++) {
        const int32_t id = tokenizer_find(t, end_texts[i], strlen(end_texts[i]));
        if (tokenizer_is_control(t, id) || tokenizer_is_mark(t, id))
            add_end(t, id);
    }
}

// A text is compared with special tokens at every byte, so their length is a factor of the time
// that it takes. Those of real vocabularies have a few dozen bytes.
static kvern_status check_special_sizes(const tokenizer *t, engine_error *error)
{
    for (size_t id = 0; id < t->words.count; id++) {
        const size_t size = vocabulary_piece(&t->words, (int32_t)id).size;
        if (size > TOKENIZER_MAX_SPECIAL && t->words.types[id] != TOKEN_UNUSED &&
            !vocabulary_is_ordinary(&t->words, (int32_t)id))
            return engine_fail(error, KVERN_ERR_UNSUPPORTED,
                               "token %zu is a special token of %zu bytes; at most %d are allowed",
                               id, size, TOKENIZER_MAX_SPECIAL);
    }
    return KVERN_OK;
}

kvern_status tokenizer_finish(tokenizer *t, engine_error *error)
{
    const kvern_status status = check_special_sizes(t, error);
    if (status == KVERN_OK)
        find_ends(t);
    return status;
}

static kvern_status find_special(tokenizer *t, engine_error *error)
{
    const unsigned everywhere = t->model->finds_user_defined ? 0 : 1u << TOKEN_USER_DEFINED;
    const unsigned where_allowed = everywhere | 1u << TOKEN_CONTROL | 1u << TOKEN_UNKNOWN;
    if (special_set_of_types(&t->user_defined, &t->words, everywhere, false) != KVERN_OK ||
        special_set_of_types(&t->special, &t->words, where_allowed, true) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for the special tokens");
    return KVERN_OK;
}

// The model's create has set what holds when the file does not say. A token that is added must
// exist.
static kvern_status load_adds_bos(tokenizer *t, const gguf_file *file, engine_error *error)
{
    const gguf_entry *entry = gguf_find(file, "tokenizer.ggml.add_bos_token");
    if (entry && !gguf_get_bool(entry, &t->adds_bos))
        return engine_fail(error, KVERN_ERR_FORMAT, "tokenizer.ggml.add_bos_token is no boolean");
    if (entry && t->adds_bos && t->bos == TOKENIZER_NO_TOKEN)
        return engine_fail(error, KVERN_ERR_FORMAT,
                           "tokenizer.ggml.add_bos_token is set without a bos_token_id");
    t->adds_bos = t->adds_bos && t->bos != TOKENIZER_NO_TOKEN;
    return KVERN_OK;
}

// Keys of other prefixes are not the tokenizer's.
static kvern_status check_keys(const gguf_file *file, engine_error *error)
{
    static const key_table *const tables[] = {&tokenizer_keys};
    kvern_status status = KVERN_OK;
    for (size_t i = 0; status == KVERN_OK && i < gguf_entry_count(file); i++) {
        const gguf_entry *entry = gguf_entry_at(file, i);
        const config_value value = gguf_entry_value(entry);
        if (text_view_starts(gguf_entry_key(entry), tokenizer_keys.prefix))
            status =
                key_check(tables, 1, (text_view){NULL, 0}, gguf_entry_key(entry), &value, error);
    }
    return status;
}

static kvern_status find_marks(tokenizer *t, const gguf_file *file, engine_error *error)
{
    text_view template = {"", 0};
    (void)gguf_get_string(gguf_find(file, "tokenizer.chat_template"), &template);
    return vocabulary_find_marks(&t->words, template, TOKENIZER_MARK_TYPES, error);
}

static kvern_status load(tokenizer *t, const gguf_file *file, const char *pre, engine_error *error)
{
    kvern_status status = check_keys(file, error);
    if (status == KVERN_OK)
        status = vocabulary_load(&t->words, file, error);
    if (status == KVERN_OK)
        status = load_ids(t, file, error);
    if (status == KVERN_OK)
        status = find_marks(t, file, error);
    if (status == KVERN_OK)
        status = t->model->create(t, file, pre, error);
    if (status == KVERN_OK)
        status = load_adds_bos(t, file, error);
    if (status == KVERN_OK)
        status = find_special(t, error);
    return status == KVERN_OK ? tokenizer_finish(t, error) : status;
}

kvern_status tokenizer_create(const gguf_file *file, const char *pre, tokenizer **out,
                              engine_error *error)
{
    *out = NULL;
    const tokenizer_model *model;
    kvern_status status = find_model(file, &model, error);
    if (status != KVERN_OK)
        return status;
    tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for a tokenizer");
    t->model = model;
    status = load(t, file, pre, error);
    if (status != KVERN_OK)
        tokenizer_destroy(t);
    else
        *out = t;
    return status;
}

void tokenizer_destroy(tokenizer *t)
{
    if (!t)
        return;
    t->model->destroy(t);
    vocabulary_free(&t->words);
    special_set_free(&t->user_defined);
    special_set_free(&t->special);
    free(t->edges);
    free(t);
}

// --- Encoding

// A text on its way to tokens. Ordinary text is collected until a special token or the end comes.
typedef struct encoding {
    const tokenizer *t;
    const char *text;
    size_t bytes;
    size_t ordinary; // text from here on is not encoded yet
    size_t at;       // and searched for special tokens from here on
    token_buffer *out;
    engine_error *error;
} encoding;

static kvern_status encode_ordinary(encoding *e, size_t end)
{
    const size_t begin = e->ordinary;
    if (begin >= end)
        return KVERN_OK;
    e->ordinary = end;
    return e->t->model->encode(e->t, e->text, begin, end, e->out, e->error);
}

static kvern_status push_token(token_buffer *out, int32_t id, engine_error *error)
{
    if (token_buffer_push(out, id) != KVERN_OK)
        return engine_fail(error, KVERN_ERR_MEMORY, "no memory for %zu tokens", out->count + 1);
    return KVERN_OK;
}

static kvern_status encode_special(encoding *e, const special_place *place)
{
    kvern_status status = encode_ordinary(e, place->begin);
    if (status == KVERN_OK)
        status = push_token(e->out, place->id, e->error);
    e->at = place->next;
    e->ordinary = place->end;
    return status;
}

// Walks over a part and encodes up to the last special token in it.
static kvern_status encode_part(encoding *e, const special_set *set, size_t end)
{
    special_place place;
    kvern_status status = KVERN_OK;
    while (status == KVERN_OK &&
           special_set_next(set, e->t->edges, e->text, e->bytes, e->at, end, e->ordinary, &place))
        status = encode_special(e, &place);
    e->at = end;
    return status;
}

static kvern_status check_parts(const tokenizer_part *parts, size_t count, size_t *bytes,
                                engine_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].bytes > INT32_MAX - total)
            return engine_fail(error, KVERN_ERR_RANGE, "a text of more than %d bytes is too long",
                               INT32_MAX);
        total += parts[i].bytes;
    }
    *bytes = total;
    return KVERN_OK;
}

kvern_status tokenizer_encode_parts(const tokenizer *t, const char *text,
                                    const tokenizer_part *parts, size_t count, unsigned flags,
                                    token_buffer *out, engine_error *error)
{
    encoding e = {.t = t, .text = text, .out = out, .error = error};
    kvern_status status = check_parts(parts, count, &e.bytes, error);
    if (status != KVERN_OK)
        return status;
    const size_t before = out->count;
    if ((flags & TOKENIZER_ADD_BOS) && t->adds_bos)
        status = push_token(out, t->bos, error);
    for (size_t i = 0; status == KVERN_OK && i < count; i++) {
        const special_set *set = parts[i].parse_special ? &t->special : &t->user_defined;
        status = encode_part(&e, set, e.at + parts[i].bytes);
    }
    if (status == KVERN_OK)
        status = encode_ordinary(&e, e.bytes);
    if (status != KVERN_OK)
        out->count = before;
    return status;
}

kvern_status tokenizer_encode(const tokenizer *t, const char *text, size_t bytes, unsigned flags,
                              token_buffer *out, engine_error *error)
{
    const tokenizer_part whole = {bytes, (flags & TOKENIZER_PARSE_SPECIAL) != 0};
    return tokenizer_encode_parts(t, text, &whole, 1, flags, out, error);
}

// --- Access

static bool in_range(const tokenizer *t, int32_t id)
{
    return id >= 0 && (size_t)id < t->words.count;
}

tokenizer_text tokenizer_piece(const tokenizer *t, int32_t id)
{
    const bool shown = in_range(t, id) && (vocabulary_is_ordinary(&t->words, id) ||
                                           t->words.types[id] == TOKEN_USER_DEFINED);
    return shown ? vocabulary_piece(&t->words, id) : (tokenizer_text){"", 0};
}

tokenizer_text tokenizer_piece_special(const tokenizer *t, int32_t id)
{
    return in_range(t, id) ? vocabulary_piece(&t->words, id) : (tokenizer_text){"", 0};
}

size_t tokenizer_size(const tokenizer *t)
{
    return t->words.count;
}

int32_t tokenizer_bos(const tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const tokenizer *t)
{
    return t->eos;
}

int32_t tokenizer_eot(const tokenizer *t)
{
    return t->eot;
}

int32_t tokenizer_unknown(const tokenizer *t)
{
    return t->unknown;
}

int32_t tokenizer_padding(const tokenizer *t)
{
    return t->padding;
}

bool tokenizer_adds_bos(const tokenizer *t)
{
    return t->adds_bos;
}

int32_t tokenizer_find(const tokenizer *t, const char *text, size_t bytes)
{
    return vocabulary_find(&t->words, text, bytes);
}

bool tokenizer_is_control(const tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->words.types[id] == TOKEN_CONTROL;
}

bool tokenizer_is_mark(const tokenizer *t, int32_t id)
{
    return in_range(t, id) && t->words.marks[id];
}

bool tokenizer_is_special(const tokenizer *t, int32_t id)
{
    return in_range(t, id) && !vocabulary_is_ordinary(&t->words, id);
}

void tokenizer_add_end(tokenizer *t, int32_t id)
{
    if (in_range(t, id))
        add_end(t, id);
}

bool tokenizer_is_end(const tokenizer *t, int32_t id)
{
    for (size_t i = 0; i < t->end_count; i++)
        if (t->ends[i] == id)
            return true;
    return false;
}

const char *tokenizer_name(const tokenizer *t)
{
    return t->model->name;
}

const char *tokenizer_pre(const tokenizer *t)
{
    return t->pre;
}
