# SPDX-License-Identifier: MIT
"""Small random models of mlx-lm, left in the middle of a text: caches for Kvern, and Kvern's for mlx-lm.

    PYTHON tests/oracle/mlx_models.py make FOLDER SEED
    PYTHON tests/oracle/mlx_models.py check FOLDER SEED [NAME]

The models are those of families/case_*.py that have a directory. `make` writes NAME.json and NAME-theirs.safetensors
for engine/mlx_models, which writes NAME-ours.safetensors; `check` goes on from these, or from those of another name
than `ours`. NAME-tokens has the tokens that a cache was left at.
"""

import json
import pathlib
import sys

import mlx.core as mx
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "families"))
from family_case import TOKENS, all_cases, describe, make_network, make_weights  # noqa: E402
from mlx_lm.models.cache import load_prompt_cache, make_prompt_cache, save_prompt_cache  # noqa: E402

# Layers that take over another one's selection have no index keys, and mlx-lm fails over that when it has a cache.
FAILS_THERE = ("glm-moe-dsa-shared", "glm-moe-dsa-interval")
# Keeps the keys and values of heads, not latents.
OTHER_CACHE = ("deepseek-v2", "deepseek-v2-groups")
LEFT_AT = 100
PROMPT = 70  # tokens at once; the others one by one


def network_of(case, description):
    network = make_network(case)
    weights = make_weights(description["tensors"], description["seed"])
    arrays = {name: mx.array(array) for name, array in weights.items()}
    if hasattr(network, "sanitize"):
        arrays = network.sanitize(arrays)
    network.load_weights(list(arrays.items()), strict=True)
    network.eval()
    return network


def feed(network, cache, tokens):
    logits = network(mx.array([tokens]), cache=cache)
    mx.eval(logits)
    return np.array(logits[0], dtype=np.float32)


def make(case, folder, seed):
    description = describe(case, seed, range(TOKENS))
    network = network_of(case, description)
    cache = make_prompt_cache(network)
    feed(network, cache, description["tokens"][:PROMPT])
    if all(c.empty() for c in cache):
        print(f"{case.name}: its network here takes no cache")
        return
    for token in description["tokens"][PROMPT:LEFT_AT]:
        feed(network, cache, [token])
    save_prompt_cache(str(folder / f"{case.name}-theirs.safetensors"), cache)
    (folder / f"{case.name}.json").write_text(json.dumps(description))
    (folder / f"{case.name}-tokens").write_text(json.dumps(description["tokens"][:LEFT_AT]))


def check(case, folder, name):
    """One token, then a window, then one by one, as the exact logits have them."""
    description = json.loads((folder / f"{case.name}.json").read_text())
    exact = np.array(description["logits"], dtype=np.float32)
    network = network_of(case, description)
    cache = load_prompt_cache(str(folder / f"{case.name}-{name}.safetensors"))
    largest, at = np.abs(exact).max(), LEFT_AT
    for count in (1, 20, *[1] * (TOKENS - LEFT_AT - 21)):
        logits = feed(network, cache, description["tokens"][at : at + count])
        off = np.abs(logits - exact[at : at + count]).max() / largest
        assert off <= description["tolerance"], f"{case.name}: off by {off:.1e} at {at}"
        at += count


def main():
    mode, folder, seed = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    name = sys.argv[4] if len(sys.argv) > 4 else "ours"
    mx.set_default_device(mx.cpu)
    for case in all_cases():
        if mode == "make" and case.name not in FAILS_THERE + OTHER_CACHE:
            make(case, folder, seed)
        elif mode == "check" and (folder / f"{case.name}.json").exists():
            check(case, folder, name)
    assert len(list(folder.glob("*.json"))) >= 25


if __name__ == "__main__":
    main()
