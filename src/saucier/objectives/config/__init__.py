"""What a model learns, as data: one frozen type for each objective. Needs no torch."""

from saucier.objectives.config.causal import Causal, Deeper, EveryPosition, LastPosition
from saucier.objectives.config.choices import (
    Choice,
    NGramMasking,
    PMIMasking,
    RandomTokenMasking,
    SpanBoundary,
    SpanMasking,
    WholeWordMasking,
)
from saucier.objectives.config.masked import Masked, NextSentence, SentenceOrder
from saucier.objectives.config.mixture import Mixture, MixturePart, ObjectiveConfig, Single, singles
from saucier.objectives.config.noise import (
    Denoiser,
    DenoiserPart,
    Denoising,
    DocumentRotation,
    DropTokens,
    MixtureOfDenoisers,
    MultilingualDenoising,
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
from saucier.objectives.config.parallel import MaskedSides, Parallel, TranslationMasked
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
from saucier.objectives.config.sentence_rows import (
    DocumentSentences,
    FullSentences,
    MaskedRows,
    RunningRows,
    SegmentPairs,
    SentencePairs,
)

__all__ = ["Causal", "Choice", "ChosenTokens", "Deeper", "Denoiser", "DenoiserPart", "Denoising", "Disentangled",
           "DocumentRotation", "DocumentSentences", "DropTokens", "EveryPosition", "EveryToken", "ExponentialTruth",
           "FullSentences", "Generator", "InverseSigmoidTruth", "LastPosition", "LinearTruth", "Masked", "MaskedRows",
           "MaskedSides", "Mixture", "MixtureOfDenoisers", "MixturePart", "MultilingualDenoising", "NGramMasking",
           "NextSentence", "Noisy", "ObjectiveConfig", "Originals", "OwnTables", "PMIMasking", "Parallel",
           "Permutation", "PrefixLanguageModel", "RandomTokenMasking", "ReplaceSpans", "Replaced", "RunningRows",
           "RunningText", "SegmentPairs", "SentenceOrder", "SentencePairs", "SentencePermutation",
           "SequenceToSequence", "SharedAll", "SharedTables", "Single", "SpanBoundary", "SpanCorruption",
           "SpanMasking", "TextInfilling", "TextNoise", "Together", "TokenDeletion", "TokenMasking", "TokenShuffling",
           "TranslationMasked", "TruthSchedule", "TwoPieces", "TwoStages", "WholeWordMasking", "singles"]
