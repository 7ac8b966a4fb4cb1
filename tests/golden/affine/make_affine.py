# SPDX-License-Identifier: MIT
"""Rows of numbers and what mx.quantize stores for them.

    tools/oracle-python tests/golden/affine/make_affine.py [--seed N] [FILE]

Writes affine.bin beside this script (or FILE), for tests/kernels/test_affine_golden.c. All little
endian:

    uint32 rows, uint32 dim
    for each type in (float32, bfloat16, float16):
        rows of dim values
        for bits in (2, 3, 4, 5, 6, 8), for group in (32, 64, 128):
            packed words [rows, dim * bits / 32], scales and biases [rows, dim / group] in the type

MLX must compute on the CPU: its GPU kernels round and seed differently.
"""

import argparse
import pathlib

import mlx.core as mx
import numpy as np

DIM = 128
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
TYPES = (mx.float32, mx.bfloat16, mx.float16)


def repeated(*values):
    return np.resize(np.array(values, dtype=np.float64), DIM)


def special_rows():
    """Degenerate groups, and those on the edges of the formula."""
    ramp = np.arange(DIM, dtype=np.float64)
    return [
        repeated(0.0),
        repeated(-0.0),
        repeated(0.0, -0.0),
        repeated(1.5),
        repeated(-0.7),
        repeated(1e-8),
        repeated(-4e-8, 4e-8),
        repeated(6e-8, 0, -1e-8),
        repeated(1.0, *[0.0] * 127),
        repeated(-1.0, 0.0, 0.5),
        repeated(1.0, 0.0, -0.5),
        repeated(-1.0, 1.0),
        repeated(1.0, -1.0, -0.0),
        ramp / 16,
        -ramp / 16,
        -5 - ramp / DIM,
        5 + ramp / DIM,
        (ramp % 31) * 0.5 - 7.5,
        (ramp % 16) / 15 * (ramp % 2 * 2 - 1),
        repeated(60000.0, -60000.0, 1.0),
        repeated(2e-5, -3e-5, 1e-7),
    ]


def random_rows(seed):
    random = np.random.default_rng(seed)
    normal = random.normal(size=(6, DIM))
    normal[1] *= 100
    normal[2] = -np.abs(normal[2])
    normal[3, ::37] *= 40  # outliers
    normal[4] = np.round(normal[4] * 4) / 8  # many ties
    normal[5] *= 2.0 ** random.integers(-20, 10, DIM)
    return normal


def little_endian(array):
    if array.dtype == mx.bfloat16:
        array = mx.view(array, mx.uint16)
    return np.array(array).tobytes()


def quantized(values):
    for bits in BITS:
        for group in GROUPS:
            for part in mx.quantize(values, group_size=group, bits=bits):
                yield little_endian(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("affine.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    rows = np.concatenate([special_rows(), random_rows(options.seed)]).astype(np.float32)
    parts = [np.array(rows.shape, dtype="<u4").tobytes()]
    for kind in TYPES:
        values = mx.array(rows).astype(kind)
        parts.append(little_endian(values))
        parts.extend(quantized(values))
    pathlib.Path(options.file).write_bytes(b"".join(parts))


if __name__ == "__main__":
    main()
