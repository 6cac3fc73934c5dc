"""A chain of steps: each leaves a model that works, is measured on the same rows, and is never made twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.jobs.compression.conftest import QUICK, distil

import saucier
from saucier.config import parameters
from saucier.errors import InputError
from saucier.families.bert import bert
from saucier.jobs.compression import compress as job
from saucier.jobs.compression.outcome import Compressed, read_compressed
from saucier.jobs.compression.settings import Distil
from saucier.jobs.compression.steps import spread_layers, student_layers
from saucier.jobs.finetuning.settings import read_finetuning
from saucier.objectives.distillation import Distilled
from saucier.objectives.observed_pass import ObservedPass, Wanted

Write = Callable[..., Path]


@pytest.fixture(scope="module")
def done(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Compressed:
    """Return a finished chain of two steps, whose rows are those of the fine-tuning."""
    base = tmp_path_factory.mktemp("done")
    path = base / "two.yaml"
    path.write_text(f"name: two\nkeep: 0.5\nsteps:\n  - {distil(2)}\n  - {distil('[1]')}\n")
    found = saucier.compress(path, QUICK, model=teacher, test=teacher.parent / "test.tsv", out=base / "out", quiet=True)
    assert isinstance(found, Compressed)
    return found


@pytest.mark.slow
def test_each_step_leaves_a_model_that_opens_and_predicts(done: Compressed, teacher: Path) -> None:
    for number, layers in enumerate((2, 1), start=1):
        folder = done.folder / "steps" / f"{number}-distil" / "model"
        model = saucier.load(folder, dtype="float32")
        assert model.config.encoder is not None and len(model.config.encoder.blocks()) == layers
        measured = done.steps[number - 1]
        assert measured.size.parameters == parameters(model.config) == sum(one.numel() for one in model.parameters())
        assert measured.size.disk == (folder / "model.safetensors").stat().st_size
        assert measured.size.weights >= 4 * measured.size.parameters
        assert measured.size.layout == "bert"
        answers = saucier.predict(folder, [teacher.parent / "dev.tsv"]).answers
        written = [json.loads(line)["prediction"] for line in
                   (folder.parent / "predictions" / "held-out.jsonl").read_text().splitlines()]
        assert answers == written
        assert not saucier.diagnose(folder).failed
    assert done.model == done.folder / "steps" / "2-distil" / "model"


def test_scores_are_those_of_evaluate_and_differences_those_of_score(done: Compressed, teacher: Path) -> None:
    dev = teacher.parent / "dev.tsv"
    for one, folder in ((done.teacher, teacher), (done.steps[1], done.folder / "steps" / "2-distil" / "model")):
        wanted = {score.name: score for score in saucier.evaluate(folder, [dev]).scores}
        for metric in one.splits["held-out"].metrics:
            assert metric.value == pytest.approx(wanted[metric.name].value, abs=1e-12)
            assert metric.low == pytest.approx(wanted[metric.name].low, abs=1e-12)
    files = [done.folder / "steps" / "2-distil" / "predictions" / "test.jsonl",
             done.folder / "teacher" / "predictions" / "test.jsonl"]
    report = saucier.score([str(one) for one in files])
    wanted_gaps = {one.name: one for one in report.compared}
    for metric in done.steps[1].splits["test"].metrics:
        assert metric.difference == pytest.approx(wanted_gaps[metric.name].difference, abs=1e-12)
        assert metric.difference_low == pytest.approx(wanted_gaps[metric.name].low, abs=1e-12)


def test_the_share_that_is_kept_is_drawn_for_both_together(done: Compressed) -> None:
    own, theirs = (one.splits["held-out"].metrics[0].value for one in (done.steps[1], done.teacher))
    assert own is not None and theirs is not None
    assert done.steps[1].kept.value == pytest.approx(own / theirs, abs=1e-12)
    assert done.teacher.kept.low == done.teacher.kept.high == 1.0
    assert done.teacher.splits["held-out"].agreement.value == 1.0
    assert done.teacher.splits["held-out"].agreement.divergence == pytest.approx(0.0, abs=1e-12)


def test_agreement_and_divergence_are_those_of_the_probabilities(done: Compressed, teacher: Path) -> None:
    texts = [line.split("\t")[1] for line in (teacher.parent / "dev.tsv").read_text().splitlines()[1:]]
    sides = []
    for folder in (teacher, done.folder / "steps" / "1-distil" / "model"):
        model, tokenizer = saucier.load(folder, dtype="float32"), saucier.load_tokenizer(folder)
        with torch.no_grad():
            sides.append(torch.cat([model(torch.tensor([tokenizer.encode(text)])).logits.double() for text in texts]))
    first, second = (side.log_softmax(-1) for side in sides)
    wanted = torch.nn.functional.kl_div(second, first, log_target=True, reduction="batchmean")
    found = done.steps[0].splits["held-out"].agreement
    assert found.what == "equal answers"
    assert found.value == pytest.approx(float((first.argmax(-1) == second.argmax(-1)).double().mean()), abs=1e-12)
    assert found.divergence == pytest.approx(float(wanted), rel=1e-4, abs=1e-6)


def test_times_are_measured_in_turn_and_flops_fall_with_the_layers(done: Compressed) -> None:
    for one in done.steps:
        assert [speed.batch for speed in one.cost.speeds] == [1, 8]
        for speed in one.cost.speeds:
            assert speed.milliseconds > 0 and speed.low <= speed.ratio <= speed.high
    assert done.teacher.size.flops > done.steps[0].size.flops > done.steps[1].size.flops
    assert done.steps[0].cost.threads == torch.get_num_threads()
    for measured in (done.teacher, *done.steps):
        for speed in measured.cost.speeds:
            assert speed.native is not None and speed.native > 0  # these kernels run any BERT
            assert speed.native_ratio is not None and speed.native_ratio > 0


@pytest.mark.slow
def test_times_are_taken_where_it_is_asked_for(teacher: Path, chain: Write, tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[torch.device] = []
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, place: moved.append(place))
    saucier.compress(chain("{kind: quantize}"), [*QUICK, "measure.device=cpu", "measure.batches=[1]"], model=teacher,
                     out=tmp_path / "out", quiet=True)
    assert moved == [torch.device("cpu")] * 4  # the teacher with itself, then the step's model with the teacher


def test_a_finished_chain_is_read_and_nothing_is_made_again(done: Compressed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "run_step", None)
    monkeypatch.setattr(job, "measure_model", None)
    assert saucier.compress(done.folder, quiet=True).to_dict() == done.to_dict()  # type: ignore[union-attr]
    (done.folder / "outcome.json").rename(done.folder / "kept.json")  # stopped just before it was finished
    try:
        again = saucier.compress(done.folder, quiet=True)
        assert isinstance(again, Compressed) and again.to_dict() == done.to_dict()
    finally:
        (done.folder / "kept.json").replace(done.folder / "outcome.json")


def test_the_report_opens_without_a_network(done: Compressed) -> None:
    page = (done.folder / "report.html").read_text()
    assert not re.search(r"(src|href)=", page.replace('xlink:href="#', ""))
    assert page.count("<svg") == 1 and "1-distil" in page and "default-src 'none'" in page
    assert "saucier predict" in page
    assert "2-distil" in done._repr_html_() and "the smallest that keeps enough" in repr(done)


def test_other_settings_are_refused_in_its_folder(done: Compressed, teacher: Path) -> None:
    with pytest.raises(InputError, match=r"holds another compression: keep is 0\.5 there, and 0\.6 here"):
        saucier.compress(done.folder, ["keep=0.6"], quiet=True)
    with pytest.raises(InputError, match="holds files that are no compression"):
        saucier.compress(done.folder / "compression.yaml", out=teacher, quiet=True)


@pytest.mark.slow
def test_the_chain_stops_where_less_is_kept(teacher: Path, chain: Write, tmp_path: Path) -> None:
    still = distil(4, epochs=1).replace("2e-3", "1e-9")
    path = chain(still, still.replace("layers: 4", f"model: {teacher.parent / 'bert'}"), distil("[0]"), keep=0.9)
    found = saucier.compress(path, QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed)
    assert [one.name for one in found.steps] == ["1-distil", "2-distil"] and found.stopped and not found.failed
    assert found.steps[0].kept.value == 1.0
    assert (tmp_path / "out/steps/2-distil/model/model.safetensors").is_file()  # what broke the bound is kept
    assert found.model == tmp_path / "out/steps/1-distil/model"
    assert "2-distil: the bound is broken" in repr(found) and "not made: 3-distil" in repr(found)


PRUNED = {
    "{kind: prune, by: {kind: heads, share: 0.5, scope: {kind: layer}}}": lambda config: [
        one.projection.heads for one in config.encoder.attentions()] == [1] * 4,
    "{kind: prune, by: {kind: layers, choice: {kind: top, count: 1}}, training: {epochs: 1, batch: 16}}":
        lambda config: len(config.encoder.blocks()) == 3,
    "{kind: prune, by: {kind: task_vocabulary}}": lambda config: config.embed.vocab < 100,
}


@pytest.mark.slow
@pytest.mark.parametrize("step", PRUNED)
def test_a_pruned_step_is_smaller_and_answers_as_the_folder_does(step: str, teacher: Path, chain: Write,
                                                                 tmp_path: Path) -> None:
    found = saucier.compress(chain(step, "{kind: quantize}"), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed)
    folder = found.folder / "steps" / "1-prune" / "model"
    model = saucier.load(folder, dtype="float32")
    assert PRUNED[step](model.config)
    assert found.steps[0].size.parameters == parameters(model.config) < found.teacher.size.parameters
    assert "gone" in found.steps[0].notes[0] and "→" in found.steps[0].notes[1]
    for number, kind in ((1, "prune"), (2, "quantize")):
        place = found.folder / "steps" / f"{number}-{kind}"
        written = [json.loads(line)["prediction"] for line in
                   (place / "predictions" / "held-out.jsonl").read_text().splitlines()]
        assert saucier.predict(place / "model", [teacher.parent / "dev.tsv"]).answers == written


def test_a_student_learns_from_the_model_of_the_chain(done: Compressed, teacher: Path) -> None:
    for number in (1, 2):
        settings = read_finetuning(done.folder / "steps" / f"{number}-distil" / "training" / "finetune.yaml")
        assert settings.distillation is not None and settings.distillation.teacher == str(teacher)
        assert settings.training.length == 48


QUANTIZED = ("{kind: quantize}", "{kind: quantize, rows: 16, by: {format: {kind: integer, bits: 4, group: 16}, "
             "method: {kind: gptq}, embeddings: null}}", "{kind: quantize, by: {format: {kind: nf4}}}")


@pytest.mark.slow
@pytest.mark.parametrize("step", QUANTIZED)
def test_a_quantized_step_is_smaller_and_answers_as_the_folder_does(step: str, teacher: Path, chain: Write,
                                                                    tmp_path: Path) -> None:
    found = saucier.compress(chain(step), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed) and found.model is not None
    one = found.steps[0]
    assert one.size.parameters == found.teacher.size.parameters
    assert one.size.weights < 0.6 * found.teacher.size.weights and one.size.disk < 0.6 * found.teacher.size.disk
    assert one.splits["held-out"].agreement.value > 0.9
    written = [json.loads(line)["prediction"] for line in
               (found.model.parent / "predictions" / "held-out.jsonl").read_text().splitlines()]
    assert saucier.predict(found.model, [teacher.parent / "dev.tsv"]).answers == written
    assert not saucier.diagnose(found.model).failed


@pytest.mark.slow
def test_a_killed_step_goes_on_inside(teacher: Path, chain: Write, tmp_path: Path,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    path = chain(distil(1), distil("[0]", epochs=1))
    whole = saucier.compress(path, QUICK, model=teacher, out=tmp_path / "whole", quiet=True)
    measure, count = job.measure_model, 0

    def killed(*given: object) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        measure(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(job, "measure_model", killed)
    with pytest.raises(KeyboardInterrupt):
        saucier.compress(path, QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    made = tmp_path / "out/steps/1-distil/model/model.safetensors"
    before = made.stat().st_mtime_ns
    monkeypatch.setattr(job, "measure_model", measure)
    found = saucier.compress(path, QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    assert isinstance(found, Compressed) and isinstance(whole, Compressed)
    assert made.stat().st_mtime_ns == before
    for name in ("1-distil", "2-distil"):
        one, two = (folder / "steps" / name / "model" / "model.safetensors" for folder in (found.folder, whole.folder))
        assert one.read_bytes() == two.read_bytes()
    assert [one.splits for one in read_compressed(found.folder).steps] == [one.splits for one in whole.steps]


@pytest.mark.parametrize(("count", "layers", "wanted"), [(6, 12, (1, 3, 5, 7, 9, 11)), (3, 6, (1, 3, 5)),
                                                         (2, 5, (1, 4)), (4, 4, (0, 1, 2, 3)), (1, 7, (6,))])
def test_layers_are_spread_evenly_with_the_last_among_them(count: int, layers: int, wanted: tuple[int, ...]) -> None:
    assert spread_layers(count, layers) == wanted


def test_a_share_of_the_layers_is_rounded_and_one_stays() -> None:
    config = bert(vocab=20, dim=8, layers=5, heads=1, hidden=8, length=8)
    for share, wanted in ((0.5, (1, 4)), (0.34, (1, 4)), (0.05, (4,)), (0.99, (0, 1, 2, 3, 4))):
        [found] = student_layers(Distil(layers=share), config)
        assert found.order == wanted


@pytest.mark.slow
def test_steps_share_what_the_teacher_gives(teacher: Path, chain: Write, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    rows, run = list[int](), Distilled.run_teacher

    def counted(objective: Distilled, inputs: dict[str, Any], wanted: Wanted) -> ObservedPass:
        rows.append(len(inputs["input_ids"]))
        return run(objective, inputs, wanted)

    monkeypatch.setattr(Distilled, "run_teacher", counted)
    kept = [distil(layers).replace("{kind: distil", "{kind: distil, distillation: {stored: {}}") for layers in (2, 1)]
    found = saucier.compress(chain(*kept, keep=0.1), QUICK, model=teacher, out=tmp_path / "out", quiet=True)
    settings = read_finetuning(tmp_path / "out/steps/2-distil/training/finetune.yaml")
    assert settings.distillation is not None and settings.distillation.stored is not None
    assert settings.distillation.stored.folder == str(tmp_path / "out" / "teacher-outputs")
    assert isinstance(found, Compressed) and len(found.steps) == 2
    labelled = sum(len(Path(one).read_text().splitlines()) - 1
                   for one in (*settings.data.train, *settings.data.held_out))
    assert sum(rows) == labelled + rows[0]  # once for both steps and all epochs; the first batch shows the shapes
    assert not (tmp_path / "out" / "teacher-outputs").exists()
