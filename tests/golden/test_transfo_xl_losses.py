"""Transformer-XL's losses: an adaptive softmax that scores only the clusters of its targets, beside a memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

import saucier
from saucier.objectives.labels import ClassLabels
from saucier.objectives.prediction import Prediction
from saucier.parts.adaptive import AdaptiveHead

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden checkpoints are not beside this checkout")
FOLDERS = ("transfo-xl", "transfo-xl-div4")


def cases(folder: str) -> tuple[list[dict[str, object]], dict[str, Tensor]]:
    """The cases with a loss, and the tensors."""
    golden = json.loads((GOLDEN / folder / "golden.json").read_text())
    return ([case for case in golden["cases"] if "loss" in case["outputs"]],
            load_file(GOLDEN / folder / "golden.safetensors"))


def given(case: dict[str, object], tensors: dict[str, Tensor]) -> dict[str, object]:
    """The inputs of a case, the memory as a list."""
    return {key: [tensors[one] for one in name] if isinstance(name, list) else tensors[name]
            for key, name in case["inputs"].items()}  # type: ignore[attr-defined]


def by_cluster(losses: Tensor, labels: Tensor, cutoffs: tuple[int, ...]) -> Tensor:
    """The published order of the losses: cluster by cluster, targets that are ignored last. Shapes: [B, L]."""
    cluster = torch.bucketize(labels.flatten(), torch.tensor(cutoffs), right=True)
    cluster[labels.flatten() == -100] = len(cutoffs) + 1
    return losses.flatten()[cluster.argsort(stable=True)].view_as(losses)


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_one_loss_a_token_and_their_mean(folder: str) -> None:
    """By the head alone for each token, by the objective for the mean, and both by the log probabilities of all."""
    found, tensors = cases(folder)
    model = saucier.load(GOLDEN / folder, dtype="float32", device="cpu")
    assert isinstance(model.head, AdaptiveHead)
    assert {case["name"] for case in found} == {"seg1_loss", "seg2_loss", "loss_ignore"}
    for case in found:
        batch, outputs = given(case, tensors), case["outputs"]
        labels = F.pad(batch.pop("labels")[:, 1:], (0, 1), value=-100)
        with torch.no_grad():
            output = model(**batch)
            counted = labels[:, :-1] != -100
            losses = torch.zeros(counted.shape)
            losses[counted] = model.head.losses(output.last_hidden_state[:, :-1][counted], labels[:, :-1][counted])
            loss = Prediction()(model, {**batch, "labels": labels})
        tolerance = {"atol": case["atol"], "rtol": case["rtol"]}
        torch.testing.assert_close(by_cluster(losses, labels[:, :-1], model.head.config.cutoffs),
                                   tensors[outputs["losses"]], **tolerance)
        torch.testing.assert_close(loss.total / loss.weight, tensors[outputs["loss"]], **tolerance)
        of_all = -output.prediction_scores[:, :-1].gather(2, labels[:, :-1, None].clamp(min=0))[..., 0] * counted
        torch.testing.assert_close(losses, of_all, **tolerance)
        assert loss.figures["correct"].total == (output.logits.argmax(-1) == labels).sum()
        for number, past in enumerate(output.mems):
            torch.testing.assert_close(past, tensors[outputs[f"mems.{number}"]], **tolerance)


def test_loss_of_a_class() -> None:
    found, tensors = cases("transfo-xl-sequence-classification")
    model = saucier.load(GOLDEN / "transfo-xl-sequence-classification", dtype="float32", device="cpu")
    for case in found:
        loss = ClassLabels()(model, given(case, tensors))  # type: ignore[arg-type]  # a batch
        torch.testing.assert_close(loss.total / loss.weight, tensors[case["outputs"]["loss"]],  # type: ignore[index]
                                   atol=case["atol"], rtol=case["rtol"])
