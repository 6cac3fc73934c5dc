"""The loop: batches that do not matter, evaluation, patience, averaging, and the ways a run can stop."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.unit.training.toy import Counting, gpt, recipe, study

import saucier
from saucier.checkpoints.steps import BestCheckpoint, find_damage, latest_checkpoint, usable_checkpoint
from saucier.errors import InputError, WorkError
from saucier.model import Transformer
from saucier.training.evaluation import Evaluator
from saucier.training.hyperparameters import Linear
from saucier.training.loop import train
from saucier.training.optimizers import learning_rate_factor
from saucier.training.progress import Progress


class Listener:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Progress] = []
        self.scores: list[Mapping[str, float]] = []
        self.notes: list[str] = []

    def progress(self, progress: Progress) -> None:
        self.heard.append(progress)

    def evaluation(self, step: int, scores: Mapping[str, float]) -> None:
        self.scores.append(scores)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        self.notes.append("closed")


def equal(one: Transformer, two: Transformer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def evaluator() -> Evaluator:
    plain = study()
    return Evaluator([Counting(seed=99)[step] for step in range(2)], plain.corruption, plain.objective)


@pytest.mark.slow
def test_micro_batches_give_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    losses = []
    for size in (None, 1, 3):
        listener = Listener()
        train(gpt(dropout=0.0), study(), recipe(5, micro_batch=size), run_folder=tmp_path / str(size),
              reporters=[listener])
        losses.append([progress.loss for progress in listener.heard])
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_loss_is_over_real_targets(tmp_path: Path) -> None:
    listener = Listener()
    train(gpt(), study(), recipe(1), run_folder=tmp_path, reporters=[listener])
    assert listener.heard[0].tokens == 6 * 16 + 2 * 7  # two of eight rows end after 8 of 17 tokens
    assert listener.heard[0].tokens_read == 6 * 16 + 2 * 8  # padding is not read
    assert 2.5 < listener.heard[0].loss < 4.5  # near ln 29


def test_resumed_in_one_process_it_is_bit_equal(tmp_path: Path) -> None:
    whole, parts = gpt(), gpt()
    train(whole, study(), recipe(9), run_folder=tmp_path / "whole", reporters=[])
    with pytest.raises(WorkError, match="interrupted after step 4 of 9"):
        train(parts, study(), recipe(9), run_folder=tmp_path / "parts", reporters=[Presser(4)])
    again = gpt(seed=3)
    result = train(again, study(), recipe(9), run_folder=tmp_path / "parts", reporters=[])
    assert result.steps == 9
    assert equal(whole, again)
    assert not equal(whole, parts)


class Presser(Listener):
    """Presses Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def progress(self, progress: Progress) -> None:
        if progress.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_then_stops_and_gives_the_signal_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(WorkError, match="start it again"):
        train(gpt(), study(), recipe(), run_folder=tmp_path, reporters=[Presser(4)])
    assert (tmp_path / "checkpoints" / "step-4" / "state.json").is_file()
    assert signal.getsignal(signal.SIGINT) is before


def test_checkpoints_keep_the_best_and_the_newest(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 2.5, 2.2])
    result = train(gpt(), study(), recipe(10, evaluate_every=2, save_every=2, keep=2), run_folder=tmp_path,
                   reporters=[],
                   evaluate=lambda model: {"loss": next(losses)})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.json", "step-10", "step-4",
                                                                                  "step-8"]
    assert result.best == BestCheckpoint("step-4", 4, 1.0)
    assert usable_checkpoint(tmp_path).name == "step-4"
    assert equal(saucier.load(tmp_path, dtype="float32"),
                 saucier.load(tmp_path / "checkpoints/step-4", dtype="float32"))


def test_a_run_ends_when_its_time_is_over_and_stays_ended(tmp_path: Path) -> None:
    """The last step is evaluated and saved, whatever it was; the time is that of all parts of the run."""
    looks: list[int] = []

    def evaluate(model: object) -> dict[str, float]:
        looks.append(1)
        return {"loss": 1.0}

    limited = recipe(100_000, seconds=0.5, evaluate_every=100_000, save_every=100_000)
    for _ in range(2):
        result = train(gpt(), study(), limited, run_folder=tmp_path, reporters=[], evaluate=evaluate)
        assert result.reason == "time"
        assert 0 < result.steps < 100_000
        assert (tmp_path / "checkpoints" / f"step-{result.steps}" / "state.json").is_file()
        assert len(looks) == 1


def test_the_schedule_of_a_run_that_its_time_ends_comes_to_its_end(tmp_path: Path) -> None:
    listener, falling = Listener(), Linear(warmup=2)
    limited = recipe(100_000, seconds=1.0, evaluate_every=100_000, save_every=100_000, schedule=falling)
    train(gpt(), study(), limited, run_folder=tmp_path, reporters=[listener])
    rates = [one.rate for one in listener.heard]
    assert rates[-1] < 0.25 * rates[1]  # of 100,000 steps, so few take off next to nothing
    assert learning_rate_factor(falling, len(rates), 100_000) > 0.95


def test_patience_ends_a_run_and_it_stays_ended(tmp_path: Path) -> None:
    losses = iter([3.0, 1.0, 2.0, 1.5, 0.5])
    for _ in range(2):
        result = train(gpt(), study(), recipe(20, evaluate_every=2, patience=2), run_folder=tmp_path, reporters=[],
                       evaluate=lambda model: {"loss": next(losses)})
        assert (result.steps, result.reason) == (8, "patience")


def test_averaged_weights_are_the_mean_and_are_kept_when_better(tmp_path: Path) -> None:
    model, losses = gpt(), iter([1.0, 0.5])
    result = train(model, study(), recipe(6, evaluate_every=9, average=2), run_folder=tmp_path, reporters=[],
                   evaluate=lambda model: {"loss": next(losses)})
    folder = tmp_path / "checkpoints"
    kept = [load_file(folder / name / "model.safetensors") for name in ("step-3", "step-6", "average")]
    for name, value in kept[2].items():
        torch.testing.assert_close(value, (kept[0][name] + kept[1][name]) / 2)
        assert torch.equal(model.get_parameter(name), value)
    assert result.best == BestCheckpoint("average", 6, 0.5)
    assert usable_checkpoint(tmp_path).name == "average"


def test_averaged_weights_that_are_worse_are_not_used(tmp_path: Path) -> None:
    model, losses = gpt(), iter([1.0, 1.5])
    train(model, study(), recipe(6, evaluate_every=9, average=2), run_folder=tmp_path, reporters=[],
          evaluate=lambda model: {"loss": next(losses)})
    assert equal(model, saucier.load(tmp_path / "checkpoints/step-6", dtype="float32"))


def test_a_loss_that_is_not_finite_stops_and_saves_the_batch(tmp_path: Path) -> None:
    model = gpt()

    class Breaker(Listener):
        def progress(self, progress: Progress) -> None:
            if progress.step == 5:
                next(model.parameters()).data[7] = float("nan")

    with pytest.raises(WorkError, match="step 6: the loss is nan") as caught:
        train(model, study(), recipe(), run_folder=tmp_path, reporters=[Breaker()])
    saved = load_file(str(caught.value.where))
    expected = study().corruption(Counting()[5], seed=5, step=5)
    assert {name.removeprefix("0."): value.tolist() for name, value in saved.items()} == {n: v.tolist() for n,
                                                                                          v in expected.items()}
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoints/step-3"


def test_another_recipe_is_refused_and_the_key_is_named(tmp_path: Path) -> None:
    train(gpt(), study(), recipe(3), run_folder=tmp_path, reporters=[])
    with pytest.raises(InputError, match=r"training\.steps was 3 and is now 4"):
        train(gpt(), study(), recipe(4), run_folder=tmp_path, reporters=[])
    assert train(gpt(), study(), recipe(3, keep=7, log_every=9), run_folder=tmp_path, reporters=[]).steps == 3


def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path: Path) -> None:
    whole = gpt()
    train(whole, study(), recipe(9), run_folder=tmp_path, reporters=[])
    newest = tmp_path / "checkpoints/step-9/model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    listener, again = Listener(), gpt(seed=3)
    train(again, study(), recipe(9), run_folder=tmp_path, reporters=[listener])
    assert "step-9: damaged, model.safetensors has" in listener.notes[0]
    assert "resumed from" in listener.notes[1]
    assert "step-6" in listener.notes[1]
    assert equal(whole, again)


@pytest.mark.parametrize("name", ["step", "tokens", "tokens_read", "stale"])
def test_counts_that_no_run_reaches_are_damage(name: str, tmp_path: Path) -> None:
    train(gpt(), study(), recipe(2), run_folder=tmp_path, reporters=[])
    path = tmp_path / "checkpoints/step-2/state.json"
    whole = json.loads(path.read_text())
    assert find_damage(path.parent) is None
    for number in (-1, 2**63, 10**400):
        path.write_text(json.dumps(whole | {name: number}))
        assert name in str(find_damage(path.parent))


@pytest.mark.parametrize("name", ["\u00e9" * 200, "x" * 999, "a\x00b", "..", "", None, ["step-2"], "/dev/zero"])
def test_names_that_no_folder_has_are_looked_for_nowhere(name: object, tmp_path: Path) -> None:
    """A damaged pointer or list of files may hold any name: too many bytes for a file's, or none that a file has."""
    train(gpt(), study(), recipe(2), run_folder=tmp_path, reporters=[])
    folder = tmp_path / "checkpoints"
    (folder / "best.json").write_text(json.dumps({"name": name}))
    assert usable_checkpoint(tmp_path) == folder / "step-2"
    if isinstance(name, str):
        state = json.loads((folder / "step-2/state.json").read_text())
        (folder / "step-2/state.json").write_text(json.dumps(state | {"files": state["files"] | {name: 5}}))
        assert str(find_damage(folder / "step-2")).endswith("has 0 of 5 bytes")


def test_a_full_disk_is_one_clear_error_and_older_checkpoints_stay(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    class Filler(Listener):
        def progress(self, progress: Progress) -> None:
            if progress.step == 5:
                resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(WorkError, match="step-6: cannot write"):
            train(gpt(), study(), recipe(), run_folder=tmp_path, reporters=[Filler()])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-3"]


def test_metrics_hold_every_step_once_after_a_resume(tmp_path: Path) -> None:
    with pytest.raises(WorkError):
        train(gpt(), study(), recipe(9, save_every=9), run_folder=tmp_path, evaluate=evaluator(),
              reporters=[Presser(4)])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    train(gpt(), study(), recipe(9, save_every=9), run_folder=tmp_path, evaluate=evaluator(), reporters=[])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 10))
    assert lines[-1]["evaluation"]["loss"] < lines[0]["loss"]


def test_evaluation_does_not_depend_on_batches_and_changes_nothing(tmp_path: Path) -> None:
    model, plain = gpt(), study()
    big = Evaluator([Counting()[0]], plain.corruption, plain.objective)
    small = Evaluator([Counting()[0].select(slice(i, i + 1)) for i in range(8)], plain.corruption, plain.objective)
    assert small(model) == pytest.approx(big(model), rel=1e-5)
    assert model.training
    with_one, without = gpt(), gpt()
    train(with_one, study(), recipe(6, evaluate_every=2), run_folder=tmp_path / "a", evaluate=evaluator(), reporters=[])
    train(without, study(), recipe(6), run_folder=tmp_path / "b", reporters=[])
    assert equal(with_one, without)


def test_events_are_written_where_tensorboard_is(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(gpt(), study(), recipe(3, events="auto"), run_folder=tmp_path, reporters=[])
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("training/loss")] == [1, 2, 3]


def test_events_that_cannot_be_written_are_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"saucier\[tensorboard\]"):
        train(gpt(), study(), recipe(3, events="on"), run_folder=tmp_path, reporters=[])
    assert train(gpt(), study(), recipe(1, events="auto"), run_folder=tmp_path, reporters=[]).steps == 1
