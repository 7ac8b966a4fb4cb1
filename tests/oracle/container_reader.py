# SPDX-License-Identifier: MIT
"""Reads files of rows, from docs/formats/container.md and docs/arithmetic.md alone: json and
numpy, no line of the library.

    file = Container("prompt.kv")
    file.position(layer, row, position)      the numbers of all streams, by name: [heads, dim]
    file.recurrent(layer, row)               the convolution's inputs and S, or the lane
"""

import json
import pathlib
import re

import numpy as np

DTYPES = {"U8": "<u1", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8"}
ARITHMETIC = pathlib.Path(__file__).parents[2] / "docs" / "arithmetic.md"


def levels_of_codes():
    """The upper half of the levels of turbo codes by bits: the table of docs/arithmetic.md."""
    text = ARITHMETIC.read_text(encoding="utf-8")
    table = text[text.index("| bits | level"):]
    rows = re.findall(r"^\| (\d) \| ([0-9., ]+) \|", table[:table.index("\n\n")], re.M)
    return {int(bits): [float(x) for x in levels.split(",")] for bits, levels in rows}


LEVELS = levels_of_codes()


def widen(raw, kind):
    """Bytes as float64 numbers of a type, flat."""
    if kind == "bf16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(raw, "<f4" if kind == "f32" else "<f2").astype(np.float64)


def rotate_back(z):
    """A rotated vector, as it was; float64."""
    dim, n = len(z), 1 << (len(z).bit_length() - 1)
    z = z.astype(np.float64).copy()
    for stage in reversed(range(1 if n == dim else 2)):
        part = z[:n] if stage == 0 else z[dim - n:]
        step = 1
        while step < n:
            pairs = part.reshape(-1, 2, step)
            a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
            pairs[:, 0], pairs[:, 1] = a + b, a - b
            step *= 2
        mask, words = (1 << 64) - 1, []
        for w in range((n + 63) // 64):
            u = (2 * dim + stage + (w + 1) * 0x9E3779B97F4A7C15) & mask
            u = ((u ^ (u >> 30)) * 0xBF58476D1CE4E5B9) & mask
            u = ((u ^ (u >> 27)) * 0x94D049BB133111EB) & mask
            words.append(u ^ (u >> 31))
        signs = [-1.0 if words[i // 64] >> i % 64 & 1 else 1.0 for i in range(n)]
        part *= np.array(signs) * float(np.float32(1 / np.sqrt(n)))
    return z


def column(words, bits):
    """The 32 codes of columns: words [bits, ...] -> codes [32, ...]."""
    per_word = 32 // bits
    codes = [words[i // per_word] >> i % per_word * bits & (1 << bits) - 1
             for i in range(per_word * bits)]
    if len(codes) < 32:
        rest = [words[i // 2] >> 30 + i % 2 & 1 for i in range(2 * bits)]
        for c in range(2):
            codes.append(sum(rest[c * bits + b] << b for b in range(bits)))
    return np.stack(codes)


def codes_of(raw, bits, dim, is_value):
    """All codes of a block: [64 slots, dim]."""
    words = np.frombuffer(raw, "<u4").astype(np.int64)
    out = np.zeros((64, dim), np.int64)
    at = 0
    if is_value:
        for first in range(0, dim, 64):
            w = min(64, dim - first)
            for half in range(2):
                part = words[at:at + bits * w].reshape(bits, w)
                out[32 * half:32 * half + 32, first:first + w] = column(part, bits)
                at += bits * w
        return out
    for first in range(0, dim - dim % 32, 32):
        out[:, first:first + 32] = column(words[at:at + bits * 64].reshape(bits, 64), bits).T
        at += bits * 64
    if dim % 32:
        half = column(words[at:at + bits * 32].reshape(bits, 32), bits)
        out[:32, dim - 16:], out[32:, dim - 16:] = half[:16].T, half[16:].T
    return out


class Codec:
    """What a name in a signature says of blocks."""

    def __init__(self, name):
        self.name = name
        affine = re.fullmatch(r"(affine|rotated)(\d+)g(\d+)(f32|f16|bf16)(r1)?", name)
        turbo = re.fullmatch(r"turbo([1-5])r1c1|turbo(6)r1c2", name)
        self.kind = name
        if affine:
            self.kind, self.scales = affine[1], affine[4]
            self.bits, self.group = int(affine[2]), int(affine[3])
        elif turbo:
            self.kind, self.bits = "turbo", int(turbo[1] or turbo[2])
        elif name not in ("f32", "f16", "bf16"):
            raise ValueError(f"unknown codec {name}")
        self.exact = self.kind not in ("rotated", "turbo")

    def block_bytes(self, dim):
        if self.kind in ("affine", "rotated"):
            sides = 2 * (dim // self.group) * 64 * (4 if self.scales == "f32" else 2)
            return sides + dim * self.bits * 8
        if self.kind == "turbo":
            return 128 + dim * self.bits * 8
        return dim * 64 * (4 if self.kind == "f32" else 2)

    def decode(self, raw, dim, is_value):
        """A block: float64 [64 slots, dim]."""
        if self.kind in ("affine", "rotated"):
            groups = dim // self.group
            size = self.block_bytes(dim) - dim * self.bits * 8
            sides = widen(raw[:size], self.scales).reshape(groups, 2, 64)
            codes = codes_of(raw[size:], self.bits, dim, is_value)
            scale = np.repeat(sides[:, 0].T, self.group, axis=1)
            bias = np.repeat(sides[:, 1].T, self.group, axis=1)
            return scale * codes + bias
        if self.kind == "turbo":
            upper = [float(np.float32(x)) for x in LEVELS[self.bits]]
            levels = np.array([-x for x in reversed(upper)] + upper)
            scale = widen(raw[:128], "f16")
            return scale[:, None] * levels[codes_of(raw[128:], self.bits, dim, is_value)]
        numbers = widen(raw, self.kind)
        if not is_value and self.kind == "bf16":
            return numbers.reshape(dim // 2, 64, 2).transpose(1, 0, 2).reshape(64, dim)
        if not is_value:
            return numbers.reshape(dim, 64).T
        panels = []
        for first in range(0, dim, 64):
            w = min(64, dim - first)
            part = numbers[first * 64:(first + w) * 64]
            if self.kind == "bf16":
                panels.append(part.reshape(32, w, 2).transpose(0, 2, 1).reshape(64, w))
            else:
                panels.append(part.reshape(64, w))
        return np.concatenate(panels, axis=1)

    def vector(self, numbers):
        return numbers if self.exact else rotate_back(numbers)


class Layer:
    """What a signature says."""

    def __init__(self, text):
        parts = text.split(":")
        self.kind = parts[0]
        self.shared = self.kind == "shared"
        self.whole = bool(re.match(r"delta|ssd|lane", self.kind))
        self.parts = parts
        window = re.fullmatch(r"window(\d+)\+(\d+)\+(\d+)", self.kind)
        self.keep = int(window[2]) if window else 0
        self.heads = 1
        self.streams, self.start, self.precise = [], None, None
        for part in parts[1:]:
            if re.fullmatch(r"h\d+", part):
                self.heads = int(part[1:])
            elif part.startswith("start"):
                self.start = int(part[5:])
            elif part.startswith("precise"):
                self.precise = [int(x) for x in part[7:].split("+")]
            elif "=" in part:
                name, codec = part.split("=")
                split = re.fullmatch(r"([a-z]+)(\d+)", name)
                self.streams.append((split[1], int(split[2]), Codec(codec)))
        first = self.precise[0] if self.precise else 0
        if window:
            first = min(first, self.keep)
        elif self.kind.startswith("chunk"):
            first = 0
        self.front = -(-first // 64) * 64

    def page(self, raw, first):
        """The blocks of a page by stream: [heads, 64 slots, dim], and their codecs."""
        out, at = {}, 0
        for name, dim, codec in self.streams:
            codec = Codec("bf16") if first else codec
            size = codec.block_bytes(dim)
            heads = self.heads
            blocks = [codec.decode(raw[at + h * size:at + (h + 1) * size], dim, name == "v")
                      for h in range(heads)]
            out[name] = (np.stack(blocks), codec)
            at += heads * size
        assert at == len(raw), f"a page of {len(raw)} bytes, not {at}"
        return out


class Container:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.raw = file.read()
        length = int.from_bytes(self.raw[:8], "little")
        header = json.loads(self.raw[8:8 + length])
        self.metadata = header.pop("__metadata__")
        assert self.metadata["format"] == "kvern-cache" and self.metadata["version"] == "1"
        assert self.metadata["page_positions"] == "64" and (8 + length) % 4096 == 0
        self.tensors = {}
        for name, entry in header.items():
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            data = np.frombuffer(self.raw[begin:end], DTYPES[entry["dtype"]])
            self.tensors[name] = data.reshape(entry["shape"])
            assert not name.startswith("pages.") or begin % 4096 == 0
            assert not name.startswith("pad.") or not data.any()
        self.layers = [Layer(self.metadata[f"layer.{i}"])
                       for i in range(int(self.metadata["layers"]))]
        self.snapshots, self.records = self.tensors["snapshots"], self.tensors["records"]
        counts = self.records[:, :, 5].ravel()
        self.begins = (np.cumsum(counts) - counts).reshape(self.records.shape[:2])
        self.coded = {}
        for index, layer in enumerate(self.layers):
            if layer.precise:
                self.coded[index] = len(self.layers) + len(self.coded)
        self.decoded = {}

    def is_first(self, layer, set_, record):
        plan = self.layers[layer]
        if plan.precise:
            return set_ == layer
        return plan.start is not None and record[4] == 0

    def page(self, layer, set_, snapshot, page):
        """The streams of a row's page; None where it does not hold it."""
        plan, record = self.layers[layer], self.records[set_, snapshot]
        length, held = int(record[0]), int(record[1])
        keep = plan.keep
        if plan.precise:
            keep = plan.front if set_ == layer else max(plan.keep - plan.front, 0)
        kept = -(-keep // 64) if held else 0
        gap = max(held // 64 - kept, 0) if held else 0
        assert record[5] == -(-length // 64) - gap
        if kept <= page < kept + gap:
            return None
        index = page if page < kept else page - gap
        number = int(self.tensors["tables"][self.begins[set_, snapshot] + index])
        first = self.is_first(layer, set_, record)
        if (layer, first, number) not in self.decoded:
            raw = self.tensors[f"pages.{layer}" + (".first" if first else "")][number].tobytes()
            self.decoded[layer, first, number] = plan.page(raw, first)
        return self.decoded[layer, first, number]

    def position(self, layer, row, position):
        """[heads, dim] float64 by stream, and whether they are exact."""
        plan, set_ = self.layers[layer], layer
        if plan.precise and plan.front <= position < self.records[layer, row, 1]:
            set_, position = self.coded[layer], position - plan.front
        streams = self.page(layer, set_, row, position // 64)
        if streams is None:
            return None
        return {name: (np.stack([codec.vector(block[h, position % 64])
                                 for h in range(len(block))]), codec.exact)
                for name, (block, codec) in streams.items()}

    def recurrent(self, layer, row):
        """Bytes as the library exports them: the convolution's inputs and S, or the lane."""
        plan, record = self.layers[layer], self.records[layer, row]
        number = int(self.tensors["tables"][self.begins[layer, row]])
        assert record[5] == 1
        raw = self.tensors[f"pages.{layer}"][number].tobytes()
        if plan.kind == "lane":
            return raw[:int(plan.parts[1][5:])]
        key_heads, value_heads = (int(x) for x in plan.parts[1][1:].split("/"))
        k_dim, v_dim, taps = int(plan.parts[2][1:]), int(plan.parts[3][1:]), int(plan.parts[4][4:])
        tail = max(taps - 1, 0) * (2 * key_heads * k_dim + value_heads * v_dim)
        numbers = np.frombuffer(raw, "<f4")
        blocks = -(-v_dim // 32)
        begin = -(-tail // 16) * 16
        s = numbers[begin:begin + value_heads * blocks * k_dim * 32]
        s = s.reshape(value_heads, blocks, k_dim, 32).transpose(0, 1, 3, 2)
        s = s.reshape(value_heads, blocks * 32, k_dim)[:, :v_dim]
        return numbers[:tail].tobytes() + np.ascontiguousarray(s).tobytes()
