# SPDX-License-Identifier: MIT
"""A whole model as a peer of `kvern bench model`, in llama.cpp or in what descends from it: what
their peers have in common."""

import ctypes
import time

from protocol import Refused, rest

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
BATCH = 512


class LlamaPeer:
    """What the lines of the protocol call. A program gives the methods that raise here; `kind` is a
    storage of TYPES, `setting` what stands behind its "-"."""

    settings = ("",)

    def __init__(self):
        self.opened = self.context = None

    def load(self, file, setting):
        """Loads the file, in place of the one before it; returns the size of its vocabulary."""
        raise NotImplementedError

    def make(self, kind, setting, threads, context):
        """A context of the model, or None."""
        raise NotImplementedError

    def forget(self):
        """Empties the KV cache."""
        raise NotImplementedError

    def decode(self, tokens, count, at):
        """Forwards tokens behind `at` others."""
        raise NotImplementedError

    def last_logits(self):
        """Where those of the last token are."""
        raise NotImplementedError

    def close(self):
        """Ends the context."""
        raise NotImplementedError

    def model(self, storage, threads, context, file):
        kind, _, setting = storage.partition("-")
        if kind not in TYPES or setting not in self.settings:
            raise Refused(f"there is no storage {storage}")
        if self.opened != (file, setting):  # once for all numbers of threads
            self.vocabulary = self.load(file, setting)
            self.opened = (file, setting)
        self.context = self.make(TYPES[kind], setting, int(threads), int(context))
        if not self.context:
            raise Refused(f"no context is made with {storage}")
        self.forward(0, 16)
        self.forget()

    def forward(self, start, count):
        """Tokens start to start + count - 1 of the text that `kvern bench model` uses."""
        tokens = (ctypes.c_int32 * count)(*((i * 7919 + 13) % self.vocabulary for i in range(start, start + count)))
        self.decode(tokens, count, start)

    def time(self, context, prompt, generate):
        context, prompt, generate = int(context), int(prompt), int(generate)
        self.forget()
        start = time.perf_counter()
        for at in range(0, prompt, BATCH):
            self.forward(at, min(BATCH, prompt - at))
        prompt_seconds = time.perf_counter() - start
        if context == 0:  # generation begins behind one token
            self.forget()
            self.forward(0, 1)
        at = context or 1
        start = time.perf_counter()
        for i in range(generate):
            self.forward(at + i, 1)
        seconds = time.perf_counter() - start
        rest()
        return f"{prompt_seconds:.9f} {seconds:.9f}"

    def logits(self, count):
        values = self.last_logits()
        return " ".join(f"{values[i]:.9g}" for i in range(int(count)))
