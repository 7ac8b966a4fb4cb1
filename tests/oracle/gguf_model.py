# SPDX-License-Identifier: MIT
"""A GGUF file of the llama family as plain float32 arrays, and the reference built from them.

Everything here is independent of Kvern: the file is read by the gguf package, the tokenizer is the
tokenizers package's, and the exact logits come from mlx-lm's own model class.
"""

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# GGUF tensor suffix -> parameter name in mlx-lm's llama class.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
TOKEN_TYPE_CONTROL = 3
TOKEN_TYPE_USER_DEFINED = 4


class GgufModel:
    """Metadata as a dictionary, tensors as float32 arrays of shape [rows, columns]."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.metadata = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {
            tensor.name: dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            for tensor in reader.tensors
        }
        if self.metadata["general.architecture"] != "llama":
            raise SystemExit("the oracle knows the llama family only")

    def value(self, name, default=None):
        return self.metadata.get("llama." + name, default)

    @property
    def layers(self):
        return self.value("block_count")

    @property
    def heads(self):
        return self.value("attention.head_count")

    @property
    def kv_heads(self):
        return self.value("attention.head_count_kv", self.heads)

    @property
    def width(self):
        return self.value("embedding_length")

    @property
    def head_dim(self):
        return self.value("attention.key_length", self.width // self.heads)

    @property
    def rope_base(self):
        return self.value("rope.freq_base", 10000.0)

    @property
    def norm_epsilon(self):
        return self.value("attention.layer_norm_rms_epsilon")

    @property
    def output(self):
        return self.tensors.get("output.weight", self.tensors["token_embd.weight"])


def exact_model(model):
    """mlx-lm's llama class with the float32 tensors of the file.

    The rows of Q and K in a llama GGUF are permuted for interleaved rotary pairs: rope_traditional.
    """
    import mlx.core as mx
    from mlx_lm.models import llama

    tied = "output.weight" not in model.tensors
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        intermediate_size=model.value("feed_forward_length"),
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        rms_norm_eps=model.norm_epsilon,
        vocab_size=model.tensors["token_embd.weight"].shape[0],
        max_position_embeddings=model.value("context_length"),
        rope_theta=model.rope_base,
        rope_traditional=True,
        tie_word_embeddings=tied,
    )
    network = llama.Model(arguments)
    weights = [(mlx_name(name), mx.array(array)) for name, array in model.tensors.items()]
    network.load_weights(weights, strict=True)
    return network


def mlx_name(name):
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"model.layers.{layer}.{LAYER_NAMES[part]}.{suffix}"
    return f"{TOP_NAMES[stem]}.{suffix}"


def exact_logits(network, tokens):
    """float32 logits [positions, vocabulary] of one sequence, on the CPU."""
    import mlx.core as mx

    with mx.stream(mx.cpu):
        logits = network(mx.array([list(tokens)]))
        mx.eval(logits)
    return np.array(logits[0], dtype=np.float32)


class ExactDecoder:
    """The exact model fed piece by piece; each feed returns the logits after its last token."""

    def __init__(self, network):
        self.network = network
        self.cache = network.make_cache()

    def feed(self, tokens):
        import mlx.core as mx

        with mx.stream(mx.cpu):
            logits = self.network(mx.array([list(tokens)]), cache=self.cache)[0, -1]
            mx.eval(logits)
        return np.array(logits, dtype=np.float32)


def reference_tokenizer(model):
    """The tokenizers package's byte-pair encoder, from the vocabulary and merges in the file."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = model.metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in model.metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    kind = model.metadata["tokenizer.ggml.pre"]
    if kind == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    elif kind == "gpt2":
        tokenizer.pre_tokenizer = byte_level
    else:
        raise SystemExit(f"the oracle does not know the pre-tokenizer {kind}")
    tokenizer.decoder = decoders.ByteLevel()
    types = model.metadata["tokenizer.ggml.token_type"]
    special = (TOKEN_TYPE_CONTROL, TOKEN_TYPE_USER_DEFINED)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, token_type in zip(tokens, types)
            if token_type in special
        ]
    )
    return tokenizer


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def kl_divergence(exact, other):
    """KL(exact || other) in nats, one value per position."""
    p, q = log_softmax(exact), log_softmax(other)
    return (np.exp(p) * (p - q)).sum(axis=-1)


def same_top(exact, other):
    return exact.argmax(axis=-1) == other.argmax(axis=-1)
