"""Reading a run folder for its report. Only `recipe.yaml` has to be there; what is missing is None or empty."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saucier.errors import InputError
from saucier.files import parse_json, read_object
from saucier.inspection.plan import Plan, read_plan
from saucier.inspection.report_charts import Curves
from saucier.inspection.results import FILE_NAME, Results, read_results
from saucier.recipes import Recipe, recipe

METRICS, PASSPORT, RECIPE, SAMPLES = "metrics.jsonl", "passport.json", "recipe.yaml", "samples.txt"


@dataclass(frozen=True, slots=True)
class Run:
    """All that a run folder tells."""

    folder: Path
    recipe: Recipe
    recipe_text: str
    metrics: tuple[dict[str, Any], ...] = ()
    results: Results | None = None
    plan: Plan | None = None
    passport: dict[str, Any] | None = None
    samples_text: str = ""

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
               read_results(folder) if (folder / FILE_NAME).is_file() else None, read_plan(folder),
               _read_passport(folder / PASSPORT), _read_text(folder / SAMPLES))


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


def _read_passport(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return read_object(path)
