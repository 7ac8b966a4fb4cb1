# SPDX-License-Identifier: MIT
"""Recurrent blocks of mlx-lm (Qwen3-Next, Kimi Linear, Mamba2) on tokens of no golden file.

    tools/oracle-python tests/oracle/test_recurrent.py build/kvern

The comparison is that of unit/recurrence_golden, the test program beside the given one.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).parents[1] / "golden" / "recurrent" / "make_recurrent.py"
SEEDS = (2, 3, 4)

comparison = None


class Recurrent(unittest.TestCase):
    def test_other_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS:
                made = pathlib.Path(folder, f"{seed}.bin")
                subprocess.run([sys.executable, SCRIPT, "--seed", str(seed), made], check=True)
                result = subprocess.run([comparison, made], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    comparison = program.with_name("test_unit_recurrence_golden")
    unittest.main()
