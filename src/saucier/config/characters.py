"""Token vectors made of a token's characters, as data. What the characters of a token are says `text.spelling`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from saucier.config.base import Config

BYTES = 256
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(BYTES, BYTES + 5)
"""Characters behind the 256 bytes: they stand for a text's borders, around every token, and behind it."""
SYMBOLS = BYTES + 5
"""Rows of the table of characters."""
Positive = Annotated[int, Field(gt=0, le=2**20)]


class CharacterNetwork(Config):
    """Convolutions over a token's bytes, the largest value of each filter, highway layers, a map to the token's width.

    So every string has a vector, also one that no text had. Source: Peters et al. 2018 (ELMo), §3.4, arXiv:1802.05365;
    Jozefowicz et al. 2016, §3.1, arXiv:1602.02410; Kim et al. 2016, §2, arXiv:1508.06615. The sizes are those of
    ELMo's published options.json.
    """

    width: int = Field(default=16, gt=0)
    """Width of a character's vector."""
    filters: tuple[tuple[Positive, Positive], ...] = Field(
        default=((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)), min_length=1)
    """How many characters a filter reads, and how many such filters there are."""
    highways: int = Field(default=2, ge=0, le=100)
    """Highway layers. Source: Srivastava et al. 2015, arXiv:1505.00387."""
    longest: int = Field(default=50, ge=3, le=10_000)
    """Characters of a token, the two around it included; more bytes than fit are not read."""

    @property
    def features(self) -> int:
        """Filters altogether."""
        return sum(count for _, count in self.filters)
