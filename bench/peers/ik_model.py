# SPDX-License-Identifier: MIT
"""A whole model in ik_llama.cpp, as a peer of `kvern bench model`.

As llama_model.py, with that program's own ways: weights repacked when they are loaded ("-rtr"), and
the projections of queries, keys and values merged ("-mqkv" is both). Flash attention is on.
"""

import ctypes
import importlib.util
import pathlib

from llama_family import BATCH, LlamaPeer
from protocol import Refused, serve

# Built from source, the package's library does not find the one that it needs beside it.
FOLDER = pathlib.Path(importlib.util.find_spec("ik_llama_cpp").origin).parent / "lib"
ctypes.CDLL(str(FOLDER / "libggml.so"), mode=ctypes.RTLD_GLOBAL)

from ik_llama_cpp import __version__  # noqa: E402
from ik_llama_cpp import _ctypes_api as ik  # noqa: E402


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def be_silent(level, text, user):
    """It says much while it loads."""


class Peer(LlamaPeer):
    settings = ("", "rtr", "mqkv")

    def __init__(self):
        super().__init__()
        ik._lib.llama_log_set(be_silent, ctypes.c_void_p(0))
        ik.llama_backend_init()
        self.loaded = None

    def name(self):
        return f"ik_llama.cpp of ik-llama-cpp-python {__version__}"

    def load(self, file, setting):
        if self.loaded:
            ik.llama_free_model(self.loaded)
        params = ik.llama_model_default_params()
        params.n_gpu_layers = 0
        params.repack_tensors = setting != ""
        params.use_mmap = setting == ""  # what is repacked cannot stay in the file
        params.merge_qkv = setting == "mqkv"
        self.loaded = ik.llama_model_load_from_file(file.encode(), params)
        if not self.loaded:
            raise Refused("ik_llama.cpp cannot load the file")
        return ik.llama_vocab_n_tokens(ik.llama_model_get_vocab(self.loaded))

    def make(self, kind, setting, threads, context):
        params = ik.llama_context_default_params()
        params.n_ctx = context
        params.n_batch = params.n_ubatch = BATCH
        params.n_threads = params.n_threads_batch = threads
        params.type_k = params.type_v = kind
        params.flash_attn = True
        return ik.llama_init_from_model(self.loaded, params)

    def forget(self):
        ik.llama_kv_cache_clear(self.context)

    def decode(self, tokens, count, at):
        batch = ik.llama_batch(n_tokens=count, token=tokens, all_pos_0=at, all_pos_1=1, all_seq_id=0)
        if ik.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def last_logits(self):
        return ik.llama_get_logits_ith(self.context, -1)

    def close(self):
        ik.llama_free(self.context)
        self.context = None


if __name__ == "__main__":
    serve(Peer())
