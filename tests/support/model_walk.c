// SPDX-License-Identifier: MIT
#include "tests/support/model_walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Models above this are left alone: what is searched for is in small ones.
#define MOST_BYTES ((size_t)64 << 20)

#define PROMISE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

// Every byte that a tensor has can be read.
static void walk_tensors(const weights *w)
{
    volatile unsigned char sum = 0;
    for (size_t i = 0; i < weights_tensor_count(w); i++) {
        const weights_tensor *tensor = weights_tensor_at(w, i);
        const unsigned char *data = tensor->data;
        PROMISE(tensor->known || (!data && tensor->bytes == 0));
        for (size_t b = 0; b < tensor->bytes; b++) {
            sum = (unsigned char)(sum + data[b]);
        }
    }
    PROMISE(!weights_tensor_at(w, weights_tensor_count(w)));
}

static void forward(const model *model, kvern_context *context)
{
    kvern_composition *plan;
    kvern_state *state;
    model_workspace *workspace;
    const model_facts *facts = model_get_facts(model);
    float *logits = malloc(facts->vocabulary * sizeof *logits);
    PROMISE(logits);
    if (model_composition(facts, context, NULL, &plan, NULL) == KVERN_OK) {
        PROMISE(kvern_state_create(plan, 1, &state) == KVERN_OK);
        PROMISE(model_workspace_create(model, 2, 1, &workspace, NULL) == KVERN_OK);
        const int32_t tokens[] = {0, (int32_t)facts->vocabulary - 1};
        const int64_t count = 2;
        const model_step step = {
            .phase = KVERN_PHASE_WINDOW, .tokens = tokens, .counts = &count, .logits = logits};
        PROMISE(model_forward(model, workspace, state, &step, NULL) == KVERN_OK);
        model_workspace_destroy(workspace);
        kvern_state_destroy(state);
        kvern_composition_release(plan);
    }
    free(logits);
}

static bool is_small(const model_facts *facts)
{
    size_t inner = 0;
    for (size_t i = 0; i < facts->layers; i++) {
        inner += facts->layer[i].feed_forward + facts->layer[i].heads;
    }
    return facts->packed_bytes < MOST_BYTES && facts->width < 65536 && inner < 65536;
}

void model_walk(model_source *source)
{
    static model_facts facts;
    model_key key;
    engine_error error = {0};
    walk_tensors(model_source_weights(source));
    for (size_t i = 0; model_judge_key(source, i, &key); i++) {
        PROMISE(key.name.size > 0 && key_verdict_name(key.verdict));
    }
    kvern_status status = model_read_facts(source, &facts, &error);
    PROMISE(status == error.status && (status == KVERN_OK || error.text[0]));
    if (status != KVERN_OK || !is_small(&facts)) {
        model_source_close(source);
        return;
    }
    kvern_context_options options = kvern_context_options_default();
    options.threads = 1;
    kvern_context *context;
    model *model;
    PROMISE(kvern_context_create(&options, &context) == KVERN_OK);
    if (model_load(source, NULL, context, NULL, NULL, &model, &error) == KVERN_OK) {
        forward(model, context);
        model_close(model);
    } else {
        model_source_close(source);
    }
    kvern_context_release(context);
}
