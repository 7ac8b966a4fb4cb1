# SPDX-License-Identifier: MIT
"""DeepSeek V2, V3 and V3.2, GLM 5: latents, experts in groups, an indexer, which layers may share."""

from family_case import LAYER_NAMES, Case, Gguf

CONFIG = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 24,
    "v_head_dim": 20,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 4,
    "topk_group": 2,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 4.0,
        "beta_slow": 1.9,
        "mscale": 1.5,
        "mscale_all_dim": 1.0,
    },
    "attention_bias": False,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
METADATA = {
    "block_count": 3,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.q_lora_rank": 48,
    "attention.kv_lora_rank": 32,
    "attention.key_length": 48,
    "attention.value_length": 32,
    "attention.key_length_mla": 40,
    "attention.value_length_mla": 20,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": 16,
    "rope.freq_base": 700.0,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
    "rope.scaling.yarn_log_multiplier": 0.1,
    "leading_dense_block_count": 1,
    "expert_count": 12,
    "expert_used_count": 3,
    "expert_shared_count": 2,
    "expert_feed_forward_length": 32,
    "expert_group_count": 4,
    "expert_group_used_count": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "expert_gating_func": 2,
    "vocab_size": 64,
}
NAMES = {
    **LAYER_NAMES,
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.embed_q": "attn_k_b",
    "self_attn.unembed_out": "attn_v_b",
    "mlp.gate": "ffn_gate_inp",
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.switch_mlp.gate_proj": "ffn_gate_exps",
    "mlp.switch_mlp.up_proj": "ffn_up_exps",
    "mlp.switch_mlp.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
# Corrections that keep every rank above zero, as mlx-lm wants them; heads that attend unevenly.
SCALES = {
    "e_score_correction_bias": (0.25, 0.5),
    "q_b_proj.weight": (0.5, 0.0),
    "mlp.gate.weight": (0.25, 0.0),
}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0, "mscale_all_dim": 1.0}


INDEXER = {"index_n_heads": 8, "index_head_dim": 24, "index_topk": 24}
INDEXER_SCALES = {**SCALES, "k_norm.weight": (0.25, 1.0), "weights_proj.weight": (0.25, 0.25)}


def one_projection(network, config):
    """kv_b_proj in place of what mlx-lm makes of it."""
    from family_case import network_tensors

    shapes = {}
    for name, shape in network_tensors(network, config).items():
        if name.endswith("embed_q.weight"):
            rows = config["qk_nope_head_dim"] + config["v_head_dim"]
            name = name.replace("embed_q", "kv_b_proj")
            shape = (config["num_attention_heads"] * rows, config["kv_lora_rank"])
        if "unembed_out" not in name:
            shapes[name] = shape
    return shapes


class Latest:
    """What the latest layer with an indexer selected; the indexer of the layers that share it. No module: it has no
    parameters."""

    def __init__(self):
        self.selected = None

    def __call__(self, x, qr, mask, cache=None):
        return self.selected


def indexer_types(config):
    """Where the list is missing, transformers says what follows from the other keys."""
    from transformers import GlmMoeDsaConfig

    return GlmMoeDsaConfig(**config).indexer_types


def sharing_network(config):
    """mlx-lm's class runs an indexer in every layer: here those of "shared" layers are taken out."""
    from mlx_lm.models import deepseek_v32, glm_moe_dsa

    latest = Latest()

    class Full(deepseek_v32.Indexer):
        def __call__(self, *arguments, **named):
            latest.selected = super().__call__(*arguments, **named)
            return latest.selected

    network = glm_moe_dsa.Model(glm_moe_dsa.ModelArgs.from_dict(config))
    for layer, kind in zip(network.layers, indexer_types(config), strict=True):
        layer.self_attn.indexer = Full(layer.self_attn.config) if kind == "full" else latest
    return network


# Experts by a softmax, whose weights are not divided by their sum.
V2 = {
    **CONFIG,
    "model_type": "deepseek_v2",
    "scoring_func": "softmax",
    "topk_method": "greedy",
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": False,
}
# Of its GGUF files those of before latents were stored: whole keys and values of every head.
V2_METADATA = {
    **{key: value for key, value in METADATA.items() if not key.endswith("_mla") and "group" not in key},
    "attention.head_count_kv": 4,
    "attention.key_length": 40,
    "attention.value_length": 20,
    "expert_weights_norm": False,
    "expert_gating_func": 1,
}
V2_SCALES = {"q_b_proj.weight": (0.5, 0.0), "q_proj.weight": (0.5, 0.0), "mlp.gate.weight": (0.5, 0.0)}


GLM = {
    **{key: value for key, value in CONFIG.items() if key not in ("rope_theta", "rope_scaling")},
    **INDEXER,
    "model_type": "glm_moe_dsa",
    "rope_parameters": {"rope_type": "default", "rope_theta": 700.0},
}

CASES = [
    # As it is published, but for the names of experts: one projection for keys and values.
    Case("deepseek-v3", CONFIG, tensors=one_projection, scales=SCALES, experts_apart="mlp.switch_mlp"),
    Case(
        "deepseek-v3-gguf",
        {**CONFIG, "rms_norm_eps": 1e-6, "rope_scaling": {"type": "yarn", **YARN}},
        Gguf("deepseek2", METADATA, NAMES),
        scales=SCALES,
        inert=("rms_norm_eps", "rope_scaling.mscale", "rope_scaling.mscale_all_dim"),
    ),
    Case(
        "deepseek-v2",
        {**V2, "rms_norm_eps": 1e-6, "rope_scaling": {"type": "yarn", **YARN}},
        Gguf("deepseek2", V2_METADATA, {**NAMES, "self_attn.kv_b_proj": "attn_kv_b"}),
        scales=V2_SCALES,
        inert=("rms_norm_eps",),
    ),
    # As V2-Lite has queries, and V2 groups.
    Case(
        "deepseek-v2-groups",
        {
            **V2,
            "q_lora_rank": None,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "rope_scaling": {**CONFIG["rope_scaling"], "mscale": 0.9, "mscale_all_dim": 0.707},
        },
        scales=V2_SCALES,
        experts_apart="mlp.switch_mlp",
    ),
    # An indexer that selects 24 positions.
    Case(
        "deepseek-v32",
        {**CONFIG, **INDEXER, "model_type": "deepseek_v32", "n_group": 1, "topk_group": 1},
        scales=INDEXER_SCALES,
    ),
    Case("glm-moe-dsa", {**GLM, "num_hidden_layers": 2}, scales=INDEXER_SCALES),
    # Layers that share a selection, as a list says.
    Case(
        "glm-moe-dsa-shared",
        {
            **GLM,
            "num_hidden_layers": 4,
            "n_routed_experts": 8,
            "indexer_types": ["full", "shared", "full", "shared"],
        },
        network=sharing_network,
        scales=INDEXER_SCALES,
    ),
    # The same by numbers: full, full, shared, shared, full.
    Case(
        "glm-moe-dsa-interval",
        {**GLM, "num_hidden_layers": 5, "n_routed_experts": 8, "index_topk_freq": 3},
        network=sharing_network,
        scales=INDEXER_SCALES,
    ),
]
