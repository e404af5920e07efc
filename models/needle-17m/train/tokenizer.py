"""Byte-level BPE of tokenizer.json, for the ASCII texts that this model is trained on.

A training machine then needs nothing but PyTorch. The Unicode classes of the pre-tokenizer are
reduced to ASCII, so other text is refused rather than split wrongly.
"""

import functools
import json
import pathlib
import re

BOS, EOS, PAD, USER, ASSISTANT, THINK, END_THINK = range(7)

LETTERS, SIGNS = "A-Za-z", re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
# Digits are split off first; the last pattern then sees the pieces between them.
DIGITS = re.compile(r"[0-9]{1,3}")
PIECES = re.compile(
    rf"[{SIGNS}][{LETTERS}]+|[^\r\n{LETTERS}{SIGNS}]?[{LETTERS}]+| ?[{SIGNS}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+|\S")

# Bytes that print nothing stand in the vocabulary as letters: byte b as U+0100 + b, DEL as the one after space.
VISIBLE = {byte: 0x100 + byte for byte in range(33)} | {0x7F: 0x121}
INVISIBLE = {letter: byte for byte, letter in VISIBLE.items()}


def pieces(text: str) -> list[str]:
    result, begin = [], 0
    for digits in DIGITS.finditer(text):
        result += PIECES.findall(text[begin:digits.start()])
        result.append(digits.group())
        begin = digits.end()
    return result + PIECES.findall(text[begin:])


class Tokenizer:
    def __init__(self, path: pathlib.Path):
        model = json.loads(path.read_text())["model"]
        self._vocabulary = model["vocab"]
        self._texts = {id: text for text, id in self._vocabulary.items()}
        merges = (m if isinstance(m, list) else m.split(" ") for m in model["merges"])
        self._rank = {tuple(merge): rank for rank, merge in enumerate(merges)}
        self._ids = functools.cache(self._encode_piece)

    def encode(self, text: str) -> list[int]:
        """Text without control tokens."""
        if not text.isascii():
            raise ValueError(f"not ASCII: {text!r}")
        return [id for piece in pieces(text) for id in self._ids(piece)]

    def decode(self, ids) -> str:
        """Control tokens appear by name."""
        return "".join(self._texts[int(id)] for id in ids).translate(INVISIBLE)

    def _encode_piece(self, piece: str) -> tuple[int, ...]:
        parts = list(piece.translate(VISIBLE))
        while len(parts) > 1:
            ranked = [(self._rank.get(pair, len(self._rank)), i)
                      for i, pair in enumerate(zip(parts, parts[1:]))]
            rank, i = min(ranked)
            if rank == len(self._rank):
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return tuple(self._vocabulary[part] for part in parts)
