# SPDX-License-Identifier: MIT
"""Attention, latents, recurrent layers and index scores in MLX and in NumPy, on one thread: peers of
`kvern bench attention`, `bench recurrent` and `bench select`.

    array_layers.py mlx|numpy

What MLX and mlx-lm offer is taken as it is; where there are two ways, the faster one. NumPy stands
beside it because of its matrix products: those of MLX's wheels for Linux are the reference BLAS's.
All is in float32; keys and values of MLX may be bf16, or quantized by 64 as mlx-lm's caches are.
"""

import sys
import time

import numpy

from protocol import SHORT_SECONDS, Refused, rest, serve
from tensors import TAPS, K, Q, RecurrentInputs, V, fill, rows_of

# Query vectors of a window that are attended at a time: their scores stay in a cache.
VECTORS = 256


class Numpy:
    """The calls that differ."""

    name = f"numpy {numpy.__version__}"
    xp = numpy

    @staticmethod
    def softmax(scores):
        scores -= scores.max(-1, keepdims=True)
        numpy.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        return scores

    @staticmethod
    def relu(x):
        return numpy.maximum(x, 0, out=x)

    @staticmethod
    def compute(*arrays):
        """Nothing is left to do."""


class Mlx:
    """The same; arrays are computed when they are asked for."""

    def __init__(self):
        import mlx.core

        self.xp = mlx.core
        self.xp.set_default_device(self.xp.cpu)
        self.name = f"mlx {mlx.core.__version__}"

    def softmax(self, scores):
        return self.xp.softmax(scores, axis=-1)

    def relu(self, x):
        return self.xp.maximum(x, 0)

    def compute(self, *arrays):
        self.xp.eval(*arrays)


# What keys and values may be stored in, and MLX's bits of it.
QUANTIZED = {"q8": 8, "q6": 6, "q5": 5, "q4": 4, "q3": 3, "q2": 2}
GROUP_SIZE = 64


class Attention:
    """Reads of K and V of several KV heads, each head's positions behind each other as in mlx-lm's caches."""

    def __init__(self, ops, storage, phase, dim, heads, kv_heads, positions, new):
        if storage != "f32" and not (isinstance(ops, Mlx) and (storage in QUANTIZED or storage == "bf16")):
            raise Refused(f"{ops.name} is not asked for {storage}")
        self.ops, self.bits, self.scale = ops, QUANTIZED.get(storage), dim**-0.5
        self.positions, self.group = positions, heads // kv_heads
        shape = (positions + new, kv_heads, dim)
        kv = [fill(shape[0] * kv_heads * dim, *which).reshape(shape).transpose(1, 0, 2)[None] for which in (K, V)]
        self.queries = self.stored(fill(new * heads * dim, *Q).reshape(new, heads, dim).transpose(1, 0, 2)[None],
                                   "f32" if self.bits else storage)
        row_bytes = 2 * kv[0].size * (self.bits or {"bf16": 16}.get(storage, 32)) // 8
        self.rows = [[self.stored(part, storage) for part in kv] for _ in range(rows_of(phase == "decode", row_bytes))]

    def stored(self, part, storage):
        """A copy of its own."""
        xp = self.ops.xp
        array = xp.array(numpy.ascontiguousarray(part))
        if storage == "bf16":
            array = array.astype(xp.bfloat16)
        if storage in QUANTIZED:
            array = xp.quantize(array, group_size=GROUP_SIZE, bits=self.bits)
        self.ops.compute(array)
        return array

    def run(self, row):
        attend = self.attend_mlx if isinstance(self.ops, Mlx) else self.attend_numpy
        self.results = attend(*self.rows[row])
        self.ops.compute(self.results)

    def attend_mlx(self, keys, values):
        mask = None if self.queries.shape[2] == 1 else "causal"
        if self.bits:
            from mlx_lm.models.base import quantized_scaled_dot_product_attention

            queries = self.ops.xp.array(self.queries)  # which it multiplies in place
            return quantized_scaled_dot_product_attention(queries, keys, values, self.scale, mask, GROUP_SIZE,
                                                          self.bits)
        return self.ops.xp.fast.scaled_dot_product_attention(self.queries, keys, values, scale=self.scale, mask=mask)

    def attend_numpy(self, keys, values):
        """A KV head's query vectors of some tokens at a time."""
        new, results = self.queries.shape[2], numpy.empty_like(self.queries)
        step = max(1, VECTORS // self.group)
        for head in range(keys.shape[1]):
            own = slice(head * self.group, (head + 1) * self.group)
            for first in range(0, new, step):
                end = min(first + step, new)
                sees = self.positions + end
                queries = self.queries[0, own, first:end]
                scores = (queries.reshape(-1, queries.shape[-1]) * self.scale) @ keys[0, head, :sees].T
                if end - first > 1:
                    hidden = numpy.arange(sees) > self.positions + numpy.arange(first, end)[:, None]
                    scores.reshape(self.group, end - first, sees)[:, hidden] = -numpy.inf
                weights = self.ops.softmax(scores)
                results[0, own, first:end] = (weights @ values[0, head, :sees]).reshape(queries.shape)
        return results

    def output(self, token, head):
        return numpy.array(self.results[0, head, token].astype(self.ops.xp.float32))


class Latent:
    """Absorbed reads: one key and value for all heads. Matrix products, which are faster here than
    mlx.core.fast.scaled_dot_product_attention."""

    def __init__(self, ops, phase, latent, rope, heads, positions, new):
        self.ops, self.latent, self.heads, self.positions, self.new = ops, latent, heads, positions, new
        dim = latent + rope
        stored = fill((positions + new) * dim, *K).reshape(-1, dim)
        self.scale = dim**-0.5
        self.queries = ops.xp.array(fill(new * heads * dim, *Q).reshape(new, heads, dim))
        self.rows = [ops.xp.array(stored) for _ in range(rows_of(phase == "decode", stored.nbytes))]
        self.ops.compute(self.queries, *self.rows)

    def run(self, row):
        """Some tokens at a time, up to the last position that they see."""
        keys, step = self.rows[row], max(1, VECTORS // self.heads)
        outputs = [self.attend(keys, first, min(first + step, self.new)) for first in range(0, self.new, step)]
        self.ops.compute(*outputs)
        self.results = outputs

    def attend(self, keys, first, end):
        xp, count, sees = self.ops.xp, end - first, self.positions + end
        queries = self.queries[first:end].reshape(count * self.heads, -1) * self.scale
        scores = (queries @ keys[:sees].T).reshape(count, self.heads, sees)
        if count > 1:
            hidden = numpy.arange(sees) > self.positions + numpy.arange(first, end)[:, None]
            scores = scores + xp.array(numpy.where(hidden, -numpy.inf, 0).astype(numpy.float32))[:, None]
        weights = self.ops.softmax(scores).reshape(count * self.heads, sees)
        return (weights @ keys[:sees, : self.latent]).reshape(count, self.heads, self.latent)

    def output(self, token, head):
        step = max(1, VECTORS // self.heads)
        return numpy.array(self.results[token // step][token % step, head])


class Recurrent:
    """Gated DeltaNet as the blocks of mlx-lm compute it, behind their projections."""

    def __init__(self, ops, kind, phase, *geometry):
        if not isinstance(ops, Mlx) or kind == "ssd":
            raise Refused(f"{ops.name} is not asked for {kind}")
        self.ops, xp = ops, ops.xp
        inputs = self.inputs = RecurrentInputs(kind, *geometry)
        self.conv = [xp.array(tap) for tap in inputs.conv]
        self.x, self.b, self.a_log = xp.array(inputs.x), xp.array(inputs.b[None]), xp.array(inputs.a_log)
        self.a, self.dt_bias = xp.array(inputs.a[None]), xp.array(inputs.dt_bias)
        if kind == "channels":
            self.a_log = self.a_log[:, None]
        else:
            self.a, self.dt_bias = self.a[..., 0], self.dt_bias[:, 0]
        shape = (1, inputs.value_heads, inputs.dim, inputs.dim)
        count = rows_of(phase == "decode", 4 * inputs.value_heads * inputs.dim**2)
        self.rows = [(xp.zeros((TAPS - 1, inputs.channels)), xp.zeros(shape)) for _ in range(count)]
        for row in self.rows:
            ops.compute(*row)

    def run(self, row):
        from mlx_lm.models.gated_delta import gated_delta_update

        xp, inputs = self.ops.xp, self.inputs
        tail, state = self.rows[row]
        x = xp.concatenate([tail, self.x])
        # Faster than conv1d with a group per channel.
        y = sum(x[tap : tap + inputs.new] * weight for tap, weight in enumerate(self.conv))
        y = y * xp.sigmoid(y)
        width = inputs.key_heads * inputs.dim
        q, k, v = (part.reshape(1, inputs.new, -1, inputs.dim) for part in xp.split(y, [width, 2 * width], axis=-1))
        q = xp.fast.rms_norm(q, None, 1e-6) * (1 / inputs.dim)
        k = xp.fast.rms_norm(k, None, 1e-6) * inputs.dim**-0.5
        y, state = gated_delta_update(q, k, v, self.a, self.b, self.a_log, self.dt_bias, state, use_kernel=False)
        tail = xp.contiguous(x[inputs.new :])
        self.ops.compute(y, state, tail)
        self.rows[row], self.results = (tail, state), y

    def output(self, token, head):
        return numpy.array(self.results[0, token, head])


class Select:
    """Scores of all positions, and the best of them in any order."""

    rows = (None,)

    def __init__(self, ops, positions, top_k, heads, dim):
        self.ops, self.top_k = ops, top_k
        self.keys = ops.xp.array(fill(positions * dim, *V).reshape(positions, dim))
        self.queries = ops.xp.array(fill(heads * dim, *Q).reshape(heads, dim))
        self.weights = ops.xp.array(fill(heads, *V))
        ops.compute(self.keys, self.queries, self.weights)

    def run(self, _):
        scores = self.weights @ self.ops.relu(self.queries @ self.keys.T)
        self.results = self.ops.xp.argpartition(-scores, self.top_k - 1)[: self.top_k]
        self.ops.compute(self.results)

    def output(self, _, __):
        return numpy.sort(numpy.array(self.results))


class Peer:
    """What the lines of the protocol call."""

    def __init__(self, ops):
        self.ops, self.case = ops, None

    def name(self):
        return self.ops.name

    def begin(self, case, storage, *arguments):
        """`arguments` are words or numbers, the last one the threads."""
        *arguments, threads = (int(word) if word.isdigit() else word for word in arguments)
        if storage != "f32" and case is not Attention:
            raise Refused(f"only f32 is measured, not {storage}")
        if threads != 1:
            raise Refused("only one thread is measured")
        self.case = case(self.ops, *arguments)
        self.next, self.short = 0, False

    def open(self, phase, storage, *arguments):
        self.begin(Attention, storage, storage, phase, *arguments)

    def latent(self, phase, storage, *arguments):
        self.begin(Latent, storage, phase, *arguments)

    def recurrent(self, kind, phase, storage, *arguments):
        self.begin(Recurrent, storage, kind, phase, *arguments)

    def select(self, storage, *arguments):
        self.begin(Select, storage, *arguments)

    def once(self):
        """Seconds of one run, on the next row."""
        row, self.next = self.next, (self.next + 1) % len(self.case.rows)
        start = time.perf_counter()
        self.case.run(row)
        return time.perf_counter() - start

    def run(self):
        """Seconds of a timed run."""
        if self.short:
            self.once()
        seconds = self.once()
        self.short = seconds < SHORT_SECONDS
        rest()
        return f"{seconds:.9f}"

    def output(self, token, head):
        return " ".join(f"{value:.9g}" for value in self.case.output(int(token), int(head)))

    def close(self):
        self.case = None


if __name__ == "__main__":
    serve(Peer(Mlx() if sys.argv[1] == "mlx" else Numpy()))
