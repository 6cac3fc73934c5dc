"""What a fine-tuned model has to beat: the commonest class, the mean, TF-IDF with a linear model, a copy, the lead,
one summary for all.

The linear models are scikit-learn's, an extra: without it the line says so.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from saucier.tasks.metrics.rouge import rouge_words
from saucier.tasks.task import Json, Task

EXTRA = "statistics"
SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
"""Where a new sentence begins, about."""
WORDS = 8192
"""Commonest words that vectors of words count."""
SUMMARIES = 300
"""Training summaries of which one is chosen for all."""


@dataclass(frozen=True, slots=True)
class SimpleBaseline:
    """Predictions by a simple method."""

    name: str
    """What a person knows it by."""
    predictions: list[Json]
    """One for each example."""


Method = Callable[[Any, Sequence[Any], Sequence[Any]], SimpleBaseline]
"""A method: of a task, its training rows and those to predict, its predictions."""


def majority_class(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The commonest class of the training rows."""
    commonest = Counter(label for one in train for label in task.classes(one)).most_common(1)[0][0]
    return SimpleBaseline(f"always {commonest}", [commonest] * len(test))


def mean_number(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The mean of the training rows."""
    mean = sum(one.label for one in train) / len(train)
    return SimpleBaseline("mean", [mean] * len(test))


def copy_text(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """What was read, as it is."""
    return SimpleBaseline("copy", [one.text for one in test])


def commonest_tags(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The tag that each word has most often in the training rows; that of all words for a word which is not there."""
    seen: dict[str, Counter[str]] = {}
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = sum(seen.values(), Counter()).most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    return SimpleBaseline("commonest tag of the word", [[best.get(word, usual) for word in one.words] for one in test])


def lead_sentences(test: Sequence[Any], count: int) -> SimpleBaseline:
    """The first sentences (or lines, of a dialogue) of a document. Source: Nallapati et al. 2017, arXiv:1611.04230."""
    return SimpleBaseline(f"lead-{count}",
                          [" ".join([part for part in SENTENCE.split(one.text) if part.strip()][:count])
                           for one in test])


def one_for_all(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The training summary that shares most words with the others (by ROUGE-1, among the first of them), every time.

    It knows no document: what a model is above it, it has read.
    """
    written = [one.references[0] for one in train[:SUMMARIES]]
    counted = [Counter(rouge_words(text)) for text in written]
    best = max(range(len(written)), key=lambda place: sum(
        2 * (counted[place] & other).total() / max(1, counted[place].total() + other.total()) for other in counted))
    return SimpleBaseline("one summary for all", [written[best]] * len(test))


def most_similar_sentence(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The sentence of the text that shares most words with the question, rare words counting more."""
    weights = inverse_document_frequency({one.context for one in test})
    found: list[Json] = []
    for one in test:
        sentences = [part for part in SENTENCE.split(one.context) if part.strip()]
        found.append(max(sentences, key=lambda sentence: shared_weight(one.question, sentence, weights)))
    return SimpleBaseline("sentence likest to the question", found)


def query_overlap(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """How many words a text shares with its query, rare words counting more. Source: Yang et al. 2015, §4.2."""
    weights = inverse_document_frequency({one.pair for one in test})
    return SimpleBaseline("words shared with the query", [shared_weight(one.text, one.pair, weights) for one in test])


def most_similar_choice(task: Any, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """The choice that shares most words with the question, rare words counting more."""
    weights = inverse_document_frequency({text for one in test for text in one.texts})
    found: list[Json] = []
    for one in test:
        scores = [shared_weight(" ".join(one.prompt), choice, weights) for choice in one.choices]
        found.append((task.config.labels or one.names)[scores.index(max(scores))])
    return SimpleBaseline("choice likest to the question", found)


def inverse_document_frequency(texts: Collection[str]) -> Callable[[str], float]:
    """Return how rare words are: the logarithm of the inverse share of texts that have them."""
    seen = Counter(word for text in texts for word in set(lowercase_words(text)))
    return lambda word: math.log((1 + len(texts)) / (1 + seen[word]))


def shared_weight(first: str, second: str, weight: Callable[[str], float]) -> float:
    """Return the weight of the words that two texts share."""
    return sum(map(weight, sorted(set(lowercase_words(first)) & set(lowercase_words(second)))))


def lowercase_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def tfidf_numbers(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """TF-IDF over words and pairs of words, then ridge regression."""
    from sklearn.linear_model import Ridge

    found = fit_tfidf(Ridge(), train, test)
    return SimpleBaseline("TF-IDF, ridge regression", [float(value) for value in found])


def tfidf_classes(task: Task, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """TF-IDF over words and pairs of words, then logistic regression."""
    from sklearn.linear_model import LogisticRegression

    found = fit_tfidf(LogisticRegression(C=10.0, max_iter=1000), train, test)
    return SimpleBaseline("TF-IDF, logistic regression", [str(value) for value in found])


def fit_tfidf(model: Any, train: Sequence[Any], test: Sequence[Any]) -> Any:
    """Fit a linear model over TF-IDF and let it predict. Of a pair both texts are read, one after the other."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if len(train) > 500 else 1)
    fitted, read = (["\n".join(one.texts) for one in rows] for rows in (train, test))
    return model.fit(vectors.fit_transform(fitted), [one.label for one in train]).predict(vectors.transform(read))


def tfidf_vectors(task: Any, train: Sequence[Any], test: Sequence[Any]) -> SimpleBaseline:
    """TF-IDF over words in the place of the vectors of an `EmbeddingTask`."""
    import torch
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = list(dict.fromkeys(text for one in test for text in one.texts))
    places = {text: place for place, text in enumerate(texts)}
    found = TfidfVectorizer(sublinear_tf=True, max_features=WORDS).fit_transform(texts)
    groups = torch.tensor([[places[text] for text in one.texts] for one in test])
    answers = task.compared(torch.from_numpy(found.toarray()).float(), groups)
    return SimpleBaseline("TF-IDF, cosine", [one.prediction for one in answers])


def has_extra() -> bool:
    """Say whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


WITH_EXTRA: tuple[Method, ...] = (tfidf_classes, tfidf_numbers, tfidf_vectors)
"""The methods that need scikit-learn."""
