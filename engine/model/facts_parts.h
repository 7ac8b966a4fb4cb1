// SPDX-License-Identifier: MIT
#ifndef KVERN_ENGINE_FACTS_PARTS_H
#define KVERN_ENGINE_FACTS_PARTS_H

// Facts that most families read in the same way, for model_family.read_facts. Keys of layers may be
// lists with a number for each.

#include "engine/model/model_facts_reader.h"

// Heads of every layer, and the usual scale: attention.head_count, head_count_kv, key_length,
// value_length. Sets facts->heads.
KVERN_CHECK kvern_status facts_read_heads(facts_reader *reader, model_facts *facts);

// The inner width of every layer: feed_forward_length.
KVERN_CHECK kvern_status facts_read_feed_forward(facts_reader *reader, model_facts *facts);

// One rope for all layers: rope.freq_base, rope.dimension_count, and how positions are scaled.
KVERN_CHECK kvern_status facts_read_rope(facts_reader *reader, model_facts *facts);

// One window for all layers: attention.sliding_window. Absent or 0: none, and one as wide as the
// context hides nothing.
KVERN_CHECK kvern_status facts_read_common_window(facts_reader *reader, model_facts *facts);

// All of these but the window.
KVERN_CHECK kvern_status facts_read_decoder(facts_reader *reader, model_facts *facts);

#endif
