"""Repeating a run from its folder, and saying whether the result is equal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from saucier.errors import InputError
from saucier.files import first_free
from saucier.plain import first_difference
from saucier.recipes import Recipe
from saucier.runs.cook import cook
from saucier.runs.folder import RunFolder
from saucier.runs.job import Wishes
from saucier.runs.opened import find_run
from saucier.runs.passport import Passport, read_passport


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run and its repetition."""

    first: Passport
    second: Passport

    @property
    def equal(self) -> bool:
        """Whether both ended with the same weights, bit by bit, and wrote the same samples."""
        return self.first.outcome is not None and self.first.outcome == self.second.outcome

    def reasons(self) -> Iterator[str]:
        """Yield what was not the same from the start, and may be why the results differ."""
        for name in ("data", "code", "environment", "seeds"):
            found = first_difference(dumped(self.first, name), dumped(self.second, name))
            if found is not None:
                key, old, new = found
                yield f"{name}: {key} was {old}, and is {new}"

    def lines(self) -> Iterator[str]:
        """Yield the outcome for a person."""
        one, two = self.first.outcome, self.second.outcome
        if one is None or two is None:
            return
        yield f"weights  {one.weights[:12]} and {two.weights[:12]}: {same(one.weights == two.weights)}"
        yield f"loss     {one.loss:.6f} and {two.loss:.6f}: {same(one.loss == two.loss)}"
        yield f"samples  {one.samples[:12]} and {two.samples[:12]}: {same(one.samples == two.samples)}"


def dumped(passport: Passport, name: str) -> object:
    """Return one field of a passport as plain values."""
    return passport.model_dump(mode="json")[name]


def same(equal: bool) -> str:
    """Say it."""
    return "equal" if equal else "different"


def rerun(path: Path, out: Path | None = None, *, calibrate: bool = False, quiet: bool = False) -> Comparison:
    """Cook a finished run again, into `RUN-again` by default, and compare; `quiet`: without saying how it goes.

    Raises `InputError` for a run that is not finished.
    """
    folder = find_run(path)
    first, recipe = read_passport(path), folder.recipe()
    if first.outcome is None:
        raise InputError("this run is not finished", where=str(path),
                         remedy="finish it first: `saucier cook` on its folder")
    target = out or free_folder(path.resolve())
    start = Path(first.start) if first.start else None
    cook(settled(recipe, first), target, Wishes(calibrate=calibrate, quiet=quiet, start=start))
    return Comparison(first, read_passport(target))


def free_folder(path: Path) -> Path:
    """Return `RUN-again`, or the first of `RUN-again-2`, ... that holds no finished run."""
    return first_free(path.with_name(f"{path.name}-again"), lambda found: RunFolder(found).is_finished)


def settled(recipe: Recipe, first: Passport) -> Recipe:
    """Choose what the first run chose by itself: the number format, and as many threads, which decide the last bits."""
    torch.set_num_threads(int(first.environment.get("threads", torch.get_num_threads())))
    training = recipe.training.model_copy(update={"dtype": first.environment.get("dtype", recipe.training.dtype)})
    return recipe.model_copy(update={"training": training})
