# SPDX-License-Identifier: MIT
"""The performance report says what the results say, whatever storages they hold.

python3 tests/tools/test_report.py
"""

import json
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))

import report  # noqa: E402
from aims import all_aims  # noqa: E402
from results import Results, share_limits  # noqa: E402

GIGA = 1e9


def attention(phase="decode", storage="bf16", threads=1, ms=10.0, peers=(("f16", 50.0),), positions=8192, memory=8.0):
    """A cell at 32/8 heads of 128; `memory` is how many ms the bandwidth needs, the peak needs 5."""
    return {
        "phase": phase, "storage": storage, "head_dim": 128, "q_heads": 32, "kv_heads": 8, "positions": positions,
        "new_tokens": 1 if phase == "decode" else 512, "threads": threads, "ms": ms, "ms_low": ms * 0.9,
        "ms_high": ms * 1.1, "roofline_share": max(memory, 5.0) / ms, "bytes": memory * 1e-3 * GIGA, "fma": 5e-3 * GIGA,
        "limit_bytes_per_s": GIGA, "limit_fma_per_s": GIGA,
        "peers": [{"storage": name, "ms": time, "ms_low": time, "ms_high": time, "difference": 0.01}
                  for name, time in peers],
    }


def speeds(prompt, generation):
    return {"prompt_tokens_per_s": prompt, "prompt_low": prompt, "prompt_high": prompt,
            "generation_tokens_per_s": generation, "generation_low": generation, "generation_high": generation}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "results").mkdir()

    def save(self, name, value):
        text = json.dumps({"commit": "abc", "date": "2026-11-30", **value})
        (self.root / "results" / f"{name}.json").write_text(text, encoding="utf-8")

    def save_attention(self, *cells):
        self.save("attention-x", {"cpu": "avx2", "peer": "ggml 1", "cells": list(cells)})

    def page(self):
        docs = self.root / "docs"
        report.write(self.root / "results", docs)
        folder = docs / "perf" / report.machine_folder(Results(self.root / "results"))
        for plot in (folder / "plots").glob("*.svg"):
            xml.dom.minidom.parse(str(plot))
        self.plots = folder / "plots"
        self.short = (docs / "PERF.md").read_text(encoding="utf-8")
        return (folder / "tables.md").read_text(encoding="utf-8")

    def aims(self):
        return {aim.what: aim for aim in all_aims(Results(self.root / "results"))}

    def aim(self, *words):
        found = [aim for what, aim in self.aims().items() if all(word in what for word in words)]
        self.assertEqual(len(found), 1, words)
        return found[0]

    def save_store(self, memory, disk, verify):
        items = [{"name": name, "what": name, "ms": ms, "ms_low": ms, "ms_high": ms, "speed": 1000 / ms}
                 for name, ms in (("cold", 1000.0), ("memory", memory), ("disk", disk))]
        self.save("store-token-t1", {"first-token": {"threads": 1, "prefix": 4096, "behind": 16, "items": items}})
        items = [{"name": name, "what": f"the {name}", "ms": ms, "ms_low": ms, "ms_high": ms, "bytes_per_s": GIGA}
                 for name, ms in (("write", 100.0), ("save", 110.0), ("load", 0.5), ("verify", verify), ("read", 8.0))]
        self.save("store-file-t1", {"file": {"threads": 1, "bytes": 2**30, "items": items}})
        times = {"us": 2.0, "us_low": 1.0, "us_high": 3.0}
        self.save("store-lookup-t1", {"lookup": [
            {"entries": 100000, "common": 8192, "found": times, "missed": times, "published": times}]})
        self.save("store-directory-t1", {"directory": [
            {"entries": 100000, **{name: times for name in ("opened", "found", "missed", "unchanged", "changed")}}]})

    def test_stores_have_a_section_and_aims(self):
        self.save_store(memory=40.0, disk=120.0, verify=9.9)
        page = self.page()
        for text in ("## Prefixes that are kept", "from the request to the first token", "| 25x |", "the verify",
                     "2 us (1 us-3 us)", "commit abc"):
            self.assertIn(text, page)
        self.assertEqual(self.aim("from memory against none").verdict, "met")
        self.assertEqual(self.aim("the same from disk").verdict, "**missed**")
        self.assertEqual(self.aim("5 ms over mapping").verdict, "met")
        self.assertEqual(self.aim("lookup among").verdict, "met")
        self.assertEqual(self.aim("saving").verdict, "met")
        self.assertEqual(self.aim("verification").verdict, "met")
        self.save_store(memory=60.0, disk=90.0, verify=10.1)
        self.assertEqual(self.aim("from memory against none").verdict, "**missed**")
        self.assertEqual(self.aim("the same from disk").verdict, "met")
        self.assertEqual(self.aim("verification").verdict, "**missed**")

    def test_nothing_is_measured(self):
        page = self.page()
        self.assertNotIn("| met |", page)
        self.assertNotIn("![", page)
        self.assertEqual(page.count("not measured"), len(self.aims()))

    def test_aims_are_met_and_missed(self):
        self.save_attention(
            attention(ms=10.0, peers=(("f16", 39.0), ("bf16", 41.0))),
            attention("window", ms=6.0, positions=2048, memory=0.1, peers=(("f16", 15.1),)),
            attention("window", ms=7.0, positions=8192, memory=0.1, peers=()),
        )
        self.assertEqual(self.aim("decode in bf16").verdict, "met")  # 8 of 10 ms
        self.assertEqual(self.aim("window of 512").values, (5 / 6, 5 / 7))
        self.assertEqual(self.aim("window of 512").verdict, "**missed**")  # 71 %
        self.assertEqual(self.aim("decode", "ggml's f16").verdict, "**missed**")
        self.assertEqual(self.aim("decode", "ggml's bf16").verdict, "met")
        self.assertEqual(self.aim("window", "ggml's f16").verdict, "met")

    def test_only_memory_bound_decodes_count(self):
        self.save_attention(attention(memory=4.0, ms=10.0), attention(positions=1024, ms=100.0))
        self.assertEqual(self.aim("decode in bf16").verdict, "not measured")

    def test_reads_from_the_cache_are_marked(self):
        cell = attention(ms=10.0)
        self.save_attention({**cell, "from_cache": None})  # not known
        self.assertNotIn("\\*", self.page())
        self.assertIn("| 80% |", self.page())
        self.save_attention({**cell, "from_cache": True, "roofline_share": 0.5})
        self.assertIn("| 50%\\* |", self.page())
        self.assertEqual(self.page().count("\\* read from the last-level cache"), 1)
        self.assertEqual(self.aim("decode in bf16").verdict, "not measured")  # not memory-bound

    def test_threads_where_the_roofline_allows(self):
        two = attention(threads=2, ms=5.6)
        two["limit_bytes_per_s"] = two["limit_fma_per_s"] = 1.95 * GIGA
        limited = attention(threads=2, ms=9.0, positions=65536)
        self.save_attention(attention(ms=10.0), attention(ms=10.0, positions=65536), two, limited)
        self.assertEqual(self.aim("2 threads").values, (10.0 / 5.6,))
        self.assertEqual(self.aim("2 threads").verdict, "**missed**")

    def test_faster_peers_are_marked(self):
        self.save_attention(attention(ms=10.0, peers=(("f16", 8.0), ("bf16", 20.0))))
        page = self.page()
        self.assertIn("The peer is faster in 1 of the 2 comparisons", page)
        self.assertIn("- decode, bf16 against f16, dim 128, 32/8 heads, 8192 positions, 1 thread: 0.80x", page)
        self.assertIn("**0.80x, peer faster**", page)
        self.assertIn("| 2.00x |", page)

    def test_unknown_storages_join(self):
        self.save_attention(attention(storage="q3x", peers=(("q8_0", 30.0), ("iq9", 40.0))),
                            attention("window", storage="q3x", positions=2048, peers=()))
        page = self.page()
        self.assertIn("### Decode, q3x, 1 thread", page)
        self.assertIn("### Window, q3x, 1 thread, 512 new tokens", page)
        self.assertIn("ggml iq9 ms", page)
        plot = (self.plots / "decode.svg").read_text(encoding="utf-8")
        self.assertIn("Kvern q3x", plot)

    def test_models(self):
        for context in (0, 2048):
            peer = {**speeds(150.0, 40.0), "storage": "f16", "difference": 0.03}
            cell = {"ctx": context, "threads": 2, **speeds(100.0, 100.0), "peers": [peer]}
            self.save(f"model-smollm2-c{context}", {"peer": "llama.cpp 1", "cells": [cell]})
        page = self.page()
        self.assertIn("**0.67x, peer faster**", page)
        self.assertIn("plots/generation.svg", page)
        self.assertEqual(self.aim("prompt at 0").verdict, "**missed**")
        self.assertEqual(self.aim("generation at 2048").values, (2.5,))
        self.assertEqual(self.aim("generation at 7680").verdict, "not measured")

    def test_the_page_says_what_was_measured(self):
        self.save_attention(attention())
        cell = {"ctx": 2048, "threads": 2, **speeds(100.0, 30.0), "peers": []}
        self.save("model-smollm2-c2048-t2", {"peer": "llama.cpp 1", "cells": [cell]})
        self.assertIn("head dims 128; query heads per KV head 4; positions 8192", self.page())
        self.assertIn("(2048, 2); **one round each, so no spread**", self.page())
        cell["prompt_high"] = 110.0
        self.save("model-smollm2-c2048-t2", {"peer": "llama.cpp 1", "cells": [cell]})
        self.assertNotIn("one round each", self.page())

    def test_a_second_model(self):
        peer = {**speeds(50.0, 40.0), "storage": "f16", "difference": 0.03}
        cell = {"ctx": 0, "threads": 1, **speeds(100.0, 30.0), "peers": [peer]}
        self.save("model-gemma3-270m-c0-t1", {"peer": "llama.cpp 1", "cells": [cell]})
        self.assertIn("## A whole model: Gemma 3 270M", self.page())
        self.assertEqual(self.aim("Gemma 3").values, (2.0, 0.75))
        self.assertEqual(self.aim("SmolLM2", "prompt at 0").verdict, "not measured")

    def test_quantized_storages(self):
        self.save_attention(attention(ms=10.0), attention(storage="q8", ms=8.0, peers=(("q8_0", 40.0),)),
                            attention("window", ms=10.0, positions=2048),
                            attention("window", storage="q8", ms=12.0, positions=2048))
        self.assertEqual(self.aim("quantized decode").values, (1.25,))
        self.assertEqual(self.aim("quantized windows").verdict, "met")
        self.assertEqual(self.aim("ggml's q8_0").verdict, "**missed**")
        self.assertEqual(self.aim("ggml's q4_0").verdict, "not measured")

    def test_codes(self):
        def cell(storage, heads, ms, phase="decode"):
            return {"phase": phase, "storage": storage, "q_heads": heads, "kv_heads": 8, "head_dim": 128,
                    "positions": 8192, "threads": 1, "ms": ms, "bytes": 2e6}

        self.assertEqual(self.aim("rotated and turbo decode").verdict, "not measured")
        self.save("machine", {"cpu": "Abacus 9"})
        self.save("codes-decode-0-g1", {"cells": [cell("bf16", 8, 1.2), cell("tq4", 8, 0.6)], "foreign_share": 0.01})
        self.save("codes-decode-0-g3", {"cells": [cell("bf16", 24, 1.0), cell("tq4", 24, 1.25)]})
        self.save("codes-append-0", {"cells": [cell("tq4", 8, 1.0, "append")]})
        page = self.page()
        self.assertIn("| bf16 | 1.200, 1.00x | 1.000, 1.00x | - |\n"
                      "| tq4 | 0.600, 2.00x | 1.250, **0.80x, bf16 faster** | 2.00 |", page)
        self.assertIn("Measured on Abacus 9, 2026-11-30, commit abc; others took median 1.0%", page)
        self.assertEqual(self.aim("rotated and turbo decode").values, (2.0, 0.8))
        self.assertEqual(self.aim("GB/s of bf16 that become").values, (2.0,))

    def test_models_whose_quality_was_not_measured_stay(self):
        row = {"kv": "q8", "ppl": 21.5, "kld_mean": 0.0005, "kld_p99": 0.004, "kld_max": 0.02, "same_top": 0.995,
               "kv_bytes_per_token": 12240}
        for model, windows in (("smollm2", 8), ("gemma3-270m", 4)):
            self.save(f"quality-{model}", {"windows": windows, "window": 1024, "positions": 4088, "rows": [row]})
        self.page()
        (self.root / "results" / "quality-gemma3-270m.json").unlink()
        self.save("quality-smollm2", {"windows": 7, "window": 1024, "positions": 4088, "rows": [row]})
        page = self.page()
        for text in ("4 windows of 1024", "7 windows of 1024"):
            self.assertEqual(page.count(text), 1)
        self.assertNotIn("8 windows of 1024", page)
        self.assertEqual(page, self.page())

    def test_quality(self):
        row = {"kv": "q8", "ppl": 21.5, "kld_mean": 0.0005, "kld_p99": 0.004, "kld_max": 0.02, "same_top": 0.995,
               "kv_bytes_per_token": 12240}
        data = {"windows": 8, "window": 1024, "positions": 4088, "rows": [row, {**row, "kv": "q2", "kld_mean": 3.0}]}
        self.save("quality-smollm2", data)
        page = self.page()
        self.assertIn("| q8 | 21.5000 | 0.000500 | 0.00400 | 0.0200 | 99.50% | 12240 |  |", page)
        self.assertRegex(page, r"\| q2 .*\*\*bad\*\*")

    def test_presets_beside_llama(self):
        def row(kv, bits, kl, top=0.98):
            return {"kv": kv, "kv_bits": bits, "ppl": 21.5, "kld_mean": kl, "kld_p99": 10 * kl, "kld_max": 100 * kl,
                    "same_top": top, "kv_bytes_per_token": 1}

        windows = {"window": 4096, "windows": 1, "positions": 2047}
        self.assertEqual(self.aim("0.005 over").verdict, "not measured")
        for model, factor in (("smollm2", 1), ("gemma3-270m", 2)):
            self.save(f"storage-eval-{model}-0", {**windows, "rows": [
                row("bf16", 16, 0, 1), row("light", 8.5, 0.001), row("balanced", 5, 0.004)]})
            self.save(f"storage-eval-{model}-1", {**windows, "rows": [
                row("small", 4.25, 0.004 * factor), row("q4", 4.5, 0.2, 0.5)]})
            self.save(f"storage-peer-{model}-q8_0", {**windows, "rows": [row("f16", 16, 0), row("q8_0", 8.5, 0.002)]})
            self.save(f"storage-peer-{model}-q4_0", {**windows, "rows": [row("f16", 16, 0), row("q4_0", 4.5, 0.012)]})
        self.save("storage-speed-smollm2-light", {"kv": "light", "cells": [
            {"ctx": 2048, "threads": 2, **speeds(100.0, 40.0)}]})
        page = self.page()
        self.assertRegex(page, r"\| Kvern light \| 8.50 \| 21.5000 \| 0.001000 \| 0.01000 \| 0.1000 \| 98.00% "
                               r"\| 40 \|  \|\n\| llama.cpp q8_0 \| 8.50 .*\| - \|  \|\n\| Kvern balanced \| 5.00 ")
        self.assertRegex(page, r"\| Kvern q4 \|.*\*\*bad\*\*")
        self.assertEqual(page.count("| llama.cpp f16 |"), 2)
        self.assertIn("generation behind 2048 tokens, 2 threads", page)
        self.assertEqual(self.aim("0.005 over").values, (0.005 / 0.008, 0.005 / 0.004))
        self.assertEqual(self.aim("0.005 over").verdict, "**missed**")
        self.assertEqual(self.aim("same top token").verdict, "met")
        self.assertEqual(self.aim("mean KL divergence of llama.cpp").values, (2, 3, 1.5, 2, 3, 3))
        self.assertEqual(self.aim("bits of llama.cpp").verdict, "**missed**")  # balanced takes 5
        for model in ("smollm2", "gemma3-270m"):
            self.assertIn(f"plots/kv-quality-{model}.svg", page)
            plot = (self.plots / f"kv-quality-{model}.svg").read_text(encoding="utf-8")
            for label in ("light", "q4", "q8_0", "q4_0"):
                self.assertIn(f">{label}</text>", plot)
            self.assertNotIn(">bf16</text>", plot)  # 0 has no logarithm

    def test_overheads(self):
        item = {"name": "append", "what": "append a token", "ns": 432.0, "ns_low": 430.0, "ns_high": 1440.0}
        self.save("overhead-calls-t1", {"threads": 1, "positions": 1024, "items": [item]})
        self.save("overhead-first-t1", {"threads": 1, "seconds": 0.25, "seconds_low": 0.2, "seconds_high": 0.3})
        page = self.page()
        self.assertIn("| append a token | 432 ns (430 ns-1.44 us) |", page)
        self.assertIn("| 250 ms (200 ms-300 ms) |", page)
        self.save("overhead-long-t1", {"threads": 1, "positions": 32768, "items": [{**item, "ns": 433.0}]})
        page = self.page()
        self.assertIn("| what | 1 thread | 1 thread, 32768 positions |", page)
        self.assertIn("| append a token | 432 ns (430 ns-1.44 us) | 433 ns (430 ns-1.44 us) |", page)

    def test_a_disturbed_limit_of_memory(self):
        cells = [{"threads": 1, "limit_bytes_per_s": 12.0}, {"threads": 1, "limit_bytes_per_s": 30.0},
                 {"threads": 2, "limit_bytes_per_s": 20.0}, {"threads": 1}]
        share_limits(cells)
        self.assertEqual([cell.get("limit_bytes_per_s") for cell in cells], [30.0, 30.0, 20.0, None])

    def test_servers(self):
        self.assertNotIn("The server", self.page())
        for server, factor in (("kvern", 1), ("llama", 4)):
            self.save(f"serving-{server}-c8-shared-p4", {
                "server": server, "clients": 8, "parallel": 4 if server == "kvern" else 1,
                "shared": True, "threads": 2, "prompt_words": 128, "tokens": 32,
                "pieces": 512, "tokens_per_s": 400.0 / factor, "first_token_s": {"median": 0.1 * factor},
                "between_tokens_s": {"mean": 0.02}, "processor_s": 51.2 * factor, "other_threads_share": 0.012})
        page = self.page()
        self.assertIn("| 8 | shared | 4 | 400 | 4.00x | 100 | 4.00x | 20 | 1.00x | 0.1 | 4.00x | 1.2% |", page)
        self.assertIn("| 1.2% |", page)
        self.assertIn("tokens per second | 3.00x | 4.00x | met |", page)
        self.assertIn("time between tokens | 1.00x | 1.00x | met |", page)
        self.assertIn("that HTTP takes | 1.00x | 2.50x | met |", page)

    def test_rows_batches_and_drafts(self):
        self.assertNotIn("Rows, batches and drafts", self.page())
        times = {"ms": 0.5, "ms_low": 0.4, "ms_high": 0.6}
        self.save("rows-sharing-all", {"cells": [{
            "threads": 1, "head_dim": 64, "q_heads": 24, "kv_heads": 8, "shared": times, "alone": {**times, "ms": 0.9},
            "speed": 1.8, "forked_memory": 1.0, "decoded_memory": 1.21}]})
        for batch, speed in ((1, 100.0), (8, 410.0)):
            self.save(f"rows-batch-{batch}-t2", {"cells": [{
                "threads": 2, "batch": batch, "generation_tokens_per_s": speed}]})
        text = {"text": "repeats itself", "plain_tokens_per_s": 100.0, "draft_tokens_per_s": 160.0, "ratio_low": 1.5,
                "ratio_high": 1.7, "accepted": 30, "drafted": 40}
        self.save("rows-draft-t1", {"threads": 1, "texts": [text, {**text, "text": "does not",
                                                                  "draft_tokens_per_s": 99.0}]})
        page = self.page()
        self.assertIn("| 1 thread | 64 | 24/8 | 500 us (400 us-600 us) | 900 us (400 us-600 us) | 1.80x | 1.00x | "
                      "1.21x |", page)
        self.assertIn("| 2 threads | 100 | 410 | 4.10x |", page)
        self.assertIn("| 1 thread | repeats itself | 100 | 160 | 1.60x (1.50-1.70) | 30 of 40 |", page)
        self.assertRegex(page, r"share 2048 positions.*\| 1.80x \| \*\*missed\*\*")
        self.assertRegex(page, r"batch of 8 .*\| 4.10x \| met")
        self.assertRegex(page, r"n-gram drafts .*\| 1.60x \| met")

    def layer(self, phase="decode", ms=10.0, peers=(("f32", 50.0),), **more):
        """What the cells of latents and of recurrent layers have in common: the bandwidth needs 8 ms, the peak 5."""
        return {"phase": phase, "threads": 1, "new_tokens": 1, "ms": ms, "ms_low": ms, "ms_high": ms,
                "roofline_share": 8.0 / ms, "bytes": 8e-3 * GIGA, "fma": 5e-3 * GIGA, "limit_bytes_per_s": GIGA,
                "limit_fma_per_s": GIGA, **more,
                "peers": [{"storage": name, "ms": time, "ms_low": time, "ms_high": time, "difference": 0.0}
                          for name, time in peers]}

    def latent(self, **more):
        return self.layer(**{"storage": "bf16", "head_dim": 512, "q_heads": 16, "kv_heads": 1, "positions": 8192,
                             **more})

    def test_latents(self):
        self.save("latent-ggml-x", {"peer": "ggml 1", "cells": [
            self.latent(), self.latent(phase="window", ms=8.0, new_tokens=512, peers=(("f16", 16.0),))]})
        self.save("latent-mlx-x", {"peer": "mlx 0.3", "cells": [
            self.latent(ms=12.0, peers=(("f32", 6.0),)), self.latent(phase="window", ms=100.0, new_tokens=32),
            self.latent(storage="f32", ms=1000.0)]})
        page = self.page()
        self.assertIn("### Latents, decode", page)
        self.assertIn("| 16 | bf16 | 1 | 8192 | 1 | 10.000 (10.000-10.000) | 0.8 | 0.5 | 80% | ggml f32 | 50.000 | "
                      "5.00x |", page)
        self.assertIn("| mlx f32 | 6.000 | **0.50x, peer faster** |", page)
        self.assertEqual(self.aim("absorbed decode").values, (0.8, 8 / 12))
        self.assertEqual(self.aim("latents, windows").values, (5 / 8,))  # 32 tokens are no window
        self.assertEqual(self.aim("latents, decode against ggml").values, (5.0,))
        self.assertEqual(self.aim("latents, decode against mlx").verdict, "**missed**")
        self.assertEqual(self.aim("latents, window against ggml").verdict, "**missed**")

    def test_recurrent_layers(self):
        self.save("recurrent-ggml-x", {"peer": "ggml 1", "cells": [
            self.layer(kind="delta", loops_ms=25.0), self.layer("window", kind="delta", loops_ms=25.0, ms=10.0),
            self.layer(kind="ssd", ms=100.0, loops_ms=200.0, peers=()),
            {"phase": "rollback", "kind": "delta", "new_tokens": 4, "threads": 1, "ms": 0.5, "again_ms": 0.3,
             "copy_ms": 0.1}]})
        page = self.page()
        self.assertIn("| decode | delta | 1 | 1 | 10.000 (10.000-10.000) | 0.8 | 0.5 | 80% | 2.50x | ggml f32 | 50.000 "
                      "| 5.00x |", page)
        self.assertRegex(page, r"\| decode \| ssd \|.*\| 2.00x \| - \| - \| - \|")
        self.assertIn("| delta | 1 | 0.500 | 0.300 | 0.100 | 125% |", page)
        self.assertEqual(self.aim("gated delta decode").values, (0.8,))
        self.assertEqual(self.aim("gated delta window").verdict, "**missed**")  # 5 of 10 ms
        self.assertEqual(self.aim("over its rollback").verdict, "**missed**")
        self.assertEqual(self.aim("gated delta", "decode against ggml").verdict, "met")

    def test_selections(self):
        times = {"ms": 10.0, "ms_low": 9.0, "ms_high": 11.0}
        cell = {"storage": "f32", "threads": 2, "positions": 65536, "top_k": 2048, "index_heads": 64, "index_dim": 128,
                "select": times, "fma": 5e-3 * GIGA, "fma_share": 0.5, "pick_share": 0.05,
                "peers": [{"storage": "f32", "ms": 40.0, "ms_low": 40.0, "ms_high": 40.0, "difference": 0.0},
                          {"storage": "odd", "refused": "no such storage"}]}
        self.save("select-mlx-x", {"peer": "mlx 0.3", "cells": [cell]})
        self.assertIn("| f32 | 2 | 65536 | 2048 | 64x128 | 10.000 (9.000-11.000) | 0.5 | 50% | 5.0% | mlx f32 | 40.000 "
                      "| 4.00x |", self.page())
        self.assertEqual(self.aim("top-2048").verdict, "**missed**")
        self.assertEqual(self.aim("a tenth of the selection").values, (2.0,))
        self.assertEqual(self.aim("index scores", "mlx").verdict, "met")
        self.assertEqual(self.aim("index scores", "ggml").verdict, "not measured")

    def test_parts_that_were_not_measured_stay(self):
        self.save_attention(attention(ms=10.0, peers=(("f16", 39.0),)))
        self.save("check-x", {"cells": [], "foreign_share": 0.2})
        self.save("machine", {"cpu": "Abacus 9"})
        before = self.page()
        self.assertNotIn(report.LAYERS_TITLE, report.sections_of(before))
        for old in (self.root / "results").glob("*.json"):
            old.unlink()
        self.save("machine", {"cpu": "Abacus 9"})
        self.save("latent-ggml-x", {"peer": "ggml 1", "cells": [self.latent()], "foreign_share": 0.01})
        page = self.page()
        self.assertIn("Measured on Abacus 9, 2026-11-30, commit abc; others took median 1.0%, at most 1.0%", page)
        for heading in ("Machine", "What was measured", "Attention"):
            self.assertEqual(report.sections_of(page)[heading], report.sections_of(before)[heading])
        self.assertEqual(page.count("The machine was not quiet"), 1)
        self.assertIn("![Decode over positions](plots/decode.svg)", page)
        self.assertRegex(page, r"decode against ggml's f16.*\| 3.90x \| \*\*missed\*\*")
        self.assertRegex(page, r"absorbed decode.*\| 80% \| met")
        self.assertEqual(page, self.page())

    def save_models(self):
        """Beside llama.cpp Kvern was faster than beside the others."""
        def cell(ours, *peers):
            return {"ctx": 2048, "threads": 2, "bytes_per_token": 1e8, "limit_bytes_per_s": 2e10, **speeds(*ours),
                    "peers": list(peers)}

        def peer(storage, prompt, generation):
            return {**speeds(prompt, generation), "storage": storage, "difference": 0.03}

        self.save("model-smollm2-c2048-t2", {"peer": "llama.cpp of x 1", "cells": [
            cell((400.0, 150.0), peer("f16", 100.0, 50.0))]})
        self.save("model-smollm2-c2048-t2-ik", {"peer": "ik_llama.cpp of y 2", "cells": [
            cell((300.0, 100.0), peer("f16-rtr", 200.0, 125.0), peer("f16", 500.0, 20.0))]})
        mute = peer("paged", 150.0, 25.0)
        del mute["difference"]
        self.save("model-smollm2-c2048-t2-openvino", {"peer": "OpenVINO GenAI 3", "cells": [
            cell((300.0, 100.0), mute, {"storage": "sdpa", "refused": "too odd"})]})

    def test_peers_are_compared_within_their_runs(self):
        self.save_models()
        page = self.page()
        self.assertRegex(page, r"\| Kvern bf16 \| 400.0 .*\| 75% \|  \|")
        self.assertRegex(page, r"\| llama.cpp f16 \|.*\| 4.00x \|.*\| 3.00x \|  \| 0.030 \|")
        self.assertRegex(page, r"\| ik_llama.cpp f16-rtr \|.*\| 1.50x \|.*\*\*0.80x, peer faster\*\* \|  \| 0.030 \|")
        self.assertRegex(page, r"\| ik_llama.cpp f16 \|.*\*\*0.60x, peer faster\*\*")
        self.assertRegex(page, r"\| OpenVINO GenAI paged \|.*\| 2.00x \|.*\| 4.00x \|  \| - \|")
        self.assertIn("| OpenVINO GenAI sdpa | refuses: too odd |", page)
        self.assertEqual(page.count("| Kvern bf16 |"), 1)
        self.assertEqual(self.aim("fastest peer", "prompts").values, (0.6,))
        self.assertEqual(self.aim("fastest peer", "generation").values, (0.8,))
        self.assertEqual(self.aim("generation, both models").values, (0.75,))
        self.assertEqual(self.aim("SmolLM2 against llama.cpp", "prompt at 2048").values, (4.0,))
        self.assertIn("| SmolLM2 135M, Q4_1: prompt to 2048 tokens | 400 tokens/s on 2 threads, **0.60x, peer "
                      "faster** ik_llama.cpp f16 |", page)
        plot = (self.plots / "prompt.svg").read_text(encoding="utf-8")
        self.assertIn("ik_llama.cpp f16-rtr", plot)
        self.assertNotIn("sdpa", plot)

    def test_batches_behind_a_context(self):
        for batch, speed in ((1, 100.0), (4, 360.0), (16, 800.0)):
            self.save(f"rows-behind-{batch}", {"cells": [{
                "threads": 2, "ctx": 2048, "batch": batch, "generation_tokens_per_s": speed}]})
        self.assertIn("| 2 threads | 2048 | 100 | 360 (90%) | 800 (50%) |", self.page())
        self.assertEqual(self.aim("batches of 4, 8, 16").values, (0.9, 0.5))

    def test_reads_and_long_contexts(self):
        self.assertNotIn(report.READS_TITLE, self.page())
        self.save("machine", {"cpu": "Abacus 9"})
        self.save("reads-mlx-t1-decode-bf16", {"peer": "mlx 0.3", "cells": [
            self.latent(storage="bf16", head_dim=64, q_heads=32, kv_heads=8, peers=(("f32", 20.0), ("bf16", 5.0)))]})
        self.save("reads-numpy-t1-decode-bf16", {"peer": "numpy 2", "cells": [
            self.latent(storage="bf16", head_dim=64, q_heads=32, kv_heads=8, peers=(("f32", 30.0),))]})
        self.save("long-bf16-p1048576", {"cells": [
            self.latent(storage="bf16", head_dim=128, q_heads=32, kv_heads=8, positions=1048576, ms=9.0)]})
        page = self.page()
        for text in ("| decode | bf16 | 64 | 32/8 | 8192 | 1 | 10.000 (10.000-10.000) | 0.8 | 0.5 | 80% | mlx bf16 | "
                     "5.000 | **0.50x, peer faster** |", "| numpy f32 | 30.000 | 3.00x |",
                     "| 1048576 | bf16 | 1 | 0.01 | 9.000 (9.000-9.000) | 0.9 | 0.6 | 89% |"):
            self.assertIn(text, page)
        self.assertEqual(self.aim("attention against mlx").values, (2.0, 0.5))
        self.assertEqual(self.aim("attention against numpy").verdict, "met")
        self.assertEqual(self.aim("128k and 1M").verdict, "met")

    def test_starts(self):
        def row(program, storage, first, second, peak):
            return {"program": program, "storage": storage, "first_s": first, "second_s": second,
                    "second_low": second, "second_high": second, "peak_bytes": peak, "program_bytes": 4e6}

        self.save("start-smollm2-t2", {"threads": 2, "rows": [
            row("kvern", "", 0.2, 0.08, 1.2e8), row("llama", "f16", 0.4, 0.16, 1.8e8), row("ik", "f16", 0.1, 0.04, 9e7),
            {"program": "openvino", "storage": "paged", "refused": "no such model"}]})
        page = self.page()
        self.assertIn("| 2 | Kvern | 200 ms |  | 80 ms |  | 120.0 |  | 4.0 |", page)
        self.assertIn("| 2 | llama.cpp f16 | 400 ms | 2.00x | 160 ms | 2.00x | 180.0 | 1.50x | 4.0 |", page)
        self.assertIn("| 2 | OpenVINO GenAI paged | refuses: no such model |", page)
        self.assertIn("SmolLM2 135M 80 ms, 2.00x llama.cpp; 120 MB, 1.50x", page)
        self.assertEqual(self.aim("100 ms over").values, (1.25,))
        self.assertEqual(self.aim("second start against").values, (2.0, 0.5))
        self.assertEqual(self.aim("peak memory").values, (1.5,))

    def test_machines_stand_side_by_side(self):
        for cpu, ms in (("Abacus 9", 10.0), ("Slide Rule 2", 16.0)):
            self.save("machine", {"cpu": cpu, "processors": 2})
            self.save_attention(attention(ms=ms, peers=(("f16", 40.0),)))
            self.page()
        self.assertIn("[Abacus 9, 2 processors](perf/abacus-9/tables.md), [Slide Rule 2, 2 processors]"
                      "(perf/slide-rule-2/tables.md)", self.short)
        self.assertIn("| 10.000 ms, 80% of the roofline, 4.00x ggml's f16 | 16.000 ms, 50% of the roofline, 2.50x "
                      "ggml's f16 |", self.short)
        self.assertRegex(self.short, r"decode against ggml's f16.*\| 4.00x \| 4.00x, met \| 2.50x, \*\*missed\*\* \|")
        for plot in ("perf/abacus-9/plots/decode.svg", "perf/slide-rule-2/plots/decode.svg"):
            self.assertIn(plot, self.short)
            self.assertTrue((self.root / "docs" / plot).exists())

    def test_what_a_shorter_run_does_not_know_of_the_machine_stays(self):
        self.save("machine", {"cpu": "Abacus 9"})
        self.save_attention(attention(ms=10.0))
        before = self.page()
        (self.root / "results" / "attention-x.json").unlink()
        self.save("rows-batch-1-t2", {"commit": "def", "cells": [
            {"threads": 2, "batch": 1, "generation_tokens_per_s": 1.0}]})
        page = self.page()
        for line in ("| instruction set of Kvern | avx2 |", "| limits, 1 thread | 1.0 GB/s read, 1.0 billion FMA/s |",
                     "- attention: head dims 128"):
            self.assertIn(line, before)
            self.assertIn(line, page)
        self.assertIn("| measured | 2026-11-30, commit abc, def |", page)
        self.assertIn("80% of the roofline", page)

    def test_a_busy_machine_is_named(self):
        self.save("check-x", {"cells": [], "foreign_share": 0.01})
        self.assertNotIn("not quiet", self.page())
        self.save("check-y", {"cells": [], "foreign_share": 0.2})
        self.save("check-z", {"cells": []})
        self.assertIn("in 2 of the 3 steps", self.page())

    def test_the_method_and_the_machine_are_named(self):
        self.save("machine", {"cpu": "Abacus 9", "processors": 3, "peer_build": "AVX2 = 1 | FMA = 1"})
        self.save("check-x", {"cells": [], "foreign_share": 0.034})
        page = self.page()
        self.assertIn("median 3.4%, at most 3.4%", page)
        self.assertIn("Abacus 9, 3 processors", page)
        self.assertIn("AVX2 = 1 / FMA = 1", page)
        self.assertIn("## How it is measured", page)


if __name__ == "__main__":
    unittest.main()
