# SPDX-License-Identifier: MIT
"""Affine codes against mx.quantize on rows of numbers that no golden file has.

    tools/oracle-python tests/oracle/test_affine.py build/kvern

The comparison is that of kernels/affine_golden, the test program beside the given one.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "affine"
SEEDS = (2, 3, 4)

comparison = None


class Affine(unittest.TestCase):
    def test_golden_file_is_what_mlx_stores(self):
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "affine.bin")
            subprocess.run([sys.executable, GOLDEN / "make_affine.py", made], check=True)
            self.assertEqual(made.read_bytes(), (GOLDEN / "affine.bin").read_bytes())

    def test_other_numbers(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS:
                made = pathlib.Path(folder, f"{seed}.bin")
                make = [sys.executable, GOLDEN / "make_affine.py", "--seed", str(seed), made]
                subprocess.run(make, check=True)
                result = subprocess.run([comparison, made], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    comparison = program.with_name("test_kernels_affine_golden")
    unittest.main()
