# SPDX-License-Identifier: MIT
"""Kvern on SmolLM2 against mlx-lm's model on the same weights and an independent tokenizer.

    tools/oracle-python tests/oracle/test_smollm2.py build/kvern

The model file is KVERN_TEST_MODEL, else it is fetched.
"""

import json
import sys

from gguf_model import GgufModel, exact_model, reference_tokenizer
from oracle_case import GREEDY_PROMPTS, ROOT, OracleCase, kvern, main, model_path
from prompts import PROMPTS

sys.path.append(str(ROOT / "tests" / "golden" / "tokenizer"))
import awkward_texts as awkward  # noqa: E402 (the corpus of the golden files)


class SmolLM2(OracleCase):
    @classmethod
    def setUpClass(cls):
        cls.path = model_path("KVERN_TEST_MODEL", "smollm2")
        cls.model = GgufModel(cls.path)
        cls.network = exact_model(cls.model)
        cls.tokenizer = reference_tokenizer(cls.model)
        cls.tokens = cls.model.metadata["tokenizer.ggml.tokens"]

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    def piece(self, token):
        if self.is_control(token):
            return self.tokens[token].encode()
        return bytes(BYTE_OF[character] for character in self.tokens[token])

    def test_logits(self):
        self.check_all_logits(PROMPTS)

    def test_greedy_text(self):
        for prompt in GREEDY_PROMPTS:
            with self.subTest(prompt=prompt):
                self.check_greedy(prompt)

    def test_tokenizer(self):
        texts = awkward.PLAIN + awkward.NUMBERS + awkward.SPACES + awkward.SIGNS
        texts += awkward.SCRIPTS + awkward.EMOJI + awkward.SPECIAL + awkward.mixtures(20, 200)
        # An argument of a program cannot hold a zero byte.
        texts = [text for text in texts if "\0" not in text]
        for text in [*texts, "".join(texts), *PROMPTS]:
            with self.subTest(text=text[:60]):
                answer = json.loads(kvern("tokenize", self.path, "-p", text, "--json"))
                ids = [token["id"] for token in answer["tokens"]]
                self.assertEqual(ids, self.encode(text))
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
    main("test_smollm2.py")
