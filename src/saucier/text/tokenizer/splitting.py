"""How a tokenizer splits a text, and what training one gave: shown to a person."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saucier.result import Result
from saucier.text.tokenizer.tokenizer import Tokenizer
from saucier.text.tokenizer.training import split_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

COLOURS = ("on #28405e", "on #5a3b2a", "on #2f4f3a", "on #4d3358")
"""Backgrounds of neighbouring tokens."""


@dataclass(frozen=True, slots=True)
class TrainedTokenizer(Result):
    """A tokenizer that was trained and saved."""

    folder: Path
    kind: str
    tokenizer: Tokenizer

    def view(self) -> str:
        """Say what was written."""
        return f"{self.kind}, {self.tokenizer.vocab_size:,} tokens → {self.folder}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"folder": str(self.folder), "kind": self.kind, "vocab": self.tokenizer.vocab_size}


@dataclass(frozen=True, slots=True)
class SplitText(Result):
    """A text, and the tokens that it is split into."""

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    vocab: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str) -> SplitText:
        """Split a text."""
        split = split_text(tokenizer, text)
        return cls(text, tuple(token for _, token in split), tuple(number for number, _ in split),
                   tokenizer.vocab_size)

    def view(self) -> RenderableType:
        """Return the tokens in colours, and what they come to."""
        from rich.console import Group

        density = len(self.text.encode()) / max(1, len(self.ids))
        summary = f"{len(self.ids)} tokens, {density:.2f} bytes a token, vocabulary of {self.vocab:,}"
        return Group(color_tokens(self.tokens), summary, " ".join(map(str, self.ids)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"text": self.text, "tokens": list(self.tokens), "ids": list(self.ids)}


def color_tokens(tokens: Sequence[str]) -> Text:
    """Show tokens one after another; without colours a bar is between them."""
    from rich.text import Text

    shown = Text()
    for number, token in enumerate(tokens):
        shown.append("|" if number and not sys.stdout.isatty() else "")
        shown.append(token, style=COLOURS[number % len(COLOURS)])
    return shown
