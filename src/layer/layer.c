// SPDX-License-Identifier: MIT
// The kinds of layers.
#include "src/layer/layer.h"

#include "src/layer/attention/attention.h"

static const struct {
    kvern_layer_kind kind;
    const kvern_layer_ops *ops;
} KINDS[] = {
    {KVERN_LAYER_FULL, &kvern_attention_layer},
    {KVERN_LAYER_WINDOW, &kvern_attention_layer},
};

const kvern_layer_ops *kvern_layer_ops_of(kvern_layer_kind kind)
{
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        if (KINDS[i].kind == kind)
            return KINDS[i].ops;
    }
    return NULL;
}
