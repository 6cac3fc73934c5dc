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
from saucier.objectives.config.permutation import Permutation, RunningText, TwoPieces
from saucier.objectives.config.replaced import (
    ChosenTokens,
    Disentangled,
    EveryToken,
    Generator,
    Originals,
    OwnTables,
    Replaced,
    SharedAll,
    SharedTables,
    Together,
    TwoStages,
)

__all__ = ["Causal", "ChosenTokens", "Deeper", "Denoiser", "DenoiserPart", "Denoising", "Disentangled",
           "DocumentRotation", "DropTokens", "EveryPosition", "EveryToken", "ExponentialTruth", "Generator",
           "InverseSigmoidTruth", "LastPosition", "LinearTruth", "Masked", "Mixture", "MixtureOfDenoisers",
           "MixturePart", "NextSentence", "Noisy", "ObjectiveConfig", "Originals", "OwnTables", "Permutation",
           "PrefixLanguageModel", "ReplaceSpans", "Replaced", "RunningText", "SentencePermutation",
           "SequenceToSequence", "SharedAll", "SharedTables", "Single", "SpanCorruption", "TextInfilling", "TextNoise",
           "Together", "TokenDeletion", "TokenMasking", "TokenShuffling", "TruthSchedule", "TwoPieces", "TwoStages",
           "singles"]
