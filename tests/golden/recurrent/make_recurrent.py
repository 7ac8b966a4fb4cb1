# SPDX-License-Identifier: MIT
"""What mlx-lm's recurrent blocks make of random tokens, in float32.

    tools/oracle-python tests/golden/recurrent/make_recurrent.py [--seed N] [FILE]

Writes recurrent.bin beside this script (or FILE), for tests/unit/test_recurrence_golden.c. The
blocks are those of Qwen3-Next, Kimi Linear and Mamba2, with an output projection that changes
nothing; they get a chunk of tokens and then one after the other. All little endian, per case:

    int32 rule (0 delta, 1 delta with channels, 2 SSD), taps, key heads, value heads, k_dim, v_dim,
          tokens, conv bias (0 or 1), gate (1 silu, 2 sigmoid), gate first (0 or 1), parts of the
          norm, weights of the norm
    float32 dt low, dt high, q factor, k factor, eps of the q and k norms, eps of the gated norm
    float32 conv weight [taps, channels], conv bias [channels] if there is one, a_log [value heads],
            dt_bias, D [value heads] (SSD), norm weight
    float32 x [tokens, channels], a, b, z [tokens, value heads * v_dim]
    float32 out [tokens, value heads * v_dim], tail [taps - 1, channels], S [heads, v_dim, k_dim]
"""

import argparse
import pathlib

import mlx.core as mx
import numpy as np
from mlx_lm.models import kimi_linear, mamba2, qwen3_next
from mlx_lm.models.cache import ArraysCache

FIRST = 29  # tokens of the chunk
THEN = 6  # and single ones
TAPS = 4
EPS = 1e-6


def randomize(module, random):
    """Every parameter: random numbers of a size that keeps the block lively."""

    def walk(tree):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if isinstance(value, mx.array):
                tree[key] = mx.array(random.normal(size=value.shape).astype(np.float32) * 0.5)
            else:
                walk(value)

    parameters = module.parameters()
    walk(parameters)
    module.update(parameters)


def identity(linear):
    linear.weight = mx.eye(linear.weight.shape[0])


def numbers(*values):
    return np.array(values, dtype="<i4")


def floats(*values):
    return np.array(values, dtype="<f4")


def flat(array, *shape):
    return np.array(array.astype(mx.float32)).reshape(*shape)


def run(block, inputs, cache):
    """The block's outputs: a chunk, then token by token."""
    parts = [block(inputs[:, :FIRST], None, cache)]
    for t in range(FIRST, FIRST + THEN):
        parts.append(block(inputs[:, t : t + 1], None, cache))
    return mx.concatenate(parts, axis=1)


def delta(random):
    key_heads, heads, k_dim, v_dim = 2, 4, 24, 16
    args = qwen3_next.ModelArgs(
        model_type="qwen3_next", hidden_size=heads * v_dim, num_hidden_layers=1,
        intermediate_size=8, num_attention_heads=1, linear_num_value_heads=heads,
        linear_num_key_heads=key_heads, linear_key_head_dim=k_dim, linear_value_head_dim=v_dim,
        linear_conv_kernel_dim=TAPS, num_experts=1, num_experts_per_tok=1, decoder_sparse_step=1,
        shared_expert_intermediate_size=8, mlp_only_layers=[], moe_intermediate_size=8,
        rms_norm_eps=EPS, vocab_size=8, num_key_value_heads=1, rope_theta=1e4,
        partial_rotary_factor=1.0, max_position_embeddings=64, head_dim=8,
    )
    block = qwen3_next.Qwen3NextGatedDeltaNet(args)
    randomize(block, random)
    identity(block.out_proj)
    tokens = FIRST + THEN
    inputs = mx.array(random.normal(size=(1, tokens, heads * v_dim)).astype(np.float32))
    q, k, v, z, b, a = block.fix_query_key_value_ordering(
        block.in_proj_qkvz(inputs), block.in_proj_ba(inputs)
    )
    x = mx.concatenate([t.reshape(tokens, -1) for t in (q, k, v)], axis=-1)
    cache = ArraysCache(size=2)
    out = run(block, inputs, cache)
    return [
        numbers(0, TAPS, key_heads, heads, k_dim, v_dim, tokens, 0, 1, 0, heads, v_dim),
        floats(0, 0, 1 / k_dim, k_dim**-0.5, EPS / k_dim, EPS),
        flat(block.conv1d.weight, -1, TAPS).T, flat(block.A_log, -1), flat(block.dt_bias, -1),
        flat(block.norm.weight, -1), flat(x, tokens, -1), flat(a, tokens, -1), flat(b, tokens, -1),
        flat(z, tokens, -1), flat(out, tokens, -1), flat(cache[0], TAPS - 1, -1), flat(cache[1], -1),
    ]


def delta_channels(random):
    heads, dim = 3, 16
    args = kimi_linear.ModelArgs(
        model_type="kimi_linear", vocab_size=8, hidden_size=heads * dim, num_hidden_layers=1,
        num_attention_heads=heads, num_key_value_heads=heads, intermediate_size=8, head_dim=dim,
        rope_theta=1e4, rms_norm_eps=EPS, model_max_length=64, num_experts=0,
        moe_intermediate_size=8, kv_lora_rank=8,
        linear_attn_config={"num_heads": heads, "head_dim": dim, "short_conv_kernel_size": TAPS,
                            "kda_layers": [1]},
    )
    block = kimi_linear.KimiDeltaAttention(args, 0)
    randomize(block, random)
    identity(block.o_proj)
    tokens = FIRST + THEN
    inputs = mx.array(random.normal(size=(1, tokens, heads * dim)).astype(np.float32))
    x = mx.concatenate([p(inputs) for p in (block.q_proj, block.k_proj, block.v_proj)], axis=-1)
    a = block.f_b_proj(block.f_a_proj(inputs))
    b = block.b_proj(inputs)
    z = block.g_b_proj(block.g_a_proj(inputs))
    convs = (block.q_conv, block.k_conv, block.v_conv)
    weight = np.concatenate([flat(c.conv.weight, -1, TAPS).T for c in convs], axis=1)
    cache = ArraysCache(size=4)
    out = run(block, inputs, cache)
    tail = mx.concatenate([cache[0], cache[1], cache[2]], axis=-1)
    return [
        numbers(1, TAPS, heads, heads, dim, dim, tokens, 0, 2, 0, heads, dim),
        floats(0, 0, 1 / dim, dim**-0.5, EPS / dim, EPS),
        weight, flat(block.A_log, -1), flat(block.dt_bias, -1), flat(block.o_norm.weight, -1),
        flat(x, tokens, -1), flat(a, tokens, -1), flat(b, tokens, -1), flat(z, tokens, -1),
        flat(out, tokens, -1), flat(tail, TAPS - 1, -1), flat(cache[3], -1),
    ]


def ssd(random):
    groups, heads, state, dim, low, high = 2, 4, 24, 8, 0.01, 2.0
    args = mamba2.ModelArgs(
        model_type="mamba2", num_heads=heads, head_dim=dim, vocab_size=8, hidden_size=heads * dim,
        intermediate_size=heads * dim, state_size=state, num_hidden_layers=1,
        layer_norm_epsilon=EPS, conv_kernel=TAPS, n_groups=groups, use_bias=False,
        use_conv_bias=True, tie_word_embeddings=True, time_step_limit=(low, high),
        time_step_rank="auto",
    )
    block = mamba2.Mamba2Block(args, 0)
    randomize(block, random)
    identity(block.out_proj)
    tokens = FIRST + THEN
    inputs = mx.array(random.normal(size=(1, tokens, heads * dim)).astype(np.float32))
    channels = heads * dim + 2 * groups * state
    z, x, a = mx.split(block.in_proj(inputs), [heads * dim, heads * dim + channels], axis=-1)
    cache = ArraysCache(size=2)
    out = run(block, inputs, cache)
    return [
        numbers(2, TAPS, groups, heads, state, dim, tokens, 1, 1, 1, 1, heads * dim),
        floats(low, high, 0, 0, 0, EPS),
        flat(block.conv1d.weight, -1, TAPS).T, flat(block.conv1d.bias, -1), flat(block.A_log, -1),
        flat(block.dt_bias, -1), flat(block.D, -1), flat(block.norm.weight, -1),
        flat(x, tokens, -1), flat(a, tokens, -1), flat(z, tokens, -1), flat(out, tokens, -1),
        flat(cache[0], TAPS - 1, -1), flat(cache[1], -1),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("file", nargs="?", default=pathlib.Path(__file__).with_name("recurrent.bin"))
    options = parser.parse_args()
    mx.set_default_device(mx.cpu)
    random = np.random.default_rng(options.seed)
    parts = []
    for case in (delta, delta_channels, ssd):
        arrays = case(random)
        parts.append(arrays[0].tobytes())
        parts.extend(np.ascontiguousarray(a, dtype="<f4").tobytes() for a in arrays[1:])
    pathlib.Path(options.file).write_bytes(b"".join(parts))


if __name__ == "__main__":
    main()
