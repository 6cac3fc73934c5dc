"""What a finished run has to say: the schema of `evaluation.json`, written by the cook and read by the report.

Frozen records only: no measuring and no drawing here. Every count that is not zero is shown to the reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from saucier.config.base import Config
from saucier.errors import InputError
from saucier.files import read_object, write_text

FILE_NAME = "evaluation.json"


class TextCounts(Config):
    """One side of the data (training or held-out), after cleaning and splitting."""

    documents: int = 0
    """Documents, or pairs for translation."""
    tokens: int = 0
    """Tokens in the store, special tokens included."""
    bytes: int = 0
    """UTF-8 bytes of the text."""


class LanguageCounts(Config):
    """One language of the data, or one direction of its pairs."""

    name: str
    """As the recipe, or the columns of the tables, call it."""
    train: TextCounts = TextCounts()
    """What the model learns from."""
    held_out: TextCounts = TextCounts()
    """What it is measured with."""
    drawn: float
    """The share of the rows (of the pairs) that are of this language or direction."""
    seen: int | None = None
    """Tokens of it that were shown in training, repeats included; None before."""

    def words(self, data: DataCounts) -> str:
        """Say how much of the text it is, and how much of the rows."""
        return f"{self.train.tokens / max(1, data.train.tokens):.1%} of the text, {self.drawn:.1%} of the rows"


class DataCounts(Config):
    """What was read and what became of it."""

    source: str
    """Where the text came from, in words: "Python's documentation", or the file names."""
    train: TextCounts = TextCounts()
    """What the model learns from."""
    held_out: TextCounts = TextCounts()
    """What it is measured with, and never learns from."""
    dropped: dict[str, int] = Field(default_factory=dict)
    """Documents or rows that were left out, by reason: {"duplicate": 412, "empty": 3}."""
    truncated_rows: int = 0
    """Rows that were longer than the model's length and were cut."""
    truncated_tokens: int = 0
    """Tokens that were lost to these cuts."""
    divided_documents: int = 0
    """Documents that were longer than a row of whole documents, and were divided among several."""
    padding: float = 0
    """Share of the places of the rows to learn from that hold no token."""
    languages: tuple[LanguageCounts, ...] = ()
    """Each language, where the data tell languages apart."""
    directions: tuple[LanguageCounts, ...] = ()
    """Each direction of pairs, where their languages are told; tokens are those of source and target together."""


class HeldOut(Config):
    """The model's loss on held-out text: natural logarithms, mean over real target tokens."""

    loss: float
    """Nats per target token."""
    tokens: int
    """Real target tokens that were scored."""
    bytes: int
    """UTF-8 bytes of the text that these tokens spell."""
    bits_per_byte: float | None = None
    """Sum of the losses / ln 2 / bytes; None where the objective is no likelihood of the text (masked, translation)."""
    accuracy: float | None = None
    """Share of target tokens that were the model's first choice, 0..1."""
    by_frequency: float | None = None
    """Nats per target token where each is said by its share of the training targets alone; None where not measured."""


class Score(Config):
    """One further number of the evaluation, such as BLEU."""

    name: str
    """What a reader knows it by."""
    value: float
    """The score itself, in its usual unit."""
    better: Literal["higher", "lower"] = "higher"
    """Which way is better."""
    note: str = ""
    """How it was computed: the sacrebleu signature, the test set."""


class Baseline(Config):
    """What a simpler method needs for the same held-out text."""

    name: str
    """What a reader knows the method by: "unigram", "5-gram", "xz -9"."""
    bits_per_byte: float
    """Bits for one UTF-8 byte of the held-out text."""
    about: str = ""
    """One phrase that says what it is and what it was given."""


class Sample(Config):
    """A text that the finished model wrote."""

    prompt: str
    """What it was given: the beginning of a text, or the source of a translation."""
    text: str
    """What it wrote."""
    source: str = ""
    """Where the prompt comes from, in words."""
    reference: str = ""
    """What a person wrote instead, where there is such a thing (translation)."""


class Cost(Config):
    """What the run took, as measured."""

    seconds: float
    """Wall-clock seconds of the whole job."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase, in order: {"read": 1.2, "tokenizer": 3.4, "train": 170.0, ...}."""
    training_flops: float | None = None
    """Floating-point operations of training (forward and backward)."""
    peak_memory: int | None = None
    """Largest resident memory of the process, bytes."""
    tokens_per_second: float | None = None
    """Training tokens per second."""

    @property
    def training_seconds(self) -> float:
        """Seconds of the phase `train`; of the whole job where the phases are not known."""
        return self.phases.get("train", self.seconds)


class Results(Config):
    """The whole of `evaluation.json`."""

    step: int
    """The optimizer step whose weights were evaluated."""
    steps: int
    """Optimizer steps that the run made."""
    checkpoint: str = ""
    """The checkpoint's folder, relative to the run folder."""
    vocab: int | None = None
    """Tokens in the vocabulary of the run's tokenizer; None: as the recipe says."""
    held_out: HeldOut
    """The model on held-out text."""
    data: DataCounts
    """What was read."""
    cost: Cost
    """What it took."""
    baselines: tuple[Baseline, ...] = ()
    """Simpler methods on the same held-out text."""
    scores: tuple[Score, ...] = ()
    """Further scores; the first one is the run's headline where there are no bits per byte."""
    samples: tuple[Sample, ...] = ()
    """The same as in `samples.txt`, which is for people."""

    def write(self, folder: Path) -> None:
        """Write `evaluation.json` into a run folder, atomically."""
        write_text(folder / FILE_NAME, self.model_dump_json(indent=2) + "\n")


def read_results(folder: Path) -> Results:
    """Read `evaluation.json` of a run folder.

    Errors: `InputError` that names the file and the first wrong field.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        raise InputError("no such file", where=str(path), remedy="the run has not been evaluated yet")
    try:
        return Results.model_validate(read_object(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{place}: {first['msg']}", where=str(path), remedy="evaluate the run again") from None
