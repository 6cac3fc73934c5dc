"""Steps of a chain that change the model while it learns: gates, ranks, single weights, rounding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.jobs.compression.conftest import QUICK, learn

import saucier
from saucier.adaptation.pruning.sparsity import find_zeros
from saucier.adaptation.quantization.maps import is_quantized, list_matrices
from saucier.config import parameters
from saucier.errors import InputError
from saucier.jobs.compression import steps
from saucier.jobs.compression.outcome import Compressed
from saucier.jobs.finetuning.settings import read_finetuning
from saucier.model import Transformer
from saucier.objectives.config.pruning import KeptZeros

Write = Callable[..., Path]


def compress(path: Path, teacher: Path, out: Path) -> Compressed:
    """Return the outcome of a chain."""
    found = saucier.compress(path, QUICK, model=teacher, out=out, quiet=True)
    assert isinstance(found, Compressed)
    return found


def check_answers(found: Compressed, name: str, teacher: Path) -> Transformer:
    """Assert that a step's folder answers as it did when it was measured, and return its model."""
    place = found.folder / "steps" / name
    written = [json.loads(line)["prediction"] for line in
               (place / "predictions" / "held-out.jsonl").read_text().splitlines()]
    assert saucier.predict(place / "model", [teacher.parent / "dev.tsv"]).answers == written
    assert not (place / "start").exists() and not saucier.diagnose(place / "model").failed
    return saucier.load(place / "model", dtype="float32")


GATED = {"heads": (0.5, 3, "{}"), "neurons": (0.5, 8, "null"), "ranks": (0.6, 10, "null")}
"""What is behind gates: the share that goes, epochs in which the target is met, and what is learned from the teacher.
"""


@pytest.mark.slow
@pytest.mark.parametrize("units", GATED)
def test_gates_end_at_their_target_and_the_model_is_smaller(units: str, teacher: Path, chain: Write,
                                                            tmp_path: Path) -> None:
    share, epochs, taught = GATED[units]
    by = f"{{kind: gates, units: [{units}], faster: 200, aim: {{kind: target, share: {share}}}}}"
    found = compress(chain(f"{{kind: prune, by: {by}, distillation: {taught}, {learn(epochs)}}}", "{kind: quantize}"),
                     teacher, tmp_path / "out")
    model, before = check_answers(found, "1-prune", teacher), saucier.load(teacher, dtype="float32")
    measured = found.steps[0]
    assert measured.size.parameters == parameters(model.config) == sum(one.numel() for one in model.parameters())
    gone = steps.share_gone(before, model, steps.p.UnitGates.model_validate(
        {"units": [units], "aim": {"kind": "target", "share": share}}))
    assert gone == pytest.approx(share, abs=0.01)
    assert f"{gone:.1%} of the parameters behind gates went, {share:.1%} were to go" in measured.notes[1]
    assert is_quantized(check_answers(found, "2-quantize", teacher))


LOST = {"{kind: gradual_magnitude, share: 0.5, every: 2}": 0.5, "{kind: movement, share: 0.4, every: 2}": 0.4,
        "{kind: magnitude, share: 0.3}": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize("by", LOST)
def test_single_weights_are_zero_after_the_model_has_learned(by: str, teacher: Path, chain: Write,
                                                             tmp_path: Path) -> None:
    found = compress(chain(f"{{kind: prune, by: {by}, {learn(1)}}}"), teacher, tmp_path / "out")
    model = check_answers(found, "1-prune", teacher)
    kept = find_zeros(model)
    zeros, values = sum(int((~one).sum()) for one in kept.values()), sum(one.numel() for one in kept.values())
    assert zeros / values == pytest.approx(LOST[by], abs=1e-3) and len(kept) == 4 * 4
    assert f"{zeros:,} of " in found.steps[0].notes[-1] and "no faster" in found.steps[0].notes[-1]


@pytest.mark.slow
def test_zeros_of_a_step_are_kept_by_the_next_one(teacher: Path, chain: Write, tmp_path: Path) -> None:
    path = chain("{kind: prune, by: {kind: magnitude, share: 0.3}}",
                 f"{{kind: prune, by: {{kind: kept_zeros}}, distillation: null, {learn(1)}}}")
    found = compress(path, teacher, tmp_path / "out")
    first, second = (check_answers(found, name, teacher) for name in ("1-prune", "2-prune"))
    assert all(torch.equal(first.get_parameter(name) == 0, second.get_parameter(name) == 0)
               for name in find_zeros(first))
    assert not torch.equal(first.embed.tokens.weight, second.embed.tokens.weight)
    settings = read_finetuning(found.folder / "steps/2-prune/training/finetune.yaml")
    assert settings.pruning == KeptZeros() and settings.distillation is None


@pytest.mark.slow
def test_rounded_training_ends_in_few_bits(teacher: Path, chain: Write, tmp_path: Path) -> None:
    step = f"{{kind: quantize, by: {{kind: quantization_aware, bits: 4}}, {learn(1)}}}"
    found = compress(chain(step), teacher, tmp_path / "out")
    matrices = list_matrices(check_answers(found, "1-quantize", teacher))
    assert {getattr(one.store, "bits", None) for name, one in matrices.items() if ".blocks." in name} == {4}
    assert found.steps[0].size.weights < 0.5 * found.teacher.size.weights
    settings = read_finetuning(found.folder / "steps/1-quantize/training/finetune.yaml")
    assert settings.distillation is not None and settings.distillation.teacher == str(teacher)
    with pytest.raises(InputError, match=r"steps\.1 \(prune\): the model is quantized by the step before"):
        compress(chain(step, "{kind: prune, by: {kind: heads, share: 0.5}}"), teacher, tmp_path / "no")


GATES = "{kind: gates, aim: {kind: penalty, weight: 0.1}}"
REFUSED = {
    f"{{kind: prune, by: {GATES}}}": r"chain\.yaml:5: steps\.0: gates is learned: add `training: \{epochs: 3\}`",
    "{kind: quantize, by: {kind: quantization_aware}}":
        r"chain\.yaml:5: steps\.0: kind: quantization_aware is learned: add `training: \{epochs: 3\}`",
    "{kind: quantize, training: {epochs: 1}}":
        r"chain\.yaml:5: steps\.0: numbers that are rounded do not learn: use by: \{kind: quantization_aware\}",
    "{kind: prune, by: {kind: kept_zeros}, training: {epochs: 1}}":
        r"steps\.0 \(prune\): pruning\.kind: no weight of the model's stacks is zero; prune it first",
    "{kind: prune, by: {kind: gates, units: [ranks, heads], aim: {kind: penalty, weight: 1}}, training: {epochs: 1}}":
        r"steps\.0 \(prune\): pruning\.units: .*use \[ranks\] alone",
    "{kind: prune, by: {kind: movement, share: 0.5, where: [wheel]}, training: {epochs: 1}}":
        r"steps\.0 \(prune\): .*wheel",
    "{kind: quantize, by: {kind: quantization_aware, where: [wheel]}, training: {epochs: 1}}":
        r"steps\.0 \(quantize\): .*wheel",
}


@pytest.mark.parametrize("step", REFUSED)
def test_what_cannot_be_learned_is_refused_before_training(step: str, teacher: Path, chain: Write, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "finetune", None)
    with pytest.raises(InputError, match=REFUSED[step]) as caught:
        compress(chain(step), teacher, tmp_path / "out")
    assert str(caught.value).count("\n") == 0 and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_layout_that_cannot_hold_what_gates_leave(teacher: Path, chain: Write, tmp_path: Path) -> None:
    path = chain(f"{{kind: prune, by: {GATES}, training: {{epochs: 1}}}}")
    with pytest.raises(InputError, match=r"steps\.0 \(prune\): layout: "):
        saucier.compress(path, [*QUICK, "layout=published"], model=teacher, out=tmp_path / "out", quiet=True)
