# SPDX-License-Identifier: MIT
"""Gemma 4: layers that share the keys and values of others, inputs of layers, two sizes of heads, values that are keys.

Widths are squares of powers of two, as in case_gemma.py.
"""

from family_case import Case

COMMON = {
    "model_type": "gemma4_text",
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "head_dim": 32,
    "global_head_dim": 64,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "attention_bias": False,
    "sliding_window": 30,
    "enable_moe_block": False,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
    },
}
# Products of normed queries and keys are not scaled down, so their norms are small.
SCALES = {
    "embed_tokens.weight": (0.125, 0.0),
    "q_norm.weight": (0.25, 0.5),
    "k_norm.weight": (0.25, 0.5),
    "layer_scalar": (0.25, 1.0),
}
FULL, WINDOW = "full_attention", "sliding_attention"


def with_unread_keys(network, config):
    """Published files have the keys' matrices of shared layers, too."""
    from family_case import network_tensors

    made = network_tensors(network, config)
    for layer in range(config["num_hidden_layers"] - config["num_kv_shared_layers"], config["num_hidden_layers"]):
        stem = f"model.layers.{layer}.self_attn"
        dim = config["global_head_dim" if config["layer_types"][layer] == FULL else "head_dim"]
        for part in ("k_proj", "v_proj"):
            made[f"{stem}.{part}.weight"] = (config["num_key_value_heads"] * dim, config["hidden_size"])
        made[f"{stem}.k_norm.weight"] = (dim,)
    return made


CASES = [
    Case(
        "gemma4",
        {
            **COMMON,
            "num_hidden_layers": 6,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 3,
            "use_double_wide_mlp": True,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": 64,
            "final_logit_softcapping": 3.5,
            "attention_k_eq_v": False,
            "layer_types": [FULL, WINDOW, FULL, WINDOW, WINDOW, FULL],
        },
        scales=SCALES,
        dtype="BF16",
        tensors=with_unread_keys,
    ),
    Case(
        "gemma4-keys",
        {
            **COMMON,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "num_kv_shared_layers": 0,
            "use_double_wide_mlp": False,
            "hidden_size_per_layer_input": 0,
            "final_logit_softcapping": None,
            "attention_k_eq_v": True,
            "layer_types": [WINDOW, FULL, WINDOW, FULL],
        },
        scales=SCALES,
    ),
    # Half of what is kept is shared, and values are keys as well.
    Case(
        "gemma4-shared-keys",
        {
            **COMMON,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "num_global_key_value_heads": 1,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": False,
            "hidden_size_per_layer_input": 0,
            "final_logit_softcapping": 3.5,
            "attention_k_eq_v": True,
            "layer_types": [WINDOW, FULL, WINDOW, FULL],
        },
        scales=SCALES,
    ),
]
