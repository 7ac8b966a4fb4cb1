# SPDX-License-Identifier: MIT
"""Starts `kvern serve` for tests, and talks to it. The programs are in the environment:
KVERN_PROGRAM and KVERN_SERVER_MODELS (cmake/tests.cmake)."""

import atexit
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ.get("KVERN_PROGRAM", "build/kvern")
LONG = os.environ.get("KVERN_TEST_LONG", "") not in ("", "0")
SEED = int(os.environ.get("KVERN_TEST_SEED") or (int(time.time()) if LONG else 1))
# Sanitizers make all slow; no test waits longer than this for what must happen.
PATIENCE = 60

folder = tempfile.mkdtemp(prefix="kvern-server-")
atexit.register(shutil.rmtree, folder, ignore_errors=True)
subprocess.run([os.environ.get("KVERN_SERVER_MODELS", "build/server_models"), folder], check=True)


def path(name):
    return os.path.join(folder, name)


def model(name):
    return path(name + ".gguf")


class Answer:
    """What came back: status, headers in lower case, body."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {key.lower(): value for key, value in response.getheaders()}
        self.body = response.read()

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json()["error"]


class Server:
    """A server on a free port; `with Server("chain", "--parallel", "4") as server:`."""

    def __init__(self, name, *options):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", model(name), "--port", "0", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("kvern serve: " + self.error_text())
        self.port = int(self.url.rpartition(":")[2])

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def ask(self, method, where, body=None, headers=None):
        connection = self.connect()
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, where, body=body, headers=headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, where, **more):
        return self.ask("GET", where, **more)

    def post(self, where, body, **more):
        return self.ask("POST", where, body, **more)

    def chat(self, text="hi", **more):
        return self.post("/v1/chat/completions",
                         {"messages": [{"role": "user", "content": text}], **more})

    def complete(self, prompt="hi", **more):
        return self.post("/v1/completions", {"prompt": prompt, **more})

    def raw(self, data):
        """A connection that has sent these bytes."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        sock.sendall(data)
        return sock

    def open_stream(self, where="/v1/chat/completions", **more):
        """A connection to a stream whose head has come."""
        connection = self.connect()
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, **more}
        connection.request("POST", where, body=json.dumps(body))
        return connection, connection.getresponse()

    def metric(self, name):
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith("kvern_" + name + " "):
                return float(line.split()[-1])
        raise KeyError(name)

    def wait_for(self, look, what):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if look():
                return
            time.sleep(0.01)
        raise AssertionError("it never came to that: " + what)

    def wait_until_idle(self):
        self.wait_for(lambda: self.metric("num_requests_running") == 0
                      and self.metric("num_requests_waiting") == 0, "no request is left")

    def stop(self):
        """Ends it in order; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self):
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.said = self.error_text()
        self.errors.close()
        return code

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        code = self.stop()
        text = self.said
        if kind is None and (code != 0 or "Sanitizer" in text or "runtime error" in text):
            raise AssertionError(f"the server ended with {code}: {text}")


def events(data):
    """The events of a stream, [DONE] as None. Everything else is a failure."""
    found = []
    for block in data.decode().split("\n\n"):
        if block:
            assert block.startswith("data: ") and "\n" not in block, block
            found.append(None if block == "data: [DONE]" else json.loads(block[6:]))
    return found


def stream_text(data, index=0):
    """The text of one answer of a stream of either kind."""
    text = ""
    for event in events(data):
        for choice in (event or {}).get("choices", []):
            if choice["index"] == index:
                text += choice["delta"].get("content", "") if "delta" in choice else choice["text"]
    return text


def run(name, *options):
    """What `kvern run` answers, as JSON."""
    done = subprocess.run([PROGRAM, "run", model(name), "--json", *options], check=True,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return json.loads(done.stdout)


def main():
    random.seed(SEED)
    print(f"seed {SEED}")
    unittest.main(verbosity=2)
