#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The logits of a whole model from two programs, byte for byte: this machine's and one for another
# architecture, run by an emulator.
#
#   tests/samebits/whole_model.sh KVERN OTHER_COMMAND...
#
# The model is the file KVERN_TEST_MODEL.
set -euo pipefail

native=${1:?usage: tests/samebits/whole_model.sh KVERN OTHER_COMMAND...}
shift
model=${KVERN_TEST_MODEL:?names the model file}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

text="The lighthouse keeper wound the clock every evening before the sun had fully set."
"$native" logits "$model" --raw -p "$text" --out "$work/native.npy"
"$@" logits "$model" --raw -p "$text" --chunk 4 --out "$work/other.npy"
cmp "$work/native.npy" "$work/other.npy"
echo "equal: $(stat -c %s "$work/native.npy") bytes"
