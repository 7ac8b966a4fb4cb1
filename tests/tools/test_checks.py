# SPDX-License-Identifier: MIT
"""The check scripts find what they are there to find, and nothing else.

python3 tests/tools/test_checks.py
"""

import pathlib
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
SPDX = "// SPDX-License-Identifier: MIT\n"


class Tree(unittest.TestCase):
    """A small project of its own for every test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write(".clang-format", "BasedOnStyle: LLVM\nIndentWidth: 4\nColumnLimit: 100\n")
        for header in ("include/kvern/kvern.h", "src/base/heap.h", "src/rows/row.h"):
            self.write(header, "")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_check(self, script, *arguments):
        command = [TOOLS / script, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout


class Layers(Tree):
    def check(self, name, line):
        self.write(name, f"{SPDX}{line}\n")
        return self.run_check("check-layers", self.root)

    def assert_refused(self, name, line, reason):
        code, output = self.check(name, line)
        self.assertEqual(code, 1)
        self.assertIn(f"{name}:2:", output)
        self.assertIn(reason, output)

    def test_permitted(self):
        for name, line in [
            ("src/rows/table.c", '#include "src/base/heap.h"'),
            ("src/rows/table.c", '#include "src/rows/row.h"'),
            ("src/state/state.c", '#include "src/rows/row.h"'),
            ("src/base/heap.c", "#include <kvern/kvern.h>"),
            ("engine/model/model.c", "#include <kvern/kvern.h>"),
            ("tests/unit/test_row.c", '#include "src/rows/row.h"'),
            ("src/base/heap.c", "#include <stdlib.h>"),
        ]:
            with self.subTest(name=name, line=line):
                self.assertEqual(self.check(name, line), (0, ""))

    def test_upward(self):
        self.assert_refused("src/base/heap.c", '#include "src/rows/row.h"', "may not include")
        self.assert_refused("src/pages/pool.c", '#include "src/rows/row.h"', "may not include")

    def test_engine_sees_public_headers_only(self):
        self.assert_refused("engine/model/model.c", '#include "src/base/heap.h"', "may not include")
        self.assert_refused("cli/main.c", '# include "src/base/heap.h"', "may not include")

    def test_tests_are_for_tests(self):
        self.write("tests/support/random.h", "")
        self.assert_refused("engine/base/a.c", '#include "tests/support/random.h"', "may not include")

    def test_unknown_path(self):
        self.assert_refused("src/rows/table.c", '#include "row.h"', "path from the root")
        self.assert_refused("src/rows/table.c", "#include <kvern/none.h>", "no such header")
        self.assert_refused("src/rows/table.c", "#include <src/rows/row.h>", "with quotes")

    def test_public_headers(self):
        self.assert_refused("include/kvern/a.h", "#include <stdio.h>", "language's headers")
        self.assert_refused("include/kvern/a.h", '#include "src/base/heap.h"', "<kvern/...>")
        self.write("include/kvern/experimental/new.h", "")
        new = "#include <kvern/experimental/new.h>"
        self.assert_refused("include/kvern/a.h", new, "includes no experimental one")
        (self.root / "include/kvern/a.h").unlink()
        self.assertEqual(self.check("include/kvern/experimental/b.h", new), (0, ""))
        self.assertEqual(self.check("src/rows/table.c", new), (0, ""))

    def test_unknown_folder(self):
        code, output = self.check("src/secret/a.c", "")
        self.assertEqual(code, 1)
        self.assertIn("not in the table", output)


class Style(Tree):
    def setUp(self):
        super().setUp()
        for header in self.root.rglob("*.h"):
            header.unlink()

    def check(self, name, text):
        self.write(name, text)
        return self.run_check("check-style", self.root)

    def assert_refused(self, name, text, reason):
        code, output = self.check(name, text)
        (self.root / name).unlink()
        self.assertEqual(code, 1, output)
        self.assertIn(reason, output)

    def test_permitted(self):
        self.assertEqual(self.check("src/a.c", f"{SPDX}int a;\n"), (0, ""))
        header = f"{SPDX}#ifndef KVERN_AREA_A_H\n#define KVERN_AREA_A_H\n#endif\n"
        self.assertEqual(self.check("src/area/a.h", header), (0, ""))

    def test_refused(self):
        for name, text, reason in [
            ("src/a.c", "int a;\n", "does not start with"),
            ("src/a.c", f"{SPDX}//{'x' * 99}\n", "101 columns"),
            ("src/a.c", f"{SPDX}int\ta;\n", "a tab"),
            ("src/a.c", f"{SPDX}int  a;\n", "clang-format"),
            ("src/a.c", f"{SPDX}// TO" "DO\n", "unfinished"),
            ("src/a.c", SPDX + "int a;\n" * 1000, "1001 lines"),
            ("src/area/a.h", f"{SPDX}#ifndef A_H\n#define A_H\n#endif\n", "header guard"),
            ("docs/a.md", "see /ro" "ot/.cache\n", "somebody's machine"),
            ("docs/a.md", "space \n", "end of the line"),
            ("tools/a", f"#!/bin/bash\n# {SPDX[3:]}echo $1\n", "SC2086"),
        ]:
            with self.subTest(reason=reason):
                self.assert_refused(name, text, reason)


class Docs(Tree):
    def check(self, name, text):
        self.write(name, text)
        return self.run_check("check-docs", self.root)

    def assert_refused(self, name, text, path):
        code, output = self.check(name, text)
        (self.root / name).unlink()
        self.assertEqual((code, output), (1, f"{name}:1: there is no {path}\n"))

    def test_permitted(self):
        self.write("docs/formats/gguf.md", "[back](../a.md#keys), `row.h`, `src/rows/`, `src/*/heap.h`\n")
        self.write("tests/cli/test_run.c", f"{SPDX}// src/rows/row.h, kvern/kvern.h, docs/a.md\n")
        text = "[gguf](formats/gguf.md), see `src/<folder>/row.h`, the test cli/run, build/src/none.c\n"
        self.assertEqual(self.check("docs/a.md", text), (0, ""))

    def test_missing(self):
        self.assert_refused("README.md", "in `src/rows/none.h`\n", "src/rows/none.h")
        self.assert_refused("README.md", "in src/none/\n", "src/none/")
        self.assert_refused("README.md", "`src/*/none.h`\n", "src/*/none.h")
        self.assert_refused("README.md", "the test cli/none\n", "cli/none")
        self.assert_refused("docs/a.md", "in `none.c`\n", "none.c")
        self.assert_refused("docs/a.md", "[b](../src/rows/row.c)\n", "../src/rows/row.c")
        self.assert_refused("src/rows/a.c", "// see docs/none.md\n", "docs/none.md")
        self.assert_refused("src/rows/a.c", "// see kvern/none.h\n", "kvern/none.h")

    def test_table_of_layers(self):
        self.write("tools/check-layers", 'LAYERS = {"src/base": [], "src/rows": ["src/base"]}\n')
        table = "    src/base/  memory  -> nothing\n    src/rows/  rows  -> "
        self.assertEqual(self.check("docs/ARCHITECTURE.md", f"{table}base\n"), (0, ""))
        self.assertEqual(self.check("docs/ARCHITECTURE.md", f"{table}all of src/ above\n"), (0, ""))
        for line in (f"{table}nothing\n", f"{table}base, pages\n", "no table\n"):
            code, output = self.check("docs/ARCHITECTURE.md", line)
            self.assertEqual(code, 1)
            self.assertIn("src/rows may include src/base", output)


class Symbols(Tree):
    """Small libraries under the names that the build gives."""

    GOOD = "int kvern_a(void) { return 1; }\n"

    ENGINE = "int engine_a(void) { return 1; }\n"

    def build(self, library=GOOD, engine=ENGINE, name="a.c", arguments=()):
        for target, text in (("kvern", library), ("kvern_engine", engine)):
            self.write(f"{target}/{name}", text)
            source, shared = self.root / target / name, self.root / f"lib{target}.so"
            compiled = self.root / target / f"{name}.o"
            archive = self.root / f"lib{target}.a"
            archive.unlink(missing_ok=True)
            subprocess.run(["cc", "-fPIC", "-c", source, "-o", compiled], check=True)
            subprocess.run(["cc", "-shared", compiled, "-o", shared], check=True)
            subprocess.run(["ar", "rc", archive, compiled], check=True)
        return self.run_check("check-symbols", self.root, *arguments)

    def assert_refused(self, reason, **sources):
        code, output = self.build(**sources)
        self.assertEqual(code, 1, output)
        self.assertIn(reason, output)

    def test_permitted(self):
        self.assertEqual(self.build(), (0, ""))

    def test_names(self):
        self.assert_refused("libkvern.so exports", library="int other(void) { return 1; }\n")
        self.assert_refused("libkvern.a defines", library="int other = 1;\n")
        self.assert_refused("names of the library", engine=self.GOOD)

    def test_kernel_files(self):
        variable = "static int count; int *kvern_count(void) { return &count; }\n"
        self.assertEqual(self.build(library=variable), (0, ""))
        self.assert_refused("kernel files", library=variable, name="a_avx2.c")
        table = "static int a(void) { return 1; }\nint (*const kvern_table[])(void) = {a};\n"
        self.assertEqual(self.build(library=table, name="a_avx2.c"), (0, ""))
        self.assert_refused("kernel files", library=table.replace("const", ""), name="a_avx2.c")
        constructor = "__attribute__((constructor)) static void a(void) {}\n"
        self.assert_refused("kernel files", library=constructor, name="a_avx512vnni.c")

    def test_calls(self):
        for call, reason in [
            ("abort()", "ends the process"),
            ("exit(1)", "ends the process"),
            ('printf("%d", value)', "prints"),
            ('fputs("a", stderr)', "prints"),
            ("exp(value)", "differ between processors"),
            ("powf(value, 2)", "differ between processors"),
        ]:
            headers = "#include <math.h>\n#include <stdio.h>\n#include <stdlib.h>\n"
            text = headers + f"void PREFIX_a(float value) {{ (void)value; {call}; }}\n"
            with self.subTest(call=call):
                self.assert_refused(reason, library=text.replace("PREFIX", "kvern"))
                self.assert_refused(reason, engine=text.replace("PREFIX", "engine"))

    def test_asserts(self):
        """Invariants may end the process in builds that check them, and in the library alone."""
        text = "#include <assert.h>\nvoid PREFIX_a(int a) { assert(a); }\n"
        library, engine = text.replace("PREFIX", "kvern"), text.replace("PREFIX", "engine")
        self.assert_refused("ends the process", library=library)
        self.assertEqual(self.build(library=library, arguments=["--asserts"]), (0, ""))
        self.assert_refused("ends the process", engine=engine, arguments=["--asserts"])

    def test_jumps(self):
        """Only one file may jump: where the chat template interpreter fails."""
        text = "#include <setjmp.h>\nvoid PREFIX_a(jmp_buf jump) { CALL(jump, 1); }\n"
        for call in ("longjmp", "siglongjmp"):
            jump = text.replace("CALL", call)
            engine = jump.replace("PREFIX", "engine")
            library = jump.replace("PREFIX", "kvern")
            with self.subTest(call=call):
                self.assertEqual(self.build(engine=engine, name="jinja_value.c"), (0, ""))
                for name in ("jinja_run.c", "a_jinja_value.c"):
                    self.assert_refused("jumps out", engine=engine, name=name)
                self.assert_refused("jumps out", library=library, name="jinja_value.c")


if __name__ == "__main__":
    unittest.main()
