"""`search`: an index opened with its encoder, and the chunks that it has for a question, in one hop or several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier.errors import InputError
from saucier.result import Result
from saucier.retrieval.collection import Passage
from saucier.retrieval.encoder import Encoder, check_encoder, embed_question, find_passport, open_encoder
from saucier.retrieval.filters import parse_filter
from saucier.retrieval.hops import QueryWriters, ask_unchanged, search_hop_by_hop
from saucier.retrieval.hybrid import Hit, Rereading, SearchOptions, search_store
from saucier.retrieval.lance_store import LanceStore
from saucier.retrieval.store import Store

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_LETTERS = 300
"""Of a chunk on the screen."""


ONE_HOP = QueryWriters((ask_unchanged,))


@dataclass(frozen=True, slots=True)
class Hop:
    """A query, and the chunks that it added."""

    query: str
    found: tuple[str, ...] = ()
    """Their ids."""
    cut: int = 0
    """Tokens of the query that the encoder does not read; the search by words reads all."""


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index ready for questions: its store, the encoder that made it, and how is searched in it."""

    path: Path
    store: Store
    encoder: Encoder
    rereadings: tuple[Rereading, ...] = ()
    """By what the first chunks are read again, one after the other."""
    writers: QueryWriters = ONE_HOP
    """What asks again from what was found."""

    def search(self, question: str, options: SearchOptions, where: str | None = None) -> SearchResult:
        """Search, hop by hop. Raises `InputError` for an empty question, fewer chunks than hops, and a condition that
        cannot be read.
        """
        condition = None if where is None else parse_filter(where)
        hops, rows = list[Hop](), list[dict[str, Hit]]()
        places, passages = dict[str, int](), list[Passage]()

        def find(queries: Sequence[str], count: int) -> np.ndarray[Any, Any]:
            vector, cut = embed_question(self.encoder, queries[0])
            hits = search_store(self.store, queries[0], vector, replace(options, count=count), condition,
                                rereadings=self.rereadings)
            hops.append(Hop(queries[0], cut=cut))
            rows.append({hit.id: hit for hit in hits})
            for hit in hits:
                if places.setdefault(hit.id, len(passages)) == len(passages):
                    passages.append(Passage(hit.id, hit.section or "", hit.text))
            return np.array([[places[hit.id] for hit in hits]], np.int64)

        found = search_hop_by_hop([question], passages, self.writers.write, find, count=options.count,
                                  context=self.writers.context)[0]
        added = [tuple(passages[place].id for place in one) for one in found]
        hits = [row[name] for row, one in zip(rows, added, strict=True) for name in one]
        asked = tuple(replace(hop, found=one) for hop, one in zip(hops, added, strict=True))
        return SearchResult(question, tuple(hits), self.store.count(condition), asked[0].cut, asked)


def open_index(path: Path, model: str | None = None, encoder: Encoder | None = None) -> OpenIndex:
    """Open an index. `model`: the same encoder, in another place; `encoder`: instead of that of a model.

    Raises `InputError` for what is no index, or an encoder that did not make it.
    """
    passport = find_passport(path)
    if encoder is None:
        if model is None and not Path(passport.encoder.model).exists() and passport.encoder.model.startswith("/"):
            raise InputError(f"its encoder is not there any more: {passport.encoder.model}", where=str(path),
                             remedy="say where it is: --model M")
        encoder = open_encoder(model or passport.encoder.model, passport.encoder.format)
    check_encoder(path, passport, encoder.passport)
    store = LanceStore.open(path)
    if store is None:
        raise InputError("holds no chunk yet", where=str(path), remedy="index documents: saucier index DOCS --out IDX")
    return OpenIndex(path, store, encoder)


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult(Result):
    """What was found for a question."""

    question: str
    hits: tuple[Hit, ...]
    """The best first."""
    searched: int
    """Chunks that meet the condition."""
    cut: int = 0
    """Tokens of the question that the encoder does not read; the search by words reads all."""
    hops: tuple[Hop, ...] = ()
    """What was asked one after the other, and which hits each query added; the first one is the question."""

    def view(self) -> RenderableType:
        """Return what `saucier search` prints."""
        from rich.console import Group
        from rich.text import Text

        if not self.hits:
            return Text(f"nothing found in {self.searched:,} chunks")
        before = dict(list_hops(self.hops))
        return Group(*(Text.assemble((f"{before[hit.id]}\n" if hit.id in before else "", "cyan"),
                                     (f"{number}. {name_place(hit)}", "bold"), f"  {format_steps(hit)}\n",
                                     shorten(hit.text), "\n")
                       for number, hit in enumerate(self.hits, start=1)))

    def remarks(self) -> list[str]:
        """Return how much of the queries the encoder did not read."""
        return list_cuts(self.hops)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"question": self.question, "searched": self.searched, "cut": self.cut,
                "hits": [asdict(hit) for hit in self.hits], "hops": [asdict(hop) for hop in self.hops]}


def list_cuts(hops: Sequence[Hop]) -> list[str]:
    """Return how much of the queries the encoder did not read."""
    return [f"the encoder does not read the last {hop.cut:,} tokens of: {shorten(hop.query)}" for hop in hops
            if hop.cut]


def list_hops(hops: Sequence[Hop]) -> Iterator[tuple[str, str]]:
    """Yield the first hit of each hop with what was asked there; nothing where there is one hop."""
    for number, hop in enumerate(hops if len(hops) > 1 else (), start=1):
        yield next(iter(hop.found), ""), f"hop {number}: {shorten(hop.query)}"


def name_place(hit: Hit) -> str:
    """Say where a chunk is."""
    path = Path(hit.path)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    more = (None if hit.page is None else f"page {hit.page}", None if hit.line is None else f"line {hit.line}",
            hit.section, f"characters {hit.start}–{hit.stop}",
            f"also in {', '.join(Path(one).name for one in hit.copies)}" if hit.copies else None)
    return ", ".join([str(shown), *filter(None, more)])


def format_steps(hit: Hit) -> str:
    """Say the score, and that of each step."""
    steps = ", ".join(f"{name} {value:.3f}" for name, value in hit.steps.items())
    return f"{hit.score:.3f} ({steps})"


def shorten(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_LETTERS else f"{line[:SHOWN_LETTERS]} …"
