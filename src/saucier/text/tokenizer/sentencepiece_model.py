"""Reading SentencePiece model files: the few fields of the protobuf message that say how a text is split. Nothing is
run.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from saucier.errors import InputError

UNIGRAM, BPE = 1, 2
"""Kinds of models; the others (whole words, single characters) are not published for transformers."""
CONTROL, USER_DEFINED = 3, 4
"""Kinds of pieces that are found in a text as they are: special tokens, and words that are never split."""
VARINT, EIGHT_BYTES, BYTES, FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protobuf."""
WIDEST = 10
"""Bytes of the longest number."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; its place is its id."""

    text: str = ""
    score: float = 0.0
    kind: int = 1


@dataclass(slots=True)
class Pieces:
    """A SentencePiece model. Source: Kudo and Richardson 2018, arXiv:1808.06226; its `sentencepiece_model.proto`."""

    pieces: list[Piece] = field(default_factory=list)
    kind: int = UNIGRAM
    byte_fallback: bool = False
    whitespace_as_suffix: bool = False
    unk: int = 0
    charsmap: bytes = b""
    """Normalization of characters, compiled; empty where there is none."""

    @property
    def scores(self) -> list[tuple[str, float]]:
        """Text and score of every piece."""
        return [(piece.text, piece.score) for piece in self.pieces]


def read_pieces(path: Path) -> Pieces:
    """Read a SentencePiece model. Raises `InputError` that names the byte where the file stops making sense."""
    model = Pieces()
    try:
        for number, value, at in read_fields(path.read_bytes()):
            match number, value:
                case 1, bytes():
                    model.pieces.append(read_piece(value, at))
                case 2, bytes():
                    read_trainer(model, value, at)
                case 3, bytes():  # how a text is normalized
                    for key, found, _ in read_fields(value, at):
                        if key == 2 and isinstance(found, bytes):
                            model.charsmap = found
    except BrokenModelError as error:
        what, at = error.args
        raise InputError(f"not a SentencePiece model ({what})", where=f"{path}, byte {at}",
                         remedy="fetch it again") from error
    if not model.pieces:
        raise InputError("holds no pieces", where=str(path), remedy="fetch it again")
    if model.kind not in (UNIGRAM, BPE):
        raise InputError("is a model of words or characters", where=str(path),
                         remedy="only Unigram and BPE models can be read")
    if model.whitespace_as_suffix:
        raise InputError("puts the space behind a word, which cannot be reproduced", where=str(path),
                         remedy="give a folder with tokenizer.json")
    return model


class BrokenModelError(Exception):
    """Bytes that are no protobuf message: what is wrong, and at which byte."""


def read_piece(message: bytes, start: int) -> Piece:
    """Read one entry of the vocabulary."""
    text, score, kind = "", 0.0, 1
    for number, value, at in read_fields(message, start):
        match number, value:
            case 1, bytes():
                try:
                    text = value.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise BrokenModelError("a piece is not UTF-8", at + error.start) from error
            case 2, int():
                score = struct.unpack("<f", struct.pack("<I", value & 0xFFFFFFFF))[0]
            case 3, int():
                kind = value
    return Piece(text, score, kind)


def read_trainer(model: Pieces, message: bytes, start: int) -> None:
    """Read how the model was trained, as far as it matters for using it."""
    for number, value, _ in read_fields(message, start):
        match number, value:
            case 3, int():
                model.kind = value
            case 24, int():
                model.whitespace_as_suffix = bool(value)
            case 35, int():
                model.byte_fallback = bool(value)
            case 40, int():
                model.unk = value


def read_fields(message: bytes, start: int = 0) -> Iterator[tuple[int, int | bytes, int]]:
    """Yield number, value and place of every field of a message; `start` is where the message is in the file."""
    at = 0
    while at < len(message):
        key, at = read_number(message, at, start)
        wire = key & 7
        if wire == VARINT:
            value, at = read_number(message, at, start)
            yield key >> 3, value, start + at
            continue
        if wire == BYTES:
            length, at = read_number(message, at, start)
        elif wire in (EIGHT_BYTES, FOUR_BYTES):
            length = 8 if wire == EIGHT_BYTES else 4
        else:
            raise BrokenModelError(f"wire type {wire}", start + at)
        if at + length > len(message):
            raise BrokenModelError("it ends in the middle of a field", start + at)
        piece = message[at:at + length]
        yield key >> 3, piece if wire == BYTES else int.from_bytes(piece, "little"), start + at
        at += length


def read_number(message: bytes, at: int, start: int) -> tuple[int, int]:
    """Read a variable-length number; give it and the place after it."""
    value = 0
    for step in range(WIDEST):
        if at + step >= len(message):
            raise BrokenModelError("it ends in the middle of a number", start + at + step)
        byte = message[at + step]
        value |= (byte & 0x7F) << (7 * step)
        if byte < 0x80:
            return value, at + step + 1
    raise BrokenModelError("a number is too long", start + at)
