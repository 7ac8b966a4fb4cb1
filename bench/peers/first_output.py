# SPDX-License-Identifier: MIT
"""Seconds from the start of `kvern run` to the first byte of its answer.

    python3 bench/peers/first_output.py PROGRAM MODEL THREADS [--json]
"""

import json
import statistics
import subprocess
import sys
import time

RUNS = 7
PROMPT = "What is a hand mill?"


def first_output(program, model, threads):
    """One run."""
    command = [program, "run", model, "-p", PROMPT, "-t", threads, "--temp", "0", "-n", "4"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as run:
        first = run.stdout.read(1)
        seconds = time.perf_counter() - start
        run.stdout.read()
    if not first or run.returncode != 0:
        sys.exit("kvern run gave no answer")
    return seconds


def main():
    program, model, threads = sys.argv[1:4]
    first_output(program, model, threads)  # the file is in memory then
    low, middle, high = statistics.quantiles([first_output(program, model, threads) for _ in range(RUNS)], n=4)
    print(json.dumps({"threads": int(threads), "prompt": PROMPT, "seconds": middle, "seconds_low": low,
                      "seconds_high": high}))


if __name__ == "__main__":
    main()
