# SPDX-License-Identifier: MIT
"""GLM 4.5: a part of each head rotates, biases, norms of heads, experts as in DeepSeek V3."""

from family_case import Case

CONFIG = {
    "model_type": "glm4_moe",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "use_qk_norm": True,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "rope_scaling": None,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
# A quarter more of 12 rotating dimensions is an odd number, which mlx refuses.
INERT = ("partial_rotary_factor",)
# Corrections that keep every rank above zero, as mlx-lm wants them.
SCALES = {"e_score_correction_bias": (0.25, 0.5), "mlp.gate.weight": (0.25, 0.0)}

CASES = [
    # Experts one by one, as it is published.
    Case("glm4-moe", CONFIG, scales=SCALES, experts_apart="mlp.switch_mlp", inert=INERT),
    # Without what GLM 4.5 Air leaves out, and no groups.
    Case(
        "glm4-moe-air",
        {
            **CONFIG,
            "num_hidden_layers": 2,
            "attention_bias": False,
            "use_qk_norm": False,
            "n_routed_experts": 7,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.25,
        },
        scales=SCALES,
        inert=INERT,
    ),
]
