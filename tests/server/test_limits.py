#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the server refuses, and what becomes of clients that misbehave."""

import http.client
import json
import os
import re
import select
import socket
import struct
import subprocess
import time
import unittest

import serving
from serving import PROGRAM, Server, events, model, path

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("chain", "--max-body", "100K")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def expect(self, answer, status, code, param, message=""):
        self.assertEqual(answer.status, status, answer.body)
        self.assertEqual(answer.headers["content-type"], "application/json")
        error = answer.error
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual((error["code"], error["param"]), (code, param), error)
        self.assertIn(message, error["message"])

    def test_what_is_not_supported_is_named(self):
        for key, value in (("tools", [{"type": "function"}]), ("tool_choice", "auto"),
                           ("functions", [{}]), ("response_format", {"type": "json_object"}),
                           ("response_format", {"type": "json_schema", "json_schema": {}}),
                           ("modalities", ["audio"]), ("reasoning_effort", "low"),
                           ("best_of", 2), ("echo", True), ("verbosity", "low"),
                           ("guided_json", {}), ("min_tokens", 3), ("nonsense", 1)):
            self.expect(self.server.chat(**{key: value}), 400, "unsupported", key, f'"{key}"')
        self.expect(self.server.complete(suffix="x"), 400, "unsupported", "suffix")
        self.expect(self.server.complete(echo=True), 400, "unsupported", "echo")
        self.expect(self.server.complete(top_logprobs=1), 400, "unsupported", "top_logprobs")
        self.expect(self.server.chat(prompt="x"), 400, "unsupported", "prompt")
        self.expect(self.server.complete(messages=HI), 400, "unsupported", "messages")
        self.expect(self.server.chat(stream=True, stream_options={"obfuscate": True}), 400,
                    "unsupported", "stream_options", "obfuscate")

    def test_what_asks_for_nothing_is_accepted(self):
        answer = self.server.chat(
            tools=[], tool_choice="none", response_format={"type": "text"}, n=1, user="me",
            metadata={"a": "b"}, store=True, service_tier="auto", parallel_tool_calls=True,
            logprobs=False, stop=None, seed=None, prompt_cache_key="k", logit_bias={}, max_tokens=1)
        self.assertEqual(answer.status, 200, answer.body)

    def test_wrong_values_are_named(self):
        for key, value in (("temperature", "hot"), ("temperature", -1), ("top_p", 1.5),
                           ("n", 0), ("n", 1000), ("n", 1.5), ("seed", -2), ("max_tokens", "many"),
                           ("logprobs", 3), ("stop", [""]), ("stop", 3), ("stream", "yes"),
                           ("logit_bias", {"x": 1}), ("messages", []), ("messages", "hi"),
                           ("stream_options", {"include_usage": True})):
            self.expect(self.server.chat(**{key: value}), 400, None, key, f'"{key}"')
        self.expect(self.server.chat(top_logprobs=2), 400, None, "top_logprobs")
        self.expect(self.server.chat(logprobs=True, top_logprobs=21), 400, None, "top_logprobs")
        for prompt in (3, [], [[]], ["a", 3], [3, "a"], [-1], [10**9], [[1], "x", {}], {}, ""):
            answer = self.server.complete(prompt)
            self.assertEqual(answer.status, 400, prompt)
            self.assertEqual(answer.error["param"], "prompt", answer.body)

    def test_a_content_of_null_is_that_of_a_tool_call(self):
        call = {"role": "assistant", "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}
        answer = self.server.chat(messages=[*HI, call])
        self.expect(answer, 400, "unsupported", "messages", '"tool_calls" of message 2')
        answer = self.server.chat(messages=[*HI, {"role": "assistant", "content": None}])
        self.expect(answer, 400, None, "messages", 'the "content" of message 2 is null')
        answer = self.server.chat(messages=[*HI, {"role": "tool", "content": "x", "tool_call_id": "1"}])
        self.expect(answer, 400, "unsupported", "messages", '"tool_call_id" of message 2')

    def test_refusals_say_what_is_wrong(self):
        self.expect(self.server.chat(messages=[]), 400, None, "messages", "is empty")
        self.expect(self.server.chat(messages=[{"role": "user"}]), 400, None, "messages", "a list of parts")
        self.expect(self.server.complete([]), 400, None, "prompt", "is empty")
        self.expect(self.server.complete(None), 400, None, "prompt", 'there is no "prompt"')
        self.expect(self.server.complete(logprobs=True), 400, None, "logprobs", "how many")
        self.expect(self.server.post(CHAT, b'{"a": 1, "a": 2}'), 400, "invalid_json", None, "twice")
        self.expect(self.server.post("/tokenize", {"text": "x"}), 400, "unsupported", "text",
                    '"prompt" or "messages"')
        self.assertEqual(self.server.chat(seed=-1, max_tokens=1).status, 200)

    def test_null_stands_for_an_absent_key(self):
        for body in ({"prompt": "a", "messages": None}, {"prompt": "a", "foo": None}):
            self.assertEqual(self.server.post(TEXT, {"max_tokens": 1, **body}).status, 200, body)
        self.assertEqual(self.server.chat(prompt=None, max_tokens=1).status, 200)

    def test_log_probabilities_that_ask_for_nothing(self):
        answer = self.server.complete(logprobs=False, top_logprobs=0, max_tokens=1)
        self.assertEqual(answer.status, 200, answer.body)
        self.assertIsNone(answer.json()["choices"][0].get("logprobs"))
        self.expect(self.server.complete(logprobs=True), 400, None, "logprobs")
        self.expect(self.server.complete(top_logprobs=False), 400, "unsupported", "top_logprobs")

    def test_many_and_long_stop_strings(self):
        most = ["%03d" % i + "x" * 253 for i in range(64)]
        self.assertEqual(self.server.complete(stop=most, max_tokens=1).status, 200)
        self.expect(self.server.complete(stop=most + ["y"]), 400, None, "stop", "64")
        self.expect(self.server.complete(stop="x" * 257), 400, None, "stop", "256")

    def test_a_bias_of_the_same_token_twice(self):
        self.expect(self.server.complete(logit_bias={"01": 1, "1": 2, "001": 3}), 400, None,
                    "logit_bias")

    def test_a_model_with_a_nul(self):
        self.assertEqual(self.server.chat(model="chain", max_tokens=1).status, 200)
        self.expect(self.server.chat(model="chain\0x"), 404, "model_not_found", "model")

    def test_another_model(self):
        self.expect(self.server.chat(model="gpt-5"), 404, "model_not_found", "model", "chain")
        self.expect(self.server.chat(model=5), 400, None, "model")
        for where, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
            self.assertEqual(self.server.post(where, {"model": "chain", **body}).status, 200)
            self.expect(self.server.post(where, {"model": "gpt-5", **body}), 404,
                        "model_not_found", "model")
            self.expect(self.server.post(where, {"model": 5, **body}), 400, None, "model")

    def test_bodies_that_are_no_requests(self):
        for body in ("", "{", "[]", "null", '{"a":1,"a":1}', "\xff", '{"messages": NaN}',
                     "[" * 50000):
            self.expect(self.server.post(CHAT, body.encode("latin-1")), 400, "invalid_json", None)

    def test_a_prompt_that_does_not_fit(self):
        answer = self.server.complete("x" * 1000)
        self.expect(answer, 400, "context_length_exceeded", None, "1000")
        self.assertIn("256", answer.error["message"])
        streamed = self.server.complete("x" * 1000, stream=True)
        self.expect(streamed, 400, "context_length_exceeded", None)

    def test_a_text_that_cannot_fit_is_not_tokenized(self):
        text = "x" * 50000
        for answer in (self.server.complete(text), self.server.chat(text),
                       self.server.complete(["a", text])):
            self.expect(answer, 400, "context_length_exceeded", None, " bytes, more than the ")
            self.assertIn("256 tokens", answer.error["message"])

    def test_a_body_that_is_too_large(self):
        self.expect(self.server.post(CHAT, b"x" * 200000), 413, None, None)
        sock = self.server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                               b"Transfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(30):
                sock.sendall(b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
            sock.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        self.assertIn(b" 413 ", sock.recv(1000))
        sock.close()

    def test_paths_and_methods(self):
        self.expect(self.server.get("/v1/embeddings"), 404, "not_found", None, "/v1/embeddings")
        self.expect(self.server.get(CHAT), 405, "method_not_allowed", None)
        self.expect(self.server.post("/health", "{}"), 405, "method_not_allowed", None)
        self.assertEqual(self.server.ask("HEAD", "/health").status, 200)

    def test_a_wrong_method_is_told_the_right_one(self):
        self.assertEqual(self.server.get(CHAT).headers["allow"], "POST")
        self.assertEqual(self.server.post("/health", "{}").headers["allow"], "GET, HEAD")

    def test_coded_bodies(self):
        body = {"messages": HI, "max_tokens": 1}
        for coding, status in (("gzip", 415), ("identity", 200)):
            answer = self.server.post(CHAT, body, headers={"Content-Encoding": coding})
            self.assertEqual(answer.status, status, answer.body)

    def test_pages_of_other_places(self):
        for headers, status in (({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403),
                                ({"Origin": f"http://127.0.0.1:{self.server.port}"}, 200)):
            answer = self.server.post(CHAT, {"messages": HI, "max_tokens": 1}, headers=headers)
            self.assertEqual(answer.status, status)

    def test_f2_a_name_that_points_at_this_machine(self):
        port = self.server.port
        for host, status in ((f"evil.example:{port}", 403), ("evil.example", 403), ("", 403),
                             ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403),
                             ("127.0.0.1:80@evil.example", 403), ("[::1].evil.example", 403),
                             ("[::1", 403), ("localhos", 403), ("[localhost]", 403),
                             ("localhost", 200), (f"LocalHost:{port}", 200), ("127.0.0.1:1", 200),
                             ("[::1]", 200), ("[::1]:8080", 200)):
            for where in ("/v1/models", "/metrics", "/"):
                answer = self.server.get(where, headers={"Host": host})
                self.assertEqual(answer.status, status, (host, where))
                if status != 200:
                    self.expect(answer, 403, "foreign_host", None)
        headers = {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}
        answer = self.server.post(CHAT, {"messages": HI, "max_tokens": 1}, headers=headers)
        self.expect(answer, 403, "foreign_host", None)

    def test_tokens(self):
        self.expect(self.server.post("/tokenize", {}), 400, None, None)
        self.expect(self.server.post("/tokenize", {"prompt": "x", "y": 1}), 400, "unsupported", "y")
        self.expect(self.server.post("/detokenize", {"tokens": [-1]}), 400, None, "tokens")

    def test_requests_that_are_no_http(self):
        for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                     b"GET /" + b"a" * 100000, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000,
                     b"\r\n" * 1000, b"\0" * 1000):
            sock = self.server.raw(b"")
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65536):
                    pass
            except OSError:
                pass
            sock.close()
        self.assertEqual(self.server.get("/health").status, 200)

    def test_many_requests_on_a_connection(self):
        connection = self.server.connect()
        for i in range(20):
            connection.request("POST", CHAT, json.dumps({"messages": HI, "max_tokens": 1 + i % 3}))
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            answer.read()
        connection.close()


class Bodies(unittest.TestCase):
    """Of unknown length, more than all may be together (16 times the largest)."""

    def open_body(self, server):
        return server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n")

    def send(self, sock, bytes_each, count):
        chunk = b"%x\r\n" % bytes_each + b" " * bytes_each + b"\r\n"
        for _ in range(count):
            sock.sendall(chunk)

    def test_f1_a_body_that_was_dropped_takes_no_room(self):
        with Server("chain", "--max-body", "10K") as server:
            sock = self.open_body(server)
            self.send(sock, 10000, 100)
            for _ in range(20):
                self.assertEqual(server.chat(max_tokens=1).status, 200)
            sock.sendall(b"0\r\n\r\n")
            self.assertIn(b" 413 ", sock.recv(1000))
            sock.close()

    def test_f1_bodies_that_are_too_large_together(self):
        with Server("chain", "--max-body", "10K") as server:
            socks = []

            # One that comes while the request that asks is there finds too little room, so that
            # more than 16 may be needed.
            def full():
                socks.append(self.open_body(server))
                self.send(socks[-1], 10240, 1)
                return len(socks) > 15 and server.chat(max_tokens=1).status == 503

            server.wait_for(full, "they fill it")
            answer = server.chat(max_tokens=1)
            self.assertEqual((answer.status, answer.error["code"]), (503, "bodies"))
            for sock in socks:
                sock.close()
            server.wait_for(lambda: server.chat(max_tokens=1).status == 200, "there is room again")


class Texts(unittest.TestCase):
    def test_long_texts_to_tokens_and_back(self):
        with Server("plain") as server:
            text = "x" * 524288
            self.assertEqual(server.post("/tokenize", {"prompt": text}).json()["count"], 524288)
            answer = server.post("/tokenize", {"prompt": text + "x"})
            self.assertEqual((answer.status, answer.error["param"]), (400, "prompt"))
            token = server.post("/tokenize", {"prompt": "<|im_end|>"}).json()["tokens"]
            answer = server.post("/detokenize", {"tokens": token * 52428})
            self.assertEqual(answer.status, 200)
            answer = server.post("/detokenize", {"tokens": token * 52429})
            self.assertEqual((answer.status, answer.error["param"]), (400, "tokens"))
        with Server("chain") as server:
            answer = server.post("/tokenize", {"messages": [{"role": "user", "content": text}]})
            self.assertEqual((answer.status, answer.error["param"]), (400, "messages"))


class Meanwhile(unittest.TestCase):
    """What takes long keeps no other connection waiting, whichever thread that has."""

    def expect_others(self, server, body, path, status, count=6):
        """Long requests on connections of each thread, and short ones before all are answered."""
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path, len(body))
        long = [server.raw(head + body[:-1]) for _ in range(count)]
        short = [server.connect() for _ in range(4)]
        for connection in short:
            connection.request("GET", "/health")
            connection.getresponse().read()
        for sock in long:
            sock.sendall(body[-1:])
        for connection in short:
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().status, 200)
        ready = select.select(long, [], [], 0)[0]
        self.assertLess(len(ready), count)
        for sock in long:
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(65536)
            self.assertIn(b" %d " % status, data.split(b"\r\n")[0])
            sock.close()
        for connection in short:
            connection.close()

    def test_a_long_text_is_tokenized(self):
        with Server("plain") as server:
            body = {"prompt": "x" * 524288}
            self.expect_others(server, json.dumps(body).encode(), b"/tokenize", 200)

    def test_a_long_prompt_is_tokenized(self):
        """One whose bytes may be few enough tokens, and are not."""
        with Server("long") as server:
            body = {"prompt": "x" * 524288, "max_tokens": 1}
            self.expect_others(server, json.dumps(body).encode(), TEXT.encode(), 400)

    def running(self, connection):
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return float(re.search(r"^kvern_num_requests_running (\S+)$", text, re.M)[1])

    def test_many_log_probabilities_are_written(self):
        """After the last token, and before anything is sent, both threads answer others."""
        with Server("endless", "--parallel", "4") as server:
            body = {"prompt": "x", "max_tokens": 2000, "logprobs": 20, "ignore_eos": True, "n": 4}
            long = server.connect()
            others = [server.connect() for _ in range(2)]  # one of each thread
            long.request("POST", TEXT, json.dumps(body))
            server.wait_for(lambda: self.running(others[0]) > 0, "it runs")
            written = False
            while not written and not select.select([long.sock], [], [], 0)[0]:
                done = not any([self.running(connection) for connection in others])
                written = done and not select.select([long.sock], [], [], 0)[0]
            self.assertTrue(written)
            choices = json.loads(long.getresponse().read())["choices"]
            self.assertEqual([len(c["logprobs"]["tokens"]) for c in choices], [2000] * 4)
            for connection in (long, *others):
                connection.close()

    def test_log_probabilities_that_a_reader_left_lying(self):
        """They come in events of bounded size, and all of them."""
        with Server("endless", "--parallel", "1", "--max-waiting", "64M") as server:
            connection = server.connect()
            connection.connect()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            body = {"prompt": "x", "max_tokens": 3000, "logprobs": 20, "ignore_eos": True,
                    "stream": True}
            connection.request("POST", TEXT, json.dumps(body))
            response = connection.getresponse()
            server.wait_until_idle()
            count = ends = 0
            for event in events(response.read()):
                for choice in (event or {"choices": []})["choices"]:
                    self.assertEqual(ends, 0)
                    found = len((choice["logprobs"] or {"tokens": []})["tokens"])
                    self.assertLessEqual(found, 25)
                    count += found
                    ends += choice["finish_reason"] == "length"
            self.assertEqual((count, ends), (3000, 1))
            connection.close()


class Keys(unittest.TestCase):
    def setUp(self):
        with open(path("keys"), "w", encoding="utf-8") as file:
            file.write("# keys\n  # more\nsecret-one\n\n  \nsecret-two \r\n")

    def test_any_host_with_a_key(self):
        with Server("chain", "--api-keys", path("keys")) as server:
            answer = server.get("/v1/models", headers={"Host": "llm.example",
                                                       "Authorization": "Bearer secret-one"})
            self.assertEqual(answer.status, 200)

    def test_keys(self):
        with Server("chain", "--api-keys", path("keys")) as server:
            for where in ("/v1/models", "/metrics", "/cache"):
                answer = server.get(where)
                self.assertEqual((answer.status, answer.error["code"]), (401, "invalid_api_key"))
                self.assertEqual(answer.headers["www-authenticate"], "Bearer")
            for key, status in (("secret-one", 200), ("secret-two", 200), ("secret-on", 401),
                                ("secret-onee", 401), ("", 401), ("# keys", 401),
                                (" secret-one \t ", 200), ("secret-one x", 401), (" ", 401),
                                ("x" * 5000, 401)):
                answer = server.post(CHAT, {"messages": HI, "max_tokens": 1},
                                     headers={"Authorization": "Bearer " + key})
                self.assertEqual(answer.status, status, key)
            for scheme in ("Basic secret-one", "secret-one", "Bearer"):
                self.assertEqual(server.get("/cache", headers={"Authorization": scheme}).status,
                                 401)
            self.assertEqual(server.get("/health").status, 200)
            self.assertEqual(server.get("/").status, 200)

    def test_files_of_keys_that_are_none(self):
        for text, message in (("", "has no key"), ("# none\n", "has no key"),
                              ("two words\n", "line 1"), ("a\n" + "x" * 256 + "\n", "line 2")):
            with open(path("keys"), "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([PROGRAM, "serve", model("chain"), "--api-keys", path("keys")],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)


class Rows(unittest.TestCase):
    """An answer that does not end by itself, in few rows."""

    def test_a_client_that_leaves_frees_its_row(self):
        with Server("endless", "--parallel", "1") as server:
            for leave in ("close", "reset", "half"):
                connection, response = server.open_stream(max_tokens=4000)
                sock = connection.sock
                self.assertTrue(response.read(10))
                if leave == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if leave == "half":
                    sock.shutdown(socket.SHUT_WR)
                else:
                    response.close()
                    connection.close()
                server.wait_until_idle()
                connection.close()
            self.assertGreaterEqual(server.metric("http_disconnects_total"), 3)
            self.assertEqual(server.metric('request_success_total{finished_reason="abort"}'), 3)

    def test_one_that_leaves_before_a_whole_answer(self):
        with Server("endless", "--parallel", "1") as server:
            body = json.dumps({"messages": HI, "max_tokens": 4000}).encode()
            for _ in range(2):  # the second one while it waits for the row
                sock = server.raw(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
                                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
                server.wait_for(lambda: server.metric("num_requests_running") == 1, "it runs")
                sock.close()
            server.wait_until_idle()

    def test_a_full_queue(self):
        with Server("endless", "--parallel", "1", "--queue", "1") as server:
            first = server.open_stream(max_tokens=4000)
            second = server.connect()
            second.request("POST", CHAT, json.dumps({"messages": HI, "max_tokens": 4000}))
            server.wait_for(lambda: server.metric("num_requests_waiting") == 1, "one waits")
            answer = server.chat()
            self.assertEqual((answer.status, answer.error["code"]), (429, "queue_full"))
            self.assertRegex(answer.headers["retry-after"], r"^[1-9]\d*$")
            self.assertEqual(answer.error["type"], "rate_limit_error")
            first[0].close()
            second.close()
            first[1].close()
            server.wait_until_idle()
            self.assertEqual(server.chat(max_tokens=1).status, 200)

    def test_more_answers_than_rows_and_queue(self):
        with Server("endless", "--parallel", "2", "--queue", "2") as server:
            self.assertEqual(server.chat(n=4, max_tokens=2).status, 200)
            answer = server.chat(n=5, max_tokens=2)
            self.assertEqual((answer.status, answer.error["param"]), (400, "n"))

    def test_a_slow_reader(self):
        with Server("endless", "--parallel", "2", "--max-waiting", "128K") as server:
            connection = server.connect()
            connection.connect()
            # Log probabilities make much of each token.
            connection.request("POST", TEXT, json.dumps(
                {"prompt": "hi", "stream": True, "logprobs": 20, "max_tokens": 4000,
                 "ignore_eos": True, "n": 4, "temperature": 2}))
            response = connection.getresponse()
            # It is not read: others go on meanwhile.
            begin = time.monotonic()
            self.assertEqual(server.chat(max_tokens=20).status, 200)
            self.assertLess(time.monotonic() - begin, serving.PATIENCE)
            server.wait_until_idle()
            found = events(response.read())
            self.assertEqual(found[-1]["error"]["code"], "slow_reader")
            self.assertGreater(len(found), 2)
            self.assertEqual(server.metric("http_slow_readers_total"), 1)
            connection.close()

    def test_the_time_of_a_request(self):
        with Server("endless", "--parallel", "1", "--request-time", "1") as server:
            answer = server.complete("hi", max_tokens=3900, ignore_eos=True, n=30)
            self.assertEqual((answer.status, answer.error["code"]), (504, "timeout"))
            streamed = server.complete("hi", max_tokens=3900, ignore_eos=True, n=30, stream=True)
            found = events(streamed.body)
            self.assertEqual(found[-1]["error"]["code"], "timeout")
            server.wait_until_idle()

    def test_a_budget(self):
        with Server("endless", "--budget", "400K", "--parallel", "6") as server:
            context = server.get("/v1/models").json()["data"][0]["max_model_len"]
            self.assertLess(context, 4096)
            answer = server.complete("x" * (context + 1))
            self.assertEqual((answer.status, answer.error["code"]),
                             (400, "context_length_exceeded"), answer.body)
            self.assertIn(str(context), answer.error["message"])
            streams = [server.open_stream(max_tokens=context // 3) for _ in range(6)]
            for connection, response in streams:
                self.assertTrue(response.read().endswith(b"[DONE]\n\n"))
                connection.close()
            memory = server.get("/cache").json()["memory"]
            self.assertLessEqual(memory["peak_bytes"], memory["budget_bytes"])


class Connections(unittest.TestCase):
    def test_slow_requests(self):
        with Server("chain", "--read-time", "1") as server:
            begin = time.monotonic()
            slow = [server.raw(data) for data in (
                b"", b"POST ", b"GET /health HTTP/1.1\r\nHost: localhost\r\n",
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")]
            drip = server.raw(b"GET /health HTTP/1.1\r\n")
            for sock in slow:
                try:
                    self.assertEqual(sock.recv(1000), b"")
                except ConnectionResetError:
                    pass
                sock.close()
            # One that sends a byte now and then is no better.
            with self.assertRaises(OSError):
                while True:
                    drip.sendall(b"A")
                    time.sleep(0.1)
                    self.assertLess(time.monotonic() - begin, serving.PATIENCE)
            drip.close()
            self.assertGreaterEqual(server.metric("http_timeouts_total"), 4)

    def test_idle_ones_make_room(self):
        with Server("chain", "--connections", "8") as server:
            idle = [server.raw(b"") for _ in range(8)]
            server.wait_for(lambda: self.alive(server), "an idle one goes")
            self.assertGreaterEqual(server.metric("http_connections_evicted_total"), 1)
            for sock in idle:
                sock.close()

    def deaf(self, server):
        """Asks for many pages, one after another, and reads none of them."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        return sock

    def test_f15_answers_that_nobody_reads_make_room(self):
        with Server("chain", "--connections", "3", "--request-time", "0") as server:
            deaf = [self.deaf(server) for _ in range(3)]
            server.wait_for(lambda: self.alive(server), "one of them goes")
            self.assertGreaterEqual(server.metric("http_connections_evicted_total"), 1)
            for sock in deaf:
                sock.close()

    def test_f15_answers_that_nobody_reads_end(self):
        with Server("chain", "--read-time", "1", "--request-time", "0") as server:
            deaf = [self.deaf(server) for _ in range(3)]
            server.wait_for(lambda: server.metric("http_timeouts_total") >= 3, "they end")
            self.assertEqual(server.chat(max_tokens=1).status, 200)
            for sock in deaf:
                sock.close()

    def test_a_finished_stream_that_nobody_reads_ends(self):
        """Its request is over, so that it holds no connection until --request-time."""
        with Server("endless", "--read-time", "1", "--max-waiting", "64M") as server:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            body = json.dumps({"prompt": "x", "max_tokens": 4000, "logprobs": 20, "n": 8, "stream": True,
                               "ignore_eos": True}).encode()
            sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
                         % len(body) + body)
            server.wait_for(lambda: server.metric("http_timeouts_total") == 1, "it ends")
            server.wait_until_idle()
            sock.close()

    def test_a_stream_that_is_waited_for_goes_on(self):
        """Nothing comes of it for longer than a reader may take nothing."""
        with Server("long", "--read-time", "1", "--parallel", "1") as server:
            first, response = server.open_stream(max_tokens=50000)
            second, waiting = server.connect(), json.dumps({"messages": HI, "stream": True, "max_tokens": 3})
            second.request("POST", CHAT, waiting)
            head = second.getresponse()
            time.sleep(2.5)
            response.close()
            first.close()
            self.assertTrue(head.read().endswith(b"[DONE]\n\n"))
            self.assertEqual(server.metric("http_timeouts_total"), 0)
            second.close()

    def test_a_slow_reader_of_a_whole_answer(self):
        with Server("chain", "--read-time", "2") as server:
            sock = self.deaf(server)
            begin = time.monotonic()
            taken = 0
            while time.monotonic() - begin < 4:
                taken += len(sock.recv(65536))
                time.sleep(0.1)
            self.assertEqual(server.metric("http_timeouts_total"), 0)
            self.assertGreater(taken, 0)
            sock.close()

    def test_very_many(self):
        most = 10000 if serving.LONG else 1000
        with Server("chain", "--connections", "64") as server:
            import resource
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * most + 100), hard))
            busy, response = server.open_stream()
            idle = []
            for _ in range(most):
                sock = socket.create_connection(("127.0.0.1", server.port),
                                                timeout=serving.PATIENCE)
                sock.setblocking(False)
                idle.append(sock)
            refused = 0

            def has_answer(sock):
                nonlocal refused
                try:
                    refused += b" 503 " in sock.recv(2000)
                    return True
                except BlockingIOError:
                    return False
                except OSError:
                    return True

            def many_refused():
                idle[:] = [sock for sock in idle if not has_answer(sock) or sock.close()]
                return refused > most // 2

            server.wait_for(many_refused, "most are refused")
            for sock in idle:
                sock.close()
            self.assertTrue(response.read().endswith(b"[DONE]\n\n"))
            busy.close()
            server.wait_for(lambda: self.alive(server), "it answers again")
            self.assertGreaterEqual(server.metric("http_connections_refused_total"), refused)

    @staticmethod
    def alive(server):
        try:
            return server.chat(max_tokens=1).status == 200
        except (OSError, http.client.HTTPException):
            return False

    def test_of_one_address(self):
        with Server("chain", "--address-connections", "3") as server:
            idle = [server.raw(b"") for _ in range(3)]
            self.assertEqual(server.get("/health").status, 503)
            for sock in idle:
                sock.close()
            server.wait_for(lambda: server.get("/health").status == 200, "there is room again")


class Ends(unittest.TestCase):
    def test_what_runs_is_finished(self):
        server = Server("endless", "--parallel", "1")
        connection, response = server.open_stream(max_tokens=1500)
        response.read(1)
        server.process.terminate()
        server.wait_for(lambda: server.get("/health").status == 503, "it drains")
        answer = server.chat()
        self.assertEqual((answer.status, answer.error["code"]), (503, "draining"))
        data = response.read()
        self.assertTrue(data.endswith(b"data: [DONE]\n\n"), data[-200:])
        self.assertEqual(server.wait(), 0)
        connection.close()

    def test_what_takes_too_long_is_cut(self):
        server = Server("endless", "--parallel", "1", "--drain-time", "0")
        connection, response = server.open_stream(max_tokens=4000, n=20)
        response.read(1)
        server.process.terminate()
        found = events(b"d" + response.read())
        self.assertEqual(found[-1]["error"]["code"], "cancelled")
        self.assertEqual(server.wait(), 0)
        self.assertIn("some answers were ended", server.said)
        connection.close()

    def test_idle_ends_at_once(self):
        server = Server("chain")
        idle = [server.raw(b"") for _ in range(5)]
        begin = time.monotonic()
        self.assertEqual(server.stop(), 0)
        self.assertLess(time.monotonic() - begin, serving.PATIENCE / 2)
        for sock in idle:
            sock.close()

    def test_killed(self):
        cache = path("prefixes")
        for _ in range(3):
            server = Server("random", "--cache", cache)
            streams = [server.open_stream(max_tokens=300, ignore_eos=True) for _ in range(4)]
            streams[0][1].read(1)
            server.process.kill()
            server.process.wait()
            server.process.stdout.close()
            server.errors.close()
            for connection, response in streams:
                try:
                    response.read()
                except (http.client.HTTPException, OSError):
                    pass
                connection.close()
        with Server("random", "--cache", cache) as server:
            self.assertEqual(server.chat(max_tokens=5).status, 200)
            self.assertEqual(server.get("/cache").json()["disk"]["budget_bytes"], 4 << 30)

    def test_options_that_no_request_could_be_answered_with(self):
        for options, message in ((("--alias", ""), "--alias takes a name"),
                                 (("-c", "1"), "a context of 1 token has no room for an answer"),
                                 (("--logit-bias", "9999+1"), "token 9999 has a bias")):
            done = subprocess.run([PROGRAM, "serve", model("chain"), "--port", "0", *options],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=serving.PATIENCE)
            self.assertNotEqual(done.returncode, 0, options)
            self.assertIn(message, done.stderr)

    def test_a_port_that_is_taken(self):
        with Server("chain") as server:
            done = subprocess.run([PROGRAM, "serve", model("chain"), "--port", str(server.port)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"port {server.port}", done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    serving.main()
