# SPDX-License-Identifier: MIT
"""The tensors of the protocol: bench/measure/peer.h."""

import numpy

# As bench/measure has it: decodes cycle through this many bytes of rows.
COLD_BYTES = 512 << 20
MOST_ROWS = 512

# Seeds and ranges of the tensors of a read.
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


def rows_of(decode, row_bytes):
    """Rows that decodes cycle through; a window computes long on what it reads."""
    return min(MOST_ROWS, COLD_BYTES // row_bytes + 1) if decode else 1


TAPS = 4  # of the convolution


class RecurrentInputs:
    """What bench/measure/recurrent_timing.c gives a recurrent layer: weights, and `new` tokens of
    the channels of queries, keys and values."""

    def __init__(self, kind, key_heads, value_heads, dim, new):
        self.key_heads, self.value_heads, self.dim, self.new = key_heads, value_heads, dim, new
        self.channels = (2 * key_heads + value_heads) * dim
        decays = dim if kind == "channels" else 1  # of a value head
        self.conv = fill(TAPS * self.channels, 1, 0.5).reshape(TAPS, self.channels)
        self.a_log = fill(value_heads, 2, 1.0)
        self.dt_bias = fill(value_heads * decays, 3, 1.0).reshape(value_heads, decays)
        self.x = fill(new * self.channels, 5, 1.0).reshape(new, self.channels)
        self.a = fill(new * value_heads * decays, 6, 1.0).reshape(new, value_heads, decays)
        self.b = fill(new * value_heads, 7, 1.0).reshape(new, value_heads)
