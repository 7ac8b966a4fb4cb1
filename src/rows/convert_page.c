// SPDX-License-Identifier: MIT
#include "src/rows/convert_page.h"

#include <string.h>

// Bytes of the largest block of bf16.
#define MOST_BLOCK_BYTES ((size_t)KVERN_PAGE_POSITIONS * KVERN_MAX_HEAD_DIM * 2)

// The keys or the values of one head. Both codecs see them in f32, which holds them exactly.
static void convert_block(const kvern_geometry *from, const kvern_geometry *to, kvern_stream stream,
                          const void *old, void *fresh, size_t slots)
{
    const bool k = stream == KVERN_STREAM_K;
    const size_t dim = k ? from->k_dim : from->v_dim;
    const kvern_codec *old_codec = k ? &from->k_codec : &from->v_codec;
    const kvern_codec *new_codec = k ? &to->k_codec : &to->v_codec;
    const kvern_codec_layout *layout = k ? from->k_layout : from->v_layout;
    kvern_encode_fn *encode = k ? to->k_kernels.encode : to->v_kernels.encode;
    float values[KVERN_MAX_HEAD_DIM];
    for (size_t slot = 0; slot < slots; slot++) {
        layout->decode(old_codec, stream, old, dim, slot, values);
        encode(new_codec, stream, fresh, dim, slot, KVERN_F32, values);
    }
}

void kvern_convert_page(const kvern_geometry *from, const kvern_geometry *to, void *old,
                        void *fresh, size_t slots)
{
    for (size_t head = 0; head < from->kv_heads; head++) {
        convert_block(from, to, KVERN_STREAM_K, kvern_page_k(from, old, head),
                      kvern_page_k(to, fresh, head), slots);
        convert_block(from, to, KVERN_STREAM_V, kvern_page_v(from, old, head),
                      kvern_page_v(to, fresh, head), slots);
    }
}

// The new form may lie over the old one: all of that is read before any of it is written.
static void move_block(const kvern_geometry *from, const kvern_geometry *to, kvern_stream stream,
                       const void *old, void *fresh, size_t slots)
{
    _Alignas(64) char copy[MOST_BLOCK_BYTES];
    memcpy(copy, old, stream == KVERN_STREAM_K ? from->k_block_bytes : from->v_block_bytes);
    convert_block(from, to, stream, copy, fresh, slots);
}

// Block by block in the order of the page, where keys do not grow. No block's new form then ends
// behind its old one, so what is written lies over blocks that have been read. For keys that is
// clear. For the values of head h: their new form ends by
//     heads * (old K - new K) + (h + 1) * (old V - new V)
// bytes before the old one, K and V the bytes of a block. That is linear in h; before the first
// value (h = -1) it is not negative, because keys do not grow; nor is it after the last one,
// because the page does not. So it is negative nowhere between them.
static void convert_ascending(const kvern_geometry *from, const kvern_geometry *to, void *page,
                              size_t slots)
{
    for (size_t head = 0; head < from->kv_heads; head++)
        move_block(from, to, KVERN_STREAM_K, kvern_page_k(from, page, head),
                   kvern_page_k(to, page, head), slots);
    for (size_t head = 0; head < from->kv_heads; head++)
        move_block(from, to, KVERN_STREAM_V, kvern_page_v(from, page, head),
                   kvern_page_v(to, page, head), slots);
}

// Keys grow, which f32 does; so values shrink. These first, in ascending order, packed from where
// they began; then all of them move up to where they belong. That is behind all keys, whose blocks
// are now written from the last one down: the new one of head h begins at h * new K, where the old
// ones before it have ended, at h * old K or earlier.
static void convert_growing_keys(const kvern_geometry *from, const kvern_geometry *to, void *page,
                                 size_t slots)
{
    char *packed = kvern_page_v(from, page, 0);
    for (size_t head = 0; head < from->kv_heads; head++)
        move_block(from, to, KVERN_STREAM_V, kvern_page_v(from, page, head),
                   packed + head * to->v_block_bytes, slots);
    memmove(kvern_page_v(to, page, 0), packed, to->kv_heads * to->v_block_bytes);
    for (size_t head = from->kv_heads; head-- > 0;)
        move_block(from, to, KVERN_STREAM_K, kvern_page_k(from, page, head),
                   kvern_page_k(to, page, head), slots);
}

void kvern_convert_in_place(const kvern_geometry *from, const kvern_geometry *to, void *page,
                            size_t slots)
{
    if (to->k_block_bytes <= from->k_block_bytes)
        convert_ascending(from, to, page, slots);
    else
        convert_growing_keys(from, to, page, slots);
}
