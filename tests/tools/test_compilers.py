# SPDX-License-Identifier: MIT
"""The library's sources and compilers that are told other things than the build tells them.

python3 tests/tools/test_compilers.py
"""

import pathlib
import platform
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = ["-D_GNU_SOURCE", f"-I{ROOT}", f"-I{ROOT}/include"]
X86 = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"],
}
ARITHMETIC = re.compile(r"\b(fma|fmaf|rintf|rint)\(|\bfloat \w+ = |_template\.h")
SETS = X86 if platform.machine() in ("x86_64", "AMD64") else {"neon": []}


def sources():
    """The files for this machine and the flags of their instruction set; of the many that one
    template makes, those for four bits."""
    for path in sorted((ROOT / "src").rglob("*.c")):
        name = path.stem.rsplit("_", 1)[-1]
        if name in ("avx2", "avx512", "neon") and name not in SETS:
            continue
        if not re.match(r"affine_[23568]_", path.stem):
            yield path, SETS.get(name, [])


def compile_with(compiler, path, flags):
    command = [compiler, *FLAGS, *flags, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


class Compilers(unittest.TestCase):
    def test_fast_math_is_refused(self):
        """Wherever there is arithmetic, by what the compiler says of itself."""
        refused = 0
        for path, flags in sources():
            if not re.match("math|codec|attend|recurrent", path.relative_to(ROOT / "src").as_posix()):
                continue
            if not ARITHMETIC.search(path.read_text(encoding="utf-8")):
                continue
            for flag in ("-ffast-math", "-ffinite-math-only"):
                status, text = compile_with("cc", path, [*flags, flag, "-E", "-o", "/dev/null"])
                self.assertNotEqual(status, 0, f"{path} with {flag}")
                self.assertIn("without -ffast-math", text, str(path))
            status, text = compile_with("cc", path, [*flags, "-E", "-o", "/dev/null"])
            self.assertEqual(status, 0, text)
            refused += 1
        self.assertGreater(refused, 20)

    def test_pedantic(self):
        pedantic = ["-std=c17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        for path, flags in sources():
            status, text = compile_with("cc", path, [*flags, *pedantic])
            self.assertEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main()
