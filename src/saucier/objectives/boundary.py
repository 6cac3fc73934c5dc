"""The span-boundary objective: each token of a hidden span is told from the two tokens around the span.

Letters: B batch, L length, D dim, E width of the output matrix, P width of a position, N targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from saucier.objectives import config as c
from saucier.objectives.base import IGNORED, Batch, Given, Loss, Part
from saucier.objectives.cross_entropy import cross_entropy
from saucier.objectives.prediction import Beside, language_head
from saucier.parts.activations import ACTIVATIONS
from saucier.parts.linear import Linear
from saucier.parts.output import Output

DEVIATION = 0.02
"""Standard deviation of new weights, as in BERT."""


class BoundaryNetwork(nn.Module):
    """Two dense layers, each with GELU and a layer norm, over both outside tokens and the place in the span.

    Source: Joshi et al. 2020, §3.2, arXiv:1907.10529.
    """

    def __init__(self, dim: int, width: int, *, positions: int, position_width: int, seed: int) -> None:
        """Draw its weights; `width` is that of the output matrix that it shares, `positions` the longest span."""
        super().__init__()
        self.positions = nn.Embedding(positions, position_width)
        self.first = Linear(2 * dim + position_width, dim)
        self.first_norm = nn.LayerNorm(dim)
        self.second = Linear(dim, width)
        self.second_norm = nn.LayerNorm(width)
        self.activation = ACTIVATIONS["gelu"]
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in (self.positions, self.first, self.second):
                layer.weight.normal_(0.0, DEVIATION, generator=random)
            for dense in (self.first, self.second):
                dense.bias.zero_()

    def forward(self, left: Tensor, right: Tensor, place: Tensor) -> Tensor:
        """Shapes: left, right [N, D], place [N] from 0 -> [N, E]."""
        read = torch.cat([left, right, self.positions(place).to(left.dtype)], dim=-1)
        hidden = self.first_norm(self.activation(self.first(read)))
        found: Tensor = self.second_norm(self.activation(self.second(hidden)))
        return found


@dataclass(frozen=True, slots=True)
class SpanBoundary(Beside):
    """The cross-entropy of hidden tokens by the tokens around their spans; the model's output matrix is shared.

    Reads `span_left` and `span_right` [B, L], the places around the span of each target.
    Source: Joshi et al. 2020, §3.2, arXiv:1907.10529.
    """

    dim: int
    """Width of the model's vectors."""
    position_width: int
    positions: int
    """Tokens of the longest span; a row's length is always enough."""
    seed: int = 0
    own: dict[str, nn.Module] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """One part."""
        return "boundary"

    @property
    def targets(self) -> tuple[str, ...]:
        """The places around each span."""
        return ("span_left", "span_right")

    @property
    def figures(self) -> Mapping[str, str]:
        """How often the first choice is right."""
        return {"boundary_correct": "span-boundary accuracy"}

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """The two layers and the positions, once they are bound to a model."""
        return self.own

    def bind(self, model: nn.Module) -> None:
        """Make the network for the model's width and output matrix."""
        matrix = language_head(model).matrix
        made = BoundaryNetwork(self.dim, matrix.shape[1], positions=self.positions,
                               position_width=self.position_width, seed=self.seed)
        self.own["boundary"] = made.to(matrix.device)

    def count(self, batch: Batch) -> float:
        """Number of hidden tokens."""
        return float((batch["labels"] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the summed cross-entropy, and how many first choices are right."""
        network, head = self.own["boundary"], language_head(model)
        row, place = (batch["labels"] != IGNORED).nonzero(as_tuple=True)
        left, right = (batch[name][row, place] for name in self.targets)
        assert output.last_hidden_state is not None, "every pass gives it"
        read = [output.last_hidden_state[row, one] for one in (left, right)]
        features = network(*read, place - left - 1)
        sums = cross_entropy(features, head.matrix, head.bias, batch["labels"][row, place])
        count = float(len(row))
        return Loss({self.part: Part(sums.loss, count)}, {"boundary_correct": Part(sums.correct, count)})


def build_boundary(config: c.SpanBoundary, given: Given) -> SpanBoundary:
    """Make room for spans as long as a row."""
    assert given.body is not None, "a companion with modules is made for a body"
    return SpanBoundary(given.body.width, config.position_width, given.length, given.seed)
