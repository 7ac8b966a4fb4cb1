// SPDX-License-Identifier: MIT
// A file's structure, and everything in it but the content of pages. What depends on the layers is
// checked when rows are loaded (load.c).
#include "src/base/assert.h"
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/base/sized.h"
#include "src/file/container/container.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const kvern_sized facts_sizes =
    KVERN_SIZED(kvern_file_facts, KVERN_SIZE_TO(kvern_file_facts, keys));

static kvern_status refuse(const kvern_file *file, const char *what)
{
    return kvern_fail(KVERN_ERR_FORMAT, "%s: %s", file->path, what);
}

// ---- Metadata ----

// A number as it is written: no sign, no zeros in front. False when it is none, or above `most`.
static bool read_number(const char *text, uint64_t most, uint64_t *out)
{
    *out = 0;
    if (!text || !*text || (*text == '0' && text[1]))
        return false;
    for (; *text; text++) {
        const uint64_t digit = (uint64_t)*text - '0';
        if (*text < '0' || *text > '9' || *out > (most - digit) / 10 || digit > most)
            return false;
        *out = *out * 10 + digit;
    }
    return true;
}

static kvern_status need_number(const kvern_file *file, const char *key, uint64_t most,
                                uint64_t *out)
{
    const char *text = kvern_safetensors_metadata(&file->tensors, key);
    if (read_number(text, most, out))
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_FORMAT, "%s: metadata %s is %.40s", file->path, key,
                      text ? text : "missing");
}

static kvern_status check_version(const kvern_file *file)
{
    const char *format = kvern_safetensors_metadata(&file->tensors, "format");
    if (!format || strcmp(format, KVERN_CONTAINER_FORMAT) != 0)
        return kvern_fail(KVERN_ERR_FORMAT, "%s holds no rows of this library: its format is %.40s",
                          file->path, format ? format : "not said");
    uint64_t version;
    kvern_status status = need_number(file, "version", UINT32_MAX, &version);
    if (!status && version != KVERN_FILE_VERSION)
        return kvern_fail(KVERN_ERR_UNSUPPORTED,
                          "%s: version %" PRIu64 " of the format; this library knows version %d",
                          file->path, version, KVERN_FILE_VERSION);
    return status;
}

// A key of a layer within the number of layers.
static bool is_layer_key(const kvern_file *file, const char *key)
{
    uint64_t layer;
    return strncmp(key, "layer.", 6) == 0 && read_number(key + 6, UINT32_MAX, &layer) &&
           layer < file->layers;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool is_identity_key(const char *key)
{
    static const char *const names[] = {"model", "rope", "adapter", "media"};
    if (!begins(key, KVERN_IDENTITY))
        return false;
    key += strlen(KVERN_IDENTITY);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(key, names[i]) == 0)
            return true;
    }
    return begins(key, "user.") && key[5];
}

// Notes bear on nothing; what else is not known might.
static kvern_status check_key(void *user, const char *key, const char *value)
{
    static const char *const names[] = {"format", "version", "page_positions", "layers", "rows"};
    const kvern_file *file = user;
    (void)value;
    bool known = begins(key, KVERN_NOTE) || is_layer_key(file, key) || is_identity_key(key);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        known = known || strcmp(key, names[i]) == 0;
    if (known)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: metadata %.80s is not known", file->path, key);
}

static kvern_status read_metadata(kvern_file *file)
{
    uint64_t positions = 0, layers = 0, rows = 0;
    kvern_status status = check_version(file);
    if (!status)
        status = need_number(file, "page_positions", UINT32_MAX, &positions);
    if (!status && positions != KVERN_PAGE_POSITIONS)
        return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: pages of %" PRIu64 " positions", file->path,
                          positions);
    if (!status)
        status = need_number(file, "layers", KVERN_MAX_LAYERS, &layers);
    if (!status)
        status = need_number(file, "rows", KVERN_MAX_ROWS, &rows);
    if (status)
        return status;
    file->layers = (size_t)layers;
    file->rows = (size_t)rows;
    if (layers == 0)
        return refuse(file, "it has no layers");
    for (size_t l = 0; l < file->layers; l++) {
        if (!kvern_file_signature(file, l))
            return kvern_fail(KVERN_ERR_FORMAT, "%s: layer %zu has no signature", file->path, l);
    }
    return kvern_safetensors_each_metadata(&file->tensors, check_key, file);
}

// ---- Tensors ----

static bool is_zero(const unsigned char *bytes, size_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

// Padding is zeros; notes bear on nothing.
static kvern_status check_name(const kvern_file *file, const kvern_tensor *tensor)
{
    static const char *const names[] = {"snapshots", "records", "ranges", "flags",
                                        "page_sums", "tables",  "tokens", "sum"};
    const char *name = tensor->name;
    uint64_t layer;
    char digits[24] = "";
    if (begins(name, KVERN_NOTE))
        return KVERN_OK;
    if (begins(name, "pad."))
        return is_zero(tensor->data, tensor->bytes) ? KVERN_OK : refuse(file, "padding is not 0");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0)
            return KVERN_OK;
    }
    if (begins(name, "pages.")) {
        const size_t count = strspn(name + 6, "0123456789");
        const char *rest = name + 6 + count;
        snprintf(digits, sizeof digits, "%.*s", count < 20 ? (int)count : 20, name + 6);
        if (read_number(digits, file->layers - 1, &layer) &&
            (*rest == '\0' || strcmp(rest, ".first") == 0))
            return KVERN_OK;
    }
    return kvern_fail(KVERN_ERR_UNSUPPORTED, "%s: tensor %.80s is not known", file->path, name);
}

// What the sum of the file is about begins there: everything behind the pages.
static kvern_status check_sum(const kvern_file *file)
{
    static const char *const names[] = {"snapshots", "records", "ranges", "flags",
                                        "page_sums", "tables",  "tokens"};
    const kvern_mapping *mapping = file->tensors.mapping;
    const kvern_tensor *tensor;
    XXH3_state_t sum;
    uint64_t stored;
    kvern_status status =
        kvern_safetensors_need(&file->tensors, "sum", KVERN_DTYPE_U64, 1, &tensor);
    if (status)
        return status;
    if (tensor->bytes != sizeof stored || tensor->data + 8 != mapping->data + mapping->bytes)
        return refuse(file, "its sum is not the last thing in it");
    memcpy(&stored, tensor->data, sizeof stored);
    XXH3_64bits_reset(&sum);
    XXH3_64bits_update(&sum, mapping->data, file->tensors.data_begin);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((tensor = kvern_safetensors_find(&file->tensors, names[i])))
            XXH3_64bits_update(&sum, tensor->data, tensor->bytes);
    }
    return XXH3_64bits_digest(&sum) == stored
               ? KVERN_OK
               : refuse(file, "the checksum of its header and tables is wrong");
}

static kvern_status check_names(const kvern_file *file)
{
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < file->tensors.count && !status; i++)
        status = check_name(file, &file->tensors.tensors[i]);
    return status;
}

// A tensor whose last dimension is `width` where that is not 0, at its natural alignment. One that
// is not there has no entries.
static kvern_status find_tensor(const kvern_file *file, const char *name, kvern_dtype dtype,
                                size_t dims, size_t width, bool optional, const kvern_tensor **out)
{
    static const kvern_tensor none = {0};
    *out = &none;
    if (optional && !kvern_safetensors_find(&file->tensors, name))
        return KVERN_OK;
    kvern_status status = kvern_safetensors_need(&file->tensors, name, dtype, dims, out);
    if (status)
        return status;
    const kvern_tensor *tensor = *out;
    if ((width && tensor->shape[dims - 1] != width) ||
        (uintptr_t)tensor->data % kvern_dtypes[dtype].bytes)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: tensor %s has another shape or alignment",
                          file->path, name);
    return KVERN_OK;
}

// ---- Pages ----

static kvern_status read_page_tensor(kvern_file *file, size_t layer, bool first)
{
    char name[48];
    const kvern_tensor *tensor;
    kvern_file_pages *pages = &file->pages[2 * layer + first];
    snprintf(name, sizeof name, "pages.%zu%s", layer, first ? ".first" : "");
    kvern_status status = find_tensor(file, name, KVERN_DTYPE_U8, 2, 0, true, &tensor);
    pages->first_sum = (size_t)file->pages_in_all;
    if (status || !tensor->data)
        return status;
    if (tensor->shape[0] == 0 || tensor->shape[1] == 0 || tensor->shape[0] > UINT32_MAX ||
        tensor->shape[1] % KVERN_HEAP_ALIGNMENT ||
        (uintptr_t)tensor->data % KVERN_CONTAINER_ALIGNMENT)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: tensor %s holds no aligned pages", file->path,
                          name);
    pages->data = tensor->data;
    pages->count = (size_t)tensor->shape[0];
    pages->page_bytes = (size_t)tensor->shape[1];
    file->pages_in_all += pages->count;
    file->page_bytes_in_all += tensor->bytes;
    return KVERN_OK;
}

static kvern_status read_pages(kvern_file *file)
{
    void *block;
    const kvern_tensor *sums;
    kvern_status status = kvern_heap_take_zeroed(&file->context->heap,
                                                 2 * file->layers * sizeof file->pages[0], &block);
    if (!status)
        file->pages = block;
    for (size_t g = 0; g < 2 * file->layers && !status; g++)
        status = read_page_tensor(file, g / 2, g % 2);
    if (!status)
        status = find_tensor(file, "page_sums", KVERN_DTYPE_U64, 1, 0, false, &sums);
    if (status)
        return status;
    if (sums->shape[0] != file->pages_in_all)
        return refuse(file, "it has not one checksum for each page");
    file->sums = (const uint64_t *)sums->data;
    return KVERN_OK;
}

// ---- Rows ----

static kvern_status check_snapshot(const kvern_file *file, size_t index)
{
    const int64_t *shot = kvern_file_snapshot(file, index);
    const bool is_row = index < file->rows;
    if (shot[0] < 0 || (uint64_t)shot[0] >= file->rows || (is_row && (size_t)shot[0] != index) ||
        shot[1] < 0 || shot[1] > KVERN_MAX_POSITIONS)
        return kvern_fail(KVERN_ERR_FORMAT, "%s: snapshot %zu is of row %" PRId64 " at %" PRId64,
                          file->path, index, shot[0], shot[1]);
    if (!is_row && (shot[1] == 0 || shot[1] > kvern_file_length(file, (size_t)shot[0])))
        return kvern_fail(KVERN_ERR_FORMAT, "%s: row %" PRId64 " has a checkpoint at %" PRId64,
                          file->path, shot[0], shot[1]);
    return KVERN_OK;
}

static kvern_status read_snapshots(kvern_file *file)
{
    const kvern_tensor *tensor;
    kvern_status status = find_tensor(file, "snapshots", KVERN_DTYPE_I64, 2, 2, false, &tensor);
    if (status)
        return status;
    file->snapshots = (const int64_t *)tensor->data;
    file->snapshot_count = (size_t)tensor->shape[0];
    if (file->snapshot_count < file->rows)
        return refuse(file, "it has not a snapshot of each row");
    for (size_t i = 0; i < file->snapshot_count && !status; i++)
        status = check_snapshot(file, i);
    return status;
}

static kvern_status read_tokens(kvern_file *file)
{
    const kvern_tensor *tensor;
    kvern_status status = find_tensor(file, "tokens", KVERN_DTYPE_I32, 1, 0, true, &tensor);
    if (status || !tensor->data)
        return status;
    uint64_t wanted = 0;
    for (size_t r = 0; r < file->rows; r++)
        wanted += (uint64_t)kvern_file_length(file, r);
    if (tensor->shape[0] != wanted)
        return kvern_fail(KVERN_ERR_FORMAT,
                          "%s: %" PRIu64 " tokens, but its rows have %" PRIu64 " positions",
                          file->path, tensor->shape[0], wanted);
    file->tokens = (const int32_t *)tensor->data;
    return KVERN_OK;
}

static kvern_status check_record(const kvern_file *file, size_t set, size_t snapshot,
                                 const int64_t *fields)
{
    bool right = fields[KVERN_RECORD_CONVERTED] <= 1 &&
                 fields[KVERN_RECORD_HELD] <= fields[KVERN_RECORD_LENGTH] &&
                 fields[KVERN_RECORD_RANGES] <= KVERN_MAX_RANGES;
    for (size_t i = 0; i < KVERN_RECORD_FIELDS; i++)
        right = right && fields[i] >= 0 && fields[i] <= KVERN_MAX_POSITIONS;
    if (right)
        return KVERN_OK;
    return kvern_fail(KVERN_ERR_FORMAT, "%s: what set %zu says of snapshot %zu cannot be",
                      file->path, set, snapshot);
}

// Where each record's entries begin. Counts are below 2^40 and as many as the file has bytes, so
// that sums do not overflow once they have been checked against the tensors.
static kvern_status place_records(kvern_file *file, const int64_t *fields, size_t tables,
                                  size_t ranges, size_t flags)
{
    size_t table = 0, range = 0, flag = 0;
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < file->sets * file->snapshot_count && !status; i++) {
        status = check_record(file, i / file->snapshot_count, i % file->snapshot_count, fields);
        file->records[i] = (kvern_file_record){fields, table, range, flag};
        table += (size_t)fields[KVERN_RECORD_PAGES];
        range += (size_t)fields[KVERN_RECORD_RANGES];
        flag += (size_t)fields[KVERN_RECORD_FLAGS];
        if (!status && (table > tables || range > ranges || flag > flags))
            status = refuse(file, "its rows have more pages, ranges or flags than it has");
        fields += KVERN_RECORD_FIELDS;
    }
    if (!status && (table != tables || range != ranges || flag != flags))
        status = refuse(file, "it has pages, ranges or flags of no row");
    return status;
}

static kvern_status take_records(kvern_file *file, const kvern_tensor *records)
{
    size_t count, bytes;
    void *block;
    if (records->shape[1] != file->snapshot_count || records->shape[0] < file->layers ||
        records->shape[0] > 2 * file->layers)
        return refuse(file, "tensor records has another shape");
    file->sets = (size_t)records->shape[0];
    if (!kvern_size_mul(file->sets, file->snapshot_count, &count) ||
        !kvern_size_mul(count + 1, sizeof file->records[0], &bytes))
        return kvern_fail(KVERN_ERR_OVERFLOW, "%s: its records do not fit memory", file->path);
    kvern_status status = kvern_heap_take_zeroed(&file->context->heap, bytes, &block);
    if (!status)
        file->records = block;
    return status;
}

static kvern_status read_records(kvern_file *file)
{
    const kvern_tensor *records, *tables, *ranges, *flags;
    kvern_status status =
        find_tensor(file, "records", KVERN_DTYPE_I64, 3, KVERN_RECORD_FIELDS, false, &records);
    if (!status)
        status = find_tensor(file, "tables", KVERN_DTYPE_U32, 1, 0, false, &tables);
    if (!status)
        status = find_tensor(file, "ranges", KVERN_DTYPE_I64, 2, 2, true, &ranges);
    if (!status)
        status = find_tensor(file, "flags", KVERN_DTYPE_U64, 1, 0, true, &flags);
    if (!status)
        status = take_records(file, records);
    if (status)
        return status;
    file->tables = (const uint32_t *)tables->data;
    file->ranges = (const int64_t *)ranges->data;
    file->flags = (const uint64_t *)flags->data;
    return place_records(file, (const int64_t *)records->data, (size_t)tables->shape[0],
                         (size_t)ranges->shape[0], (size_t)flags->shape[0]);
}

static kvern_status read_file(kvern_file *file)
{
    kvern_status status = read_metadata(file);
    if (!status)
        status = check_names(file);
    if (!status)
        status = check_sum(file);
    if (!status)
        status = read_pages(file);
    if (!status)
        status = read_snapshots(file);
    if (!status)
        status = read_tokens(file);
    return status ? status : read_records(file);
}

// ---- Life ----

// Keeps the path, for messages.
static kvern_status make_file(kvern_context *context, const char *path, kvern_file **out)
{
    void *file, *copy;
    const size_t bytes = strlen(path) + 1;
    kvern_status status = kvern_heap_take_zeroed(&context->heap, sizeof **out, &file);
    if (status)
        return status;
    if ((status = kvern_heap_take(&context->heap, bytes, KVERN_HEAP_ALIGNMENT, &copy))) {
        kvern_heap_give(&context->heap, file, sizeof **out, KVERN_HEAP_ALIGNMENT);
        return status;
    }
    *out = file;
    kvern_context_retain(context);
    (*out)->context = context;
    (*out)->path = memcpy(copy, path, bytes);
    return KVERN_OK;
}

// `mapping` NULL: the file of that path.
static kvern_status open_file(kvern_context *context, const char *path, kvern_mapping *mapping,
                              kvern_file **out)
{
    kvern_file *file = NULL;
    kvern_status status = make_file(context, path, &file);
    if (status)
        return status;
    status = mapping ? kvern_safetensors_read(mapping, file->path, &file->tensors)
                     : kvern_safetensors_open(context, file->path, &file->tensors);
    if (!status)
        status = read_file(file);
    if (status)
        kvern_file_close(file);
    else
        *out = file;
    return status;
}

kvern_status kvern_file_open(kvern_context *context, const char *path, kvern_file **out)
{
    if (out)
        *out = NULL;
    if (!context || !path || !out)
        return kvern_fail(KVERN_ERR_ARGUMENT, "context, path or out is NULL");
    kvern_status status = kvern_container_check_machine();
    return status ? status : open_file(context, path, NULL, out);
}

kvern_status kvern_file_open_memory(kvern_context *context, const void *data, size_t bytes,
                                    kvern_file **out)
{
    kvern_mapping *mapping;
    *out = NULL;
    kvern_status status = kvern_mapping_of(context, data, bytes, &mapping);
    if (status)
        return status;
    status = open_file(context, "memory", mapping, out);
    kvern_mapping_release(mapping);
    return status;
}

void kvern_file_close(kvern_file *file)
{
    if (!file)
        return;
    kvern_context *context = file->context;
    kvern_heap *heap = &context->heap;
    if (file->records)
        kvern_heap_give(heap, file->records,
                        (file->sets * file->snapshot_count + 1) * sizeof file->records[0],
                        KVERN_HEAP_ALIGNMENT);
    if (file->pages)
        kvern_heap_give(heap, file->pages, 2 * file->layers * sizeof file->pages[0],
                        KVERN_HEAP_ALIGNMENT);
    kvern_safetensors_close(&file->tensors);
    kvern_heap_give(heap, file->path, strlen(file->path) + 1, KVERN_HEAP_ALIGNMENT);
    kvern_heap_give(heap, file, sizeof *file, KVERN_HEAP_ALIGNMENT);
    kvern_context_release(context);
}

// ---- Facts ----

void kvern_file_facts_init(kvern_file_facts *facts, size_t size)
{
    const kvern_file_facts none = {0};
    kvern_sized_init(&facts_sizes, &none, facts, size);
}

kvern_status kvern_file_get_facts(const kvern_file *file, kvern_file_facts *facts)
{
    if (!file || !facts)
        return kvern_fail(KVERN_ERR_ARGUMENT, "file or facts is NULL");
    kvern_status status = kvern_sized_check_output(&facts_sizes, facts);
    if (status)
        return status;
    const char *name;
    kvern_file_facts known = {
        .size = sizeof known,
        .version = KVERN_FILE_VERSION,
        .file_bytes = file->tensors.mapping->bytes,
        .page_bytes = file->page_bytes_in_all,
        .pages = file->pages_in_all,
        .layers = file->layers,
        .rows = file->rows,
        .checkpoints = file->snapshot_count - file->rows,
    };
    while (kvern_file_identity_at(file, known.keys, &name))
        known.keys++;
    kvern_sized_write(&facts_sizes, &known, facts);
    return KVERN_OK;
}

int64_t kvern_file_length(const kvern_file *file, size_t row)
{
    return row < file->rows ? kvern_file_snapshot(file, row)[1] : -1;
}

const int32_t *kvern_file_tokens(const kvern_file *file, size_t row)
{
    const int32_t *tokens = file->tokens;
    if (!tokens || kvern_file_length(file, row) <= 0)
        return NULL;
    for (size_t r = 0; r < row; r++)
        tokens += kvern_file_length(file, r);
    return tokens;
}

// By repeated search: rows have few checkpoints.
size_t kvern_file_checkpoints(const kvern_file *file, size_t row, int64_t *positions,
                              size_t capacity)
{
    size_t count = 0;
    for (int64_t below = INT64_MAX;;) {
        int64_t next = 0;
        for (size_t i = file->rows; i < file->snapshot_count; i++) {
            const int64_t *shot = kvern_file_snapshot(file, i);
            if ((size_t)shot[0] == row && shot[1] < below && shot[1] > next)
                next = shot[1];
        }
        if (next == 0)
            return count;
        if (count < capacity)
            positions[count] = next;
        count++;
        below = next;
    }
}

const char *kvern_file_signature(const kvern_file *file, size_t layer)
{
    char key[32];
    if (layer >= file->layers)
        return NULL;
    snprintf(key, sizeof key, "layer.%zu", layer);
    return kvern_safetensors_metadata(&file->tensors, key);
}
