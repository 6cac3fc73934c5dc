"""More steps on a run that has ended, or was stopped: the same run under a longer schedule, from its last checkpoint.

What a finished run said stays, as `evaluation-step-N.json` and `samples-step-N.txt`; `passport.json` records that it
had ended before.
"""

from __future__ import annotations

from pathlib import Path

from saucier.checkpoints.steps import TrainingState, latest_checkpoint
from saucier.cost.planning import PLAN_FILE
from saucier.errors import InputError
from saucier.files import remove_path, write_text
from saucier.jobs.run.folder import PRETRAINING, essential_settings, write_settings
from saucier.jobs.run.passport import EarlierEnd, read_passport
from saucier.opened import PASSPORT_FILE, RunFolder
from saucier.plain import first_difference
from saucier.recipes import Recipe, recipe
from saucier.report.results import EVALUATION_FILE
from saucier.training.hyperparameters import Constant, InverseSquareRoot, ScheduleConfig, Training
from saucier.training.optimizers import learning_rate_factor

LENGTH_KEYS = ("steps", "seconds", "patience")
"""Keys of `training` that say when a run ends; a run may be given more of each."""
LENGTH_PATHS = tuple(f"training.{key}" for key in LENGTH_KEYS)


def extend_run(out: Path, requested: Recipe) -> tuple[str, ...]:
    """Let the run in a folder go on for longer, where that is all that a recipe asks; return lines that say so.

    Nothing is done for any other folder or recipe. Every moment leaves a run that `cook` goes on with: the old end is
    kept under other names first, then the run counts as unfinished, and then its recipe is the longer one.
    Raises `InputError` for a run that cannot go on from where it ended.
    """
    folder = RunFolder(out)
    before = recipe(out / PRETRAINING.settings) if folder.is_run else None
    if before is None or not is_longer(before, requested, whole=folder.is_finished):
        return ()
    checkpoint = latest_checkpoint(out)
    if checkpoint is None:
        if not folder.is_finished:
            return ()
        raise InputError("its checkpoints are gone, so it cannot go on from where it ended", where=str(out),
                         remedy=f"begin another run with its weights: saucier cook --from {out} --out NEW")
    state = TrainingState.read(checkpoint)
    for key, spent in (("patience", state.stale), ("seconds", state.seconds)):
        limit = getattr(requested.training, key)
        if limit is not None and spent >= limit:
            raise InputError(f"training.{key}={limit:g} ended this run at step {state.step}, and would again",
                             where=str(out), remedy=f"give more of it: training.{key}=...")
    keep_end(folder, before, state.step)
    remove_path(out / PLAN_FILE)
    write_settings(out, requested, PRETRAINING)
    return tuple(describe_extension(before.training, requested.training, state.step))


def is_longer(before: Recipe, after: Recipe, *, whole: bool) -> bool:
    """Say whether a recipe is another one made longer, and the same in all else.

    `whole`: as for a finished run, whose evaluation counts too.
    """
    changes = {key: getattr(after.training, key) for key in LENGTH_KEYS}
    grown = before.model_copy(update={"training": before.training.model_copy(update=changes)})
    pairs = [(getattr(before.training, key), value) for key, value in changes.items()]
    return (any(old != new for old, new in pairs)
            and all(new is None or (old is not None and new >= old) for old, new in pairs)
            and first_difference(essential_settings(grown, whole), essential_settings(after, whole)) is None)


def keep_end(folder: RunFolder, before: Recipe, done: int) -> None:
    """Keep what a run said at its end, and make it an unfinished one; nothing happens to one that had not ended."""
    for path in (folder.path / EVALUATION_FILE, folder.samples):
        kept = path.with_stem(f"{path.stem}-step-{done}")
        if folder.is_finished and path.is_file():
            write_text(kept, path.read_text(encoding="utf-8"))
    remove_path(folder.path / EVALUATION_FILE)
    if (folder.path / PASSPORT_FILE).is_file():
        passport = read_passport(folder.path)
        if passport.outcome is not None:
            end = EarlierEnd(steps=before.training.steps, ended=passport.ended, outcome=passport.outcome)
            passport.model_copy(update={"earlier": (*passport.earlier, end), "ended": None, "outcome": None}
                                ).write(folder.path)


def describe_extension(before: Training, after: Training, done: int) -> list[str]:
    """Say how a run goes on: at which rate, and whether it is the run that would have been longer from the start."""
    then, now = (learning_rate_factor(one.schedule, step, one.steps) for one, step in (
        (before, max(0, done - 1)), (after, done)))
    lines = [f"{done:,} steps are done; it goes on to {after.steps:,}, and what it said so far is kept in "
             f"evaluation-step-{done}.json"]
    if depends_on_length(after.schedule) and after.steps > done:
        lines.append(f"the rate follows the longer schedule ({after.schedule.kind}): from {then:.1%} of the highest to "
                     f"{now:.1%} now, and down again; a run of {after.steps:,} steps from the start ends with other "
                     "weights")
    return lines


def depends_on_length(schedule: ScheduleConfig) -> bool:
    """Say whether a schedule's rates change with the number of steps; else more steps are a longer run, bit by bit."""
    match schedule:
        case InverseSquareRoot() | Constant(cooldown=0):
            return False
        case _:
            return True
