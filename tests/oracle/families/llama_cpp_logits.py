# SPDX-License-Identifier: MIT
"""llama.cpp's log probabilities of small models, by the xllamacpp package."""

import numpy as np
import xllamacpp

from family_case import TOKENS


class LlamaCpp:
    """A file in llama.cpp's server: float32 caches, no flash attention."""

    def __init__(self, path, vocabulary):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = 2 * TOKENS
        params.n_parallel = 1
        params.port = 0
        params.warmup = False
        params.verbosity = -1
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.chat_template = "chatml"
        self.server = xllamacpp.Server(params)
        self.vocabulary = vocabulary

    def log_probabilities(self, tokens):
        """Of every token behind these."""
        answer = self.server.handle_completions(
            {
                "prompt": tokens,
                "n_predict": 1,
                "n_probs": self.vocabulary,
                "temperature": 0.0,
                "cache_prompt": False,
            }
        )
        row = np.full(self.vocabulary, np.nan)
        for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            row[entry["id"]] = entry["logprob"]
        return row
