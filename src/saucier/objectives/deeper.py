"""Companions of a language model that help deep stacks to learn: tokens further ahead, and layers inside the stack.

All are there in training only; held-out text is measured by the next token of the last layer alone.
Letters: B batch, L length, D dim, V vocab, N targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, Loss, Part
from saucier.objectives.cross_entropy import cross_entropy
from saucier.objectives.prediction import Beside, chosen
from saucier.parts.output import Output

DEVIATION = 0.02
"""Standard deviation of a new classifier's weights."""


class Classifiers(nn.Module):
    """Output matrices of their own, one for each (layer, how many tokens ahead). Shapes: [V, D] each."""

    def __init__(self, places: tuple[tuple[int, int], ...], vocab: int, dim: int, seed: int) -> None:
        """Draw a matrix for each place."""
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterDict({
            name(place): nn.Parameter(torch.empty(vocab, dim).normal_(0.0, DEVIATION, generator=random))
            for place in places})

    def losses(self, place: tuple[int, int], hidden: Tensor, labels: Tensor) -> Tensor:
        """Sum the loss of one classifier. Shapes: hidden [B, L, D], labels [B, L]."""
        features, targets = chosen(hidden, labels)
        return cross_entropy(features, self.weights[name(place)], None, targets).loss


def name(place: tuple[int, int]) -> str:
    """Name the classifier of a layer and a number of tokens ahead."""
    return f"layer_{place[0]}_ahead_{place[1]}"


def ahead(labels: Tensor, count: int) -> Tensor:
    """Return the labels `count` tokens further ahead; none behind the end of a row or of a document.

    Shapes: labels [B, L] -> [B, L].
    """
    for _ in range(count):
        moved = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
        labels = torch.where(labels == IGNORED, IGNORED, moved)
    return labels


@dataclass(frozen=True, slots=True)
class Deeper(Beside):
    """Layers inside the stack predict too, and every layer also predicts tokens further ahead.

    Source: Al-Rfou et al. 2019, "Character-Level Language Modeling with Deeper Self-Attention", §3, arXiv:1808.04444:
    layer l of n rests when l/2n of the training is over; a token that is further ahead counts half.
    """

    config: c.Deeper
    layers: int
    """Blocks of the stack."""
    vocab: int
    dim: int
    steps: int
    seed: int = 0
    awake: tuple[int, ...] | None = None
    """The layers that predict now, the last one being `layers`; None: all."""
    own: dict[str, nn.Module] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """One part, over all layers and distances."""
        return "deeper"

    @property
    def asks(self) -> Mapping[str, bool]:
        """The layers' outputs, while one of them predicts."""
        return {"output_hidden_states": True} if self.inside else {}

    @property
    def inside(self) -> tuple[int, ...]:
        """The layers below the last one that predict now."""
        every = tuple(range(1, self.layers)) if self.config.intermediate is not None else ()
        return every if self.awake is None else self.awake

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Every (layer, tokens ahead) that predicts now; the model's own head does (last, 0)."""
        further = range(1, self.config.further + 1)
        return (*((layer, count) for layer in self.inside for count in (0, *further)),
                *((self.layers, count) for count in further))

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The classifiers, once they are bound to a model."""
        return self.own

    def bind(self, model: nn.Module) -> None:
        """Make the classifiers of all layers."""
        made = Classifiers(replace(self, awake=None).places, self.vocab, self.dim, self.seed)
        self.own["deeper"] = made.to(next(model.parameters()).device)

    def at(self, step: int) -> Deeper | None:
        """Let the lower layers rest, one after the other."""
        until = self.config.intermediate
        awake = tuple(layer for layer in self.inside if until and step < until * layer / self.layers * self.steps)
        found = replace(self, awake=awake)
        return found if found.places else None

    def held_out(self) -> None:
        """Held-out text is measured without it."""
        return

    def count(self, batch: Batch) -> float:
        """Number of next tokens."""
        return float((batch["labels"] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the sum over all classifiers that are awake."""
        classifiers = self.own["deeper"]
        assert isinstance(classifiers, Classifiers), "bind() made it"
        hidden = dict(enumerate(output.hidden_states or ())) | {self.layers: output.last_hidden_state}
        total = torch.zeros((), device=batch["labels"].device)
        for layer, count in self.places:
            states = hidden[layer]
            assert states is not None, "the model was asked for all of them"
            share = self.config.weight if count else 1.0
            total = total + share * classifiers.losses((layer, count), states, ahead(batch["labels"], count))
        return Loss({self.part: Part(total, self.count(batch))})


def build_deeper(config: c.Deeper, given: Given) -> Deeper:
    """Look at the body's stack."""
    assert given.body is not None and given.body.decoder is not None, "fit.misfits refuses other bodies"
    body, stack = given.body, given.body.decoder
    return Deeper(config, len(stack.blocks()), body.output_embed.vocab, body.width, given.steps, given.seed)
