"""`Task`: everything that differs between tasks, from the rows of a labelled file to a prediction for each. The
fine-tuning job knows nothing else of any task.

Modules of tasks import torch inside the functions that compute: files and labels are read and checked without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from saucier import config as c
from saucier.errors import InputError, shorten_text
from saucier.tasks.encoded_examples import EncodedBatches, EncodedExamples, Ragged, order_by_length
from saucier.tasks.examples import Example, Tally, refuse_unknown
from saucier.text.reading.sources import SourceFile
from saucier.text.rows.batch import Batches, Ints
from saucier.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from saucier.devices import AutocastDtype
    from saucier.model import Transformer
    from saucier.objectives.base import Batch, Objective
    from saucier.parts.output import Output

NEW_HEAD_DROPOUT = 0.1
"""On the vectors that a new map reads. Source: Devlin et al. 2019, §4.1 and §A.3."""
Json = str | float | list[str] | None
"""What a prediction, or what it should have been, is in a file."""


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

    def decoder_start(self, otherwise: int) -> int:
        """Return what its decoder begins with, `otherwise` where the model says nothing.

        Raises `InputError` for what is no token of it.
        """
        start: object = otherwise if self.start is None else self.start
        if type(start) is not int or not 0 <= start < self.body.output_embed.vocab:
            raise InputError(f"{shorten_text(repr(start))[:80]} is no token of a vocabulary of "
                             f"{self.body.output_embed.vocab}",
                             where="decoder_start_token_id", remedy="write one into the model's generation_config.json")
        return start

    def inputs(self, rows: Sequence[Any]) -> dict[str, Ragged]:
        """Return what the model reads of rows that have ids and types (segments, which not every model reads)."""
        found = {"input_ids": Ragged.of([row.ids for row in rows], self.tokenizer.pad_id or 0)}
        if self.tokenizer.has_segments and self.body.embed.segments is not None:
            found["token_type_ids"] = Ragged.of([row.types for row in rows], 0)
        return found


@dataclass(frozen=True, slots=True)
class RequiredHead:
    """The head that a task needs."""

    kind: str
    """The kind of our head, by which a published family's own class is found."""
    generic: c.Head | Callable[[c.Transformer, Tokenizer], c.Head]
    """The head for a body whose family publishes none, or what makes it for a body."""
    labels: tuple[str, ...] = ()
    """The names of its outputs, where it has named ones."""
    pick: c.Pick | None = None
    """Where it takes the vector of a text; None: where the family's own class takes it."""
    holders: tuple[str, ...] = ()
    """Kinds of heads that hold one of this kind: a model that has such a one keeps it."""

    def make(self, body: c.Transformer, tokenizer: Tokenizer) -> c.Head:
        """Return the head for a body whose family publishes none."""
        return self.generic(body, tokenizer) if callable(self.generic) else self.generic


@dataclass(frozen=True, slots=True)
class Predictor:
    """A model that predicts, and how its rows are made."""

    model: Transformer
    encoding: Encoding
    """How its rows are made."""
    batch: int
    """Units that are read at a time."""
    dtype: AutocastDtype = "float32"
    second: Transformer | None = None
    """A second model that was trained with it."""

    def outputs(self, encoded: EncodedExamples) -> Iterator[tuple[Ints, Batch, Output]]:
        """Yield (numbers of the units, what the model read, what it gave), longest units first."""
        import torch

        from saucier.devices import autocast, move_batch
        from saucier.generation.packed_weights import inference_view
        from saucier.objectives.labels import run_model

        device = next(self.model.parameters()).device
        model = inference_view(self.model)
        with torch.no_grad(), autocast(self.dtype, device):
            for rows in order_by_length(encoded, self.batch):
                batch = move_batch(rows.encoded.batch(rows.units), device)
                yield rows.units, batch, run_model(model, batch)

    def gather(self, encoded: EncodedExamples, name: str = "logits") -> Tensor:
        """Return one of the head's outputs for every unit, in order. Shapes: [U, outputs], float32 on the CPU."""
        import torch

        found = [(units, getattr(output, name).float().cpu()) for units, _, output in self.outputs(encoded)]
        order = np.argsort(np.concatenate([units for units, _ in found]))
        return torch.cat([values for _, values in found])[order]


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
    task: Task
    """What they are examples of."""
    examples: list[Any]
    numbers: list[int]
    """Which of all examples these are."""


class Task(Protocol):
    """A task: a frozen class with these members, and a row in `tasks.build`; what returns something here is a default.

    All methods are pure; a task that has read its training file knows its labels. Examples are of the task's own kind;
    the `texts` of one are what it is about, by which duplicates are found and it is shown.
    """

    @property
    def config(self) -> Any:
        """The task as data (a `TaskConfig`), with its labels where they are known."""

    def read(self, source: SourceFile, tally: Tally, *, labelled: bool) -> Iterator[Any]:
        """Yield the examples of a file; without labels where only predictions are made.

        What is skipped, dropped or repaired on the way is counted in the tally.
        Raises `InputError` for a file that lacks a column and for a row that cannot be used.
        """

    def from_texts(self, texts: tuple[str, ...], example: Example) -> Any:
        """Make an example of texts that a person typed. Raises `InputError` for a task that they do not suit."""

    def fit_labels(self, examples: Sequence[Any]) -> Self:
        """Return the task with what the training file says of it (labels). Raises `InputError` for one class only."""
        return self

    def with_config(self, **changes: object) -> Self:
        """Return the task with other settings."""
        task: Any = self
        changed: Self = replace(task, config=task.config.model_copy(update=changes))
        return changed

    def unseen_labels(self, example: Any) -> list[str]:
        """Return those labels of an example that are not learned, once it is known which are."""
        known = getattr(self.config, "labels", ())
        return [label for label in self.classes(example) if label not in known] if known else []

    def check_labels(self, examples: Sequence[Any], *, measured: bool = False) -> None:
        """Raise `InputError` for examples with a label that is never trained.

        Rows that are only measured may have such labels, which no model names; but not all of them.
        """
        known = getattr(self.config, "labels", ())
        wrong = [one for one in examples if self.unseen_labels(one)] if known else []
        if not measured or (wrong and len(wrong) == len(examples)):
            refuse_unknown([(one, label) for one in wrong for label in self.classes(one)], known)

    def extend_tokenizer(self, tokenizer: Tokenizer) -> Tokenizer:
        """Return the tokenizer with the tokens that the task adds to it; as a rule none."""
        return tokenizer

    @property
    def required_head(self) -> RequiredHead:
        """The head that it needs."""

    def encode(self, examples: Sequence[Any], encoding: Encoding) -> EncodedExamples:
        """Encode examples; what does not fit is cut and counted. With targets where the examples have them."""

    def batches(self, encoded: EncodedExamples, batch: int, *, seed: int) -> Batches[Any]:
        """Return endless batches of at most `batch` units of the training rows."""
        return EncodedBatches(encoded, batch, seed=seed)

    def fit_lengths(self, encoded: EncodedExamples) -> Self:
        """Return the task with what the training rows say of it, once they are encoded."""
        return self

    def generation_settings(self, encoding: Encoding) -> dict[str, Any]:
        """Return how a model of this task writes, under the names of `saucier.generate`; nothing where it does not."""
        return {}

    @property
    def objective(self) -> Objective:
        """What is learned."""

    def predict(self, predictor: Predictor, examples: Sequence[Any], encoded: EncodedExamples) -> list[Answer]:
        """Return what a model says of each example, in order."""

    @property
    def scored_as(self) -> str:
        """The kind of its predictions, by which metrics are chosen (`tasks.scores.KINDS`)."""

    def gold(self, example: Any) -> Json | list[Json]:
        """Return what it should say, in the form of a prediction; a list of those where several are right."""

    def group_for_scoring(self, examples: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """Return a value for each example, grouped as they are scored: as a rule one by one."""
        return list(values)

    def target_texts(self, example: Any) -> tuple[str, ...]:
        """Return the texts that are to be written, from which a new tokenizer learns too; as a rule none."""
        return ()

    def surrounding_texts(self, example: Any, body: c.Transformer) -> tuple[str, ...]:
        """Return what a body reads around an example's texts, from which a new tokenizer learns too; as a rule nothing.
        """
        return ()

    def split_key(self, example: Any) -> tuple[str, ...]:
        """Return what two examples share that must not be on both sides of a split: as a rule all their texts."""
        return tuple(example.texts)

    def scored_parts(self, examples: Sequence[Any]) -> list[ScoredPart]:
        """Return what is scored by itself: each task of a mixture with its own metrics, and else all together."""
        return [ScoredPart("", self, list(examples), list(range(len(examples))))]

    def training_notes(self, encoded: EncodedExamples) -> Iterable[str]:
        """Return lines that a person should read before training on encoded examples."""
        return ()

    def classes(self, example: Any) -> Sequence[str]:
        """Return the labels of an example, to be counted; none for tasks without classes."""
        return ()

    def describe_target(self, target: int, tokenizer: Tokenizer) -> str:
        """Say what a target at a position means, to a person."""
        return str(target)

    def format_prediction(self, example: Any, said: Any) -> str:
        """Write a prediction, or what is right, for a person."""
        return f"{said:.2f}" if isinstance(said, float) else str(said)
