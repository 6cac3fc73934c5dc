"""BM25 over stems: the passages that share the rarest words with a question.

Words are lower-cased runs of two or more letters or digits without stop words, each cut to its stem. Axes: Q questions,
P passages, K passages found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError, report_missing, suggest_name

Language = Literal["danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian",
                   "spanish", "swedish", "turkish"]
"""Languages with stop words and a stemmer."""
SATURATION, LENGTH_SHARE = 1.5, 0.75
"""`k1` and `b` of the paper."""


@dataclass(frozen=True, slots=True)
class LexicalIndex:
    """Passages by their words."""

    language: Language
    index: Any
    """A `bm25s.BM25`."""
    size: int
    """Number of passages."""

    def score(self, questions: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Yield the scores of all passages for each question; 0 where they share no word. Shapes: [P] each."""
        for words in split_into_stems(questions, self.language):
            yield self.index.get_scores_from_ids(self.index.get_tokens_ids(words))

    def find(self, questions: Sequence[str], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the `count` best passages for each question, the best first; of equal ones the first.

        Passages that share no word with the question have a score of 0, and fill up the rows.
        Shapes: -> scores [Q, K], places [Q, K], where K is `count`, or P if that is less.
        Errors: `InputError` for no question and a count below 1.
        """
        if not questions or count < 1:
            raise InputError("is none" if not questions else f"is {count}",
                             where="count" if questions else "questions", remedy="give at least one")
        found = [take_best(scores, min(count, self.size)) for scores in self.score(questions)]
        scores, places = (np.stack(side) for side in zip(*found, strict=True))
        return scores, places


def build_lexical_index(passages: Sequence[str], *, language: Language = "english", saturation: float = SATURATION,
                        length_share: float = LENGTH_SHARE) -> LexicalIndex:
    """Count the stems of passages, with their BM25 weights.

    The weight of a word that occurs f times in a passage of l words, where a mean one has m, is
    idf * f / (f + k1 * (1 - b + b * l / m)) with idf = ln(1 + (P - n + 0.5) / (n + 0.5)) for n passages that hold it;
    k1 is `saturation`, b `length_share`.
    Errors: `InputError` without the extra, for no passages, and for an unknown language.
    Source: Robertson and Zaragoza 2009, §3.4, eq 3.15; this form is Lucene's (Kamphuis et al. 2020, table 1).
    """
    if language not in get_args(Language):
        raise InputError(f"no stemmer for {language!r}", where="language",
                         remedy=suggest_name(language, [*get_args(Language)]))
    if not passages:
        raise InputError("are none", where="passages", remedy="give at least one")
    words = [*split_into_stems(passages, language)]
    index = import_bm25s().BM25(k1=saturation, b=length_share, method="lucene")
    index.index([one or [""] for one in words], show_progress=False)  # bm25s takes no passage without words
    return LexicalIndex(language, index, len(passages))


def split_into_stems(texts: Sequence[str], language: Language) -> list[list[str]]:
    """Return the stems of each text, without stop words."""
    bm25s = import_bm25s()
    import Stemmer

    found: list[list[str]] = bm25s.tokenize([*texts], stopwords=language, stemmer=Stemmer.Stemmer(language),
                                            return_ids=False, show_progress=False)
    return found


def import_bm25s() -> Any:
    """Return bm25s, without JAX: where that is installed, bm25s runs it once, and it takes most of a GPU's memory."""
    hidden = "jax" not in sys.modules and "bm25s" not in sys.modules
    try:
        if hidden:
            sys.modules["jax"] = None  # type: ignore[assignment]  # so that its import fails
        with report_missing("search by words needs bm25s and PyStemmer, which are not installed",
                            remedy="pip install 'saucier[knowledge]'"):
            import bm25s
            import Stemmer  # noqa: F401 - reported together
    finally:
        if hidden:
            del sys.modules["jax"]
    return bm25s


def take_best(scores: NDArray[Any], count: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the `count` largest scores and their places; of equal ones the first. Shapes: [P] -> [K], [K]."""
    least = np.partition(scores, -count)[-count]
    places = np.flatnonzero(scores >= least)
    kept = places[np.argsort(-scores[places], kind="stable")[:count]]
    return scores[kept], kept
