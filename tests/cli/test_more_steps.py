"""More steps or epochs on what has ended: kept, resumable, and the longer run itself where the rate is constant."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.conftest import TINY, Saucier

from saucier.checkpoints.steps import usable_checkpoint
from saucier.jobs.pretraining.extension import describe_extension, is_longer
from saucier.jobs.run.passport import RerunComparison, read_passport
from saucier.opened import RunFolder
from saucier.recipes import recipe
from saucier.report.results import read_results
from saucier.training.hyperparameters import Constant, Cosine, Training


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory, text_file: Path) -> Path:
    """Return a finished run of four steps at one rate."""
    from saucier.cli import main

    out = tmp_path_factory.mktemp("steady") / "run"
    assert main(["cook", "gpt-nano", "--data", str(text_file), "--out", str(out), "--no-calibrate", *TINY,
                 "training.schedule.kind=constant", "training.keep=1", "data.document=line",
                 "tokenizer.vocab=280"]) == 0
    return out


@pytest.fixture
def run(steady: Path, tmp_path: Path) -> Path:
    """Return a copy of it."""
    shutil.copytree(steady, tmp_path / "run")
    return tmp_path / "run"


def weights(folder: Path) -> bytes:
    """Return the last weights of a run."""
    return (folder / "checkpoints" / "step-8" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_at_a_constant_rate_it_is_the_longer_run(saucier: Saucier, run: Path, text_file: Path, tmp_path: Path) -> None:
    then = (run / "evaluation.json").read_text()
    answer = saucier("cook", run, "--steps", 8, "--no-calibrate")
    assert answer.code == 0
    assert "4 steps are done; it goes on to 8" in answer.out
    assert "the rate follows" not in answer.out
    whole = tmp_path / "whole"
    assert saucier("cook", run, "--out", whole, "--no-calibrate").code == 0
    assert weights(run) == weights(whole)
    assert (run / "evaluation-step-4.json").read_text() == then
    assert (run / "samples-step-4.txt").is_file()
    assert read_results(run).steps == 8
    assert "8 steps" in (run / "report.html").read_text()
    passport = read_passport(run)
    assert [one.steps for one in passport.earlier] == [4]
    assert passport.earlier[0].outcome is not None
    assert passport.outcome is not None
    assert read_results(run).held_out == read_results(whole).held_out
    assert "this run is finished; for more steps: saucier cook" in saucier("cook", run).out
    other = passport.model_copy(update={"earlier": ()})
    reasons = RerunComparison(passport, other).reasons()
    assert any("the first run ended after 4 and was given more" in one for one in reasons)
    again = saucier("cook", run, "training.steps=9", "--no-calibrate")
    assert again.code == 0
    assert [one.steps for one in read_passport(run).earlier] == [4, 8]


def test_a_schedule_that_had_fallen_rises_again_and_says_so() -> None:
    before, after = (Training(steps=steps, schedule=Cosine(final=0.1)) for steps in (1000, 3000))
    _, line = describe_extension(before, after, 1000)
    assert "the rate follows the longer schedule (cosine): from 10.0% of the highest to 77.5% now" in line
    assert "ends with other weights" in line
    steady = [Training(steps=steps, schedule=Constant(warmup=10)) for steps in (1000, 3000)]
    assert len(describe_extension(*steady, 1000)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["evaluation.json", "recipe.yaml"])
def test_a_kill_between_its_files_loses_nothing(saucier: Saucier, run: Path, lost: str,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    from saucier.jobs.pretraining import extension

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    name = {"evaluation.json": "read_passport", "recipe.yaml": "write_settings"}[lost]
    with monkeypatch.context() as patch:
        patch.setattr(extension, name, killed)
        assert saucier("cook", run, "--steps", 8, "--no-calibrate").code == 130
    assert usable_checkpoint(run).name == "step-4"
    assert (run / "evaluation-step-4.json").is_file()
    assert saucier("cook", run, "--no-calibrate").code == 0  # as it was
    assert read_results(run).steps == 4
    assert saucier("cook", run, "--steps", 8, "--no-calibrate").code == 0
    assert read_results(run).steps == 8
    assert [one.steps for one in read_passport(run).earlier][-1] == 4


def test_a_longer_recipe_is_the_same_in_all_else(run: Path) -> None:
    before = recipe(run / "recipe.yaml")

    def changed(*words: str) -> bool:
        return is_longer(before, recipe(run / "recipe.yaml", words), whole=True)

    assert changed("training.steps=5")
    assert not changed("training.steps=4")
    assert not changed("training.steps=3")
    assert not changed("training.steps=5", "training.batch=8")
    assert not changed("training.steps=5", "sampling.tokens=3")
    assert not changed("training.seconds=60")  # it had no end in time, which is more than any
    assert changed("training.steps=5", "training.log_every=1")


@pytest.mark.parametrize(("words", "expected"), [
    (("training.steps=2",), "training.steps is 4 there, and 2 here; give a new folder with --out, and --from"),
    (("--steps", "6", "training.batch=2"), "training.")])
def test_what_is_not_longer_is_refused_with_a_way_out(saucier: Saucier, run: Path, words: tuple[str, ...],
                                                      expected: str) -> None:
    answer = saucier("cook", run, *words)
    assert answer.code == 2
    assert expected in answer.error
    assert RunFolder(run).is_finished


def test_without_checkpoints_it_names_another_way(saucier: Saucier, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    answer = saucier("cook", run, "--steps", 8)
    assert answer.code == 2
    assert "its checkpoints are gone" in answer.error
    assert "--from" in answer.error
    assert RunFolder(run).is_finished


def test_patience_that_ended_a_run_would_end_it_again(saucier: Saucier, run: Path) -> None:
    state = run / "checkpoints" / "step-4" / "state.json"
    values = json.loads(state.read_text())
    state.write_text(json.dumps(values | {"stale": 3}))
    answer = saucier("cook", run, "--steps", 8, "training.patience=3")
    assert answer.code == 2  # it had none, so this is less
    text = (run / "recipe.yaml").read_text()
    (run / "recipe.yaml").write_text(text.replace("patience: null", "patience: 3"))
    answer = saucier("cook", run, "--steps", 8)
    assert "training.patience=3 ended this run at step 4, and would again" in answer.error
