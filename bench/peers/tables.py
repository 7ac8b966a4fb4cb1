# SPDX-License-Identifier: MIT
"""Tables in Markdown, and how numbers are written in them."""

import statistics

# Share of the processors' time that others may take in a step before the page warns. Threads that
# wait for each other while others run make a peer tenfold slower than it is.
MOST_FOREIGN = 0.03
WARNING = "**The machine was not quiet**"

CACHE_MARK = "\\*"
CACHE_FOOTNOTE = (f"\n{CACHE_MARK} read from the last-level cache, so that bandwidth is no limit: the share is that of "
                  "the multiply-adds.\n")


def table(head, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def ratio_text(ratio, peer="peer"):
    """A ratio, marked when the peer is faster."""
    return f"**{ratio:.2f}x, {peer} faster**" if ratio < 1 else f"{ratio:.2f}x"


def thread_text(threads):
    return "1 thread" if threads == 1 else f"{threads} threads"


def milliseconds(seconds):
    return f"{1e3 * seconds:.3f}" if seconds < 0.1 else f"{1e3 * seconds:.1f}"


def foreign_text(steps):
    return (f"median {100 * statistics.median(steps.foreign_shares):.1f}%, "
            f"at most {100 * max(steps.foreign_shares):.1f}%")


def warning_part(steps):
    """Steps in which the machine was not quiet, or of which that is not known."""
    loud = sum(data.get("foreign_share", 1) > MOST_FOREIGN for data in steps.timed)
    if not loud:
        return ""
    return (f"{WARNING}, or is not known to have been, in {loud} of the {len(steps.timed)} steps: others took "
            f"more than {100 * MOST_FOREIGN:.0f}% of the processors' time. Do not rely on these numbers, least of all "
            "on two threads.\n")


def duration(nanoseconds):
    for unit, size in (("ns", 1), ("us", 1e3), ("ms", 1e6)):
        if nanoseconds < 1000 * size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds / 1e9:.3g} s"


def range_text(middle, low, high):
    """Nanoseconds with their quartiles."""
    return f"{duration(middle)} ({duration(low)}-{duration(high)})"


def measured_on(results, steps):
    """Of a part that speaks for itself: when, and what, and how quiet it was."""
    return (f"Measured on {results.machine.get('cpu', '?')}, {', '.join(steps.dates)}, commit "
            f"{', '.join(steps.commits)}; others took {foreign_text(steps) if steps.foreign_shares else '?'} of the "
            "processors' time.")
