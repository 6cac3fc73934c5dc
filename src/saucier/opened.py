"""Run folders and saved models opened for use: weights, tokenizer, and the recipe where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from saucier.checkpoints.hub import resolve_folder
from saucier.config import Transformer as Config
from saucier.config import learned_length
from saucier.errors import InputError, WorkError
from saucier.files import is_file, path_exists
from saucier.generation.plan_feed import limit_threads
from saucier.generation.rules import find_max_positions
from saucier.native.library import load_library
from saucier.native.lowered import LoweredModel, find_chosen, find_lowered
from saucier.native.matrices import is_in_few_bits
from saucier.text.tokenizer.folder import TOKENIZER_FILES
from saucier.text.tokenizer.model_inputs import check_tokenizer_fits
from saucier.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    import torch

    from saucier.devices import AutocastDtype
    from saucier.model import Transformer
    from saucier.native.lowering import Tables
    from saucier.objectives.build import BuiltObjective
    from saucier.recipes import Recipe
    from saucier.tasks.task import Task

PASSPORT_FILE = "passport.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def tokenizer(self) -> Path:
        """The trained tokenizer, as transformers reads it too."""
        return self.path / "tokenizer"

    @property
    def train_store(self) -> Path:
        """The tokens that are learned from."""
        return self.path / "store" / "train"

    @property
    def held_out_store(self) -> Path:
        """The tokens that are measured with."""
        return self.path / "store" / "held_out"

    @property
    def data_file(self) -> Path:
        """What was read, and what became of it."""
        return self.path / "store" / "data.json"

    @property
    def samples(self) -> Path:
        """Texts that the model wrote."""
        return self.path / "samples.txt"

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return is_file(self.path / "recipe.yaml")

    @property
    def is_finished(self) -> bool:
        """Whether the run was evaluated, which is done last."""
        return (self.path / "evaluation.json").is_file()

    def recipe(self) -> Recipe:
        """Read the run's recipe."""
        from saucier.recipes import recipe

        return recipe(self.path / "recipe.yaml")


def run_folder_of(path: Path) -> Path:
    """Return the run folder of a checkpoint, `RUN/checkpoints/step-N`; any other folder stays as it is."""
    place = path.absolute()
    return place.parent.parent if place.parent.name == "checkpoints" else path


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model ready to use, with all that is known of it."""

    path: Path
    model: Transformer
    tokenizer: Tokenizer
    recipe: Recipe | None = None
    """By which it was trained; None: nobody knows."""
    objectives: tuple[BuiltObjective, ...] = ()
    """What it has learned, with the objectives' own modules as they were trained; where it is measured by them."""
    dtype: AutocastDtype = "float32"
    """Number format of the multiplications, where it is measured."""
    task: Task | None = None
    """What it was fine-tuned for."""
    length: int | None = None
    """The most tokens in a row of that task."""

    @property
    def own_recipe(self) -> Recipe:
        """The recipe, for those who cannot do without. Raises `InputError` where there is none."""
        if self.recipe is None:
            raise InputError("has no recipe.yaml", where=str(self.path),
                             remedy="give a run folder that `saucier cook` made")
        return self.recipe

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder reads what is given, and a decoder writes."""
        return self.model.config.encoder is not None and self.model.config.decoder is not None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def trained_length(self, otherwise: int) -> int:
        """Return the length of the rows that the model was trained on, or another one where that is not known."""
        return self.recipe.training.length if self.recipe else otherwise


@dataclass(frozen=True, slots=True)
class OpenLowered:
    """A decoder ready to write by the kernels, and its tokenizer; no torch."""

    path: Path
    model: LoweredModel
    tokenizer: Tokenizer
    recipe: None = None
    is_encoder_decoder: Literal[False] = False

    def trained_length(self, otherwise: int) -> int:
        """Return another length than that of the rows that the model was trained on, which is not known."""
        return otherwise


OpenWriter = OpenModel | OpenLowered
"""What writes."""
Limit = TypeVar("Limit", int, None)


def room(config: Config, most: Limit, *others: int | None, side: Literal["both", "written"] = "both",
         ahead: int = 0) -> int | Limit:
    """Return how many tokens a text may have: the least of what the model's positions hold and of further limits.

    `side`: of an encoder-decoder both texts, or what its decoder writes. `ahead`: positions that are taken already.
    A limit of None is none.
    """
    own = learned_length(config) if side == "both" else find_max_positions(config)
    known = [one for one in (None if own is None else own - ahead, most, *others) if one is not None]
    return min(known) if known else most


def find_run(path: Path) -> RunFolder:
    """Return a run folder. Raises `InputError` for anything else."""
    folder = RunFolder(path)
    if not folder.is_run:
        what = "no such folder" if not path_exists(path) else "is not a run folder (it has no recipe.yaml)"
        raise InputError(what, where=str(path), remedy="give one that `saucier cook` made")
    return folder


def open_model(path: Path, *, dtype: str = "auto", device: str = "auto", base: str | None = None,
               check: Callable[[Transformer], None] | None = None,
               tokenizer: Tokenizer | str | Path | None = None,
               format: str | None = None) -> OpenModel:  # noqa: A002  # as `saucier.load` calls it
    """Open a run folder, one of its checkpoints, or a folder with a model and its tokenizer, for use.

    `dtype` and `format` are as in `saucier.load`. `base`: of an adapter, instead of the one that it
    names. `check` refuses a model that cannot do the job, before its tokenizer is read. `tokenizer`: instead of the
    folder's. Raises `InputError` for what is no such folder.
    """
    from saucier.folders.load import load

    model = load(path, dtype=dtype, device=device, base=base, format=format)
    if check is not None:
        check(model)
    folder = RunFolder(run_folder_of(path))
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_model_tokenizer(folder.path, base) if tokenizer is None else load_tokenizer(tokenizer)
    check_tokenizer_fits(model.config, tokenizer, str(path))
    return OpenModel(path, model, tokenizer, folder.recipe() if folder.is_run else None)


def open_lowered(path: Path, form: str | None) -> OpenLowered | None:
    """Open a model folder for writing in a number format: what was packed before, or a decoder that is plain to read.

    Without a format only what is stored in few bits. None for anything else, which `open_model` opens. Raises
    `InputError` for a folder that is not there.
    """
    folder = resolve_folder(path)
    if run_folder_of(path) != path or RunFolder(path).is_run:  # what a run is has to be read
        return None
    model = (find_chosen(folder, compute_tables, limit_threads()) if form == "auto"
             else find_lowered(folder, form or "float32", compute_tables))
    if form is None and (model is None or not is_in_few_bits(model.weights.arrays)):
        return None
    try:
        load_library()
    except WorkError:  # said where all is read
        return None
    if model is None and form is not None:
        from saucier.folders.arrays import open_published_arrays

        model = open_published_arrays(folder, form, compute_tables)
    if model is None:
        return None
    tokenizer = load_tokenizer(folder)
    check_tokenizer_fits(model.config, tokenizer, str(path))
    return OpenLowered(path, model, tokenizer)


def compute_tables() -> Tables:
    """Return what computes tables of positions."""
    from saucier.generation.native_model import PartTables

    return PartTables()


def load_model_tokenizer(path: str | Path, base: str | None = None) -> Tokenizer:
    """Load the tokenizer of a folder; where an adapter comes without one, that of its base."""
    from saucier.checkpoints.adapter_folder import is_adapter_folder
    from saucier.folders.kinds import identify_adapter

    folder = resolve_folder(path)
    if not is_adapter_folder(folder) or any((folder / name).is_file() for name in TOKENIZER_FILES):
        return load_tokenizer(folder)
    return load_tokenizer(base or identify_adapter(folder).resolve_base())
