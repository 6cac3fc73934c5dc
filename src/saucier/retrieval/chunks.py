"""Chunks: a document cut at headings, sentences and a length, with overlap; each knows where it is.

A document of any size streams through; no more than a block and a chunk of it are in memory.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.retrieval.documents import Block

Measure = Callable[[Sequence[str]], Sequence[int]]
"""Gives the length of each of some texts, as in tokens."""
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’»)\]]*\s+(?=[^\sa-z])|(?<=[。！？])\s*|\n[^\S\n]*\n\s*"
                          r"|(?m:^)#{1,6} [^\n]{1,300}\n\s*"
                          r"|(?<!\S)\|(?=[\s:-])[^\n]{0,2000}\n\s*|\|[^\S\n]*\n\s*"
                          r"|\n(?=[^\S\n]*(?:[-*+•]|\d{1,3}[.)])[^\S\n])")
"""What is after a sentence: white space after a mark before anything but a small letter; or an empty line. A heading of
Markdown is a sentence, too, and so are a row of a table, of cells between bars, and an entry of a list."""
LONGEST_WORDS = 4
"""A piece of text without the end of a sentence is cut after so many characters for each unit of a chunk's length,
before it is measured."""


class Chunking(Config):
    """How documents are cut."""

    length: int = 200
    """The most tokens of a chunk."""
    overlap: int = 40
    """The most tokens that a chunk repeats of the one before, in whole sentences."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document."""

    text: str
    start: int
    stop: int
    """Its characters, in the text of the document."""
    section: str | None
    page: int | None
    line: int | None

    def identify(self, path: str) -> str:
        """Return the id of the chunk in a file: a digest of its place and content."""
        return hashlib.sha256("\0".join((path, str(self.start), self.text)).encode()).hexdigest()[:32]


class Piece(NamedTuple):
    """A sentence with the white space after it, or a part of a long one."""

    text: str
    start: int
    length: int

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + len(self.text)


def check_chunking(rules: Chunking, limit: int | None) -> None:
    """Raise `InputError` for rules that cut nothing, or chunks that an encoder of `limit` tokens would cut again."""
    if rules.length < 1 or not 0 <= rules.overlap < rules.length:
        raise InputError(f"a chunk has {rules.length} tokens and repeats {rules.overlap}", where="--length, --overlap",
                         remedy="let an overlap be less than a length")
    if limit is not None and rules.length > limit:
        raise InputError(f"a chunk has {rules.length} tokens, and the encoder reads {limit}", where="--length",
                         remedy=f"give {limit} or less")


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return where sentences begin and end, white space after them included; together they are the whole text."""
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(text) if match.end()), len(text)]
    return [(start, stop) for start, stop in pairwise(ends) if stop > start]


def list_sentences(text: str) -> list[str]:
    """Return the sentences of a text, without white space around them; the text itself where there is none."""
    return [one for start, stop in split_sentences(text) if (one := text[start:stop].strip())] or [text]


def cut_chunks(blocks: Iterable[Block], rules: Chunking, measure: Measure) -> Iterator[Chunk]:
    """Yield the chunks of a document: whole sentences, as many as fit, none over a heading, a page or a row.

    The last sentences of a chunk begin the next one, as far as the overlap allows. A sentence that is too long is cut
    at white space, or where there is none, anywhere.
    """
    pieces, current = list[Piece](), Block("")
    total = known = 0  # the length of these pieces, and how many of them the last chunk had already
    for block, piece in measure_pieces(blocks, rules.length, measure):
        if block is not current:
            yield from make_chunk(pieces if len(pieces) > known else [], current)
            pieces, total, known, current = [], 0, 0, block
        if pieces and total + piece.length > rules.length:
            yield from make_chunk(pieces if len(pieces) > known else [], current)
            pieces = keep_overlap(pieces, min(rules.overlap, rules.length - piece.length))
            total, known = sum(one.length for one in pieces), len(pieces)
        pieces.append(piece)
        total += piece.length
    yield from make_chunk(pieces if len(pieces) > known else [], current)


def make_chunk(pieces: Sequence[Piece], block: Block) -> Iterator[Chunk]:
    """Yield a chunk of some pieces, without white space around them; none where there is nothing else."""
    text = "".join(one.text for one in pieces)
    if stripped := text.strip():
        start = pieces[0].start + len(text) - len(text.lstrip())
        yield Chunk(stripped, start, start + len(stripped), block.section, block.page, block.line)


def keep_overlap(pieces: Sequence[Piece], most: int) -> list[Piece]:
    """Return the last pieces that together are no longer than `most`."""
    kept, length = len(pieces), 0
    while kept and length + pieces[kept - 1].length <= most:
        kept -= 1
        length += pieces[kept].length
    return list(pieces[kept:])


def measure_pieces(blocks: Iterable[Block], longest: int, measure: Measure) -> Iterator[tuple[Block, Piece]]:
    """Yield the pieces of blocks in order, each with the block that it is of, and none longer than `longest`.

    A sentence that goes on in the next block is one piece.
    """
    place, rest, last = 0, "", Block("")
    for block in blocks:
        if block.begins and rest:
            yield from ((last, one) for one in cut_pieces([rest], place, longest, measure))
            place, rest = place + len(rest), ""
        last = block if block.begins else last
        text = rest + block.text
        *whole, tail = [text[start:stop] for start, stop in split_sentences(text)] or [""]
        if len(tail) > LONGEST_WORDS * longest:  # what is no sentence is not kept until it ends
            *parts, tail = split_words(tail, LONGEST_WORDS * longest)
            whole += parts
        yield from ((last, one) for one in cut_pieces(whole, place, longest, measure))
        place, rest = place + len(text) - len(tail), tail
    yield from ((last, one) for one in cut_pieces([rest], place, longest, measure))


def cut_pieces(sentences: Sequence[str], place: int, longest: int, measure: Measure) -> Iterator[Piece]:
    """Yield sentences that begin at a place as pieces; those that are too long are halved until they fit."""
    parts = [part for one in sentences for part in split_words(one, LONGEST_WORDS * longest)]
    lengths = measure(parts) if parts else []
    for part, length in zip(parts, lengths, strict=True):
        if length <= longest or len(part) < 2:
            yield Piece(part, place, max(1, min(length, longest)))
        else:
            yield from cut_pieces(split_words(part, (len(part) + 1) // 2), place, longest, measure)
        place += len(part)


def split_words(text: str, most: int) -> list[str]:
    """Return a text in parts of at most `most` characters, that end after white space where there is some."""
    parts, start = list[str](), 0
    while len(text) - start > most:
        stop = max(text.rfind(" ", start, start + most), text.rfind("\n", start, start + most)) + 1 or start + most
        stop = stop if stop > start else start + most
        parts.append(text[start:stop])
        start = stop
    return [*parts, text[start:]] if start < len(text) else parts
