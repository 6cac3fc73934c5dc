"""Which rows each objective reads: how text is stored and cut for it. No torch."""

from __future__ import annotations

from saucier.objectives import config as c
from saucier.objectives.config.denoising import needs_sentences
from saucier.text.rows.kinds import (
    ConsecutiveOrder,
    DocumentBorders,
    DocumentFrame,
    DocumentSentencesRequest,
    DrawnBorders,
    FixedBorders,
    FromElsewhere,
    FullSentencesRequest,
    NoFrame,
    RowRequest,
    RunningRequest,
    SegmentFrame,
    SegmentPairRequest,
    SentencePairRequest,
    SwappedPieces,
    TextPairRequest,
    WrongPiece,
)


def choose_rows(objective: c.Single) -> RowRequest:
    """Return the rows that an objective learns from."""
    match objective:
        case c.Causal(rows=c.ConsecutiveRows()):
            return RunningRequest(DocumentFrame(), order=ConsecutiveOrder())
        case c.Causal(rows=c.DocumentRows()):
            return RunningRequest(DocumentFrame(), DocumentBorders())
        case c.Causal() | c.Bidirectional():
            return RunningRequest(DocumentFrame())
        case c.Masked():
            return choose_masked_rows(objective)
        case c.Replaced(masking=masking):
            return choose_masked_rows(masking)
        case c.Permutation(rows=c.TwoPieces(real=real)):
            return SegmentPairRequest(real)
        case c.Permutation(rows=c.ConsecutiveRows()):
            return RunningRequest(SegmentFrame(), order=ConsecutiveOrder())
        case c.Permutation():
            return RunningRequest(SegmentFrame())
        case c.SequenceToSequence() | c.ConditionalMasked():
            return TextPairRequest()
        case c.TranslationMasked() | c.MaskedSides():
            return TextPairRequest(whole=True)
        case _:
            return RunningRequest(NoFrame(), sentences=needs_sentences(objective))


def choose_masked_rows(objective: c.Masked) -> RowRequest:
    """Return the rows that masked learning asks for."""
    match objective.cut:
        case c.RunningRows():
            return RunningRequest(SegmentFrame(), DrawnBorders() if objective.dynamic else FixedBorders())
        case c.FullSentences():
            return FullSentencesRequest()
        case c.DocumentSentences():
            return DocumentSentencesRequest()
        case c.SegmentPairs():
            return SegmentPairRequest(*choose_sentence_relation(objective))
        case c.SentencePairs():
            return SentencePairRequest(*choose_sentence_relation(objective))


def choose_sentence_relation(objective: c.Masked) -> tuple[float, WrongPiece]:
    """Return how often the second piece follows the first, and what stands there otherwise."""
    match objective.relation:
        case c.SentenceOrder(real=real):
            return real, SwappedPieces()
        case c.NextSentence(real=real):
            return real, FromElsewhere()
        case None:
            return 1.0, FromElsewhere()


def find_pmi_masking(objective: c.ObjectiveConfig) -> c.PMIMasking | None:
    """Return how an objective wants n-grams to be counted; None where it does not."""
    masked = [getattr(one, "masking", one) for one in c.list_single_objectives(objective)]
    wanted = [one.choice for one in masked if isinstance(one, c.Masked) and isinstance(one.choice, c.PMIMasking)]
    return wanted[0] if wanted else None


def choose_all_rows(objective: c.ObjectiveConfig) -> tuple[RowRequest, ...]:
    """Return the rows of every part of an objective."""
    return tuple(choose_rows(one) for one in c.list_single_objectives(objective))
