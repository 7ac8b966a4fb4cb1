# SPDX-License-Identifier: MIT
"""What mlx-lm's attention of DeepSeek V3 answers, in float32.

    tools/oracle-python tests/golden/latent/make_latent.py [--seed N] [FILE]

Writes latent.bin beside this script (or FILE), for tests/unit/test_latent_golden.c. All little
endian, 32 bits each:

    uint32 seed, heads, latent, rope, nope, value, rows, appends
    float32 scale
    float32 key weights [heads, nope, latent], value weights [heads, value, latent]
    uint32 tokens of each append [appends, rows]
    for each append, for each row that has T > 0 tokens, float32:
        latents [T, latent], rope keys [T, rope]
        queries [T, heads, nope + rope], results [T, heads, value], before the output projection

The layer has random weights, and yarn with a scale of its own. What goes in and out of its parts is
taken down while it runs: a window makes keys and values of all heads, a decode absorbs.
"""

import argparse
import pathlib
import struct

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache
from mlx_lm.models.deepseek_v3 import DeepseekV3Attention, ModelArgs

HEADS, LATENT, ROPE, NOPE, VALUE = 4, 64, 16, 16, 16
HIDDEN = 48
# Of two rows: chunks of a prompt beside decodes, and rows that wait.
APPENDS = [(70, 3), (1, 1), (0, 60), (5, 1), (1, 1), (64, 0), (1, 1)]
PARTS = ("q_b_proj", "kv_a_layernorm", "rope", "o_proj")


class Recorder:
    """Stands in for a part of the layer, and keeps what went in and came out."""

    def __init__(self, part):
        self.part = part
        self.taken = []

    def __call__(self, *given, **options):
        result = self.part(*given, **options)
        self.taken.append((given, result))
        return result


def layer_of(seed):
    mx.random.seed(seed)
    layer = DeepseekV3Attention(
        ModelArgs(
            hidden_size=HIDDEN,
            num_attention_heads=HEADS,
            kv_lora_rank=LATENT,
            q_lora_rank=40,
            qk_rope_head_dim=ROPE,
            v_head_dim=VALUE,
            qk_nope_head_dim=NOPE,
            rope_scaling={
                "type": "yarn",
                "factor": 4,
                "original_max_position_embeddings": 64,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "beta_fast": 32,
                "beta_slow": 1,
            },
        )
    )
    mx.eval(layer.parameters())
    return layer


def packed(array):
    return np.array(array.astype(mx.float32), dtype="<f4")


def run(layer, tokens, cache):
    """One append to one row: the numbers of the file."""
    spied = {name: Recorder(layer[name]) for name in PARTS}
    for name, recorder in spied.items():
        object.__setattr__(layer, name, recorder)
        del layer[name]
    length = cache.offset
    mask = None
    if tokens > 1:
        mask = mx.arange(length + tokens)[None] <= mx.arange(length, length + tokens)[:, None]
    layer(mx.random.normal((1, tokens, HIDDEN)), mask, cache)
    q = spied["q_b_proj"].taken[0][1].reshape(tokens, HEADS, NOPE + ROPE)
    q_rope, k_rope = (taken[1] for taken in spied["rope"].taken)
    numbers = [
        packed(spied["kv_a_layernorm"].taken[0][1][0]),
        packed(k_rope[0, 0]),
        packed(mx.concatenate([q[..., :NOPE], q_rope[0].swapaxes(0, 1)], axis=-1)),
        packed(spied["o_proj"].taken[0][0][0][0]),
    ]
    for name, recorder in spied.items():
        object.__delattr__(layer, name)
        layer[name] = recorder.part
    return b"".join(array.tobytes() for array in numbers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("latent.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    layer = layer_of(options.seed)
    caches = [KVCache() for _ in APPENDS[0]]
    with open(options.file, "wb") as file:
        file.write(struct.pack("<8I", options.seed, HEADS, LATENT, ROPE, NOPE, VALUE, len(caches),
                               len(APPENDS)))
        file.write(struct.pack("<f", layer.scale))
        file.write(packed(layer.embed_q.weight.swapaxes(-1, -2)).tobytes())
        file.write(packed(layer.unembed_out.weight).tobytes())
        for counts in APPENDS:
            file.write(struct.pack(f"<{len(counts)}I", *counts))
        for counts in APPENDS:
            for tokens, cache in zip(counts, caches):
                if tokens:
                    file.write(run(layer, tokens, cache))


if __name__ == "__main__":
    main()
