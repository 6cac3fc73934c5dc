"""Answers from what was found: a sentence, or a piece of one that a reader takes; and when to say that there is none.

An answer's score is compared with a threshold that was tuned on questions with known answers. Axes: S sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.retrieval.chunks import split_sentences
from saucier.retrieval.encoder import Encoder
from saucier.retrieval.hybrid import Hit
from saucier.retrieval.lexical import Language, split_into_stems
from saucier.tasks.metrics.texts import normalize_answer

WORD_SHARE = 0.5
"""Of a sentence's score, that of the question's words which are in it; the rest is its product with the question."""
SENTENCES = "sentences"
"""The name of answers without a reader."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A candidate for an answer: characters of a hit, and how good it is."""

    hit: Hit
    start: int
    stop: int
    """In the text of the hit."""
    score: float
    steps: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer."""
        return self.hit.text[self.start:self.stop]

    @property
    def sentence(self) -> tuple[int, int]:
        """Where the sentence is that it begins in, in the text of the hit; as long as the answer goes on."""
        spans = [(start, stop) for start, stop in split_sentences(self.hit.text)
                 if stop > self.start and start < self.stop]
        start, stop = spans[0][0], spans[-1][1]
        return start, start + len(self.hit.text[start:stop].rstrip())


class Reader(Protocol):
    """Takes answers from hits."""

    @property
    def name(self) -> str:
        """By which its threshold is kept."""

    def read(self, question: str, hits: Sequence[Hit]) -> list[Piece]:
        """Return the best piece of each hit, the best one first."""


@dataclass(frozen=True, slots=True)
class SentenceReader:
    """The sentence that is most like the question, by the encoder and by its words."""

    encoder: Encoder
    language: Language = "english"
    name = SENTENCES

    def read(self, question: str, hits: Sequence[Hit]) -> list[Piece]:
        """Return the best sentence of each hit, the best one first; headings are none."""
        spans = [(hit, start, stop) for hit in hits for start, stop in find_sentences(hit)]
        if not spans:
            return []
        texts = [hit.text[start:stop] for hit, start, stop in spans]
        vectors = self.encoder.embed([question, *texts])
        near = vectors[1:] @ vectors[0]
        asked, *stems = split_into_stems([question, *texts], self.language)
        shared = np.array([len({*asked} & {*one}) / max(1, len({*asked})) for one in stems])
        scores = (1 - WORD_SHARE) * near + WORD_SHARE * shared
        best = dict[str, Piece]()
        for place in np.argsort(-scores, kind="stable").tolist():
            hit, start, stop = spans[place]
            best.setdefault(hit.id, Piece(hit, start, stop, float(scores[place]), {
                "sentence": float(near[place]), "shared words": float(shared[place])}))
        return list(best.values())


def find_sentences(hit: Hit) -> list[tuple[int, int]]:
    """Return where sentences are in a hit, without white space around them; a heading is none, nor what has no word."""
    heading, found = (hit.section or "").rpartition(" > ")[2], []
    for start, stop in split_sentences(hit.text):
        text = hit.text[start:stop]
        begin = start + len(text) - len(text.lstrip())
        if any(map(str.isalnum, text)) and text.strip().strip("# ") != heading:
            found.append((begin, start + len(text.rstrip())))
    return found


class Threshold(Config):
    """The least score of an answer, what the search adds to it, and the questions that both were tuned on."""

    least: float
    """A lower score means that the documents do not hold the answer."""
    questions: int
    """Questions with known answers, those without one included."""
    unanswerable: int
    """Of them, those whose answer is in no document."""
    accuracy: float
    """Share of these questions that are answered rightly with it, or rightly not answered."""
    search_weight: float = 0.0
    """Of a chunk's score by the search, which is added to that of reading it."""


def rank_pieces(pieces: Sequence[Piece], weight: float) -> list[Piece]:
    """Add to the score of each piece that of its chunk by the search, times a weight; the best first, each place once.

    A reader sees one chunk at a time, and the search has seen them all.
    Source: Yang et al. 2019, arXiv:1902.01718 (there as a mean with weights).
    """
    if weight:
        pieces = [replace(one, score=one.score + weight * one.hit.score,
                          steps={**one.steps, "search": weight * one.hit.score}) for one in pieces]
    once = dict[tuple[str, int], Piece]()  # chunks overlap
    for piece in sorted(pieces, key=lambda one: -one.score):
        once.setdefault((piece.hit.path, piece.hit.start + piece.start), piece)
    return list(once.values())


def tune_threshold(scores: Sequence[float], right: Sequence[bool], answerable: Sequence[bool]) -> Threshold:
    """Return the threshold with which most questions are dealt with rightly; of equal ones the middle one.

    A question is, where it is answerable, if its answer is right and not below; else if its answer is below.
    Errors: `InputError` where one of both kinds of questions is missing.
    """
    if all(answerable) or not any(answerable):
        missing = "without" if all(answerable) else "with"
        raise InputError(f"are no questions {missing} an answer in the documents", where="questions",
                         remedy="give some of both kinds; `answers: []` says that there is none")
    order = np.unique(np.array(scores, np.float64))
    cuts = np.concatenate([[order[0] - 1e-6], (order[1:] + order[:-1]) / 2, [order[-1] + 1e-6]])
    told = np.array(scores)[None] >= cuts[:, None]
    held = np.where(np.array(answerable)[None], told & np.array(right)[None], ~told).mean(axis=1)
    best = np.flatnonzero(held >= held.max() - 1e-12)
    chosen = best[len(best) // 2]
    return Threshold(least=float(cuts[chosen]), questions=len(scores), unanswerable=len(scores) - sum(answerable),
                     accuracy=float(held[chosen]))


def is_right(answer: str, known: Sequence[str]) -> bool:
    """Say whether an answer holds a known one, without regard to case, punctuation and articles."""
    padded = f" {normalize_answer(answer)} "
    return any(f" {normalize_answer(one)} " in padded for one in known if normalize_answer(one))
