# SPDX-License-Identifier: MIT
"""What storing the KV cache in fewer bits costs in llama.cpp, measured as `kvern eval` measures it.

    bench/peers/python bench/peers/llama_quality.py KVERN MODEL --text FILE --kv LIST

The text is cut into windows of the same tokens as those of `kvern eval`, and the second half of each
is scored. A storage is compared with llama.cpp's own f16, flash attention on for both, in batches of
512 tokens. Prints JSON with the entries of `kvern eval --json`.
"""

import argparse
import ctypes
import dataclasses
import json
import math
import subprocess
import sys

import llama_cpp
import numpy as np

from llama_model import BATCH, Peer
from protocol import Refused, take_output

REFERENCE = "f16"

# Bits of a stored number, with its share of the block's scale and offset: 32 numbers are a block.
BITS = {"f16": 16, "bf16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5}


def bits_of(storage):
    """None when that is not known."""
    return BITS.get(storage.removesuffix("-noflash"))


def exponentials(logits):
    """Logits less the largest one, their exp, and the sum of that in float64."""
    shifted = logits - logits.max()
    powers = np.exp(shifted)
    return shifted, powers, float(powers.sum(dtype=np.float64))


@dataclasses.dataclass
class Divergence:
    """How far predictions are from those of a reference, and from the text."""

    loss: float = 0.0  # sum of -ln p(next token)
    same_top: int = 0
    all: list = dataclasses.field(default_factory=list)  # KL divergences, in nats

    def add(self, reference, candidate, following):
        """Logits [positions, vocabulary] of both, and the token that followed each position. A position at
        a time, in float32: vocabularies have up to 262144 tokens, and so a row stays in the cache."""
        for wanted, own, token in zip(reference, candidate, following):
            q, _, q_sum = exponentials(own)
            kl, same = 0.0, True
            if candidate is not reference:
                p, powers, p_sum = exponentials(wanted)
                kl = float(np.dot(powers, p - q)) / p_sum + math.log(q_sum) - math.log(p_sum)
                same = int(p.argmax()) == int(q.argmax())
            self.all.append(max(kl, 0.0))  # rounding: it is never negative
            self.same_top += same
            self.loss += math.log(q_sum) - float(q[token])

    def row(self, storage):
        """An entry of "rows"."""
        count = len(self.all)
        return {
            "kv": storage, "kv_bits": bits_of(storage), "ppl": math.exp(self.loss / count),
            "kld_mean": math.fsum(self.all) / count, "kld_p99": sorted(self.all)[math.ceil(0.99 * count) - 1],
            "kld_max": max(self.all), "same_top": self.same_top / count,
        }


class Model(Peer):
    """A model with one storage."""

    def __init__(self, storage, threads, window, file):
        super().__init__()
        self.model(storage, threads, window, file)

    def beginning(self):
        """The tokens that stand before every text."""
        vocabulary = llama_cpp.llama_model_get_vocab(self.loaded)
        adds = llama_cpp.llama_vocab_get_add_bos(vocabulary)
        return [llama_cpp.llama_vocab_bos(vocabulary)] if adds else []

    def logits_of(self, tokens, start, scored):
        """Forwards tokens, the first of which is at position `start`; logits of the positions in the
        range `scored`, valid until the next call."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = start + i in scored
        failed = llama_cpp.llama_decode(self.context, batch)
        wanted = sum(batch.logits[i] for i in range(len(tokens)))
        llama_cpp.llama_batch_free(batch)
        if failed:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        if not wanted:
            return np.empty((0, self.vocabulary), dtype=np.float32)
        values = ctypes.cast(llama_cpp.llama_get_logits(self.context), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(values, (wanted, self.vocabulary))


def run_window(models, results, tokens):
    """One window of all storages; the first model is the reference."""
    scored = range(len(tokens) // 2, len(tokens) - 1)  # nothing follows the last token
    for model in models:
        model.forget()
    for start in range(0, len(tokens), BATCH):
        part = tokens[start:start + BATCH]
        logits = [model.logits_of(part, start, scored) for model in models]
        first = max(start, scored.start)
        following = tokens[first + 1:first + 1 + len(logits[0])]
        for values, result in zip(logits, results):
            result.add(logits[0], values, following)


def text_ids(program, model, text):
    """The tokens that kvern eval reads, behind the beginning of a sequence for models that want one."""
    command = [program, "tokenize", model, "--file", text, "--no-control", "--json"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [token["id"] for token in json.loads(answer)["tokens"]]


def evaluate(options):
    storages = [REFERENCE, *options.kv.split(",")]
    unknown = [storage for storage in storages if bits_of(storage) is None]
    if unknown:
        raise Refused(f"the bits of {', '.join(unknown)} are not known")
    models = [Model(storage, options.threads, options.ctx, options.model) for storage in storages]
    results = [Divergence() for _ in models]
    begin = models[0].beginning()
    ids = text_ids(options.program, options.model, options.text)
    ids = ids[len(begin):] if ids[:len(begin)] == begin else ids  # every window gets its own
    size = options.ctx - len(begin)
    windows = min(options.windows, len(ids) // size)
    if windows == 0:
        raise Refused(f"the text has {len(ids)} tokens, less than one window of {options.ctx}")
    for index in range(windows):
        run_window(models, results, begin + ids[index * size:(index + 1) * size])
    return {"peer": models[0].name(), "windows": windows, "window": options.ctx, "positions": len(results[0].all),
            "rows": [result.row(storage) for storage, result in zip(storages, results)]}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("program", help="kvern, for the text's tokens")
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--kv", default="q8_0,q4_0", help="default: %(default)s")
    parser.add_argument("--ctx", type=int, default=1024, help="tokens of a window; default: %(default)s")
    parser.add_argument("--windows", type=int, default=1, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--json", action="store_true", help="what is printed in any case")
    answers = take_output()
    try:
        print(json.dumps(evaluate(parser.parse_args(arguments))), file=answers)
    except Refused as refusal:
        sys.exit(f"llama_quality.py: {refusal}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
