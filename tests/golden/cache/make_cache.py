# SPDX-License-Identifier: MIT
"""What mlx-lm's caches and mlx's attention answer to a list of appends, in float32.

    tools/oracle-python tests/golden/cache/make_cache.py [--seed N] [FILE]

Writes cache.bin beside this script (or FILE), for tests/unit/test_cache_golden.c. All little
endian, 32 bits each:

    uint32 seed, uint32 scenarios
    for each scenario:
        bits (0: not quantized), group, start (-1: none), window (0: none), keep, appends
        tokens of each append
        results of each append, of its first and, when that is another one, of its last query:
            [QUERY_HEADS, DIM] float32 each

Keys, values and queries follow from the seed (tests/support/feed.h). They are float32, and so is
all of mlx's arithmetic here: on the CPU it accumulates half types in half precision.

- Windows are RotatingKVCache. Its mask is right without kept positions, which is asserted. With
  them it hides them from the later queries of an append, as if they were ordinary old ones; then
  the exact set of positions is used as mask instead, on what the cache holds.
- Quantized rows are QuantizedKVCache, read by mx.quantized_matmul.
- Rows with a start are KVCache in bf16, converted by to_quantized after the append that reaches the
  start. Their numbers are widened to float32 before they are read, which is exact.
"""

import argparse
import pathlib
import struct

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import KVCache, QuantizedKVCache, RotatingKVCache

KV_HEADS, QUERY_HEADS, DIM = 2, 4, 64
SCALE = DIM**-0.5

PHASES = [10] + [1] * 10 + [6] + [1] * 3 + [20, 40] + [1] * 2
LONG_FIRST = [150] + [1] * 3 + [70, 5] + [1] * 10 + [2]
QUANTIZED = [7, 1, 1, 60, 1, 130, 1, 3]
CONVERTING = [7, 1, 1, 1, 300, 1, 1, 250, 1, 1, 20]  # 562 after the eighth

# bits, group, start, window, keep, appends
SCENARIOS = [
    (0, 0, -1, 16, 0, PHASES),
    (0, 0, -1, 16, 4, PHASES),
    (0, 0, -1, 60, 0, LONG_FIRST),
    (0, 0, -1, 60, 4, LONG_FIRST),
    (0, 0, -1, 100, 0, LONG_FIRST),
    (0, 0, -1, 129, 4, LONG_FIRST),
    (4, 64, -1, 0, 0, QUANTIZED),
    (8, 64, -1, 0, 0, QUANTIZED),
    (4, 32, -1, 0, 0, QUANTIZED),
    (8, 32, -1, 0, 0, QUANTIZED),
    (4, 64, 512, 0, 0, CONVERTING),
    (8, 64, 512, 0, 0, CONVERTING),
    (4, 64, 0, 0, 0, CONVERTING),
    (8, 32, 0, 0, 0, CONVERTING),
]

MASK = (1 << 64) - 1


def mixed(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def feed_values(sequence, position, stream, count):
    """feed_values of tests/support/feed.c: stream 0 is keys, 1 values, 2 queries."""
    step = 0x9E3779B97F4A7C15
    state = mixed((sequence * step + position * 4 + stream + step) & MASK)
    words = [mixed((state + (i + 1) * step) & MASK) for i in range(count)]
    signed = np.array([(word >> 40) - (1 << 23) for word in words], dtype=np.float32)
    return signed * np.float32(2.0**-23) * np.float32(4 if stream == 2 else 1)


def feed(seed, first, count, stream, heads):
    rows = [feed_values(seed, first + i, stream, heads * DIM) for i in range(count)]
    return mx.array(np.stack(rows).reshape(count, heads, DIM).transpose(1, 0, 2)[None])


def exact_set(query_positions, positions, window, keep):
    """Which of the stored positions each query sees."""
    q, p = query_positions[:, None], positions[None, :]
    seen = p <= q
    if window:
        seen &= (p < keep) | (p > q - (window - keep))
    return seen


def dense_attention(q, k, v, seen):
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=SCALE, mask=mx.array(seen))


def quantized_attention(q, k, v, seen, bits, group):
    """In groups of query heads that share a KV head, as mlx-lm has it."""
    shape = q.shape
    q = (q * SCALE).reshape(1, KV_HEADS, QUERY_HEADS // KV_HEADS, shape[2], DIM)
    k, v = (
        (packed[:, :, None], scales[:, :, None].astype(mx.float32), biases[:, :, None].astype(mx.float32))
        for packed, scales, biases in (k, v)
    )
    scores = mx.quantized_matmul(q, *k, transpose=True, group_size=group, bits=bits)
    scores = mx.where(mx.array(seen), scores, -mx.inf)
    weights = mx.softmax(scores, axis=-1, precise=True)
    out = mx.quantized_matmul(weights, *v, transpose=False, group_size=group, bits=bits)
    return out.reshape(shape)


class Windowed:
    def __init__(self, window, keep):
        self.window, self.keep = window, keep
        self.cache = RotatingKVCache(max_size=window, keep=keep)
        self.numbers = RotatingKVCache(max_size=window, keep=keep)  # holds the positions

    def attend(self, first, q, k, v):
        count = q.shape[2]
        mask = self.cache.make_mask(count, return_array=True)
        at = mx.arange(first, first + count).astype(mx.float32).reshape(1, 1, count, 1)
        positions = np.array(self.numbers.update_and_fetch(at, at)[0]).reshape(-1)
        queries = np.arange(first, first + count)
        seen = exact_set(queries, positions, self.window, self.keep)
        wanted = exact_set(queries, np.arange(first + count), self.window, self.keep)
        assert (seen.sum(axis=1) == wanted.sum(axis=1)).all(), "the cache lacks a position"
        if self.keep == 0 and count > 1:
            assert (np.array(mask) == seen).all(), "the mask of the cache"
        if self.keep == 0 and count == 1:
            assert seen.all(), "a decode sees all that the cache holds"
        k, v = self.cache.update_and_fetch(k, v)
        return dense_attention(q, k, v, seen)


class Quantized:
    def __init__(self, bits, group, start):
        self.bits, self.group, self.start = bits, group, start
        self.cache = KVCache() if start >= 0 else QuantizedKVCache(group, bits)
        self.converted_at = None

    def attend(self, first, q, k, v):
        if self.start >= 0:
            k, v = k.astype(mx.bfloat16), v.astype(mx.bfloat16)
        length = first + q.shape[2]
        seen = exact_set(np.arange(first, length), np.arange(length), 0, 0)
        k, v = self.cache.update_and_fetch(k, v)
        if isinstance(self.cache, QuantizedKVCache):
            return quantized_attention(q, k, v, seen, self.bits, self.group)
        out = dense_attention(q, k.astype(mx.float32), v.astype(mx.float32), seen)
        if length >= self.start:
            self.cache = self.cache.to_quantized(group_size=self.group, bits=self.bits)
            self.converted_at = length
        return out


def run(seed, scenario):
    bits, group, start, window, keep, appends = scenario
    cache = Windowed(window, keep) if window else Quantized(bits, group, start)
    results, first = [], 0
    for count in appends:
        q = feed(seed, first, count, 2, QUERY_HEADS)
        k, v = (feed(seed, first, count, stream, KV_HEADS) for stream in (0, 1))
        out = np.array(cache.attend(first, q, k, v))[0]
        results += [out[:, 0], out[:, -1]] if count > 1 else [out[:, 0]]
        first += count
    if start >= 0:
        assert cache.converted_at == (562 if start == 512 else 7)
    return np.stack(results).astype("<f4")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("cache.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    with open(options.file, "wb") as file:
        file.write(struct.pack("<II", options.seed, len(SCENARIOS)))
        for scenario in SCENARIOS:
            *header, appends = scenario
            file.write(struct.pack(f"<5iI{len(appends)}i", *header, len(appends), *appends))
            file.write(run(options.seed, scenario).tobytes())


if __name__ == "__main__":
    main()
