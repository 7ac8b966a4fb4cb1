# SPDX-License-Identifier: MIT
"""Texts that tokenizers get wrong: the corpus of the golden files in this folder."""

import random

PLAIN = [
    "",
    "a",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    " leading space",
    "trailing space ",
    "two  spaces   three    four",
    "don't can't I'm you're we've he'll she'd it's",
    "DON'T CAN'T I'M YOU'RE WE'VE HE'LL SHE'D IT'S",
    "'s't're've'm'll'd",
    "'S'T'RE",
    "''''quoted''''",
    "o'clock 'tis rock'n'roll",
    "snake_case camelCase kebab-case SCREAMING_CASE",
    "antidisestablishmentarianism",
    "supercalifragilisticexpialidocious" * 3,
]

NUMBERS = [
    "0",
    "1234567890",
    "3.14159265358979",
    "1,000,000.00",
    "a1b2c3",
    " 42",
    "42 ",
    "  42  43",
    "\t7\n8\r\n9",
    "year 2024, 100%, $5.00, 0x1F, 1e-10",
    "\u0661\u0662\u0663",  # Arabic-Indic digits
    "\u096a\u096b",  # Devanagari digits
    "\u00bd \u00b2 \u2167 \u2460",  # one half, superscript two, Roman eight, circled one
    "x\u00b2+y\u00b2=z\u00b2",
    "\uff11\uff12\uff13",  # full-width digits
    "\U0001d7d8\U0001d7e1",  # mathematical digits
]

SPACES = [
    "\n",
    "\n\n",
    "\n\n\n\n\n\n\n\n\n",
    " \n",
    "\n ",
    "a\nb",
    "a\n\nb",
    "a \n b",
    "a\r\nb\r\n\r\nc",
    "\r\r\r",
    "\t",
    "\t\tif (x) {\n\t\t\treturn y;\n\t\t}\n",
    "    def f(x):\n        return x  \n\n\n    # end\n",
    " " * 3,
    " " * 4,
    " " * 17,
    " " * 64,
    " " * 1000,
    "x" + " " * 100 + "y",
    "\n" * 100,
    "\t" * 33,
    " \t \t\n \t",
    "a\u00a0b\u00a0\u00a0c",  # no-break space
    "a\u3000b\u3000\u3000",  # ideographic space
    "a\u2003b\u2009c\u200ad",  # em, thin and hair space
    "a\u2028b\u2029c",  # line and paragraph separator
    "a\u0085b \u0085 c",  # next line
    "a\u180e!b \u180e c",  # Mongolian vowel separator: white space until Unicode 6.3
    "a\u200bb\u200cc\u200dd\ufeffe",  # zero-width ones
    "a\x0bb\x0cc",
    "a\x1cb\x1eb\x1fc",
]

SIGNS = [
    "!!!???...",
    "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
    "(a)[b]{c}<d>",
    "a+b-c*d/e=f",
    "->=>::==!=&&||",
    "#include <stdio.h>\nint main(void) { return 0; }\n",
    "https://example.org/a?b=c&d=%20#e",
    "user@example.org",
    "C:\\path\\to\\file",
    '{"key": [1, 2, {"x": null}]}',
    "<div class=\"a\">b</div>",
    "\\n\\t\\u0041",
    "--------------------------------",
    "\u2014\u2013\u2026\u201cquoted\u201d \u2018single\u2019",
    "\u20ac\u00a3\u00a5\u20bf",
    "\u00a9\u00ae\u2122\u00b0",
    "\u2200x\u2203y: x\u2264y \u2227 \u222b\u221ef(x)dx",
    "\ufffd\ufffd",
    "\x00",
    "a\x00b\x00\x00c",
    "\x01\x02\x03\x05\x07\x08\x0e\x0f\x1b[31mred\x1b[0m\x7f",
]

SCRIPTS = [
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber Stra\u00dfe",
    "cafe\u0301 nai\u0308ve",  # combining marks
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031ea\u030a\u0300lgo",
    "\u0301\u0301\u0301",
    "a\u0301\u0301b",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u042d\u0442\u043e \u0442\u0435\u0441\u0442.",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5 \u039a\u03cc\u03c3\u03bc\u03b5",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002",
    "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3001\u30c6\u30b9\u30c8\u3067\u3059\u3002",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u1112\u1161\u11ab\u1100\u1173\u11af",  # Hangul as single letters
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "abc \u05d0\u05d1\u05d2 def \u202e\u0627\u0644\u202c ghi",  # both directions
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0",
    "\u13a3\u13b3\u13a9",
    "\U00010400\U00010428",  # Deseret
    "\U00020000\U0002a6d6",  # rare ideographs
    "\U0001d49c\U0001d4ee\U0001d4fb",
    "\u017f\u212a'\u017f '\u212a",  # long s, Kelvin sign: they fold to s and k
    "I\u0307stanbul \u0131\u0130",
    "\ufb01\ufb02 \u01c4\u01c5\u01c6",
]

EMOJI = [
    "\U0001f600",
    "\U0001f600\U0001f600\U0001f600",
    "hi \U0001f44b\U0001f3fd!",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",  # a family, joined
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # a flag by tags
    "\U0001f1f3\U0001f1f4\U0001f1e9\U0001f1ea",
    "\u2764\ufe0f \u2764 1\ufe0f\u20e3",
    "a\U0001f600b1\U0001f6002",
]

SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b",
    " <|im_end|> ",
    "<|im_end|><|im_end|>",
    "<|im_end|",
    "<|im_end|\n>",
    "<<|im_end|>>",
    "<|im_start<|im_start|>",
    "<repo_name>x<reponame>y<file_sep>",
    "<empty_output><empty_output",
    "\u00e9<|im_start|>\u00e9",
]

ALPHABET = list("aZe \n\t'sStT019 !?.<|>_-\r") + [
    "\u00e9", "\u0301", "\u00a0", "\u3000", "\u4e2d", "\u0661", "\u00bd", "\U0001f600", "\u200d",
    "the", " the", "ing", "  ",
]


def mixtures(count, longest):
    """Random texts over an alphabet that changes kind often."""
    chosen = random.Random(20240229)
    return ["".join(chosen.choices(ALPHABET, k=chosen.randint(1, longest))) for _ in range(count)]


def ordinary_texts():
    return PLAIN + NUMBERS + SPACES + SIGNS + SCRIPTS + EMOJI + SPECIAL + mixtures(60, 40)
