"""Wrong passages that look right: hard negatives for a retriever or a reranker, from what systems find. No torch.

A passage is no negative where it is relevant, where it holds an answer of the question, and where a reranker finds it
nearly as good as the right one: such are often right, and were only not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from saucier.errors import InputError
from saucier.retrieval.collection import Collection, Passage, Question
from saucier.retrieval.fusion import Floats, Ranking
from saucier.tasks.text_embedding import normalize_answer
from saucier.text.rows.batch import Ints, make_generator

Learner = Literal["retriever", "reranker"]
Row = dict[str, Any]
ScorePairs = Callable[[Sequence[str], Sequence[str]], Floats]
"""Scores of questions with passages. Shapes: N, N -> [N]."""


@dataclass(frozen=True, slots=True)
class MiningOptions:
    """How wrong passages are chosen."""

    negatives: int = 1
    """For each question and right passage; a retriever needs none, whose batch holds other passages."""
    depth: int = 20
    """They are drawn at random among so many first passages of each ranking."""
    margin: float = 1.0
    """A passage whose score by the reranker is not this much below the right one's is no negative."""
    seed: int = 0
    """Draws them."""
    topics: int | None = None
    """Most passages of a topic, whose questions then make up a batch; None: no topics."""


@dataclass(frozen=True, slots=True)
class Mined:
    """Rows to learn from, and what became of the passages that were looked at."""

    rows: list[Row]
    counts: Counter[str] = field(default_factory=Counter)
    """How often a passage was left out, and why; how often one was drawn at random because too few were left."""


@dataclass(frozen=True, slots=True)
class Example:
    """A question with a right passage, wrong ones, and what a reranker says of all of them."""

    question: Question
    passage: Passage
    negatives: list[Passage]
    scores: list[float] | None
    """Of the right one, then of the wrong ones."""
    right: int
    """Where among the wrong ones the right one is put, where that is to be found out."""
    topic: int | None = None
    """What the right one is about."""


@dataclass(frozen=True, slots=True)
class Miner:
    """Draws wrong passages, and counts what becomes of those that are looked at."""

    collection: Collection
    options: MiningOptions
    score: ScorePairs | None = None
    """A reranker; None: what is found counts as wrong."""
    counts: Counter[str] = field(default_factory=Counter)

    def candidates(self, question: Question, found: Sequence[int], texts: Sequence[str]) -> list[int]:
        """Return the passages that are neither relevant nor hold an answer; `texts`: of all, normalized."""
        answers = [f" {one} " for one in map(normalize_answer, question.answers) if one]
        wrong = [place for place in found if texts[place].strip()
                 and self.collection.passages[place].id not in question.relevance]
        kept = [place for place in wrong if not any(one in texts[place] for one in answers)]
        self.counts["hold an answer"] += len(wrong) - len(kept)
        return kept

    def score_all(self, places: Sequence[Sequence[int]]) -> list[dict[int, float]]:
        """Return the reranker's scores of passages for each question, all read together; none without one."""
        if self.score is None:
            return [{} for _ in places]
        pairs = [(question.text, self.collection.passages[place].whole)
                 for question, some in zip(self.collection.questions, places, strict=True) for place in some]
        scores = iter(self.score([one for one, _ in pairs], [one for _, one in pairs]).tolist())
        return [{place: next(scores) for place in some} for some in places]

    def draw(self, question: Question, right: int, candidates: Sequence[int], values: dict[int, float],
             random: np.random.Generator) -> Example:
        """Draw the wrong passages of a right one, of which the reranker's scores may be known."""
        passages, needed, kept = self.collection.passages, self.options.negatives, list(candidates)
        if values:
            kept = [place for place in candidates if values[place] < values[right] - self.options.margin]
            self.counts["nearly as good by the reranker"] += len(candidates) - len(kept)
        chosen = [kept[place] for place in random.permutation(len(kept))[:needed]]
        if lacking := needed - len(chosen):
            free = [place for place, one in enumerate(passages)
                    if one.whole and one.id not in question.relevance and place not in {*candidates}]
            chosen += [free[place] for place in random.permutation(len(free))[:lacking]]
            self.counts["drawn from the whole collection"] += lacking
        if len(chosen) < needed:
            raise InputError(f"{len(passages)} passages are too few for {needed} negatives",
                             where=self.collection.name, remedy="ask for fewer")
        if self.score is not None and (new := [place for place in chosen if place not in values]):
            found = self.score([question.text] * len(new), [passages[place].whole for place in new])
            values = values | dict(zip(new, found.tolist(), strict=True))
        return Example(question, passages[right], [passages[place] for place in chosen],
                       [values[place] for place in (right, *chosen)] if values else None,
                       int(random.integers(needed + 1)))


def split_topics(vectors: NDArray[Any], size: int) -> Ints:
    """Return the topic of each passage, of at most `size` passages: halves by their main direction, and again.

    All topics are about as large, so that each fills a batch. Shapes: [N, E] -> [N].
    Source: Hofstätter et al. 2021, arXiv:2104.06967, where questions are clustered by k-means.
    """
    topics, parts = np.zeros(len(vectors), dtype=np.int64), [np.arange(len(vectors))]
    number = 0
    while parts:
        part = parts.pop()
        if len(part) <= size:
            topics[part], number = number, number + 1
            continue
        centred = vectors[part] - vectors[part].mean(0)
        direction = np.linalg.eigh(centred.T @ centred)[1][:, -1]
        order = part[np.argsort(centred @ direction, kind="stable")]
        parts += [order[len(part) // 2:], order[:len(part) // 2]]
    return topics


def mine(collection: Collection, rankings: Sequence[Ranking], learner: Learner, options: MiningOptions, *,
         score: ScorePairs | None = None, topics: Ints | None = None) -> Mined:
    """Return a row for each question and each passage that is relevant to it, with wrong passages of the rankings.

    For a retriever: question, passage, negative (a list), and where they are known answer, the topic of the passage
    (`topics`, one for each of the collection), and teacher_scores of the reranker `score`. For a reranker: a question
    with choices, one of them right. All rows have as many negatives: where too few are left, others are drawn from the
    whole collection, and counted.
    Errors: `InputError` for a collection with too few passages, and for rankings of other questions.
    Source: Karpukhin et al. 2020, §3.2, arXiv:2004.04906; filter: Qu et al. 2021, §3.3, arXiv:2010.08191.
    """
    collection = collection.answerable
    if any(len(one) != len(collection.questions) for one in rankings):
        raise InputError(f"are not of the {len(collection.questions)} questions that have a relevant passage",
                         where="rankings", remedy="rank `collection.answerable`")
    miner, examples, places = Miner(collection, options, score), list[Example](), collection.places
    texts = [f" {normalize_answer(one.whole)} " for one in collection.passages]
    rights = [sorted(places[name] for name in question.relevance) for question in collection.questions]
    candidates = [miner.candidates(question, list(dict.fromkeys(
        int(place) for one in rankings for place in one.places[number, :options.depth])), texts)
        for number, question in enumerate(collection.questions)]
    values = miner.score_all([[*right, *some] for right, some in zip(rights, candidates, strict=True)])
    for number, question in enumerate(collection.questions):
        random = make_generator(options.seed, number)
        drawn = [miner.draw(question, place, candidates[number], values[number], random) for place in rights[number]]
        examples += drawn if topics is None else [replace(one, topic=int(topics[place]))
                                                  for one, place in zip(drawn, rights[number], strict=True)]
    return Mined([FORMS[learner](one) for one in examples], miner.counts)


def retriever_row(example: Example) -> Row:
    """Return what `saucier finetune embedding` reads."""
    row: Row = {"question": example.question.text, "passage": example.passage.whole}
    if example.negatives:
        row["negative"] = [one.whole for one in example.negatives]
    if example.topic is not None:
        row["topic"] = str(example.topic)
    if example.question.answers:
        row["answer"] = example.question.answers[0]
    return row if example.scores is None else row | {"teacher_scores": example.scores}


def reranker_row(example: Example) -> Row:
    """Return what `saucier finetune multiple_choice` reads: a softmax over the passages of a question.

    Source: Cao et al. 2007 (ListNet), §4; over mined negatives Gao, Dai and Callan 2021, §3, arXiv:2101.08751.
    """
    choices = [one.whole for one in example.negatives]
    choices.insert(example.right, example.passage.whole)
    return {"question": example.question.text, "choices": choices, "answer": example.right}


FORMS: dict[Learner, Callable[[Example], Row]] = {"retriever": retriever_row, "reranker": reranker_row}
"""What a row holds, by what learns from it."""
