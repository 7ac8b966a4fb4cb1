# SPDX-License-Identifier: MIT
"""What the tests of the program against an exact model have in common.

A subclass sets, in setUpClass: path, model (GgufModel), network (exact_model); and says how the
reference tokenizer encodes a text and which bytes a token stands for.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from gguf_model import ExactDecoder, exact_logits, kl_divergence, log_softmax, same_top

ROOT = pathlib.Path(__file__).parents[2]

# What rounding the activations may cost: llama.cpp's figure on SmolLM2.
MEAN_KL_LIMIT = 0.003
SAME_TOP_LIMIT = 0.95
# Two tokens are nearly tied when their exact log probabilities are closer than this. A divergence of D
# means log probabilities that are off by the root of 2 D, a difference of two by the root of 4 D, which
# is 0.11; three times that.
NEAR_TIE = 0.33
GREEDY_TOKENS = 64
GREEDY_PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "To make a cup of tea, first",
]
TOKEN_TYPE_CONTROL = 3

program = None


def kvern(*arguments):
    result = subprocess.run([program, *arguments], capture_output=True, check=False)
    if result.returncode != 0:
        raise AssertionError(
            f"kvern {arguments[0]} ended with {result.returncode}: {result.stderr.decode()}"
        )
    return result.stdout


def model_path(variable, name):
    """The file that an environment variable names, else it is fetched."""
    if variable in os.environ:
        return os.environ[variable]
    fetch = [ROOT / "tools" / "fetch-model", name]
    return subprocess.run(fetch, capture_output=True, text=True, check=True).stdout.strip()


class OracleCase(unittest.TestCase):
    def encode(self, text):
        """The reference's ids, with what the file wants before them."""
        raise NotImplementedError

    def piece(self, token):
        """The bytes that a token stands for."""
        raise NotImplementedError

    def is_control(self, token):
        return self.model.metadata["tokenizer.ggml.token_type"][token] == TOKEN_TYPE_CONTROL

    def kvern_logits(self, tokens, *options):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits.npy")
            ids = ",".join(str(token) for token in tokens)
            kvern("logits", self.path, "--tokens", ids, "--out", out, *options)
            return np.load(out)

    def check_logits(self, tokens, *options):
        """The divergence of every position, and whether the top token is the same."""
        exact = exact_logits(self.network, tokens)
        logits = self.kvern_logits(tokens, *options)
        self.assertEqual(logits.dtype, np.float32)
        self.assertEqual(logits.shape, exact.shape)
        divergence, top = kl_divergence(exact, logits), same_top(exact, logits)
        print(f"{len(tokens)} tokens: mean KL {divergence.mean():.6f}, same top {top.mean():.4f}")
        return divergence, top

    def check_all_logits(self, texts, *options):
        """Limits for all positions of some texts together."""
        results = [self.check_logits(self.encode(text), *options) for text in texts]
        mean = np.concatenate([divergence for divergence, _ in results]).mean()
        top = np.concatenate([top for _, top in results]).mean()
        print(f"all: mean KL {mean:.6f}, same top {top:.4f}")
        self.assertLessEqual(mean, MEAN_KL_LIMIT)
        self.assertGreaterEqual(top, SAME_TOP_LIMIT)

    def check_greedy(self, prompt, count=GREEDY_TOKENS):
        """Follows the exact model along the program's text; where they part, it is a tie."""
        text = kvern("run", self.path, "-p", prompt, "--raw", "-n", str(count), "--temp", "0")
        rest = text.removesuffix(b"\n")
        self.assertGreater(len(rest), 0)
        decoder = ExactDecoder(self.network)
        feed = self.encode(prompt)
        for step in range(count):
            scores = log_softmax(decoder.feed(feed))
            best = int(scores.argmax())
            if self.is_control(best):
                return self.assertEqual(rest, b"", "the exact model ends here")
            piece = self.piece(best)
            # The program may hold back a line break at the very end.
            if rest.startswith(piece) or (piece.startswith(rest) and not piece.strip()):
                rest = rest[len(piece) :]
                feed = [best]
                continue
            chosen = self.best_continuation(scores, rest)
            gap = scores[best] - scores[chosen]
            print(
                f"token {step}: {self.piece(chosen)!r} instead of {piece!r}, "
                f"log probability {gap:.4f} lower"
            )
            return self.assertLess(gap, NEAR_TIE, f"after {prompt[-40:]!r} at token {step}")
        return self.assertEqual(rest, b"", "the text is longer than it should be")

    def best_continuation(self, scores, rest):
        """The likeliest token that agrees with the text; at its end, the likeliest end."""
        for token in np.argsort(-scores):
            token = int(token)
            if self.is_control(token):
                if not rest:
                    return token
            elif rest.startswith(self.piece(token)):
                return token
        raise AssertionError(f"no token continues with {rest[:20]!r}")


def main(script):
    global program
    if len(sys.argv) < 2:
        sys.exit(f"usage: {script} KVERN_PROGRAM [UNITTEST_OPTIONS]")
    program = sys.argv.pop(1)
    unittest.main(verbosity=2)
