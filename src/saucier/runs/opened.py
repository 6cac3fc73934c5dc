"""A run or a saved model opened for use: weights, tokenizer, and the recipe where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from saucier.checkpoints.adapters import is_adapter_folder
from saucier.errors import InputError
from saucier.files import is_there
from saucier.hub import folder_of
from saucier.loading import base_of, load
from saucier.model import Transformer
from saucier.recipes import Recipe
from saucier.runs.folder import RunFolder, run_of
from saucier.spelling import check_fits
from saucier.text.tokenizer import Tokenizer, load_tokenizer
from saucier.text.tokenizer_files import TOKENIZER


@dataclass(frozen=True, slots=True)
class Opened:
    """A model ready to use."""

    path: Path
    model: Transformer
    tokenizer: Tokenizer
    recipe: Recipe | None

    def needed_recipe(self) -> Recipe:
        """Return the recipe, for those who cannot do without. Raises `InputError` where there is none."""
        if self.recipe is None:
            raise InputError("has no recipe.yaml", where=str(self.path),
                             remedy="give a run folder that `saucier cook` made")
        return self.recipe


def find_run(path: Path) -> RunFolder:
    """Return a run folder. Raises `InputError` for anything else."""
    folder = RunFolder(path)
    if not folder.is_run:
        what = "no such folder" if not is_there(path) else "is not a run folder (it has no recipe.yaml)"
        raise InputError(what, where=str(path), remedy="give one that `saucier cook` made")
    return folder


def open_model(path: Path, *, dtype: str = "auto", device: str = "auto", base: str | None = None) -> Opened:
    """Open a run folder, one of its checkpoints, or a folder with a model and its tokenizer, to ask it.

    `dtype` "auto" is the format that the device multiplies fastest. `base`: of an adapter, instead of the one that it
    names. Raises `InputError` for what is no such folder.
    """
    model = load(path, dtype="fastest" if dtype == "auto" else dtype, device=device, base=base)
    folder = RunFolder(run_of(path))
    tokenizer = tokenizer_of(folder.path, base)
    check_fits(model, tokenizer, str(path))
    return Opened(path, model, tokenizer, folder.recipe() if folder.is_run else None)


def tokenizer_of(path: str | Path, base: str | None = None) -> Tokenizer:
    """Load the tokenizer of a folder; where an adapter comes without one, that of its base."""
    folder = folder_of(path)
    if not is_adapter_folder(folder) or any((folder / name).is_file() for name in TOKENIZER):
        return load_tokenizer(folder)
    return load_tokenizer(base or base_of(folder))
