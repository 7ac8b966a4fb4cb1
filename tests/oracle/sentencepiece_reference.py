# SPDX-License-Identifier: MIT
"""The sentencepiece package as the reference for a GGUF file's "llama" vocabulary."""

import re

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

# Numbers of tokenizer.ggml.token_type, which are those of sentencepiece.
UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
BPE = 2


class SentencePieceReference:
    """What the package makes of the vocabulary of `metadata` (tokenizer.ggml.*)."""

    def __init__(self, metadata):
        self.metadata = metadata
        self.tokens = metadata["tokenizer.ggml.tokens"]
        self.types = metadata["tokenizer.ggml.token_type"]
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.serialized())
        control = [token for token, kind in zip(self.tokens, self.types) if kind == CONTROL]
        control.sort(key=len, reverse=True)
        self.control = re.compile("|".join(map(re.escape, control)))
        self.ids = {token: index for index, token in reversed(list(enumerate(self.tokens)))}

    def serialized(self):
        proto = sentencepiece_model_pb2.ModelProto()
        unknown = self.metadata["tokenizer.ggml.unknown_token_id"]
        scores = self.metadata["tokenizer.ggml.scores"]
        for index, (token, kind) in enumerate(zip(self.tokens, self.types)):
            # A file may write the spaces of user-defined tokens as they are.
            text = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
            kind = UNKNOWN if index == unknown else kind
            proto.pieces.add(piece=text, score=scores[index], type=kind)
        proto.trainer_spec.model_type = BPE
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.unk_id = unknown
        proto.trainer_spec.vocab_size = len(self.tokens)
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = self.metadata.get(
            "tokenizer.ggml.add_space_prefix", True
        )
        proto.normalizer_spec.remove_extra_whitespaces = False
        proto.normalizer_spec.escape_whitespaces = True
        return proto.SerializeToString()

    def encode(self, text, special=False):
        """The ids of a text, without BOS; `special`: control tokens in it are recognised."""
        if not special:
            return self.processor.encode(text)
        ids, at = [], 0
        for match in self.control.finditer(text):
            ids += self.processor.encode(text[at : match.start()])
            ids.append(self.ids[match.group()])
            at = match.end()
        return ids + self.processor.encode(text[at:])
