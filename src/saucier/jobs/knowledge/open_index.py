"""`search`: an index opened with its encoder, and the chunks that it has for a question."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.errors import InputError
from saucier.result import Result
from saucier.retrieval.encoder import Encoder, check_encoder, embed_question, find_passport, open_encoder
from saucier.retrieval.filters import parse_filter
from saucier.retrieval.hybrid import Hit, SearchOptions, search_store
from saucier.retrieval.lance_store import LanceStore
from saucier.retrieval.store import Store

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_LETTERS = 300
"""Of a chunk on the screen."""


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index ready for questions: its store, and the encoder that made it."""

    path: Path
    store: Store
    encoder: Encoder

    def search(self, question: str, options: SearchOptions, where: str | None = None) -> SearchResult:
        """Search. Raises `InputError` for an empty question and a condition that cannot be read."""
        condition = None if where is None else parse_filter(where)
        vector, cut = embed_question(self.encoder, question)
        hits = search_store(self.store, question, vector, options, condition)
        return SearchResult(question, tuple(hits), self.store.count(condition), cut)


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

    def view(self) -> RenderableType:
        """Return what `saucier search` prints."""
        from rich.console import Group
        from rich.text import Text

        if not self.hits:
            return Text(f"nothing found in {self.searched:,} chunks")
        return Group(*(Text.assemble((f"{number}. {name_place(hit)}", "bold"), f"  {format_steps(hit)}\n",
                                     shorten(hit.text), "\n")
                       for number, hit in enumerate(self.hits, start=1)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"question": self.question, "searched": self.searched, "cut": self.cut,
                "hits": [asdict(hit) for hit in self.hits]}


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
