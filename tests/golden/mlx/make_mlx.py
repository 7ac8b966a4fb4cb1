#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prompt caches of mlx-lm, one file per case, of numbers that follow from their place.

    tools/oracle-python tests/golden/mlx/make_mlx.py [--seed N] FOLDER

The files beside this script are those of seed 1: states-*.safetensors of mlx-lm 0.32.2, and infos-*.safetensors of
0.31.3, for which that release was put in front of the installed one (pip install --no-deps --target DIR, and
PYTHONPATH=DIR). bun.mlxbunkv is written by hand, after the description of the format. unit/mlx_cache reads them: its
number() is the same as the one here.
"""

import argparse
import json
import pathlib
import struct

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    save_prompt_cache,
)

HAS_STATES = not hasattr(KVCache(), "meta_state")
HEADS, DIM = 2, 8
KEYS, VALUES, CONV, STATE, INDEX = range(5)  # streams
PADDING = 99.0

seed = 1


def numbers(layer, stream, row, head, position, dim):
    """A number in 64ths that bf16, f16 and f32 have, of arrays of places that broadcast."""
    places = (seed, layer, stream, row, head, position, dim)
    factors = (3266489917, 7919, 104729, 1299709, 15485863, 32452843, 49979687)
    x = sum(np.uint64(f) * np.asarray(p, np.uint64) for f, p in zip(factors, places)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(15)
    x = (x * np.uint64(2246822519)) & np.uint64(0xFFFFFFFF)
    x ^= x >> np.uint64(13)
    return ((x % np.uint64(511)).astype(np.float32) - 255) / 64


def vectors(layer, stream, rows, positions, heads=HEADS, dim=DIM):
    """[rows, heads, positions, dim]; positions below 0 are padding."""
    rows = np.asarray(rows).reshape(-1, 1, 1, 1)
    positions = np.asarray(positions)
    positions = np.broadcast_to(positions, (rows.shape[0], positions.shape[-1]))[:, None, :, None]
    x = numbers(layer, stream, rows, np.arange(heads).reshape(1, -1, 1, 1), np.maximum(positions, 0), np.arange(dim))
    return np.where(positions < 0, PADDING, x).astype(np.float32)


def feed(cache, layer, start, count, dtype=mx.bfloat16, padding=(0,), **dims):
    """Appends the columns [start, start + count) of a batch with left padding."""
    columns = np.arange(start, start + count) - np.asarray(padding).reshape(-1, 1)
    tensors = [mx.array(vectors(layer, s, range(len(padding)), columns, **dims)).astype(dtype) for s in (KEYS, VALUES)]
    cache.update_and_fetch(*tensors)
    return cache


def kv():
    return [feed(feed(KVCache(), i, 0, 4, d), i, 4, 7, d) for i, d in enumerate((mx.bfloat16, mx.float16, mx.float32))]


def concatenate():
    return [feed(ConcatenateKVCache(), 0, 0, 11)]


def quantized():
    made = []
    for i, bits in enumerate((8, 4, 6)):
        plain = feed(KVCache(), i, 0, 283, dim=32)
        plain = plain.to_quantized(group_size=32, bits=bits)
        made.append(feed(plain, i, 283, 1, dim=32))
    return made


def rotating():
    wrapped = feed(RotatingKVCache(8, keep=2), 0, 0, 10)
    wide = feed(RotatingKVCache(8), 1, 0, 13)
    twice = feed(feed(RotatingKVCache(8), 2, 0, 8), 2, 8, 5)
    young = feed(RotatingKVCache(100), 3, 0, 10)
    turned = feed(RotatingKVCache(8), 4, 0, 5)
    for at in range(5, 13):
        feed(turned, 4, at, 1)
    for at in range(10, 13):
        feed(wrapped, 0, at, 1)
        feed(young, 3, at, 1)
    return [wrapped, wide, twice, young, turned]


def chunked():
    """The older release drops columns by whole steps, and does not save where the row ends."""
    cache = ChunkedKVCache(256)
    for at, count in ((0, 256), (256, 44), (300, 5)):
        cache.maybe_trim_front()
        feed(cache, 0, at, count)
    return [cache, feed(KVCache(), 1, 0, 305)]


def chunked_young():
    return [feed(ChunkedKVCache(32), 0, 0, 20)]


BATCH = (2, 0, 5)


def batch():
    ring = feed(BatchRotatingKVCache(8, list(BATCH)), 1, 0, 6, padding=BATCH)
    for at in range(6, 12):
        feed(ring, 1, at, 1, padding=BATCH)
    wide = feed(BatchRotatingKVCache(8, list(BATCH)), 2, 0, 12, padding=BATCH)
    young = feed(BatchRotatingKVCache(50, list(BATCH)), 3, 0, 11, padding=BATCH)
    feed(young, 3, 11, 1, padding=BATCH)
    return [feed(BatchKVCache(list(BATCH)), 0, 0, 12, padding=BATCH), ring, wide, young]


def merged():
    """Rows of 20, 3 and 8 positions, each alone at first."""
    made = [[], []]
    for row, length in enumerate((20, 3, 8)):
        for layer, cache in enumerate((KVCache(), RotatingKVCache(8))):
            planes = [vectors(layer, s, [row], np.arange(length)) for s in (KEYS, VALUES)]
            tensors = [mx.array(plane).astype(mx.bfloat16) for plane in planes]
            for at in range(length):
                cache.update_and_fetch(*(t[:, :, at : at + 1] for t in tensors))
            made[layer].append(cache)
    return [BatchKVCache.merge(made[0]), BatchRotatingKVCache.merge(made[1])]


def slot(layer, stream, rows, shape):
    """[rows, *shape] with a head, a position and a dim, or a position and a dim."""
    heads, taps, dim = shape if len(shape) == 3 else (1, *shape)
    x = numbers(layer, stream, np.arange(rows).reshape(-1, 1, 1, 1), np.arange(heads).reshape(-1, 1, 1),
                np.arange(taps).reshape(-1, 1), np.arange(dim))
    return mx.array(x.reshape(rows, *shape))


def arrays():
    """A gated delta layer of 2 and 4 heads, 16 and 8 dims, with a convolution of 4; and one of positions."""
    cache = ArraysCache(2)
    cache[0] = slot(0, CONV, 1, (3, 2 * 2 * 16 + 4 * 8)).astype(mx.bfloat16)
    cache[1] = slot(0, STATE, 1, (4, 8, 16))
    return [cache, feed(KVCache(), 1, 0, 11)]


def sparse():
    """Only slot 1 is set, in a batch with padding."""
    cache = ArraysCache(2, [3, 0])
    cache[1] = slot(0, STATE, 2, (4, 8, 16))
    return [cache, feed(BatchKVCache([3, 0]), 1, 0, 11, padding=(3, 0))]


def split():
    """A decay per channel: 4 heads of 8, three convolutions; and latents of 16 with rotated keys of 8."""
    cache = ArraysCache(4)
    conv = slot(0, CONV, 1, (3, 3 * 32))
    for i in range(3):
        cache[i] = mx.contiguous(conv[..., 32 * i : 32 * (i + 1)])
    cache[3] = slot(0, STATE, 1, (4, 8, 8))
    return [cache, latents(KVCache(), 1, 11)]


def latents(cache, layer, count, rows=1, padding=(0,)):
    columns = np.arange(count) - np.asarray(padding).reshape(-1, 1)
    latent = vectors(layer, KEYS, range(rows), columns, heads=1, dim=16)
    rope = vectors(layer, VALUES, range(rows), columns, heads=1, dim=8)
    cache.update_and_fetch(mx.array(latent).astype(mx.bfloat16), mx.array(rope).astype(mx.bfloat16))
    return cache


def indexed():
    """As DeepseekV32 has them: latents, and index keys, beside which each release has its own nothing."""
    index = KVCache()
    keys = mx.array(vectors(0, INDEX, [0], np.arange(11), heads=1, dim=16)).astype(mx.bfloat16)
    index.update_and_fetch(keys, keys if HAS_STATES else mx.zeros((1, 1, 11, 0), mx.bfloat16))
    if HAS_STATES:
        index.values = mx.zeros_like(index.keys)
    return [CacheList(latents(KVCache(), 0, 11), index)]


def hybrid():
    """A list of a recurrent layer and one of positions, and one alone."""
    made = arrays()
    return [CacheList(*made), feed(KVCache(), 2, 0, 11)]


CASES = (
    *(kv, concatenate, quantized, rotating, chunked, chunked_young, batch, merged),
    *(arrays, sparse, split, indexed, hybrid),
)
ONLY_STATES = ("sparse",)  # the older release cannot save it


def make_bun(path):
    """Two caches of 13 positions: all of them, and a ring of 8."""
    ring = np.array([8, 9, 10, 11, 12, 5, 6, 7])
    parts, records, at = [], [], 0
    for layer, (kind, positions) in enumerate((("kv", np.arange(13)), ("rotating", ring))):
        record = {"kind": kind, "offset": 13, "dtype": 12}
        if kind == "rotating":
            record |= {"idx": 5, "maxSize": 8}
        for letter, stream in (("k", KEYS), ("v", VALUES)):
            x = vectors(layer, stream, [0], positions)
            data = (x.view(np.uint32) >> 16).astype("<u2").tobytes()
            record |= {f"{letter}Shape": list(x.shape), f"{letter}Offset": at, f"{letter}Bytes": len(data)}
            parts.append(data + bytes(-len(data) % 16384))
            at += len(parts[-1])
        records.append(record)
    parts[-1] = parts[-1][: records[-1]["vBytes"]]
    header = json.dumps({"tokens": list(range(100, 113)), "caches": records}).encode()
    head = b"MLXBUNKV1\n" + struct.pack("<II", len(header), 16384) + header
    path.write_bytes(head + bytes(16384 - len(head)) + b"".join(parts))


def main():
    global seed
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    seed = options.seed
    mx.set_default_device(mx.cpu)
    layout = "states" if HAS_STATES else "infos"
    for case in CASES:
        if not HAS_STATES and case.__name__ in ONLY_STATES:
            continue
        name = f"{layout}-{case.__name__.replace('_', '-')}.safetensors"
        save_prompt_cache(str(options.folder / name), case(), {"model": "made/up", "tokenizer_config": "{}"})
    if HAS_STATES:
        make_bun(options.folder / "bun.mlxbunkv")


if __name__ == "__main__":
    main()
