# SPDX-License-Identifier: MIT
"""Kimi Linear: a delta rule with a decay per channel, latents without rotation, experts."""

from family_case import Case, network_tensors

CONFIG = {
    "model_type": "kimi_linear",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 18,
    "linear_attn_config": {
        "num_heads": 3,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
        "kda_layers": [1, 2, 4],
        "full_attn_layers": [3],
    },
    "mla_use_nope": True,
    "q_lora_rank": None,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 24,
    "v_head_dim": 20,
    "num_experts": 6,
    "num_experts_per_token": 2,
    "num_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "moe_renormalize": True,
    "moe_router_activation_func": "sigmoid",
    "routed_scaling_factor": 2.5,
    "use_grouped_topk": True,
    "num_expert_group": 1,
    "topk_group": 1,
    "num_nextn_predict_layers": 0,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "model_max_length": 512,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
# Corrections that keep every rank above zero, as mlx-lm wants them; heads that attend unevenly;
# decays of a few hundredths to a few units.
SCALES = {
    "e_score_correction_bias": (0.25, 0.5),
    "gate.weight": (0.25, 0.0),
    "A_log": (2.0, 0.0),
    "dt_bias": (2.0, -1.0),
    "conv1d.weight": (1.0, 0.0),
    "conv.weight": (1.0, 0.0),
}
# Nothing rotates.
INERT = ("rope_theta",)


# What Transformers 5 writes of it. Nothing of it rotates there, whatever the config says.
KEPT = (
    "model_type hidden_size num_hidden_layers intermediate_size num_attention_heads num_key_value_heads q_lora_rank"
    " kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim num_experts num_experts_per_token num_shared_experts"
    " moe_intermediate_size moe_renormalize routed_scaling_factor num_expert_group topk_group rms_norm_eps vocab_size"
    " model_max_length hidden_act tie_word_embeddings"
).split()
CONFIG5 = {
    **{key: CONFIG[key] for key in KEPT},
    "head_dim": 16,
    "qk_head_dim": 40,
    "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "linear_head_dim": 16,
    "linear_num_heads": 3,
    "linear_conv_kernel_dim": 4,
    "attention_bias": False,
    "output_router_logits": False,
    "pretraining_tp": 1,
    "transformers_version": "5.24.0",
}


def transformers5_network(config):
    """mlx-lm's, which knows the published keys only."""
    from mlx_lm.models.kimi_linear import Model, ModelArgs

    return Model(ModelArgs.from_dict({**CONFIG, **{key: config[key] for key in KEPT}}))


def published_experts(name, shape):
    """The tensors of a layer's experts, of which mlx-lm makes others."""
    before, part = name.split(".mlp.")
    before += ".block_sparse_moe."
    if part.startswith("switch_mlp"):
        own = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}[part.split(".")[1]]
        return {f"{before}experts.{i}.{own}.weight": shape[1:] for i in range(shape[0])}
    part = part.replace("e_score_correction_bias", "gate.e_score_correction_bias")
    return {before + part: shape}


def published(network, config):
    """As Hugging Face has them."""
    made = {}
    rows = config["num_attention_heads"] * (config["qk_nope_head_dim"] + config["v_head_dim"])
    for name, shape in network_tensors(network, config).items():
        if "_conv.conv." in name:
            made[name.replace("_conv.conv.", "_conv1d.")] = (shape[0], shape[2], shape[1])
        elif "embed_q" in name:
            made[name.replace("embed_q", "kv_b_proj")] = (rows, config["kv_lora_rank"])
        elif any(part in name for part in (".switch_mlp.", ".shared_experts.", ".mlp.gate.", "correction")):
            made.update(published_experts(name, shape))
        elif "unembed_out" not in name:
            made[name] = shape
    return made


CASES = [
    Case("kimi-linear", CONFIG, tensors=published, scales=SCALES, inert=INERT),
    Case("kimi-linear-5", CONFIG5, network=transformers5_network, tensors=published, scales=SCALES),
    # As mlx-lm writes it; groups, no layer without experts, none that all share, heads of one length.
    Case(
        "kimi-linear-mlx",
        {
            **{key: value for key, value in CONFIG.items() if key not in ("qk_nope_head_dim", "v_head_dim")},
            "num_hidden_layers": 3,
            "linear_attn_config": {"num_heads": 2, "head_dim": 24, "kda_layers": [2]},
            "head_dim": 20,
            "num_experts": 12,
            "num_experts_per_token": 3,
            "num_shared_experts": 0,
            "first_k_dense_replace": 0,
            "num_expert_group": 4,
            "topk_group": 2,
            "moe_renormalize": False,
            "tie_word_embeddings": True,
        },
        scales=SCALES,
        inert=INERT,
    ),
    # One expert for a token, whose weight is not normalized, and no part of a key that all heads share.
    Case(
        "kimi-linear-single",
        {
            **CONFIG,
            "num_hidden_layers": 2,
            "linear_attn_config": {"num_heads": 2, "head_dim": 16, "short_conv_kernel_size": 3, "kda_layers": [1]},
            "qk_rope_head_dim": 0,
            "num_experts_per_token": 1,
            "num_shared_experts": 1,
        },
        tensors=published,
        scales=SCALES,
        inert=INERT,
    ),
]
