# SPDX-License-Identifier: MIT
"""Directories with a tokenizer.json: `kvern tokenize` against the package tokenizers.

    tools/oracle-python tests/oracle/test_tokenizer_json.py build/kvern

The kinds of the golden file on other texts, random ones included.
"""

import json
import pathlib
import random
import sys
import tempfile
import unittest

from tokenizers import Tokenizer

from oracle_case import ROOT, kvern, main

sys.path.append(str(ROOT / "tests" / "golden" / "tokenizer"))
import awkward_texts as awkward  # noqa: E402 (the corpus of the golden files)
import make_tokenizer_json as golden  # noqa: E402

SEED = 20261130
LETTERS = [*"aAbBhHlLoOrRtTeEsS0123 \t\n'.,-_<>|", "<|end|>", "<tool>", "the", " the", "\u00e9", "e\u0301", "\ufb01"]
LETTERS += ["\u2581", "\u4e2d\u6587", "\u3042", "\ud55c", "\u0e01", "\U0001f600"]
LETTERS += ["\u00a0", "\u2028", "\u0085", "\u180e"]


def random_texts(chosen, count):
    """Texts over letters that meet each other's rules, and over any characters at all."""
    for _ in range(count):
        yield "".join(chosen.choices(LETTERS, k=chosen.randint(1, 60)))
        codes = [chosen.choice([chosen.randint(1, 0x2FF), chosen.randint(0x300, 0xD7FF)]) for _ in range(20)]
        yield "".join(map(chr, codes))


class TokenizerJson(unittest.TestCase):
    def check(self, root, texts):
        reference = Tokenizer.from_str(json.dumps(root))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tokenizer.json").write_text(json.dumps(root))
            path = pathlib.Path(folder, "text.txt")
            for text in texts:
                path.write_bytes(text.encode())
                answer = json.loads(kvern("tokenize", folder, "-f", str(path), "--json"))
                ids = [token["id"] for token in answer["tokens"]]
                self.assertEqual(ids, reference.encode(text).ids, ascii(text))

    def test_kinds(self):
        chosen = random.Random(SEED)
        texts = awkward.PLAIN + awkward.NUMBERS + awkward.SPACES + awkward.SIGNS + awkward.SCRIPTS + awkward.EMOJI
        for name, root in golden.kinds():
            with self.subTest(kind=name):
                some = [*random_texts(chosen, 25), "".join(texts), *golden.SPECIAL_TEXTS]
                self.check(root, [text.replace("\0", "") for text in some])


if __name__ == "__main__":
    main("test_tokenizer_json.py")
