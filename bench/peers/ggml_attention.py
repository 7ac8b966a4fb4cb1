# SPDX-License-Identifier: MIT
"""ggml's flash attention on the CPU, as a peer of `kvern bench attention`.

Tensors lie as llama.cpp has them: K and V of a token for all KV heads side by side, the new tokens'
queries likewise, a mask of f16 for windows. A decode needs no mask and gets none.
"""

import ctypes
import math
import pathlib
import time

import numpy

from protocol import SHORT_SECONDS, Refused, rest, serve

# As bench/measure has it: decode reads cycle through this many bytes of rows.
COLD_BYTES = 512 << 20
MOST_ROWS = 512

# enum ggml_type.
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
F32, F16 = TYPES["f32"], TYPES["f16"]
PREC_F32 = 10  # enum ggml_prec: what llama.cpp asks for
MASK_ROWS = 64  # masks have a multiple of this many rows

# Seeds and ranges of bench/measure/peer.h.
K, V, Q = (1, 1.0), (2, 1.0), (3, 2.0)


def fill(count, seed, spread):
    """peer_fill: the generator's states are doubled in number by jumping ahead."""
    states = numpy.empty(count, numpy.uint32)
    factor, step = 1664525, 1013904223
    states[0] = (seed * factor + step) & 0xFFFFFFFF
    done = 1
    while done < count:
        more = min(done, count - done)
        states[done : done + more] = states[:more] * numpy.uint32(factor) + numpy.uint32(step)
        factor, step = factor * factor & 0xFFFFFFFF, (factor * step + step) & 0xFFFFFFFF
        done += more
    return ((states >> 8).astype(numpy.float32) / numpy.float32(8388608) - 1) * numpy.float32(spread)


class InitParams(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = [("bytes", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


P, I32, I64, F, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_size_t
# name: (library, result, arguments)
FUNCTIONS = {
    "ggml_version": ("ggml-base", ctypes.c_char_p, []),
    "ggml_init": ("ggml-base", P, [InitParams]),
    "ggml_free": ("ggml-base", None, [P]),
    "ggml_tensor_overhead": ("ggml-base", SIZE, []),
    "ggml_graph_overhead_custom": ("ggml-base", SIZE, [SIZE, ctypes.c_bool]),
    "ggml_new_tensor_3d": ("ggml-base", P, [P, I32, I64, I64, I64]),
    "ggml_permute": ("ggml-base", P, [P, P, I32, I32, I32, I32]),
    "ggml_flash_attn_ext": ("ggml-base", P, [P, P, P, P, P, F, F, F]),
    "ggml_flash_attn_ext_set_prec": ("ggml-base", None, [P, I32]),
    "ggml_new_graph_custom": ("ggml-base", P, [P, SIZE, ctypes.c_bool]),
    "ggml_build_forward_expand": ("ggml-base", None, [P, P]),
    "ggml_nbytes": ("ggml-base", SIZE, [P]),
    "ggml_row_size": ("ggml-base", SIZE, [I32, I64]),
    "ggml_quantize_chunk": ("ggml-base", SIZE, [I32, P, P, I64, I64, I64, P]),
    "ggml_backend_alloc_ctx_tensors": ("ggml-base", P, [P, P]),
    "ggml_backend_buffer_free": ("ggml-base", None, [P]),
    "ggml_backend_tensor_set": ("ggml-base", None, [P, P, SIZE, SIZE]),
    "ggml_backend_tensor_get": ("ggml-base", None, [P, P, SIZE, SIZE]),
    "ggml_backend_graph_compute": ("ggml-base", I32, [P, P]),
    "ggml_backend_cpu_init": ("ggml-cpu", P, []),
    "ggml_backend_cpu_set_n_threads": ("ggml-cpu", None, [P, I32]),
}


class Ggml:
    """The functions of FUNCTIONS as methods, without their prefix."""

    def __init__(self):
        import importlib.util  # only the folder is wanted: the package itself needs not be loaded

        folder = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
        libraries = {
            name: ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
            for name in ("ggml-base", "ggml-cpu")
        }
        for name, (library, result, arguments) in FUNCTIONS.items():
            function = getattr(libraries[library], name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)


class Case:
    """Tensors and graphs of one geometry: a row of K and V each, one graph per row."""

    def __init__(self, ggml, backend, decode, kind, head_dim, heads, kv_heads, positions, new):
        self.ggml, self.backend = ggml, backend
        self.head_dim, self.heads, self.new = head_dim, heads, new
        keys = positions + new
        row_bytes = 2 * keys * ggml.row_size(kind, kv_heads * head_dim)
        rows = min(MOST_ROWS, COLD_BYTES // row_bytes + 1) if decode else 1
        memory = rows * (8 * ggml.tensor_overhead() + ggml.graph_overhead_custom(8, False)) + 65536
        self.context = ggml.init(InitParams(memory, None, True))
        queries = ggml.new_tensor_3d(self.context, F32, head_dim, heads, new)
        mask = None
        if not decode:
            mask_rows = -(-new // MASK_ROWS) * MASK_ROWS
            mask = ggml.new_tensor_3d(self.context, F16, keys, mask_rows, 1)
        pairs, self.graphs, self.results = [], [], []
        for _ in range(rows):
            pair = [ggml.new_tensor_3d(self.context, kind, head_dim, kv_heads, keys) for _ in range(2)]
            pairs.append(pair)
            views = [ggml.permute(self.context, tensor, 0, 2, 1, 3) for tensor in (queries, *pair)]
            result = ggml.flash_attn_ext(self.context, *views, mask, 1 / math.sqrt(head_dim), 0, 0)
            ggml.flash_attn_ext_set_prec(result, PREC_F32)
            graph = ggml.new_graph_custom(self.context, 8, False)
            ggml.build_forward_expand(graph, result)
            self.graphs.append(graph)
            self.results.append(result)
        self.buffer = ggml.backend_alloc_ctx_tensors(self.context, backend)
        if not self.buffer:
            raise Refused("there is not enough memory")
        self.set(queries, fill(new * heads * head_dim, *Q))
        if mask:
            self.set(mask, self.causal_mask(mask_rows, positions, keys))
        for index, (seed, spread) in enumerate((K, V)):
            data = self.stored(kind, kv_heads * head_dim, keys, seed, spread)
            for pair in pairs:
                self.set(pair[index], data)
        self.next, self.last, self.short = 0, 0, False

    def set(self, tensor, data):
        """Gives a tensor its values."""
        size = self.ggml.nbytes(tensor)
        assert size == data.nbytes, (size, data.nbytes)
        self.ggml.backend_tensor_set(tensor, data.ctypes.data, 0, size)

    def stored(self, kind, width, keys, seed, spread):
        """K or V of all positions in its storage type."""
        values = fill(keys * width, seed, spread)
        data = numpy.empty(keys * self.ggml.row_size(kind, width), numpy.uint8)
        self.ggml.quantize_chunk(kind, values.ctypes.data, data.ctypes.data, 0, keys, width, None)
        return data

    @staticmethod
    def causal_mask(rows, positions, keys):
        """Token i sees all keys up to position `positions` + i; rows of no token see everything."""
        mask = numpy.zeros((rows, keys), numpy.float16)
        for token in range(rows):
            mask[token, positions + token + 1 :] = -numpy.inf
        return mask

    def compute(self):
        """Seconds of one attend, on the next row."""
        self.last = self.next
        self.next = (self.next + 1) % len(self.graphs)
        start = time.perf_counter()
        status = self.ggml.backend_graph_compute(self.backend, self.graphs[self.last])
        seconds = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}")
        return seconds

    def run(self):
        """Seconds of a timed attend."""
        if self.short:
            self.compute()
        seconds = self.compute()
        self.short = seconds < SHORT_SECONDS
        return seconds

    def output(self, token, head):
        """The results of one head of a new token."""
        values = numpy.empty(self.head_dim, numpy.float32)
        offset = (token * self.heads + head) * values.nbytes
        self.ggml.backend_tensor_get(self.results[self.last], values.ctypes.data, offset, values.nbytes)
        return values

    def free(self):
        """Gives all memory back."""
        self.ggml.backend_buffer_free(self.buffer)
        self.ggml.free(self.context)


class Peer:
    """What the lines of the protocol call."""

    def __init__(self):
        self.ggml = Ggml()
        self.backend = self.ggml.backend_cpu_init()
        self.case = None

    def name(self):
        return f"ggml {self.ggml.version().decode()}"

    def open(self, phase, storage, *numbers):
        head_dim, heads, kv_heads, positions, new, threads = map(int, numbers)
        if storage not in TYPES:
            raise Refused(f"ggml has no type {storage}")
        if storage.startswith("q") and head_dim % 32:
            raise Refused(f"{storage} has blocks of 32, and the head dim is {head_dim}")
        self.ggml.backend_cpu_set_n_threads(self.backend, threads)
        self.case = Case(
            self.ggml, self.backend, phase == "decode", TYPES[storage],
            head_dim, heads, kv_heads, positions, new,
        )

    def run(self):
        seconds = self.case.run()
        rest()
        return f"{seconds:.9f}"

    def output(self, token, head):
        return " ".join(f"{value:.9g}" for value in self.case.output(int(token), int(head)))

    def close(self):
        self.case.free()
        self.case = None


if __name__ == "__main__":
    serve(Peer())
