#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The server against the openai package and curl, as clients use them: what they understand of answers, streams
and errors. tests/server has everything else, without other people's code."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else "build/kvern")
os.environ["KVERN_PROGRAM"] = PROGRAM
os.environ.setdefault("KVERN_SERVER_MODELS", str(pathlib.Path(PROGRAM).parent / "server_models"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "server"))

import openai  # noqa: E402
import serving  # noqa: E402

HI = [{"role": "user", "content": "hi"}]


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(serving.path("keys"), "w", encoding="utf-8") as file:
            file.write("secret\n")
        cls.server = serving.Server("chain", "--api-keys", serving.path("keys"))
        cls.addClassCleanup(cls.server.__exit__, None, None, None)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="secret", max_retries=0)

    def test_a_whole_answer(self):
        answer = self.client.chat.completions.create(model="chain", messages=HI, temperature=0)
        self.assertEqual(answer.choices[0].message.content, "café!")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.completion_tokens, 6)
        self.assertGreaterEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_a_stream(self):
        stream = self.client.chat.completions.create(
            model="chain", messages=HI, temperature=0, stream=True, n=2, logprobs=True, top_logprobs=2,
            stream_options={"include_usage": True})
        texts, tokens, usage = ["", ""], [0, 0], None
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                tokens[choice.index] += len(choice.logprobs.content) if choice.logprobs else 0
        self.assertEqual(texts, ["café!", "café!"])
        self.assertEqual(tokens, [6, 6])
        self.assertEqual(usage.completion_tokens, 12)

    def test_the_stream_helper(self):
        with self.client.chat.completions.stream(model="chain", messages=HI, temperature=0) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.content, "café!")

    def test_texts(self):
        answer = self.client.completions.create(model="chain", prompt=["hi", [104, 105]], max_tokens=3, logprobs=2,
                                                seed=1, extra_body={"ignore_eos": True})
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual(answer.choices[0].text, answer.choices[1].text)
        self.assertEqual(len(answer.choices[0].logprobs.tokens), 3)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["chain"])
        self.assertEqual(self.client.models.retrieve("chain").owned_by, "kvern")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(model="chain", messages=HI, tools=[{"type": "function"}])
        self.assertEqual((caught.exception.param, caught.exception.code), ("tools", "unsupported"))
        with self.assertRaises(openai.NotFoundError):
            self.client.chat.completions.create(model="gpt-5", messages=HI)
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="other").models.list()
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model="chain", prompt="x" * 500)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_curl(self):
        command = ["curl", "-sS", "-N", self.server.url + "/v1/chat/completions", "-H", "Authorization: Bearer secret",
                   "-d", json.dumps({"messages": HI, "temperature": 0, "stream": True})]
        done = subprocess.run(command, check=True, capture_output=True)
        self.assertEqual(serving.stream_text(done.stdout), "café!")


class Limits(unittest.TestCase):
    def test_a_full_queue(self):
        with serving.Server("endless", "--parallel", "1", "--queue", "0") as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
            stream = client.chat.completions.create(model="endless", messages=HI, stream=True)
            next(iter(stream))
            with self.assertRaises(openai.RateLimitError):
                client.chat.completions.create(model="endless", messages=HI)
            stream.close()  # and the row is free
            server.wait_until_idle()
            client.chat.completions.create(model="endless", messages=HI, max_tokens=1)


if __name__ == "__main__":
    serving.main()
