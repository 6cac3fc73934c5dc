"""What cannot be done is one line with place and remedy, before anything is trained or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.jobs.compression.conftest import QUICK, distil, write_rows

import saucier
from saucier.cli import main
from saucier.errors import InputError
from saucier.jobs.compression import steps

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a training fail."""
    monkeypatch.setattr(steps, "finetune", None)


STEPS = {
    "{kind: distil, layers: 5}": r"steps\.0 \(distil\): layers: the student is to have 5 layers, and the model has 4; "
                                 "give at most 4",
    "{kind: distil, layers: [0, 4]}": r"steps\.0 \(distil\): layers: there is no layer 4: they are "
                                      "numbered from 0 to 3; give numbers of those",
    "{kind: distil, decoder_layers: 1}": r"steps\.0 \(distil\): decoder_layers: the model has one stack; use layers",
    "{kind: distil, layers: 3, distillation: {losses: [{kind: hidden_states}]}}":
        r"steps\.0 \(distil\): distillation\.layers: 4 layers of the teacher are no multiple of the student's 3",
    "{kind: distil}": r"chain\.yaml:5: steps\.0: the student is `layers` of the model, or another `model`",
    "{kind: distill, layers: 2}": r"chain\.yaml:5: steps\.0\.kind: there is no 'distill'; did you mean 'distil'\?",
    "{kind: distil, layer: 2}": r"chain\.yaml:5: steps\.0\.layer: unknown key; did you mean 'layers'\?",
    "{kind: distil, model: nowhere}": r"steps\.0 \(distil\): nowhere: no such folder, and no such recipe",
    "{kind: prune, by: {kind: heads, share: 0.5, where: [nothing]}}": r"steps\.0 \(prune\): where: 'nothing' meets no",
    "{kind: prune, by: {kind: layers, choice: {kind: top, count: 4}}}": r"steps\.0 \(prune\): ",
    "{kind: prune, by: {kind: heads, share: 1.5}}": r"chain\.yaml:5: steps\.0\.by\.share: ",
    "{kind: prune, by: {kind: head, share: 0.5}}": r"chain\.yaml:5: steps\.0\.by\.kind: there is no 'head'; did you",
    "{kind: quantize, by: {where: [nothing]}}": r"steps\.0 \(quantize\).*nothing",
    "{kind: quantize, by: {format: {kind: int8}}}": r"chain\.yaml:5: steps\.0\.by\.format\.kind: there is no 'int8'",
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_the_model_cannot_take(step: str, teacher: Path, chain: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=STEPS[step]) as caught:
        saucier.compress(chain(step), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert str(caught.value).count("\n") == 0 and caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_nothing_comes_after_quantize(teacher: Path, chain: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"steps\.1 \(distil\): the model is quantized by the step before.*last"):
        saucier.compress(chain("{kind: quantize}", distil(2)), QUICK, model=teacher, out=tmp_path / "out", quiet=True)


def test_a_layout_that_cannot_hold_the_result(teacher: Path, chain: Write, tmp_path: Path) -> None:
    path = chain(distil(2), "{kind: quantize}")
    with pytest.raises(InputError, match=r"steps\.1 \(quantize\): layout: .* table in few bits.*embeddings: null"):
        saucier.compress(path, [*QUICK, "layout=published"], model=teacher, out=tmp_path / "out", quiet=True)
    with pytest.raises(InputError, match="unknown layout 'publishd'; did you mean 'published'"):
        saucier.compress(path, [*QUICK, "layout=publishd"], model=teacher, out=tmp_path / "out", quiet=True)


@pytest.mark.parametrize(("text", "said"), [("", r"text\.txt: is empty; leave it out"), ("fine soup",
                                            r"the calibration text has \d+ tokens, and a row needs 48")])
def test_calibration_text_that_is_too_short(text: str, said: str, teacher: Path, chain: Write, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text)
    step = f"{{kind: quantize, text: [{tmp_path / 'text.txt'}], by: {{method: {{kind: gptq}}}}}}"
    with pytest.raises(InputError, match=said) as caught:
        saucier.compress(chain(step), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert "steps.0 (quantize)" in str(caught.value)


@pytest.mark.parametrize("keep", [0.0, 1.2, "most"])
def test_a_bound_that_no_step_keeps(keep: object, teacher: Path, chain: Write, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"command line: keep: .*should be"):
        saucier.compress(chain(distil(2)), [f"keep={keep}"], model=teacher, out=tmp_path / "out", quiet=True)


@pytest.mark.parametrize(("device", "said"), [("warp", "unknown device 'warp'"), ("meta", "holds no numbers")])
def test_times_are_taken_where_a_model_can_run(device: str, said: str, teacher: Path, chain: Write,
                                               tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        saucier.compress(chain(distil(2)), [*QUICK, f"measure.device={device}"], model=teacher, out=tmp_path / "out",
                         quiet=True)
    assert not (tmp_path / "out").exists()


def test_a_teacher_with_other_labels(teacher: Path, chain: Write, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "other.tsv", 30, 5)
    rows.write_text(rows.read_text().replace("good", "great"))
    with pytest.raises(InputError, match=r"tuned: its labels are bad, good, and the rows have others: .*label 'great'"):
        saucier.compress(chain(distil(2)), QUICK, model=teacher, data=rows, out=tmp_path / "out", quiet=True)


def test_models_and_rows_that_are_not_there(teacher: Path, chain: Write, tmp_path: Path) -> None:
    base, path = teacher.parent, chain(distil(2))
    rows = {"data": base / "train.tsv", "held_out": base / "dev.tsv", "out": tmp_path / "out", "quiet": True}
    with pytest.raises(InputError, match="--model is missing; add --model FOLDER"):
        saucier.compress(path, **rows)
    with pytest.raises(InputError, match=r"has no head for a task .*fine-tune it first"):
        saucier.compress(path, model=base / "bert", **rows)
    with pytest.raises(InputError, match=r"--data is missing, .*add --data train\.tsv --held-out dev\.tsv"):
        saucier.compress(path, model=base / "bert", quiet=True)
    with pytest.raises(InputError, match="nowhere"):
        saucier.compress(path, model=tmp_path / "nowhere", **rows)
    with pytest.raises(InputError, match=r"no chain has the name 'smal'; did you mean 'small'\?"):
        saucier.compress("smal", model=teacher, quiet=True)
    with pytest.raises(InputError, match=r"gone\.yaml"):
        saucier.compress(tmp_path / "gone.yaml", model=teacher, quiet=True)


def test_rows_of_a_fine_tuning_that_are_gone(teacher: Path, chain: Write, tmp_path: Path) -> None:
    moved = teacher.parent / "moved.tsv"
    (teacher.parent / "train.tsv").rename(moved)
    try:
        with pytest.raises(InputError, match=r"finetune\.yaml: its rows are gone: .*train\.tsv; give --data"):
            saucier.compress(chain(distil(2)), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    finally:
        moved.rename(teacher.parent / "train.tsv")


def test_the_command_line_says_it_in_one_line(teacher: Path, chain: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compress", str(chain("{kind: distil, layers: 9}")), "--model", str(teacher)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("error: steps.0 (distil): layers") and said.err.count("\n") == 1
