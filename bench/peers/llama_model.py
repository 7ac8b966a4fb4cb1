# SPDX-License-Identifier: MIT
"""A whole model in llama.cpp, as a peer of `kvern bench model`.

The context is made as llama.cpp's own programs make it: batches of 512 tokens, weights repacked for
the machine. Flash attention is on. A storage with the suffix "-noflash" switches it off (f16 only:
llama.cpp quantizes V with flash attention alone).
"""

import ctypes

import llama_cpp

from llama_family import BATCH, LlamaPeer
from protocol import Refused, serve

FLASH_ON, FLASH_OFF = 1, 0  # enum llama_flash_attn_type


@llama_cpp.llama_log_callback
def be_silent(level, text, user):
    """llama.cpp says much while it loads."""


class Peer(LlamaPeer):
    settings = ("", "noflash")

    def __init__(self):
        super().__init__()
        llama_cpp.llama_log_set(be_silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.path = self.loaded = None

    def name(self):
        return f"llama.cpp of llama-cpp-python {llama_cpp.__version__}"

    def load(self, file, setting):
        if self.path != file:
            if self.loaded:
                llama_cpp.llama_model_free(self.loaded)
            params = llama_cpp.llama_model_default_params()
            params.n_gpu_layers = 0
            self.loaded = llama_cpp.llama_model_load_from_file(file.encode(), params)
            self.path = file if self.loaded else None
        if not self.loaded:
            raise Refused("llama.cpp cannot load the file")
        return llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.loaded))

    def make(self, kind, setting, threads, context):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kind
        params.flash_attn_type = FLASH_OFF if setting else FLASH_ON
        return llama_cpp.llama_init_from_model(self.loaded, params)

    def forget(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def decode(self, tokens, count, at):
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, count)) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)

    def last_logits(self):
        return llama_cpp.llama_get_logits_ith(self.context, -1)

    def close(self):
        llama_cpp.llama_free(self.context)
        self.context = None


if __name__ == "__main__":
    serve(Peer())
