# SPDX-License-Identifier: MIT
"""Vectors, what the rotation makes of them, and their turbo codes, from docs/arithmetic.md.

    tools/oracle-python tests/golden/rotated/make_rotated.py [--seed N] [FILE]

Writes rotated.bin beside this script (or FILE), for tests/kernels/test_rotated_golden.c. All little
endian:

    uint32 vectors
    for each vector:
        uint32 dim, float32 values [dim], float32 rotated [dim]
        for bits in (1, 2, 3, 4):
            uint32 words [ceil(dim * bits / 32)], float16 scale of a key, float16 scale of a value
"""

import argparse
import pathlib
import struct

import numpy as np

F32 = np.float32
DIMS = (16, 48, 64, 80, 96, 112, 128, 192, 256, 512, 576)
LEVELS = {
    1: (0.797884560803,),
    2: (0.452780034636, 1.510417608500),
    3: (0.245094178944, 0.756005281206, 1.343909278500, 2.151945704540),
    4: (0.128395029851, 0.388048299490, 0.656759118532, 0.942340456487, 1.256231197350,
        1.618046386020, 2.069017226530, 2.732589571000),
    5: (0.065889659771, 0.198051829669, 0.331378305760, 0.466699522977, 0.604933624009,
        0.747135703688, 0.894565117388, 1.048783319923, 1.211804380609, 1.386340339587,
        1.576228078612, 1.787233217703, 2.028728399396, 2.317739404195, 2.691119577377,
        3.260732493401),
    6: (0.033447265625, 0.100097656250, 0.166992187500, 0.234375000000, 0.302734375000,
        0.371093750000, 0.439453125000, 0.507812500000, 0.578125000000, 0.648437500000,
        0.722656250000, 0.796875000000, 0.871093750000, 0.945312500000, 1.023437500000,
        1.109375000000, 1.187500000000, 1.273437500000, 1.367187500000, 1.460937500000,
        1.554687500000, 1.656250000000, 1.765625000000, 1.882812500000, 2.015625000000,
        2.140625000000, 2.296875000000, 2.468750000000, 2.671875000000, 2.921875000000,
        3.234375000000, 3.750000000000),
}
EDGES = {
    1: (),
    2: (0.981598821568,),
    3: (0.500549730075, 1.049957279860, 1.747927491520),
    4: (0.258221664671, 0.522403709011, 0.799549787510, 1.099285826920, 1.437138791680,
        1.843531806280, 2.400803398760),
    5: (0.131970744720, 0.264715067715, 0.399038914368, 0.535816573493, 0.676034663849,
        0.820850410538, 0.971674218656, 1.130293850266, 1.299072360098, 1.481284209099,
        1.681730648158, 1.907980808549, 2.173233901795, 2.504429490786, 2.975926035389),
    6: (0.066772460938, 0.133544921875, 0.200683593750, 0.268554687500, 0.336914062500,
        0.405273437500, 0.473632812500, 0.542968750000, 0.613281250000, 0.685546875000,
        0.759765625000, 0.833984375000, 0.908203125000, 0.984375000000, 1.066406250000,
        1.148437500000, 1.230468750000, 1.320312500000, 1.414062500000, 1.507812500000,
        1.605468750000, 1.710937500000, 1.824218750000, 1.949218750000, 2.078125000000,
        2.218750000000, 2.382812500000, 2.570312500000, 2.796875000000, 3.078125000000,
        3.492187500000),
}


def signs(dim, stage, count):
    out = []
    for word in range((count + 63) // 64):
        u = (2 * dim + stage + (word + 1) * 0x9E3779B97F4A7C15) % 2**64
        u = (u ^ u >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        u = (u ^ u >> 27) * 0x94D049BB133111EB % 2**64
        u ^= u >> 31
        out += [-1 if u >> bit & 1 else 1 for bit in range(64)]
    return np.array(out[:count], dtype=F32)


def transform(x):
    n, step = len(x), 1
    while step < n:
        pairs = x.reshape(-1, 2, step)
        a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
        pairs[:, 0], pairs[:, 1] = a + b, a - b
        step *= 2
    return x * F32(1 / np.sqrt(np.float64(n)))


def rotate(x):
    dim, x = len(x), x.copy()
    n = 1 << dim.bit_length() - 1
    x[:n] = transform(x[:n] * signs(dim, 0, n))
    if n < dim:
        x[dim - n:] = transform(x[dim - n:] * signs(dim, 1, n))
    return x


def fma(a, b, c):
    """By float64, which is exact for the product and rounds the sum once more than it should: that
    shows in one of 2^28 results."""
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(F32)


def sum_of_products(a, b):
    t = np.zeros(16, dtype=F32)
    for d in range(0, len(a), 16):
        t = fma(a[d:d + 16], b[d:d + 16], t)
    while len(t) > 1:
        t = t[:len(t) // 2] + t[len(t) // 2:]
    return t[0]


def scaled(x):
    """x with its largest magnitude from 1 to 2, and the power of two that was taken out."""
    exponent = int(np.frexp(np.abs(x).max())[1]) - 1
    exponent = min(max(exponent, -100), 126)
    return np.ldexp(x, -exponent).astype(F32), exponent


def turbo(x, bits):
    z, exponent = scaled(x)
    z = rotate(z)
    zz = sum_of_products(z, z)
    y = z * np.sqrt(F32(len(z)) / zz)
    above = sum((np.abs(y) >= F32(edge)).astype(np.int64) for edge in EDGES[bits]) + np.zeros(
        len(y), dtype=np.int64)
    half = 1 << bits - 1
    negative = np.signbit(y)
    codes = np.where(negative, half - 1 - above, half + above)
    c = np.array(LEVELS[bits], dtype=F32)[above] * np.where(negative, F32(-1), F32(1))
    zc, cc = sum_of_products(z, c), sum_of_products(c, c)
    scales = [np.minimum(np.ldexp(s, exponent), F32(65504)) for s in (zz / zc, zc / cc)]
    return codes, np.array(scales, dtype=F32).astype(np.float16)


def packed(codes, bits):
    whole = sum(int(code) << i * bits for i, code in enumerate(codes))
    return whole.to_bytes((len(codes) * bits + 31) // 32 * 4, "little")


def vectors(seed):
    random = np.random.default_rng(seed)
    for dim in DIMS:
        normal = random.normal(size=(4, dim))
        normal[1, ::17] *= 50
        normal[2] = normal[2, 0]
        normal[3] *= 2.0 ** (random.integers(-30, 30) if dim % 3 else 40)
        yield from normal.astype(F32)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("rotated.bin"))
    options = parser.parse_args()
    out = [struct.pack("<I", 4 * len(DIMS))]
    for x in vectors(options.seed):
        out += [struct.pack("<I", len(x)), x.tobytes(), rotate(x).tobytes()]
        for bits in LEVELS:
            codes, scales = turbo(x, bits)
            out += [packed(codes, bits), scales.tobytes()]
    options.file.write_bytes(b"".join(out))


if __name__ == "__main__":
    main()
