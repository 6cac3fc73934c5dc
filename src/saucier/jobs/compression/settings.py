"""A compression as data: the steps, the bound, what is measured; from a ready chain, a file, or words. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from saucier.adaptation.pruning.methods import Pruning
from saucier.adaptation.quantization.schemes import Quantization, QuantizationAware
from saucier.arguments import COMMAND_LINE, split_overrides
from saucier.checkpoints.hub import TUNED, locate_model
from saucier.config.base import Config
from saucier.errors import InputError, suggest_name
from saucier.files import is_file, is_folder
from saucier.jobs.finetuning.labelled_files import LabelledFiles
from saucier.jobs.finetuning.settings import FineTraining, fill_optimizer, read_finetuning
from saucier.objectives.config.distillation import Distillation
from saucier.objectives.config.pruning import TRAINED, TrainedPruning
from saucier.recipes.catalogue import file_text
from saucier.recipes.source import Source, apply_overrides, read_yaml
from saucier.recipes.validation import validate_config
from saucier.result import Result
from saucier.table import Table
from saucier.text.reading.sources import find_sources, make_absolute
from saucier.training.hyperparameters import Positive

CHAINS = Path(__file__).with_name("chains")
"""The ready chains."""
SEARCH = "search"
"""The one that is a grid."""
COMPRESSION_FILE = "compression.yaml"
"""The settings of a compression, by which its folder is known."""


KeptLayers = Positive | Annotated[float, Field(gt=0, lt=1)] | tuple[Annotated[int, Field(ge=0)], ...]


class Distil(Config):
    """A smaller model learns the task from the rows and from the model that the chain began with."""

    kind: Literal["distil"] = "distil"
    layers: KeptLayers | None = None
    """The student begins with so many of the model's layers, or with this share of them, evenly spaced and the last
    among them; or with those of these numbers, from 0. Source: Sanh et al. 2019, §2, arXiv:1910.01108."""
    decoder_layers: KeptLayers | None = None
    """The same of the decoder of a model with two stacks; None: all."""
    model: str | None = None
    """The student, where it is another model: a folder, a run, a hub id or a recipe."""
    distillation: Distillation | None = Distillation()
    """What it learns from the model that the chain began with, or from another `teacher`. None: the labels alone."""
    training: FineTraining = FineTraining()
    """How it learns."""

    @model_validator(mode="after")
    def check_student(self) -> Self:
        """Raise `ValueError` for two students, or none."""
        if (self.model is None) == (self.layers is None and self.decoder_layers is None):
            raise ValueError("the student is `layers` of the model, or another `model`: give one of them")
        return self


class TaskVocabulary(Config):
    """Leave out all tokens that the training rows do not use, but for special ones and single characters."""

    kind: Literal["task_vocabulary"] = "task_vocabulary"


class Prune(Config):
    """Parts that the model can do without go."""

    kind: Literal["prune"] = "prune"
    by: Annotated[Pruning | TrainedPruning | TaskVocabulary, Field(discriminator="kind")]
    """What goes: at once, by scores that are taken on training rows by the loss of the task; or while the model learns
    (`gates`, `movement`, `gradual_magnitude`, `kept_zeros`), which needs `training`."""
    rows: Positive = 256
    """Training rows, drawn, for scores that need any."""
    training: FineTraining | None = None
    """How what is left learns again, zeros of `magnitude` staying zero; None: not at all."""
    distillation: Distillation | None = Distillation()
    """What it learns then from the model that the chain began with. None: the labels alone."""

    @model_validator(mode="after")
    def check_training(self) -> Self:
        """Raise `ValueError` for what is learned, without a training."""
        if isinstance(self.by, TRAINED) and self.training is None:
            raise ValueError(f"{self.by.kind} is learned: add `training: {{epochs: 3}}`")
        return self


class Quantize(Config):
    """The model's matrices hold numbers of few bits. What comes after it cannot change the model any more."""

    kind: Literal["quantize"] = "quantize"
    by: Annotated[Quantization | QuantizationAware, Field(discriminator="kind")] = Quantization()
    """Which numbers, where, and how they are found; of kind `quantization_aware`: the model learns with its numbers
    rounded, which needs `training`. What says no kind is a `quantization`."""
    rows: Positive = 128
    """Calibration rows, for what needs any: training rows, drawn, as the task makes them; of a text so many at most."""
    text: tuple[str, ...] = ()
    """Files of calibration text in the place of training rows."""
    length: Positive = 128
    """Tokens of a row of that text."""
    training: FineTraining | None = None
    """How the model learns with its numbers rounded; None: it does not."""
    distillation: Distillation | None = Distillation()
    """What it learns then from the model that the chain began with. None: the labels alone."""

    @property
    def scheme(self) -> Quantization:
        """Which numbers are found without learning."""
        assert isinstance(self.by, Quantization), "quantization_aware is learned"
        return self.by

    @model_validator(mode="before")
    @classmethod
    def fill_kind(cls, values: Any) -> Any:
        """Call numbers that say no kind a `quantization`."""
        by = values.get("by") if isinstance(values, dict) else None
        return {**values, "by": {"kind": "quantization", **by}} if isinstance(by, dict) else values

    @model_validator(mode="after")
    def check_training(self) -> Self:
        """Raise `ValueError` for numbers that are to be learned without a training, and the other way round."""
        if (self.training is None) == isinstance(self.by, QuantizationAware):
            raise ValueError("kind: quantization_aware is learned: add `training: {epochs: 3}`" if self.training is None
                             else "numbers that are rounded do not learn: use by: {kind: quantization_aware}")
        return self


CompressionStep = Annotated[Distil | Prune | Quantize, Field(discriminator="kind")]


class Alternative(Config):
    """One of several ways to go on; what it is called is a part of the names of its models."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """In a word."""
    step: CompressionStep | None = None
    """What is done; None: nothing, the next stage begins where this one did."""


class Measuring(Config):
    """What is measured of each model beside its answers."""

    batches: tuple[Positive, ...] = (1, 8, 32)
    """Rows in a pass, for each of which the time is taken."""
    rows: Positive = 32
    """Held-out rows that the time is taken on, at their own lengths."""
    rounds: int = Field(default=9, ge=3)
    """Times that all of them are answered, by the model and by the one that the chain began with in turn."""
    seconds: float = Field(default=20.0, gt=0)
    """After so many, for each number of rows in a pass, no further round is begun; three are made in any case."""
    memory: bool = True
    """Whether the peak memory is measured, each time in a process of its own."""
    device: str | None = None
    """Where the time is taken; None: where the models learn and answer. `cpu` for models that are trained on a GPU and
    used without one."""


class Compression(Config):
    """One compression: the schema of `compression.yaml`. A file of a chain leaves out the model and the data."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """What the chain is called."""
    about: str = ""
    """What it is for, in a sentence or two."""
    keep: float = Field(default=0.97, gt=0, le=1)
    """The share of the first score that a model must keep; the chain stops at a step that keeps less."""
    steps: tuple[CompressionStep, ...] = ()
    """What is done, one after the other."""
    grid: tuple[Annotated[tuple[Alternative, ...], Field(min_length=1)], ...] = ()
    """A search in the place of steps: each stage goes on from every model of the stage before in several ways. Below a
    model that keeps too little nothing is tried."""
    budget: float | None = Field(default=None, gt=0)
    """Seconds after which no further model is begun; None: all are made."""
    layout: str = "auto"
    """In which layout the models are written: `auto`, `published` (refused where it cannot hold one), or `own`."""
    measure: Measuring = Measuring()
    """What is measured beside the scores."""
    model: str
    """The model to begin with: the folder of a fine-tuning, or a model that was published for a task."""
    data: LabelledFiles
    """Labelled rows: steps that train learn from `train`, and every step is measured on `held_out`."""
    seed: int = Field(default=0, ge=0)
    """Draws the rows that are held out, where no file is."""

    @model_validator(mode="after")
    def check_plan(self) -> Self:
        """Raise `ValueError` for steps and a grid, for neither, and for names that would be those of two models."""
        if bool(self.steps) == bool(self.grid):
            raise ValueError("a chain has `steps`, and a search has a `grid`: give one of them")
        names = [one.name for stage in self.grid for one in stage if one.step is not None]
        if len(set(names)) < len(names):
            raise ValueError("two alternatives of the grid have one name")
        if self.grid and not names:
            raise ValueError("no alternative of the grid has a `step`")
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as they are in the file."""
        return self.model_dump(mode="json")


@dataclass(frozen=True, slots=True)
class Node:
    """A model that is to be made: of which other one, and how."""

    name: str
    """Its folder under `steps`."""
    step: CompressionStep
    """What makes it."""
    where: str
    """The step's place in the settings."""
    children: tuple[Node, ...] = ()
    """What is made of it."""

    def walk(self) -> Iterator[Node]:
        """Yield this one and all that are made of it, each before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


def plan_models(settings: Compression) -> tuple[Node, ...]:
    """Return what is made of the model that a compression begins with: of a chain one model after the other."""
    nodes: tuple[Node, ...] = ()
    for number, step in reversed([*enumerate(settings.steps)]):
        nodes = (Node(f"{number + 1}-{step.kind}", step, f"steps.{number} ({step.kind})", nodes),)
    return nodes or grow_grid(settings.grid, "", 0)


def grow_grid(stages: Sequence[Sequence[Alternative]], before: str, number: int) -> tuple[Node, ...]:
    """Return the models that stages make of one model, called `before`; `number`: of the first stage."""
    found: list[Node] = []
    for place, one in enumerate(stages[0] if stages else ()):
        name = f"{before}+{one.name}" if before else one.name
        if one.step is None:
            found += grow_grid(stages[1:], before, number + 1)
        else:
            where = f"grid.{number}.{place} ({name})"
            found.append(Node(name, one.step, where, grow_grid(stages[1:], name, number + 1)))
    return tuple(found)


DESCRIPTIVE = {"name", "about", "budget"}
"""What says nothing of the outcome."""


def deciding_settings(settings: Compression, whole: bool = False) -> dict[str, Any]:
    """Return what decides the outcome of a compression."""
    return settings.model_dump(mode="json", exclude=DESCRIPTIVE)


def read_compression(path: Path) -> Compression:
    """Read the settings of a compression. Raises `InputError` with file and line."""
    return validate_config(read_yaml(file_text(path), str(path)), Compression)


def chain_names() -> list[str]:
    """Return the names of the ready chains."""
    return sorted(path.stem for path in CHAINS.glob("*.yaml"))


def read_chain_words(what: str, words: Sequence[str], model: str | None,
                     files: Mapping[str, Sequence[str]]) -> tuple[Compression, Path | None, str]:
    """Return the compression that a person means, its folder where they gave one, and where rows are from if not given.

    `what` is a ready chain, a file, or the folder of a compression; `files`: by the names of the fields of
    `LabelledFiles`. Raises `InputError`.
    """
    overrides, train = split_overrides(words, files.get("train", ()), wrong="no setting",
                                       remedy="write key.sub=value, or --data FILE for labelled rows")
    given = {key: [make_absolute(name) for name in names] for key, names in {**files, "train": train}.items() if names}
    source, folder = find_chain(what)
    values, said = source.values, ""
    if model is not None:
        values["model"] = locate_model(model)
        source.lines["model",] = COMMAND_LINE
    if not isinstance(values.get("model"), str):
        raise InputError("--model is missing", where=COMMAND_LINE, remedy="add --model FOLDER")
    if given or "data" not in values:
        values["data"], values["seed"], said = choose_data(values["model"], given, values)
    if folder is None:
        values["name"] = name_run(str(values.get("name", "chain")), Path(values["model"]))
    for step in list_steps(values):
        if isinstance(step.get("training"), dict):
            fill_optimizer(step, {"model": values["model"]})
    apply_overrides(source, overrides, Compression)
    return validate_config(source, Compression), folder, said


def bound_words(bound: str | None) -> list[str]:
    """Return a bound as words that change a chain. Raises `InputError` for any but `keep=SHARE`."""
    if bound is None:
        return []
    name, mark, _ = bound.partition("=")
    if name != "keep" or not mark:
        raise InputError(f"there is no bound {bound!r}", where="--bound", remedy="write keep=SHARE, such as keep=0.97")
    return [bound]


def list_steps(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps among plain values that nobody has checked yet."""
    steps, grid = (found if isinstance(found := values.get(key), list) else [] for key in ("steps", "grid"))
    inside = [one.get("step") for stage in grid if isinstance(stage, list) for one in stage if isinstance(one, dict)]
    return [one for one in (*steps, *inside) if isinstance(one, dict)]


def find_chain(what: str) -> tuple[Source, Path | None]:
    """Return the plain values of a chain, and its folder where that was given. Raises `InputError` for no chain."""
    place = Path(what)
    if what in chain_names():
        return read_yaml(file_text(CHAINS / f"{what}.yaml"), f"{what}.yaml"), None
    if is_file(place / COMPRESSION_FILE):
        return read_yaml(file_text(place / COMPRESSION_FILE), str(place / COMPRESSION_FILE)), place
    if place.suffix in (".yaml", ".yml") and not is_folder(place):
        return read_yaml(file_text(place), what), place.parent if place.name == COMPRESSION_FILE else None
    close = suggest_name(what, chain_names())
    raise InputError(f"no chain has the name {what!r}", where="chain",
                     remedy=f"{close}; a file of yours ends in .yaml")


def choose_data(model: str, given: Mapping[str, Sequence[str]],
                values: Mapping[str, Any]) -> tuple[dict[str, Any], int, str]:
    """Return the files, the seed that holds rows out, and a line that says which files a fine-tuning gave.

    Raises `InputError` where no rows are known, and where those of a fine-tuning are gone.
    """
    seed, said, known = int(values.get("seed") or 0), "", dict(values.get("data") or {})
    if "train" not in given and (tuned := find_tuned(Path(model))) is not None:
        settings = read_finetuning(tuned)
        known, seed = settings.data.model_dump(mode="json"), settings.training.seed
        said = f"rows as in {tuned}: {', '.join(Path(name).name for name in settings.data.train)}"
        try:
            find_sources([*settings.data.train, *settings.data.held_out, *settings.data.test],
                         settings.data.read_options)
        except InputError as error:
            raise InputError(f"its rows are gone: {error.where}", where=str(tuned),
                             remedy="give --data and --held-out") from error
    if not ("train" in given or known):
        raise InputError("--data is missing, and the model is no fine-tuning whose rows are known", where=COMMAND_LINE,
                         remedy="add --data train.tsv --held-out dev.tsv")
    return {**known, **{key: list(names) for key, names in given.items()}}, seed, said


def find_tuned(model: Path) -> Path | None:
    """Return the settings of the fine-tuning that made a model; None where there are none."""
    return next((place for folder in (model, model.parent) if is_file(place := folder / TUNED)
                 and (folder is model or model.name == "model")), None)


def name_run(chain: str, model: Path) -> str:
    """Return what the compression of a model is called."""
    called = model.parent.name if model.name == "model" else model.name
    return re.sub(r"[^a-z0-9._-]+", "-", f"{chain}-{called}".lower()).strip("-._")


class ReadyChain(Config, Result):
    """What a ready chain is, for a list."""

    name: str
    """Its name."""
    about: str
    """What it is for."""
    steps: tuple[str, ...]
    """Their kinds."""
    keep: float
    """Its bound."""


class ChainList(Config, Result):
    """The ready chains."""

    chains: tuple[ReadyChain, ...]
    """In the order of their names."""

    def view(self) -> Table:
        """Return what `saucier compress` without a chain prints."""
        rows = [(one.name, " → ".join(one.steps), f"{one.keep:.0%}", one.about) for one in self.chains]
        return Table(("chain", "steps", "keeps", "what for"), rows, numbers=(2,), folded=(3,), colours={0: "cyan"},
                     caption="saucier compress CHAIN --model MODEL --data train.tsv --held-out dev.tsv")


def list_chains() -> ChainList:
    """Read the ready chains."""
    found = [read_yaml(file_text(CHAINS / f"{name}.yaml"), f"{name}.yaml").values for name in chain_names()]
    return ChainList(chains=tuple(ReadyChain(
        name=one["name"], about=" ".join(one["about"].split()), keep=one["keep"],
        steps=tuple(step["kind"] for step in one.get("steps", ())) or ("a grid of them",)) for one in found))
