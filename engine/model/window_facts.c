// SPDX-License-Identifier: MIT
#include "engine/model/window_facts.h"

// What a layer with the window is.
typedef struct window_facts {
    size_t window;
    uint32_t rope;
} window_facts;

static void set_windowed(model_layer_facts *layer, const window_facts *window)
{
    layer->kind = MODEL_LAYER_WINDOW;
    layer->window = (uint32_t)window->window;
    layer->rope = window->rope;
}

// The list of a file says of every layer whether it has the window.
static kvern_status read_window_list(const facts_reader *reader, const config_value *list,
                                     const window_facts *window, model_facts *facts)
{
    bool right = list->count == facts->layers;
    for (size_t i = 0; i < facts->layers && right; i++) {
        config_value kind = config_element(list, i);
        bool windowed = kind.flag || text_view_is(kind.text, "sliding_attention");
        right = kind.kind == CONFIG_FLAG || windowed || text_view_is(kind.text, "full_attention");
        if (windowed) {
            set_windowed(&facts->layer[i], window);
        }
    }
    return right ? KVERN_OK
                 : engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s must be a number, or a list of %zu kinds of layers", reader->key,
                               facts->layers);
}

// A config.json may have the list and how often a layer is full besides, which readers that do not
// know the list go by.
static kvern_status check_interval(facts_reader *reader, const model_facts *facts)
{
    size_t full_every = facts->layers + 1;
    config_value stated = facts_find(reader, "attention.full_every");
    if (stated.kind == CONFIG_ABSENT) {
        return KVERN_OK;
    }
    kvern_status status =
        facts_read_size(reader, "attention.full_every", FACTS_MAX_COUNT, &full_every);
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        if ((facts->layer[i].kind == MODEL_LAYER_FULL) != ((i + 1) % full_every == 0)) {
            return engine_fail(reader->error, KVERN_ERR_FORMAT,
                               "%s is %zu, but layer %zu is another one in the list of layers",
                               reader->key, full_every, i);
        }
    }
    return status;
}

kvern_status facts_read_windows(facts_reader *reader, size_t full_every, uint32_t rope,
                                model_facts *facts)
{
    static const char key[] = "attention.sliding_window_pattern";
    window_facts window = {.rope = rope};
    kvern_status status =
        facts_read_size(reader, "attention.sliding_window", FACTS_MAX_COUNT, &window.window);
    config_value value = facts_find(reader, key);
    if (status == KVERN_OK && value.kind == CONFIG_LIST) {
        status = read_window_list(reader, &value, &window, facts);
        return status == KVERN_OK ? check_interval(reader, facts) : status;
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, key, FACTS_MAX_COUNT, &full_every);
    }
    if (status == KVERN_OK) {
        status = facts_read_size(reader, "attention.full_every", FACTS_MAX_COUNT, &full_every);
    }
    for (size_t i = 0; i < facts->layers && status == KVERN_OK; i++) {
        if ((i + 1) % full_every != 0) {
            set_windowed(&facts->layer[i], &window);
        }
    }
    return status;
}
