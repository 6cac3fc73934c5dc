"""What an objective reads: `material` says how text is stored and cut into rows for it. No torch, no reading here.

An objective asks for one of a few kinds of rows; the text side knows the kinds, and no objective.
"""

from __future__ import annotations

from saucier.objectives import config as c
from saucier.objectives.config.noise import needs_sentences
from saucier.text.material import (
    AtDocuments,
    Bare,
    Consecutive,
    Document,
    DocumentSentences,
    Drawn,
    Elsewhere,
    Fixed,
    FullSentences,
    Material,
    Pairs,
    Running,
    Segment,
    Swapped,
    TwoSegments,
    TwoSentences,
    Wrong,
)


def material(objective: c.Single) -> Material:
    """Return the rows that an objective learns from."""
    match objective:
        case c.Causal(rows=c.ConsecutiveRows()):
            return Running(Document(), order=Consecutive())
        case c.Causal(rows=c.DocumentRows()):
            return Running(Document(), AtDocuments())
        case c.Causal() | c.Bidirectional():
            return Running(Document())
        case c.Masked():
            return masked_rows(objective)
        case c.Replaced(masking=masking):
            return masked_rows(masking)
        case c.Permutation(rows=c.TwoPieces(real=real)):
            return TwoSegments(real)
        case c.Permutation(rows=c.ConsecutiveRows()):
            return Running(Segment(), order=Consecutive())
        case c.Permutation():
            return Running(Segment())
        case c.SequenceToSequence() | c.ConditionalMasked():
            return Pairs()
        case c.TranslationMasked() | c.MaskedSides():
            return Pairs(whole=True)
        case _:
            return Running(Bare(), sentences=needs_sentences(objective))


def masked_rows(objective: c.Masked) -> Material:
    """Return the rows that masked learning asks for."""
    match objective.cut:
        case c.RunningRows():
            return Running(Segment(), Drawn() if objective.dynamic else Fixed())
        case c.FullSentences():
            return FullSentences()
        case c.DocumentSentences():
            return DocumentSentences()
        case c.SegmentPairs():
            return TwoSegments(*relation(objective))
        case c.SentencePairs():
            return TwoSentences(*relation(objective))


def relation(objective: c.Masked) -> tuple[float, Wrong]:
    """Return how often the second piece follows the first, and what stands there otherwise."""
    match objective.relation:
        case c.SentenceOrder(real=real):
            return real, Swapped()
        case c.NextSentence(real=real):
            return real, Elsewhere()
        case None:
            return 1.0, Elsewhere()


def collocations(objective: c.ObjectiveConfig) -> c.PMIMasking | None:
    """Return how an objective wants n-grams to be counted; None where it does not."""
    masked = [getattr(one, "masking", one) for one in c.singles(objective)]
    wanted = [one.choice for one in masked if isinstance(one, c.Masked) and isinstance(one.choice, c.PMIMasking)]
    return wanted[0] if wanted else None


def materials(objective: c.ObjectiveConfig) -> tuple[Material, ...]:
    """Return the rows of every part of an objective."""
    return tuple(material(one) for one in c.singles(objective))
