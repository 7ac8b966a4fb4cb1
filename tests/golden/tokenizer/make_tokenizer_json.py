#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes tokenizer_json.json: small tokenizer.json files of every kind that models have, and what the package
`tokenizers` (0.23.3) makes of awkward texts with them.

A list: first one of texts; then kinds: "tokenizer", the contents of a tokenizer.json; "ids" of each text; "plain", the
ids of those with a "<" where special tokens are not recognised, null for the others; "bos", the id that the
post-processor begins a text with, or null.
tests/engine/test_tokenizer_json.c compares the engine with it; tests/oracle/test_tokenizer_json.py does the same on
other texts.

    tools/oracle-python tests/golden/tokenizer/make_tokenizer_json.py
"""
import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from awkward_texts import EMOJI, NUMBERS, PLAIN, SCRIPTS, SIGNS, SPACES, mixtures

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = PLAIN + NUMBERS + SPACES + SIGNS + SCRIPTS + EMOJI
SENTENCE = "the hell with the other hundred thousand in there, he said; I'll be there."
CORPUS = [text.replace("\0", "") for text in TEXTS] + [SENTENCE] * 40


def special(text, **flags):
    return AddedToken(text, special=True, normalized=flags.pop("normalized", False), **flags)


def added(text, **flags):
    return AddedToken(text, special=False, **flags)


def trained(splitter, normalizer=None, size=300, alphabet=True):
    """A tokenizer whose merges come from the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    letters = pre_tokenizers.ByteLevel.alphabet() if alphabet else []
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=letters, show_progress=False, limit_alphabet=1000 if alphabet else 120
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level(*splits, prefix=False, words=False, normalizer=None, tokens=(), bos=None, **model):
    """A byte-level tokenizer with some splits before."""
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=words)
    splitter = pre_tokenizers.Sequence([*splits, last]) if splits else last
    tokenizer = trained(splitter, normalizer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_tokens([*tokens, special("<|end|>")])
    if bos:
        tokenizer.add_special_tokens([special(bos)])
        begin = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), begin])
    return changed(tokenizer, **model)


def changed(tokenizer, **model):
    root = json.loads(tokenizer.to_str())
    root["model"].update(model)
    return root


def pieces(splitter, normalizer, first=("<unk>", "<s>", "</s>"), fallback=True, tokens=(), **model):
    """A tokenizer of pieces: characters, with tokens for bytes."""
    root = json.loads(trained(splitter, normalizer, size=220, alphabet=False).to_str())
    texts = list(first) + [f"<0x{byte:02X}>" for byte in range(256) if fallback]
    texts += [text for text in root["model"]["vocab"] if text not in texts]
    root["model"]["vocab"] = {text: index for index, text in enumerate(texts)}
    root["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)
    root["model"].update(model)
    tokenizer = Tokenizer.from_str(json.dumps(root))
    strip = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(strip)
    tokenizer.add_tokens([special(text) for text in first] + list(tokens))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return json.loads(tokenizer.to_str())


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


def kinds():
    space = normalizers.Replace(" ", "\u2581")
    legacy = normalizers.Sequence([normalizers.Prepend("\u2581"), space])
    runs = [added(text, normalized=False) for text in ["\n\n", "\n\n\n", "\u2581\u2581", "\u2581\u2581\u2581"]]
    digits = pre_tokenizers.Digits
    yield "gpt2", byte_level(words=True, tokens=[special("<|endoftext|>", normalized=True)])
    yield "gpt2 with a space", byte_level(words=True, prefix=True)
    yield "smollm", byte_level(digits(individual_digits=True), words=True)
    yield "digits together", byte_level(digits(individual_digits=False), words=True)
    yield "llama3", byte_level(split(Regex(LLAMA3)), bos="<|begin|>", ignore_merges=True)
    yield "qwen", byte_level(
        split(Regex(QWEN)),
        normalizer=normalizers.NFC(),
        tokens=[special("<|im_start|>"), added("<tool_call>", normalized=False), added("the hell", normalized=True)],
    )
    yield "nfkd", byte_level(normalizer=normalizers.NFKD(), words=True, tokens=[added("e\u0301x", normalized=True)])
    yield "deepseek", byte_level(
        split(Regex(r"\p{N}{1,3}")), split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+")), split(Regex(DEEPSEEK))
    )
    yield "o200k", byte_level(split(Regex(O200K)), ignore_merges=True)
    yield "scripts", byte_level(
        split(Regex(r"\p{Han}+|\p{Hiragana}+|[\p{Hangul}\d]{2,}|[^\S\r\n]+$|(?<=\S)[\p{Pd}\p{Sc}]|(?i:HE)"))
    )
    for behavior in ["merged_with_previous", "merged_with_next", "contiguous"]:
        yield behavior, byte_level(split(Regex(r"[aeiou ]"), behavior), pre_tokenizers.Punctuation(behavior))
        yield behavior + ", inverted", byte_level(split("e", behavior, True))
    yield "edges", byte_level(
        words=True,
        tokens=[
            special("<left>", lstrip=True),
            special("<right>", rstrip=True),
            special("<both>", lstrip=True, rstrip=True),
            added("word", single_word=True, normalized=False),
            added("the", single_word=True, rstrip=True, normalized=False),
        ],
    )
    yield "llama2", pieces(None, legacy, tokens=[added("<tool>", rstrip=True, normalized=False)])
    yield "gemma", pieces(split(" ", "merged_with_previous"), space, tokens=runs)
    yield "unknown", pieces(None, space, fallback=False)
    yield "unknown, one by one", pieces(None, space, fallback=False, fuse_unk=False)
    for scheme in ["first", "always", "never"]:
        yield "metaspace " + scheme, pieces(pre_tokenizers.Metaspace("\u2581", scheme, scheme != "never"), None)


SPECIAL_TEXTS = [
    "<s>a</s> b",
    "a<|end|>b<|end|>",
    " <|end|> <|end|> x",
    "<|begin|>the end<|end|>\n",
    "x <left> y <right> z <both> w",
    "x\t\n<left>\u00a0y<right>\u2003\u3000 z  <both>  <both>  w",
    "<right>  <left>a",
    "word words wordy a_word word. word\u0301 \u0301word 1word word",
    "the then the  the the",
    "<|im_start|>user\n<tool_call>x</tool_call>",
    "hello the hell e\u0301x \u00e9x the he\u0301ll",
    "<tool>  a <tool>",
    "<|endoftext|>a<|endoftext",
    "\u2581 \u2581\u2581 a\u2581b",
    "\n\n\n\n\na\n\nb",
    "\u212b \u2126 A\u030a \ufb01 \u1e9b\u0323 \uac00 \u1100\u1161",
    "\u4e2d\u6587 \u3072\u3089 \u30ab\u30bf \ud55c\uae00 \u00df\u017f'\u017f 'S it'\u017f",
]


def encoded(tokenizer, texts, parse):
    tokenizer.encode_special_tokens = not parse
    return [tokenizer.encode(text, add_special_tokens=False).ids if parse or "<" in text else None for text in texts]


def beginning(tokenizer):
    tokenizer.encode_special_tokens = False
    added_ids = tokenizer.encode("a").ids[: -len(tokenizer.encode("a", add_special_tokens=False).ids)]
    return added_ids[0] if added_ids else None


def kind_of(name, root, texts):
    tokenizer = Tokenizer.from_str(json.dumps(root))
    return {
        "name": name,
        "tokenizer": root,
        "bos": beginning(tokenizer),
        "ids": encoded(tokenizer, texts, True),
        "plain": encoded(tokenizer, texts, False),
    }


def main():
    texts = [text for text in TEXTS if len(text) < 70 and "\0" not in text][::3] + mixtures(8, 30) + SPECIAL_TEXTS
    parts = [texts] + [kind_of(name, root, texts) for name, root in kinds()]
    lines = [json.dumps(part, separators=(",", ":"), ensure_ascii=False) for part in parts]
    path = pathlib.Path(__file__).parent / "tokenizer_json.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines) - 1} kinds, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
