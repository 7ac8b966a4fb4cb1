# SPDX-License-Identifier: MIT
"""Windows, quantized rows, conversions and batches against mlx-lm's caches, latents and selections
against its DeepSeek V3 and V3.2, on tokens of no golden file.

    tools/oracle-python tests/oracle/test_cache.py build/kvern

The comparisons are those of unit/cache_golden, unit/padded_golden, unit/latent_golden and
unit/select_golden, the test programs beside the given one.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
SEEDS = (2, 3)

programs = None  # the folder of the test programs


class Cache(unittest.TestCase):
    def compare(self, name):
        script = GOLDEN / name / f"make_{name}.py"
        comparison = programs / f"test_unit_{name}_golden"
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS:
                made = pathlib.Path(folder, f"{seed}.bin")
                subprocess.run([sys.executable, script, "--seed", str(seed), made], check=True)
                result = subprocess.run([comparison, made], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_rows(self):
        self.compare("cache")

    def test_batches(self):
        self.compare("padded")

    def test_latents(self):
        self.compare("latent")

    def test_selections(self):
        self.compare("select")


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    programs = program.parent
    unittest.main()
