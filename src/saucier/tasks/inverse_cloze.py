"""The inverse cloze task: a sentence asks, and the passage that it was taken out of answers. A retriever from texts
that nobody labelled.

Axes: N passages, U units (a sentence with its passage), E width of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from saucier import config as c
from saucier.errors import InputError
from saucier.tasks.definitions import InverseCloze
from saucier.tasks.encoded_examples import DRAWN_STREAM, DrawnBatches, EncodedExamples, draw_units
from saucier.tasks.examples import Cells, Column, Example, Place, Tally, read_cells, read_each, requested_columns
from saucier.tasks.labelled_texts import encode_texts
from saucier.tasks.task import Answer, Encoding, Json, Predictor, RequiredHead, Task
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Batches, make_generator
from saucier.text.rows.store import find_sentence_starts

if TYPE_CHECKING:
    from saucier.objectives.base import Objective

PASSAGE = Column("text", ("text", "context", "passage", "paragraph", "document", "content"))
TITLE = Column("title", ("title",), needed=False)
KEPT_STREAM = 23
"""A stream of random numbers."""
SHORT = "passages of one sentence left out"


@dataclass(frozen=True, slots=True)
class Block(Example):
    """A passage, cut into sentences."""

    title: str
    sentences: tuple[str, ...]
    """With the spaces after them, so that they are the text again."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The passage."""
        return ("".join(self.sentences),)

    def without(self, place: int | None) -> str:
        """Return title and text, as passages are embedded, without one of its sentences; None: with all."""
        text = "".join(one for number, one in enumerate(self.sentences) if number != place).strip()
        return "\n".join(part for part in (self.title, text) if part)


def cut_block(place: Place, name: str, title: str, text: str) -> Block:
    """Cut a text into sentences; pieces without a letter belong to the sentence before."""
    sentences: list[str] = []
    for start, end in pairwise([*find_sentence_starts(text), len(text)]):
        if sentences and not text[start:end].strip():
            sentences[-1] += text[start:end]
        else:
            sentences.append(text[start:end])
    return Block(place, name, title, tuple(sentences))


@dataclass(frozen=True, slots=True)
class InverseClozeTask(Task):
    """Vectors by which a sentence finds its passage."""

    config: InverseCloze

    @property
    def required_head(self) -> RequiredHead:
        """The first token's vector, through a map (eq 64–65); a head that the model has stays."""
        return RequiredHead("embedding", c.EmbeddingHead(
            pooling=(c.Pooling(kind="cls"),), maps=(c.DenseMap(width=self.config.width, activation="identity"),),
            normalize=False))

    @property
    def scored_as(self) -> str:
        """By the rank of the right passage among all of the file."""
        return "ranks"

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Block]:
        """Yield passages; one of a single sentence is left out and counted."""
        columns = (PASSAGE, TITLE)

        def read(row: Cells) -> Block:
            title = str(row.values.get("title") or "")
            return cut_block(row.example.place, row.example.name, title, row.text("text"))

        for one in read_each(read_cells(source, columns, requested_columns(self.config, columns)), read, source):
            if len(one.sentences) > 1:
                yield one
            else:
                tally.update([SHORT])

    def from_texts(self, texts: tuple[str, ...], example: Example) -> Block:
        """A passage from the command line. Raises `InputError` for one of a single sentence."""
        found = cut_block(example.place, example.name, "", texts[0])
        if len(found.sentences) < 2:
            raise InputError("a sentence is taken out, and nothing is left", where=str(example.place),
                             remedy="give a passage of several sentences")
        return found

    def encode(self, examples: Sequence[Block], encoding: Encoding) -> EncodedExamples:
        """Encode every sentence with its passage: without it, but for the share that is kept.

        Source: Lee et al. 2019, "Inverse Cloze Task": the sentence is taken out in 90 % of the examples.
        """
        number = np.repeat(np.arange(len(examples)), [len(one.sentences) for one in examples])
        stays = make_generator(0, KEPT_STREAM).random(len(number)) < self.config.kept
        texts, unit = list[str](), 0
        for one in examples:
            for place, sentence in enumerate(one.sentences):
                texts += [sentence.strip(), one.without(None if stays[unit] else place)]
                unit += 1
        wide, cut = encode_texts(texts, None, encoding)
        return EncodedExamples(wide, {"blocks": number}, number, cut, group=2)

    def batches(self, encoded: EncodedExamples, batch: int, *, seed: int) -> Batches[Any]:
        """Return batches in which every passage comes once an epoch, with one of its sentences."""
        return DrawnBatches(encoded, batch, seed, ("passages", "sentences"))

    @property
    def objective(self) -> Objective:
        """The softmax over the passages of the batch."""
        from saucier.objectives.contrastive import InverseClozeLabels

        return InverseClozeLabels(self.config.scale)

    def predict(self, predictor: Predictor, examples: Sequence[Block], encoded: EncodedExamples) -> list[Answer]:
        """Return, for one sentence of each passage, the rank of the passage among all; of equals it is the last."""
        units = draw_units(encoded.example_numbers, make_generator(0, DRAWN_STREAM))
        rows = (units[:, None] * 2 + np.arange(2)).ravel()
        alone = EncodedExamples({name: one.joined(rows[:, None]) for name, one in encoded.sequences.items()}, {},
                                np.arange(len(rows)))
        questions, passages = predictor.gather(alone, "embeddings").view(len(units), 2, -1).unbind(1)
        scores = questions @ passages.T
        ranks = (scores >= scores.diagonal()[:, None] - 1e-6).sum(-1)
        return [Answer(float(rank)) for rank in ranks.tolist()]

    def gold(self, example: Block) -> Json:
        """Rank 1."""
        return 1.0
