// SPDX-License-Identifier: MIT
// What is in the list of caches of a file of mlx-lm.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/file/mlx/mlx_columns.h"
#include "src/rows/row.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kvern_mlx_class_names[KVERN_MLX_CLASSES] = {
    [KVERN_MLX_KV] = "KVCache",
    [KVERN_MLX_CONCATENATE] = "ConcatenateKVCache",
    [KVERN_MLX_QUANTIZED] = "QuantizedKVCache",
    [KVERN_MLX_ROTATING] = "RotatingKVCache",
    [KVERN_MLX_CHUNKED] = "ChunkedKVCache",
    [KVERN_MLX_BATCH] = "BatchKVCache",
    [KVERN_MLX_BATCH_ROTATING] = "BatchRotatingKVCache",
    [KVERN_MLX_ARRAYS] = "ArraysCache",
};

#define LIST_CLASS "CacheList"
#define PATH_BYTES 64
#define NAME_BYTES 64

typedef struct parser {
    kvern_mlx_file *file;
    const kvern_safetensors *tensors;
    bool *used; // tensors that belong to a cache
} parser;

// Where a cache is: in the names of tensors, and, in the older layout, in those of metadata.
typedef struct place {
    char tensors[PATH_BYTES], infos[PATH_BYTES];
} place;

kvern_status kvern_mlx_bad(const kvern_mlx_file *file, const kvern_mlx_item *item,
                           const char *format, ...)
{
    char text[200], member[32] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (item->members)
        snprintf(member, sizeof member, ", member %zu", item->member);
    return kvern_fail(KVERN_ERR_FORMAT, "%s: cache %zu%s, %s: %s", file->path, item->entry, member,
                      kvern_mlx_class_names[item->class], text);
}

// ---- Tensors and numbers by name ----

// The tensor PLACE.LEAF, or NULL.
static const kvern_tensor *find(parser *p, const place *at, const char *leaf)
{
    char name[PATH_BYTES + 16];
    snprintf(name, sizeof name, "%s.%s", at->tensors, leaf);
    const kvern_tensor *tensor = kvern_safetensors_find(p->tensors, name);
    if (tensor)
        p->used[tensor - p->tensors->tensors] = true;
    return tensor;
}

static kvern_status need(parser *p, const kvern_mlx_item *item, const place *at, const char *leaf,
                         const kvern_tensor **out)
{
    *out = find(p, at, leaf);
    return *out ? KVERN_OK
                : kvern_mlx_bad(p->file, item, "tensor %s.%s is missing", at->tensors, leaf);
}

// What stands for None.
static bool is_none(const kvern_tensor *tensor)
{
    return tensor->dims == 1 && tensor->shape[0] == 0;
}

static bool is_integer(const kvern_tensor *tensor)
{
    return tensor->dtype == KVERN_DTYPE_I32 || tensor->dtype == KVERN_DTYPE_I64;
}

static kvern_status read_scalar(parser *p, const kvern_mlx_item *item, const place *at,
                                const char *leaf, int64_t *out)
{
    const kvern_tensor *tensor;
    kvern_status status = need(p, item, at, leaf, &tensor);
    if (status)
        return status;
    if (tensor->dims || !is_integer(tensor))
        return kvern_mlx_bad(p->file, item, "tensor %s is no number", tensor->name);
    int32_t value;
    if (tensor->dtype == KVERN_DTYPE_I64) {
        memcpy(out, tensor->data, sizeof *out);
        return KVERN_OK;
    }
    memcpy(&value, tensor->data, sizeof value);
    *out = value;
    return KVERN_OK;
}

static const char *info_of(const parser *p, const place *at, const char *leaf)
{
    char key[PATH_BYTES + 16];
    snprintf(key, sizeof key, "%s.%s", at->infos, leaf);
    return kvern_safetensors_metadata(p->tensors, key);
}

static kvern_status read_info(parser *p, const kvern_mlx_item *item, const place *at,
                              const char *leaf, int64_t *out)
{
    const char *text = info_of(p, at, leaf);
    if (!text)
        return kvern_mlx_bad(p->file, item, "metadata %s.%s is missing", at->infos, leaf);
    char *end;
    const long long value = strtoll(text, &end, 10);
    const bool is_number =
        *text == '-' ? text[1] >= '0' && text[1] <= '9' : *text >= '0' && *text <= '9';
    if (!is_number || *end || strlen(text) > 18)
        return kvern_mlx_bad(p->file, item, "metadata %s.%s is no number: %.40s", at->infos, leaf,
                             text);
    *out = value;
    return KVERN_OK;
}

// A number that is a tensor in the one layout and metadata in the other.
static kvern_status read_number(parser *p, const kvern_mlx_item *item, const place *at,
                                const char *leaf, const char *info, int64_t *out)
{
    return p->file->layout == KVERN_MLX_STATES ? read_scalar(p, item, at, leaf, out)
                                               : read_info(p, item, at, info, out);
}

// ---- Keys and values ----

static bool is_float(const kvern_tensor *tensor)
{
    return tensor->dtype == KVERN_DTYPE_F32 || tensor->dtype == KVERN_DTYPE_BF16 ||
           tensor->dtype == KVERN_DTYPE_F16;
}

static kvern_status check_float(parser *p, const kvern_mlx_item *item, const kvern_tensor *tensor)
{
    if (is_float(tensor))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu, %s: tensor %s is of %s", p->file->path,
                      item->entry, kvern_mlx_class_names[item->class], tensor->name,
                      kvern_dtypes[tensor->dtype].name);
}

// Whether two tensors are of the same rows, heads and columns.
static bool same_columns(const kvern_tensor *a, const kvern_tensor *b)
{
    return a->dims == 4 && b->dims == 4 && a->shape[0] == b->shape[0] &&
           a->shape[1] == b->shape[1] && a->shape[2] == b->shape[2];
}

static kvern_status take_shape(parser *p, kvern_mlx_item *item)
{
    const kvern_tensor *k = item->keys.parts[0], *v = item->values.parts[0];
    if (!same_columns(k, v))
        return kvern_mlx_bad(p->file, item, "tensors %s and %s do not fit each other", k->name,
                             v->name);
    if (k->shape[0] < 1 || k->shape[0] > KVERN_MAX_ROWS || k->shape[1] < 1 ||
        k->shape[1] > KVERN_MAX_KV_HEADS || k->shape[2] > (uint64_t)KVERN_MAX_POSITIONS ||
        k->shape[3] < 1 || k->shape[3] > INT32_MAX || v->shape[3] > INT32_MAX)
        return kvern_mlx_bad(p->file, item, "tensor %s is of no such rows, heads and columns",
                             k->name);
    item->rows = (size_t)k->shape[0];
    item->heads = (size_t)k->shape[1];
    item->width = (int64_t)k->shape[2];
    item->keys.dim = (size_t)k->shape[3];
    item->values.dim = (size_t)v->shape[3];
    return KVERN_OK;
}

static kvern_status read_pair(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = need(p, item, at, "0", &item->keys.parts[0]);
    if (!status)
        status = need(p, item, at, "1", &item->values.parts[0]);
    if (status)
        return status;
    if (is_none(item->keys.parts[0]) && is_none(item->values.parts[0]))
        return KVERN_OK; // nothing was ever stored
    if (!(status = check_float(p, item, item->keys.parts[0])) &&
        !(status = check_float(p, item, item->values.parts[0])))
        status = take_shape(p, item);
    return status;
}

static kvern_status read_plain(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = read_pair(p, at, item);
    item->offset = item->width;
    if (!status && item->class == KVERN_MLX_KV && p->file->layout == KVERN_MLX_STATES)
        status = read_scalar(p, item, at, "2", &item->offset);
    return status;
}

static kvern_status read_rotating(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = read_pair(p, at, item);
    if (!status)
        status = read_number(p, item, at, "2", "2", &item->offset);
    if (!status)
        status = read_number(p, item, at, "3", "0", &item->keep);
    if (!status)
        status = read_number(p, item, at, "4", "1", &item->max_size);
    return status ? status : read_number(p, item, at, "5", "3", &item->idx);
}

// The older layout does not say the offset, and its tensors may have columns that are not filled,
// unless nothing was dropped.
static kvern_status read_chunked(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = read_pair(p, at, item);
    if (!status)
        status = read_number(p, item, at, "3", "0", &item->chunk);
    if (!status)
        status = read_number(p, item, at, "4", "1", &item->start);
    if (!status && p->file->layout == KVERN_MLX_STATES)
        status = read_scalar(p, item, at, "2", &item->offset);
    else if (!status)
        item->offset = item->start ? -1 : item->width;
    return status;
}

// ---- Quantized ----

static kvern_status read_codes(parser *p, const place *at, kvern_mlx_item *item, bool of_values)
{
    kvern_mlx_stream *stream = of_values ? &item->values : &item->keys;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < 3 && !status; i++) {
        const char leaf[] = {of_values ? '1' : '0', '.', (char)('0' + i), '\0'};
        status = need(p, item, at, leaf, &stream->parts[i]);
    }
    if (status)
        return status;
    const kvern_tensor *words = stream->parts[0], *scales = stream->parts[1];
    const kvern_tensor *biases = stream->parts[2];
    if (words->dtype != KVERN_DTYPE_U32 || !same_columns(words, scales) ||
        !same_columns(words, biases) || scales->dtype != biases->dtype ||
        scales->shape[3] != biases->shape[3])
        return kvern_mlx_bad(p->file, item, "tensor %s and its scales and biases do not fit",
                             words->name);
    return check_float(p, item, scales);
}

// The dim of the vectors follows from their scales, and has to follow from their words.
static kvern_status code_dim(parser *p, kvern_mlx_item *item, kvern_mlx_stream *stream)
{
    const uint64_t dim = stream->parts[1]->shape[3] * item->group;
    if (stream->parts[1]->shape[3] > UINT32_MAX || dim < 1 || dim > UINT32_MAX ||
        stream->parts[0]->shape[3] > UINT32_MAX ||
        stream->parts[0]->shape[3] * 32 != dim * item->bits)
        return kvern_mlx_bad(p->file, item,
                             "tensor %s is not of %" PRIu32 " bits in groups of %" PRIu32,
                             stream->parts[0]->name, item->bits, item->group);
    stream->dim = (size_t)dim;
    return KVERN_OK;
}

static kvern_status read_bits(parser *p, const place *at, kvern_mlx_item *item)
{
    int64_t bits = 0, group = 0;
    kvern_status status = read_number(p, item, at, "2", "0", &item->offset);
    if (!status)
        status = read_number(p, item, at, "3", "1", &group);
    if (!status)
        status = read_number(p, item, at, "4", "2", &bits);
    if (status)
        return status;
    const bool known = (bits >= 2 && bits <= 6) || bits == 8;
    if (!known || (group != 32 && group != 64 && group != 128))
        return kvern_fail(
            KVERN_ERR_UNSUPPORTED, "%s: cache %zu, %s: %" PRId64 " bits in groups of %" PRId64,
            p->file->path, item->entry, kvern_mlx_class_names[item->class], bits, group);
    item->bits = (uint32_t)bits;
    item->group = (uint32_t)group;
    return KVERN_OK;
}

static kvern_status read_quantized(parser *p, const place *at, kvern_mlx_item *item)
{
    const kvern_tensor *k = find(p, at, "0"), *v = find(p, at, "1");
    kvern_status status = read_bits(p, at, item);
    if (status || (k && v && is_none(k) && is_none(v)))
        return status;
    if (!(status = read_codes(p, at, item, false)))
        status = read_codes(p, at, item, true);
    if (!status)
        status = take_shape(p, item);
    if (!status)
        status = code_dim(p, item, &item->keys);
    return status ? status : code_dim(p, item, &item->values);
}

// ---- Batches ----

static kvern_status read_per_row(parser *p, const place *at, kvern_mlx_item *item, const char *leaf,
                                 const kvern_tensor **out)
{
    kvern_status status = need(p, item, at, leaf, out);
    if (!status && item->rows &&
        ((*out)->dims != 1 || !is_integer(*out) || (*out)->shape[0] != item->rows))
        status = kvern_mlx_bad(p->file, item, "tensor %s is not a number per row", (*out)->name);
    return status;
}

static kvern_status read_batch_rows(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = read_pair(p, at, item);
    if (!status)
        status = read_per_row(p, at, item, "2", &item->offsets);
    return status ? status : read_per_row(p, at, item, "3", &item->padding);
}

static kvern_status read_batch(parser *p, const place *at, kvern_mlx_item *item)
{
    kvern_status status = read_batch_rows(p, at, item);
    item->idx = item->width;
    if (!status && p->file->layout == KVERN_MLX_STATES)
        status = read_scalar(p, item, at, "4", &item->idx);
    return status;
}

static kvern_status read_rotated(parser *p, const place *at, kvern_mlx_item *item)
{
    const char *text = info_of(p, at, "3");
    const kvern_tensor *flag = NULL;
    if (p->file->layout == KVERN_MLX_STATES) {
        kvern_status status = need(p, item, at, "7", &flag);
        if (status)
            return status;
        if (flag->dims || flag->dtype != KVERN_DTYPE_BOOL)
            return kvern_mlx_bad(p->file, item, "tensor %s is no flag", flag->name);
        item->rotated = *flag->data != 0;
        return KVERN_OK;
    }
    item->rotated = text && strcmp(text, "True") == 0;
    if (!text || (!item->rotated && *text && strcmp(text, "False") != 0))
        return kvern_mlx_bad(p->file, item, "metadata %s.3 is neither True nor False", at->infos);
    return KVERN_OK;
}

static kvern_status read_batch_rotating(parser *p, const place *at, kvern_mlx_item *item)
{
    int64_t total = 0; // columns that were ever written; what they are, idx and rotated say
    kvern_status status = read_batch_rows(p, at, item);
    if (!status)
        status = read_number(p, item, at, "4", "0", &item->max_size);
    if (!status)
        status = read_number(p, item, at, "5", "1", &total);
    if (!status)
        status = read_number(p, item, at, "6", "2", &item->idx);
    if (!status)
        status = read_rotated(p, at, item);
    if (!status && total < item->idx)
        status = kvern_mlx_bad(p->file, item, "index %" PRId64 " of %" PRId64 " columns in all",
                               item->idx, total);
    return status;
}

// ---- Arrays ----

static kvern_status take_slot(parser *p, kvern_mlx_item *item, const kvern_tensor *slot)
{
    if (item->slot_count == KVERN_MLX_MOST_SLOTS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu, %s: more than %d slots",
                          p->file->path, item->entry, kvern_mlx_class_names[item->class],
                          KVERN_MLX_MOST_SLOTS);
    item->slots[item->slot_count++] = is_none(slot) ? NULL : slot;
    if (is_none(slot))
        return KVERN_OK;
    if (slot->dims < 2 || slot->shape[0] < 1 || slot->shape[0] > KVERN_MAX_ROWS ||
        (item->rows && item->rows != slot->shape[0]))
        return kvern_mlx_bad(p->file, item, "tensor %s does not have the rows of the others",
                             slot->name);
    item->rows = (size_t)slot->shape[0];
    return check_float(p, item, slot);
}

// Beside the slots there are what is left of paddings, which concerns inputs to come and no state.
static kvern_status read_arrays(parser *p, const place *at, kvern_mlx_item *item)
{
    const bool nested = find(p, at, "0.0") != NULL;
    const kvern_tensor *slot;
    kvern_status status = KVERN_OK;
    for (size_t e = 0; !status; e++) {
        char leaf[16];
        snprintf(leaf, sizeof leaf, nested ? "0.%zu" : "%zu", e);
        if (!(slot = find(p, at, leaf)))
            break;
        status = take_slot(p, item, slot);
    }
    if (!status && nested)
        status = need(p, item, at, "1", &slot);
    if (!status && nested)
        status = need(p, item, at, "2", &slot);
    if (!status && item->slot_count == 0)
        status = kvern_mlx_bad(p->file, item, "it has no slot");
    return status;
}

// ---- Classes ----

typedef kvern_status read_class(parser *p, const place *at, kvern_mlx_item *item);

static read_class *const READERS[KVERN_MLX_CLASSES] = {
    [KVERN_MLX_KV] = read_plain,
    [KVERN_MLX_CONCATENATE] = read_plain,
    [KVERN_MLX_QUANTIZED] = read_quantized,
    [KVERN_MLX_ROTATING] = read_rotating,
    [KVERN_MLX_CHUNKED] = read_chunked,
    [KVERN_MLX_BATCH] = read_batch,
    [KVERN_MLX_BATCH_ROTATING] = read_batch_rotating,
    [KVERN_MLX_ARRAYS] = read_arrays,
};

// Reads one cache of a class; where it is, `known` says.
static kvern_status read_cache(parser *p, const place *at, const char *class_name,
                               const kvern_mlx_item *known)
{
    size_t class = 0;
    while (class < KVERN_MLX_CLASSES && strcmp(class_name, kvern_mlx_class_names[class]) != 0)
        class ++;
    if (class == KVERN_MLX_CLASSES)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "%s: cache %zu is of a class that is not known: "
                          "%.80s",
                          p->file->path, known->entry, class_name);
    kvern_mlx_item *item;
    kvern_status status = kvern_mlx_add_item(p->file, &item);
    if (status)
        return status;
    *item = *known;
    item->class = (kvern_mlx_class) class;
    if (!(status = READERS[class](p, at, item)))
        status = kvern_mlx_check_columns(p->file, item);
    return status;
}

// ---- Lists ----

// A string is its code points, one I32 each.
static bool read_string(const kvern_tensor *tensor, char text[NAME_BYTES])
{
    if (tensor->dims != 1 || tensor->dtype != KVERN_DTYPE_I32 || tensor->elements >= NAME_BYTES)
        return false;
    for (size_t i = 0; i < tensor->elements; i++) {
        int32_t point;
        memcpy(&point, tensor->data + i * sizeof point, sizeof point);
        if (point < ' ' || point > '~')
            return false;
        text[i] = (char)point;
    }
    text[tensor->elements] = '\0';
    return true;
}

// The class of member `c`; empty: there is no such member.
static kvern_status member_class(parser *p, size_t entry, size_t c, char name[NAME_BYTES])
{
    const char *text = NULL;
    char key[PATH_BYTES];
    *name = '\0';
    if (p->file->layout == KVERN_MLX_INFOS) {
        snprintf(key, sizeof key, "0.%zu.0.%zu", entry, c);
        text = kvern_safetensors_metadata(p->tensors, key);
        snprintf(name, NAME_BYTES, "%s", text ? text : "");
        return KVERN_OK;
    }
    place at;
    snprintf(at.tensors, sizeof at.tensors, "%zu.%zu", entry, c);
    const kvern_tensor *tensor = find(p, &at, "1");
    if (tensor && !read_string(tensor, name))
        return kvern_fail(KVERN_ERR_FORMAT, "%s: tensor %s names no class", p->file->path,
                          tensor->name);
    return KVERN_OK;
}

static kvern_status count_members(parser *p, size_t entry, size_t *count)
{
    char name[NAME_BYTES];
    for (*count = 0; *count <= KVERN_MAX_LAYERS; ++*count) {
        kvern_status status = member_class(p, entry, *count, name);
        if (status || !*name)
            return status;
    }
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu is a list of more than %d",
                      p->file->path, entry, KVERN_MAX_LAYERS);
}

static kvern_status read_member(parser *p, size_t entry, size_t c, size_t members)
{
    const kvern_mlx_item known = {.entry = entry, .member = c, .members = members};
    const bool states = p->file->layout == KVERN_MLX_STATES;
    char name[NAME_BYTES];
    place at;
    snprintf(at.tensors, sizeof at.tensors, states ? "%zu.%zu.0" : "%zu.%zu", entry, c);
    snprintf(at.infos, sizeof at.infos, "0.%zu.1.%zu", entry, c);
    kvern_status status = member_class(p, entry, c, name);
    if (!status && strcmp(name, LIST_CLASS) == 0)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: cache %zu: a " LIST_CLASS " in a " LIST_CLASS,
                          p->file->path, entry);
    return status ? status : read_cache(p, &at, name, &known);
}

static kvern_status read_entry(parser *p, size_t entry, const char *class_name)
{
    const kvern_mlx_item known = {.entry = entry};
    if (strcmp(class_name, LIST_CLASS) != 0) {
        place at;
        snprintf(at.tensors, sizeof at.tensors, "%zu", entry);
        snprintf(at.infos, sizeof at.infos, "0.%zu", entry);
        return read_cache(p, &at, class_name, &known);
    }
    size_t members;
    kvern_status status = count_members(p, entry, &members);
    if (!status && members == 0)
        status = kvern_fail(KVERN_ERR_FORMAT, "%s: cache %zu is an empty " LIST_CLASS,
                            p->file->path, entry);
    for (size_t c = 0; c < members && !status; c++)
        status = read_member(p, entry, c, members);
    return status;
}

// ---- Metadata ----

typedef struct note_walk {
    parser *parser;
    char own, classes; // the first digit of the keys of user metadata, and of classes
    size_t entries;    // classes there are
    size_t notes;
    kvern_mlx_note *to; // NULL: they are counted
} note_walk;

// A scalar: "2.N.0" is the name of a tensor, "2.N.1" what it stands for.
static kvern_status check_scalar(const note_walk *walk, const char *key, const char *kind)
{
    const kvern_safetensors *file = walk->parser->tensors;
    const size_t length = strlen(key);
    char path_key[PATH_BYTES];
    if (length < 4 || length >= sizeof path_key || strcmp(key + length - 2, ".1") != 0)
        return KVERN_OK;
    snprintf(path_key, sizeof path_key, "%.*s0", (int)length - 1, key);
    const char *path = kvern_safetensors_metadata(file, path_key);
    const kvern_tensor *tensor = path ? kvern_safetensors_find(file, path) : NULL;
    const bool scalar = strcmp(kind, "scalar") == 0, string = strcmp(kind, "string") == 0;
    const bool none = strcmp(kind, "none") == 0;
    if (!scalar && !string && !none)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: metadata %s: %.40s is not known", file->path,
                          key, kind);
    if (!tensor || (scalar && tensor->dims) || (string && tensor->dims != 1) ||
        (none && !is_none(tensor)))
        return kvern_fail(KVERN_ERR_FORMAT, "%s: metadata %s: tensor %.40s is no %s", file->path,
                          key, path ? path : "", kind);
    return KVERN_OK;
}

static kvern_status visit_metadata(void *user, const char *key, const char *value)
{
    note_walk *walk = user;
    if (key[0] < '0' || key[0] > '9' || key[1] != '.')
        return KVERN_OK; // nobody's, such as "format"
    if (key[0] == walk->own) {
        if (walk->to)
            walk->to[walk->notes] = (kvern_mlx_note){key + 2, value};
        walk->notes++;
        return KVERN_OK;
    }
    walk->entries += key[0] == walk->classes;
    if (key[0] == '2' && walk->parser->file->layout == KVERN_MLX_STATES)
        return check_scalar(walk, key, value);
    return KVERN_OK;
}

static kvern_status read_notes(parser *p, size_t *entries)
{
    const bool states = p->file->layout == KVERN_MLX_STATES;
    note_walk walk = {.parser = p, .own = states ? '0' : '1', .classes = states ? '1' : '2'};
    kvern_status status = kvern_safetensors_each_metadata(p->tensors, visit_metadata, &walk);
    *entries = walk.entries;
    if (status || walk.notes == 0)
        return status;
    void *block;
    status = kvern_heap_take_zeroed(&p->file->context->heap, walk.notes * sizeof *walk.to, &block);
    if (status)
        return status;
    p->file->notes = walk.to = block;
    p->file->note_count = walk.notes;
    walk.notes = 0;
    return kvern_safetensors_each_metadata(p->tensors, visit_metadata, &walk);
}

// ---- The file ----

// In the newer layout the list of scalars is third and begins with an empty string; in the older
// one the classes are third.
static kvern_status find_layout(kvern_mlx_file *file)
{
    const char *third = kvern_safetensors_metadata(&file->tensors, "2.0");
    if (!third)
        return kvern_fail(KVERN_ERR_FORMAT, "%s is no prompt cache of mlx-lm", file->path);
    file->layout = *third ? KVERN_MLX_INFOS : KVERN_MLX_STATES;
    return KVERN_OK;
}

static kvern_status read_entries(parser *p, size_t entries)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < entries && !status; i++) {
        char key[PATH_BYTES];
        snprintf(key, sizeof key, p->file->layout == KVERN_MLX_STATES ? "1.%zu" : "2.%zu", i);
        const char *name = kvern_safetensors_metadata(p->tensors, key);
        status = name ? read_entry(p, i, name)
                      : kvern_fail(KVERN_ERR_FORMAT, "%s: %zu classes, and metadata %s is missing",
                                   p->file->path, entries, key);
    }
    if (!status && entries == 0)
        status = kvern_fail(KVERN_ERR_FORMAT, "%s has no cache", p->file->path);
    for (size_t i = 0; i < p->tensors->count && !status; i++) {
        if (!p->used[i])
            status = kvern_fail(KVERN_ERR_FORMAT, "%s: tensor %.80s belongs to no cache",
                                p->file->path, p->tensors->tensors[i].name);
    }
    return status;
}

kvern_status kvern_mlx_parse(kvern_mlx_file *file)
{
    parser p = {.file = file, .tensors = &file->tensors};
    kvern_heap *heap = &file->context->heap;
    const size_t bytes = kvern_max_size(p.tensors->count, 1);
    void *block;
    size_t entries = 0;
    kvern_status status = find_layout(file);
    if (!status)
        status = kvern_heap_take_zeroed(heap, bytes, &block);
    if (status)
        return status;
    p.used = block;
    if (!(status = read_notes(&p, &entries)))
        status = read_entries(&p, entries);
    kvern_heap_give(heap, block, bytes, KVERN_HEAP_ALIGNMENT);
    return status;
}
