# SPDX-License-Identifier: MIT
"""What mlx-lm's attention of DeepSeek V3.2 selects and answers, in float32.

    tools/oracle-python tests/golden/select/make_select.py [--seed N] [FILE]

Writes select.bin beside this script (or FILE), for tests/unit/test_select_golden.c. All little
endian, 32 bits each:

    uint32 seed, heads, latent, rope, nope, value, index heads, index dim, top_k, appends
    float32 scale
    float32 key weights [heads, nope, latent], value weights [heads, value, latent]
    uint32 tokens of each append
    for each append of T tokens, float32 but for the last:
        latents [T, latent], rope keys [T, rope], index keys [T, index dim]
        queries [T, heads, nope + rope], index queries [T, index heads, index dim]
        index weights [T, index heads]
        results [T, heads, value], before the output projection
        int32 selected [T, top_k], ascending, -1 behind the last; a first one of -1: all

The layer has random weights. What goes in and out of its parts is taken down while it runs: a
window reads by masks and makes keys and values of all heads, a decode gathers and absorbs.
"""

import argparse
import pathlib
import struct

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache
from mlx_lm.models.deepseek_v32 import DeepseekV32Attention, ModelArgs

HEADS, LATENT, ROPE, NOPE, VALUE = 4, 32, 16, 24, 16
INDEX_HEADS, INDEX_DIM, TOP_K = 3, 32, 12
APPENDS = [9, 1, 30, 1, 7, 1, 1, 3]


class Recorder:
    """Stands in for a part of the layer, and keeps what went in and came out."""

    def __init__(self, part):
        self.part = part
        self.taken = []

    def __call__(self, *given, **options):
        result = self.part(*given, **options)
        self.taken.append((given, result))
        return result

    def __getattr__(self, name):
        return getattr(self.part, name)


def layer_of(seed):
    mx.random.seed(seed)
    layer = DeepseekV32Attention(
        ModelArgs(
            hidden_size=64,
            index_head_dim=INDEX_DIM,
            index_n_heads=INDEX_HEADS,
            index_topk=TOP_K,
            num_attention_heads=HEADS,
            kv_lora_rank=LATENT,
            q_lora_rank=48,
            qk_rope_head_dim=ROPE,
            v_head_dim=VALUE,
            qk_nope_head_dim=NOPE,
        )
    )
    mx.eval(layer.parameters())
    return layer


def packed(array):
    return np.array(array.astype(mx.float32), dtype="<f4")


def run(layer, tokens, length, caches):
    """One append: the numbers of the file."""
    spied = {name: Recorder(getattr(layer, name)) for name in
             ("q_b_proj", "kv_a_layernorm", "rope", "indexer", "o_proj")}
    inner = {name: Recorder(getattr(layer.indexer, name)) for name in ("rope", "weights_proj")}
    indexer = layer.indexer
    for name, recorder in inner.items():
        object.__setattr__(indexer, name, recorder)
        indexer.pop(name, None)
    for name, recorder in spied.items():
        object.__setattr__(layer, name, recorder)
        layer.pop(name, None)
    x = mx.random.normal((1, tokens, 64))
    total = length + tokens
    mask = None
    if tokens > 1:
        mask = mx.arange(total)[None] <= mx.arange(length, total)[:, None]
    layer(x, mask, caches)
    q = spied["q_b_proj"].taken[0][1].reshape(tokens, HEADS, NOPE + ROPE)
    q_rope, k_rope = (taken[1] for taken in spied["rope"].taken)
    q = mx.concatenate([q[..., :NOPE], q_rope[0].swapaxes(0, 1)], axis=-1)
    index_q, index_k = (taken[1] for taken in inner["rope"].taken)
    weights = inner["weights_proj"].taken[0][1] if inner["weights_proj"].taken else None
    if weights is None:
        weights = inner["weights_proj"].part(x)
    weights = weights[0] * (INDEX_HEADS**-0.5 * INDEX_DIM**-0.5)
    found = spied["indexer"].taken[0][1]
    selected = np.full((tokens, TOP_K), -1, dtype="<i4")
    for i in range(tokens if found is not None else 0):
        seen = sorted(p for p in np.array(found)[0, 0, i].tolist() if p <= length + i)
        selected[i, : len(seen)] = seen
    numbers = [
        packed(spied["kv_a_layernorm"].taken[0][1][0]),
        packed(k_rope[0, 0]),
        packed(index_k[0, 0]),
        packed(q),
        packed(index_q[0].swapaxes(0, 1)),
        packed(weights),
        packed(spied["o_proj"].taken[0][0][0][0]),
        selected,
    ]
    for name, recorder in inner.items():
        object.__delattr__(indexer, name)
        indexer[name] = recorder.part
    for name, recorder in spied.items():
        object.__delattr__(layer, name)
        layer[name] = recorder.part
    return b"".join(array.tobytes() for array in numbers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("select.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    layer = layer_of(options.seed)
    caches = [KVCache(), KVCache()]
    with open(options.file, "wb") as file:
        file.write(struct.pack("<10I", options.seed, HEADS, LATENT, ROPE, NOPE, VALUE, INDEX_HEADS,
                               INDEX_DIM, TOP_K, len(APPENDS)))
        file.write(struct.pack("<f", layer.scale))
        file.write(packed(layer.embed_q.weight.swapaxes(-1, -2)).tobytes())
        file.write(packed(layer.unembed_out.weight).tobytes())
        file.write(struct.pack(f"<{len(APPENDS)}I", *APPENDS))
        length = 0
        for tokens in APPENDS:
            file.write(run(layer, tokens, length, caches))
            length += tokens


if __name__ == "__main__":
    main()
