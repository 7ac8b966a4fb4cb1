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



def exported_network(config):
    """mlx-lm's class reads blocks and its own tensors; this one what Transformers writes of floats."""
    from mlx_lm.models import gpt_oss

    class Exported(gpt_oss.Model):
        def sanitize(self, weights):
            made = {}
            for name, array in weights.items():
                if name.endswith("experts.gate_up_proj"):
                    stem = name.removesuffix("gate_up_proj")
                    made[stem + "gate_proj.weight"] = array.swapaxes(1, 2)[:, ::2]
                    made[stem + "up_proj.weight"] = array.swapaxes(1, 2)[:, 1::2]
                elif name.endswith("gate_up_proj_bias"):
                    stem = name.removesuffix("gate_up_proj_bias")
                    made[stem + "gate_proj.bias"], made[stem + "up_proj.bias"] = array[:, ::2], array[:, 1::2]
                elif name.endswith("experts.down_proj"):
                    made[name + ".weight"] = array.swapaxes(1, 2)
                elif name.endswith("down_proj_bias"):
                    made[name.removesuffix("_bias") + ".bias"] = array
                else:
                    made[name] = array
            return made

    return Exported(gpt_oss.ModelArgs.from_dict(config))


def exported_tensors(network, config):
    from family_case import network_tensors

    shapes = {}
    for name, shape in network_tensors(network, config).items():
        stem = name.partition("experts.")[0] + "experts."
        if name.endswith("gate_proj.weight"):
            shapes[stem + "gate_up_proj"] = (shape[0], shape[2], 2 * shape[1])
        elif name.endswith("gate_proj.bias"):
            shapes[stem + "gate_up_proj_bias"] = (shape[0], 2 * shape[1])
        elif name.endswith("experts.down_proj.weight"):
            shapes[stem + "down_proj"] = (shape[0], shape[2], shape[1])
        elif name.endswith("experts.down_proj.bias"):
            shapes[stem + "down_proj_bias"] = shape
        elif "experts.up_proj" not in name:
            shapes[name] = shape
    return shapes


CASES = [
    Case(
        "gptoss-floats",
        CONFIG,
        network=exported_network,
        tensors=exported_tensors,
        dtype="BF16",
        scales={"experts.gate_up_proj": (1.0, 0.0), "experts.down_proj": (0.0625, 0.0), "sinks": (2.0, 0.0)},
        inert=("swiglu_limit", "rope_scaling.beta_fast", "rope_scaling.beta_slow"),
    ),
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
