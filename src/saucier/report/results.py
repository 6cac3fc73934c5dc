"""What a finished run has to say: the schema of `evaluation.json`, and a run folder read for its report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from saucier.config.base import Config
from saucier.cost.planning import Plan, read_plan
from saucier.errors import InputError
from saucier.files import parse_json, read_object, write_text
from saucier.plain import format_duration
from saucier.recipes import Recipe, recipe
from saucier.report.page import REPORT_FILE, Curves, embed_page
from saucier.result import Result, render_html
from saucier.table import Table
from saucier.tasks.language_baselines import Baseline

EVALUATION_FILE = "evaluation.json"


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


class RunCost(Config):
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
    cost: RunCost
    """What it took."""
    baselines: tuple[Baseline, ...] = ()
    """Simpler methods on the same held-out text."""
    scores: tuple[Score, ...] = ()
    """Further scores; the first one is the run's headline where there are no bits per byte."""
    samples: tuple[Sample, ...] = ()
    """The same as in `samples.txt`, which is for people."""

    def write(self, folder: Path) -> None:
        """Write `evaluation.json` into a run folder, atomically."""
        write_text(folder / EVALUATION_FILE, self.model_dump_json(indent=2) + "\n")


def read_results(folder: Path) -> Results:
    """Read `evaluation.json` of a run folder.

    Errors: `InputError` that names the file and the first wrong field.
    """
    path = folder / EVALUATION_FILE
    if not path.is_file():
        raise InputError("no such file", where=str(path), remedy="the run has not been evaluated yet")
    try:
        return Results.model_validate(read_object(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{place}: {first['msg']}", where=str(path), remedy="evaluate the run again") from None


METRICS, PASSPORT, RECIPE, SAMPLES = "metrics.jsonl", "passport.json", "recipe.yaml", "samples.txt"


@dataclass(frozen=True, slots=True)
class Run(Result):
    """All that a run folder holds."""

    folder: Path
    recipe: Recipe
    recipe_text: str
    metrics: tuple[dict[str, Any], ...] = ()
    results: Results | None = None
    plan: Plan | None = None
    passport: dict[str, Any] | None = None
    samples_text: str = ""

    def view(self) -> Table:
        """Return the run's figures."""
        return Table(("", ""), [(name, value) for name, value in self.figures().items() if value is not None],
                     numbers=(1,), colours={0: "cyan"}, title=f"{self.recipe.name}, {self.folder}")

    def figures(self) -> dict[str, str | None]:
        """Return what was measured, in words; nothing where the run was not evaluated yet."""
        if self.results is None:
            return {"not evaluated yet": ""}
        held_out, cost = self.results.held_out, self.results.cost
        return {"held-out loss": f"{held_out.loss:.4f} nats a token",
                "bits per byte": None if held_out.bits_per_byte is None else f"{held_out.bits_per_byte:.3f}",
                **{f"bits per byte, {one.name}": f"{one.bits_per_byte:.3f}" for one in self.results.baselines},
                **{one.name: f"{one.value:.1f}" for one in self.results.scores},
                "steps": f"{self.results.steps:,}", "training": format_duration(cost.training_seconds)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: the folder, the resolved recipe, and the results where the run was evaluated."""
        return {"folder": str(self.folder), "recipe": self.recipe.as_dict(),
                "results": None if self.results is None else self.results.model_dump(mode="json")}

    def _repr_html_(self) -> str:
        """Return the report for a notebook; the figures alone where there is none yet."""
        page = self.folder / REPORT_FILE
        return embed_page(page) if page.is_file() else render_html(self.view())

    @property
    def vocab(self) -> int:
        """The size of the vocabulary: of the run's tokenizer, else what the recipe says."""
        return self.results.vocab if self.results and self.results.vocab else self.recipe.vocab

    @property
    def curves(self) -> Curves:
        """The (step, value) pairs to draw."""
        held_out = [(line["step"], line["evaluation"]["loss"]) for line in self.metrics if "evaluation" in line]
        train = [line for line in self.metrics if "loss" in line]
        return Curves([(line["step"], line["loss"]) for line in train], held_out,
                      [(line["step"], line["rate"]) for line in train if "rate" in line])


def read_run(folder: Path) -> Run:
    """Read what there is.

    Errors: `InputError` where the folder holds no run, or where a file of it is damaged.
    """
    path = folder / RECIPE
    if not path.is_file():
        raise InputError("is not a run folder (it has no recipe.yaml)", where=str(folder),
                         remedy="give the --out of a cook")
    return Run(folder, recipe(path), path.read_text(encoding="utf-8"), read_metrics(folder / METRICS),
               read_results(folder) if (folder / EVALUATION_FILE).is_file() else None, read_plan(folder),
               read_object(folder / PASSPORT) if (folder / PASSPORT).is_file() else None,
               _read_text(folder / SAMPLES))


def read_metrics(path: Path) -> tuple[dict[str, Any], ...]:
    """Read the lines of a metrics file; a last line that a crash cut short is left out.

    Errors: `InputError` with file and line for any other damage.
    """
    lines = _read_text(path).splitlines()
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            metric = parse_json(line)
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise InputError(f"not JSON: {error.msg}", where=f"{path}:{number}", remedy="remove the line") from None
            continue
        if not is_metric(metric):
            raise InputError("not a metric", where=f"{path}:{number}", remedy="remove the line")
        found.append(metric)
    return tuple(found)


def is_metric(line: Any) -> bool:
    """Say whether a line is one that the training writes: a step, and its figures or an evaluation."""
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return False
    held_out = line.get("evaluation", {"loss": 0.0})
    numbers = [line.get("loss", 0.0), line.get("rate", 0.0), held_out.get("loss") if isinstance(held_out, dict) else ""]
    return all(isinstance(one, int | float) for one in numbers)


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
