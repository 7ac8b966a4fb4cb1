# SPDX-License-Identifier: MIT
"""The lines between `kvern bench` and a peer: bench/measure/peer.h says what they mean."""

import os
import sys
import time

# An attend that takes less is timed behind another one, so that its threads are awake.
SHORT_SECONDS = 0.005


class Refused(Exception):
    """The peer cannot do what a line asks for."""


def take_output():
    """The stream for answers; whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def rest():
    """Waits until the threads of this process no longer look out for work."""
    for _ in range(200):
        used = time.process_time()
        time.sleep(0.002)
        if time.process_time() - used < 0.0005:
            return


def serve(peer):
    """Answers lines until they end. Word by word, `peer` has a method for every kind of line:
    name(), open(...), run(), output(token, head), model(storage, threads, context, file),
    time(context, prompt, generate), close(). It returns what the answer says; None is "ok"."""
    answers = take_output()
    for line in sys.stdin:
        # Only the last word of a "model" line may hold spaces.
        words = line.rstrip("\n").split(" ", 4 if line.startswith("model ") else -1)
        try:
            answer = getattr(peer, words[0])(*words[1:])
            text = "ok" if answer is None else str(answer)
        except Refused as refusal:
            text = f"no {refusal}"
        answers.write(text + "\n")
        answers.flush()
