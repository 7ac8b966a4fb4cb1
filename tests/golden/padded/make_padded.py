# SPDX-License-Identifier: MIT
"""The tensors that mlx-lm keeps for a batch of rows of different lengths.

    tools/oracle-python tests/golden/padded/make_padded.py [--seed N] [FILE]

Writes padded.bin beside this script (or FILE), for tests/unit/test_padded_golden.c. All little
endian, 32 bits each:

    uint32 seed, uint32 scenarios
    for each scenario:
        bits (0: not quantized), group, window (0: none), decodes, rows
        appends of each row: their number, and the tokens of each
        width, left padding of each row, offset of each row
        keys, values: [rows, KV_HEADS, width, DIM] float32; or words, scales and biases of either

Row r is fed with the sequence seed + r (tests/support/feed.h). Rows are filled one by one, in
KVCache or RotatingKVCache, and merged into a BatchKVCache or BatchRotatingKVCache, which then takes
`decodes` tokens of every row. A ring is brought into temporal order; a left padding that went below
zero while the ring turned is zero. mlx-lm has no quantized batch: there the merged tensors are
quantized, and the words, scales and biases of padding are zeros, as its batches pad.
"""

import argparse
import pathlib
import struct
import sys

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import BatchKVCache, BatchRotatingKVCache, KVCache, RotatingKVCache

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cache"))
from make_cache import feed_values  # noqa: E402

KV_HEADS, DIM = 2, 32

# bits, group, window, decodes, appends of each row
SCENARIOS = [
    (0, 0, 0, 0, [[5], [], [2]]),
    (0, 0, 0, 3, [[3], [8]]),
    (0, 0, 0, 2, [[30, 1, 1, 5], [38], [1]]),
    (0, 0, 8, 0, [[19, 1], [3]]),
    (0, 0, 8, 4, [[19, 1], [3]]),
    (0, 0, 4, 5, [[5, 1], [2]]),
    (0, 0, 20, 1, [[70, 1, 1], [20], [19, 1, 1], []]),
    (8, 32, 0, 0, [[40], [7], []]),
    (4, 32, 0, 2, [[9], [33]]),
    (4, 32, 8, 3, [[19, 1], [3]]),
]


def feed(seed, first, count, stream):
    rows = [feed_values(seed, first + i, stream, KV_HEADS * DIM) for i in range(count)]
    return mx.array(np.stack(rows).reshape(count, KV_HEADS, DIM).transpose(1, 0, 2)[None])


def single(seed, window, appends):
    cache = RotatingKVCache(max_size=window) if window else KVCache()
    first = 0
    for count in appends:
        cache.update_and_fetch(*(feed(seed, first, count, stream) for stream in (0, 1)))
        first += count
    return cache


def batch(seed, window, decodes, rows):
    singles = [single(seed + r, window, appends) for r, appends in enumerate(rows)]
    merged = (BatchRotatingKVCache if window else BatchKVCache).merge(singles)
    for i in range(decodes):
        tokens = [
            mx.concatenate([feed(seed + r, sum(a) + i, 1, stream) for r, a in enumerate(rows)])
            for stream in (0, 1)
        ]
        merged.update_and_fetch(*tokens)
    if window:
        merged._temporal_order()
    return merged


def quantized(plane, left, bits, group):
    parts = [np.array(part) for part in mx.quantize(plane, group, bits)]
    for row, padding in enumerate(left):
        for part in parts:
            part[row, :, :padding] = 0
    return parts


def run(seed, scenario):
    bits, group, window, decodes, rows = scenario
    merged = batch(seed, window, decodes, rows)
    width = merged._idx
    left = [max(0, int(p)) for p in np.array(merged.left_padding)]
    offsets = [int(o) for o in np.array(merged.offset)]
    assert offsets == [sum(appends) + decodes for appends in rows]
    assert left == [width - (min(o, window) if window else o) for o in offsets]
    out = struct.pack(f"<{1 + 2 * len(rows)}i", width, *left, *offsets)
    for plane in (merged.keys, merged.values):
        plane = plane[:, :, :width]
        parts = quantized(plane, left, bits, group) if bits else [np.array(plane)]
        out += b"".join(part.tobytes() for part in parts)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("padded.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    with open(options.file, "wb") as file:
        file.write(struct.pack("<II", options.seed, len(SCENARIOS)))
        for scenario in SCENARIOS:
            *header, rows = scenario
            file.write(struct.pack("<5i", *header, len(rows)))
            for appends in rows:
                file.write(struct.pack(f"<{1 + len(appends)}i", len(appends), *appends))
            file.write(run(options.seed, scenario))


if __name__ == "__main__":
    main()
