# SPDX-License-Identifier: MIT
"""Prompt caches both ways: files of mlx-lm are read, and mlx-lm goes on with ours.

    tools/oracle-python tests/oracle/test_mlx_cache.py build/kvern

With numbers of no golden file, in both layouts: that of the installed release, and that of 0.31.3, which is put beside
it. The program that reads and writes is unit/mlx_cache, beside the given one. Whole models, left in the middle of a
text, go on there and here (mlx_models.py, engine/mlx_models), and so they do through files that `kvern cache convert`
makes.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
MAKE = HERE.parent / "golden" / "mlx" / "make_mlx.py"
OLD_RELEASE = "mlx-lm==0.31.3"
SEEDS = (2, 3)

program = None


def old_release():
    """The environment in which the older release is found first; it needs nothing that the newer one does not."""
    folder = pathlib.Path(sys.prefix) / OLD_RELEASE
    if not (folder / "mlx_lm").is_dir():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps"]
        with tempfile.TemporaryDirectory(dir=sys.prefix) as made:
            subprocess.run([*pip, "--target", made, OLD_RELEASE], check=True)
            pathlib.Path(made).rename(folder)
            pathlib.Path(made).mkdir()
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(*command, environment=None):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    if result.returncode:
        raise AssertionError(result.stdout + result.stderr)
    return result.stdout


class MlxCache(unittest.TestCase):
    def test_both_ways(self):
        old = old_release()
        for seed in SEEDS:
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder:
                for environment in (None, old):
                    run(sys.executable, MAKE, "--seed", seed, folder, environment=environment)
                run(program.with_name("test_unit_mlx_cache"), folder, seed)
                for layout, environment in (("states", None), ("infos", old)):
                    print(run(sys.executable, HERE / "mlx_continue.py", folder, seed, layout, environment=environment))

    def test_models(self):
        with tempfile.TemporaryDirectory() as folder:
            models = (sys.executable, HERE / "mlx_models.py")
            print(run(*models, "make", folder, 7))
            environment = {**os.environ, "KVERN_TEST_MLX_MODELS": folder}
            run(program.with_name("test_engine_mlx_models"), environment=environment)
            print(run(*models, "check", folder, 7))
            self.convert(pathlib.Path(folder))
            run(program.with_name("test_engine_mlx_models"), environment=environment)  # from NAME-theirs.kv
            print(run(*models, "check", folder, 7, "converted"))

    def convert(self, folder):
        """What mlx-lm left becomes a file of rows, and what the engine left a prompt cache."""
        for description in sorted(folder.glob("*.json")):
            at = folder / description.stem
            convert = (program, "cache", "convert")
            model = ("--model", f"{at}-model")
            tokens = ("--tokens", f"{at}-tokens", "--kv", "f32")
            run(*convert, f"{at}-theirs.safetensors", f"{at}-theirs.kv", *model, *tokens)
            run(*convert, f"{at}-ours.kv", f"{at}-converted.safetensors", *model)


if __name__ == "__main__":
    program = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
