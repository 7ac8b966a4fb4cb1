# SPDX-License-Identifier: MIT
"""Compares two NumPy files of logits: KL divergence to the first and share of equal top tokens.

    tools/oracle-python tests/oracle/compare_logits.py EXACT.npy OTHER.npy [--limit 0.003]

Exits with 1 when the mean KL divergence is above the limit.
"""

import argparse
import sys

import numpy as np

from gguf_model import kl_divergence, same_top


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("exact")
    parser.add_argument("other")
    parser.add_argument("--limit", type=float, help="the largest mean KL divergence allowed")
    arguments = parser.parse_args()

    exact, other = np.load(arguments.exact), np.load(arguments.other)
    if exact.shape != other.shape:
        sys.exit(f"the shapes differ: {exact.shape} and {other.shape}")
    divergence = kl_divergence(exact, other)
    print(
        f"positions {len(exact)}, mean KL {divergence.mean():.6f}, max KL {divergence.max():.6f}, "
        f"same top {same_top(exact, other).mean():.4f}"
    )
    if arguments.limit is not None and not divergence.mean() <= arguments.limit:
        sys.exit(f"the mean KL divergence is above {arguments.limit}")


if __name__ == "__main__":
    main()
