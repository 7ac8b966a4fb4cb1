# SPDX-License-Identifier: MIT
"""Small random models of every family: Kvern against mlx-lm and llama.cpp.

    tools/oracle-python tests/oracle/test_families.py build/kvern

Each case of families/case_*.py is made anew, with other weights and tokens than those of the golden files. The program
reads it as a directory and as a GGUF file of the gguf package; the ways of serving it, and a GGUF file of another
writer, are the business of engine/families, the test program beside the given one: KVERN_TEST_FAMILIES names the cases.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "families"))
from family_case import (  # noqa: E402
    TOKENS,
    all_cases,
    describe,
    directory_tensors,
    exact_logits,
    make_weights,
    write_directory,
    write_gguf,
    write_tokenizer,
)
from gguf_model import log_softmax  # noqa: E402
from llama_cpp_logits import LlamaCpp  # noqa: E402

SEED = 5
CHUNKS = ("64", "1", "7")
LLAMA_CPP_LENGTHS = (1, 2, 40, 90, TOKENS)
# A number of a config.json that a case is there for changes logits by more than this many tolerances.
SENSITIVITY = 20

program = comparison = None
folder = None


def kvern(command, path, *options):
    result = subprocess.run([program, command, path, *options], capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return result.stdout


def kvern_logits(path, tokens, *options):
    out = folder / "logits.npy"
    ids = ",".join(str(token) for token in tokens)
    kvern("logits", path, "--tokens", ids, "--out", out, "--kv", "f32", "-q", *options)
    return np.load(out)


class Families(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cases = all_cases()
        cls.described = {}
        for case in cls.cases:
            made = describe(case, SEED, range(TOKENS))
            (folder / "cases").mkdir(exist_ok=True)
            (folder / "cases" / f"{case.name}.json").write_text(json.dumps(made))
            cls.described[case.name] = made

    def for_each_case(self, run):
        for case in self.cases:
            with self.subTest(case=case.name):
                made = self.described[case.name]
                run(case, made, np.array(made["logits"], dtype=np.float32))

    def check(self, logits, exact, tolerance):
        self.assertEqual(logits.shape, exact.shape)
        off = np.abs(logits - exact).max() / np.abs(exact).max()
        self.assertLessEqual(off, tolerance)

    def test_directories(self):
        def run(case, made, exact):
            path = folder / case.name
            write_directory(made, path)
            logits = kvern_logits(path, made["tokens"])
            self.check(logits, exact, made["tolerance"])
            for chunk in CHUNKS:
                again = kvern_logits(path, made["tokens"], "--chunk", chunk)
                self.assertEqual(again.tobytes(), logits.tobytes(), f"in chunks of {chunk}")

        self.for_each_case(run)

    def test_gguf(self):
        def run(case, made, exact):
            if case.gguf:
                path = folder / f"{case.name}.gguf"
                write_gguf(made, path)
                self.check(kvern_logits(path, made["tokens"]), exact, made["tolerance"])

        self.for_each_case(run)

    def test_llama_cpp(self):
        def run(case, made, exact):
            if case.gguf and case.gguf.llama_cpp:
                path = folder / f"{case.name}-tokenizer.gguf"
                write_gguf(made, path, tokenizer=True, dtype="F32")
                other = LlamaCpp(path, case.vocabulary)
                tolerance = max(made["tolerance"], case.gguf.llama_cpp_tolerance)
                for length in LLAMA_CPP_LENGTHS:
                    scores = other.log_probabilities(made["tokens"][:length])
                    off = np.abs(scores - log_softmax(exact[length - 1])).max() / np.abs(exact).max()
                    print(f"{case.name}, {length} tokens: llama.cpp is off by {off:.1e}")
                    self.assertLessEqual(off, tolerance, f"behind {length} tokens")

        self.for_each_case(run)

    def test_ways_of_serving(self):
        environment = {**os.environ, "KVERN_TEST_FAMILIES": str(folder / "cases")}
        result = subprocess.run([comparison], capture_output=True, text=True, env=environment)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_commands(self):
        """Whoever takes a model takes each of these; drafts and other prompts beside one change nothing."""

        def run(case, made, exact):
            if case.gguf:
                path = folder / f"{case.name}-commands.gguf"
                write_gguf(made, path, tokenizer=True)
                pieces = [f"t{token}" for token in range(case.vocabulary)]
            else:
                path = folder / f"{case.name}-commands"
                write_directory(made, path)
                pieces = write_tokenizer(path, case.vocabulary)
            facts = json.loads(kvern("inspect", path, "--json"))
            if case.gguf:
                self.assertEqual(facts["architecture"], case.gguf.architecture)
            kvern("fit", path, "--ctx", "300")
            texts = ["".join(pieces[token] for token in made["tokens"][at : at + 40]) for at in (0, 40, 80)]
            options = ["--raw", "-n", "40", "--temp", "0", "--ignore-eos"]
            alone = [kvern("run", path, "-p", text, *options).removesuffix("\n") for text in texts]
            self.assertTrue(all(alone))
            drafted = kvern("run", path, "-p", texts[0], "--draft", "ngram", *options)
            self.assertEqual(drafted.removesuffix("\n"), alone[0])
            prompts, answers = folder / "prompts.jsonl", folder / f"{case.name}.jsonl"
            prompts.write_text("".join(json.dumps({"id": i, "prompt": text}) + "\n" for i, text in enumerate(texts)))
            kvern("batch", path, "--prompts", prompts, "--out", answers, *options)
            lines = [json.loads(line) for line in answers.read_text().splitlines()]
            self.assertEqual([line["text"] for line in sorted(lines, key=lambda line: line["id"])], alone)
            text = folder / "text.txt"
            text.write_text("".join(texts))
            kvern("eval", path, "--text", text, "--ctx", "64", "--kv", "f32,bf16")

        self.for_each_case(run)

    def test_cases_depend_on_their_numbers(self):
        """A case would not notice that a key is passed over if its logits did not depend on it."""

        def run(case, made, exact):
            weights = make_weights(directory_tensors(case), SEED)
            for key, config in changed_configs(case):
                other = exact_logits(case, weights, made["tokens"], config)
                off = np.abs(other - exact).max() / np.abs(exact).max()
                self.assertGreater(off, SENSITIVITY * made["tolerance"], key)

        self.for_each_case(run)


def changed_configs(case):
    """The config with its window or one of its float numbers changed at a time."""
    if case.config.get("sliding_window") and "sliding_window" not in case.inert:
        yield "sliding_window", {**case.config, "sliding_window": case.config["sliding_window"] + 1}
    yield from changed_numbers(case.config, "", case.inert)


def changed_numbers(config, prefix, inert):
    """Copies of an object, in each of which one number is another one; objects in it are looked through."""
    for key, value in config.items():
        name = prefix + key
        if isinstance(value, dict):
            for inner, changed in changed_numbers(value, f"{name}.", inert):
                yield inner, {**config, key: changed}
        elif isinstance(value, float) and name not in inert:
            yield name, {**config, key: value * 1.25}


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    comparison = program.with_name("test_engine_families")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        unittest.main(verbosity=2)
