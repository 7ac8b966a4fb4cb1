// SPDX-License-Identifier: MIT
#include "engine/model/head_products.h"

#include "engine/model/carve.h"
#include "engine/model/forward.h"

bool head_scratch_carve(head_scratch *s, unsigned char *memory, size_t *bytes, size_t max_tokens,
                        uint32_t formats)
{
    const size_t heads = s->sizes.heads;
    size_t input;
    return heads == 0 ||
           (carve_take(memory, bytes, &s->matrices, heads, sizeof *s->matrices) &&
            carve_take(memory, bytes, &s->jobs, heads, sizeof *s->jobs) &&
            carve_take(memory, bytes, &s->inputs, heads, sizeof *s->inputs) &&
            linear_input_bytes(s->sizes.cols, max_tokens, formats, &input) == KVERN_OK &&
            carve_take(memory, bytes, &s->input, heads, input));
}

static void input_rows(const forward_pass *pass, const void *arg, size_t begin, size_t end,
                       float *unused)
{
    (void)unused;
    const head_vectors *x = arg;
    const head_scratch *s = &pass->workspace->heads;
    for (size_t t = begin; t < end; t++) {
        for (size_t h = 0; h < s->sizes.heads; h++) {
            linear_input_row(&s->inputs[h], t, x->data + t * x->token + h * x->head);
        }
    }
}

kvern_status forward_heads(const forward_pass *pass, const linear_stack *stack, head_vectors x,
                           head_vectors y, engine_error *error)
{
    const head_scratch *s = &pass->workspace->heads;
    const uint32_t formats = LINEAR_FORMAT_BIT(stack->first.format);
    const size_t cols = stack->first.cols, heads = stack->count;
    size_t bytes;
    kvern_status status = linear_input_bytes(cols, pass->tokens, formats, &bytes);
    if (status != KVERN_OK) {
        return engine_fail(error, status, "inputs of heads do not fit the address space");
    }
    for (size_t h = 0; h < heads; h++) {
        s->matrices[h] = linear_stack_at(stack, h);
        linear_input_init(&s->inputs[h], s->input + h * bytes, cols, pass->tokens, formats,
                          pass->features);
        s->jobs[h] = (linear_job){.weights = &s->matrices[h],
                                  .input = &s->inputs[h],
                                  .y = y.data + h * y.head,
                                  .y_stride = y.token};
    }
    forward_each_token(pass, pass->tokens, cols * heads, input_rows, &x);
    return forward_apply(pass, s->jobs, heads, error);
}
