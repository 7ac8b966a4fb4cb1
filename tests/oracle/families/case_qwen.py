# SPDX-License-Identifier: MIT
"""Qwen 2 (biases, no width of heads of its own) and Qwen 3 (norms of heads)."""

from family_case import LAYER_NAMES, Case, Gguf

COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "hidden_act": "silu",
    "use_sliding_window": False,
    "sliding_window": 100,
    "max_window_layers": 1,
}
INERT = ("sliding_window",)  # without use_sliding_window
METADATA = {
    "block_count": 2,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 0.03,
    "rope.freq_base": 700.0,
}
QWEN3_NAMES = {**LAYER_NAMES, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
# Ends of the ramp that are not the usual ones, which llama.cpp does not read for this family.
YARN = {
    "type": "yarn",
    "factor": 5.5,
    "beta_fast": 12.0,
    "beta_slow": 2.5,
    "original_max_position_embeddings": 200,
}
YARN_METADATA = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 5.5,
    "rope.scaling.yarn_beta_fast": 12.0,
    "rope.scaling.yarn_beta_slow": 2.5,
    "rope.scaling.original_context_length": 200,
}

CASES = [
    Case(
        "qwen2",
        {**COMMON, "model_type": "qwen2", "tie_word_embeddings": True},
        Gguf("qwen2", METADATA),
        inert=INERT,
    ),
    Case(
        "qwen2-yarn",
        {**COMMON, "model_type": "qwen2", "tie_word_embeddings": False, "rope_scaling": YARN},
        Gguf("qwen2", {**METADATA, **YARN_METADATA}, llama_cpp=False),
        inert=INERT,
    ),
    Case(
        "qwen3",
        {**COMMON, "model_type": "qwen3", "head_dim": 32, "tie_word_embeddings": False, "attention_bias": False},
        Gguf("qwen3", {**METADATA, "attention.key_length": 32, "attention.value_length": 32}, QWEN3_NAMES),
        dtype="F16",
        inert=INERT,
    ),
]
