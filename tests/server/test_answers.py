#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Answers of the server: those of `kvern run`, in the form that clients expect."""

import random
import re
import unittest

import serving
from serving import Server, events, run, stream_text

SAMPLING = {"temperature": 0.9, "top_p": 0.8, "top_k": 30, "min_p": 0.02}
SAMPLING_OPTIONS = ["--temp", "0.9", "--top-p", "0.8", "--top-k", "30", "--min-p", "0.02"]


class Chat(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("chain", "--parallel", "4")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def test_a_whole_answer(self):
        answer = self.server.chat(temperature=0)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "application/json")
        body = answer.json()
        self.assertRegex(body["id"], r"^chatcmpl-[0-9a-f]+-\d+$")
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["model"], "chain")
        self.assertEqual(body["choices"], [{
            "index": 0, "message": {"role": "assistant", "content": "café!", "refusal": None},
            "logprobs": None, "finish_reason": "stop"}])
        usage = body["usage"]
        self.assertEqual(usage["total_tokens"],
                         usage["prompt_tokens"] + usage["completion_tokens"])
        self.assertEqual(usage["completion_tokens"], 6)

    def test_a_stream(self):
        answer = self.server.chat(temperature=0, stream=True)
        self.assertEqual(answer.headers["content-type"], "text/event-stream; charset=utf-8")
        found = events(answer.body)
        self.assertIsNone(found.pop())
        self.assertEqual(found[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertEqual([e["object"] for e in found], ["chat.completion.chunk"] * len(found))
        self.assertEqual(len({e["id"] for e in found}), 1)
        self.assertEqual(stream_text(answer.body), "café!")
        reasons = [e["choices"][0]["finish_reason"] for e in found]
        self.assertEqual(reasons[-1], "stop")
        self.assertEqual(set(reasons[:-1]), {None} if len(reasons) > 1 else set())
        self.assertFalse(any("usage" in e for e in found))

    def test_usage_of_a_stream(self):
        answer = self.server.chat(temperature=0, stream=True,
                                  stream_options={"include_usage": True})
        found = events(answer.body)
        self.assertIsNone(found[-1])
        self.assertEqual(found[-2]["choices"], [])
        self.assertEqual(found[-2]["usage"]["completion_tokens"], 6)
        self.assertTrue(all(e["usage"] is None for e in found[:-2]))

    def test_cached_tokens(self):
        first = self.server.chat("a text that nobody else has sent", max_tokens=1).json()["usage"]
        again = self.server.chat("a text that nobody else has sent", max_tokens=1).json()["usage"]
        self.assertLess(first["prompt_tokens_details"]["cached_tokens"],
                        first["prompt_tokens"] - 1)
        self.assertEqual(again["prompt_tokens_details"]["cached_tokens"],
                         again["prompt_tokens"] - 1)

    def test_max_tokens_and_stop(self):
        for key in ("max_tokens", "max_completion_tokens", "n_predict"):
            choice = self.server.chat(temperature=0, **{key: 2}).json()["choices"][0]
            self.assertEqual(choice["message"]["content"], "ca")
            self.assertEqual(choice["finish_reason"], "length")
        for stop in ("f", ["xyz", "fé"]):
            choice = self.server.chat(temperature=0, stop=stop).json()["choices"][0]
            self.assertEqual(choice["message"]["content"], "ca")
            self.assertEqual(choice["finish_reason"], "stop")

    def test_half_a_character_is_never_sent(self):
        answer = self.server.chat(temperature=0, stream=True, max_tokens=4)
        self.assertEqual(stream_text(answer.body), "caf\ufffd")


class Sampled(unittest.TestCase):
    """Random weights: each token depends on all before it."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server("random", "--parallel", "3")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def text(self, prompt, seed, **more):
        return self.server.chat(prompt, seed=seed, max_tokens=40, **SAMPLING,
                                **more).json()["choices"][0]["message"]["content"]

    def test_equal_to_run(self):
        for prompt, seed in (("hello", 1), ("what is it?", 2), ("hello", 2**40)):
            wanted = run("random", "-p", prompt, "-n", "40", "--seed", str(seed),
                         *SAMPLING_OPTIONS)["text"]
            self.assertEqual(self.text(prompt, seed), wanted)
            streamed = self.server.chat(prompt, seed=seed, max_tokens=40, stream=True, **SAMPLING)
            self.assertEqual(stream_text(streamed.body), wanted)

    def test_defaults_are_those_of_run(self):
        wanted = run("random", "-p", "hello", "-n", "30", "--seed", "5")["text"]
        got = self.server.chat("hello", seed=5, max_tokens=30).json()
        self.assertEqual(got["choices"][0]["message"]["content"], wanted)

    def test_penalties_and_biases_are_those_of_run(self):
        options = ["--repeat-penalty", "1.3", "--presence-penalty", "0.5", "--frequency-penalty",
                   "0.25", "--repeat-last-n", "20", "--logit-bias", "101-100"]
        wanted = run("random", "-p", "hello", "-n", "40", "--seed", "3", *SAMPLING_OPTIONS,
                     *options)["text"]
        self.assertEqual(
            self.text("hello", 3, repetition_penalty=1.3, presence_penalty=0.5,
                      frequency_penalty=0.25, repeat_last_n=20, logit_bias={"101": -100}), wanted)
        self.assertNotEqual(self.text("hello", 3), wanted)

    def test_several_answers(self):
        body = self.server.chat("hello", n=5, seed=11, max_tokens=40, **SAMPLING).json()
        self.assertEqual([c["index"] for c in body["choices"]], list(range(5)))
        for i, choice in enumerate(body["choices"]):
            self.assertEqual(choice["message"]["content"], self.text("hello", 11 + i))
        streamed = self.server.chat("hello", n=5, seed=11, max_tokens=40, stream=True, **SAMPLING)
        for i, choice in enumerate(body["choices"]):
            self.assertEqual(stream_text(streamed.body, i), choice["message"]["content"])

    def test_without_a_seed_answers_differ(self):
        texts = {self.server.chat("hello", max_tokens=40, temperature=1.5).body for _ in range(3)}
        self.assertEqual(len(texts), 3)

    def test_prompts_of_all_forms(self):
        def texts(prompt, **more):
            body = self.server.complete(prompt, seed=4, max_tokens=20, **SAMPLING, **more).json()
            return [choice["text"] for choice in body["choices"]]

        one = run("random", "--raw", "-p", "hello there", "-n", "20", "--seed", "4",
                  *SAMPLING_OPTIONS)["text"]
        other = texts("what")[0]
        tokens = self.server.post("/tokenize", {"prompt": "hello there"}).json()["tokens"]
        self.assertEqual(texts("hello there"), [one])
        self.assertEqual(texts(tokens), [one])
        self.assertEqual(texts(["hello there", "what"]), [one, other])
        self.assertEqual(texts([tokens, tokens]), [one, one])
        self.assertEqual(texts(["hello there", tokens]), [one, one])
        self.assertEqual(texts(["what", "hello there"], n=2)[2], one)

    def test_log_probabilities(self):
        body = self.server.chat("hello", seed=1, max_tokens=8, logprobs=True, top_logprobs=3,
                                temperature=1, top_p=1, top_k=0, min_p=0).json()
        content = body["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), body["usage"]["completion_tokens"])
        for token in content:
            top = token["top_logprobs"]
            self.assertEqual(len(top), 3)
            self.assertEqual([t["logprob"] for t in top],
                             sorted((t["logprob"] for t in top), reverse=True))
            self.assertLessEqual(token["logprob"], top[0]["logprob"])
            self.assertLessEqual(top[0]["logprob"], 0)
        joined = b"".join(bytes(t["bytes"]) for t in content).decode("utf-8", "replace")
        self.assertEqual(joined, body["choices"][0]["message"]["content"])

    def test_each_token_has_a_log_probability_of_its_own(self):
        logprobs = self.server.complete("q0", seed=0, max_tokens=40, logprobs=20,
                                        ignore_eos=True).json()["choices"][0]["logprobs"]
        self.assertEqual({len(top) for top in logprobs["top_logprobs"]}, {20})
        names = {name for top in logprobs["top_logprobs"] for name in top}
        self.assertNotIn("", names)
        self.assertNotIn("\ufffd", names)
        self.assertTrue(any(re.fullmatch(r"bytes:(\\x[0-9a-f]{2})+", name) for name in names))

    def test_log_probabilities_sum_to_one(self):
        # 20 of 261 tokens are not all: below 1, and greedy takes the first of them.
        choice = self.server.complete("hello", temperature=0, max_tokens=3,
                                      logprobs=20).json()["choices"][0]
        logprobs = choice["logprobs"]
        for token, number, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                      logprobs["top_logprobs"]):
            self.assertEqual(max(top.values()), number)
            self.assertLess(sum(2.718281828 ** v for v in top.values()), 1)
        self.assertEqual(logprobs["text_offset"][0], 0)

    def test_same_text_beside_others(self):
        alone = {seed: self.text("hello", seed) for seed in range(6)}
        order = [seed for seed in alone for _ in range(3)]
        random.shuffle(order)
        import concurrent.futures
        with concurrent.futures.ThreadPoolExecutor(len(order)) as pool:
            for seed, text in zip(order, pool.map(lambda s: self.text("hello", s), order)):
                self.assertEqual(text, alone[seed])


class Others(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("chain", "--alias", "me")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def test_offsets_of_tokens_are_those_of_characters(self):
        choice = self.server.complete("c", temperature=0, max_tokens=20,
                                      logprobs=0).json()["choices"][0]
        logprobs = choice["logprobs"]
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            if not token.startswith("bytes:"):
                self.assertTrue(choice["text"][offset:].startswith(token), (choice, token))
        self.assertIn("bytes:\\xc3", logprobs["tokens"], choice)
        self.assertEqual(logprobs["tokens"][-1], "!")

    def test_models(self):
        listed = self.server.get("/v1/models").json()["data"]
        self.assertEqual([m["id"] for m in listed], ["me"])
        self.assertEqual(self.server.get("/v1/models/me").json(), listed[0])
        self.assertEqual(self.server.get("/v1/models/you").status, 404)
        self.assertEqual(listed[0]["max_model_len"], 256)

    def test_tokens_and_back(self):
        tokens = self.server.post("/tokenize", {"prompt": "hello<|im_end|>"}).json()
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        back = self.server.post("/detokenize", {"tokens": tokens["tokens"]}).json()
        self.assertEqual(back, {"prompt": "hello<|im_end|>"})
        chat = self.server.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
        usage = self.server.chat("hi", max_tokens=1, model="me").json()["usage"]
        self.assertEqual(chat.json()["count"], usage["prompt_tokens"])

    def test_health_page_and_cache(self):
        self.assertEqual(self.server.get("/health").json(), {"status": "ok"})
        page = self.server.get("/")
        self.assertTrue(page.headers["content-type"].startswith("text/html"))
        cache = self.server.get("/cache").json()
        self.assertEqual(cache["queue"]["rows"], 8)

    def test_metrics_are_of_prometheus(self):
        self.server.chat()
        page = self.server.get("/metrics")
        self.assertTrue(page.headers["content-type"].startswith("text/plain; version=0.0.4"))
        types, helps = {}, set()
        for line in page.body.decode().splitlines():
            if line.startswith("# TYPE "):
                name, kind = line[7:].split(" ")
                self.assertNotIn(name, types)
                types[name] = kind
            elif line.startswith("# HELP "):
                helps.add(line.split(" ")[2])
            else:
                name, value = line.rsplit(" ", 1)
                float(value)
                base = name.split("{")[0]
                for suffix in ("_bucket", "_sum", "_count"):
                    if types.get(base.removesuffix(suffix)) == "histogram":
                        base = base.removesuffix(suffix)
                self.assertIn(base, types)
                if types[base] == "counter":
                    self.assertTrue(base.endswith("_total"), base)
        self.assertEqual(set(types), helps)
        self.assertGreater(self.server.metric("generation_tokens_total"), 0)
        self.assertGreater(self.server.metric("time_to_first_token_seconds_count"), 0)


if __name__ == "__main__":
    serving.main()
