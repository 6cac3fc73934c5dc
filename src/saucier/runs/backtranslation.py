"""Back-translation: a reverse model writes sources for texts of the target language, which makes pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from saucier.errors import InputError
from saucier.files import write_text
from saucier.runs.files import Batched, refuse_existing


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Pairs whose source a model has written, and whose target is a text as it was."""

    pairs: list[tuple[str, str]]
    empty: int
    """Texts that nothing was written for, or that hold nothing; they are left out."""
    cut: int
    """Texts that were longer than the model takes."""
    beyond: int
    """Texts that were not looked at, since enough were asked for."""

    @property
    def words(self) -> str:
        """Say what was written, and what became of the rest."""
        lost = {"empty": self.empty, "cut": self.cut, "beyond the limit": self.beyond}
        told = "".join(f", {count:,} {name}" for name, count in lost.items() if count)
        return f"{len(self.pairs):,} pairs{told}"


def back_translate(batched: Batched, texts: Sequence[str], limit: int | None = None) -> Synthetic:
    """Write a source for each text of the target language, by a model of the other direction.

    Source: Sennrich et al. 2016, §3.2, arXiv:1511.06709; beams there, samples in Edunov et al. 2018, §3,
    arXiv:1808.09381.
    """
    chosen = list(texts)[:limit]
    written = batched.write(chosen)
    lines = zip(written.texts, chosen, strict=True)
    pairs = [(one_line(source), one_line(target)) for source, target in lines if source.strip() and target.strip()]
    return Synthetic(pairs, len(chosen) - len(pairs), written.cut, len(texts) - len(chosen))


def one_line(text: str) -> str:
    """Return a text that a cell can hold."""
    return " ".join(text.split())


def write_table(path: Path, made: Synthetic, columns: tuple[str, str]) -> None:
    """Write the pairs as a table. Raises `InputError` for a file that is there, and where there is no pair."""
    refuse_existing(path)
    if not made.pairs:
        raise InputError("the model wrote nothing for any of the texts", where=str(path),
                         remedy="use a model that has learned to translate")
    write_text(path, "".join(f"{source}\t{target}\n" for source, target in (columns, *made.pairs)))
