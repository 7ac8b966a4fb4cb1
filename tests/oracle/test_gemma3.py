# SPDX-License-Identifier: MIT
"""Kvern on Gemma 3 270M against mlx-lm's model on the same weights and the sentencepiece package.

    tools/oracle-python tests/oracle/test_gemma3.py build/kvern

The model file is KVERN_TEST_GEMMA3, else it is fetched.
"""

import json
import sys

from gguf_model import GgufModel, exact_model
from oracle_case import (
    GREEDY_PROMPTS,
    MEAN_KL_LIMIT,
    ROOT,
    SAME_TOP_LIMIT,
    OracleCase,
    kvern,
    main,
    model_path,
)
from prompts import PROMPTS
from sentencepiece_reference import SentencePieceReference

sys.path.append(str(ROOT / "tests" / "golden" / "tokenizer"))
import awkward_texts as awkward  # noqa: E402 (the corpus of the golden files)

TOKEN_TYPE_BYTE = 6
WINDOW = 512
LONG_TOKENS = 620
LONG_GREEDY_TOKENS = 16
SHORT_GREEDY_TOKENS = 32


class Gemma3(OracleCase):
    @classmethod
    def setUpClass(cls):
        cls.path = model_path("KVERN_TEST_GEMMA3", "gemma3-270m")
        cls.model = GgufModel(cls.path)
        cls.network = exact_model(cls.model)
        cls.tokenizer = SentencePieceReference(cls.model.metadata)
        cls.tokens = cls.model.metadata["tokenizer.ggml.tokens"]

    def encode(self, text):
        return [self.model.metadata["tokenizer.ggml.bos_token_id"], *self.tokenizer.encode(text)]

    def piece(self, token):
        text = self.tokens[token]
        if self.model.metadata["tokenizer.ggml.token_type"][token] == TOKEN_TYPE_BYTE:
            return bytes([int(text[3:5], 16)])
        return text.replace("\u2581", " ").encode()

    def long_text(self):
        """More tokens than window layers see."""
        text = "\n\n".join(PROMPTS * 3)
        ids = self.encode(text)
        self.assertGreater(len(ids), LONG_TOKENS)
        return b"".join(map(self.piece, ids[1:LONG_TOKENS])).decode()

    def test_logits(self):
        self.check_all_logits(PROMPTS)

    def test_logits_past_the_window(self):
        """The positions beyond the window by themselves; the window layers' pages are used again."""
        divergence, top = self.check_logits(self.encode(self.long_text()))
        beyond = slice(WINDOW, None)
        self.assertGreater(len(divergence[beyond]), 100)
        print(f"past the window: mean KL {divergence[beyond].mean():.6f}")
        self.assertLessEqual(divergence[beyond].mean(), MEAN_KL_LIMIT)
        self.assertGreaterEqual(top[beyond].mean(), SAME_TOP_LIMIT)

    def test_greedy_text(self):
        for prompt in GREEDY_PROMPTS:
            with self.subTest(prompt=prompt):
                self.check_greedy(prompt, SHORT_GREEDY_TOKENS)

    def test_greedy_text_past_the_window(self):
        self.check_greedy(self.long_text(), LONG_GREEDY_TOKENS)

    def test_tokenizer(self):
        """A few texts through the program; tests/engine/test_tokenizer_gemma3.c has them all."""
        texts = awkward.ordinary_texts() + PROMPTS
        # An argument of a program cannot hold a zero byte.
        texts = [text for text in texts if "\0" not in text]
        for text in [*PROMPTS, *awkward.EMOJI, "".join(texts)]:
            with self.subTest(text=text[:60]):
                answer = json.loads(kvern("tokenize", self.path, "-p", text, "--json"))
                ids = [token["id"] for token in answer["tokens"]]
                self.assertEqual(ids, self.encode(text))
                self.assertEqual(b"".join(map(self.piece, ids[1:])).decode(), text)


if __name__ == "__main__":
    main("test_gemma3.py")
