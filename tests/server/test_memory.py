#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Load of every kind at a low rate: whole answers and streams, prompts that begin alike and others,
clients that leave. What the server holds in the end is what it held once its stores were full.

    KVERN_PROGRAM=build/kvern KVERN_SERVER_MODELS=build/server_models \\
        python3 tests/server/test_memory.py [--seconds S] [--rate N]

An hour and 10 requests a second with KVERN_TEST_LONG; seconds and a thousand requests without."""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time
import unittest

import serving
from serving import LONG, SEED, Server, stream_text

SECONDS, RATE = (3600, 10) if LONG else (5, 200)
CLIENTS = 4
# A store of prefixes fills a budget of this size within the first tenth of either form.
OPTIONS = ("--parallel", "4", "--queue", "16", "--ctx", "512", "--budget", "2M", "--read-time", "600")
COMMON = "A text that many of them begin with, so that what is kept of it is lent again; and "
# What the allocator of the system may hold more at one look than at another, with a handful of
# requests there; a leak of 40 bytes for each request makes more within an hour.
NOISE_BYTES = 1 << 20


def status_of(pid):
    """Bytes of the process's own memory, threads and open files."""
    fields = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    return {"bytes": int(fields["RssAnon"].split()[0]) * 1024,
            "resident": int(fields["VmRSS"].split()[0]) * 1024,
            "threads": int(fields["Threads"]), "files": len(os.listdir(f"/proc/{pid}/fd"))}


class Load:
    """Clients that ask one after the other, at a rate of all together."""

    def __init__(self, server, seconds, rate):
        self.server, self.rate = server, rate
        self.begin = time.monotonic()
        self.total = int(seconds * rate)
        self.lock = threading.Lock()
        self.asked = self.whole = self.left = 0
        self.failures = []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]

    def request(self, chance):
        words = " ".join(str(chance.randrange(10 ** 6)) for _ in range(chance.randrange(1, 20)))
        body = {"max_tokens": chance.choice((1, 8, 40)), "stream": chance.random() < 0.5,
                "ignore_eos": chance.random() < 0.5, "n": chance.choice((1, 1, 1, 2)),
                "temperature": chance.choice((0, 1))}
        text = (COMMON if chance.random() < 0.5 else "") + words
        if chance.random() < 0.5:
            return "/v1/completions", {"prompt": text, "logprobs": chance.choice((None, 3)), **body}
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **body}

    def ask(self, chance):
        where, body = self.request(chance)
        connection = self.server.connect()
        try:
            connection.request("POST", where, json.dumps(body))
            if chance.random() < 0.2:
                if chance.random() < 0.5:
                    connection.getresponse().read(chance.randrange(1, 200))
                return False
            response = connection.getresponse()
            data = response.read()
            if response.status != 200 or (body["stream"] and not data.endswith(b"[DONE]\n\n")):
                raise RuntimeError(f"{response.status}: {data[-300:]}")
            if body["stream"]:
                stream_text(data)
            return True
        finally:
            connection.close()

    def client(self, number):
        chance = random.Random(SEED * 1000 + number)
        try:
            while not self.failures:
                with self.lock:
                    if self.asked == self.total:
                        return
                    due = self.begin + self.asked / self.rate
                    self.asked += 1
                time.sleep(max(0, due - time.monotonic()))
                whole = self.ask(chance)
                with self.lock:
                    self.whole += whole
                    self.left += not whole
        except (OSError, RuntimeError, ValueError, AssertionError,
                http.client.HTTPException) as failure:
            self.failures.append(repr(failure))

    def run(self, count):
        """What the process holds, so many times."""
        looks = []
        for thread in self.threads:
            thread.start()
        while len(looks) < count and not self.failures:
            time.sleep(0.005)
            if self.asked < (len(looks) + 1) * self.total // count:
                continue
            looks.append({"seconds": time.monotonic() - self.begin, "requests": self.asked,
                          **status_of(self.server.process.pid)})
            if LONG:
                print(json.dumps(looks[-1]), flush=True)
        for thread in self.threads:
            thread.join()
        return looks


class Memory(unittest.TestCase):
    seconds, rate = SECONDS, RATE

    def setUp(self):
        self.addCleanup(setattr, serving, "PATIENCE", serving.PATIENCE)
        serving.PATIENCE = 600  # an hour is long on a machine that does other things, too

    def test_load_leaves_nothing_behind(self):
        with Server("random", *OPTIONS) as server:
            load = Load(server, self.seconds, self.rate)
            looks = load.run(max(40, int(self.seconds / 60)))
            self.assertEqual(load.failures, [])
            server.wait_until_idle()
            server.wait_for(lambda: server.metric("http_connections") <= 1, "all have closed")
            evictions = server.metric("store_evictions_total")
        quarter = len(looks) // 4
        early, late = looks[quarter:2 * quarter], looks[-quarter:]
        grown = (statistics.median(look["bytes"] for look in late)
                 - statistics.median(look["bytes"] for look in early))
        print(f"{load.whole} whole, {load.left} left, {evictions:.0f} evictions; "
              f"{early[0]['bytes'] / 2**20:.2f} MiB, then {late[-1]['bytes'] / 2**20:.2f} MiB, "
              f"medians {grown / 1024:+.0f} KiB")
        self.assertGreater(load.whole, 20)
        self.assertGreater(load.left, 5)
        self.assertGreater(evictions, 0, "the store never was full")
        self.assertLess(grown, NOISE_BYTES)
        self.assertEqual({look["threads"] for look in late}, {look["threads"] for look in early})
        self.assertLessEqual(max(look["files"] for look in late),
                             max(look["files"] for look in looks[:quarter]) + CLIENTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE, help="requests a second")
    options, rest = parser.parse_known_args()
    Memory.seconds, Memory.rate = options.seconds, options.rate
    sys.argv[1:] = rest
    serving.main()
