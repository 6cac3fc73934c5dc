"""Fine-tuning with a teacher: end to end, resumed to the bit, with other tokens, for every task; what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.jobs.finetuning.conftest import SAID, labelled_rows, written_rows
from tests.unit.jobs.finetuning.test_multiple_choice import drawn, lines
from tests.unit.jobs.finetuning.test_question_answering import paragraphs
from tests.unit.jobs.finetuning.test_tagging import column_file

import saucier
from saucier.cli import main
from saucier.families.bert import bert
from saucier.jobs.finetuning.data import read_splits
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.settings import Finetuning, read_finetuning, read_finetuning_words
from saucier.jobs.finetuning.task_folder import TaskFolder
from saucier.jobs.run.passport import read_passport
from saucier.model import build
from saucier.objectives.distillation import Distilled
from saucier.objectives.observed_pass import ObservedPass, Wanted
from saucier.tasks.build import build_task
from saucier.text.tokenizer.tokenizer import load_tokenizer
from saucier.training.loop import Run

Table = Callable[..., Path]
WORDS = ["training.batch=16", "training.optimizer.learning_rate=0.002", "training.dtype=float32"]
ALL = ("[{kind: soft_targets, temperature: 2, weight: 4}, {kind: hard_targets}, {kind: hidden_states},"
       " {kind: embeddings}, {kind: attentions}, {kind: value_relations}]")


@pytest.fixture
def files(table: Table) -> tuple[Path, Path]:
    return (table("train.tsv", "label,text", labelled_rows(96, 1)),
            table("dev.tsv", "label,text", labelled_rows(40, 2)))


@pytest.fixture(scope="module")
def teacher(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fine-tuning of two layers that knows the labels."""
    folder = tmp_path_factory.mktemp("teacher")
    path = folder / "train.tsv"
    path.write_text("label\ttext\n" + "".join(f"{label}\t{text}\n" for label, text in labelled_rows(320, 3)))
    wanted = read_finetuning_words("classification", [*WORDS, "training.epochs=6"], str(tiny_bert),
                                   {"train": [str(path)], "held_out": [str(path)]})[0]
    assert first_score(finetune(wanted, folder / "run", quiet=True)) > 0.95
    return folder / "run"


@pytest.fixture(scope="module")
def student(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT of one layer and half the width, with the teacher's tokenizer."""
    folder, tokenizer = tmp_path_factory.mktemp("student") / "bert", load_tokenizer(tiny_bert)
    config = bert(vocab=tokenizer.vocab_size, dim=16, layers=1, heads=2, hidden=32, length=48, dropout=0.1)
    build(config, seed=3).save(folder)
    tokenizer.save(folder)
    return folder


def settings(model: Path, files: tuple[Path, ...], teacher: Path, *words: str,
             task: str = "classification") -> Finetuning:
    given = {"train": [str(files[0])], "held_out": [str(files[1])]}
    return read_finetuning_words(task, [*WORDS, f"distillation.teacher={teacher}", *words], str(model), given)[0]


def first_score(folder: TaskFolder) -> float:
    found = json.loads(folder.scores.read_text())["held-out"]["scores"][0]["value"]
    assert isinstance(found, float)
    return found


def evaluations(folder: Path) -> list[dict[str, float]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["evaluation"] for line in lines if "evaluation" in line]


@pytest.mark.slow
def test_a_student_of_half_the_width_learns_from_its_teacher(
        teacher: Path, student: Path, files: tuple[Path, Path], tmp_path: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in teacher.rglob("*.safetensors")}
    out = tmp_path / "run"
    code = main(["finetune", "classification", "--model", str(student), "--data", str(files[0]), "--held-out",
                 str(files[1]), "--out", str(out), *WORDS, "training.epochs=2", "training.patience=2",
                 f"distillation.teacher={teacher}", f"distillation.losses={ALL}"])
    assert code == 0
    said = capsys.readouterr().out
    assert f"learns from {teacher}" in said
    assert "4 × soft_targets; 1 × hidden_states (layers 1 ← 2, through a learned map 16 × 32)" in said
    first, last = evaluations(out)
    for name in ("soft_targets", "hidden_states", "embeddings", "attentions", "value_relations"):
        assert name in first
    assert last["hidden_states"] < first["hidden_states"]
    report = (out / "report.html").read_text()
    assert "<h2>Teacher</h2>" in report and "value relations" in report and f"{last['hidden_states']:.4g}" in report
    saved = saucier.load(out, dtype="float32")
    assert saved.config.dim == 16 and not any("distil" in name or "teacher" in name for name in saved.state_dict())
    answers = saucier.predict(out, [str(files[1])])
    assert len(answers.answers) == 40
    assert before == {path: path.read_bytes() for path in teacher.rglob("*.safetensors")}
    assert len(read_passport(out).data["teacher"]) == 64


def weights(folder: TaskFolder) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in saucier.load(folder.path, dtype="float32").state_dict().items()}


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_bit_and_never_with_another_teacher(
        teacher: Path, student: Path, files: tuple[Path, Path], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    lent = tmp_path / "teacher"
    shutil.copytree(teacher, lent)
    wanted = settings(student, files, lent, "training.epochs=2", f"distillation.losses={ALL}")
    whole = weights(finetune(wanted, tmp_path / "whole", quiet=True))
    update = Run.update

    def stopped(run: Run) -> None:
        if run.state.step == 8:
            raise KeyboardInterrupt
        update(run)

    out = tmp_path / "stopped"
    monkeypatch.setattr(Run, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(wanted, out, quiet=True)
    monkeypatch.setattr(Run, "update", update)
    checkpoint = out / "checkpoints" / "step-6"
    assert {path.name for path in checkpoint.iterdir()} >= {"distillation.safetensors", "optimizer.safetensors"}
    assert not [path for path in checkpoint.rglob("*") if "teacher" in path.name or path.is_dir()]
    kept = (lent / "model" / "model.safetensors").read_bytes()
    other = saucier.load(lent, dtype="float32")
    with torch.no_grad():
        other.head.output.bias += 1
    other.save(lent / "model", replace=True)
    with pytest.raises(saucier.InputError, match=r"begun with another recipe: data\.teacher was"):
        finetune(wanted, out, quiet=True)
    (lent / "model" / "model.safetensors").write_bytes(kept)
    found = weights(finetune(wanted, out, quiet=True))
    assert all(torch.equal(value, whole[name]) for name, value in found.items())


@pytest.mark.slow
def test_soft_targets_alone_teach_without_the_labels(teacher: Path, student: Path, files: tuple[Path, Path],
                                                     tmp_path: Path) -> None:
    wanted = settings(student, files, teacher, "distillation.losses=[{kind: soft_targets, factor: {kind: none}}]",
                      "training.epochs=24", "training.optimizer.learning_rate=0.01")
    assert first_score(finetune(wanted, tmp_path / "run", quiet=True)) > 0.9


@pytest.fixture
def reader(tiny_gpt2: Path, files: tuple[Path, Path], tmp_path: Path) -> Path:
    """Return a teacher of another family, with other tokens."""
    wanted = read_finetuning_words("classification", [*WORDS, "training.epochs=1"], str(tiny_gpt2),
                                   {"train": [str(files[0])], "held_out": [str(files[1])]})[0]
    return finetune(wanted, tmp_path / "gpt", quiet=True).path


@pytest.mark.slow
def test_a_teacher_of_another_family_reads_its_own_tokens(reader: Path, student: Path, files: tuple[Path, Path],
                                                          tmp_path: Path) -> None:
    folder = finetune(settings(student, files, reader, "training.epochs=1"), tmp_path / "run", quiet=True)
    student_model, teacher_model = (saucier.load(one, dtype="float32") for one in (folder.path, reader))
    logits = []
    for model, place in ((student_model, folder.path), (teacher_model, reader)):
        tokenizer = load_tokenizer(place)
        ids = [tokenizer.encode(line.split("\t")[1]) for line in files[1].read_text().splitlines()[1:]]
        with torch.no_grad():
            logits.append(torch.cat([model(torch.tensor([one])).logits for one in ids]).double())
    own, theirs = ((one / 2).softmax(-1) for one in logits)
    expected = 4 * float((theirs * (theirs / own).log()).sum()) / 40
    assert evaluations(folder.path)[-1]["soft_targets"] == pytest.approx(expected, rel=1e-3)
    with pytest.raises(saucier.InputError, match="the teacher's tokenizer makes other tokens"):
        finetune(settings(student, files, reader, "distillation.losses=[{kind: hidden_states}]"), tmp_path / "other",
                 quiet=True)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_teachers_that_do_not_fit_are_refused_before_anything_is_written(
        teacher: Path, student: Path, tiny_bert: Path, files: tuple[Path, Path], table: Table, tmp_path: Path) -> None:
    def refused(words: str, *more: str, of: Path = teacher, on: tuple[Path, Path] = files,
                task: str = "classification") -> None:
        with pytest.raises(saucier.InputError, match=words):
            finetune(settings(student, on, of, *more, task=task), tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()

    refused("no such folder", of=tmp_path / "nowhere")
    refused("no teacher is named", "distillation.teacher=null")
    refused("head of kind classification, and the teacher has pretraining", of=tiny_bert)
    refused("the teacher's labels are bad, good; those of the task are good, bad", "task.labels=[good, bad]")
    named = [(label + "!", text) for label, text in labelled_rows(60, 1)]
    other = table("other.tsv", "label,text", named)
    refused("the teacher's labels are bad, good; those of the task are bad!, good!", on=(other, other))
    refused("1 layers, and the teacher has 2|names layer 3", "distillation.losses=[{kind: hidden_states}]",
            "distillation.layers={kind: listed, pairs: [[1, 3]]}")
    refused("compiled code hides", "training.compile=true", "distillation.losses=[{kind: attentions}]")


def count_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the rows of every pass of a teacher from now on."""
    rows, run = list[int](), Distilled.run_teacher

    def counted(objective: Distilled, inputs: dict[str, Any], wanted: Wanted) -> ObservedPass:
        rows.append(len(inputs["input_ids"]))
        return run(objective, inputs, wanted)

    monkeypatch.setattr(Distilled, "run_teacher", counted)
    return rows


def losses_of(folder: Path) -> list[float]:
    found = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in found if "loss" in line]
    assert len(losses) > 10
    return losses


@pytest.mark.slow
def test_a_teacher_that_is_stored_reads_every_row_once(
        teacher: Path, student: Path, files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    lent, place = tmp_path / "teacher", tmp_path / "kept"
    shutil.copytree(teacher, lent)
    words = ["training.epochs=3", "training.patience=3", f"distillation.losses={ALL}"]
    passes = count_passes(monkeypatch)
    plain = finetune(settings(student, files, lent, *words), tmp_path / "plain", quiet=True).path
    assert sum(passes) == 3 * (96 + 40)
    passes.clear()
    stored = settings(student, files, lent, *words, f"distillation.stored.folder={place}")
    first = finetune(stored, tmp_path / "first").path
    assert sum(passes) == 16 + 96 + 40  # one batch shows the shapes
    # both read the same rows, beside others of another length: in float32 the last bits differ, and what grows of them
    assert losses_of(first) == pytest.approx(losses_of(plain), rel=1e-5)
    for one, other in zip(evaluations(first), evaluations(plain), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    size = sum(path.stat().st_size for path in place.rglob("*.safetensors"))
    line = next(line for line in capsys.readouterr().out.splitlines() if "what the teacher gives for 136 rows" in line)
    assert "computed in" in line and str(place) in line
    assert f"what the teacher gives for 136 rows: {line.split(': ')[1].split(' in ')[0]}" in (
        first / "report.html").read_text()
    passes.clear()
    again = finetune(stored, tmp_path / "second").path
    assert passes == [] and "all of it was there" in capsys.readouterr().out
    assert losses_of(again) == losses_of(first)
    changed = (files[0].with_name("changed.tsv"), files[1])
    changed[0].write_text(files[0].read_text().replace("\n", " more\n", 2).replace("text more", "text", 1))
    finetune(settings(student, changed, lent, *words, f"distillation.stored.folder={place}"), tmp_path / "third",
             quiet=True)
    assert 0 < sum(passes) <= 16  # the batch of the changed row
    assert len(list(place.iterdir())) == 1 and size > 136 * 4 * 2
    passes.clear()
    other = saucier.load(lent, dtype="float32")
    with torch.no_grad():
        other.head.output.bias += 1
    other.save(lent / "model", replace=True)
    finetune(stored, tmp_path / "fourth", quiet=True)
    assert sum(passes) == 16 + 96 + 40 and len(list(place.iterdir())) == 2


@pytest.mark.slow
def test_a_stored_teachers_run_goes_on_to_the_bit_and_leaves_nothing(
        teacher: Path, student: Path, files: tuple[Path, Path], tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = settings(student, files, teacher, "training.epochs=2", f"distillation.losses={ALL}",
                      "distillation.stored={}")
    whole = weights(finetune(wanted, tmp_path / "whole", quiet=True))
    update, out = Run.update, tmp_path / "stopped"

    def stopped(run: Run) -> None:
        if run.state.step == 8:
            raise KeyboardInterrupt
        update(run)

    monkeypatch.setattr(Run, "update", stopped)
    with pytest.raises(KeyboardInterrupt):
        finetune(wanted, out, quiet=True)
    monkeypatch.setattr(Run, "update", update)
    kept = next((out / "teacher-outputs").rglob("*.safetensors"))
    data = kept.read_bytes()
    kept.write_bytes(data[:len(data) // 2])
    with pytest.raises(saucier.InputError, match="stored outputs of a teacher are damaged") as error:
        finetune(wanted, out, quiet=True)
    assert len(str(error.value).splitlines()) == 1 and "remove the file" in str(error.value)
    kept.unlink()
    found = weights(finetune(wanted, out, quiet=True))
    assert all(torch.equal(value, whole[name]) for name, value in found.items())
    assert not (out / "teacher-outputs").exists()


@pytest.mark.slow
def test_more_bytes_than_the_limit_are_refused_with_their_number(
        teacher: Path, student: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    words = ["distillation.stored.limit=1000", "distillation.losses=[{kind: soft_targets}]"]
    with pytest.raises(saucier.InputError, match=r"for 136 rows takes 1\.\d+ kB, and the limit is 1\.00 kB") as error:
        finetune(settings(student, files, teacher, *words), tmp_path / "run", quiet=True)
    needed = re.search(r"stored\.limit=(\d+)", str(error.value))
    assert needed is not None and int(needed[1]) <= 136 * 2 * 4 and not (tmp_path / "run").exists()
    finetune(settings(student, files, teacher, f"distillation.stored.limit={needed[1]}", words[1]), tmp_path / "run",
             quiet=True)


def taught(task: str, files: tuple[Path, ...], models: tuple[Path, Path], out: Path, losses: str) -> dict[str, float]:
    """Fine-tune the second of two models, then the first with it as the teacher; return what was measured of that."""
    given = {"train": [str(files[0])], "held_out": [str(files[1])]}
    first = read_finetuning_words(task, [*WORDS, "training.epochs=1"], str(models[1]), given)[0]
    teacher = finetune(first, out / "teacher", quiet=True).path
    again = settings(models[0], files, teacher, "training.epochs=1", f"distillation.losses={losses}", task=task)
    found = evaluations(finetune(again, out / "student", quiet=True).path)[-1]
    assert found["loss"] > 0
    kept = settings(models[0], files, teacher, "training.epochs=1", f"distillation.losses={losses}",
                    "distillation.stored={}", task=task)
    assert evaluations(finetune(kept, out / "stored", quiet=True).path)[-1] == pytest.approx(found, rel=1e-4, abs=1e-6)
    return found


@pytest.mark.slow
def test_every_kind_of_task_has_a_teacher(student: Path, tiny_bert: Path, tiny_t5: Path, table: Table,
                                          tmp_path: Path) -> None:
    berts = student, tiny_bert
    soft = "[{kind: soft_targets}, {kind: hard_targets}]"
    numbers = tuple(table(f"{name}.tsv", "score,text", [(str(len(text)), text) for _, text in labelled_rows(24, seed)])
                    for seed, name in enumerate(("numbers", "more")))
    assert taught("regression", numbers, berts, tmp_path / "regression", soft)["soft_targets"] > 0
    tags = column_file(tmp_path / "tags.tsv", 24, 1), column_file(tmp_path / "tests.tsv", 12, 2)
    found = taught("tagging", tags, berts, tmp_path / "tagging",
                   "[{kind: soft_targets}, {kind: hard_targets}, {kind: attentions}]")
    assert found["soft_targets"] > 0 and found["attentions"] > 0
    questions = tuple(lines(tmp_path / f"{name}.jsonl", paragraphs(24, seed, share=0.2))
                      for seed, name in enumerate(("asked", "answered")))
    found = taught("question_answering", questions, berts, tmp_path / "answering",
                   "[{kind: soft_targets}, {kind: hard_targets}, {kind: hidden_states}]")
    assert found["soft_targets"] > 0 and found["hidden_states"] > 0
    choices = tuple(lines(tmp_path / f"{name}.jsonl", drawn(24, seed)) for seed, name in enumerate(("one", "two")))
    found = taught("multiple_choice", choices, berts, tmp_path / "choosing",
                   "[{kind: soft_targets}, {kind: hard_targets}, {kind: value_relations}]")
    assert found["soft_targets"] == pytest.approx(0.0, abs=1e-4) and found["value_relations"] > 0  # both guess still
    pairs = tuple(table(f"{name}.tsv", "text,pair", [(text, text[::-1]) for _, text in labelled_rows(24, seed)])
                  for seed, name in enumerate(("pairs", "others")))
    vectors = "[{kind: text_vectors}, {kind: hard_targets}, {kind: hidden_states, layers: {kind: last}}]"
    assert taught("embedding", pairs, berts, tmp_path / "embedding", vectors)["text_vectors"] > 0
    written = tuple(table(f"{name}.tsv", "input,target", written_rows(24, seed))
                    for seed, name in enumerate(("written", "read")))
    found = taught("text_to_text", written, (tiny_t5, tiny_t5), tmp_path / "writing",
                   "[{kind: soft_targets}, {kind: hard_targets}, {kind: hidden_states}]")
    assert {"soft_targets", "hidden_states_encoder", "hidden_states_decoder"} < set(found)


@pytest.mark.slow
def test_a_student_learns_what_the_beams_of_its_teacher_write(tiny_t5: Path, table: Table, tmp_path: Path) -> None:
    """Sequence-level distillation as `docs/distillation.md` has it: two commands, and no teacher while it trains."""
    train = table("train.tsv", "input,target", written_rows(64, 1))
    dev = table("dev.tsv", "input,target", written_rows(12, 2))
    beams = "task.writing.search={kind: beams, beams: 3}"
    words = ["training.batch=16", "training.optimizer={kind: adamw, learning_rate: 0.005}", "training.dtype=float32"]
    given = {"train": [str(train)], "held_out": [str(dev)]}
    wanted = read_finetuning_words("text_to_text", [*words, beams, "training.epochs=12"], str(tiny_t5), given)[0]
    teacher = finetune(wanted, tmp_path / "teacher", quiet=True).path
    written = tmp_path / "written.jsonl"
    assert main(["predict", str(teacher), str(train), "--out", str(written)]) == 0
    rows = [json.loads(line) for line in written.read_text().splitlines()]
    assert len(rows) == 64 and all(row["target"] in SAID.values() for row in rows)
    rows = [row for row in rows if row["prediction"]]
    rows[0]["prediction"] = "cold cold cold soup"  # what no row of the data has: it is learned from, the target is not
    written.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["finetune", "text_to_text", "--model", str(tiny_t5), "--data", str(written), "--held-out", str(dev),
                 "--column", "target=prediction", "--column", "held-out.target=target", "--out",
                 str(tmp_path / "student"), *words, "training.epochs=1"]) == 0
    found = read_finetuning(tmp_path / "student" / "finetune.yaml")
    splits = read_splits(build_task(found.task), found.data)
    assert [splits.task.gold(one) for one in splits.train] == [row["prediction"] for row in rows]
    assert [splits.task.gold(one) for one in splits.held_out] == [text for _, text in written_rows(12, 2)]
