"""A run that was stopped in the middle: its state, optimizer, weights, passport, recipe, store and metrics damaged.

Each case resumes the run in this process, loads it, and reads it for its report.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random

import yaml

import saucier
from saucier.checkpoints.steps import latest_checkpoint
from saucier.errors import WorkError
from saucier.jobs.pretraining.cook import JobOptions, cook
from saucier.jobs.run.passport import read_passport
from saucier.lens.subject import find_subject
from saucier.recipes import recipe
from saucier.report.run_page import write_report
from tools.fuzzing.cases import Case, size_of
from tools.fuzzing.damage import copied, damaged_file, damaged_folder

TEXT = "".join(f"the {who} {does} {what}.\n" for who in ("cook", "guest", "cat") for does in ("stirs", "tastes",
                                                                                              "spills")
               for what in ("the sauce", "some soup", "milk")) * 3
SMALL = ("training.length=16", "training.steps=4", "training.batch=4", "training.save_every=1", "training.keep=3",
         "training.evaluate_every=2", "training.events=off", "evaluation.baselines=[]", "sampling.prompts=[]")
RECIPES: dict[str, tuple[str, ...]] = {
    "gpt-nano": ("tokenizer.vocab=280", "model.dim=16", "model.heads=2", "model.layers=1", "model.length=16"),
    "electra-nano": ("tokenizer.vocab=60", "model.dim=16", "model.heads=2", "model.layers=1", "model.length=16"),
    "transformer-xl-nano": ("tokenizer.vocab=280", "model.dim=16", "model.heads=2", "model.layers=1",
                            "model.cutoffs=[100]"),
    "bert-nano": ("tokenizer.vocab=60", "model.dim=16", "model.heads=2", "model.layers=1", "model.length=16",
                  "objective.next_sentence=null", "training.optimizer.kind=adafactor"),
}
LIKELY = ("state.json", "optimizer.safetensors", "carried.safetensors", "passport.json", "recipe.yaml", "metrics.jsonl",
          "best.json", "plan.json", "data.json")
yaml.compose = cache(yaml.compose)  # type: ignore[assignment]  # read four times a case: a third of its time
QUIET = JobOptions(calibrate=False, evaluate=False, quiet=True)


def whole(name: str, stock: Path) -> Path:
    """Return a run that was stopped after its third step of four, made when it is first asked for."""
    target = stock / name
    if not target.is_dir():
        text = stock / "text.txt"
        text.write_text(TEXT)
        made = recipe(name, [*SMALL, *RECIPES[name], f"data.files=[{text}]"])
        with contextlib.redirect_stderr(io.StringIO()):
            cook(made, stock / "begun", QUIET)
        shutil.rmtree(stock / "begun" / "checkpoints" / "step-4")
        (stock / "begun").rename(target)
    return target


def draw(drawn: Random, stock: Path, place: Path) -> Case:
    """Damage a run, and go on with it."""
    name = drawn.choice(list(RECIPES))
    run = copied(whole(name, stock), place / "run")
    size = size_of(run)
    match drawn.randrange(5):
        case 0 | 1:
            checkpoint = drawn.choice(sorted((run / "checkpoints").glob("step-*")))
            files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
            path = drawn.choice([*files, checkpoint / "state.json", checkpoint / "state.json"])
            words = f"{path.relative_to(run)}: {damaged_file(path, drawn)}"
        case _:
            words = damaged_folder(run, drawn, LIKELY)
    if drawn.random() < 0.5:
        words += f"; {resealed(run)}"
    steps = STEPS if drawn.random() < 0.06 else STEPS[1:]
    return Case(f"{name}: {words}", tuple(partial(step, run) for step in steps), size, many_lines=True)


def resealed(run: Path) -> str:
    """Leave the newest checkpoint as the only one, so that there is none to fall back to."""
    for folder in sorted((run / "checkpoints").glob("step-*"))[:-1]:
        shutil.rmtree(folder)
    return "the older checkpoint removed"


def resumed(run: Path) -> None:
    """Go on with the run. Numbers that were damaged inside a tensor may be as good as any, or make a loss infinite."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            cook(recipe(run / "recipe.yaml"), run, QUIET)
    except WorkError as error:
        if "the loss is" not in str(error):
            raise


def loaded(run: Path) -> None:
    """Load the run's best checkpoint, and its tokenizer."""
    saucier.load(run, dtype="float32", device="cpu")
    saucier.load_tokenizer(run).encode("the cook")


def told(run: Path) -> None:
    """Read the run as a person who looks at it does."""
    latest_checkpoint(run)
    read_passport(run)
    find_subject(str(run))


def reported(run: Path) -> None:
    """Write the run's report."""
    write_report(run)


STEPS: tuple[Callable[[Path], None], ...] = (reported, loaded, told, resumed)
"""The first takes longest, and is done for some cases."""
