"""What a model learns, as data: one frozen type for each objective. Needs no torch."""

from saucier.objectives.config.causal import Causal, Deeper, EveryPosition, LastPosition
from saucier.objectives.config.masked import Masked, NextSentence
from saucier.objectives.config.mixture import Mixture, MixturePart, ObjectiveConfig, Single, singles
from saucier.objectives.config.noise import (
    Denoiser,
    DenoiserPart,
    Denoising,
    DocumentRotation,
    DropTokens,
    MixtureOfDenoisers,
    Noisy,
    PrefixLanguageModel,
    ReplaceSpans,
    SentencePermutation,
    SpanCorruption,
    TextInfilling,
    TextNoise,
    TokenDeletion,
    TokenMasking,
    TokenShuffling,
)
from saucier.objectives.config.pairs import (
    ExponentialTruth,
    InverseSigmoidTruth,
    LinearTruth,
    SequenceToSequence,
    TruthSchedule,
)

__all__ = ["Causal", "Deeper", "Denoiser", "DenoiserPart", "Denoising", "DocumentRotation", "DropTokens",
           "EveryPosition", "ExponentialTruth", "InverseSigmoidTruth", "LastPosition", "LinearTruth", "Masked",
           "Mixture", "MixtureOfDenoisers", "MixturePart", "NextSentence", "Noisy", "ObjectiveConfig",
           "PrefixLanguageModel", "ReplaceSpans", "SentencePermutation", "SequenceToSequence", "Single",
           "SpanCorruption", "TextInfilling", "TextNoise", "TokenDeletion", "TokenMasking", "TokenShuffling",
           "TruthSchedule", "singles"]
