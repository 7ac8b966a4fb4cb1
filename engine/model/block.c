// SPDX-License-Identifier: MIT
#include "engine/model/block.h"

kvern_status block_load(model_tensors *tensors, const model_facts *facts, size_t layer, block *out)
{
    size_t width = facts->width;
    size_t inner = facts->feed_forward;
    const struct {
        const char *name;
        size_t rows, cols;
        linear *matrix;
    } matrices[] = {
        {"attn_q.weight", facts->heads * facts->head_dim, width, &out->q},
        {"attn_k.weight", facts->kv_heads * facts->head_dim, width, &out->k},
        {"attn_v.weight", facts->kv_heads * facts->value_dim, width, &out->v},
        {"attn_output.weight", width, facts->heads * facts->value_dim, &out->output},
        {"ffn_gate.weight", inner, width, &out->gate},
        {"ffn_up.weight", inner, width, &out->up},
        {"ffn_down.weight", width, inner, &out->down},
    };
    kvern_status status = KVERN_OK;
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0] && status == KVERN_OK; i++) {
        model_tensor_name name;
        status = model_tensors_matrix(tensors, model_layer_tensor(name, layer, matrices[i].name),
                                      matrices[i].rows, matrices[i].cols, matrices[i].matrix);
    }
    return status;
}

kvern_status block_project(const block *block, const forward_pass *pass, const float *norm,
                           engine_error *error)
{
    model_workspace *w = pass->workspace;
    const linear *readers[] = {&block->q, &block->k, &block->v};
    forward_norm_input(pass, norm, readers, 3);
    const linear_job projections[] = {
        forward_product(pass, &block->q, w->q, false),
        forward_product(pass, &block->k, w->k, false),
        forward_product(pass, &block->v, w->v, false),
    };
    return forward_apply(pass, projections, 3, error);
}

kvern_status block_attend(const block *block, const forward_pass *pass, size_t layer, float *y,
                          bool add, engine_error *error)
{
    kvern_status status = forward_attend(pass, layer, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_plain_input(pass, pass->workspace->mixed, &block->output);
    const linear_job output = forward_product(pass, &block->output, y, add);
    return forward_apply(pass, &output, 1, error);
}

kvern_status block_feed_forward(const block *block, const forward_pass *pass, const float *norm,
                                forward_activation activation, float *y, bool add,
                                engine_error *error)
{
    model_workspace *w = pass->workspace;
    const linear *readers[] = {&block->gate, &block->up};
    forward_norm_input(pass, norm, readers, 2);
    const linear_job projections[] = {
        forward_product(pass, &block->gate, w->gate, false),
        forward_product(pass, &block->up, w->up, false),
    };
    kvern_status status = forward_apply(pass, projections, 2, error);
    if (status != KVERN_OK) {
        return status;
    }
    forward_gated_input(pass, activation, &block->down);
    const linear_job down = forward_product(pass, &block->down, y, add);
    return forward_apply(pass, &down, 1, error);
}
