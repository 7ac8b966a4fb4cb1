# SPDX-License-Identifier: MIT
"""What the project aims at, beside what was measured."""

import dataclasses
import statistics

from report_models import best_peers, memory_share
from serving_cells import FEW_ANSWERS, serving_ratios


@dataclasses.dataclass(frozen=True)
class Aim:
    """One line of the table. `values` are what every cell that it speaks of reached, in the unit of
    `wanted`; it is met when all of them reach it."""

    what: str
    wanted: float
    unit: str  # "%" or "x"
    values: tuple

    @property
    def verdict(self):
        if not self.values:
            return "not measured"
        return "met" if min(self.values) >= self.wanted else "**missed**"

    def show(self, value):
        return f"{100 * value:.0f}%" if self.unit == "%" else f"{value:.2f}x"

    @property
    def measured(self):
        if not self.values:
            return ""
        if len(self.values) == 1:
            return self.show(self.values[0])
        reached = sum(value >= self.wanted for value in self.values)
        return (f"lowest {self.show(min(self.values))}, median {self.show(statistics.median(self.values))}; "
                f"{reached} of {len(self.values)} cells reach it")


def roofline_aims(results):
    decode = [cell.share for cell in results.select(phase="decode", storage="bf16")
              if cell.positions >= 8192 and cell.memory_bound]
    window = [cell.fma_share for cell in results.select(phase="window", storage="bf16", new_tokens=512)
              if 2048 <= cell.positions <= 8192]
    return [
        Aim("decode in bf16, 8k positions and more, memory-bound: share of the roofline", 0.75, "%", tuple(decode)),
        Aim("window of 512 new on 2k to 8k in bf16: share of the FMA peak", 0.75, "%", tuple(window)),
    ]


def ratios(cells, storage):
    return tuple(ratio for cell in cells if (ratio := cell.ratio(storage)) is not None)


def peer_aims(results):
    heads = {"storage": "bf16", "head_dim": 128, "q_heads": 32, "kv_heads": 8, "threads": 1}
    decode = results.select(phase="decode", positions=8192, **heads)
    window = results.select(phase="window", positions=2048, new_tokens=512, **heads)
    where = "32 query heads on 8, dim 128"
    return [
        *(Aim(f"decode against ggml's {storage}, {where}, 8k, one thread", 4, "x", ratios(decode, storage))
          for storage in ("f16", "bf16")),
        Aim(f"window against ggml's f16, {where}, 512 on 2048, one thread", 2.5, "x", ratios(window, "f16")),
    ]


def thread_aims(results):
    """Cells where the roofline of two threads permits 1.9 times the speed."""
    speedups = []
    for one in results.select(threads=1, storage="bf16"):
        for two in results.select(threads=2, storage="bf16", phase=one.phase):
            if two.geometry() == one.geometry() and one.best_seconds / two.best_seconds >= 1.9:
                speedups.append(one.seconds / two.seconds)
    return [Aim("2 threads against 1, bf16, where the roofline allows it", 1.9, "x", tuple(speedups))]


def llama_ratios(cells, part, *contexts):
    """Against llama.cpp with an f16 KV cache: with or without flash attention, whichever is faster."""
    found = ([peer["ratios"][part] for peer in cell["peers"]
              if peer["program"] == "llama.cpp" and peer["storage"].startswith("f16") and "refused" not in peer]
             for cell in cells if not contexts or cell["ctx"] in contexts)
    return tuple(min(ratios) for ratios in found if ratios)


def model_aims(results):
    """SmolLM2 against llama.cpp with an f16 KV cache: with or without flash attention, whichever is
    faster."""
    aims = []
    for context, generation in ((0, 1.5), (2048, 2), (7680, 3)):
        for part, wanted in (("prompt", 2), ("generation", generation)):
            aims.append(Aim(f"SmolLM2 against llama.cpp (f16 KV, the faster setting), same threads: {part} at "
                            f"{context}", wanted, "x", llama_ratios(results.model, part, context)))
    return aims


def quantized_aims(results):
    """Every quantized storage against bf16 in the same geometry and on the same threads, and against
    the peer's with as many bits."""
    pairs = {"decode": [], "window": []}
    for cell in results.attention:
        if cell.storage.startswith("q") and (cell.positions >= 8192 or cell.phase == "window"):
            pairs[cell.phase] += [dense.seconds / cell.seconds
                                  for dense in results.select(phase=cell.phase, storage="bf16", threads=cell.threads)
                                  if dense.geometry() == cell.geometry()]
    heads = {"head_dim": 128, "q_heads": 32, "kv_heads": 8, "threads": 1}
    aims = [
        Aim("quantized decode against bf16, 8k positions and more", 1, "x", tuple(pairs["decode"])),
        Aim("quantized windows against bf16", 0.8, "x", tuple(pairs["window"])),
    ]
    for storage, peer in (("q8", "q8_0"), ("q4", "q4_0")):
        cells = results.select(phase="decode", storage=storage, positions=8192, **heads)
        aims.append(Aim(f"{storage} decode against ggml's {peer}, 32 query heads on 8, dim 128, 8k, one thread", 6,
                        "x", ratios(cells, peer)))
    return aims


def second_model_aims(results):
    """Gemma 3 270M against llama.cpp with an f16 KV cache, the faster setting, at every context."""
    cells = results.models.get("gemma3-270m", [])
    values = (ratio for part in ("prompt", "generation") for ratio in llama_ratios(cells, part))
    return [Aim("Gemma 3 270M against llama.cpp (f16 KV, the faster setting), same threads: prompt and generation", 1,
                "x", tuple(values))]


def row_aims(results):
    """Rows that share pages or are computed together, and drafts: against ourselves without."""
    speeds = tuple(cell["speed"] for cell in results.sharing)
    repeating = tuple(text["draft_tokens_per_s"] / text["plain_tokens_per_s"] for data in results.drafts
                      for text in data["texts"] if text["text"] == "repeats itself")
    batches = tuple(speeds[8] / speeds[1] for threads, speeds in results.batches.items()
                    if threads == 2 and {1, 8} <= speeds.keys())
    calls = tuple(20000 / item["ns"] for data in results.long for item in data["items"]
                  if item["name"] in ("join", "extract", "keep"))
    return [
        Aim("8 rows that share 2048 positions, decode of groups 1 to 3 against unshared rows", 2, "x", speeds),
        Aim("batch of 8 SmolLM2 rows against one row, both threads: tokens per second", 3, "x", batches),
        Aim("n-gram drafts on a text that repeats itself against plain decode, SmolLM2", 1.5, "x", repeating),
        Aim("20 us over the time of join, extract and keep at 32768 positions, 30 layers", 1, "x", calls),
    ]


# Presets, and what llama.cpp has of their size.
PRESET_PEERS = (("light", "q8_0"), ("balanced", "q4_0"), ("small", "q4_0"))
FEW_BITS = 4.5


def storage_aims(results):
    """What few bits cost every model, and what they cost in llama.cpp."""
    best, pairs = [], []
    for stored in results.stored.values():
        few = [row for row in stored.rows.values() if row["kv_bits"] <= FEW_BITS]
        best += [min(few, key=lambda row: row["kld_mean"])] if few else []
        pairs += [(stored.rows[ours], stored.peers[theirs]) for ours, theirs in PRESET_PEERS
                  if ours in stored.rows and theirs in stored.peers]
    few = f"the best storage of at most {FEW_BITS} bits, each model"
    return [
        Aim(f"0.005 over the mean KL divergence of {few}", 1, "x", tuple(0.005 / row["kld_mean"] for row in best)),
        Aim(f"same top token as bf16 with {few}", 0.97, "%", tuple(row["same_top"] for row in best)),
        Aim("mean KL divergence of llama.cpp's q8_0 over that of light, of its q4_0 over those of balanced and small",
            1, "x", tuple(theirs["kld_mean"] / ours["kld_mean"] for ours, theirs in pairs)),
        Aim("bits of llama.cpp's q8_0 over those of light, of its q4_0 over those of balanced and small", 1, "x",
            tuple(theirs["kv_bits"] / ours["kv_bits"] for ours, theirs in pairs)),
    ]


def code_aims(results):
    """Codes of rotated vectors beside bf16, and how fast they are made."""
    decodes = [cell for cell in results.codes if cell.data["phase"] == "decode" and cell.storage[:2] in ("tq", "rq")]
    appends = [cell for cell in results.codes if cell.data["phase"] == "append" and cell.storage[:2] in ("tq", "rq")]
    return [
        Aim("rotated and turbo decode against bf16, dim 128, 8k, one thread", 1, "x",
            tuple(cell.speed for cell in decodes)),
        Aim("GB/s of bf16 that become rotated and turbo codes, one thread", 1, "x",
            tuple(cell.bytes_per_second / 1e9 for cell in appends)),
    ]


def rollback_speed(cell):
    """Of a rollback: the cost of the tokens once more and of a copy of the state over its own."""
    return (cell.data["again_ms"] + cell.data["copy_ms"]) / cell.data["ms"]


def layer_aims(results):
    """Latents, recurrent layers, selections: shares, and peers that compute the same. NumPy is no aim."""
    latent = {phase: [cell for cell in results.latent
                      if cell.data["phase"] == phase and cell.data["storage"] == "bf16"]
              for phase in ("decode", "window")}
    delta = {phase: [cell for cell in results.recurrent if cell.data["phase"] == phase]
             for phase in ("decode", "window", "rollback")}
    # A few new tokens beside mlx are no window.
    windows = [cell for cell in latent["window"] if cell.data["new_tokens"] * cell.data["q_heads"] >= 8192]
    aims = [
        Aim("latents, absorbed decode, 16 and 128 heads, 8k, bf16: share of the roofline", 0.75, "%",
            tuple(cell.data["roofline_share"] for cell in latent["decode"])),
        Aim("latents, windows on 8k, bf16: share of the FMA peak", 0.70, "%",
            tuple(cell.fma_share for cell in windows)),
        Aim("gated delta decode: share of the memory bandwidth", 0.75, "%",
            tuple(cell.bandwidth_share for cell in delta["decode"] if cell.data["kind"] == "delta")),
        Aim("gated delta window: share of the FMA peak", 0.60, "%",
            tuple(cell.fma_share for cell in delta["window"] if cell.data["kind"] == "delta")),
        Aim("the tokens of a round once more and a copy of the state over its rollback", 1, "x",
            tuple(rollback_speed(cell) for cell in delta["rollback"])),
        Aim("top-2048 of 64k index keys: share of the FMA peak", 0.60, "%",
            tuple(cell.data["fma_share"] for cell in results.selections)),
        Aim("a tenth of the selection over the choice of the best in it", 1, "x",
            tuple(0.1 / cell.data["pick_share"] for cell in results.selections)),
    ]
    for what, cells in (("latents, decode", latent["decode"]), ("latents, window", latent["window"]),
                        ("gated delta, decode", delta["decode"]), ("gated delta, window", delta["window"]),
                        ("index scores and top-k", results.selections)):
        aims += [Aim(f"{what} against {peer}", 3, "x",
                     tuple(cell.ratio for cell in cells if cell.peer.startswith(peer))) for peer in ("ggml", "mlx")]
    return aims


def store_aims(results):
    """First tokens behind a stored prefix against computing it, files against disk and memory."""
    speeds = {name: tuple(item["speed"] for data in results.first_tokens for item in data["items"]
                          if item["name"].startswith(name)) for name in ("memory", "disk")}
    files = [{item["name"]: item for item in data["items"]} for data in results.files]
    lookups = tuple(50 / cell[kind]["us"] for cell in results.lookups if cell["entries"] == 100000
                    for kind in ("found", "missed"))
    return [
        Aim("first token behind 4096 stored tokens, SmolLM2, from memory against none stored", 20, "x",
            speeds["memory"]),
        Aim("the same from disk, the directory open or not, in the system's memory or not", 10, "x", speeds["disk"]),
        Aim("50 us over a lookup among 100,000 entries behind 8192 common tokens", 1, "x", lookups),
        Aim("5 ms over mapping a file of 1 GiB", 1, "x", tuple(5 / items["load"]["ms"] for items in files)),
        Aim("saving: share of a plain write that is synced", 0.80, "%",
            tuple(items["write"]["ms"] / items["save"]["ms"] for items in files)),
        Aim("verification: share of memory read speed", 0.80, "%",
            tuple(items["read"]["ms"] / items["verify"]["ms"] for items in files)),
    ]


def strongest_aims(results):
    """Both models against the fastest peer of all, and against the memory."""
    prompts, generations, shares = [], [], []
    for name in results.models:
        prompts += [ratio for _, _, ratio in best_peers(results, name, "prompt")]
        generations += [ratio for _, _, ratio in best_peers(results, name, "generation")]
        shares += [share for cell in results.models[name] if (share := memory_share(cell))]
    batches = tuple(speeds[size] / (size * speeds[1]) for speeds in results.behind.values() if 1 in speeds
                    for size in sorted(speeds) if size > 1)
    return [
        Aim("both models against the fastest peer, same threads: prompts at all contexts", 1.5, "x", tuple(prompts)),
        Aim("both models against the fastest peer, same threads: generation at all contexts", 1, "x",
            tuple(generations)),
        Aim("generation, both models: share of what the memory gives for tensors and cache", 0.90, "%", tuple(shares)),
        Aim("batches of 4, 8, 16 rows behind 2048 tokens: share of as many times one row", 0.80, "%", batches),
    ]


def read_aims(results):
    """Every read, near and far."""
    reads = [cell.share for cell in results.attention
             if cell.storage in ("bf16", "q8", "q4") and (cell.positions >= 8192 or cell.phase == "window")]
    return [
        Aim("reads in bf16, q8 and q4, all dims and groups, 8k positions and more, windows: share of the roofline",
            0.85, "%", tuple(reads)),
        Aim("decode of one row of 128k and 1M positions, all threads: share of the roofline", 0.85, "%",
            tuple(cell["roofline_share"] for cell in results.long_reads)),
        *(Aim(f"attention against {peer}, one thread", 3, "x",
              tuple(cell.ratio for cell in results.reads if cell.peer.startswith(peer))) for peer in ("mlx", "numpy")),
    ]


def start_aims(results):
    """Starts and memory of both models, against each peer."""
    pairs = []  # ours and a peer's
    for data in (data for datas in results.starts.values() for data in datas):
        ours, *peers = data["rows"]
        pairs += [(ours, peer) for peer in peers if "refused" not in peer]
    own = [data["rows"][0] for datas in results.starts.values() for data in datas]
    return [
        Aim("100 ms over a second start, to the first token, both models", 1, "x",
            tuple(0.1 / row["second_s"] for row in own)),
        Aim("first token of a second start against every peer", 1, "x",
            tuple(peer["second_s"] / ours["second_s"] for ours, peer in pairs)),
        Aim("first token of a first start against every peer", 1, "x",
            tuple(peer["first_s"] / ours["first_s"] for ours, peer in pairs)),
        Aim("peak memory of llama.cpp over that of kvern run", 1, "x",
            tuple(peer["peak_bytes"] / ours["peak_bytes"] for ours, peer in pairs if peer["program"] == "llama")),
    ]


def serving_aims(results):
    """All three in the same cells."""
    cells = [(ours, results.peer_serving.get((clients, shared)))
             for (clients, shared, parallel), ours in sorted(results.serving.items()) if parallel == FEW_ANSWERS]
    better = [serving_ratios(ours, peer) for ours, peer in cells if peer]
    where = f"1, 8, 32 clients, shared prompts and others, `kvern serve --parallel {FEW_ANSWERS}` against llama.cpp's"
    return [
        *(Aim(f"{where}: {what}", wanted, "x", tuple(ratios[name] for ratios in better))
          for name, what, wanted in (("throughput", "tokens per second", 3), ("first", "time to the first token", 2),
                                     ("between", "time between tokens", 1))),
        Aim("3% over the part of the server's processor time that HTTP takes", 1, "x",
            tuple(0.03 / max(ours["other_threads_share"], 1e-6) for ours in results.serving.values())),
    ]


def all_aims(results):
    return [*roofline_aims(results), *peer_aims(results), *thread_aims(results), *model_aims(results),
            *quantized_aims(results), *second_model_aims(results), *row_aims(results), *storage_aims(results),
            *code_aims(results), *layer_aims(results), *store_aims(results), *strongest_aims(results),
            *serving_aims(results), *read_aims(results), *start_aims(results)]
