# SPDX-License-Identifier: MIT
"""The results of bench/peers/run.py as lists of plain cells."""

import dataclasses
import json
import statistics


@dataclasses.dataclass(frozen=True)
class Peer:
    """What a peer needed for the same cell; seconds."""

    storage: str
    seconds: float
    low: float
    high: float
    difference: float


@dataclasses.dataclass(frozen=True)
class Cell:
    """One geometry of an attention read."""

    phase: str
    storage: str
    head_dim: int
    q_heads: int
    kv_heads: int
    positions: int
    new_tokens: int
    threads: int
    seconds: float
    low: float
    high: float
    share: float
    from_cache: bool  # the bandwidth of memory is no limit
    bytes: float
    fma: float
    bandwidth: float
    fma_peak: float
    peers: tuple
    refused: tuple  # (storage, why)

    @property
    def memory_seconds(self):
        """What the bandwidth permits."""
        return 0 if self.from_cache else self.bytes / self.bandwidth

    @property
    def memory_bound(self):
        return self.memory_seconds > self.fma / self.fma_peak

    @property
    def fma_share(self):
        return self.fma / self.fma_peak / self.seconds

    @property
    def best_seconds(self):
        """What the roofline permits."""
        return max(self.memory_seconds, self.fma / self.fma_peak)

    @property
    def heads(self):
        return f"{self.q_heads}/{self.kv_heads}"

    def geometry(self):
        return (self.head_dim, self.q_heads, self.kv_heads, self.positions, self.new_tokens)

    def ratio(self, storage):
        """How many times faster than the peer with this storage; None when that was not measured."""
        times = [peer.seconds for peer in self.peers if peer.storage == storage]
        return times[0] / self.seconds if times else None


# Groups of results that are about other layers than attention over K and V.
LAYERS = ("latent", "recurrent", "select")
ALONE = ("reads", "long", "start")
# Groups that the page speaks of by themselves.
APART = (*LAYERS, *ALONE, "store", "serving", "codes")


class Steps:
    """What is known of calls of the program, given by group."""

    def __init__(self, groups):
        datas = [data for group in groups.values() for data in group]
        self.timed = [data for group, group_datas in groups.items() if group != "quality" for data in group_datas]
        self.commits = sorted({data["commit"] for data in datas if "commit" in data})
        self.dates = sorted({data["date"] for data in datas if "date" in data})
        self.foreign_shares = [data["foreign_share"] for data in self.timed if "foreign_share" in data]


@dataclasses.dataclass(frozen=True)
class LayerCell:
    """A cell of another kind of layer beside one peer, or beside none (""). `data` is what the
    program printed."""

    data: dict
    peer: str  # "ggml f16"
    peer_seconds: float
    difference: float

    @property
    def seconds(self):
        return self.data["ms"] / 1e3 if "ms" in self.data else self.data["select"]["ms"] / 1e3

    @property
    def bandwidth_share(self):
        return self.data["bytes"] / self.data["limit_bytes_per_s"] / self.seconds

    @property
    def fma_share(self):
        return self.data["fma"] / self.data["limit_fma_per_s"] / self.seconds

    @property
    def ratio(self):
        return self.peer_seconds / self.seconds


@dataclasses.dataclass(frozen=True)
class CodeCell:
    """A decode or an append of codes, and the first cell of its step, which of decodes is bf16."""

    data: dict
    first: dict

    @property
    def storage(self):
        return self.data["storage"]

    @property
    def group(self):
        return self.data["q_heads"] // self.data["kv_heads"]

    @property
    def speed(self):
        """Of a decode, over that of bf16."""
        return self.first["ms"] / self.data["ms"]

    @property
    def bytes_per_second(self):
        return self.data["bytes"] / self.data["ms"] * 1e3


def layer_cells(datas):
    """One for each peer of each cell. The peer's name is without its version."""
    cells = []
    for data in datas:
        name = data.get("peer", "").split(" ")[0]
        for cell in data["cells"]:
            measured = [LayerCell(cell, f"{name} {peer['storage']}", peer["ms"] / 1e3, peer["difference"])
                        for peer in cell.get("peers", ()) if "ms" in peer]
            cells += measured or [LayerCell(cell, "", 0.0, 0.0)]
    return cells


@dataclasses.dataclass
class Stored:
    """What storing the KV cache costs one model in long windows, of ours and of llama.cpp."""

    window: int = 0
    positions: int = 0
    rows: dict = dataclasses.field(default_factory=dict)  # what kvern eval says, by storage
    peers: dict = dataclasses.field(default_factory=dict)  # the same of llama.cpp
    speeds: dict = dataclasses.field(default_factory=dict)  # kvern bench model's cells, by storage

    def add(self, kind, data):
        """A result of the kind of its file's name."""
        if kind == "speed":
            self.speeds[data["kv"]] = data["cells"][0]
            return
        self.window, self.positions = data["window"], data["positions"]
        rows = self.peers if kind == "peer" else self.rows
        rows.update((row["kv"], row) for row in data["rows"])


def stored_by_model(files):
    """Of files storage-KIND-MODEL-PART."""
    models = {}
    for name, data in files.items():
        if name.startswith("storage-"):
            _, kind, rest = name.split("-", 2)
            models.setdefault(rest.rsplit("-", 1)[0], Stored()).add(kind, data)
    return models


def with_peers(cell, program):
    """A cell of a model whose peers say which program they are and how many times faster we were beside them."""
    parts = ("prompt", "generation")
    peers = [{**peer, "program": program} if "refused" in peer else
             {**peer, "program": program, "ratios": {
                 part: cell[f"{part}_tokens_per_s"] / peer[f"{part}_tokens_per_s"] for part in parts}}
             for peer in cell["peers"]]
    return {**cell, "peers": peers}


# What the peers of models call themselves, before their versions.
MODEL_PROGRAMS = ("llama.cpp", "ik_llama.cpp", "OpenVINO GenAI")


def models_of(files):
    """Cells of files model-NAME-cCONTEXT-tTHREADS and of those with -PEER behind that, by the model's name. A
    cell's own numbers are those beside llama.cpp, or beside the first peer there is."""
    models = {}
    for name, data in sorted(files.items(), key=lambda item: len(item[0])):
        if name.startswith("model-"):
            cells = models.setdefault(name.removeprefix("model-").rsplit("-c", 1)[0], {})
            program = next((known for known in MODEL_PROGRAMS if data.get("peer", "").startswith(known)), "")
            for cell in (with_peers(cell, program) for cell in data["cells"]):
                known = cells.setdefault((cell["ctx"], cell["threads"]), {**cell, "peers": []})
                known["peers"] += cell["peers"]
    return {name: [cells[place] for place in sorted(cells)] for name, cells in models.items()}


def cell_of(data):
    """A cell from what kvern bench attention prints."""
    measured = [peer for peer in data["peers"] if "ms" in peer]
    return Cell(
        phase=data["phase"], storage=data["storage"], head_dim=data["head_dim"], q_heads=data["q_heads"],
        kv_heads=data["kv_heads"], positions=data["positions"], new_tokens=data["new_tokens"],
        threads=data["threads"], seconds=data["ms"] / 1e3, low=data["ms_low"] / 1e3, high=data["ms_high"] / 1e3,
        share=data["roofline_share"], from_cache=bool(data.get("from_cache")), bytes=data["bytes"], fma=data["fma"],
        bandwidth=data["limit_bytes_per_s"], fma_peak=data["limit_fma_per_s"],
        peers=tuple(Peer(peer["storage"], peer["ms"] / 1e3, peer["ms_low"] / 1e3, peer["ms_high"] / 1e3,
                         peer["difference"]) for peer in measured),
        refused=tuple((peer["storage"], peer["refused"]) for peer in data["peers"] if "refused" in peer),
    )


def share_limits(cells):
    """What memory gave in one step it can give in all with as many threads: less was a disturbance of the limit's own
    measurement, and would make the share of it look larger."""
    for cell in (cell for cell in cells if cell.get("limit_bytes_per_s")):
        cell["limit_bytes_per_s"] = max(other.get("limit_bytes_per_s", 0) for other in cells
                                        if other["threads"] == cell["threads"])


class Results:
    """Everything of a results folder. What is missing is empty."""

    def __init__(self, folder):
        files = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
        parts = {group: [data for name, data in files.items() if name.startswith(group + "-")]
                 for group in ("attention", "codes", *LAYERS, *ALONE, "check", "model", "overhead-calls",
                               "overhead-first", "overhead-long", "rows-sharing", "rows-draft", "rows-batch",
                               "rows-behind", "quality", "store", "serving")}
        self.machine = files.get("machine", {})
        self.layer_steps = Steps({group: parts[group] for group in LAYERS})
        self.reads = layer_cells(parts["reads"])
        self.long_reads = [cell for data in parts["long"] for cell in data["cells"]]
        self.starts = {}  # by the model's name
        for name, data in files.items():
            if name.startswith("start-"):
                self.starts.setdefault(name.removeprefix("start-").rsplit("-t", 1)[0], []).append(data)
        self.read_steps, self.long_steps, self.start_steps = (Steps({group: parts[group]}) for group in ALONE)
        self.store_steps = Steps({"store": parts["store"]})
        self.serving_steps = Steps({"serving": parts["serving"]})
        self.code_steps = Steps({"codes": parts["codes"]})
        self.codes = [CodeCell(cell, data["cells"][0]) for data in parts["codes"] for cell in data["cells"]]
        self.steps = Steps({group: datas for group, datas in parts.items() if group not in APART})
        self.instructions = sorted({data["cpu"] for data in parts["attention"]})
        self.peer_names = sorted({data["peer"] for data in parts["attention"] + parts["model"] if data.get("peer")})
        self.attention = sorted((cell_of(cell) for data in parts["attention"] for cell in data["cells"]),
                                key=lambda cell: (cell.phase, cell.storage, cell.threads, *cell.geometry()))
        self.checks = [cell_of(cell) for data in parts["check"] for cell in data["cells"]]
        self.latent, self.recurrent, self.selections = (layer_cells(parts[group]) for group in LAYERS)
        self.models = models_of(files)  # cells by the model's name
        share_limits([cell for cells in self.models.values() for cell in cells])
        self.model = self.models.get("smollm2", [])  # what aims and plots are about
        self.quality = {name.removeprefix("quality-"): data for name, data in files.items()
                        if name.startswith("quality-")}
        self.stored = stored_by_model(files)
        self.stored_steps = Steps({"quality": [data for name, data in files.items() if name.startswith("storage-")]})
        self.calls = sorted(parts["overhead-calls"], key=lambda data: data["threads"])
        self.long = parts["overhead-long"]  # the same calls at many positions
        self.first = sorted(parts["overhead-first"], key=lambda data: data["threads"])

        # Servers by what was asked of them: clients, whether their prompts begin alike; of ours by how many answers
        # it makes at once.
        self.serving, self.peer_serving = {}, {}
        for data in parts["serving"]:
            asked = data["clients"], data["shared"]
            if data["server"] == "kvern":
                self.serving[*asked, data["parallel"]] = data
            else:
                self.peer_serving[asked] = data

        # What kvern bench store says, by its parts; files and first tokens by threads.
        self.lookups, self.directories = ([cell for data in parts["store"] for cell in data.get(part, ())]
                                          for part in ("lookup", "directory"))
        self.files, self.first_tokens = (sorted((data[part] for data in parts["store"] if part in data),
                                                key=lambda data: data["threads"]) for part in ("file", "first-token"))
        self.sharing = [cell for data in parts["rows-sharing"] for cell in data["cells"]]
        self.drafts = sorted(parts["rows-draft"], key=lambda data: data["threads"])
        self.batches = {}  # generated tokens per second by threads, then by rows
        for cell in (cell for data in parts["rows-batch"] for cell in data["cells"]):
            self.batches.setdefault(cell["threads"], {})[cell["batch"]] = cell["generation_tokens_per_s"]
        self.behind = {}  # the same behind a context
        for cell in (cell for data in parts["rows-behind"] for cell in data["cells"]):
            speeds = self.behind.setdefault((cell["threads"], cell["ctx"]), {})
            speeds[cell["batch"]] = cell["generation_tokens_per_s"]

    def select(self, **wanted):
        """Attention cells with these values."""
        return [cell for cell in self.attention if all(getattr(cell, key) == value for key, value in wanted.items())]

    def storages(self):
        return list(dict.fromkeys(cell.storage for cell in self.attention))

    def threads(self):
        return sorted({cell.threads for cell in self.attention})

    def limits(self, threads):
        """Medians of what the machine did at most: bytes/s, fma/s."""
        cells = self.select(threads=threads)
        return (statistics.median(cell.bandwidth for cell in cells),
                statistics.median(cell.fma_peak for cell in cells))
