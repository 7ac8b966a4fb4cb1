# SPDX-License-Identifier: MIT
"""Measures Kvern and its peers in the same runs, interleaved, and writes docs/PERF.md and docs/perf.

    python3 bench/peers/run.py [OPTIONS]        (make bench-peers BENCH="OPTIONS")

Every call of `kvern bench` is one step, whose JSON becomes one file of the results folder; the
report is made of all files there (bench/peers/report.py), and keeps what the page says about groups
of which there is none. A run removes the older results of what it measures, unless --keep is given:
then steps that have a result are left out.
"""

import argparse
import json
import math
import os
import pathlib
import shlex
import subprocess
import sys
import time

import report
from serving_cells import FEW_ANSWERS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench" / "peers"
GROUPS = ("attention", "codes", "reads", "long", "latent", "recurrent", "select", "model", "start", "overhead", "rows",
          "quality", "storage-speed", "store", "serving")

# Of tools/fetch-model: what whole models are measured with.
MODELS = ("smollm2", "gemma3-270m")

# Storages of the KV cache whose cost is shown, and the windows of text that each model reads.
QUALITY_STORAGES = "bf16,f16,q8,q6,q5,q4,q4g32,q3,q2,q8/q4,q4/q8,rq4,rq3,tq4,tq3,rq4/tq4"
QUALITY_WINDOWS = {"smollm2": 8, "gemma3-270m": 4}

# Presets, and codecs beside them, in windows long enough for the positions that presets keep in bf16,
# and for a model with layers of short windows half as long again; a step for each list, which has bf16
# to compare with. Divergences do not depend on what else runs, so that their group is one of its own.
LONG_STORAGES = ("bf16,light,balanced,small", "q8,rq8,q4,rq4", "tq4,tq3,tq2,tq1", "tq6,tq5,tq5/tq3,rq4/tq4")
LONG_WINDOWS = {"gemma3-270m": "12288"}
LONG_WINDOW = "8192"
QUALITY_PEER_STORAGES = ("f16-noflash", "q8_0", "q4_0")

# Whose speeds are measured, and behind how many tokens.
SPEED_STORAGES = (*LONG_STORAGES[0].split(","), "q8", "q4", "tq4")
SPEED_CONTEXT = "4096"

# Codes whose decodes are measured beside bf16, which leads each list; and what appends of them are.
CODES = ("bf16,tq1,tq2,tq3,tq4,tq5,tq6", "bf16,rq2,rq3,rq4,rq5,rq6,rq8,q4")
CODES_APPEND = ("tq1,tq2,tq3,tq4,tq5,tq6", "rq2,rq3,rq4,rq5,rq6,rq8,q4")
CODES_DIM, CODES_POSITIONS, CODES_APPENDED = "128", "8192", "2048"

# What the attention peer stores beside a storage of ours, whatever its groups; any storage that is
# not listed is measured against FAST_STORAGE.
PEER_STORAGES = {"bf16": "f16,bf16", "q8": "f16,q8_0", "q4": "f16,q4_0"}
# The only one that a peer has fast windows and prompts for: the others are measured as long as that
# takes minutes.
FAST_STORAGE = "f16"
MOST_SLOW_POSITIONS = 2048

# Peers of the other kinds of layers, and what they store; those of one thread are measured on one.
LAYER_PEERS = {"ggml": "f16,f32", "mlx": "f32", "numpy": "f32"}
ONE_THREAD = ("mlx", "numpy")
LATENT_STORAGES = "bf16,f32"

# Reads of keys and values in the array libraries, beside a storage of ours; NumPy has float32 alone. Of windows there
# are few new tokens: mlx takes seconds for them.
READ_PEERS = {"bf16": "f32,bf16", "q8": "q8", "q4": "q4"}
READ_WINDOW = ["--head-dim", "128", "--group", "4", "--positions", "2048", "--new", "64"]

# One row of long contexts, on as many threads as there are: 4 GB at most.
LONG_STORAGES_READ, LONG_POSITIONS = "bf16,q8,q4", "131072,1048576"

# Query heads of latents, and new tokens of their windows: mlx takes seconds for a token.
LATENT_WINDOWS = {"16": "512", "128": "64"}
LATENT_WINDOWS_MLX = {"16": "32", "128": "4"}

# How far their results may be from ours because of how we store.
MOST_LAYER_DIFFERENCE = {"reads": 0.1, "latent": 0.02, "recurrent": 0.001, "select": 0.25}

# Entries of the directory that is measured, and where it is made if that is there: a disk takes minutes to sync so
# many files.
DIRECTORY_ENTRIES, MEMORY_FOLDER = "100000", pathlib.Path("/dev/shm")

# llama.cpp is measured with and without flash attention, since either may be faster.
MODEL_STORAGES = ("f16", "f16-noflash")
MODEL_SLOW_STORAGES = ("q8_0", "q4_0")

# Other programs with whole models, in their fastest ways: at all lengths of context, and at the short ones alone.
MODEL_PEERS = {"ik": ("f16-rtr", "f16"), "openvino": ("paged", "sdpa")}
MODEL_SLOW_PEERS = {"ik": ("q8_0-rtr",), "openvino": ("paged-bf16",)}

# Rows that are computed together, and behind how many tokens.
BATCHES, BATCH_CONTEXT = ("1", "4", "8", "16"), "2048"

# Differences from our results with bf16 that storage alone explains; one position of 48 too many or
# too few makes more than 0.15.
CHECKED_STORAGES = "f16,bf16,q8_0,q4_0"
MOST_DIFFERENCE, MOST_DIFFERENCE_FEW_BITS = 0.02, 0.13


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default=",".join(GROUPS), help="what to measure; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="fewer cells and runs: minutes instead of hours")
    parser.add_argument("--keep", action="store_true", help="go on after an interrupted run")
    parser.add_argument("--storage", default="bf16,f16,q8,q4", help="of kvern bench attention; default: %(default)s")
    parser.add_argument("--threads", default="1,2", help="default: %(default)s")
    parser.add_argument("--head-dim", default="64,128,256", help="default: %(default)s")
    parser.add_argument("--group", default="1,3,4,8", help="query heads per KV head; default: %(default)s")
    parser.add_argument("--phase", default="decode,window", help="of attention and latents; default: %(default)s")
    parser.add_argument("--ctx", default="0,2048,7680", help="of kvern bench model; default: %(default)s")
    parser.add_argument("--model-runs", type=int, default=3, help="rounds of kvern bench model; default: %(default)s")
    parser.add_argument("--model", default=",".join(MODELS), help="of tools/fetch-model; default: %(default)s")
    parser.add_argument("--text", help="a text file, for the quality of storages; without it that is left out")
    parser.add_argument("--program", default=ROOT / "build" / "kvern", type=pathlib.Path)
    parser.add_argument("--results", default=ROOT / "build" / "bench-peers", type=pathlib.Path)
    parser.add_argument("--prefix", default="", help="a command put before each measurement, such as taskset or a lock")
    parser.add_argument("--no-report", action="store_true", help="leave docs/PERF.md and docs/perf alone")
    options = parser.parse_args(arguments)
    unknown = set(options.only.split(",")) - set(GROUPS)
    if unknown:
        parser.error(f"--only knows {', '.join(GROUPS)}, not {', '.join(sorted(unknown))}")
    return options


class Session:
    """The steps of one run."""

    def __init__(self, options):
        self.options = options
        self.prefix = shlex.split(options.prefix)
        self.wanted = set(options.only.split(","))
        self.model_peers = [peer for peer in MODEL_PEERS if self.wanted & {"model", "start"} and works(peer)]
        options.results.mkdir(parents=True, exist_ok=True)
        if not options.keep:
            more = (("attention", "check-*"), ("quality", "storage-eval-*"), ("quality", "storage-peer-*"))
            for group, pattern in (*((group, f"{group}-*") for group in GROUPS), *more):
                for old in options.results.glob(pattern) if group in self.wanted else ():
                    old.unlink()

    def step(self, name, arguments):
        """One call of the program."""
        self.measure(name, [self.options.program, *arguments])

    def measure(self, name, command):
        """A command that prints JSON with --json; the JSON becomes a result."""
        target = self.options.results / f"{name}.json"
        if target.exists():
            return
        command = [*self.prefix, "python3", PEERS / "watch.py", *command, "--json"]
        print("+", shlex.join(map(str, command)), file=sys.stderr, flush=True)
        started = time.monotonic()
        result = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        self.save(target, result)
        foreign = f"others took {100 * result['foreign_share']:.1f}% of the processors"
        print(f"  {time.monotonic() - started:.0f} s; {foreign}", file=sys.stderr, flush=True)

    def save(self, target, value):
        """Writes a result, whole or not at all."""
        value["commit"] = commit()
        value["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        partial = target.with_suffix(".part")
        partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        partial.replace(target)

    def check_peer(self):
        """Every head dim, group and number of threads once, on few positions, where one wrong
        position shows: a wrong stride or mask must not win."""
        options = self.options
        for phase in ("decode", "window"):
            self.step(f"check-{phase}", [
                "bench", "attention", "--phase", phase, "--head-dim", options.head_dim, "--group", options.group,
                "--positions", "48", "--new", "16", "-t", options.threads, "--runs", "1",
                "--peer", PEERS / "ggml-layers", "--peer-storage", CHECKED_STORAGES,
            ])
            result = json.loads((options.results / f"check-{phase}.json").read_text(encoding="utf-8"))
            for cell in result["cells"]:
                for peer in cell["peers"]:
                    most = MOST_DIFFERENCE_FEW_BITS if peer["storage"].startswith("q4") else MOST_DIFFERENCE
                    if not peer.get("difference", math.inf) <= most:
                        raise RuntimeError(f"the attention peer computes something else: {cell}")

    def attention(self):
        """One step per phase, storage, head dim, group, number of threads, and positions of a
        window."""
        options = self.options
        positions = {"decode": ["1024,8192" if options.quick else "1024,8192,65536"],
                     "window": ["2048"] if options.quick else ["2048", "8192"]}
        for phase, storage in grid(options.phase, options.storage):
            for dim, group, threads in grid(options.head_dim, options.group, options.threads):
                for stored in positions[phase]:
                    name = f"attention-{phase}-{storage}-d{dim}-g{group}-t{threads}-p{stored.replace(',', '-')}"
                    self.attention_step(name, phase, storage, [
                        "--head-dim", dim, "--group", group, "-t", threads, "--positions", stored])
        self.join_csv()

    def codes(self):
        """Decodes of codes beside bf16, one step per list and group, and appends; one thread, no peer."""
        runs = "7" if self.options.quick else "15"
        for part, storages in enumerate(CODES):
            for group in self.options.group.split(","):
                self.step(f"codes-decode-{part}-g{group}", [
                    "bench", "attention", "--phase", "decode", "--storage", storages, "--head-dim", CODES_DIM,
                    "--group", group, "-t", "1", "--positions", CODES_POSITIONS, "--runs", runs])
        for part, storages in enumerate(CODES_APPEND):
            self.step(f"codes-append-{part}", [
                "bench", "attention", "--phase", "append", "--storage", storages, "--head-dim", CODES_DIM,
                "-t", "1", "--positions", CODES_APPENDED, "--runs", runs])

    def layers(self, group, measure):
        """Steps of one group for each peer and number of threads; `measure` makes the steps of one."""
        for peer, threads in grid(",".join(LAYER_PEERS), self.options.threads):
            if threads == "1" or peer not in ONE_THREAD:
                measure(f"{group}-{peer}-t{threads}", peer, ["-t", threads, "--peer", PEERS / f"{peer}-layers"])

    def layer_step(self, name, arguments):
        """A step whose peers must not be far from us."""
        self.step(name, arguments)
        result = json.loads((self.options.results / f"{name}.json").read_text(encoding="utf-8"))
        most = MOST_LAYER_DIFFERENCE[name.split("-", maxsplit=1)[0]]
        for peer in (peer for cell in result["cells"] for peer in cell.get("peers", ())):
            if not peer.get("difference", 0) <= most:
                raise RuntimeError(f"the peer computes something else: {name}")

    def runs(self, peer, count):
        """Fewer for a peer that takes long."""
        return ["--runs", str(3 if peer == "mlx" or self.options.quick else count)]

    def reads(self, name, peer, how):
        """One step per phase and storage."""
        for storage, peers in READ_PEERS.items():
            if peer == "mlx" or (peer == "numpy" and storage == "bf16"):
                peers = peers if peer == "mlx" else "f32"
                for phase, geometry in (("decode", ["--head-dim", "64,128,256", "--group", "1,4,8",
                                                    "--positions", "8192"]), ("window", READ_WINDOW)):
                    self.layer_step(f"{name}-{phase}-{storage}", [
                        "bench", "attention", "--phase", phase, "--storage", storage, *geometry, *how,
                        "--peer-storage", peers, *self.runs(peer, 9 if phase == "decode" else 3)])

    def long(self):
        """Decodes of one row with very many positions, one step each: it takes gigabytes."""
        threads = self.options.threads.split(",")[-1]
        for storage, positions in grid(LONG_STORAGES_READ, LONG_POSITIONS.split(",", maxsplit=1)[0]
                                       if self.options.quick else LONG_POSITIONS):
            self.step(f"long-{storage}-p{positions}", [
                "bench", "attention", "--phase", "decode", "--storage", storage, "--head-dim", "128", "--group", "4",
                "--positions", positions, "-t", threads, "--runs", "7"])

    def latent(self, name, peer, how):
        """One step per phase, storage and number of query heads."""
        for phase, storage in grid(self.options.phase, LATENT_STORAGES):
            for heads, new in (LATENT_WINDOWS_MLX if peer == "mlx" else LATENT_WINDOWS).items():
                if phase == "window" and storage != LATENT_STORAGES.split(",", maxsplit=1)[0]:
                    continue  # a window decodes its latents once
                self.layer_step(f"{name}-{phase}-{storage}-h{heads}", [
                    "bench", "attention", "--kind", "latent", "--phase", phase, "--storage", storage,
                    "--group", heads, "--new", new, *how, "--peer-storage", LAYER_PEERS[peer],
                    *self.runs(peer, 9 if phase == "decode" else 3)])

    def recurrent(self, name, peer, how):
        """One step per kind and phase; what no peer has is measured beside the first one."""
        kinds = {"ggml": ("delta", "channels", "ssd"), "mlx": ("delta", "channels"), "numpy": ()}[peer]
        for kind, phase in ((kind, phase) for kind in kinds for phase in ("decode", "window")):
            self.layer_step(f"{name}-{kind}-{phase}", [
                "bench", "recurrent", "--kind", kind, "--phase", phase, *how, "--peer-storage", "f32",
                *self.runs(peer, 11 if phase == "decode" else 5)])
        if peer == "ggml":
            self.layer_step(f"{name}-rollback", ["bench", "recurrent", "--phase", "rollback", *how[:2], "--runs", "21"])

    def select(self, name, peer, how):
        """One step per storage of the index keys."""
        for storage in LATENT_STORAGES.split(","):
            self.layer_step(f"{name}-{storage}", [
                "bench", "select", "--storage", storage, "--heads", "128", *how,
                "--peer-storage", LAYER_PEERS[peer], *self.runs(peer, 9)])

    def attention_step(self, name, phase, storage, geometry):
        runs = {"decode": 7 if self.options.quick else 15, "window": 3 if self.options.quick else 5}[phase]
        peers = PEER_STORAGES.get(storage.split("g")[0], FAST_STORAGE)
        if phase == "window" and int(geometry[-1]) > MOST_SLOW_POSITIONS:
            peers = FAST_STORAGE
        self.step(name, [
            "bench", "attention", "--phase", phase, "--storage", storage, *geometry, "--runs", str(runs),
            "--peer", PEERS / "ggml-layers", "--peer-storage", peers,
            "--csv", self.options.results / f"{name}.csv",
        ])

    def join_csv(self):
        """All tables as one file."""
        lines = []
        for path in sorted(self.options.results.glob("attention-*.csv")):
            head, *rows = path.read_text(encoding="utf-8").splitlines()
            lines += rows if lines else [head, *rows]
        (self.options.results / "attention.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def quality(self, name, file):
        """What storages of the KV cache cost a model."""
        self.measure(f"quality-{name}", [
            self.options.program, "eval", file, "--text", self.options.text, "--kv", QUALITY_STORAGES,
            "--windows", str(QUALITY_WINDOWS.get(name, 4))])
        threads = self.options.threads.split(",")[-1]
        length = LONG_WINDOWS.get(name, LONG_WINDOW)
        window = ["--text", self.options.text, "--ctx", length, "--windows", "1", "-t", threads]
        for part, storages in enumerate(LONG_STORAGES):
            self.step(f"storage-eval-{name}-{part}", ["eval", file, "--kv", storages, *window])
        for storage in QUALITY_PEER_STORAGES:
            self.measure(f"storage-peer-{name}-{storage.replace('-', '_')}", [
                PEERS / "python", PEERS / "llama_quality.py", self.options.program, file, "--kv", storage, *window])

    def storage_speed(self, name, file):
        """How fast a model is with them, on as many threads as there are."""
        threads = self.options.threads.split(",")[-1]
        for storage in SPEED_STORAGES:
            self.step(f"storage-speed-{name}-{storage}", [
                "bench", "model", file, "--kv", storage, "--ctx", SPEED_CONTEXT, "-t", threads,
                "--runs", str(self.options.model_runs)])

    def model(self, name, file):
        """One step per number of threads and length of context."""
        options = self.options
        runs = 1 if options.quick else options.model_runs
        for threads, context in grid(options.threads, options.ctx):
            slow = MODEL_SLOW_STORAGES if int(context) <= (0 if options.quick else MOST_SLOW_POSITIONS) else ()
            self.step(f"model-{name}-c{context}-t{threads}", [
                "bench", "model", file, "--ctx", context, "-t", threads, "--runs", str(runs),
                "--peer", PEERS / "llama-model", "--peer-storage", ",".join((*MODEL_STORAGES, *slow)),
            ])
            for peer in self.model_peers:
                storages = (*MODEL_PEERS[peer], *(MODEL_SLOW_PEERS[peer] if slow else ()))
                self.step(f"model-{name}-c{context}-t{threads}-{peer}", [
                    "bench", "model", file, "--ctx", context, "-t", threads, "--runs", str(runs),
                    "--peer", PEERS / f"{peer}-model", "--peer-storage", ",".join(storages)])

    def start(self, name, file):
        """Loads and first tokens, in processes of their own."""
        for threads in self.options.threads.split(","):
            self.measure(f"start-{name}-t{threads}", [
                "python3", PEERS / "startup.py", self.options.program, file, threads,
                ",".join(("llama", *self.model_peers))])

    def rows(self, file):
        """What rows that share a prefix, batches, and drafts give: against ourselves without."""
        runs = ["--runs", "7"] if self.options.quick else []
        self.step("rows-sharing-all", ["bench", "sharing", "-t", self.options.threads, *runs])
        for threads in self.options.threads.split(","):
            self.step(f"rows-draft-t{threads}", ["bench", "draft", file, "-t", threads, *runs])
            for batch in ("1", "8"):
                self.step(f"rows-batch-{batch}-t{threads}", [
                    "bench", "model", file, "--ctx", "0", "--prompt", "64", "--generate", "128", "-t", threads,
                    "--batch", batch, *runs])
        for batch in BATCHES:
            self.step(f"rows-behind-{batch}", [
                "bench", "model", file, "--ctx", BATCH_CONTEXT, "-t", self.options.threads.split(",")[-1],
                "--batch", batch, "--runs", "1"])

    def store(self, file):
        """Keeping and finding prefixes: against computing them, and what disk and memory can do."""
        quick, folder = self.options.quick, self.options.results
        self.step("store-lookup-t1", ["bench", "store", "lookup", "--common", "8192"])
        many = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else folder
        self.step("store-directory-t1", ["bench", "store", "directory", "--runs", "3", "--dir", many, "--files",
                                         "2000" if quick else DIRECTORY_ENTRIES])
        for threads in self.options.threads.split(","):
            how = ["-t", threads, "--dir", folder]
            self.step(f"store-file-t{threads}", ["bench", "store", "file", *how, "--mib", "256" if quick else "1024"])
            self.step(f"store-token-t{threads}", ["bench", "store", "first-token", file, *how, "--runs", "3"])

    def serving(self, file):
        """Servers and clients on the same processors; as many threads as there are. Kvern makes an answer for
        every client at once, and then few, which is what the aims are about."""
        threads = self.options.threads.split(",")[-1]
        counts = "1,8" if self.options.quick else "1,8,32"
        for clients, shared in grid(counts, "shared,own"):
            for server, parallel in (("kvern", clients), ("kvern", str(FEW_ANSWERS)), ("llama", "1")):
                self.measure(f"serving-{server}-c{clients}-{shared}-p{parallel}", [
                    "python3", PEERS / "serving.py", self.options.program, file, "--server", server,
                    "--clients", clients, "--parallel", parallel, "-t", threads,
                    *(["--shared"] if shared == "shared" else [])])

    def overhead(self, file):
        """Costs around the arithmetic, and a run of the program up to its first output."""
        for threads in self.options.threads.split(","):
            self.step(f"overhead-calls-t{threads}", ["bench", "overhead", file, "-t", threads])
            first = ["python3", PEERS / "first_output.py", self.options.program, file, threads]
            self.measure(f"overhead-first-t{threads}", first)
        self.step("overhead-long-t1", ["bench", "overhead", file, "-t", "1", "--positions", "32768"])


def works(peer):
    """Whether the packages of a peer could be installed: not every machine has them."""
    run = subprocess.run([PEERS / f"python-{peer}", "-c", ""], check=False)
    if run.returncode != 0:
        print(f"bench/peers/run.py: without {peer}, which cannot be installed here", file=sys.stderr)
    return run.returncode == 0


def grid(*lists):
    """All combinations of the words of comma-separated lists."""
    first, *others = lists
    for word in first.split(","):
        for rest in grid(*others) if others else [()]:
            yield (word, *rest)


def commit():
    """The version that is measured; "+" is for changes that no commit holds."""
    describe = ["git", "-C", ROOT, "describe", "--always", "--dirty=+"]
    result = subprocess.run(describe, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def cpu_model():
    """What the processor calls itself, and of which family it is: virtual machines leave the number out."""
    lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    name = facts.get("model name", facts.get("Model", os.uname().machine))
    return f"{name}, family {facts['cpu family']}, model {facts['model']}" if "cpu family" in facts else name


def machine():
    """The machine and the peers' build, for the head of the report."""
    build = ("import ctypes, llama_cpp; llama_cpp.llama_log_set("
             "llama_cpp.llama_log_callback(lambda *_: None), ctypes.c_void_p(0)); "
             "print(llama_cpp.llama_print_system_info().decode())")
    info = subprocess.run([PEERS / "python", "-c", build], capture_output=True, text=True, check=True).stdout
    gcc = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "cpu": cpu_model(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{os.uname().sysname} {os.uname().release}",
        "compiler": gcc.splitlines()[0],
        "peer_build": info.strip(),
    }


def model_file(name):
    """The path of a model, fetched if need be."""
    fetch = subprocess.run([ROOT / "tools" / "fetch-model", name], stdout=subprocess.PIPE, text=True, check=True)
    return fetch.stdout.strip()


def main(arguments):
    options = parse_arguments(arguments)
    session = Session(options)
    (options.results / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n", encoding="utf-8")
    if "attention" in session.wanted:
        session.check_peer()
        session.attention()
    if "codes" in session.wanted:
        session.codes()
    if "long" in session.wanted:
        session.long()
    for group in ("reads", "latent", "recurrent", "select"):
        if group in session.wanted:
            session.layers(group, getattr(session, group))
    names = options.model.split(",")
    for name in names:
        if "model" in session.wanted:
            session.model(name, model_file(name))
        if "start" in session.wanted:
            session.start(name, model_file(name))
    for name in names:
        if "quality" in session.wanted and options.text:
            session.quality(name, model_file(name))
        if "storage-speed" in session.wanted:
            session.storage_speed(name, model_file(name))
    if "overhead" in session.wanted:
        session.overhead(model_file(names[0]))
    if "store" in session.wanted:
        session.store(model_file(names[0]))
    if "serving" in session.wanted:
        session.serving(model_file(names[0]))
    if "rows" in session.wanted:
        session.rows(model_file(names[0]))
    if not options.no_report:
        report.write(options.results, ROOT / "docs")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (subprocess.CalledProcessError, RuntimeError) as error:
        sys.exit(f"bench/peers/run.py: {error}")
