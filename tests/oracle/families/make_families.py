# SPDX-License-Identifier: MIT
"""Writes tests/golden/families: a description of each case, with exact logits.

    tools/oracle-python tests/oracle/families/make_families.py [NAME...]
"""

import json
import pathlib
import sys

from family_case import all_cases, describe

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "families"


def write(description, path):
    """One line per entry of the outer object."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in description.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    for case in all_cases():
        if len(sys.argv) == 1 or case.name in sys.argv[1:]:
            write(describe(case), GOLDEN / f"{case.name}.json")


if __name__ == "__main__":
    main()
