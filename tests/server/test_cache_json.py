#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""GET /cache: rows as they run, layers, the tree of prefixes, and who may see texts."""

import time
import unittest

import serving
from serving import Server

QUESTION = "What does a hand mill grind?"


def looks(server):
    """The cache, again and again, for as long as a test is patient."""
    end = time.monotonic() + serving.PATIENCE
    while time.monotonic() < end:
        yield server.get("/cache").json()
    raise AssertionError("it never came to that")


class Rows(unittest.TestCase):
    def test_a_row_from_its_prompt_to_its_end(self):
        with Server("long", "--parallel", "2") as server:
            self.assertEqual(server.get("/cache").json()["rows"], [])
            connection, response = server.open_stream()
            name = serving.json.loads(response.readline()[6:])["id"]
            row = next(told["rows"][0] for told in looks(server)
                       if told["rows"] and told["rows"][0]["generated_tokens"] > 100)
            self.assertEqual((row["id"], row["state"]), (name, "decode"))
            self.assertEqual(row["room"], 65536)
            self.assertEqual(row["shared_tokens"], 0)
            self.assertIsNone(row["from"])
            self.assertEqual(row["why"], "nothing is kept of this model yet")
            self.assertEqual(row["length"], row["prompt_tokens"] + row["generated_tokens"] - 1)
            later = next(told["rows"][0] for told in looks(server)
                         if told["rows"][0]["length"] > row["length"])
            self.assertEqual(later["id"], name)
            response.close()
            connection.close()
            next(told for told in looks(server) if not told["rows"])

    def test_what_a_row_took_over(self):
        with Server("long", "-n", "20000") as server:
            self.assertEqual(server.chat(QUESTION, max_tokens=5).status, 200)
            connection, response = server.open_stream(
                messages=[{"role": "user", "content": QUESTION + " And why?"}])
            row = next(told["rows"][0] for told in looks(server) if told["rows"])
            common = len(f"user\n{QUESTION}")  # a token for <|im_start|>, one for the two l
            self.assertEqual((row["shared_tokens"], row["stored_tokens"]), (common, common))
            self.assertEqual(row["from"], "memory")
            self.assertEqual(row["why"], "nothing that is kept begins the same for longer")
            response.close()
            connection.close()

    def test_answers_to_one_request_have_numbers(self):
        with Server("long", "--parallel", "2") as server:
            connection, response = server.open_stream(n=2)
            told = next(told for told in looks(server) if len(told["rows"]) == 2)
            self.assertEqual([row["id"][-2:] for row in told["rows"]], ["/0", "/1"])
            response.close()
            connection.close()


class Cache(unittest.TestCase):
    def test_layers_and_names(self):
        with Server("chain", "--kv", "f16/f32", "--alias", "mill") as server:
            told = server.get("/cache").json()
            self.assertEqual((told["model"], told["page_positions"]), ("mill", 64))
            self.assertEqual(told["kv"], "f16/f32")
            self.assertEqual(len(told["layers"]), 1)
            layer = told["layers"][0]
            self.assertEqual((layer["kind"], layer["residual"], layer["window"]), ("full", 0, 0))
            self.assertRegex(layer["storage"], "^full:.*=f16:.*=f32$")
            self.assertIsNone(layer["start"])

    def test_the_tree_of_prefixes(self):
        with Server("chain") as server:
            self.assertEqual(server.get("/cache").json()["store"]["tree"], {"nodes": [], "left_out": 0})
            for end in ("", " And why?", " And how?"):
                self.assertEqual(server.chat(QUESTION + end).status, 200)
            tree = server.get("/cache").json()["store"]["tree"]
            nodes = tree["nodes"]
            self.assertEqual(tree["left_out"], 0)
            self.assertEqual(sum(node["entry"] for node in nodes), 3)
            self.assertEqual(nodes[0]["from"], 0)
            self.assertEqual(nodes[0]["text"], "<|im_start|>user\nWhat does a hand m")
            self.assertEqual(sum(node["hits"] for node in nodes), 2)
            for i, node in enumerate(nodes):
                self.assertLess(node["parent"], i)
                parent = nodes[node["parent"]] if node["parent"] >= 0 else {"to": 0}
                self.assertEqual(node["from"], parent["to"])

    def test_whether_it_chats(self):
        for name, chats in (("chain", True), ("plain", False)):
            with Server(name) as server:
                self.assertIs(server.get("/cache").json()["chats"], chats)

    def test_no_store_no_tree(self):
        with Server("chain", "--no-cache") as server:
            self.assertIsNone(server.get("/cache").json()["store"])

    def test_texts_are_for_those_who_sent_them(self):
        """With keys, or where other machines can ask, users do not see each other's prompts."""
        with open(serving.path("keys"), "w", encoding="utf-8") as file:
            file.write("secret\n")
        for options in (["--api-keys", serving.path("keys")], ["--host", "0.0.0.0"]):
            with Server("chain", *options) as server:
                key = {"Authorization": "Bearer secret"}
                body = {"messages": [{"role": "user", "content": QUESTION}]}
                self.assertEqual(server.post("/v1/chat/completions", body, headers=key).status, 200)
                nodes = server.get("/cache", headers=key).json()["store"]["tree"]["nodes"]
                self.assertGreater(len(nodes), 0)
                self.assertTrue(all("text" not in node for node in nodes))


if __name__ == "__main__":
    serving.main()
