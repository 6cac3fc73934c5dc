"""Making the `tokenizers` trainers repeatable, which work in hash order, another one in every run.

BPE and WordPiece number `c</w>` and `##c` in that order: the texts are read once before, and the trainer gets these
symbols sorted, as if they were special tokens. Unigram sums and breaks ties so: its scores are rounded and sorted.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

from tokenizers import Tokenizer as Backend

DECIMALS = 3
"""Decimals kept of a score (a natural logarithm): far above the noise, far below what matters."""
SPACING = 1e-4
Affixed = Callable[[str], set[str]]
"""Gives the symbols of one word that carry a mark, such as `w</w>` of `low`."""


class Again:
    """Texts that can be read several times; what comes from a one-way iterator is kept in a temporary file."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Take texts of any kind; they are read when this is first iterated, or at once where they come only once."""
        self._texts = _Spool(texts) if iter(texts) is texts else texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


class _Spool:
    def __init__(self, texts: Iterable[str]) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="saucier-texts-")  # noqa: SIM115 - lives as long as this
        for text in texts:
            data = text.encode("utf-8")
            self._file.write(len(data).to_bytes(8, "little") + data)

    def __iter__(self) -> Iterator[str]:
        self._file.seek(0)
        while size := self._file.read(8):
            yield self._file.read(int.from_bytes(size, "little")).decode("utf-8")


def marked_symbols(backend: Backend, texts: Iterable[str], affixed: Affixed) -> list[str]:
    """List, sorted, the marked one-character symbols that the trainer will start from."""
    known: set[str] = set()
    for text in texts:
        normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
        # Only words that may bring something new go through the slow exact pre-tokenizer.
        new = [word for word in normal.split() if not affixed(word) <= known]
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(" ".join(new)):
            known |= affixed(word)
    return sorted(known)


def without_special(backend: Backend, keep: set[str]) -> Backend:
    """Make added tokens ordinary ones again, all but those to `keep`."""
    state: dict[str, Any] = json.loads(backend.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in keep]
    return Backend.from_str(json.dumps(state, ensure_ascii=False))


def settled_scores(backend: Backend, special: int) -> Backend:
    """Round a Unigram model's scores and sort its pieces by them, all but the first `special` ones.

    Two runs differ in the 11th decimal, but for the characters that were pruned and put back: the trainer gives these
    the lowest score plus 0, 1, 2, ... times `SPACING`, in hash order. Here they all get the lowest.
    """
    state: dict[str, Any] = json.loads(backend.to_str())
    pieces: list[tuple[str, float]] = [(piece, score) for piece, score in state["model"]["vocab"]]
    lowest = min((score for _, score in pieces[special:]), default=0.0)
    nearly = lowest + SPACING * sum(len(piece) == 1 for piece, _ in pieces)
    settled = [(piece, round(lowest if len(piece) == 1 and score <= nearly else score, DECIMALS))
               for piece, score in pieces[special:]]
    state["model"]["vocab"] = [*pieces[:special], *sorted(settled, key=lambda found: (-found[1], found[0]))]
    return Backend.from_str(json.dumps(state, ensure_ascii=False))
