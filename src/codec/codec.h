// SPDX-License-Identifier: MIT
#ifndef KVERN_CODEC_CODEC_H
#define KVERN_CODEC_CODEC_H

// The codecs that there are. What a codec is: codec_type.h.

#include "src/codec/codec_type.h"

// NULL for a codec that does not exist.
const kvern_codec_type *kvern_codec_type_of(const kvern_codec *codec);

// Whether the blocks of the two are the same. A codec that does not exist is equal to none.
bool kvern_codec_equal(const kvern_codec *a, const kvern_codec *b);

// Whether its codes come with biases, when they are handed out.
bool kvern_codec_has_biases(const kvern_codec *codec);

// Whether a word is set that no kind of codec has a use for yet.
static inline bool kvern_codec_has_reserved(const kvern_codec *codec)
{
    return codec->reserved[0] || codec->reserved[1];
}

#endif
