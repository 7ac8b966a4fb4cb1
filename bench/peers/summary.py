# SPDX-License-Identifier: MIT
"""docs/PERF.md: what the pages of all machines (docs/perf/) say in short, side by side. The numbers
of two machines never meet in one column."""

from report_models import MODEL_TITLES, best_peers
from tables import WARNING, duration, milliseconds, ratio_text, table, thread_text

INTRO = """# Performance

Made by `make bench-peers`, which measures everything again and writes this page; do not edit it. Each machine has a
column of its own, and a page with all tables, which says how everything is measured, too. A ratio is the peer's time
over ours (for tokens per second: our speed over the peer's): above 1, Kvern is faster. What a peer is faster in is
marked **bold**.

All tables: {pages}.
"""

SHORT_TITLE, AIMS_TITLE, MACHINE_TITLE = "In short", "Aims", "Machine"
# Of the page of a machine; its other plots stay there.
PLOTS = (("Decode over positions", "decode"), ("Share of the roofline", "roofline"), ("Windows", "window"),
         ("Prompt speed", "prompt"), ("Generation speed", "generation"))


def sections_of(page):
    """The parts of a page by their headings; what comes before has ""."""
    sections, heading = {}, ""
    for line in page.splitlines(keepends=True):
        if line.startswith("## "):
            heading = line[3:].strip()
        sections[heading] = sections.get(heading, "") + line
    return sections


def rows_of(section):
    """The rows of a section's table by their first column, without the head."""
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return {first: rest for first, *rest in cells}


def with_old_rows(rows, section):
    """Rows that say nothing say what an old section says of them. `rows` is a list of (what, cells)."""
    known = rows_of(section)
    return [(what, cells if any(cells) else known.get(what, cells)) for what, cells in rows]


def attention_text(cells, peer):
    """Of one read."""
    for cell in cells:
        ratio = cell.ratio(peer)
        return (f"{milliseconds(cell.seconds)} ms, {100 * cell.share:.0f}% of the roofline"
                + (f", {ratio_text(ratio)} ggml's {peer}" if ratio else ""))
    return ""


def speed_text(results, name, part, context):
    """On the most threads, beside the fastest peer."""
    found = [row for row in best_peers(results, name, part) if row[0]["ctx"] == context]
    if not found:
        return ""
    cell, peer, ratio = max(found, key=lambda row: row[0]["threads"])
    return (f"{cell[f'{part}_tokens_per_s']:.0f} tokens/s on {thread_text(cell['threads'])}, {ratio_text(ratio)} "
            f"{peer['program']} {peer['storage']}")


def long_text(results):
    cells = [cell for cell in results.long_reads if cell["storage"] == "bf16"]
    if not cells:
        return ""
    cell = max(cells, key=lambda cell: cell["positions"])
    return (f"{cell['ms']:.0f} ms for {cell['positions']} positions on {thread_text(cell['threads'])}, "
            f"{100 * cell['roofline_share']:.0f}% of the roofline")


def step_text(results):
    for data in results.calls:
        times = {item["name"]: item["ns"] for item in data["items"]}
        if {"step", "copy_token"} <= times.keys():
            return f"{duration(times['step'])}; a copy of the token into an array {duration(times['copy_token'])}"
    return ""


def start_text(results):
    texts = []
    for name, datas in results.starts.items():
        ours, *peers = datas[-1]["rows"]
        texts += [f"{MODEL_TITLES.get(name, name).split(',', maxsplit=1)[0]} {duration(1e9 * ours['second_s'])}, "
                  f"{ratio_text(peer['second_s'] / ours['second_s'])} llama.cpp; "
                  f"{ours['peak_bytes'] / 1e6:.0f} MB, {ratio_text(peer['peak_bytes'] / ours['peak_bytes'])}"
                  for peer in peers if peer["program"] == "llama" and "refused" not in peer]
    return "; ".join(texts)


def short_rows(results):
    """The rows that matter, (what, [text]); a text is empty where nothing was measured."""
    heads = {"head_dim": 128, "q_heads": 32, "kv_heads": 8, "threads": 1}
    texts = [
        ("decode in bf16, 32 query heads on 8 of 128, 8192 positions, 1 thread",
         attention_text(results.select(phase="decode", storage="bf16", positions=8192, **heads), "f16")),
        ("the same in q4",
         attention_text(results.select(phase="decode", storage="q4", positions=8192, **heads), "q4_0")),
        ("a window of 512 on 2048 in bf16, the same heads, 1 thread",
         attention_text(results.select(phase="window", storage="bf16", positions=2048, **heads), "f16")),
        ("decode of one row of a very long context in bf16", long_text(results)),
        *((f"{MODEL_TITLES[name]}: {part} {'to' if part == 'prompt' else 'behind'} 2048 tokens",
           speed_text(results, name, part, 2048)) for name in MODEL_TITLES for part in ("prompt", "generation")),
        ("a step of one token without its arithmetic, per layer", step_text(results)),
        ("`kvern run`, second start: to the first token, and peak memory", start_text(results)),
    ]
    return [(what, [text]) for what, text in texts]


def short_part(results, old):
    rows = with_old_rows(short_rows(results), old)
    return f"## {SHORT_TITLE}\n\n" + table(("what", "measured"), [[what, *cells] for what, cells in rows])


def columns(pages, title, common=0):
    """Rows of a section of all pages: the first `common` cells once, then a cell of each page."""
    tables = {name: rows_of(page.get(title, "")) for name, page in pages.items()}
    rows = []
    for what in dict.fromkeys(what for known in tables.values() for what in known):
        shared = next(known[what][:common] for known in tables.values() if what in known)
        own = [", ".join(cell for cell in known.get(what, [])[common:] if cell) or "-" for known in tables.values()]
        rows.append([what, *shared, *own])
    return rows


def page_of(folder):
    """The page about the machines whose pages are in a folder below the one of docs/PERF.md."""
    paths = sorted(folder.glob("*/tables.md"))
    pages = {path.parent.name: sections_of(path.read_text(encoding="utf-8")) for path in paths}
    names = [rows_of(page.get(MACHINE_TITLE, "")).get("processor", [name])[0] for name, page in pages.items()]
    links = ", ".join(f"[{name}]({folder.name}/{slug}/tables.md)" for name, slug in zip(names, pages))
    parts = [INTRO.format(pages=links),
             "## Machines\n\n" + table(("", *names), columns(pages, MACHINE_TITLE)),
             *(f"{name}: {line}\n" for name, page in zip(names, pages.values())
               for line in page.get("", "").splitlines() if line.startswith(WARNING)),
             f"## {SHORT_TITLE}\n\n" + table(("what", *names), columns(pages, SHORT_TITLE)),
             f"## {AIMS_TITLE}\n\n" + table(("what", "at least", *names), columns(pages, AIMS_TITLE, 1)),
             "## Plots\n"]
    for name, slug in zip(names, pages):
        shown = [f"![{title}]({folder.name}/{slug}/plots/{plot}.svg)\n" for title, plot in PLOTS
                 if (folder / slug / "plots" / f"{plot}.svg").exists()]
        parts += [f"### {name}\n", *shown] if shown else []
    return "\n".join(parts)
