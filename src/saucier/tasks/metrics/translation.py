"""BLEU and chrF, by sacrebleu, so that the numbers can be compared with published ones.

sacrebleu is imported when a score is asked for; it comes with the extra `translation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import ModuleType
from typing import Any, Literal

import numpy as np

from saucier.errors import InputError
from saucier.tasks.metrics.statistics import Floats

References = Sequence[str] | Sequence[Sequence[str]]
"""For each hypothesis one reference, or a sequence of several."""
Words = Literal["13a", "intl", "char", "zh", "none"]
"""How sacrebleu cuts a text into words; `none` at spaces."""
Smoothing = Literal["exp", "floor", "add-k", "none"]
"""What becomes of an n-gram precision of zero. Source: Chen and Cherry 2014."""


@dataclass(frozen=True, slots=True)
class TranslationScore:
    """A corpus score between 0 and 100, higher is better, with sacrebleu's signature of how it was made."""

    score: float
    signature: str
    details: str
    """sacrebleu's own line: for BLEU the n-gram precisions, the brevity penalty and the lengths."""


def bleu(hypotheses: Sequence[str], references: References, *, lowercase: bool = False, tokenize: Words = "13a",
         smooth_method: Smoothing = "exp", smooth_value: float | None = None,
         use_effective_order: bool = False) -> TranslationScore:
    """Score a corpus by clipped n-gram precision (n = 1..4) with a brevity penalty.

    Takes text as it is, not tokenized. `smooth_method` acts where an n-gram precision is zero. For the BLEU of single
    sentences set `use_effective_order`.

    Errors: `InputError` where sacrebleu is missing, where nothing is given, or where the lengths differ.
    Source: Papineni et al. 2002, "BLEU", §2; Post 2018, arXiv:1804.08771, for tokenization and signature.
    """
    metric = _sacrebleu().metrics.BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smooth_method,
                                       smooth_value=smooth_value, effective_order=use_effective_order)
    return _corpus(metric, hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, char_order: int = 6, word_order: int = 0, beta: int = 2,
         remove_whitespace: bool = True, eps_smoothing: bool = False) -> TranslationScore:
    """Score a corpus by the F-score of its character n-grams; `word_order=2` gives chrF++.

    `beta` is how many times recall counts more than precision.

    Errors: `InputError` where sacrebleu is missing, where nothing is given, or where the lengths differ.
    Source: Popović 2015, "chrF", §2; Popović 2017, "chrF++".
    """
    metric = _sacrebleu().metrics.CHRF(char_order=char_order, word_order=word_order, beta=beta,
                                       whitespace=not remove_whitespace, eps_smoothing=eps_smoothing)
    return _corpus(metric, hypotheses, references)


@dataclass(frozen=True, slots=True)
class SegmentSums:
    """What each segment adds to a corpus score, and how the score is made of the sums. Shapes: statistics [N, k]."""

    statistics: Floats
    score: Callable[[list[float]], float]


def bleu_sums(hypotheses: Sequence[str], references: References) -> SegmentSums:
    """Give BLEU as sums over segments; see `bleu`."""
    return _segments(_sacrebleu().metrics.BLEU(), hypotheses, references)


def chrf_sums(hypotheses: Sequence[str], references: References) -> SegmentSums:
    """Give chrF as sums over segments; see `chrf`."""
    return _segments(_sacrebleu().metrics.CHRF(), hypotheses, references)


def _segments(metric: Any, hypotheses: Sequence[str], references: References) -> SegmentSums:
    """Take sacrebleu's statistics. It shows them to nobody but its own bootstrap, so a test holds the two methods."""
    statistics = metric._extract_corpus_statistics(list(hypotheses), _streams(hypotheses, references))
    return SegmentSums(np.array(statistics, dtype=np.float64),
                       lambda sums: float(metric._compute_score_from_stats(sums).score))


def _sacrebleu() -> ModuleType:
    try:
        import sacrebleu
        import sacrebleu.metrics
    except ModuleNotFoundError:
        raise InputError("BLEU and chrF need sacrebleu, which is not installed",
                         remedy="pip install 'saucier[translation]'") from None
    module: ModuleType = sacrebleu
    return module


def _corpus(metric: Any, hypotheses: Sequence[str], references: References) -> TranslationScore:
    result = metric.corpus_score(list(hypotheses), _streams(hypotheses, references))
    return TranslationScore(score=float(result.score), signature=str(metric.get_signature()), details=str(result))


def _streams(hypotheses: Sequence[str], references: References) -> list[list[str | None]]:
    """Put references as sacrebleu takes them: the first of every segment, then the second; None where there is none."""
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses)} hypotheses for {len(references)} references", where="translation scores",
                         remedy="give one hypothesis for each reference, and at least one")
    groups = [[entry] if isinstance(entry, str) else list(entry) for entry in references]
    return [list(stream) for stream in zip_longest(*groups)]
