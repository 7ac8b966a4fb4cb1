# SPDX-License-Identifier: MIT
"""Exact logits of a GGUF file: mlx-lm's model class on its tensors in float32.

    tools/oracle-python tests/oracle/exact_logits.py MODEL.gguf --tokens 1,2,3 --out logits.npy
    tools/oracle-python tests/oracle/exact_logits.py MODEL.gguf -p TEXT --out logits.npy

Writes a float32 NumPy file of shape [positions, vocabulary], as `kvern logits` does.
"""

import argparse

import numpy as np

from gguf_model import GgufModel, exact_logits, exact_model, reference_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tokens", help="token ids, separated by commas")
    what.add_argument("-p", "--prompt", help="text, tokenized by the reference tokenizer")
    parser.add_argument("--out", required=True, help="the NumPy file to write")
    arguments = parser.parse_args()

    model = GgufModel(arguments.model)
    if arguments.tokens is not None:
        tokens = [int(token) for token in arguments.tokens.split(",")]
    else:
        tokens = reference_ids(model, arguments.prompt)
    with open(arguments.out, "wb") as file:
        np.save(file, exact_logits(exact_model(model), tokens))


if __name__ == "__main__":
    main()
