#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes sentencepiece.json and gemma3.json: what the package `sentencepiece` (0.2.3) gives for awkward texts.

sentencepiece.json holds small random vocabularies with texts over their alphabet, for tests that need no model
(tests/engine/test_tokenizer_spm.c). gemma3.json holds texts and their ids in the vocabulary of Gemma 3 270M's GGUF
file, for tests/engine/test_tokenizer_gemma3.c. Each case is a text, whether control tokens in it count, and its ids
without BOS.

    tools/oracle-python tests/golden/tokenizer/make_sentencepiece.py GEMMA3.gguf
"""
import json
import pathlib
import random
import sys

from gguf import GGUFReader

import awkward_texts as awkward

HERE = pathlib.Path(__file__).parent
sys.path.append(str(HERE.parent.parent / "oracle"))
from sentencepiece_reference import SentencePieceReference  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "\u2581"
LETTERS = [SPACE, "a", "b", "c", "<", ">", "\n", "\u00e9", "\u6f22", "\U0001f600"]
# Of no vocabulary; the last one is the vocabulary's own space.
STRANGERS = ["z", "\x00", "\u00df", "\u8a9e", "\U0001f389", "\u0301", SPACE]

GEMMA_SPECIAL = [
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
    "a<end_of_turn>b",
    " <eos> ",
    "<bos><bos>x",
    "<end_of_turn",
    "<<end_of_turn>>",
    "<start_of<start_of_turn>",
    "<unused1><unused12><unused123>",
    "\u00e9<pad>\u00e9",
    "<start_of_image>x<end_of_image>",
]
GEMMA_ORDINARY = [
    *(" " * count for count in (1, 2, 3, 30, 31, 32, 33, 62, 63, 95)),
    *("\n" * count for count in (1, 2, 30, 31, 32, 33, 64)),
    *("\t" * count for count in (1, 2, 30, 31, 32)),
    "a" + " " * 31 + "b" + " " * 32 + "c",
    " \n  \n   \n",
    "x  y   z",
    "<table><tr><td>1</td></tr></table>",
    "</table></span></s",
    "<b>bold</b><i>",
    "<0x41> <0xFF> 0x0A",
    "[multimodal] [multimodal",
    "text" + SPACE + "text " + SPACE + SPACE + "x",
    "a" * 300,
    "\u0915\u094d\u0937" * 20,
    "\u3042" * 100,
    "\U0001f468\u200d\U0001f469" * 10,
    "\U000fffff\U0010ffff\ue000",
]


def random_characters(count, longest):
    """Random texts over all of Unicode, most of it without tokens."""
    chosen = random.Random(20240301)
    ranges = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x5FF), (0x900, 0xD7FF), (0x1F000, 0x1FAFF), (0xE000, 0x10FFFF)]
    texts = []
    for _ in range(count):
        length = chosen.randint(1, longest)
        texts.append("".join(chr(chosen.randint(*chosen.choice(ranges))) for _ in range(length)))
    return texts


def small_vocabulary(chosen, prefix):
    """Letters, and pieces that were joined from earlier ones, with scores of few different values."""
    pieces = {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL, "<a>": CONTROL}
    pieces.update({f"<0x{byte:02X}>": BYTE for byte in range(256)})
    pieces.update({text: USER_DEFINED for text in ("  ", "    ", "<b>", "\n\n", "ab<")})
    pieces.update({letter: NORMAL for letter in LETTERS})
    joined = list(LETTERS)
    while len(joined) < 60:
        text = chosen.choice(joined) + chosen.choice(joined)
        if len(text) <= 7 and text not in pieces and text.replace(SPACE, " ") not in pieces:
            pieces[text] = NORMAL
            joined.append(text)
    scores = [chosen.choice([-0.0, 0.0, 0.5, -1.5, -2.0, -3.0, -1e30, 7.0]) for _ in pieces]
    return {
        "tokenizer.ggml.tokens": list(pieces),
        "tokenizer.ggml.token_type": list(pieces.values()),
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def small_texts(chosen, count):
    alphabet = [letter.replace(SPACE, " ") for letter in LETTERS] * 4 + STRANGERS + ["  ", "ab<", "<b>", "<a>", "<s>"]
    return ["", " "] + ["".join(chosen.choices(alphabet, k=chosen.randint(1, 40))) for _ in range(count)]


def cases_of(reference, texts, special):
    return [{"text": text, "special": special, "ids": reference.encode(text, special)} for text in texts]


def write(name, lines):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines) + "\n]\n")
    print(name, len(lines))


def make_small():
    chosen = random.Random(20240302)
    vocabularies = []
    for prefix in (False, True) * 3:
        metadata = small_vocabulary(chosen, prefix)
        reference = SentencePieceReference(metadata)
        texts = small_texts(chosen, 40)
        cases = cases_of(reference, texts, False)
        # The package puts the prefix before every piece of a cut text, the engine too.
        cases += cases_of(reference, texts, True)
        short = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
        vocabularies.append({**short, "cases": cases})
    write("sentencepiece.json", vocabularies)


def make_gemma3(path):
    fields = GGUFReader(path).fields
    metadata = {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}
    reference = SentencePieceReference(metadata)
    texts = awkward.ordinary_texts() + GEMMA_ORDINARY + GEMMA_SPECIAL + random_characters(60, 30)
    write("gemma3.json", cases_of(reference, texts, False) + cases_of(reference, GEMMA_SPECIAL, True))


if __name__ == "__main__":
    make_small()
    make_gemma3(sys.argv[1])
