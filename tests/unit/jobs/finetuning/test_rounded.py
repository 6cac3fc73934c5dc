"""Fine-tuning with rounding ends in an int8 folder; a quantized model cannot get a new head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.jobs.finetuning.test_finetune import files, scores, settings  # noqa: F401  # a fixture

import saucier
from saucier import InputError
from saucier.adaptation.quantization.maps import list_matrices
from saucier.adaptation.quantization.quantize import quantize_model
from saucier.adaptation.quantization.schemes import Quantization
from saucier.jobs.finetuning.finetune import finetune
from saucier.jobs.finetuning.predict import predict_answers


@pytest.mark.slow
def test_a_fine_tuning_ends_in_an_int8_folder(tiny_bert: Path, files: tuple[Path, Path],  # noqa: F811
                                              tmp_path: Path) -> None:
    """It scores, answers and is saved as the int8 model: a quarter of the bytes but for scales, norms and biases."""
    words = ["tuning.kind=quantization_aware", "training.optimizer.learning_rate=0.003"]
    folder = finetune(settings(tiny_bert, *files, *words), tmp_path / "run", quiet=True)
    assert scores(folder)["accuracy"] > 0.75
    document = json.loads((folder.model / "config.json").read_text())
    assert document["model_type"] == "saucier" and document["quantization"]["modules"]
    assert {one["method"] for one in document["quantization"]["modules"].values()} == {"quantization_aware"}
    model = saucier.load(folder.path, dtype="float32")
    held = sum(sum(part.nbytes for part in one.parts().values()) for one in list_matrices(model).values())
    values = sum(one.shape[0] * one.shape[1] for one in list_matrices(model).values())
    assert values <= held < 1.35 * values  # of narrow rows: a scale takes four bytes
    again = predict_answers(folder.path, [str(files[1])])
    told = [json.loads(line)["prediction"] for line in folder.predictions("held-out").read_text().splitlines()]
    assert sum(one.prediction == other for one, other in zip(again.answers, told, strict=True)) >= 79


def test_a_new_head_needs_the_float_model(tiny_bert: Path, files: tuple[Path, Path],  # noqa: F811
                                          tmp_path: Path) -> None:
    quantize_model(saucier.load(tiny_bert, dtype="float32"), Quantization()).save(tmp_path / "base")
    with pytest.raises(InputError, match="cannot be the start of a model of another shape or head"):
        finetune(settings(tmp_path / "base", *files, "tuning.kind=lora"), tmp_path / "run", quiet=True)
