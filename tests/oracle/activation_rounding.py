# SPDX-License-Identifier: MIT
"""How much accuracy does rounding the activations cost?

The engine multiplies quantized weights by activations. Rounding the activations to small integers
makes the sums exact, so that their order is free; this study measures what each way of rounding
costs, as the KL divergence of the next-token distribution to the exact float32 forward:

    tools/oracle-python tests/oracle/activation_rounding.py MODEL.gguf [--text FILE] [--only NAME]

The forward is plain numpy in float32, with one hook where the input of a matrix enters and one
where K and V enter the cache. It is first checked against mlx-lm's model class on the same
weights. Weights are always exact (dequantized to float32), so a figure shows the cost of the
rounding of activations (or of K and V) alone.
"""

import argparse
import sys

import numpy as np

from gguf_model import (
    GgufModel,
    exact_logits,
    exact_model,
    kl_divergence,
    reference_tokenizer,
    same_top,
)
from prompts import PROMPTS


def matmul(x, weight):
    return x @ weight.T


def rms_norm(x, weight, epsilon):
    scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon))
    return (x * scale * weight).astype(np.float32)


def rotate(x, base):
    """Interleaved rotary embedding of [positions, heads, head_dim]."""
    positions, _, dim = x.shape
    angles = np.arange(positions)[:, None] * base ** (-np.arange(0, dim, 2) / dim)
    cos = np.cos(angles).astype(np.float32)[:, None, :]
    sin = np.sin(angles).astype(np.float32)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


def attention(q, k, v):
    """Causal attention; q [T, heads, d], k and v [T, kv_heads, d]."""
    positions, heads, dim = q.shape
    group = heads // k.shape[1]
    hidden = np.triu(np.full((positions, positions), -np.inf, dtype=np.float32), 1)
    out = np.empty_like(q)
    for head in range(heads):
        scores = q[:, head] @ k[:, head // group].T * np.float32(dim**-0.5) + hidden
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        out[:, head] = weights @ v[:, head // group]
    return out.reshape(positions, heads * dim)


def forward(model, tokens, rounding=None, kv_rounding=None):
    """Logits [T, vocabulary]. rounding(x, matrix, layer) sees the input of every matrix."""
    rounding = rounding or (lambda x, matrix, layer: x)
    kv_rounding = kv_rounding or (lambda x: x)
    tensors = model.tensors
    x = tensors["token_embd.weight"][tokens]
    for layer in range(model.layers):

        def weight(name, layer=layer):
            return tensors[f"blk.{layer}.{name}.weight"]

        def project(x, name, layer=layer):
            return matmul(rounding(x, name, layer), weight(name))

        normed = rms_norm(x, weight("attn_norm"), model.norm_epsilon)
        q, k, v = (
            project(normed, name).reshape(len(tokens), -1, model.head_dim)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        k = kv_rounding(rotate(k, model.rope_base))
        mixed = attention(rotate(q, model.rope_base), k, kv_rounding(v))
        x = x + project(mixed, "attn_output")
        normed = rms_norm(x, weight("ffn_norm"), model.norm_epsilon)
        gate = project(normed, "ffn_gate")
        hidden = gate / (1 + np.exp(-gate)) * project(normed, "ffn_up")
        x = x + project(hidden, "ffn_down")
    x = rms_norm(x, tensors["output_norm.weight"], model.norm_epsilon)
    return matmul(rounding(x, "output", model.layers), model.output)


def half_away(x):
    return np.trunc(x + np.copysign(np.float32(0.5), x))


def round_blocks(x, block, largest=127, clip=None, scale_type=np.float32, rint=np.rint):
    """Integers of magnitude at most `largest` with one scale per block.

    scale = max|x| / largest. With clip = (low, high) the integers are clamped, which allows
    a `largest` that is no integer.
    """
    blocks = x.reshape(*x.shape[:-1], -1, block)
    peak = np.abs(blocks).max(axis=-1, keepdims=True)
    scale = (peak / np.float32(largest)).astype(scale_type).astype(np.float32)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    codes = rint(blocks * inverse)
    if clip:
        codes = np.clip(codes, *clip)
    return (codes * scale).reshape(x.shape).astype(np.float32)


def signed_peak(x, block):
    """scale = (the value of largest magnitude) / -128: that value is stored exactly."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    index = np.abs(blocks).argmax(axis=-1)[..., None]
    scale = np.take_along_axis(blocks, index, -1) / np.float32(-128)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    codes = np.clip(np.rint(blocks * inverse), -128, 127)
    return (codes * scale).reshape(x.shape).astype(np.float32)


def best_scale(x, block):
    """Per block the scale of least squared error among candidates near max|x| / 127."""
    best, best_error = None, None
    for largest in np.arange(119, 140, 1.5):
        candidate = round_blocks(x, block, largest, clip=(-128, 127))
        error = ((candidate - x) ** 2).reshape(*x.shape[:-1], -1, block).sum(-1, keepdims=True)
        candidate = candidate.reshape(*x.shape[:-1], -1, block)
        if best is None:
            best, best_error = candidate.copy(), error
        else:
            better = error < best_error
            best = np.where(better, candidate, best)
            best_error = np.where(better, error, best_error)
    return best.reshape(x.shape)


def bf16(x):
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def f16(x):
    return x.astype(np.float16).astype(np.float32)


def everywhere(function):
    return lambda x, matrix, layer: function(x)


def only(names, function):
    return lambda x, matrix, layer: function(x) if matrix in names else x


def except_for(names, function, otherwise=lambda x: x):
    return lambda x, matrix, layer: otherwise(x) if matrix in names else function(x)


def int8(x):
    return round_blocks(x, 32)


def bits(count, block=32):
    return lambda x: round_blocks(x, block, 2 ** (count - 1) - 1)


def variants():
    """name -> (rounding of matrix inputs, rounding of K and V)."""
    table = {
        "a  int8 / 32, half to even": (everywhere(int8), None),
        "a' int8 / 32, half away": (
            everywhere(lambda x: round_blocks(x, 32, rint=half_away)),
            None,
        ),
        "b  int8 / 32, f16 scale": (
            everywhere(lambda x: round_blocks(x, 32, scale_type=np.float16)),
            None,
        ),
        "c  int8 / 16": (everywhere(lambda x: round_blocks(x, 16)), None),
        "c' int8 / 8": (everywhere(lambda x: round_blocks(x, 8)), None),
        "d  int8 / 32, output exact": (except_for(["output"], int8), None),
        "d' int8 / 32, output 16 bits": (except_for(["output"], int8, bits(16)), None),
        "e  int8 / 64": (everywhere(lambda x: round_blocks(x, 64)), None),
    }
    for count in (9, 10, 11, 12, 13, 14, 15, 16):
        table[f"f  int{count} / 32"] = (everywhere(bits(count)), None)
    table.update(
        {
            "f' int16 / whole row": (
                everywhere(lambda x: round_blocks(x, x.shape[-1], 32767)),
                None,
            ),
            "g  int8 / 32, max/127.5 clipped": (
                everywhere(lambda x: round_blocks(x, 32, 127.5, clip=(-128, 127))),
                None,
            ),
            "g' int8 / 32, signed peak/-128": (everywhere(lambda x: signed_peak(x, 32)), None),
            "g\" int8 / 32, least-squares scale": (everywhere(lambda x: best_scale(x, 32)), None),
            "   only qkv int8 / 32": (only(["attn_q", "attn_k", "attn_v"], int8), None),
            "   only attn_output int8 / 32": (only(["attn_output"], int8), None),
            "   only gate, up int8 / 32": (only(["ffn_gate", "ffn_up"], int8), None),
            "   only down int8 / 32": (only(["ffn_down"], int8), None),
            "   only output int8 / 32": (only(["output"], int8), None),
            "   int8 / 32, down exact": (except_for(["ffn_down"], int8), None),
            "   int8 / 32, down, output exact": (except_for(["ffn_down", "output"], int8), None),
            "   int8 / 32, qkv exact": (except_for(["attn_q", "attn_k", "attn_v"], int8), None),
            "   activations bf16": (everywhere(bf16), None),
            "   activations f16": (everywhere(f16), None),
            "h  K, V bf16 alone": (None, bf16),
            "h  K, V f16 alone": (None, f16),
            "h  a + K, V bf16": (everywhere(int8), bf16),
            "h  c + K, V bf16": (everywhere(lambda x: round_blocks(x, 16)), bf16),
            "h  int12 / 32 + K, V bf16": (everywhere(bits(12)), bf16),
            "h  int16 / 32 + K, V bf16": (everywhere(bits(16)), bf16),
        }
    )
    return table


def sequences(tokenizer, text_files, length, count):
    prompts = [tokenizer.encode(prompt).ids for prompt in PROMPTS]
    for path in text_files:
        with open(path, encoding="utf-8") as file:
            tokens = tokenizer.encode(file.read(400_000)).ids
        stride = max(length, len(tokens) // max(count, 1))
        prompts += [tokens[i * stride : i * stride + length] for i in range(count)]
    return prompts


def check_forward(model, network, prompt):
    exact = exact_logits(network, prompt)
    ours = forward(model, prompt)
    divergence = kl_divergence(exact, ours)
    print(
        f"numpy forward against mlx-lm, {len(prompt)} tokens: mean KL {divergence.mean():.2e}, "
        f"max |logit difference| {np.abs(exact - ours).max():.2e}"
    )
    if divergence.mean() > 1e-6:
        sys.exit("the forward of this study is not the model's")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    parser.add_argument(
        "--text", action="append", default=[], help="a UTF-8 file to take windows of"
    )
    parser.add_argument("--length", type=int, default=200, help="tokens of each window of a file")
    parser.add_argument("--count", type=int, default=3, help="windows of each file")
    parser.add_argument("--only", help="measure the variants whose name contains this")
    arguments = parser.parse_args()

    model = GgufModel(arguments.model)
    prompts = sequences(
        reference_tokenizer(model), arguments.text, arguments.length, arguments.count
    )
    check_forward(model, exact_model(model), prompts[1])
    exact = [forward(model, prompt) for prompt in prompts]
    print("sequences of", [len(prompt) for prompt in prompts], "tokens\n")
    columns = " ".join(f"seq {i:<4}" for i in range(len(prompts)))
    print(f"{'rounding':36} mean KL  max KL   same top  | mean KL of {columns}")
    for name, (rounding, kv_rounding) in variants().items():
        if arguments.only and arguments.only not in name:
            continue
        divergences, tops = [], []
        for prompt, reference in zip(prompts, exact):
            logits = forward(model, prompt, rounding, kv_rounding)
            divergences.append(kl_divergence(reference, logits))
            tops.append(same_top(reference, logits))
        each = " ".join(f"{d.mean():.6f}" for d in divergences)
        joined = np.concatenate(divergences)
        print(
            f"{name:36} {joined.mean():.6f} {joined.max():.6f} "
            f"{np.concatenate(tops).mean():7.4f}  |            {each}",
            flush=True,
        )


if __name__ == "__main__":
    main()
