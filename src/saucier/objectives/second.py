"""`SecondTokens`: more tokens that are predicted in the same pass, with a weight and a mean of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from saucier.objectives.base import IGNORED, Batch, Loss, Part
from saucier.objectives.prediction import Beside, chosen, token_sums
from saucier.parts.output import Output


@dataclass(frozen=True, slots=True)
class SecondTokens(Beside):
    """Cross-entropy of further labels [B, L]: L = L_first + λ · L_second, each the mean over its own targets.

    Source: Hsieh et al. 2023, §3.2, eq 4, arXiv:2305.02301.
    """

    labels: str
    """What these labels are called in the batch; -100 is no target."""
    called: str
    """The name of the part, and of its figure in reports."""
    weight: float
    """λ."""

    @property
    def part(self) -> str:
        """Their own."""
        return self.called

    @property
    def targets(self) -> tuple[str, ...]:
        """The further labels."""
        return (self.labels,)

    @property
    def figures(self) -> Mapping[str, str]:
        """Their loss without the weight."""
        return {f"{self.called}_nll": f"loss of the {self.called}"}

    def count(self, batch: Batch) -> float:
        """Number of tokens with such a label; a batch may have none."""
        return float((batch[self.labels] != IGNORED).sum())

    def __call__(self, model: nn.Module, output: Output, batch: Batch) -> Loss:
        """Return the weighted sum."""
        assert output.last_hidden_state is not None, "every stack gives it"
        features, targets = chosen(output.last_hidden_state, batch[self.labels])
        sums = token_sums(model, features, targets, smoothing=0.0)
        count = float(len(targets))
        return Loss({self.part: Part(self.weight * sums.loss, count)},
                    {f"{self.called}_nll": Part(sums.nll, count)})
