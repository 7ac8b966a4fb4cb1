# SPDX-License-Identifier: MIT
"""Qwen 3 with experts: as mlx-lm keeps them, all of a layer in one tensor, and as Hugging Face does, one by one."""

from family_case import LAYER_NAMES, Case, Gguf

CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_experts": 9,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
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
    "rope.freq_base": 700.0,
    "expert_count": 9,
    "expert_used_count": 3,
    "expert_feed_forward_length": 32,
}
NAMES = {
    **LAYER_NAMES,
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate": "ffn_gate_inp",
    "mlp.switch_mlp.gate_proj": "ffn_gate_exps",
    "mlp.switch_mlp.up_proj": "ffn_up_exps",
    "mlp.switch_mlp.down_proj": "ffn_down_exps",
}

QWEN2_NAMES = {
    **{part: name for part, name in NAMES.items() if not part.endswith("_norm")},
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}

CASES = [
    Case(
        "qwen2moe",
        {
            **{key: CONFIG[key] for key in CONFIG if key not in ("head_dim", "norm_topk_prob")},
            "model_type": "qwen2_moe",
            "shared_expert_intermediate_size": 48,
        },
        Gguf(
            "qwen2moe",
            {
                **{key: METADATA[key] for key in METADATA if not key.endswith(("key_length", "value_length"))},
                "expert_shared_feed_forward_length": 48,
            },
            QWEN2_NAMES,
        ),
    ),
    Case("qwen3moe", CONFIG, Gguf("qwen3moe", METADATA, NAMES)),
    # Experts one by one, plain weights, and a layer without experts.
    Case(
        "qwen3moe-single",
        {
            **CONFIG,
            "num_hidden_layers": 3,
            "norm_topk_prob": False,
            "mlp_only_layers": [1],
            "tie_word_embeddings": True,
        },
        dtype="BF16",
        experts_apart="mlp.switch_mlp",
    ),
]
