# SPDX-License-Identifier: MIT
"""Parts of the report about layers beside array libraries, of other kinds, and of very long contexts."""

from aims import rollback_speed
from tables import CACHE_FOOTNOTE, CACHE_MARK, measured_on, ratio_text, table, warning_part


def layer_label(cell):
    return [cell.peer or "-", *([f"{1e3 * cell.peer_seconds:.3f}", ratio_text(cell.ratio)] if cell.peer else "--")]


PEER_HEAD = ["peer", "peer ms", "ratio"]
SPEED_HEAD = ["ms", "GB/s", "GFMA/s", "roofline"]


def range_ms(times):
    return f"{times['ms']:.3f} ({times['ms_low']:.3f}-{times['ms_high']:.3f})"


def speed_columns(cell):
    data = cell.data
    return [range_ms(data), f"{data['bytes'] / cell.seconds / 1e9:.1f}", f"{data['fma'] / cell.seconds / 1e9:.1f}",
            f"{100 * data['roofline_share']:.0f}%" + (CACHE_MARK if data.get("from_cache") else "")]


def latent_table(cells, phase):
    def order(cell):
        data = cell.data
        return data["q_heads"], data["storage"], data["threads"], cell.peer, data["new_tokens"]

    cells = sorted((cell for cell in cells if cell.data["phase"] == phase), key=order)
    if not cells:
        return ""
    rows = [[str(cell.data["q_heads"]), cell.data["storage"], str(cell.data["threads"]), str(cell.data["positions"]),
             str(cell.data["new_tokens"]), *speed_columns(cell), *layer_label(cell)] for cell in cells]
    marked = any(cell.data.get("from_cache") for cell in cells)
    return (f"### Latents, {phase}\n\n"
            + table(["heads", "stored", "threads", "positions", "new", *SPEED_HEAD, *PEER_HEAD], rows)
            + (CACHE_FOOTNOTE if marked else ""))


def recurrent_tables(cells):
    def order(cell):
        return cell.data["phase"], cell.data["kind"], cell.data["threads"], cell.peer

    cells = sorted(cells, key=order)
    steps = [[cell.data["phase"], cell.data["kind"], str(cell.data["threads"]), str(cell.data["new_tokens"]),
              *speed_columns(cell), f"{cell.data['loops_ms'] / cell.data['ms']:.2f}x", *layer_label(cell)]
             for cell in cells if cell.data["phase"] != "rollback"]
    rollbacks = [[cell.data["kind"], str(cell.data["threads"]), *(f"{cell.data[key]:.3f}" for key in (
        "ms", "again_ms", "copy_ms")), f"{100 / rollback_speed(cell):.0f}%"]
        for cell in cells if cell.data["phase"] == "rollback"]
    parts = []
    if steps:
        parts.append("### Recurrent layers\n\n" + table(
            ["phase", "kind", "threads", "new", *SPEED_HEAD, "plain loops", *PEER_HEAD], steps))
    if rollbacks:
        parts.append("### Rounds of 4 tokens, the last one taken back\n\n" + table(
            ["kind", "threads", "rollback ms", "the tokens again ms", "a copy ms", "of both"], rollbacks))
    return "\n".join(parts)


def selection_table(cells):
    if not cells:
        return ""
    cells = sorted(cells, key=lambda cell: (cell.data["storage"], cell.data["threads"], cell.peer))
    rows = [[data["storage"], str(data["threads"]), str(data["positions"]), str(data["top_k"]),
             f"{data['index_heads']}x{data['index_dim']}", range_ms(data["select"]),
             f"{data['fma'] / cell.seconds / 1e9:.1f}", f"{100 * data['fma_share']:.0f}%",
             f"{100 * data['pick_share']:.1f}%", *layer_label(cell)] for cell in cells for data in [cell.data]]
    head = ["stored", "threads", "positions", "top-k", "indexer", "ms", "GFMA/s", "of the peak", "of it the choice",
            *PEER_HEAD]
    return "### Selections by index keys\n\n" + table(head, rows)


def layers_part(results):
    cells = [*results.latent, *results.recurrent, *results.selections]
    if not cells:
        return ""
    steps = results.layer_steps
    facts = measured_on(results, steps) + " A row is a run of its own beside its peer.\n"
    return "\n".join(part for part in (
        f"## {LAYERS_TITLE}\n", facts, warning_part(steps), latent_table(results.latent, "decode"),
        latent_table(results.latent, "window"), recurrent_tables(results.recurrent),
        selection_table(results.selections)) if part)


LAYERS_TITLE = "Latents, recurrent layers and selections"


READS_TITLE = "Reads beside array libraries"


def reads_part(results):
    """Attention in libraries for arrays, each storage of ours beside theirs."""
    cells = sorted(results.reads, key=lambda cell: (cell.data["phase"], cell.data["storage"], cell.data["head_dim"],
                                                    cell.data["q_heads"], cell.peer))
    if not cells:
        return ""
    rows = [[cell.data["phase"], cell.data["storage"], str(cell.data["head_dim"]),
             f"{cell.data['q_heads']}/{cell.data['kv_heads']}", str(cell.data["positions"]),
             str(cell.data["new_tokens"]), *speed_columns(cell), *layer_label(cell)] for cell in cells]
    facts = ("`kvern bench attention` on one thread. MLX: `mx.fast.scaled_dot_product_attention`, and mlx-lm's "
             "`quantized_scaled_dot_product_attention` of groups of 64; NumPy: products of OpenBLAS. "
             f"{measured_on(results, results.read_steps)}\n")
    head = ["phase", "stored", "dim", "heads", "positions", "new", *SPEED_HEAD, *PEER_HEAD]
    return "\n".join(part for part in (
        f"## {READS_TITLE}\n", facts, warning_part(results.read_steps), table(head, rows),
        CACHE_FOOTNOTE if any(cell.data.get("from_cache") for cell in cells) else "") if part)


LONG_TITLE = "Very long contexts"


def long_part(results):
    """One row, all threads."""
    if not results.long_reads:
        return ""
    cells = sorted(results.long_reads, key=lambda cell: (cell["positions"], -cell["bytes"]))
    rows = [[str(cell["positions"]), cell["storage"], str(cell["threads"]), f"{cell['bytes'] / 2**30:.2f}",
             range_ms(cell), f"{cell['bytes'] / cell['ms'] / 1e6:.1f}", f"{cell['fma'] / cell['ms'] / 1e6:.1f}",
             f"{100 * cell['roofline_share']:.0f}%"] for cell in cells]
    facts = (f"`kvern bench attention --phase decode`: one token of one row, {cells[0]['q_heads']} query heads on "
             f"{cells[0]['kv_heads']}, dim {cells[0]['head_dim']}. {measured_on(results, results.long_steps)}\n")
    head = ["positions", "stored", "threads", "GiB", *SPEED_HEAD]
    return "\n".join(part for part in (f"## {LONG_TITLE}\n", facts, warning_part(results.long_steps),
                                       table(head, rows)) if part)
