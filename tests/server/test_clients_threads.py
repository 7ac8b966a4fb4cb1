#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Many clients at once, of which some leave in the middle: every answer that arrives whole is the
one of the same request alone, and nothing is left behind. Seconds, or minutes with
KVERN_TEST_LONG."""

import http.client
import json
import random
import threading
import time
import unittest

import serving
from serving import LONG, SEED, Server, stream_text

CLIENTS = 64
SECONDS = 180 if LONG else 6
PROMPTS = ("hello", "hello there, all of you", "what", "hello there", "a text of some length, "
           "so that prompts take several steps and rows differ", "zzz")


class Clients(unittest.TestCase):
    def setUp(self):
        self.failures, self.whole, self.left, self.full = [], 0, 0, 0
        self.lock = threading.Lock()

    @staticmethod
    def request(chance):
        return {"prompt": chance.choice(PROMPTS), "seed": chance.randrange(3),
                "max_tokens": chance.choice((1, 7, 40)), "n": chance.choice((1, 1, 1, 2)),
                "temperature": 0.9, "stream": chance.random() < 0.6}

    def wanted(self, server, request):
        """Texts of the same request, asked alone; before the others begin."""
        body = server.post("/v1/completions", {**request, "stream": False}).json()
        return [choice["text"] for choice in body["choices"]]

    def leave_midway(self, response, chance):
        for _ in range(chance.randrange(3)):
            response.read(chance.randrange(1, 200))

    def one(self, server, texts, chance):
        request = self.request(chance)
        leaves = chance.random() < 0.3
        connection = server.connect()
        try:
            connection.request("POST", "/v1/completions", json.dumps(request))
            if leaves and chance.random() < 0.5:
                return "left"
            response = connection.getresponse()
            if response.status == 429:
                response.read()
                return "full"
            self.assertEqual(response.status, 200)
            if leaves:
                self.leave_midway(response, chance)
                return "left"
            data = response.read()
        finally:
            connection.close()
        got = ([stream_text(data, i) for i in range(request["n"])] if request["stream"]
               else [c["text"] for c in json.loads(data)["choices"]])
        key = json.dumps({**request, "stream": False}, sort_keys=True)
        self.assertEqual(got, texts[key], request)
        return "whole"

    def client(self, server, texts, number, end):
        chance = random.Random(SEED * 1000 + number)
        try:
            while time.monotonic() < end:
                what = self.one(server, texts, chance)
                with self.lock:
                    self.whole += what == "whole"
                    self.left += what == "left"
                    self.full += what == "full"
                if what == "full":
                    time.sleep(0.02)
        except (AssertionError, OSError, http.client.HTTPException, ValueError) as failure:
            with self.lock:
                self.failures.append(repr(failure))

    def all_texts(self, server):
        texts = {}
        for prompt in PROMPTS:
            for seed in range(3):
                for most in (1, 7, 40):
                    for n in (1, 2):
                        request = {"prompt": prompt, "seed": seed, "max_tokens": most, "n": n,
                                   "temperature": 0.9, "stream": False}
                        texts[json.dumps(request, sort_keys=True)] = self.wanted(server, request)
        return texts

    def look(self, server, end):
        """What others ask meanwhile."""
        try:
            while time.monotonic() < end:
                for where in ("/metrics", "/cache", "/health"):
                    self.assertEqual(server.get(where).status, 200)
                time.sleep(0.05)
        except (AssertionError, OSError, http.client.HTTPException) as failure:
            with self.lock:
                self.failures.append(repr(failure))

    def serve(self, *options):
        with Server("random", "--parallel", "8", "--queue", "32", *options) as server:
            texts = self.all_texts(server)
            end = time.monotonic() + SECONDS
            threads = [threading.Thread(target=self.client, args=(server, texts, i, end))
                       for i in range(CLIENTS)]
            threads.append(threading.Thread(target=self.look, args=(server, end)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(self.failures, [])
            self.assertGreater(self.whole, 20)
            self.assertGreater(self.left, 5)
            server.wait_until_idle()
            server.wait_for(lambda: server.metric("http_connections") <= 1, "all have closed")
            cache = server.get("/cache").json()
            self.assertEqual(cache["rows"], [])
            self.assertEqual(cache["memory"]["row_bytes"], 0)
            self.assertEqual(server.metric("request_failures_total"), 0)
            print(f"{self.whole} whole, {self.left} left, {self.full} came again")

    def test_many(self):
        self.serve()

    def test_many_under_a_budget(self):
        self.serve("--budget", "600K", "--ctx", "256")


if __name__ == "__main__":
    serving.main()
