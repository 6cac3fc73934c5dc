"""From an objective's config to its two halves: the corruption for the data side, the loss for the loop."""

from __future__ import annotations

from typing import Any

from saucier.objectives import config as c
from saucier.objectives.base import Corruption, Objective, TokenIds
from saucier.objectives.corruptions import CausalCorruption, PairCorruption, build_masked
from saucier.objectives.prediction import Prediction
from saucier.objectives.spans import build_spans


def build_objective(config: c.ObjectiveConfig, ids: TokenIds) -> tuple[Corruption[Any], Objective]:
    """Build both halves. Raises `InputError` when the tokenizer lacks a token that the objective needs."""
    match config:
        case c.Causal(label_smoothing=smoothing):
            return CausalCorruption(), Prediction(smoothing)
        case c.Masked():
            return build_masked(config, ids), Prediction()
        case c.SequenceToSequence(label_smoothing=smoothing):
            return PairCorruption(ids), Prediction(smoothing)
        case c.SpanCorruption():
            return build_spans(config, ids), Prediction()
