"""How the texts of a task become one row, as data: the tokenizer's frame, or GPT's transformations. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saucier.config.base import Config


class TokenizerFrame(Config):
    """The special tokens that the tokenizer puts around texts."""

    kind: Literal["frame"] = "frame"


class Transformed(Config):
    """A start token, the texts with a delimiter between, an extract token at which a decoder's vector is taken.

    Source: Radford et al. 2018, §3.3, figure 1 (classification, entailment, multiple choice).
    """

    kind: Literal["gpt"] = "gpt"
    auxiliary: float = Field(default=0.5, ge=0)
    """Weight of learning the words of the rows beside the task. Source: Radford et al. 2018, §3.2, eq 5, and §4.1."""


class BothOrders(Config):
    """A pair in both orders, each a row as in `gpt`; their vectors are added.

    Source: Radford et al. 2018, §3.3, figure 1 (similarity).
    """

    kind: Literal["gpt_both_orders"] = "gpt_both_orders"
    auxiliary: float = Field(default=0.5, ge=0)
    """As in `gpt`."""


TextForm = Annotated[TokenizerFrame | Transformed | BothOrders, Field(discriminator="kind")]
"""Of a text or a pair."""
ChoiceForm = Annotated[TokenizerFrame | Transformed, Field(discriminator="kind")]
"""Of a question with a choice."""
