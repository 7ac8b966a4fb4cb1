#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes smollm2.json: what a reference tokenizer gives for awkward texts.

The reference is the package `tokenizers` (0.23.3) with the vocabulary and the merges of SmolLM2-135M-Instruct's GGUF
file. Each case is a text, whether special tokens in it count, and its ids. tests/engine/test_tokenizer_real.c compares
the engine with it.

    pip install gguf==0.19.0 tokenizers==0.23.3 && python3 tests/golden/tokenizer/make_smollm2.py MODEL.gguf
"""
import json
import pathlib
import sys
import types

from gguf import GGUFReader

from awkward_texts import SPECIAL, ordinary_texts

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent.parent / "oracle"))
from gguf_model import reference_tokenizer  # noqa: E402

TOKEN_TYPE_NORMAL = 1


def read_metadata(path):
    fields = GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


def without_special(metadata):
    """The same vocabulary in which no text is a special token."""
    normal = [TOKEN_TYPE_NORMAL] * len(metadata["tokenizer.ggml.tokens"])
    return {**metadata, "tokenizer.ggml.token_type": normal}


def make_case(tokenizer, text, special):
    ids = tokenizer.encode(text).ids
    if tokenizer.decode(ids, skip_special_tokens=False) != text:
        raise SystemExit(f"the reference loses a byte of {text!r}: this vocabulary cannot write it")
    return {"text": text, "special": special, "ids": ids}


def main():
    metadata = read_metadata(sys.argv[1])
    raw = reference_tokenizer(types.SimpleNamespace(metadata=without_special(metadata)))
    parsing = reference_tokenizer(types.SimpleNamespace(metadata=metadata))
    cases = [make_case(raw, text, False) for text in ordinary_texts()]
    cases += [make_case(parsing, text, True) for text in SPECIAL]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "smollm2.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
