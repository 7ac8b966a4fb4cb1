#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes reference.gguf: a file written and decoded by the Python package `gguf` (0.19.0, numpy 2).

For each tensor type T it holds the tensor "T" (random blocks, raw bytes) and the tensor
"T.expected" (F32, what gguf.quants.dequantize makes of them), and one metadata entry of every value
type. tests/engine/test_dequantize.c and tests/engine/test_gguf.c compare the engine with it.

    pip install gguf==0.19.0 && python3 tests/golden/gguf/make_golden.py
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

BLOCKS = 3
# Byte positions of the f16 fields of a block. Random bits there would often be NaN or infinity,
# whose decoding this file is not about: NaN payloads differ between machines.
F16_FIELDS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108],
    "MXFP4": [],
}
PLAIN = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
PLAIN_INFINITY = {"F32": 0x7F800000, "F16": 0x7C00, "BF16": 0x7F80}


def finite_f16(random, count):
    """Random bits over all of f16, subnormals included, without infinities and NaNs."""
    bits = random.integers(0, 0x7C00, count) | random.integers(0, 2, count) << 15
    return bits.astype("<u2")


def plain_values(random, name):
    """64 random bit patterns, and the edges: zeros, subnormals, the largest, infinities."""
    unsigned, infinity = PLAIN[name], PLAIN_INFINITY[name]
    top = np.iinfo(unsigned).max // 2 + 1
    bits = random.integers(0, infinity, 64) | random.integers(0, 2, 64) * top
    edges = [0, 1, infinity - 1, infinity]
    edges += [top | edge for edge in edges]
    return np.concatenate([bits, edges]).astype(unsigned).view(np.uint8)


def blocks(random, name, size):
    data = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    if name == "MXFP4":
        data[:, 0] %= 255  # 255 is a NaN, which the package does not know
    for at in F16_FIELDS[name]:
        data[:, at:at + 2] = finite_f16(random, BLOCKS).view(np.uint8).reshape(BLOCKS, 2)
    return data.reshape(-1)


def add_metadata(writer):
    writer.add_uint8("test.uint8", 200)
    writer.add_int8("test.int8", -100)
    writer.add_uint16("test.uint16", 60000)
    writer.add_int16("test.int16", -30000)
    writer.add_uint32("test.uint32", 4000000000)
    writer.add_int32("test.int32", -2000000000)
    writer.add_uint64("test.uint64", 18000000000000000000)
    writer.add_int64("test.int64", -9000000000000000000)
    writer.add_float32("test.float32", 0.1)
    writer.add_float64("test.float64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "kv\u00e6rn")
    writer.add_array("test.array.int32", [-1, 0, 1])
    writer.add_array("test.array.float32", [0.5, -0.25])
    writer.add_array("test.array.bool", [True, False, True])
    writer.add_array("test.array.string", ["a", "bb", "\u20ac"])
    writer.add_key_value("test.array.uint64", [2**63, 7], GGUFValueType.ARRAY,
                         sub_type=GGUFValueType.UINT64)


def main():
    random = np.random.default_rng(20240229)
    path = pathlib.Path(__file__).parent / "reference.gguf"
    writer = GGUFWriter(path, "test")
    add_metadata(writer)
    for name in [*PLAIN, *F16_FIELDS]:
        kind = GGMLQuantizationType[name]
        per_block, size = GGML_QUANT_SIZES[kind]
        data = plain_values(random, name) if name in PLAIN else blocks(random, name, size)
        expected = quants.dequantize(data, kind).astype(np.float32)
        assert expected.size == data.size // size * per_block
        writer.add_tensor(name, data, raw_dtype=kind)
        writer.add_tensor(name + ".expected", expected)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
