#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a store that machines share does for 10 to 1,000 of them: a simulation.

    kvern bench store remote --url redis://host --json > store.json
    bench/scaling.py --store store.json --tokens-per-s 900 --bytes-per-token 12288

Requests arrive at random at N machines. Each begins with one of many prompts that some ask for more
often than others (Zipf), and goes on with tokens of its own. A machine serves the beginning from its
memory if it has it, fetches it from the servers of the store if they have it and that is faster than
to compute it, and computes it otherwise; it computes one prompt at a time. The blocks of a prompt
lie on the servers by their hashes, as in a Redis Cluster: 16384 slots in equal ranges. A server
sends one thing after the other, at the speed that was measured; so does the network of a machine.
Everything else takes no time. The same seed gives the same numbers.

Prints one line for each number of machines: what of the beginnings came from where, how long a
prompt waited and took, the median and the 99th percentile, the same without a store, and how busy
the busiest server was beside the mean.
"""

import argparse
import bisect
import hashlib
import json
import random
import sys
from collections import OrderedDict

SLOTS = 16384


class Line:
    """Something that does one thing after the other: a server's or a machine's network."""

    def __init__(self):
        self.free = 0.0
        self.busy = 0.0

    def take(self, now, seconds):
        """The time at which something that was asked for now has been done."""
        begin = max(now, self.free)
        self.free = begin + seconds
        self.busy += seconds
        return self.free


class Memory:
    """The prompts that a machine has, the one that was unused for the longest first."""

    def __init__(self, tokens):
        self.room = tokens
        self.prompts = OrderedDict()

    def has(self, prompt):
        if prompt in self.prompts:
            self.prompts.move_to_end(prompt)
            return True
        return False

    def put(self, prompt, tokens):
        if prompt in self.prompts or tokens > self.room:
            return
        self.prompts[prompt] = tokens
        self.room -= tokens
        while self.room < 0:
            self.room += self.prompts.popitem(last=False)[1]


def server_of(prompt, block, servers):
    """The server of a block: by slots of its hash, as a cluster has them."""
    digest = hashlib.blake2b(f"{prompt}/{block}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % SLOTS * servers // SLOTS


class World:
    def __init__(self, options, machines, has_store):
        self.o = options
        self.has_store = has_store
        self.random = random.Random(options.seed)
        self.servers = [Line() for _ in range(max(1, round(machines * options.servers)))]
        self.networks = [Line() for _ in range(machines)]
        self.engines = [Line() for _ in range(machines)]
        self.memories = [Memory(options.memory_tokens) for _ in range(machines)]
        self.stored = Memory(options.store_tokens)
        self.lengths = [self.random.randint(options.shortest, options.longest)
                        for _ in range(options.prompts)]
        self.weights = []
        total = 0.0
        for rank in range(1, options.prompts + 1):
            total += rank ** -options.zipf
            self.weights.append(total)
        self.shares = {}
        self.counts = {"memory": 0, "fetched": 0, "computed": 0}

    def shares_of(self, prompt):
        """How many bytes of a prompt lie on which server."""
        if prompt not in self.shares:
            blocks = -(-self.lengths[prompt] // 64) * self.o.layers
            shares = {}
            for block in range(blocks):
                server = server_of(prompt, block, len(self.servers))
                shares[server] = shares.get(server, 0) + 1
            each = self.lengths[prompt] * self.o.bytes_per_token / blocks
            self.shares[prompt] = {server: n * each for server, n in shares.items()}
        return self.shares[prompt]

    def fetch(self, now, machine, prompt):
        """When a prompt has come: servers send at once, the machine's network takes it in."""
        asked = now + self.o.ask_s
        ends = [self.servers[server].take(asked, size / self.o.server_bytes_per_s)
                for server, size in self.shares_of(prompt).items()]
        size = self.lengths[prompt] * self.o.bytes_per_token
        return max(*ends, self.networks[machine].take(asked, size / self.o.network_bytes_per_s))

    def fetch_pays(self, now, machine, prompt):
        """As a machine that knows how long the store took lately would decide."""
        shares = self.shares_of(prompt)
        wait = max(max(self.servers[s].free - now, 0) + n / self.o.server_bytes_per_s
                   for s, n in shares.items())
        size = self.lengths[prompt] * self.o.bytes_per_token
        took = self.o.ask_s + max(wait, size / self.o.network_bytes_per_s,
                                  max(self.networks[machine].free - now, 0))
        return took < self.lengths[prompt] / self.o.tokens_per_s and took < self.o.deadline_s

    def serve(self, now):
        """One request: how long until its first token."""
        machine = self.random.randrange(len(self.engines))
        prompt = bisect.bisect_left(self.weights, self.random.random() * self.weights[-1])
        tokens, ready, source = self.o.own_tokens, now, "computed"
        if self.memories[machine].has(prompt):
            source = "memory"
        elif self.has_store and self.stored.has(prompt) and self.fetch_pays(now, machine, prompt):
            source, ready = "fetched", self.fetch(now, machine, prompt)
        else:
            tokens += self.lengths[prompt]
        self.counts[source] += 1
        end = self.engines[machine].take(ready, tokens / self.o.tokens_per_s)
        self.memories[machine].put(prompt, self.lengths[prompt])
        self.stored.put(prompt, self.lengths[prompt])
        return end - now

    def run(self):
        now, times = 0.0, []
        rate = self.o.rate * len(self.engines)
        for number in range(self.o.requests * len(self.engines)):
            now += self.random.expovariate(rate)
            took = self.serve(now)
            if number >= len(self.engines) * self.o.requests // 4:  # what came first warms up
                times.append(took)
        return now, sorted(times)


def read_store(path, options):
    """What was measured: the time to ask, and the bytes per second of a fetch."""
    with open(path, encoding="utf-8") as file:
        measured = json.load(file)
    measured = measured.get("remote", measured)
    items = {item["name"]: item for item in measured["items"]}
    options.ask_s = items["ask"]["ms"] / 1e3
    options.server_bytes_per_s = items["fetch"]["bytes_per_s"]
    return measured


def break_even(options, bytes_per_s):
    """Tokens from which on a fetch from idle servers beats computing; None: never."""
    gain = 1 / options.tokens_per_s - options.bytes_per_token / bytes_per_s
    return options.ask_s / gain if gain > 0 else None


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--store", help="what `kvern bench store remote --json` printed")
    add("--ask-s", type=float, default=0.001, help="seconds to ask, without --store")
    add("--server-bytes-per-s", type=float, default=1e9, help="likewise, of one server")
    add("--network-bytes-per-s", type=float, default=1.25e9, help="of a machine (10 Gbit/s)")
    add("--tokens-per-s", type=float, required=True, help="prompt tokens that a machine computes")
    add("--bytes-per-token", type=float, required=True, help="of the KV cache")
    add("--layers", type=int, default=30, help="blocks of 64 tokens")
    add("--machines", default="10,30,100,300,1000")
    add("--servers", type=float, default=0.1, help="of the store for each machine")
    add("--rate", type=float, default=0.2, help="requests per second and machine")
    add("--requests", type=int, default=200, help="for each machine")
    add("--prompts", type=int, default=2000)
    add("--zipf", type=float, default=1.0)
    add("--shortest", type=int, default=200, help="tokens of a beginning")
    add("--longest", type=int, default=4000)
    add("--own-tokens", type=int, default=100, help="tokens behind it")
    add("--memory-tokens", type=int, default=40000, help="that a machine keeps")
    add("--store-tokens", type=int, default=10**9, help="that the store keeps")
    add("--deadline-s", type=float, default=5.0, help="the most that a fetch may take")
    add("--seed", type=int, default=1)
    add("--json", action="store_true")
    return parser.parse_args()


def quantile(times, share):
    return times[min(len(times) - 1, int(share * len(times)))]


def simulate(options, machines):
    without = World(options, machines, False).run()[1]
    world = World(options, machines, True)
    seconds, times = world.run()
    busy = [server.busy / seconds for server in world.servers]
    total = sum(world.counts.values())
    return {
        "machines": machines,
        "servers": len(busy),
        "memory": world.counts["memory"] / total,
        "fetched": world.counts["fetched"] / total,
        "computed": world.counts["computed"] / total,
        "median_s": quantile(times, 0.5),
        "p99_s": quantile(times, 0.99),
        "median_without_s": quantile(without, 0.5),
        "p99_without_s": quantile(without, 0.99),
        "busy_mean": sum(busy) / len(busy),
        "busy_most": max(busy),
    }


def main():
    options = parse()
    if options.store:
        read_store(options.store, options)
    even = break_even(options, min(options.server_bytes_per_s, options.network_bytes_per_s))
    rows = [simulate(options, int(n)) for n in options.machines.split(",")]
    if options.json:
        json.dump({"break_even_tokens": even, "rows": rows}, sys.stdout, indent=1)
        print()
        return
    print("a fetch from one idle server beats computing "
          + ("never" if even is None else f"from {even:.0f} tokens on"))
    print("machines servers  memory fetched computed   median      p99   without      p99   busy most")
    for row in rows:
        print(f"{row['machines']:8} {row['servers']:7} {row['memory']:7.1%} {row['fetched']:7.1%} "
              f"{row['computed']:8.1%} {row['median_s']:7.2f}s {row['p99_s']:7.2f}s "
              f"{row['median_without_s']:8.2f}s {row['p99_without_s']:7.2f}s "
              f"{row['busy_mean']:5.1%} {row['busy_most']:5.1%}")


if __name__ == "__main__":
    main()
