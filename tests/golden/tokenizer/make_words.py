#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes words.json: how the package `tokenizers` (0.23.3) splits awkward texts into words.

For each pre-tokenizer a list of cases: a text, and the bytes of each of its words. tests/engine/test_tokenizer_split.c
compares the engine with it.

    pip install tokenizers==0.23.3 && python3 tests/golden/tokenizer/make_words.py
"""
import json
import pathlib

from tokenizers import Regex, pre_tokenizers

from awkward_texts import EMOJI, NUMBERS, PLAIN, SCRIPTS, SIGNS, SPACES, mixtures

# The expressions of the models' own tokenizer files.
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


KINDS = {
    "gpt-2": byte_level(),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()]),
    "llama-bpe": split(LLAMA3),
    "qwen2": split(QWEN2),
}


def word_sizes(kind, text):
    sizes = []
    for _, (start, end) in KINDS[kind].pre_tokenize_str(text):
        sizes.append(len(text[start:end].encode()))
    if sum(sizes) != len(text.encode()):
        raise SystemExit(f"{kind} does not cover {text!r}")
    return sizes


def main():
    texts = PLAIN + NUMBERS + SPACES + SIGNS + SCRIPTS + EMOJI + mixtures(60, 40)
    lines = []
    for text in texts:
        case = {"text": text, **{kind: word_sizes(kind, text) for kind in KINDS}}
        lines.append(json.dumps(case, separators=(",", ":")))
    path = pathlib.Path(__file__).parent / "words.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} texts")


if __name__ == "__main__":
    main()
