"""`Task`: everything that differs between tasks, from the rows of a labelled file to a prediction for each. The
fine-tuning job knows nothing else of any task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from saucier import config as c
from saucier.devices import AutocastDtype, autocast, move_batch
from saucier.errors import InputError, shorten_text
from saucier.generation.packed_weights import inference_view
from saucier.model import Transformer
from saucier.objectives.base import Batch, Objective
from saucier.objectives.labels import run_model
from saucier.parts.output import Output
from saucier.tasks.config import TaskConfig
from saucier.tasks.encoded_examples import EncodedBatches, EncodedExamples, order_by_length
from saucier.tasks.examples import Example, Tally
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Batches, Ints
from saucier.text.tokenizer.tokenizer import Tokenizer

Json = str | float | list[str] | None
"""What a prediction, or what it should have been, is in a file."""
E = TypeVar("E", bound=Example)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How texts become rows."""

    tokenizer: Tokenizer
    length: int
    """Most tokens in a row."""
    body: c.Transformer
    """The model that reads them, or its body."""
    start: int | None = None
    """What its decoder begins with, as the model's generation_config.json says; None: as the body or tokenizer says."""

    def begins(self, otherwise: int) -> int:
        """Return what its decoder begins with, `otherwise` where the model says nothing.

        Raises `InputError` for what is no token of it.
        """
        start: object = otherwise if self.start is None else self.start
        if type(start) is not int or not 0 <= start < self.body.output_embed.vocab:
            raise InputError(f"{shorten_text(repr(start))[:80]} is no token of a vocabulary of "
                             f"{self.body.output_embed.vocab}",
                             where="decoder_start_token_id", remedy="write one into the model's generation_config.json")
        return start

    @property
    def has_segment_ids(self) -> bool:
        """Whether a row says which text each token is of: the tokenizer writes it, and the body reads it."""
        return self.tokenizer.has_segments and self.body.embed.segments is not None


@dataclass(frozen=True, slots=True)
class RequiredHead:
    """The head that a task needs."""

    kind: str
    """The kind of our head, by which a published family's own class is found."""
    generic: Callable[[c.Transformer, Tokenizer], c.Head | None]
    """Makes the head for a body whose family publishes none; None: the body as it is."""
    labels: tuple[str, ...] = ()
    """The names of its outputs, where it has named ones."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model that is asked, and how."""

    model: Transformer
    encoding: Encoding
    """How its rows are made."""
    batch: int
    """Units that are read at a time."""
    dtype: AutocastDtype = "float32"

    def outputs(self, sheet: EncodedExamples) -> Iterator[tuple[Ints, Batch, Output]]:
        """Yield (numbers of the units, what the model read, what it gave), shortest units first."""
        device = next(self.model.parameters()).device
        model = inference_view(self.model)
        with torch.no_grad(), autocast(self.dtype, device):
            for rows in order_by_length(sheet, self.batch):
                batch = move_batch(rows.sheet.batch(rows.units), device)
                yield rows.units, batch, run_model(model, batch)

    def logits(self, sheet: EncodedExamples) -> torch.Tensor:
        """Return the head's numbers for every unit, in order. Shapes: [U, outputs], float32 on the CPU."""
        found = [(units, output.logits) for units, _, output in self.outputs(sheet)]
        order = np.argsort(np.concatenate([units for units, _ in found]))
        return torch.cat([logits.float().cpu() for _, logits in found if logits is not None])[order]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says of one example."""

    prediction: Json
    """A class, a number, a text, or a list of tags or labels."""
    confidence: float | None = None
    """How sure it is: a probability, where there is one."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else a person may want to know, as JSON."""


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """Examples that are scored together."""

    name: str
    """What it is called; empty where it is all there is."""
    task: Task[Any]
    """What they are examples of."""
    examples: list[Any]
    numbers: list[int]
    """Which of all examples these are."""


class Task(ABC, Generic[E]):
    """A task. All methods are pure; a task that has read its training file knows its labels."""

    @property
    @abstractmethod
    def config(self) -> TaskConfig:
        """The task as data, with its labels where they are known."""

    @abstractmethod
    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[E]:
        """Yield the examples of a file; without labels where only predictions are wanted.

        What is skipped, dropped or repaired on the way is counted in the tally.
        Raises `InputError` for a file that lacks a column and for a row that cannot be used.
        """

    def typed(self, texts: tuple[str, ...], example: Example) -> E:
        """Make an example of texts that a person typed. Raises `InputError` for a task that they do not suit."""
        raise InputError(f"a {self.config.kind} task is not asked by single texts", where="--text",
                         remedy="give a FILE with its columns")

    def learned(self, examples: Sequence[E]) -> Task[E]:
        """Return the task with what the training file says of it (labels). Raises `InputError` for one class only."""
        return self

    def check(self, examples: Sequence[E]) -> None:
        """Raise `InputError` for an example with a label that is never trained."""

    def spelled(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer with the tokens that the task adds to it; as a rule none."""
        return tokenizer

    @property
    @abstractmethod
    def wanted(self) -> RequiredHead:
        """The head that it needs."""

    @abstractmethod
    def sheet(self, examples: Sequence[E], encoding: Encoding) -> EncodedExamples:
        """Encode examples; what does not fit is cut and counted. With targets where the examples have them."""

    def batches(self, sheet: EncodedExamples, batch: int, *, seed: int) -> Batches[Any]:
        """Return endless batches of at most `batch` units of the training rows."""
        return EncodedBatches(sheet, batch, seed=seed)

    def fitted(self, sheet: EncodedExamples) -> Task[E]:
        """Return the task with what the training rows say of it, once they are encoded."""
        return self

    def generation_settings(self, encoding: Encoding) -> dict[str, Any]:
        """Return how a model of this task writes, under the names of `saucier.generate`; nothing where it does not."""
        return {}

    @property
    @abstractmethod
    def objective(self) -> Objective:
        """What is learned."""

    @abstractmethod
    def answers(self, reading: Predictor, examples: Sequence[E], sheet: EncodedExamples) -> list[Answer]:
        """Return what a model says of each example, in order."""

    @property
    @abstractmethod
    def scored_as(self) -> str:
        """The kind of its predictions, by which metrics are chosen (`tasks.scores.KINDS`)."""

    @abstractmethod
    def gold(self, example: E) -> Json | list[Json]:
        """Return what it should say, in the form of a prediction; a list of those where several are right."""

    def gathered(self, examples: Sequence[E], values: Sequence[Any]) -> list[Any]:
        """Return a value for each example, gathered as they are scored: as a rule one by one."""
        return list(values)

    @abstractmethod
    def texts(self, example: E) -> tuple[str, ...]:
        """Return the texts that an example is about: to find duplicates, and to show it."""

    def target_texts(self, example: E) -> tuple[str, ...]:
        """Return the texts that are to be written, from which a new tokenizer learns too; as a rule none."""
        return ()

    def around(self, example: E, body: c.Transformer) -> tuple[str, ...]:
        """Return what a body reads around an example's texts, from which a new tokenizer learns too; as a rule nothing.
        """
        return ()

    def apart(self, example: E) -> tuple[str, ...]:
        """Return what two examples share that must not stand on both sides of a split: as a rule all their texts."""
        return self.texts(example)

    def parts(self, examples: Sequence[E]) -> list[ScoredPart]:
        """Return what is scored by itself: each task of a mixture with its own metrics, and else all together."""
        return [ScoredPart("", self, list(examples), list(range(len(examples))))]

    def remarks(self, sheet: EncodedExamples) -> Iterator[str]:
        """Yield lines that a person should read before training on the rows of a sheet."""
        yield from ()

    def classes(self, example: E) -> Sequence[str]:
        """Return the labels of an example, to be counted; none for tasks without classes."""
        return ()

    def spoken(self, target: int, tokenizer: Tokenizer) -> str:
        """Say what a target at a position means, to a person."""
        return str(target)

    def told(self, example: E, said: Any) -> str:
        """Write a prediction, or what is right, for a person."""
        return f"{said:.2f}" if isinstance(said, float) else str(said)
