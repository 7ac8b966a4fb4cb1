# SPDX-License-Identifier: MIT
"""gpt-oss with float experts, as mlx-lm keeps them: windows, sinks, biases, yarn."""

from family_case import LAYER_NAMES, Case, Gguf

CONFIG = {
    "model_type": "gpt_oss",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "experts_per_token": 2,
    "sliding_window": 20,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "attention_bias": True,
    "swiglu_limit": 7.0,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "initial_context_length": 64,
    "rope_theta": 700.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
METADATA = {
    "block_count": 3,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 32,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 0.03,
    "attention.sliding_window": 20,
    "rope.freq_base": 700.0,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "expert_count": 6,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
}
NAMES = {
    **LAYER_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.sinks": "attn_sinks.weight",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
}

CASES = [
    Case(
        "gptoss",
        CONFIG,
        Gguf("gpt-oss", METADATA, NAMES),
        # Wide enough that gates and ups are cut off.
        scales={
            "gate_proj.weight": (1.0, 0.0),
            "up_proj.weight": (1.0, 0.0),
            "down_proj.weight": (0.0625, 0.0),
            "sinks": (2.0, 0.0),
        },
        # Of the betas a pair or none is passed over; another limit is refused.
        inert=("swiglu_limit", "rope_scaling.beta_fast", "rope_scaling.beta_slow"),
    ),
]
