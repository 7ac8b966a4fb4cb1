# SPDX-License-Identifier: MIT
"""Writes the page of a machine, docs/perf/<machine>/tables.md, and its plots from the results of
bench/peers/run.py, and docs/PERF.md from the pages of all machines.

    python3 bench/peers/report.py RESULTS [DOCS]

Storages, peers' storages, geometries and threads are those that the results hold.
"""

import math
import pathlib
import re
import sys

import summary
import svg
from aims import PRESET_PEERS, all_aims
from report_layers import LAYERS_TITLE, LONG_TITLE, READS_TITLE, layers_part, long_part, reads_part
from report_models import MODEL_TITLES, START_TITLE, model_parts, start_part
from results import Results
from serving_cells import serving_ratios
from summary import rows_of, sections_of, short_part
from tables import (CACHE_FOOTNOTE, CACHE_MARK, WARNING, duration, foreign_text, measured_on, milliseconds, range_text,
                    ratio_text, table, thread_text, warning_part)

INTRO = """# Performance: all tables

Made by `make bench-peers`, which measures everything again and writes this page; do not edit it. All is about one
machine; [PERF.md](../../PERF.md) has all machines side by side, in short. Parts that a run did not measure
(`BENCH="--only ..."`) stay as an earlier run left them. A ratio is the peer's time over ours (for tokens per second:
our speed over the peer's): above 1, Kvern is faster. Cells where the peer is faster are marked **bold**.
"""

METHOD = """## How it is measured

- One program runs both: `kvern bench attention` and `kvern bench model` start the peer as another process
  (`bench/measure/peer.h`) and let it do the same work in between, run by run. Numbers are medians; ranges are
  quartiles for attention and the lowest and highest for models.
- The attention peer is ggml's `ggml_flash_attn_ext` on its CPU backend, with tensors as llama.cpp lays them out (a
  token's KV heads side by side), f32 queries, a mask for windows and none for decodes. K and V are stored in the type
  that the column names. The model peer is llama.cpp with batches of 512 tokens, flash attention on (`-noflash`: off),
  and K and V in the named type. Both are built from source on this machine with its instruction set (`GGML_NATIVE`).
- Both sides fill K, V and the queries with the same numbers, and the results are compared after every cell: the
  difference is the norm of the difference over the norm of ours. Before anything is timed, all head dims, groups and
  threads are compared on 64 positions, where one wrong position would show.
- Decode reads cycle through 512 MB of rows, so that they come from memory. Reads that take less than 5 ms are timed
  directly behind another one, so that threads are awake; a process that has run waits until its threads sleep.
- The roofline is the larger of bytes / bandwidth and multiply-adds / peak, both measured on the same threads between
  the runs of each cell: reading a buffer of 512 MB, and chains of FMA in registers, with the widest instructions that
  the library uses. A recurrent layer writes as much as it reads: its bandwidth, `limit_bytes_per_s`, is that of a loop
  that multiplies the numbers of that buffer in place, both directions counted.
- Latents, recurrent layers and selections (`kvern bench attention --kind latent`, `bench recurrent`, `bench select`)
  are measured the same way beside one peer at a time. ggml: `ggml_flash_attn_ext` whose values are a view of the keys,
  `ggml_gated_delta_net` behind `ggml_ssm_conv`, `ggml_lightning_indexer` before `ggml_top_k`. MLX, on one thread, in
  float32, from its wheel for Linux: the absorbed attention as matrix products (faster there than
  `mx.fast.scaled_dot_product_attention`), mlx-lm's `gated_delta_update` behind the convolution, index scores as
  products before `argpartition`. Matrix products of that wheel are those of the reference BLAS; so NumPy computes the
  same, with OpenBLAS on one thread. No peer is asked for Mamba2.
- Recurrent decodes cycle through 512 MB of states; the first tokens of an empty row are what is compared. Of
  selections it is which positions are listed: a difference of 0.03 is one of 2048 that another rounding of the keys
  exchanged.
- Models: the prompt speed at a context of C is the average over a prompt of C tokens (512 for C = 0), the generation
  speed that of 32 tokens behind it. The KV cache of Kvern is bf16. "Of the memory" is the speed that reading all
  tensors and the row's cache once for a token would permit, with the bandwidth measured between the rounds.
- Every program with models is measured in steps of its own beside Kvern, and its ratios are those of its steps.
  ik_llama.cpp is built from source like llama.cpp; `-rtr`: its weights are repacked when they are loaded. OpenVINO
  GenAI reads the GGUF file; `paged` is what it does by itself (keys and values of 8 bits), `paged-bf16` the same with
  those in bf16, `sdpa` its other way to attend; its store of prefixes is off, and a prompt's time is that to its first
  token. It gives no logits to compare.
- Not measured: PyTorch (its wheel on PyPI brings the libraries of CUDA, gigabytes of them, and is needed for nothing
  else here); ONNX Runtime GenAI (it reads no GGUF file, and what converts models to its form needs PyTorch).
"""


def measured_text(steps, old):
    """Days and commits, with those that an old text names."""
    days, _, commits = old.partition(", commit ")
    known = [set(filter(None, text.split(", "))) for text in (days, commits)]
    return (", ".join(sorted(known[0] | set(steps.dates))) + ", commit "
            + ", ".join(sorted(known[1] | set(steps.commits))))


def machine_part(results, old):
    """What is not known now is as an old part says."""
    machine, known = results.machine, rows_of(old)
    rows = {
        "processor": f"{machine.get('cpu', 'unknown')}, {machine.get('processors', '?')} processors",
        "memory": f"{machine.get('memory_bytes', 0) / 2**30:.0f} GiB",
        "system, compiler": f"{machine.get('system', '?')}; {machine.get('compiler', '?')}",
        "instruction set of Kvern": ", ".join(results.instructions),
    }
    for threads in (1, 2, *results.threads()):
        if threads in results.threads():
            bandwidth, fma = results.limits(threads)
            rows[f"limits, {thread_text(threads)}"] = (f"{bandwidth / 1e9:.1f} GB/s read, {fma / 1e9:.1f} billion "
                                                       "FMA/s")
        elif f"limits, {thread_text(threads)}" in known:
            rows[f"limits, {thread_text(threads)}"] = ""
    if results.steps.foreign_shares:
        rows["processors' time that others took meanwhile"] = foreign_text(results.steps)
    rows["measured"] = measured_text(results.steps, known.get("measured", [""])[0])
    rows["peers"] = ", ".join(results.peer_names)
    rows["build of the peers"] = machine.get("peer_build", "?").replace("|", "/")
    return "## Machine\n\n" + table(("", ""), [(what, text or known.get(what, ["?"])[0])
                                               for what, text in rows.items()])


def words(values):
    return ", ".join(str(value) for value in sorted(set(values)))


def coverage_part(results, old):
    """What the verdicts below stand on: a short run measures few cells. What it leaves out stays."""
    lines = {}
    if results.attention:
        cells = results.attention
        lines["attention"] = (f"head dims {words(cell.head_dim for cell in cells)}; query heads per KV head "
                              f"{words(cell.q_heads // cell.kv_heads for cell in cells)}; positions "
                              f"{words(cell.positions for cell in cells)}")
    for name, cells in results.models.items():
        single = all(cell["prompt_low"] == cell["prompt_high"] for cell in cells)
        lines[MODEL_TITLES.get(name, name)] = (
            f"context and threads {words((cell['ctx'], cell['threads']) for cell in cells)}"
            + ("; **one round each, so no spread**" if single else ""))
    known = dict(line[2:].split(": ", 1) for line in old.splitlines() if line.startswith("- "))
    lines = {**known, **lines}
    if not lines:
        return ""
    return "\n".join(["## What was measured\n", "Verdicts below are about these cells alone.\n",
                      *(f"- {what}: {text}" for what, text in lines.items()), ""])


def aims_part(results, old):
    """What was not measured now keeps what the old part says."""
    known = {line.split(" | ")[0]: line for line in old.splitlines() if line.startswith("| ")}
    lines = []
    for aim in all_aims(results):
        line = "| " + " | ".join((aim.what, aim.show(aim.wanted), aim.measured, aim.verdict)) + " |"
        lines.append(line if aim.values else known.get(f"| {aim.what}", line))
    return "\n".join(["## Aims\n", table(("what", "at least", "measured", ""), []) + "\n".join(lines), ""])


def peer_storages(cells):
    return list(dict.fromkeys(peer.storage for cell in cells for peer in cell.peers))


def attention_row(cell, storages):
    row = [
        str(cell.head_dim), cell.heads, str(cell.positions),
        f"{milliseconds(cell.seconds)} ({milliseconds(cell.low)}-{milliseconds(cell.high)})",
        f"{cell.bytes / cell.seconds / 1e9:.1f}", f"{cell.fma / cell.seconds / 1e9:.1f}",
        f"{100 * cell.share:.0f}%" + (CACHE_MARK if cell.from_cache else ""),
    ]
    peers = {peer.storage: peer for peer in cell.peers}
    for storage in storages:
        peer = peers.get(storage)
        row += [f"{milliseconds(peer.seconds)} ({milliseconds(peer.low)}-{milliseconds(peer.high)})",
                ratio_text(cell.ratio(storage))] if peer else ["-", "-"]
    return row


def attention_tables(results, phase):
    """One table per storage and number of threads."""
    parts = []
    for storage in results.storages():
        for threads in results.threads():
            cells = results.select(phase=phase, storage=storage, threads=threads)
            if not cells:
                continue
            storages = peer_storages(cells)
            head = ["dim", "heads", "positions", "ms", "GB/s", "GFMA/s", "roofline"]
            for peer in storages:
                head += [f"ggml {peer} ms", "ratio"]
            new = f", {cells[0].new_tokens} new tokens" if phase == "window" else ""
            parts.append(f"### {phase.capitalize()}, {storage}, {thread_text(threads)}{new}\n\n"
                         + table(head, [attention_row(cell, storages) for cell in cells])
                         + (CACHE_FOOTNOTE if any(cell.from_cache for cell in cells) else ""))
    return "\n".join(parts)


def faster_peers(results):
    """Every cell in which a peer is faster, in a sentence or a list."""
    lost = [(cell, peer) for cell in results.attention for peer in cell.peers if peer.seconds < cell.seconds]
    count = sum(len(cell.peers) for cell in results.attention)
    if not lost:
        return f"The peer is faster in none of the {count} comparisons below.\n"
    lines = [f"- {cell.phase}, {cell.storage} against {peer.storage}, dim {cell.head_dim}, {cell.heads} heads, "
             f"{cell.positions} positions, {thread_text(cell.threads)}: {cell.ratio(peer.storage):.2f}x"
             for cell, peer in lost]
    return f"The peer is faster in {len(lost)} of the {count} comparisons below:\n\n" + "\n".join(lines) + "\n"


def differences(results):
    """How far the peers' results are from ours, per storage."""
    worst = {}
    for cell in [*results.checks, *results.attention]:
        for peer in cell.peers:
            key = (cell.storage, peer.storage)
            worst[key] = max(worst.get(key, 0), peer.difference)
    rows = [(ours, theirs, f"{most:.4f}") for (ours, theirs), most in sorted(worst.items())]
    return "### Differences of the results\n\n" + table(("ours", "ggml", "largest difference"), rows)


def attention_part(results):
    if not results.attention:
        return ""
    return "\n".join([
        "## Attention\n",
        faster_peers(results),
        "![Decode over positions](plots/decode.svg)\n",
        "![Share of the roofline](plots/roofline.svg)\n",
        "![Windows](plots/window.svg)\n",
        attention_tables(results, "decode"),
        attention_tables(results, "window"),
        differences(results),
    ])


# Recipes of kvern_storage_preset.
PRESETS = tuple(preset for preset, _ in PRESET_PEERS)

# From which mean KL divergence on (nats) a storage is called bad: predictions that a user notices.
BAD_DIVERGENCE = 0.1
QUALITY_TITLE = "What storing the KV cache in fewer bits costs"


QUALITY_HEAD = ("perplexity", "KL mean", "KL 99%", "KL largest", "same top token")


def quality_columns(row):
    return [f"{row['ppl']:.4f}", f"{row['kld_mean']:.6f}", f"{row['kld_p99']:.5f}", f"{row['kld_max']:.4f}",
            f"{100 * row['same_top']:.2f}%"]


def bad_text(row):
    return "**bad**" if row["kld_mean"] >= BAD_DIVERGENCE else ""


def stored_table(stored):
    """Ours and llama.cpp's, from the largest to the smallest."""
    rows = [(f"{program} {row['kv']}", row, speeds.get(row["kv"]))
            for program, datas, speeds in (("Kvern", stored.rows, stored.speeds), ("llama.cpp", stored.peers, {}))
            for row in datas.values()]
    rows.sort(key=lambda entry: -entry[1]["kv_bits"])
    head = ("KV cache", "bits per number", *QUALITY_HEAD, "tokens/s", "")
    return table(head, [[name, f"{row['kv_bits']:.2f}", *quality_columns(row),
                         f"{speed['generation_tokens_per_s']:.0f}" if speed else "-", bad_text(row)]
                        for name, row, speed in rows])


def speed_note(stored):
    for cell in stored.speeds.values():
        return (f" Tokens/s: generation behind {cell['ctx']} tokens, {thread_text(cell['threads'])}, of one run of the "
                "program after the other.")
    return ""


def stored_part(results):
    """Presets beside llama.cpp, by model."""
    parts = []
    for name, stored in results.stored.items():
        title = MODEL_TITLES.get(name, name)
        parts += [f"### In long windows, beside llama.cpp: {title}\n",
                  f"Windows of {stored.window} tokens, the second half scored: {stored.positions} positions."
                  f"{speed_note(stored)}\n",
                  f"![KL divergence over bits, {title}](plots/kv-quality-{name}.svg)\n", stored_table(stored)]
    if parts:
        parts.insert(0, "Of presets, bits per number are those of a sequence as long as the window, with the positions "
                        "that stay in bf16; llama.cpp's storages are compared with its own f16 (flash attention on for "
                        "all), on the same tokens. Its products with quantized keys round the queries as well; its "
                        "f16-noflash tells how far another rounding of attention alone leads. Measured "
                        f"{', '.join(results.stored_steps.dates)}, commit {', '.join(results.stored_steps.commits)}.\n")
    return parts


def subsections_of(text):
    """The parts of a section by their headings; what comes before has ""."""
    parts, heading = {}, ""
    for line in text.splitlines(keepends=True):
        if line.startswith("### "):
            heading = line[4:].strip()
        parts[heading] = parts.get(heading, "") + line
    return parts


def quality_part(results, old):
    """Models that were not measured keep what the old part says."""
    text = measured_quality(results)
    if not text:
        return ""
    fresh = subsections_of(text)
    kept = [part.rstrip("\n") + "\n" for heading, part in subsections_of(old).items() if heading not in fresh]
    return "\n".join([text.rstrip("\n") + "\n", *kept])


def measured_quality(results):
    parts = stored_part(results)
    for name, data in results.quality.items():
        rows = [[row["kv"], *quality_columns(row), str(row["kv_bytes_per_token"]), bad_text(row)]
                for row in data["rows"]]
        head = ("KV cache", *QUALITY_HEAD, "bytes/token", "")
        intro = (f"{data['windows']} windows of {data['window']} tokens, the second half of each scored: "
                 f"{data['positions']} positions.\n")
        parts += [f"### {MODEL_TITLES.get(name, name)}\n", intro, table(head, rows)]
    if not parts:
        return ""
    return "\n".join([f"## {QUALITY_TITLE}\n",
                      "`kvern eval MODEL --text FILE --kv LIST` on the test split of WikiText-2: KL divergence in nats "
                      f"from the same model with bf16. Mean divergences of {BAD_DIVERGENCE} and more are marked "
                      "**bad**: do not use these on models as small as this.\n", *parts])


def overhead_part(results):
    if not results.calls:
        return ""
    rows = []
    calls = [*results.calls, *results.long]
    for name, what in [(item["name"], item["what"]) for item in calls[0]["items"]]:
        items = [item for data in calls for item in data["items"] if item["name"] == name]
        rows.append([what, *(range_text(item["ns"], item["ns_low"], item["ns_high"]) for item in items)])
    if len(results.first) == len(results.calls):
        rows.append(["`kvern run`: from its start to the first byte of the answer to a short question", *(
            range_text(*(1e9 * data[key] for key in ("seconds", "seconds_low", "seconds_high")))
            for data in results.first), *("" for _ in results.long)])
    head = ["what", *(thread_text(data["threads"]) for data in results.calls),
            *(f"{thread_text(data['threads'])}, {data['positions']} positions" for data in results.long)]
    intro = (f"`kvern bench overhead`: the layers of SmolLM2, one row of {results.calls[0]['positions']} positions, "
             "bf16; medians and quartiles.\n")
    return "\n".join(["## Overheads\n", intro, table(head, rows)])


def sharing_table(results):
    rows = [[thread_text(cell["threads"]), str(cell["head_dim"]), f"{cell['q_heads']}/{cell['kv_heads']}",
             *(range_text(*(1e6 * cell[kind][key] for key in ("ms", "ms_low", "ms_high")))
               for kind in ("shared", "alone")),
             f"{cell['speed']:.2f}x", f"{cell['forked_memory']:.2f}x", f"{cell['decoded_memory']:.2f}x"]
            for cell in results.sharing]
    head = ["threads", "dim", "heads", "shared", "unshared", "ratio", "memory of the fork", "with a token each"]
    return table(head, rows)


def batch_text(speeds, size):
    if size not in speeds:
        return "-"
    share = f" ({100 * speeds[size] / size / speeds[1]:.0f}%)" if size > 1 and 1 in speeds else ""
    return f"{speeds[size]:.0f}{share}"


def rows_part(results):
    """Rows that share a prefix, batches and drafts."""
    parts = []
    if results.sharing:
        parts += ["`kvern bench sharing`: decode of 8 rows that were forked behind 2048 positions against 8 rows of "
                  "the same contents, bf16. Memory is that of all rows' pages over one row's.\n",
                  sharing_table(results)]
    if results.batches:
        rows = [[thread_text(threads), *(f"{speeds[size]:.0f}" for size in sorted(speeds)),
                 f"{speeds[max(speeds)] / speeds[min(speeds)]:.2f}x"]
                for threads, speeds in sorted(results.batches.items())]
        sizes = sorted({size for speeds in results.batches.values() for size in speeds})
        parts += ["`kvern bench model --batch`: SmolLM2, generated tokens per second of all rows together.\n",
                  table(["threads", *(f"{size} rows" if size > 1 else "1 row" for size in sizes), "ratio"], rows)]
    if results.behind:
        sizes = sorted({size for speeds in results.behind.values() for size in speeds})
        rows = [[thread_text(threads), str(context), *(batch_text(speeds, size) for size in sizes)]
                for (threads, context), speeds in sorted(results.behind.items())]
        parts += ["The same behind a context, and the share of as many times one row.\n",
                  table(["threads", "context", *(f"{size} rows" if size > 1 else "1 row" for size in sizes)], rows)]
    if results.drafts:
        rows = [[thread_text(data["threads"]), text["text"], f"{text['plain_tokens_per_s']:.0f}",
                 f"{text['draft_tokens_per_s']:.0f}",
                 f"{text['draft_tokens_per_s'] / text['plain_tokens_per_s']:.2f}x "
                 f"({text['ratio_low']:.2f}-{text['ratio_high']:.2f})", f"{text['accepted']} of {text['drafted']}"]
                for data in results.drafts for text in data["texts"]]
        parts += ["`kvern bench draft`: SmolLM2 with n-gram drafts, tokens per second; the tokens are the same.\n",
                  table(["threads", "the text", "plain", "with drafts", "ratio", "accepted"], rows)]
    return "\n".join(["## Rows, batches and drafts\n", *parts]) if parts else ""


STORE_TITLE = "Prefixes that are kept"


def item_times(item):
    return range_text(*(1e6 * item[key] for key in ("ms", "ms_low", "ms_high")))


def token_table(results):
    """Of first tokens, a row for each case."""
    first, *_ = results.first_tokens
    rows = []
    for name, what in [(item["name"], item["what"]) for item in first["items"]]:
        items = [item for data in results.first_tokens for item in data["items"] if item["name"] == name]
        cells = [text for item in items for text in (item_times(item), f"{item['speed']:.0f}x")]
        rows.append([f"`{name}`: {what}", *cells])
    head = ["", *(text for data in results.first_tokens for text in (thread_text(data["threads"]), "ratio"))]
    return table(head, rows)


def file_table(results):
    rows = []
    for name, what in [(item["name"], item["what"]) for item in results.files[0]["items"]]:
        items = [item for data in results.files for item in data["items"] if item["name"] == name]
        # A load reads next to nothing: its bytes have no speed.
        rows.append([f"`{name}`: {what}", *(text for item in items for text in (
            item_times(item), "-" if name.endswith("load") else f"{item['bytes_per_s'] / 1e9:.2f}"))])
    head = ["", *(text for data in results.files for text in (thread_text(data["threads"]), "GB/s"))]
    return table(head, rows)


def times_row(cell, names):
    return [range_text(*(1e3 * cell[name][key] for key in ("us", "us_low", "us_high"))) for name in names]


def store_part(results):
    """Stores in memory and on disk, and files of rows."""
    steps, parts = results.store_steps, []
    if results.first_tokens:
        first = results.first_tokens[0]
        parts += [f"`kvern bench store first-token`: SmolLM2, from the request to the first token of the answer to a "
                  f"prompt of {first['prefix']} tokens that are stored and {first['behind']} that are not.\n",
                  token_table(results)]
    if results.files:
        parts += [f"`kvern bench store file`: a row of {results.files[0]['bytes'] / 2**20:.0f} MiB, 16 layers of bf16. "
                  "Below a virtual machine's disk there may be a host that has the file in memory.\n",
                  file_table(results)]
    if results.lookups:
        names = ("found", "missed", "published")
        rows = [[str(cell["entries"]), str(cell["common"]), *times_row(cell, names)] for cell in results.lookups]
        parts += ["`kvern bench store lookup`: the store in memory. Lookups that take memory end the command.\n",
                  table(["entries", "common tokens", "an entry found", "none found", "published"], rows)]
    if results.directories:
        names = ("opened", "found", "missed", "unchanged", "changed")
        rows = [[str(cell["entries"]), *times_row(cell, names)] for cell in results.directories]
        parts += ["`kvern bench store directory`: the store on disk, its files in memory.\n",
                  table(["entries", "opened", "an entry found", "none found", "looked again", "behind a new entry"],
                        rows)]
    if not parts:
        return ""
    facts = measured_on(results, steps) + " Medians and quartiles.\n"
    return "\n".join(part for part in (f"## {STORE_TITLE}\n", facts, warning_part(steps), *parts) if part)


SERVING_TITLE = "The server"


def serving_row(clients, shared, parallel, ours, peer):
    """Kvern's figures, and how many times better than the peer's they are."""
    cells = [str(clients), "shared" if shared else "of their own", str(parallel)]
    better = serving_ratios(ours, peer) if peer else {}
    for name, text in (("throughput", f"{ours['tokens_per_s']:.3g}"),
                       ("first", f"{1e3 * ours['first_token_s']['median']:.3g}"),
                       ("between", f"{1e3 * ours['between_tokens_s']['mean']:.3g}"),
                       ("processor", f"{ours['processor_s'] / ours['pieces']:.3g}")):
        cells += [text, ratio_text(better[name]) if peer else "-"]
    return [*cells, f"{100 * ours['other_threads_share']:.1f}%"]


def serving_part(results):
    """`kvern serve` beside llama.cpp's server of the same package."""
    steps = results.serving_steps
    rows = [serving_row(*key, ours, results.peer_serving.get(key[:2])) for key, ours in sorted(results.serving.items())]
    if not rows:
        return ""
    one = next(iter(results.serving.values()))
    facts = (f"`bench/peers/serving.py`: SmolLM2, {thread_text(one['threads'])}, prompts of {one['prompt_words']} "
             f"words and {one['tokens']} tokens of answer, streamed; clients ask one time after the other and run on "
             "the same processors. The peer is the server of llama-cpp-python, which makes one answer at a time, so "
             "that its tokens come fast once an answer begins; Kvern makes up to `--parallel` at once, the others "
             "wait. Behind each figure is how many times better than the peer's it is. HTTP is the part of the "
             "server's processor time that threads without a forward pass took. "
             f"{', '.join(steps.dates)}, commit {', '.join(steps.commits)}; others took "
             f"{foreign_text(steps) if steps.foreign_shares else '?'} of the processors' time.\n")
    head = ["clients", "prompts", "`--parallel`", "tokens/s", "", "ms to the first token", "", "ms between tokens", "",
            "processor s per token", "", "HTTP"]
    return "\n".join(part for part in (f"## {SERVING_TITLE}\n", facts, warning_part(steps), table(head, rows)) if part)


def decode_plot(results):
    """Time over positions, where the results have the geometry of the aims; else of the first cell."""
    cells = results.select(phase="decode", threads=results.threads()[0])
    aimed = [cell for cell in cells if cell.head_dim == 128 and cell.heads == "32/8"]
    cells = aimed or [cell for cell in cells if cell.geometry()[:3] == cells[0].geometry()[:3]]
    series = {}
    for cell in cells:
        series.setdefault((f"Kvern {cell.storage}", False), {})[cell.positions] = 1e3 * cell.seconds
        for peer in cell.peers:
            points = series.setdefault((f"ggml {peer.storage}", True), {})
            points[cell.positions] = min(1e3 * peer.seconds, points.get(cell.positions, math.inf))
    if not cells:
        return None
    title = f"Decode, head dim {cells[0].head_dim}, {cells[0].heads} heads, {thread_text(cells[0].threads)}"
    return svg.lines(title, "positions", "ms", [(name, list(points.items()), dashed)
                                                for (name, dashed), points in sorted(series.items(), reverse=True)])


def roofline_plot(results):
    """Share of the roofline by head dim, of decodes at 8k and of windows at 2k."""
    threads, storages = results.threads()[0], results.storages()
    groups = []
    for phase, positions in (("decode", 8192), ("window", 2048)):
        cells = results.select(phase=phase, positions=positions, threads=threads)
        for key in sorted({(cell.head_dim, cell.q_heads // cell.kv_heads) for cell in cells}):
            values = {cell.storage: 100 * cell.share for cell in cells
                      if (cell.head_dim, cell.q_heads // cell.kv_heads) == key}
            groups.append((f"{phase[0].upper()}{key[0]}/{key[1]}", [values.get(storage) for storage in storages]))
    title = f"Share of the roofline, {thread_text(threads)}: D(ecode) 8192, W(indow) 512 on 2048; dim/group"
    return svg.bars(title, "", "%", groups, storages) if groups else None


def window_plot(results):
    """Speed of windows of the group of the aims, or of the first one, at the fewest positions."""
    cells = results.select(phase="window", threads=results.threads()[0])
    if not cells:
        return None
    positions = min(cell.positions for cell in cells)
    cells = [cell for cell in cells if cell.positions == positions]
    cells = [cell for cell in cells if cell.heads == "32/8"] or [cell for cell in cells if cell.heads == cells[0].heads]
    columns = {}
    for cell in cells:
        columns.setdefault(f"Kvern {cell.storage}", {})[cell.head_dim] = cell.fma / cell.seconds / 1e9
        for peer in cell.peers:
            column = columns.setdefault(f"ggml {peer.storage}", {})
            column[cell.head_dim] = max(cell.fma / peer.seconds / 1e9, column.get(cell.head_dim, 0))
    dims = sorted({cell.head_dim for cell in cells})
    title = f"Window of {cells[0].new_tokens} on {positions}, {cells[0].heads} heads, {thread_text(cells[0].threads)}"
    return svg.bars(title, "head dim", "billion FMA/s", [(str(dim), [column.get(dim) for column in columns.values()])
                                              for dim in dims], list(columns))


def model_plot(results, part):
    """Tokens per second over the context: bars, since a context of 0 has no logarithm."""
    if not results.model:
        return None
    columns = {}
    for cell in results.model:
        place = (cell["ctx"], cell["threads"])
        columns.setdefault("Kvern bf16", {})[place] = cell[f"{part}_tokens_per_s"]
        for peer in cell["peers"]:
            if "refused" not in peer:
                columns.setdefault(f"{peer['program']} {peer['storage']}", {})[place] = peer[f"{part}_tokens_per_s"]
    places = sorted({place for column in columns.values() for place in column}, key=lambda p: (p[1], p[0]))
    groups = [(f"{ctx}, {threads} thr", [column.get((ctx, threads)) for column in columns.values()])
              for ctx, threads in places]
    return svg.bars(f"SmolLM2, {part}", "context, threads", "tokens/s", groups, list(columns))


def stored_plot(name, stored):
    """KL divergence over bits; a reference's is 0, which has no logarithm."""
    kinds = {"Kvern, presets": {kv: row for kv, row in stored.rows.items() if kv in PRESETS},
             "Kvern, codecs": {kv: row for kv, row in stored.rows.items() if kv not in PRESETS},
             "llama.cpp": stored.peers}
    series = [(kind, [(kv, row["kv_bits"], row["kld_mean"]) for kv, row in rows.items() if row["kld_mean"] > 0])
              for kind, rows in kinds.items()]
    series = [(kind, some) for kind, some in series if some]
    title = f"Mean KL divergence, windows of {stored.window} tokens: {MODEL_TITLES.get(name, name)}"
    return svg.points(title, "bits per number", "nats", series, range(2, 17)) if series else None


def plots(results):
    drawn = {"prompt": model_plot(results, "prompt"), "generation": model_plot(results, "generation"),
             **{f"kv-quality-{name}": stored_plot(name, stored) for name, stored in results.stored.items()}}
    if results.attention:
        drawn.update(decode=decode_plot(results), roofline=roofline_plot(results), window=window_plot(results))
    return {name: text for name, text in drawn.items() if text}


def with_plots(text, drawn):
    """Without the plots that were not drawn."""
    lines = [line for line in text.splitlines() if not line.startswith("![") or any(f"/{n}.svg" in line for n in drawn)]
    return "\n".join(lines) + "\n" if text else ""


CODES_TITLE = "Reads and appends of codes"


def codes_part(results):
    """Every code beside bf16 by query heads per KV head, and how fast it is made."""
    decodes = [cell for cell in results.codes if cell.data["phase"] == "decode"]
    appends = {cell.storage: cell for cell in results.codes if cell.data["phase"] == "append"}
    if not decodes:
        return ""
    groups, found = sorted({cell.group for cell in decodes}), {}
    for cell in decodes:
        found.setdefault((cell.storage, cell.group), cell)
    rows = []
    for storage in dict.fromkeys(cell.storage for cell in decodes):
        cells = [found.get((storage, group)) for group in groups]
        append = appends.get(storage)
        rows.append([storage, *(f"{milliseconds(cell.data['ms'] / 1e3)}, {ratio_text(cell.speed, 'bf16')}" if cell
                                else "-" for cell in cells),
                     f"{append.bytes_per_second / 1e9:.2f}" if append else "-"])
    first, steps = decodes[0].data, results.code_steps
    facts = (f"`kvern bench attention`: decode of one token, {first['kv_heads']} KV heads of {first['head_dim']}, "
             f"{first['positions']} positions, {thread_text(first['threads'])}: ms, and how many times as fast as bf16 "
             "in the same step. The last column is GB/s of keys and values in bf16 that an append stores so. "
             f"{measured_on(results, steps)}\n")
    head = ["stored", *(f"{group} query heads per KV head" if group > 1 else "1 query head per KV head"
                        for group in groups), "append, GB/s"]
    return "\n".join([f"## {CODES_TITLE}\n", facts, table(head, rows)])


def general_parts(results, old):
    """What comes first is about everything but what speaks for itself."""
    if results.steps.timed or not old.get("Machine"):
        return [warning_part(results.steps), machine_part(results, old.get("Machine", "")),
                coverage_part(results, old.get("What was measured", ""))]
    warning = [line + "\n" for line in old[""].splitlines() if line.startswith(WARNING)]
    return [*warning, old["Machine"], old.get("What was measured", "")]


def page_of(results, old, drawn):
    """Parts without results stay as they are in the old page."""
    fresh = {
        "Attention": attention_part(results),
        CODES_TITLE: codes_part(results),
        READS_TITLE: reads_part(results),
        LONG_TITLE: long_part(results),
        LAYERS_TITLE: layers_part(results),
        **{title: old[title] for title in old if title.startswith("A whole model")},
        **model_parts(results),
        START_TITLE: start_part(results),
        QUALITY_TITLE: quality_part(results, old.get(QUALITY_TITLE, "")),
        "Overheads": overhead_part(results),
        STORE_TITLE: store_part(results),
        SERVING_TITLE: serving_part(results),
        "Rows, batches and drafts": rows_part(results),
    }
    parts = [with_plots(text, drawn) if text and text != old.get(title) else old.get(title, "")
             for title, text in fresh.items()]
    parts = [INTRO, *general_parts(results, old), short_part(results, old.get(summary.SHORT_TITLE, "")),
             aims_part(results, old.get("Aims", "")), *parts, METHOD]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def machine_folder(results):
    """A name for the files of a machine."""
    return re.sub(r"[^a-z0-9]+", "-", results.machine.get("cpu", "unknown machine").lower()).strip("-")


def write(folder, docs):
    """Writes the page of the machine and its plots, and the page of all machines; a plot that no part shows any more
    goes."""
    results = Results(pathlib.Path(folder))
    docs = pathlib.Path(docs)
    drawn, own = plots(results), docs / "perf" / machine_folder(results)
    (own / "plots").mkdir(parents=True, exist_ok=True)
    path = own / "tables.md"
    page = page_of(results, sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}, drawn)
    for old in (own / "plots").glob("*.svg"):
        if f"plots/{old.name}" not in page:
            old.unlink()
    for name, text in drawn.items():
        (own / "plots" / f"{name}.svg").write_text(text, encoding="utf-8")
    path.write_text(page, encoding="utf-8")
    (docs / "PERF.md").write_text(summary.page_of(docs / "perf"), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 bench/peers/report.py RESULTS [DOCS]")
    write(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2] / "docs")
