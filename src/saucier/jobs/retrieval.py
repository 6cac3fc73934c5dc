"""The jobs of `saucier retrieve`: wrong passages mined, retrievers and rerankers trained, systems compared.

A training is a fine-tuning on rows that are mined first: its folder, resume and report are those of `saucier finetune`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from rich.console import Group, RenderableType

from saucier.errors import InputError
from saucier.files import is_folder, write_text
from saucier.jobs.finetuning.entry import is_finished, run_finetuning
from saucier.jobs.score import format_interval, format_score
from saucier.result import Result
from saucier.retrieval.collection import Collection, read_collection
from saucier.retrieval.fusion import Floats, Ranking, feed_back, fuse_by_folds, fuse_ranks, fuse_scores
from saucier.retrieval.measures import MEASURES, judge, measure
from saucier.retrieval.mining import Learner, Mined, MiningOptions, Row, mine, split_topics
from saucier.table import Table
from saucier.tasks.metrics.metric import compare_values, full_value, interval
from saucier.tasks.metrics.statistics import Difference
from saucier.tasks.scores import Score

if TYPE_CHECKING:
    from saucier.jobs.finetuning.finished import Finetuned
    from saucier.retrieval.retriever import Ranker

TASKS: dict[Learner, tuple[str, tuple[str, ...]]] = {
    "retriever": ("embedding", ("task.text=question", "task.pair=passage", "training.batch=256",
                                "training.micro_batch=32")),
    "reranker": ("multiple_choice", ("task.question=question", "task.choices=choices", "task.answer=answer",
                                     "training.batch=32", "training.micro_batch=4"))}
"""The task that each is trained on, and its usual settings; what a person says comes after them."""
MORE_COLUMNS = ("negative", "answer", "topic")
"""What a retriever's rows may hold beside questions and passages."""
SHOWN_MEASURES = tuple(MEASURES)


@dataclass(frozen=True, slots=True)
class MinedFile(Result):
    """Rows that were mined."""

    out: Path
    rows: int
    counts: Mapping[str, int]
    """Passages that were left out, and why; those that were drawn instead."""

    def view(self) -> str:
        """Say what is there."""
        found = [f"{self.rows:,} rows in {self.out}", *(f"{count:,} {what}" for what, count in self.counts.items())]
        return "; ".join(found)


@dataclass(frozen=True, slots=True)
class Models:
    """What searches and reads: folders."""

    retrievers: tuple[str, ...] = ()
    passages: str | None = None
    """The encoder of passages, where the (one) retriever has two."""
    reranker: str | None = None
    sentences: bool = False
    """Whether retrievers also look for the best sentence of a passage; these are systems of their own."""
    format: str | None = None
    """The number format that all of them are read in."""


def mine_file(collection: Collection, learner: Learner, out: Path, models: Models, options: MiningOptions) -> MinedFile:
    """Mine rows by BM25 and by the retrievers that are given, and write them as JSON lines."""
    found = mine_rows(collection, learner, models, options)
    write_rows(out, found.rows)
    return MinedFile(out, len(found.rows), dict(found.counts))


def mine_rows(collection: Collection, learner: Learner, models: Models, options: MiningOptions) -> Mined:
    """Rank by every system, and draw the wrong passages of each question. Raises `InputError` as `mine`."""
    from saucier.retrieval.retriever import open_reranker, open_retriever, rank_by_words

    kept = collection.answerable
    depth = options.depth + max(map(len, (one.relevance for one in kept.questions)), default=0)
    rankings = [rank_by_words(kept, depth)]
    retrievers = [open_retriever(one, models.passages, models.format) for one in models.retrievers]
    rankings += [one.rank(kept, depth) for one in retrievers]
    score = None if models.reranker is None else open_reranker(models.reranker, models.format).score
    topics = None if options.topics is None else split_topics(
        retrievers[0].passages.embed([one.whole for one in kept.passages]), options.topics)
    return mine(kept, rankings, learner, options, score=score, topics=topics)


def write_rows(out: Path, rows: Sequence[Row]) -> None:
    """Write rows as JSON lines, unless they are there."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if not (out.is_file() and out.read_text(encoding="utf-8") == text):
        write_text(out, text)


def train_on(learner: Learner, data: str, out: Path, *, model: str, settings: Sequence[str] = (),
             split: str = "train", options: MiningOptions, quiet: bool = False) -> Finetuned:
    """Train a retriever or a reranker on mined rows, or on a collection, for which they are mined by BM25.

    Mined rows are `OUT/rows/train.jsonl`. A training that was stopped goes on; a finished one is returned.
    Raises `InputError` for what cannot be read or trained, `WorkError` as `finetune`.
    """
    task, usual = TASKS[learner]
    rows = Path(data)
    if is_folder(data) or not is_rows(data, learner):
        rows = out / "rows" / "train.jsonl"
        if not is_finished(out):
            write_rows(rows, mine_rows(read_collection(data, split=split), learner, Models(), options).rows)
    more = [f"task.{name}={name}" for name in list_more(rows)] if learner == "retriever" else []
    words = [*usual, *more, *settings]
    return run_finetuning(task, words, model=model, files={"train": [str(rows)]}, out=out, quiet=quiet)


def is_rows(data: str, learner: Learner) -> bool:
    """Say whether a file holds mined rows. Raises `InputError` for those of the other learner."""
    from saucier.text.reading.sources import find_sources
    from saucier.text.reading.tables import list_columns

    columns = {*list_columns(find_sources([data])[0])}
    found = {"retriever": {"question", "passage"} <= columns, "reranker": {"question", "choices"} <= columns}
    if any(found.values()) and not found[learner]:
        raise InputError(f"holds rows of a {next(one for one, there in found.items() if there)}", where=data,
                         remedy=f"mine others: saucier retrieve mine --for {learner}")
    return found[learner]


def list_more(rows: Path) -> list[str]:
    """Return which of `MORE_COLUMNS` the first row has."""
    with rows.open(encoding="utf-8") as file:
        first = json.loads(file.readline() or "{}")
    return [name for name in MORE_COLUMNS if name in first]


@dataclass(frozen=True, slots=True)
class SystemScores:
    """What one system reaches."""

    name: str
    scores: tuple[Score, ...]
    """Every measure with its interval over questions."""
    against: str | None = None
    """The system that it is compared with."""
    difference: Difference | None = None
    """By the measure that weights are tuned by, on the same questions."""
    weights: tuple[float, ...] = ()
    """Of what was added to that system, in each fold of questions: tuned on all others."""


@dataclass(frozen=True, slots=True)
class RetrievalReport(Result):
    """Systems on the questions of one collection."""

    collection: str
    passages: int
    questions: int
    left_out: int
    """Questions to which no passage is relevant."""
    tuned_by: str
    """The measure that weights are tuned by, and systems compared."""
    systems: tuple[SystemScores, ...]
    rankings: Mapping[str, Ranking] = field(default_factory=dict, repr=False)
    """What each system found, for Python."""

    def view(self) -> RenderableType:
        """Return the table that `saucier retrieve evaluate` prints."""
        names = [one.name for one in self.systems[0].scores]
        rows = [[one.name, *(format_score(score.value) for score in one.scores)] for one in self.systems]
        first = Table(["system", *names], rows, numbers=range(1, len(names) + 1), folded=(0,), colours={0: "cyan"})
        compared = [[one.name, one.against or "", format_score(one.difference.value, signed=True),
                     format_interval(one.difference.low, one.difference.high, signed=True),
                     f"{one.difference.units_p:.2g}"] for one in self.systems if one.difference is not None]
        said = (f"{self.questions:,} questions, {self.passages:,} passages"
                + (f"; {self.left_out:,} questions without a relevant passage left out" if self.left_out else ""))
        table = Table(["system", "against", self.tuned_by, "95 %", "p"], compared, numbers=(2, 3, 4), folded=(0, 1))
        return Group(said, first, *([table] if compared else []))

    def to_dict(self) -> dict[str, object]:
        """Return plain values, without the rankings."""
        from saucier.plain import json_value

        return {name: json_value(getattr(self, name)) for name in ("collection", "passages", "questions", "left_out",
                                                                  "tuned_by", "systems")}


Tuned = Literal["recall@1", "recall@5", "recall@20", "nDCG@10", "MRR", "MAP"]


@dataclass(slots=True)
class Comparison:
    """Systems that are compared on one collection."""

    collection: Collection
    tuned_by: Tuned
    found: dict[str, Ranking] = field(default_factory=dict)
    lines: list[SystemScores] = field(default_factory=list)

    def add(self, name: str, ranking: Ranking, against: str | None = None, weights: tuple[float, ...] = ()) -> None:
        """Measure a system, and compare it with an earlier one."""
        self.found[name] = ranking
        scores = []
        for one in SHOWN_MEASURES:
            measured = measure(ranking, self.collection, one)
            scores.append(Score(one, full_value(measured), *interval(measured), measured.count, "questions"))
        difference = None if against is None else compare_values(*(
            measure(self.found[one], self.collection, self.tuned_by) for one in (name, against)))
        self.lines.append(SystemScores(name, tuple(scores), against, difference, weights))

    def fuse(self, name: str, first: str, second: Ranking) -> None:
        """Add a fusion of an earlier system and a ranking, each fold with the weight that suits all others."""
        fused = fuse_by_folds(self.found[first], second, self.worth,
                              [next(iter(one.relevance)) for one in self.collection.questions])
        self.add(name, fused.ranking, first, fused.weights)

    def feed_back(self, first: str, count: int, rank: Callable[[Collection], Ranking]) -> str:
        """Add an earlier system that also asks for what it finds first, and return the name."""
        name = f"{first}, feedback of {count}"
        self.add(name, feed_back(self.found[first], count, lambda places: rank(
            self.collection.ask_passages(places.tolist()))), first)
        return name

    def worth(self, ranking: Ranking) -> Floats:
        """Return what weights are tuned by. Shapes: -> [Q]."""
        return MEASURES[self.tuned_by](judge(ranking, self.collection))


def compare_systems(collection: Collection, models: Models, *, depth: int = 100, feedback: int = 0, reread: int = 20,
                    tuned_by: Tuned = "MRR") -> RetrievalReport:
    """Measure BM25, every retriever, their fusions, the last of these when the first `feedback` passages are asked too,
    and a reranker over the first `reread` of what is then found.

    Where retrievers also look by sentences, fusions are made of that. Each system is compared, in pairs of answers to
    the same question, with the one before it. Weights are tuned in folds on other questions than those that are
    scored; questions of one passage are in one fold.
    Errors: `InputError` for a collection without judgements, and what cannot be opened.
    """
    from saucier.retrieval.retriever import SentenceRetriever, open_reranker, open_retriever, rank_by_words

    kept = collection.answerable
    if not kept.questions:
        raise InputError("has no question with a relevant passage", where=collection.name, remedy="give judgements")
    work, words = Comparison(kept, tuned_by), "BM25"
    work.add(words, rank_by_words(kept, depth))
    best, rank = words, partial(rank_by_words, count=depth)
    for name, folder in zip(short_names(models.retrievers), models.retrievers, strict=True):
        opened = open_retriever(folder, models.passages, models.format)
        work.add(name, opened.rank(kept, depth), words)
        ranker: Ranker = opened
        if models.sentences:
            ranker, whole, name = SentenceRetriever(opened), name, f"{name}, by sentences"
            work.add(name, ranker.rank(kept, depth), whole)
        work.add(f"{words} + {name}, reciprocal rank", fuse_ranks([work.found[words], work.found[name]]), name)
        best = f"{words} + {name}"
        work.fuse(best, words, work.found[name])
        rank = partial(rank_by_both, retriever=ranker, count=depth, weight=float(np.mean(work.lines[-1].weights)))
    if feedback:
        best = work.feed_back(best, feedback, rank)
    if models.reranker is not None:
        first = work.found[best].cut(reread)
        again = open_reranker(models.reranker, models.format).rank(first, kept)
        work.add("reranker", again, best)
        work.found[f"{best}, first {reread}"] = first
        work.fuse(f"{best} + reranker", f"{best}, first {reread}", again)
    return RetrievalReport(collection.name, len(kept.passages), len(kept.questions),
                           len(collection.questions) - len(kept.questions), tuned_by, tuple(work.lines), work.found)


def rank_by_both(collection: Collection, retriever: Ranker, count: int, weight: float) -> Ranking:
    """Return the fusion of BM25 and a retriever. `weight`: of the retriever."""
    from saucier.retrieval.retriever import rank_by_words

    return fuse_scores(rank_by_words(collection, count), retriever.rank(collection, count), weight)


def short_names(folders: Sequence[str]) -> list[str]:
    """Return the names of folders; their paths where two have one name."""
    names = [re.sub(r"/model$", "", str(Path(one))).rsplit("/", 1)[-1] for one in folders]
    return names if len({*names}) == len(names) else list(folders)
