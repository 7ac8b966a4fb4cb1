# SPDX-License-Identifier: MIT
"""Small random models: what a case of a family says, and its checkpoints and exact logits.

A file case_<family>.py has a list CASES. A case is a config.json, from which mlx-lm's own class
makes a network; its parameters are the tensors. Weights are no data: each value follows from the
name of its tensor and its place there, so that the tests in C make the same checkpoint from a
description of a few kilobytes (tests/golden/families), which has the exact logits as well.

    value(i) = offset + scale * (2 b - 255) / 256,  b = splitmix64(FNV-1a(name) + seed + i) >> 56

With a power of two as the scale and no offset that is exact in bf16.
"""

import dataclasses
import importlib
import json
import math
import pathlib
import string
import struct

import numpy as np

# llama.cpp looks gelu up in a table of half precision: 2^-11 of each value.
GELU_TABLE = 2.0**-9

FOLDER = pathlib.Path(__file__).parent
TOKENS = 150  # more than two pages of the cache
KEPT_POSITIONS = (0, 1, 2, 17, 40, 63, 64, 101, 148, 149)  # whose logits a golden file has
MASK = (1 << 64) - 1

# Parameters of mlx-lm's classes that families call alike -> GGUF's names.
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@dataclasses.dataclass
class Gguf:
    """The same model as a GGUF file."""

    architecture: str
    metadata: dict  # behind "<architecture>."; integers are u32, other numbers f32
    layer_names: dict = dataclasses.field(default_factory=lambda: dict(LAYER_NAMES))
    top_names: dict = dataclasses.field(default_factory=lambda: dict(TOP_NAMES))
    pairs: bool = False  # rows of q and k are kept for rotation of neighbours
    norm_offset: float = 0  # what is added to every norm
    # Makes the list of gguf_tensors where names alone do not say it.
    tensors: object = None
    # GGUF name -> values of a tensor that has no counterpart.
    extra: dict = dataclasses.field(default_factory=dict)
    llama_cpp: bool = True  # whether llama.cpp computes what mlx-lm does
    llama_cpp_tolerance: float = 0  # where it rounds more than float32 does


@dataclasses.dataclass
class Case:
    name: str  # of the golden file
    config: dict  # config.json
    gguf: Gguf | None = None
    dtype: str = "F32"  # of the matrices: F32, F16 or BF16
    scales: dict = dataclasses.field(default_factory=dict)  # end of a name -> (scale, offset)
    network: object = None  # makes the mlx network of a config; by default the class of its model_type
    # Names and shapes of the tensors of the directory, where they are not the network's parameters.
    tensors: object = None
    # What mlx-lm calls the experts of a layer, which the directory has one by one.
    experts_apart: str = ""
    # Numbers of the config that change no logit here, and why that is right.
    inert: tuple = ()

    @property
    def vocabulary(self):
        return self.config["vocab_size"]

    def tokens(self, seed=0):
        return [splitmix64(seed * 1000 + i) % self.vocabulary for i in range(TOKENS)]


def all_cases():
    cases = []
    for path in sorted(FOLDER.glob("case_*.py")):
        cases += importlib.import_module(path.stem).CASES
    return cases


# ---- Weights. ----


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def values(name, shape, scale, offset, seed):
    count = math.prod(shape)
    with np.errstate(over="ignore"):
        x = np.uint64((fnv1a(name) + seed) & MASK) + np.arange(count, dtype=np.uint64)
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    codes = 2 * (x >> np.uint64(56)).astype(np.float32) - 255
    return (np.float32(offset) + codes * np.float32(scale / 256)).reshape(shape)


def scale_of(case, name, shape):
    """A matrix keeps the size of what it multiplies; queries and keys make uneven attention."""
    for end, chosen in case.scales.items():
        if name.endswith(end):
            return chosen
    if name.endswith("norm.weight"):
        return 0.25, 1.0
    if len(shape) == 1:
        return 0.5, 0.0
    if name.endswith("embed_tokens.weight"):
        return 1.0, 0.0
    gain = 2 if name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")) else 1
    return 2.0 ** round(math.log2(gain * math.sqrt(3 / shape[-1]))), 0.0


# ---- mlx-lm. ----


def make_network(case, config=None):
    from mlx_lm.utils import _get_classes

    config = config or case.config
    if case.network:
        return case.network(config)
    model, arguments = _get_classes(config)
    return model(arguments.from_dict(config))


def network_tensors(network, config):
    from mlx.utils import tree_flatten

    tied = config.get("tie_word_embeddings")
    return {
        name: tuple(array.shape)
        for name, array in tree_flatten(network.parameters())
        if not (tied and name == "lm_head.weight")
    }


def apart(shapes, part):
    """One tensor for each expert: "mlp.experts.3.up_proj" of "mlp.switch_mlp.up_proj"."""
    made = {}
    for name, shape in shapes.items():
        if f".{part}." in name:
            for expert in range(shape[0]):
                made[name.replace(part, f"mlp.experts.{expert}")] = shape[1:]
        else:
            made[name] = shape
    return made


def directory_tensors(case):
    """Name -> shape, scale, offset of every tensor of the directory."""
    network = make_network(case)
    shapes = case.tensors(network, case.config) if case.tensors else network_tensors(network, case.config)
    if case.experts_apart:
        shapes = apart(shapes, case.experts_apart)
    return {name: (list(shape), *scale_of(case, name, shape)) for name, shape in shapes.items()}


def exact_logits(case, weights, tokens, config=None):
    """float32 logits [positions, vocabulary] of mlx-lm's class, on the CPU."""
    import mlx.core as mx

    network = make_network(case, config)
    arrays = {name: mx.array(array) for name, array in weights.items()}
    if hasattr(network, "sanitize"):
        arrays = network.sanitize(arrays)
    network.load_weights(list(arrays.items()), strict=True)
    network.eval()
    with mx.stream(mx.cpu):
        logits = network(mx.array([list(tokens)]))
        mx.eval(logits)
    return np.array(logits[0], dtype=np.float32)


# ---- GGUF. ----


def gguf_name(gguf, name):
    """GGUF's name, and of a layer's part what is behind "blk.N."."""
    stem, suffix = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        if f"{part}.{suffix}" in gguf.layer_names:  # a vector that is in no module of its own
            return f"blk.{layer}.{gguf.layer_names[f'{part}.{suffix}']}", None
        return f"blk.{layer}.{gguf.layer_names[part]}.{suffix}", gguf.layer_names[part]
    return f"{gguf.top_names[stem]}.{suffix}", gguf.top_names[stem]


def head_dim_of(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def gguf_tensors(case, tensors):
    """A list of dictionaries: the name, and what it is made from by gguf_array."""
    if case.gguf.tensors:
        return case.gguf.tensors(case, tensors)
    listed = []
    for name in tensors:
        made, part = gguf_name(case.gguf, name)
        entry = {"name": made, "from": name}
        if case.gguf.pairs and part in ("attn_q", "attn_k"):
            entry["pairs"] = head_dim_of(case.config)
        if case.gguf.norm_offset and name.endswith("norm.weight"):
            entry["plus"] = case.gguf.norm_offset
        listed.append(entry)
    return listed


def paired(array, head_dim):
    """Row 2 i + h of a head is row h * head_dim / 2 + i of the directory's."""
    heads = array.reshape(-1, 2, head_dim // 2, *array.shape[1:])
    return np.ascontiguousarray(np.swapaxes(heads, 1, 2)).reshape(array.shape)


def gguf_array(entry, weights):
    """`from` is a tensor of the directory, or a list of tensors that are stacked; then, where the entry has them: its
    rows and columns in another order, or some of them; minus the exponential of its values; something added."""
    source = entry["from"]
    array = weights[source] if isinstance(source, str) else np.stack([weights[name] for name in source])
    if "pairs" in entry:
        array = paired(array, entry["pairs"])
    if "rows" in entry:
        array = array.reshape(array.shape[0], -1) if array.ndim > 2 else array
        array = array[entry["rows"]]
    if "columns" in entry:
        array = array[:, entry["columns"]]
    if entry.get("minus_exp"):
        array = -np.exp(array)
    return array + np.float32(entry.get("plus", 0))


# ---- Descriptions, and checkpoints made from them. ----


def describe(case, seed=0, positions=KEPT_POSITIONS):
    """What a test needs: JSON."""
    tensors = directory_tensors(case)
    weights = make_weights(tensors, seed)
    tokens = case.tokens(seed)
    logits = exact_logits(case, weights, tokens)
    description = {
        "name": case.name,
        "seed": seed,
        "config": case.config,
        "dtype": case.dtype,
        "tensors": {name: list(entry) for name, entry in tensors.items()},
        "tokens": tokens,
        "tolerance": tolerance(case, tensors),
        "positions": list(positions),
        "logits": [[float(f"{x:.7g}") for x in logits[position].tolist()] for position in positions],
    }
    if case.gguf:
        description["gguf"] = {
            "architecture": case.gguf.architecture,
            "metadata": case.gguf.metadata,
            "tensors": gguf_tensors(case, tensors),
            "extra": case.gguf.extra,
        }
    return description


def tolerance(case, tensors):
    """How far logits may be from the exact ones, as a part of the largest one.

    Both sides round every float32 operation once, in other orders. A product over n inputs then
    differs by about sqrt(n) roundings of 2^-24 of what it sums up; a layer has four stages of
    products in a row, and softmax, norms and activations add a few roundings of the same size. The
    parts of different layers add up in the residual stream, at worst all in one direction; what a
    norm or a softmax magnifies is the margin of 8.
    """
    widest = max(shape[-1] for shape, _, _ in tensors.values())
    stages = 4 * case.config["num_hidden_layers"] + 1
    return 8 * stages * math.sqrt(widest) * 2.0**-24


def make_weights(tensors, seed):
    return {name: values(name, shape, scale, offset, seed) for name, (shape, scale, offset) in tensors.items()}


def to_bytes(array, dtype):
    if dtype == "F32":
        return array.astype("<f4").tobytes()
    if dtype == "F16":
        return array.astype("<f2").tobytes()
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
    assert not (bits & 0xFFFF).any(), "not exact in bf16"
    return (bits >> 16).astype("<u2").tobytes()


def type_of(description, array):
    return description["dtype"] if array.ndim > 1 else "F32"


def write_directory(description, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(description["config"]))
    header, data = {}, b""
    for name, array in make_weights(description["tensors"], description["seed"]).items():
        dtype = type_of(description, array)
        made = to_bytes(array, dtype)
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(made)]}
        data += made
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_tokenizer(folder, count):
    """A tokenizer.json whose tokens are characters, which it returns."""
    characters = (string.ascii_letters + string.digits + " .")[:count]
    model = {"type": "BPE", "vocab": {character: token for token, character in enumerate(characters)}, "merges": []}
    made = {"version": "1.0", "added_tokens": [], "decoder": {"type": "Fuse"}, "model": model}
    (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(made))
    return characters


def write_gguf(description, path, tokenizer=False, dtype=None):
    """By the gguf package. llama.cpp wants a tokenizer, and rounds what meets a bf16 matrix."""
    import gguf

    made = description["gguf"]
    writer = gguf.GGUFWriter(path, made["architecture"])
    for key, value in made["metadata"].items():
        add_metadata(writer, f"{made['architecture']}.{key}", value)
    if tokenizer:
        add_tokenizer(writer, description["config"]["vocab_size"])
    weights = make_weights(description["tensors"], description["seed"])
    for entry in made["tensors"]:
        array = gguf_array(entry, weights)
        add_tensor(writer, entry["name"], array, dtype or type_of(description, array))
    for name, numbers in made["extra"].items():
        writer.add_tensor(name, np.array(numbers, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tensor(writer, name, array, dtype):
    import gguf

    if dtype == "BF16":
        raw = np.frombuffer(to_bytes(array, dtype), dtype=np.uint8).reshape(*array.shape[:-1], -1)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    else:
        writer.add_tensor(name, array.astype(np.float16 if dtype == "F16" else np.float32))


def add_metadata(writer, key, value):
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def add_tokenizer(writer, count):
    """Pieces that nobody reads."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"t{i}" for i in range(count)])
    writer.add_token_scores([0.0] * count)
    writer.add_token_types([1] * count)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
