# SPDX-License-Identifier: MIT
"""A GGUF file as plain float32 arrays, and the reference built from them.

Everything here is independent of Kvern: the file is read by the gguf package, the tokenizer is the
tokenizers package's, and the exact logits come from mlx-lm's own model class.
"""

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

# GGUF tensor suffix -> parameter name in mlx-lm's classes.
MATRIX_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LLAMA_NAMES = {
    **MATRIX_NAMES,
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
GEMMA3_NAMES = {
    **MATRIX_NAMES,
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
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
        if self.architecture not in EXACT_MODELS:
            raise SystemExit(f"the oracle does not know the family {self.architecture}")

    @property
    def architecture(self):
        return self.metadata["general.architecture"]

    def value(self, name, default=None):
        return self.metadata.get(f"{self.architecture}.{name}", default)

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
    def vocabulary(self):
        return self.tensors["token_embd.weight"].shape[0]

    @property
    def output(self):
        return self.tensors.get("output.weight", self.tensors["token_embd.weight"])


def exact_llama(model):
    """mlx-lm's llama class.

    The rows of Q and K in a llama GGUF are permuted for interleaved rotary pairs: rope_traditional.
    """
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
        vocab_size=model.vocabulary,
        max_position_embeddings=model.value("context_length"),
        rope_theta=model.rope_base,
        rope_traditional=True,
        tie_word_embeddings=tied,
    )
    return llama.Model(arguments), LLAMA_NAMES, model.tensors


def exact_gemma3(model):
    """mlx-lm's gemma3_text class, for a file that leaves the kind of its layers to the reader.

    A gemma3 GGUF stores every norm as 1 + weight; the class adds the 1 itself.
    """
    from mlx_lm.models import gemma3_text

    arguments = gemma3_text.ModelArgs(
        model_type="gemma3_text",
        hidden_size=model.width,
        num_hidden_layers=model.layers,
        intermediate_size=model.value("feed_forward_length"),
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        head_dim=model.head_dim,
        rms_norm_eps=model.norm_epsilon,
        vocab_size=model.vocabulary,
        max_position_embeddings=model.value("context_length"),
        rope_theta=model.rope_base,
        query_pre_attn_scalar=model.head_dim,
        sliding_window=model.value("attention.sliding_window"),
    )
    network = gemma3_text.Model(arguments)
    network.sanitize({})  # no output matrix of its own
    tensors = {
        name: array - 1 if name.endswith("norm.weight") else array
        for name, array in model.tensors.items()
    }
    return network, GEMMA3_NAMES, tensors


EXACT_MODELS = {"llama": exact_llama, "gemma3": exact_gemma3}


def exact_model(model):
    """mlx-lm's class of the model's family with the float32 tensors of the file."""
    import mlx.core as mx

    network, names, tensors = EXACT_MODELS[model.architecture](model)
    weights = [(mlx_name(name, names), mx.array(array)) for name, array in tensors.items()]
    network.load_weights(weights, strict=True)
    multiply_by_numpy(network)
    return network


def multiply_by_numpy(network):
    """The same float32 products, in a tenth of the time that mlx takes for them on a CPU."""
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten, tree_unflatten

    class Product(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self._weight = np.array(weight)

        def __call__(self, x):
            return mx.array(np.array(x) @ self._weight.T)

    class Embedding(Product):
        def __call__(self, tokens):
            return mx.array(self._weight[np.array(tokens)])

        def as_linear(self, x):
            return super().__call__(x)

    replacements = {nn.Linear: Product, nn.Embedding: Embedding}
    modules = tree_flatten(network.leaf_modules(), is_leaf=nn.Module.is_module)
    replaced = [
        (name, replacements[type(module)](module.weight))
        for name, module in modules
        if type(module) in replacements
    ]
    network.update_modules(tree_unflatten(replaced))


def mlx_name(name, names):
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"model.layers.{layer}.{names[part]}.{suffix}"
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


def reference_ids(model, text):
    """The ids of a text, with what the file wants before it, by another tokenizer."""
    if model.metadata["tokenizer.ggml.model"] == "llama":
        from sentencepiece_reference import SentencePieceReference

        bos = [model.metadata["tokenizer.ggml.bos_token_id"]]
        return bos + SentencePieceReference(model.metadata).encode(text)
    return reference_tokenizer(model).encode(text).ids


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
    divergence = np.empty(len(exact))
    for position in range(len(exact)):  # one by one: vocabularies are large
        p, q = log_softmax(exact[position]), log_softmax(other[position])
        divergence[position] = (np.exp(p) * (p - q)).sum()
    return divergence


def same_top(exact, other):
    return exact.argmax(axis=-1) == other.argmax(axis=-1)
