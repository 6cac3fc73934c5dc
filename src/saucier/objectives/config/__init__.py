"""What a model learns, as data: one frozen type for each objective. Needs no torch."""

from saucier.objectives.config.causal import Causal, Deeper, EveryPosition, LastPosition
from saucier.objectives.config.masked import Masked, NextSentence
from saucier.objectives.config.mixture import Mixture, MixturePart, ObjectiveConfig, Single, singles
from saucier.objectives.config.pairs import (
    ExponentialTruth,
    InverseSigmoidTruth,
    LinearTruth,
    SequenceToSequence,
    SpanCorruption,
    TruthSchedule,
)

__all__ = ["Causal", "Deeper", "EveryPosition", "ExponentialTruth", "InverseSigmoidTruth", "LastPosition",
           "LinearTruth", "Masked", "Mixture", "MixturePart", "NextSentence", "ObjectiveConfig", "SequenceToSequence",
           "Single", "SpanCorruption", "TruthSchedule", "singles"]
