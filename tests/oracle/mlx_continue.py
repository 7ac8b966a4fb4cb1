# SPDX-License-Identifier: MIT
"""Caches that Kvern wrote, beside those of mlx-lm with the same contents: both go on alike.

    PYTHON tests/oracle/mlx_continue.py FOLDER SEED states|infos

The folder has the files of tests/golden/mlx/make_mlx.py and the exports of unit/mlx_cache (again-*, grown-*). Each
export is loaded, holds the same keys and values bit for bit, and takes the same new tokens: one, then five, then one.
What queries see then is compared in float32, where rings that began elsewhere are summed in another order.
"""

import pathlib
import sys

import mlx.core as mx
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "golden" / "mlx"))
import make_mlx  # noqa: E402
from mlx_lm.models.cache import (  # noqa: E402
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    QuantizedKVCache,
    load_prompt_cache,
)

QUERY_HEADS = 4
# Sums of at most 300 products of numbers below 4 and weights that sum to 1: 300 * 2^-24 * 4.
TOLERANCE = 300 * 2.0**-24 * 4


def flat(caches):
    return [member for cache in caches for member in (cache.caches if isinstance(cache, CacheList) else [cache])]


def complete(cache):
    """Sets what mlx-lm forgets of a batch that it loads, its own files included."""
    for name in ("_lengths", "_right_padding"):
        if isinstance(cache, (BatchKVCache, BatchRotatingKVCache)) and not hasattr(cache, name):
            setattr(cache, name, None)


def as_numbers(x, cache):
    if isinstance(cache, QuantizedKVCache):
        x = mx.dequantize(*x, group_size=cache.group_size, bits=cache.bits)
    return np.array(x.astype(mx.float32))


def held(cache):
    """Per row its offset and the planes of its columns in order, numbers or codes."""
    rows = cache.offset.size if isinstance(cache.offset, mx.array) else 1
    found = []
    for row in range(rows):
        one = cache.extract(row) if rows > 1 else cache
        offset = int(one.offset)
        planes = []
        for plane in (one.keys, one.values):
            parts = plane if isinstance(one, QuantizedKVCache) else [plane]
            if hasattr(one, "_temporal_order"):
                parts = [one._temporal_order(p) for p in parts]
            else:
                parts = [p[..., : offset - getattr(one, "start_position", 0), :] for p in parts]
            planes += [np.array(p.view(mx.uint16) if p.dtype == mx.bfloat16 else p) for p in parts]
        window = getattr(one, "max_size", None) or getattr(one, "chunk_size", None)
        found.append((offset, getattr(one, "keep", 0), window, planes))
    return found


def seen(offset, keep, window, chunk, planes):
    """What the last query sees of the columns."""
    count = planes[0].shape[2]
    if chunk:
        wanted = min(count, (offset - 1) % window + 1)
    else:
        wanted = min(count, window or count)
    kept = keep if wanted < count else 0
    return [np.concatenate([p[:, :, :kept], p[:, :, count - (wanted - kept) :]], axis=2) for p in planes]


def check_held(theirs, ours):
    assert type(theirs).__name__ == type(ours).__name__ or type(theirs).__name__ == "ConcatenateKVCache", type(ours)
    for mine, other in zip(held(ours), held(theirs), strict=True):
        assert mine[:3] == other[:3], (mine[:3], other[:3])
        chunk = hasattr(ours, "chunk_size")
        for a, b in zip(seen(*mine[:3], chunk, mine[3]), seen(*other[:3], chunk, other[3]), strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check_arrays(theirs, ours):
    assert len(theirs.cache) == len(ours.cache)
    for a, b in zip(theirs.cache, ours.cache):
        if a is None:
            assert not np.array(b).any()
        else:
            assert np.array_equal(np.array(a.astype(mx.float32)), np.array(b.astype(mx.float32)))


def attend(cache, tokens, queries):
    """float64 attention over what the cache hands out, under its own mask."""
    count = queries.shape[2]
    if hasattr(cache, "maybe_trim_front"):
        cache.maybe_trim_front()
    if hasattr(cache, "make_mask"):
        mask = cache.make_mask(count, window_size=None, return_array=True)
    else:
        mask = chunk_mask(cache, count)
    k, v = (as_numbers(x, cache) for x in cache.update_and_fetch(*tokens))
    k, v = (np.repeat(x, QUERY_HEADS // k.shape[1], axis=1).astype(np.float64) for x in (k, v))
    scores = queries @ k.swapaxes(-1, -2) / np.sqrt(k.shape[-1])
    if mask is not None:
        mask = np.array(mask)
        if mask.ndim == 1:
            mask = mask[None]
        scores = np.where(mask, scores, -1e30)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def chunk_mask(cache, count):
    keys = np.arange(cache.start_position, cache.offset + count)
    queries = np.arange(cache.offset, cache.offset + count)[:, None]
    return (keys // cache.chunk_size == queries // cache.chunk_size) & (keys <= queries)


def go_on(theirs, ours, random):
    quantized = isinstance(theirs, QuantizedKVCache)
    rows = theirs.offset.size if isinstance(theirs.offset, mx.array) else 1
    keys, values = (plane[0] if quantized else plane for plane in (theirs.keys, theirs.values))
    heads = keys.shape[1]
    k_dim, v_dim = (plane.shape[3] * 32 // theirs.bits if quantized else plane.shape[3] for plane in (keys, values))
    dtype = mx.bfloat16 if quantized else keys.dtype
    for count in (1, 5, 1, 1):
        tokens = [
            mx.array(random.integers(-255, 256, (rows, heads, count, dim)).astype(np.float32) / 64).astype(dtype)
            for dim in (k_dim, v_dim)
        ]
        queries = random.standard_normal((rows, QUERY_HEADS, count, k_dim))
        a, b = (attend(cache, tokens, queries) for cache in (theirs, ours))
        assert np.abs(a - b).max() <= TOLERANCE, (type(ours), count, np.abs(a - b).max())
        check_held(theirs, ours)


def has_values(cache):
    if isinstance(cache, QuantizedKVCache):
        return True
    return cache.values.shape[-1] > 0 and np.array(cache.values.astype(mx.float32)).any()


def compare(theirs, ours, random):
    for a, b in zip(flat(theirs), flat(ours), strict=True):
        if isinstance(a, ArraysCache):
            check_arrays(a, b)
        else:
            check_held(a, b)
            # Index keys have no values; and the older release counts columns that are not filled to a chunk.
            if has_values(a) and (make_mlx.HAS_STATES or not hasattr(a, "chunk_size")):
                go_on(a, b, random)


def main():
    folder, seed, layout = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    mx.set_default_device(mx.cpu)
    make_mlx.seed = seed
    checked = 0
    for kind in ("again", "grown"):
        for path in sorted(folder.glob(f"{kind}-{layout}-*.safetensors")):
            name = path.name.removeprefix(f"{kind}-{layout}-").removesuffix(".safetensors")
            theirs = getattr(make_mlx, name.replace("-", "_"))()
            ours, metadata = load_prompt_cache(str(path), return_metadata=True)
            for cache in flat(ours):
                complete(cache)
            assert metadata == {"model": "made/up", "tokens": "1 2 3"}, metadata
            assert [type(c).__name__ for c in theirs] == [type(c).__name__ for c in ours] or name == "concatenate"
            try:
                compare(theirs, ours, np.random.default_rng(seed))
            except Exception as error:
                raise AssertionError(f"{path.name}: {error!r}") from error
            checked += 1
    print(f"{checked} caches of layout {layout}")
    assert checked >= 20, checked


if __name__ == "__main__":
    main()
