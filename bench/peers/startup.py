# SPDX-License-Identifier: MIT
"""How long `kvern run` and its peers take from their start to the first token of an answer, how much
memory they take at most, and how large they are.

    python3 bench/peers/startup.py PROGRAM MODEL THREADS PEERS [--json]

A first start reads the model from the disk (the system is asked to forget the file before), a second
one finds it in memory. Of Kvern it is the time from the start of the process to the first byte of
the answer. Peers of Python are not charged for Python: their time begins when their libraries are
loaded, and ends when a prompt of as many tokens has been computed; their memory is what the process
takes beyond what it took before.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PEERS = pathlib.Path(__file__).resolve().parent
RUNS = 5
PROMPT = "What is a hand mill, and who turns it?"
# Peers and what they store; "" is Kvern.
PROGRAMS = (("", ""), ("llama", "f16"), ("ik", "f16-rtr"), ("ik", "f16"), ("openvino", "paged"))
CONTEXT = 512


def forget(file):
    """Asks the system to drop the file from memory, so that the next reader has to read the disk."""
    with open(file, "rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak_bytes(pid):
    """The most memory that a process has had so far."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))


def package_bytes(pid):
    """What the shared objects of packages that a process has loaded take on the disk; NumPy is Python's."""
    paths = {line.split()[-1] for line in pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()}
    return sum(pathlib.Path(path).stat().st_size for path in paths if "/site-packages/" in path
               and ".so" in path and "/numpy" not in path)


def stripped_bytes(program):
    """Of a program without the names of its functions."""
    with tempfile.NamedTemporaryFile() as copy:
        subprocess.run(["strip", "-o", copy.name, program], check=True)
        return pathlib.Path(copy.name).stat().st_size


def start_kvern(program, model, threads):
    """Seconds, and the most bytes of memory."""
    command = [program, "run", model, "-p", PROMPT, "-t", threads, "--temp", "0", "-n", "4"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as run:
        first = run.stdout.read(1)
        seconds = time.perf_counter() - start
        run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if not first or run.returncode != 0:
        raise RuntimeError("kvern run gave no answer")
    return seconds, 1024 * usage.ru_maxrss, stripped_bytes(program)


def start_peer(name, storage, model, threads):
    """The same of a peer, whose "model" is a load and a short prompt; None and why: it refuses."""
    with subprocess.Popen([PEERS / f"{name}-model"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, bufsize=1) as run:
        def ask(line):
            run.stdin.write(line + "\n")
            return run.stdout.readline().rstrip("\n")

        ask("name")
        before = peak_bytes(run.pid)
        start = time.perf_counter()
        answer = ask(f"model {storage} {threads} {CONTEXT} {model}")
        seconds = time.perf_counter() - start
        if answer != "ok":
            return None, answer.removeprefix("no ") or "it stopped"
        return seconds, peak_bytes(run.pid) - before, package_bytes(run.pid)


def start(name, storage, program, model, threads):
    return start_peer(name, storage, model, threads) if name else start_kvern(program, model, threads)


def measure(name, storage, *how):
    """All starts of one program."""
    row = {"program": name or "kvern", "storage": storage}
    first = []
    for _ in range(RUNS // 2 + 1):
        forget(how[1])
        first.append(start(name, storage, *how))
        if first[0][0] is None:
            return {**row, "refused": first[0][1]}
    second = [start(name, storage, *how) for _ in range(RUNS)]
    seconds = sorted(run[0] for run in second)
    return {**row, "first_s": statistics.median(run[0] for run in first), "second_s": statistics.median(seconds),
            "second_low": seconds[0], "second_high": seconds[-1],
            "peak_bytes": statistics.median(run[1] for run in second), "program_bytes": second[0][2]}


def main():
    program, model, threads, peers = sys.argv[1:5]
    rows = [measure(name, storage, program, model, threads) for name, storage in PROGRAMS
            if not name or name in peers.split(",")]
    print(json.dumps({"threads": int(threads), "model_bytes": os.stat(model).st_size, "rows": rows}))


if __name__ == "__main__":
    main()
