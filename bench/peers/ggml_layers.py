# SPDX-License-Identifier: MIT
"""ggml's CPU backend as a peer of `kvern bench attention`, `bench recurrent` and `bench select`.

Graphs are those that llama.cpp makes of such layers, behind their projections. Flash attention: K
and V of a token for all KV heads side by side, the new tokens' queries likewise, a mask of f16 for
windows; a decode needs no mask and gets none; values of latents are a view of the keys. Recurrent
layers: the convolution, its tail kept, and the gated delta rule, its state written back. Selection:
the indexer's scores, and a top-k of them.
"""

import time

import numpy

from ggml import F16, F32, PREC_F32, TYPES, Ggml, InitParams
from protocol import SHORT_SECONDS, Refused, rest, serve
from tensors import TAPS, K, Q, RecurrentInputs, V, fill, rows_of

NODES = 64  # of a graph, at most

MASK_ROWS = 64  # masks have a multiple of this many rows


def causal_mask(rows, positions, keys):
    """Token i sees all keys up to position `positions` + i; rows of no token see everything."""
    mask = numpy.zeros((rows, keys), numpy.float16)
    for token in range(rows):
        mask[token, positions + token + 1 :] = -numpy.inf
    return mask


class Case:
    """A graph for each row; subclasses make tensors and graphs, and fill what they need."""

    def __init__(self, ggml, backend, rows):
        self.ggml, self.backend = ggml, backend
        memory = rows * (NODES * ggml.tensor_overhead() + ggml.graph_overhead_custom(NODES, False)) + 65536
        self.context = ggml.init(InitParams(memory, None, True))
        self.graphs, self.results, self.contents = [], [], []

    def tensor(self, kind, *shape):
        return self.ggml.new_tensor_4d(self.context, kind, *shape, *[1] * (4 - len(shape)))

    def f32(self, values, *shape):
        """A tensor with these values."""
        return self.holds(self.tensor(F32, *shape), numpy.ascontiguousarray(values, numpy.float32))

    def holds(self, tensor, data):
        """What a tensor will be filled with, when there is memory."""
        self.contents.append((tensor, data))
        return tensor

    def encode(self, kind, values):
        """Rows of values in a storage type."""
        rows, width = values.shape
        data = numpy.empty(rows * self.ggml.row_size(kind, width), numpy.uint8)
        self.ggml.quantize_chunk(kind, values.ctypes.data, data.ctypes.data, 0, rows, width, None)
        return data

    def of(self, name, *arguments):
        """A node."""
        return getattr(self.ggml, name)(self.context, *arguments)

    def graph(self, result, *others):
        """A row's graph: `others` are computed too."""
        graph = self.of("new_graph_custom", NODES, False)
        for node in (result, *others):
            self.ggml.build_forward_expand(graph, node)
        self.graphs.append(graph)
        self.results.append(result)

    def fill(self):
        """Takes memory for all tensors and fills them."""
        self.buffer = self.ggml.backend_alloc_ctx_tensors(self.context, self.backend)
        if not self.buffer:
            raise Refused("there is not enough memory")
        for tensor, data in self.contents:
            size = self.ggml.nbytes(tensor)
            assert size == data.nbytes, (size, data.nbytes)
            self.ggml.backend_tensor_set(tensor, data.ctypes.data, 0, size)
        self.contents = None
        self.next, self.last, self.short = 0, 0, False

    def once(self):
        """Seconds of one run, on the next row."""
        self.last = self.next
        self.next = (self.next + 1) % len(self.graphs)
        start = time.perf_counter()
        status = self.ggml.backend_graph_compute(self.backend, self.graphs[self.last])
        seconds = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"ggml_backend_graph_compute returned {status}")
        return seconds

    def run(self):
        """Seconds of a timed run."""
        if self.short:
            self.once()
        seconds = self.once()
        self.short = seconds < SHORT_SECONDS
        return seconds

    def read(self, first, count, kind=numpy.float32):
        """Numbers of the last result."""
        values = numpy.empty(count, kind)
        offset = first * values.itemsize
        self.ggml.backend_tensor_get(self.results[self.last], values.ctypes.data, offset, values.nbytes)
        return values

    def mask(self, positions, new):
        """Of a window."""
        rows = -(-new // MASK_ROWS) * MASK_ROWS
        return self.holds(self.tensor(F16, positions + new, rows), causal_mask(rows, positions, positions + new))

    def attend(self, queries, keys, values, mask, dim):
        """The graph of one read."""
        result = self.of("flash_attn_ext", queries, keys, values, mask, dim**-0.5, 0, 0)
        self.ggml.flash_attn_ext_set_prec(result, PREC_F32)
        self.graph(result)

    def free(self):
        """Gives all memory back."""
        self.ggml.backend_buffer_free(self.buffer)
        self.ggml.free(self.context)


class Attention(Case):
    """Reads of K and V of several KV heads."""

    def __init__(self, ggml, backend, phase, storage, head_dim, heads, kv_heads, positions, new):
        width, keys, kind, decode = kv_heads * head_dim, positions + new, TYPES[storage], phase == "decode"
        if storage.startswith("q") and head_dim % 32:
            raise Refused(f"{storage} has blocks of 32, and the head dim is {head_dim}")
        rows = rows_of(decode, 2 * keys * ggml.row_size(kind, width))
        super().__init__(ggml, backend, rows)
        self.head_dim, self.heads = head_dim, heads
        queries = self.of("permute", self.f32(fill(new * heads * head_dim, *Q), head_dim, heads, new), 0, 2, 1, 3)
        mask = None if decode else self.mask(positions, new)
        pair = [self.encode(kind, fill(keys * width, *which).reshape(keys, width)) for which in (K, V)]
        for _ in range(rows):
            key, value = (self.of("permute", self.holds(self.tensor(kind, head_dim, kv_heads, keys), data), 0, 2, 1, 3)
                          for data in pair)
            self.attend(queries, key, value, mask, head_dim)
        self.fill()

    def output(self, token, head):
        return self.read((token * self.heads + head) * self.head_dim, self.head_dim)


class Latent(Case):
    """Absorbed reads: one KV head, whose values are the first numbers of its keys."""

    def __init__(self, ggml, backend, phase, storage, latent, rope, heads, positions, new):
        dim, keys, kind, decode = latent + rope, positions + new, TYPES[storage], phase == "decode"
        rows = rows_of(decode, keys * ggml.row_size(kind, dim))
        super().__init__(ggml, backend, rows)
        self.latent, self.heads = latent, heads
        data = self.encode(kind, fill(keys * dim, *K).reshape(keys, dim))
        queries = self.of("permute", self.f32(fill(new * heads * dim, *Q), dim, heads, new), 0, 2, 1, 3)
        mask = None if decode else self.mask(positions, new)
        for _ in range(rows):
            key = self.holds(self.tensor(kind, dim, keys), data)
            row_bytes = ggml.row_size(kind, dim)
            value = self.of("view_3d", key, latent, keys, 1, row_bytes, row_bytes * keys, 0)
            self.attend(queries, key, value, mask, dim)
        self.fill()

    def output(self, token, head):
        return self.read((token * self.heads + head) * self.latent, self.latent)


class Recurrent(Case):
    """Gated DeltaNet. ggml takes key head h mod key_heads for value head h, so value heads lie in
    another order here."""

    def __init__(self, ggml, backend, kind, phase, storage, *geometry):
        if storage != "f32":
            raise Refused(f"states are f32, not {storage}")
        if kind == "ssd":
            raise Refused("ssd is not measured")
        made = RecurrentInputs(kind, *geometry)
        rows = rows_of(phase == "decode", 4 * made.value_heads * made.dim**2)
        super().__init__(ggml, backend, rows)
        self.made = made
        group = made.value_heads // made.key_heads
        self.order = numpy.arange(made.value_heads).reshape(made.key_heads, group).T.ravel()
        keys = 2 * made.key_heads * made.dim
        values = keys + (self.order[:, None] * made.dim + numpy.arange(made.dim)).ravel()
        channels = numpy.concatenate([numpy.arange(keys), values])
        self.x = self.f32(made.x[:, channels], made.channels, made.new)
        self.conv = self.f32(made.conv[:, channels].T, TAPS, made.channels)
        decays, heads = made.a.shape[-1], made.value_heads
        self.a = self.f32(made.a[:, self.order], decays, heads, made.new)
        self.dt_bias = self.f32(made.dt_bias[self.order], decays, heads)
        self.decay = self.f32(-numpy.exp(made.a_log[self.order]), 1, heads)
        self.b = self.f32(made.b[:, self.order], 1, heads, made.new)
        for _ in range(rows):
            self.row()
        self.fill()

    def row(self):
        """Tail and state of a row, and its graph."""
        made = self.made
        heads, dim, new = made.value_heads, made.dim, made.new
        tail = self.f32(numpy.zeros((made.channels, TAPS - 1)), TAPS - 1, made.channels)
        state = self.f32(numpy.zeros(heads * dim * dim), dim, dim, heads)
        both = self.of("concat", tail, self.of("transpose", self.x), 0)
        last = self.of("view_2d", both, TAPS - 1, made.channels, 4 * (TAPS - 1 + new), 4 * new)
        y = self.of("silu", self.of("ssm_conv", both, self.conv))
        token = 4 * made.channels
        part = 4 * made.key_heads * dim
        q, k = (self.of("rms_norm", self.of("view_3d", y, dim, made.key_heads, new, 4 * dim, token, at), 1e-6)
                for at in (0, part))
        v = self.of("view_3d", y, dim, heads, new, 4 * dim, token, 2 * part)
        g = self.of("mul", self.of("softplus", self.of("add", self.a, self.dt_bias)), self.decay)
        result = self.of("gated_delta_net", self.of("scale", q, dim**-0.5), self.of("scale", k, dim**-0.5), v, g,
                         self.of("sigmoid", self.b), state, 1)
        count = heads * dim * dim
        kept = self.of("cpy", self.of("view_1d", result, count, 4 * heads * dim * new),
                       self.of("view_1d", state, count, 0))
        self.graph(result, kept, self.of("cpy", last, tail))

    def output(self, token, head):
        at = list(self.order).index(head)
        return self.read((token * self.made.value_heads + at) * self.made.dim, self.made.dim)


class Select(Case):
    """Scores of all positions, and the best of them in any order."""

    def __init__(self, ggml, backend, storage, positions, top_k, heads, dim):
        super().__init__(ggml, backend, 1)
        self.top_k = top_k
        kind = TYPES[storage]
        data = self.encode(kind, fill(positions * dim, *V).reshape(positions, dim))
        keys = self.holds(self.tensor(kind, dim, 1, positions), data)
        queries = self.f32(fill(heads * dim, *Q), dim, heads, 1)
        weights = self.f32(fill(heads, *V), heads, 1)
        mask = self.holds(self.tensor(F16, positions, 1), numpy.zeros(positions, numpy.float16))
        self.graph(self.of("top_k", self.of("lightning_indexer", queries, keys, weights, mask), top_k))
        self.fill()

    def output(self, _, __):
        return numpy.sort(self.read(0, self.top_k, numpy.int32))


class Peer:
    """What the lines of the protocol call."""

    def __init__(self):
        self.ggml = Ggml()
        self.backend = self.ggml.backend_cpu_init()
        self.case = None

    def name(self):
        return f"ggml {self.ggml.version().decode()}"

    def begin(self, case, storage, *arguments):
        """`arguments` are words or numbers, the last one the threads."""
        if storage not in TYPES:
            raise Refused(f"ggml has no type {storage}")
        *arguments, threads = (int(word) if word.isdigit() else word for word in arguments)
        self.ggml.backend_cpu_set_n_threads(self.backend, threads)
        self.case = case(self.ggml, self.backend, *arguments)

    def open(self, phase, storage, *arguments):
        self.begin(Attention, storage, phase, storage, *arguments)

    def latent(self, phase, storage, *arguments):
        self.begin(Latent, storage, phase, storage, *arguments)

    def recurrent(self, kind, phase, storage, *arguments):
        self.begin(Recurrent, storage, kind, phase, storage, *arguments)

    def select(self, storage, *arguments):
        self.begin(Select, storage, storage, *arguments)

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
