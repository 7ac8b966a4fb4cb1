# SPDX-License-Identifier: MIT
"""Kvern on SmolLM2 against mlx-lm's model on the same weights and an independent tokenizer.

    tools/oracle-python tests/oracle/test_smollm2.py build/kvern

The model file is KVERN_TEST_MODEL, else it is fetched.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from gguf_model import (
    ExactDecoder,
    GgufModel,
    exact_logits,
    exact_model,
    kl_divergence,
    log_softmax,
    reference_tokenizer,
    same_top,
)
from prompts import PROMPTS

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "golden" / "tokenizer"))
import awkward_texts as awkward  # noqa: E402 (the corpus of the golden files)

# What rounding the activations may cost: llama.cpp's figure on this model.
MEAN_KL_LIMIT = 0.003
SAME_TOP_LIMIT = 0.95
# Two tokens are nearly tied when their exact log probabilities are closer than this.
NEAR_TIE = 0.1
GREEDY_TOKENS = 64
GREEDY_PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "To make a cup of tea, first",
]

program = None


def kvern(*arguments):
    result = subprocess.run([program, *arguments], capture_output=True, check=False)
    if result.returncode != 0:
        raise AssertionError(
            f"kvern {arguments[0]} ended with {result.returncode}: {result.stderr.decode()}"
        )
    return result.stdout


def model_path():
    if "KVERN_TEST_MODEL" in os.environ:
        return os.environ["KVERN_TEST_MODEL"]
    fetch = [ROOT / "tools" / "fetch-model", "smollm2"]
    return subprocess.run(fetch, capture_output=True, text=True, check=True).stdout.strip()


class SmolLM2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = model_path()
        cls.model = GgufModel(cls.path)
        cls.network = exact_model(cls.model)
        cls.tokenizer = reference_tokenizer(cls.model)
        cls.tokens = cls.model.metadata["tokenizer.ggml.tokens"]

    def kvern_logits(self, tokens, *options):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "logits.npy")
            ids = ",".join(str(token) for token in tokens)
            kvern("logits", self.path, "--tokens", ids, "--out", out, *options)
            return np.load(out)

    def test_logits(self):
        divergences, tops = [], []
        for prompt in PROMPTS:
            tokens = self.tokenizer.encode(prompt).ids
            exact = exact_logits(self.network, tokens)
            logits = self.kvern_logits(tokens)
            self.assertEqual(logits.dtype, np.float32)
            self.assertEqual(logits.shape, exact.shape)
            divergences.append(kl_divergence(exact, logits))
            tops.append(same_top(exact, logits))
            print(f"{len(tokens)} tokens: mean KL {divergences[-1].mean():.6f}")
        mean, top = np.concatenate(divergences).mean(), np.concatenate(tops).mean()
        print(f"all: mean KL {mean:.6f}, same top {top:.4f}")
        self.assertLessEqual(mean, MEAN_KL_LIMIT)
        self.assertGreaterEqual(top, SAME_TOP_LIMIT)

    def test_greedy_text(self):
        for prompt in GREEDY_PROMPTS:
            with self.subTest(prompt=prompt):
                text = kvern(
                    "run", self.path, "-p", prompt, "--raw", "-n", str(GREEDY_TOKENS), "--temp", "0"
                )
                self.check_greedy(prompt, text.removesuffix(b"\n"))

    def check_greedy(self, prompt, text):
        """Follows the exact model along `text`; where it would say something else, it is a tie."""
        self.assertGreater(len(text), 0)
        decoder = ExactDecoder(self.network)
        feed = self.tokenizer.encode(prompt).ids
        rest = text
        for step in range(GREEDY_TOKENS):
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
            return self.assertLess(gap, NEAR_TIE, f"after {prompt!r} at token {step}")
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

    def is_control(self, token):
        return self.model.metadata["tokenizer.ggml.token_type"][token] == 3

    def piece(self, token):
        """The bytes of a token of the vocabulary."""
        if self.is_control(token):
            return self.tokens[token].encode()
        return bytes(BYTE_OF[character] for character in self.tokens[token])

    def test_tokenizer(self):
        texts = awkward.PLAIN + awkward.NUMBERS + awkward.SPACES + awkward.SIGNS
        texts += awkward.SCRIPTS + awkward.EMOJI + awkward.SPECIAL + awkward.mixtures(20, 200)
        # An argument of a program cannot hold a zero byte.
        texts = [text for text in texts if "\0" not in text]
        for text in [*texts, "".join(texts), *PROMPTS]:
            with self.subTest(text=text[:60]):
                answer = json.loads(kvern("tokenize", self.path, "-p", text, "--json"))
                ids = [token["id"] for token in answer["tokens"]]
                self.assertEqual(ids, self.tokenizer.encode(text).ids)
                self.assertEqual(b"".join(map(self.piece, ids)).decode(), text)


def byte_alphabet():
    """The characters that stand for bytes in a byte-level vocabulary (GPT-2's rule)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


BYTE_OF = byte_alphabet()

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: test_smollm2.py KVERN_PROGRAM [UNITTEST_OPTIONS]")
    program = sys.argv.pop(1)
    unittest.main(verbosity=2)
