# SPDX-License-Identifier: MIT
"""Files of rows against a reader of their own (container_reader.py): every number that the library
exports is found where docs/formats/container.md says.

    tools/oracle-python tests/oracle/test_container.py build/kvern
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from container_reader import Container  # pylint: disable=wrong-import-position


def entries(path):
    raw, at = path.read_bytes(), 0
    while at < len(raw):
        layer, row, position, count = np.frombuffer(raw[at:at + 16], "<i4")
        yield layer, row, position, raw[at + 16:at + 16 + 4 * count]
        at += 16 + 4 * int(count)


def expected(file, layer, row, position):
    """The numbers as the library lines them up, and whether each is exact."""
    streams = file.position(layer, row, position)
    assert streams is not None, f"layer {layer}, row {row}: position {position} is missing"
    numbers = [streams[name][0].ravel() for name in streams]
    exact = [np.full(len(n), streams[name][1]) for n, name in zip(numbers, streams)]
    return np.concatenate(numbers), np.concatenate(exact)


def check(path):
    file, count = Container(path), 0
    for layer, row, position, raw in entries(path.with_suffix(".values")):
        count += 1
        if position < 0:
            assert file.recurrent(layer, row) == raw, f"{path}: layer {layer}, row {row}"
            continue
        wanted = np.frombuffer(raw, "<f4")
        got, exact = expected(file, layer, row, position)
        wanted, rest = wanted[:len(got)], wanted[len(got):]
        assert not rest.any(), "numbers that the file does not have"
        rounded = got.astype(np.float32)
        # A rotation back rounds about 2 log2(dim) times, to 2^-24 of the vector's length.
        bound = 2 ** -24 * 32 * np.linalg.norm(got)
        right = np.where(exact, rounded == wanted, np.abs(got - wanted) <= bound)
        assert right.all(), f"{path}: layer {layer}, row {row}, position {position}"
    assert count > 0
    return count


def main():
    samples = pathlib.Path(sys.argv[1]).parent / "kvern_container_samples"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([samples, folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        paths = sorted(pathlib.Path(folder).glob("*.kv"))
        assert len(paths) > 20
        total = sum(check(path) for path in paths)
    print(f"{len(paths)} files, {total} vectors are where the format says")


if __name__ == "__main__":
    main()
