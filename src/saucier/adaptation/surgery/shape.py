"""`ModelState`, a model apart from its modules: config and weights, which an operation turns into others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from saucier import config as c
from saucier.config.base import rewrite_config
from saucier.errors import InputError

STACKS = ("encoder", "decoder")


@dataclass(frozen=True, slots=True)
class ModelState:
    """A config and its weights by name, between two operations."""

    config: c.Transformer
    weights: Mapping[str, Tensor]
    pad: int = 0
    """The padding id."""
    same: float = float("inf")
    """Up to how many tokens a text gives the numbers that it gave before the first operation."""

    def put(self, config: c.Transformer, weights: Mapping[str, Tensor] | None = None, *,
            same: float = float("inf")) -> ModelState:
        """Return another config, and other weights; `same`: up to how many tokens the numbers stay."""
        return replace(self, config=config, weights=self.weights if weights is None else weights,
                       same=min(self.same, same))

    def stacks(self) -> dict[str, c.Stack]:
        """Return the stacks that there are, by name."""
        return {name: stack for name in STACKS if (stack := getattr(self.config, name)) is not None}

    def attentions(self, change: Callable[[c.SelfAttention], c.SelfAttention]) -> c.Transformer:
        """Return the config with every self-attention changed."""
        stacks = {name: rewrite_config(stack, lambda node: change(node) if isinstance(node, c.SelfAttention) else node)
                  for name, stack in self.stacks().items()}
        return self.config.model_copy(update=stacks)


def take_only_encoder(shape: ModelState, option: str) -> c.Stack:
    """Return the encoder of a model that is nothing else. Raises `InputError` for other models."""
    if shape.config.encoder is None or shape.config.decoder is not None:
        raise InputError("only an encoder alone, such as BERT or RoBERTa, can be changed so", where=option,
                         remedy="a decoder takes window:N")
    return shape.config.encoder


def check_full_attention(stack: c.Stack, option: str) -> None:
    """Raise `InputError` for attention that is not full already."""
    for attention in stack.attentions():
        if not isinstance(attention.visibility, c.Full):
            raise InputError(f"the attention is of kind {attention.visibility.kind} already", where=option,
                             remedy="begin with a model whose tokens all see each other")
