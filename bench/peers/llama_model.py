# SPDX-License-Identifier: MIT
"""A whole model in llama.cpp, as a peer of `kvern bench model`.

The context is made as llama.cpp's own programs make it: batches of 512 tokens, weights repacked for
the machine. Flash attention is on. A storage with the suffix "-noflash" switches it off (f16 only:
llama.cpp quantizes V with flash attention alone).
"""

import ctypes
import time

import llama_cpp

from protocol import Refused, rest, serve

TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
BATCH = 512
FLASH_ON, FLASH_OFF = 1, 0  # enum llama_flash_attn_type


@llama_cpp.llama_log_callback
def be_silent(level, text, user):
    """llama.cpp says much while it loads."""


class Peer:
    """What the lines of the protocol call."""

    def __init__(self):
        llama_cpp.llama_log_set(be_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.path = self.loaded = self.context = None

    def name(self):
        return f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"

    def load(self, file):
        """A file is loaded once, for all numbers of threads."""
        if self.path == file:
            return
        if self.loaded:
            llama_cpp.llama_model_free(self.loaded)
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.loaded = llama_cpp.llama_model_load_from_file(file.encode(), params)
        self.path = file if self.loaded else None
        if not self.loaded:
            raise Refused("llama.cpp cannot load the file")

    def model(self, storage, threads, context, file):
        self.load(file)
        kind, _, flash = storage.partition("-")
        if kind not in TYPES or flash not in ("", "noflash"):
            raise Refused(f"llama.cpp has no storage {storage}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = int(context)
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = int(threads)
        params.type_k = params.type_v = TYPES[kind]
        params.flash_attn_type = FLASH_OFF if flash else FLASH_ON
        self.context = llama_cpp.llama_init_from_model(self.loaded, params)
        if not self.context:
            raise Refused(f"llama.cpp makes no context with {storage}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.loaded))
        self.forward(0, 16)
        self.forget()

    def forget(self):
        """Empties the KV cache."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def forward(self, start, count):
        """Tokens start to start + count - 1 of the text that `kvern bench model` uses."""
        tokens = (llama_cpp.llama_token * count)(
            *((i * 7919 + 13) % self.vocabulary for i in range(start, start + count))
        )
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, count)) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

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
        values = llama_cpp.llama_get_logits_ith(self.context, -1)
        return " ".join(f"{values[i]:.9g}" for i in range(int(count)))

    def close(self):
        llama_cpp.llama_free(self.context)
        self.context = None


if __name__ == "__main__":
    serve(Peer())
