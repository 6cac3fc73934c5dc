"""Scores of texts: perplexity and bits per byte, BLEU and chrF (by sacrebleu, so that they compare with published
ones), ROUGE, and exact match and F1 of answers as SQuAD scores them, with no answer where a question has no
reference.

sacrebleu is imported when a score is computed; it comes with the extra `translation`.

An answer is compared after lower case, without punctuation, articles and superfluous spaces; of several
references the
best counts. A question without any reference has no answer, and "" is then the right prediction.
Source: Rajpurkar et al. 2016, §6.1, arXiv:1606.05250; Rajpurkar et al. 2018, arXiv:1806.03822, for no answer.

A gold is a text, or several references.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from saucier.errors import InputError, report_missing
from saucier.tasks.metrics.metric import Mean, Metric, Sums, indicator, ratio
from saucier.tasks.metrics.rouge import ROUGE_KINDS, best_overlap
from saucier.tasks.metrics.statistics import Floats


def perplexity(nats: float, tokens: int) -> float:
    """Give `exp(nats / tokens)`: among how many equally likely tokens the model chooses, so to say.

    `nats` is the sum of the losses of `tokens` target tokens. Two models can be compared by it only over the same
    tokens; `bits_per_byte` has no such condition. Infinite where the number is too large for a float.

    Errors: `ValueError` where nothing was scored.
    Source: Jelinek et al. 1977, "Perplexity: a measure of the difficulty of speech recognition tasks", JASA 62.
    """
    if tokens <= 0:
        raise ValueError(f"perplexity of {tokens} tokens")
    try:
        return math.exp(nats / tokens)
    except OverflowError:
        return math.inf


def bits_per_byte(nats: float, byte_count: int) -> float:
    """Give the bits that the model needs for one UTF-8 byte of the text, as a compressor would.

    That is `nats / ln 2 / byte_count`, where `nats` is the sum of the losses of all tokens that spell these bytes.

    Errors: `ValueError` where there is no text.
    Source: Gao et al. 2020, "The Pile", §3.1, arXiv:2101.00027.
    """
    if byte_count <= 0:
        raise ValueError(f"bits per byte of {byte_count} bytes")
    return nats / math.log(2) / byte_count


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
    return _corpus(_sacrebleu().metrics.BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smooth_method,
                                             smooth_value=smooth_value, effective_order=use_effective_order),
                   hypotheses, references)


def chrf(hypotheses: Sequence[str], references: References, *, char_order: int = 6, word_order: int = 0, beta: int = 2,
         remove_whitespace: bool = True, eps_smoothing: bool = False) -> TranslationScore:
    """Score a corpus by the F-score of its character n-grams; `word_order=2` gives chrF++.

    `beta` is how many times recall counts more than precision.

    Errors: `InputError` where sacrebleu is missing, where nothing is given, or where the lengths differ.
    Source: Popović 2015, "chrF", §2; Popović 2017, "chrF++".
    """
    return _corpus(_sacrebleu().metrics.CHRF(char_order=char_order, word_order=word_order, beta=beta,
                                             whitespace=not remove_whitespace, eps_smoothing=eps_smoothing),
                   hypotheses, references)


def corpus_sums(metric: Any, hypotheses: Sequence[str], references: References) -> Sums:
    """Make a corpus score of sacrebleu a function of sums over segments. A draw costs one call of it, some 20 µs.

    It shows its statistics to nobody but its own bootstrap, so a test holds the two methods.
    """
    statistics = metric._extract_corpus_statistics(list(hypotheses), _streams(hypotheses, references))

    def value(sums: Floats) -> Floats:
        rows: Any = np.atleast_2d(sums)
        return np.array([float(metric._compute_score_from_stats([float(one) for one in row]).score)
                         for row in rows]).reshape(np.shape(sums)[:-1])

    return Sums(np.array(statistics, dtype=np.float64), value)


def _sacrebleu() -> Any:
    with report_missing("BLEU and chrF need sacrebleu, which is not installed",
                        remedy="pip install 'saucier[translation]'"):
        import sacrebleu
        import sacrebleu.metrics
    return sacrebleu


def _corpus(metric: Any, hypotheses: Sequence[str], references: References) -> TranslationScore:
    result = metric.corpus_score(list(hypotheses), _streams(hypotheses, references))
    return TranslationScore(score=float(result.score), signature=str(metric.get_signature()), details=str(result))


def _streams(hypotheses: Sequence[str], references: References) -> list[list[str | None]]:
    """Put references as sacrebleu takes them: the first of every segment, then the second; None where there is none."""
    if not hypotheses or len(hypotheses) != len(references):
        raise InputError(f"{len(hypotheses)} hypotheses for {len(references)} references", where="translation scores",
                         remedy="give one hypothesis for each reference, and at least one")
    return [list(stream) for stream in zip_longest(*as_references(references))]


ARTICLES = re.compile(r"\b(a|an|the)\b")
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
AnswerGold = Sequence[str]
"""The references of one question; none where it has no answer."""


def normalize_answer(text: str) -> str:
    """Write an answer as it is compared."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(WITHOUT_PUNCTUATION)).split())


def word_f1(ours: list[str], theirs: list[str]) -> float:
    """Compare two lists of words; where one is empty, 1 if both are."""
    if not ours or not theirs:
        return float(ours == theirs)
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


def same_words(ours: list[str], theirs: list[str]) -> float:
    """Give 1 where two lists of words are equal."""
    return float(ours == theirs)


def answerable(gold: AnswerGold) -> bool:
    """Tell whether a question has an answer."""
    return any(normalize_answer(reference) for reference in gold)


PARTS: dict[str, Callable[[AnswerGold], bool]] = {
    "": lambda gold: True, " (answerable)": answerable, " (unanswerable)": lambda gold: not answerable(gold)}


def span_metric(name: str, compare: Callable[[list[str], list[str]], float], part: str = "") -> Metric:
    """Mean over the questions of one of `PARTS` of how an answer compares with the best of its references."""
    def measure(golds: Sequence[AnswerGold], predictions: Sequence[str]) -> Mean:
        values = [max(compare(normalize_answer(prediction).split(), normalize_answer(one).split())
                      for one in gold or [""]) for gold, prediction in zip(golds, predictions, strict=True)]
        return Mean(np.array(values), indicator([PARTS[part](gold) for gold in golds]))

    return Metric(name + part, measure, "questions")


TextGold = str | Sequence[str]


BLEU = Metric("BLEU", lambda golds, predictions: corpus_sums(
    _sacrebleu().metrics.BLEU(), predictions, as_references(golds)), "texts")
"""Corpus BLEU, 0 to 100. Source: Papineni et al. 2002; Post 2018, arXiv:1804.08771."""


CHRF = Metric("chrF", lambda golds, predictions: corpus_sums(
    _sacrebleu().metrics.CHRF(), predictions, as_references(golds)), "texts")
"""Corpus chrF, 0 to 100. Source: Popović 2015."""


def rouge_metric(name: str, kind: str) -> Metric:
    """Mean F1 of one kind of ROUGE (`rouge1`, `rouge2`, `rougeL`, `rougeLsum`), 0 to 1, without stemming."""
    return Metric(name, lambda golds, predictions: Mean(
        np.array([best_overlap(ROUGE_KINDS[kind], prediction, gold, False).f1
                  for gold, prediction in zip(golds, predictions, strict=True)]), np.ones(len(golds))), "texts")


TEXT_MATCH = Metric("exact match", lambda golds, predictions: Mean(
    indicator([prediction.strip() in [one.strip() for one in group]
               for group, prediction in zip(as_references(golds), predictions, strict=True)]),
    np.ones(len(golds))), "texts")
"""Share of texts that are their reference, or one of them, but for space around."""


PERPLEXITY = Metric("perplexity", lambda golds, predictions: Sums(
    np.stack([np.asarray(side, dtype=np.float64) for side in (predictions, golds)], axis=1),
    lambda sums: np.exp(ratio(sums))), "texts", better="lower")
"""exp(nats / targets): a gold is an example's number of targets, its prediction their loss in nats."""


def as_references(golds: Sequence[TextGold]) -> list[list[str]]:
    """Give every example a list of references."""
    return [[gold] if isinstance(gold, str) else list(gold) for gold in golds]
