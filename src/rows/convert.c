// SPDX-License-Identifier: MIT
#include "src/rows/convert.h"

#include <kvern/composition.h>
#include <string.h>

static bool is_shared(const kvern_table *table)
{
    if (kvern_table_is_shared(table))
        return true;
    for (size_t i = 0; table && i < table->count; i++) {
        if (!kvern_page_is_exclusive(table->pages[i]))
            return true;
    }
    return false;
}

kvern_status kvern_conversion_prepare(kvern_pool *pool, const kvern_row *row, size_t count,
                                      bool shared, kvern_conversion *conversion)
{
    memset(conversion, 0, sizeof *conversion);
    kvern_status status = kvern_table_create(pool, count, &conversion->table);
    if (status)
        return status;
    if (shared || is_shared(row->table)) {
        status = kvern_pool_take(pool, count, conversion->table->pages);
        conversion->taken = status ? 0 : count;
    } else {
        status = kvern_pool_take(pool, 1, &conversion->spare);
    }
    conversion->table->count = conversion->taken;
    if (status)
        kvern_conversion_cancel(conversion);
    return status;
}

void kvern_conversion_cancel(kvern_conversion *conversion)
{
    kvern_table_release(conversion->table);
    if (conversion->spare)
        kvern_page_release(conversion->spare);
    memset(conversion, 0, sizeof *conversion);
}

// One KV head of a page; both codecs see the values in f32, which holds them exactly.
static void convert_head(const kvern_geometry *from, const kvern_geometry *to, void *old,
                         void *fresh, size_t head, size_t slots)
{
    float values[KVERN_MAX_HEAD_DIM];
    for (size_t slot = 0; slot < slots; slot++) {
        from->k_layout->decode(&from->k_codec, KVERN_STREAM_K, kvern_page_k(from, old, head),
                               from->k_dim, slot, values);
        to->k_kernels.encode(&to->k_codec, KVERN_STREAM_K, kvern_page_k(to, fresh, head), to->k_dim,
                             slot, KVERN_F32, values);
        from->v_layout->decode(&from->v_codec, KVERN_STREAM_V, kvern_page_v(from, old, head),
                               from->v_dim, slot, values);
        to->v_kernels.encode(&to->v_codec, KVERN_STREAM_V, kvern_page_v(to, fresh, head), to->v_dim,
                             slot, KVERN_F32, values);
    }
}

static void convert_page(const kvern_geometry *from, const kvern_geometry *to,
                         const kvern_page *old, const kvern_page *fresh, size_t slots)
{
    for (size_t head = 0; head < from->kv_heads; head++)
        convert_head(from, to, old->data, fresh->data, head, slots);
}

// The new form of a page that nobody else sees; the old one is gone afterwards.
static kvern_page *replace_page(const kvern_geometry *from, const kvern_geometry *to,
                                kvern_pool *pool, kvern_page *old, kvern_page *spare, size_t slots)
{
    kvern_page *fresh;
    if (kvern_pool_take(pool, 1, &fresh) == KVERN_OK) {
        convert_page(from, to, old, fresh, slots);
        kvern_page_release(old);
        return fresh;
    }
    convert_page(from, to, old, spare, slots);
    memcpy(old->data, spare->data, to->page_bytes);
    return old;
}

void kvern_conversion_commit(const kvern_geometry *from, const kvern_geometry *to, kvern_row *row,
                             kvern_conversion *conversion)
{
    kvern_table *old = row->table, *table = conversion->table;
    const size_t count = kvern_table_used(old, row->length);
    for (size_t i = 0; i < count; i++) {
        const bool last = i + 1 == count && row->length % KVERN_PAGE_POSITIONS != 0;
        const size_t slots =
            last ? (size_t)row->length % KVERN_PAGE_POSITIONS : (size_t)KVERN_PAGE_POSITIONS;
        if (i < conversion->taken)
            convert_page(from, to, old->pages[i], table->pages[i], slots);
        else
            table->pages[i] =
                replace_page(from, to, table->pool, old->pages[i], conversion->spare, slots);
    }
    table->count = count;
    table->kept = old->kept;
    table->gap = old->gap;
    if (!conversion->taken) // the pages have moved
        kvern_table_forget(old, count);
    kvern_table_release(old);
    if (conversion->spare)
        kvern_page_release(conversion->spare);
    row->table = table;
    row->converted = true;
    memset(conversion, 0, sizeof *conversion);
}
