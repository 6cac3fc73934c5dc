"""What every objective says of itself, and its checks; a new one overrides what is different. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from saucier import config as architecture
from saucier.config.base import Config
from saucier.text.config import Data, SpecialTokens, TokenizerConfig
from saucier.text.rows.kinds import RowRequest


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that does not fit: where, what, and what would."""

    path: tuple[str, ...]
    what: str
    remedy: str
    own: bool = False
    """Whether the path begins at the objective; else at the recipe."""


@dataclass(frozen=True, slots=True)
class ObjectiveSetting:
    """What surrounds an objective in a recipe."""

    model: architecture.Transformer
    tokenizer: TokenizerConfig
    data: Data
    length: int = 512
    """Tokens of a row, as the model sees them."""

    @property
    def special(self) -> SpecialTokens:
        """The tokenizer's special tokens."""
        return self.tokenizer.special


class SingleObjective(Config):
    """An objective that is learned alone, or as a part of a mixture.

    One from outside is registered with what builds, from (config, `ObjectiveInputs`), its corruption and its loss.
    """

    slot: ClassVar[str] = "objective"
    """What `register` knows the slot by."""
    kind: str
    bodies: ClassVar[tuple[str, ...]] = ()
    """The stacks of the models that it trains; none: of any."""
    names_languages: ClassVar[bool] = False
    """Whether it must know the language of each token, also for a model without a table of languages."""

    @property
    def rows_read(self) -> RowRequest:
        """The rows that it learns from."""
        return RowRequest("running")

    def check_body(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model have the stacks, and do they look where they must?"""
        stacks = name_stacks(model)
        if self.bodies and stacks not in self.bodies:
            yield self.report_wrong_body(", or of ".join(self.bodies), stacks)
        elif isinstance(model.head, architecture.LengthHead):
            yield Mismatch(("kind",), "a model that writes whole texts learns nothing but conditional_masked",
                           "use kind: conditional_masked, or another family", own=True)
        else:
            yield from self.check_parts(model)

    def check_parts(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Are the parts of the stacks as it needs them?"""
        yield from ()

    def check_head(self, model: architecture.Transformer) -> Iterator[Mismatch]:
        """Does the model have the heads?"""
        if not model.gives_token_logits:
            yield Mismatch(("model", "head"), f"{self.kind} needs a head that gives token logits",
                           "use kind: language")

    def check_tokens(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Does the tokenizer have the special tokens?"""
        yield from ()

    def check_text(self, setting: ObjectiveSetting) -> Iterator[Mismatch]:
        """Do text and tokenizer give what is to be predicted?"""
        yield from ()

    def list_reminders(self, model: architecture.Transformer) -> Iterator[str]:
        """Yield what fits, but is learned with less than its paper has."""
        yield from ()

    def needs_language_ids(self, model: architecture.Transformer) -> bool:
        """Say whether the language of each token must be known."""
        return self.names_languages or model.embed.languages is not None

    def report_wrong_body(self, expected: str, stacks: str) -> Mismatch:
        """Say that the model has other stacks."""
        return Mismatch(("kind",), f"{self.kind} trains a model of {expected}, and this one is {stacks}",
                        "change the objective or the model", own=True)


def name_stacks(model: architecture.Transformer) -> str:
    """Return which stacks a model has: `encoder`, `decoder` or `encoder and decoder`."""
    return " and ".join(name for name in ("encoder", "decoder") if getattr(model, name))
