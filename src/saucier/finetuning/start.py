"""What a fine-tuning begins with: a model that is there, or a recipe, whose weights and tokenizer are made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from saucier import config as c
from saucier.checkpoints.foreign import generation_defaults
from saucier.errors import InputError
from saucier.files import is_folder, read_object
from saucier.finetuning.config import Finetuning
from saucier.finetuning.data import Splits
from saucier.hub import folder_of, is_hub_id
from saucier.loading import load, model_folder_of
from saucier.model import Transformer, build
from saucier.objectives.base import TokenIds
from saucier.recipes import Recipe
from saucier.recipes.catalogue import names, recipe
from saucier.recipes.overrides import as_words
from saucier.runs.writing import special
from saucier.spelling import spell
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.text.train_tokenizer import train_tokenizer


class Start(Protocol):
    """What a fine-tuning begins with."""

    @property
    def place(self) -> Path | None:
        """The folder or hub id of the weights; None: there are none."""

    @property
    def says(self) -> dict[str, Any]:
        """How it writes, under the names of `saucier.generate`."""

    def tokenizer(self, splits: Splits) -> Tokenizer:
        """Return its tokenizer."""

    def body(self, tokenizer: Tokenizer) -> c.Transformer:
        """Return its config, for a tokenizer that may have had tokens added."""

    def model(self, tokenizer: Tokenizer) -> Transformer:
        """Return the model, in float32 on the processor."""


@dataclass(frozen=True, slots=True)
class Learned:
    """A model that is there: a folder, a run, or a hub id."""

    name: str

    @property
    def place(self) -> Path:
        """The folder or hub id."""
        return Path(self.name)

    @property
    def folder(self) -> Path:
        """The folder of its weights."""
        return model_folder_of(folder_of(self.name))

    @property
    def says(self) -> dict[str, Any]:
        """What its generation_config.json says."""
        return generation_defaults(self.folder, read_object(self.folder / "config.json"))

    def tokenizer(self, splits: Splits) -> Tokenizer:
        """Return the one in the folder."""
        return load_tokenizer(self.name)

    def body(self, tokenizer: Tokenizer) -> c.Transformer:
        """Return the config in the folder."""
        from saucier.inspection.subject import subject

        return subject(str(self.folder)).model

    def model(self, tokenizer: Tokenizer) -> Transformer:
        """Load it."""
        return load(self.name, dtype="float32", device="cpu")


@dataclass(frozen=True, slots=True)
class Scratch:
    """A recipe: random weights, and a tokenizer that is trained on the texts of the training rows."""

    recipe: Recipe
    seed: int

    @property
    def place(self) -> None:
        """There is none."""

    @property
    def says(self) -> dict[str, Any]:
        """Nothing yet."""
        return {}

    def tokenizer(self, splits: Splits) -> Tokenizer:
        """Train one on the training rows. Raises `InputError` for a vocabulary that their texts cannot give, or two."""
        if self.recipe.target_tokenizer is not None:
            raise InputError("a fine-tuning trains one tokenizer, and the recipe has two", where="target_tokenizer",
                             remedy="cook the recipe on pairs, and fine-tune the run")
        try:
            return train_tokenizer(self.recipe.tokenizer, list(texts(splits, self.recipe.model)))
        except InputError as error:
            raise InputError(error.what, where=f"recipe.{error.where}", remedy=error.remedy) from error

    def body(self, tokenizer: Tokenizer) -> c.Transformer:
        """Return the recipe's model, as large as the tokenizer asks."""
        return self.recipe.model_for(tokenizer.vocab_size)

    def model(self, tokenizer: Tokenizer) -> Transformer:
        """Build it."""
        model = build(self.body(tokenizer), seed=self.seed)
        spell(model, tokenizer)
        model.generation = dict(special(TokenIds.of(tokenizer.target)))
        return model


def start_of(settings: Finetuning) -> Start:
    """Return what a fine-tuning begins with. Raises `InputError` for what is neither model nor recipe."""
    name = settings.model
    if is_folder(name) or is_hub_id(name):
        if settings.recipe:
            raise InputError("a model that is there cannot be changed", where="recipe",
                             remedy="leave it out, or give a recipe with --model")
        return Learned(name)
    if name not in names() and Path(name).suffix not in (".yaml", ".yml"):
        raise InputError("no such folder, and no such recipe", where=name,
                         remedy="give a folder, the id of a repository as owner/name, or a recipe")
    if settings.tuning is not None:
        raise InputError("tuning: a model without learned weights has nothing to keep", where=name,
                         remedy="leave tuning out, or give a folder")
    return Scratch(recipe(name, [*shorter(settings), *as_words(settings.recipe)]), settings.training.seed)


def shorter(settings: Finetuning) -> Iterator[str]:
    """Yield the word that cuts a recipe's rows to those of the task, so that its model may have as few positions."""
    wanted = settings.training.length
    if wanted is not None and wanted < recipe(settings.model).training.length:
        yield f"training.length={wanted}"


def texts(splits: Splits, body: c.Transformer) -> Iterator[str]:
    """Yield all that a body reads and writes in the training rows."""
    task = splits.task
    for one in splits.train:
        yield from (part for part in (*task.around(one, body), *task.texts(one), *task.to_write(one)) if part)
