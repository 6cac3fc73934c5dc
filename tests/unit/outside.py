"""A small package with parts of its own, as somebody else would install it: a module, and an entry point that names it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from saucier.config import registry

MODULE = '''
"""Parts from outside."""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

import saucier
from saucier.config import AttentionKernel, CustomHead, Node, SelfAttention
from saucier.config.counting import linear
from saucier.objectives.base import ObjectiveInputs
from saucier.objectives.causal import CausalCorruption
from saucier.objectives.config.single_objective import SingleObjective
from saucier.objectives.prediction import Prediction
from saucier.parts.context import KernelCall
from saucier.parts.heads import TokenwiseHead
from saucier.parts.kernels import repeat_heads
from saucier.tasks.definitions import CustomMetric
from saucier.tasks.metrics.metric import Mean, Metric
from saucier.text.rows.kinds import RowRequest


class Sigmoid(AttentionKernel):
    """Each weight by itself."""

    kind: Literal["outside:sigmoid"] = "outside:sigmoid"
    bias: float = -2.0
    """Where it starts."""

    def nodes(self, attention: SelfAttention, dim: int, length: int) -> list[Node]:
        heads = attention.projection.heads
        return [Node("bias", self.kind, parameters=heads), *super().nodes(attention, dim, length)]


class SigmoidAttention(nn.Module):
    def __init__(self, attention: SelfAttention) -> None:
        super().__init__()
        self.bias, self.start = nn.Parameter(torch.empty(attention.projection.heads)), attention.kernel.bias

    def start_weights(self) -> None:
        self.bias.fill_(self.start)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, call: KernelCall) -> Tensor:
        key, value = (repeat_heads(one, query.shape[1]) for one in (key, value))
        weights = (query @ key.transpose(-1, -2) * call.scale + self.bias[:, None, None]).sigmoid()
        return weights.masked_fill(~call.allowed(), 0.0) @ value


class TwoMaps(CustomHead):
    """The mean of two softmaxes over the token table."""

    kind: Literal["outside:two-maps"] = "outside:two-maps"
    token_logits: ClassVar[bool] = True

    def nodes(self, dim: int, vocab: int) -> list[Node]:
        return [linear("maps", dim, 2 * dim, bias=False), Node("output", "linear", flops=4.0 * dim * vocab)]


class TwoMapsHead(TokenwiseHead):
    def __init__(self, config: TwoMaps, dim: int, tokens: Any) -> None:
        super().__init__()
        self.tokens, self.maps = tokens, nn.Linear(dim, 2 * dim, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        first, second = ((part @ self.tokens.weight.T).log_softmax(-1) for part in self.maps(hidden).chunk(2, -1))
        return torch.logaddexp(first, second)


class Rarely(SingleObjective):
    """Next tokens, of which only every n-th is learned."""

    kind: Literal["outside:rarely"] = "outside:rarely"
    bodies: ClassVar[tuple[str, ...]] = ("decoder",)
    every: int = 2

    @property
    def rows_read(self) -> RowRequest:
        return RowRequest("running", "document")


class EveryOther(CausalCorruption):
    def __call__(self, rows: Any, *, seed: int, step: int) -> dict[str, Tensor]:
        batch = super().__call__(rows, seed=seed, step=step)
        batch["labels"][:, 1::2] = -100
        return batch


def build_rarely(config: Rarely, given: ObjectiveInputs) -> tuple[EveryOther, Prediction]:
    return EveryOther(), Prediction()


class Near(CustomMetric):
    """Numbers that are at most so far off."""

    kind: Literal["outside:near"] = "outside:near"
    scores: ClassVar[tuple[str, ...]] = ("numbers",)
    reach: float = 1.0


def build_near(config: Near) -> Metric:
    def measure(golds: Any, predictions: Any) -> Mean:
        close = np.abs(np.array(golds, dtype=float) - np.array(predictions, dtype=float)) <= config.reach
        return Mean(close.astype(float), np.ones(len(close)))

    return Metric("near", measure)


saucier.register(Sigmoid, SigmoidAttention)
saucier.register(TwoMaps, TwoMapsHead)
saucier.register(Rarely, build_rarely)
saucier.register(Near, build_near)
'''


def write_package(folder: Path) -> Path:
    """Write the package with its entry point, as pip would."""
    (folder / "outside_parts.py").write_text(MODULE, encoding="utf-8")
    info = folder / "outside_parts-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-parts\nVersion: 1.2\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[saucier.parts]\noutside = outside_parts\n", encoding="utf-8")
    return folder


def forget() -> None:
    """Forget what was registered, as a fresh process would."""
    sys.modules.pop("outside_parts", None)
    for kind in registry.registered_kinds():
        registry.REGISTERED.pop(kind)


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """Have the package installed here and in processes that are started, and then no longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        known = dict(registry.REGISTERED)
        forget()
        yield
        forget()
        registry.REGISTERED.update(known)
