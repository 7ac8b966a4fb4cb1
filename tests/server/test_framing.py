#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Heads that a proxy may take for others than the server does: each is refused, and nothing that
follows it is answered."""

import json
import unittest

import serving
from serving import Server

BODY = b'{"prompt": "hi", "max_tokens": 1}'
HOST = b"Host: localhost\r\n"
# What a smuggler wants to have answered.
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKS = b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)


class Framing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("chain")
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def answers(self, data):
        """All that comes until the server closes."""
        sock = self.server.raw(data)
        found = b""
        try:
            while block := sock.recv(65536):
                found += block
        except ConnectionResetError:
            pass
        sock.close()
        return found

    def post(self, headers, body):
        return self.answers(b"POST /v1/completions HTTP/1.1\r\n" + headers + b"\r\n" + body + NEXT)

    def refused(self, answer, status):
        """One answer, in the form of all errors, that says that the connection ends."""
        head, _, body = answer.partition(b"\r\n\r\n")
        lines = head.decode().lower().split("\r\n")
        self.assertTrue(lines[0].startswith(f"http/1.1 {status} "), answer)
        self.assertIn("connection: close", lines)
        self.assertIn("content-type: application/json", lines)
        self.assertIn(f"content-length: {len(body)}", lines)
        code = "unsupported" if status == 501 else "invalid_http"
        self.assertEqual(json.loads(body)["error"]["code"], code)

    def test_what_is_sound_goes_on(self):
        for headers, body in ((HOST + LENGTH, BODY),
                              (HOST + b"Transfer-Encoding: Chunked\r\n", CHUNKS)):
            sock = self.server.raw(b"POST /v1/completions HTTP/1.1\r\n" + headers + b"\r\n" + body
                                   + NEXT)
            found = b""
            while found.count(b"HTTP/1.1 200 ") < 2:
                block = sock.recv(65536)
                self.assertTrue(block, found)
                found += block
            sock.close()

    def test_f3_two_lengths(self):
        for other in (b"Content-Length: 3\r\n", LENGTH, b"content-length: 0\r\n"):
            self.refused(self.post(HOST + other + LENGTH, BODY), 400)

    def test_f3_a_length_and_chunks(self):
        chunked = b"Transfer-Encoding: chunked\r\n"
        self.refused(self.post(HOST + LENGTH + chunked, CHUNKS), 400)
        self.refused(self.post(HOST + chunked + LENGTH, CHUNKS), 400)

    def test_f3_other_encodings(self):
        for name in (b"gzip", b"xchunked", b"gzip, chunked", b"chunked, gzip", b"identity", b""):
            answer = self.post(HOST + b"Transfer-Encoding: " + name + b"\r\n", CHUNKS)
            self.refused(answer, 501)
        self.refused(self.post(HOST + 2 * b"Transfer-Encoding: chunked\r\n", CHUNKS), 400)

    def test_f3_two_of_what_is_one(self):
        self.refused(self.post(HOST + b"Host: evil.example\r\n" + LENGTH, BODY), 400)
        keys = b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"
        self.refused(self.post(HOST + keys + LENGTH, BODY), 400)

    def test_f3_names_that_are_none(self):
        for name in (b"Content-Length ", b"Content-Length\t", b"X Y", b"X(", b"X\x80"):
            self.refused(self.post(HOST + name + b": 33\r\n" + LENGTH, BODY), 400)

    def test_zero_bytes_are_not_cut(self):
        for header in (b"X: a\0b\r\n", b"X: a\0\r\n", b"X: \0\r\n", b"X: a\0\0b\r\n",
                       b"Authorization: Bearer a\0b\r\n"):
            self.refused(self.post(header + HOST + LENGTH, BODY), 400)
            self.refused(self.post(HOST + LENGTH + header, BODY), 400)
        for target in (b"/health\0x", b"/health\0", b"/health?a\0b", b"/health\0HTTP/1.1"):
            self.refused(self.answers(b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n"), 400)

    def test_folded_lines_and_lines_without_a_name(self):
        for lines in (b"X: a\r\n b\r\n", b"X: a\r\n\tb\r\n"):
            self.refused(self.post(HOST + lines + LENGTH, BODY), 400)
            self.refused(self.post(HOST + LENGTH + lines, BODY), 400)
        for lines in (b"nothing\r\n", b"X\0Y: a\r\n"):  # by libmicrohttpd, before anybody sees them
            for answer in (self.post(HOST + lines + LENGTH, BODY), self.post(HOST + LENGTH + lines, BODY)):
                self.assertTrue(answer.startswith(b"HTTP/1.1 400 "), answer)
                self.assertEqual(answer.count(b"HTTP/1.1 "), 1)

    def test_heads_of_many_forms_go_on(self):
        for lines in (b"", b"X:\r\n", b"X: \r\n", b"X:a\r\n", b"X: \t a\r\n", b"X: a \t \r\n", b"X: a\n",
                      b"Cookie: a=b; c\r\n", b"Cookie: a=b\r\nY: c\r\n", b"Accept: */*\r\n" * 20):
            for headers in (HOST + lines, lines + HOST):
                for begin in (b"GET /health HTTP/1.1\r\n", b"GET /health?a=%20b&c HTTP/1.1\r\n",
                              b"\r\nGET /%68ealth HTTP/1.1\r\n"):
                    sock = self.server.raw(2 * (begin + headers + b"\r\n"))
                    found = b""
                    while found.count(b"HTTP/1.1 200 ") < 2:
                        block = sock.recv(65536)
                        self.assertTrue(block, (begin, headers, found))
                        found += block
                    sock.close()

    def test_coded_paths(self):
        for path, status in (("/health%00x", 404), ("/health%00", 404), ("/%00", 404), ("/he%61lth", 200),
                             ("/health%", 404), ("/health%0", 404), ("/health%zz", 404),
                             ("/health?%00", 200)):
            self.assertEqual(self.server.get(path).status, status, path)

    def test_f4_no_host(self):
        self.refused(self.answers(b"GET /health HTTP/1.1\r\n\r\n"), 400)
        self.refused(self.post(LENGTH, BODY), 400)
        old = self.answers(b"GET /health HTTP/1.0\r\n\r\n")
        self.assertIn(b" 200 ", old.split(b"\r\n")[0])


if __name__ == "__main__":
    serving.main()
