# SPDX-License-Identifier: MIT
"""Windows, quantized rows and conversions against mlx-lm's caches, on tokens of no golden file.

    tools/oracle-python tests/oracle/test_cache.py build/kvern

The comparison is that of unit/cache_golden, the test program beside the given one.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "cache"
SEEDS = (2, 3)

comparison = None


class Cache(unittest.TestCase):
    def test_other_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS:
                made = pathlib.Path(folder, f"{seed}.bin")
                make = [sys.executable, GOLDEN / "make_cache.py", "--seed", str(seed), made]
                subprocess.run(make, check=True)
                result = subprocess.run([comparison, made], capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    comparison = program.with_name("test_unit_cache_golden")
    unittest.main()
