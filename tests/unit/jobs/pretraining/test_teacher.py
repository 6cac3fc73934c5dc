"""Pretraining with a teacher: its tokenizer is taken, it is no part of the run, and a resumed run ends the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.finetuning.conftest import labelled_rows

import saucier
from saucier.errors import InputError
from saucier.jobs.pretraining.cook import JobOptions, cook
from saucier.jobs.run.passport import read_passport
from saucier.recipes import Recipe
from saucier.recipes.catalogue import recipe
from saucier.training.loop import Run

FAST = JobOptions(calibrate=False, evaluate=False, quiet=True)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n\n".join(". ".join(text for _, text in labelled_rows(6, seed)) for seed in range(60)))
    return path


def small(name: str, text: Path, *words: str) -> Recipe:
    return recipe(name, [f"data.files=[{text}]", "training.steps=6", "training.length=32", "training.batch=4",
                         "training.evaluate_every=3", "tokenizer.vocab=110", "training.dtype=float32",
                         "training.schedule.warmup=2", "data.document=paragraph", *words])


@pytest.fixture(scope="module")
def teacher(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    cook(small("bert-nano", text, "model.dim=32", "model.layers=2"), out, FAST)
    return out


@pytest.mark.slow
def test_a_student_learns_masked_words_from_its_teacher(teacher: Path, text: Path, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = small("distilbert-nano", text, "model.dim=16", f"distillation.teacher={teacher}")
    whole = cook(wanted, tmp_path / "whole", FAST)
    metrics = [json.loads(line) for line in (whole.path / "metrics.jsonl").read_text().splitlines()]
    first, last = (line["evaluation"] for line in metrics if "evaluation" in line)
    assert last["soft_targets"] < first["soft_targets"] and "hidden_states" in last
    assert (whole.path / "tokenizer" / "tokenizer.json").read_bytes() == (
        teacher / "tokenizer" / "tokenizer.json").read_bytes()
    assert len(read_passport(whole.path).data["teacher"]) == 64

    update = Run.update

    def stopped(run: Run) -> None:
        if run.state.step == 5:
            raise KeyboardInterrupt
        update(run)

    monkeypatch.setattr(Run, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        cook(wanted, tmp_path / "again", FAST)
    checkpoint = tmp_path / "again" / "checkpoints" / "step-3"
    held = {name for path in checkpoint.rglob("*.safetensors") for name in [path.name]}
    assert held == {"model.safetensors", "optimizer.safetensors", "distillation.safetensors"}
    monkeypatch.setattr(Run, "update", update)
    cook(wanted, tmp_path / "again", FAST)
    one, other = (saucier.load(tmp_path / name, dtype="float32").state_dict() for name in ("whole", "again"))
    assert one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_recipe_whose_teacher_is_not_named_or_not_there_is_refused(teacher: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no teacher is named; give a folder or a run"):
        cook(recipe("distilbert-nano"), tmp_path / "none", FAST)
    with pytest.raises(InputError, match="no such folder"):
        cook(recipe("distilbert-nano", ["distillation.teacher=nowhere"]), tmp_path / "none", FAST)
    assert not (tmp_path / "none").exists()
    wanted = small("distilbert-nano", text, "model.layers=3", f"distillation.teacher={teacher}",
                   "distillation.losses=[{kind: hidden_states}]")
    with pytest.raises(InputError, match="2 layers of the teacher are no multiple of the student's 3"):
        cook(wanted, tmp_path / "deep", FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "of", "measured"), [
    ("tinybert-nano", "bert-nano", {"embeddings", "hidden_states", "attentions"}),
    ("minilm-nano", "bert-nano", {"attentions", "value_relations"}),
    ("distilgpt2-nano", "gpt2-nano", {"soft_targets", "hidden_states"}),
    ("mobilebert-nano", "ib-bert-nano", {"hidden_states", "attentions", "soft_targets"})])
def test_recipes_of_students_learn_from_the_recipes_of_their_teachers(name: str, of: str, measured: set[str],
                                                                      text: Path, tmp_path: Path) -> None:
    bytes_ = ["tokenizer.vocab=300", "model.dim=24", "training.optimizer={kind: adamw, learning_rate: 0.002}"]
    words = bytes_ if of == "gpt2-nano" else []
    cook(small(of, text, "training.steps=2", "training.evaluate_every=2", *words), tmp_path / "teacher", FAST)
    found = cook(small(name, text, f"distillation.teacher={tmp_path / 'teacher'}", *words), tmp_path / "run", FAST)
    metrics = [json.loads(line) for line in (found.path / "metrics.jsonl").read_text().splitlines()]
    assert measured < set(next(line["evaluation"] for line in metrics if "evaluation" in line))


def test_a_pretraining_refuses_stored_outputs(teacher: Path, text: Path, tmp_path: Path) -> None:
    wanted = small("distilbert-nano", text, "model.dim=16", f"distillation.teacher={teacher}", "distillation.stored={}")
    with pytest.raises(InputError, match="each step of a pretraining has rows of its own"):
        cook(wanted, tmp_path / "run", FAST)
