# SPDX-License-Identifier: MIT
"""One cell of a server's speed: clients that ask again and again, as vLLM's serving benchmark has it.

    python3 bench/peers/serving.py PROGRAM MODEL --server kvern|llama --clients N [--shared] [-t THREADS]

Each client sends its requests one after the other: a text of about --prompt words, of which all but the last
are those of all others with --shared, to be continued by --tokens tokens. Prints JSON: tokens per second of all,
seconds to the first token and between tokens (medians and 95th percentiles), and for Kvern also the part of
its processor time that threads other than those of the forward pass took: what HTTP costs.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

PEERS = pathlib.Path(__file__).resolve().parent
WORDS = ("sun river stone paper green letter window music garden bridge winter silver animal story engine "
         "forest summer kitchen number village morning captain circle doctor evening").split()
PATIENCE = 600


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--server", choices=("kvern", "llama"), required=True)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--parallel", type=int, help="answers that Kvern makes at once; default: as many as clients")
    parser.add_argument("--requests", type=int, help="of each client; default: 2, and 8 of all at least")
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--prompt", type=int, default=128, help="words; default: %(default)s")
    parser.add_argument("--tokens", type=int, default=32, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true", help="nothing else is printed anyway")
    options = parser.parse_args(arguments)
    options.parallel = 1 if options.server == "llama" else options.parallel or options.clients
    options.requests = options.requests or max(2, 8 // options.clients)
    return options


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def start(options, port):
    """Both have room for all clients; llama.cpp's server of this package makes one answer at a time."""
    if options.server == "kvern":
        command = [options.program, "serve", options.model, "--port", port, "--parallel", options.parallel,
                   "--queue", options.clients, "-t", options.threads, "--ctx", 2048, "--quiet"]
    else:
        command = [PEERS / "python", "-m", "llama_cpp.server", "--model", options.model, "--port", port,
                   "--n_threads", options.threads, "--n_threads_batch", options.threads, "--n_ctx", 2048,
                   "--flash_attn", "true", "--verbose", "false", "--interrupt_requests", "false"]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def await_server(process, port):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


def prompt_of(options, client, number):
    """Words that are the same for every server."""
    same = random.Random(0 if options.shared else f"{client}/{number}")
    own = random.Random(f"own {client}/{number}")
    words = [same.choice(WORDS) for _ in range(options.prompt - 8)] + [own.choice(WORDS) for _ in range(8)]
    return " ".join(words)


def ask(port, prompt, tokens):
    """Seconds to the first token and of all, and when pieces came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True}
    begin = time.monotonic()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read().decode())
    times = []
    for line in response:
        if line.startswith(b"data: {") and b'"text":""' not in line.replace(b" ", b""):
            times.append(time.monotonic() - begin)
    connection.close()
    return times


def client(options, port, number, results, failures):
    try:
        for i in range(options.requests):
            results.append(ask(port, prompt_of(options, number, i), options.tokens))
    except (OSError, RuntimeError, http.client.HTTPException) as failure:
        failures.append(failure)


def thread_seconds(process):
    """Processor time of each thread, the first one's too."""
    ticks = os.sysconf("SC_CLK_TCK")
    seconds = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        seconds[task.name] = (int(fields[11]) + int(fields[12])) / ticks
    return seconds


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else None


def measure(options, process, port):
    ask(port, "warm up", 4)
    results, failures = [], []
    threads = [threading.Thread(target=client, args=(options, port, i, results, failures))
               for i in range(options.clients)]
    before = thread_seconds(process)
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begin
    if failures:
        raise RuntimeError(f"a request failed: {failures[0]}")
    used = {name: value - before.get(name, 0) for name, value in thread_seconds(process).items()}
    return summary(options, results, seconds, used)


def summary(options, results, seconds, used):
    first = [times[0] for times in results if times]
    gaps = [b - a for times in results for a, b in zip(times, times[1:])]
    pieces = sum(map(len, results))
    busiest = sum(sorted(used.values())[-options.threads:])
    return {
        "server": options.server, "clients": options.clients, "parallel": options.parallel,
        "shared": options.shared, "threads": options.threads,
        "prompt_words": options.prompt, "tokens": options.tokens, "requests": len(results), "seconds": seconds,
        "pieces": pieces, "tokens_per_s": pieces / seconds,
        "first_token_s": {"median": statistics.median(first), "p95": percentile(first, 0.95)},
        "between_tokens_s": {"mean": statistics.mean(gaps), "median": statistics.median(gaps),
                             "p95": percentile(gaps, 0.95)},
        "processor_s": sum(used.values()),
        "other_threads_share": 1 - busiest / max(sum(used.values()), 1e-9),
    }


def main(arguments):
    options = parse_arguments(arguments)
    port = free_port()
    process = start(options, port)
    try:
        await_server(process, port)
        print(json.dumps(measure(options, process, port), indent=1))
    finally:
        process.terminate()
        process.wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RuntimeError as error:
        sys.exit(f"bench/peers/serving.py: {error}")
