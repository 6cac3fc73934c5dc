"""What an objective reads: `material` says how text is stored and cut into rows for it. No torch, no reading here.

An objective asks for one of a few kinds of rows; the text side knows the kinds, and no objective.
"""

from __future__ import annotations

from saucier.objectives import config as c
from saucier.objectives.config.noise import needs_sentences
from saucier.text.material import Bare, Document, Material, Pairs, Running, Segment, TwoSegments


def material(objective: c.Single) -> Material:
    """Return the rows that an objective learns from."""
    match objective:
        case c.Causal():
            return Running(Document())
        case c.Masked(next_sentence=c.NextSentence(real=real)):
            return TwoSegments(real)
        case c.Masked(dynamic=dynamic):
            return Running(Segment(), shifted=dynamic)
        case c.Replaced(masking=masking):
            return material(masking)
        case c.Permutation(rows=c.TwoPieces(real=real)):
            return TwoSegments(real)
        case c.Permutation():
            return Running(Segment())
        case c.SequenceToSequence():
            return Pairs()
        case _:
            return Running(Bare(), sentences=needs_sentences(objective))


def materials(objective: c.ObjectiveConfig) -> tuple[Material, ...]:
    """Return the rows of every part of an objective."""
    return tuple(material(one) for one in c.singles(objective))
