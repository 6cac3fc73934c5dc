"""Texts as vectors: pairs, scored pairs, labelled pairs, triplets; saved as sentence-transformers reads them.

Axes: N examples, T different texts, E width of a vector.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import (
    CandidateMargin,
    CandidateSoftmax,
    ContrastivePairs,
    CosineScore,
    Embedding,
    InBatch,
    TeacherScores,
    TripletTexts,
)
from saucier.tasks.encoded_examples import EncodedExamples, Truncation
from saucier.tasks.examples import (
    LABEL,
    NEGATIVE,
    PAIR,
    SCORE,
    TEXT,
    Cells,
    Column,
    Example,
    Tally,
    read_cells,
    read_each,
    requested_columns,
)
from saucier.tasks.labelled_texts import encode_texts
from saucier.tasks.task import Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.reading.tables import list_columns

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.objectives.base import Objective

TOGETHER, APART = "together", "apart"
NEEDED_PAIR, NEEDED_NEGATIVE = replace(PAIR, needed=True), replace(NEGATIVE, needed=True)
ANSWER = Column("answer", (), needed=False)
TOPIC = Column("topic", (), needed=False)
"""Read where the settings name them: what is called so may be the pair."""
MOST_SIMILARITIES = 1 << 24
"""Cosines that are held at once."""


@dataclass(frozen=True, slots=True)
class TextGroup(Example):
    """Texts that are compared, and how near they are meant to be."""

    texts: tuple[str, ...]
    """A text, its pair, maybe a wrong one."""
    score: float | tuple[float, ...] | None = None
    """How near they are: a score, or 1 and 0, or a teacher's scores of all but the first; None where that is not known.
    """
    answer: str | None = None
    """What answers the first text, where that matters."""
    topic: str | None = None
    """What it is about, where the rows of a batch shall be about one thing."""


UNREAD = ("rows say in {column} how near their texts are, which in_batch does not read: every pair counts as near "
          "(task.learns.kind=cosine reads scores, contrastive reads labels)")
"""What is said of pairs that are learned from as if all were near."""


@dataclass(frozen=True, slots=True)
class EmbeddingTask(Task):
    """Vectors by which texts are compared."""

    config: Embedding
    required_head = RequiredHead("embedding", c.EmbeddingHead())
    """The mean of a text's vectors, scaled to length one."""

    @property
    def kind(self) -> PairKind:
        """What is learned."""
        return PAIR_KINDS[type(self.config.learns)]

    @property
    def scored_as(self) -> str:
        """As numbers, as one of two classes, or by the rank of the right text."""
        return self.kind.scored_as

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[TextGroup]:
        """Yield groups of texts."""
        expected = (TEXT, NEEDED_PAIR, *self.kind.columns, TOPIC) if labelled else (TEXT, NEEDED_PAIR)
        requested = requested_columns(self.config, expected)
        usual = {*LABEL.usual, *SCORE.usual} - {*requested.values()}
        unread = next((name for name in list_columns(source) if name in usual), None)

        def read(row: Cells) -> TextGroup:
            if unread and labelled and isinstance(self.config.learns, InBatch):
                tally[UNREAD.format(column=unread)] += 1
            texts = (row.text("text"), row.text("pair"), *(row.texts("negative") if "negative" in row.values else ()))
            score = self.kind.read(row, self.config.learns) if labelled else None
            if isinstance(score, tuple) and len(score) != len(texts) - 1:
                raise row.fault("score", f"{len(score)} scores of a pair and {len(texts) - 2} wrong texts",
                                "give one for the pair, and one for each wrong text")
            return TextGroup(row.example.place, row.example.name, texts, score,
                             *(row.word(name) if name in row.values else None for name in ("answer", "topic")))

        return read_each(read_cells(source, expected, requested), read, source)

    def from_texts(self, texts: tuple[str, ...], example: Example) -> TextGroup:
        """Two texts that are compared."""
        if len(texts) != 2:
            raise InputError("there is nothing to compare the text with", where="--text",
                             remedy="give two texts with ||| between; `saucier embed` gives the vectors themselves")
        return TextGroup(example.place, example.name, texts)

    def fit_labels(self, examples: Sequence[TextGroup]) -> Self:
        """Take the lowest and the highest score from the file; labels must be of both kinds."""
        found = [one.score for one in examples if one.score is not None]
        learns, where = self.config.learns, examples[0].place.file
        if found and len(set(found)) < 2:
            raise InputError("has the same score or label in every row", where=where,
                             remedy="give pairs that are near and pairs that are not (task.learns.together=LABEL)")
        if not isinstance(learns, CosineScore):
            return self
        bounds = {"low": min(found) if learns.low is None else learns.low,
                  "high": max(found) if learns.high is None else learns.high}
        return self.with_config(learns=learns.model_copy(update=bounds))

    def encode(self, examples: Sequence[TextGroup], encoding: Encoding) -> EncodedExamples:
        """Encode each text in a row of its own. Raises `InputError` where some rows have a wrong text and others not.

        Groups of an asking file (without a third text) are pairs.
        """
        group = len(examples[0].texts)
        for one in examples:
            if len(one.texts) != group:
                raise InputError(f"has {len(one.texts)} texts, and others have {group}", where=str(one.place),
                                 remedy="give files with the same columns")
        wide, cut = encode_texts([text for one in examples for text in one.texts], None, encoding)
        scores = [one.score for one in examples if one.score is not None]
        flat = {"labels": self.targets(scores)} if len(scores) == len(examples) else {}
        answers = [normalize_answer(one.answer) for one in examples if one.answer is not None]
        if len(answers) == len(examples):
            flat["answers"] = np.unique(answers, return_inverse=True)[1]
        topics = [one.topic for one in examples if one.topic is not None]
        return EncodedExamples(wide, flat, np.arange(len(examples)), cut, group=group,
                               topics=np.unique(topics, return_inverse=True)[1] if topics else None)

    def targets(self, scores: Sequence[float | tuple[float, ...]]) -> Any:
        """Move scores into 0 … 1, unless they are a teacher's. Shapes: [N], or [N, G - 1]."""
        low, high = self.bounds
        return ((np.array(scores) - low) / (high - low)).astype(np.float32)

    @property
    def bounds(self) -> tuple[float, float]:
        """The scores of cosines 0 and 1."""
        learns = self.config.learns
        if isinstance(learns, CosineScore) and learns.low is not None and learns.high is not None:
            return learns.low, learns.high
        return 0.0, 1.0

    @property
    def objective(self) -> Objective:
        """What `learns` says."""
        from saucier.objectives import contrastive

        return self.kind.objective(contrastive, self.config.learns)

    def predict(self, predictor: Predictor, examples: Sequence[TextGroup], encoded: EncodedExamples) -> list[Answer]:
        """The score of each pair, which of two it is, or the rank of the right text among all of the file."""
        import torch

        from saucier.objectives.contrastive import SIMILARITIES

        texts = list(dict.fromkeys(text for one in examples for text in one.texts))
        places = {text: place for place, text in enumerate(texts)}
        rows = unique_texts(encoded, examples, places)
        vectors = [one.gather(rows, "embeddings") for one in self.encoders(predictor)]
        groups = torch.tensor([[places[text] for text in one.texts] for one in examples])
        groups[:, 1:] += len(texts) * (len(vectors) - 1)
        normalize = SIMILARITIES[getattr(self.config.learns, "similarity", "cosine")]
        return self.compared(normalize(torch.cat(vectors)), groups)

    def encoders(self, predictor: Predictor) -> list[Predictor]:
        """Return what reads the texts: one encoder, or that of the first texts and that of all others.

        Raises `InputError` where there should be two, and one is there.
        """
        if getattr(self.config.learns, "passage_encoder", None) is None:
            return [predictor]
        if predictor.second is None:
            raise InputError("was trained with a second encoder, for passages", where="model",
                             remedy="saucier retrieve evaluate DATA --model OUT/model --passage-model OUT/passages")
        return [predictor, replace(predictor, model=predictor.second)]

    def compared(self, vectors: Tensor, groups: Tensor) -> list[Answer]:
        """Turn vectors into answers. Shapes: vectors [T, E] of length one, groups [N, G]."""
        near = (vectors[groups[:, 0]] * vectors[groups[:, 1]]).sum(-1)
        found = self.kind.predict(self, near.tolist(), lambda: rank_candidates(vectors, groups))
        return [Answer(one, None, {"cosine": round(cosine, 4)})
                for one, cosine in zip(found, near.tolist(), strict=True)]

    def gold(self, example: TextGroup) -> Json:
        """The score, whether they belong together, or rank 1."""
        return self.kind.gold(example.score if isinstance(example.score, float) else None)

    def classes(self, example: TextGroup) -> Sequence[str]:
        """Whether they belong together, where that is learned."""
        gold = self.gold(example)
        return (gold,) if isinstance(gold, str) else ()


@dataclass(frozen=True, slots=True)
class PairKind:
    """What texts are compared for: how it is read, learned, predicted and scored."""

    columns: tuple[Column, ...]
    """What is read in addition to the two texts."""
    objective: Callable[[Any, Any], Objective]
    """What is learned, from the module of such objectives and `learns`."""
    scored_as: str
    read: Callable[[Cells, Any], float | tuple[float, ...] | None] = lambda row, learns: None
    """Reads how near the texts of a row are; None: the column says nothing of it."""
    predict: Callable[[Any, list[float], Callable[[], Tensor]], list[Any]] = (
        lambda task, cosines, ranks: [float(rank) for rank in ranks().tolist()])
    """Predictions from the cosine of each pair, or the rank of the right text among all."""
    gold: Callable[[float | None], Json] = lambda score: 1.0


PAIR_KINDS: dict[type, PairKind] = {
    InBatch: PairKind((NEGATIVE, ANSWER), lambda losses, learns: build_in_batch(losses, learns), "ranks"),
    TripletTexts: PairKind((NEEDED_NEGATIVE,), lambda losses, learns: losses.Triplets(learns.margin), "ranks"),
    TeacherScores: PairKind((NEEDED_NEGATIVE, SCORE), lambda losses, learns: CANDIDATE_LOSSES[type(learns.loss)](
        losses, learns), "ranks", lambda row, learns: row.numbers("score")),
    CosineScore: PairKind(
        (SCORE,), lambda losses, learns: losses.Cosine(), "numbers", lambda row, learns: row.number("score"),
        lambda task, cosines, ranks: [task.bounds[0] + one * (task.bounds[1] - task.bounds[0]) for one in cosines],
        lambda score: score),
    ContrastivePairs: PairKind(
        (LABEL,), lambda losses, learns: losses.Contrastive(learns.margin), "classes",
        lambda row, learns: float(row.word("label") == learns.together),
        lambda task, cosines, ranks: [TOGETHER if 1 - one < task.config.learns.margin / 2 else APART
                                      for one in cosines],
        lambda score: None if score is None else TOGETHER if score else APART)}
"""What texts are compared for, by the class of `learns`."""
CANDIDATE_LOSSES: dict[type, Callable[[Any, Any], Objective]] = {
    CandidateMargin: lambda losses, learns: losses.CandidateMargins(learns.scale),
    CandidateSoftmax: lambda losses, learns: losses.CandidateDivergence(learns.scale, learns.loss.temperature)}
"""What is learned of a teacher's scores, by the class of `learns.loss`."""


def build_in_batch(losses: Any, learns: InBatch) -> Objective:
    """Return what is learned from a batch: by one encoder, or by two."""
    if learns.passage_encoder is None:
        return losses.InBatchNegatives(learns.scale, learns.similarity)  # type: ignore[no-any-return]
    return losses.TwoEncoders(learns.scale, learns.similarity, learns.passage_encoder)  # type: ignore[no-any-return]


def normalize_answer(text: str) -> str:
    """Return an answer as it is compared: its words in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def unique_texts(encoded: EncodedExamples, examples: Sequence[TextGroup], places: dict[str, int]) -> EncodedExamples:
    """Return encoded examples of different texts, one a unit, from one of groups. Shapes: N * G rows -> T rows."""
    _, first = np.unique([places[text] for one in examples for text in one.texts], return_index=True)
    wide = {name: ragged.joined(first[:, None]) for name, ragged in encoded.sequences.items()}
    return EncodedExamples(wide, {}, np.arange(len(places)), Truncation())


def rank_candidates(vectors: Tensor, groups: Tensor) -> Tensor:
    """Return the rank of each text's pair among all pairs and wrong texts, from 1; of equals it is the last.

    Shapes: vectors [T, E], groups [N, G] -> [N].
    """
    import torch

    candidates = vectors[torch.unique(groups[:, 1:])]
    size, found = max(1, MOST_SIMILARITIES // len(candidates)), []
    for part in groups.split(size):
        queries = vectors[part[:, 0]]
        own = (queries * vectors[part[:, 1]]).sum(-1, keepdim=True)
        found.append((queries @ candidates.T >= own - 1e-6).sum(-1).clamp_min(1))
    return torch.cat(found)
