#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes weights.json: matrices that `mlx` 0.32.4 quantized, and what it takes their elements for.

A list; each has bits, group, the words, scales and biases of two rows, and the dequantized values.
tests/engine/test_linear_affine.c compares rows of the engine with it.

    tools/oracle-python tests/golden/affine/make_weights.py
"""
import json
import pathlib

import mlx.core as mx
import numpy as np

ROWS, COLS = 2, 128


def case(bits, group, random):
    values = mx.array(random.normal(size=(ROWS, COLS)).astype(np.float32))
    words, scales, biases = mx.quantize(values, group_size=group, bits=bits)
    exact = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
    return {
        "bits": bits,
        "group": group,
        "words": np.array(words).reshape(-1).tolist(),
        "scales": [float(x) for x in np.array(scales).reshape(-1)],
        "biases": [float(x) for x in np.array(biases).reshape(-1)],
        "values": [float(x) for x in np.array(exact).reshape(-1)],
    }


def main():
    mx.set_default_device(mx.cpu)
    random = np.random.default_rng(8)
    cases = [case(bits, group, random) for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
    lines = [json.dumps(one, separators=(",", ":")) for one in cases]
    path = pathlib.Path(__file__).parent / "weights.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} matrices, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
