"""Retrievers and rerankers on disk, opened for use: questions and passages to vectors, and pairs to scores.

Axes: Q questions, P passages, K of them for a question, S sentences, E width of a vector, N pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from saucier.config import ChoiceHead, learned_length
from saucier.errors import InputError
from saucier.folders.load import load
from saucier.retrieval.chunks import list_sentences
from saucier.retrieval.collection import Collection, Passage
from saucier.retrieval.encoder import ModelEncoder, open_encoder
from saucier.retrieval.fusion import Choice, Floats, Ranking
from saucier.retrieval.lexical import build_lexical_index
from saucier.retrieval.nearest import MOST_SCORES, find_nearest, take_largest
from saucier.tasks.encoded_examples import EncodedExamples
from saucier.tasks.labelled_texts import encode_texts
from saucier.tasks.task import Encoding, Predictor
from saucier.text.tokenizer.model_inputs import check_tokenizer_fits
from saucier.text.tokenizer.tokenizer import load_tokenizer

LONGEST_PAIR = 512
"""Most tokens of a question with a passage, where the model would take more."""


class Ranker(Protocol):
    """Finds the passages of a collection by vectors."""

    def rank(self, collection: Collection, count: int, *, batch: int = 32) -> Ranking:
        """Return the `count` best passages for each question."""


@dataclass(frozen=True, slots=True)
class Retriever:
    """Passages whose vectors have the largest inner product with a question's: by one encoder, or by two.

    Source: eq 84; Karpukhin et al. 2020, §3.1, arXiv:2004.04906.
    """

    questions: ModelEncoder
    passages: ModelEncoder
    """The same one where the folder has one."""
    kept: list[tuple[Sequence[Passage], Tensor]] = field(default_factory=list, compare=False)
    """The last passages with their vectors: other questions to them embed the questions alone."""

    def rank(self, collection: Collection, count: int, *, batch: int = 32) -> Ranking:
        """Return the `count` nearest passages for each question of a collection."""
        return Ranking.of(find_nearest(*self.embed(collection, batch), count))

    def embed(self, collection: Collection, batch: int = 32) -> tuple[Tensor, Tensor]:
        """Return the vectors of the questions and the passages of a collection. Shapes: [Q, E], [P, E]."""
        if not self.kept or self.kept[0][0] is not collection.passages:
            self.kept[:] = [(collection.passages,
                             self.passages.embed_tensor([one.whole for one in collection.passages], batch))]
        return self.questions.embed_tensor([one.text for one in collection.questions], batch), self.kept[0][1]


@dataclass(frozen=True, slots=True)
class SentenceRetriever:
    """Ranks a passage by two inner products with the question, added up: of the whole, and of its best sentence.

    The vector of many facts lies between them all, and a question asks for one. A passage in which no sentence ends is
    its own sentence.
    Source: Akkalyoncu Yilmaz et al. 2019, "Cross-Domain Modeling of Sentence-Level Evidence for Document Retrieval"
    (D19-1352); by vectors here, of one sentence, with weights that are equal and were not tuned.
    """

    whole: Retriever
    kept: list[tuple[Sequence[Passage], Tensor, Tensor]] = field(default_factory=list, compare=False)
    """The last passages, the vectors of their sentences, and the place of each sentence's passage."""

    def rank(self, collection: Collection, count: int, *, batch: int = 32) -> Ranking:
        """Return the `count` best passages for each question of a collection."""
        questions, passages = self.whole.embed(collection, batch)
        if not self.kept or self.kept[0][0] is not collection.passages:
            cut = [list_sentences(one.whole) for one in collection.passages]
            owners = torch.arange(len(cut)).repeat_interleave(torch.tensor([len(one) for one in cut]))
            self.kept[:] = [(collection.passages, self.whole.passages.embed_tensor(
                [one for some in cut for one in some], batch), owners)]
        _, sentences, owners = self.kept[0]
        found = []
        for part in questions.split(max(1, MOST_SCORES // len(sentences))):
            best = part.new_empty(len(part), len(passages)).scatter_reduce(
                1, owners.expand(len(part), -1), part @ sentences.T, "amax", include_self=False)
            found.append(take_largest(part @ passages.T + best, count))
        return Ranking.of([torch.cat(side) for side in zip(*found, strict=True)])


def open_retriever(folder: str | Path, passages: str | Path | None = None,
                   number_format: str | None = None) -> Retriever:
    """Open an encoder of texts, or two: the one of questions, and that of passages, as DPR publishes them.

    `number_format`: as `format` of `saucier.load`.
    Errors: `InputError` for what cannot be opened, and for two that give vectors of other widths.
    """
    first = open_encoder(folder, number_format)
    second = first if passages is None else open_encoder(passages, number_format)
    if second.passport.width != first.passport.width:
        raise InputError(f"gives {second.passport.width} numbers a text, and {folder} {first.passport.width}",
                         where=str(passages),
                         remedy="give folders that were trained together, such as `saucier retrieve train` makes")
    return Retriever(first, second)


def rank_by_words(collection: Collection, count: int) -> Ranking:
    """Return the `count` best passages by BM25 for each question of a collection."""
    index = build_lexical_index([one.whole for one in collection.passages])
    return Ranking.of(index.find([one.text for one in collection.questions], count))


@dataclass(frozen=True, slots=True)
class Reranker:
    """A model that reads a question and a passage together, and gives the pair one score.

    Source: Nogueira and Cho 2019, §3, arXiv:1901.04085.
    """

    reader: Predictor

    @property
    def kind(self) -> type[Ranking]:
        """What its scores make of passages: a choice among them, where it learned to choose."""
        return Choice if isinstance(self.reader.model.config.head, ChoiceHead) else Ranking

    def score(self, questions: Sequence[str], passages: Sequence[str]) -> Floats:
        """Return a score for each pair: a logit, or the difference of the two of a binary classifier. Shapes: [N].

        Errors: `InputError` for a model that gives a pair anything else.
        """
        if not questions:
            return np.zeros(0)
        sequences, cut = encode_texts(questions, passages, self.reader.encoding)
        encoded = EncodedExamples(sequences, {}, np.arange(len(questions)), cut)
        logits = self.reader.gather(encoded).double().reshape(len(questions), -1)
        if logits.shape[1] > 2:
            raise InputError(f"gives {logits.shape[1]} scores to a pair of texts", where="reranker",
                             remedy="give one that `saucier retrieve train reranker` made, or of one or two classes")
        found: Floats = (logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0)).numpy()
        return found

    def rank(self, ranking: Ranking, collection: Collection) -> Ranking:
        """Put the passages of a ranking in the order of this model's scores; of equal ones as they were."""
        questions = [one.text for one, places in zip(collection.questions, ranking.places, strict=True) for _ in places]
        passages = [collection.passages[place].whole for places in ranking.places.tolist() for place in places]
        scores = self.score(questions, passages).reshape(ranking.places.shape)
        order = np.argsort(-scores, axis=1, kind="stable")
        return self.kind(np.take_along_axis(scores, order, 1), np.take_along_axis(ranking.places, order, 1))


def open_reranker(folder: str | Path, number_format: str | None = None, *, batch: int = 32) -> Reranker:
    """Open a model of pairs: a classifier, or a model of multiple choice, whose choices are passages.

    `number_format`: as `format` of `saucier.load`.
    Errors: `InputError` for what cannot be opened, and for a model that gives whole texts no score.
    """
    model, tokenizer = load(folder, dtype="float32", format=number_format), load_tokenizer(folder)
    if model.config.head is None or model.config.head.kind not in ("classification", "multiple_choice"):
        raise InputError("scores no pairs of texts", where=str(folder),
                         remedy="give a reranker, such as `saucier retrieve train reranker` makes")
    check_tokenizer_fits(model.config, tokenizer, str(folder))
    known = (LONGEST_PAIR, learned_length(model.config), tokenizer.handling.max_length)
    length = min(one for one in known if one)
    return Reranker(Predictor(model, Encoding(tokenizer, length, model.config), batch))
