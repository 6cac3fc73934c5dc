"""Run folders: a new one, the same again, another refused; and the default place."""

from __future__ import annotations

from pathlib import Path

import pytest

from saucier.errors import InputError
from saucier.jobs.finetuning.job import FINETUNING
from saucier.jobs.finetuning.settings import make_finetuning
from saucier.jobs.run.folder import (
    PRETRAINING,
    default_folder,
    essential_settings,
    open_or_create,
    open_run,
    write_settings,
)
from saucier.plain import first_difference
from saucier.recipes import recipe

NANO = recipe("gpt-nano")


def finish(folder: Path) -> None:
    """Make a run look finished."""
    (folder / "evaluation.json").write_text("{}", encoding="utf-8")


def read(folder: Path) -> None:
    """Make a run look as if its text was read."""
    (folder / "store").mkdir()


def test_a_run_is_begun_and_gone_on_with(tmp_path: Path) -> None:
    folder, standing = open_run(tmp_path / "run", NANO)
    assert (standing, folder.recipe()) == ("new", NANO)
    assert open_run(tmp_path / "run", NANO)[1] == "resumed"
    finish(tmp_path / "run")
    assert open_run(tmp_path / "run", NANO)[1] == "finished"


@pytest.mark.parametrize("change",
                         ["training.steps=3", "model.dim=96", "tokenizer.vocab=999", "data.files=[x]",
                          "training.seed=5"])
def test_another_recipe_is_refused_with_the_key(tmp_path: Path, change: str) -> None:
    open_run(tmp_path, NANO)
    read(tmp_path)
    before = (tmp_path / "recipe.yaml").read_bytes()
    with pytest.raises(InputError, match=change.partition("=")[0]):
        open_run(tmp_path, recipe("gpt-nano", [change]))
    assert (tmp_path / "recipe.yaml").read_bytes() == before


@pytest.mark.parametrize("change",
                         ["training.micro_batch=2", "training.log_every=3", "training.keep=9", "about=other words"])
def test_what_does_not_change_the_weights_may_differ(tmp_path: Path, change: str) -> None:
    open_run(tmp_path, NANO)
    assert open_run(tmp_path, recipe("gpt-nano", [change]))[1] == "resumed"


def test_samples_may_differ_until_they_are_written(tmp_path: Path) -> None:
    other = recipe("gpt-nano", ["sampling.tokens=9"])
    open_run(tmp_path, NANO)
    assert open_run(tmp_path, other)[0].recipe().sampling.tokens == 9
    finish(tmp_path)
    with pytest.raises(InputError, match=r"sampling\.tokens"):
        open_run(tmp_path, NANO)


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="files that are not a run"):
        open_run(tmp_path, NANO)
    with pytest.raises(InputError, match="is a file"):
        open_run(tmp_path / "notes.txt", NANO)


def test_the_default_folder_never_meets_another_run(tmp_path: Path) -> None:
    assert default_folder(NANO, PRETRAINING, tmp_path) == tmp_path / "gpt-nano"
    open_run(tmp_path / "gpt-nano", recipe("gpt-nano", ["training.steps=3"]))
    read(tmp_path / "gpt-nano")
    assert default_folder(NANO, PRETRAINING, tmp_path) == tmp_path / "gpt-nano-2"
    open_run(tmp_path / "gpt-nano-2", NANO)
    assert default_folder(NANO, PRETRAINING, tmp_path) == tmp_path / "gpt-nano-2"


def test_a_run_that_was_refused_before_it_read_gives_its_folder_to_a_better_recipe(tmp_path: Path) -> None:
    path = tmp_path / "gpt-nano"
    open_run(path, recipe("gpt-nano", ["tokenizer.vocab=40000"]))
    (path / "passport.json").write_text("{}", encoding="utf-8")
    assert default_folder(NANO, PRETRAINING, tmp_path) == path
    assert open_run(path, NANO)[0].recipe() == NANO
    assert not (path / "passport.json").exists()


def test_a_damaged_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "gpt-nano").mkdir()
    (tmp_path / "gpt-nano" / "recipe.yaml").write_text("a: [", encoding="utf-8")
    assert default_folder(NANO, PRETRAINING, tmp_path) == tmp_path / "gpt-nano-2"


def test_the_first_difference_has_its_path() -> None:
    one, two = essential_settings(NANO), essential_settings(recipe("gpt-nano", ["training.optimizer.momentum=0.5"]))
    assert first_difference(one, two) == ("training.optimizer.momentum", 0.95, 0.5)
    assert first_difference(one, one) is None
    assert first_difference({"steps": [1, 2]}, {"steps": [1, 2, 3]}) == ("steps.2", None, 3)
    assert first_difference([{"name": "a"}, {"name": "c"}], [{"name": "a"}, {"name": "b"}, {"name": "c"}]) == (
        "1.name", "c", "b")
    assert first_difference({"last": [1]}, {"last": [1, None]}) == ("last", [1], [1, None])


def test_a_fine_tuning_has_the_same_rules(tmp_path: Path) -> None:
    values = {"name": "soups", "model": "bert", "task": {"kind": "classification"}, "data": {"train": ["a.tsv"]}}
    wanted, other = make_finetuning(dict(values)), make_finetuning(values | {"task": {"kind": "tagging"}})
    path = tmp_path / "soups"
    assert open_or_create(path, wanted, FINETUNING) == "new" and not path.exists()
    write_settings(path, wanted, FINETUNING)
    assert open_or_create(path, wanted, FINETUNING) == "resumed"
    with pytest.raises(InputError, match=r"another fine-tuning: task\.kind is 'classification' there, and 'tagg"):
        open_or_create(path, other, FINETUNING)
    assert default_folder(wanted, FINETUNING, tmp_path) == path
    assert default_folder(other, FINETUNING, tmp_path) == tmp_path / "soups-2"
    (path / "scores.json").write_text("{}", encoding="utf-8")
    assert open_or_create(path, wanted, FINETUNING) == "finished"
