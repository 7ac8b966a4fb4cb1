# SPDX-License-Identifier: MIT
"""Parts of the report about whole models and programs."""

from tables import duration, measured_on, ratio_text, table, thread_text, warning_part

MODEL_TITLES = {"smollm2": "SmolLM2 135M, Q4_1", "gemma3-270m": "Gemma 3 270M, Q4_K_M"}
PARTS = ("prompt", "generation")


def speed_text(cell, part):
    return f"{cell[part + '_tokens_per_s']:.1f} ({cell[part + '_low']:.1f}-{cell[part + '_high']:.1f})"


def memory_share(cell):
    """Of what the memory gives for tensors and cache, what generation reaches; None where that is not known."""
    if not cell.get("limit_bytes_per_s"):
        return None
    return cell["generation_tokens_per_s"] * cell["bytes_per_token"] / cell["limit_bytes_per_s"]


def model_parts(results):
    """By heading."""
    return {f"A whole model: {MODEL_TITLES.get(name, name)}": model_part(name, cells)
            for name, cells in results.models.items()}


def peer_row(where, peer):
    """A peer is compared with what we reached in its own run."""
    name = f"{peer['program']} {peer['storage']}"
    if "refused" in peer:
        return [*where, name, f"refuses: {peer['refused']}", "", "", "", "", ""]
    return [*where, name, speed_text(peer, "prompt"), ratio_text(peer["ratios"]["prompt"]),
            speed_text(peer, "generation"), ratio_text(peer["ratios"]["generation"]), "",
            f"{peer['difference']:.3f}" if "difference" in peer else "-"]


def model_part(name, cells):
    rows = []
    for cell in cells:
        where, share = [str(cell["ctx"]), str(cell["threads"])], memory_share(cell)
        rows.append([*where, "Kvern bf16", speed_text(cell, "prompt"), "", speed_text(cell, "generation"), "",
                     f"{100 * share:.0f}%" if share else "", ""])
        rows += [peer_row(where, peer) for peer in cell["peers"]]
    head = ("context", "threads", "program, KV cache", "prompt tokens/s", "ratio", "generation tokens/s", "ratio",
            "of the memory", "difference of the logits")
    shown = ["![Prompt speed](plots/prompt.svg)\n", "![Generation speed](plots/generation.svg)\n"]
    return "\n".join([f"## A whole model: {MODEL_TITLES.get(name, name)}\n", *(shown if name == "smollm2" else []),
                      table(head, rows)])


START_TITLE = "Starts, memory, sizes"
PROGRAM_NAMES = {"kvern": "Kvern", "llama": "llama.cpp", "ik": "ik_llama.cpp", "openvino": "OpenVINO GenAI"}


def megabytes(count):
    return f"{count / 1e6:.1f}"


def start_row(where, row, ours):
    name = f"{PROGRAM_NAMES.get(row['program'], row['program'])} {row['storage']}".rstrip()
    if "refused" in row:
        return [*where, name, f"refuses: {row['refused']}", "", "", "", "", "", ""]
    cells = []
    for key, text in (("first_s", lambda s: duration(1e9 * s)), ("second_s", lambda s: duration(1e9 * s)),
                      ("peak_bytes", megabytes)):
        cells += [text(row[key]), "" if row is ours else ratio_text(row[key] / ours[key])]
    return [*where, name, *cells, megabytes(row["program_bytes"])]


def start_part(results):
    """From the start of a program to its first token."""
    rows = []
    for name, datas in results.starts.items():
        for data in datas:
            ours = next(row for row in data["rows"] if row["program"] == "kvern")
            rows += [start_row([MODEL_TITLES.get(name, name), str(data["threads"])], row, ours) for row in data["rows"]]
    if not rows:
        return ""
    facts = ("`bench/peers/startup.py`: to the first token behind a short prompt, each start a process of its own; a "
             "first start reads the model from the disk, a second one finds it in memory. Kvern's time begins with "
             "its process, a peer's when Python and its libraries are loaded, and memory is what a peer takes beyond "
             "those. Sizes are those of the program and of the shared objects of a peer's packages. "
             f"{measured_on(results, results.start_steps)}\n")
    head = ["model", "threads", "program, KV cache", "first start", "ratio", "second start", "ratio",
            "peak memory, MB", "ratio", "size, MB"]
    return "\n".join(part for part in (f"## {START_TITLE}\n", facts, warning_part(results.start_steps),
                                       table(head, rows)) if part)


def best_peers(results, name, part):
    """Of every cell of a model: the cell, its fastest peer, and how many times faster we are."""
    for cell in results.models.get(name, ()):
        measured = [peer for peer in cell["peers"] if "refused" not in peer]
        if measured:
            best = min(measured, key=lambda peer: peer["ratios"][part])
            yield cell, best, best["ratios"][part]
