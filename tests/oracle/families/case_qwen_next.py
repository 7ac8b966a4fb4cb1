# SPDX-License-Identifier: MIT
"""Qwen3-Next and Qwen 3.5: a gated delta rule, attention with a gate, experts with a shared one."""

from family_case import LAYER_NAMES, Case, Gguf, apart, gguf_name, network_tensors

CONFIG = {
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "partial_rotary_factor": 0.5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
}
# Zero-centred norms; -A and dt of a few hundredths to a few units.
SCALES = {
    "linear_attn.norm.weight": (0.25, 1.0),
    "norm.weight": (0.25, 0.0),
    "A_log": (2.0, 0.0),
    "dt_bias": (2.0, -1.0),
    "conv1d.weight": (1.0, 0.0),
}


def directory(network, config):
    """As Hugging Face has them: experts one by one, and taps as the last dimension."""
    shapes = network_tensors(network, config)
    shapes = {
        name: (shape[0], shape[2], shape[1]) if "conv1d" in name else shape for name, shape in shapes.items()
    }
    return apart(shapes, "mlp.switch_mlp")


# llama.cpp takes the epsilon of norms for that of keys' lengths too, which is 1e-6; so small a one changes nothing.
INERT = ("rms_norm_eps",)
METADATA = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 700.0,
    "rope.dimension_count": 16,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 6,
    "ssm.inner_size": 96,
    "full_attention_interval": 2,
}
EXPERTS_METADATA = {
    "expert_count": 5,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 48,
}
NAMES = {
    **LAYER_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
KEY_HEADS, KEY_DIM, RATIO, VALUE_DIM = 2, 16, 3, 16


def fused_rows(first, count):
    """Rows of each key head's part of in_proj_qkvz."""
    size = 2 * KEY_DIM + 2 * RATIO * VALUE_DIM
    return [head * size + first + i for head in range(KEY_HEADS) for i in range(count)]


def fused_entries(layer, name):
    """The inputs of Qwen3-Next, which converters take apart."""
    values = RATIO * VALUE_DIM
    q, k, v = fused_rows(0, KEY_DIM), fused_rows(KEY_DIM, KEY_DIM), fused_rows(2 * KEY_DIM, values)
    return [
        {"name": f"blk.{layer}.attn_qkv.weight", "from": name, "rows": q + k + v},
        {"name": f"blk.{layer}.attn_gate.weight", "from": name, "rows": fused_rows(2 * KEY_DIM + values, values)},
    ]


def expert_entries(tensors, layers):
    made = []
    for layer in range(layers):
        for part in ("gate", "up", "down"):
            names = [name for name in tensors if f"layers.{layer}.mlp.experts." in name]
            names = [name for name in names if f".{part}_proj.weight" in name]
            if names:
                made.append({"name": f"blk.{layer}.ffn_{part}_exps.weight", "from": names})
    return made


def tiled(rows_per_head, first=0):
    """Value heads in the order in which GGUF's Qwen 3.5 has them: one of each key head in turn."""
    heads = [key * RATIO + i for i in range(RATIO) for key in range(KEY_HEADS)]
    return list(range(first)) + [first + head * rows_per_head + i for head in heads for i in range(rows_per_head)]


def tiled_order(name):
    """What of a tensor of Qwen 3.5 follows the value heads."""
    keys = 2 * KEY_HEADS * KEY_DIM
    orders = {
        "in_proj_qkv.weight": {"rows": tiled(VALUE_DIM, keys)},
        "conv1d.weight": {"rows": tiled(VALUE_DIM, keys)},
        "in_proj_z.weight": {"rows": tiled(VALUE_DIM)},
        "in_proj_a.weight": {"rows": tiled(1)},
        "in_proj_b.weight": {"rows": tiled(1)},
        "A_log": {"rows": tiled(1)},
        "dt_bias": {"rows": tiled(1)},
        "linear_attn.out_proj.weight": {"columns": tiled(VALUE_DIM)},
    }
    return next((order for end, order in orders.items() if name.endswith(end)), {})


def tiled_entries(case, tensors):
    made = gguf_entries(case, tensors)
    for entry in made:
        if isinstance(entry["from"], str):
            entry.update(tiled_order(entry["from"]))
    return made


def gguf_entries(case, tensors):
    made = expert_entries(tensors, case.config["num_hidden_layers"])
    for name in tensors:
        layer = name.split(".")[2] if ".layers." in name else None
        if ".mlp.experts." in name:
            if name.endswith(".gate_up_proj"):
                made.append({"name": f"blk.{layer}.ffn_gate_up_exps.weight", "from": name})
            elif name.endswith(".down_proj"):
                made.append({"name": f"blk.{layer}.ffn_down_exps.weight", "from": name})
            continue
        if name.endswith("in_proj_qkvz.weight"):
            made += fused_entries(layer, name)
        elif name.endswith("A_log"):
            made.append({"name": f"blk.{layer}.ssm_a", "from": name, "minus_exp": True})
        elif name.endswith("dt_bias"):
            made.append({"name": f"blk.{layer}.ssm_dt.bias", "from": name})
        else:
            entry = {"name": gguf_name(case.gguf, name)[0], "from": name}
            if name.endswith("norm.weight") and "linear_attn" not in name:
                entry["plus"] = 1
            if "conv1d" in name:  # without the dimension of 1
                entry["rows"] = list(range(tensors[name][0][0]))
            made.append(entry)
    return made


def qwen35_network(config):
    import copy

    from mlx_lm.models import qwen3_5

    return qwen3_5.TextModel(qwen3_5.TextModelArgs.from_dict(copy.deepcopy(config)))


def qwen35_config(model_type, **more):
    """That of the part for texts."""
    own = {
        "model_type": model_type,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [3, 3, 2],
            "rope_type": "default",
            "rope_theta": 700.0,
            "partial_rotary_factor": 0.5,
        },
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
        **more,
    }
    others = {"partial_rotary_factor", "rope_theta", "decoder_sparse_step", "mlp_only_layers", "norm_topk_prob"}
    experts = {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}
    left_out = others | (set() if "moe" in model_type else experts)
    return {**{key: value for key, value in CONFIG.items() if key not in left_out}, **own}


def fused_experts(network, config):
    """As Hugging Face has them in Qwen 3.5: gate and up of all experts in one tensor."""
    made = {}
    for name, shape in network_tensors(network, config).items():
        if "conv1d" in name:
            shape = (shape[0], shape[2], shape[1])
        if "switch_mlp.up_proj" in name:
            continue
        if "switch_mlp.gate_proj" in name:
            name = name.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")
            shape = (shape[0], 2 * shape[1], shape[2])
        made[name.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = shape
    return made


def qwen35moe_network(config):
    network = qwen35_network(config)
    sanitize = network.sanitize

    def split(weights):
        for name in [name for name in weights if name.endswith("experts.gate_up_proj")]:
            both, stem = weights.pop(name), name.removesuffix("experts.gate_up_proj")
            inner = both.shape[1] // 2
            weights[f"{stem}switch_mlp.gate_proj.weight"] = both[:, :inner]
            weights[f"{stem}switch_mlp.up_proj.weight"] = both[:, inner:]
            weights[f"{stem}switch_mlp.down_proj.weight"] = weights.pop(f"{stem}experts.down_proj")
        return sanitize(weights)

    network.sanitize = split
    return network


QWEN35_METADATA = {**METADATA, "rope.dimension_sections": [3, 3, 2, 0]}

CASES = [
    Case(
        "qwen3next",
        {**CONFIG, "rms_norm_eps": 1e-6},
        Gguf("qwen3next", {**METADATA, **EXPERTS_METADATA}, NAMES, tensors=gguf_entries),
        scales=SCALES,
        tensors=directory,
        inert=INERT,
    ),
    # A layer without experts, and kinds of layers as newer configs list them.
    Case(
        "qwen3next-kinds",
        {
            **CONFIG,
            "num_hidden_layers": 3,
            "linear_value_head_dim": 8,
            "mlp_only_layers": [1],
            "norm_topk_prob": False,
            "full_attention_interval": 3,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "tie_word_embeddings": True,
        },
        scales=SCALES,
        tensors=directory,
        dtype="BF16",
    ),
    Case(
        "qwen35",
        qwen35_config("qwen3_5_text", rms_norm_eps=1e-6),
        Gguf("qwen35", QWEN35_METADATA, NAMES, tensors=tiled_entries),
        scales=SCALES,
        network=qwen35_network,
        tensors=directory,
        inert=INERT,
    ),
    Case(
        "qwen35moe",
        qwen35_config("qwen3_5_moe_text", rms_norm_eps=1e-6),
        Gguf("qwen35moe", {**QWEN35_METADATA, **EXPERTS_METADATA}, NAMES, tensors=tiled_entries),
        scales=SCALES,
        network=qwen35moe_network,
        tensors=fused_experts,
        inert=INERT,
    ),
]
