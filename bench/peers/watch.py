# SPDX-License-Identifier: MIT
"""Runs a command that prints a JSON object, and prints the object with one more entry:
"foreign_share", the share of the processors' time that others took meanwhile.

    python3 bench/peers/watch.py COMMAND ARGUMENTS...
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time


def foreign_seconds():
    """Processor time that others have taken so far: other processes, and a host beneath this machine."""
    fields = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]
    user, nice, system, _, _, interrupts, soft, stolen = (int(field) / os.sysconf("SC_CLK_TCK") for field in fields)
    own = sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
              for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return user + nice + system + interrupts + soft + stolen - own


def main(command):
    started, before = time.monotonic(), foreign_seconds()
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        return run.returncode
    result = json.loads(run.stdout)
    seconds = time.monotonic() - started
    share = (foreign_seconds() - before) / (seconds * os.cpu_count())
    result["foreign_share"] = min(max(share, 0.0), 1.0)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
