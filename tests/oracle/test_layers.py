# SPDX-License-Identifier: MIT
"""Attention, latents, recurrent layers and selections against MLX, mlx-lm and NumPy: the peers of `make
bench-peers`, on small cells.

    tools/oracle-python tests/oracle/test_layers.py build/kvern
"""

import json
import pathlib
import subprocess
import sys
import unittest

PEERS = pathlib.Path(__file__).parents[2] / "bench" / "peers"

# The norm of the difference over the norm of ours: sums of a few hundred products in another order, each step of
# which rounds by 6e-8 at most, and their like behind each other.
MOST_DIFFERENCE = 1e-5

program = None


class Layers(unittest.TestCase):
    def compare(self, name, *arguments):
        """Every cell must have been measured, and be close."""
        command = [program, "bench", *arguments, "-t", "1", "--runs", "2", "--json", "--peer", PEERS / f"{name}-layers",
                   "--peer-storage", "f32"]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        cells = json.loads(run.stdout)["cells"]
        self.assertTrue(cells)
        for cell in cells:
            self.assertEqual(len(cell["peers"]), 1)
            self.assertLessEqual(cell["peers"][0].get("difference", 1), MOST_DIFFERENCE, cell)

    def test_attention(self):
        for name in ("mlx", "numpy"):
            for phase in ("decode", "window"):  # a window is attended in several parts
                self.compare(name, "attention", "--storage", "f32", "--phase", phase, "--head-dim", "64", "--group",
                             "1,3", "--kv-heads", "2", "--positions", "77", "--new", "99")

    def test_latents(self):
        for name in ("mlx", "numpy"):
            for phase in ("decode", "window"):  # a window is attended in several parts
                self.compare(name, "attention", "--kind", "latent", "--storage", "f32", "--phase", phase, "--head-dim",
                             "64", "--rope", "24", "--group", "3,100", "--positions", "77", "--new", "9")

    def test_selections(self):
        for name in ("mlx", "numpy"):
            self.compare(name, "select", "--storage", "f32", "--positions", "300", "--top-k", "40", "--index-heads",
                         "13", "--index-dim", "40", "--heads", "1")

    def test_recurrent_layers(self):
        for kind in ("delta", "channels"):
            for phase in ("decode", "window"):
                self.compare("mlx", "recurrent", "--kind", kind, "--phase", phase, "--new", "7", "--key-heads", "2",
                             "--value-heads", "6", "--head-dim", "32")


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
