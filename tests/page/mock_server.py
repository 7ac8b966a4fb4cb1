# SPDX-License-Identifier: MIT
"""A server of the page and of an invented cache, for what a real one seldom shows: errors in words,
many rows, thousands of pages. What it tells has the shape of GET /cache.

    python3 tests/page/mock_server.py PORT [SCENE]      to look at the page by hand
"""

import http.server
import json
import pathlib
import re
import sys
import threading
import time

PAGE = pathlib.Path(__file__).parents[2] / "server/page/index.html"
ANSWER = (
    "The sky is blue because air scatters **short** waves of light more than long ones. "
    "What reaches the eye from all sides is therefore mostly blue.\n\n"
    "```\nintensity ~ 1 / wavelength^4\n```\n\nAt sunset the light's way is longer, and what is left is red."
)
METRICS = b"""# TYPE kvern_time_to_first_token_seconds histogram
kvern_time_to_first_token_seconds_bucket{le="+Inf"} 10
kvern_time_to_first_token_seconds_sum 1.2
kvern_time_to_first_token_seconds_count 10
kvern_inter_token_latency_seconds_sum{model="a"} 0.85
kvern_inter_token_latency_seconds_count{model="a"} 100
"""
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"


def layer(**facts):
    return {
        "layers": 30,
        "kind": "full",
        "storage": "full:h3:k64=bf16:v64=bf16",
        "window": 0,
        "keep": 0,
        "slack": 0,
        "chunk": 0,
        "residual": 0,
        "precise_sinks": 0,
        "start": None,
        "bytes_per_token": 23040,
        **facts,
    }


def row(number, state, length, room, **facts):
    return {
        "id": f"chatcmpl-{number}",
        "request": number,
        "state": state,
        "length": length,
        "room": room,
        "prompt_tokens": min(length, 300),
        "generated_tokens": 40,
        "shared_tokens": 0,
        "stored_tokens": 0,
        "from": None,
        "why": None,
        "seconds": 1.5,
        "converted": [False, False],
        **facts,
    }


def tree(branches, length=100):
    nodes = [{"parent": -1, "from": 0, "to": 34, "text": SYSTEM, "entry": False, "hits": branches, "pins": 0}]
    questions = (
        "Why is the sky blue?",
        "How does a hand mill work?",
        "Write a short story about the sea.",
        "Why is the sky red in the evening?",
        "What is a cache?",
    )
    for i in range(branches):
        end = 34 + length + 37 * (i * 7 % 11)
        nodes.append(
            {
                "parent": 0,
                "from": 34,
                "to": end,
                "text": questions[i % 5] + "<|im_end|>\n<|im_start|>assistant\n",
                "entry": True,
                "hits": i % 3,
                "pins": 0,
                "floor": 0,
            }
        )
        if i % 4 == 0:
            nodes.append(
                {
                    "parent": len(nodes) - 1,
                    "from": end,
                    "to": end + 60,
                    "text": "Tell me more about that.",
                    "entry": True,
                    "hits": 0,
                    "pins": 1,
                    "floor": 0,
                }
            )
    return {"nodes": nodes, "left_out": 0}


def store(entries, lookups):
    return {
        "budget_bytes": 1 << 30,
        "bytes": entries * 2400000,
        "page_bytes": entries * 2300000,
        "entries": entries,
        "pinned": 1,
        "lookups": lookups,
        "full_hits": lookups // 6,
        "partial_hits": lookups // 2,
        "misses": lookups - lookups // 6 - lookups // 2,
        "tokens_asked": lookups * 90,
        "tokens_lent": lookups * 57,
        "evictions": 3,
        "why": {
            "nothing that is kept begins the same for longer": lookups // 2,
            "all but the last token": lookups // 6,
            "nothing is kept of this model yet": 1,
        },
        "why_missed": {"nothing that is kept begins the same for longer": 2, "nothing is kept of this model yet": 1},
        "tree": tree(entries),
    }


def cache(rows=(), layers=None, **facts):
    held = sum(23040 * r["length"] for r in rows)
    return {
        "model": "smollm2",
        "context_length": 8192,
        "page_positions": 64,
        "kv": "bf16",
        "memory": {
            "budget_bytes": 1 << 30,
            "held_bytes": held + 90000000,
            "peak_bytes": 420000000,
            "page_bytes": held + 80000000,
            "row_bytes": held,
        },
        "layers": layers or [layer()],
        "rows": list(rows),
        "queue": {"running": len(rows), "waiting": 0, "rows": 8, "waiting_limit": 64, "draining": False},
        "totals": {
            "steps": 1,
            "prompt_tokens": 1200,
            "generated_tokens": 5400,
            "shared_tokens": 3100,
            "stored_tokens": 3000,
            "seconds": 12.5,
        },
        "store": None,
        "disk": None,
        **facts,
    }


def busy(second):
    """A server with much to do: rows of all states, quantized layers, windows."""
    layers = [
        layer(layers=5, kind="window", storage="window512:h1:k256=bf16:v256=bf16", window=512),
        layer(layers=13, storage="full:h1:k256=affine4g64bf16:v256=affine4g64bf16", residual=192),
    ]
    grown = int(40 * second)
    rows = [
        row(
            1,
            "decode",
            1400 + grown,
            2400,
            shared_tokens=640,
            **{"from": "memory"},
            why="nothing that is kept begins the same for longer",
        ),
        row(2, "decode", 800 + grown, 1212, shared_tokens=640, **{"from": "row"}),
        row(
            3,
            "prompt",
            min(1900, 256 + 8 * grown),
            2100,
            prompt_tokens=1900,
            shared_tokens=64,
            **{"from": "memory"},
            generated_tokens=0,
        ),
        row(4, "decode", 230 + grown, 900),
    ]
    told = cache(rows, layers, store=store(9, 60), kv="balanced", model="gemma3-270m")
    told["queue"]["waiting"] = 3
    told["totals"]["generated_tokens"] += int(160 * second + 25 * (second % 3))
    told["totals"]["prompt_tokens"] += int(90 * second) + 400 * int(second / 4)
    return told


def huge(second):
    """Contexts of 128 Ki positions, and a full tree."""
    rows = [
        row(i, "decode", 131072 - 3500 * i, 131072, shared_tokens=65536 if i % 2 else 0, **{"from": "disk"})
        for i in range(32)
    ]
    told = cache(rows, [layer(layers=24), layer(layers=8, kind="window", window=4096)], store=store(400, 4000))
    told["queue"]["rows"] = 32
    told["totals"]["generated_tokens"] += int(900 * second)
    return told


class Mock(http.server.ThreadingHTTPServer):
    """One invented server. `scene` is what GET /cache tells, by seconds; the rest steers answers."""

    daemon_threads = True

    def __init__(self, policy, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.policy = policy
        self.scene = lambda second: cache()
        self.refuse = None  # (status, headers, body) instead of an answer
        self.cache_status = 200
        self.key = None
        self.answer, self.pause = ANSWER, 0.01
        self.breaks_after = None  # pieces
        self.holds_after, self.goes_on = None, threading.Event()  # so many, until then
        self.asked, self.looks, self.gone = [], 0, threading.Event()
        self.begun = time.monotonic()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def handle_error(self, request, client_address):
        pass  # connections that the browser closes


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, kind, body, **more):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, told, status=200, **more):
        self.send(status, "application/json", json.dumps(told).encode(), **more)

    def allowed(self):
        mock = self.server
        if mock.key is None or self.headers.get("Authorization") == f"Bearer {mock.key}":
            return True
        self.send_json({"error": {"message": "This key is unknown.", "type": "invalid_request_error"}}, 401)
        return False

    def do_GET(self):
        mock = self.server
        if self.path == "/":
            self.send(200, "text/html; charset=utf-8", PAGE.read_bytes(), Content_Security_Policy=mock.policy)
        elif not self.allowed():
            return
        elif self.path == "/cache":
            mock.looks += 1
            if mock.cache_status != 200:
                self.send_json({"error": {"message": "Not now."}}, mock.cache_status)
            else:
                self.send_json(mock.scene(time.monotonic() - mock.begun))
        elif self.path == "/v1/models":
            self.send_json({"object": "list", "data": [{"id": "smollm2", "object": "model"}]})
        elif self.path == "/metrics":
            self.send(200, "text/plain", METRICS)
        else:
            self.send_json({"error": {"message": "There is nothing here."}}, 404)

    def do_POST(self):
        mock = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.allowed():
            return
        assert self.path == ("/v1/chat/completions" if "messages" in body else "/v1/completions")
        mock.asked.append(body)
        if mock.refuse:
            status, headers, message = mock.refuse
            self.send_json({"error": {"message": message, "type": "invalid_request_error"}}, status, **headers)
            return
        self.stream(body)

    def stream(self, body):
        mock = self.server
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        pieces = re.findall(r"\s*\S+|\s+", mock.answer)
        try:
            for number, piece in enumerate(pieces):
                if number == mock.breaks_after:
                    return
                if number == mock.holds_after:
                    mock.goes_on.wait()
                what = {"delta": {"content": piece}} if "messages" in body else {"text": piece}
                self.event({"choices": [{"index": 0, **what, "finish_reason": None}]})
                time.sleep(mock.pause)
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            reused = 20 if len(body.get("messages", [])) > 1 else 0
            self.event(
                {
                    "choices": [],
                    "usage": {
                        "prompt_tokens": 34,
                        "completion_tokens": len(pieces),
                        "total_tokens": 34 + len(pieces),
                        "prompt_tokens_details": {"cached_tokens": reused},
                    },
                }
            )
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            mock.gone.set()

    def event(self, told):
        told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "smollm2", **told}
        self.wfile.write(b"data: " + json.dumps(told).encode() + b"\n\n")
        self.wfile.flush()


if __name__ == "__main__":
    hand = Mock("default-src 'self' 'unsafe-inline' data:", int(sys.argv[1]))
    hand.scene = {"busy": busy, "huge": huge}.get(sys.argv[2] if len(sys.argv) > 2 else "", hand.scene)
    hand.serve_forever()
