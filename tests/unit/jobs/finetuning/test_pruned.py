"""Fine-tuning that prunes: what is left is saved, answers again, and a run that was stopped goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.test_finetune import files, settings  # noqa: F401  # a fixture

import saucier
from saucier.adaptation.pruning.methods import MagnitudePruning
from saucier.adaptation.pruning.prune import prune_model
from saucier.adaptation.pruning.sparsity import find_zeros
from saucier.config.counting.model import parameters
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers
from saucier.text.tokenizer.folder import copy_tokenizer

LITTLE = "training.epochs=1"


@pytest.mark.slow
@pytest.mark.parametrize(("units", "share"), [("neurons", 0.5), ("ranks", 0.9)])
def test_closed_gates_are_taken_out_of_a_classifier(units: str, share: float, tiny_bert: Path,
                                                    files: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    words = [LITTLE, "training.layer_drop=0.1", "pruning.kind=gates", f"pruning.units=[{units}]", "pruning.faster=200",
             "pruning.aim.kind=target", f"pruning.aim.share={share}"]
    run = finetune(settings(tiny_bert, *files, *words), tmp_path / "run", quiet=True)
    before, after = saucier.load(tiny_bert), saucier.load(run.model)
    assert parameters(after.config) < parameters(before.config)
    again = predict_answers(run.path, [str(files[1])])
    assert {one.prediction for one in again.answers} <= {"bad", "good"}


@pytest.mark.slow
def test_zeros_stay_through_a_fine_tuning(tiny_bert: Path, files: tuple[Path, Path], tmp_path: Path) -> None:  # noqa: F811
    sparse = prune_model(saucier.load(tiny_bert), MagnitudePruning(share=0.3))
    sparse.save(tmp_path / "sparse")
    copy_tokenizer(tiny_bert, tmp_path / "sparse")
    run = finetune(settings(tmp_path / "sparse", *files, LITTLE, "pruning.kind=kept_zeros"), tmp_path / "run",
                   quiet=True)
    after = saucier.load(run.model)
    for name, stays in find_zeros(sparse).items():
        assert not bool(after.get_parameter(name)[~stays].any()), name
        assert bool(after.get_parameter(name)[stays].any())
