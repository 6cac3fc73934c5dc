"""More epochs on a finished fine-tuning: a phase from its model, whose results take the place of the first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier.errors import InputError
from saucier.jobs.finetuning import extension
from saucier.jobs.finetuning.extension import find_extension
from saucier.jobs.finetuning.predict import predict_answers
from saucier.jobs.finetuning.settings import read_finetuning
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.jobs.run.passport import read_passport

Table = Callable[..., Path]


@pytest.fixture
def folder(tiny_bert: Path, table: Table, tmp_path: Path) -> Path:
    """Return a finished fine-tuning of one epoch, whose held-out rows are a share of the file."""
    rows = table("train.tsv", "label,text", labelled_rows(160, 1))
    saucier.finetune("classification", ["training.batch=16", "training.optimizer.learning_rate=0.003",
                                        "training.dtype=float32", "training.epochs=1", "data.share=0.2"],
                     model=tiny_bert, data=rows, out=tmp_path / "run", quiet=True)
    return tmp_path / "run"


def names(folder: Path) -> list[str]:
    """Return the names of the held-out rows."""
    return [json.loads(line)["id"] for line in TaskFolder(folder).predictions("held-out").read_text().splitlines()]


@pytest.mark.slow
def test_more_epochs_begin_with_the_finished_model(folder: Path) -> None:
    then, rows, share = (folder / "scores.json").read_text(), names(folder), accuracy(folder)
    found = saucier.finetune(folder, epochs=8, quiet=True)
    assert found.folder == folder
    assert (folder / "scores-epochs-1.json").read_text() == then
    assert read_finetuning(folder / "finetune.yaml").training.epochs == 8
    assert names(folder) == rows  # what was held out is held out
    assert accuracy(folder) > share
    assert not list(folder.glob("to-epochs-*"))
    passport = read_passport(folder)
    assert [one.steps for one in passport.earlier] == [1]
    answers = predict_answers(folder, [str(folder.parent / "train.tsv")])
    assert len(answers.answers) == 160
    before = (folder / "scores.json").read_bytes()
    saucier.finetune(folder, quiet=True)  # it is finished
    assert (folder / "scores.json").read_bytes() == before
    with pytest.raises(InputError, match=r"training.epochs is 8.0 there, and 2.0 here"):
        saucier.finetune(folder, epochs=2, quiet=True)


def accuracy(folder: Path) -> float:
    """Return the accuracy on held-out rows."""
    return float(json.loads((folder / "scores.json").read_text())["held-out"]["scores"][0]["value"])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["train", "adopt"])
def test_a_kill_leaves_the_finished_result_whole(folder: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    then, weights = (folder / "scores.json").read_bytes(), (folder / "model" / "model.safetensors").read_bytes()

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if place == "train":
            patch.setattr("saucier.jobs.finetuning.finetune.train_task", killed)
        else:
            patch.setattr(extension, "write_settings", killed)
        with pytest.raises(KeyboardInterrupt):
            saucier.finetune(folder, epochs=2, quiet=True)
    assert TaskFolder(folder).is_finished
    assert len(predict_answers(folder, [str(folder.parent / "train.tsv")]).answers) == 160
    if place == "train":
        assert (folder / "scores.json").read_bytes() == then
        assert (folder / "model" / "model.safetensors").read_bytes() == weights
    saucier.finetune(folder, epochs=2, quiet=True)
    assert read_finetuning(folder / "finetune.yaml").training.epochs == 2
    assert (folder / "scores-epochs-1.json").read_bytes() == then
    assert [one.steps for one in read_passport(folder).earlier] == [1]
    assert not list(folder.glob("to-epochs-*"))


def test_only_more_epochs_are_an_extension(folder: Path) -> None:
    settings = read_finetuning(folder / "finetune.yaml")

    def asked(**changes: object) -> bool:
        training = settings.training.model_copy(update=changes)
        return find_extension(folder, settings.model_copy(update={"training": training})) is not None

    assert asked(epochs=1.5)
    assert not asked(epochs=1.0)
    assert not asked(epochs=0.5)
    assert not asked(epochs=2.0, batch=8)
    text = (folder / "finetune.yaml").read_text()
    (folder / "finetune.yaml").write_text(text.replace("search: null", "search: {trials: 4}"))
    searched = read_finetuning(folder / "finetune.yaml")
    longer = searched.model_copy(update={"training": searched.training.model_copy(update={"epochs": 2.0})})
    with pytest.raises(InputError, match="were searched for, epochs included"):
        find_extension(folder, longer)
    (folder / "finetune.yaml").write_text(text)
    (folder / "scores.json").unlink()
    assert not asked(epochs=2.0)


def test_an_adapter_is_not_trained_on_top_of_itself(folder: Path) -> None:
    text = (folder / "finetune.yaml").read_text()
    shutil.rmtree(folder / "predictions")
    (folder / "finetune.yaml").write_text(text.replace("tuning: null", "tuning: {kind: bias}"))
    settings = read_finetuning(folder / "finetune.yaml")
    longer = settings.model_copy(update={"training": settings.training.model_copy(update={"epochs": 2.0})})
    with pytest.raises(InputError, match=r"an adapter that is finished.*saucier merge"):
        find_extension(folder, longer)
