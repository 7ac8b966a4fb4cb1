# SPDX-License-Identifier: MIT
"""Gemma 2 and 3: windows, norms on both sides, softcaps, scaled embeddings.

The widths are squares of powers of two, whose root needs no rounding to bf16: the embeddings' factor is rounded here as
it was in training, and by some of mlx-lm's classes as well.
"""

from family_case import GELU_TABLE, LAYER_NAMES, Case, Gguf

COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 0.03,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 700.0,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "attention_bias": False,
}
METADATA = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 64,
    "feed_forward_length": 96,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.layer_norm_rms_epsilon": 0.03,
    "rope.freq_base": 700.0,
}
NAMES = {
    **LAYER_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
SCALES = {"norm.weight": (0.25, 0.0), "embed_tokens.weight": (0.125, 0.0)}


def gemma2_network(config):
    """mlx-lm's class, which gives all layers full attention: every other one has the window."""
    from mlx_lm.models import gemma2
    from mlx_lm.models.base import create_causal_mask

    class Windowed(gemma2.GemmaModel):
        def __call__(self, inputs, cache=None):
            h = self.embed_tokens(inputs) * self.args.hidden_size**0.5
            for i, layer in enumerate(self.layers):
                window = config["sliding_window"] if i % 2 == 0 else None
                h = layer(h, create_causal_mask(h.shape[1], window_size=window), None)
            return self.norm(h)

    network = gemma2.Model(gemma2.ModelArgs.from_dict(config))
    network.model = Windowed(network.args)
    return network


CASES = [
    # The GGUF file has no place for another scale than that of the head dim.
    Case(
        "gemma2",
        {
            **COMMON,
            "model_type": "gemma2",
            "query_pre_attn_scalar": 32.0,
            "attn_logit_softcapping": 2.5,
            "final_logit_softcapping": 3.5,
            "sliding_window": 30,
        },
        Gguf(
            "gemma2",
            {
                **METADATA,
                "attn_logit_softcapping": 2.5,
                "final_logit_softcapping": 3.5,
                "attention.sliding_window": 30,
            },
            NAMES,
            norm_offset=1,
            llama_cpp_tolerance=GELU_TABLE,
        ),
        scales=SCALES,
        network=gemma2_network,
    ),
    Case(
        "gemma3",
        {
            **COMMON,
            "model_type": "gemma3_text",
            "query_pre_attn_scalar": 20.0,
            "sliding_window": 30,
            "sliding_window_pattern": 2,
            "rope_local_base_freq": 90.0,
            "rope_scaling": {"rope_type": "linear", "factor": 2.5},
        },
        scales=SCALES,
        dtype="BF16",
    ),
    Case(
        "gemma3-gguf",
        {
            **COMMON,
            "model_type": "gemma3_text",
            "query_pre_attn_scalar": 32.0,
            "sliding_window": 30,
            "sliding_window_pattern": 3,
            "rope_local_base_freq": 10000.0,
        },
        Gguf(
            "gemma3",
            {
                **METADATA,
                "attention.sliding_window": 30,
                "attention.sliding_window_pattern": 3,
                "rope.freq_base_swa": 10000.0,
            },
            NAMES,
            norm_offset=1,
            llama_cpp_tolerance=GELU_TABLE,
        ),
        scales=SCALES,
    ),
]
