# SPDX-License-Identifier: MIT
"""The llama family: plain, and with each kind of rotary scaling that it has."""

import math

from family_case import LAYER_NAMES, Case, Gguf

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

# Wavelengths of all three kinds.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 5.5,
    "low_freq_factor": 1.25,
    "high_freq_factor": 3.75,
    "original_max_position_embeddings": 100,
}
# The ramp has pairs before, within and behind it.
YARN = {
    "rope_type": "yarn",
    "factor": 5.5,
    "original_max_position_embeddings": 2000,
}
YARN_METADATA = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 5.5,
    "rope.scaling.original_context_length": 2000,
}


def llama3_divisors(base, dim, scaling):
    """What converters write to rope_freqs.weight."""
    low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
    high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
    divisors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * base ** (i / dim)
        if wavelength < high:
            divisors.append(1.0)
        elif wavelength > low:
            divisors.append(scaling["factor"])
        else:
            smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"]
            )
            divisors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    assert len(set(divisors)) > 3
    return divisors


def windowed(config):
    """mlx-lm's llama class with the window in all layers; the class wants both kinds to begin with."""
    from mlx_lm.models import llama

    kinds = ["sliding_attention"] * (config["num_hidden_layers"] - 1) + ["full_attention"]
    network = llama.Model(llama.ModelArgs.from_dict({**config, "layer_types": kinds}))
    for layer in network.model.layers:
        layer.use_sliding = True
    return network


CASES = [
    Case("llama", CONFIG, Gguf("llama", METADATA, pairs=True)),
    Case(
        "llama-linear",
        {**CONFIG, "rope_scaling": {"rope_type": "linear", "factor": 2.5}, "tie_word_embeddings": True},
        Gguf("llama", {**METADATA, "rope.scaling.type": "linear", "rope.scaling.factor": 2.5}, pairs=True),
        dtype="BF16",
    ),
    Case(
        "llama-llama3",
        {**CONFIG, "rope_scaling": LLAMA3},
        Gguf("llama", METADATA, pairs=True, extra={"rope_freqs.weight": llama3_divisors(700.0, 32, LLAMA3)}),
    ),
    Case(
        "llama-yarn",
        {**CONFIG, "rope_scaling": YARN, "attention_bias": True},
        Gguf("llama", {**METADATA, **YARN_METADATA}, pairs=True),
    ),
    # Relatives, with names of their own in one format or in both.
    Case("mistral", {**CONFIG, "model_type": "mistral", "sliding_window": None}, Gguf("llama", METADATA, pairs=True)),
    Case("mistral-window", {**CONFIG, "model_type": "mistral", "sliding_window": 30}, network=windowed, dtype="F16"),
    Case(
        "smollm3",
        {**CONFIG, "model_type": "smollm3", "num_hidden_layers": 4, "intermediate_size": 64},
        Gguf("smollm3", {**METADATA, "block_count": 4, "feed_forward_length": 64}, pairs=True),
    ),
    Case(
        "smollm3-list",
        {**CONFIG, "model_type": "smollm3", "no_rope_layers": [0, 1], "no_rope_layer_interval": 4},
    ),
    # Norms behind the parts of a layer instead of before them, and of all heads together.
    Case(
        "olmo2",
        {**CONFIG, "model_type": "olmo2", "head_dim": 16},
        Gguf(
            "olmo2",
            {**METADATA, "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16},
            {
                **LAYER_NAMES,
                "post_attention_layernorm": "post_attention_norm",
                "post_feedforward_layernorm": "post_ffw_norm",
                "self_attn.q_norm": "attn_q_norm",
                "self_attn.k_norm": "attn_k_norm",
            },
        ),
    ),
]
