# SPDX-License-Identifier: MIT
"""The llama family: plain, and with each kind of rotary scaling that it has."""

from family_case import Case, Gguf

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
METADATA = {
    "block_count": 2,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 0.03,
    "rope.dimension_count": 32,
    "rope.freq_base": 700.0,
    "vocab_size": 64,
}

CASES = [
    Case("llama", CONFIG, Gguf("llama", METADATA, pairs=True)),
    Case(
        "llama-linear",
        {**CONFIG, "rope_scaling": {"rope_type": "linear", "factor": 2.5}, "tie_word_embeddings": True},
        Gguf("llama", {**METADATA, "rope.scaling.type": "linear", "rope.scaling.factor": 2.5}, pairs=True),
        dtype="BF16",
    ),
]
