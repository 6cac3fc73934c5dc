"""Reporters that a recipe chooses: Weights & Biases, MLflow, and one of one's own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest

import saucier
from saucier.config.registry import REGISTERED
from saucier.errors import InputError
from saucier.jobs.run.folder import essential_settings
from saucier.training.hyperparameters import CustomReporter, MLflow, Training, WeightsAndBiases
from saucier.training.progress import Progress, Reporter
from saucier.training.reporters import ReportedRun, build_reporters, check_reporters


def report_a_run(training: Training, folder: Path, first: int = 0) -> None:
    """Tell the reporters of two updates and an evaluation."""
    reporters = build_reporters(training, folder, first, [], writes=True, settings={"training": {"steps": 4}})
    for step in range(first + 1, first + 3):
        reporters.progress(Progress(step, 4, 1.0 / step, 0.1, 2.0, 10 * step, 10 * step, 5.0, 1.0))
    reporters.evaluation(first + 2, {"loss": 0.5})
    reporters.close()


def test_wandb_gets_every_figure_and_one_run_for_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the calls of wandb, recorded."""
    began: list[dict[str, Any]] = []
    logged: list[tuple[dict[str, float], int]] = []
    run = SimpleNamespace(log=lambda figures, step: logged.append((figures, step)),
                          finish=lambda: logged.append(({}, -1)))
    module = ModuleType("wandb")
    module.init = lambda **settings: began.append(settings) or run  # type: ignore[attr-defined]
    module.Settings = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: module)
    training = Training(steps=4, events="off", log_every=1, reporters=(WeightsAndBiases(project="p"),))
    report_a_run(training, tmp_path)
    report_a_run(training, tmp_path, first=2)
    assert [one["mode"] for one in began] == ["offline"] * 2
    assert began[0]["id"] == began[1]["id"] and began[0]["config"] == {"training": {"steps": 4}}
    assert [step for _, step in logged] == [1, 2, 2, -1, 3, 4, 4, -1]
    assert logged[0][0] == {"training/loss": 1.0, "training/rate": 0.1, "training/gradient_norm": 2.0,
                            "training/tokens_per_second": 5.0}
    assert logged[2][0] == {"evaluation/loss": 0.5}


@pytest.mark.nightly
def test_wandb_itself_writes_offline(tmp_path: Path) -> None:
    """The real package, without a network."""
    wandb = pytest.importorskip("wandb")
    report_a_run(Training(steps=4, events="off", reporters=(WeightsAndBiases(),)), tmp_path)
    wandb.teardown()  # what writes is a process of its own
    name = (tmp_path / "wandb.id").read_text(encoding="utf-8").strip()
    (stored,) = (tmp_path / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb")
    assert b"training/loss" in stored.read_bytes()


@pytest.mark.nightly
def test_mlflow_itself_goes_on_with_its_run(tmp_path: Path) -> None:
    """The real package, into a file of the run."""
    mlflow = pytest.importorskip("mlflow")
    training = Training(steps=4, events="off", log_every=1, reporters=(MLflow(experiment="e"),))
    report_a_run(training, tmp_path)
    report_a_run(training, tmp_path, first=2)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name("e").experiment_id])
    assert run.info.status == "FINISHED" and run.data.params == {"training.steps": "4"}
    assert [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, "training/loss")] == [
        (1, 1.0), (2, 0.5), (3, 1 / 3), (4, 0.25)]
    assert client.get_metric_history(run.info.run_id, "evaluation/loss")[-1].step == 4


def test_one_of_ones_own_is_built_from_its_config(tmp_path: Path) -> None:
    heard: list[object] = []

    class Phone(CustomReporter):
        kind: Literal["desk:phone"] = "desk:phone"
        number: int

    class Caller(Reporter):
        def __init__(self, config: Phone, run: ReportedRun) -> None:
            heard.extend([config.number, run.folder, run.first])

        def evaluation(self, step: int, scores: Any) -> None:
            heard.append(scores)

    saucier.register(Phone, Caller)
    training = Training.model_validate({"steps": 4, "events": "off",
                                        "reporters": [{"kind": "desk:phone", "number": 7}]})
    report_a_run(training, tmp_path)
    REGISTERED.pop("desk:phone")
    assert heard == [7, tmp_path, 0, {"loss": 0.5}]


def test_a_missing_package_is_one_line_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for config in (WeightsAndBiases(), MLflow()):
        with pytest.raises(InputError) as caught:
            check_reporters(Training(steps=1, reporters=(config,)))
        assert str(caught.value) == (f"training.reporters: {config.kind} is not installed; pip install "
                                     f"'saucier[{config.kind}]', or leave kind: {config.kind} out")


def test_reporters_do_not_make_it_another_run() -> None:
    plain = saucier.recipe("gpt-nano")
    told = saucier.recipe("gpt-nano", ["training.reporters=[{kind: wandb}]"])
    assert told.training.reporters == (WeightsAndBiases(),)
    assert essential_settings(told) == essential_settings(plain)
    assert "reporters" not in essential_settings(plain)["training"]
