"""What batches say by numbers: the ids that corruptions need, the label that is no target, masks. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError

if TYPE_CHECKING:
    from saucier.text.tokenizer.tokenizer import Tokenizer

IGNORED = -100
"""The label of a position that is no target."""

MASK_OF_INPUT = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
"""Which mask tells what of an input is padding; without it none is."""


@dataclass(frozen=True, slots=True)
class TokenIds:
    """The ids that corruptions need."""

    vocab: int
    pad: int | None = None
    bos: int | None = None
    eos: int | None = None
    mask: int | None = None
    special: tuple[int, ...] = ()
    sentinels: tuple[int, ...] = ()
    extra: Mapping[str, int] = field(default_factory=dict)
    """Special tokens that only an objective knows, by name."""
    word_marks: str = ""
    """A digit for each id that tells where words begin and end (see `text.word_marks`); "" where tokens do not tell."""
    start: int | None = None
    """What a decoder begins with, where the data say so; None: bos, or pad."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenIds:
        """Read them from a tokenizer."""
        return cls(tokenizer.vocab_size, tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id,
                   tuple(tokenizer.special_ids), tuple(tokenizer.sentinel_ids), tokenizer.extra_ids,
                   tokenizer.word_marks)

    @property
    def decoder_start(self) -> int:
        """The token that a decoder begins with: bos, or pad as in T5 (Raffel et al. 2020, code release)."""
        return next((one for one in (self.start, self.bos, self.pad) if one is not None), 0)

    @property
    def filler(self) -> int:
        """The id at padding: pad, or 0, which the mask hides anyway."""
        return 0 if self.pad is None else self.pad

    @property
    def generation_options(self) -> dict[str, Any]:
        """The special ids under the names that `saucier.generate` knows."""
        found = {"eos_token_id": self.eos, "pad_token_id": self.filler, "decoder_start_token_id": self.decoder_start}
        return {name: number for name, number in found.items() if number is not None}

    def extra_id(self, name: str) -> int:
        """Return the id of a special token that an objective names. Raises `InputError` when there is none."""
        if name not in self.extra:
            raise InputError(f"the tokenizer has no token {name}, which the objective names",
                             where="tokenizer.special.extra", remedy=f"add it there, as in extra: ['{name}']")
        return self.extra[name]

    def ordinary(self) -> NDArray[np.int64]:
        """The ids that are text, in order."""
        return np.setdiff1d(np.arange(self.vocab), np.array(self.special, dtype=np.int64))
