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

from saucier.tasks.definitions import (
    Classification,
    Embedding,
    MultipleChoice,
    QuestionAnswering,
    Ranking,
    Regression,
    Tagging,
)
from saucier.tasks.metrics.rouge import rouge_words
from saucier.tasks.task import Json, Task
from saucier.tasks.text_embedding import EmbeddingTask
from saucier.tasks.written.definitions import LabelToText, NumberToText, Summarization, TextToText, Translation

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
    """One for each example that was asked."""


def predict_simple_baselines(task: Task[Any], train: Sequence[Any], asked: Sequence[Any]) -> list[SimpleBaseline]:
    """Return the predictions of the simple methods that fit a task, the weakest first."""
    match task.config:
        case Classification() | LabelToText():
            return [majority_class(task, train, asked), *tfidf_linear(task, train, asked)]
        case Regression() | NumberToText():
            mean = sum(one.label for one in train) / len(train)
            return [SimpleBaseline("mean", [mean] * len(asked)), *tfidf_linear(task, train, asked)]
        case Tagging():
            return [commonest_tags(train, asked)]
        case Embedding():
            return tfidf_vectors(task, asked)
        case TextToText() | Translation():
            return [SimpleBaseline("copy", [one.text for one in asked])]
        case Summarization():
            return [one_for_all(train, asked), lead_sentences(asked, 1), lead_sentences(asked, 3)]
        case QuestionAnswering():
            return [most_similar_sentence(asked)]
        case Ranking():
            return [query_overlap(asked)]
        case MultipleChoice():
            return [majority_class(task, train, asked), most_similar_choice(task.config, asked)]
        case _:
            return []


def missing_extra(task: Task[Any]) -> str | None:
    """Say what cannot be compared because scikit-learn is missing; None where nothing is."""
    wanted = isinstance(task.config, Classification | Regression | Embedding | LabelToText | NumberToText)
    if wanted and importlib.util.find_spec("sklearn") is None:
        return f"no TF-IDF baseline: scikit-learn is not installed (pip install 'saucier[{EXTRA}]')"
    return None


def majority_class(task: Task[Any], train: Sequence[Any], asked: Sequence[Any]) -> SimpleBaseline:
    """The commonest class of the training rows."""
    commonest = Counter(label for one in train for label in task.classes(one)).most_common(1)[0][0]
    return SimpleBaseline(f"always {commonest}", [commonest] * len(asked))


def commonest_tags(train: Sequence[Any], asked: Sequence[Any]) -> SimpleBaseline:
    """The tag that each word has most often in the training rows; that of all words for a word which is not there."""
    seen: dict[str, Counter[str]] = {}
    for one in train:
        for word, tag in zip(one.words, one.tags, strict=True):
            seen.setdefault(word, Counter())[tag] += 1
    usual = sum(seen.values(), Counter()).most_common(1)[0][0]
    best = {word: tags.most_common(1)[0][0] for word, tags in seen.items()}
    return SimpleBaseline("commonest tag of the word", [[best.get(word, usual) for word in one.words] for one in asked])


def lead_sentences(asked: Sequence[Any], count: int) -> SimpleBaseline:
    """The first sentences (or lines, of a dialogue) of a document. Source: Nallapati et al. 2017, arXiv:1611.04230."""
    return SimpleBaseline(f"lead-{count}",
                          [" ".join([part for part in SENTENCE.split(one.text) if part.strip()][:count])
                           for one in asked])


def one_for_all(train: Sequence[Any], asked: Sequence[Any]) -> SimpleBaseline:
    """The training summary that shares most words with the others (by ROUGE-1, among the first of them), every time.

    It knows no document: what a model is above it, it has read.
    """
    written = [one.references[0] for one in train[:SUMMARIES]]
    counted = [Counter(rouge_words(text)) for text in written]
    best = max(range(len(written)), key=lambda place: sum(
        2 * (counted[place] & other).total() / max(1, counted[place].total() + other.total()) for other in counted))
    return SimpleBaseline("one summary for all", [written[best]] * len(asked))


def most_similar_sentence(asked: Sequence[Any]) -> SimpleBaseline:
    """The sentence of the text that shares most words with the question, rare words counting more."""
    weights = inverse_document_frequency({one.context for one in asked})
    found: list[Json] = []
    for one in asked:
        sentences = [part for part in SENTENCE.split(one.context) if part.strip()]
        found.append(max(sentences, key=lambda sentence: shared_weight(one.question, sentence, weights)))
    return SimpleBaseline("sentence likest to the question", found)


def query_overlap(asked: Sequence[Any]) -> SimpleBaseline:
    """How many words a text shares with its query, rare words counting more. Source: Yang et al. 2015, §4.2."""
    weights = inverse_document_frequency({one.pair for one in asked})
    return SimpleBaseline("words shared with the query", [shared_weight(one.text, one.pair, weights) for one in asked])


def most_similar_choice(task: MultipleChoice, asked: Sequence[Any]) -> SimpleBaseline:
    """The choice that shares most words with what is asked, rare words counting more."""
    weights = inverse_document_frequency({text for one in asked for text in (*one.asked, *one.choices)})
    found: list[Json] = []
    for one in asked:
        scores = [shared_weight(" ".join(one.asked), choice, weights) for choice in one.choices]
        found.append((task.labels or one.names)[scores.index(max(scores))])
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


def tfidf_linear(task: Task[Any], train: Sequence[Any], asked: Sequence[Any]) -> list[SimpleBaseline]:
    """TF-IDF over words and pairs of words, then logistic (or ridge) regression; none without scikit-learn.

    Of a pair both texts are read, one behind the other.
    """
    if importlib.util.find_spec("sklearn") is None:
        return []
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2 if len(train) > 500 else 1)
    read = vectors.fit_transform(join_texts(task, train))
    golds = [one.label for one in train]
    if isinstance(task.config, Regression | NumberToText):
        found = Ridge().fit(read, golds).predict(vectors.transform(join_texts(task, asked)))
        return [SimpleBaseline("TF-IDF, ridge regression", [float(value) for value in found])]
    model = LogisticRegression(C=10.0, max_iter=1000).fit(read, golds)
    return [SimpleBaseline("TF-IDF, logistic regression",
                           [str(value) for value in model.predict(vectors.transform(join_texts(task, asked)))])]


def tfidf_vectors(task: Task[Any], asked: Sequence[Any]) -> list[SimpleBaseline]:
    """TF-IDF over words in the place of the model's vectors; none without scikit-learn."""
    if importlib.util.find_spec("sklearn") is None or not isinstance(task, EmbeddingTask):
        return []
    import torch
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = list(dict.fromkeys(text for one in asked for text in one.texts))
    places = {text: place for place, text in enumerate(texts)}
    found = TfidfVectorizer(sublinear_tf=True, max_features=WORDS).fit_transform(texts)
    groups = torch.tensor([[places[text] for text in one.texts] for one in asked])
    answers = task.compared(torch.from_numpy(found.toarray()).float(), groups)
    return [SimpleBaseline("TF-IDF, cosine", [one.prediction for one in answers])]


def join_texts(task: Task[Any], examples: Sequence[Any]) -> list[str]:
    """Return the texts of each example as one."""
    return ["\n".join(task.texts(one)) for one in examples]
