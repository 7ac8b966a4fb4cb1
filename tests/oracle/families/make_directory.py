# SPDX-License-Identifier: MIT
"""Writes a small model of tests/golden/families as a directory that `kvern` opens: random weights, no tokenizer.

    tools/oracle-python tests/oracle/families/make_directory.py NAME DIRECTORY
"""

import json
import pathlib
import sys

from family_case import write_directory

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "families"


def main():
    if len(sys.argv) != 3:
        names = ", ".join(sorted(path.stem for path in GOLDEN.glob("*.json")))
        sys.exit(f"{__doc__}\nNAME is one of {names}")
    description = json.loads((GOLDEN / f"{sys.argv[1]}.json").read_text())
    write_directory(description, sys.argv[2])


if __name__ == "__main__":
    main()
