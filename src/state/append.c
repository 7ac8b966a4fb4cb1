// SPDX-License-Identifier: MIT
// Appends: check the caller's view, take all room, then store.
#include "src/base/fail.h"
#include "src/base/size.h"
#include "src/math/fpenv.h"
#include "src/state/cache.h"

#include <inttypes.h>
#include <string.h>

kvern_tokens kvern_tokens_default(const kvern_layer *layer)
{
    kvern_tokens t;
    memset(&t, 0, sizeof t);
    t.size = sizeof t;
    t.k_type = t.v_type = KVERN_F32;
    t.k_head_stride = (int64_t)layer->k_dim;
    t.v_head_stride = (int64_t)layer->v_dim;
    t.k_token_stride = (int64_t)(layer->kv_heads * layer->k_dim);
    t.v_token_stride = (int64_t)(layer->kv_heads * layer->v_dim);
    return t;
}

// One of the two tensors of a view.
typedef struct tensor {
    const char *name;
    const char *data;
    kvern_type type;
    int64_t token_stride, head_stride;
    const int64_t *start;
    int64_t dim;
} tensor;

static tensor k_of(const kvern_tokens *t, const kvern_geometry *g)
{
    return (tensor){
        "k", t->k, t->k_type, t->k_token_stride, t->k_head_stride, t->k_start, (int64_t)g->k_dim};
}

static tensor v_of(const kvern_tokens *t, const kvern_geometry *g)
{
    return (tensor){
        "v", t->v, t->v_type, t->v_token_stride, t->v_head_stride, t->v_start, (int64_t)g->v_dim};
}

kvern_status kvern_cache_check_counts(const kvern_cache *cache, const int64_t *counts, int64_t most)
{
    if (cache->row_count && !counts)
        return kvern_fail(KVERN_ERR_ARGUMENT, "counts is NULL");
    for (size_t r = 0; r < cache->row_count; r++) {
        if (counts[r] < 0 || counts[r] > most)
            return kvern_fail(KVERN_ERR_RANGE, "row %zu: %" PRId64 " tokens, not 0 to %" PRId64, r,
                              counts[r], most);
        if (counts[r] > KVERN_MAX_POSITIONS - cache->rows[r].length)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " positions and %" PRId64 " more", r,
                              cache->rows[r].length, counts[r]);
    }
    return KVERN_OK;
}

// Every index that the append will form must fit; the pointers are the caller's word.
static kvern_status check_tensor(const tensor *t, const int64_t *counts, size_t rows, size_t heads)
{
    int64_t packed = 0;
    if (!kvern_type_bytes(t->type))
        return kvern_fail(KVERN_ERR_ARGUMENT, "%s: unknown element type %d", t->name, (int)t->type);
    if (t->token_stride < 0 || t->head_stride < 0)
        return kvern_fail(KVERN_ERR_RANGE, "%s: a stride is negative", t->name);
    for (size_t r = 0; r < rows; r++) {
        if (counts[r] == 0)
            continue;
        const int64_t start = t->start ? t->start[r] : packed;
        int64_t end, a, b;
        if (!t->data)
            return kvern_fail(KVERN_ERR_ARGUMENT, "%s is NULL", t->name);
        if (start < 0)
            return kvern_fail(KVERN_ERR_RANGE, "%s: row %zu starts at %" PRId64, t->name, r, start);
        if (!kvern_i64_add(start, counts[r], &end) || !kvern_i64_mul(end, t->token_stride, &a) ||
            !kvern_i64_mul((int64_t)heads, t->head_stride, &b) || !kvern_i64_add(a, b, &a) ||
            !kvern_i64_add(a, t->dim, &a) || !kvern_i64_mul(a, (int64_t)sizeof(float), &a))
            return kvern_fail(KVERN_ERR_OVERFLOW, "%s: an index of row %zu does not fit", t->name,
                              r);
        if (!t->start)
            packed = end;
    }
    return KVERN_OK;
}

static kvern_status check_tokens(const kvern_cache *cache, const kvern_tokens *tokens,
                                 const int64_t *counts)
{
    const kvern_geometry *g = &kvern_cache_planned(cache)->geometry;
    if (tokens->size != sizeof *tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "kvern_tokens.size is %zu, expected %zu",
                          tokens->size, sizeof *tokens);
    const tensor k = k_of(tokens, g), v = v_of(tokens, g);
    kvern_status status = check_tensor(&k, counts, cache->row_count, g->kv_heads);
    return status ? status : check_tensor(&v, counts, cache->row_count, g->kv_heads);
}

static const void *values_of(const tensor *t, int64_t token, size_t head)
{
    const int64_t at = token * t->token_stride + (int64_t)head * t->head_stride;
    return t->data + (size_t)at * kvern_type_bytes(t->type);
}

// Encodes one token of one row into its slot.
static void store_token(const kvern_geometry *g, void *page, size_t slot, const tensor *k,
                        int64_t k_token, const tensor *v, int64_t v_token)
{
    for (size_t h = 0; h < g->kv_heads; h++) {
        g->k_kernels.encode(&g->k_codec, KVERN_STREAM_K, kvern_page_k(g, page, h), g->k_dim, slot,
                            k->type, values_of(k, k_token, h));
        g->v_kernels.encode(&g->v_codec, KVERN_STREAM_V, kvern_page_v(g, page, h), g->v_dim, slot,
                            v->type, values_of(v, v_token, h));
    }
}

static void store_row(const kvern_geometry *g, kvern_row *row, int64_t count, const tensor *k,
                      int64_t k_start, const tensor *v, int64_t v_start)
{
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)row->length;
        void *page = kvern_table_page(row->table, at / KVERN_PAGE_POSITIONS)->data;
        store_token(g, page, at % KVERN_PAGE_POSITIONS, k, k_start + i, v, v_start + i);
        row->length++;
    }
}

static void store_all(kvern_cache *cache, const kvern_tokens *tokens, const int64_t *counts)
{
    const kvern_geometry *planned = &kvern_cache_planned(cache)->geometry;
    const tensor k = k_of(tokens, planned), v = v_of(tokens, planned);
    int64_t packed = 0;
    const kvern_fp_saved saved = kvern_fp_enter();
    for (size_t r = 0; r < cache->row_count; r++) {
        const kvern_geometry *g = kvern_cache_form(cache, &cache->rows[r]).geometry;
        store_row(g, &cache->rows[r], counts[r], &k, k.start ? k.start[r] : packed, &v,
                  v.start ? v.start[r] : packed);
        packed += counts[r];
    }
    kvern_fp_leave(saved);
}

// The read's own copy of the geometry that the row has now.
static const kvern_geometry *geometry_in(const kvern_cache *cache, const kvern_row *row,
                                         const kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    return kvern_cache_form(cache, row).geometry == &layer->first ? &read->first : &read->geometry;
}

void kvern_cache_fill_read(const kvern_cache *cache, const int64_t *counts, kvern_read *read)
{
    const kvern_planned_layer *layer = kvern_cache_planned(cache);
    read->geometry = layer->geometry;
    read->first = layer->first;
    read->window = layer->window;
    for (size_t r = 0; r < cache->row_count; r++) {
        const kvern_row *row = &cache->rows[r];
        kvern_table_retain(row->table);
        read->rows[r] = (kvern_read_row){row->table, geometry_in(cache, row, read),
                                         row->length - counts[r], row->length};
    }
}

kvern_status kvern_cache_append(kvern_cache *cache, const kvern_tokens *tokens,
                                const int64_t *counts, bool settle, kvern_read **read)
{
    kvern_status status = check_tokens(cache, tokens, counts);
    if (status)
        return status;
    if ((status = kvern_cache_prepare(cache, counts, 0, 0)))
        return status;
    kvern_read *made = NULL;
    if (settle)
        status = kvern_cache_prepare_settling(cache, counts, true, read != NULL);
    if (!status && read) {
        status = kvern_read_create(kvern_cache_context(cache), cache->row_count, &made);
        if (status && settle)
            kvern_cache_cancel_settling(cache);
    }
    if (status) {
        kvern_cache_cancel(cache);
        return status;
    }
    kvern_cache_commit(cache);
    store_all(cache, tokens, counts);
    if (read) {
        kvern_cache_fill_read(cache, counts, made);
        *read = made;
    }
    if (settle)
        kvern_cache_commit_settling(cache, counts);
    return KVERN_OK;
}

static kvern_status check_donor(const kvern_cache *cache, const int64_t *counts)
{
    if (!cache || (cache->row_count && !counts))
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or counts is NULL");
    const kvern_window *window = &kvern_cache_planned(cache)->window;
    for (size_t r = 0; r < cache->row_count; r++) {
        const kvern_row *row = &cache->rows[r];
        if (counts[r] < 0 || counts[r] > row->length)
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: %" PRId64 " queries at %" PRId64 " positions", r, counts[r],
                              row->length);
        const kvern_read_row seen = {.base = row->length - counts[r], .length = row->length};
        if (!kvern_visibility_is_held(window, &seen, row->held))
            return kvern_fail(KVERN_ERR_RANGE,
                              "row %zu: the window of position %" PRId64 " is not held any more", r,
                              row->length - counts[r]);
    }
    return KVERN_OK;
}

kvern_status kvern_cache_read_donor(const kvern_cache *cache, const int64_t *counts,
                                    kvern_read **read)
{
    if (!read)
        return kvern_fail(KVERN_ERR_ARGUMENT, "read is NULL");
    *read = NULL;
    kvern_status status = check_donor(cache, counts);
    if (!status)
        status = kvern_read_create(kvern_cache_context(cache), cache->row_count, read);
    if (!status)
        kvern_cache_fill_read(cache, counts, *read);
    return status;
}

static kvern_status append_alone(kvern_cache *cache, const kvern_tokens *tokens, int64_t most,
                                 kvern_read **read)
{
    if (read)
        *read = NULL;
    if (!cache || !tokens)
        return kvern_fail(KVERN_ERR_ARGUMENT, "cache or tokens is NULL");
    kvern_status status = kvern_cache_check_alone(cache);
    if (!status)
        status = kvern_cache_check_counts(cache, tokens->counts, most);
    return status ? status : kvern_cache_append(cache, tokens, tokens->counts, true, read);
}

kvern_status kvern_cache_append_decode(kvern_cache *cache, const kvern_tokens *tokens,
                                       kvern_read **read)
{
    return append_alone(cache, tokens, 1, read);
}

kvern_status kvern_cache_append_window(kvern_cache *cache, const kvern_tokens *tokens,
                                       kvern_read **read)
{
    return append_alone(cache, tokens, KVERN_MAX_POSITIONS, read);
}

// In canonical arithmetic every query of a window is computed like a decode at its position
// already, which is all that a known span asks for.
kvern_status kvern_cache_append_known(kvern_cache *cache, const kvern_tokens *tokens,
                                      kvern_read **read)
{
    return append_alone(cache, tokens, KVERN_MAX_POSITIONS, read);
}
