// SPDX-License-Identifier: MIT
#include "engine/speculation/draft_round.h"

size_t round_room(const kvern_state *state, size_t row)
{
    const kvern_composition *plan = kvern_state_composition(state);
    int64_t room = kvern_state_max_append(state, row) - 1;
    for (size_t i = 0; i < kvern_composition_layers(plan); i++) {
        const kvern_layer *layer = kvern_composition_layer(plan, i);
        if (layer->kind == KVERN_LAYER_WINDOW && layer->slack < room) {
            room = layer->slack;
        }
    }
    return (size_t)room;
}
