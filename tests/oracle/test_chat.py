# SPDX-License-Identifier: MIT
"""Chat templates against jinja2, as installed, on random conversations.

    tools/oracle-python tests/oracle/test_chat.py build/kvern

The comparison is that of engine/jinja, the test program beside the given one: KVERN_TEST_CHAT names the cases.
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "chat"
sys.path.insert(0, str(GOLDEN))
import make_chat  # noqa: E402

ROLES = ["system", "user", "assistant", "tool"]
PIECES = ["", " ", "\n", "a", "<think>", "</think>", "<|im_end|>", "{{ x }}", "{%", "\u00e9", "\U0001f600", "\u3000",
          "[INST]", "'", '"', "\\", "\t", "x y", "<s>", "\u2028"]

comparison = None


def conversation(source):
    count = source.randrange(1, 7)
    roles = [source.choice(ROLES) for _ in range(count)]
    if source.random() < 0.7:  # the usual order, which most templates want
        first = source.random() < 0.5
        roles = (["system"] if first else []) + ["user", "assistant"] * 3
        roles = roles[:count]
    return [(role, "".join(source.choices(PIECES, k=source.randrange(6)))) for role in roles]


class Chat(unittest.TestCase):
    def test_golden_file_is_what_jinja_renders(self):
        made = [json.loads(json.dumps(entry)) for entry in make_chat.cases()]
        kept = json.loads((GOLDEN / "conversations.json").read_text())
        # How Python words a fault is no matter.
        for entry in made + kept:
            if "fault" in entry:
                entry["fault"] = ""
        self.assertEqual(made, kept)

    def test_random_conversations(self):
        source = random.Random(3)
        cases = []
        for path in sorted((GOLDEN / "templates").glob("*.jinja")):
            text = path.read_bytes().decode()
            cases += [make_chat.case(path.stem, text, conversation(source), source.random() < 0.5) for _ in range(40)]
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "cases.json")
            made.write_text(json.dumps(cases))
            environment = {**os.environ, "KVERN_TEST_CHAT": str(made)}
            result = subprocess.run([comparison], capture_output=True, text=True, env=environment)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    comparison = program.with_name("test_engine_jinja")
    unittest.main()
