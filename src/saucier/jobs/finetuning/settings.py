"""A fine-tuning as data: which model, which task, which files, how it is trained; from a file or a command line. No
torch.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from saucier.adaptation.tuning import RATES, Tuning
from saucier.arguments import format_overrides, split_overrides
from saucier.checkpoints.hub import TUNED, is_hub_id, locate_model
from saucier.config.base import Config
from saucier.config.norms import Probability
from saucier.config.pooling import LayerMix
from saucier.config.registry import find_extension, is_outside
from saucier.config.stack import Activations
from saucier.errors import InputError, suggest_name
from saucier.files import is_file, is_folder
from saucier.jobs.finetuning.defaults import choose_rate, choose_split, published_pick
from saucier.jobs.finetuning.labelled_files import LabelledFiles
from saucier.objectives.config.distillation import Distillation
from saucier.objectives.config.pruning import TrainedPruning
from saucier.recipes.catalogue import file_text, names, read_source
from saucier.recipes.recipe import Recipe
from saucier.recipes.source import Source, apply_overrides, read_yaml
from saucier.recipes.validation import validate_config
from saucier.tasks.definitions import (
    Embedding,
    InBatch,
    InverseCloze,
    MetricConfig,
    OpenQuestionAnswering,
    TaskConfig,
    Texts,
    task_kinds,
)
from saucier.tasks.retrieval_definitions import MaskedRetrieval
from saucier.tasks.written.definitions import RetrievalAugmented
from saucier.text.reading.sources import make_absolute
from saucier.training.hyperparameters import (
    Adafactor,
    AdamW,
    Fraction,
    LayerRates,
    Linear,
    Muon,
    OptimizerConfig,
    Positive,
    ReporterConfig,
    Training,
)

LOSS = "loss"
"""The name under which the loss is chosen, where a metric could be."""
LOG_LINES = 40
"""Lines that a run writes about its training, about."""
OPTIMIZER_KEYS = ("model", "recipe", "tuning")
"""Sections that say what learns, and so by which optimizer."""


class Stop(Config):
    """When training stops before its last epoch, and which weights are kept: those of the best epoch by one metric."""

    metric: str = LOSS
    """What held-out rows are measured by after every epoch: a metric of the task, such as macro-f1, or the loss."""
    patience: Positive | None = 2
    """Stop after so many epochs without a better one. None: never; the best weights are kept all the same."""


class Search(Config):
    """A search for learning rate, epochs, batch and, where it is free, pooling, by successive halving on held-out rows.

    Source: Jamieson and Talwalkar 2016, arXiv:1502.07943.
    """

    trials: int = Field(default=12, ge=2, le=1000)
    """Combinations that begin; after each round the better half goes on where it stopped."""


class RangeTest(Config):
    """A run of rising rates on copies of the starting weights, which tells the rate to train at.

    Source: Smith 2017, §3.3, arXiv:1506.01186.
    """

    steps: int = Field(default=100, ge=10)
    """Updates."""
    low: float = Field(default=1e-6, gt=0)
    """The first rate."""
    high: float = Field(default=1e-2, gt=0)
    """The last one, unless the loss grows fourfold before."""


class FineTraining(Config):
    """How the model is trained. The rate rises linearly, then falls to zero. Source: Devlin et al. 2019, §A.3."""

    epochs: float = Field(default=3.0, gt=0)
    """How often each row is seen."""
    batch: Positive = 32
    """Rows in one update."""
    micro_batch: Positive | None = None
    """Rows in one forward pass; None: all. Does not change what is learned."""
    length: Positive | None = None
    """Most tokens in a row; None: as many as the longest row has, and as the model takes, and 512."""
    optimizer: OptimizerConfig = AdamW(learning_rate=5e-5, beta2=0.999, weight_decay=0.01)
    """How gradients become updates."""
    layer_rates: LayerRates | None = None
    """Rates that fall from the head down; None: the same for all."""
    warmup: Fraction = 0.1
    """Share of the steps over which the rate rises."""
    clip: float | None = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient; None: no limit."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the multiplications; auto: bfloat16 where it is faster."""
    layer_drop: Probability | None = None
    """Each layer is left out of an update with this probability; None: as the model's config says. With r layers of N
    to be left 1 - r / N is ideal. Source: Fan et al. 2020, §3.2, arXiv:1909.11556."""
    activations: Activations = Activations(kind="keep")
    """What of a forward pass is kept for the backward pass; does not change what is learned."""
    compile: bool = False
    """Compile the model with torch.compile."""
    reporters: tuple[ReporterConfig, ...] = ()
    """Where the figures go, in addition to the screen and the folder."""
    stop: Stop | None = None
    """Measure after every epoch by a metric, keep the best weights, and stop early. None: by `patience`, or not."""
    patience: Positive | None = None
    """Measure after every epoch, keep the weights with the lowest held-out loss, and stop after so many epochs
    without a better one. None: keep the last weights; the held-out rows then choose nothing."""
    seed: int = Field(default=0, ge=0)
    """Feeds new weights, the order of the rows, the dropout."""

    @property
    def early_stop(self) -> Stop | None:
        """What ends training early, and chooses its weights, whichever way it was said."""
        return self.stop or (Stop(patience=self.patience) if self.patience else None)

    def training(self, per_epoch: int, length: int) -> Training:
        """Return the settings of the loop."""
        steps, stop = max(1, round(self.epochs * per_epoch)), self.early_stop
        return Training(
            steps=steps, batch=self.batch, micro_batch=self.micro_batch, length=length, optimizer=self.optimizer,
            schedule=Linear(warmup=min(steps, max(1, round(self.warmup * steps))) if self.warmup else 0),
            layer_rates=self.layer_rates, clip=self.clip, dtype=self.dtype,
            layer_drop=self.layer_drop, activations=self.activations, compile=self.compile, reporters=self.reporters,
            patience=stop.patience if stop else None, seed=self.seed, keep=1,
            evaluate_every=per_epoch if stop else steps, save_every=per_epoch,
            log_every=max(1, steps // LOG_LINES))


class Finetuning(Config):
    """One fine-tuning: the schema of `finetune.yaml`."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]
    """What the run is called."""
    model: str
    """The model to begin with: a folder, a run, or a hub id; or a recipe, to learn from nothing."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Changes to that recipe: `recipe.model.dropout=0.5`, `recipe.tokenizer.vocab=2000`."""
    task: TaskConfig
    """What is learned."""
    metrics: tuple[MetricConfig, ...] = ()
    """Metrics in addition to the usual ones of the task."""
    data: LabelledFiles
    """From what."""
    training: FineTraining = FineTraining()
    """How."""
    tuning: Tuning | None = None
    """What of the model learns, where not all of it does; the head always learns if it is new."""
    pruning: TrainedPruning | None = None
    """What the model loses while it learns: single weights that are zero, or whole heads and neurons; None: nothing."""
    mix: LayerMix | None = None
    """A trained mix of all layers that the head reads in the place of the last one's vectors (ELMo). None: the last
    layer, or the mix that the model has."""
    distillation: Distillation | None = None
    """A teacher that is learned from beside the labels; None: the labels alone."""
    fresh_head: bool = False
    """Begin with a new head even where the model has one for this task."""
    search: Search | None = None
    """Search for rate, epochs, batch and pooling first; None: train as the settings say."""
    range_test: RangeTest | None = None
    """Find the learning rate first, by a range test; None: take the one of the settings."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as they are in the file."""
        return self.model_dump(mode="json")


def make_finetuning(values: dict[str, Any], overrides: Iterable[str] = ()) -> Finetuning:
    """Return the fine-tuning that plain values and `key.sub=value` words describe. Raises `InputError`."""
    return resolve_overrides(Source("command line", dict(values)), list(overrides))


def resolve_overrides(source: Source, words: list[str]) -> Finetuning:
    """Apply `key.sub=value` words to values, and give what learns its usual optimizer. Raises `InputError`."""
    learner = Source(source.name, copy.deepcopy(source.values))
    apply_overrides(learner, [word for word in words if word.split("=")[0].split(".")[0] in OPTIMIZER_KEYS])
    fill_optimizer(source.values, learner.values)  # so that one key of it can be changed
    apply_overrides(source, words, Finetuning)
    fill_optimizer(source.values, learner.values)  # a word may have set the section again
    found = validate_config(source, Finetuning)
    if found.training.stop and found.training.patience:
        raise InputError("training.patience and training.stop say the same", where=source.where(("training", "stop")),
                         remedy="write training.stop.patience=N")
    if found.training.micro_batch and isinstance(found.task, InverseCloze):
        raise InputError("training.micro_batch: in-batch negatives need the whole batch in one pass",
                         where=source.where(("training", "micro_batch")), remedy="leave it out")
    check_second_encoder(found, source)
    check_refresh(found, source)
    if isinstance(found.task, Embedding) and isinstance(found.task.learns, InBatch) and found.training.micro_batch and (
            found.distillation or found.pruning):
        raise InputError("training.micro_batch: with a teacher or pruning, in-batch negatives need the whole batch in "
                         "one pass", where=source.where(("training", "micro_batch")), remedy="leave it out")
    return found


def check_second_encoder(found: Finetuning, source: Source) -> None:
    """Raise `InputError` for what a training with a second encoder cannot do."""
    if getattr(getattr(found.task, "learns", None), "passage_encoder", None) is None:
        return
    stop = found.training.early_stop
    wrong = {"distillation": found.distillation, "pruning": found.pruning, "tuning": found.tuning,
             "search": found.search, "training.stop.metric": stop is not None and stop.metric != LOSS}
    if name := next((key for key, value in wrong.items() if value), None):
        raise InputError(f"task.learns.passage_encoder: does not go with {name}",
                         where=source.where(("task", "learns")), remedy="leave one of them out")


def check_refresh(found: Finetuning, source: Source) -> None:
    """Raise `InputError` for what tries trainings out, of which none could keep an index that is made again."""
    wrong = {"search": found.search, "range_test": found.range_test}
    if isinstance(found.task, MaskedRetrieval) and (name := next((key for key, value in wrong.items() if value), None)):
        raise InputError(f"task.retrieval.refresh: does not go with {name}", where=source.where(("task", "retrieval")),
                         remedy=f"leave {name} out, and give a rate")


def fill_optimizer(values: dict[str, Any], learner: Mapping[str, Any]) -> None:
    """Fill in an optimizer's usual values; one with kind and rate, or of another kind, stays as it is."""
    training = values.get("training") or {}
    optimizer = (training.get("optimizer") or {}) if isinstance(training, dict) else None
    if not isinstance(optimizer, dict) or ("kind" in optimizer and "learning_rate" in optimizer):
        return
    usual = usual_optimizer(learner).model_dump(mode="json")
    if optimizer.get("kind", usual["kind"]) == usual["kind"]:
        values["training"] = training | {"optimizer": usual | optimizer}


def usual_optimizer(learner: Mapping[str, Any]) -> AdamW | Muon | Adafactor:
    """Return the optimizer of what learns: a recipe has its own, whole; what is added to a model has its rate."""
    name, place = str(learner.get("model")), Path(str(learner.get("model")))
    if not is_folder(place) and (name in names() or (place.suffix in (".yaml", ".yml") and is_file(place))):
        source, changes = read_source(name), learner.get("recipe")
        apply_overrides(source, format_overrides(changes if isinstance(changes, dict) else {}), Recipe)
        return validate_config(source, Recipe).training.optimizer
    tuning = learner.get("tuning")
    kind = tuning.get("kind") if isinstance(tuning, dict) else None
    usual = FineTraining().optimizer
    return usual.model_copy(update={"learning_rate": RATES.get(str(kind)) or choose_rate(place, usual.learning_rate)})


def read_finetuning(path: Path, overrides: Iterable[str] = ()) -> Finetuning:
    """Read a file of this form. Raises `InputError` with file and line."""
    if not is_file(path):
        raise InputError("no such file", where=str(path), remedy="give a folder that `saucier finetune` made")
    return resolve_overrides(read_yaml(file_text(path), str(path)), list(overrides))


def read_finetuning_words(what: str, words: Sequence[str], model: str | None,
                          files: Mapping[str, Sequence[str]]) -> tuple[Finetuning, Path | None]:
    """Return the settings that a person means, and the folder where they gave one.

    `what` is a kind of task, a file of settings, or the folder of a fine-tuning; of the words those that are no
    `key.sub=value` are more training files, as a shell unfolds `--data *.tsv`. `files`: by the names of the fields of
    `LabelledFiles`. Raises `InputError`.
    """
    if is_outside(what):
        find_extension(what)  # so that it is among the known ones
    overrides, train = split_overrides(words, files.get("train", ()), wrong="no setting",
                                       remedy="write key.sub=value, or --data FILE for labelled rows")
    data = {key: [make_absolute(name) for name in names] for key, names in {**files, "train": train}.items() if names}
    place = Path(what)
    if what not in task_kinds() and (is_folder(place) or place.suffix in (".yaml", ".yml")):
        given = [] if model is None else [f"model={locate_model(model)!r}"]
        given += [f"data.{key}={names}" for key, names in data.items()]
        settings = read_finetuning(place / TUNED if is_folder(place) else place, [*given, *overrides])
        return settings if is_folder(place) or place.name == TUNED else fill_new(settings), \
            place if is_folder(place) else None
    if what not in task_kinds():
        raise InputError(f"no task {what!r}", where="command line", remedy=suggest_name(what, task_kinds()))
    for value, option, example in ((model, "--model", "FOLDER"), (train, "--data", "train.tsv")):
        if not value:
            raise InputError(f"{option} is missing", where="command line", remedy=f"add {option} {example}")
    assert model is not None, "looked at above"
    path = Path(train[0]).absolute()
    named = f"{path.parent.name}-{path.name.split('.')[0]}-{Path(model).name}".lower()
    name = re.sub(r"[^a-z0-9._-]+", "-", named).strip("-._") or what
    values: dict[str, Any] = {"name": name, "model": locate_model(model),
                              "task": {"kind": what}, "data": data}
    return fill_new(make_finetuning(values, overrides)), None


def fill_new(settings: Finetuning) -> Finetuning:
    """Fill in what a new fine-tuning takes over from its model and task, where a person says nothing of it.

    What an earlier version began lacks these keys, and keeps their old meaning.
    """
    task, data = settings.task, settings.data
    if isinstance(task, Texts) and "pick" not in task.model_fields_set:
        task = task.model_copy(update={"pick": published_pick(settings.model)})
    if isinstance(task, RetrievalAugmented | MaskedRetrieval | OpenQuestionAnswering):
        task = task.located()
    if "split" not in data.model_fields_set:
        data = data.model_copy(update={"split": choose_split(task, data.held_out)})
    taught = settings.distillation and settings.distillation.located()
    return settings.model_copy(update={"task": task, "data": data, "distillation": taught})


def check_model(settings: Finetuning) -> None:
    """Raise `InputError` for what is neither a model nor a recipe, and for settings that do not suit it."""
    name = settings.model
    if is_folder(name) or is_hub_id(name):
        if settings.recipe:
            raise InputError("a model that is there cannot be changed", where="recipe",
                             remedy="leave it out, or give a recipe with --model")
        return
    if name not in names() and Path(name).suffix not in (".yaml", ".yml"):
        raise InputError("no such folder, and no such recipe", where=name,
                         remedy="give a folder, the id of a repository as owner/name, or a recipe")
    if settings.tuning is not None:
        raise InputError("tuning: a model without learned weights has nothing to keep", where=name,
                         remedy="leave tuning out, or give a folder")
