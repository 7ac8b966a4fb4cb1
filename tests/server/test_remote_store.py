#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Servers that share a store: one computes, another goes on, and whatever becomes of either, or of
the store's server, every answer is that of `kvern run`."""

import os
import shutil
import subprocess
import time
import unittest

import serving
from serving import PROGRAM, Server, model, path, run

TEXT = "a text of some length, which is said to more than one of them, and in front of others; " * 2
GREEDY = {"temperature": 0, "max_tokens": 12}
URL = "unix:" + path("redis")


class Redis:
    def __init__(self):
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", path("redis"), "--save", "",
             "--dir", serving.folder], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(1000):
            if os.path.exists(path("redis")):
                return
            time.sleep(0.01)
        raise RuntimeError("redis-server does not begin")

    def kill(self):
        self.process.kill()
        self.process.wait()
        if os.path.exists(path("redis")):
            os.unlink(path("redis"))

    def keys(self, kind):
        done = subprocess.run(["redis-cli", "-s", path("redis"), "keys", f"kvern1:*:{kind}:*"],
                              check=True, capture_output=True, text=True)
        return len(done.stdout.split())


def cached(answer):
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def text_of(answer):
    return answer.json()["choices"][0]["text"]


@unittest.skipUnless(shutil.which("redis-server"), "there is no redis-server")
class SharedStore(unittest.TestCase):
    def setUp(self):
        self.redis = Redis()
        self.addCleanup(lambda: self.redis.kill())

    def wait_for_entries(self, count):
        for _ in range(1000):
            if self.redis.keys("e") >= count:
                return
            time.sleep(0.01)
        self.fail("nothing was published")

    def expect_alone(self, answer, prompt):
        self.assertEqual(answer.status, 200)
        alone = run("random", "-p", prompt, "--raw", "--temp", "0", "-n", "12")
        self.assertEqual(text_of(answer), alone["text"])

    def test_two_servers_share_prefixes(self):
        with Server("random", "--store", URL) as one, Server("random", "--store", URL) as two:
            first = one.complete(TEXT, **GREEDY)
            self.wait_for_entries(1)
            second = two.complete(TEXT + "more", **GREEDY)
            self.assertLess(cached(first), 64)
            self.assertGreaterEqual(cached(second), 128)
            self.expect_alone(first, TEXT)
            self.expect_alone(second, TEXT + "more")

    def test_a_row_tells_that_another_server_computed_it(self):
        with Server("long", "--store", URL) as one, Server("long", "--store", URL) as two:
            self.assertEqual(one.chat(TEXT, max_tokens=4).status, 200)
            self.wait_for_entries(1)
            connection, response = two.open_stream(
                messages=[{"role": "user", "content": TEXT + "more"}])
            rows = []
            two.wait_for(lambda: rows.extend(two.get("/cache").json()["rows"]) or rows, "a row")
            self.assertEqual(rows[0]["from"], "remote")
            self.assertGreaterEqual(rows[0]["stored_tokens"], 128)
            response.close()
            connection.close()

    def test_one_prefills_and_another_decodes(self):
        subprocess.run([PROGRAM, "prefill", model("random"), "-p", TEXT, "--raw", "-q",
                        "--store", URL], check=True, stdin=subprocess.DEVNULL)
        self.assertEqual(self.redis.keys("e"), 1)
        with Server("random", "--store", URL) as server:
            answer = server.complete(TEXT + "more", **GREEDY)
            self.assertGreaterEqual(cached(answer), 128)
            self.expect_alone(answer, TEXT + "more")

    def metrics(self, server):
        lines = server.get("/metrics").body.decode().splitlines()
        return {line.split()[0].removeprefix("kvern_remote_store_"): float(line.split()[1])
                for line in lines if line.startswith("kvern_remote_store_")}

    def test_what_servers_say_of_the_store(self):
        with Server("random", "--store", URL) as one, Server("random", "--store", URL) as two:
            self.assertEqual(one.complete(TEXT, **GREEDY).status, 200)
            one.wait_for(lambda: self.metrics(one)["queued"] == 0
                         and self.metrics(one)["publications_total"] >= 1, "it is written")
            second = two.complete(TEXT + "more", **GREEDY)
            wrote, read = self.metrics(one), self.metrics(two)
            self.assertEqual((wrote["up"], read["up"]), (1, 1))
            self.assertEqual(wrote['lookups_total{result="miss"}'], 1)
            self.assertGreater(wrote["written_bytes_total"], 1000)
            hits = read['lookups_total{result="full"}'] + read['lookups_total{result="partial"}']
            self.assertEqual(hits, 1)
            self.assertEqual(read["hit_tokens_total"], cached(second))
            self.assertGreater(read["fetched_bytes_total"], 1000)
            # It is in whole milliseconds, of which a fetch may take none.
            self.assertGreaterEqual(read["fetch_seconds_total"], 0)
            told = two.get("/cache").json()["remote"]
            self.assertIs(told["reachable"], True)
            self.assertEqual((told["lookups"], told["tokens_lent"]), (1, cached(second)))
            self.assertEqual(told["fetched_bytes"], read["fetched_bytes_total"])
            self.assertEqual(set(told["errors"].values()), {0})
            self.redis.kill()
            self.assertEqual(two.complete("b" + TEXT, **GREEDY).status, 200)
            two.wait_for(lambda: self.metrics(two)["up"] == 0, "it is seen")
            down = self.metrics(two)
            self.assertEqual(down["outages_total"], 1)
            self.assertGreater(sum(value for name, value in down.items() if "errors" in name), 0)
            self.assertIs(two.get("/cache").json()["remote"]["reachable"], False)

    def test_no_store_says_nothing(self):
        with Server("random") as server:
            self.assertEqual(self.metrics(server), {})
            self.assertIsNone(server.get("/cache").json()["remote"])

    def test_the_store_is_killed_in_the_middle(self):
        with Server("random", "--store", URL) as server:
            self.expect_alone(server.complete(TEXT, **GREEDY), TEXT)
            self.wait_for_entries(1)
            self.redis.kill()
            for tail in ("a", "b", "c"):
                self.expect_alone(server.complete(tail + TEXT, **GREEDY), tail + TEXT)
            self.assertEqual(server.error_text().count("left alone for now"), 1)

    def test_a_server_is_killed_in_the_middle(self):
        one = Server("random", "--store", URL)
        self.expect_alone(one.complete(TEXT, **GREEDY), TEXT)
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()
        with Server("random", "--store", URL) as two:
            self.expect_alone(two.complete(TEXT + "more", **GREEDY), TEXT + "more")


if __name__ == "__main__":
    serving.main()
