# SPDX-License-Identifier: MIT
"""What servers are compared in."""

# Answers that Kvern makes at once where every client is to have its tokens as fast as the peer, which makes one,
# gives them.
FEW_ANSWERS = 4


def serving_ratios(ours, peer):
    """How many times better ours is, by what."""
    return {
        "throughput": ours["tokens_per_s"] / peer["tokens_per_s"],
        "first": peer["first_token_s"]["median"] / ours["first_token_s"]["median"],
        "between": peer["between_tokens_s"]["mean"] / ours["between_tokens_s"]["mean"],
        "processor": peer["processor_s"] / peer["pieces"] / (ours["processor_s"] / ours["pieces"]),
    }
