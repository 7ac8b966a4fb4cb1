# SPDX-License-Identifier: MIT
"""Phi 3: fused matrices, a part of each head rotated, windows, and two lists of rotary factors."""

from family_case import LAYER_NAMES, Case, Gguf

COMMON = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "sliding_window": None,
}
METADATA = {
    "block_count": 2,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 0.03,
    "rope.freq_base": 700.0,
}
# Two are of training; the lists of factors fix the third.
INERT = ("embd_pdrop", "resid_pdrop", "partial_rotary_factor")
NAMES = {**LAYER_NAMES, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
# The head dim is 16; these are of the 12 dimensions that rotate.
SHORT = [1.0, 1.25, 1.5, 2.0, 2.5, 3.0]
LONG = [1.0, 2.25, 3.5, 6.0, 8.5, 14.0]
FACTORS = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
# sqrt(1 + ln(512 / 100) / ln(100)), in the float32 that a GGUF file has.
LONG_MAGNITUDE = 1.163887858390808


def network(config):
    """mlx-lm's class with the window, which it does not have, and with short factors for a short context."""
    from mlx_lm.models import phi3
    from mlx_lm.models.base import create_causal_mask

    class Windowed(phi3.Phi3Model):
        def __call__(self, inputs, cache=None):
            h = self.embed_tokens(inputs)
            mask = create_causal_mask(h.shape[1], window_size=config["sliding_window"])
            for layer in self.layers:
                h = layer(h, mask, None)
            return self.norm(h)

    scaling = config.get("rope_scaling")
    if scaling and config["max_position_embeddings"] <= config["original_max_position_embeddings"]:
        config = {**config, "rope_scaling": {**scaling, "long_factor": scaling["short_factor"]}}
    made = phi3.Model(phi3.ModelArgs.from_dict(config))
    made.model = Windowed(made.args)
    return made


def scaled(original):
    return {
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": original,
        "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    }


def scaled_metadata(original, magnitude):
    return {
        "rope.dimension_count": 12,
        "rope.scaling.original_context_length": original,
        "rope.scaling.attn_factor": magnitude,
    }


CASES = [
    Case(
        "phi3-window",
        {**COMMON, "sliding_window": 30},
        # llama.cpp passes over the window of this family.
        Gguf("phi3", {**METADATA, "attention.sliding_window": 30}, NAMES, llama_cpp=False),
        network=network,
        dtype="BF16",
        inert=INERT,
    ),
    Case(
        "phi3-long",
        {**COMMON, **scaled(100)},
        Gguf("phi3", {**METADATA, **scaled_metadata(100, LONG_MAGNITUDE)}, NAMES, extra=FACTORS),
        network=network,
        inert=INERT,
    ),
    Case(
        "phi3-short",
        {**COMMON, **scaled(1000)},
        Gguf("phi3", {**METADATA, **scaled_metadata(1000, 1.0)}, NAMES, extra=FACTORS),
        network=network,
        inert=INERT,
    ),
]
