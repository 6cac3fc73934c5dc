"""What conditional masked language modelling asks of the model and the tokenizer. No torch."""

from __future__ import annotations

from collections.abc import Iterator

from saucier import config as architecture
from saucier.objectives import config as c
from saucier.objectives.misfit import Misfit
from saucier.text.config import Ready, TokenizerConfig

ORDER = ("pad", "unk", "bos", "eos", "cls", "sep", "mask")
"""Special tokens in the order of their ids."""


def whole_misfits(objective: c.ConditionalMasked, model: architecture.Transformer, tokenizer: TokenizerConfig,
                  length: int) -> Iterator[Misfit]:
    """Yield what does not fit, the most basic thing first."""
    if not isinstance(head := model.head, architecture.LengthHead):
        return  # fit.body_misfits has said so
    if head.longest < length:
        yield Misfit(("model", "longest"), f"lengths are told up to {head.longest}, and targets have up to {length}",
                     f"use longest: {length}")
    special, token = tokenizer.special, objective.length_token
    if special.mask is None:
        yield Misfit(("tokenizer", "special", "mask"), f"{objective.kind} needs a mask token", "name one: <mask>")
    if isinstance(tokenizer, Ready):
        return
    if token not in special.extra or not special.single.startswith(token):
        yield Misfit(("tokenizer", "special", "single"), f"a source does not begin with {token}",
                     f"use extra: ['{token}'], single: '{token} $A </s>'")
    told = head.language.predicts
    number = sum(getattr(special, name) is not None for name in ORDER[:-1])
    if isinstance(told, architecture.WholeText) and told.mask != number:
        yield Misfit(("model", "mask"), f"the model hides with token {told.mask}, and the mask token is {number}",
                     f"use mask: {number}")
