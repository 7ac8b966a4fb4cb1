# SPDX-License-Identifier: MIT
"""A whole model in OpenVINO GenAI, as a peer of `kvern bench model`.

Storages are its two ways to attend: "paged" (what it takes by itself, with keys and values of 8
bits), "paged-bf16" and "sdpa". It generates by itself and tells the times: a prompt ends with its
first token. The store of prefixes is off, so that a prompt is computed. It gives no logits.
"""

import numpy
import openvino
import openvino_genai

from protocol import Refused, rest, serve

# Tokens of a prompt that are computed at a time.
BATCH = 512


def make(file, storage, threads):
    """The pipeline."""
    settings = {"INFERENCE_NUM_THREADS": threads}
    if storage.startswith("paged"):
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_batched_tokens = BATCH
        settings.update(ATTENTION_BACKEND="PA", scheduler_config=scheduler)
    else:
        settings["ATTENTION_BACKEND"] = "SDPA"
    if storage == "paged-bf16":
        settings["KV_CACHE_PRECISION"] = "bf16"
    return openvino_genai.LLMPipeline(file, "CPU", **settings)


class Peer:
    """What the lines of the protocol call."""

    def __init__(self):
        self.pipeline = None

    def name(self):
        return f"OpenVINO GenAI {openvino_genai.__version__}"

    def model(self, storage, threads, context, file):
        if storage not in ("paged", "paged-bf16", "sdpa"):
            raise Refused(f"there is no storage {storage}")
        try:
            self.pipeline = make(file, storage, int(threads))
        except RuntimeError as error:
            reasons = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Refused(reasons[-1][:120] if reasons else "it cannot read the file") from error
        self.vocabulary = len(self.pipeline.get_tokenizer().get_vocab())
        self.answer(16, 2)

    def answer(self, count, tokens):
        """Seconds of a prompt of the text that `kvern bench model` uses, up to the first token, and of each of the
        others."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = tokens, True, False
        text = numpy.array([[(i * 7919 + 13) % self.vocabulary for i in range(count)]], numpy.int64)
        metrics = self.pipeline.generate(openvino.Tensor(text), config).perf_metrics
        if metrics.get_num_generated_tokens() != tokens:
            raise RuntimeError("another number of tokens was generated")
        return metrics.get_ttft().mean / 1e3, metrics.get_tpot().mean / 1e3

    def time(self, context, prompt, generate):
        context, prompt, generate = int(context), int(prompt), int(generate)
        first, each = self.answer(prompt, generate + 1 if context else 1)
        if context == 0:  # generation begins behind one token
            _, each = self.answer(1, generate + 1)
        rest()
        return f"{first:.9f} {each * generate:.9f}"

    def logits(self, count):
        raise Refused("it gives no logits")

    def close(self):
        self.pipeline = None


if __name__ == "__main__":
    serve(Peer())
