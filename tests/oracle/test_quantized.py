# SPDX-License-Identifier: MIT
"""Models that mlx-lm quantized and saved: logits of the program against its own, in float32.

    tools/oracle-python tests/oracle/test_quantized.py build/kvern

Small random models; every number of bits and every group, scales in float32 and in halves, and matrices that are
quantized otherwise than the others, or not at all.
"""

import importlib
import pathlib
import sys
import tempfile
import unittest

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx_lm import utils

from oracle_case import kvern, main

sys.path.insert(0, str(pathlib.Path(__file__).parent / "families"))
from case_gptoss import CONFIG as GPT_OSS  # noqa: E402

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 128, 40)]
COMMON = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "vocab_size": 128,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
LLAMA = {**COMMON, "model_type": "llama", "attention_bias": False}
EXPERTS = {
    **COMMON,
    "model_type": "qwen3_moe",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
# Activations are rounded to 16 bits, sums are in another order.
TOLERANCE = 2e-3


def network_of(config, dtype):
    module = importlib.import_module("mlx_lm.models." + config["model_type"])
    network = module.Model(module.ModelArgs.from_dict(config))
    random = np.random.default_rng(11)
    weights = []
    for name, value in mlx.utils.tree_flatten(network.parameters()):
        size = 0.5 if len(value.shape) == 1 else 1.5 / np.sqrt(value.shape[-1])
        center = 1.0 if "norm" in name else 0.0
        numbers = random.normal(center, size, value.shape).astype(np.float32)
        weights.append((name, mx.array(numbers).astype(dtype)))
    network.load_weights(weights)
    return network


def as_float32(numbers):
    return numbers if numbers.dtype in (mx.uint32, mx.uint8) else numbers.astype(mx.float32)


def exact_logits(network):
    """Of a network with float32 numbers, quantized ones included."""
    network.update(mlx.utils.tree_map(as_float32, network.parameters()))
    return np.array(network(mx.array([TOKENS])))[0]


class Quantized(unittest.TestCase):
    def check(self, config, bits, group, dtype=mx.float32, predicate=None, mode="affine"):
        plain = network_of(config, dtype)
        network, quantized = utils.quantize_model(
            plain, dict(config), group, bits, mode=mode, quant_predicate=predicate
        )
        with tempfile.TemporaryDirectory() as folder:
            utils.save_model(folder, network)
            utils.save_config(quantized, pathlib.Path(folder, "config.json"))
            out = str(pathlib.Path(folder, "logits.npy"))
            kvern("logits", folder, "--tokens", ",".join(map(str, TOKENS)), "--out", out, "--kv", "f32", "-q")
            logits = np.load(out)
        exact = exact_logits(network)
        off = np.abs(logits - exact).max() / np.abs(exact).max()
        print(f"{config['model_type']}, {mode}, {bits} bits, groups of {group}, {dtype}: off by {off:.2g}")
        self.assertEqual(logits.shape, exact.shape)
        self.assertLessEqual(off, TOLERANCE)

    def test_bits_and_groups(self):
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                with self.subTest(bits=bits, group=group):
                    self.check(LLAMA, bits, group)

    def test_halves(self):
        for dtype in (mx.float16, mx.bfloat16):
            self.check(LLAMA, 4, 64, dtype)

    def test_separate_output(self):
        self.check({**LLAMA, "tie_word_embeddings": False}, 6, 64, mx.bfloat16)

    def test_exceptions(self):
        def predicate(path, module):
            if "down_proj" in path:
                return {"bits": 8, "group_size": 32, "mode": "affine"}
            return "q_proj" not in path and hasattr(module, "to_quantized")

        self.check(LLAMA, 3, 64, predicate=predicate)

    def test_fused(self):
        fused = {**COMMON, "model_type": "phi3", "rope_scaling": None}
        del fused["head_dim"]
        self.check({**fused, "tie_word_embeddings": False}, 4, 32)

    def test_mxfp4(self):
        self.check(LLAMA, 4, 32, mode="mxfp4")
        self.check(EXPERTS, 4, 32, mode="mxfp4")

        def predicate(path, module):
            if "mlp" in path:
                return hasattr(module, "to_quantized")
            return {"bits": 8, "group_size": 64} if hasattr(module, "to_quantized") else False

        self.check(EXPERTS, 4, 32, mx.bfloat16, predicate, "mxfp4")

    def test_gpt_oss(self):
        """As it is published: experts in mxfp4, all else in 8 bits."""

        def predicate(path, module):
            if "experts" in path:
                return hasattr(module, "to_quantized")
            return {"bits": 8, "group_size": 64} if hasattr(module, "to_quantized") else False

        self.check({**GPT_OSS, "vocab_size": 128}, 4, 32, mx.bfloat16, predicate, "mxfp4")

    def test_experts(self):
        self.check(EXPERTS, 4, 64)
        self.check(EXPERTS, 5, 32, mx.bfloat16)


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    main("test_quantized.py")
