"""Text while it is written: ids come one by one, whole characters go out."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from saucier.generation.stopping import Decodes

UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer gives for bytes that are not yet a whole character."""


class TextStream:
    """A listener for `generate` that writes the text of the first row, piece by piece.

    A piece is held back while its last character is not complete. Call `close` at the end for what is left.
    """

    def __init__(self, tokenizer: Decodes, write: Callable[[str], object]) -> None:
        """`write` receives each new piece of text."""
        self.tokenizer, self.write = tokenizer, write
        self.ids: list[int] = []
        self.written = 0

    def __call__(self, tokens: Tensor) -> None:
        """Take the new tokens [R] of a step."""
        self.ids.append(int(tokens[0]))
        self.send(self.tokenizer.decode(self.ids), whole=False)

    def send(self, text: str, *, whole: bool) -> None:
        """Write what is new, up to the last complete character unless the text is whole."""
        end = len(text) if whole else len(text.rstrip(UNFINISHED))
        if end > self.written:
            self.write(text[self.written:end])
            self.written = end

    def close(self) -> None:
        """Write what was held back."""
        self.send(self.tokenizer.decode(self.ids), whole=True)
