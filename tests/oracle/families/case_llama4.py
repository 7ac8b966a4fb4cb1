# SPDX-License-Identifier: MIT
"""Llama 4: chunks, layers that do not rotate and whose queries grow, experts that read what their weight multiplies.

The tensors have the names of the class for texts and images. mlx-lm norms rotated heads with an epsilon of its own,
1e-6.
"""

from case_llama import LLAMA3
from family_case import Case, network_tensors

COMMON = {
    "model_type": "llama4_text",
    "attention_bias": False,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 32,
    "intermediate_size_mlp": 96,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 5,
    "rope_theta": 700.0,
    "tie_word_embeddings": False,
    "vocab_size": 64,
}


def network(config):
    from mlx_lm.models import llama4

    return llama4.Model(llama4.ModelArgs.from_dict({"model_type": "llama4", "text_config": config}))


def fused_experts(network, config):
    """As Hugging Face has them: gate and up of all experts in one tensor, rows in place of columns."""
    made = {}
    for name, shape in network_tensors(network, config).items():
        stem, part = name.rsplit(".experts.", 1) if ".experts." in name else (name, None)
        if part is None:
            made[name] = shape
        elif part == "gate_proj.weight":
            made[f"{stem}.experts.gate_up_proj"] = (shape[0], shape[2], 2 * shape[1])
        elif part == "down_proj.weight":
            made[f"{stem}.experts.down_proj"] = (shape[0], shape[2], shape[1])
    return made


CASES = [
    Case(
        "llama4",
        {
            **COMMON,
            "attention_chunk_size": 30,
            "attn_scale": 0.75,
            "attn_temperature_tuning": True,
            "floor_scale": 20,
            "interleave_moe_layer_step": 2,
            "moe_layers": [1, 3],
            "no_rope_layers": [1, 1, 1, 0],
            "rms_norm_eps": 0.03,
            "rope_scaling": LLAMA3,
            "use_qk_norm": False,
        },
        network=network,
    ),
    Case(
        "llama4-hf",
        {
            **COMMON,
            "attention_chunk_size": 64,
            "attn_temperature_tuning": False,
            "interleave_moe_layer_step": 1,
            "layer_types": ["chunked_attention"] * 3 + ["full_attention"],
            "no_rope_layers": [],
            "rms_norm_eps": 1e-6,
            "rope_scaling": {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 1.0},
            "use_qk_norm": True,
        },
        network=network,
        tensors=fused_experts,
        dtype="BF16",
        # Between the two factors, which are one in published files, there is no pair.
        inert=("rms_norm_eps", "rope_scaling.low_freq_factor", "rope_scaling.high_freq_factor"),
    ),
]
